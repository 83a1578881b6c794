"""The report of facts and answers that every command, snapshot and role makes, and its comparison with a former one.

Equal facts, answers and wishes give an equal report, byte for byte: nothing here reads a clock, and
every list is sorted by what it holds. Pure.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from polyarch.images.pod_images import cures, unread_images
from polyarch.platforms import NodePlatform
from polyarch.reports.document import (
    Blocker,
    Change,
    Comparison,
    FeatureSection,
    NodeKind,
    Report,
    ShareChange,
    Verdict,
    WorkloadRow,
)
from polyarch.reports.facts import ImageInspections, ReportFacts
from polyarch.reports.features import MAX_NAMES, outcome_of, taints_part
from polyarch.reports.sums import (
    ASSUMED_CPU,
    Prices,
    Suggestions,
    basis_of,
    blockers_of,
    cores,
    groups_of,
    load_of,
    namespace_of,
    pool_of,
    sums_of,
    team_of,
    total,
)
from polyarch.reports.verdicts import WorkloadAssessment, WorkloadAssessor, drift_of, node_drift

TEAM_LABEL: Final = "team"
DEFAULT_TARGET: Final = NodePlatform("linux", "arm64")


class NoTarget(ValueError):  # noqa: N818 - what is the case
    """There is no node, and no target was given."""


class ReportOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked besides the facts."""

    targets: tuple[NodePlatform, ...] = ()
    """Empty: every platform of the nodes, and arm64."""
    prices: Prices = {}
    pool_label: str = ""
    team_label: str = TEAM_LABEL
    suggestions: Suggestions = {}
    node_drift: bool = False


def targets_of(facts: ReportFacts, given: Sequence[NodePlatform] = ()) -> tuple[NodePlatform, ...]:
    """The platforms that a report asks about. Raises :class:`NoTarget`."""
    if given:
        return tuple(dict.fromkeys(given))
    found = {node.platform for node in facts.nodes if node.architecture}
    if not found and "nodes" in facts.unread:
        return (DEFAULT_TARGET,)  # the report names what it may not list, and says what it can
    if not found:
        raise NoTarget("there is no node that names its architecture; say which platform to ask about: --target arm64")
    return tuple(sorted({*found, DEFAULT_TARGET}, key=lambda each: (each.os != "linux", each)))


def make_report(
    facts: ReportFacts, answers: ImageInspections, wishes: ReportOptions, *, complete: bool = True
) -> Report:
    """``complete``: all images were asked for. Raises :class:`NoTarget`."""
    targets = targets_of(facts, wishes.targets)
    judge = WorkloadAssessor(facts, answers, targets)
    everything = judge.judged()
    judged = [each for each in everything if not each.is_excluded]
    excluded = [each for each in everything if each.is_excluded]
    basis = basis_of(judged)
    judged.sort(key=lambda each: (-load_of(each.workload).by(basis), each.workload.full_name))
    blockers: list[Blocker] = []
    sums = []
    for number, target in enumerate(targets):
        own = blockers_of(judged, target, number, basis=basis, suggestions=wishes.suggestions)
        blockers += own
        sums.append(
            sums_of(
                judged,
                target,
                number,
                excluded=excluded,
                nodes=judge.ground.nodes(target),
                basis=basis,
                blockers=own,
                prices=wishes.prices,
            )
        )
    teams = groups_of(judged, team_of(wishes.team_label), targets, basis)
    pools = groups_of(judged, pool_of(facts, wishes.pool_label), targets, basis) if wishes.pool_label else ()
    has_teams = any(each.name for each in teams)
    return Report(
        complete=complete,
        source=facts.source,
        targets=tuple(each.short_name for each in targets),
        basis=basis,
        weight=total(judged).document,
        sums=tuple(sums),
        nodes=_nodes(facts, everything),
        workloads=tuple(_row(each, answers, wishes.team_label) for each in judged),
        blockers=tuple(blockers),
        namespaces=groups_of(judged, namespace_of, targets, basis),
        pool_label=wishes.pool_label,
        pools=pools,
        team_label=wishes.team_label if has_teams else "",
        teams=teams if has_teams else (),
        placement=outcome_of(everything, facts, answers),
        numa=FeatureSection(facts.numa) if facts.numa else None,
        taints=taints_part(judged, facts),
        builds=FeatureSection(facts.builds) if facts.builds else None,
        node_drift=node_drift(judged, facts) if wishes.node_drift else None,
        notes=(*_notes(facts, judge, basis, judged), *_unread(judged)),
    )


def _row(judged: WorkloadAssessment, answers: ImageInspections, team_label: str) -> WorkloadRow:
    workload = judged.workload
    return WorkloadRow(
        namespace=workload.namespace,
        kind=workload.kind,
        name=workload.name,
        team=(workload.template.metadata.labels or {}).get(team_label, ""),
        weight=load_of(workload).document,
        images=tuple(each.text for each in judged.images),
        runs_on=tuple(each.short_name for each in judged.runs_on),
        answers=judged.answers,
        drift=drift_of(workload, answers),
        problems=workload.problems,
        source=workload.source,
    )


def _nodes(facts: ReportFacts, judged: Iterable[WorkloadAssessment]) -> tuple[NodeKind, ...]:
    """Also pods of workloads that are excluded take room on nodes."""
    platforms = {node.name: node.platform for node in facts.nodes}
    pods: dict[NodePlatform, int] = {}
    asked: dict[NodePlatform, int] = {}
    for each in judged:
        for pod in each.workload.pods:
            platform = platforms.get(pod.node)
            if platform is not None:
                pods[platform] = pods.get(platform, 0) + 1
                asked[platform] = asked.get(platform, 0) + each.workload.requests.cpu
    return tuple(
        NodeKind(
            platform.short_name if platform.architecture else "unknown",
            sum(each.platform == platform for each in facts.nodes),
            cores(sum(each.cores for each in facts.nodes if each.platform == platform)),
            cores(asked.get(platform, 0)),
            pods.get(platform, 0),
        )
        for platform in sorted(set(platforms.values()))
    )


def _notes(
    facts: ReportFacts, judge: WorkloadAssessor, basis: str, judged: Sequence[WorkloadAssessment]
) -> Iterator[str]:
    for each in facts.unread:
        yield f"not allowed to list {each}: what it would have told is left out"
    for problem in judge.table.problems:
        yield f"PlacementPolicy cluster: {problem}"
    if not judged:
        yield "there is no workload, or each is excluded: there is nothing to say about targets"
    elif basis == "replicas":
        yield "no workload requests CPU: shares are of replicas"
    elif number := sum(bool(load_of(each.workload).without_cpu) for each in judged):
        yield (
            f"{number} workload{'s request' if number > 1 else ' requests'} no CPU: in shares each replica counts as "
            f"{cores(ASSUMED_CPU):g} CPU, as for the scheduler"
        )
    unknown = sorted(node.name for node in facts.nodes if not node.architecture)
    if unknown:
        yield f"{len(unknown)} nodes name no architecture and count for no target: {', '.join(unknown[:MAX_NAMES])}"


def _unread(judged: Iterable[WorkloadAssessment]) -> Iterator[str]:
    """How many images could not be read, by how; polyarch in the cluster may read more, or less."""
    unread = unread_images(image for each in judged for image in each.images)
    if not unread:
        return
    counts = ", ".join(f"{len(images)} {how}" for how, images in unread.items())
    number = sum(map(len, unread.values()))
    said = f"{number} {'image' if number == 1 else 'images'} could not be read: {counts}"
    advice = cures(unread)
    yield f"{said}; {advice}" if advice else said


# -- the comparison with a former report: what became ready, what got worse, what came and went ------------------------

_ORDER = tuple(Verdict)


class _Seen(NamedTuple):
    verdict: Verdict
    cores: float


def compare(report: Report, former: Report) -> Comparison:
    """Only for targets that both ask about; workloads are the same by namespace, kind and name."""
    old, new = _answers(former), _answers(report)
    both = [target for target in report.targets if target in former.targets]
    pairs = [(target, name) for target, name in sorted({*old, *new}) if target in both]
    changed = [
        _change(pair, old.get(pair), new.get(pair)) for pair in pairs if _verdict(old, pair) != _verdict(new, pair)
    ]
    stayed = [each for each in changed if each.before and each.after]
    return Comparison(
        former=former.source.taken_at,
        shares=tuple(ShareChange(target, _share(former, target), _share(report, target)) for target in both),
        better=_sorted(each for each in stayed if _rank(each.after) < _rank(each.before)),
        worse=_sorted(each for each in stayed if _rank(each.after) > _rank(each.before)),
        appeared=_sorted(each for each in changed if not each.before),
        disappeared=_sorted(each for each in changed if not each.after),
    )


def _answers(report: Report) -> dict[tuple[str, str], _Seen]:
    return {
        (answer.target, full_name(row)): _Seen(answer.verdict, row.weight.cores)
        for row in report.workloads
        for answer in row.answers
    }


def full_name(row: WorkloadRow) -> str:
    """``NAMESPACE/KIND/NAME``."""
    return f"{row.namespace}/{row.kind}/{row.name}"


def _verdict(seen: Mapping[tuple[str, str], _Seen], pair: tuple[str, str]) -> str:
    found = seen.get(pair)
    return found.verdict.value if found is not None else ""


def _change(pair: tuple[str, str], before: _Seen | None, after: _Seen | None) -> Change:
    target, name = pair
    there = after or before
    return Change(
        target,
        name,
        before.verdict.value if before is not None else "",
        after.verdict.value if after is not None else "",
        there.cores if there is not None else 0.0,
    )


def _share(report: Report, target: str) -> float | None:
    return next((each.ready_share for each in report.sums if each.target == target), None)


def _rank(verdict: str) -> int:
    return _ORDER.index(Verdict(verdict))


def _sorted(changes: Iterable[Change]) -> tuple[Change, ...]:
    return tuple(sorted(changes, key=lambda each: (each.target, -each.cores, each.workload)))
