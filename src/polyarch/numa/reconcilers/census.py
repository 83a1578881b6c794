"""What is read from time to time, because watching it would cost more than it is worth.

NodeResourceTopologies are many, large and change with every pod; of Nodes the version of the kubelet is in no metadata.
Both are read page by page, and of each object only what it amounts to is kept.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Final, TypeVar

import msgspec

from polyarch.clock import Clock
from polyarch.kube.client import Client
from polyarch.kube.errors import NotFound
from polyarch.kube.requests import Selection
from polyarch.kube.resources import NODES, PODS, Resource
from polyarch.kube.watch import KubernetesObject
from polyarch.numa import names
from polyarch.numa.api.topology import TOPOLOGIES, NodeResourceTopology
from polyarch.numa.operator.kubelet_findings import findings
from polyarch.numa.operator.scheduler.nodes import Candidates, SchedulableNode
from polyarch.objects import ObjectMeta
from polyarch.tolerations import Toleration

T = TypeVar("T", bound=KubernetesObject)

EVERY: Final = 600.0
"""Seconds between two looks while nothing tells of a change."""
SOON: Final = 30.0
"""Seconds between two looks while something is known to be on its way."""
NODE_PAGE: Final = 100
TOPOLOGY_PAGE: Final = 200


class Topologies(msgspec.Struct, frozen=True):
    """The NodeResourceTopologies of the last look."""

    labelled: tuple[ObjectMeta, ...] = ()
    """Metadata of those with our label."""
    findings: Mapping[str, tuple[str, ...]] = {}
    """By node: what does not suit NUMA placement (NO-091)."""


class TopologyCensus:
    """The NodeResourceTopologies of the cluster."""

    def __init__(self, client: Client, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._looked_at: float | None = None
        self.found = Topologies()

    def is_due(self, *, expecting: bool) -> bool:
        """``expecting``: nodes are without an object that they should have, or have one that they should not."""
        if self._looked_at is None:
            return True
        return self._clock.monotonic() - self._looked_at >= (SOON if expecting else EVERY)

    def next_look(self, *, expecting: bool) -> float:
        """Seconds until it is due."""
        since = self._clock.monotonic() - (self._looked_at if self._looked_at is not None else -EVERY)
        return max(1.0, (SOON if expecting else EVERY) - since)

    async def look(self) -> Topologies:
        """Reads them all. Raises ``KubernetesError``; where the kind is not served there are none."""
        began = self._clock.monotonic()
        labelled: list[ObjectMeta] = []
        found: dict[str, tuple[str, ...]] = {}
        try:
            async for page in _pages(self._client, TOPOLOGIES, NodeResourceTopology, TOPOLOGY_PAGE):
                labelled += [_slim(each.metadata) for each in page if _is_labelled(each.metadata)]
                found |= {each.metadata.name: findings(each) for each in page}
        except NotFound:
            labelled, found = [], {}
        self.found, self._looked_at = Topologies(tuple(labelled), found), began
        return self.found

    def forget(self, name: str) -> None:
        """An object was deleted."""
        kept = tuple(each for each in self.found.labelled if each.name != name)
        self.found = Topologies(kept, {node: each for node, each in self.found.findings.items() if node != name})


class NodeCensus:
    """The nodes, as far as they matter to the scheduler."""

    def __init__(self, client: Client, clock: Clock, *, tolerations: Sequence[Toleration] = ()) -> None:
        self._client = client
        self._clock = clock
        self._tolerations = tolerations
        self._looked_at: float | None = None
        self._changes = -1
        self._found = Candidates()

    async def look(self, changes: int) -> Candidates:
        """``changes``: how often nodes have come and gone. Reads them again when that is another number, or after ten
        minutes. Raises ``KubernetesError``."""
        now = self._clock.monotonic()
        if self._looked_at is None or changes != self._changes or now - self._looked_at >= EVERY:
            found = Candidates()
            async for page in _pages(self._client, NODES, SchedulableNode, NODE_PAGE):
                found = found.plus(Candidates.of(page, self._tolerations))
            self._found, self._changes, self._looked_at = found, changes, now
        return self._found


class WaitingState(msgspec.Struct, frozen=True, gc=False):
    """``state.waiting`` of a container."""

    reason: str = ""


class ContainerState(msgspec.Struct, frozen=True, gc=False):
    """``state`` of a container."""

    waiting: WaitingState | None = None


class ContainerStatus(msgspec.Struct, frozen=True, gc=False):
    """``containerStatuses[]``."""

    ready: bool = False
    state: ContainerState | None = None


class PodCondition(msgspec.Struct, frozen=True, gc=False):
    """``conditions[]``."""

    type: str = ""
    status: str = ""
    reason: str = ""


class ExporterStatus(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """Status of an exporter's pod."""

    phase: str = ""
    container_statuses: list[ContainerStatus] | None = None
    conditions: list[PodCondition] | None = None


class ExporterSpec(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """Spec of an exporter's pod."""

    node_name: str = ""


class ExporterPod(msgspec.Struct, frozen=True, gc=False):
    """A pod of an exporter, as far as it is read."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ExporterSpec = ExporterSpec()
    status: ExporterStatus = ExporterStatus()

    @property
    def waits_for(self) -> str:
        """Why it is not ready; empty if it is."""
        containers = self.status.container_statuses or ()
        if containers and all(each.ready for each in containers):
            return self._closed_gate()
        reasons = (each.state.waiting.reason for each in containers if each.state is not None and each.state.waiting)
        return next(reasons, "") or self.status.phase or "Pending"

    def _closed_gate(self) -> str:
        """Why it is not ready although its containers are: it cannot read its node, or cannot publish (NE-120)."""
        told = {each.type: each for each in self.status.conditions or ()}
        for gate in names.READINESS_GATES:
            found = told.get(gate, PodCondition())
            if found.status != "True":
                return found.reason or f"{gate} is not told"
        return ""


async def exporter_pods(client: Client, home: str) -> list[ExporterPod]:
    """The pods of all exporters, by a live list. Raises ``KubernetesError``."""
    selector = ",".join(f"{name}={value}" for name, value in names.EXPORTER_POD_LABELS.items())
    listed = await client.list(PODS, type=ExporterPod, namespace=home, label_selector=selector)
    return list(listed.items)


async def _pages(client: Client, resource: Resource, kind: type[T], limit: int) -> AsyncIterator[list[T]]:
    """Page by page. Raises ``Gone`` if the list expires in between: the next look begins again."""
    token = ""
    while True:
        page = await client.list_page(resource, Selection(), type=kind, continue_token=token, limit=limit)
        yield page.objects
        token = page.continue_token
        if not token:
            return


def _is_labelled(metadata: ObjectMeta) -> bool:
    return names.NODE_GROUP_LABEL in (metadata.labels or {})


def _slim(metadata: ObjectMeta) -> ObjectMeta:
    label = {names.NODE_GROUP_LABEL: (metadata.labels or {})[names.NODE_GROUP_LABEL]}
    return ObjectMeta(
        name=metadata.name, uid=metadata.uid, labels=label, deletion_timestamp=metadata.deletion_timestamp
    )
