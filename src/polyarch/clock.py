"""Time as a dependency: code that waits, expires or measures takes a ``Clock``, so that tests can control time.

``monotonic`` is for intervals and deadlines within a process. ``now`` is for times that outlive it (a Lease's
``renewTime``, the cache on disk) and for dates in protocols. Clocks of different machines disagree, so no decision
compares ``now`` with a time that another machine wrote (KR-030). ``Clock`` is a structural type. Deadlines and alarms
built on it are in ``polyarch.kube.clock``; the clock for tests is ``tests/manual_clock.py``.
"""

import asyncio
import time
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """Seconds are floats; ``now`` is timezone-aware, in UTC; ``sleep(0)`` or less yields to the event loop once."""

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
