"""Shares concurrent work with equal keys (RG-113), like Go's singleflight.

Each flight is a task of its own, so a cancelled caller does not affect the others (RG-052). It is cancelled when nobody
waits for it any more: there are never more flights than callers, so a limit on callers limits flights (PL-810).
``close`` cancels all.
"""

import asyncio
from collections.abc import Callable, Coroutine, Hashable
from typing import Any, Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class _Flight(Generic[V]):
    __slots__ = ("task", "waiting")

    def __init__(self, task: asyncio.Task[V]) -> None:
        self.task = task
        self.waiting = 0


class Flights(Generic[K, V]):
    """Work in progress, by key."""

    __slots__ = ("_flights", "_tasks")

    def __init__(self) -> None:
        self._flights: dict[K, _Flight[V]] = {}
        self._tasks: set[asyncio.Task[V]] = set()
        """Including cancelled flights that have not ended yet."""

    def __len__(self) -> int:
        return len(self._tasks)

    def __contains__(self, key: K) -> bool:
        return self._under_way(key) is not None

    async def join(self, key: K, start: Callable[[], Coroutine[Any, Any, V]]) -> V:
        """The result of the flight for the key, started if needed; its error is raised to all callers."""
        flight = self._under_way(key)
        if flight is None:
            task = asyncio.create_task(start(), name="flight")
            flight = self._flights[key] = _Flight(task)
            self._tasks.add(task)
            task.add_done_callback(lambda done: self._landed(key, done))
        flight.waiting += 1
        try:
            return await asyncio.shield(flight.task)
        finally:
            flight.waiting -= 1
            if not flight.waiting and not flight.task.done():
                self._forget(key, flight.task)
                flight.task.cancel()

    async def close(self) -> None:
        """Cancel all flights and wait until they have ended."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def _under_way(self, key: K) -> _Flight[V] | None:
        """The flight in progress. One that is done but not yet removed does not count: a caller that needs a later
        result would join it over and over, and the event loop would never run its callback.
        """
        flight = self._flights.get(key)
        return None if flight is None or flight.task.done() else flight

    def _landed(self, key: K, task: asyncio.Task[V]) -> None:
        self._tasks.discard(task)
        self._forget(key, task)
        if not task.cancelled():
            task.exception()  # mark it as retrieved: callers got it, or have all left

    def _forget(self, key: K, task: asyncio.Task[V]) -> None:
        flight = self._flights.get(key)
        if flight is not None and flight.task is task:
            del self._flights[key]
