"""What NUMA and builds have to say in a report, if a cluster has them (RP-016). Pure."""

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final

from polyarch.builds.api.resources import ImageBuild
from polyarch.numa.api.topology import NodeResourceTopology
from polyarch.numa.scheduling.facts.amounts import CPU, MEMORY
from polyarch.numa.scheduling.facts.nodes import CellFacts, NodeFacts, node_facts
from polyarch.reports.document import PartRow
from polyarch.reports.facts.cluster import WorkloadFact

MOST_NAMES: Final = 5
_SINGLE: Final = "single-numa-node"


def numa_rows(topologies: Iterable[NodeResourceTopology], workloads: Iterable[WorkloadFact]) -> tuple[PartRow, ...]:
    """Nodes by policy, zones that are wholly free, and workloads that fit no zone; nothing without a topology."""
    nodes = [node_facts(each.metadata.name, each, None) for each in topologies]
    if not nodes:
        return ()
    policies = Counter(node.settings.policy for node in nodes)
    free = sorted(
        f"{node.name}/{cell.id}" for node in nodes for cell in node.cells if cell.allocatable and _is_free(cell)
    )
    rows = [
        PartRow("NodesByPolicy", policies[policy], message=f"nodes of policy {policy}") for policy in sorted(policies)
    ]
    rows.append(PartRow("FreeZones", len(free), tuple(free[:MOST_NAMES]), "NUMA zones of which nothing is taken"))
    tight = [node for node in nodes if node.settings.policy == _SINGLE]
    unfit = [each.full_name for each in workloads if each.replicas and tight and not _fits(each, tight)]
    if unfit:
        message = f"ask for more than any zone of a {_SINGLE} node has"
        rows.append(PartRow("FitNoZone", len(unfit), tuple(sorted(unfit)[:MOST_NAMES]), message))
    return tuple(rows)


def build_rows(builds: Iterable[ImageBuild]) -> tuple[PartRow, ...]:
    """ImageBuilds whose published image lacks an architecture that they are for; nothing without an ImageBuild."""
    builds = tuple(builds)
    if not builds:
        return ()
    lacking = sorted(_lacking(builds))
    rows = [PartRow("ImageBuilds", len(builds), message="images that are built in the cluster")]
    if lacking:
        names = tuple(lacking[:MOST_NAMES])
        rows.append(PartRow("LackingArchitectures", len(lacking), names, "their result lacks architectures"))
    return tuple(rows)


def _lacking(builds: Iterable[ImageBuild]) -> Iterator[str]:
    for build in builds:
        built = {each.architecture for each in build.status.images or ()}
        missing = sorted(set(build.status.architectures or ()) - built)
        if missing:
            yield f"{build.metadata.key}: {', '.join(missing)}"


def _is_free(cell: CellFacts) -> bool:
    return all(cell.available.get(name, 0) >= amount for name, amount in cell.allocatable.items())


def _fits(workload: WorkloadFact, nodes: Iterable[NodeFacts]) -> bool:
    asked = {CPU: workload.requests.cpu, MEMORY: workload.requests.memory}
    return any(
        all(cell.allocatable.get(name, amount) >= amount for name, amount in asked.items())
        for node in nodes
        for cell in node.cells
    )
