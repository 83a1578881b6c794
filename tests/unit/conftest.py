"""Controllers for the tests of a test, ended with it."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from controller_world import ControllerWorld


@pytest.fixture
async def worlds() -> AsyncIterator[Any]:
    made: list[ControllerWorld] = []

    def make(**options: Any) -> ControllerWorld:
        made.append(ControllerWorld(**options))
        return made[-1]

    yield make
    for world in made:
        await world.close()


@pytest.fixture
async def world(worlds) -> ControllerWorld:
    return worlds()
