"""What is built on a ``Clock``: deadlines, an alarm that can be moved, and who cancelled whom."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from polyarch.clock import Clock, SystemClock

__all__ = ["Alarm", "Clock", "SystemClock", "deadline", "is_cancelled"]


class Alarm:
    """One timer on a clock that can be moved or stopped at any time; ``callback`` runs once when its time has come."""

    __slots__ = ("_callback", "_clock", "_due", "_task")

    def __init__(self, clock: Clock, callback: Callable[[], None]) -> None:
        self._clock = clock
        self._callback = callback
        self._due: float | None = None
        self._task: asyncio.Task[None] | None = None

    def set(self, due: float) -> None:
        """Rings at ``due`` on the monotonic clock, and not at the time set before."""
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
    """Whether the running task itself was asked to end.

    A ``CancelledError`` without it comes from something that was awaited: a shared task, or a future of a library,
    which somebody else cancelled. It is a failure of that, and must not end a loop: a task group takes a child that
    ends with ``CancelledError`` for one that was meant to end, and nobody hears of it.
    """
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def deadline(clock: Clock, seconds: float | None) -> AbstractAsyncContextManager[asyncio.Timeout]:
    """``asyncio.timeout`` measured on ``clock``: cancels the body when time is up and then raises ``TimeoutError``.

    ``None`` sets no deadline. The value's ``expired()`` tells this deadline from a ``TimeoutError`` of the body's own.
    """
    if seconds is None or isinstance(clock, SystemClock):
        return asyncio.timeout(seconds)
    return _deadline(clock, seconds)


@asynccontextmanager
async def _deadline(clock: Clock, seconds: float) -> AsyncIterator[asyncio.Timeout]:
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(None) as scope:
        alarm = Alarm(clock, lambda: scope.reschedule(loop.time()))
        alarm.set(clock.monotonic() + seconds)
        try:
            yield scope
        finally:
            alarm.stop()
