"""Keeping Node objects and their Leases as planned: created, reported ready, renewed, removed when not wanted."""

from collections.abc import Callable, Coroutine, Mapping, Sequence

import structlog

from polyarch.kube.client.client import Client, MergePatch, StrategicPatch
from polyarch.kube.clock import Clock
from polyarch.kube.errors import AlreadyExists, ApiError, ConnectionFailed, NotFound
from polyarch.kube.resources import LEASES, NODES
from polyarch.model.meta import PartialObjectMetadata
from polyarch.sandbox.nodes import fleet
from polyarch.sandbox.nodes.fleet import NodePlan
from polyarch.sandbox.tasks import together

log = structlog.get_logger(__name__)

LEASE_NAMESPACE = "kube-node-lease"
RENEW_SECONDS = 10.0
AT_ONCE = 16


async def register(client: Client, plans: Sequence[NodePlan], clock: Clock) -> None:
    """Make the cluster's nodes those of ``plans``: nodes of an earlier fleet go, all others are ready on return."""
    there = await client.list(NODES, type=PartialObjectMetadata, label_selector=fleet.LABEL)
    wanted = {plan.name for plan in plans}
    for stale in there.items:
        if stale.metadata.name not in wanted:
            await _delete(client, stale.metadata.name)
    await _batches(plans, lambda plan: _register_one(client, plan, clock))


async def renew(client: Client, plans: Sequence[NodePlan], clock: Clock) -> None:
    """Renew every Lease for ever. A failure is logged and made up for by the next round, as a kubelet does."""
    while True:
        await clock.sleep(RENEW_SECONDS)
        try:
            await _batches(plans, lambda plan: _renew_one(client, plan, clock))
        except (ApiError, ConnectionFailed) as error:
            log.warning("the leases were not renewed", error=str(error))


async def _batches(plans: Sequence[NodePlan], action: Callable[[NodePlan], Coroutine[object, object, None]]) -> None:
    for start in range(0, len(plans), AT_ONCE):
        await together(action(plan) for plan in plans[start : start + AT_ONCE])


async def _register_one(client: Client, plan: NodePlan, clock: Clock) -> None:
    document = fleet.node(plan)
    try:
        await client.create(NODES, document)
    except AlreadyExists:
        await client.patch(NODES, plan.name, MergePatch({"metadata": document["metadata"], "spec": document["spec"]}))
    await _renew_one(client, plan, clock)
    report = StrategicPatch({"status": fleet.status(plan, clock.now())})
    await client.patch(NODES, plan.name, report, subresource="status")


async def _renew_one(client: Client, plan: NodePlan, clock: Clock) -> None:
    document = fleet.lease(plan, clock.now())
    try:
        await client.patch(LEASES, plan.name, MergePatch({"spec": document["spec"]}), namespace=LEASE_NAMESPACE)
    except NotFound:
        try:
            await client.create(LEASES, document, namespace=LEASE_NAMESPACE)
        except AlreadyExists:
            return


async def _delete(client: Client, name: str) -> None:
    for resource, namespace in ((NODES, ""), (LEASES, LEASE_NAMESPACE)):
        try:
            await client.delete(resource, name, namespace=namespace)
        except NotFound:
            continue


def rights() -> list[Mapping[str, object]]:
    """The ClusterRole of the nodes' process and its binding: what kubelets need, for all nodes at once."""
    rules = [
        _rule("", ["nodes"], ["get", "list", "create", "patch", "delete"]),
        _rule("", ["nodes/status", "pods/status"], ["patch"]),
        _rule("", ["pods"], ["list", "watch", "delete"]),
        _rule("", ["secrets"], ["get"]),
        _rule("events.k8s.io", ["events"], ["create", "patch"]),
        _rule("coordination.k8s.io", ["leases"], ["create", "patch", "delete"]),
    ]
    name = "polyarch-sandbox:nodes"
    group = "rbac.authorization.k8s.io"
    return [
        {
            "apiVersion": f"{group}/v1",
            "kind": "ClusterRole",
            "metadata": {"name": name},
            "rules": rules,
        },
        {
            "apiVersion": f"{group}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": name},
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": name},
            "subjects": [{"apiGroup": group, "kind": "Group", "name": name}],
        },
    ]


def _rule(group: str, resources: list[str], verbs: list[str]) -> dict[str, list[str]]:
    return {"apiGroups": [group], "resources": resources, "verbs": verbs}
