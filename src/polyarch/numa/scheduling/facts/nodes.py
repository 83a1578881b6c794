"""Nodes as scheduling by cells sees them: cells with amounts, and the settings of the kubelet (NS-005, NS-010, NS-011).

No content of a NodeResourceTopology is an error: what cannot be read is left out, or counts as nothing. Pure.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Final

import msgspec

from polyarch.durations import InvalidDuration, parse_duration
from polyarch.numa import names
from polyarch.numa.api.attributes import cell_id, value
from polyarch.numa.api.scan_settings import PodPattern
from polyarch.numa.api.topology import Attribute, NodeResourceTopology, Quantity, Zone
from polyarch.numa.decide.facts import TopologyPolicy, TopologyScope
from polyarch.numa.decide.placement_vectors import Vectors
from polyarch.numa.scheduling.facts.amounts import Amounts
from polyarch.quantity import InvalidQuantity, thousandths

HIGHEST_CELL: Final = 63
MOST_CELLS: Final = 1024
USUAL_CELLS: Final = 8
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
}
_NAMED_EXACT: Final[Mapping[str, tuple[TopologyPolicy, TopologyScope]]] = {
    **_NAMED,
    "Restricted": ("restricted", "container"),
    "BestEffort": ("best-effort", "container"),
}


class CellFacts(msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True):
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


class NodeSettings(msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True):
    """How the kubelet aligns, as far as its object says."""

    policy: TopologyPolicy = "none"
    scope: TopologyScope = "container"
    most_cells: int = USUAL_CELLS
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


class NodeFacts(msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True):
    """One node. ``cells`` ascending by id."""

    name: str
    has_topology: bool = True
    """False: there is no NodeResourceTopology, which is not the same as one without cells."""
    cells: tuple[CellFacts, ...] = ()
    settings: NodeSettings = NodeSettings()
    allocatable: Amounts | None = None
    """The Node's ``status.allocatable``; None: the Node is not known."""
    fingerprint: str = ""
    fingerprint_method: str = ""
    vectors: Vectors | None = None
    """On which cell each container sits, if the exporter says so."""
    zones_ignored: int = 0
    resource_version: str = ""
    """Of the NodeResourceTopology."""
    last_scan: str = ""
    """When its exporter scanned last, RFC 3339; empty where it tells nothing but changes."""


def node_facts(
    name: str,
    topology: NodeResourceTopology | None,
    allocatable: Mapping[str, Quantity] | None,
    *,
    exact: bool = True,
) -> NodeFacts:
    """``exact`` False: only what the scheduler plugin reads (NS-010)."""
    node = amounts(allocatable) if allocatable is not None else None
    if topology is None:
        return NodeFacts(name=name, has_topology=False, allocatable=node)
    cells: dict[int, CellFacts] = {}
    for zone in topology.zones or ():
        identity = cell_id(zone.name) if zone.type == _TYPE else None
        if identity is not None and identity <= HIGHEST_CELL and identity not in cells:
            cells[identity] = _cell(identity, zone, exact=exact)
    method, fingerprint = _fingerprint(topology)
    return NodeFacts(
        name=name,
        cells=tuple(cells[identity] for identity in sorted(cells)),
        settings=settings(topology, exact=exact),
        allocatable=node,
        fingerprint=fingerprint,
        fingerprint_method=method,
        vectors=_vectors(topology) if exact else None,
        zones_ignored=len(topology.zones or ()) - len(cells),
        resource_version=topology.metadata.resource_version,
        last_scan=(topology.metadata.annotations or {}).get(names.LAST_SCAN, ""),
    )


def settings(topology: NodeResourceTopology, *, exact: bool = True) -> NodeSettings:
    """The first entry of ``topologyPolicies``, then attributes one by one; what is not valid is ignored."""
    named = _NAMED_EXACT if exact else _NAMED
    policy, scope = named.get(next(iter(topology.topology_policies or ()), ""), ("none", "container"))
    said = topology.attributes or ()
    policy = _POLICIES.get(value(said, names.POLICY) or "", policy)
    scope = _SCOPES.get(value(said, names.SCOPE) or "", scope)
    most = _number(value(said, names.MAX_NUMA_NODES))
    known = NodeSettings(
        policy=policy,
        scope=scope,
        most_cells=min(most, MOST_CELLS) if most is not None and most > 1 else USUAL_CELLS,
    )
    if not exact:
        return known
    return msgspec.structs.replace(
        known,
        cpu_manager=value(said, names.CPU_MANAGER_POLICY),
        cpu_options=_options(value(said, names.CPU_MANAGER_OPTIONS)),
        threads_per_core=_number(value(said, names.THREADS_PER_CORE)) or None,
        memory_manager=value(said, names.MEMORY_MANAGER_POLICY),
        topology_options=_options(value(said, names.TOPOLOGY_MANAGER_OPTIONS)),
        pod_level_managers=value(said, names.POD_LEVEL_MANAGERS) == "true",
        refresh_period=_duration(value(said, names.REFRESH_PERIOD)),
        pod_exclude=_patterns(value(said, names.POD_EXCLUDE)),
    )


def amounts(quantities: Mapping[str, Quantity]) -> dict[str, int]:
    """What a node has: rounded down, nothing where it is no quantity."""
    return {name: _amount(quantity) for name, quantity in quantities.items()}


def _cell(identity: int, zone: Zone, *, exact: bool) -> CellFacts:
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
        other = cell_id(cost.name)
        if other is not None:
            costs.setdefault(other, cost.value)
    group = value(zone.attributes or (), names.ZONE_MEMORY_GROUP) if exact else None
    return CellFacts(
        id=identity,
        capacity=capacity,
        allocatable=allocatable,
        available=available,
        costs=costs,
        memory_group=_cells(group),
        socket=_number(value(zone.attributes or (), names.ZONE_SOCKET)) if exact else None,
    )


@lru_cache(maxsize=1 << 14)  # cells are much alike: of a hundred quantities of a fleet one is new
def _amount(quantity: Quantity) -> int:
    try:
        return max(0, thousandths(quantity, "down"))
    except InvalidQuantity:
        return 0


def _fingerprint(topology: NodeResourceTopology) -> tuple[str, str]:
    """Method and text; an object that has the older annotation alone counts all pods (NS-104)."""
    said: Sequence[Attribute] = topology.attributes or ()
    if (found := value(said, names.FINGERPRINT)) is not None:
        return value(said, names.FINGERPRINT_METHOD) or "all", found
    legacy = (topology.metadata.annotations or {}).get(names.LEGACY_FINGERPRINT, "")
    return ("all", legacy) if legacy else ("", "")


def _vectors(topology: NodeResourceTopology) -> Vectors | None:
    metadata = value(topology.attributes or (), names.PLACEMENT_METADATA)
    if metadata is None:
        return None
    texts: dict[int, str] = {}
    for zone in topology.zones or ():
        identity = cell_id(zone.name)
        text = value(zone.attributes or (), names.PLACEMENT_VECTOR)
        if identity is not None and text is not None:
            texts.setdefault(identity, text)
    return Vectors(metadata, texts)


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


def _cells(text: str | None) -> tuple[int, ...]:
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
