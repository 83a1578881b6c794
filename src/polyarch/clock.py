"""Time as a dependency: what waits, expires or measures takes a ``Clock``, so that a test can move time by hand.

``monotonic`` is for intervals and deadlines within a process. ``now`` is for what outlives it (a Lease's ``renewTime``,
the cache on disk) and for the dates of protocols: clocks of different machines disagree, so a decision never compares
``now`` with a time that another machine wrote (KR-030). ``Clock`` is structural; any object with these three members
serves. What is built on it, deadlines and alarms, is in ``polyarch.kube.clock``, the clock that tests move by hand in
``tests/manual_clock.py``.
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
