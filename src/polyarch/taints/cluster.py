"""Reads what a plan has to know of a cluster. Nothing is written.

Every list is read once, in pages, and a few at a time, since the API server limits what one client may ask.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Protocol

import msgspec

from polyarch.clock import Clock
from polyarch.images.node_templates import mapping_at
from polyarch.images.template_lists import read_templates
from polyarch.kube.errors import NotFound
from polyarch.kube.lease import Lease, LeaseSpec
from polyarch.kube.resources import (
    CRONJOBS,
    DAEMONSETS,
    DEPLOYMENTS,
    ENDPOINT_SLICES,
    JOBS,
    LEASES,
    MUTATING_WEBHOOKS,
    NAMESPACES,
    NODES,
    PODS,
    REPLICASETS,
    RUNTIME_CLASSES,
    SERVICE_ACCOUNTS,
    STATEFULSETS,
    Resource,
    few,
)
from polyarch.kube.responses import ListResult
from polyarch.names import OWN_GROUP
from polyarch.objects import (
    CronJob,
    DaemonSet,
    LocalObjectReference,
    Node,
    ObjectKey,
    ObjectMeta,
    PartialObjectMetadata,
    Pod,
    RuntimeClass,
    Workload,
)
from polyarch.oci.concurrency import map_concurrently
from polyarch.taints.documents import GROUP, bindings, newest_served, policies
from polyarch.taints.inventory import ClusterSnapshot, unscheduled
from polyarch.taints.names import ADDED_TOLERATIONS_ANNOTATION, REGISTRATION_POLICY, ROLE
from polyarch.taints.node_rules import (
    SERVICE_LABEL,
    EndpointSlice,
    PlatformsOf,
    WebhookConfiguration,
    admission_problem,
    any_platform,
    pending_because_of_taints,
)
from polyarch.taints.node_templates import (
    UNREAD_KINDS,
    NodeTemplate,
    NodeTemplates,
    cloud_pools,
    lacking,
    unsaid,
)
from polyarch.taints.plan import Admission, PlanFacts, Policy
from polyarch.taints.settings import TaintSettings
from polyarch.taints.writes import KubernetesApi

# -- nodes, workloads and pods -----------------------------------------------------------------------------------------

MAX_CONCURRENT_LISTS: Final = 4


class ServiceAccount(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """core/v1 ServiceAccount: the pull secrets that its pods get."""

    metadata: ObjectMeta = ObjectMeta()
    image_pull_secrets: list[LocalObjectReference] | None = None


WORKLOADS: Final = (DEPLOYMENTS, STATEFULSETS, REPLICASETS, JOBS)
TYPES: Final[Mapping[Resource, type[Any]]] = {
    NODES: Node,
    PODS: Pod,
    DAEMONSETS: DaemonSet,
    **dict.fromkeys(WORKLOADS, Workload),
    CRONJOBS: CronJob,
    NAMESPACES: PartialObjectMetadata,
    SERVICE_ACCOUNTS: ServiceAccount,
    RUNTIME_CLASSES: RuntimeClass,
}
"""What is listed, and what is kept of it."""


class Lists(Protocol):
    """The part of the client that is needed here."""

    async def list(self, resource: Resource, *, type: Any, keep: Callable[[Any], Any]) -> ListResult[Any]: ...


async def read_inventory(client: Lists) -> ClusterSnapshot:
    """The cluster as it is. Raises ``KubernetesError`` if a list cannot be read: a plan of a part would be no plan."""

    async def items(resource: Resource) -> tuple[Any, ...]:
        return tuple((await client.list(resource, type=TYPES[resource], keep=without_long_annotations)).items)

    lists = dict(zip(TYPES, await map_concurrently(items, TYPES, at_once=MAX_CONCURRENT_LISTS), strict=True))
    return ClusterSnapshot(
        nodes=lists[NODES],
        pods=lists[PODS],
        daemon_sets=lists[DAEMONSETS],
        workloads={each.kind: lists[each] for each in WORKLOADS},
        cron_jobs=lists[CRONJOBS],
        namespaces={each.metadata.name: each.metadata.labels or {} for each in lists[NAMESPACES]},
        accounts=_secrets(lists[SERVICE_ACCOUNTS]),
        runtime_classes={each.metadata.name: each for each in lists[RUNTIME_CLASSES]},
    )


MAX_ANNOTATION: Final = 1024
"""Characters of an annotation of others that are kept: what somebody applied last can be as long as the object."""


def without_long_annotations(found: Any) -> Any:
    """The object with long annotations of others left empty, which decide nothing; their names count for patches."""
    present = found.metadata.annotations
    long = {name for name, text in (present or {}).items() if len(text) > MAX_ANNOTATION}
    long -= {name for name in long if name.startswith(f"{OWN_GROUP}/")}
    if not long:
        return found
    kept = {name: "" if name in long else text for name, text in present.items()}
    return msgspec.structs.replace(found, metadata=msgspec.structs.replace(found.metadata, annotations=kept))


def _secrets(accounts: tuple[ServiceAccount, ...]) -> Mapping[ObjectKey, tuple[str, ...]]:
    found = {each.metadata.key: tuple(one.name for one in each.image_pull_secrets or ()) for each in accounts}
    return {key: names for key, names in found.items() if names}


# -- who adds tolerations and taints, which DaemonSets roll out, which autoscalers make nodes --------------------------


async def read_live(
    api: KubernetesApi,
    inventory: ClusterSnapshot,
    settings: TaintSettings,
    *,
    comes: bool,
    platforms_of: PlatformsOf = any_platform,
) -> PlanFacts:
    """``comes``: a controller, or an operator that makes one, will bring what is missing of the admission.
    ``platforms_of``: what the images of a pod run on."""
    templates = await read_node_templates(api, settings, inventory.nodes)
    admission = Admission(await webhook_problem(api), await _policy(api, settings), comes)
    return PlanFacts(
        admission=admission,
        rolling=rolling(inventory),
        pending=pending(inventory, settings, platforms_of),
        node_templates=templates.lacking,
        notes=templates.notes,
    )


def rolling(inventory: ClusterSnapshot) -> tuple[ObjectKey, ...]:
    """The DaemonSets that got tolerations from us and whose pods are not all new yet."""
    ours = [
        each
        for each in inventory.daemon_sets
        if ADDED_TOLERATIONS_ANNOTATION in (each.metadata.annotations or {}) and not each.is_rolled_out
    ]
    return tuple(sorted(each.metadata.key for each in ours))


def pending(
    inventory: ClusterSnapshot, settings: TaintSettings, platforms_of: PlatformsOf = any_platform
) -> Mapping[str, tuple[str, ...]]:
    """The pods that nothing but a taint of ours keeps pending, by its architecture."""
    pods = unscheduled(inventory.pods)
    found = pending_because_of_taints(pods, inventory.nodes, settings, inventory.namespaces.get, platforms_of)
    return {architecture: tuple(sorted(names.values())) for architecture, names in found.items()}


async def webhook_problem(api: KubernetesApi) -> str:
    """Why pods do not get their tolerations at admission; empty: they do."""
    try:
        configuration = await api.get(MUTATING_WEBHOOKS, ROLE, type=WebhookConfiguration)
    except NotFound:
        return admission_problem(None, (), namespace="")
    services = [each.client_config.service for each in configuration.webhooks or ()]
    namespace = next((each.namespace for each in services if each is not None), "")
    if not namespace:
        return admission_problem(configuration, (), namespace="")
    slices = await api.list(ENDPOINT_SLICES, type=EndpointSlice, label_selector=f"{SERVICE_LABEL}={ROLE}")
    here = [each for each in slices.items if each.metadata.namespace == namespace]
    return admission_problem(configuration, here, namespace=namespace)


async def _policy(api: KubernetesApi, settings: TaintSettings) -> Policy:
    if settings.at_registration == "none" or settings.state != "active":
        return "unwanted"
    version = newest_served(await api.discover(GROUP))
    if version is None:
        return "unserved"
    for resource in (policies(version), bindings(version)):
        try:
            await api.get(resource, REGISTRATION_POLICY, type=dict)
        except NotFound:
            return "missing"
    return "present"


async def read_node_templates(api: KubernetesApi, settings: TaintSettings, nodes: Iterable[Node]) -> NodeTemplates:
    """The templates of autoscalers and pools of clouds that lack the taint, and what is not known of others."""
    found: list[NodeTemplate] = []
    notes: list[str] = []
    for kind in await read_templates(api):
        if kind.problem:
            notes.append(f"{kind.resource} not read: {kind.problem}")
        found += filter(None, (lacking(kind.resource, each, settings) for each in kind.documents))
        silent: dict[str, list[str]] = {}
        for each in kind.documents:
            if why := unsaid(kind.resource, each):
                silent.setdefault(why, []).append(str(mapping_at(each, "metadata").get("name")))
        notes += (f"{kind.resource} not judged: {few(sorted(names))}: {why}" for why, names in sorted(silent.items()))
    notes += await _unread_kinds(api)
    ordered = sorted(found, key=lambda each: (each.kind, each.namespace, each.name))
    return NodeTemplates((*ordered, *cloud_pools(nodes, settings)), tuple(notes))


async def _unread_kinds(api: KubernetesApi) -> list[str]:
    served = {group: await api.discover(group) for group in dict.fromkeys(group for group, _ in UNREAD_KINDS)}
    return [
        f"{resource} not looked at: polyarch does not know its form, so see for yourself what taints its nodes get"
        for group, kind in UNREAD_KINDS
        for resource in _first(served[group], kind)
    ]


def _first(served: tuple[Resource, ...], kind: str) -> list[Resource]:
    """The kind in its preferred version."""
    return [each for each in served if each.kind == kind][:1]


# -- whether a process holds a Lease and renews it ---------------------------------------------------------------------
# Clocks of different machines disagree, so a time in a Lease says nothing: a Lease is renewed if it is seen to change.

STALE_AFTER: Final = 30.0
"""Seconds after which a Lease that nobody renews is nobody's."""
POLL_INTERVAL: Final = 1.0


async def is_renewed(api: KubernetesApi, name: str, *, clock: Clock, patience: float = STALE_AFTER) -> bool:
    """Whether a Lease of this name, in whatever namespace, changes within ``patience`` seconds.

    False at once if there is none, or nobody holds one.
    """
    before = await _held(api, name)
    until = clock.monotonic() + patience
    while before:
        if clock.monotonic() >= until:
            return False
        await clock.sleep(POLL_INTERVAL)
        now = await _held(api, name)
        if any(before.get(uid) != spec for uid, spec in now.items()):
            return True
        before = now
    return False


async def _held(api: KubernetesApi, name: str) -> dict[str, LeaseSpec]:
    """What the Leases of this name say that somebody holds, by uid."""
    found = (await api.list(LEASES, type=Lease, field_selector=f"metadata.name={name}")).items
    return {each.metadata.uid: each.spec for each in found if each.spec is not None and each.spec.holder_identity}
