"""All nodes with what is reserved on them, and what each would say of a pod: as ``exact.evaluate``, but of all at once.

Nodes that are alike (``classes``) share a table (``arrays`` or ``lists``). What a table cannot say, of sets of several
cells above all, is evaluated node by node, once for nodes in the same state. Mutable, for one task; it reads no clock.
"""

from collections import Counter, OrderedDict
from collections.abc import Collection, Hashable, Iterable, Mapping
from typing import Final

from polyarch.numa.scheduling.exact.checks import rejected_unit
from polyarch.numa.scheduling.exact.demand import Demand, Demands, Unit
from polyarch.numa.scheduling.exact.evaluate import evaluate
from polyarch.numa.scheduling.exact.options import ExactOptions
from polyarch.numa.scheduling.exact.room import Cells
from polyarch.numa.scheduling.facts.amounts import CPU, Amounts
from polyarch.numa.scheduling.facts.decision import Decision
from polyarch.numa.scheduling.facts.nodes import NodeFacts
from polyarch.numa.scheduling.facts.pods import PodFacts
from polyarch.numa.scheduling.fleet.classes import UNKNOWN, NodeClass, Verdict, class_of
from polyarch.numa.scheduling.fleet.columns import FASTEST, MakesTable
from polyarch.numa.scheduling.fleet.fits import Fits, Refusal
from polyarch.numa.scheduling.fleet.question import REFUSED, UNDECIDED, Table
from polyarch.numa.scheduling.fleet.sharing import Sharing

Place = tuple[int, int]
"""Number of the class and row there."""
_NOWHERE: Final = (0, 0)
_REMEMBERED_PODS: Final = 64
_REMEMBERED_STATES: Final = 20_000


class _Members:
    """The nodes of one class, by row of its table."""

    def __init__(self, kind: NodeClass, table: Table | None) -> None:
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

    def __init__(self, scores: list[int], codes: list[int], refusals: list[Refusal]) -> None:
        self.scores = scores
        self.codes = codes
        self.refusals = refusals


class Fleet:
    """Amounts that are reserved for a node stay, whether it is there or not, until they are released."""

    def __init__(self, options: ExactOptions, *, table: MakesTable = FASTEST) -> None:
        self._options = options
        self._table = table
        self._sharing = Sharing()
        self._nodes: dict[str, NodeFacts] = {}
        self._places: dict[str, Place] = {}
        unknown = _Members(UNKNOWN, None)
        unknown.row()
        self._classes: dict[int, _Members] = {0: unknown}
        self._numbers: dict[Hashable, int] = {}
        self._keys: dict[int, Hashable] = {}
        self._next = 1
        self._reserved: dict[str, dict[int, dict[str, int]]] = {}
        self._groups: dict[str, Counter[Cells]] = {}
        self._states: dict[Hashable, int] = {}
        self._state_of: dict[str, int] = {}
        self._known: OrderedDict[Hashable, dict[int, tuple[int, Refusal | None]]] = OrderedDict()

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

    def reserve(self, name: str, cells: Mapping[int, Amounts], *, memory_groups: Iterable[Cells] = ()) -> None:
        """Adds to what is reserved: the ``taken`` and ``memory_groups`` of a decision, or its demand on every cell."""
        self._change(name, cells, tuple(memory_groups), 1)

    def release(self, name: str, cells: Mapping[int, Amounts], *, memory_groups: Iterable[Cells] = ()) -> None:
        """Takes back what was reserved with the same values."""
        self._change(name, cells, tuple(memory_groups), -1)

    def reserved(self, name: str) -> Mapping[int, Amounts]:
        return self._reserved.get(name, {})

    def memory_groups(self, name: str) -> Collection[Cells]:
        return self._groups.get(name, {}).keys()

    def free(self, name: str) -> dict[int, Amounts]:
        """What is available without reservations, by cell (NS-100)."""
        node = self._nodes.get(name)
        reserved = self._reserved.get(name, {})
        return {each.id: _without(each.available, reserved.get(each.id)) for each in node.cells} if node else {}

    def decide(self, pod: PodFacts, name: str) -> Decision:
        node = self._nodes.get(name) or NodeFacts(name=name, has_topology=False)
        return evaluate(pod, node, self.free(name), self._options, groups=self.memory_groups(name))

    def fit(self, pod: PodFacts, names: Iterable[str]) -> Fits:
        named = list(dict.fromkeys(names))
        get = self._places.get
        places = [get(name, _NOWHERE) for name in named]
        demands = Demands(pod)
        verdicts: dict[int, Verdict] = {}
        answers: dict[int, _Answer] = {}
        few = 2 * len(named) < len(self._places)
        for number in {number for number, _ in places}:
            members = self._classes[number]
            verdict = verdicts[number] = members.kind.verdict(pod, demands, self._options)
            rows = [row for its, row in places if its == number] if few else None
            answers[number] = _answered(members, verdict, rows)
        scores_of = {number: answer.scores for number, answer in answers.items()}
        scores = [scores_of[number][row] for number, row in places]
        refusals: dict[str, Refusal] = {}
        if min(scores, default=0) < 0:
            for index, (name, (number, row), score) in enumerate(zip(named, places, scores, strict=True)):
                if score == REFUSED:
                    answer = answers[number]
                    refusals[name] = answer.refusals[answer.codes[row]]
                elif score == UNDECIDED:
                    scores[index], refusal = self._by_itself(pod, name, number, verdicts[number].demand)
                    if refusal is not None:
                        refusals[name] = refusal
        return Fits(
            uid=pod.uid,
            names=named,
            has_demand=any(verdict.demand for verdict in verdicts.values()),
            all_scores=scores,
            refusals=refusals,
            decide=lambda name: self.decide(pod, name),
        )

    def _by_itself(self, pod: PodFacts, name: str, number: int, demand: Demand) -> tuple[int, Refusal | None]:
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
            refusal = None if decision.fits else Refusal(decision.kind, decision.message)
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
            # Of CPUs a kubelet counts those that the system keeps, too (NS-060).
            totals = [{**each.allocatable, CPU: each.capacity.get(CPU, 0)} for each in node.cells]
            table.write(place[1], free, totals)
        self._state_of.pop(node.name, None)

    def _open(self, key: Hashable, kind: NodeClass) -> int:
        number, self._next = self._next, self._next + 1
        by_groups = kind.sample.settings.policy == "restricted"
        table = None if kind.by_itself else self._table(len(kind.sample.cells), kind.resources, by_groups=by_groups)
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

    def _change(self, name: str, cells: Mapping[int, Amounts], groups: tuple[Cells, ...], sign: int) -> None:
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

    def _group(self, name: str, groups: tuple[Cells, ...], sign: int) -> None:
        counted = self._groups.setdefault(name, Counter())
        for each in groups:
            counted[each] += sign
            if counted[each] <= 0:
                del counted[each]
        if not counted:
            del self._groups[name]
        if name in self._nodes:
            self._settle(self._nodes[name])


def _answered(members: _Members, verdict: Verdict, rows: list[int] | None) -> _Answer:
    """``rows`` None: of all."""
    if (decision := verdict.decision) is not None:
        score = decision.score if decision.fits else REFUSED
        refusal = Refusal(decision.kind, decision.message)
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
    return _Answer(scores, codes, [Refusal(each.kind, each.message) for each in decisions])


def _shape(units: Iterable[Unit]) -> Hashable:
    return tuple((each.kind, tuple(each.needs.items())) for each in units)


def _without(available: Amounts, reserved: Amounts | None) -> Amounts:
    if not reserved:
        return available
    return {name: max(0, amount - reserved.get(name, 0)) for name, amount in available.items()}
