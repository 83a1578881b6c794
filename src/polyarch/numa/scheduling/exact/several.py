"""Policies ``restricted`` and ``best-effort``: sets of cells (NS-060 – NS-065). Pure."""

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import combinations, islice
from typing import Final

from polyarch.numa.scheduling.exact.demand import Unit
from polyarch.numa.scheduling.exact.room import Cells, Room
from polyarch.numa.scheduling.exact.single import Failure
from polyarch.numa.scheduling.facts.amounts import CPU, Amounts, is_memory
from polyarch.numa.scheduling.facts.nodes import CellFacts

MOST_SETS: Final = 20_000
"""Of one size. Twelve cells have fewer, and no kubelet aligns on more than eight unless it is told to."""
UNKNOWN_COST: Final = 255
CLOSEST: Final = "prefer-closest-numa-nodes"


@lru_cache(maxsize=256)
def sets(ids: Cells, size: int) -> tuple[Cells, ...]:
    """Sets of this many cells, the lowest value of Σ 2^id first."""
    return tuple(sorted(islice(combinations(ids, size), MOST_SETS), key=lambda each: each[::-1]))


def groups(needs: Amounts) -> list[Amounts]:
    """What is counted together: memory with huge pages; everything else by itself."""
    memory = {name: amount for name, amount in needs.items() if is_memory(name)}
    others: list[Amounts] = [{name: amount} for name, amount in needs.items() if not is_memory(name)]
    return [*others, memory] if memory else others


def fewest(cells: Sequence[CellFacts], group: Amounts) -> int | None:
    """How many cells a group needs on an empty machine (NS-060). None: all are not enough."""
    if len(group) == 1:
        ((name, amount),) = group.items()
        for count, total in enumerate(sorted((_total(each, name) for each in cells), reverse=True), 1):
            amount -= total
            if amount <= 0:
                return count
        return None
    by_id = {each.id: each for each in cells}
    ids = tuple(by_id)
    for size in range(1, len(ids) + 1):
        for chosen in sets(ids, size):
            if all(sum(_total(by_id[each], name) for each in chosen) >= amount for name, amount in group.items()):
                return size
    return None


def _total(cell: CellFacts, resource: str) -> int:
    return (cell.capacity if resource == CPU else cell.allocatable).get(resource, 0)


def restricted(unit: Unit, room: Room, *, closest: bool) -> Cells | Failure:
    """The one set of cells on which every group has as many cells as it needs at least (NS-061)."""
    ids = room.ids
    common: set[Cells] | None = None
    lacking: list[str] = []
    for group in groups(unit.needs):
        size = fewest(room.cells, group)
        will_do = {each for each in sets(ids, size) if room.holds(each, group)} if size is not None else set()
        if not will_do:
            lacking.extend(group)
        common = will_do if common is None else common & will_do
    if lacking:
        return Failure("short", tuple(sorted(lacking)))
    if not common:
        return Failure("no-common-cell", tuple(sorted(unit.needs)))
    return _first(common, room.cells, closest=closest)


def _first(chosen: set[Cells], cells: Sequence[CellFacts], *, closest: bool) -> Cells:
    if closest:
        costs = {each.id: each.costs for each in cells}
        return min(chosen, key=lambda each: (distance(each, costs), each[::-1]))
    return min(chosen, key=lambda each: each[::-1])


def distance(chosen: Cells, costs: Mapping[int, Mapping[int, int]]) -> int:
    """The sum over all ordered pairs, each cell with itself included: of sets of one size this ranks as the mean."""
    return sum(costs[one].get(other, UNKNOWN_COST) for one in chosen for other in chosen)


def smallest(needs: Amounts, room: Room, *, around: Cells = ()) -> Cells | None:
    """The smallest set with room for everything, the lowest of them; it contains the cells ``around``."""
    ids = room.ids
    inner = set(around)
    return next((each for each in growing(ids) if inner <= set(each) and room.holds(each, needs)), None)


def growing(ids: Cells) -> Iterator[Cells]:
    """All sets, the smaller ones first."""
    for size in range(1, len(ids) + 1):
        yield from sets(ids, size)
