"""All nodes with what is reserved on them, and what each says of a pod: the answers of ``evaluate``, of all at once.

Nodes that are alike in everything but amounts share a class: the pod's demand and the checks that need no zone are made
once for a class, and each class is a table of its own. Pure.
"""

from collections import Counter, OrderedDict
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from heapq import nsmallest
from typing import Final

import msgspec
from xxhash import xxh64_intdigest

from polyarch.numa.fit.demand import NOTHING, AlignmentUnit, PodDemand, PodDemandCache
from polyarch.numa.fit.evaluate import (
    decide_by_checks,
    decide_without_topology,
    evaluate,
    is_static,
    policy_action,
    rejected_unit,
)
from polyarch.numa.fit.facts import (
    CPU,
    Amounts,
    ExactOptions,
    FitDecision,
    NodeFacts,
    NodeSettings,
    PodFacts,
    RejectionKind,
    ZoneFacts,
    is_memory,
    is_on,
)
from polyarch.numa.fit.node_table import MOST_AMOUNT, MOST_RESOURCES, REFUSED, UNDECIDED, NodeTable, TableQuery
from polyarch.numa.fit.zones import BY_SOCKET, CLOSEST, UNKNOWN_COST, WHOLE_CORES, ZoneIds
from polyarch.quantity import UNIT

# -- equal amounts are kept once ---------------------------------------------------------------------------------------


_MOST: Final = 50_000
"""What is remembered for sharing; beyond it, what comes is shared anew."""


class AmountInterner:
    """Answers with equal values made of parts that it has seen before."""

    def __init__(self) -> None:
        self._amounts: dict[tuple[tuple[str, int], ...], Amounts] = {}
        self._settings: list[NodeSettings] = []

    def node(self, node: NodeFacts) -> NodeFacts:
        return msgspec.structs.replace(
            node,
            cells=tuple(self._cell(each) for each in node.cells),
            settings=self._setting(node.settings),
            allocatable=self._shared(node.allocatable) if node.allocatable is not None else None,
        )

    def _cell(self, cell: ZoneFacts) -> ZoneFacts:
        allocatable = self._shared(cell.allocatable)
        return msgspec.structs.replace(
            cell,
            capacity=allocatable if cell.capacity == allocatable else self._shared(cell.capacity),
            allocatable=allocatable,
            available=_like(cell.available, allocatable),
        )

    def _shared(self, amounts: Amounts) -> Amounts:
        if len(self._amounts) >= _MOST:
            self._amounts.clear()
        return self._amounts.setdefault(tuple(amounts.items()), amounts)

    def _setting(self, settings: NodeSettings) -> NodeSettings:
        """There are few different ones, and they cannot be hashed."""
        for known in self._settings:
            if known == settings:
                return known
        self._settings = [settings, *self._settings[:15]]
        return settings


def _like(available: Amounts, allocatable: Amounts) -> Amounts:
    """With the names, and where they are equal the numbers, of what is allocatable."""
    if available == allocatable:
        return allocatable
    if available.keys() != allocatable.keys():
        return available
    return {name: most if (amount := available[name]) == most else amount for name, most in allocatable.items()}


# -- node classes ------------------------------------------------------------------------------------------------------


class NodeClassDecision(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """What a class says about a pod. Neither ``decision`` nor ``question``: its nodes are decided one by one."""

    demand: PodDemand
    decision: FitDecision | None = None
    """The same for each of its nodes, but for the name."""
    question: TableQuery | None = None
    """For its table."""
    refused: int = REFUSED
    """What becomes of those that the table refuses: a score, or undecided."""


class NodeClass(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """What the nodes of a class have in common."""

    sample: NodeFacts
    """One of them, or one that was."""
    by_itself: bool
    """No table can hold them."""
    nearest: tuple[bool, ...]
    """By cell: none is nearer to itself."""
    resources: tuple[str, ...]
    splits_cores: bool
    """CPUs are reserved that leave a part of their core."""

    def verdict(self, pod: PodFacts, demands: PodDemandCache, options: ExactOptions) -> NodeClassDecision:
        sample = self.sample
        if not sample.has_topology:
            return NodeClassDecision(demand=NOTHING, decision=decide_without_topology(pod, sample, options))
        demand = demands.on(sample)
        hit = decide_by_checks(pod, sample, demand, options)
        if hit is not None:
            return NodeClassDecision(demand=demand, decision=hit)
        does = policy_action(sample, options)
        may_refuse = _may_refuse(sample, demand)
        if does == "ignore" and not may_refuse:
            return NodeClassDecision(demand=demand, decision=FitDecision(node=sample.name, fits=True))
        if does == "ignore" or self.by_itself or not self._has_rule(demand) or not _is_askable(demand.units, options):
            return NodeClassDecision(demand=demand)
        settings = sample.settings
        refused = 0 if does == "score" else REFUSED
        if settings.policy == "best-effort" and may_refuse:
            refused = UNDECIDED
        question = TableQuery(
            units=tuple(_held(each) for each in demand.units),
            strategy=options.strategy,
            weights=options.weights,
            most_cells=settings.most_cells,
            nearest=self.nearest,
            by_groups=settings.policy == "restricted",
        )
        return NodeClassDecision(demand=demand, question=question, refused=refused)

    def _has_rule(self, demand: PodDemand) -> bool:
        """Whether the lowest cell with room is what this pod gets, and nothing else can refuse it."""
        settings = self.sample.settings
        closest = is_on(settings.topology_options, CLOSEST)
        if settings.policy == "restricted" and closest and not all(self.nearest):
            return False
        if _wants_cores(self.sample, demand) and (self.splits_cores or any(each.ends for each in demand.containers)):
            return False
        counted = {name for each in demand.units for name in each.needs}
        return all(name in counted for each in demand.containers for name in each.needs)


UNKNOWN: Final = NodeClass(
    sample=NodeFacts(name="", has_topology=False), by_itself=True, nearest=(), resources=(), splits_cores=False
)
"""A node that nobody has told of."""


def class_of(node: NodeFacts, *, has_groups: bool) -> tuple[Hashable, NodeClass]:
    """With the key that nodes of one class share. ``has_groups``: memory of several of its cells belongs together."""
    settings, cells = node.settings, node.cells
    own = [_own_cost(each) for each in cells]
    alone = settings.policy == "best-effort" and len(cells) == 1
    found = NodeClass(
        sample=node,
        by_itself=has_groups
        or not cells
        or alone
        or settings.has_cpu_option(BY_SOCKET)
        or any(_is_odd(each) for each in cells),
        nearest=tuple(cost == min(own) for cost in own),
        resources=tuple(sorted({name for cell in cells for name in cell.available})),
        splits_cores=any(_splits_core(each, settings.threads_per_core or 1) for each in cells),
    )
    key = (
        node.has_topology,
        settings.policy,
        settings.scope,
        settings.most_cells,
        settings.cpu_manager,
        frozenset(settings.cpu_options.items()),
        settings.threads_per_core,
        settings.memory_manager,
        frozenset(settings.topology_options.items()),
        settings.pod_level_managers,
        frozenset(node.allocatable) if node.allocatable is not None else None,
        found.resources,
        frozenset(name for cell in node.cells for name, amount in cell.allocatable.items() if amount > 0),
        found.by_itself,
        found.nearest,
        found.splits_cores,
        node.may_mix_blocks,
        node.hints_everywhere,
    )
    return key, found


def _own_cost(cell: ZoneFacts) -> int:
    return cell.costs.get(cell.id, UNKNOWN_COST)


def _is_odd(cell: ZoneFacts) -> bool:
    """With more than a table holds, or more available than allocatable."""
    if cell.available is not cell.allocatable:
        allocatable = cell.allocatable
        for name, amount in cell.available.items():
            if amount > allocatable.get(name, 0):
                return True
    return (
        max(cell.capacity.values(), default=0) > MOST_AMOUNT or max(cell.allocatable.values(), default=0) > MOST_AMOUNT
    )


def _splits_core(cell: ZoneFacts, threads: int) -> bool:
    if cell.split is not None:
        return cell.split > 0
    return bool((cell.capacity.get(CPU, 0) - cell.allocatable.get(CPU, 0)) % (threads * UNIT))


def _wants_cores(node: NodeFacts, demand: PodDemand) -> bool:
    """The CPU manager looks for whole cores, whatever the topology manager has said."""
    settings = node.settings
    whole = settings.has_cpu_option(WHOLE_CORES) and settings.threads_per_core is not None
    return whole and any(CPU in each.needs for each in demand.containers)


def _may_refuse(node: NodeFacts, demand: PodDemand) -> bool:
    """A manager refuses what it cannot hand out, even where the topology manager lets everything pass."""
    settings = node.settings
    wanted = {name for each in demand.containers for name in each.needs}
    return (
        _wants_cores(node, demand)
        or (is_static(settings.cpu_manager) and CPU in wanted)
        or (is_static(settings.memory_manager) and any(is_memory(name) for name in wanted))
    )


def _is_askable(units: tuple[AlignmentUnit, ...], options: ExactOptions) -> bool:
    return (
        bool(units)
        and all(len(each.needs) <= MOST_RESOURCES for each in units)
        and sum(max(1, each) for each in options.weights.values()) <= MOST_AMOUNT >> 8
    )


def _held(unit: AlignmentUnit) -> AlignmentUnit:
    """With amounts that a table may be asked for: no node of a table has more than that."""
    if max(unit.needs.values()) <= MOST_AMOUNT:
        return unit
    return AlignmentUnit(
        unit.name, unit.kind, {name: min(amount, MOST_AMOUNT + 1) for name, amount in unit.needs.items()}
    )


# -- the best nodes ----------------------------------------------------------------------------------------------------


def best_nodes(names: Sequence[str], scores: Sequence[int], *, uid: str, count: int) -> list[str]:
    """At most ``count`` names, the best first; a score below 0 is none. Only names of equal score are hashed."""
    seed = xxh64_intdigest(uid.encode(), 0)
    chosen: list[str] = []
    for score in sorted({each for each in scores if each >= 0}, reverse=True):
        if len(chosen) >= count:
            break
        equal = [name for name, each in zip(names, scores, strict=True) if each == score]
        if len(equal) > 1:
            hashes = [xxh64_intdigest(name.encode(), seed) for name in equal]
            equal = [name for _, name in nsmallest(count - len(chosen), zip(hashes, equal, strict=True))]
        chosen += equal
    return chosen


# -- results -----------------------------------------------------------------------------------------------------------


class NodeRejection(msgspec.Struct, frozen=True, gc=False):
    """Why a node does not fit."""

    kind: RejectionKind
    message: str


class FitResults(msgspec.Struct, frozen=True, kw_only=True):
    """True until the fleet changes. Every name of the question counts once, in its order."""

    uid: str
    names: Sequence[str]
    has_demand: bool
    """On at least one of the nodes."""
    all_scores: Sequence[int]
    """By name: 0 – 100, or below 0 where the pod does not fit."""
    refusals: Mapping[str, NodeRejection]
    """By name of the node that does not fit."""
    decide: Callable[[str], FitDecision]
    """About one node, with cells and what is taken."""

    @property
    def fitting(self) -> list[str]:
        return [name for name, score in zip(self.names, self.all_scores, strict=True) if score >= 0]

    @property
    def scores(self) -> dict[str, int]:
        """Of nodes that fit."""
        return {name: score for name, score in zip(self.names, self.all_scores, strict=True) if score >= 0}

    @property
    def kinds(self) -> Mapping[RejectionKind, int]:
        """How many nodes each kind of reason rules out."""
        return Counter(each.kind for each in self.refusals.values())

    @property
    def rejected(self) -> dict[str, str]:
        """What to say of each node that does not fit."""
        return {name: each.message for name, each in self.refusals.items()}

    def best(self, count: int = 1) -> list[FitDecision]:
        """The best first; equal ones by the pod's uid."""
        names = best_nodes(self.names, self.all_scores, uid=self.uid, count=count)
        return [self.decide(name) for name in names]

    def decision(self, name: str) -> FitDecision:
        return self.decide(name)


# -- the index ---------------------------------------------------------------------------------------------------------


Place = tuple[int, int]
"""Number of the class and row there."""
_NOWHERE: Final = (0, 0)
_REMEMBERED_PODS: Final = 64
_REMEMBERED_STATES: Final = 20_000


class _Members:
    """The nodes of one class, by row of its table."""

    def __init__(self, kind: NodeClass, table: NodeTable | None) -> None:
        self.kind = kind
        self.table = table
        self.size = 0
        """Rows, with those that wait for the next node."""
        self.unused: list[int] = []

    def row(self) -> int:
        if self.unused:
            return self.unused.pop()
        self.size += 1
        return self.size - 1


class _Answer:
    """Of one class, by row."""

    def __init__(self, scores: list[int], codes: list[int], refusals: list[NodeRejection]) -> None:
        self.scores = scores
        self.codes = codes
        self.refusals = refusals


class NumaNodeIndex:
    """Amounts that are reserved for a node stay, whether it is there or not, until they are released."""

    def __init__(self, options: ExactOptions) -> None:
        self._options = options
        self._sharing = AmountInterner()
        self._nodes: dict[str, NodeFacts] = {}
        self._places: dict[str, Place] = {}
        unknown = _Members(UNKNOWN, None)
        unknown.row()
        self._classes: dict[int, _Members] = {0: unknown}
        self._numbers: dict[Hashable, int] = {}
        self._keys: dict[int, Hashable] = {}
        self._next = 1
        self._reserved: dict[str, dict[int, dict[str, int]]] = {}
        self._groups: dict[str, Counter[ZoneIds]] = {}
        self._states: dict[Hashable, int] = {}
        self._state_of: dict[str, int] = {}
        self._known: OrderedDict[Hashable, dict[int, tuple[int, NodeRejection | None]]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._nodes)

    def names(self) -> Collection[str]:
        return self._nodes.keys()

    def node(self, name: str) -> NodeFacts | None:
        return self._nodes.get(name)

    def put(self, node: NodeFacts) -> NodeFacts:
        """New, or changed. Returns equal facts that share their parts with those of other nodes: keep these."""
        node = self._sharing.node(node)
        self._nodes[node.name] = node
        self._settle(node)
        return node

    def remove(self, name: str) -> None:
        if self._nodes.pop(name, None) is not None:
            self._leave(name)

    def reserve(self, name: str, cells: Mapping[int, Amounts], *, memory_groups: Iterable[ZoneIds] = ()) -> None:
        """Adds to what is reserved: the ``taken`` and ``memory_groups`` of a decision, or its demand on every cell."""
        self._change(name, cells, tuple(memory_groups), 1)

    def release(self, name: str, cells: Mapping[int, Amounts], *, memory_groups: Iterable[ZoneIds] = ()) -> None:
        """Takes back what was reserved with the same values."""
        self._change(name, cells, tuple(memory_groups), -1)

    def reserved(self, name: str) -> Mapping[int, Amounts]:
        return self._reserved.get(name, {})

    def memory_groups(self, name: str) -> Collection[ZoneIds]:
        return self._groups.get(name, {}).keys()

    def free(self, name: str) -> dict[int, Amounts]:
        """What is available without reservations, by cell."""
        node = self._nodes.get(name)
        reserved = self._reserved.get(name, {})
        return {each.id: _without(each.available, reserved.get(each.id)) for each in node.cells} if node else {}

    def decide(self, pod: PodFacts, name: str) -> FitDecision:
        node = self._nodes.get(name) or NodeFacts(name=name, has_topology=False)
        return evaluate(pod, node, self.free(name), self._options, groups=self.memory_groups(name))

    def fit(self, pod: PodFacts, names: Iterable[str]) -> FitResults:
        named = list(dict.fromkeys(names))
        get = self._places.get
        places = [get(name, _NOWHERE) for name in named]
        demands = PodDemandCache(pod)
        verdicts: dict[int, NodeClassDecision] = {}
        answers: dict[int, _Answer] = {}
        few = 2 * len(named) < len(self._places)
        for number in {number for number, _ in places}:
            members = self._classes[number]
            verdict = verdicts[number] = members.kind.verdict(pod, demands, self._options)
            rows = [row for its, row in places if its == number] if few else None
            answers[number] = _answered(members, verdict, rows)
        scores_of = {number: answer.scores for number, answer in answers.items()}
        scores = [scores_of[number][row] for number, row in places]
        refusals: dict[str, NodeRejection] = {}
        if min(scores, default=0) < 0:
            for index, (name, (number, row), score) in enumerate(zip(named, places, scores, strict=True)):
                if score == REFUSED:
                    answer = answers[number]
                    refusals[name] = answer.refusals[answer.codes[row]]
                elif score == UNDECIDED:
                    scores[index], refusal = self._by_itself(pod, name, number, verdicts[number].demand)
                    if refusal is not None:
                        refusals[name] = refusal
        return FitResults(
            uid=pod.uid,
            names=named,
            has_demand=any(verdict.demand for verdict in verdicts.values()),
            all_scores=scores,
            refusals=refusals,
            decide=lambda name: self.decide(pod, name),
        )

    def _by_itself(self, pod: PodFacts, name: str, number: int, demand: PodDemand) -> tuple[int, NodeRejection | None]:
        """Nodes in the same state are evaluated once for all pods with the same demand."""
        # A pod that is aligned as a whole is still given its cells container by container.
        key = _shape(demand.units), _shape(demand.containers)
        state = self._state(name, number)
        known = self._known.pop(key, None)
        if known is None:
            if len(self._known) >= _REMEMBERED_PODS:
                self._known.popitem(last=False)
            known = {}
        self._known[key] = known
        found = known.get(state)
        if found is None:
            decision = evaluate(
                pod, self._nodes[name], self.free(name), self._options, demand=demand, groups=self.memory_groups(name)
            )
            refusal = None if decision.fits else NodeRejection(decision.kind, decision.message)
            found = known[state] = (REFUSED if refusal else decision.score, refusal)
        return found

    def _state(self, name: str, number: int) -> int:
        state = self._state_of.get(name)
        if state is None:
            if len(self._states) >= _REMEMBERED_STATES:
                self._states.clear()
                self._state_of.clear()
                self._known.clear()
            free = self.free(name)
            cells = tuple(
                (
                    each.id,
                    tuple(each.capacity.items()),
                    tuple(each.allocatable.values()),
                    tuple(free[each.id].items()),
                    tuple(each.costs.items()),
                    each.memory_group,
                    each.socket,
                    each.split,
                )
                for each in self._nodes[name].cells
            )
            key = (number, cells, frozenset(self.memory_groups(name)))
            state = self._state_of[name] = self._states.setdefault(key, len(self._states))
        return state

    def _settle(self, node: NodeFacts) -> None:
        """Into the class that it now belongs to, and into its row."""
        groups = any(len(each.memory_group) > 1 for each in node.cells) or bool(self._groups.get(node.name))
        key, kind = class_of(node, has_groups=groups)
        place = self._places.get(node.name)
        number = self._numbers.get(key)
        if number is None or place is None or place[0] != number:
            if place is not None:
                self._leave(node.name)
                number = self._numbers.get(key)
            if number is None:
                number = self._open(key, kind)
            place = self._places[node.name] = number, self._classes[number].row()
        table = self._classes[number].table
        if table is not None:
            reserved = self._reserved.get(node.name, {})
            free = [_without(each.available, reserved.get(each.id)) for each in node.cells]
            # Of CPUs a kubelet counts those that the system keeps, too.
            totals = [{**each.allocatable, CPU: each.capacity.get(CPU, 0)} for each in node.cells]
            table.write(place[1], free, totals)
        self._state_of.pop(node.name, None)

    def _open(self, key: Hashable, kind: NodeClass) -> int:
        number, self._next = self._next, self._next + 1
        by_groups = kind.sample.settings.policy == "restricted"
        table = None if kind.by_itself else NodeTable(len(kind.sample.cells), kind.resources, by_groups=by_groups)
        self._classes[number] = _Members(kind, table)
        self._numbers[key], self._keys[number] = number, key
        return number

    def _leave(self, name: str) -> None:
        number, row = self._places.pop(name)
        members = self._classes[number]
        members.unused.append(row)
        if len(members.unused) == members.size:
            del self._classes[number], self._numbers[self._keys.pop(number)]
        self._state_of.pop(name, None)

    def _change(self, name: str, cells: Mapping[int, Amounts], groups: tuple[ZoneIds, ...], sign: int) -> None:
        of_node = self._reserved.setdefault(name, {})
        for cell, amounts in cells.items():
            own = of_node.setdefault(cell, {})
            for resource, amount in amounts.items():
                own[resource] = own.get(resource, 0) + sign * amount
                if own[resource] <= 0:
                    del own[resource]
            if not own:
                del of_node[cell]
        if not of_node:
            del self._reserved[name]
        self._follow(name, cells)
        if groups:
            self._group(name, groups, sign)

    def _follow(self, name: str, cells: Mapping[int, Amounts]) -> None:
        """Its row, where these amounts are concerned."""
        node = self._nodes.get(name)
        if node is None:
            return
        self._state_of.pop(name, None)
        number, row = self._places[name]
        table = self._classes[number].table
        if table is None:
            return
        reserved = self._reserved.get(name, {})
        for position, each in enumerate(node.cells):
            if each.id in cells:
                own = reserved.get(each.id, {})
                for resource in cells[each.id]:
                    amount = each.available.get(resource, 0) - own.get(resource, 0)
                    table.change(row, position, resource, max(0, amount))

    def _group(self, name: str, groups: tuple[ZoneIds, ...], sign: int) -> None:
        counted = self._groups.setdefault(name, Counter())
        for each in groups:
            counted[each] += sign
            if counted[each] <= 0:
                del counted[each]
        if not counted:
            del self._groups[name]
        if name in self._nodes:
            self._settle(self._nodes[name])


def _answered(members: _Members, verdict: NodeClassDecision, rows: list[int] | None) -> _Answer:
    """``rows`` None: of all."""
    if (decision := verdict.decision) is not None:
        score = decision.score if decision.fits else REFUSED
        refusal = NodeRejection(decision.kind, decision.message)
        return _Answer([score] * members.size, [0] * members.size, [refusal])
    if verdict.question is None or members.table is None:
        return _Answer([UNDECIDED] * members.size, [], [])
    outcome = members.table.place(verdict.question, rows)
    scores, codes = outcome.scores, outcome.codes
    if rows is not None:
        scores, codes = [REFUSED] * members.size, [0] * members.size
        for row, score, code in zip(rows, outcome.scores, outcome.codes, strict=True):
            scores[row], codes[row] = score, code
    if verdict.refused != REFUSED:
        return _Answer([verdict.refused if score == REFUSED else score for score in scores], codes, [])
    sample, units = members.kind.sample, verdict.demand.units
    decisions = [rejected_unit(sample, units[each.unit], each.failure) for each in outcome.reasons]
    return _Answer(scores, codes, [NodeRejection(each.kind, each.message) for each in decisions])


def _shape(units: Iterable[AlignmentUnit]) -> Hashable:
    return tuple((each.kind, tuple(each.needs.items())) for each in units)


def _without(available: Amounts, reserved: Amounts | None) -> Amounts:
    if not reserved:
        return available
    return {name: max(0, amount - reserved.get(name, 0)) for name, amount in available.items()}
