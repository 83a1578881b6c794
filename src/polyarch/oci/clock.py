"""Time as a seam (RG-003): what waits, expires or measures takes a ``Clock``, so that a test can move time by hand.

``monotonic`` is for intervals and deadlines within a process. ``now`` is for what outlives it (the cache on disk, the
readings that controllers share) and for HTTP dates. ``Clock`` is structural: the clock of ``polyarch.kube`` fits it
too, and this package stays publishable on its own (RG-001).
"""

import asyncio
import time
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """Seconds as floats; ``now`` is aware and in UTC; ``sleep`` of zero or less returns after one turn of the loop."""

    def monotonic(self) -> float: ...

    def now(self) -> datetime: ...

    async def sleep(self, seconds: float) -> None: ...


class SystemClock:
    """The machine's clocks."""

    __slots__ = ()

    def monotonic(self) -> float:
        return time.monotonic()

    def now(self) -> datetime:
        return datetime.now(UTC)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
