"""Which zones of a node the kubelet's managers give a container, and how much of each.

:class:`FreeResources` is what is left while the containers of one pod are placed. The policies choose zones as the
topology manager does: ``single-numa-node`` one, ``restricted`` a set, ``best-effort`` what hints have in common. CPUs
from several zones come as the CPU manager packs them. Pure.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import combinations, islice, takewhile
from math import floor, inf, sqrt
from typing import Final, NamedTuple

import msgspec

from polyarch.numa.fit.demand import AlignmentUnit
from polyarch.numa.fit.facts import CPU, Amounts, NodeFacts, RejectionKind, ZoneFacts, is_memory
from polyarch.quantity import UNIT

WHOLE_CORES: Final = "full-pcpus-only"
DISTRIBUTED: Final = "distribute-cpus-across-numa"
BY_SOCKET: Final = "align-by-socket"
"""Options of the CPU manager."""


class CpuPacking(NamedTuple):
    """What is known of a machine's CPUs, and stays."""

    capacity: Mapping[int, int]
    """By cell with CPUs."""
    socket: Mapping[int, int]
    """By cell; each is a socket of its own where nobody said so."""
    core: int
    """CPUs of a core."""
    portion: int = 0
    """What CPUs are handed out by where they are distributed across cells; 0: they are packed."""

    @property
    def cells_of(self) -> dict[tuple[bool, int], list[int]]:
        """By socket."""
        found: dict[tuple[bool, int], list[int]] = {}
        for cell in self.capacity:
            found.setdefault(self._socket(cell), []).append(cell)
        return found

    def shares(self, amount: int, available: Mapping[int, int]) -> dict[int, int]:
        """By cell; as much as there is, if that is less than ``amount``."""
        if self.portion and amount % self.portion == 0 and amount <= sum(available.values()):
            spread = self._distributed(amount, available)
            if spread is not None:
                return spread
        left = dict(available)
        taken: dict[int, int] = {}

        def take(cell: int, most: int) -> None:
            nonlocal amount
            part = max(0, min(amount, left.get(cell, 0), most))
            if part:
                taken[cell] = taken.get(cell, 0) + part
                left[cell] -= part
                amount -= part

        cells_of = self.cells_of
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

    def _distributed(self, amount: int, available: Mapping[int, int]) -> dict[int, int] | None:
        """As evenly as can be on as few cells as can be, so that what is left is balanced; None: they are packed.

        The balance is the standard deviation of what is left, rounded as the kubelet rounds it.
        """
        cells = self._order(self.cells_of, available)
        portion = self.portion
        whole = -(-sum(self.capacity.values()) // portion)
        portions = amount // portion
        fewest = -(-portions // -(-whole // len(self.capacity)))
        for size in range(fewest, min(portions, len(cells)) + 1):
            best, chosen = inf, None
            for some in combinations(cells, size):
                even = amount // size // portion * portion
                enough = sum(available[cell] // portion for cell in some) >= portions
                if best == 0 or not enough or any(available[cell] < even for cell in some):
                    continue
                for taken in self._remainders(some, even, amount - even * size, available):
                    balance = _deviation([available[cell] - taken.get(cell, 0) for cell in cells])
                    if balance < best:
                        best, chosen = balance, taken
            if chosen is not None:
                return {cell: share for cell, share in chosen.items() if share}
        return None

    def _remainders(
        self, cells: Sequence[int], even: int, rest: int, available: Mapping[int, int]
    ) -> Iterator[dict[int, int]]:
        """An even part of each, and the rest from any of them in turn."""
        if not rest:
            yield dict.fromkeys(cells, even)
            return
        with_more = [cell for cell in cells if available[cell] - even >= self.portion]
        for size in range(len(with_more), 0, -1):
            for some in combinations(with_more, size):
                if sum(available[cell] - even for cell in some) < rest:
                    continue
                taken, left = dict.fromkeys(cells, even), rest
                while left > 0:
                    before = left
                    for cell in some:
                        if left > 0 and available[cell] - taken[cell] >= self.portion:
                            taken[cell] += self.portion
                            left -= self.portion
                    if left == before:
                        break
                else:
                    yield taken

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


def _deviation(amounts: Sequence[int]) -> float:
    """Of whole CPUs, in thousandths as the kubelet rounds them."""
    cpus = [amount / UNIT for amount in amounts]
    mean = floor(sum(cpus) / len(cpus) * 1000 + 0.5) / 1000
    return floor(sqrt(sum((each - mean) * (each - mean) for each in cpus) / len(cpus)) * 1000 + 0.5) / 1000


# -- free resources ----------------------------------------------------------------------------------------------------


ZoneIds = tuple[int, ...]
"""Ids, ascending."""


class FreeResources:
    """Changes as containers are placed."""

    def __init__(self, node: NodeFacts, free: Mapping[int, Amounts], groups: Iterable[ZoneIds]) -> None:
        self.cells = node.cells
        self.ids = tuple(each.id for each in node.cells)
        self.free: dict[int, Amounts] = {each.id: free.get(each.id, each.available) for each in node.cells}
        self._at_first = dict(self.free)
        self._groups: dict[int, ZoneIds] = {each.id: each.memory_group for each in node.cells if each.memory_group}
        for group in groups:
            self._groups |= dict.fromkeys(group, group)
        settings = node.settings
        self._core = (settings.threads_per_core or 1) * UNIT
        self._portion = 0
        if settings.has_cpu_option(DISTRIBUTED):
            self._portion = self._core if settings.has_cpu_option(WHOLE_CORES) else UNIT
        self.may_mix_blocks = node.may_mix_blocks
        self.devices_anywhere = node.hints_everywhere
        self.by_socket = settings.has_cpu_option(BY_SOCKET)
        """CPUs are aligned by socket."""
        self._pieces: dict[str, dict[int, int]] = {}
        self._memory: dict[tuple[str, ZoneIds], int] = {}
        self.formed: list[ZoneIds] = []
        """Sets of several cells that memory was taken from together."""

    def available(self, cells: ZoneIds, resource: str) -> int:
        """Free, and what the pod's init containers have left."""
        idle = self.idle(cells, resource)
        return idle + self.reusable(cells, resource) if self._pieces or self._memory else idle

    def idle(self, cells: ZoneIds, resource: str) -> int:
        """Free."""
        if len(cells) == 1:
            return self.free[cells[0]].get(resource, 0)
        return sum([self.free[each].get(resource, 0) for each in cells])

    def reusable(self, cells: ZoneIds, resource: str) -> int:
        if is_memory(resource):
            return self._memory.get((resource, cells), 0)
        pieces = self._pieces.get(resource)
        return sum(pieces.get(each, 0) for each in cells) if pieces else 0

    def lowest(self, needs: Amounts) -> ZoneIds | None:
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

    def holds(self, cells: ZoneIds, needs: Amounts) -> bool:
        """Whether all of this can be placed on this set of cells together."""
        return all(self.suffices(cells, name, amount) for name, amount in needs.items())

    def suffices(self, cells: ZoneIds, resource: str, amount: int) -> bool:
        if self.available(cells, resource) < amount:
            return False
        if is_memory(resource):
            return self.may_span(cells)
        return all(each in cells for each in self._pieces.get(resource, ()))

    def may_span(self, cells: ZoneIds) -> bool:
        """Whether a block of memory may lie on these cells."""
        groups = self._groups
        if len(cells) == 1:
            return len(groups.get(cells[0], ())) < 2
        return all(groups.get(each.id) == cells or self._is_unused(each) for each in self.cells if each.id in cells)

    def _is_unused(self, cell: ZoneFacts) -> bool:
        free = self.free[cell.id]
        return len(self._groups.get(cell.id, ())) < 2 and all(
            free.get(name, 0) >= amount for name, amount in cell.allocatable.items() if is_memory(name)
        )

    @property
    def unused(self) -> ZoneIds:
        """Cells with no memory in use: blocks may lie on any of them together."""
        return tuple(each.id for each in self.cells if self._is_unused(each))

    @property
    def blocks(self) -> set[ZoneIds]:
        """Sets of cells that memory lies on already, or was left on by init containers of the pod."""
        known = set(self.ids)
        found = {*self._groups.values(), *(cells for _, cells in self._memory)}
        return {each for each in found if known.issuperset(each)}

    def pinned(self, resource: str) -> ZoneIds:
        """Cells that a set has to contain, since what is left of the resource is there."""
        return tuple(self._pieces.get(resource, ()))

    def place_plainly(self, unit: AlignmentUnit, cells: ZoneIds) -> bool:
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

    def place(self, unit: AlignmentUnit, cells: ZoneIds, *, memory: ZoneIds | None = None) -> set[int]:
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

    def _place_memory(self, unit: AlignmentUnit, resource: str, amount: int, cells: ZoneIds) -> None:
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

    def _place_pieces(self, unit: AlignmentUnit, resource: str, amount: int, cells: ZoneIds) -> Iterable[int]:
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
        self, resource: str, amount: int, pieces: Mapping[int, int], cells: ZoneIds
    ) -> tuple[dict[int, int], dict[int, int]]:
        """How much of each cell comes from pieces and how much from what is free. Where the cells have too little, the
        rest comes from others."""
        others = tuple(each.id for each in self.cells if each.id not in cells)
        if resource != CPU:
            again = in_turn(amount, pieces)
            free = {each: self.idle((each,), resource) for each in (*cells, *others)}
            return again, in_turn(amount - sum(again.values()), free)
        shares: dict[int, int] = {}
        if self.by_socket:
            cells = self._beside(cells)
            others = tuple(each for each in self.ids if each not in cells)
        for some in (cells, others):
            there = {each: self.available((each,), CPU) for each in some}
            part = min(amount, sum(there.values()))
            if part:
                shares |= self._packing().shares(part, there) if len(some) > 1 else {some[0]: part}
                amount -= part
        again = {each: min(share, pieces[each]) for each, share in shares.items() if each in pieces}
        return again, {each: share - again.get(each, 0) for each, share in shares.items() if share > again.get(each, 0)}

    def _packing(self) -> CpuPacking:
        return CpuPacking(
            {each.id: there for each in self.cells if (there := each.capacity.get(CPU, 0))},
            {each.id: each.socket for each in self.cells if each.socket is not None},
            self._core,
            self._portion,
        )

    def _beside(self, cells: ZoneIds) -> ZoneIds:
        """All cells of the sockets of these."""
        found = {cell for each in self._packing().cells_of.values() if not set(each).isdisjoint(cells) for cell in each}
        return tuple(each for each in self.ids if each in found)

    def is_preferred(self, cells: ZoneIds, fewest: int) -> bool:
        """Whether the CPU manager prefers these cells for CPUs that need ``fewest`` cells at least."""
        if len(cells) == fewest:
            return True
        packing = self._packing()
        sockets = packing.cells_of.values()
        in_socket = len(packing.capacity) // max(1, len(sockets))
        if not in_socket or not set(cells) <= packing.capacity.keys():
            return False
        return sum(not set(each).isdisjoint(cells) for each in sockets) == -(-fewest // in_socket)

    def unseen(self) -> dict[int, dict[str, int]]:
        """Devices that init containers keep although they have ended: their kubelet lists them nowhere."""
        found: dict[int, dict[str, int]] = {}
        for name, pieces in sorted(self._pieces.items()):
            for each, there in pieces.items():
                if name != CPU:
                    found.setdefault(each, {})[name] = there
        return found

    def taken(self) -> dict[int, dict[str, int]]:
        """What is less free than at first, by cell."""
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


# -- policy single-numa-node -------------------------------------------------------------------------------------------


class AlignmentFailure(msgspec.Struct, frozen=True, gc=False):
    """Why nothing will do."""

    kind: RejectionKind
    resources: tuple[str, ...]
    """To blame, sorted."""


def single_zone(unit: AlignmentUnit, room: FreeResources) -> ZoneIds | None:
    """The kubelet's choice. None: no cell will do."""
    return room.lowest(unit.needs)


def single_zone_failure(unit: AlignmentUnit, room: FreeResources) -> AlignmentFailure:
    """Of a unit that no cell will do for."""
    fitting = {
        name: [room.suffices((each.id,), name, amount) for each in room.cells] for name, amount in unit.needs.items()
    }
    if short := sorted(name for name, suffices in fitting.items() if not any(suffices)):
        return AlignmentFailure("short", tuple(short))
    return AlignmentFailure(
        "no-common-cell", tuple(sorted(name for name, suffices in fitting.items() if not all(suffices)))
    )


# -- policy restricted -------------------------------------------------------------------------------------------------


MAX_ZONE_SETS: Final = 20_000
"""Of one size. Twelve cells have fewer, and no kubelet aligns on more than eight unless it is told to."""
UNKNOWN_COST: Final = 255
CLOSEST: Final = "prefer-closest-numa-nodes"


@lru_cache(maxsize=256)
def zone_sets(ids: ZoneIds, size: int) -> tuple[ZoneIds, ...]:
    """Sets of this many cells, the lowest value of Σ 2^id first."""
    return tuple(sorted(islice(combinations(ids, size), MAX_ZONE_SETS), key=_value))


def resource_groups(needs: Amounts) -> list[Amounts]:
    """What is counted together: memory with huge pages; everything else by itself."""
    memory = {name: amount for name, amount in needs.items() if is_memory(name)}
    others: list[Amounts] = [{name: amount} for name, amount in needs.items() if not is_memory(name)]
    return [*others, memory] if memory else others


def fewest_zones(cells: Sequence[ZoneFacts], group: Amounts) -> int | None:
    """How many cells a group needs on an empty machine. None: all are not enough."""
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
        for chosen in zone_sets(ids, size):
            if all(sum(_total(by_id[each], name) for each in chosen) >= amount for name, amount in group.items()):
                return size
    return None


def _fewest_of_one(cells: Sequence[ZoneFacts], resource: str, amount: int) -> int | None:
    for count, total in enumerate(sorted((_total(each, resource) for each in cells), reverse=True), 1):
        amount -= total
        if amount <= 0:
            return count
    return None


def _total(cell: ZoneFacts, resource: str) -> int:
    return (cell.capacity if resource == CPU else cell.allocatable).get(resource, 0)


def restricted_zones(unit: AlignmentUnit, room: FreeResources, *, closest: bool) -> ZoneIds | AlignmentFailure:
    """The one set of cells on which every group has as many cells as it needs at least."""
    sizes: set[int] = set()
    lacking: list[str] = []
    by_socket = 0
    needs = unit.needs
    for group in resource_groups(unit.needs):
        if room.may_mix_blocks and is_memory(next(iter(group))) and smallest_memory_zones(group, room) is None:
            # Memory that may lie nowhere has no say; the memory manager then looks at the cells of the others.
            needs = {name: amount for name, amount in needs.items() if name not in group}
            continue
        size = fewest_zones(room.cells, group)
        if room.by_socket and CPU in group and size is not None and room.available(room.ids, CPU) >= group[CPU]:
            by_socket = size
        elif size is None or not _is_held(group, size, room):
            lacking.extend(group)
        else:
            sizes.add(size)
    if lacking:
        return AlignmentFailure("short", tuple(sorted(lacking)))
    if not needs:
        return room.ids
    if by_socket and not sizes:
        sizes.update(range(by_socket, len(room.ids) + 1))
    elif len(sizes) > 1:
        sizes.clear()
    will_do = (
        each
        for size in sorted(sizes)
        for each in zone_sets(room.ids, size)
        if room.holds(each, needs) and (not by_socket or room.is_preferred(each, by_socket))
    )
    costs = {each.id: each.costs for each in room.cells}
    # The first of equal ones is the lowest; fewer cells count more than near ones.
    first = next(will_do, None)
    chosen = first
    if closest and first is not None:
        alike = takewhile(lambda each: len(each) == len(first), will_do)
        chosen = min((first, *alike), key=lambda each: distance(each, costs))
    return chosen if chosen is not None else AlignmentFailure("no-common-cell", tuple(sorted(unit.needs)))


def _is_held(group: Amounts, size: int, room: FreeResources) -> bool:
    """Whether any set of this size has room for the group."""
    if any(is_memory(name) for name in group):
        return _lowest_span(group, size, room) is not None
    return all(_reach(room, name, size) >= amount for name, amount in group.items())


def _reach(room: FreeResources, resource: str, size: int) -> int:
    """The most that a set of this size has of CPUs or of a device; below 0: it cannot contain the pinned cells."""
    pinned = room.pinned(resource)
    if len(pinned) > size:
        return -1
    others = sorted((room.available((each,), resource) for each in room.ids if each not in pinned), reverse=True)
    return room.available(pinned, resource) + sum(others[: size - len(pinned)])


def _lowest_span(memory: Amounts, size: int, room: FreeResources, *, around: ZoneIds = ()) -> ZoneIds | None:
    """The lowest set of this size that has room for the memory and contains the cells ``around``."""
    inner = set(around)
    found = [each for each in room.blocks if len(each) == size and inner <= set(each) and room.holds(each, memory)]
    free = room.ids if size == 1 else room.unused
    for name, amount in memory.items():
        most = sorted((room.idle((each,), name) for each in free), reverse=True)
        if sum(most[:size]) < amount:
            return min(found, key=_value, default=None)
    plain = (each for each in zone_sets(free, size) if inner <= set(each) and room.holds(each, memory))
    return min([*found, *islice(plain, 1)], key=_value, default=None)


def _value(cells: ZoneIds) -> ZoneIds:
    """Orders sets by Σ 2^id."""
    return cells[::-1]


def distance(chosen: ZoneIds, costs: Mapping[int, Mapping[int, int]]) -> int:
    """The sum over all ordered pairs, each cell with itself included: of sets of one size this ranks as the mean."""
    return sum(costs[one].get(other, UNKNOWN_COST) for one in chosen for other in chosen)


def smallest_memory_zones(memory: Amounts, room: FreeResources, *, around: ZoneIds = ()) -> ZoneIds | None:
    """The smallest set with room for the memory, the lowest of them; it contains the cells ``around``."""
    found = (_lowest_span(memory, size, room, around=around) for size in range(1, len(room.ids) + 1))
    return next((each for each in found if each is not None), None)


# -- policy best-effort ------------------------------------------------------------------------------------------------


MOST_SMALLEST: Final = 256
"""Smallest sets that are looked at."""


class _Growing(NamedTuple):
    """All sets within ``universe`` that contain one of ``smallest``."""

    universe: int
    smallest: tuple[int, ...]


def best_effort_zones(unit: AlignmentUnit, room: FreeResources, *, closest: bool) -> ZoneIds:
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


def _family(resource: str, needs: Amounts, room: FreeResources) -> _Growing | None:
    """The sets on which there is enough of a resource. None: no set, so that it has no say."""
    universe = tuple(
        each.id
        for each in room.cells
        if (each.capacity if resource == CPU else each.allocatable).get(resource, 0) > 0
        or (resource != CPU and room.devices_anywhere)
    )
    pinned = room.pinned(resource)
    if not set(pinned) <= set(universe):
        return None
    missing = needs[resource] - room.available(pinned, resource)
    there = {each: room.available((each,), resource) for each in universe if each not in pinned}
    smallest = _reaching(missing, there, mask(pinned))
    return _Growing(mask(universe), smallest) if smallest else None


def _spans(memory: Amounts, room: FreeResources) -> list[_Growing]:
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


def _best(ranges: Sequence[_Growing], fewest: int, room: FreeResources, *, closest: bool) -> ZoneIds | None:
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
        for each in zone_sets(tuple(costs), size)
        if any(low & ~(one := mask(each)) == 0 and one & ~high == 0 for low, high in fitting)
    ]
    return min(among, key=lambda each: (distance(each, costs), mask(each)))


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


def members(bits: int) -> ZoneIds:
    """Ascending."""
    return tuple(cell for cell in range(bits.bit_length()) if bits >> cell & 1)
