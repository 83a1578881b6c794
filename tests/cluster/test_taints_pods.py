"""Pods that the admission of tolerations missed or could not finish, in a real cluster."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
from placement_cluster import PlacementCluster, pod, until
from taint_process import configured, has_gate, remove, taint_role, taints, tolerated, warnings

from polyarch.kube.client import Client
from polyarch.kube.errors import NotFound
from polyarch.kube.patches import JsonPatch, MergePatch, add
from polyarch.kube.resources import NAMESPACES, PODS, REPLICASETS
from polyarch.sandbox.cluster import Sandbox
from polyarch.taints import names
from polyarch.taints.api import ARCHITECTURE_TAINTS

pytestmark = pytest.mark.req("TN-045", "TN-047", "TN-092")

NOWHERE = {"polyarch.test/node": "none"}
"""``nodeSelector`` of pods that stay unscheduled."""
BOTH = ["linux/amd64", "linux/arm64"]


def gated(image: str, name: str = "app", **spec: Any) -> dict[str, Any]:
    """As the admission leaves a pod whose image it does not know."""
    document = pod(image, name=name, schedulingGates=[{"name": names.GATE}], nodeSelector=NOWHERE, **spec)
    document["metadata"]["labels"] = {names.GATED_LABEL: names.GATED}
    return document


@pytest.fixture
async def home(namespace: str, sole_taints: None) -> str:
    """The namespace of the pods; the object is the test's own."""
    return namespace


@pytest.fixture
async def own(client: Client, namespace: str) -> AsyncIterator[str]:
    """The namespace of the process: pods of polyarch's own get no gate and no toleration."""
    name = f"{namespace}-own"
    await client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    yield name
    await client.delete(NAMESPACES, name)


async def get(client: Client, namespace: str, name: str = "app") -> dict[str, Any]:
    return await client.get(PODS, name, namespace=namespace)


@pytest.mark.req("TN-043", "TN-091")
async def test_an_outage_of_the_admission_heals_by_itself(
    sandbox: Sandbox, client: Client, home: str, own: str, tmp_path: Any
) -> None:
    """Nobody recreates a pod; each costs one request, and they share one look-up."""
    await sandbox.registry.seed({"quay.io/taints-pods/missed:1": BOTH})
    async with configured(client, home):
        created = [f"app-{number}" for number in range(12)]
        for name in created:
            await client.create(
                PODS, pod("quay.io/taints-pods/missed:1", name=name, nodeSelector=NOWHERE), namespace=home
            )
        versions = {name: (await get(client, home, name))["metadata"]["resourceVersion"] for name in created}
        async with taint_role(sandbox, client, own, tmp_path) as role:
            started = time.monotonic()

            async def healed() -> bool:
                return all([tolerated(await get(client, home, name)) == ["arm64"] for name in created])

            await until(healed, seconds=60)
            took = time.monotonic() - started
            assert took < 30, f"{took} s (10 s on an idle machine, TN-043)"
            found = await get(client, home, created[0])
            assert found["metadata"]["annotations"][names.TOLERATIONS_ANNOTATION] == "arm64"
            assert found["metadata"]["annotations"][names.REASON_ANNOTATION] == "Images"
            assert found["metadata"]["resourceVersion"] != versions[created[0]]
            assert await warnings(client, home, created[0]) == []
            late = pod("quay.io/taints-pods/missed:1", name="late", nodeSelector=NOWHERE)
            await client.create(PODS, late, namespace=home)

            async def completed() -> bool:
                return tolerated(await get(client, home, "late")) == ["arm64"]

            await until(completed, seconds=30)
            assert role.process.returncode is None


@pytest.mark.req("TN-046")
async def test_a_gated_pod_loses_the_gate_in_the_patch_that_adds(
    sandbox: Sandbox, client: Client, home: str, own: str, tmp_path: Any
) -> None:
    await sandbox.registry.seed({"quay.io/taints-pods/gated:1": ["linux/arm64"]})
    async with configured(client, home), taint_role(sandbox, client, own, tmp_path):
        await client.create(PODS, gated("quay.io/taints-pods/gated:1"), namespace=home)

        async def released() -> bool:
            return not has_gate(await get(client, home))

        await until(released, seconds=30)
        found = await get(client, home)
        assert tolerated(found) == ["arm64"], "never without them"
        assert names.GATED_LABEL not in found["metadata"].get("labels", {})
        assert len(found["spec"]["tolerations"]) == 3, "the two that the cluster adds are kept"


@pytest.mark.req("TN-046", "TN-094")
async def test_a_private_image_is_known_as_soon_as_its_pull_secret_is_there(
    sandbox: Sandbox, client: Client, home: str, own: str, tmp_path: Any
) -> None:
    """The pod's own secret, read by name; the Warning names the one that is missing."""
    image = "quay.io/taints-pods-private/app:1"
    users = {"platforms": ["linux/arm64"], "private": True, "users": {"alice": "wonderland"}}
    await sandbox.registry.seed({image: users})
    async with configured(client, home), taint_role(sandbox, client, own, tmp_path):
        await client.create(PODS, gated(image, imagePullSecrets=[{"name": "pull"}]), namespace=home)

        async def told() -> bool:
            return bool(await warnings(client, home, "app"))

        await until(told, seconds=30)
        (warning,) = await warnings(client, home, "app")
        assert f"pull secret {home}/pull does not exist" in warning["note"]
        host = f"{sandbox.registry.address}/quay.io/taints-pods-private"
        cluster = PlacementCluster(sandbox, client)
        await cluster.pull_secret(home, "pull", host, username="alice", password="wonderland")

        async def released() -> bool:
            return not has_gate(await get(client, home))

        await until(released, seconds=90)
        assert tolerated(await get(client, home)) == ["arm64"]


@pytest.mark.req("TN-048")
async def test_when_the_gates_time_is_over_the_fallback_applies_with_a_warning(
    sandbox: Sandbox, client: Client, home: str, own: str, tmp_path: Any
) -> None:
    spec: dict[str, Any] = {"mode": "tolerations", "pods": {"gateTimeout": "10s"}}
    async with configured(client, home, **spec), taint_role(sandbox, client, own, tmp_path):
        await client.create(PODS, gated("quay.io/taints-pods/nobody-pushed-this:1"), namespace=home)
        await asyncio.sleep(5)
        assert has_gate(await get(client, home))

        async def released() -> bool:
            return not has_gate(await get(client, home))

        await until(released, seconds=30)
        found = await get(client, home)
        assert tolerated(found) == ["amd64"]
        assert found["metadata"]["annotations"][names.REASON_ANNOTATION] == "PrimaryFallback"

        async def said() -> bool:
            reasons = {event["reason"] for event in await warnings(client, home, "app")}
            return reasons == {"ArchitectureUnknown", "ArchitectureGateTimeout"}

        await until(said, seconds=30)
        unknown = next(e for e in await warnings(client, home, "app") if e["reason"] == "ArchitectureUnknown")
        assert "nobody-pushed-this:1" in unknown["note"]


@pytest.mark.req("TN-048")
@pytest.mark.parametrize("how", ["paused", "removing", "deleted"])
async def test_paused_removing_or_without_the_object_every_gate_is_lifted(
    sandbox: Sandbox, client: Client, home: str, own: str, tmp_path: Any, how: str
) -> None:
    async with configured(client, home), taint_role(sandbox, client, own, tmp_path):
        for number in range(5):
            await client.create(PODS, gated("quay.io/taints-pods/absent:1", f"app-{number}"), namespace=home)
        await asyncio.sleep(3)
        assert all([has_gate(await get(client, home, f"app-{number}")) for number in range(5)])
        if how == "deleted":
            await remove(client)
        else:
            await client.patch(ARCHITECTURE_TAINTS, names.SINGLETON, MergePatch({"spec": {"state": how}}))

        async def released() -> bool:
            return not any([has_gate(await get(client, home, f"app-{number}")) for number in range(5)])

        await until(released, seconds=30)
        assert not any([tolerated(await get(client, home, f"app-{number}")) for number in range(5)])


@pytest.mark.req("TN-044")
async def test_pods_on_nodes_get_theirs_when_the_policy_says_so(
    sandbox: Sandbox, client: Client, home: str, own: str, tmp_path: Any
) -> None:
    await sandbox.registry.seed({"quay.io/taints-pods/bound:1": BOTH})
    await client.create(PODS, pod("quay.io/taints-pods/bound:1"), namespace=home)

    async def bound() -> bool:
        return bool((await get(client, home))["spec"].get("nodeName"))

    await until(bound, seconds=60)
    async with configured(client, home, pods={"running": "tolerate"}), taint_role(sandbox, client, own, tmp_path):

        async def done() -> bool:
            return tolerated(await get(client, home)) == ["arm64"]

        await until(done, seconds=60)


@pytest.mark.req("TN-049")
async def test_after_a_change_of_its_image_a_pod_with_an_owner_is_evicted(
    sandbox: Sandbox, client: Client, home: str, own: str, tmp_path: Any
) -> None:
    """Its tolerations cannot be taken back; the pod that replaces it has none too many."""
    await sandbox.registry.seed({"quay.io/taints-pods/old:1": BOTH, "quay.io/taints-pods/new:1": ["linux/amd64"]})
    template = pod("quay.io/taints-pods/old:1")["spec"] | {"nodeSelector": NOWHERE}
    owner = {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {"name": "owner"},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": {"app": "owner"}},
            "template": {"metadata": {"labels": {"app": "owner"}}, "spec": template},
        },
    }
    spec: dict[str, Any] = {"pods": {"imageChange": "evict"}}
    async with configured(client, home, **spec), taint_role(sandbox, client, own, tmp_path, evicts=True):
        await client.create(REPLICASETS, owner, namespace=home)

        async def tolerating() -> bool:
            items = (await client.list(PODS, namespace=home)).items
            return len(items) == 1 and tolerated(items[0]) == ["arm64"]

        await until(tolerating, seconds=60)
        (first,) = (await client.list(PODS, namespace=home)).items
        name = first["metadata"]["name"]
        change = JsonPatch(
            (
                add("/spec/containers/0/image", "quay.io/taints-pods/new:1"),
                add(f"/metadata/labels/{names.GATED_LABEL.replace('/', '~1')}", names.CHANGED),
            )
        )
        await client.patch(PODS, name, change, namespace=home)

        async def gone() -> bool:
            try:
                found = await client.get(PODS, name, namespace=home)
            except NotFound:
                return True
            return found["metadata"]["uid"] != first["metadata"]["uid"]

        await until(gone, seconds=60)

        async def said() -> bool:
            return [e["reason"] for e in await warnings(client, home, name)] == ["ArchitectureSetShrunk"]

        await until(said, seconds=30)


@pytest.mark.req("TN-012")
async def test_the_object_may_be_a_file_in_a_cluster_without_the_kind(
    sandbox: Sandbox, client: Client, home: str, own: str, tmp_path: Any
) -> None:
    await sandbox.registry.seed({"quay.io/taints-pods/file:1": BOTH})
    pods = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": home}}}
    file = tmp_path / "taints.json"
    file.write_text(json.dumps(taints(pods=pods)))
    await client.create(PODS, pod("quay.io/taints-pods/file:1", nodeSelector=NOWHERE), namespace=home)
    async with taint_role(sandbox, client, own, tmp_path, f"--config={file}"):

        async def done() -> bool:
            return tolerated(await get(client, home)) == ["arm64"]

        await until(done, seconds=60)
