"""The NodeResourceTopology that a node should have (NE-010 – NE-018).

Equal facts give an equal document, whose serialised bytes are equal, too: everything is sorted here, quantities are
decimal integers. What tells about the write itself, its trigger and time, is added by ``difference.stamped``. Pure.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from polyarch.durations import go_duration
from polyarch.kube.resources import NODES
from polyarch.numa import names
from polyarch.numa.api.attributes import zone_name
from polyarch.numa.api.scan_settings import ScanSettings
from polyarch.numa.api.topology import TOPOLOGIES
from polyarch.numa.decide import cpulists
from polyarch.numa.decide.facts import Facts, KubeletSettings, TopologyPolicy, TopologyScope
from polyarch.numa.decide.zones import CellZone, ResourceAmounts, Zones

Document = dict[str, Any]

ZONE_TYPE: Final = "Node"

_POLICY_WORDS: Final[Mapping[TopologyPolicy, str]] = {
    "best-effort": "BestEffort",
    "restricted": "Restricted",
    "single-numa-node": "SingleNUMANode",
}
_SCOPE_WORDS: Final[Mapping[TopologyScope, str]] = {"container": "ContainerLevel", "pod": "PodLevel"}


def document(facts: Facts, decided: Zones, settings: ScanSettings, *, refresh_period: float) -> Document:
    """The whole object. ``refresh_period``: seconds of the timer that scans, 0 without one."""
    made: Document = {
        "apiVersion": TOPOLOGIES.api_version,
        "kind": TOPOLOGIES.kind,
        "metadata": _metadata(facts, decided, settings),
    }
    if settings.legacy_fields:
        made["topologyPolicies"] = [legacy_policy(facts.kubelet.policy, facts.kubelet.scope)]
    made["attributes"] = _attributes(_top_attributes(facts, decided, settings, refresh_period))
    made["zones"] = [_zone(each, decided, settings) for each in decided.zones]
    return made


def legacy_policy(policy: TopologyPolicy, scope: TopologyScope) -> str:
    """The one word for policy and scope in ``topologyPolicies`` (NE-014)."""
    word = _POLICY_WORDS.get(policy)
    return "None" if word is None else word + _SCOPE_WORDS[scope]


def _metadata(facts: Facts, decided: Zones, settings: ScanSettings) -> Document:
    metadata: Document = {"name": decided.node}
    if settings.node_group:
        metadata["labels"] = {names.NODE_GROUP_LABEL: settings.node_group}
    if settings.legacy_fields and decided.fingerprint:
        metadata["annotations"] = {names.LEGACY_FINGERPRINT: decided.fingerprint}
    if settings.add_nrt_owner and facts.node_uid:
        owner = {"apiVersion": NODES.api_version, "kind": NODES.kind, "name": decided.node, "uid": facts.node_uid}
        metadata["ownerReferences"] = [owner]
    return metadata


def _top_attributes(facts: Facts, decided: Zones, settings: ScanSettings, refresh_period: float) -> dict[str, str]:
    kubelet = facts.kubelet
    values: dict[str, str] = {names.POLICY: kubelet.policy, names.SCOPE: kubelet.scope}
    if kubelet.max_numa_nodes is not None:
        values[names.MAX_NUMA_NODES] = str(kubelet.max_numa_nodes)
    if decided.fingerprint:
        values[names.FINGERPRINT] = decided.fingerprint
        values[names.FINGERPRINT_METHOD] = settings.pods_fingerprint_method
    if decided.vectors is not None:
        values[names.PLACEMENT_METADATA] = decided.vectors.metadata
    if settings.extra_attributes:
        values |= _extra(kubelet)
        values[names.THREADS_PER_CORE] = str(facts.machine.threads_per_core)
        values[names.REFRESH_PERIOD] = go_duration(refresh_period)
        if decided.pod_exclude:
            values[names.POD_EXCLUDE] = decided.pod_exclude
    return values


def _extra(kubelet: KubeletSettings) -> dict[str, str]:
    """Attributes of our own that tell how the kubelet places containers (NE-015)."""
    values = {
        names.CPU_MANAGER_POLICY: kubelet.cpu_manager_policy,
        names.CPU_MANAGER_OPTIONS: _options(kubelet.cpu_manager_options),
        names.MEMORY_MANAGER_POLICY: kubelet.memory_manager_policy,
        names.TOPOLOGY_MANAGER_OPTIONS: _options(kubelet.topology_options),
        names.POD_LEVEL_MANAGERS: "true" if kubelet.pod_level_managers else "",
    }
    # Empty are options that are not set, and what is not known where policy and scope came from options of our own.
    return {name: value for name, value in values.items() if value}


def _zone(zone: CellZone, decided: Zones, settings: ScanSettings) -> Document:
    made: Document = {"name": zone_name(zone.cell.id), "type": ZONE_TYPE}
    if zone.cell.costs:
        made["costs"] = [{"name": zone_name(cell), "value": cost} for cell, cost in sorted(zone.cell.costs)]
    if attributes := _attributes(_zone_attributes(zone, decided, settings)):
        made["attributes"] = attributes
    made["resources"] = [_resource(each) for each in sorted(zone.resources, key=lambda each: each.resource)]
    return made


def _zone_attributes(zone: CellZone, decided: Zones, settings: ScanSettings) -> dict[str, str]:
    values: dict[str, str] = {}
    if decided.vectors is not None and zone.cell.id in decided.vectors.by_cell:
        values[names.PLACEMENT_VECTOR] = decided.vectors.by_cell[zone.cell.id]
    if settings.extra_attributes:
        if zone.cell.cpus:
            values[names.ZONE_CPUS] = cpulists.text(zone.cell.cpus)
        if zone.cell.socket is not None:
            values[names.ZONE_SOCKET] = str(zone.cell.socket)
        if zone.memory_group:
            values[names.ZONE_MEMORY_GROUP] = ",".join(map(str, zone.memory_group))
    return values


def _resource(amounts: ResourceAmounts) -> Document:
    return {
        "name": amounts.resource,
        "capacity": str(amounts.capacity),
        "allocatable": str(amounts.allocatable),
        "available": str(amounts.available),
    }


def _attributes(values: Mapping[str, str]) -> list[Document]:
    return [{"name": name, "value": values[name]} for name in sorted(values)]


def _options(options: Iterable[tuple[str, str]]) -> str:
    return ",".join(f"{key}={value}" for key, value in sorted(options))
