"""What the listed pods hold of each cell, and what the kubelet may hand out there.

Amounts are counted once: a CPU however many containers list it, a block of memory however many cells it spans, a device
per cell that it belongs to. Pure."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final, NamedTuple

import msgspec

from polyarch.numa.facts import (
    MAX_DESCRIPTION_BYTES,
    Allocatable,
    Checkpoints,
    Container,
    Devices,
    HostZone,
    ListedPod,
    Machine,
    MemoryBlock,
    MemoryCheckpoint,
    ScanFacts,
    ScanSettings,
    counted_pods,
    describe_exclusions,
    without_shared_cpus,
)
from polyarch.numa.fingerprint import fingerprint, has_exclusive_resources
from polyarch.numa.placement_vectors import (
    ContainerKey,
    PlacementVectors,
    VectorsNotExpressible,
    encode_vectors,
)

CPU: Final = "cpu"
MEMORY: Final = "memory"

ZoneResourceKey = tuple[int, str]
"""A cell and a resource."""
Amounts = dict[ZoneResourceKey, int]
DeviceKey = tuple[str, str]
"""A resource and the id of a device of it."""


class ZoneMap:
    """Where the CPUs of a machine and the devices of its kubelet are."""

    def __init__(self, machine: Machine, allocatable: Allocatable) -> None:
        self.cells: Final = frozenset(cell.id for cell in machine.cells)
        self._cell_of: Final = {cpu: cell.id for cell in machine.cells for cpu in cell.cpus}
        cells: dict[DeviceKey, set[int]] = {}
        for entry in allocatable.devices:
            for device in _device_keys(entry):
                cells.setdefault(device, set()).update(_valid_zones(entry.cells))
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

    def devices(self, entry: Devices) -> Iterator[tuple[int, DeviceKey]]:
        """Cell and device, for each cell that the entry names or, where it names none, allocatable names."""
        named = _valid_zones(entry.cells)
        for device in _device_keys(entry):
            for cell in self.cells.intersection(named or self._device_cells.get(device, ())):
                yield cell, device

    def container_cells(self, container: Container) -> frozenset[int]:
        """All cells that it holds something of."""
        found = {cell for cell, _ in self.cpus(container.cpus)}
        found.update(cell for block in container.memory for cell in self.memory_cells(block))
        found.update(cell for entry in container.devices for cell, _ in self.devices(entry))
        return frozenset(found)


def allocatable_amounts(allocatable: Allocatable, layout: ZoneMap, capacity: Mapping[ZoneResourceKey, int]) -> Amounts:
    """What pods may get. A resource has an entry just in the cells where the kubelet has it, ``cpu`` in all.

    ``capacity`` matters to a block of several cells alone: they share it as far as each has the memory.
    """
    nothing: Amounts = dict.fromkeys(((cell, CPU) for cell in layout.cells), 0)
    cpus = count_keys((cell, CPU) for cell, _ in set(layout.cpus(allocatable.cpus)))
    return nothing | cpus | spread(allocatable.memory, layout, capacity) | _count_devices(allocatable.devices, layout)


def used_amounts(pods: Iterable[ListedPod], layout: ZoneMap, allocatable: Mapping[ZoneResourceKey, int]) -> Amounts:
    """What the pods hold exclusively. CPUs of the shared pool are nobody's."""
    containers = [each for pod in pods for each in pod.containers]
    cpus = {placed for each in containers for placed in layout.cpus(each.cpus)}
    blocks = (block for each in containers for block in each.memory)
    devices = (entry for each in containers for entry in each.devices)
    counted = count_keys((cell, CPU) for cell, _ in cpus)
    return counted | spread(blocks, layout, allocatable) | _count_devices(devices, layout)


def spread(blocks: Iterable[MemoryBlock], layout: ZoneMap, room: Mapping[ZoneResourceKey, int]) -> Amounts:
    """How much of each cell the blocks take, each block counted once in total.

    Blocks of one cell come first. The others follow by their cells, and take from each in turn what is left there, the
    last one what remains. Cells that sysfs does not know are ignored, and so is a block without any other.
    """
    taken: Amounts = {}
    for cells, block in sorted(_placed(blocks, layout), key=_single_zones_first):
        left = max(block.size, 0)
        for cell in cells:
            place = cell, block.resource
            before = taken.get(place, 0)
            part = left if cell == cells[-1] else min(left, max(room.get(place, 0) - before, 0))
            taken[place] = before + part
            left -= part
    return taken


def memory_groups(blocks: Iterable[MemoryBlock], layout: ZoneMap) -> dict[int, frozenset[int]]:
    """By cell, the cells that share a block with it, itself among them; only cells of which a block spans several."""
    groups: dict[int, frozenset[int]] = {}
    for cells, _ in _placed(blocks, layout):
        if len(cells) > 1:
            for cell in cells:
                groups[cell] = groups.get(cell, frozenset()).union(cells)
    return groups


def count_keys(places: Iterable[ZoneResourceKey]) -> Amounts:
    """One for each time that a place is given."""
    return dict(Counter(places))


def _placed(blocks: Iterable[MemoryBlock], layout: ZoneMap) -> Iterator[tuple[tuple[int, ...], MemoryBlock]]:
    for block in blocks:
        if cells := layout.memory_cells(block):
            yield cells, block


def _single_zones_first(placed: tuple[tuple[int, ...], MemoryBlock]) -> tuple[bool, tuple[int, ...]]:
    cells, _ = placed
    return len(cells) > 1, cells


def _count_devices(entries: Iterable[Devices], layout: ZoneMap) -> Amounts:
    devices = {placed for entry in entries for placed in layout.devices(entry)}
    return count_keys((cell, resource) for cell, (resource, _) in devices)


def _device_keys(entry: Devices) -> Iterator[DeviceKey]:
    return ((entry.resource, each) for each in entry.ids)


def _valid_zones(cells: Collection[int]) -> set[int]:
    return {cell for cell in cells if cell >= 0}


def container_placements(pods: Iterable[ListedPod], layout: ZoneMap) -> dict[ContainerKey, frozenset[int]]:
    """The cells of every container that holds something of a cell."""
    found: dict[ContainerKey, frozenset[int]] = {}
    for pod in pods:
        for each in pod.containers:
            if cells := layout.container_cells(each):
                key = pod.namespace, pod.name, each.name
                found[key] = found.get(key, frozenset()) | cells
    return found


# -- What the kubelet has handed out although no container in its answer holds it.


CPU_POLICY: Final = "static"
MEMORY_POLICY: Final = "Static"
"""The policies under which the states say anything about exclusive resources."""


class CheckpointAllocations(NamedTuple):
    """What the checkpoint files say."""

    amounts: Amounts
    """Handed out at least, by cell and resource."""
    groups: dict[int, frozenset[int]]
    """By cell, the cells that share its memory, itself among them."""


NO_ALLOCATIONS: Final = CheckpointAllocations({}, {})


def checkpoint_allocations(
    states: Checkpoints, allocatable_cpus: frozenset[int], layout: ZoneMap
) -> CheckpointAllocations:
    """CPUs that may be allocated and are not in the shared pool, and memory that is not free, by cell.

    A file of another policy, or none, says nothing.
    """
    cpus = states.cpu
    memory = states.memory
    amounts: Amounts = {}
    if cpus is not None and cpus.policy == CPU_POLICY:
        amounts = count_keys((cell, CPU) for cell, _ in layout.cpus(allocatable_cpus - cpus.shared))
    if memory is None or memory.policy != MEMORY_POLICY:
        return CheckpointAllocations(amounts, {})
    held = _held_memory(memory, layout)
    return CheckpointAllocations(amounts | held, _groups(memory, layout, held))


def hidden_usage(least: Mapping[ZoneResourceKey, int], listed: Mapping[ZoneResourceKey, int]) -> Amounts:
    """By how much the files exceed the answer. ``listed`` is the usage of all pods in it: what a pattern of
    ``podExclude`` leaves out is not hidden, and does not come back by this way."""
    return {place: amount - listed.get(place, 0) for place, amount in least.items() if amount > listed.get(place, 0)}


def shared_capacity(
    allocatable: Mapping[ZoneResourceKey, int], kept: CheckpointAllocations, listed: Mapping[ZoneResourceKey, int]
) -> Amounts:
    """The room that each cell has for blocks that span several.

    The kubelet knows from which of its cells it took a block, and what the files say is on one cell must not be counted
    on another as well. Files that have less of a group than the answer are late, and say nothing of it.
    """
    room = dict(allocatable)
    for (cell, resource), amount in kept.amounts.items():
        places = [(each, resource) for each in kept.groups.get(cell, ())]
        if places and sum(kept.amounts.get(each, 0) for each in places) >= sum(listed.get(each, 0) for each in places):
            room[cell, resource] = amount
    return room


def _held_memory(state: MemoryCheckpoint, layout: ZoneMap) -> Amounts:
    """What is not free, without the blocks of pods that are over: the kubelet frees these when somebody wants them."""
    held = {
        (each.cell, each.resource): max(each.allocatable - each.free, 0)
        for each in state.cells
        if each.cell in layout.cells
    }
    ended = spread(state.ended, layout, held)
    return {place: max(amount - ended.get(place, 0), 0) for place, amount in held.items()}


def _groups(state: MemoryCheckpoint, layout: ZoneMap, held: Mapping[ZoneResourceKey, int]) -> dict[int, frozenset[int]]:
    """The groups in which anything is held; one of ended pods alone is over, too."""
    in_use = {cell for (cell, _), amount in held.items() if amount}
    groups: dict[int, frozenset[int]] = {}
    for each in state.cells:
        cells = layout.cells.intersection(each.group)
        if each.cell in cells and len(cells) > 1 and in_use & cells:
            groups[each.cell] = groups.get(each.cell, frozenset()) | cells
    return groups


# -- From the facts of one scan to the zones of the machine and everything else that its object says.


_UNITS: Final = (("Gi", 1 << 30), ("Mi", 1 << 20), ("Ki", 1 << 10))


class ResourceAmounts(msgspec.Struct, frozen=True, kw_only=True):
    """One resource of a cell: whole CPUs, bytes of memory and huge pages, pieces of devices."""

    resource: str
    capacity: int
    allocatable: int
    used: int
    """Given exclusively to running containers, or kept for a pod by its kubelet."""
    hidden: int = 0
    """The part of ``used`` that no container in the kubelet's answer holds."""

    @property
    def available(self) -> int:
        return max(self.allocatable - self.used, 0)


class ZoneAmounts(msgspec.Struct, frozen=True, kw_only=True):
    """One cell with what is to be said of it."""

    cell: HostZone
    resources: tuple[ResourceAmounts, ...]
    """By name."""
    memory_group: tuple[int, ...] = ()
    """The cells that share blocks of memory with this one, itself among them, ascending; empty: none does."""


class PodCounts(msgspec.Struct, frozen=True):
    """Pods that the kubelet listed; of those that count, the ones that hold something exclusively; pods left out."""

    listed: int
    exclusive: int
    excluded: int


class ScanWarning(msgspec.Struct, frozen=True):
    """Something that is odd but does not keep a scan from succeeding. It never names a pod."""

    reason: str
    message: str
    """For the log, once."""
    count: int = 1


class NodeZones(msgspec.Struct, frozen=True, kw_only=True):
    """What one scan has found."""

    node: str
    zones: tuple[ZoneAmounts, ...]
    """Ascending by id."""
    pods: tuple[ListedPod, ...]
    """Those that the fingerprint is made of, by namespace and name."""
    counts: PodCounts
    fingerprint: str = ""
    """Empty: not wanted."""
    vectors: PlacementVectors | None = None
    """None: not wanted, or they cannot say where the containers are."""
    pod_exclude: str = ""
    """``podExclude`` as published; empty: not wanted, or too long."""
    findings: tuple[ScanWarning, ...] = ()


def node_zones(facts: ScanFacts, settings: ScanSettings, node_name: str) -> NodeZones:
    """The zones of this node. Raises ``exclusions.MalformedPattern``: whoever reads settings checks the patterns."""
    layout = ZoneMap(facts.machine, facts.allocatable)
    listed = without_shared_cpus(facts.pods, settings.reference_container)
    counted = counted_pods(listed, settings.pod_exclude, facts.terminal)
    exclusive = [pod for pod in counted if has_exclusive_resources(pod)]

    capacity = _capacity(facts.machine.cells)
    allocatable = allocatable_amounts(facts.allocatable, layout, capacity)
    kept = NO_ALLOCATIONS
    if settings.usage_source == "max":
        kept = checkpoint_allocations(facts.states, frozenset(facts.allocatable.cpus), layout)
    groups = memory_groups((block for pod in counted for each in pod.containers for block in each.memory), layout)
    room = allocatable
    if kept.groups:
        room = shared_capacity(allocatable, kept, used_amounts(listed, layout, allocatable))
    used = used_amounts(counted, layout, room)
    unlisted = hidden_usage(kept.amounts, used if len(counted) == len(listed) else used_amounts(listed, layout, room))

    findings = _unknown_cpus(listed, layout)
    vectors = None
    if settings.placement_vectors:
        encoded = encode_vectors(container_placements(counted, layout), layout.cells)
        if isinstance(encoded, VectorsNotExpressible):
            findings.append(ScanWarning(encoded.reason, encoded.message))
        else:
            vectors = encoded

    patterns = describe_exclusions(settings.pod_exclude) if settings.extra_attributes else ""
    if patterns is None:
        most = MAX_DESCRIPTION_BYTES
        findings.append(
            ScanWarning("PodExcludeTooLong", f"podExclude has more than {most} bytes, so schedulers are not told of it")
        )

    excluded = {*settings.resource_exclude.get("*", ()), *settings.resource_exclude.get(node_name, ())}
    amounts = _amounts(allocatable, capacity, used, unlisted, excluded)
    fingerprinted = counted if settings.pods_fingerprint_method == "all" else exclusive
    pods = tuple(sorted(fingerprinted, key=lambda pod: (pod.namespace, pod.name)))
    return NodeZones(
        node=node_name,
        zones=tuple(
            ZoneAmounts(
                cell=cell,
                resources=tuple(amounts.get(cell.id, ())),
                memory_group=tuple(sorted(groups.get(cell.id, frozenset()) | kept.groups.get(cell.id, frozenset()))),
            )
            for cell in sorted(facts.machine.cells, key=lambda each: each.id)
        ),
        pods=pods,
        counts=PodCounts(len(facts.pods), len(exclusive), len(facts.pods) - len(counted)),
        fingerprint=fingerprint((pod.namespace, pod.name) for pod in pods) if settings.pods_fingerprint else "",
        vectors=vectors,
        pod_exclude=patterns or "",
        findings=tuple(findings),
    )


def page_resource(size: int) -> str:
    """The resource of huge pages of this size in bytes: ``hugepages-2Mi``, ``hugepages-64Ki``."""
    unit, factor = next((each for each in _UNITS if size % each[1] == 0), ("", 1))
    return f"hugepages-{size // factor}{unit}"


def _capacity(cells: Collection[HostZone]) -> Amounts:
    """What the machine has. What could not be read is missing."""
    amounts: Amounts = {}
    for cell in cells:
        amounts[cell.id, CPU] = len(cell.cpus)
        if cell.memory is not None:
            amounts[cell.id, MEMORY] = cell.memory
        amounts |= {(cell.id, page_resource(size)): size * count for size, count in (cell.pages or {}).items()}
    return amounts


def _amounts(
    allocatable: Mapping[ZoneResourceKey, int],
    capacity: Mapping[ZoneResourceKey, int],
    used: Mapping[ZoneResourceKey, int],
    unlisted: Mapping[ZoneResourceKey, int],
    excluded: Collection[str],
) -> dict[int, list[ResourceAmounts]]:
    found: dict[int, list[ResourceAmounts]] = {}
    for place in sorted(allocatable):
        cell, resource = place
        if resource not in excluded:
            kept = unlisted.get(place, 0)
            amounts = ResourceAmounts(
                resource=resource,
                capacity=max(capacity.get(place, 0), allocatable[place]),
                allocatable=allocatable[place],
                used=used.get(place, 0) + kept,
                hidden=kept,
            )
            found.setdefault(cell, []).append(amounts)
    return found


def _unknown_cpus(pods: Collection[ListedPod], layout: ZoneMap) -> list[ScanWarning]:
    unknown: set[int] = set()
    for pod in pods:
        for each in pod.containers:
            unknown |= layout.unknown_cpus(each.cpus)
    if not unknown:
        return []
    message = f"the kubelet lists CPUs that are not online, which are ignored: {sorted(unknown)}"
    return [ScanWarning("UnknownCpus", message, len(unknown))]
