"""The operator's webhooks for custom resources, as the API server asks them."""

import asyncio
import json
import secrets
import threading
from collections.abc import AsyncIterator, Awaitable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from queue import Queue
from typing import Any

import pytest
from operator_world import CPPCS_V1ALPHA1, OperatorWorld, eventually

from polyarch.kube import config
from polyarch.kube.client import Client
from polyarch.kube.errors import ApiError, NotFound
from polyarch.kube.patches import JsonPatch, MergePatch, replace
from polyarch.kube.resources import NAMESPACES
from polyarch.placement import names
from polyarch.placement.api import CPPCS, PPCS
from polyarch.sandbox.cluster import Sandbox


def scoring(*architectures: str, enabled: bool = True) -> dict[str, Any]:
    return {
        "nodeAffinityScoring": {
            "enabled": enabled,
            "platforms": [{"architecture": each, "weight": 10} for each in architectures],
        }
    }


@pytest.fixture(scope="module")
def home(operated_sandbox: Sandbox, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OperatorWorld]:
    """The operator, as it is installed; the API server asks it by its Service."""
    ended = threading.Event()
    worlds: Queue[OperatorWorld | BaseException] = Queue()

    async def serve() -> None:
        try:
            async with (
                OperatorWorld.opened(operated_sandbox, tmp_path_factory.mktemp("home")) as world,
                world.deployed(),
            ):
                worlds.put(world)
                await asyncio.to_thread(ended.wait)
        except BaseException as error:
            worlds.put(error)
            raise

    with ThreadPoolExecutor(1) as thread:  # a fixture of a module must not touch the event loops of the tests
        serving = thread.submit(asyncio.run, serve())
        world = worlds.get()
        if isinstance(world, BaseException):
            raise world
        yield world
        ended.set()
        serving.result()


@pytest.fixture
async def world(home: OperatorWorld, tmp_path: Path) -> AsyncIterator[OperatorWorld]:
    async with Client(config.load(str(home.sandbox.kubeconfig)), role="tests") as client:
        world = OperatorWorld(home.sandbox, client, tmp_path, home.namespace)
        yield world
        for metadata in await world.found(PPCS):
            await client.delete(PPCS, metadata["name"], namespace=metadata["namespace"])
        with suppress(NotFound):
            await world.delete(CPPCS, names.SINGLETON)
        await eventually(lambda: world.is_gone(CPPCS, names.SINGLETON))


@pytest.fixture
async def namespace(world: OperatorWorld) -> AsyncIterator[str]:
    name = f"team-{secrets.token_hex(3)}"
    await world.client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    yield name
    await world.client.delete(NAMESPACES, name)


async def refusal(attempt: Awaitable[Any]) -> ApiError:
    with pytest.raises(ApiError) as refused:
        await attempt
    return refused.value


@pytest.mark.req("PL-013")
async def test_the_finalizer_is_there_from_the_creation_on(world: OperatorWorld) -> None:
    made = await world.create(CPPCS, names.SINGLETON, {}, finalizers=["example.dev/other"])
    assert made["metadata"]["finalizers"] == ["example.dev/other", names.POD_PLACEMENT_FINALIZER]


@pytest.mark.req("PL-011")
async def test_an_architecture_twice_is_refused_even_if_the_plugin_is_disabled(world: OperatorWorld) -> None:
    """Disabled, the schema refuses it as well; the message names the architecture and both positions."""
    spec = {"plugins": scoring("arm64", "amd64", "arm64", enabled=False)}
    error = await refusal(world.create(CPPCS, names.SINGLETON, spec))
    assert "platforms[0] and [2] both have architecture" in error.message
    assert "arm64" in error.message


@pytest.mark.req("PL-011")
async def test_it_is_not_deleted_while_podplacementconfigs_exist(world: OperatorWorld, namespace: str) -> None:
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
    await eventually(lambda: world.is_gone(CPPCS, names.SINGLETON))


@pytest.mark.req("PL-031")
async def test_podplacementconfigs_need_the_cluster_configuration(world: OperatorWorld, namespace: str) -> None:
    error = await refusal(world.create(PPCS, "some", {"plugins": {}}, namespace=namespace))
    assert error.status == 400
    assert "create the ClusterPodPlacementConfig cluster first" in error.message
    await world.create(CPPCS, names.SINGLETON, {})
    await world.create(PPCS, "some", {"plugins": {}}, namespace=namespace)


@pytest.mark.req("PL-031", "PL-900")
async def test_a_priority_is_used_once_in_a_namespace(world: OperatorWorld, namespace: str) -> None:
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


@pytest.mark.req("PL-031")
async def test_a_selector_that_does_not_parse_is_refused(world: OperatorWorld, namespace: str) -> None:
    await world.create(CPPCS, names.SINGLETON, {})
    spec = {"plugins": {}, "labelSelector": {"matchExpressions": [{"key": "a", "operator": "In", "values": ["é"]}]}}
    error = await refusal(world.create(PPCS, "some", spec, namespace=namespace))
    assert "spec.labelSelector" in error.message


@pytest.mark.req("PL-012", "PL-900")
async def test_nothing_is_lost_through_v1alpha1(world: OperatorWorld) -> None:
    """Row 22 of PL-900: written and read in either version, and stored in v1beta1."""
    plugins = scoring("arm64")
    await world.create(CPPCS, names.SINGLETON, {"fallbackArchitecture": "amd64", "plugins": plugins})
    old = await world.client.get(CPPCS_V1ALPHA1, names.SINGLETON)
    assert old["spec"] == {"logVerbosity": "Normal"}
    annotations = old["metadata"]["annotations"]
    assert annotations[names.FALLBACK_ANNOTATION] == "amd64"
    assert json.loads(annotations[names.PLUGINS_ANNOTATION]) == plugins

    old["spec"]["logVerbosity"] = "Debug"
    await world.client.patch(CPPCS_V1ALPHA1, names.SINGLETON, MergePatch({"spec": old["spec"]}))
    new = await world.configuration()
    assert new["spec"] == {"logVerbosity": "Debug", "fallbackArchitecture": "amd64", "plugins": plugins}
    assert not new["metadata"].get("annotations")


@pytest.mark.req("PL-012")
async def test_a_client_that_drops_the_annotations_switches_nothing_off(world: OperatorWorld) -> None:
    """Removing the values needs v1beta1."""
    plugins = scoring("arm64")
    await world.create(CPPCS, names.SINGLETON, {"fallbackArchitecture": "amd64", "plugins": plugins})
    dropped = MergePatch({"metadata": {"annotations": None}, "spec": {"logVerbosity": "Trace"}})
    await world.client.patch(CPPCS_V1ALPHA1, names.SINGLETON, dropped)
    assert (await world.configuration())["spec"] == {
        "logVerbosity": "Trace",
        "fallbackArchitecture": "amd64",
        "plugins": plugins,
    }
    await world.client.patch(CPPCS, names.SINGLETON, MergePatch({"spec": {"plugins": None}}))
    assert "plugins" not in (await world.configuration())["spec"]


@pytest.mark.req("PL-012")
async def test_what_cannot_be_converted_stays_where_it_is(world: OperatorWorld) -> None:
    """An undecodable annotation loses nothing and hinders nothing."""
    broken = {names.PLUGINS_ANNOTATION: "{"}
    await world.create(CPPCS_V1ALPHA1, names.SINGLETON, {}, annotations=broken)
    new = await world.configuration()
    assert "plugins" not in new["spec"]
    assert new["metadata"]["annotations"] == broken
