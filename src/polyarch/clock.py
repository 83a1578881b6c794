"""Time as a dependency: code that waits, expires or measures takes a ``Clock``, so that tests can control time.

``monotonic`` is for intervals and deadlines within a process. ``now`` is for times that outlive it (a Lease's
``renewTime``, the cache on disk) and for dates in protocols. Clocks of different machines disagree, so no decision
compares ``now`` with a time that another machine wrote. ``Clock`` is a structural type; the clock for tests is
``tests/support/manual_clock.py``. Alarms and deadlines are built on it.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
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


class Timer:
    """A timer on a clock that can be moved or stopped at any time; it calls ``callback`` once when it is due."""

    __slots__ = ("_callback", "_clock", "_due", "_task")

    def __init__(self, clock: Clock, callback: Callable[[], None]) -> None:
        self._clock = clock
        self._callback = callback
        self._due: float | None = None
        self._task: asyncio.Task[None] | None = None

    def set(self, due: float) -> None:
        """Sets the alarm to ``due`` on the monotonic clock, in place of the time set before."""
        if due != self._due:
            self.stop()
            self._due = due
            self._task = asyncio.get_running_loop().create_task(self._ring(due), name="alarm")

    def stop(self) -> None:
        task, self._task, self._due = self._task, None, None
        if task is not None:
            task.cancel()

    async def _ring(self, due: float) -> None:
        await self._clock.sleep(due - self._clock.monotonic())
        self._task = self._due = None
        self._callback()


def is_cancelled() -> bool:
    """Whether the running task itself was cancelled.

    If not, a ``CancelledError`` comes from something it awaited: a shared task, or a library's future, which somebody
    else cancelled. That is a failure and must not end a loop: a task group takes a child that ends with
    ``CancelledError`` for one that was meant to end, and reports nothing.
    """
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def deadline(clock: Clock, seconds: float | None) -> AbstractAsyncContextManager[asyncio.Timeout]:
    """``asyncio.timeout`` measured on ``clock``: cancels the body when time is up, then raises ``TimeoutError``.

    ``None`` sets no deadline. ``expired()`` of the value tells this deadline from a ``TimeoutError`` raised by the
    body.
    """
    if seconds is None or isinstance(clock, SystemClock):
        return asyncio.timeout(seconds)
    return _deadline(clock, seconds)


@asynccontextmanager
async def _deadline(clock: Clock, seconds: float) -> AsyncIterator[asyncio.Timeout]:
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(None) as scope:
        alarm = Timer(clock, lambda: scope.reschedule(loop.time()))
        alarm.set(clock.monotonic() + seconds)
        try:
            yield scope
        finally:
            alarm.stop()
