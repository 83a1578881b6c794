"""What decisions are made from, and what a decision is: amounts, pods, nodes, options, :class:`FitDecision`.

An amount is a whole number of thousandths (:mod:`polyarch.quantity`), by the name of its resource. Decoding is lenient:
unknown fields are ignored, lists may be null. Nothing that a NodeResourceTopology may hold is an error: what cannot be
read is left out, or counts as nothing. Pure.
"""

import json
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, Literal, NamedTuple

import msgspec

from polyarch.durations import InvalidDuration, parse_duration
from polyarch.numa import names
from polyarch.numa.api.topology import Attribute, NodeResourceTopology, Quantity, Zone, attribute_value, zone_id
from polyarch.numa.facts import PodPattern, TopologyPolicy, TopologyScope
from polyarch.numa.placement_vectors import PlacementVectors
from polyarch.objects import ObjectMeta
from polyarch.quantity import UNIT, InvalidQuantity, thousandths
from polyarch.selectors import InvalidSelector, LabelSelector, Selector

CPU: Final = "cpu"
MEMORY: Final = "memory"
PAGES: Final = "hugepages-"
MIRROR: Final = "kubernetes.io/config.mirror"
"""Annotation of what a kubelet runs from a file."""
_STORAGE: Final = frozenset({"ephemeral-storage", "storage"})

Amounts = Mapping[str, int]
"""Thousandths by resource; a resource that is not there is not listed, which is not the same as 0."""


def is_native(resource: str) -> bool:
    """Kubernetes' own: the rest are devices."""
    return "/" not in resource or "kubernetes.io/" in resource


def is_device(resource: str) -> bool:
    return not is_native(resource)


def is_memory(resource: str) -> bool:
    """Memory, or huge pages of one size."""
    return resource == MEMORY or resource.startswith(PAGES)


def is_affine(resource: str) -> bool:
    """CPUs, memory and huge pages: counted for pods with their own only."""
    return resource == CPU or is_memory(resource)


def is_host_level(resource: str) -> bool:
    """May be on a node without being on a cell of it."""
    return resource in _STORAGE or is_device(resource)


def positive(amounts: Amounts) -> dict[str, int]:
    """Without what asks for nothing."""
    return {name: amount for name, amount in amounts.items() if amount > 0}


# -- pods --------------------------------------------------------------------------------------------------------------


Qos = Literal["Guaranteed", "Burstable", "BestEffort"]
ContainerKind = Literal["init", "sidecar", "app"]
_QOS: Final[Mapping[str, Qos]] = {"Guaranteed": "Guaranteed", "Burstable": "Burstable", "BestEffort": "BestEffort"}
ENDED: Final = frozenset({"Succeeded", "Failed"})


class ResourceLists(msgspec.Struct, frozen=True, gc=False):
    """core/v1 ResourceRequirements."""

    requests: dict[str, Quantity] | None = None
    limits: dict[str, Quantity] | None = None


class PortObject(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """core/v1 ContainerPort: whether it is one of the node."""

    host_port: int | None = None


class ContainerObject(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """core/v1 Container: what it asks for."""

    name: str = ""
    resources: ResourceLists | None = None
    restart_policy: str | None = None
    ports: list[PortObject] | None = None


class VolumeObject(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """core/v1 Volume: whether it is a claim."""

    persistent_volume_claim: dict[str, Any] | None = None
    ephemeral: dict[str, Any] | None = None


class TermObject(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """core/v1 PodAffinityTerm or TopologySpreadConstraint: which pods it is about."""

    label_selector: LabelSelector | None = None
    when_unsatisfiable: str | None = None


class PodTermsObject(msgspec.Struct, frozen=True, gc=False):
    """core/v1 PodAffinity or PodAntiAffinity: what the scheduler must keep."""

    required: list[TermObject] | None = msgspec.field(
        default=None, name="requiredDuringSchedulingIgnoredDuringExecution"
    )


class AffinityObject(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """core/v1 Affinity, as far as it is read here."""

    pod_affinity: PodTermsObject | None = None
    pod_anti_affinity: PodTermsObject | None = None


class SpecObject(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """core/v1 PodSpec, as far as it is read here."""

    node_name: str | None = None
    scheduler_name: str | None = None
    init_containers: list[ContainerObject] | None = None
    containers: list[ContainerObject] | None = None
    overhead: dict[str, Quantity] | None = None
    resources: ResourceLists | None = None
    priority: int | None = None
    preemption_policy: str | None = None
    volumes: list[VolumeObject] | None = None
    resource_claims: list[dict[str, Any]] | None = None
    affinity: AffinityObject | None = None
    topology_spread_constraints: list[TermObject] | None = None


class ConditionObject(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """core/v1 PodCondition."""

    type: str = ""
    status: str = ""
    reason: str | None = None


class ContainerStatusObject(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """core/v1 ContainerStatus: what the container has, and what its kubelet has promised."""

    name: str = ""
    resources: ResourceLists | None = None
    allocated_resources: dict[str, Quantity] | None = None


class StatusObject(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """core/v1 PodStatus, as far as it is read here."""

    conditions: list[ConditionObject] | None = None
    container_statuses: list[ContainerStatusObject] | None = None
    init_container_statuses: list[ContainerStatusObject] | None = None
    resources: ResourceLists | None = None
    allocated_resources: dict[str, Quantity] | None = None

    phase: str | None = None
    qos_class: str | None = None
    start_time: str | None = None
    reason: str | None = None
    nominated_node_name: str | None = None


class PodObject(msgspec.Struct, frozen=True, gc=False):
    """core/v1 Pod."""

    metadata: ObjectMeta = ObjectMeta()
    spec: SpecObject | None = None
    status: StatusObject | None = None


class ContainerFacts(msgspec.Struct, frozen=True, gc=False):
    """One container with what it requests; a request that is missing is that of the limit."""

    name: str
    kind: ContainerKind
    requests: Amounts = {}
    limits: Amounts = {}
    counted: Amounts | None = None
    """What sums over the node count while the container is resized; None: its requests."""


class PodFacts(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """What a pod asks for, and what else decisions read of it."""

    namespace: str = ""
    name: str = ""
    uid: str = ""
    qos: Qos = "BestEffort"
    containers: tuple[ContainerFacts, ...] = ()
    """Init containers and sidecars in their order, then app containers: the order in which the kubelet aligns them."""
    overhead: Amounts = {}
    pod_requests: Amounts | None = None
    """``spec.resources``; None: there are none."""
    counted: Amounts | None = None
    """What sums over the node count of ``spec.resources`` while it is resized; None: what it says."""
    annotations: Mapping[str, str] = {}
    scheduler_name: str = ""
    node_name: str = ""
    resource_version: str = ""
    priority: int = 0
    preempts: bool = True
    """``preemptionPolicy`` is not ``Never``."""
    has_claims: bool = False
    """Of volumes or of devices: binding may take long."""
    phase: str = ""
    started_at: str = ""
    """``status.startTime``: its kubelet has seen it."""
    labels: Mapping[str, str] = {}
    terminating: bool = False
    nominated_node: str = ""
    """``status.nominatedNodeName``."""
    is_static: bool = False
    """A mirror of what its kubelet runs from a file, and makes again."""
    has_host_ports: bool = False
    attracts: tuple[Selector, ...] = ()
    """Of required pod affinity: the pods that it must be beside, in whatever namespace."""
    repels: tuple[Selector, ...] = ()
    """Of required anti-affinity and spread constraints: the pods that count against it, in whatever namespace."""

    @property
    def is_guaranteed(self) -> bool:
        return self.qos == "Guaranteed"

    @property
    def started(self) -> bool:
        return bool(self.started_at)

    @property
    def has_ended(self) -> bool:
        return self.phase in ENDED

    @property
    def full_name(self) -> str:
        return f"{self.namespace}/{self.name}"


def pod_facts(pod: PodObject) -> PodFacts:
    """Of a pod as the API server has it. Raises :class:`polyarch.quantity.InvalidQuantity` with the place."""
    spec, status = pod.spec or SpecObject(), pod.status or StatusObject()
    sizes = _resized(status)
    init = [_container(each, _init_kind(each), sizes) for each in spec.init_containers or ()]
    containers = (*init, *(_container(each, "app", sizes) for each in spec.containers or ()))
    whole = _pair(spec.resources, "spec.resources") if spec.resources is not None else None
    return PodFacts(
        namespace=pod.metadata.namespace,
        name=pod.metadata.name,
        uid=pod.metadata.uid,
        qos=_QOS.get(status.qos_class or "") or quality(containers, whole),
        containers=containers,
        overhead=_parsed(spec.overhead, "spec.overhead"),
        pod_requests=whole[0] if whole is not None else None,
        counted=_counted(whole[0], status.resources, status.allocated_resources, sizes.infeasible) if whole else None,
        annotations=pod.metadata.annotations or {},
        scheduler_name=spec.scheduler_name or "",
        node_name=spec.node_name or "",
        resource_version=pod.metadata.resource_version,
        priority=spec.priority or 0,
        preempts=spec.preemption_policy != "Never",
        has_claims=bool(spec.resource_claims) or any(_is_claim(each) for each in spec.volumes or ()),
        phase=status.phase or "",
        started_at=status.start_time or "",
        labels=pod.metadata.labels or {},
        terminating=pod.metadata.deletion_timestamp is not None,
        nominated_node=status.nominated_node_name or "",
        is_static=MIRROR in (pod.metadata.annotations or {}),
        has_host_ports=any(port.host_port for each in spec.containers or () for port in each.ports or ()),
        attracts=_attracts(spec),
        repels=_repels(spec),
    )


def _attracts(spec: SpecObject) -> tuple[Selector, ...]:
    terms = spec.affinity.pod_affinity if spec.affinity is not None else None
    return _selectors(terms.required or ()) if terms is not None else ()


def _repels(spec: SpecObject) -> tuple[Selector, ...]:
    terms = spec.affinity.pod_anti_affinity if spec.affinity is not None else None
    spread = [each for each in spec.topology_spread_constraints or () if each.when_unsatisfiable != "ScheduleAnyway"]
    return _selectors([*(terms.required or () if terms is not None else ()), *spread])


def _selectors(terms: Iterable[TermObject]) -> tuple[Selector, ...]:
    """One that cannot be read is about all pods, to be safe."""
    found = []
    for each in terms:
        if each.label_selector is not None:
            try:
                found.append(Selector.parse(each.label_selector))
            except InvalidSelector:
                found.append(Selector())
    return tuple(found)


def quality(containers: Sequence[ContainerFacts], whole: tuple[Amounts, Amounts] | None) -> Qos:
    """As Kubernetes computes it; ``whole`` are the requests and limits of the pod, which then decide alone."""
    pairs = [whole] if whole is not None else [(each.requests, each.limits) for each in containers]
    requests, limits = _sum(asked for asked, _ in pairs), _sum(limit for _, limit in pairs)
    if not requests and not limits:
        return "BestEffort"
    limited = all(limit.get(name, 0) > 0 for _, limit in pairs for name in (CPU, MEMORY))
    return "Guaranteed" if limited and requests == limits else "Burstable"


def is_whole(amount: int) -> bool:
    """A whole number of CPUs: others come from the shared pool."""
    return amount % UNIT == 0


def _sum(lists: Iterable[Amounts]) -> dict[str, int]:
    total: dict[str, int] = {}
    for each in lists:
        for name in (CPU, MEMORY):
            if amount := each.get(name, 0):
                total[name] = total.get(name, 0) + amount
    return total


class _ResizeStatus(NamedTuple):
    """Of containers whose resources may be changed in place."""

    infeasible: bool
    of: Mapping[str, ContainerStatusObject]


_NOT_RESIZED: Final = _ResizeStatus(False, {})


def _resized(status: StatusObject) -> _ResizeStatus:
    statuses = (*(status.init_container_statuses or ()), *(status.container_statuses or ()))
    if not statuses and status.resources is None:
        return _NOT_RESIZED
    pending = next((each for each in status.conditions or () if each.type == "PodResizePending"), None)
    return _ResizeStatus(pending is not None and pending.reason == "Infeasible", {each.name: each for each in statuses})


def _counted(
    requests: Amounts, actual: ResourceLists | None, allocated: Mapping[str, Quantity] | None, infeasible: bool
) -> Amounts | None:
    """The most of what is asked for, what is there and what is promised; of what its kubelet can never do nothing
    counts (component-helpers, ``determineEffectiveRequests``). None: the requests."""
    if actual is None:
        return None
    found: dict[str, int] = {} if infeasible else dict(requests)
    for lists in (_parsed(actual.requests, "status"), _parsed(allocated, "status")):
        for name, amount in lists.items():
            found[name] = max(found.get(name, 0), amount)
    return None if found == requests else found


def _container(container: ContainerObject, kind: ContainerKind, sizes: _ResizeStatus = _NOT_RESIZED) -> ContainerFacts:
    requests, limits = _pair(container.resources, f"container {container.name}")
    seen = sizes.of.get(container.name) if kind != "init" else None
    counted = None
    if seen is not None:
        counted = _counted(requests, seen.resources, seen.allocated_resources, sizes.infeasible)
    return ContainerFacts(container.name, kind, requests, limits, counted)


def _init_kind(container: ContainerObject) -> ContainerKind:
    return "sidecar" if container.restart_policy == "Always" else "init"


def _pair(lists: ResourceLists | None, place: str) -> tuple[Amounts, Amounts]:
    found = lists or ResourceLists()
    limits = _parsed(found.limits, f"{place}: limits")
    return {**limits, **_parsed(found.requests, f"{place}: requests")}, limits


def _parsed(quantities: Mapping[str, Quantity] | None, place: str) -> dict[str, int]:
    amounts = {}
    for name, quantity in (quantities or {}).items():
        try:
            amounts[name] = thousandths(quantity, "up")
        except InvalidQuantity as error:
            raise InvalidQuantity(f"{place}: {name}: {error}") from None
    return amounts


def _is_claim(volume: VolumeObject) -> bool:
    return volume.persistent_volume_claim is not None or volume.ephemeral is not None


# -- nodes -------------------------------------------------------------------------------------------------------------


class NodeInfoObject(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """core/v1 NodeSystemInfo: which kubelet it is."""

    kubelet_version: str = ""


class NodeStatusObject(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """core/v1 NodeStatus, as far as it is read here."""

    allocatable: dict[str, Quantity] | None = None
    node_info: NodeInfoObject | None = None

    @property
    def kubelet(self) -> str:
        """Its version."""
        return self.node_info.kubelet_version if self.node_info is not None else ""


HIGHEST_ZONE: Final = 63
MAX_ZONES: Final = 1024
DEFAULT_MAX_ZONES: Final = 8
_TYPE: Final = "Node"
_POLICIES: Final[Mapping[str, TopologyPolicy]] = {
    "none": "none",
    "best-effort": "best-effort",
    "restricted": "restricted",
    "single-numa-node": "single-numa-node",
}
_SCOPES: Final[Mapping[str, TopologyScope]] = {"container": "container", "pod": "pod"}
_NAMED: Final[Mapping[str, tuple[TopologyPolicy, TopologyScope]]] = {
    "SingleNUMANodePodLevel": ("single-numa-node", "pod"),
    "SingleNUMANodeContainerLevel": ("single-numa-node", "container"),
    "RestrictedPodLevel": ("restricted", "pod"),
    "RestrictedContainerLevel": ("restricted", "container"),
    "BestEffortPodLevel": ("best-effort", "pod"),
    "BestEffortContainerLevel": ("best-effort", "container"),
    "Restricted": ("restricted", "container"),
    "BestEffort": ("best-effort", "container"),
}


class ZoneFacts(msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True):
    """One cell. The three amounts have the same resources; availability is never negative."""

    id: int
    capacity: Amounts = {}
    allocatable: Amounts = {}
    available: Amounts = {}
    costs: Mapping[int, int] = {}
    """Distance by id of the other cell."""
    memory_group: tuple[int, ...] = ()
    """Cells whose memory the kubelet gives out together, ascending; empty: not known, or none."""
    socket: int | None = None
    split: int | None = None
    """Free CPUs whose core is reserved in part; None: not said."""


class NodeSettings(msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True):
    """How the kubelet aligns, as far as its object says."""

    policy: TopologyPolicy = "none"
    scope: TopologyScope = "container"
    most_cells: int = DEFAULT_MAX_ZONES
    cpu_manager: str | None = None
    """None: not said, as by other exporters; so are the next ones."""
    cpu_options: Mapping[str, str] = {}
    threads_per_core: int | None = None
    memory_manager: str | None = None
    topology_options: Mapping[str, str] = {}
    pod_level_managers: bool = False
    refresh_period: float | None = None
    """Seconds."""
    pod_exclude: tuple[PodPattern, ...] = ()

    def has_cpu_option(self, name: str) -> bool:
        return is_on(self.cpu_options, name)


def is_on(options: Mapping[str, str], name: str) -> bool:
    """As the kubelet reads it (Go's ``strconv.ParseBool``)."""
    return options.get(name) in _TRUE


_TRUE: Final = frozenset({"1", "t", "T", "true", "TRUE", "True"})


class NodeFacts(msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True):
    """One node. ``cells`` ascending by id."""

    name: str
    has_topology: bool = True
    """False: there is no NodeResourceTopology, which is not the same as one without cells."""
    cells: tuple[ZoneFacts, ...] = ()
    settings: NodeSettings = NodeSettings()
    allocatable: Amounts | None = None
    """The Node's ``status.allocatable``; None: the Node is not known."""
    kubelet: str = ""
    """The Node's ``status.nodeInfo.kubeletVersion``; empty: not known, which counts as the newest."""
    fingerprint: str = ""
    fingerprint_method: str = ""
    vectors: PlacementVectors | None = None
    """On which cell each container sits, if the exporter says so."""
    zones_ignored: int = 0
    resource_version: str = ""
    """Of the NodeResourceTopology."""
    last_scan: str = ""
    """When its exporter scanned last, RFC 3339; empty where it tells nothing but changes."""

    @property
    def may_mix_blocks(self) -> bool:
        """Before 1.32 a kubelet puts memory of several zones beside that of one zone, where its hints were not
        followed."""
        return _minor(self.kubelet) < 32

    @property
    def hints_everywhere(self) -> bool:
        """Before 1.36 a kubelet's sets of cells for devices may have cells without any."""
        return _minor(self.kubelet) < 36


def node_facts(
    name: str,
    topology: NodeResourceTopology | None,
    allocatable: Mapping[str, Quantity] | None,
    kubelet: str = "",
) -> NodeFacts:
    """Of a node's NodeResourceTopology and the Node's ``status.allocatable``; None: there is none."""
    node = node_amounts(allocatable) if allocatable is not None else None
    if topology is None:
        return NodeFacts(name=name, has_topology=False, allocatable=node, kubelet=kubelet)
    cells: dict[int, ZoneFacts] = {}
    for zone in topology.zones or ():
        identity = zone_id(zone.name) if zone.type == _TYPE else None
        if identity is not None and identity <= HIGHEST_ZONE and identity not in cells:
            cells[identity] = _zone(identity, zone)
    method, fingerprint = _fingerprint(topology)
    return NodeFacts(
        name=name,
        cells=tuple(cells[identity] for identity in sorted(cells)),
        settings=node_settings(topology),
        allocatable=node,
        kubelet=kubelet,
        fingerprint=fingerprint,
        fingerprint_method=method,
        vectors=_vectors(topology),
        zones_ignored=len(topology.zones or ()) - len(cells),
        resource_version=topology.metadata.resource_version,
        last_scan=(topology.metadata.annotations or {}).get(names.LAST_SCAN, ""),
    )


def node_settings(topology: NodeResourceTopology) -> NodeSettings:
    """The first entry of ``topologyPolicies``, then attributes one by one; what is not valid is ignored."""
    policy, scope = _NAMED.get(next(iter(topology.topology_policies or ()), ""), ("none", "container"))
    said = topology.attributes or ()
    policy = _POLICIES.get(attribute_value(said, names.POLICY) or "", policy)
    scope = _SCOPES.get(attribute_value(said, names.SCOPE) or "", scope)
    most = _number(attribute_value(said, names.MAX_NUMA_NODES))
    return NodeSettings(
        policy=policy,
        scope=scope,
        most_cells=min(most, MAX_ZONES) if most is not None and most > 1 else DEFAULT_MAX_ZONES,
        cpu_manager=attribute_value(said, names.CPU_MANAGER_POLICY),
        cpu_options=_options(attribute_value(said, names.CPU_MANAGER_OPTIONS)),
        threads_per_core=_number(attribute_value(said, names.THREADS_PER_CORE)) or None,
        memory_manager=attribute_value(said, names.MEMORY_MANAGER_POLICY),
        topology_options=_options(attribute_value(said, names.TOPOLOGY_MANAGER_OPTIONS)),
        pod_level_managers=attribute_value(said, names.POD_LEVEL_MANAGERS) == "true",
        refresh_period=_duration(attribute_value(said, names.REFRESH_PERIOD)),
        pod_exclude=_patterns(attribute_value(said, names.POD_EXCLUDE)),
    )


_MINOR = re.compile(r"[0-9]{1,9}", re.ASCII)


@lru_cache(maxsize=256)
def _minor(version: str) -> int:
    """Of Kubernetes 1."""
    parts = version.removeprefix("v").split(".")
    return int(parts[1]) if len(parts) > 1 and _MINOR.fullmatch(parts[1]) else sys.maxsize


def node_amounts(quantities: Mapping[str, Quantity]) -> dict[str, int]:
    """What a node has: rounded down, nothing where it is no quantity."""
    return {name: _amount(quantity) for name, quantity in quantities.items()}


def _zone(identity: int, zone: Zone) -> ZoneFacts:
    capacity: dict[str, int] = {}
    allocatable: dict[str, int] = {}
    available: dict[str, int] = {}
    for each in zone.resources or ():
        if (name := each.name) not in available:
            capacity[name] = _amount(each.capacity)
            allocatable[name] = _amount(each.allocatable)
            available[name] = _amount(each.available)
    costs: dict[int, int] = {}
    for cost in zone.costs or ():
        other = zone_id(cost.name)
        if other is not None:
            costs.setdefault(other, cost.value)
    group = attribute_value(zone.attributes or (), names.ZONE_MEMORY_GROUP)
    return ZoneFacts(
        id=identity,
        capacity=capacity,
        allocatable=allocatable,
        available=available,
        costs=costs,
        memory_group=_zone_ids(group),
        socket=_number(attribute_value(zone.attributes or (), names.ZONE_SOCKET)),
        split=split * UNIT
        if (split := _number(attribute_value(zone.attributes or (), names.ZONE_SPLIT_CPUS))) is not None
        else None,
    )


@lru_cache(maxsize=1 << 14)  # cells are much alike: of a hundred quantities of a fleet one is new
def _amount(quantity: Quantity) -> int:
    try:
        return max(0, thousandths(quantity, "down"))
    except InvalidQuantity:
        return 0


def _fingerprint(topology: NodeResourceTopology) -> tuple[str, str]:
    """Method and text; an object that has the older annotation alone counts all pods."""
    said: Sequence[Attribute] = topology.attributes or ()
    if (found := attribute_value(said, names.FINGERPRINT)) is not None:
        return attribute_value(said, names.FINGERPRINT_METHOD) or "all", found
    legacy = (topology.metadata.annotations or {}).get(names.LEGACY_FINGERPRINT, "")
    return ("all", legacy) if legacy else ("", "")


def _vectors(topology: NodeResourceTopology) -> PlacementVectors | None:
    metadata = attribute_value(topology.attributes or (), names.PLACEMENT_METADATA)
    if metadata is None:
        return None
    texts: dict[int, str] = {}
    for zone in topology.zones or ():
        identity = zone_id(zone.name)
        text = attribute_value(zone.attributes or (), names.PLACEMENT_VECTOR)
        if identity is not None and text is not None:
            texts.setdefault(identity, text)
    return PlacementVectors(metadata, texts)


def _number(text: str | None) -> int | None:
    # Go reads such a value with strconv.Atoi; nobody has more digits than these.
    return int(text) if text is not None and text.isascii() and text.isdecimal() and len(text) <= 9 else None


def _options(text: str | None) -> dict[str, str]:
    pairs = (part.strip().partition("=") for part in (text or "").split(","))
    return {name: option for name, _, option in pairs if name}


def _duration(text: str | None) -> float | None:
    try:
        return parse_duration(text) if text else None
    except InvalidDuration:
        return None


def _zone_ids(text: str | None) -> tuple[int, ...]:
    numbers = [_number(part.strip()) for part in (text or "").split(",")]
    return tuple(sorted({number for number in numbers if number is not None})) if None not in numbers else ()


def _patterns(text: str | None) -> tuple[PodPattern, ...]:
    try:
        items = json.loads(text) if text else []
    except (ValueError, RecursionError):
        return ()
    return tuple(_described(items))


def _described(items: object) -> Iterable[PodPattern]:
    for each in items if isinstance(items, list) else ():
        if isinstance(each, dict):
            namespace, name = each.get("namespacePattern"), each.get("namePattern")
            if isinstance(namespace, str) and isinstance(name, str):
                yield PodPattern(namespace, name)


# -- the decision ------------------------------------------------------------------------------------------------------


RejectionKind = Literal[
    "", "short", "no-common-cell", "not-on-node", "smt", "no-zones", "policy", "foreign", "no-topology"
]
"""Why a node does not fit; empty where it fits."""

POD: str = "pod"
"""In place of a container's name: the pod as a whole."""

CANNOT_ALIGN: Mapping[str, str] = {
    "init": "cannot align init container",
    "sidecar": "cannot align sidecar container",
    "app": "cannot align container",
    POD: "cannot align pod",
}
NO_TOPOLOGY_DATA = "invalid node topology data"
NOT_GUARANTEED = "node does not guarantee alignment"


class FitDecision(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """``fits`` with cells and score, or ``kind`` and ``message``."""

    node: str
    fits: bool
    kind: RejectionKind = ""
    message: str = ""
    """Without numbers of the node, so that events of many nodes group."""
    container: str = ""
    """The first one that cannot be placed; :data:`POD` for the pod as a whole."""
    resources: tuple[str, ...] = ()
    """Those that rule the node out, sorted."""
    cells: Mapping[str, tuple[int, ...]] = {}
    """By container with demand, or :data:`POD`; ascending. Empty where nothing has to be aligned."""
    taken: Mapping[int, Amounts] = {}
    """What is taken from the free amounts of each cell: what a reservation holds."""
    memory_groups: tuple[tuple[int, ...], ...] = ()
    """Sets of several cells that memory is taken from together: nobody else's memory may lie across their bounds."""
    unseen: Mapping[int, Amounts] = {}
    """The part of ``taken`` that no NodeResourceTopology will show, as long as the pod is there: devices that only its
    ended init containers held."""
    score: int = 0
    """0 – 100."""


# -- options -----------------------------------------------------------------------------------------------------------


Strategy = Literal["LeastAllocated", "MostAllocated", "BalancedAllocation", "LeastNUMANodes"]
Action = Literal["filter", "score", "ignore"]
BestEffortAction = Literal["score", "ignore"]
UnknownNodes = Literal["pass", "reject"]


class ExactOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The defaults are those of the flags."""

    strategy: Strategy = "LeastAllocated"
    weights: Mapping[str, int] = {}
    """By resource; 1 where there is none, or less than 1."""
    restricted: Action = "filter"
    """What becomes of a node with policy ``restricted`` that cannot align the pod."""
    best_effort: BestEffortAction = "score"
    unknown_nodes: UnknownNodes = "pass"
    """What becomes of a node without a NodeResourceTopology if the pod asks for something that could be aligned."""
