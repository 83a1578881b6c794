"""Worlds of nodes, ended with their tests."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from node_world import NodeWorld


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
