"""Policy ``best-effort``: what the topology manager makes of hints that have no set of cells in common (NS-064). Pure.

Every resource has sets of cells that would do; the manager intersects one set of each in every way, and takes the
result that has as many cells as the neediest resource needs now. Sets of CPUs and of devices with another cell added do
as well, so their smallest ones stand for all. Sets are bit masks here. Source: ``topologymanager/policy.go``.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from polyarch.numa.scheduling.exact import several
from polyarch.numa.scheduling.exact.demand import Unit
from polyarch.numa.scheduling.exact.room import Cells, Room
from polyarch.numa.scheduling.facts.amounts import CPU, Amounts, is_memory


class _Growing(NamedTuple):
    """All sets within ``universe`` that contain one of ``smallest``."""

    universe: int
    smallest: frozenset[int]


def merged(unit: Unit, room: Room, *, closest: bool) -> Cells:
    """The cells that are chosen where nothing is preferred."""
    ids = room.ids
    memory: Amounts = {name: amount for name, amount in unit.needs.items() if is_memory(name)}
    spans = [mask(each) for each in several.growing(ids) if room.holds(each, memory)] if memory else []
    families = [each for name in unit.needs if not is_memory(name) and (each := _family(name, unit.needs, room))]
    if not families and not spans:
        return ids
    fewest = max(
        [min(each.bit_count() for each in family.smallest) for family in families]
        + [min((each.bit_count() for each in spans), default=0)]
    )
    common = _intersected(families, mask(ids))
    ranges = {(low & span, common.universe & span) for low in common.smallest for span in spans or [common.universe]}
    return _best(sorted(each for each in ranges if each[1]), fewest, room, closest=closest) or ids


def _family(resource: str, needs: Amounts, room: Room) -> _Growing | None:
    """The sets on which there is enough of a resource. None: no set, so that it has no say."""
    universe = tuple(
        each.id for each in room.cells if (each.capacity if resource == CPU else each.allocatable).get(resource, 0) > 0
    )
    smallest: list[int] = []
    for each in several.growing(universe):
        one = mask(each)
        if not any(other & ~one == 0 for other in smallest) and room.suffices(each, resource, needs[resource]):
            smallest.append(one)
    return _Growing(mask(universe), frozenset(smallest)) if smallest else None


def _intersected(families: Iterable[_Growing], everything: int) -> _Growing:
    """All intersections of one set of each: these, too, may grow within what all families have."""
    common = _Growing(everything, frozenset({everything}))
    for number, each in enumerate(families):
        if not number:
            common = each
            continue
        both = frozenset(one & other for one in common.smallest for other in each.smallest)
        common = _Growing(common.universe & each.universe, both)
    return common


def _best(ranges: Sequence[tuple[int, int]], fewest: int, room: Room, *, closest: bool) -> Cells | None:
    """Of all sets between the two of a range: as many cells as ``fewest``; else fewer, but as many as can be; else as
    few as can be."""
    sizes = {size for low, high in ranges for size in range(max(1, low.bit_count()), high.bit_count() + 1)}
    if not sizes:
        return None
    if fewest in sizes:
        size = fewest
    else:
        size = max((each for each in sizes if each < fewest), default=min(sizes))
    fitting = [each for each in ranges if each[0].bit_count() <= size <= each[1].bit_count()]
    if not closest:
        return members(min(_lowest(low, high, size) for low, high in fitting))
    costs: Mapping[int, Mapping[int, int]] = {each.id: each.costs for each in room.cells}
    among = [
        each
        for each in several.sets(tuple(costs), size)
        if any(low & ~(one := mask(each)) == 0 and one & ~high == 0 for low, high in fitting)
    ]
    return min(among, key=lambda each: (several.distance(each, costs), mask(each)))


def _lowest(low: int, high: int, size: int) -> int:
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
