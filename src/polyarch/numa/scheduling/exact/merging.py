"""Policy ``best-effort``: what the topology manager makes of hints that have no set of cells in common (NS-064). Pure.

Every resource has sets of cells that would do; the manager intersects one set of each in every way, and takes the
result that has as many cells as the neediest resource needs now. Sets of CPUs, of devices and of memory in unused cells
with another cell added do as well, so their smallest ones stand for all. Sets are bit masks here. Source:
``topologymanager/policy.go``.

A machine of ten cells has at most 252 smallest sets of a resource; of more cells so many are looked at, since nothing
may take seconds. The node fits all the same, and its objects tell where the pod is.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Final, NamedTuple

from polyarch.numa.scheduling.exact import several
from polyarch.numa.scheduling.exact.demand import Unit
from polyarch.numa.scheduling.exact.room import Cells, Room
from polyarch.numa.scheduling.facts.amounts import CPU, Amounts, is_memory

MOST_SMALLEST: Final = 256
"""Smallest sets that are looked at."""


class _Growing(NamedTuple):
    """All sets within ``universe`` that contain one of ``smallest``."""

    universe: int
    smallest: tuple[int, ...]


def merged(unit: Unit, room: Room, *, closest: bool) -> Cells:
    """The cells that are chosen where nothing is preferred."""
    ids = room.ids
    memory: Amounts = {name: amount for name, amount in unit.needs.items() if is_memory(name)}
    spans = _spans(memory, room) if memory else []
    families = [each for name in unit.needs if not is_memory(name) and (each := _family(name, unit.needs, room))]
    if not families and not spans:
        return ids
    of_spans = [one.bit_count() for each in spans for one in each.smallest]
    fewest = max([min(one.bit_count() for one in each.smallest) for each in families] + [min(of_spans, default=0)])
    common = _Growing(mask(ids), (mask(ids),))
    for number, each in enumerate(families):
        common = _intersected(common, each) if number else each
    ranges = [_intersected(common, each) for each in spans] if spans else [common]
    return _best([each for each in ranges if each.universe], fewest, room, closest=closest) or ids


def _family(resource: str, needs: Amounts, room: Room) -> _Growing | None:
    """The sets on which there is enough of a resource. None: no set, so that it has no say."""
    universe = tuple(
        each.id for each in room.cells if (each.capacity if resource == CPU else each.allocatable).get(resource, 0) > 0
    )
    pinned = room.pinned(resource)
    if not set(pinned) <= set(universe):
        return None
    missing = needs[resource] - room.available(pinned, resource)
    there = {each: room.available((each,), resource) for each in universe if each not in pinned}
    smallest = _reaching(missing, there, mask(pinned))
    return _Growing(mask(universe), smallest) if smallest else None


def _spans(memory: Amounts, room: Room) -> list[_Growing]:
    """The sets on which there is enough memory: in unused cells any, elsewhere single ones and those of blocks."""
    unused = room.unused
    alone = [(each,) for each in room.ids if each not in unused]
    fixed = [mask(each) for each in {*alone, *room.blocks} if room.holds(each, memory)]
    found = [_Growing(each, (each,)) for each in sorted(fixed)]
    smallest: tuple[int, ...] = (0,)
    for name, amount in memory.items():
        there = {each: room.idle((each,), name) for each in unused}
        smallest = _lowest({one | other for one in smallest for other in _reaching(amount, there, 0)})
    if smallest:
        found.append(_Growing(mask(unused), smallest))
    return found


def _reaching(amount: int, there: Mapping[int, int], always: int) -> tuple[int, ...]:
    """The sets that have the amount and no cell to spare, each with ``always``."""
    cells = sorted(there, key=lambda each: (-there[each], each))
    left = [0]
    for each in reversed(cells):
        left.append(left[-1] + there[each])
    left.reverse()

    def extended(chosen: int, missing: int, start: int) -> Iterator[int]:
        # From the fullest cell on: the last one is the one to spare first, and without it there is not enough.
        if missing <= 0:
            yield chosen
            return
        for index in range(start, len(cells)):
            if left[index] < missing:
                return
            yield from extended(chosen | 1 << cells[index], missing - there[cells[index]], index + 1)

    return tuple(islice(extended(always, amount, 0), MOST_SMALLEST))


def _intersected(one: _Growing, other: _Growing) -> _Growing:
    """All intersections of a set of each: these, too, may grow within what both have."""
    both = {low & each for low in one.smallest for each in other.smallest}
    return _Growing(one.universe & other.universe, _lowest(both))


def _lowest(sets: Iterable[int]) -> tuple[int, ...]:
    """Those that contain no other one."""
    found: list[int] = []
    for each in sorted(sets, key=lambda one: (one.bit_count(), one)):
        if len(found) == MOST_SMALLEST:
            break
        if not any(low & ~each == 0 for low in found):
            found.append(each)
    return tuple(found)


def _best(ranges: Sequence[_Growing], fewest: int, room: Room, *, closest: bool) -> Cells | None:
    """Of all sets of these ranges: one of as many cells as ``fewest``; else of fewer, but as many as can be; else of as
    few as can be."""
    sizes = {
        size
        for each in ranges
        for size in range(max(1, min(low.bit_count() for low in each.smallest)), each.universe.bit_count() + 1)
    }
    if not sizes:
        return None
    if fewest in sizes:
        size = fewest
    else:
        size = max((each for each in sizes if each < fewest), default=min(sizes))
    fitting = [
        (low, each.universe)
        for each in ranges
        if size <= each.universe.bit_count()
        for low in each.smallest
        if low.bit_count() <= size
    ]
    if not closest:
        return members(min(_filled(low, high, size) for low, high in fitting))
    costs: Mapping[int, Mapping[int, int]] = {each.id: each.costs for each in room.cells}
    among = [
        each
        for each in several.sets(tuple(costs), size)
        if any(low & ~(one := mask(each)) == 0 and one & ~high == 0 for low, high in fitting)
    ]
    return min(among, key=lambda each: (several.distance(each, costs), mask(each)))


def _filled(low: int, high: int, size: int) -> int:
    """The lowest set of this size between the two."""
    for cell in members(high & ~low):
        if low.bit_count() >= size:
            break
        low |= 1 << cell
    return low


def mask(cells: Iterable[int]) -> int:
    bits = 0
    for cell in cells:
        bits |= 1 << cell
    return bits


def members(bits: int) -> Cells:
    """Ascending."""
    return tuple(cell for cell in range(bits.bit_length()) if bits >> cell & 1)
