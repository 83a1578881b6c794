"""What placement, taints, NUMA and builds say in a report, if a cluster has them. Pure."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

from polyarch.builds.api.resources import ImageBuild
from polyarch.numa.api.topology import NodeResourceTopology
from polyarch.numa.fit.facts import CPU, MEMORY, NodeFacts, ZoneFacts, node_facts
from polyarch.placement.decision import Reason
from polyarch.reports.document import FeatureSection, NamedPods, PartRow, PlacementPart
from polyarch.reports.facts import ImageInspections, ReportFacts, WorkloadFact
from polyarch.reports.verdicts import WorkloadAssessment, misplaced
from polyarch.taints.settings import TaintSettings

MAX_NAMES: Final = 5
DAY: Final = timedelta(days=1)


def outcome_of(
    judged: Sequence[WorkloadAssessment], facts: ReportFacts, answers: ImageInspections
) -> PlacementPart | None:
    """None if placement is neither configured nor has ever decided about one of these pods."""
    by_reason: dict[str, list[str]] = {}
    held, unplaced = [], []
    for each in judged:
        for pod in each.workload.pods:
            name = f"{each.workload.namespace}/{pod.name}"
            if pod.reason:
                by_reason.setdefault(pod.reason, []).append(name)
            elif not pod.node and not pod.is_gated and not each.is_excluded and not each.workload.is_daemon_set:
                unplaced.append(name)
            if pod.is_gated:
                held.append(name)
    if facts.cppc is None and not by_reason and not held:
        return None
    notable = (
        ("Held", held, "pods wait for their images behind the scheduling gate"),
        ("Fallback", by_reason.get(Reason.FALLBACK_SET, ()), "placed by the fallback: an image gave no answer"),
        (
            "ReleasedUnconstrained",
            by_reason.get(Reason.RELEASED_UNCONSTRAINED, ()),
            "released without a constraint: an image gave no answer",
        ),
        ("Unplaced", unplaced if facts.cppc is not None else (), "wait for a node, and placement has not seen them"),
        ("Misplaced", [name for name, _ in misplaced(judged, facts, answers)], "are on nodes that cannot run them"),
        ("ExecFormatErrors", _recent(facts), "could not start a program of another architecture in the last day"),
    )
    return PlacementPart(
        reasons=tuple(_named(reason, by_reason[reason]) for reason in sorted(by_reason)),
        notable=tuple(_named(what, names, message) for what, names, message in notable if names),
    )


def _recent(facts: ReportFacts) -> list[str]:
    """The pods of the last day before the facts were read."""
    taken = _time(facts.source.taken_at)
    return [
        each.pod
        for each in facts.exec_format_errors
        if taken is None or (created := _time(each.created)) is None or taken - created <= DAY
    ]


def _time(text: str) -> datetime | None:
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


def _named(what: str, names: Iterable[str], message: str = "") -> NamedPods:
    found = sorted(set(names))
    return NamedPods(what, len(found), tuple(found[:MAX_NAMES]), message)


def taints_part(judged: Iterable[WorkloadAssessment], facts: ReportFacts) -> FeatureSection | None:
    """Pods that wait for a toleration, if taints are configured."""
    if facts.taints is None:
        return None
    key = TaintSettings.of(facts.taints.spec).key
    waiting = sorted(
        f"{each.workload.namespace}/{pod.name}"
        for each in judged
        if any(reason.code == "TaintNotTolerated" and key in reason.value for a in each.answers for reason in a.reasons)
        for pod in each.workload.pods
        if not pod.node
    )
    tainted = sum(any(taint.key == key for taint in node.taints) for node in facts.nodes)
    return FeatureSection(
        (
            PartRow("TaintedNodes", tainted, message=f"nodes that carry {key}"),
            PartRow("WaitingPods", len(waiting), tuple(waiting[:MAX_NAMES]), "wait for a node and lack a toleration"),
        )
    )


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
    rows.append(PartRow("FreeZones", len(free), tuple(free[:MAX_NAMES]), "NUMA zones of which nothing is taken"))
    tight = [node for node in nodes if node.settings.policy == _SINGLE]
    unfit = [each.full_name for each in workloads if each.replicas and tight and not _fits(each, tight)]
    if unfit:
        message = f"ask for more than any zone of a {_SINGLE} node has"
        rows.append(PartRow("FitNoZone", len(unfit), tuple(sorted(unfit)[:MAX_NAMES]), message))
    return tuple(rows)


def _is_free(cell: ZoneFacts) -> bool:
    return all(cell.available.get(name, 0) >= amount for name, amount in cell.allocatable.items())


def _fits(workload: WorkloadFact, nodes: Iterable[NodeFacts]) -> bool:
    asked = {CPU: workload.requests.cpu, MEMORY: workload.requests.memory}
    return any(
        all(cell.allocatable.get(name, amount) >= amount for name, amount in asked.items())
        for node in nodes
        for cell in node.cells
    )


def build_rows(builds: Iterable[ImageBuild]) -> tuple[PartRow, ...]:
    """ImageBuilds whose published image lacks an architecture that they are for; nothing without an ImageBuild."""
    builds = tuple(builds)
    if not builds:
        return ()
    lacking = sorted(_lacking(builds))
    rows = [PartRow("ImageBuilds", len(builds), message="images that are built in the cluster")]
    if lacking:
        names = tuple(lacking[:MAX_NAMES])
        rows.append(PartRow("LackingArchitectures", len(lacking), names, "their result lacks architectures"))
    return tuple(rows)


def _lacking(builds: Iterable[ImageBuild]) -> Iterator[str]:
    for build in builds:
        built = {each.architecture for each in build.status.images or ()}
        missing = sorted(set(build.status.architectures or ()) - built)
        if missing:
            yield f"{build.metadata.key}: {', '.join(missing)}"
