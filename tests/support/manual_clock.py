"""The clock that tests move by hand."""

import asyncio
import heapq
import itertools
from datetime import UTC, datetime, timedelta


class ManualClock:
    """A clock that stands still until it is told to move; sleepers wake in the order of their deadlines.

    ``advance`` is for code without tasks and for a single step; ``run`` goes through every deadline on the way and lets
    the tasks work in between, so that ``await clock.run(60)`` with a loop that sleeps 10 s gives six passes.
    With ``skips`` nobody has to move it: each sleep moves time by itself, and takes none; ``slept`` are the pauses.
    """

    def __init__(
        self,
        start: float = 1000.0,
        now: datetime = datetime(2025, 1, 1, tzinfo=UTC),
        *,
        turns: int = 50,
        skips: bool = False,
    ) -> None:
        """``turns`` of the event loop count as enough for tasks to get as far as they can; none does real I/O."""
        self._turns = turns
        self._skips = skips
        self.slept: list[float] = []
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
        self.slept.append(seconds)
        if self._skips:
            self.advance(seconds)
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
