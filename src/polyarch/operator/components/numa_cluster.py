"""What the controllers of NUMA have in common: what they watch and poll, and how they write a status.

Everything is watched from the moment on that the controllers run, and nothing of it keeps the process from being ready:
whoever has no use for NUMA is not disturbed by it. NodeResourceTopologies are many, large and change with every pod,
and of Nodes the version of the kubelet is in no metadata. So both are polled, page by page, and of each object only
what it amounts to is kept.
"""

from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Final, TypeVar

import msgspec
import structlog

from polyarch.clock import Clock
from polyarch.kube.client import Client
from polyarch.kube.conditions import merged
from polyarch.kube.controller import RequeueAfter
from polyarch.kube.errors import Conflict, NotFound
from polyarch.kube.events import Recorder, Regarding
from polyarch.kube.informer import Informer, OnDemandInformer, Shares
from polyarch.kube.metrics import Metrics
from polyarch.kube.patches import MergePatch
from polyarch.kube.requests import ListOptions
from polyarch.kube.resources import CONFIGMAPS, CRDS, ENDPOINT_SLICES, NAMESPACES, NODES, PODS, Resource
from polyarch.kube.store import ObjectChange
from polyarch.kube.watch import KubernetesObject
from polyarch.numa import names
from polyarch.numa.api.resources import OPERATORS, SCHEDULERS
from polyarch.numa.api.topology import TOPOLOGIES, NodeResourceTopology
from polyarch.numa.names import NODE_POOL_LABEL
from polyarch.objects import Condition, ObjectKey, ObjectMeta, PartialObjectMetadata, Unstructured
from polyarch.operator.components.numa_exporter_objects import CONSTRAINTS, MACHINE_CONFIGS
from polyarch.operator.components.numa_facts import (
    API_SERVERS,
    CLUSTER_VERSIONS,
    INFRASTRUCTURES,
    POOLS,
    STATES,
    USUAL_API_PORTS,
    PlannedEvent,
    Platform,
    findings,
    platform_of,
)
from polyarch.operator.components.numa_node_groups import HOSTED_LABEL, HOSTED_NAMESPACE, KUBELET_CONFIGS
from polyarch.operator.components.numa_scheduler_plan import NodeCounts, SchedulableNode
from polyarch.operator.reconciler import ConditionMetrics, seconds_since
from polyarch.operator.settings import OperatorSettings
from polyarch.tolerations import Toleration

log = structlog.get_logger(__name__)

T = TypeVar("T", bound=KubernetesObject)

API_SERVICE: Final = ObjectKey("default", "kubernetes")
POLL_INTERVAL: Final = 600.0
"""Seconds between two looks while nothing tells of a change."""
EXPECTING_INTERVAL: Final = 30.0
"""Seconds between two looks while something is known to be on its way."""
NODE_PAGE: Final = 100
TOPOLOGY_PAGE: Final = 200
GROUP_STATES: Final = ("desired", "ready")
ACTION: Final = "Reconcile"
MAX_REMEMBERED: Final = 64
"""Events of one object that are known to be posted."""
UNINSTALL_TIMEOUT: Final = 120.0
"""Seconds after which a terminating custom resource is let go in any case."""
UNINSTALL_INTERVAL: Final = RequeueAfter(1.0)


class EndpointPort(msgspec.Struct, frozen=True, gc=False):
    """``ports[]`` of an EndpointSlice."""

    port: int | None = None


class Endpoints(msgspec.Struct, frozen=True, gc=False):
    """An EndpointSlice reduced to its ports."""

    metadata: ObjectMeta = ObjectMeta()
    ports: list[EndpointPort] | None = None


class NumaInformers:
    """What the controllers of NUMA watch.

    ``changed`` is called when anything but the custom resources has changed, ``kubelets_changed`` with a change of the
    configurations of kubelets. Of Nodes only the metadata is watched, and a heartbeat, which changes no label, calls
    nobody.
    """

    def __init__(
        self,
        informers: Shares,
        settings: OperatorSettings,
        *,
        changed: Callable[[], None],
        kubelets_changed: Callable[[], None],
    ) -> None:
        self._settings = settings
        self._changed = changed

        def on_change(_: ObjectChange[Any]) -> None:
            changed()

        def on_kubelet_change(_: ObjectChange[Any]) -> None:
            kubelets_changed()

        self.operators: Informer[Unstructured] = informers.informer(OPERATORS, Unstructured, required=False)
        self.schedulers: Informer[Unstructured] = informers.informer(SCHEDULERS, Unstructured, required=False)
        self.nodes: Informer[PartialObjectMetadata] = informers.informer(NODES, PartialObjectMetadata, required=False)
        self.nodes.add_handler(self._node_changed)
        self.node_arrivals = 0
        """How often a node came, went or got other labels."""
        self.definition: Informer[PartialObjectMetadata] = informers.informer(
            CRDS, PartialObjectMetadata, required=False, field_selector=f"metadata.name={TOPOLOGIES}"
        )
        self._namespace = informers.informer(
            NAMESPACES, Unstructured, required=False, field_selector=f"metadata.name={settings.numa_home}"
        )
        self._endpoints = informers.informer(
            ENDPOINT_SLICES,
            Endpoints,
            required=False,
            namespace=API_SERVICE.namespace,
            field_selector=f"metadata.name={API_SERVICE.name}",
        )
        self.definition.add_handler(on_change)
        self._namespace.add_handler(on_change)
        self._endpoints.add_handler(on_change)
        self._pools = OnDemandInformer(informers, POOLS, Unstructured, on_change)
        self._kubelet_configs = OnDemandInformer(informers, KUBELET_CONFIGS, Unstructured, on_kubelet_change)
        self._api_server = OnDemandInformer(informers, API_SERVERS, Unstructured, on_change, name="cluster")
        self._mirrored = OnDemandInformer(
            informers,
            CONFIGMAPS,
            Unstructured,
            on_kubelet_change,
            namespace=HOSTED_NAMESPACE,
            label_selector=HOSTED_LABEL,
        )

    def expect(self, platform: Platform) -> None:
        """Watch what this platform has, and nothing that another one has."""
        self._pools.want(platform == "openshift")
        self._kubelet_configs.want(platform == "openshift")
        self._api_server.want(platform != "kubernetes")
        self._mirrored.want(platform == "hypershift")

    @property
    def has_synced(self) -> bool:
        """Every cache that is watched is complete."""
        always: Iterable[Informer[Any]] = (
            self.operators,
            self.schedulers,
            self.nodes,
            self.definition,
            self._namespace,
            self._endpoints,
        )
        on_demand = (self._pools, self._kubelet_configs, self._api_server, self._mirrored)
        return all(informer.has_synced for informer in always) and all(
            informer.is_known for informer in on_demand if informer.is_wanted
        )

    # -- what they show -----------------------------------------------------------------------------------------------

    @property
    def namespace(self) -> ObjectMeta | None:
        """The metadata of the exporters' namespace; None: there is none."""
        found = self._namespace.store.get(ObjectKey("", self._settings.numa_home))
        return found.metadata if found is not None else None

    @property
    def api_server_ports(self) -> tuple[int, ...]:
        """The ports of the endpoints of the Service ``kubernetes``; the usual ones while they are unknown."""
        found = self._endpoints.store.get(API_SERVICE)
        ports = sorted({port.port for port in (found.ports or () if found is not None else ()) if port.port})
        return tuple(ports) or USUAL_API_PORTS

    @property
    def pools(self) -> tuple[Mapping[str, Any], ...]:
        return _documents(self._pools.values())

    @property
    def kubelet_configs(self) -> tuple[Mapping[str, Any], ...]:
        return _documents(self._kubelet_configs.values())

    @property
    def mirrored(self) -> tuple[Unstructured, ...]:
        """ConfigMaps with a kubelet configuration of a node pool (HyperShift)."""
        mirrored = (each for each in self._mirrored.values() if NODE_POOL_LABEL in (each.metadata.labels or {}))
        return tuple(sorted(mirrored, key=lambda item: item.metadata.name))

    @property
    def tls_profile(self) -> Mapping[str, Any] | None:
        found = self._api_server.get(ObjectKey("", "cluster"))
        profile: Mapping[str, Any] | None = ((found.document.get("spec") or {}) if found is not None else {}).get(
            "tlsSecurityProfile"
        )
        return profile

    def _node_changed(self, change: ObjectChange[PartialObjectMetadata]) -> None:
        old, new = change.old, change.new
        if old is not None and new is not None and old.metadata.labels == new.metadata.labels:
            return
        self.node_arrivals += 1
        self._changed()


def _documents(objects: Iterable[Unstructured]) -> tuple[Mapping[str, Any], ...]:
    return tuple(item.document for item in sorted(objects, key=lambda item: item.metadata.name))


class Platforms:
    """Finds the platform on which the operator runs. It asks until there is an answer, and never guesses.

    It remembers only what no later answer can change: that a cluster is OpenShift's.
    """

    def __init__(self, client: Client, settings: OperatorSettings) -> None:
        self._client = client
        self._given = settings.platform
        self._known: Platform | None = None

    async def find(self, *, openshift: bool) -> Platform:
        """``openshift``: the API group of its configuration is served. Raises ``KubernetesError``: then ask again."""
        if self._given != "auto":
            return self._given
        if not openshift:
            return "kubernetes"
        if self._known is None and (found := await self._look()) is not None:
            self._known = found
            log.info("platform found", platform=found)
        return self._known or "kubernetes"

    async def _look(self) -> Platform | None:
        """None: the group is served, and nothing in it says that this is OpenShift. Others serve a part of it, too."""
        version = await self._read(CLUSTER_VERSIONS, "version")
        if version is None:
            return None
        infrastructure = await self._read(INFRASTRUCTURES, "cluster")
        return platform_of("auto", cluster_version=version, infrastructure=infrastructure)

    async def _read(self, resource: Resource, name: str) -> Mapping[str, Any] | None:
        try:
            return await self._client.get(resource, name)
        except NotFound:
            return None


def optional_kinds(platform: Platform, served: Collection[Resource]) -> frozenset[Resource]:
    """The optional kinds of which exporters have objects. ``served``: those of cert-manager and Prometheus."""
    openshift = {"openshift": (CONSTRAINTS, MACHINE_CONFIGS), "hypershift": (CONSTRAINTS,), "kubernetes": ()}
    return frozenset((*served, *openshift[platform]))


# -- polled ------------------------------------------------------------------------------------------------------------


class Topologies(msgspec.Struct, frozen=True):
    """The NodeResourceTopologies when they were last read."""

    labelled: tuple[ObjectMeta, ...] = ()
    """Metadata of the objects with our label."""
    findings: Mapping[str, tuple[str, ...]] = {}
    """What does not suit NUMA placement, by node."""


class TopologyPoller:
    """Reads the NodeResourceTopologies of the cluster now and then."""

    def __init__(self, client: Client, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._looked_at: float | None = None
        self.found = Topologies()

    def is_due(self, *, expecting: bool) -> bool:
        """``expecting``: nodes are without an object that they should have, or have one that they should not."""
        if self._looked_at is None:
            return True
        return self._clock.monotonic() - self._looked_at >= (EXPECTING_INTERVAL if expecting else POLL_INTERVAL)

    def next_look(self, *, expecting: bool) -> float:
        """Seconds until it is due."""
        since = self._clock.monotonic() - (self._looked_at if self._looked_at is not None else -POLL_INTERVAL)
        return max(1.0, (EXPECTING_INTERVAL if expecting else POLL_INTERVAL) - since)

    async def look(self) -> Topologies:
        """Read all objects. Raises ``KubernetesError``; where the kind is not served there are none."""
        began = self._clock.monotonic()
        labelled: list[ObjectMeta] = []
        found: dict[str, tuple[str, ...]] = {}
        try:
            async for page in _pages(self._client, TOPOLOGIES, NodeResourceTopology, TOPOLOGY_PAGE):
                labelled += [_slim(topology.metadata) for topology in page if _is_labelled(topology.metadata)]
                found |= {topology.metadata.name: findings(topology) for topology in page}
        except NotFound:
            labelled, found = [], {}
        self.found, self._looked_at = Topologies(tuple(labelled), found), began
        return self.found

    def forget(self, name: str) -> None:
        """An object was deleted."""
        kept = tuple(topology for topology in self.found.labelled if topology.name != name)
        self.found = Topologies(
            kept, {node: findings for node, findings in self.found.findings.items() if node != name}
        )


class NodePoller:
    """Reads the nodes now and then, as far as they matter to the scheduler."""

    def __init__(self, client: Client, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._looked_at: float | None = None
        self._asked: tuple[int, tuple[Toleration, ...]] | None = None
        self._found = NodeCounts()

    async def look(self, changes: int, tolerations: Sequence[Toleration] = ()) -> NodeCounts:
        """``changes``: how often nodes have come and gone. ``tolerations``: those of all pods of polyarch. Read the
        nodes again when either is another, or after ten minutes. Raises ``KubernetesError``."""
        now, asked = self._clock.monotonic(), (changes, tuple(tolerations))
        if self._looked_at is None or asked != self._asked or now - self._looked_at >= POLL_INTERVAL:
            found = NodeCounts()
            async for page in _pages(self._client, NODES, SchedulableNode, NODE_PAGE):
                found = found.plus(NodeCounts.of(page, tolerations))
            self._found, self._asked, self._looked_at = found, asked, now
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
        if containers and all(container.ready for container in containers):
            return self._closed_gate()
        reasons = (
            container.state.waiting.reason
            for container in containers
            if container.state is not None and container.state.waiting
        )
        return next(reasons, "") or self.status.phase or "Pending"

    def _closed_gate(self) -> str:
        """Why it is not ready although its containers are: it cannot read its node, or cannot publish."""
        told = {condition.type: condition for condition in self.status.conditions or ()}
        for gate in names.READINESS_GATES:
            found = told.get(gate, PodCondition())
            if found.status != "True":
                return found.reason or f"{gate} is not told"
        return ""


async def exporter_pods(client: Client, namespace: str) -> list[ExporterPod]:
    """The pods of all exporters, by a live list. Raises ``KubernetesError``."""
    selector = ",".join(f"{name}={value}" for name, value in names.EXPORTER_POD_LABELS.items())
    listed = await client.list(PODS, type=ExporterPod, namespace=namespace, label_selector=selector)
    return list(listed.items)


async def _pages(client: Client, resource: Resource, kind: type[T], limit: int) -> AsyncIterator[list[T]]:
    """The objects page by page. Raises ``Gone`` if the list expires in between: the next look begins again."""
    token = ""
    while True:
        page = await client.list_page(resource, ListOptions(), type=kind, continue_token=token, limit=limit)
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


# -- status ------------------------------------------------------------------------------------------------------------


class NumaMetrics:
    """Metrics of the controllers of NUMA. How long reconciles take and how they end every controller counts itself."""

    def __init__(self, metrics: Metrics) -> None:
        self.conditions = ConditionMetrics(metrics)
        self._nodes = metrics.gauge(
            "polyarch_numa_operator_group_nodes",
            "Nodes of each NUMA group, and those of them whose exporter is ready",
            ("group", "state"),
        )
        self._groups: frozenset[str] = frozenset()

    def nodes(self, groups: Mapping[str, tuple[int, int]]) -> None:
        """How many nodes each group should have, and how many are ready. All other groups are deleted."""
        for gone in self._groups - groups.keys():
            for state in GROUP_STATES:
                self._nodes.remove(gone, state)
        for group, numbers in groups.items():
            for state, number in zip(GROUP_STATES, numbers, strict=True):
                self._nodes.labels(group, state).set(number)
        self._groups = frozenset(groups)


class NumaStatusWriter:
    """Writes status, events and metrics of one kind of custom resource."""

    def __init__(
        self,
        client: Client,
        resource: Resource,
        cache: Informer[Unstructured],
        *,
        recorder: Recorder,
        metrics: NumaMetrics,
        clock: Clock,
    ) -> None:
        self._client = client
        self._resource = resource
        self._cache = cache
        self._recorder = recorder
        self._metrics = metrics
        self._clock = clock
        self._posted: dict[str, tuple[PlannedEvent, ...]] = {}

    async def write(
        self,
        live: Unstructured,
        status: Mapping[str, Any],
        conditions: Sequence[Condition],
        events: Iterable[PlannedEvent] = (),
    ) -> bool:
        """Write what differs. False: the object has changed meanwhile, reconcile again."""
        self._metrics.conditions.show(self._resource.kind, conditions)
        self._post_new(live, tuple(events))
        known = live.status.get("conditions")
        listed = merged(conditions, known, generation=live.metadata.generation, now=self._clock.now())
        change = difference(live.status, {**status, "conditions": listed})
        if not change:
            return True
        seen = {"resourceVersion": live.metadata.resource_version, "uid": live.metadata.uid}
        patch = MergePatch({"metadata": seen, "status": change})
        try:
            written: PartialObjectMetadata = await self._client.patch(
                self._resource, live.metadata.name, patch, subresource="status"
            )
        except NotFound:
            return True
        except Conflict:
            return False
        self._cache.writes.note_write(live.metadata.key, written.metadata.resource_version)
        if (event := transition(known or (), conditions)) is not None:
            self._post(live, event)
        return True

    def forget(self, name: str) -> None:
        """The object is deleted."""
        self._metrics.conditions.show(self._resource.kind, ())
        self._posted.pop(name, None)

    def _post_new(self, live: Unstructured, events: tuple[PlannedEvent, ...]) -> None:
        """Post an Event as long as something stays true, not one for each reconcile."""
        before = self._posted.get(live.metadata.name, ())
        for event in events:
            if event not in before:
                self._post(live, event)
        self._posted[live.metadata.name] = events[:MAX_REMEMBERED]

    def _post(self, live: Unstructured, event: PlannedEvent) -> None:
        regarding = Regarding.of(self._resource, live.metadata)
        self._recorder.event(regarding, type=event.type, reason=event.reason, note=event.message, action=ACTION)


def transition(before: Iterable[Mapping[str, Any]], after: Iterable[Condition]) -> PlannedEvent | None:
    """The Event of a change from one of the three states to another, or to another reason for the same one."""
    old = next(
        (
            (condition["type"], condition.get("reason"))
            for condition in before
            if condition["type"] in STATES and condition["status"] == "True"
        ),
        None,
    )
    new = next((condition for condition in after if condition.type in STATES and condition.status == "True"), None)
    if new is None or old == (new.type, new.reason):
        return None
    reason = new.type if new.type == "Available" else new.reason
    return PlannedEvent("Warning" if new.type == "Degraded" else "Normal", reason, new.message or new.type)


def difference(found: Mapping[str, Any], wanted: Mapping[str, Any]) -> dict[str, Any]:
    """The merge patch from one status to the other, field by field; empty if they are the same.

    A map that differs is replaced as a whole: what it had and is not wanted any more is removed by null.
    """
    change: dict[str, Any] = {}
    for name in (*wanted, *(name for name in found if name not in wanted)):
        old, new = found.get(name), wanted.get(name)
        if old == new:
            continue
        both_maps = isinstance(old, Mapping) and isinstance(new, Mapping)
        change[name] = difference(old, new) if both_maps else new  # type: ignore[arg-type]  # both are maps then
    return change


def is_late(metadata: ObjectMeta, clock: Clock) -> bool:
    """The object has been terminating for so long that it is let go whatever is left."""
    return seconds_since(metadata.deletion_timestamp, clock) >= UNINSTALL_TIMEOUT
