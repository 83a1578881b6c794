"""The machine that a modelled kubelet runs on, the settings of this kubelet, and what the node then reports.

A cell is a NUMA node of the machine. Sets of cells are bit masks: bit n stands for cell n.
"""

from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from functools import cached_property
from itertools import combinations
from typing import Literal

import msgspec

MEMORY = "memory"
CPU = "cpu"
PAGES = "hugepages-"
MOST_PODS = 250

TopologyPolicy = Literal["none", "best-effort", "restricted", "single-numa-node"]
TopologyScope = Literal["container", "pod"]
CpuPolicy = Literal["none", "static"]
MemoryPolicy = Literal["None", "Static"]


class Cpu(msgspec.Struct, frozen=True):
    """A logical CPU. Core and socket ids are unique on the machine."""

    id: int
    core: int
    socket: int
    cell: int


class SimulatedZone(msgspec.Struct, frozen=True, kw_only=True):
    """A NUMA node."""

    id: int
    memory: int
    """Bytes in all, those of huge pages included."""
    pages: Mapping[int, int] = {}
    """Count of huge pages by their size in bytes."""
    distances: tuple[int, ...] = ()
    """To each cell of the machine, in ascending order of their ids."""


class Device(msgspec.Struct, frozen=True):
    """A device of a device plugin."""

    resource: str
    id: str
    cells: tuple[int, ...] = ()
    """Empty: the plugin says nothing about cells."""


class Machine(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """All cells in ascending order of their ids, all CPUs, all devices."""

    cells: tuple[SimulatedZone, ...]
    cpus: tuple[Cpu, ...]
    devices: tuple[Device, ...] = ()

    @cached_property
    def by_id(self) -> dict[int, Cpu]:
        return {cpu.id: cpu for cpu in self.cpus}

    @cached_property
    def cell_ids(self) -> tuple[int, ...]:
        return tuple(cell.id for cell in self.cells)

    @cached_property
    def cells_with_cpus(self) -> tuple[int, ...]:
        return tuple(sorted({cpu.cell for cpu in self.cpus}))

    @cached_property
    def threads(self) -> int:
        """CPUs of a core."""
        return len(self.cpus) // len({cpu.core for cpu in self.cpus})

    def devices_of(self, resource: str) -> list[Device]:
        return [device for device in self.devices if device.resource == resource]

    @cached_property
    def resources(self) -> frozenset[str]:
        """The resources of all devices."""
        return frozenset(device.resource for device in self.devices)

    def distance(self, one: int, other: int) -> int:
        cell = self.cells[self.cell_ids.index(one)]
        return cell.distances[self.cell_ids.index(other)]


class Configuration(msgspec.Struct, frozen=True, kw_only=True):
    """The part of a KubeletConfiguration that decides about admission."""

    topology_policy: TopologyPolicy = "none"
    topology_scope: TopologyScope = "container"
    prefer_closest: bool = False
    """Topology manager option ``prefer-closest-numa-nodes``."""
    cpu_policy: CpuPolicy = "none"
    full_cores_only: bool = False
    """CPU manager option ``full-pcpus-only``."""
    reserved_cpus: frozenset[int] = frozenset()
    memory_policy: MemoryPolicy = "None"
    reserved_memory: Mapping[int, Mapping[str, int]] = {}
    """Bytes by cell and resource that pods do not get."""
    most_pods: int = MOST_PODS


class Node(msgspec.Struct, frozen=True):
    """A machine with its kubelet's configuration."""

    machine: Machine
    configuration: Configuration


def mask(cells: Sequence[int]) -> int:
    """The bit mask of these cells."""
    bits = 0
    for cell in cells:
        bits |= 1 << cell
    return bits


def members(bits: int) -> tuple[int, ...]:
    """The cells of a bit mask, ascending."""
    return tuple(cell for cell in range(bits.bit_length()) if bits >> cell & 1)


def masks(cells: Sequence[int]) -> Iterator[int]:
    """All sets of these cells but the empty one, the smaller ones first."""
    for size in range(1, len(cells) + 1):
        for chosen in combinations(cells, size):
            yield mask(chosen)


def page_resource(size: int) -> str:
    """The resource of huge pages of this size in bytes: ``hugepages-2Mi``."""
    for unit, suffix in ((1 << 30, "Gi"), (1 << 20, "Mi"), (1 << 10, "Ki")):
        if size % unit == 0:
            return f"{PAGES}{size // unit}{suffix}"
    return f"{PAGES}{size}"


def is_memory(resource: str) -> bool:
    """Whether the memory manager has to do with it."""
    return resource == MEMORY or resource.startswith(PAGES)


# -- capacity, and what is allocatable to pods -------------------------------------------------------------------------


EPHEMERAL_STORAGE = "ephemeral-storage"
PODS = "pods"
STORAGE = 100 * 1024**3
EVICTION = 100 * 1024**2
"""``evictionHard`` of memory, a part of what is reserved."""


def capacity(node: Node) -> dict[str, Fraction]:
    """By resource; memory is that of all cells with their huge pages."""
    machine = node.machine
    found = {
        CPU: Fraction(len(machine.cpus)),
        MEMORY: Fraction(sum(cell.memory for cell in machine.cells)),
        EPHEMERAL_STORAGE: Fraction(STORAGE),
        PODS: Fraction(node.configuration.most_pods),
    }
    for cell in machine.cells:
        for size, count in cell.pages.items():
            name = page_resource(size)
            found[name] = found.get(name, Fraction(0)) + size * count
    for device in machine.devices:
        found[device.resource] = found.get(device.resource, Fraction(0)) + 1
    return found


def allocatable(node: Node) -> dict[str, Fraction]:
    """Capacity without what is reserved; memory also without huge pages."""
    found = capacity(node)
    found[CPU] -= len(node.configuration.reserved_cpus)
    found[MEMORY] -= sum(size * count for cell in node.machine.cells for size, count in cell.pages.items())
    for reserved in node.configuration.reserved_memory.values():
        for name, amount in reserved.items():
            found[name] -= amount
    return found
