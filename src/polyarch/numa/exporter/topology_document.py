"""The NodeResourceTopology that a node should have.

Equal facts give an equal document, whose serialised bytes are equal, too: everything is sorted here, quantities are
decimal integers. What tells about the write itself, its trigger and time, is added by ``difference.stamped``. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from polyarch.durations import go_duration
from polyarch.kube.resources import NODES
from polyarch.numa import names
from polyarch.numa.api.topology import TOPOLOGIES, NodeResourceTopology, Zone, zone_name
from polyarch.numa.exporter.zones import CPU, NodeZones, ResourceAmounts, ZoneAmounts
from polyarch.numa.facts import KubeletSettings, ScanFacts, ScanSettings, TopologyPolicy, TopologyScope, cpu_list_text
from polyarch.objects import ObjectMeta, OwnerReference

Document = dict[str, Any]

ZONE_TYPE: Final = "Node"

_POLICY_WORDS: Final[Mapping[TopologyPolicy, str]] = {
    "best-effort": "BestEffort",
    "restricted": "Restricted",
    "single-numa-node": "SingleNUMANode",
}
_SCOPE_WORDS: Final[Mapping[TopologyScope, str]] = {"container": "ContainerLevel", "pod": "PodLevel"}


def topology_document(
    facts: ScanFacts, decided: NodeZones, settings: ScanSettings, *, refresh_period: float
) -> Document:
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
    """The one word for policy and scope in ``topologyPolicies``."""
    word = _POLICY_WORDS.get(policy)
    return "None" if word is None else word + _SCOPE_WORDS[scope]


def _metadata(facts: ScanFacts, decided: NodeZones, settings: ScanSettings) -> Document:
    metadata: Document = {"name": decided.node}
    if settings.node_group:
        metadata["labels"] = {names.NODE_GROUP_LABEL: settings.node_group}
    if settings.legacy_fields and decided.fingerprint:
        metadata["annotations"] = {names.LEGACY_FINGERPRINT: decided.fingerprint}
    if settings.add_nrt_owner and facts.node_uid:
        owner = {"apiVersion": NODES.api_version, "kind": NODES.kind, "name": decided.node, "uid": facts.node_uid}
        metadata["ownerReferences"] = [owner]
    return metadata


def _top_attributes(
    facts: ScanFacts, decided: NodeZones, settings: ScanSettings, refresh_period: float
) -> dict[str, str]:
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
    """Attributes of our own that tell how the kubelet places containers."""
    values = {
        names.CPU_MANAGER_POLICY: kubelet.cpu_manager_policy,
        names.CPU_MANAGER_OPTIONS: _options(kubelet.cpu_manager_options),
        names.MEMORY_MANAGER_POLICY: kubelet.memory_manager_policy,
        names.TOPOLOGY_MANAGER_OPTIONS: _options(kubelet.topology_options),
        names.POD_LEVEL_MANAGERS: "true" if kubelet.pod_level_managers else "",
    }
    # Empty are options that are not set, and what is not known where policy and scope came from options of our own.
    return {name: value for name, value in values.items() if value}


def _zone(zone: ZoneAmounts, decided: NodeZones, settings: ScanSettings) -> Document:
    made: Document = {"name": zone_name(zone.cell.id), "type": ZONE_TYPE}
    if zone.cell.costs:
        made["costs"] = [{"name": zone_name(cell), "value": cost} for cell, cost in sorted(zone.cell.costs)]
    if attributes := _attributes(_zone_attributes(zone, decided, settings)):
        made["attributes"] = attributes
    made["resources"] = [_resource(each) for each in sorted(zone.resources, key=lambda each: each.resource)]
    return made


def _zone_attributes(zone: ZoneAmounts, decided: NodeZones, settings: ScanSettings) -> dict[str, str]:
    values: dict[str, str] = {}
    if decided.vectors is not None and zone.cell.id in decided.vectors.by_cell:
        values[names.PLACEMENT_VECTOR] = decided.vectors.by_cell[zone.cell.id]
    if settings.extra_attributes:
        if zone.cell.cpus:
            values[names.ZONE_CPUS] = cpu_list_text(zone.cell.cpus)
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


# -- What a write has to change of the object in the cluster, if anything.


OWN_LABELS: Final = (names.NODE_GROUP_LABEL,)
OWN_ANNOTATIONS: Final = (names.LEGACY_FINGERPRINT,)
"""What is removed when it is no longer wanted. What only tells about a write stays until the next one."""


def topology_patch(wanted: Mapping[str, Any], found: NodeResourceTopology) -> Document | None:
    """The merge patch that makes ``found``, the object in the cluster, what is ``wanted``; None: it is."""
    patch: Document = {}
    if metadata := _metadata_patch(wanted["metadata"], found.metadata):
        patch["metadata"] = metadata
    contents: tuple[tuple[str, Sequence[Any]], ...] = (
        ("topologyPolicies", found.topology_policies or ()),
        ("attributes", [_plain(each) for each in found.attributes or ()]),
        ("zones", [_plain_zone(each) for each in found.zones or ()]),
    )
    for field, present in contents:
        content = wanted.get(field) or []
        if content != list(present):
            # The API requires zones; the other lists are removed when they have nothing in them.
            patch[field] = content if content or field == "zones" else None
    return patch or None


def stamped(body: Mapping[str, Any], annotations: Mapping[str, str]) -> Document:
    """A document or a patch with annotations that tell about this write: trigger, timing, last scan.

    They are added to what is written anyway, so they never are a reason to write.
    """
    if not annotations:
        return dict(body)
    metadata = body.get("metadata") or {}
    return {**body, "metadata": {**metadata, "annotations": {**(metadata.get("annotations") or {}), **annotations}}}


def apply_merge_patch(document: Mapping[str, Any], patch: Mapping[str, Any]) -> Document:
    """The document after a merge patch, as the API server would make it: what a PUT carries instead of the patch."""
    result = dict(document)
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        elif isinstance(value, Mapping):
            inner = result.get(key)
            result[key] = apply_merge_patch(inner if isinstance(inner, Mapping) else {}, value)
        else:
            result[key] = value
    return result


def _metadata_patch(wanted: Mapping[str, Any], found: ObjectMeta) -> Document:
    patch: Document = {}
    if labels := _changed_values(OWN_LABELS, wanted.get("labels") or {}, found.labels or {}):
        patch["labels"] = labels
    if annotations := _changed_values(OWN_ANNOTATIONS, wanted.get("annotations") or {}, found.annotations or {}):
        patch["annotations"] = annotations
    present = found.owner_references or []
    references = _references(wanted.get("ownerReferences") or (), present)
    if references != [_plain(each) for each in present]:
        patch["ownerReferences"] = references
    return patch


def _changed_values(keys: Iterable[str], wanted: Mapping[str, str], found: Mapping[str, str]) -> dict[str, str | None]:
    return {key: wanted.get(key) for key in keys if wanted.get(key) != found.get(key)}


def _references(wanted: Iterable[Document], present: Iterable[OwnerReference]) -> list[Document]:
    """Those of others in their order, ours in place of an older one of ours, which names a Node that is gone.

    Without a wanted one nothing is changed: whether the Node of an older reference lives is not known then.
    """
    references = [_plain(each) for each in present]
    for ours in wanted:
        same = [index for index, each in enumerate(references) if _is_for_same_node(each, ours)]
        if len(same) == 1 and references[same[0]]["uid"] == ours["uid"] and not references[same[0]].get("controller"):
            continue
        at = same[0] if same else len(references)
        before = references[:at]
        after = [each for each in references[at:] if not _is_for_same_node(each, ours)]
        references = [*before, ours, *after]
    return references


def _is_for_same_node(reference: Mapping[str, Any], ours: Mapping[str, Any]) -> bool:
    return reference.get("kind") == NODES.kind and reference.get("name") == ours["name"]


def _plain_zone(zone: Zone) -> Document:
    plain = _plain(zone)
    present = {key: value for key, value in plain.items() if value}
    return {"name": zone.name, "type": zone.type, "resources": [], **present}


def _plain(value: Any) -> Document:
    plain: Document = msgspec.to_builtins(value)
    return plain


# -- What ``--pods-fingerprint-status-file`` says after each scan: the pods behind a fingerprint, for those who


def fingerprint_status(decided: NodeZones, published: str) -> dict[str, Any]:
    """``published``: the fingerprint of the object in the cluster before this scan, empty if it has none."""
    return {
        "fingerprintExpected": published,
        "fingerprintComputed": decided.fingerprint,
        "pods": [{"Namespace": each.namespace, "Name": each.name} for each in decided.pods],
        "nodeName": decided.node,
    }


# -- The zones of a node as rows, for ``numa export``. Drawing the table is the command line's. Pure.


ZONE_TABLE_HEADER: Final = ("ZONE", "RESOURCE", "CAPACITY", "ALLOCATABLE", "USED", "AVAILABLE", "NOTE")
_BYTES: Final = ("Ki", "Mi", "Gi", "Ti")
_IN_BYTES: Final = ("memory", "hugepages-")


def zone_table_rows(decided: NodeZones) -> list[tuple[str, ...]]:
    """One row per zone and resource, in the order of the object; amounts of memory in the largest exact unit."""
    return [_row(zone, each) for zone in decided.zones for each in zone.resources]


def _row(zone: ZoneAmounts, amounts: ResourceAmounts) -> tuple[str, ...]:
    values = (amounts.capacity, amounts.allocatable, amounts.used, amounts.available)
    is_bytes = amounts.resource.startswith(_IN_BYTES)
    written = (in_bytes(each) if is_bytes else str(each) for each in values)
    return (zone_name(zone.cell.id), amounts.resource, *written, _note(zone, amounts))


def in_bytes(amount: int) -> str:
    """``17179869184`` as ``16Gi``, nothing rounded."""
    unit = ""
    for larger in _BYTES:
        if amount == 0 or amount % 1024:
            break
        amount, unit = amount // 1024, larger
    return f"{amount}{unit}"


def _note(zone: ZoneAmounts, amounts: ResourceAmounts) -> str:
    notes = []
    if amounts.hidden:
        hidden = in_bytes(amounts.hidden) if amounts.resource.startswith(_IN_BYTES) else str(amounts.hidden)
        notes.append(f"{hidden} kept for init containers that have ended")
    if zone.memory_group and amounts.resource.startswith(_IN_BYTES):
        notes.append(f"shared by {', '.join(zone_name(each) for each in zone.memory_group)}")
    if amounts.resource == CPU and not zone.cell.cpus:
        notes.append("memory alone")
    return "; ".join(notes)
