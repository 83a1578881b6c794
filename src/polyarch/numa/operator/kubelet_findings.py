"""What speaks against NUMA placement on a node, from what its exporter published (NO-091). Pure.

For information: such a node publishes its zones all the same, but its kubelet does not keep containers to one of them.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Final

from polyarch.kube.resources import few
from polyarch.numa import names
from polyarch.numa.api.topology import NodeResourceTopology, ZoneResource
from polyarch.objects import Condition

CHECKED: Final = "TopologySettingsChecked"
CPU_MANAGER: Final = "without CPU manager policy static"
MEMORY_MANAGER: Final = "without memory manager policy Static"
NO_RESERVATION: Final = "without reserved CPUs"
TOPOLOGY_POLICY: Final = "with a topology manager policy other than single-numa-node and restricted"
ALIGNING: Final = frozenset(("single-numa-node", "restricted"))


def findings(topology: NodeResourceTopology) -> tuple[str, ...]:
    """Of one node; what its object does not tell is no finding."""
    said = {each.name: each.value for each in topology.attributes or ()}
    found = []
    if said.get(names.CPU_MANAGER_POLICY, "static") != "static":
        found.append(CPU_MANAGER)
    if said.get(names.MEMORY_MANAGER_POLICY, "Static") != "Static":
        found.append(MEMORY_MANAGER)
    cpus = [each for zone in topology.zones or () for each in zone.resources or () if each.name == "cpu"]
    if cpus and not any(_is_reserved(each) for each in cpus):
        found.append(NO_RESERVATION)
    if names.POLICY in said and said[names.POLICY] not in ALIGNING:
        found.append(TOPOLOGY_POLICY)
    return tuple(found)


def checked(nodes: Iterable[str], found: Mapping[str, tuple[str, ...]]) -> Condition:
    """The condition for the nodes of all groups. ``found``: by node that has published."""
    by_finding = defaultdict[str, list[str]](list)
    published = [node for node in sorted(nodes) if node in found]
    for node in published:
        for finding in found[node]:
            by_finding[finding].append(node)
    if not published:
        return Condition(CHECKED, "Unknown", "NothingPublished", "no node of a group has published its zones yet")
    if not by_finding:
        message = f"the kubelets of {len(published)} nodes are set to place containers by NUMA zone"
        return Condition(CHECKED, "True", "AsExpected", message)
    told = [
        f"{len(by_finding[finding])} of {len(published)} nodes {finding}: {few(by_finding[finding])}"
        for finding in (CPU_MANAGER, MEMORY_MANAGER, NO_RESERVATION, TOPOLOGY_POLICY)
        if finding in by_finding
    ]
    return Condition(CHECKED, "False", "SettingsDoNotAlign", "; ".join(told))


def _is_reserved(cpus: ZoneResource) -> bool:
    return str(cpus.capacity) != str(cpus.allocatable)
