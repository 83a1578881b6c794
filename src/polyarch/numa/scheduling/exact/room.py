"""What is left of a node's cells while the containers of one pod are placed one after the other (NS-051, NS-052). Pure.

What an ordinary init container held can be used again by later containers of its pod: CPUs and devices one by one,
memory by containers on the same set of cells. CPUs and devices that wait for that *pin* their resource: the next
container that wants some must be where they are.
"""

from collections.abc import Iterable, Mapping

from polyarch.numa.scheduling.exact.demand import Unit
from polyarch.numa.scheduling.exact.packing import Packing
from polyarch.numa.scheduling.facts.amounts import CPU, Amounts, is_memory
from polyarch.numa.scheduling.facts.nodes import CellFacts, NodeFacts
from polyarch.quantity import UNIT

Cells = tuple[int, ...]
"""Ids, ascending."""


class Room:
    """Changes as containers are placed."""

    def __init__(self, node: NodeFacts, free: Mapping[int, Amounts], groups: Iterable[Cells]) -> None:
        self.cells = node.cells
        self.ids = tuple(each.id for each in node.cells)
        self.free: dict[int, Amounts] = {each.id: free.get(each.id, each.available) for each in node.cells}
        self._at_first = dict(self.free)
        self._groups: dict[int, Cells] = {each.id: each.memory_group for each in node.cells if each.memory_group}
        for group in groups:
            self._groups |= dict.fromkeys(group, group)
        self._core = (node.settings.threads_per_core or 1) * UNIT
        self._pieces: dict[str, dict[int, int]] = {}
        self._memory: dict[tuple[str, Cells], int] = {}
        self.formed: list[Cells] = []
        """Sets of several cells that memory was taken from together."""

    def available(self, cells: Cells, resource: str) -> int:
        """Free, and what the pod's init containers have left."""
        idle = self.idle(cells, resource)
        return idle + self.reusable(cells, resource) if self._pieces or self._memory else idle

    def idle(self, cells: Cells, resource: str) -> int:
        """Free."""
        if len(cells) == 1:
            return self.free[cells[0]].get(resource, 0)
        return sum([self.free[each].get(resource, 0) for each in cells])

    def reusable(self, cells: Cells, resource: str) -> int:
        if is_memory(resource):
            return self._memory.get((resource, cells), 0)
        pieces = self._pieces.get(resource)
        return sum(pieces.get(each, 0) for each in cells) if pieces else 0

    def lowest(self, needs: Amounts) -> Cells | None:
        """The first cell on which all of this can be placed."""
        if self._pieces or self._memory or self._groups:
            return next((one for each in self.ids if self.holds(one := (each,), needs)), None)
        wanted = list(needs.items())
        for each, free in self.free.items():
            for name, amount in wanted:
                if free.get(name, 0) < amount:
                    break
            else:
                return (each,)
        return None

    def holds(self, cells: Cells, needs: Amounts) -> bool:
        """Whether all of this can be placed on this set of cells together."""
        return all(self.suffices(cells, name, amount) for name, amount in needs.items())

    def suffices(self, cells: Cells, resource: str, amount: int) -> bool:
        if self.available(cells, resource) < amount:
            return False
        if is_memory(resource):
            return self.may_span(cells)
        return all(each in cells for each in self._pieces.get(resource, ()))

    def may_span(self, cells: Cells) -> bool:
        """Whether a block of memory may lie on these cells (NS-062)."""
        groups = self._groups
        if len(cells) == 1:
            return len(groups.get(cells[0], ())) < 2
        return all(groups.get(each.id) == cells or self._is_unused(each) for each in self.cells if each.id in cells)

    def _is_unused(self, cell: CellFacts) -> bool:
        free = self.free[cell.id]
        return len(self._groups.get(cell.id, ())) < 2 and all(
            free.get(name, 0) >= amount for name, amount in cell.allocatable.items() if is_memory(name)
        )

    @property
    def unused(self) -> Cells:
        """Cells with no memory in use: blocks may lie on any of them together."""
        return tuple(each.id for each in self.cells if self._is_unused(each))

    @property
    def blocks(self) -> set[Cells]:
        """Sets of cells that memory lies on already, or was left on by init containers of the pod."""
        known = set(self.ids)
        found = {*self._groups.values(), *(cells for _, cells in self._memory)}
        return {each for each in found if known.issuperset(each)}

    def pinned(self, resource: str) -> Cells:
        """Cells that a set has to contain, since what is left of the resource is there."""
        return tuple(self._pieces.get(resource, ()))

    def place_plainly(self, unit: Unit, cells: Cells) -> bool:
        """Take what the unit needs, where that is on one cell and nothing was left or will be. False: nothing is
        taken, and :meth:`place` has to look closer."""
        if len(cells) > 1 or self._pieces or self._memory or unit.ends:
            return False
        after = dict(self.free[cells[0]])
        for name, amount in unit.needs.items():
            left = after.get(name, 0) - amount
            if left < 0:
                return False
            after[name] = left
        self.free[cells[0]] = after
        return True

    def place(self, unit: Unit, cells: Cells, *, memory: Cells | None = None) -> set[int]:
        """Take what the unit needs: what is left of init containers first, then what is free, from these cells before
        others. ``memory``: the cells of its memory, where they are others. The cells that it now has something of."""
        used: set[int] = set()
        for name, amount in unit.needs.items():
            if is_memory(name):
                spanned = cells if memory is None else memory
                self._place_memory(unit, name, amount, spanned)
                used.update(spanned)
            else:
                used.update(self._place_pieces(unit, name, amount, cells))
        return used

    def _place_memory(self, unit: Unit, resource: str, amount: int, cells: Cells) -> None:
        left = self._memory.get((resource, cells), 0)
        if amount > left:
            there = {each: self.idle((each,), resource) for each in cells}
            for each, share in in_turn(amount - left, there).items():
                self.free[each] = {**self.free[each], resource: there[each] - share}
        if unit.ends:
            self._memory[resource, cells] = max(left, amount)
        elif left:
            self._memory[resource, cells] = max(0, left - amount)
        if len(cells) > 1:
            self._groups.update(dict.fromkeys(cells, cells))
            if cells not in self.formed:
                self.formed.append(cells)

    def _place_pieces(self, unit: Unit, resource: str, amount: int, cells: Cells) -> Iterable[int]:
        pieces = self._pieces.get(resource, {})
        again, taken = self._shares(resource, amount, pieces, cells)
        for each, share in taken.items():
            free = self.free[each]
            self.free[each] = {**free, resource: free[resource] - share}
        if unit.ends:
            left = {each: pieces.get(each, 0) + taken.get(each, 0) for each in {**pieces, **taken}}
        elif again:
            left = {each: there - again.get(each, 0) for each, there in pieces.items()}
        else:
            return taken
        self._pieces[resource] = {each: there for each, there in left.items() if there}
        return {**again, **taken}

    def _shares(
        self, resource: str, amount: int, pieces: Mapping[int, int], cells: Cells
    ) -> tuple[dict[int, int], dict[int, int]]:
        """How much of each cell comes from pieces and how much from what is free. Where the cells have too little, the
        rest comes from others."""
        others = tuple(each.id for each in self.cells if each.id not in cells)
        if resource != CPU:
            again = in_turn(amount, pieces)
            free = {each: self.idle((each,), resource) for each in (*cells, *others)}
            return again, in_turn(amount - sum(again.values()), free)
        shares: dict[int, int] = {}
        for some in (cells, others):
            there = {each: self.available((each,), CPU) for each in some}
            part = min(amount, sum(there.values()))
            if part:
                shares |= self._packing().shares(part, there) if len(some) > 1 else {some[0]: part}
                amount -= part
        again = {each: min(share, pieces[each]) for each, share in shares.items() if each in pieces}
        return again, {each: share - again.get(each, 0) for each, share in shares.items() if share > again.get(each, 0)}

    def _packing(self) -> Packing:
        return Packing(
            {each.id: there for each in self.cells if (there := each.capacity.get(CPU, 0))},
            {each.id: each.socket for each in self.cells if each.socket is not None},
            self._core,
        )

    def unseen(self) -> dict[int, dict[str, int]]:
        """Devices that init containers keep although they have ended: their kubelet lists them nowhere."""
        found: dict[int, dict[str, int]] = {}
        for name, pieces in sorted(self._pieces.items()):
            for each, there in pieces.items():
                if name != CPU:
                    found.setdefault(each, {})[name] = there
        return found

    def taken(self) -> dict[int, dict[str, int]]:
        """What is less free than at first, by cell (NS-054)."""
        found: dict[int, dict[str, int]] = {}
        for each, free in self.free.items():
            before = self._at_first[each]
            if free is not before:
                changed = sorted([name for name, amount in before.items() if free[name] != amount])
                found[each] = {name: before[name] - free[name] for name in changed}
        return found


def in_turn(amount: int, there: Mapping[int, int]) -> dict[int, int]:
    """The amount, from the first ones as far as they have it."""
    shares: dict[int, int] = {}
    for each, most in there.items():
        if (part := min(amount, most)) > 0:
            shares[each] = part
            amount -= part
    return shares
