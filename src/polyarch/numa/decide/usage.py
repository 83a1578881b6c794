"""What the listed pods hold of each cell, and what the kubelet may hand out there (NE-061 – NE-064).

Amounts are counted once: a CPU however many containers list it, a block of memory however many cells it spans, a device
per cell that it belongs to. Pure.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final

from polyarch.numa.decide.facts import Allocatable, Container, Devices, ListedPod, Machine, MemoryBlock

CPU: Final = "cpu"
MEMORY: Final = "memory"

Place = tuple[int, str]
"""A cell and a resource."""
Amounts = dict[Place, int]
Device = tuple[str, str]
"""A resource and the id of a device of it."""


class Layout:
    """Where the CPUs of a machine and the devices of its kubelet are."""

    def __init__(self, machine: Machine, allocatable: Allocatable) -> None:
        self.cells: Final = frozenset(cell.id for cell in machine.cells)
        self._cell_of: Final = {cpu: cell.id for cell in machine.cells for cpu in cell.cpus}
        cells: dict[Device, set[int]] = {}
        for entry in allocatable.devices:
            for device in _devices(entry):
                cells.setdefault(device, set()).update(_bound(entry.cells))
        self._device_cells: Final = {device: frozenset(found) for device, found in cells.items()}

    def cpus(self, cpus: Iterable[int]) -> Iterator[tuple[int, int]]:
        """Cell and CPU of each that sysfs knows."""
        return ((self._cell_of[cpu], cpu) for cpu in cpus if cpu in self._cell_of)

    def unknown_cpus(self, cpus: Iterable[int]) -> set[int]:
        """Those that sysfs does not know."""
        return {cpu for cpu in cpus if cpu not in self._cell_of}

    def memory_cells(self, block: MemoryBlock) -> tuple[int, ...]:
        """The online cells that a block spans, ascending."""
        return tuple(sorted(self.cells.intersection(block.cells)))

    def devices(self, entry: Devices) -> Iterator[tuple[int, Device]]:
        """Cell and device, for each cell that the entry names or, where it names none, allocatable names (NE-064)."""
        named = _bound(entry.cells)
        for device in _devices(entry):
            for cell in self.cells.intersection(named or self._device_cells.get(device, ())):
                yield cell, device

    def container_cells(self, container: Container) -> frozenset[int]:
        """All cells that it holds something of."""
        found = {cell for cell, _ in self.cpus(container.cpus)}
        found.update(cell for block in container.memory for cell in self.memory_cells(block))
        found.update(cell for entry in container.devices for cell, _ in self.devices(entry))
        return frozenset(found)


def allocatable_amounts(allocatable: Allocatable, layout: Layout, capacity: Mapping[Place, int]) -> Amounts:
    """What pods may get (NE-061). A resource has an entry just in the cells where the kubelet has it, ``cpu`` in all.

    ``capacity`` matters to a block of several cells alone: they share it as far as each has the memory.
    """
    nothing: Amounts = dict.fromkeys(((cell, CPU) for cell in layout.cells), 0)
    cpus = count_cells((cell, CPU) for cell, _ in set(layout.cpus(allocatable.cpus)))
    return nothing | cpus | spread(allocatable.memory, layout, capacity) | _count_devices(allocatable.devices, layout)


def used_amounts(pods: Iterable[ListedPod], layout: Layout, allocatable: Mapping[Place, int]) -> Amounts:
    """What the pods hold exclusively (NE-062 – NE-064). CPUs of the shared pool are nobody's."""
    containers = [each for pod in pods for each in pod.containers]
    cpus = {placed for each in containers for placed in layout.cpus(each.cpus)}
    blocks = (block for each in containers for block in each.memory)
    devices = (entry for each in containers for entry in each.devices)
    counted = count_cells((cell, CPU) for cell, _ in cpus)
    return counted | spread(blocks, layout, allocatable) | _count_devices(devices, layout)


def spread(blocks: Iterable[MemoryBlock], layout: Layout, room: Mapping[Place, int]) -> Amounts:
    """How much of each cell the blocks take, each block counted once in total (NE-063).

    Blocks of one cell come first. The others follow by their cells, and take from each in turn what is left there, the
    last one what remains. Cells that sysfs does not know are ignored, and so is a block without any other.
    """
    taken: Amounts = {}
    for cells, block in sorted(_placed(blocks, layout), key=_single_cells_first):
        left = max(block.size, 0)
        for cell in cells:
            place = cell, block.resource
            before = taken.get(place, 0)
            part = left if cell == cells[-1] else min(left, max(room.get(place, 0) - before, 0))
            taken[place] = before + part
            left -= part
    return taken


def memory_groups(blocks: Iterable[MemoryBlock], layout: Layout) -> dict[int, frozenset[int]]:
    """By cell, the cells that share a block with it, itself among them; only cells of which a block spans several."""
    groups: dict[int, frozenset[int]] = {}
    for cells, _ in _placed(blocks, layout):
        if len(cells) > 1:
            for cell in cells:
                groups[cell] = groups.get(cell, frozenset()).union(cells)
    return groups


def count_cells(places: Iterable[Place]) -> Amounts:
    """One for each time that a place is given."""
    return dict(Counter(places))


def _placed(blocks: Iterable[MemoryBlock], layout: Layout) -> Iterator[tuple[tuple[int, ...], MemoryBlock]]:
    for block in blocks:
        if cells := layout.memory_cells(block):
            yield cells, block


def _single_cells_first(placed: tuple[tuple[int, ...], MemoryBlock]) -> tuple[bool, tuple[int, ...]]:
    cells, _ = placed
    return len(cells) > 1, cells


def _count_devices(entries: Iterable[Devices], layout: Layout) -> Amounts:
    devices = {placed for entry in entries for placed in layout.devices(entry)}
    return count_cells((cell, resource) for cell, (resource, _) in devices)


def _devices(entry: Devices) -> Iterator[Device]:
    return ((entry.resource, each) for each in entry.ids)


def _bound(cells: Collection[int]) -> set[int]:
    return {cell for cell in cells if cell >= 0}
