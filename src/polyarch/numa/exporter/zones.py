"""From the facts of one scan to the NUMA zones of the machine, and everything else that its topology says.

:func:`node_zones` is the whole rule; equal facts give equal results, in whatever order the kubelet listed them.

Amounts are counted once: a CPU however many containers list it, a block of memory however many zones it spans, a device
per zone that it belongs to. Pure.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

import msgspec

from polyarch.numa.facts import (
    MAX_DESCRIPTION_BYTES,
    Allocatable,
    Checkpoints,
    Container,
    Devices,
    HostZone,
    KubeletSettings,
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
from polyarch.numa.placement_vectors import ContainerKey, PlacementVectors, VectorsNotExpressible, encode_vectors

CPU: Final = "cpu"
MEMORY: Final = "memory"
WHOLE_CORES: Final = "full-pcpus-only"
CPU_POLICY: Final = "static"
MEMORY_POLICY: Final = "Static"
"""The policies under which checkpoints say anything about exclusive resources."""

_UNITS: Final = (("Gi", 1 << 30), ("Mi", 1 << 20), ("Ki", 1 << 10))

ZoneResourceKey = tuple[int, str]
"""Id of a zone, and a resource."""
Amounts = dict[ZoneResourceKey, int]
DeviceKey = tuple[str, str]
"""A resource, and the id of a device of it."""
Holding = frozenset[tuple[str, frozenset[object]]]
"""What each container of a pod holds of memory and devices, by its name."""


class ResourceAmounts(msgspec.Struct, frozen=True, kw_only=True):
    """One resource of a zone: whole CPUs, bytes of memory and huge pages, pieces of devices."""

    resource: str
    capacity: int
    allocatable: int
    used: int
    """Given exclusively to running containers, or kept for a pod by its kubelet."""
    hidden: int = 0
    """The part of ``used`` that no container in the kubelet's response holds."""

    @property
    def available(self) -> int:
        return max(self.allocatable - self.used, 0)


class ZoneAmounts(msgspec.Struct, frozen=True, kw_only=True):
    """One zone with the amounts that are published."""

    host_zone: HostZone
    resources: tuple[ResourceAmounts, ...]
    """By name."""
    split_cpus: int | None = None
    """Free CPUs whose core is reserved in part; None: the kubelet does not look for whole cores."""
    memory_group: tuple[int, ...] = ()
    """The zones that share blocks of memory with this one, itself among them, ascending; empty: none does."""


class PodCounts(msgspec.Struct, frozen=True):
    """Pods that the kubelet listed; of those that count, the ones that hold something exclusively; pods left out."""

    listed: int
    exclusive: int
    excluded: int


class ScanWarning(msgspec.Struct, frozen=True):
    """Something odd that does not keep a scan from succeeding. It never names a pod."""

    reason: str
    message: str
    """For the log, once."""
    count: int = 1


class NodeZones(msgspec.Struct, frozen=True, kw_only=True):
    """The zones of one node, its pods, and what was odd."""

    node: str
    zones: tuple[ZoneAmounts, ...]
    """Ascending by id."""
    pods: tuple[ListedPod, ...]
    """Those of which the fingerprint is made, by namespace and name."""
    counts: PodCounts
    fingerprint: str = ""
    """Empty: not wanted."""
    vectors: PlacementVectors | None = None
    """None: not wanted, or they cannot say where the containers are."""
    pod_exclude: str = ""
    """``podExclude`` as published; empty: not wanted, or too long."""
    warnings: tuple[ScanWarning, ...] = ()


def node_zones(facts: ScanFacts, settings: ScanSettings, node_name: str) -> NodeZones:
    """The zones of this node. Raises ``MalformedPattern``: whoever reads settings checks the patterns."""
    zone_map = ZoneMap(facts.machine, facts.allocatable)
    listed = without_shared_cpus(facts.pods, settings.reference_container)
    counted = counted_pods(listed, settings.pod_exclude, facts.terminal)
    exclusive = [pod for pod in counted if has_exclusive_resources(pod, zone_map.zones)]

    capacity = _capacity(facts.machine.zones)
    allocatable = allocatable_amounts(facts.allocatable, zone_map, capacity)
    kept = NO_ALLOCATIONS
    if settings.usage_source == "max":
        kept = checkpoint_allocations(facts.checkpoints, frozenset(facts.allocatable.cpus), listed, zone_map)
    groups = memory_groups(
        (block for pod in counted for container in pod.containers for block in container.memory), zone_map
    )
    room = allocatable
    if kept.groups:
        room = shared_capacity(allocatable, kept, used_amounts(listed, zone_map, allocatable))
    may_get = frozenset(facts.allocatable.cpus)
    every, some = _without_reserved(listed, may_get), _without_reserved(counted, may_get)
    used = used_amounts(some, zone_map, room)
    hidden = hidden_usage(kept.amounts, used if len(some) == len(every) else used_amounts(every, zone_map, room))

    warnings = [*_unknown_cpus(listed, zone_map), *_unknown_device_zones(facts.allocatable, zone_map)]
    vectors = None
    if settings.placement_vectors:
        encoded = encode_vectors(container_placements(counted, zone_map), zone_map.zones)
        if isinstance(encoded, VectorsNotExpressible):
            warnings.append(ScanWarning(encoded.reason, encoded.message))
        else:
            vectors = encoded

    split = _split_cpus(facts, listed) if wants_whole_cores(facts.kubelet) else None
    patterns = describe_exclusions(settings.pod_exclude) if settings.extra_attributes else ""
    if patterns is None:
        most = MAX_DESCRIPTION_BYTES
        warnings.append(
            ScanWarning("PodExcludeTooLong", f"podExclude has more than {most} bytes, so schedulers are not told of it")
        )

    excluded = {*settings.resource_exclude.get("*", ()), *settings.resource_exclude.get(node_name, ())}
    resources = _resources_by_zone(allocatable, capacity, used, hidden, excluded)
    fingerprinted = counted if settings.pods_fingerprint_method == "all" else exclusive
    pods = tuple(sorted(fingerprinted, key=lambda pod: (pod.namespace, pod.name)))
    return NodeZones(
        node=node_name,
        zones=tuple(
            ZoneAmounts(
                host_zone=zone,
                resources=tuple(resources.get(zone.id, ())),
                split_cpus=len(split & zone.cpus) if split is not None else None,
                memory_group=tuple(sorted(groups.get(zone.id, frozenset()) | kept.groups.get(zone.id, frozenset()))),
            )
            for zone in sorted(facts.machine.zones, key=lambda zone: zone.id)
        ),
        pods=pods,
        counts=PodCounts(len(facts.pods), len(exclusive), len(facts.pods) - len(counted)),
        fingerprint=fingerprint((pod.namespace, pod.name) for pod in pods) if settings.pods_fingerprint else "",
        vectors=vectors,
        pod_exclude=patterns or "",
        warnings=tuple(warnings),
    )


def wants_whole_cores(kubelet: KubeletSettings) -> bool:
    """Whether containers get no part of a core."""
    return (WHOLE_CORES, "true") in kubelet.cpu_manager_options


def _split_cpus(facts: ScanFacts, listed: Iterable[ListedPod]) -> frozenset[int]:
    """Free CPUs whose core is reserved in part: the kubelet does not count them as free cores."""
    allocatable = frozenset(facts.allocatable.cpus)
    free = allocatable.difference(*(container.cpus for pod in listed for container in pod.containers))
    checkpoint = facts.checkpoints.cpu
    if checkpoint is not None and checkpoint.policy == CPU_POLICY:
        free &= checkpoint.shared
    return frozenset(cpu for core in facts.machine.cores if not core <= allocatable for cpu in core & free)


def _capacity(zones: Collection[HostZone]) -> Amounts:
    """What the machine has. What could not be read is missing."""
    amounts: Amounts = {}
    for zone in zones:
        amounts[zone.id, CPU] = len(zone.cpus)
        if zone.memory is not None:
            amounts[zone.id, MEMORY] = zone.memory
        amounts |= {(zone.id, page_resource(size)): size * count for size, count in (zone.pages or {}).items()}
    return amounts


def page_resource(size: int) -> str:
    """The resource of huge pages of this size in bytes: ``hugepages-2Mi``, ``hugepages-64Ki``."""
    unit, factor = next((unit for unit in _UNITS if size % unit[1] == 0), ("", 1))
    return f"hugepages-{size // factor}{unit}"


def _resources_by_zone(
    allocatable: Amounts, capacity: Amounts, used: Amounts, hidden: Amounts, excluded: Collection[str]
) -> dict[int, list[ResourceAmounts]]:
    by_zone: dict[int, list[ResourceAmounts]] = {}
    for key in sorted(allocatable):
        zone, resource = key
        if resource not in excluded:
            kept = hidden.get(key, 0)
            amounts = ResourceAmounts(
                resource=resource,
                capacity=max(capacity.get(key, 0), allocatable[key]),
                allocatable=allocatable[key],
                used=used.get(key, 0) + kept,
                hidden=kept,
            )
            by_zone.setdefault(zone, []).append(amounts)
    return by_zone


def _unknown_cpus(pods: Collection[ListedPod], zone_map: "ZoneMap") -> list[ScanWarning]:
    unknown: set[int] = set()
    for pod in pods:
        for container in pod.containers:
            unknown |= zone_map.unknown_cpus(container.cpus)
    if not unknown:
        return []
    message = f"the kubelet lists CPUs that are not online, which are ignored: {sorted(unknown)}"
    return [ScanWarning("UnknownCpus", message, len(unknown))]


def _unknown_device_zones(allocatable: Allocatable, zone_map: "ZoneMap") -> list[ScanWarning]:
    unknown: dict[str, set[int]] = {}
    for entry in allocatable.devices:
        if entry.ids and entry.zones and zone_map.zones.isdisjoint(entry.zones):
            unknown.setdefault(entry.resource, set()).update(entry.zones)
    if not unknown:
        return []
    named = ", ".join(f"{resource} on {sorted(unknown[resource])}" for resource in sorted(unknown))
    message = (
        f"device plugins name NUMA nodes that this machine does not have: {named}; the kubelet aligns no pod to these "
        "devices, and under restricted and single-numa-node gives them to nobody who needs them"
    )
    return [ScanWarning("UnknownDeviceZones", message, len(unknown))]


# -- listed usage ------------------------------------------------------------------------------------------------------


class ZoneMap:
    """Which zone each CPU of a machine and each device of its kubelet is in."""

    def __init__(self, machine: Machine, allocatable: Allocatable) -> None:
        self.zones: Final = frozenset(zone.id for zone in machine.zones)
        self._zone_of_cpu: Final = {cpu: zone.id for zone in machine.zones for cpu in zone.cpus}
        by_device: dict[DeviceKey, set[int]] = {}
        for entry in allocatable.devices:
            for device in _device_keys(entry):
                by_device.setdefault(device, set()).update(_valid_zones(entry.zones))
        self._zones_of_device: Final = {device: frozenset(zones) for device, zones in by_device.items()}

    def cpus(self, cpus: Iterable[int]) -> Iterator[tuple[int, int]]:
        """Zone and CPU of each CPU that sysfs knows."""
        return ((self._zone_of_cpu[cpu], cpu) for cpu in cpus if cpu in self._zone_of_cpu)

    def unknown_cpus(self, cpus: Iterable[int]) -> set[int]:
        """The CPUs that sysfs does not know."""
        return {cpu for cpu in cpus if cpu not in self._zone_of_cpu}

    def memory_zones(self, block: MemoryBlock) -> tuple[int, ...]:
        """The online zones that a block spans, ascending."""
        return tuple(sorted(self.zones.intersection(block.zones)))

    def devices(self, entry: Devices) -> Iterator[tuple[int, DeviceKey]]:
        """Zone and device, for each zone that the entry names or, where it names none, ``allocatable`` names."""
        named = _valid_zones(entry.zones)
        for device in _device_keys(entry):
            for zone in self.zones.intersection(named or self._zones_of_device.get(device, ())):
                yield zone, device

    def container_zones(self, container: Container) -> frozenset[int]:
        """All zones of which the container holds something."""
        zones = {zone for zone, _ in self.cpus(container.cpus)}
        zones.update(zone for block in container.memory for zone in self.memory_zones(block))
        zones.update(zone for entry in container.devices for zone, _ in self.devices(entry))
        return frozenset(zones)


def allocatable_amounts(allocatable: Allocatable, zone_map: ZoneMap, capacity: Amounts) -> Amounts:
    """What pods may get. A resource has an entry in just the zones where the kubelet has it, ``cpu`` in all.

    Every zone has 0 of a resource whose plugin names NUMA nodes, none of which the machine has: the kubelet looks for a
    zone and finds none. Without these entries it would seem not to look.

    ``capacity`` matters to a block of several zones alone: they share it as far as each has the memory.
    """
    nothing: Amounts = dict.fromkeys(((zone, CPU) for zone in zone_map.zones), 0)
    cpus = dict(Counter((zone, CPU) for zone, _ in set(zone_map.cpus(allocatable.cpus))))
    memory = spread(allocatable.memory, zone_map, capacity)
    devices = _count_devices(allocatable.devices, zone_map)
    nowhere = {entry.resource for entry in allocatable.devices if entry.ids and entry.zones}
    nowhere.difference_update(resource for _, resource in devices)
    nothing |= {(zone, resource): 0 for zone in zone_map.zones for resource in nowhere}
    return nothing | cpus | memory | devices


def used_amounts(pods: Iterable[ListedPod], zone_map: ZoneMap, allocatable: Amounts) -> Amounts:
    """What the pods hold exclusively. CPUs of the shared pool belong to no pod."""
    containers = [container for pod in pods for container in pod.containers]
    cpus = {placed for container in containers for placed in zone_map.cpus(container.cpus)}
    blocks = (block for container in containers for block in container.memory)
    devices = (entry for container in containers for entry in container.devices)
    counted = dict(Counter((zone, CPU) for zone, _ in cpus))
    return counted | spread(blocks, zone_map, allocatable) | _count_devices(devices, zone_map)


def _without_reserved(pods: Sequence[ListedPod], allocatable: frozenset[int]) -> list[ListedPod]:
    """Without CPUs that no pod could get: they do not lessen what is left of the others."""
    return [
        msgspec.structs.replace(
            pod,
            containers=tuple(
                each
                if allocatable.issuperset(each.cpus)
                else msgspec.structs.replace(each, cpus=tuple(cpu for cpu in each.cpus if cpu in allocatable))
                for each in pod.containers
            ),
        )
        for pod in pods
    ]


def spread(blocks: Iterable[MemoryBlock], zone_map: ZoneMap, room: Amounts) -> Amounts:
    """How much of each zone the blocks take, each block counted once in total.

    Blocks of one zone come first. The others follow by their zones, and take from each in turn what is left there, the
    last one what remains. Zones that sysfs does not know are ignored, and so is a block without any other.
    """
    taken: Amounts = {}
    for zones, block in sorted(_placed(blocks, zone_map), key=lambda placed: (len(placed[0]) > 1, placed[0])):
        left = max(block.size, 0)
        for zone in zones:
            key = zone, block.resource
            before = taken.get(key, 0)
            part = left if zone == zones[-1] else min(left, max(room.get(key, 0) - before, 0))
            taken[key] = before + part
            left -= part
    return taken


def memory_groups(blocks: Iterable[MemoryBlock], zone_map: ZoneMap) -> dict[int, frozenset[int]]:
    """By zone, the zones that share a block with it, itself among them; only zones of which a block spans several."""
    groups: dict[int, frozenset[int]] = {}
    for zones, _ in _placed(blocks, zone_map):
        if len(zones) > 1:
            for zone in zones:
                groups[zone] = groups.get(zone, frozenset()).union(zones)
    return groups


def container_placements(pods: Iterable[ListedPod], zone_map: ZoneMap) -> dict[ContainerKey, frozenset[int]]:
    """The zones of every container that holds something of a zone."""
    placements: dict[ContainerKey, frozenset[int]] = {}
    for pod in pods:
        for container in pod.containers:
            if zones := zone_map.container_zones(container):
                key = pod.namespace, pod.name, container.name
                placements[key] = placements.get(key, frozenset()) | zones
    return placements


def _placed(blocks: Iterable[MemoryBlock], zone_map: ZoneMap) -> Iterator[tuple[tuple[int, ...], MemoryBlock]]:
    for block in blocks:
        if zones := zone_map.memory_zones(block):
            yield zones, block


def _count_devices(entries: Iterable[Devices], zone_map: ZoneMap) -> Amounts:
    devices = {placed for entry in entries for placed in zone_map.devices(entry)}
    return dict(Counter((zone, resource) for zone, (resource, _) in devices))


def _device_keys(entry: Devices) -> Iterator[DeviceKey]:
    return ((entry.resource, device) for device in entry.ids)


def _valid_zones(zones: Collection[int]) -> set[int]:
    return {zone for zone in zones if zone >= 0}


# -- hidden usage ------------------------------------------------------------------------------------------------------

# The kubelet's response leaves out init containers that have finished, but the kubelet keeps their CPUs, memory and
# devices until the pod ends. Its checkpoints show them: CPUs that the shared pool lacks, memory that is not free,
# devices of a pod. Those of memory and devices are late in one way: a pod that has ended stays in them until another
# pod is admitted, which a scheduler that trusts these zones may never send. So what such pods held does not count. The
# files have uids and the response has none, so a pod of the files is one of the response if all containers of that one
# hold the same in both. Where none of the listed containers holds anything, what is mounted decides.


class CheckpointAllocations(NamedTuple):
    """What the checkpoints show as allocated."""

    amounts: Amounts
    """Allocated at least, by zone and resource."""
    groups: dict[int, frozenset[int]]
    """By zone, the zones that share its memory, itself among them."""


NO_ALLOCATIONS: Final = CheckpointAllocations({}, {})


def checkpoint_allocations(
    checkpoints: Checkpoints, allocatable_cpus: frozenset[int], listed: Sequence[ListedPod], zone_map: ZoneMap
) -> CheckpointAllocations:
    """CPUs that may be allocated and are not in the shared pool, memory that is not free, and devices, by zone.

    A checkpoint of another policy, or none, says nothing.
    """
    cpus, memory = checkpoints.cpu, checkpoints.memory
    there, ended = _by_presence(checkpoints, listed)
    amounts: Amounts = {}
    if cpus is not None and cpus.policy == CPU_POLICY:
        amounts = dict(Counter((zone, CPU) for zone, _ in zone_map.cpus(allocatable_cpus - cpus.shared)))
    held_devices = (
        entry for containers in (*there, *(pod.containers for pod in listed)) for entry in _devices(containers)
    )
    amounts |= _count_devices(held_devices, zone_map)
    if memory is None or memory.policy != MEMORY_POLICY:
        return CheckpointAllocations(amounts, {})
    blocks = (*memory.ended, *(block for containers in ended for each in containers for block in each.memory))
    held = _held_memory(memory, blocks, zone_map)
    return CheckpointAllocations(amounts | held, _groups(memory, zone_map, held))


def _by_presence(
    kept: Checkpoints, listed: Sequence[ListedPod]
) -> tuple[list[tuple[Container, ...]], list[tuple[Container, ...]]]:
    """The pods of the files that the kubelet lists, and those that have ended.

    Of several that can be the same listed pod, the one with the most containers counts. A kubelet that lists nothing
    has just started, and nobody has ended.
    """
    if not listed:
        return [*kept.mounted, *kept.pods], []
    left = Counter(holding for pod in listed if (holding := _holding(pod.containers)))
    without = [{each.name for each in pod.containers} for pod in listed if not _holding(pod.containers)]
    there: list[tuple[Container, ...]] = []
    ended: list[tuple[Container, ...]] = []
    pods = [*((containers, True) for containers in kept.mounted), *((containers, False) for containers in kept.pods)]
    for containers, is_mounted in sorted(pods, key=lambda pod: len(pod[0]), reverse=True):
        own = _holding(containers)
        same = own if own in left else max((each for each in left if each <= own), key=_by_size, default=None)
        if same is None:
            holders = {name for name, _ in own}
            is_there = is_mounted and any(names.isdisjoint(holders) for names in without)
            (there if is_there else ended).append(containers)
            continue
        there.append(containers)
        left[same] -= 1
        if not left[same]:
            del left[same]
    return there, ended


def _holding(containers: Iterable[Container]) -> Holding:
    """What containers hold, those that hold nothing left out; equal however it is written."""
    held = (
        (
            container.name,
            Counter((block.resource, block.size, frozenset(block.zones)) for block in container.memory if block.size),
            {(entry.resource, device) for entry in container.devices for device in entry.ids},
        )
        for container in containers
    )
    return frozenset((name, frozenset(blocks.items()) | devices) for name, blocks, devices in held if blocks or devices)


def _by_size(holding: Holding) -> tuple[int, list[str]]:
    return len(holding), sorted(name for name, _ in holding)


def _devices(containers: Iterable[Container]) -> Iterator[Devices]:
    return (entry for container in containers for entry in container.devices)


def hidden_usage(least: Amounts, listed: Amounts) -> Amounts:
    """By how much the checkpoints exceed the response. ``listed`` is the usage of all pods in it: a pod that
    ``podExclude`` leaves out is not hidden, and does not return by this way.
    """
    return {key: amount - listed.get(key, 0) for key, amount in least.items() if amount > listed.get(key, 0)}


def shared_capacity(allocatable: Amounts, kept: CheckpointAllocations, listed: Amounts) -> Amounts:
    """How much of each zone blocks that span several may take.

    The kubelet knows from which of its zones it took a block, and memory that a checkpoint shows on one zone must not
    be counted on another as well. A checkpoint that has less of a group than the response is late, and ignored.
    """
    room = dict(allocatable)
    for (zone, resource), amount in kept.amounts.items():
        keys = [(member, resource) for member in kept.groups.get(zone, ())]
        if keys and sum(kept.amounts.get(key, 0) for key in keys) >= sum(listed.get(key, 0) for key in keys):
            room[zone, resource] = amount
    return room


def _held_memory(checkpoint: MemoryCheckpoint, ended: Iterable[MemoryBlock], zone_map: ZoneMap) -> Amounts:
    """What is not free, without the blocks of pods that have ended: the kubelet frees these when another needs them."""
    held = {
        (state.zone, state.resource): max(state.allocatable - state.free, 0)
        for state in checkpoint.zones
        if state.zone in zone_map.zones
    }
    over = spread(ended, zone_map, held)
    return {key: max(amount - over.get(key, 0), 0) for key, amount in held.items()}


def _groups(checkpoint: MemoryCheckpoint, zone_map: ZoneMap, held: Amounts) -> dict[int, frozenset[int]]:
    """The groups in which anything is held; a group of pods that have ended is over, too."""
    in_use = {zone for (zone, _), amount in held.items() if amount}
    groups: dict[int, frozenset[int]] = {}
    for state in checkpoint.zones:
        zones = zone_map.zones.intersection(state.group)
        if state.zone in zones and len(zones) > 1 and in_use & zones:
            groups[state.zone] = groups.get(state.zone, frozenset()) | zones
    return groups
