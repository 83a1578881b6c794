"""One flight for all who ask the same (RG-113): the first starts it, the others wait for the same result.

A flight is a task of its own, so a caller that is cancelled takes nothing from the others (RG-052), and one whose
callers have all gone still serves the cache (PL-113). Flights belong to the ``Flights``: ``close`` ends them all.
"""

import asyncio
from collections.abc import Callable, Coroutine, Hashable
from typing import Any, Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Flights(Generic[K, V]):
    """Work under way, by key."""

    __slots__ = ("_tasks",)

    def __init__(self) -> None:
        self._tasks: dict[K, asyncio.Task[V]] = {}

    def __len__(self) -> int:
        return len(self._tasks)

    def __contains__(self, key: K) -> bool:
        return key in self._tasks

    async def join(self, key: K, start: Callable[[], Coroutine[Any, Any, V]]) -> V:
        """The result of the flight under way for the key, or of a new one; its error is raised to all who wait."""
        task = self._tasks.get(key)
        if task is None:
            task = asyncio.create_task(start(), name="flight")
            self._tasks[key] = task
            task.add_done_callback(lambda done: self._landed(key, done))
        return await asyncio.shield(task)

    async def close(self) -> None:
        """Cancels what is under way and waits until it has ended."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def _landed(self, key: K, task: asyncio.Task[V]) -> None:
        if self._tasks.get(key) is task:
            del self._tasks[key]
        if not task.cancelled():
            task.exception()  # whoever waited got it; if nobody did any more, it is not a mistake to have no reader
