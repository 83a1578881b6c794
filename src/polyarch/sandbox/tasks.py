"""Doing several things at once where one error, the first, is what a person wants to read."""

import asyncio
from collections.abc import Coroutine, Iterable
from typing import TypeVar

T = TypeVar("T")


async def together(coroutines: Iterable[Coroutine[object, object, T]]) -> list[T]:
    """All results in the order given; if one fails the others are cancelled and its error is raised as it is."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(coroutine) for coroutine in coroutines]
    except BaseExceptionGroup as failures:
        first = failures.exceptions[0]
        raise first from first.__cause__
    return [task.result() for task in tasks]
