"""A reservation, and what happens to one (NS-100 – NS-103). Pure."""

from collections.abc import Mapping
from typing import Final, Literal

import msgspec

from polyarch.numa.scheduling.facts.amounts import Amounts
from polyarch.numa.scheduling.ledger.certainty import Claim

Cells = Mapping[int, Amounts]
"""Amounts by id of the cell."""
Groups = tuple[tuple[int, ...], ...]
State = Literal["held", "bound"]
Event = Literal["reserved", "bound", "released"]
Reason = Literal[
    "filter",  # reserved: the filter chose this node
    "seen",  # reserved or bound: the pod was seen on its node
    "cells",  # reserved again: the cells of the node have other resources than before
    "unseen",  # reserved: what is left of a reservation that was settled
    "ttl",
    "again",  # another filter call for the pod
    "other-node",
    "deleted",
    "ended",
    "node-deleted",
    "settled",
    "unexplained",
    "withdrawn",  # whoever held it gave it back
]


class Reservation(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """What one pod is promised on one node."""

    uid: str
    pod: str
    """Namespace and name."""
    node: str
    state: State
    cells: Cells
    """What is subtracted from each cell."""
    demand: Amounts
    """Of the whole pod."""
    memory_groups: Groups = ()
    """Of the decision: sets of cells that its memory is taken from together."""
    unseen: Cells = {}
    """Of the decision: the part that no object will show while the pod is there."""
    claim: Claim | None = None
    """What must stay possible, as a filter has promised it; None: nobody was promised anything."""
    is_spread: bool = False
    """Nobody knows which cell: the whole demand is subtracted from every cell that lists the resource."""
    since: float
    expires: float | None = None
    """None: it is bound."""


class Change(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """What a method of the ledger did. ``cells`` were added to the node's sums (``reserved``) or taken from them
    (``released``); ``bound`` changes no sum."""

    event: Event
    reason: Reason
    reservation: Reservation

    @property
    def node(self) -> str:
        return self.reservation.node

    @property
    def cells(self) -> Cells:
        return self.reservation.cells


class Finding(msgspec.Struct, frozen=True, gc=False):
    """What people should hear of a node."""

    kind: Literal["unexplained", "mispredicted"]
    node: str
    message: str


class Sums:
    """The reservations of one node, added up."""

    __slots__ = ("_by_cell",)

    def __init__(self) -> None:
        self._by_cell: dict[int, dict[str, int]] = {}

    @property
    def cells(self) -> Cells:
        """A view; nothing in it is 0."""
        return self._by_cell

    def add(self, cells: Cells) -> None:
        for cell, amounts in cells.items():
            there = self._by_cell.setdefault(cell, {})
            for resource, amount in amounts.items():
                _put(there, resource, there.get(resource, 0) + amount)
            if not there:
                del self._by_cell[cell]

    def take(self, cells: Cells) -> None:
        for cell, amounts in cells.items():
            there = self._by_cell.setdefault(cell, {})
            for resource, amount in amounts.items():
                _put(there, resource, there.get(resource, 0) - amount)
            if not there:
                del self._by_cell[cell]


def _put(amounts: dict[str, int], resource: str, amount: int) -> None:
    if amount:
        amounts[resource] = amount
    else:
        amounts.pop(resource, None)


NOTHING: Final[Cells] = {}
