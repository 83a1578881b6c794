"""Processes that add tolerations, ended with the test."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from node_world import NodeWorld
from taint_world import EVERYWHERE, TaintWorld
from tainted_pods_world import TaintedPodsWorld


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


@pytest.fixture
async def worlds() -> AsyncIterator[Any]:
    made: list[NodeWorld] = []

    def make(*nodes: Any, lead: bool = True, **options: Any) -> NodeWorld:
        made.append(NodeWorld(*nodes, **options))
        if lead:
            made[-1].lead()
        return made[-1]

    yield make
    for world in made:
        await world.close()


@pytest.fixture
async def world_of() -> AsyncIterator[Any]:
    made: list[TaintedPodsWorld] = []

    def make(**options: Any) -> TaintedPodsWorld:
        made.append(TaintedPodsWorld(**options))
        return made[-1]

    yield make
    for world in made:
        await world.close()


@pytest.fixture
async def world(world_of) -> TaintedPodsWorld:
    return world_of()
