"""What a node's object should say next, if pods are where they were predicted (NS-109).

An object that has less free on some cell than that tells of a pod on another cell. One that has more tells of nothing
bad: the kubelet gives back late what pods that are over held. Pure.
"""

from typing import Final

from polyarch.numa.scheduling.facts.amounts import is_memory
from polyarch.numa.scheduling.facts.nodes import NodeFacts
from polyarch.numa.scheduling.ledger.residents import Resident, has_ordinary_init

DISTRUST: Final = 600.0
"""Seconds for which the reservations of a mispredicted node are spread."""


class Expectation:
    """Of one node. Begins with a version that shows just the pods that are there."""

    __slots__ = ("_available", "_totals")

    def __init__(self) -> None:
        self._available: dict[tuple[int, str], int] | None = None
        self._totals: dict[tuple[int, str], int] = {}

    def begin(self, node: NodeFacts) -> None:
        self._totals = _totals(node)
        self._available = {(cell.id, name): amount for cell in node.cells for name, amount in cell.available.items()}

    def forget(self) -> None:
        """Something has happened that cannot be reckoned with: a pod has left, or one is on cells that nobody knows."""
        self._available = None

    def settled(self, resident: Resident) -> None:
        """The object shows this pod now."""
        if self._available is None or resident.facts is None:
            return
        if resident.placed is None or has_ordinary_init(resident.facts):
            self.forget()
            return
        for cell, amounts in resident.placed.items():
            for name, amount in amounts.items():
                place = cell, name
                self._available[place] = self._available.get(place, 0) - amount

    def is_missed(self, node: NodeFacts) -> bool:
        """Some cell has less than expected."""
        if self._available is None or self._totals != _totals(node):
            return False
        # Nobody can tell which cell of a group a block of memory is taken from.
        return any(
            amount < self._available.get((cell.id, name), 0)
            for cell in node.cells
            for name, amount in cell.available.items()
            if not (cell.memory_group and is_memory(name))
        )


def _totals(node: NodeFacts) -> dict[tuple[int, str], int]:
    return {(cell.id, name): amount for cell in node.cells for name, amount in cell.allocatable.items()}
