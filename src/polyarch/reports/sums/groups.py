"""Shares by namespace, by team and by node pool (RP-013). Pure."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from polyarch.platforms import NodePlatform
from polyarch.reports.document import Basis, Group, GroupShare, Verdict
from polyarch.reports.facts.cluster import Facts, target_name
from polyarch.reports.judging.verdicts import MOVABLE, Judged
from polyarch.reports.sums.targets import UNCONSTRAINED, share_of
from polyarch.reports.sums.weights import total

NONE = ""
"""The name of the group of those that have no such label."""


def groups_of(
    judged: Iterable[Judged], key: Callable[[Judged], str], targets: Sequence[NodePlatform], basis: Basis
) -> tuple[Group, ...]:
    """The groups, the heaviest first."""
    found: dict[str, list[Judged]] = {}
    for each in judged:
        found.setdefault(key(each), []).append(each)
    groups = [_group(name, several, targets, basis) for name, several in found.items()]
    return tuple(sorted(groups, key=lambda each: (-each.weight.cores, -each.weight.replicas, each.name)))


def pool_of(facts: Facts, label: str) -> Callable[[Judged], str]:
    """The pool that most pods of a workload are on, by a label of the nodes; of several the first by name."""
    pools = {node.name: node.labels.get(label, NONE) for node in facts.nodes}

    def pool(judged: Judged) -> str:
        counted = Counter(pools.get(pod.node, NONE) for pod in judged.workload.pods if pod.node)
        return min(counted, key=lambda name: (-counted[name], name), default=NONE)

    return pool


def team_of(label: str) -> Callable[[Judged], str]:
    """By a label of the pods."""
    return lambda judged: (judged.workload.template.metadata.labels or {}).get(label, NONE)


def namespace_of(judged: Judged) -> str:
    """By namespace."""
    return judged.workload.namespace


def _group(name: str, several: Sequence[Judged], targets: Sequence[NodePlatform], basis: Basis) -> Group:
    shares = []
    for number, target in enumerate(targets):
        counted = Counter(each.answers[number].verdict for each in several)
        shares.append(
            GroupShare(
                target_name(target),
                share_of(several, number, (Verdict.RUNS,), basis),
                share_of(several, number, MOVABLE, basis),
                share_of(several, number, UNCONSTRAINED, basis),
                tuple(counted[verdict] for verdict in Verdict),
            )
        )
    return Group(name, total(several).document, len(several), tuple(shares))
