"""The part of a machine that hardly ever changes: which cells it has, their CPUs, memory, distances and sockets
(NE-031 – NE-036).

Cells are known by the kernel's ids, never by their place in a list. What is not essential and cannot be read is left
out and counted; without the CPUs of a cell nothing true can be said, so that is an error.
"""

import re
from collections.abc import Callable, Iterable
from typing import Final

import msgspec

from polyarch.numa.decide import cpulists
from polyarch.numa.decide.facts import Cell
from polyarch.numa.host.tree import HostFiles, Tree, reason

Count = Callable[[str], None]
"""Called with the name of a file that could not be used (``polyarch_numa_facts_errors_total{file}``)."""

CPUS_ONLINE: Final = "devices/system/cpu/online"
CELLS_ONLINE: Final = "devices/system/node/online"
CELLS: Final = "devices/system/node"
CPUS: Final = "devices/system/cpu"
PAGES: Final = "kernel/mm/hugepages"
"""Of a kernel without cells."""
LOCAL: Final = 10
"""The distance of a cell to itself."""
_CELL: Final = re.compile(r"node([0-9]{1,6})")
_CPU: Final = re.compile(r"cpu([0-9]{1,6})")
_PAGE_SIZE: Final = re.compile(r"hugepages-([0-9]{1,15})kB")
_MEMORY: Final = re.compile(r"^(?:Node +[0-9]+ +)?MemTotal: +([0-9]+) kB$", re.MULTILINE)


class UnreadableMachine(Exception):  # noqa: N818 - the name says what is the matter
    """The CPUs of a cell, or the cells themselves, cannot be read: the scan fails (NE-036)."""


class PageCount(msgspec.Struct, frozen=True):
    """Where the number of huge pages of one size is."""

    size: int
    """Bytes."""
    path: str


class Layout(msgspec.Struct, frozen=True, kw_only=True):
    """The cells without their counts of pages, and what tells that they have changed."""

    cells: tuple[Cell, ...]
    pages: tuple[tuple[PageCount, ...] | None, ...]
    """Of each cell; None: its sizes could not be read."""
    threads_per_core: int
    online: tuple[str | None, str | None]
    """Content of ``cpu/online`` and ``node/online``; None: no such file."""


def online(sysfs: Tree) -> tuple[str | None, str | None]:
    """The two files whose content changes with the layout. Raises UnreadableMachine."""
    return _optional(sysfs, CPUS_ONLINE), _optional(sysfs, CELLS_ONLINE)


def read_layout(files: HostFiles, count: Count) -> Layout:
    """The layout as of now. Raises UnreadableMachine."""
    sysfs = files.sysfs
    told = online(sysfs)
    ids = _ids(sysfs, told[1])
    running = None if told[0] is None else _numbers(sysfs.path(CPUS_ONLINE), told[0])
    if ids:
        cells = [_cell(sysfs, each, ids, running, count) for each in ids]
        places = [f"{CELLS}/node{each}/hugepages" for each in ids]
    else:
        cells, places = [_only_cell(files, running, count)], [PAGES]
    return Layout(
        cells=tuple(cells),
        pages=tuple(_page_counts(sysfs, place, count) for place in places),
        threads_per_core=_threads(sysfs, cells, count),
        online=told,
    )


def _ids(sysfs: Tree, told: str | None) -> list[int]:
    """The online cells, ascending; none if the kernel knows no cells."""
    if told is not None:
        ids = sorted(_numbers(sysfs.path(CELLS_ONLINE), told))
        if not ids:
            raise UnreadableMachine(f"{sysfs.path(CELLS_ONLINE)}: is empty; a machine has at least one online cell")
        return ids
    return sorted(int(match[1]) for name in _names(sysfs, CELLS) if (match := _CELL.fullmatch(name)))


def _cell(sysfs: Tree, id: int, ids: list[int], running: frozenset[int] | None, count: Count) -> Cell:
    folder = f"{CELLS}/node{id}"
    path = f"{folder}/cpulist"
    try:
        cpus = _numbers(sysfs.path(path), sysfs.text(path))
    except OSError as error:
        raise UnreadableMachine(f"{reason(error)}; without it the CPUs of cell {id} are not known") from None
    if running is not None:
        cpus &= running
    return Cell(
        id=id,
        cpus=cpus,
        memory=_memory(sysfs, f"{folder}/meminfo", count),
        costs=_costs(sysfs, f"{folder}/distance", ids, count),
        socket=_socket(sysfs, cpus, count),
    )


def _only_cell(files: HostFiles, running: frozenset[int] | None, count: Count) -> Cell:
    """A kernel without NUMA, as some s390x have (NE-035)."""
    cpus = running
    if cpus is None:
        cpus = frozenset(int(match[1]) for name in _names(files.sysfs, CPUS) if (match := _CPU.fullmatch(name)))
    if not cpus:
        place = files.sysfs.path(CPUS)
        raise UnreadableMachine(f"{place}: no CPUs and no cells here; is this the sysfs of a Linux machine?")
    return Cell(
        id=0,
        cpus=cpus,
        memory=_memory(files.root, "proc/meminfo", count),
        costs=((0, LOCAL),),
        socket=_socket(files.sysfs, cpus, count),
    )


def _memory(tree: Tree, path: str, count: Count) -> int | None:
    """Bytes of ``MemTotal`` (NE-033)."""
    try:
        match = _MEMORY.search(tree.text(path))
    except OSError:
        match = None
    if match is None:
        count("meminfo")
        return None
    return int(match[1]) * 1024


def _costs(sysfs: Tree, path: str, ids: list[int], count: Count) -> tuple[tuple[int, int], ...]:
    """Each number belongs to the online cell of the same rank; any other number of them means nothing (NE-034)."""
    try:
        row = sysfs.text(path).split()
    except OSError:
        row = []
    if len(row) != len(ids) or not all(word.isascii() and word.isdigit() for word in row):
        count("distance")
        return ()
    return tuple(zip(ids, map(int, row), strict=True))


def _page_counts(sysfs: Tree, place: str, count: Count) -> tuple[PageCount, ...] | None:
    """Every size there is; none where the kernel has no huge pages."""
    try:
        names = sysfs.names(place)
    except (FileNotFoundError, NotADirectoryError):
        return ()
    except OSError:
        count("hugepages")
        return None
    sizes = ((int(match[1]) * 1024, name) for name in names if (match := _PAGE_SIZE.fullmatch(name)))
    return tuple(PageCount(size, f"{place}/{name}/nr_hugepages") for size, name in sorted(sizes))


def _socket(sysfs: Tree, cpus: Iterable[int], count: Count) -> int | None:
    """The package that all these CPUs belong to (NE-016); kernels say -1 where they know none."""
    found: int | None = None
    for cpu in sorted(cpus):
        try:
            package = int(sysfs.text(f"{CPUS}/cpu{cpu}/topology/physical_package_id"))
        except FileNotFoundError:
            return None
        except (OSError, ValueError):
            count("physical_package_id")
            return None
        if package < 0 or found not in (None, package):
            return None
        found = package
    return found


def _threads(sysfs: Tree, cells: Iterable[Cell], count: Count) -> int:
    """The largest number of CPUs that share a core (NE-015); one CPU of each core is asked."""
    left = {cpu for cell in cells for cpu in cell.cpus}
    widest = 1
    while left:
        cpu = min(left)
        left.remove(cpu)
        try:
            siblings = cpulists.parse(sysfs.text(f"{CPUS}/cpu{cpu}/topology/thread_siblings_list"))
        except FileNotFoundError:
            continue
        except (OSError, ValueError):
            count("thread_siblings_list")
            continue
        left -= siblings
        widest = max(widest, len(siblings))
    return widest


def _names(tree: Tree, path: str) -> list[str]:
    try:
        return tree.names(path)
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise UnreadableMachine(reason(error)) from None


def _optional(tree: Tree, path: str) -> str | None:
    try:
        return tree.text(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UnreadableMachine(reason(error)) from None


def _numbers(place: str, text: str) -> frozenset[int]:
    try:
        return cpulists.parse(text)
    except ValueError as error:
        raise UnreadableMachine(f"{place}: {error}") from None
