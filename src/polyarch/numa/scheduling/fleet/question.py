"""What a table of nodes is asked about one pod, and what it answers: the seam between tables and the rest.

A table holds the free amounts of nodes that are alike (``classes``): a pod's demand is the same on each of them.
There are two kinds of tables with equal answers: ``arrays`` and ``lists``. Pure.
"""

from collections.abc import Mapping, Sequence
from typing import Final, Protocol

import msgspec

from polyarch.numa.scheduling.exact.demand import Unit
from polyarch.numa.scheduling.exact.options import Strategy
from polyarch.numa.scheduling.exact.several import groups
from polyarch.numa.scheduling.exact.single import Failure
from polyarch.numa.scheduling.facts.amounts import Amounts, is_memory
from polyarch.quantity import MOST

REFUSED: Final = -1
"""In place of a score: the pod does not fit."""
UNDECIDED: Final = -2
"""In place of a score: this table cannot say."""
MOST_AMOUNT: Final = MOST // 128
"""Of what a table holds and is asked: a hundred times as much is still a number of 64 bits."""
MOST_RESOURCES: Final = 12
"""Of one unit: tables count the reasons by sets of them."""


class Question(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """One pod for one table. Each unit goes to the lowest cell that has room for it, and is scored there."""

    units: tuple[Unit, ...]
    strategy: Strategy
    weights: Mapping[str, int] = {}
    most_cells: int
    nearest: tuple[bool, ...]
    """By cell: no other is nearer to itself than this one (NS-034)."""
    by_groups: bool = False
    """As policy ``restricted`` does (NS-060, NS-061), where each group of resources needs one cell; else undecided."""

    @property
    def key(self) -> tuple[object, ...]:
        """Equal where the answers of one table are."""
        units = tuple((each.kind, tuple(each.needs.items())) for each in self.units)
        return units, self.strategy, tuple(self.weights.items()), self.most_cells, self.nearest, self.by_groups

    def groups(self, unit: Unit) -> list[Amounts]:
        """What is counted together."""
        if self.by_groups:
            return groups(unit.needs)
        return [{name: amount} for name, amount in unit.needs.items()]

    def weight(self, resource: str) -> int:
        return max(1, self.weights.get(resource, 1))

    @property
    def in_cells(self) -> tuple[int, int]:
        """The score of units in one cell each: all of them in nearest ones, or not (NS-071)."""
        step = 100 // self.most_cells
        return max(0, 100 - step + step // 2), max(0, 100 - step)


class Reason(msgspec.Struct, frozen=True, gc=False):
    """Why a unit has no cell (NS-053)."""

    unit: int
    failure: Failure


class Outcome(msgspec.Struct, frozen=True, gc=False):
    """By position in the rows that were asked for, or by row."""

    scores: list[int]
    """0 – 100, :data:`REFUSED` or :data:`UNDECIDED`."""
    codes: list[int]
    """Where refused: the index of the reason."""
    reasons: list[Reason]


class Table(Protocol):
    """Free amounts of nodes with the same number of cells, by row."""

    def write(self, row: int, free: Sequence[Amounts], totals: Sequence[Amounts]) -> None:
        """By cell, ascending; a row may be new: the one after the last."""

    def change(self, row: int, cell: int, resource: str, amount: int) -> None:
        """``cell`` by position; the resource may be one that no cell lists."""

    def place(self, question: Question, rows: Sequence[int] | None) -> Outcome:
        """None: all rows, also those that nobody uses any more."""


def pins(resource: str) -> bool:
    """What is left of it by an init container holds later ones in its cell (NS-052)."""
    return not is_memory(resource)
