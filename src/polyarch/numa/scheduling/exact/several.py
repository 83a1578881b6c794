"""Policies ``restricted`` and ``best-effort``: sets of cells (NS-060 – NS-065). Pure."""

from collections.abc import Mapping, Sequence
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
    return tuple(sorted(islice(combinations(ids, size), MOST_SETS), key=_value))


def groups(needs: Amounts) -> list[Amounts]:
    """What is counted together: memory with huge pages; everything else by itself."""
    memory = {name: amount for name, amount in needs.items() if is_memory(name)}
    others: list[Amounts] = [{name: amount} for name, amount in needs.items() if not is_memory(name)]
    return [*others, memory] if memory else others


def fewest(cells: Sequence[CellFacts], group: Amounts) -> int | None:
    """How many cells a group needs on an empty machine (NS-060). None: all are not enough."""
    alone = [_fewest_of_one(cells, name, amount) for name, amount in group.items()]
    least = 0
    for each in alone:
        if each is None:
            return None
        least = max(least, each)
    if len(group) == 1:
        return least
    by_id = {each.id: each for each in cells}
    ids = tuple(by_id)
    for size in range(least, len(ids) + 1):
        for chosen in sets(ids, size):
            if all(sum(_total(by_id[each], name) for each in chosen) >= amount for name, amount in group.items()):
                return size
    return None


def _fewest_of_one(cells: Sequence[CellFacts], resource: str, amount: int) -> int | None:
    for count, total in enumerate(sorted((_total(each, resource) for each in cells), reverse=True), 1):
        amount -= total
        if amount <= 0:
            return count
    return None


def _total(cell: CellFacts, resource: str) -> int:
    return (cell.capacity if resource == CPU else cell.allocatable).get(resource, 0)


def restricted(unit: Unit, room: Room, *, closest: bool) -> Cells | Failure:
    """The one set of cells on which every group has as many cells as it needs at least (NS-061)."""
    sizes: set[int] = set()
    lacking: list[str] = []
    for group in groups(unit.needs):
        size = fewest(room.cells, group)
        if size is None or not _is_held(group, size, room):
            lacking.extend(group)
        else:
            sizes.add(size)
    if lacking:
        return Failure("short", tuple(sorted(lacking)))
    will_do = (
        each for size in sizes if len(sizes) == 1 for each in sets(room.ids, size) if room.holds(each, unit.needs)
    )
    costs = {each.id: each.costs for each in room.cells}
    # The first of equal ones is the lowest.
    chosen = min(will_do, key=lambda each: distance(each, costs), default=None) if closest else next(will_do, None)
    return chosen if chosen is not None else Failure("no-common-cell", tuple(sorted(unit.needs)))


def _is_held(group: Amounts, size: int, room: Room) -> bool:
    """Whether any set of this size has room for the group."""
    if any(is_memory(name) for name in group):
        return _lowest_span(group, size, room) is not None
    return all(_reach(room, name, size) >= amount for name, amount in group.items())


def _reach(room: Room, resource: str, size: int) -> int:
    """The most that a set of this size has of CPUs or of a device; below 0: it cannot contain the pinned cells."""
    pinned = room.pinned(resource)
    if len(pinned) > size:
        return -1
    others = sorted((room.available((each,), resource) for each in room.ids if each not in pinned), reverse=True)
    return room.available(pinned, resource) + sum(others[: size - len(pinned)])


def _lowest_span(memory: Amounts, size: int, room: Room, *, around: Cells = ()) -> Cells | None:
    """The lowest set of this size that has room for the memory and contains the cells ``around``."""
    inner = set(around)
    found = [each for each in room.blocks if len(each) == size and inner <= set(each) and room.holds(each, memory)]
    free = room.ids if size == 1 else room.unused
    for name, amount in memory.items():
        most = sorted((room.idle((each,), name) for each in free), reverse=True)
        if sum(most[:size]) < amount:
            return min(found, key=_value, default=None)
    plain = (each for each in sets(free, size) if inner <= set(each) and room.holds(each, memory))
    return min([*found, *islice(plain, 1)], key=_value, default=None)


def _value(cells: Cells) -> Cells:
    """Orders sets by Σ 2^id."""
    return cells[::-1]


def distance(chosen: Cells, costs: Mapping[int, Mapping[int, int]]) -> int:
    """The sum over all ordered pairs, each cell with itself included: of sets of one size this ranks as the mean."""
    return sum(costs[one].get(other, UNKNOWN_COST) for one in chosen for other in chosen)


def smallest(memory: Amounts, room: Room, *, around: Cells = ()) -> Cells | None:
    """The smallest set with room for the memory, the lowest of them; it contains the cells ``around``."""
    found = (_lowest_span(memory, size, room, around=around) for size in range(1, len(room.ids) + 1))
    return next((each for each in found if each is not None), None)
