"""The NodeResourceTopology that a node should have, the patch that makes the published one so, and tables for people.

Equal facts give an equal document, whose serialised bytes are equal, too: everything is sorted here, and quantities are
decimal integers. Facts about the write itself, its trigger and time, are added by :func:`stamped`. Pure.
"""

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
OWN_LABELS: Final = (names.NODE_GROUP_LABEL,)
OWN_ANNOTATIONS: Final = (names.LEGACY_FINGERPRINT,)
"""Removed when they are no longer wanted. Annotations that only tell about a write stay until the next one."""
ZONE_TABLE_HEADER: Final = ("ZONE", "RESOURCE", "CAPACITY", "ALLOCATABLE", "USED", "AVAILABLE", "NOTE")

_LEGACY_POLICIES: Final[Mapping[TopologyPolicy, str]] = {
    "best-effort": "BestEffort",
    "restricted": "Restricted",
    "single-numa-node": "SingleNUMANode",
}
_LEGACY_SCOPES: Final[Mapping[TopologyScope, str]] = {"container": "ContainerLevel", "pod": "PodLevel"}
_BYTE_UNITS: Final = ("Ki", "Mi", "Gi", "Ti")
_IN_BYTES: Final = ("memory", "hugepages-")


def topology_document(facts: ScanFacts, zones: NodeZones, settings: ScanSettings, *, refresh_period: float) -> Document:
    """The whole object. ``refresh_period``: seconds of the timer that scans, 0 without one."""
    document: Document = {
        "apiVersion": TOPOLOGIES.api_version,
        "kind": TOPOLOGIES.kind,
        "metadata": _metadata(facts, zones, settings),
    }
    if settings.legacy_fields:
        document["topologyPolicies"] = [legacy_policy(facts.kubelet.policy, facts.kubelet.scope)]
    document["attributes"] = _attributes(_node_attributes(facts, zones, settings, refresh_period))
    document["zones"] = [_zone(zone, zones, settings) for zone in zones.zones]
    return document


def legacy_policy(policy: TopologyPolicy, scope: TopologyScope) -> str:
    """The one word for policy and scope in ``topologyPolicies``."""
    word = _LEGACY_POLICIES.get(policy)
    return "None" if word is None else word + _LEGACY_SCOPES[scope]


def with_owner(document: Document, node: str, uid: str) -> Document:
    """The topology with its owner, the Node of this uid; empty: whoever owns it is left as it is."""
    return (
        {**document, "metadata": {**document["metadata"], "ownerReferences": [_owner(node, uid)]}} if uid else document
    )


def _metadata(facts: ScanFacts, zones: NodeZones, settings: ScanSettings) -> Document:
    metadata: Document = {"name": zones.node}
    if settings.node_group:
        metadata["labels"] = {names.NODE_GROUP_LABEL: settings.node_group}
    if settings.legacy_fields and zones.fingerprint:
        metadata["annotations"] = {names.LEGACY_FINGERPRINT: zones.fingerprint}
    if settings.add_nrt_owner and facts.node_uid:
        metadata["ownerReferences"] = [_owner(zones.node, facts.node_uid)]
    return metadata


def _owner(node: str, uid: str) -> Document:
    return {"apiVersion": NODES.api_version, "kind": NODES.kind, "name": node, "uid": uid}


def _node_attributes(
    facts: ScanFacts, zones: NodeZones, settings: ScanSettings, refresh_period: float
) -> dict[str, str]:
    kubelet = facts.kubelet
    values: dict[str, str] = {names.POLICY: kubelet.policy, names.SCOPE: kubelet.scope}
    if kubelet.max_numa_nodes is not None:
        values[names.MAX_NUMA_NODES] = str(kubelet.max_numa_nodes)
    if zones.fingerprint:
        values[names.FINGERPRINT] = zones.fingerprint
        values[names.FINGERPRINT_METHOD] = settings.pods_fingerprint_method
    if zones.vectors is not None:
        values[names.PLACEMENT_METADATA] = zones.vectors.metadata
    if settings.extra_attributes:
        values |= _kubelet_attributes(kubelet)
        values[names.THREADS_PER_CORE] = str(facts.machine.threads_per_core)
        values[names.REFRESH_PERIOD] = go_duration(refresh_period)
        if zones.pod_exclude:
            values[names.POD_EXCLUDE] = zones.pod_exclude
    return values


def _kubelet_attributes(kubelet: KubeletSettings) -> dict[str, str]:
    """Attributes of our own that tell how the kubelet places containers."""
    values = {
        names.CPU_MANAGER_POLICY: kubelet.cpu_manager_policy,
        names.CPU_MANAGER_OPTIONS: _options(kubelet.cpu_manager_options),
        names.MEMORY_MANAGER_POLICY: kubelet.memory_manager_policy,
        names.TOPOLOGY_MANAGER_OPTIONS: _options(kubelet.topology_options),
        names.POD_LEVEL_MANAGERS: "true" if kubelet.pod_level_managers else "",
    }
    # Empty are options that are not set, and values that are unknown as policy and scope came from options of our own.
    return {name: value for name, value in values.items() if value}


def _options(options: Iterable[tuple[str, str]]) -> str:
    return ",".join(f"{key}={value}" for key, value in sorted(options))


def _zone(zone: ZoneAmounts, zones: NodeZones, settings: ScanSettings) -> Document:
    document: Document = {"name": zone_name(zone.host_zone.id), "type": ZONE_TYPE}
    if zone.host_zone.costs:
        document["costs"] = [{"name": zone_name(to), "value": cost} for to, cost in sorted(zone.host_zone.costs)]
    if attributes := _attributes(_zone_attributes(zone, zones, settings)):
        document["attributes"] = attributes
    document["resources"] = [
        {
            "name": amounts.resource,
            "capacity": str(amounts.capacity),
            "allocatable": str(amounts.allocatable),
            "available": str(amounts.available),
        }
        for amounts in sorted(zone.resources, key=lambda amounts: amounts.resource)
    ]
    return document


def _zone_attributes(zone: ZoneAmounts, zones: NodeZones, settings: ScanSettings) -> dict[str, str]:
    values: dict[str, str] = {}
    if zones.vectors is not None and zone.host_zone.id in zones.vectors.by_zone:
        values[names.PLACEMENT_VECTOR] = zones.vectors.by_zone[zone.host_zone.id]
    if settings.extra_attributes:
        if zone.host_zone.cpus:
            values[names.ZONE_CPUS] = cpu_list_text(zone.host_zone.cpus)
        if zone.host_zone.socket is not None:
            values[names.ZONE_SOCKET] = str(zone.host_zone.socket)
        if zone.split_cpus is not None:
            values[names.ZONE_SPLIT_CPUS] = str(zone.split_cpus)
        if zone.memory_group:
            values[names.ZONE_MEMORY_GROUP] = ",".join(map(str, zone.memory_group))
    return values


def _attributes(values: Mapping[str, str]) -> list[Document]:
    return [{"name": name, "value": values[name]} for name in sorted(values)]


# -- the patch ---------------------------------------------------------------------------------------------------------

# What a write has to change is a JSON merge patch (RFC 7386) of the top-level fields that differ. Such a patch replaces
# a list as a whole, so a list with entries of others, ``ownerReferences``, is written with them in it. Null removes
# what was ours and is no longer wanted. Labels, annotations and owner references of others are never in a patch.
#
# Values are compared as written. So another producer's spelling of a quantity (``12``, ``16Gi``) is rewritten once, and
# comes back from the API server as we wrote it. An empty list, null and an absent one are the same.


def topology_patch(wanted: Mapping[str, Any], published: NodeResourceTopology) -> Document | None:
    """The merge patch that makes ``published``, the object in the cluster, what is ``wanted``; None: it is."""
    patch: Document = {}
    if metadata := _metadata_patch(wanted["metadata"], published.metadata):
        patch["metadata"] = metadata
    contents: tuple[tuple[str, Sequence[Any]], ...] = (
        ("topologyPolicies", published.topology_policies or ()),
        ("attributes", [_plain(attribute) for attribute in published.attributes or ()]),
        ("zones", [_plain_zone(zone) for zone in published.zones or ()]),
    )
    for field, present in contents:
        content = wanted.get(field) or []
        if content != list(present):
            # The API requires zones; the other lists are removed when they are empty.
            patch[field] = content if content or field == "zones" else None
    return patch or None


def stamped(body: Mapping[str, Any], annotations: Mapping[str, str]) -> Document:
    """A document or a patch with annotations about this write: trigger, timing, last scan.

    They are added to what is written anyway, so they never are a reason to write.
    """
    if not annotations:
        return dict(body)
    metadata = body.get("metadata") or {}
    return {**body, "metadata": {**metadata, "annotations": {**(metadata.get("annotations") or {}), **annotations}}}


def _metadata_patch(wanted: Mapping[str, Any], published: ObjectMeta) -> Document:
    patch: Document = {}
    if labels := _changed_values(OWN_LABELS, wanted.get("labels") or {}, published.labels or {}):
        patch["labels"] = labels
    if annotations := _changed_values(OWN_ANNOTATIONS, wanted.get("annotations") or {}, published.annotations or {}):
        patch["annotations"] = annotations
    present = published.owner_references or []
    references = _references(wanted.get("ownerReferences") or (), present)
    if references != [_plain(reference) for reference in present]:
        patch["ownerReferences"] = references
    return patch


def _changed_values(
    keys: Iterable[str], wanted: Mapping[str, str], published: Mapping[str, str]
) -> dict[str, str | None]:
    return {key: wanted.get(key) for key in keys if wanted.get(key) != published.get(key)}


def _references(wanted: Iterable[Document], present: Iterable[OwnerReference]) -> list[Document]:
    """Those of others in their order, ours in place of an older one of ours, which names a Node that was deleted.

    Without a wanted one nothing is changed: whether the Node of an older reference exists is not known then.
    """
    references = [_plain(reference) for reference in present]
    for ours in wanted:
        same = [index for index, reference in enumerate(references) if _is_for_same_node(reference, ours)]
        if len(same) == 1 and references[same[0]]["uid"] == ours["uid"] and not references[same[0]].get("controller"):
            continue
        at = same[0] if same else len(references)
        before = references[:at]
        after = [reference for reference in references[at:] if not _is_for_same_node(reference, ours)]
        references = [*before, ours, *after]
    return references


def _is_for_same_node(reference: Mapping[str, Any], ours: Mapping[str, Any]) -> bool:
    return reference.get("kind") == NODES.kind and reference.get("name") == ours["name"]


def _plain_zone(zone: Zone) -> Document:
    present = {key: value for key, value in _plain(zone).items() if value}
    return {"name": zone.name, "type": zone.type, "resources": [], **present}


def _plain(value: Any) -> Document:
    plain: Document = msgspec.to_builtins(value)
    return plain


# -- for people --------------------------------------------------------------------------------------------------------


def fingerprint_status(zones: NodeZones, published: str) -> Document:
    """The content of ``--pods-fingerprint-status-file``, for whoever finds that two fingerprints differ. Other tools
    read these fields.

    ``published``: the fingerprint of the object in the cluster before this scan, empty if it has none.
    """
    return {
        "fingerprintExpected": published,
        "fingerprintComputed": zones.fingerprint,
        "pods": [{"Namespace": pod.namespace, "Name": pod.name} for pod in zones.pods],
        "nodeName": zones.node,
    }


def zone_table_rows(zones: NodeZones) -> list[tuple[str, ...]]:
    """One row per zone and resource, in the order of the object; amounts of memory in the largest exact unit."""
    return [_row(zone, amounts) for zone in zones.zones for amounts in zone.resources]


def _row(zone: ZoneAmounts, amounts: ResourceAmounts) -> tuple[str, ...]:
    values = (amounts.capacity, amounts.allocatable, amounts.used, amounts.available)
    written = (_amount_text(amounts.resource, value) for value in values)
    return (zone_name(zone.host_zone.id), amounts.resource, *written, _note(zone, amounts))


def _note(zone: ZoneAmounts, amounts: ResourceAmounts) -> str:
    notes = []
    if amounts.hidden:
        notes.append(f"{_amount_text(amounts.resource, amounts.hidden)} kept for init containers that have ended")
    if zone.memory_group and amounts.resource.startswith(_IN_BYTES):
        notes.append(f"shared by {', '.join(zone_name(member) for member in zone.memory_group)}")
    if amounts.resource == CPU and not zone.host_zone.cpus:
        notes.append("memory alone")
    return "; ".join(notes)


def _amount_text(resource: str, amount: int) -> str:
    return in_bytes(amount) if resource.startswith(_IN_BYTES) else str(amount)


def in_bytes(amount: int) -> str:
    """``17179869184`` as ``16Gi``, nothing rounded."""
    unit = ""
    for larger in _BYTE_UNITS:
        if amount == 0 or amount % 1024:
            break
        amount, unit = amount // 1024, larger
    return f"{amount}{unit}"
