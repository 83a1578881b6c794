"""How many CPUs of each cell a container gets where it gets them from several (``takeByTopologyNUMAPacked``). Pure.

Whole sockets and cells first, then whole cores, then single CPUs; always from where the fewest are left, so that large
pieces stay whole for others. Which CPUs of a cell are free is not known here, so cores count as free one by one.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from polyarch.quantity import UNIT


class Packing(NamedTuple):
    """What is known of a machine's CPUs, and stays."""

    capacity: Mapping[int, int]
    """By cell with CPUs."""
    socket: Mapping[int, int]
    """By cell; each is a socket of its own where nobody said so."""
    core: int
    """CPUs of a core."""

    def shares(self, amount: int, available: Mapping[int, int]) -> dict[int, int]:
        """By cell; as much as there is, if that is less than ``amount``."""
        left = dict(available)
        taken: dict[int, int] = {}

        def take(cell: int, most: int) -> None:
            nonlocal amount
            part = max(0, min(amount, left.get(cell, 0), most))
            if part:
                taken[cell] = taken.get(cell, 0) + part
                left[cell] -= part
                amount -= part

        cells_of: dict[tuple[bool, int], list[int]] = {}
        for cell in self.capacity:
            cells_of.setdefault(self._socket(cell), []).append(cell)
        if len(cells_of) < len(self.capacity):
            size = sum(self.capacity.values()) // len(cells_of)
            for cells in sorted(cells_of.values(), key=lambda each: (self._sum(each, left), each)):
                if self._sum(cells, left) == size <= amount:
                    for cell in cells:
                        take(cell, size)
        for cell in self._order(cells_of, left):
            if left[cell] == self.capacity[cell] <= amount:
                take(cell, left[cell])
        for piece in (self.core, UNIT):
            for cell in self._order(cells_of, left):
                take(cell, min(amount, left[cell]) // piece * piece)
        return taken

    def _order(self, cells_of: Mapping[tuple[bool, int], Iterable[int]], left: Mapping[int, int]) -> list[int]:
        """Cells with anything left: the fewest first, after those of sockets with fewer."""
        socket = {cell: self._sum(cells, left) for cells in cells_of.values() for cell in cells}
        return sorted(
            (cell for cell in self.capacity if left.get(cell, 0)),
            key=lambda cell: (socket[cell], self._socket(cell), left[cell], cell),
        )

    def _socket(self, cell: int) -> tuple[bool, int]:
        return (True, self.socket[cell]) if cell in self.socket else (False, cell)

    @staticmethod
    def _sum(cells: Iterable[int], left: Mapping[int, int]) -> int:
        return sum(left.get(cell, 0) for cell in cells)
