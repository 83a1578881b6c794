"""The operator's objects and rights against a real API server."""

import asyncio
import contextlib
import secrets
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from placement_cluster import until

from polyarch.kube import config
from polyarch.kube.client import Client
from polyarch.kube.errors import Forbidden, NotFound
from polyarch.kube.patches import MergePatch
from polyarch.kube.rbac import PolicyRule, granted, role
from polyarch.kube.resources import CLUSTER_ROLES, DEPLOYMENTS, NAMESPACES, NODES, PODS, SERVICE_ACCOUNTS, by_kind
from polyarch.operator import operands as workloads
from polyarch.operator.components import placement_objects
from polyarch.operator.components.operator_rbac import placement_permissions, secret_permissions
from polyarch.operator.components.placement_objects import controller_deployment, webhook_deployment
from polyarch.operator.operands import OperandDeployment
from polyarch.operator.owned_objects import combined
from polyarch.operator.settings import ClusterCapabilities, OperatorSettings
from polyarch.placement import names
from polyarch.placement.api import CPPCS, ClusterPodPlacementConfig, PlacementPolicy
from polyarch.placement.settings import SettingsTable
from polyarch.sandbox.certificates import kubeconfig_with_token
from polyarch.sandbox.cluster import Sandbox
from polyarch.sandbox.files import write_json

CONFIGURATION = msgspec.convert(
    {"metadata": {"name": "cluster"}, "spec": {"plugins": {"execFormatErrorMonitor": {"enabled": True}}}},
    ClusterPodPlacementConfig,
)
EVERYTHING = {
    "nodeAware": {"mode": "narrow"},
    "sweep": {"action": "evict"},
    "warmUp": {"enabled": True},
    "report": {"enabled": True},
    "excludedNamespaces": ["a", "b-*"],
}
CLUSTERS = {"anywhere": ClusterCapabilities(), "openshift": ClusterCapabilities(openshift=True)}


def table(**spec):
    policy = msgspec.convert({"spec": spec}, PlacementPolicy)
    return SettingsTable.of(policy, None, operator_namespace="any")


def documents(settings, cluster, policy):
    return [
        *placement_objects.placement_operands(settings, cluster, CONFIGURATION, policy, owner=None),
        placement_objects.pod_webhook(settings, CONFIGURATION, policy, b"", owner=None),
        *placement_objects.resource_webhooks(settings, b"", owner=None),
    ]


@asynccontextmanager
async def operator(
    sandbox: Sandbox, client: Client, settings: OperatorSettings, cluster: ClusterCapabilities, folder: Path
):
    """A client with exactly the operator's rights."""
    home, suffix = settings.namespace, secrets.token_hex(4)
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": names.OPERATOR}}
    await client.apply(SERVICE_ACCOUNTS, account, namespace=home)
    held = combined(placement_permissions(settings, cluster), secret_permissions(settings))
    name = f"{names.OPERATOR}-{suffix}"
    for namespace, rules in (("", held.cluster), *held.namespaces.items()):
        for document in granted(name, rules, [(home, names.OPERATOR)], namespace=namespace):
            await client.apply(by_kind(document["apiVersion"], document["kind"]), document, namespace=namespace)
    token = await client.token(home, names.OPERATOR)
    file = folder / f"kubeconfig-{suffix}"
    write_json(file, kubeconfig_with_token(name, sandbox.layout.api_server, sandbox.layout.pki.ca, token.token))
    try:
        async with Client(config.load(str(file)), role="tests") as its:
            yield its
    finally:
        for kind in ("ClusterRole", "ClusterRoleBinding"):
            await client.delete(by_kind(CLUSTER_ROLES.api_version, kind), name)


async def patiently(apply: Callable[[], Awaitable[Any]]) -> None:
    """The API server's authorizer knows new roles a moment after they are stored."""
    for _ in range(50):
        with contextlib.suppress(Forbidden):
            await apply()
            return
        await asyncio.sleep(0.2)
    await apply()


@pytest.fixture
async def homes(client: Client) -> None:
    await client.apply(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "openshift-config"}})


@pytest.mark.req("PL-500", "PL-550")
@pytest.mark.parametrize("spec", [{}, EVERYTHING, {"images": {"secretAccess": "none", "shareReadings": False}}])
@pytest.mark.parametrize("where", CLUSTERS)
async def test_with_its_own_rights_the_operator_can_make_everything(
    sandbox, client, namespace, homes, tmp_path, where, spec
):
    """The API server refuses nobody more than the operator, who may not grant what it does not hold."""
    cluster, settings = CLUSTERS[where], OperatorSettings(namespace=namespace)
    async with operator(sandbox, client, settings, cluster, tmp_path) as its:
        made = []
        for document in documents(settings, cluster, table(**spec)):
            resource = by_kind(document["apiVersion"], document["kind"])
            home = document["metadata"].get("namespace", "")
            # A binding is judged by the role that exists, so both are really made.
            is_right = resource.group == CLUSTER_ROLES.group
            await patiently(lambda: its.apply(resource, document, namespace=home, dry_run=not is_right))  # noqa: B023 - called at once
            made += [(resource, document["metadata"]["name"], home)] if is_right else []
        for resource, name, home in reversed(made):
            await its.delete(resource, name, namespace=home)
        label = {
            "metadata": {
                "name": namespace,
                "labels": placement_objects.namespace_document(namespace)["metadata"]["labels"],
            }
        }
        await its.apply(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", **label}, dry_run=True)


@pytest.mark.req("PL-550")
async def test_it_can_grant_nothing_else(sandbox, client, namespace, tmp_path):
    """A role with a right of nobody's is refused, under a name that it may write."""
    settings = OperatorSettings(namespace=namespace)
    async with operator(sandbox, client, settings, ClusterCapabilities(), tmp_path) as its:
        document = role(names.WEBHOOK, [PolicyRule("", ("pods",), ("delete",))])
        with pytest.raises(Forbidden, match="attempting to grant RBAC permissions not currently held"):
            await its.apply(CLUSTER_ROLES, document, dry_run=True)
        with pytest.raises(Forbidden):
            await its.apply(CLUSTER_ROLES, role("another-name", [PolicyRule(CPPCS.group, (CPPCS.plural,), ("get",))]))


@pytest.mark.req("PL-502", "PL-552", "PL-855")
@pytest.mark.parametrize("mode", ["self-managed", "service-ca"])
@pytest.mark.parametrize("where", CLUSTERS)
async def test_the_pods_pass_the_restricted_policy(client, namespace, where, mode):
    """In the namespace as the operator labels it."""
    settings = OperatorSettings(namespace=namespace, certificates=mode, registries_configmap="mirrors")
    await client.apply(NAMESPACES, placement_objects.namespace_document(namespace))
    for document in placement_objects.placement_operands(
        settings, CLUSTERS[where], ClusterPodPlacementConfig(), table(), owner=None
    ):
        if document["kind"] == "ServiceAccount":
            await client.apply(SERVICE_ACCOUNTS, document, namespace=namespace)
        if document["kind"] != "Deployment":
            continue
        template = document["spec"]["template"]
        spec = {key: value for key, value in template["spec"].items() if key != "priorityClassName"}
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {**template["metadata"], "name": document["metadata"]["name"]},
            "spec": spec,
        }

        async def admitted(pod=pod) -> bool:
            try:
                await client.create(PODS, pod, namespace=namespace, dry_run=True)
            except Forbidden as error:
                if "violates PodSecurity" in error.message:
                    pytest.fail(error.message)
                return False
            return True

        await until(admitted)
        careless = {**pod, "spec": {**spec, "containers": [{"name": "x", "image": "x"}]}}
        with pytest.raises(Forbidden, match="violates PodSecurity"):
            await client.create(PODS, careless, namespace=namespace, dry_run=True)


SIZES = {"large": ("64", "256Gi"), "small-1": ("2", "4Gi"), "small-2": ("2", "4Gi")}
IMAGE_BYTES = 300_000_000


@asynccontextmanager
async def unequal_nodes(client: Client, case: str, *, count: int, zones: tuple[str, ...] = ()):
    """Nodes without a kubelet. The largest alone has polyarch's image; ``zones`` are given to them in turn."""
    image = {"names": [OperatorSettings().image], "sizeBytes": IMAGE_BYTES}
    made = []
    try:
        for number, (size, (cpu, memory)) in enumerate(list(SIZES.items())[:count]):
            labels = {"kubernetes.io/hostname": f"{case}-{size}", "kubernetes.io/arch": "amd64"}
            labels |= {"kubernetes.io/os": "linux", "polyarch.test/case": case}
            labels |= {"topology.kubernetes.io/zone": zones[number % len(zones)]} if zones else {}
            node: dict[str, Any] = {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {"name": labels["kubernetes.io/hostname"], "labels": labels},
                "spec": {"taints": [{"key": "polyarch.test/case", "value": case, "effect": "NoSchedule"}]},
            }
            await client.create(NODES, node)
            made.append(node["metadata"]["name"])
            status = {
                "allocatable": {"cpu": cpu, "memory": memory, "pods": "110"},
                "images": [image] if size == "large" else [],
            }
            await client.patch(NODES, made[-1], MergePatch({"status": status}), subresource="status")
        yield made
    finally:
        for name in made:
            await client.delete(NODES, name)


@asynccontextmanager
async def kubelets(client: Client, namespace: str, nodes: list[str], several: tuple[OperandDeployment, ...]):
    """Pods on these nodes are ready at once, and gone at once when they are deleted; the Deployments go at the end."""
    ready = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}

    async def play() -> None:
        while True:
            for each in (await client.list(PODS, namespace=namespace)).items:
                name = each["metadata"]["name"]
                with contextlib.suppress(NotFound):
                    if each["metadata"].get("deletionTimestamp"):
                        await client.delete(PODS, name, namespace=namespace, grace_period_seconds=0)
                    elif each["spec"].get("nodeName") in nodes and each["status"].get("phase") != "Running":
                        patch = MergePatch({"status": ready})
                        await client.patch(PODS, name, patch, namespace=namespace, subresource="status")
            await asyncio.sleep(0.05)

    async def gone() -> bool:
        return not (await client.list(PODS, namespace=namespace)).items

    task = asyncio.create_task(play())
    try:
        yield
    finally:
        for workload in several:
            with contextlib.suppress(NotFound):
                await client.delete(DEPLOYMENTS, workload.name, namespace=namespace)
        await until(gone)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@pytest.mark.req("PL-502")
@pytest.mark.parametrize(
    ("count", "zones"),
    [(3, ()), (2, ()), (3, ("a", "b"))],
    ids=["three nodes", "two nodes", "three nodes in two zones"],
)
async def test_the_loss_of_a_node_leaves_replicas_whatever_node_is_largest_and_has_the_image(
    client: Client, namespace: str, count: int, zones: tuple[str, ...]
) -> None:
    """With the cluster's own scheduler and its usual weights; also after each of three roll-outs."""
    settings = OperatorSettings(
        namespace=namespace, node_selector=(f"polyarch.test/case={namespace}",), tolerations=(":",)
    )
    async with unequal_nodes(client, namespace, count=count, zones=zones) as nodes:
        several = (webhook_deployment(settings), controller_deployment(settings))
        async with kubelets(client, namespace, nodes, several):
            for workload in several:
                account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": workload.name}}
                await client.apply(SERVICE_ACCOUNTS, account, namespace=namespace)
                for revision in range(4):
                    deployment = workloads.deployment_document(
                        workload, settings, ClusterCapabilities(), registries=f"revision-{revision}"
                    )
                    await client.apply(DEPLOYMENTS, deployment, namespace=namespace)
                    placed = await rolled_out(client, namespace, workload, f"revision-{revision}")
                    assert len(set(placed)) == min(workload.replicas, count), (workload.name, revision, placed)


async def rolled_out(client: Client, namespace: str, workload: OperandDeployment, revision: str) -> list[str]:
    """The nodes of its pods, once all are ready and of this revision."""
    found: list[str] = []

    async def done() -> bool:
        selector = f"{names.CONTROLLER_LABEL}={workload.name}"
        pods = (await client.list(PODS, namespace=namespace, label_selector=selector)).items
        ready = [each for each in pods if each["status"].get("phase") == "Running"]
        found[:] = [each["spec"]["nodeName"] for each in ready]
        current = [each for each in ready if each["metadata"]["annotations"][workloads.REGISTRIES_DIGEST] == revision]
        return len(pods) == len(current) == workload.replicas

    await until(done)
    return found
