"""A node with the pods that hold something of its cells, and what is free once some of them are gone (NS-120). Pure.

Room is counted as it will be, not as it is: what settled pods hold comes back to what the zones say, what others hold
leaves the reservations, and only then is anything cut at 0. Cutting earlier would promise the same cells twice.
"""

from collections.abc import Collection, Iterable, Mapping

import msgspec

from polyarch.numa.scheduling.exact.evaluate import evaluate
from polyarch.numa.scheduling.exact.options import ExactOptions
from polyarch.numa.scheduling.facts.amounts import Amounts, is_memory
from polyarch.numa.scheduling.facts.decision import Decision
from polyarch.numa.scheduling.facts.nodes import CellFacts, NodeFacts
from polyarch.numa.scheduling.facts.pods import PodFacts

Cells = tuple[int, ...]


class Occupant(msgspec.Struct, frozen=True, kw_only=True):
    """A pod on the node that holds something of its cells."""

    pod: PodFacts
    cells: Mapping[int, Amounts] | None
    """What it holds of each cell; None: not known."""
    is_settled: bool
    """The zones show it; else a reservation stands for it."""


class Occupancy(msgspec.Struct, frozen=True, kw_only=True):
    """One node. What the preemptor itself has reserved is in none of it."""

    node: NodeFacts
    occupants: tuple[Occupant, ...] = ()
    reserved: Mapping[int, Amounts] = {}
    """By cell, those of occupants that are not settled among it."""
    groups: tuple[Cells, ...] = ()
    """Sets of cells from which reserved memory is taken together."""


def fit(pod: PodFacts, occupancy: Occupancy, gone: Collection[Occupant], options: ExactOptions) -> Decision:
    """The decision about the pod once these occupants, whose cells are known, are gone."""
    cells = tuple(_emptied(each, gone) for each in occupancy.node.cells)
    free = {each.id: _free(each, occupancy.reserved.get(each.id, {}), gone) for each in cells}
    unused = {each.id for each in cells if _has_no_memory_in_use(each, free[each.id])}
    node = msgspec.structs.replace(occupancy.node, cells=tuple(_apart(each, unused) for each in cells))
    groups = tuple(each for each in occupancy.groups if not unused.issuperset(each))
    return evaluate(pod, node, free, options, groups=groups)


def held(occupants: Iterable[Occupant], cell: int, resource: str, *, settled: bool) -> int:
    """What they hold of one cell together."""
    return sum((each.cells or {}).get(cell, {}).get(resource, 0) for each in occupants if each.is_settled is settled)


def _emptied(cell: CellFacts, gone: Collection[Occupant]) -> CellFacts:
    available = {
        name: min(max(amount, cell.allocatable.get(name, 0)), amount + held(gone, cell.id, name, settled=True))
        for name, amount in cell.available.items()
    }
    return msgspec.structs.replace(cell, available=available)


def _free(cell: CellFacts, reserved: Amounts, gone: Collection[Occupant]) -> dict[str, int]:
    return {
        name: max(0, amount - max(0, reserved.get(name, 0) - held(gone, cell.id, name, settled=False)))
        for name, amount in cell.available.items()
    }


def _has_no_memory_in_use(cell: CellFacts, free: Amounts) -> bool:
    return all(free.get(name, 0) >= amount for name, amount in cell.allocatable.items() if is_memory(name))


def _apart(cell: CellFacts, unused: Collection[int]) -> CellFacts:
    """The kubelet dissolves a group of cells with the last block of memory in it."""
    if cell.memory_group and all(each in unused for each in cell.memory_group):
        return msgspec.structs.replace(cell, memory_group=())
    return cell
