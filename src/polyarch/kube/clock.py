"""What is built on a ``Clock``: deadlines, an alarm that can be moved, and the clock that tests move by hand."""

import asyncio
import heapq
import itertools
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import UTC, datetime, timedelta

from polyarch.clock import Clock, SystemClock

__all__ = ["Alarm", "Clock", "ManualClock", "SystemClock", "deadline"]


class ManualClock:
    """A clock that stands still until it is told to move; sleepers wake in the order of their deadlines.

    ``advance`` is for code without tasks and for a single step; ``run`` goes through every deadline on the way and lets
    the tasks work in between, so that ``await clock.run(60)`` with a loop that sleeps 10 s gives six passes.
    """

    def __init__(
        self, start: float = 1000.0, now: datetime = datetime(2025, 1, 1, tzinfo=UTC), *, turns: int = 50
    ) -> None:
        """``turns`` of the event loop count as enough for tasks to get as far as they can; none does real I/O."""
        self._turns = turns
        self._started = start
        self._time = start
        self._now = now
        self._order = itertools.count()
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []

    def monotonic(self) -> float:
        return self._time

    def now(self) -> datetime:
        return self._now + timedelta(seconds=self._time - self._started)

    async def sleep(self, seconds: float) -> None:
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self._time + seconds, next(self._order), future))
        await future

    @property
    def sleepers(self) -> int:
        """How many tasks sleep on this clock now."""
        return sum(not future.done() for _, _, future in self._sleepers)

    def advance(self, seconds: float) -> None:
        """Moves time in one step and wakes whoever is due; they run when the caller next awaits."""
        self._time += seconds
        while self._sleepers and self._sleepers[0][0] <= self._time:
            _, _, future = heapq.heappop(self._sleepers)
            if not future.done():
                future.set_result(None)

    async def run(self, seconds: float) -> None:
        """Moves time from deadline to deadline, letting every task that woke work until it waits again."""
        end = self._time + seconds
        await self.settle()
        while (due := self._next_deadline()) is not None and due <= end:
            self.advance(max(due - self._time, 0.0))
            await self.settle()
        self.advance(end - self._time)
        await self.settle()

    async def settle(self, turns: int | None = None) -> None:
        """Lets other tasks run without moving time."""
        for _ in range(turns or self._turns):
            await asyncio.sleep(0)

    def _next_deadline(self) -> float | None:
        while self._sleepers and self._sleepers[0][2].done():
            heapq.heappop(self._sleepers)
        return self._sleepers[0][0] if self._sleepers else None


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
