"""The sums of each target: shares, the curve, DaemonSets that are in the way, and what moving would save (RP-011 to
RP-014). Pure."""

from collections.abc import Mapping, Sequence
from typing import Final

from polyarch.platforms import NodePlatform
from polyarch.reports.document import Basis, Blocker, Saving, TargetSums, Verdict, VerdictSum
from polyarch.reports.facts.cluster import WorkloadFact, target_name
from polyarch.reports.judging.verdicts import MOVABLE, Judged
from polyarch.reports.sums.blockers import curve_of
from polyarch.reports.sums.weights import cores, load_of, share, total

HOURS_A_MONTH: Final = 730
"""A year's 8 760 hours, divided by 12."""
UNCONSTRAINED: Final = (*MOVABLE, Verdict.CONSTRAINED)
Prices = Mapping[str, float]
"""Per requested vCPU-hour, by target."""


def sums_of(
    judged: Sequence[Judged],
    target: NodePlatform,
    number: int,
    *,
    excluded: Sequence[Judged],
    nodes: int,
    basis: Basis,
    blockers: Sequence[Blocker],
    prices: Prices,
) -> TargetSums:
    """Of the target that has this ``number`` in each workload's answers."""
    by_verdict: dict[Verdict, list[Judged]] = {verdict: [] for verdict in Verdict}
    for each in judged:
        by_verdict[each.answers[number].verdict].append(each)
    by_verdict[Verdict.EXCLUDED] = list(excluded)
    return TargetSums(
        target=target_name(target),
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


def share_of(judged: Sequence[Judged], number: int, verdicts: Sequence[Verdict], basis: Basis) -> float | None:
    """How much of the weight has one of these verdicts."""
    part = whole = 0
    for each in judged:
        weight = load_of(each.workload).by(basis)
        whole += weight
        if each.answers[number].verdict in verdicts:
            part += weight
    return share(part, whole)


def saving_of(judged: Sequence[Judged], target: NodePlatform, number: int, prices: Prices) -> Saving | None:
    """An estimate for everything that is ready for the target and runs elsewhere. None if a price is missing."""
    name = target_name(target)
    if name not in prices:
        return None
    moved: dict[str, int] = {}
    for each in judged:
        if each.answers[number].verdict is not Verdict.READY or each.workload.is_daemon_set:
            continue  # a DaemonSet runs on every node: it does not move
        platforms = [target_name(platform) for platform in each.runs_on if target_name(platform) in prices]
        if len(platforms) == 1 and platforms[0] != name:
            moved[platforms[0]] = moved.get(platforms[0], 0) + _cpu(each.workload)
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


def _cpu(workload: WorkloadFact) -> int:
    return load_of(workload).cpu
