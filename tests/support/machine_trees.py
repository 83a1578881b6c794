"""Machines as trees of files: sysfs, procfs and what a kubelet keeps, laid out as a kernel does."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

NODE = "sys/devices/system/node"
CPU = "sys/devices/system/cpu"
GIB = 1 << 30


class CellFiles(NamedTuple):
    """What a cell's directory says; None: no such file."""

    cpus: str = ""
    memory_kib: int | None = 4 << 20
    distance: str | None = None
    pages: Mapping[int, int] | None = {2048: 0, 1048576: 0}
    """Count by size in KiB; None: no directory."""


class MachineTree:
    """Files below a root."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def write(self, path: str, text: str) -> Path:
        whole = self.root / path
        whole.parent.mkdir(parents=True, exist_ok=True)
        whole.write_text(text)
        return whole

    def remove(self, path: str) -> None:
        (self.root / path).unlink()

    def cells(self, cells: Mapping[int, CellFiles], *, online: str | None = "listed") -> "MachineTree":
        """Cells by id, each as far from the others as 21; ``online`` is the content of ``node/online``."""
        ids = sorted(cells)
        if online is not None:
            self.write(f"{NODE}/online", f"{','.join(map(str, ids)) if online == 'listed' else online}\n")
        for number, cell in cells.items():
            folder = f"{NODE}/node{number}"
            self.write(f"{folder}/cpulist", f"{cell.cpus}\n")
            if cell.memory_kib is not None:
                amounts = (f"Node {number} {key}:       {cell.memory_kib} kB\n" for key in ("MemTotal", "MemFree"))
                self.write(f"{folder}/meminfo", "".join(amounts))
            row = " ".join("10" if other == number else "21" for other in ids)
            self.write(f"{folder}/distance", f"{row if cell.distance is None else cell.distance}\n")
            for size, count in (cell.pages or {}).items():
                self.write(f"{folder}/hugepages/hugepages-{size}kB/nr_hugepages", f"{count}\n")
        return self

    def cpus(self, online: str, *, packages: Mapping[int, int] = {}, siblings: Sequence[str] = ()) -> "MachineTree":
        """``packages``: package id by CPU; ``siblings``: lists of CPUs that share a core."""
        self.write(f"{CPU}/online", f"{online}\n")
        for cpu, package in packages.items():
            self.write(f"{CPU}/cpu{cpu}/topology/physical_package_id", f"{package}\n")
        for group in siblings:
            first, _, last = group.partition("-")
            for cpu in range(int(first), int(last or first) + 1):
                self.write(f"{CPU}/cpu{cpu}/topology/thread_siblings_list", f"{group}\n")
        return self


def two_cells(root: Path) -> MachineTree:
    """The machine of NE-073: CPUs 0-3 and 4-7, 4 GiB each."""
    return MachineTree(root).cells({0: CellFiles("0-3"), 1: CellFiles("4-7")}).cpus("0-7")
