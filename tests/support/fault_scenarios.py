"""Scenarios that mostly wait, begun together: each is a coroutine that ends with its row, and one test awaits it."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any

from fault_table import Row

Scenario = Callable[[Any], Awaitable[Row]]


@asynccontextmanager
async def side_by_side(faults: Any, scenarios: Iterable[Scenario]) -> AsyncIterator[dict[str, "asyncio.Future[Row]"]]:
    """Tasks by the name of the scenario; what nobody awaited to its end is cancelled."""
    await faults.fleet.ensure()
    tasks: dict[str, asyncio.Future[Row]] = {
        scenario.__name__: asyncio.ensure_future(scenario(faults)) for scenario in scenarios
    }
    try:
        yield tasks
    finally:
        for task in tasks.values():
            task.cancel()
        await asyncio.gather(*tasks.values(), return_exceptions=True)
