"""Controller of the Node objects and their Leases: creates them, reports them ready, renews and removes them.

It is level-based: a node that somebody deleted is created again, and one that was marked unreachable while this process
was stopped becomes ready again.
"""

from collections.abc import Callable, Coroutine, Mapping, Sequence

import structlog

from polyarch.clock import Clock
from polyarch.kube import rbac
from polyarch.kube.client import Client
from polyarch.kube.controller import NoRequeue
from polyarch.kube.errors import AlreadyExists, ApiError, Conflict, ConnectionFailed, NotFound
from polyarch.kube.patches import MergePatch, StrategicPatch
from polyarch.kube.rbac import PolicyRule, rule
from polyarch.kube.resources import (
    CONFIGMAPS,
    EVENTS,
    LEASES,
    NODES,
    PODS,
    SECRETS,
    SERVICE_ACCOUNTS,
    SUBJECT_ACCESS_REVIEWS,
    TOKEN_REVIEWS,
    Resource,
)
from polyarch.kube.store import Store
from polyarch.objects import ObjectKey
from polyarch.sandbox.nodes.plans import (
    Node,
    NodePlan,
    former_pages,
    lease_document,
    node_document,
    node_patch,
    node_status,
    reports_plan,
)
from polyarch.sandbox.nodes.pods import Pod
from polyarch.sandbox.tasks import together

log = structlog.get_logger(__name__)

LEASE_NAMESPACE = "kube-node-lease"
RENEW_SECONDS = 10.0
MAX_CONCURRENT_REQUESTS = 16


class Registration:
    """The reconciler. ``nodes`` holds the nodes with the sandbox's label."""

    def __init__(self, client: Client, nodes: Store[Node], plans: Sequence[NodePlan], *, clock: Clock) -> None:
        self._client = client
        self._nodes = nodes
        self._plans = {ObjectKey("", plan.name): plan for plan in plans}
        self._clock = clock

    @property
    def keys(self) -> list[ObjectKey]:
        """The key of every configured node, to be reconciled at the start."""
        return list(self._plans)

    async def reconcile(self, key: ObjectKey) -> NoRequeue:
        """Make the node ``key`` match its plan, or delete it if there is none."""
        plan, node = self._plans.get(key), self._nodes.get(key)
        if plan is not None:
            if node is None or not node.is_lost:
                await self._keep(plan, node)
        elif node is not None:
            log.info("node that is no longer configured removed", node=key.name)
            await _remove(self._client, key.name)
        return NoRequeue()

    async def _keep(self, plan: NodePlan, node: Node | None) -> None:
        if node is None:
            node = await self._create(plan)
        change = node_patch(plan, node)
        if change is not None:
            await self._client.patch(NODES, plan.name, MergePatch(change))
        if not node.is_ready or not reports_plan(plan, node):
            await _renew_one(self._client, plan, self._clock)
            status = node_status(plan, self._clock.now())
            gone = former_pages(plan, node)
            report = StrategicPatch(
                {"status": {**status, **{each: {**status[each], **gone} for each in ("capacity", "allocatable")}}}
            )
            await self._client.patch(NODES, plan.name, report, subresource="status")

    async def _create(self, plan: NodePlan) -> Node:
        try:
            return await self._client.create(NODES, node_document(plan, self._clock.now()), type=Node)
        except AlreadyExists:  # the informer is behind, or somebody removed our label
            return await self._client.get(NODES, plan.name, type=Node)


async def renew(client: Client, nodes: Store[Node], plans: Sequence[NodePlan], clock: Clock) -> None:
    """Renew every Lease until cancelled. A failure is logged; the next round renews again, as in a kubelet."""
    while True:
        await clock.sleep(RENEW_SECONDS)
        there = [plan for plan in plans if (node := nodes.get(ObjectKey("", plan.name))) is None or not node.is_lost]
        try:
            await _batches(there, lambda plan: _renew_one(client, plan, clock))
        except (ApiError, ConnectionFailed) as error:
            log.warning("leases were not renewed", error=str(error))


async def _batches(plans: Sequence[NodePlan], action: Callable[[NodePlan], Coroutine[object, object, None]]) -> None:
    for start in range(0, len(plans), MAX_CONCURRENT_REQUESTS):
        await together(action(plan) for plan in plans[start : start + MAX_CONCURRENT_REQUESTS])


async def _renew_one(client: Client, plan: NodePlan, clock: Clock) -> None:
    document = lease_document(plan, clock.now())
    try:
        await client.patch(LEASES, plan.name, MergePatch({"spec": document["spec"]}), namespace=LEASE_NAMESPACE)
    except NotFound:
        try:
            await client.create(LEASES, document, namespace=LEASE_NAMESPACE)
        except AlreadyExists:
            return


async def _remove(client: Client, name: str) -> None:
    """Delete a node, its Lease and its pods: nothing runs there any more, and without us a pod that was bound a moment
    ago would stay Pending for a minute, until garbage collection."""
    for resource, namespace in ((NODES, ""), (LEASES, LEASE_NAMESPACE)):
        await _delete(client, resource, name, namespace)
    found = await client.list(PODS, type=Pod, field_selector=f"spec.nodeName={name}")
    for pod in found.items:
        await _delete(client, PODS, pod.metadata.name, pod.metadata.namespace, uid=pod.metadata.uid, grace=0)


async def _delete(
    client: Client, resource: Resource, name: str, namespace: str, *, uid: str | None = None, grace: int | None = None
) -> None:
    try:
        await client.delete(resource, name, namespace=namespace, uid=uid, grace_period_seconds=grace)
    except (NotFound, Conflict):
        return


def permissions() -> list[Mapping[str, object]]:
    """The ClusterRole of the nodes' process, and its binding to the group in the process's certificate."""
    rules = [
        rule(NODES, "get", "list", "watch", "create", "patch", "delete"),
        rule([NODES, PODS], "patch", subresource="status"),
        rule(PODS, "get", "list", "watch", "delete"),
        rule([SECRETS, CONFIGMAPS], "get", "list", "watch"),
        rule(SERVICE_ACCOUNTS, "create", subresource="token"),
        rule(EVENTS, "create", "patch"),
        rule(LEASES, "create", "patch", "delete"),
        rule(TOKEN_REVIEWS, "create"),
        rule(SUBJECT_ACCESS_REVIEWS, "create"),
    ]
    return process_role("nodes", rules)


def process_role(process: str, rules: Sequence[PolicyRule]) -> list[Mapping[str, object]]:
    """A ClusterRole for a process of the sandbox, and its binding to the group in the process's certificate."""
    name = f"polyarch-sandbox:{process}"
    binding = rbac.binding(name, []) | {"subjects": [{"apiGroup": rbac.GROUP, "kind": "Group", "name": name}]}
    return [rbac.role(name, rules), binding]
