"""Nodes get their taints in a real cluster, whoever else writes them."""

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from audited import Audited
from growing import grow
from placement_cluster import pod, until
from taint_process import define, remove, taint_role

from polyarch.kube.client import Client
from polyarch.kube.errors import Invalid, NotFound
from polyarch.kube.informer import Informer
from polyarch.kube.patches import MergePatch
from polyarch.kube.resources import DAEMONSETS, EVENTS, LEASES, MUTATING_WEBHOOKS, NODES, PODS
from polyarch.objects import Unstructured
from polyarch.sandbox.cluster import Sandbox
from polyarch.taints import names
from polyarch.taints.api import ARCHITECTURE_TAINTS
from polyarch.taints.documents import bindings, policies

pytestmark = pytest.mark.req("TN-014", "TN-020", "TN-021", "TN-026")

Json = dict[str, Any]
SECONDS = 60.0
TAINT = {"key": "supported-arch", "value": "arm64", "effect": "NoSchedule"}
GPU = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}
WRITES = ("create", "update", "patch", "delete")
AT_ONCE = {"rollout": "immediate", "perMinute": 600}


@pytest.fixture(scope="module")
def sandbox(tainted_sandbox: Sandbox) -> Sandbox:
    """Its fleet grows from test to test."""
    return tainted_sandbox


@asynccontextmanager
async def configured(client: Client, *, nodes: Json | None = None, **spec: Any) -> AsyncIterator[None]:
    """The object. Afterwards neither it, nor the policy, nor a taint of ours is there."""
    await define(client)
    document = {
        "apiVersion": ARCHITECTURE_TAINTS.api_version,
        "kind": ARCHITECTURE_TAINTS.kind,
        "metadata": {"name": names.SINGLETON},
        "spec": {"nodes": {**AT_ONCE, **(nodes or {})}, **spec},
    }
    await client.apply(ARCHITECTURE_TAINTS, document)
    try:
        yield
    finally:
        await remove(client)
        for kind in (bindings("v1"), policies("v1")):
            with suppress(NotFound):
                await client.delete(kind, names.REGISTRATION_POLICY)
        await clear(client)


async def clear(client: Client) -> None:
    """No node that a test made is there, and no other one carries a taint."""
    for node in (await client.list(NODES)).items:
        name = node["metadata"]["name"]
        if name.startswith("made-"):
            await client.delete(NODES, name)
            continue
        free = {"spec": {"taints": None}, "metadata": {"annotations": {names.MANAGED_TAINTS_ANNOTATION: None}}}
        await client.patch(NODES, name, MergePatch(free))


@asynccontextmanager
async def tainting(sandbox: Sandbox, client: Client, home: str, folder: Path, **spec: Any) -> AsyncIterator[None]:
    """The object and the role."""
    async with configured(client, **spec), taint_role(sandbox, client, home, folder):
        yield


async def configure(client: Client, **spec: Any) -> None:
    await client.patch(ARCHITECTURE_TAINTS, names.SINGLETON, MergePatch({"spec": spec}))


def ours(node: Json) -> list[Json]:
    """Without those of Kubernetes itself."""
    taints = node["spec"].get("taints") or ()
    return [taint for taint in taints if not taint["key"].startswith("node.kubernetes.io/")]


async def taints_of(client: Client, name: str) -> list[Json]:
    return ours(await client.get(NODES, name))


def has(client: Client, name: str, *taints: Json) -> Callable[[], Any]:
    async def check() -> bool:
        return await taints_of(client, name) == list(taints)

    return check


async def make(client: Client, *taints: Json, architecture: str = "arm64") -> str:
    """A node without a kubelet."""
    name = f"made-{secrets.token_hex(3)}"
    labels = {"kubernetes.io/arch": architecture, "kubernetes.io/os": "linux"}
    document = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "spec": {"taints": list(taints)},
    }
    await client.create(NODES, document)
    return name


async def status(client: Client) -> Json:
    found: Json = (await client.get(ARCHITECTURE_TAINTS, names.SINGLETON)).get("status") or {}
    return found


async def condition(client: Client, kind: str, state: str, *, seconds: float = SECONDS) -> Json:
    found: list[Json] = []

    async def there() -> bool:
        conditions = (await status(client)).get("conditions") or ()
        found[:] = [each for each in conditions if (each["type"], each["status"]) == (kind, state)]
        return bool(found)

    await until(there, seconds=seconds)
    return found[0]


@asynccontextmanager
async def webhook(client: Client) -> AsyncIterator[None]:
    """The configuration of a webhook outside the cluster, which no pod meets."""
    entry = {
        "name": names.POD_WEBHOOK,
        "clientConfig": {"url": f"https://127.0.0.1:1{names.POD_WEBHOOK_PATH}"},
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}],
        "namespaceSelector": {"matchLabels": {"polyarch.test/nobody": "has-it"}},
        "failurePolicy": "Ignore",
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    }
    document = {
        "apiVersion": MUTATING_WEBHOOKS.api_version,
        "kind": MUTATING_WEBHOOKS.kind,
        "metadata": {"name": names.ROLE},
        "webhooks": [entry],
    }
    await client.create(MUTATING_WEBHOOKS, document)
    try:
        yield
    finally:
        await client.delete(MUTATING_WEBHOOKS, names.ROLE)


@asynccontextmanager
async def watched(client: Client) -> AsyncIterator[list[Json]]:
    """Every version of every node from now on."""
    seen: list[Json] = []
    informer: Informer[Unstructured] = Informer(client, NODES, Unstructured)
    informer.add_handler(lambda change: seen.append(change.new.document) if change.new is not None else None)
    task = asyncio.create_task(informer.run())
    await informer.synced()
    try:
        yield seen
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@pytest.mark.req("TN-027")
async def test_nodes_join_tainted_and_no_pod_lands_before_the_taint(
    sandbox: Sandbox, client: Client, namespace: str, tmp_path: Path
) -> None:
    """Pods for arm64 wait; the nodes they wait for never exist without the taint."""
    await sandbox.registry.seed({"quay.io/taints-nodes/app:1": ["linux/arm64"]})
    for number in range(5):
        waiting = pod("quay.io/taints-nodes/app:1", name=f"app-{number}", nodeSelector={"kubernetes.io/arch": "arm64"})
        waiting["metadata"]["annotations"] = {names.OPT_OUT: names.DISABLED}
        await client.create(PODS, waiting, namespace=namespace)
    async with tainting(sandbox, client, namespace, tmp_path):

        async def kept() -> bool:
            with suppress(NotFound):
                policy = await client.get(policies("v1"), names.REGISTRATION_POLICY)
                await client.get(bindings("v1"), names.REGISTRATION_POLICY)
                return "arm64" in policy["spec"]["matchConditions"][0]["expression"]
            return False

        await until(kept, seconds=SECONDS)
        await asyncio.sleep(2)  # until the API server goes by it
        async with watched(client) as versions:
            await grow(sandbox, arm64=3)

            async def ready() -> bool:
                found = [await client.get(NODES, f"arm64-{number}") for number in (1, 2, 3)]
                return all(
                    each["type"] != "Ready" or each["status"] == "True"
                    for node in found
                    for each in node["status"]["conditions"]
                ) and not any(node["spec"]["taints"] != [TAINT] for node in found)

            await until(ready, seconds=SECONDS)
            await asyncio.sleep(3)
        joined = [node for node in versions if node["metadata"]["name"].startswith("arm64-")]
        assert {node["metadata"]["name"] for node in joined} == {"arm64-1", "arm64-2", "arm64-3"}
        assert all(TAINT in node["spec"].get("taints", ()) for node in joined), "in every version"
        record = "supported-arch=arm64:NoSchedule"
        assert all(node["metadata"]["annotations"][names.MANAGED_TAINTS_ANNOTATION] == record for node in joined)
        pods = (await client.list(PODS, namespace=namespace)).items
        assert [each["spec"].get("nodeName", "") for each in pods] == [""] * 5


@pytest.mark.req("TN-027")
async def test_without_the_policy_a_new_node_is_tainted_when_it_is_seen(
    sandbox: Sandbox, client: Client, namespace: str, tmp_path: Path
) -> None:
    await grow(sandbox, arm64=3)
    async with tainting(sandbox, client, namespace, tmp_path, nodes={"atRegistration": "none"}):
        await until(has(client, "arm64-1", TAINT))
        name = await make(client)
        assert await taints_of(client, name) == [] or await taints_of(client, name) == [TAINT]
        await until(has(client, name, TAINT), seconds=10)
        with pytest.raises(NotFound):
            await client.get(policies("v1"), names.REGISTRATION_POLICY)


@pytest.mark.req("TN-022", "TN-023")
async def test_foreign_taints_keep_their_order_and_hand_edits_are_corrected(
    sandbox: Sandbox, client: Client, namespace: str, tmp_path: Path
) -> None:
    other = {"key": "team", "value": "a", "effect": "PreferNoSchedule"}
    async with tainting(sandbox, client, namespace, tmp_path, nodes={"atRegistration": "none"}):
        name = await make(client, GPU, other)
        await until(has(client, name, GPU, other, TAINT))
        wrong = {**TAINT, "value": "s390x"}
        await client.patch(NODES, name, MergePatch({"spec": {"taints": [GPU, wrong, other]}}))
        await until(has(client, name, GPU, TAINT, other))
        await client.patch(NODES, name, MergePatch({"spec": {"taints": [other]}}))
        await until(has(client, name, other, TAINT))
        await client.patch(NODES, name, MergePatch({"metadata": {"labels": {names.OPT_OUT: names.DISABLED}}}))
        await until(has(client, name, other))
        node = await client.get(NODES, name)
        assert names.MANAGED_TAINTS_ANNOTATION not in node["metadata"].get("annotations", {})

        async def said() -> bool:
            found = (await client.list(EVENTS, namespace="default")).items
            mine = [each for each in found if each.get("regarding", {}).get("name") == name]
            reasons = {each["reason"] for each in mine if each.get("reportingController") == "polyarch.dev/taints"}
            return reasons == {f"ArchitectureTaint{each}" for each in ("Applied", "Corrected", "Removed")}

        await until(said)


@pytest.mark.req("TN-024")
async def test_whoever_else_writes_nodes_loses_nothing(
    sandbox: Sandbox, client: Client, namespace: str, tmp_path: Path
) -> None:
    """Somebody adds and removes a taint of his as fast as he can, by index and version as we do."""
    made = [await make(client) for _ in range(5)]
    stop = asyncio.Event()
    wrote: dict[str, int] = dict.fromkeys(made, 0)

    async def meddle(name: str) -> None:
        while not stop.is_set():
            node = await client.get(NODES, name)
            taints = [each for each in node["spec"].get("taints") or () if each != GPU]
            wanted = taints if len(taints) < len(node["spec"].get("taints") or ()) else [GPU, *taints]
            version = {"resourceVersion": node["metadata"]["resourceVersion"]}
            with suppress(Invalid, Exception):
                await client.patch(
                    NODES, name, MergePatch({"metadata": version, "spec": {"taints": wanted}}), retry=False
                )
                wrote[name] += 1

    meddling = [asyncio.create_task(meddle(name)) for name in made]
    async with tainting(sandbox, client, namespace, tmp_path, nodes={"atRegistration": "none"}):

        async def tainted() -> bool:
            return all([TAINT in await taints_of(client, name) for name in made])

        await until(tainted, seconds=SECONDS)
        stop.set()
        await asyncio.gather(*meddling)
        for name in made:
            await client.patch(NODES, name, MergePatch({"metadata": {"labels": {"seen": "again"}}}))
        await asyncio.sleep(2)
        for name in made:
            found = await taints_of(client, name)
            assert found.count(TAINT) == 1
            assert found in ([TAINT], [GPU, TAINT])
            assert wrote[name] > 0


@pytest.mark.req("TN-025")
async def test_the_first_node_waits_until_the_webhook_is_there(
    sandbox: Sandbox, client: Client, namespace: str, tmp_path: Path
) -> None:
    async with tainting(
        sandbox, client, namespace, tmp_path, nodes={"rollout": "safe"}, daemonSets={"templates": "ignore"}
    ):
        name = await make(client, architecture="s390x")
        safe = await condition(client, "SafeToTaint", "False")
        assert safe["reason"] == "AdmissionNotReady"
        assert "MutatingWebhookConfiguration polyarch-taints" in safe["message"]
        assert await taints_of(client, name) == []
        row = {"name": "s390x", "nodes": 1, "waiting": 1, "reason": "AdmissionNotReady"}

        async def told() -> bool:
            return row in (await status(client)).get("architectures", ())

        await until(told, seconds=SECONDS)
        async with webhook(client):
            await until(has(client, name, {**TAINT, "value": "s390x"}))
            await condition(client, "SafeToTaint", "True")
            assert (await condition(client, "NodesTainted", "True"))["reason"] == "AllTainted"


@pytest.mark.req("TN-026")
async def test_a_pod_whose_image_does_not_run_there_stops_no_tainting(
    sandbox: Sandbox, client: Client, namespace: str, tmp_path: Path
) -> None:
    """It fits one rack, whose nodes are arm64: its image keeps it pending, and not the taint. Of an image that nobody
    can read that is not known."""
    await sandbox.registry.seed({"quay.io/taints-nodes/intel:1": ["linux/amd64"]})
    await grow(sandbox, arm64=3)
    nodes = (await client.list(NODES)).items
    arm = [each["metadata"]["name"] for each in nodes if each["metadata"]["labels"]["kubernetes.io/arch"] == "arm64"]
    for name in arm:
        await client.patch(NODES, name, MergePatch({"metadata": {"labels": {"polyarch.test/rack": "a"}}}))

    async def tainted_again() -> None:
        for name in arm:
            await client.patch(NODES, name, MergePatch({"spec": {"taints": None}}))
        for name in arm:
            await until(has(client, name, TAINT))

    async def create(name: str) -> None:
        document = pod(f"quay.io/taints-nodes/{name}:1", name=name, nodeSelector={"polyarch.test/rack": "a"})
        await client.create(PODS, document, namespace=namespace)

    async def is_stopped() -> bool:
        conditions = (await status(client)).get("conditions") or ()
        return any((each["type"], each["reason"]) == ("Degraded", "PodsBecamePending") for each in conditions)

    async with tainting(sandbox, client, namespace, tmp_path, nodes={"atRegistration": "none"}):
        await tainted_again()
        await create("intel")
        await asyncio.sleep(15)
        assert not await is_stopped()
        await tainted_again()
        await create("gone")
        await until(is_stopped, seconds=SECONDS)


@pytest.mark.req("TN-025", "TN-094")
async def test_templates_of_daemon_sets_come_before_the_first_node(
    sandbox: Sandbox, client: Client, namespace: str, tmp_path: Path
) -> None:
    """A DaemonSet has a pod on an arm64 node: its template tolerates the taint before any node carries it."""
    await sandbox.registry.seed({"quay.io/taints-nodes/agent:1": ["linux/amd64", "linux/arm64"]})
    await grow(sandbox, arm64=3)
    labels = {"app": "agent"}
    template = {
        "metadata": {"labels": labels},
        "spec": {"containers": [{"name": "agent", "image": "quay.io/taints-nodes/agent:1"}]},
    }
    document = {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": "agent"},
        "spec": {"selector": {"matchLabels": labels}, "template": template},
    }
    await client.create(DAEMONSETS, document, namespace=namespace)
    audit = Audited(sandbox, f"system:serviceaccount:{namespace}:ordered")
    async with (
        webhook(client),
        configured(client, nodes={"rollout": "safe", "atRegistration": "none"}),
        taint_role(sandbox, client, namespace, tmp_path, account="ordered"),
    ):
        for name in ("arm64-1", "arm64-2", "arm64-3"):
            await until(has(client, name, TAINT), seconds=SECONDS)
        written = [each for each in await audit.requests() if each.startswith(("patch nodes", "patch daemonsets"))]
        assert written[0] == "patch daemonsets agent"
        assert sorted(written[1:]) == [f"patch nodes arm64-{number}" for number in (1, 2, 3)]
        found = await client.get(DAEMONSETS, "agent", namespace=namespace)
        assert [each["value"] for each in found["spec"]["template"]["spec"]["tolerations"]] == ["arm64"]


@pytest.mark.req("TN-080")
async def test_a_configuration_from_a_file_needs_no_object(
    sandbox: Sandbox, client: Client, namespace: str, tmp_path: Path
) -> None:
    """The same taints; what would be its status is logged."""
    file = tmp_path / "taints.yaml"
    file.write_text(
        f"apiVersion: {ARCHITECTURE_TAINTS.api_version}\nkind: {ARCHITECTURE_TAINTS.kind}\n"
        "metadata: {name: cluster}\nspec: {nodes: {rollout: immediate, atRegistration: none, perMinute: 600}}\n"
    )
    name = await make(client, GPU)
    audit = Audited(sandbox, f"system:serviceaccount:{namespace}:file")
    try:
        async with taint_role(sandbox, client, namespace, tmp_path, f"--config={file}", name="file", account="file"):
            await until(has(client, name, GPU, TAINT), seconds=SECONDS)
            log = tmp_path / "file.log"

            async def logged() -> bool:
                lines = [line for line in log.read_text().splitlines() if "AllTainted" in line]
                return bool(lines)

            await until(logged, seconds=SECONDS)
            assert not [each for each in await audit.requests() if "architecturetaints" in each]
    finally:
        await clear(client)


@pytest.mark.req("TN-073")
async def test_removing_takes_the_taints_and_the_policy_and_nothing_else(
    sandbox: Sandbox, client: Client, namespace: str, tmp_path: Path
) -> None:
    async with tainting(sandbox, client, namespace, tmp_path):
        name = await make(client, GPU)
        await until(has(client, name, GPU, TAINT))

        async def kept() -> bool:
            with suppress(NotFound):
                return bool(await client.get(bindings("v1"), names.REGISTRATION_POLICY))
            return False

        await until(kept)
        await configure(client, state="removing")
        await until(has(client, name, GPU))

        async def gone() -> bool:
            conditions = (await status(client)).get("conditions", ())
            said = {each["reason"]: each["message"] for each in conditions if each["type"] == "NodesTainted"}
            return said == {"Removing": "no node carries a taint of polyarch"} and not await kept()

        await until(gone, seconds=SECONDS)
        for node in (await client.list(NODES)).items:
            assert names.MANAGED_TAINTS_ANNOTATION not in node["metadata"].get("annotations", {})


@pytest.mark.req("TN-080", "TN-090")
async def test_the_steady_state_asks_for_nothing_and_a_restart_writes_nothing(
    sandbox: Sandbox, client: Client, namespace: str, tmp_path: Path
) -> None:
    async with configured(client):
        async with taint_role(sandbox, client, namespace, tmp_path, account="first"):
            name = await make(client)
            await until(has(client, name, TAINT))
            await condition(client, "NodesTainted", "True")
            await asyncio.sleep(12)
            audit = Audited(sandbox, f"system:serviceaccount:{namespace}:first")
            await asyncio.sleep(25)
            assert await audit.requests() == []
        again = Audited(sandbox, f"system:serviceaccount:{namespace}:second")
        async with taint_role(sandbox, client, namespace, tmp_path, account="second"):

            async def leads() -> bool:
                lease = await client.get(LEASES, names.LEASE, namespace=namespace)
                return bool(lease["spec"].get("leaseTransitions"))

            await until(leads, seconds=SECONDS)
            await asyncio.sleep(25)
            assert [each for each in await again.requests() if each.split()[0] in WRITES] == []
