"""Runs one function over many items with limited concurrency, and raises a single error.

A task group cancels its other tasks at the first error and raises an exception group. Here running work is finished,
because half a copied blob is useless, and no more is started. The error raised is that of the first failed item in
input order, so that repeated runs report the same error.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

A = TypeVar("A")
T = TypeVar("T")


async def map_concurrently(work: Callable[[A], Awaitable[T]], things: Iterable[A], *, at_once: int) -> list[T]:
    """The results in the order of ``things``, at most ``at_once`` at a time. Raises what ``work`` raised."""
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
