"""Many questions to the API server, a few at a time: it limits what one client may ask."""

import asyncio
from collections.abc import Awaitable, Iterable
from typing import Final, TypeVar

T = TypeVar("T")

AT_ONCE: Final = 8


async def together(questions: Iterable[Awaitable[T]]) -> list[T]:
    """The answers in the same order; :data:`AT_ONCE` are asked at the same time."""
    limit = asyncio.Semaphore(AT_ONCE)

    async def limited(question: Awaitable[T]) -> T:
        async with limit:
            return await question

    return list(await asyncio.gather(*map(limited, questions)))
