"""The free amounts of nodes that are alike, as one numpy array, and what they say of one pod all at once.

The array is of 64-bit numbers, resources × zones × nodes, so that each step works on runs of memory. Amounts are below
a hundredth of what 64 bits hold, which the node classes see to, so that nothing overflows. The only module that loads
numpy (extra ``numa``), which only the extender needs. Pure.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from polyarch.numa.fit.demand import AlignmentUnit
from polyarch.numa.fit.evaluate import balanced
from polyarch.numa.fit.facts import Amounts, RejectionKind, Strategy, is_memory
from polyarch.numa.fit.zones import AlignmentFailure, resource_groups
from polyarch.quantity import MOST

Numbers = NDArray[np.int64]
Truths = NDArray[np.bool_]
_FIRST_ROWS: Final = 16
_NEAR: Final = 1e-6
"""A balance this close to a whole number is computed again, without floats."""
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


class NodeTable:
    """Free amounts of nodes with the same number of zones and the same resources, by row."""

    def __init__(self, cells: int, resources: Sequence[str], *, by_groups: bool) -> None:
        """``by_groups``: queries will be by groups."""
        self._cells = cells
        self._index = {name: number for number, name in enumerate(resources)}
        self._free: Numbers = np.zeros((len(resources), cells, _FIRST_ROWS), np.int64)
        self._totals: Numbers | None = np.zeros_like(self._free) if by_groups else None
        self._rows = 0

    def write(self, row: int, free: Sequence[Amounts], totals: Sequence[Amounts]) -> None:
        """Amounts by zone, ascending; a row may be new: the one after the last."""
        if row >= self._free.shape[2]:
            self._free = _wider(self._free)
            self._totals = _wider(self._totals) if self._totals is not None else None
        self._rows = max(self._rows, row + 1)
        self._free[:, :, row] = self._numbers(free)
        if self._totals is not None:
            self._totals[:, :, row] = self._numbers(totals)

    def change(self, row: int, cell: int, resource: str, amount: int) -> None:
        """``cell`` by position; the resource may be one that no zone lists."""
        number = self._index.get(resource)
        if number is not None:
            self._free[number, cell, row] = amount

    def place(self, question: TableQuery, rows: Sequence[int] | None) -> TableResult:
        """``rows`` None: all rows, also those that nobody uses any more."""
        names = {name for unit in question.units for name in unit.needs}
        wanted = None if rows is None else np.array(rows, np.intp)
        # Copies, since units take from them.
        free = {name: self._column(self._free, name, wanted).copy() for name in names}
        totals = {}
        if question.by_groups and self._totals is not None:
            totals = {name: self._column(self._totals, name, wanted) for name in names}
        return _Placing(question, free, totals).outcome()

    def _numbers(self, cells: Sequence[Amounts]) -> Numbers:
        flat = [amounts.get(name, 0) for name in self._index for amounts in cells]
        return np.array(flat, np.int64).reshape(len(self._index), self._cells)

    def _column(self, amounts: Numbers, name: str, wanted: NDArray[np.intp] | None) -> Numbers:
        number = self._index.get(name)
        if number is None:
            return np.zeros((self._cells, self._rows if wanted is None else len(wanted)), np.int64)
        whole: Numbers = amounts[number]
        return whole[:, : self._rows] if wanted is None else whole.take(wanted, axis=1)


def _wider(amounts: Numbers) -> Numbers:
    return np.concatenate((amounts, np.zeros_like(amounts)), axis=2)


class _Placing:
    """One question: the units take their cells one after the other, on all nodes at once."""

    def __init__(self, question: TableQuery, free: dict[str, Numbers], totals: dict[str, Numbers]) -> None:
        self._question = question
        self._free = free
        self._totals = totals
        self._reusable: dict[str, Numbers] = {}
        first = next(iter(free.values()))
        self._cells, self._count = first.shape
        self._columns: Numbers = np.arange(self._count)
        self._alive: Truths = np.ones(self._count, np.bool_)
        self._undecided: Truths = np.zeros(self._count, np.bool_)
        self._nearest: Truths = np.ones(self._count, np.bool_)
        self._total: Numbers = np.zeros(self._count, np.int64)
        self._codes: Numbers = np.zeros(self._count, np.int64)
        self._reasons: list[UnitFailure] = []

    def outcome(self) -> TableResult:
        for number in range(len(self._question.units)):
            self._unit(number)
        score = self._total // len(self._question.units)
        if self._question.strategy == "LeastNUMANodes":
            score = np.where(self._nearest, *self._question.in_cells)
        score[~self._alive] = REFUSED
        score[self._undecided] = UNDECIDED
        return TableResult(score.tolist(), self._codes.tolist(), self._reasons)

    def _unit(self, number: int) -> None:
        unit = self._question.units[number]
        room = {name: self._room(name) for name in unit.needs}
        able = [self._able(group, room) for group in self._question.groups(unit)]
        if self._question.by_groups:
            self._pass_on(unit)
        lowest = self._lowest(able)
        refused = self._alive & (lowest == self._cells)
        if refused.any():
            self._refuse(number, np.flatnonzero(refused), able)
        # The numbers of nodes that are out go on as those of the last cell, and nobody looks at them any more.
        np.minimum(lowest, self._cells - 1, out=lowest)
        places = lowest * self._count + self._columns
        self._score(unit, lowest, {name: have.reshape(-1).take(places) for name, have in room.items()})
        if number + 1 < len(self._question.units):
            self._take(unit, places)

    def _lowest(self, able: list[Truths]) -> Numbers:
        """By position; the number of cells where none will do: it is how many cells come before the first that will."""
        passed: Truths = np.ones(self._count, np.bool_)
        count = np.zeros(self._count, np.int8)
        for cell in range(self._cells):
            will_do = able[0][cell]
            for other in able[1:]:
                will_do = will_do & other[cell]
            passed &= ~will_do
            count += passed
        return count.astype(np.int64)

    def _room(self, name: str) -> Numbers:
        reusable = self._reusable.get(name)
        return self._free[name] if reusable is None else self._free[name] + reusable

    def _able(self, group: Amounts, room: dict[str, Numbers]) -> Truths:
        found = [self._enough(name, amount, room[name]) for name, amount in group.items()]
        for other in found[1:]:
            found[0] &= other
        return found[0]

    def _enough(self, name: str, amount: int, have: Numbers) -> Truths:
        enough: Truths = have >= amount
        if name in self._reusable and pins(name):
            held = self._reusable[name] > 0
            enough &= held | ~np.logical_or.reduce(held, axis=0)
        return enough

    def _pass_on(self, unit: AlignmentUnit) -> None:
        """What needs more than one cell is for others to say."""
        for group in self._question.groups(unit):
            one = np.ones((self._cells, self._count), np.bool_)
            for name, amount in group.items():
                one &= self._totals[name] >= amount
            enough = np.logical_or.reduce(one, axis=0)
            self._undecided |= self._alive & ~enough
            self._alive &= enough

    def _refuse(self, number: int, which: NDArray[np.intp], able: list[Truths]) -> None:
        """Each node's reason as bits, and each reason once."""
        groups = [tuple(group) for group in self._question.groups(self._question.units[number])]
        partial = 1 << len(groups)
        everything = partial - 1
        short: Numbers = np.zeros(len(which), np.int64)
        somewhere: Numbers = np.full(len(which), partial | (everything if self._question.by_groups else 0), np.int64)
        for bit, cells in enumerate(able):
            short |= ~np.logical_or.reduce(cells, axis=0)[which] * np.int64(1 << bit)
            somewhere |= ~np.logical_and.reduce(cells, axis=0)[which] * np.int64(1 << bit)
        bits = np.where(short > 0, short, somewhere)
        told = np.flatnonzero(np.bincount(bits))
        numbers: Numbers = np.zeros(2 * partial, np.int64)
        numbers[told] = np.arange(len(told)) + len(self._reasons)
        self._codes[which] = numbers[bits]
        self._alive[which] = False
        for each in told.tolist():
            resources = sorted(name for bit, group in enumerate(groups) if each >> bit & 1 for name in group)
            kind: RejectionKind = "no-common-cell" if each & partial else "short"
            self._reasons.append(UnitFailure(number, AlignmentFailure(kind, tuple(resources))))

    def _score(self, unit: AlignmentUnit, cells: Numbers, have: dict[str, Numbers]) -> None:
        """Adds what the unit earns with ``have`` where it goes."""
        question = self._question
        if question.strategy == "LeastNUMANodes":
            self._nearest &= np.array(question.nearest)[cells]
            return
        # A node that is out may have less than is asked for.
        there = {name: np.maximum(have[name], amount) for name, amount in unit.needs.items()}
        if question.strategy == "BalancedAllocation":
            self._total += _balanced(unit.needs, there)
            return
        earned: Numbers = np.zeros(self._count, np.int64)
        weights = 0
        for name, amount in unit.needs.items():
            has, weight = there[name], question.weight(name)
            earned += (has - amount if question.strategy == "LeastAllocated" else amount) * 100 // has * weight
            weights += weight
        self._total += earned // weights

    def _take(self, unit: AlignmentUnit, places: Numbers) -> None:
        for name, amount in unit.needs.items():
            free = self._free[name].reshape(-1)
            reusable = self._reusable.get(name)
            if reusable is None:
                free[places] -= amount
            else:
                flat = reusable.reshape(-1)
                again = np.minimum(flat[places], amount)
                flat[places] -= again
                free[places] -= amount - again
            if unit.ends:
                if reusable is None:
                    reusable = self._reusable[name] = np.zeros_like(self._free[name])
                reusable.reshape(-1)[places] += amount


def _balanced(needs: Amounts, there: dict[str, Numbers]) -> Numbers:
    """The balance of exact fractions: floats, and whole numbers where floats leave a doubt."""
    count = len(next(iter(there.values())))
    if len(needs) == 1:
        return np.full(count, 100, np.int64)
    shares = [amount / there[name] for name, amount in needs.items()]
    mean = sum(shares) / len(shares)
    variance = sum((share - mean) ** 2 for share in shares) / (len(shares) - 1)
    value = (1 - variance) * 100
    found: Numbers = np.floor(value).astype(np.int64)
    doubtful = np.flatnonzero(np.abs(value - np.rint(value)) < _NEAR)
    known: dict[tuple[int, ...], int] = {}
    amounts = zip(*(there[name][doubtful].tolist() for name in needs), strict=True)
    for place, has in zip(doubtful.tolist(), amounts, strict=True):
        if has not in known:
            known[has] = balanced(needs, dict(zip(needs, has, strict=True)))
        found[place] = known[has]
    return found


def pins(resource: str) -> bool:
    """What is left of it by an init container holds later ones in its cell."""
    return not is_memory(resource)
