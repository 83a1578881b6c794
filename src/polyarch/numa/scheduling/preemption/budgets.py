"""Disruption budgets: which evictions they would refuse (NS-121). Pure.

As the eviction API reads them: an empty selector means every pod of the namespace, a missing one none, and a pod that
is under two budgets cannot be evicted at all.
"""

from collections.abc import Iterable, Sequence

import msgspec

from polyarch.numa.scheduling.facts.pods import PodFacts
from polyarch.objects import ObjectMeta
from polyarch.selectors import InvalidSelector, LabelSelector, Selector


class BudgetSpec(msgspec.Struct, frozen=True, gc=False):
    """policy/v1 PodDisruptionBudgetSpec, as far as it is read here."""

    selector: LabelSelector | None = None


class BudgetStatus(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """policy/v1 PodDisruptionBudgetStatus, as far as it is read here."""

    disruptions_allowed: int = 0
    disrupted_pods: dict[str, str] | None = None
    """Evictions that have been granted and counted, by name of the pod."""


class BudgetObject(msgspec.Struct, frozen=True, gc=False):
    """policy/v1 PodDisruptionBudget."""

    metadata: ObjectMeta = ObjectMeta()
    spec: BudgetSpec | None = None
    status: BudgetStatus | None = None


class Budget(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """How many of its pods may go now."""

    namespace: str
    name: str
    selector: Selector
    allowed: int
    disrupted: frozenset[str] = frozenset()

    def covers(self, pod: PodFacts) -> bool:
        return pod.namespace == self.namespace and self.selector.matches(pod.labels)


def budget(found: BudgetObject) -> Budget | None:
    """None: it covers no pod. One whose selector cannot be read covers its whole namespace, to be safe."""
    selector = found.spec.selector if found.spec is not None else None
    if selector is None:
        return None
    try:
        parsed = Selector.parse(selector)
    except InvalidSelector:
        parsed = Selector()
    status = found.status or BudgetStatus()
    return Budget(
        namespace=found.metadata.namespace,
        name=found.metadata.name,
        selector=parsed,
        allowed=max(0, status.disruptions_allowed),
        disrupted=frozenset(status.disrupted_pods or ()),
    )


def violating(pods: Sequence[PodFacts], budgets: Iterable[Budget]) -> frozenset[str]:
    """The uids of those whose eviction would be refused if they were evicted in this order."""
    known = list(budgets)
    left = [each.allowed for each in known]
    refused: set[str] = set()
    for pod in pods:
        covering = [index for index, each in enumerate(known) if each.covers(pod)]
        if len(covering) > 1:
            refused.add(pod.uid)
            continue
        for index in covering:
            if pod.name in known[index].disrupted:
                continue
            left[index] -= 1
            if left[index] < 0:
                refused.add(pod.uid)
    return frozenset(refused)
