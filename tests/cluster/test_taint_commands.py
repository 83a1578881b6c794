"""``polyarch taint plan``, ``bootstrap`` and ``apply`` in a real cluster without a controller."""

import asyncio
import json
import subprocess
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from audited import DELAY, Audited
from placement_cluster import pod, until
from taint_shop import BOTH, INTEL, NAMESPACE, OURS, Shop, shop, tolerated

from polyarch.kube.client import Client
from polyarch.kube.errors import NotFound
from polyarch.kube.resources import CRDS, DAEMONSETS, DEPLOYMENTS, NODES, PODS, RUNTIME_CLASSES, Resource
from polyarch.sandbox.cluster import Sandbox
from polyarch.taints.documents import policies, released_by

pytestmark = pytest.mark.req("TN-061")

Json = dict[str, Any]
WRITES = ("create", "update", "patch", "delete", "deletecollection")
WITHOUT_WEBHOOK = ("--yes", "--accept-blocked", "--watch", "2")
"""Nobody adds tolerations to new pods here, which plan names, and which is accepted."""


@pytest.fixture
def sandbox(commanded_sandbox: Sandbox) -> Sandbox:
    return commanded_sandbox


@pytest.fixture
async def world(sandbox: Sandbox, client: Client) -> AsyncIterator[Shop]:
    async with shop(sandbox, client) as found:
        yield found


async def planned(world: Shop, *arguments: str) -> tuple[int, Json]:
    ran = await world.taint("plan", "-o", "json", *arguments)
    return ran.code, json.loads(ran.out)


def states(document: Json) -> dict[str, tuple[str, int]]:
    return {each["id"]: (each["state"], each["writes"]) for each in document["steps"]}


@pytest.mark.req("TN-060")
async def test_a_plan_reads_every_template_and_writes_nothing(world: Shop) -> None:
    await world.open()
    await world.workload(DEPLOYMENTS, "billing", INTEL)
    await world.client.create(PODS, pod(BOTH, name="bare"), namespace=NAMESPACE)
    code, document = await planned(world)
    assert code == 1
    assert document["schemaVersion"] == "polyarch.dev/taint-plan/v1"
    rows = {(each["kind"], each["name"]): each for each in document["templates"] if each["namespace"] == NAMESPACE}
    assert {key: (row["architectures"], row["adds"]) for key, row in rows.items()} == {
        ("DaemonSet", "agent"): (["amd64", "arm64"], ["arm64"]),
        ("Deployment", "web"): (["amd64", "arm64"], ["arm64"]),
        ("Deployment", "billing"): (["amd64"], []),
        ("Pod", "bare"): (["amd64", "arm64"], ["arm64"]),
    }
    assert rows["Deployment", "web"]["nodes"] == {"before": {"amd64": 2, "arm64": 2}, "after": {"amd64": 2, "arm64": 2}}
    assert [(each["kind"], each["reason"]) for each in document["blockers"]] == [
        ("MutatingWebhookConfiguration", "AdmissionNotReady")
    ]
    assert states(document)["daemonsets"] == ("todo", 1)
    assert states(document)["taint"] == ("blocked", 2)
    user = await administrator(world)
    audited = Audited(world.sandbox, user)
    await planned(world)
    asked = [each.split()[0] for each in await audited.requests()]
    assert "list" in asked
    assert not [verb for verb in asked if verb in WRITES]


async def administrator(world: Shop) -> str:
    """The name that the API server knows the kubeconfig's user by."""
    review = Resource("authentication.k8s.io", "v1", "selfsubjectreviews", "SelfSubjectReview", namespaced=False)
    found: Json = await world.client.create(review, {"apiVersion": review.api_version, "kind": review.kind}, type=dict)
    await asyncio.sleep(DELAY)  # then this request is in the log, before those that are counted
    return str(found["status"]["userInfo"]["username"])


@pytest.mark.req("TN-063")
async def test_bootstrap_prepares_everything_and_apply_taints_the_nodes(world: Shop) -> None:
    await world.open()
    ran = await world.taint("bootstrap", "--yes", "-o", "json")
    assert ran.code == 1, "the webhook is not there"
    document = json.loads(ran.out)
    assert document["controller"] is False
    assert states(document)["daemonsets"] == states(document)["pods"] == ("done", 0)
    assert not any((await world.taints()).values())
    assert tolerated(await world.client.get(DAEMONSETS, "agent", namespace=NAMESPACE)) == ["arm64"]
    assert all(tolerated(each) == ["arm64"] for each in await world.pods())

    refused = await world.taint("apply", "--yes")
    assert refused.code == 1
    assert "AdmissionNotReady" in refused.err
    assert not any((await world.taints()).values())

    ran = await world.taint("apply", *WITHOUT_WEBHOOK)
    assert ran.code == 0, ran.err
    assert await world.taints() == {"amd64-1": [], "amd64-2": [], "arm64-1": [OURS], "arm64-2": [OURS]}
    await world.runs(5)
    before = await world.versions()
    again = await world.taint("apply", *WITHOUT_WEBHOOK)
    assert (again.code, again.out.splitlines()[0]) == (0, "0 writes")
    assert await world.versions() == before


@pytest.mark.req("TN-063")
async def test_a_dry_run_asks_the_api_server_about_every_write_and_makes_none(world: Shop) -> None:
    await world.open()
    before = await world.versions()
    audited = Audited(world.sandbox, await administrator(world))
    ran = await world.taint("apply", "--dry-run", "--accept-blocked", "-o", "json")
    document = json.loads(ran.out)
    assert (ran.code, document["dryRun"]) == (0, True)
    assert {each["kind"] for each in document["changes"]} == {
        "DaemonSet",
        "MutatingAdmissionPolicy",
        "MutatingAdmissionPolicyBinding",
        "Node",
        "Pod",
    }
    asked = [each.split()[0] for each in await audited.requests()]
    assert sum(verb == "patch" for verb in asked) == len(document["changes"])
    assert await world.versions() == before


@pytest.mark.req("TN-064")
@pytest.mark.timeout(600)
async def test_a_run_that_is_killed_after_any_write_is_continued_by_the_next(world: Shop) -> None:
    """After the DaemonSet, the policy, its binding, a pod, the policy with one architecture, a node …"""
    await world.open()
    for after in range(1, 12):
        told = await world.killed("apply", *WITHOUT_WEBHOOK, after=1)
        if told == 0:
            break
        taints = await world.taints()
        assert all(each in ([], [OURS]) for each in taints.values()), "never half of a taint"
        assert after < 11
    assert (await world.taints())["arm64-2"] == [OURS]
    _, document = await planned(world)
    assert states(document)["taint"] == states(document)["pods"] == states(document)["daemonsets"] == ("done", 0)
    assert sorted(tolerated(each) == ["arm64"] for each in await world.pods()) == [True] * 5
    await world.runs(5)


@pytest.mark.req("TN-026")
async def test_apply_stops_when_a_pod_becomes_pending_because_of_the_taint(world: Shop) -> None:
    """It is created while nodes are tainted, runs on arm64 only, and nobody is there to give it the toleration."""
    await world.annotate("arm64-2", spec={"unschedulable": True})
    stuck = asyncio.create_task(create_when_tainted(world))
    ran = await world.taint("apply", "--yes", "--accept-blocked", "--batch", "1", "--watch", "30", "-o", "json")
    await stuck
    document = json.loads(ran.out)
    assert ran.code == 1, ran.err
    assert "taint-shop/stuck" in document["stopped"]
    assert "arm64" in document["stopped"]
    _, document = await planned(world)
    assert ("Pod", "stuck", "PodsBecamePending") in [
        (each["kind"], each["name"], each["reason"]) for each in document["blockers"]
    ]


async def create_when_tainted(world: Shop) -> None:
    async def is_tainted() -> bool:
        return (await world.taints())["arm64-1"] == [OURS]

    await until(is_tainted, seconds=60)
    document = pod(BOTH, name="stuck", nodeSelector={"kubernetes.io/arch": "arm64"})
    await world.client.create(PODS, document, namespace=NAMESPACE)


@pytest.mark.req("TN-062")
async def test_what_would_lose_its_nodes_is_named_and_apply_refuses(world: Shop) -> None:
    """Nobody knows on what its image runs, so it gets no toleration."""
    await world.workload(DAEMONSETS, "unknown", "quay.io/taint-shop/unknown:1")

    async def placed() -> bool:
        return len([each for each in await world.pods() if each["spec"].get("nodeName")]) == 4

    await until(placed)
    ran = await world.taint("apply", "--yes")
    assert ran.code == 1
    assert "DaemonSet taint-shop/unknown: DaemonSetLeavesNodes" in ran.err
    assert not any((await world.taints()).values())


@pytest.mark.req("TN-071")
async def test_apply_changes_no_taint_that_polyarch_did_not_write_unless_it_may_adopt(world: Shop) -> None:
    """The key is that of archaware-controller, whose place polyarch takes, and another team may have it as well."""
    theirs = {"key": OURS["key"], "value": "amd64", "effect": "NoSchedule"}
    await world.annotate("amd64-1", spec={"taints": [theirs]})
    await world.annotate("arm64-1", spec={"taints": [OURS]})
    before = await world.versions()
    ran = await world.taint("apply", *WITHOUT_WEBHOOK, "-o", "json")
    assert ran.code == 1, ran.err
    assert "node amd64-1 has supported-arch=amd64:NoSchedule; --adopt" in json.loads(ran.out)["stopped"]
    assert "arm64-1" not in json.loads(ran.out)["stopped"], "it is as it is to be, and stays so"
    assert await world.versions() == before
    ran = await world.taint("apply", *WITHOUT_WEBHOOK, "--adopt")
    assert ran.code == 0, ran.err
    taints = await world.taints()
    assert (taints["amd64-1"], taints["arm64-1"]) == ([], [OURS])


# -- what is emitted ---------------------------------------------------------------------------------------------------


async def kubectl(
    world: Shop, peer: Callable[[str], str], *arguments: str, stdin: str = ""
) -> subprocess.CompletedProcess[str]:
    command = [peer("kubectl"), "--kubeconfig", str(world.sandbox.kubeconfig), *arguments]
    return await asyncio.to_thread(
        subprocess.run, command, input=stdin, capture_output=True, text=True, check=False, timeout=60
    )


@pytest.mark.req("TN-054")
async def test_guards_warn_of_pods_without_an_architecture_and_of_nodes_without_their_taint(
    world: Shop, peer: Callable[[str], str]
) -> None:
    guards = (await world.taint("plan", "--emit", "guard-policies")).out
    applied = await kubectl(world, peer, "apply", "-f", "-", stdin=guards)
    assert applied.returncode == 0, applied.stderr

    def node(name: str, *taints: Json) -> Json:
        labels = {"kubernetes.io/arch": "arm64", "kubernetes.io/os": "linux"}
        spec = {"taints": list(taints)} if taints else {}
        return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}, "spec": spec}

    async def warnings(document: Json) -> str:
        said = json.dumps(document)
        done = await kubectl(world, peer, "-n", NAMESPACE, "create", "--dry-run=server", "-f", "-", stdin=said)
        assert done.returncode == 0, done.stderr
        return done.stderr

    try:

        async def warns() -> bool:
            return "this pod names no architecture" in await warnings(pod(BOTH, name="plain"))

        await until(warns, seconds=30)
        for constraint in (
            {"nodeSelector": {"kubernetes.io/arch": "amd64"}},
            {"schedulingGates": [{"name": "example.com/later"}]},
        ):
            assert not await warnings(pod(BOTH, name="bound", **constraint))
        assert "joins without the taint supported-arch=arm64:NoSchedule" in await warnings(node("bare"))
        assert not await warnings(node("fine", OURS))
    finally:
        await kubectl(world, peer, "delete", "-f", "-", stdin=guards)


@pytest.mark.req("TN-054")
async def test_a_pod_with_the_runtime_class_of_an_architecture_tolerates_its_taint(
    world: Shop, peer: Callable[[str], str]
) -> None:
    classes = (await world.taint("plan", "--emit", "runtimeclasses", "--handler", "runc")).out
    assert (await kubectl(world, peer, "apply", "-f", "-", stdin=classes)).returncode == 0
    try:
        await world.client.create(PODS, pod(BOTH, name="classy", runtimeClassName="arch-arm64"), namespace=NAMESPACE)
        found = await world.client.get(PODS, "classy", namespace=NAMESPACE)
        assert tolerated(found) == ["arm64"]
        assert found["spec"]["nodeSelector"] == {"kubernetes.io/arch": "arm64"}
    finally:
        for name in ("arch-amd64", "arch-arm64"):
            await world.client.delete(RUNTIME_CLASSES, name)


@pytest.mark.req("TN-027")
async def test_the_policy_that_is_printed_is_the_one_that_apply_writes(world: Shop, peer: Callable[[str], str]) -> None:
    printed = (await world.taint("plan", "--emit", "registration-policy")).out
    assert (await kubectl(world, peer, "apply", "-f", "-", stdin=printed)).returncode == 0
    live = await world.client.get(policies("v1"), "polyarch-architecture-taints")
    assert released_by(live) == {"arm64"}
    flags = (await world.taint("plan", "--emit", "kubelet-flags")).out
    assert "--register-with-taints=supported-arch=arm64:NoSchedule" in flags


NODE_POOL: Json = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "nodepools.karpenter.sh"},
    "spec": {
        "group": "karpenter.sh",
        "names": {"kind": "NodePool", "plural": "nodepools", "singular": "nodepool"},
        "scope": "Cluster",
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {"spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
                    }
                },
            }
        ],
    },
}


@pytest.mark.req("TN-028")
async def test_the_printed_patch_gives_an_autoscaler_the_taint(world: Shop, peer: Callable[[str], str]) -> None:
    pools = Resource("karpenter.sh", "v1", "nodepools", "NodePool", namespaced=False)
    await world.client.apply(CRDS, NODE_POOL)
    requirements = [{"key": "kubernetes.io/arch", "operator": "In", "values": ["arm64"]}]
    document = {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": {"name": "arm"},
        "spec": {"template": {"spec": {"requirements": requirements, "startupTaints": [OURS]}}},
    }

    async def created() -> bool:
        try:
            await world.client.apply(pools, document)
        except NotFound:
            return False
        return True

    try:
        await until(created)
        _, found = await planned(world)
        assert [(each["kind"], each["name"]) for each in found["nodeTemplates"]] == [("NodePool", "arm")]
        lines = (await world.taint("plan", "--emit", "nodepools")).out.splitlines()
        assert "startupTaints" in lines[0]
        command = lines[1].replace("kubectl", f"{peer('kubectl')} --kubeconfig {world.sandbox.kubeconfig}", 1)
        await asyncio.to_thread(subprocess.run, command, shell=True, check=True, capture_output=True)
        assert (await world.client.get(pools, "arm"))["spec"]["template"]["spec"]["taints"] == [OURS]
        assert (await world.taint("plan", "--emit", "nodepools")).out == ""
    finally:
        await world.client.delete(CRDS, "nodepools.karpenter.sh")


@pytest.mark.req("TN-094")
async def test_a_node_that_joins_after_apply_is_tainted_from_the_start(world: Shop) -> None:
    """Also of an architecture that had no node so far."""
    await world.taint("apply", *WITHOUT_WEBHOOK)
    labels = {"kubernetes.io/arch": "s390x", "kubernetes.io/os": "linux"}
    document = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "made-1", "labels": labels}}

    async def joins_tainted() -> bool:
        made = await world.client.create(NODES, document, type=dict, dry_run=True)
        return {**OURS, "value": "s390x"} in made["spec"].get("taints", [])

    await until(joins_tainted, seconds=30)


@pytest.mark.req("TN-084")
async def test_explain_shows_what_covers_the_taint_of_each_architecture(world: Shop) -> None:
    from taint_process import define, remove, taints

    await define(world.client)
    await world.client.apply(
        Resource("polyarch.dev", "v1alpha1", "architecturetaints", "ArchitectureTaints", namespaced=False),
        taints(state="active"),
    )
    try:
        toleration = {"key": "supported-arch", "operator": "Exists"}
        await world.client.create(PODS, pod(BOTH, name="shown", tolerations=[toleration]), namespace=NAMESPACE)
        words = [*world.words("plan")[:3], "explain", "shown", "-n", NAMESPACE, "-o", "json", *world.words("plan")[5:]]
        done = await asyncio.to_thread(subprocess.run, words, capture_output=True, text=True, check=False, timeout=60)
        [entry] = json.loads(done.stdout)["pods"]
        rows = {each["architecture"]: each for each in entry["tolerations"]["nodes"]}
        assert rows["arm64"]["taint"] == "supported-arch=arm64:NoSchedule"
        assert rows["arm64"]["toleratedBy"] == toleration
        assert rows["amd64"]["taint"] is None
        assert entry["tolerations"]["reason"] == "Covered"
    finally:
        await remove(world.client)
        await world.client.delete(CRDS, "architecturetaints.polyarch.dev")
