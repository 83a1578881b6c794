"""What verdicts add up to: shares, images in the way, and what moving would save.

Sums are of whole thousandths, so that their order does not matter; they become decimal numbers in the document only.
Shares are of requested CPU; of replicas where nobody requests any, since a share of nothing helps nobody. Pure.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from polyarch.oci.inspection import Inspection, Status
from polyarch.oci.reference import InvalidReference, Reference, parse
from polyarch.platforms import NodePlatform
from polyarch.quantity import UNIT
from polyarch.reports.document import (
    Basis,
    Blocker,
    CurvePoint,
    Group,
    GroupShare,
    Saving,
    Suggestion,
    TargetSums,
    Verdict,
    VerdictSum,
    Weight,
)
from polyarch.reports.facts import ImageInspections, ReportFacts, WorkloadFact
from polyarch.reports.verdicts import MOVABLE, WorkloadAssessment

HOURS_A_MONTH: Final = 730
"""A year's 8 760 hours, divided by 12."""
UNCONSTRAINED: Final = (*MOVABLE, Verdict.CONSTRAINED)
Prices = Mapping[str, float]
"""Per requested vCPU-hour, by target."""


def sums_of(
    judged: Sequence[WorkloadAssessment],
    target: NodePlatform,
    number: int,
    *,
    excluded: Sequence[WorkloadAssessment],
    nodes: int,
    basis: Basis,
    blockers: Sequence[Blocker],
    prices: Prices,
) -> TargetSums:
    """Of the target that has this ``number`` in each workload's answers."""
    by_verdict: dict[Verdict, list[WorkloadAssessment]] = {verdict: [] for verdict in Verdict}
    for each in judged:
        by_verdict[each.answers[number].verdict].append(each)
    by_verdict[Verdict.EXCLUDED] = list(excluded)
    return TargetSums(
        target=target.short_name,
        nodes=nodes,
        verdicts=tuple(
            VerdictSum(verdict, len(several), total(several).document) for verdict, several in by_verdict.items()
        ),
        runs_share=share_of(judged, number, (Verdict.RUNS,), basis),
        ready_share=share_of(judged, number, MOVABLE, basis),
        unconstrained_share=share_of(judged, number, UNCONSTRAINED, basis),
        curve=curve_of(judged, target, number, blockers, basis),
        blocking_daemon_sets=tuple(
            f"{each.workload.namespace}/{each.workload.name}" for each in judged if each.answers[number].blocks_nodes
        ),
        saving=saving_of(judged, target, number, prices),
    )


def share_of(
    judged: Sequence[WorkloadAssessment], number: int, verdicts: Sequence[Verdict], basis: Basis
) -> float | None:
    """How much of the weight has one of these verdicts."""
    part = whole = 0
    for each in judged:
        weight = load_of(each.workload).by(basis)
        whole += weight
        if each.answers[number].verdict in verdicts:
            part += weight
    return share(part, whole)


def saving_of(judged: Sequence[WorkloadAssessment], target: NodePlatform, number: int, prices: Prices) -> Saving | None:
    """An estimate for everything that is ready for the target and runs elsewhere. None if a price is missing."""
    name = target.short_name
    if name not in prices:
        return None
    moved: dict[str, int] = {}
    for each in judged:
        if each.answers[number].verdict is not Verdict.READY or each.workload.is_daemon_set:
            continue  # a DaemonSet runs on every node: it does not move
        platforms = [platform.short_name for platform in each.runs_on if platform.short_name in prices]
        if len(platforms) == 1 and platforms[0] != name:
            moved[platforms[0]] = moved.get(platforms[0], 0) + load_of(each.workload).cpu
    if not moved:
        return Saving(0.0, 0.0, f"nothing that is ready for {name} runs on nodes of another platform that has a price")
    parts = [
        f"{cores(cpu):g} cores from {source} x ({prices[source]:g} - {prices[name]:g})"
        for source, cpu in sorted(moved.items())
    ]
    per_hour = sum(cores(cpu) * (prices[source] - prices[name]) for source, cpu in sorted(moved.items()))
    return Saving(
        cores(sum(moved.values())),
        round(per_hour * HOURS_A_MONTH, 2),
        f"({' + '.join(parts)}) x {HOURS_A_MONTH} hours a month",
    )


# -- weights: what the desired replicas of workloads request together --------------------------------------------------

DIGITS: Final = 4
"""Decimals of a share."""
ASSUMED_CPU: Final = 100
"""Of a pod that requests none, in thousandths, so that no workload weighs nothing: what kube-scheduler takes for it
(``DefaultMilliCPURequest``, ``pkg/scheduler/util``)."""


class WorkloadWeight(msgspec.Struct, frozen=True, gc=False):
    """Requested CPU and memory in thousandths, desired replicas, those of them that request no CPU, and pods that
    exist."""

    cpu: int = 0
    memory: int = 0
    replicas: int = 0
    pods: int = 0
    without_cpu: int = 0

    @property
    def document(self) -> Weight:
        return Weight(cores(self.cpu), self.memory // UNIT, self.replicas, self.pods)

    def by(self, basis: Basis) -> int:
        """The number that shares are of."""
        return self.cpu + ASSUMED_CPU * self.without_cpu if basis == "cores" else self.replicas


def load_of(workload: WorkloadFact) -> WorkloadWeight:
    """Of all its replicas."""
    asked, replicas = workload.requests, workload.replicas
    without_cpu = 0 if asked.cpu else replicas
    return WorkloadWeight(asked.cpu * replicas, asked.memory * replicas, replicas, len(workload.pods), without_cpu)


def total(judged: Iterable[WorkloadAssessment]) -> WorkloadWeight:
    """Of several workloads together."""
    cpu = memory = replicas = pods = without_cpu = 0
    for each in judged:
        load = load_of(each.workload)
        cpu, memory, without_cpu = cpu + load.cpu, memory + load.memory, without_cpu + load.without_cpu
        replicas, pods = replicas + load.replicas, pods + load.pods
    return WorkloadWeight(cpu, memory, replicas, pods, without_cpu)


def basis_of(judged: Iterable[WorkloadAssessment]) -> Basis:
    """What shares are of."""
    return "cores" if total(judged).cpu else "replicas"


def share(part: int, whole: int) -> float | None:
    """From 0 to 1, rounded down: what is not all of it is not 1. None of nothing."""
    steps = 10**DIGITS
    return part * steps // whole / steps if whole else None


def cores(thousandths: int) -> float:
    """As documents have it."""
    return thousandths / UNIT


# -- namespaces, teams and node pools ----------------------------------------------------------------------------------

NONE = ""
"""The name of the group of those that have no such label."""


def groups_of(
    judged: Iterable[WorkloadAssessment],
    key: Callable[[WorkloadAssessment], str],
    targets: Sequence[NodePlatform],
    basis: Basis,
) -> tuple[Group, ...]:
    """The groups, the heaviest first."""
    found: dict[str, list[WorkloadAssessment]] = {}
    for each in judged:
        found.setdefault(key(each), []).append(each)
    groups = [_group(name, several, targets, basis) for name, several in found.items()]
    return tuple(sorted(groups, key=lambda each: (-each.weight.cores, -each.weight.replicas, each.name)))


def pool_of(facts: ReportFacts, label: str) -> Callable[[WorkloadAssessment], str]:
    """The pool that most pods of a workload are on, by a label of the nodes; of several the first by name."""
    pools = {node.name: node.labels.get(label, NONE) for node in facts.nodes}

    def pool(judged: WorkloadAssessment) -> str:
        counted = Counter(pools.get(pod.node, NONE) for pod in judged.workload.pods if pod.node)
        return min(counted, key=lambda name: (-counted[name], name), default=NONE)

    return pool


def team_of(label: str) -> Callable[[WorkloadAssessment], str]:
    """By a label of the pods."""
    return lambda judged: (judged.workload.template.metadata.labels or {}).get(label, NONE)


def namespace_of(judged: WorkloadAssessment) -> str:
    """By namespace."""
    return judged.workload.namespace


def _group(name: str, several: Sequence[WorkloadAssessment], targets: Sequence[NodePlatform], basis: Basis) -> Group:
    shares = []
    for number, target in enumerate(targets):
        counted = Counter(each.answers[number].verdict for each in several)
        shares.append(
            GroupShare(
                target.short_name,
                share_of(several, number, (Verdict.RUNS,), basis),
                share_of(several, number, MOVABLE, basis),
                share_of(several, number, UNCONSTRAINED, basis),
                tuple(counted[verdict] for verdict in Verdict),
            )
        )
    return Group(name, total(several).document, len(several), tuple(shares))


# -- blockers: the images that are in the way, the heaviest first, and the curve ---------------------------------------
# An image holds a workload back alone if the workload would become ready once the image had the target: no other image
# lacks it or is unknown, and nothing else excludes it. The curve leaves what excludes otherwise aside, for it says what
# images cost; its first point is what could run if constraints were lifted.

Suggestions = Mapping[tuple[str, str], Suggestion]
"""Known ways out, by target and image."""


class _BlockedWork(NamedTuple):
    """What one image holds back."""

    image: str
    alone: WorkloadWeight
    together: WorkloadWeight
    names: tuple[str, ...]
    platforms: tuple[str, ...]


def blockers_of(
    judged: Sequence[WorkloadAssessment], target: NodePlatform, number: int, *, basis: Basis, suggestions: Suggestions
) -> tuple[Blocker, ...]:
    """The blockers of the target, which is the one with this ``number`` in each workload's answers."""
    name = target.short_name
    return tuple(
        Blocker(
            target=name,
            image=each.image,
            platforms=each.platforms,
            alone=each.alone.document,
            together=each.together.document,
            workloads=each.names,
            suggestion=suggestions.get((name, each.image)) or publish(each.image, name),
        )
        for each in _held(judged, target, number, basis)
    )


def publish(image: str, target: str) -> Suggestion:
    """What always helps."""
    return Suggestion("publish", message=f"publish {image} for {target}")


def curve_of(
    judged: Sequence[WorkloadAssessment], target: NodePlatform, number: int, blockers: Iterable[Blocker], basis: Basis
) -> tuple[CurvePoint, ...]:
    """What could run when the blockers are fixed one after another, in their order."""
    whole = sum(load_of(each.workload).by(basis) for each in judged)
    open_: dict[int, set[str]] = {}
    waiting: dict[str, list[int]] = {}
    done, done_cpu = 0, 0
    for at, each in enumerate(judged):
        verdict = each.answers[number].verdict
        load = load_of(each.workload)
        if verdict in (*MOVABLE, Verdict.CONSTRAINED):
            done, done_cpu = done + load.by(basis), done_cpu + load.cpu
        elif verdict is Verdict.IMAGE and not each.has_unknown:
            open_[at] = set(each.lacking(target))
            for image in open_[at]:
                waiting.setdefault(image, []).append(at)
    points = [CurvePoint(0, "", cores(done_cpu), share(done, whole) or 0.0)]
    for fixed, blocker in enumerate(blockers, 1):
        for at in waiting.get(blocker.image, ()):
            open_[at].discard(blocker.image)
            if not open_[at]:
                load = load_of(judged[at].workload)
                done, done_cpu = done + load.by(basis), done_cpu + load.cpu
        points.append(CurvePoint(fixed, blocker.image, cores(done_cpu), share(done, whole) or 0.0))
    return tuple(points)


def _held(judged: Sequence[WorkloadAssessment], target: NodePlatform, number: int, basis: Basis) -> list[_BlockedWork]:
    alone: dict[str, list[WorkloadAssessment]] = {}
    together: dict[str, list[WorkloadAssessment]] = {}
    platforms: dict[str, tuple[str, ...]] = {}
    for each in judged:
        answer = each.answers[number]
        if answer.verdict is not Verdict.IMAGE:
            continue
        lacking = each.lacking(target)
        by_itself = len(lacking) == 1 and len(answer.reasons) == 1
        for image in lacking:
            (alone if by_itself else together).setdefault(image, []).append(each)
        for finding in each.lacks[target]:
            platforms.setdefault(finding.text, tuple(each.short_name for each in finding.platforms))
    found = [
        _BlockedWork(
            image,
            total(alone.get(image, ())),
            total(together.get(image, ())),
            (*_names(alone.get(image, ()), basis), *_names(together.get(image, ()), basis)),
            platforms[image],
        )
        for image in platforms
    ]
    found.sort(key=lambda each: (-each.alone.by(basis), -each.together.by(basis), each.image))
    return found


def _names(several: Iterable[WorkloadAssessment], basis: Basis) -> Iterable[str]:
    heaviest = sorted(several, key=lambda each: (-load_of(each.workload).by(basis), each.workload.full_name))
    return (each.workload.full_name for each in heaviest)


# -- suggestions: the cheapest way out that is known for an image ------------------------------------------------------
# Known is what somebody has been asked about: a configured substitute, or another tag of the same repository. The first
# of these that has the target is suggested; else what always helps, to publish the image for it.

MAX_TAGS: Final = 3
_Tags = Mapping[str, Mapping[str, str]]
"""Repository to tag to the text of its reference, of images that somebody has been asked about."""
_FORM: Final = re.compile(r"(v?)([0-9]{1,9}(?:\.[0-9]{1,9}){0,3})((?:[-_+][A-Za-z0-9._-]*)?)", re.ASCII)


class _Version(NamedTuple):
    """A tag such as ``v1.27.3-alpine``: what two of the same form have in common, and the numbers."""

    form: tuple[str, int, str]
    numbers: tuple[int, ...]


def suggestions_of(
    blockers: Iterable[Blocker], answers: ImageInspections, substitutes: Mapping[str, str]
) -> Suggestions:
    """By target and image, where something better than publishing is known."""
    known = answers.everywhere
    tags = _tags(known)
    found = {}
    for blocker in blockers:
        suggestion = _substitute(blocker, known, substitutes) or _tag(blocker, known, tags)
        if suggestion is not None:
            found[blocker.target, blocker.image] = suggestion
    return found


def newer_tags(tag: str, tags: Iterable[str]) -> tuple[str, ...]:
    """At most :data:`MAX_TAGS` tags of the same form: the newest of the same minor version, of the same major version,
    and of all, so that the smallest step that helps is among them."""
    own = _version(tag)
    if own is None:
        return ()
    newer = sorted(
        (version.numbers, each)
        for each in set(tags)
        if (version := _version(each)) is not None and version.form == own.form and version.numbers > own.numbers
    )
    found: dict[str, None] = {}
    for kept in (2, 1, 0):
        alike = [each for numbers, each in newer if numbers[:kept] == own.numbers[:kept]]
        if alike:
            found[alike[-1]] = None
    return tuple(found)[:MAX_TAGS]


def _version(tag: str) -> _Version | None:
    found = _FORM.fullmatch(tag)
    if found is None:
        return None
    prefix, numbers, suffix = found.groups()
    parts = tuple(int(each) for each in numbers.split("."))
    return _Version((prefix, len(parts), suffix), parts)


def _substitute(blocker: Blocker, known: Mapping[str, Inspection], substitutes: Mapping[str, str]) -> Suggestion | None:
    other = substitutes.get(blocker.image)
    answer = known.get(other) if other is not None else None
    if other is None or answer is None or not _has(answer, blocker.target):
        return None
    return Suggestion("substitute", other, f"use {other}, which has {blocker.target}, instead of {blocker.image}")


def _tag(blocker: Blocker, known: Mapping[str, Inspection], tags: _Tags) -> Suggestion | None:
    own = _reference(blocker.image)
    if own is None or own.tag is None:
        return None
    others = tags.get(own.name, {})
    having = [tag for tag, text in others.items() if _has(known[text], blocker.target)]
    for tag in newer_tags(own.tag, having):
        return Suggestion("tag", others[tag], f"use {others[tag]}, which has {blocker.target}")
    return None


def _tags(known: Iterable[str]) -> _Tags:
    found: dict[str, dict[str, str]] = {}
    for text in known:
        reference = _reference(text)
        if reference is not None and reference.tag is not None:
            found.setdefault(reference.name, {})[reference.tag] = text
    return found


def _reference(text: str) -> Reference | None:
    try:
        return parse(text)
    except InvalidReference:
        return None


def _has(answer: Inspection, target: str) -> bool:
    if answer.status is Status.NEUTRAL:
        return True
    return answer.constrains and target in {NodePlatform(*each).short_name for each in answer.node_platforms}
