"""Run coroutines concurrently, and poll until something holds."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import TypeVar

POLL_SECONDS = 0.05
T = TypeVar("T")


async def until(look: Callable[[], Awaitable[T]], *, seconds: float, every: float = POLL_SECONDS) -> T | None:
    """Poll ``look`` until its result is true, and return that result; None after ``seconds``."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    while not (found := await look()):
        if loop.time() > deadline:
            return None
        await asyncio.sleep(every)
    return found


async def together(coroutines: Iterable[Coroutine[object, object, T]]) -> list[T]:
    """All results, in order. If one fails, cancel the others and raise its error itself, not an ExceptionGroup."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(coroutine) for coroutine in coroutines]
    except BaseExceptionGroup as failures:
        first = failures.exceptions[0]
        raise first from first.__cause__
    return [task.result() for task in tasks]
