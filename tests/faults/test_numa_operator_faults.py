"""An operator that dies at every step of bringing NUMA exporters to a cluster, and of taking them out again."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from fault_mortal import Mortal
from fault_operator import mortal_operator
from numa_operated import DAEMON_SET, GROUP, KINDS, create, label, objects, opened, published, state, topology
from operator_world import OperatorWorld

from polyarch.kube.resources import DAEMONSETS, SECRETS
from polyarch.numa import names
from polyarch.numa.api.resources import OPERATORS


@pytest_asyncio.fixture(loop_scope="session")
async def world(installed, tmp_path: Path) -> AsyncIterator[OperatorWorld]:
    async with opened(installed.sandbox, tmp_path) as world:
        yield world


@pytest_asyncio.fixture(loop_scope="session")
async def mortal(world: OperatorWorld) -> AsyncIterator[Mortal]:
    async with mortal_operator(world) as mortal:
        yield mortal
        assert not mortal.bugs()


@pytest.mark.req("NO-040", "NO-072")
async def test_killed_at_every_step_of_bringing_and_removing_exporters(world, mortal):
    """At each step once after the API server carried the write out, and once before it saw it. What
    is left in the end is what an undisturbed operator leaves: the topologies of others, and their definition."""
    (node,) = await label(world, 1)
    await create(world, [{"poolName": GROUP}])

    async def is_told() -> bool:
        there = await world.is_there(DAEMONSETS, DAEMON_SET) and await world.is_there(
            SECRETS, names.EXPORTER_CERTIFICATE
        )
        return there and bool((await state(world))[0])

    await mortal.killed_until(is_told)
    assert {"PATCH daemonsets", "PATCH clusterroles", "PATCH numaresourcesoperators/status"} <= set(mortal.killed_at)
    assert (await state(world))[0] in ("Progressing", "Available")
    await topology(world, node, GROUP)
    await topology(world, "foreign", None)
    await mortal.kill()
    mortal.killed_at.clear()
    await world.client.delete(OPERATORS, names.OPERATOR_SINGLETON)

    async def is_removed() -> bool:
        left = [name for kind in KINDS for name in await objects(world, kind)]
        return not left and await world.is_gone(OPERATORS, names.OPERATOR_SINGLETON)

    await mortal.killed_until(is_removed)
    assert {"DELETE daemonsets", "DELETE noderesourcetopologies", "PATCH numaresourcesoperators"} <= set(
        mortal.killed_at
    )
    assert await published(world) == ["foreign"]
