"""sysfs and procfs of a node, as far as programs look at them for cells, CPUs, memory and huge pages. Pure."""

from collections.abc import Iterator

from polyarch.sandbox.kubelet_model.machine import Cell, Cpu, Machine
from polyarch.sandbox.numa_nodes import cpulists

NODES = "sys/devices/system/node"
CPUS = "sys/devices/system/cpu"
KIBIBYTE = 1024


def files(machine: Machine) -> dict[str, str]:
    """Content by path below the node's folder."""
    return {path: f"{content}\n" for path, content in _files(machine)}


def _files(machine: Machine) -> Iterator[tuple[str, str]]:
    for name in ("online", "possible"):
        yield f"{NODES}/{name}", cpulists.text(machine.cell_ids)
    yield f"{NODES}/has_cpu", cpulists.text(machine.cells_with_cpus)
    for cell in machine.cells:
        for name, content in _cell(machine, cell):
            yield f"{NODES}/node{cell.id}/{name}", content
    for name in ("online", "possible", "present"):
        yield f"{CPUS}/{name}", cpulists.text(machine.by_id)
    for cpu in machine.cpus:
        for name, content in _cpu(machine, cpu):
            yield f"{CPUS}/cpu{cpu.id}/topology/{name}", content
    yield from _whole(machine)


def _cell(machine: Machine, cell: Cell) -> Iterator[tuple[str, str]]:
    yield "cpulist", cpulists.text(cpu.id for cpu in machine.cpus if cpu.cell == cell.id)
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


def _cpu(machine: Machine, cpu: Cpu) -> Iterator[tuple[str, str]]:
    siblings = cpulists.text(each.id for each in machine.cpus if each.core == cpu.core)
    yield "core_id", str(cpu.core)
    yield "physical_package_id", str(cpu.socket)
    yield "thread_siblings_list", siblings
    yield "core_cpus_list", siblings


def _whole(machine: Machine) -> Iterator[tuple[str, str]]:
    memory = sum(cell.memory for cell in machine.cells) // KIBIBYTE
    lines = (("MemTotal:", memory), ("MemFree:", memory), ("MemAvailable:", memory))
    yield "proc/meminfo", "\n".join(f"{name:<16}{value:>8} kB" for name, value in lines)
    sizes = {size for cell in machine.cells for size in cell.pages}
    for size in sorted(sizes):
        count = sum(cell.pages.get(size, 0) for cell in machine.cells)
        yield f"sys/kernel/mm/hugepages/hugepages-{size // KIBIBYTE}kB/nr_hugepages", str(count)
