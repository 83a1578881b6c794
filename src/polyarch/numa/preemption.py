"""Which pods have to go from the zones of a node so that a more important pod fits.

:func:`candidate_on_node` looks at one node, :func:`choose_candidate` takes one node of all. Disruption budgets are read
as the eviction API reads them: an empty selector means every pod of the namespace, a missing one none, and a pod that
is under two budgets cannot be evicted at all. Pure.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final, Literal

import msgspec

from polyarch.numa.fit.demand import PodDemandCache
from polyarch.numa.fit.evaluate import evaluate
from polyarch.numa.fit.facts import Amounts, ExactOptions, FitDecision, NodeFacts, PodFacts, ZoneFacts, is_memory
from polyarch.numa.placement_vectors import ContainerKey, MalformedVectors, decode_vectors
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


class PodDisruptionBudget(msgspec.Struct, frozen=True, gc=False):
    """policy/v1 PodDisruptionBudget."""

    metadata: ObjectMeta = ObjectMeta()
    spec: BudgetSpec | None = None
    status: BudgetStatus | None = None


class DisruptionBudget(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """How many of its pods may go now."""

    namespace: str
    name: str
    selector: Selector
    allowed: int
    disrupted: frozenset[str] = frozenset()

    def covers(self, pod: PodFacts) -> bool:
        return pod.namespace == self.namespace and self.selector.matches(pod.labels)


def disruption_budget(found: PodDisruptionBudget) -> DisruptionBudget | None:
    """None: it covers no pod. One whose selector cannot be read covers its whole namespace, to be safe."""
    selector = found.spec.selector if found.spec is not None else None
    if selector is None:
        return None
    try:
        parsed = Selector.parse(selector)
    except InvalidSelector:
        parsed = Selector()
    status = found.status or BudgetStatus()
    return DisruptionBudget(
        namespace=found.metadata.namespace,
        name=found.metadata.name,
        selector=parsed,
        allowed=max(0, status.disruptions_allowed),
        disrupted=frozenset(status.disrupted_pods or ()),
    )


def violating(pods: Sequence[PodFacts], budgets: Iterable[DisruptionBudget]) -> frozenset[str]:
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


# -- actual zones ------------------------------------------------------------------------------------------------------


def actual_zones(node: NodeFacts, shown: Iterable[PodFacts]) -> dict[str, Mapping[int, Amounts]]:
    """What each pod holds of each cell, by uid; empty where there are no vectors, or they are about other pods.

    ``shown``: the pods that this version of the object is about.
    """
    if node.vectors is None:
        return {}
    needs: dict[ContainerKey, tuple[str, Mapping[str, int]]] = {}
    for pod in shown:
        for unit in PodDemandCache(pod).on(node).containers:
            if not unit.ends:
                needs[pod.namespace, pod.name, unit.name] = pod.uid, unit.needs
    try:
        cell_of = decode_vectors(node.vectors, needs)
    except MalformedVectors:
        return {}
    found: dict[str, dict[int, dict[str, int]]] = {}
    for key, cell in cell_of.items():
        uid, wanted = needs[key]
        amounts = found.setdefault(uid, {}).setdefault(cell, {})
        for name, amount in wanted.items():
            amounts[name] = amounts.get(name, 0) + amount
    return dict(found)


# -- usage -------------------------------------------------------------------------------------------------------------


Cells = tuple[int, ...]


class PodUsage(msgspec.Struct, frozen=True, kw_only=True):
    """A pod on the node that holds something of its cells."""

    pod: PodFacts
    cells: Mapping[int, Amounts] | None
    """What it holds of each cell; None: not known."""
    is_settled: bool
    """The zones show it; else a reservation stands for it."""


class NodeUsage(msgspec.Struct, frozen=True, kw_only=True):
    """One node. What the preemptor itself has reserved is in none of it."""

    node: NodeFacts
    occupants: tuple[PodUsage, ...] = ()
    reserved: Mapping[int, Amounts] = {}
    """By cell, those of occupants that are not settled among it."""
    groups: tuple[Cells, ...] = ()
    """Sets of cells from which reserved memory is taken together."""


def fit_without(pod: PodFacts, occupancy: NodeUsage, gone: Collection[PodUsage], options: ExactOptions) -> FitDecision:
    """The decision about the pod once these occupants, whose cells are known, are gone."""
    cells = tuple(_emptied(each, gone) for each in occupancy.node.cells)
    free = {each.id: _free(each, occupancy.reserved.get(each.id, {}), gone) for each in cells}
    unused = {each.id for each in cells if _has_no_memory_in_use(each, free[each.id])}
    node = msgspec.structs.replace(occupancy.node, cells=tuple(_apart(each, unused) for each in cells))
    groups = tuple(each for each in occupancy.groups if not unused.issuperset(each))
    return evaluate(pod, node, free, options, groups=groups)


def held(occupants: Iterable[PodUsage], cell: int, resource: str, *, settled: bool) -> int:
    """What they hold of one cell together."""
    return sum((each.cells or {}).get(cell, {}).get(resource, 0) for each in occupants if each.is_settled is settled)


def _emptied(cell: ZoneFacts, gone: Collection[PodUsage]) -> ZoneFacts:
    available = {
        name: min(max(amount, cell.allocatable.get(name, 0)), amount + held(gone, cell.id, name, settled=True))
        for name, amount in cell.available.items()
    }
    return msgspec.structs.replace(cell, available=available)


def _free(cell: ZoneFacts, reserved: Amounts, gone: Collection[PodUsage]) -> dict[str, int]:
    return {
        name: max(0, amount - max(0, reserved.get(name, 0) - held(gone, cell.id, name, settled=False)))
        for name, amount in cell.available.items()
    }


def _has_no_memory_in_use(cell: ZoneFacts, free: Amounts) -> bool:
    return all(free.get(name, 0) >= amount for name, amount in cell.allocatable.items() if is_memory(name))


def _apart(cell: ZoneFacts, unused: Collection[int]) -> ZoneFacts:
    """The kubelet dissolves a group of cells with the last block of memory in it."""
    if cell.memory_group and all(each in unused for each in cell.memory_group):
        return msgspec.structs.replace(cell, memory_group=())
    return cell


# -- victims -----------------------------------------------------------------------------------------------------------


CURABLE: Final = frozenset({"short", "no-common-cell"})
"""Kinds of decisions that room on the cells can change."""


class PreemptionRules(msgspec.Struct, frozen=True, kw_only=True):
    """Who may be a victim."""

    scheduler_name: str
    """Pods of other schedulers are left alone."""
    options: ExactOptions = ExactOptions()
    may_violate: bool = False
    """Disruption budgets count for the order alone (``--preempt-violating``)."""


class PreemptionCandidate(msgspec.Struct, frozen=True, kw_only=True):
    """A node on which the pod fits without these pods."""

    decision: FitDecision
    """About the pod once they are gone: what to reserve for it."""
    victims: tuple[PodFacts, ...]
    """The most important first; none of them can be spared."""
    violations: int = 0
    """Evictions that a disruption budget would refuse."""

    @property
    def node(self) -> str:
        return self.decision.node

    @property
    def rank(self) -> tuple[int, int, int, int, tuple[int, ...], str]:
        """The lowest is taken."""
        highest = max(each.priority for each in self.victims)
        starts = [each.started_at for each in self.victims if each.priority == highest and each.started]
        latest_first = tuple(-ord(letter) for letter in min(starts, default=""))
        total = sum(each.priority for each in self.victims)
        return self.violations, highest, len(self.victims), total, latest_first, self.node


class TerminatingVictims(msgspec.Struct, frozen=True):
    """The pod fits as soon as pods are gone that are on their way out."""

    node: str
    leaving: tuple[PodFacts, ...]


def candidate_on_node(
    pod: PodFacts, occupancy: NodeUsage, rules: PreemptionRules, budgets: Sequence[DisruptionBudget] = ()
) -> PreemptionCandidate | TerminatingVictims | None:
    """None: nothing that may be evicted here makes the pod fit."""
    leaving = sorted((each for each in occupancy.occupants if each.pod.terminating and each.cells), key=_importance)
    now = fit_without(pod, occupancy, leaving, rules.options)
    if now.fits:
        return TerminatingVictims(now.node, tuple(each.pod for each in leaving)) if leaving else None
    if now.kind not in CURABLE:
        return None
    movable = sorted((each for each in occupancy.occupants if _may_go(each, pod, rules)), key=_importance)
    refused = violating([each.pod for each in movable], budgets)
    search = _Search(pod, occupancy, leaving, rules.options)
    found: dict[frozenset[str], PreemptionCandidate] = {}
    for start in _starts(occupancy, movable):
        victims = search.minimal(start, sorted(start, key=lambda each: each.pod.uid not in refused))
        if victims:
            pods = tuple(each.pod for each in victims)
            candidate = PreemptionCandidate(
                decision=search.without(victims),
                victims=pods,
                violations=len(violating(pods, budgets)),
            )
            if rules.may_violate or not candidate.violations:
                found.setdefault(frozenset(each.uid for each in pods), candidate)
    return min(found.values(), key=lambda each: each.rank, default=None)


def _may_go(occupant: PodUsage, preemptor: PodFacts, rules: PreemptionRules) -> bool:
    pod = occupant.pod
    return (
        bool(occupant.cells)
        and pod.priority < preemptor.priority
        and pod.scheduler_name == rules.scheduler_name
        and not pod.terminating
        and not pod.has_ended
    )


def _importance(occupant: PodUsage) -> tuple[int, bool, str, str]:
    """The most important first: higher priority, then running for longer."""
    pod = occupant.pod
    return -pod.priority, not pod.started, pod.started_at, pod.uid


def _starts(occupancy: NodeUsage, movable: Sequence[PodUsage]) -> Iterator[list[PodUsage]]:
    """Whom to take away at first: all on one cell, for each cell; then all."""
    for cell in occupancy.node.cells:
        on_cell = [each for each in movable if cell.id in (each.cells or ())]
        if 0 < len(on_cell) < len(movable):
            yield on_cell
    if movable:
        yield list(movable)


class _Search:
    """Decisions about one pod on one node, each made once."""

    def __init__(self, pod: PodFacts, occupancy: NodeUsage, leaving: Iterable[PodUsage], options: ExactOptions) -> None:
        self._pod = pod
        self._occupancy = occupancy
        self._leaving = tuple(leaving)
        self._options = options
        self._known: dict[frozenset[str], FitDecision] = {}

    def without(self, victims: Collection[PodUsage]) -> FitDecision:
        key = frozenset(each.pod.uid for each in victims)
        if key not in self._known:
            self._known[key] = fit_without(self._pod, self._occupancy, (*self._leaving, *victims), self._options)
        return self._known[key]

    def minimal(self, start: list[PodUsage], spared_first: Sequence[PodUsage]) -> list[PodUsage]:
        """Of these, those of whom none can be spared; empty: the pod does not fit without them either."""
        if not self.without(start).fits:
            return []
        victims = start
        changed = True
        while changed:
            changed = False
            for each in spared_first:
                rest = [one for one in victims if one is not each]
                if len(rest) < len(victims) and self.without(rest).fits:
                    victims, changed = rest, True
        return victims


# -- the choice --------------------------------------------------------------------------------------------------------


PreemptionReason = Literal["Evicts", "WaitsForVictims", "NoVictims"]
MOST_NAMED: Final = 5
"""Pods in one message."""


class PreemptionDecision(msgspec.Struct, frozen=True, kw_only=True):
    """What to do for a pod that fits nowhere."""

    reason: PreemptionReason
    message: str
    candidate: PreemptionCandidate | None = None
    """Of reason ``Evicts``."""


def choose_candidate(found: Iterable[PreemptionCandidate | TerminatingVictims | None]) -> PreemptionDecision:
    """Where pods are on their way out already, nobody else is evicted."""
    candidates: list[PreemptionCandidate] = []
    waiting: list[TerminatingVictims] = []
    for each in found:
        if isinstance(each, TerminatingVictims):
            waiting.append(each)
        elif each is not None:
            candidates.append(each)
    if waiting:
        first = min(waiting, key=lambda each: each.node)
        told = listed(each.full_name for each in first.leaving)
        return PreemptionDecision(reason="WaitsForVictims", message=f"it fits node {first.node} once {told} has ended")
    if not candidates:
        return PreemptionDecision(reason="NoVictims", message="no pods of lower priority make room for it by leaving")
    best = min(candidates, key=lambda each: each.rank)
    told = listed(each.full_name for each in best.victims)
    return PreemptionDecision(reason="Evicts", message=f"it fits node {best.node} without {told}", candidate=best)


def listed(names: Iterable[str]) -> str:
    """For one line; the first few of many."""
    known = list(names)
    more = f" and {len(known) - MOST_NAMED} more" if len(known) > MOST_NAMED else ""
    return ", ".join(known[:MOST_NAMED]) + more
