"""Equal amounts kept once (NS-171). Pure.

Thousands of cells have the same capacity, and an idle one has all of it available.
"""

from typing import Final

import msgspec

from polyarch.numa.scheduling.facts.amounts import Amounts
from polyarch.numa.scheduling.facts.nodes import CellFacts, NodeFacts, NodeSettings

_MOST: Final = 50_000
"""What is remembered for sharing; beyond it, what comes is shared anew."""


class Sharing:
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

    def _cell(self, cell: CellFacts) -> CellFacts:
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
