"""PL-500 to PL-522: an operator that dies at every step, that is fought, and that meets an older API server."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest_asyncio
from fault_crowd import POLICY, crowd_in, seed
from fault_operator import Mortal
from operator_world import World, eventually
from placement_cluster import labels, pod

from polyarch.kube.resources import PODS
from polyarch.placement import names
from polyarch.placement.api.resources import CPPCS, POLICIES


@pytest_asyncio.fixture(loop_scope="session")
async def mortal(installed, tmp_path: Path) -> AsyncIterator[Mortal]:
    async with World.opened(installed.sandbox, tmp_path) as world:
        metadata = {"name": names.SINGLETON}
        policy = {"apiVersion": POLICIES.api_version, "kind": POLICIES.kind, "metadata": metadata, "spec": POLICY}
        await world.client.apply(POLICIES, policy)
        async with Mortal.of(world) as mortal:
            yield mortal
            assert not mortal.bugs()


async def until_asked(world: World) -> None:
    async def is_asked() -> bool:
        document = pod("quay.io/no:1", name="probe")
        seen = await world.client.create(PODS, document, namespace="default", type=dict, dry_run=True)
        return names.SCHEDULING_GATE_LABEL in labels(seen)

    await eventually(is_asked)


def note(mortal: Mortal) -> str:
    return f"killed {mortal.killed_at.total()} times at {len(mortal.killed_at)} steps"


async def test_pl_522_killed_at_every_step_of_install_and_uninstall(mortal, told):
    """At each step once after the API server carried the write out, and once before it saw it."""
    world = mortal.world
    images = await seed(world.sandbox, "quay.io", 4)
    await world.create(CPPCS, names.SINGLETON, {})

    async def is_available() -> bool:
        conditions = (await world.configuration()).get("status", {}).get("conditions", ())
        return any((each["type"], each["status"]) == ("Available", "True") for each in conditions)

    await mortal.killed_until(is_available)
    installed_at, installing = set(mortal.killed_at), note(mortal)
    await until_asked(world)
    async with crowd_in(world.client, world.sandbox.audit_log) as placed:
        await placed.create(images, 40)
        await placed.released(seconds=60)
        row = told(await placed.row("operator killed at every step of an install", note=installing))
    assert row.sound, row
    assert row.missed == 0
    assert {"PATCH deployments", "PATCH clusterroles", "POST secrets"} <= installed_at

    async with crowd_in(world.client, world.sandbox.audit_log, "hold") as held:
        await held.create({"quay.io/none-such/app:1": None}, 20)
        await mortal.kill()
        mortal.killed_at.clear()
        await world.client.delete(CPPCS, names.SINGLETON)

        async def is_removed() -> bool:
            return await world.is_gone(CPPCS, names.SINGLETON) and not await world.left()

        await mortal.killed_until(is_removed)
        await held.released(seconds=10)
        left = await world.left()
        removing = f"{note(mortal)}; left: {', '.join(left) or 'nothing'}"
        row = told(await held.row("operator killed at every step of an uninstall", note=removing))
    assert not left
    assert row.sound, row
    assert {"DELETE mutatingwebhookconfigurations", "DELETE deployments"} <= set(mortal.killed_at)
