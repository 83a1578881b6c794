"""A running sandbox grows: nodes register as kubelets do, and what was there before does not notice."""

import asyncio
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from growing import grow

from polyarch.kube import config
from polyarch.kube.client import Client
from polyarch.kube.errors import NotFound
from polyarch.kube.patches import MergePatch
from polyarch.kube.resources import DAEMONSETS, NODES, PODS
from polyarch.sandbox.cluster import Sandbox
from polyarch.sandbox.registry.seed import Registry
from polyarch.sandbox.state import Settings, Taint

SECONDS = 60.0
ARM64 = Taint("arm64", "supported-arch", "arm64", "NoSchedule")
Document = dict[str, Any]


@pytest.fixture(scope="module")
def sandbox(growing_sandbox: Sandbox) -> Sandbox:
    """Its fleet grows from test to test."""
    return growing_sandbox


async def fleet(client: Client) -> dict[str, Document]:
    """Every node by name."""
    return {node["metadata"]["name"]: node for node in (await client.list(NODES)).items}


async def eventually(found: Callable[[], Any], holds: Callable[[Any], object]) -> Any:
    """What was found when it held; the last one is in the failure."""
    last: Any = None
    try:
        async with asyncio.timeout(SECONDS):
            while not holds(last := await found()):
                await asyncio.sleep(0.1)
    except TimeoutError:
        raise AssertionError(f"ended as {last}") from None
    return last


def own_taints(node: Document) -> list[Document]:
    """Without those of Kubernetes itself."""
    return [taint for taint in node["spec"].get("taints", ()) if not taint["key"].startswith("node.kubernetes.io/")]


@pytest.mark.req("SB-015")
async def test_new_nodes_join_tainted_and_nothing_else_is_restarted_or_written(
    sandbox: Sandbox, client: Client
) -> None:
    before, processes = await fleet(client), sandbox.records()
    grown = await grow(sandbox, (ARM64,), amd64=3, arm64=2)
    after = await fleet(client)

    assert set(after) - set(before) == {"amd64-3", "arm64-1", "arm64-2"}
    assert {name: after[name] for name in before} == before, "an older node was not written at all"
    assert [name for name, record in grown.records().items() if record != processes[name]] == ["nodes"]
    addresses = [each["address"] for node in after.values() for each in node["status"]["addresses"]]
    assert len(set(addresses)) == len(addresses)
    for name in ("arm64-1", "arm64-2"):
        assert own_taints(after[name]) == [{"key": "supported-arch", "value": "arm64", "effect": "NoSchedule"}]
        assert after[name]["status"]["nodeInfo"]["architecture"] == "arm64"
    assert own_taints(after["amd64-3"]) == []


@pytest.mark.req("SB-015")
async def test_a_taint_of_registration_that_is_taken_away_stays_away(sandbox: Sandbox, client: Client) -> None:
    assert own_taints(await client.get(NODES, "arm64-1"))
    await client.patch(NODES, "arm64-1", MergePatch({"spec": {"taints": None}}))
    await grow(sandbox, (ARM64,), s390x=1)
    assert own_taints(await client.get(NODES, "arm64-1")) == []
    assert own_taints(await client.get(NODES, "arm64-2")), "and the other one keeps its own"


@pytest.mark.req("SB-015")
async def test_a_kubelet_whose_node_was_made_without_its_label_adds_it(sandbox: Sandbox, client: Client) -> None:
    """A cloud's controller makes a Node first and the kubelet finds it: then there is a node without architecture."""
    mine = {"key": "starting", "effect": "NoExecute"}
    made = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "arm64-3"}, "spec": {"taints": [mine]}}
    await client.create(NODES, made)
    bare = await client.get(NODES, "arm64-3")
    assert "labels" not in bare["metadata"]
    assert not bare["status"]["nodeInfo"]["architecture"]

    joining = asyncio.create_task(grow(sandbox, arm64=3))
    node = await eventually(
        lambda: client.get(NODES, "arm64-3"), lambda node: node["metadata"].get("labels", {}).get("kubernetes.io/arch")
    )
    assert node["metadata"]["labels"]["kubernetes.io/arch"] == "arm64"
    await joining
    node = await client.get(NODES, "arm64-3")
    assert node["status"]["nodeInfo"]["architecture"] == "arm64"
    assert own_taints(node) == [mine]


def daemon_set(name: str, image: str) -> Document:
    labels = {"app": name}
    spec = {"containers": [{"name": "main", "image": image}], "tolerations": [{"operator": "Exists"}]}
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": name},
        "spec": {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": spec}},
    }


@pytest.mark.req("SB-004")
@pytest.mark.parametrize(
    ("shape", "reason"),
    [
        pytest.param({"platforms": ["linux/amd64"], "kind": "image"}, "CrashLoopBackOff", id="one image"),
        pytest.param({"platforms": ["linux/amd64"]}, "ImagePullBackOff", id="an index without the platform"),
    ],
)
async def test_a_daemon_set_runs_on_nodes_it_fits_and_fails_on_foreign_ones(
    sandbox: Sandbox, client: Client, namespace: str, registry: Registry, shape: Document, reason: str
) -> None:
    image = f"quay.io/agents/{secrets.token_hex(4)}:1"
    await registry.seed({image: shape})
    await client.create(DAEMONSETS, daemon_set("agent", image), namespace=namespace)
    architectures = {name: node["status"]["nodeInfo"]["architecture"] for name, node in (await fleet(client)).items()}
    expected = {name: "running" if fits == "amd64" else reason for name, fits in architectures.items()}

    async def states() -> dict[str, str]:
        pods = (await client.list(PODS, namespace=namespace)).items
        return {pod["spec"].get("nodeName", ""): _state(pod) for pod in pods}

    await eventually(states, lambda found: found == expected)


def _state(pod: Document) -> str:
    (container,) = pod["status"].get("containerStatuses") or [{"state": {}}]
    state = container["state"]
    return "running" if "running" in state else str(state.get("waiting", {}).get("reason", ""))


@pytest.mark.req("SB-015")
async def test_a_taint_with_no_execute_evicts_the_pods_that_do_not_tolerate_it(client: Client, namespace: str) -> None:
    key = "supported-arch"
    tolerating = [{"key": key, "operator": "Exists", "effect": "NoExecute"}]
    for name, tolerations in (("stays", tolerating), ("goes", [])):
        spec = {"nodeName": "ppc64le-1", "containers": [{"name": "main", "image": "nginx:1.27"}]}
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name},
            "spec": {**spec, "tolerations": tolerations},
        }
        await client.create(PODS, pod, namespace=namespace)
        await eventually(
            lambda name=name: client.get(PODS, name, namespace=namespace),
            lambda pod: pod["status"].get("phase") == "Running",
        )
    taint = {"key": key, "value": "ppc64le", "effect": "NoExecute"}
    await client.patch(NODES, "ppc64le-1", MergePatch({"spec": {"taints": [taint]}}))

    async def names() -> list[str]:
        return [pod["metadata"]["name"] for pod in (await client.list(PODS, namespace=namespace)).items]

    assert await eventually(names, lambda found: "goes" not in found) == ["stays"]
    with pytest.raises(NotFound):
        await client.get(PODS, "goes", namespace=namespace)


@pytest.mark.req("SB-015")
async def test_a_sandbox_of_an_older_version_grows_without_moving_its_nodes(tmp_path: Path) -> None:
    """Its state says nothing of the order in which nodes joined: it is that of its settings."""
    settings = Settings(name="older", nodes={"amd64": 1, "arm64": 1}, polyarch=False, seed_images=False)
    sandbox = await Sandbox.start(settings, home=tmp_path)
    try:
        sandbox.folder.save(msgspec.structs.replace(sandbox.state, fleet=()))
        async with Client(config.load(str(sandbox.kubeconfig)), role="tests") as client:
            before = await fleet(client)
            await grow(sandbox, amd64=2)
            after = await fleet(client)
        assert {name: after[name] for name in before} == before
        assert set(after) == {"amd64-1", "amd64-2", "arm64-1"}
    finally:
        await sandbox.delete()
