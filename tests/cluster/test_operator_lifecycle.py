"""The operator deploys placement, keeps it as it should be, and removes it (PL-020 to PL-022, PL-500 to PL-522)."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from operator_world import World, eventually

from polyarch.placement import names
from polyarch.placement.api.resources import CPPCS
from polyarch.sandbox.cluster import Sandbox


@pytest.fixture
async def world(operated_sandbox: Sandbox, tmp_path: Path) -> AsyncIterator[World]:
    async with World.opened(operated_sandbox, tmp_path) as world:
        yield world


async def test_pl_500_created_it_is_available_and_deleted_nothing_is_left(world: World) -> None:
    async with world.operator() as operator:
        await world.create(CPPCS, names.SINGLETON, {})
        await world.condition("Available", "True")
        await world.client.delete(CPPCS, names.SINGLETON)
        await eventually(lambda: world.is_gone(CPPCS, names.SINGLETON))
        assert await world.left() == []
        await operator.kill()
