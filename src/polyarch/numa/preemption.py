"""Which pods have to go from a node so that a more important pod fits its zones and its sums.

:func:`candidate_on_node` looks at one node, :func:`choose_candidate` takes one node of all. kube-scheduler proposes
nodes whose sums are too small: without the proposed pods all of its filters let the pod pass. Which of these have to go
by the sums is counted anew together with the zones, since other pods may do for both; those that are in the way for
another reason, such as a host port, always go. Disruption budgets are read as the eviction API reads them: an empty
selector means every pod of the namespace, a missing one none, and a pod that is under two budgets cannot be evicted at
all. Pure.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final, Literal

import msgspec

from polyarch.numa.fit.demand import PodDemandCache, exceeded, total, whole_request
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
    """A pod on the node that holds something of its cells or its sums."""

    pod: PodFacts
    cells: Mapping[int, Amounts] | None
    """What it holds of each cell; None: not known."""
    is_settled: bool
    """The zones show it; else a reservation stands for it."""
    request: Amounts = {}
    """What it takes of the sums."""


class NodeUsage(msgspec.Struct, frozen=True, kw_only=True):
    """One node. What the preemptor itself has reserved is in none of it."""

    node: NodeFacts
    occupants: tuple[PodUsage, ...] = ()
    reserved: Mapping[int, Amounts] = {}
    """By cell, those of occupants that are not settled among it."""
    groups: tuple[Cells, ...] = ()
    """Sets of cells from which reserved memory is taken together."""
    expected: tuple[PodFacts, ...] = ()
    """Pods for which the node is kept, and which are not there yet."""

    def lacking(self, request: Amounts, gone: Iterable[PodUsage]) -> tuple[str, ...]:
        """Resources of which the node has too little for ``request`` once these occupants are gone. A node that is not
        known lacks everything."""
        left = {each.pod.uid for each in gone}
        used = total(each.request for each in self.occupants if each.pod.uid not in left)
        for each in self.expected:
            for name, amount in whole_request(each).items():
                used[name] = used.get(name, 0) + amount
        return exceeded(self.node.allocatable or {}, used, request)


def node_usage(
    node: NodeFacts,
    pods: Sequence[PodFacts],
    *,
    held: Mapping[str, Mapping[int, Amounts] | None],
    reserved: Mapping[int, Amounts],
    groups: Iterable[Cells] = (),
    predicted: Callable[[str], Mapping[int, Amounts] | None] = lambda uid: None,
    expected: Iterable[PodFacts] = (),
) -> NodeUsage:
    """``pods``: those on the node that are not over. ``held``: by uid, the cells of those for which there is a
    reservation; None: not known. ``predicted``: by uid, the cells of one that the zones show."""
    settled = [each for each in pods if each.uid not in held]
    actual = actual_zones(node, settled)

    def cells(pod: PodFacts) -> Mapping[int, Amounts] | None:
        if pod.uid in held:
            return held[pod.uid]
        if not node.has_topology or not PodDemandCache(pod).on(node).containers:
            return {}
        return actual.get(pod.uid) or predicted(pod.uid)

    occupants = [
        PodUsage(pod=each, cells=cells(each), is_settled=each.uid not in held, request=whole_request(each))
        for each in pods
    ]
    return NodeUsage(
        node=node,
        occupants=tuple(occupants),
        reserved=reserved,
        groups=tuple(groups),
        expected=tuple(expected),
    )


def fit_without(pod: PodFacts, usage: NodeUsage, gone: Collection[PodUsage], options: ExactOptions) -> FitDecision:
    """The decision about the pod once these occupants, whose cells are known, are gone."""
    cells = tuple(_emptied(each, gone) for each in usage.node.cells)
    free = {each.id: _free(each, usage.reserved.get(each.id, {}), gone) for each in cells}
    unused = {each.id for each in cells if _has_no_memory_in_use(each, free[each.id])}
    node = msgspec.structs.replace(usage.node, cells=tuple(_apart(each, unused) for each in cells))
    groups = tuple(each for each in usage.groups if not unused.issuperset(each))
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


class PreemptionCandidate(msgspec.Struct, frozen=True, kw_only=True):
    """A node on which the pod fits without these pods."""

    decision: FitDecision
    """About the pod once they are gone: what to reserve for it."""
    victims: tuple[PodFacts, ...]
    """The most important first; none of them can be spared."""

    @property
    def node(self) -> str:
        return self.decision.node

    @property
    def rank(self) -> tuple[int, int, int, tuple[int, ...], str]:
        """The lowest is taken: kube-scheduler's own order (``pickOneNodeForPreemption``)."""
        highest = max(each.priority for each in self.victims)
        starts = [each.started_at for each in self.victims if each.priority == highest and each.started]
        latest_first = tuple(-ord(letter) for letter in min(starts, default=""))
        total = sum(each.priority + LEAST_PRIORITY for each in self.victims)
        return highest, total, len(self.victims), latest_first, self.node


LEAST_PRIORITY: Final = 1 << 31
"""Added to each priority of a sum, so that one pod more is never better."""


class TerminatingVictims(msgspec.Struct, frozen=True):
    """The pod fits as soon as pods are gone that are on their way out."""

    decision: FitDecision
    """About the pod once they are gone."""
    leaving: tuple[PodFacts, ...]

    @property
    def node(self) -> str:
        return self.decision.node


def candidate_on_node(
    pod: PodFacts,
    usage: NodeUsage,
    rules: PreemptionRules,
    budgets: Sequence[DisruptionBudget] = (),
    *,
    proposed: Collection[str] | None = None,
) -> PreemptionCandidate | TerminatingVictims | None:
    """``proposed``: uids of pods without which kube-scheduler's filters let the pod pass; None: they let it pass as it
    is, and zones alone are missing. The result is None where nothing that may be evicted here makes the pod fit."""
    by_sums = proposed is not None
    terminating = (each for each in usage.occupants if each.pod.terminating and (each.cells or by_sums))
    leaving = tuple(sorted(terminating, key=_importance))
    search = _Search(pod, usage, leaving, rules.options, by_sums=by_sums)
    required = _required(pod, usage, search, proposed or ())
    if required is None:
        return None
    now = search.without(())
    if not required and search.fits(()):
        return TerminatingVictims(now, tuple(each.pod for each in leaving)) if leaving else None
    if not now.fits and now.kind not in CURABLE:
        return None
    movable = sorted((each for each in usage.occupants if _may_go(each, pod, rules)), key=_importance)
    if not required <= {each.pod.uid for each in movable}:
        return None
    refused = violating([each.pod for each in movable], budgets)
    found: dict[frozenset[str], PreemptionCandidate] = {}
    for start, order in _starts(usage, movable, by_sums=by_sums):
        spared_first = sorted(order, key=lambda each: each.pod.uid not in refused)
        victims = search.minimal(start, [each for each in spared_first if each.pod.uid not in required])
        if victims and required <= {each.pod.uid for each in victims}:
            pods = tuple(each.pod for each in victims)
            if not violating(pods, budgets):
                candidate = PreemptionCandidate(decision=search.without(victims), victims=pods)
                found.setdefault(frozenset(each.uid for each in pods), candidate)
    return min(found.values(), key=lambda each: each.rank, default=None)


def _required(pod: PodFacts, usage: NodeUsage, search: "_Search", proposed: Collection[str]) -> frozenset[str] | None:
    """Those of the proposed pods that are in the way for another reason than sums; None: some are not known, so that
    the scheduler knows more of the node. Each proposed pod is needed beside the others; one that is not needed for the
    sums is needed for something else."""
    there = {each.pod.uid: each for each in usage.occupants}
    if not there.keys() >= set(proposed):
        return None
    victims = [there[uid] for uid in proposed]
    return frozenset(
        each.pod.uid
        for each in victims
        if not each.pod.terminating
        and (is_in_the_way(each.pod, pod) or search.has_sums([other for other in victims if other is not each]))
    )


def is_in_the_way(victim: PodFacts, pod: PodFacts) -> bool:
    """Whether a filter that is not about sums may reject the pod because of the other: host ports, volumes and devices
    that are claimed, anti-affinity and spread constraints."""
    return (
        (victim.has_host_ports and pod.has_host_ports)
        or (victim.has_claims and pod.has_claims)
        or any(each.matches(pod.labels) for each in victim.repels)
        or any(each.matches(victim.labels) for each in pod.repels)
    )


def _may_go(occupant: PodUsage, preemptor: PodFacts, rules: PreemptionRules) -> bool:
    pod = occupant.pod
    return (
        pod.priority < preemptor.priority
        and pod.scheduler_name == rules.scheduler_name
        and not pod.terminating
        and not pod.has_ended
        and not pod.is_static
        and not any(each.matches(pod.labels) for each in preemptor.attracts)
    )


def may_help_unclear(pod: PodFacts, usage: NodeUsage, rules: PreemptionRules) -> bool:
    """Whether the pod might fit without pods of which nobody knows the zones. ``candidate_on_node`` spares them where
    zones are missing."""
    cells = tuple(msgspec.structs.replace(each, available=each.allocatable) for each in usage.node.cells)
    empty = msgspec.structs.replace(usage.node, cells=tuple(_apart(each, {one.id for one in cells}) for each in cells))
    are_unclear = any(each.cells is None and _may_go(each, pod, rules) for each in usage.occupants)
    return are_unclear and evaluate(pod, empty, {each.id: each.available for each in cells}, rules.options).fits


def _importance(occupant: PodUsage) -> tuple[int, bool, str, str]:
    """The most important first: higher priority, then running for longer."""
    pod = occupant.pod
    return -pod.priority, not pod.started, pod.started_at, pod.uid


def _starts(
    usage: NodeUsage, movable: Sequence[PodUsage], *, by_sums: bool
) -> Iterator[tuple[Sequence[PodUsage], Sequence[PodUsage]]]:
    """Whom to take away at first, and in which order to spare them: all on one cell, for each cell; then all. Where
    sums are too small, pods of other cells may have to go, too."""
    for cell in usage.node.cells:
        on_cell = [each for each in movable if cell.id in (each.cells or ())]
        if 0 < len(on_cell) < len(movable):
            yield on_cell, on_cell
            if by_sums:
                yield movable, [*(each for each in movable if each not in on_cell), *on_cell]
    if movable:
        yield movable, movable


class _Search:
    """Decisions about one pod on one node, each made once."""

    def __init__(
        self, pod: PodFacts, usage: NodeUsage, leaving: Sequence[PodUsage], options: ExactOptions, *, by_sums: bool
    ) -> None:
        self._pod = pod
        self._usage = usage
        self._leaving = leaving
        self._known_leaving = tuple(each for each in leaving if each.cells)
        self._options = options
        self._request = whole_request(pod) if by_sums else None
        self._known: dict[frozenset[str], FitDecision] = {}

    def without(self, victims: Collection[PodUsage]) -> FitDecision:
        """By the zones."""
        gone = [each for each in victims if each.cells]
        key = frozenset(each.pod.uid for each in gone)
        if key not in self._known:
            self._known[key] = fit_without(self._pod, self._usage, (*self._known_leaving, *gone), self._options)
        return self._known[key]

    def has_sums(self, victims: Collection[PodUsage]) -> bool:
        """Always, where kube-scheduler has looked at them."""
        return self._request is None or not self._usage.lacking(self._request, (*self._leaving, *victims))

    def fits(self, victims: Collection[PodUsage]) -> bool:
        return self.has_sums(victims) and self.without(victims).fits

    def minimal(self, start: Sequence[PodUsage], spared_first: Sequence[PodUsage]) -> Sequence[PodUsage]:
        """Of these, those of whom none can be spared; empty: the pod does not fit without them either."""
        if not self.fits(start):
            return ()
        victims = start
        changed = True
        while changed:
            changed = False
            for each in spared_first:
                rest = [one for one in victims if one is not each]
                if len(rest) < len(victims) and self.fits(rest):
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
    waiting: TerminatingVictims | None = None
    """Of reason ``WaitsForVictims``."""
    unclear: tuple[str, ...] = ()
    """Of reason ``NoVictims``: nodes with pods that might make room, if somebody knew which zones they are on."""


def choose_candidate(
    found: Iterable[PreemptionCandidate | TerminatingVictims | None], *, nominated: str = ""
) -> PreemptionDecision:
    """Where pods are on their way out already, nobody else is evicted. ``nominated``: the node of the pod's nomination,
    which comes first, as others may have gone from there before."""
    candidates: list[PreemptionCandidate] = []
    waiting: list[TerminatingVictims] = []
    for each in found:
        if isinstance(each, TerminatingVictims):
            waiting.append(each)
        elif each is not None:
            candidates.append(each)
    if waiting:
        first = min(waiting, key=lambda each: (each.node != nominated, each.node))
        told = listed(each.full_name for each in first.leaving)
        message = f"it fits node {first.node} once {told} has ended"
        return PreemptionDecision(reason="WaitsForVictims", message=message, waiting=first)
    if not candidates:
        return PreemptionDecision(reason="NoVictims", message="no pods of lower priority make room for it by leaving")
    best = min(candidates, key=lambda each: (each.node != nominated, each.rank))
    told = listed(each.full_name for each in best.victims)
    return PreemptionDecision(reason="Evicts", message=f"it fits node {best.node} without {told}", candidate=best)


def listed(names: Iterable[str]) -> str:
    """For one line; the first few of many."""
    known = list(names)
    more = f" and {len(known) - MOST_NAMED} more" if len(known) > MOST_NAMED else ""
    return ", ".join(known[:MOST_NAMED]) + more
