"""Reads a cluster for a plan: every list once, in pages (TN-060). Nothing is written.

The lists are read a few at a time, since the API server limits what one client may ask.
"""

from collections.abc import Mapping
from typing import Any, Final, Protocol

import msgspec

from polyarch.kube.resources import (
    CRONJOBS,
    DAEMONSETS,
    DEPLOYMENTS,
    JOBS,
    NAMESPACES,
    NODES,
    PODS,
    REPLICASETS,
    SERVICE_ACCOUNTS,
    STATEFULSETS,
    Resource,
)
from polyarch.kube.responses import Listing
from polyarch.objects import (
    CronJob,
    DaemonSet,
    Key,
    LocalObjectReference,
    Node,
    ObjectMeta,
    PartialObjectMetadata,
    Pod,
    Workload,
)
from polyarch.oci.concurrent import map_concurrently
from polyarch.taints.plan.inventory import Inventory

AT_ONCE: Final = 4


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
}
"""What is listed, and what is kept of it."""


class Lists(Protocol):
    """The part of the client that is needed here."""

    async def list(self, resource: Resource, *, type: Any) -> Listing[Any]: ...


async def read_inventory(client: Lists) -> Inventory:
    """The cluster as it is. Raises ``KubernetesError`` if a list cannot be read: a plan of a part would be no plan."""

    async def items(resource: Resource) -> tuple[Any, ...]:
        return tuple((await client.list(resource, type=TYPES[resource])).items)

    lists = dict(zip(TYPES, await map_concurrently(items, TYPES, at_once=AT_ONCE), strict=True))
    return Inventory(
        nodes=lists[NODES],
        pods=lists[PODS],
        daemon_sets=lists[DAEMONSETS],
        workloads={each.kind: lists[each] for each in WORKLOADS},
        cron_jobs=lists[CRONJOBS],
        namespaces={each.metadata.name: each.metadata.labels or {} for each in lists[NAMESPACES]},
        accounts=_secrets(lists[SERVICE_ACCOUNTS]),
    )


def _secrets(accounts: tuple[ServiceAccount, ...]) -> Mapping[Key, tuple[str, ...]]:
    found = {each.metadata.key: tuple(one.name for one in each.image_pull_secrets or ()) for each in accounts}
    return {key: names for key, names in found.items() if names}
