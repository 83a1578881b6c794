"""The same work for many things, a few at a time, with one plain error in the end.

A task group cancels its other tasks at the first error and raises all of them in a bundle. Here work that was begun
comes to its end, because half a copied blob is worth nothing, no more is begun, and the error raised is that of the
first thing in the order given, so that two runs over the same fault say the same.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

A = TypeVar("A")
T = TypeVar("T")


async def map_concurrently(work: Callable[[A], Awaitable[T]], things: Iterable[A], *, at_once: int) -> list[T]:
    """The results in the order of the things. Raises what ``work`` raised."""
    slots = asyncio.Semaphore(at_once)
    errors: dict[int, Exception] = {}

    async def one(position: int, thing: A) -> T | None:
        async with slots:
            if errors:
                return None
            try:
                return await work(thing)
            except Exception as error:  # noqa: BLE001 - raised below, when the others have ended
                errors[position] = error
                return None

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(one(*each), name="one of several") for each in enumerate(things)]
    if errors:
        raise errors[min(errors)]
    return [task.result() for task in tasks]  # type: ignore[misc]  # without an error none is missing
