"""Processes that add tolerations, ended with the test."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from taint_world import EVERYWHERE, TaintWorld


@pytest.fixture
async def taint_worlds() -> AsyncIterator[Any]:
    made: list[TaintWorld] = []

    async def make(**spec: Any) -> TaintWorld:
        made.append(TaintWorld(EVERYWHERE | spec))
        await made[-1].start()
        return made[-1]

    yield make
    for world in made:
        await world.close()


@pytest.fixture
async def taint_world(taint_worlds) -> TaintWorld:
    return await taint_worlds()
