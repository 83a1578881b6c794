"""The files of a modelled kubelet and its node: checkpoints, configuration, sysfs and procfs. Pure.

Each checkpoint has a checksum over the text that Go prints for the value (``k8s.io/utils/dump``), so that a real
kubelet of Kubernetes 1.36 accepts it. A file that is damaged, or that does not belong to this machine, is not used: a
kubelet refuses to start then, and asks its administrator to delete it.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeVar

import msgspec

from polyarch.sandbox.kubelet_model import cpu_manager, memory_manager
from polyarch.sandbox.kubelet_model.admission import ManagerStates
from polyarch.sandbox.kubelet_model.cpu_manager import CpuManagerState
from polyarch.sandbox.kubelet_model.device_manager import DeviceManagerState
from polyarch.sandbox.kubelet_model.machine import EVICTION, MEMORY, Configuration, Cpu, Machine, Node, SimulatedZone
from polyarch.sandbox.kubelet_model.memory_manager import Block, CellMemory, MemoryManagerState, MemoryTable


def cpulist_text(cpus: Iterable[int]) -> str:
    """Runs of three or more, and of two, are joined: ``0-1,4``."""
    runs: list[tuple[int, int]] = []
    for cpu in sorted(set(cpus)):
        if runs and runs[-1][1] == cpu - 1:
            runs[-1] = (runs[-1][0], cpu)
        else:
            runs.append((cpu, cpu))
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in runs)


def parse_cpulist(text: str) -> frozenset[int]:
    """The CPUs; ValueError for anything else."""
    found: set[int] = set()
    for part in text.split(",") if text else ():
        low, dash, high = part.partition("-")
        first, last = int(low), int(high if dash else low)
        if not 0 <= first <= last:
            raise ValueError(f"{text!r} is not a list of CPUs")
        found.update(range(first, last + 1))
    return frozenset(found)


# -- checkpoints -------------------------------------------------------------------------------------------------------


CPU_FILE = "cpu_manager_state"
MEMORY_FILE = "memory_manager_state"
DEVICES_FILE = "device-plugins/kubelet_internal_checkpoint"
UNBOUND = "-1"
"""The kubelet's key for devices without a cell."""


_T = TypeVar("_T")


class CorruptCheckpoint(Exception):  # noqa: N818 - what is wrong
    """The file is no checkpoint of this machine; the text says why."""


class _Cpus(msgspec.Struct, frozen=True, rename="camel"):
    policy_name: str
    default_cpu_set: str
    checksum: int
    entries: dict[str, dict[str, str]] = {}


class _Table(msgspec.Struct, frozen=True, rename="camel"):
    total: int
    system_reserved: int
    allocatable: int
    reserved: int
    free: int


class _Cell(msgspec.Struct, frozen=True, rename="camel"):
    number_of_assignments: int
    memory_map: dict[str, _Table]
    cells: list[int]


class _Block(msgspec.Struct, frozen=True, rename="camel"):
    numa_affinity: list[int]
    type: str
    size: int


class _Memory(msgspec.Struct, frozen=True, rename="camel"):
    policy_name: str
    machine_state: dict[str, _Cell]
    checksum: int
    entries: dict[str, dict[str, list[_Block]]] = {}


class _Entry(msgspec.Struct, frozen=True, rename="pascal"):
    pod_uid: str = msgspec.field(name="PodUID")
    container_name: str
    resource_name: str
    device_ids: dict[str, list[str]] = msgspec.field(name="DeviceIDs")


class _Data(msgspec.Struct, frozen=True, rename="pascal"):
    pod_device_entries: list[_Entry] | None
    registered_devices: dict[str, list[str]]


class _Devices(msgspec.Struct, frozen=True, rename="pascal"):
    data: _Data
    checksum: int


# -- CPUs --------------------------------------------------------------------------------------------------------------


def cpus_text(node: Node, state: CpuManagerState) -> str:
    """``cpu_manager_state``."""
    is_static = node.configuration.cpu_policy == "static"
    document: dict[str, object] = {
        "policyName": node.configuration.cpu_policy,
        "defaultCpuSet": cpulist_text(state.shared) if is_static else "",
    }
    entries = {
        uid: {name: cpulist_text(cpus) for name, cpus in sorted(held.items())}
        for uid, held in sorted(state.held.items())
    }
    if entries:
        document["entries"] = entries
    text = (
        f"(*state.CPUManagerCheckpoint){{PolicyName:(string){document['policyName']} "
        f"DefaultCPUSet:(string){document['defaultCpuSet']} "
        f"Entries:(map[string]map[string]string){_map({uid: _map(held) for uid, held in entries.items()})} "
        "Checksum:(checksum.Checksum)0}"
    )
    return _json({**document, "checksum": _checksum(text)})


def read_cpus(node: Node, text: str) -> CpuManagerState:
    """What the file says. Raises CorruptCheckpoint."""
    found = _decoded(text, _Cpus, node.configuration.cpu_policy)
    if node.configuration.cpu_policy == "none":
        return cpu_manager.at_first(node)
    try:
        shared = parse_cpulist(found.default_cpu_set)
        held = {
            uid: {name: parse_cpulist(each) for name, each in by_container.items()}
            for uid, by_container in found.entries.items()
        }
    except ValueError as error:
        raise CorruptCheckpoint(str(error)) from None
    state = CpuManagerState(shared, held)
    exclusive = frozenset(cpu for by_container in held.values() for each in by_container.values() for cpu in each)
    if shared | exclusive != frozenset(node.machine.by_id) or shared & exclusive:
        raise CorruptCheckpoint(
            f"current set of available CPUs does not match the CPUs {found.default_cpu_set!r} and its entries"
        )
    if not node.configuration.reserved_cpus <= shared:
        raise CorruptCheckpoint(f"not all reserved cpus are present in defaultCpuSet: {found.default_cpu_set!r}")
    if cpus_text(node, state) != text:
        raise CorruptCheckpoint("checkpoint is corrupted")
    return state


# -- memory ------------------------------------------------------------------------------------------------------------


def memory_text(node: Node, state: MemoryManagerState) -> str:
    """``memory_manager_state``."""
    is_static = node.configuration.memory_policy == "Static"
    cells = dict(sorted(state.cells.items())) if is_static else {}
    document: dict[str, object] = {
        "policyName": node.configuration.memory_policy,
        "machineState": {str(cell): _cell(each) for cell, each in cells.items()},
    }
    entries = {
        uid: {name: [_block(block) for block in blocks] for name, blocks in sorted(held.items())}
        for uid, held in sorted(state.held.items())
    }
    if entries:
        document["entries"] = entries
    printed = {
        uid: _map({name: _list(_printed_block(block) for block in blocks) for name, blocks in sorted(held.items())})
        for uid, held in sorted(state.held.items())
    }
    text = (
        f"(*state.MemoryManagerCheckpoint){{PolicyName:(string){document['policyName']} "
        f"MachineState:(state.NUMANodeMap){_map({cell: _printed_cell(each) for cell, each in cells.items()})} "
        f"Entries:(state.ContainerMemoryAssignments){_map(printed)} "
        "Checksum:(checksum.Checksum)0}"
    )
    return _json({**document, "checksum": _checksum(text)})


def _cell(cell: CellMemory) -> dict[str, object]:
    tables = {
        name: {
            "total": table.total,
            "systemReserved": table.system_reserved,
            "allocatable": table.allocatable,
            "reserved": table.reserved,
            "free": table.free,
        }
        for name, table in sorted(cell.tables.items())
    }
    return {"numberOfAssignments": cell.assignments, "memoryMap": tables, "cells": list(cell.group)}


def _block(block: Block) -> dict[str, object]:
    return {"numaAffinity": list(block.cells), "type": block.resource, "size": block.size}


def _printed_cell(cell: CellMemory) -> str:
    tables = {name: f"<*>{_printed_table(table)}" for name, table in sorted(cell.tables.items())}
    return (
        f"<*>{{NumberOfAssignments:(int){cell.assignments} "
        f"MemoryMap:(map[v1.ResourceName]*state.MemoryTable){_map(tables)} Cells:([]int){_list(cell.group)}}}"
    )


def _printed_table(table: MemoryTable) -> str:
    return (
        f"{{TotalMemSize:(uint64){table.total} SystemReserved:(uint64){table.system_reserved} "
        f"Allocatable:(uint64){table.allocatable} Reserved:(uint64){table.reserved} Free:(uint64){table.free}}}"
    )


def _printed_block(block: Block) -> str:
    return (
        f"{{NUMAAffinity:([]int){_list(block.cells)} Type:(v1.ResourceName){block.resource} Size:(uint64){block.size}}}"
    )


def read_memory(node: Node, text: str) -> MemoryManagerState:
    """What the file says. Raises CorruptCheckpoint."""
    found = _decoded(text, _Memory, node.configuration.memory_policy)
    if node.configuration.memory_policy == "None":
        return memory_manager.at_first(node)
    try:
        cells = {int(name): _cell_of(each) for name, each in found.machine_state.items()}
    except ValueError as error:
        raise CorruptCheckpoint(str(error)) from None
    held = {
        uid: {
            name: tuple(Block(tuple(each.numa_affinity), each.type, each.size) for each in blocks)
            for name, blocks in by_container.items()
        }
        for uid, by_container in found.entries.items()
    }
    state = MemoryManagerState(cells, held)
    if _sizes(state) != _sizes(memory_manager.at_first(node)):
        raise CorruptCheckpoint("the expected machine state is different from the real one")
    if memory_text(node, state) != text:
        raise CorruptCheckpoint("checkpoint is corrupted")
    return state


def _cell_of(cell: _Cell) -> CellMemory:
    tables = {
        name: MemoryTable(each.total, each.system_reserved, each.allocatable, each.reserved, each.free)
        for name, each in cell.memory_map.items()
    }
    return CellMemory(tables, tuple(cell.cells), cell.number_of_assignments)


def _sizes(state: MemoryManagerState) -> dict[tuple[int, str], tuple[int, int, int]]:
    return {
        (cell, name): (table.total, table.system_reserved, table.allocatable)
        for cell, each in state.cells.items()
        for name, table in each.tables.items()
    }


# -- devices -----------------------------------------------------------------------------------------------------------


def devices_text(node: Node, state: DeviceManagerState) -> str:
    """``device-plugins/kubelet_internal_checkpoint``."""
    entries = [
        (uid, container, resource, _by_cell(node, resource, ids))
        for uid, by_container in sorted(state.held.items())
        for container, by_resource in sorted(by_container.items())
        for resource, ids in sorted(by_resource.items())
    ]
    registered = {
        resource: sorted(device.id for device in node.machine.devices_of(resource))
        for resource in sorted(node.machine.resources)
    }
    document = {
        "PodDeviceEntries": [
            {"PodUID": uid, "ContainerName": container, "ResourceName": resource, "DeviceIDs": by_cell, "AllocResp": ""}
            for uid, container, resource, by_cell in entries
        ]
        or None,
        "RegisteredDevices": registered,
    }
    printed = _list(
        f"{{PodUID:(string){uid} ContainerName:(string){container} ResourceName:(string){resource} "
        f"DeviceIDs:(checkpoint.DevicesPerNUMA){_map({cell: _list(ids) for cell, ids in by_cell.items()})} "
        "AllocResp:([]uint8)[]}"
        for uid, container, resource, by_cell in entries
    )
    text = (
        "(checkpoint.checkpointData){"
        f"PodDeviceEntries:([]checkpoint.PodDevicesEntry){printed if entries else '<nil>'} "
        f"RegisteredDevices:(map[string][]string){_map({name: _list(ids) for name, ids in registered.items()})}}}"
    )
    return _json({"Data": document, "Checksum": _checksum(text)})


def _by_cell(node: Node, resource: str, ids: frozenset[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for device in sorted(node.machine.devices_of(resource), key=lambda device: device.id):
        for cell in (device.cells or (UNBOUND,)) if device.id in ids else ():
            found.setdefault(str(cell), []).append(device.id)
    return dict(sorted(found.items(), key=lambda item: int(item[0])))


def read_devices(node: Node, text: str) -> DeviceManagerState:
    """What the file says. Raises CorruptCheckpoint."""
    found = _decoded(text, _Devices)
    held: dict[str, dict[str, dict[str, frozenset[str]]]] = {}
    for entry in found.data.pod_device_entries or ():
        ids = frozenset(each for by_cell in entry.device_ids.values() for each in by_cell)
        held.setdefault(entry.pod_uid, {}).setdefault(entry.container_name, {})[entry.resource_name] = ids
    state = DeviceManagerState(held)
    if devices_text(node, state) != text:
        raise CorruptCheckpoint("checkpoint is corrupted, or the devices of this node have changed")
    return state


def texts(node: Node, held: ManagerStates, before: ManagerStates | None = None) -> dict[str, str]:
    """The files by their path below ``/var/lib/kubelet``: all, or those in which something has changed since
    ``before``."""
    found: dict[str, str] = {}
    if before is None or held.cpus is not before.cpus:
        found[CPU_FILE] = cpus_text(node, held.cpus)
    if before is None or held.memory is not before.memory:
        found[MEMORY_FILE] = memory_text(node, held.memory)
    if before is None or held.devices is not before.devices:
        found[DEVICES_FILE] = devices_text(node, held.devices)
    return found


# -- as Go writes it ---------------------------------------------------------------------------------------------------


def _decoded(text: str, type: type[_T], policy: str = "") -> _T:
    try:
        found = msgspec.json.decode(text, type=type)
    except msgspec.MsgspecError as error:
        raise CorruptCheckpoint(f"not a checkpoint: {error}") from None
    name = getattr(found, "policy_name", "")
    if name != policy:
        raise CorruptCheckpoint(f"configured policy {policy!r} differs from state checkpoint policy {name!r}")
    return found


def _json(document: Mapping[str, object]) -> str:
    return msgspec.json.encode(document).decode()


def _map(printed: Mapping[str, str] | Mapping[int, str]) -> str:
    return f"map[{' '.join(f'{key}:{value}' for key, value in printed.items())}]"


def _list(printed: Iterable[object]) -> str:
    return f"[{' '.join(map(str, printed))}]"


def _checksum(text: str) -> int:
    """FNV-1a, 32 bits."""
    value = 0x811C9DC5
    for byte in text.encode():
        value = (value ^ byte) * 0x01000193 & 0xFFFFFFFF
    return value


# -- the KubeletConfiguration: ``config.yaml``, and the answer at ``/configz`` -----------------------------------------


MEBIBYTE = 1024**2
RECONCILE_SECONDS = 1
"""``cpuManagerReconcilePeriod``: how soon CPUs of pods that are over are free. A kubelet's default is 10 s."""


def configuration_document(configuration: Configuration) -> dict[str, Any]:
    """What the administrator of such a node would have written."""
    reserved = sum(amounts.get(MEMORY, 0) for amounts in configuration.reserved_memory.values())
    found: dict[str, Any] = {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "cpuManagerPolicy": configuration.cpu_policy,
        "cpuManagerReconcilePeriod": f"{RECONCILE_SECONDS}s",
        "memoryManagerPolicy": configuration.memory_policy,
        "topologyManagerPolicy": configuration.topology_policy,
        "topologyManagerScope": configuration.topology_scope,
        "evictionHard": {"memory.available": f"{EVICTION // MEBIBYTE}Mi"},
        "systemReserved": {MEMORY: f"{(reserved - EVICTION) // MEBIBYTE}Mi"},
        "reservedMemory": [
            {"numaNode": cell, "limits": {name: f"{amount // MEBIBYTE}Mi" for name, amount in amounts.items()}}
            for cell, amounts in configuration.reserved_memory.items()
        ],
        "maxPods": configuration.most_pods,
    }
    if configuration.full_cores_only:
        found["cpuManagerPolicyOptions"] = {"full-pcpus-only": "true"}
    if configuration.prefer_closest:
        found["topologyManagerPolicyOptions"] = {"prefer-closest-numa-nodes": "true"}
    if configuration.reserved_cpus:
        found["reservedSystemCPUs"] = cpulist_text(configuration.reserved_cpus)
    return found


def configz(configuration: Configuration) -> dict[str, Any]:
    """The answer at ``/configz``: the configuration as the kubelet runs with it."""
    members = {
        name: value
        for name, value in configuration_document(configuration).items()
        if name not in {"apiVersion", "kind"}
    }
    return {"kubeletconfig": members}


# -- sysfs and procfs, as far as programs read them for zones, CPUs, memory and huge pages -----------------------------


NODES = "sys/devices/system/node"
CPUS = "sys/devices/system/cpu"
KIBIBYTE = 1024


def host_files(machine: Machine) -> dict[str, str]:
    """Content by path below the node's folder."""
    return {path: f"{content}\n" for path, content in _host_files(machine)}


def _host_files(machine: Machine) -> Iterator[tuple[str, str]]:
    for name in ("online", "possible"):
        yield f"{NODES}/{name}", cpulist_text(machine.cell_ids)
    yield f"{NODES}/has_cpu", cpulist_text(machine.cells_with_cpus)
    for cell in machine.cells:
        for name, content in _host_cell(machine, cell):
            yield f"{NODES}/node{cell.id}/{name}", content
    for name in ("online", "possible", "present"):
        yield f"{CPUS}/{name}", cpulist_text(machine.by_id)
    for cpu in machine.cpus:
        for name, content in _host_cpu(machine, cpu):
            yield f"{CPUS}/cpu{cpu.id}/topology/{name}", content
    yield from _whole(machine)


def _host_cell(machine: Machine, cell: SimulatedZone) -> Iterator[tuple[str, str]]:
    yield "cpulist", cpulist_text(cpu.id for cpu in machine.cpus if cpu.cell == cell.id)
    yield "distance", " ".join(map(str, cell.distances))
    pages = sum(cell.pages.values())
    lines = (
        ("MemTotal:", f"{cell.memory // KIBIBYTE} kB"),
        ("MemFree:", f"{cell.memory // KIBIBYTE} kB"),
        ("MemUsed:", "0 kB"),
        ("HugePages_Total:", str(pages)),
        ("HugePages_Free:", str(pages)),
    )
    yield "meminfo", "\n".join(f"Node {cell.id} {name:<16}{value:>12}" for name, value in lines)
    for size, count in cell.pages.items():
        for name in ("nr_hugepages", "free_hugepages"):
            yield f"hugepages/hugepages-{size // KIBIBYTE}kB/{name}", str(count)


def _host_cpu(machine: Machine, cpu: Cpu) -> Iterator[tuple[str, str]]:
    siblings = cpulist_text(each.id for each in machine.cpus if each.core == cpu.core)
    yield "core_id", str(cpu.core)
    yield "physical_package_id", str(cpu.socket)
    yield "thread_siblings_list", siblings
    yield "core_cpus_list", siblings


def _whole(machine: Machine) -> Iterator[tuple[str, str]]:
    memory = sum(cell.memory for cell in machine.cells) // KIBIBYTE
    amounts = {"MemTotal": memory, "MemFree": memory, "MemAvailable": memory, "SwapTotal": 0, "SwapFree": 0}
    lines = [(f"{name}:", amount) for name, amount in amounts.items()]
    yield "proc/meminfo", "\n".join(f"{name:<16}{value:>8} kB" for name, value in lines)
    sizes = {size for cell in machine.cells for size in cell.pages}
    for size in sorted(sizes):
        count = sum(cell.pages.get(size, 0) for cell in machine.cells)
        yield f"sys/kernel/mm/hugepages/hugepages-{size // KIBIBYTE}kB/nr_hugepages", str(count)
