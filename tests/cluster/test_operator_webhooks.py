"""The operator's webhooks for custom resources, as the API server asks them (PL-011 to PL-013, PL-031)."""

import secrets
from collections.abc import AsyncIterator, Awaitable
from pathlib import Path
from typing import Any

import pytest
from operator_world import World

from polyarch.kube.client.client import JsonPatch, MergePatch
from polyarch.kube.client.jsonpatch import replace
from polyarch.kube.errors import ApiError
from polyarch.kube.resources import NAMESPACES
from polyarch.placement import names
from polyarch.placement.api.resources import CPPCS, PPCS
from polyarch.sandbox.cluster import Sandbox
from polyarch.sandbox.locks import file_lock


def scoring(*architectures: str, enabled: bool = True) -> dict[str, Any]:
    return {
        "nodeAffinityScoring": {
            "enabled": enabled,
            "platforms": [{"architecture": each, "weight": 10} for each in architectures],
        }
    }


@pytest.fixture
async def world(operated_sandbox: Sandbox, tmp_path: Path) -> AsyncIterator[World]:
    """The operator serves, and the API server asks it."""
    lock = operated_sandbox.folder.root / ".operator.lock"
    async with file_lock(lock), World.opened(operated_sandbox, tmp_path) as world:
        await world.install()
        async with world.operator() as operator, world.webhooks((await operator.serves())["admission"]):
            yield world
            await operator.kill()


@pytest.fixture
async def namespace(world: World) -> AsyncIterator[str]:
    name = f"team-{secrets.token_hex(3)}"
    await world.client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    yield name
    await world.client.delete(NAMESPACES, name)


async def refusal(attempt: Awaitable[Any]) -> ApiError:
    with pytest.raises(ApiError) as refused:
        await attempt
    return refused.value


async def test_pl_013_the_finalizer_is_there_from_the_creation_on(world: World) -> None:
    made = await world.create(CPPCS, names.SINGLETON, {}, finalizers=["example.dev/other"])
    assert made["metadata"]["finalizers"] == ["example.dev/other", names.POD_PLACEMENT_FINALIZER]


async def test_pl_011_an_architecture_twice_is_refused_even_if_the_plugin_is_disabled(world: World) -> None:
    """Disabled, the schema refuses it as well; the message names the architecture and both positions."""
    spec = {"plugins": scoring("arm64", "amd64", "arm64", enabled=False)}
    error = await refusal(world.create(CPPCS, names.SINGLETON, spec))
    assert "platforms[0] and [2] both have architecture" in error.message
    assert "arm64" in error.message


async def test_pl_011_it_is_not_deleted_while_podplacementconfigs_exist(world: World, namespace: str) -> None:
    await world.create(CPPCS, names.SINGLETON, {})
    for priority in range(7):
        await world.create(PPCS, f"some-{priority}", {"plugins": {}, "priority": priority}, namespace=namespace)
    error = await refusal(world.client.delete(CPPCS, names.SINGLETON))
    assert error.status == 403
    named = ", ".join(f"{namespace}/some-{number}" for number in range(5))
    assert f"PodPlacementConfigs depend on it: {named} and 2 more; delete them first" in error.message
    for priority in range(7):
        await world.client.delete(PPCS, f"some-{priority}", namespace=namespace)
    await world.client.delete(CPPCS, names.SINGLETON)


async def test_pl_031_podplacementconfigs_need_the_cluster_configuration(world: World, namespace: str) -> None:
    error = await refusal(world.create(PPCS, "some", {"plugins": {}}, namespace=namespace))
    assert error.status == 400
    assert "create the ClusterPodPlacementConfig cluster first" in error.message
    await world.create(CPPCS, names.SINGLETON, {})
    await world.create(PPCS, "some", {"plugins": {}}, namespace=namespace)


async def test_pl_031_a_priority_is_used_once_in_a_namespace(world: World, namespace: str) -> None:
    """Row 23 of PL-900: the number is in decimal. An update is judged only if it changes the priority."""
    await world.create(CPPCS, names.SINGLETON, {})
    await world.create(PPCS, "first", {"plugins": {}, "priority": 65}, namespace=namespace)
    error = await refusal(world.create(PPCS, "second", {"plugins": {}, "priority": 65}, namespace=namespace))
    assert "spec.priority: 65 is already used by PodPlacementConfig first" in error.message
    await world.create(PPCS, "second", {"plugins": {}, "priority": 66}, namespace=namespace)
    taken = JsonPatch((replace("/spec/priority", 65),))
    assert (
        "65 is already used" in (await refusal(world.client.patch(PPCS, "second", taken, namespace=namespace))).message
    )
    labelled = MergePatch({"metadata": {"labels": {"a": "b"}}})
    await world.client.patch(PPCS, "second", labelled, namespace=namespace)


async def test_pl_031_a_selector_that_does_not_parse_is_refused(world: World, namespace: str) -> None:
    await world.create(CPPCS, names.SINGLETON, {})
    spec = {"plugins": {}, "labelSelector": {"matchExpressions": [{"key": "a", "operator": "In", "values": ["é"]}]}}
    error = await refusal(world.create(PPCS, "some", spec, namespace=namespace))
    assert "spec.labelSelector" in error.message
