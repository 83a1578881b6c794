"""What a table of nodes is asked about one pod, and what it answers: the seam between tables and the rest.

A table holds the free amounts of nodes that are alike (``classes``): a pod's demand is the same on each of them.
There are two kinds of tables with equal answers: ``arrays`` and ``lists``. Pure."""

from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Protocol

import msgspec

from polyarch.numa.fit.demand import AlignmentUnit
from polyarch.numa.fit.evaluate import balanced
from polyarch.numa.fit.facts import Amounts, Strategy, is_memory
from polyarch.numa.fit.zones import AlignmentFailure, resource_groups
from polyarch.quantity import MOST

REFUSED: Final = -1
"""In place of a score: the pod does not fit."""
UNDECIDED: Final = -2
"""In place of a score: this table cannot say."""
MOST_AMOUNT: Final = MOST // 128
"""Of what a table holds and is asked: a hundred times as much is still a number of 64 bits."""
MOST_RESOURCES: Final = 12
"""Of one unit: tables count the reasons by sets of them."""


class TableQuery(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """One pod for one table. Each unit goes to the lowest cell that has room for it, and is scored there."""

    units: tuple[AlignmentUnit, ...]
    strategy: Strategy
    weights: Mapping[str, int] = {}
    most_cells: int
    nearest: tuple[bool, ...]
    """By cell: no other is nearer to itself than this one."""
    by_groups: bool = False
    """As policy ``restricted`` does, where each group of resources needs one cell; else undecided."""

    @property
    def key(self) -> tuple[object, ...]:
        """Equal where the answers of one table are."""
        units = tuple((each.kind, tuple(each.needs.items())) for each in self.units)
        return units, self.strategy, tuple(self.weights.items()), self.most_cells, self.nearest, self.by_groups

    def groups(self, unit: AlignmentUnit) -> list[Amounts]:
        """What is counted together."""
        if self.by_groups:
            return resource_groups(unit.needs)
        return [{name: amount} for name, amount in unit.needs.items()]

    def weight(self, resource: str) -> int:
        return max(1, self.weights.get(resource, 1))

    @property
    def in_cells(self) -> tuple[int, int]:
        """The score of units in one cell each: all of them in nearest ones, or not."""
        step = 100 // self.most_cells
        return max(0, 100 - step + step // 2), max(0, 100 - step)


class UnitFailure(msgspec.Struct, frozen=True, gc=False):
    """Why a unit has no cell."""

    unit: int
    failure: AlignmentFailure


class TableResult(msgspec.Struct, frozen=True, gc=False):
    """By position in the rows that were asked for, or by row."""

    scores: list[int]
    """0 – 100, :data:`REFUSED` or :data:`UNDECIDED`."""
    codes: list[int]
    """Where refused: the index of the reason."""
    reasons: list[UnitFailure]


class Table(Protocol):
    """Free amounts of nodes with the same number of cells, by row."""

    def write(self, row: int, free: Sequence[Amounts], totals: Sequence[Amounts]) -> None:
        """By cell, ascending; a row may be new: the one after the last."""

    def change(self, row: int, cell: int, resource: str, amount: int) -> None:
        """``cell`` by position; the resource may be one that no cell lists."""

    def place(self, question: TableQuery, rows: Sequence[int] | None) -> TableResult:
        """None: all rows, also those that nobody uses any more."""


def pins(resource: str) -> bool:
    """What is left of it by an init container holds later ones in its cell."""
    return not is_memory(resource)


# -- A table in plain Python, where numpy is not installed: the same answers as ``arrays``, node by node.


Row = dict[str, list[int]]
"""Amounts by resource and cell."""
_REMEMBERED: Final = 32
"""Questions of one table."""


class ListTable:
    """See :class:`~polyarch.numa.fit.node_table.Table`."""

    def __init__(self, cells: int, resources: Sequence[str], *, by_groups: bool) -> None:
        self._cells = cells
        self._resources = tuple(resources)
        self._by_groups = by_groups
        self._free: list[Row] = []
        self._totals: list[Row] = []
        self._changed: dict[int, int] = {}
        """Row to the number of the change, in the order of changes."""
        self._changes = 0
        self._known: OrderedDict[tuple[object, ...], _Known] = OrderedDict()

    def write(self, row: int, free: Sequence[Amounts], totals: Sequence[Amounts]) -> None:
        if row == len(self._free):
            self._free.append({})
            self._totals.append({})
        self._free[row] = {name: [amounts.get(name, 0) for amounts in free] for name in self._resources}
        if self._by_groups:
            self._totals[row] = {name: [amounts.get(name, 0) for amounts in totals] for name in self._resources}
        self._note(row)

    def change(self, row: int, cell: int, resource: str, amount: int) -> None:
        column = self._free[row].get(resource)
        if column is not None:
            column[cell] = amount
            self._note(row)

    def place(self, question: TableQuery, rows: Sequence[int] | None) -> TableResult:
        known = self._answers(question)
        placing = _ListPlacing(question, self._cells, known)
        scores, codes, free, totals = known.scores, known.codes, self._free, self._totals
        wanted: Iterable[int] = range(len(free)) if rows is None else rows
        for row in wanted:
            if scores[row] is None:
                scores[row], codes[row] = placing.node(free[row], totals[row])
        if rows is None:
            return TableResult(list(scores), list(codes), known.reasons)  # type: ignore[arg-type]
        return TableResult([scores[row] for row in rows], [codes[row] for row in rows], known.reasons)  # type: ignore[misc]

    def _note(self, row: int) -> None:
        self._changes += 1
        self._changed.pop(row, None)
        self._changed[row] = self._changes

    def _answers(self, question: TableQuery) -> "_Known":
        """What is known of this question, without the rows that have changed."""
        known = self._known.pop(question.key, None)
        if known is None:
            known = _Known()
            while len(self._known) >= _REMEMBERED:
                self._known.popitem(last=False)
        self._known[question.key] = known
        for row in reversed(self._changed):
            if self._changed[row] <= known.changes:
                break
            if row < len(known.scores):
                known.scores[row] = None
        missing = len(self._free) - len(known.scores)
        known.scores += [None] * missing
        known.codes += [0] * missing
        known.changes = self._changes
        return known


class _Known:
    """Answers to one question, by row."""

    def __init__(self) -> None:
        self.changes = 0
        self.scores: list[int | None] = []
        self.codes: list[int] = []
        self.reasons: list[UnitFailure] = []
        self.numbers: dict[UnitFailure, int] = {}


class _ListPlacing:
    """One question, node by node. A node's own columns are written to for a moment: copies would cost more."""

    def __init__(self, question: TableQuery, cells: int, known: _Known) -> None:
        self._question = question
        self._cells = range(cells)
        self._known = known
        self._units = list(enumerate(question.units))
        self._needs = [
            [(name, amount, question.weight(name)) for name, amount in unit.needs.items()] for unit in question.units
        ]
        self._weights = [sum(weight for _, _, weight in needs) for needs in self._needs]
        self._nothing = [0] * cells
        self._balances: dict[tuple[int, ...], int] = {}

    def node(self, free: Row, totals: Row) -> tuple[int, int]:
        """Score and code."""
        taken: list[tuple[list[int], int, int]] = []
        answer = self._placed(free, totals, taken)
        for column, cell, amount in taken:
            column[cell] += amount
        return answer

    def _placed(self, free: Row, totals: Row, taken: list[tuple[list[int], int, int]]) -> tuple[int, int]:
        reusable: Row = {}
        cells: list[int] = []
        earned = 0
        last = len(self._units) - 1
        for number, unit in self._units:
            if self._question.by_groups and not self._each_in_one(unit, totals):
                return UNDECIDED, 0
            columns = [
                (self._room(free, name, reusable), amount, weight) for name, amount, weight in self._needs[number]
            ]
            cell = self._lowest(columns, unit, reusable)
            if cell < 0:
                return REFUSED, self._code(self._reason(number, free, reusable))
            cells.append(cell)
            earned += self._earned(number, cell, columns)
            if number < last:
                self._take(unit, cell, free, reusable, taken)
        if self._question.strategy == "LeastNUMANodes":
            near = all(self._question.nearest[cell] for cell in cells)
            return self._question.in_cells[0 if near else 1], 0
        return earned // len(self._units), 0

    def _room(self, free: Row, name: str, reusable: Row) -> list[int]:
        column = free.get(name, self._nothing)
        if name not in reusable:
            return column
        return [one + other for one, other in zip(column, reusable[name], strict=True)]

    def _lowest(self, columns: list[tuple[list[int], int, int]], unit: AlignmentUnit, reusable: Row) -> int:
        for cell in self._cells:
            for have, amount, _ in columns:
                if have[cell] < amount:
                    break
            else:
                if not reusable or all(_may_be(name, cell, reusable) for name in unit.needs):
                    return cell
        return REFUSED

    def _earned(self, number: int, cell: int, columns: list[tuple[list[int], int, int]]) -> int:
        """Written out for the strategies that say something of each resource, as there are many nodes."""
        strategy = self._question.strategy
        score = 0
        if strategy == "LeastAllocated":
            for have, amount, weight in columns:
                score += (have[cell] - amount) * 100 // have[cell] * weight
        elif strategy == "MostAllocated":
            for have, amount, weight in columns:
                score += amount * 100 // have[cell] * weight
        elif strategy == "BalancedAllocation":
            return self._balance(number, tuple(have[cell] for have, _, _ in columns))
        return score // self._weights[number]

    def _balance(self, number: int, there: tuple[int, ...]) -> int:
        key = (number, *there)
        found = self._balances.get(key)
        if found is None:
            needs = self._question.units[number].needs
            found = self._balances[key] = balanced(needs, dict(zip(needs, there, strict=True)))
        return found

    def _each_in_one(self, unit: AlignmentUnit, totals: Row) -> bool:
        return all(
            any(
                all(totals.get(name, self._nothing)[cell] >= amount for name, amount in group.items())
                for cell in self._cells
            )
            for group in self._question.groups(unit)
        )

    def _reason(self, number: int, free: Row, reusable: Row) -> UnitFailure:
        short: list[str] = []
        partial: list[str] = []
        for group in self._question.groups(self._question.units[number]):
            room = [(name, amount, self._room(free, name, reusable)) for name, amount in group.items()]
            able = [
                all(have[cell] >= amount and _may_be(name, cell, reusable) for name, amount, have in room)
                for cell in self._cells
            ]
            if not any(able):
                short += group
            if self._question.by_groups or not all(able):
                partial += group
        if short:
            return UnitFailure(number, AlignmentFailure("short", tuple(sorted(short))))
        return UnitFailure(number, AlignmentFailure("no-common-cell", tuple(sorted(partial))))

    def _code(self, reason: UnitFailure) -> int:
        known = self._known
        code = known.numbers.setdefault(reason, len(known.reasons))
        if code == len(known.reasons):
            known.reasons.append(reason)
        return code

    def _take(
        self, unit: AlignmentUnit, cell: int, free: Row, reusable: Row, taken: list[tuple[list[int], int, int]]
    ) -> None:
        for name, amount in unit.needs.items():
            again = reusable.get(name)
            used = min(again[cell], amount) if again else 0
            free[name][cell] -= amount - used
            taken.append((free[name], cell, amount - used))
            if again:
                again[cell] -= used
            if unit.ends:
                reusable.setdefault(name, self._nothing.copy())[cell] += amount


def _may_be(name: str, cell: int, reusable: Row) -> bool:
    held = reusable.get(name)
    return held is None or not pins(name) or held[cell] > 0 or not any(held)
