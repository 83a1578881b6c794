"""The machine as sysfs and procfs show it: NUMA zones with their CPUs, memory, huge pages and distances.

Every file that is read on behalf of a scan is opened by :class:`HostRoot`, so one option moves all of them, and no
symlink of a mounted or copied tree leads a reader to the files of another machine.

Zones are known by the kernel's ids, never by their place in a list. Values that are not essential and cannot be read
are left out and counted; without the CPUs of a zone nothing true can be said, so that is an error.
"""

import errno
import os
import re
from collections.abc import Callable, Hashable, Iterable
from typing import Final, NamedTuple

import msgspec

from polyarch.clock import Clock
from polyarch.numa.facts import HostZone, Machine, parse_cpu_list

MAX_FILE_BYTES: Final = 16 << 20
"""Bytes of the largest file that is read: the kubelet's memory state of a thousand pods has less than a tenth."""
TOPOLOGY_LIFETIME: Final = 600.0
"""Seconds after which the topology of the machine is read again, whatever happens."""

CPUS_ONLINE: Final = "devices/system/cpu/online"
ZONES_ONLINE: Final = "devices/system/node/online"
ZONES: Final = "devices/system/node"
CPUS: Final = "devices/system/cpu"
PAGES: Final = "kernel/mm/hugepages"
"""Of a kernel without NUMA."""
LOCAL: Final = 10
"""The distance of a zone to itself."""
_CHUNK: Final = 1 << 16
_ZONE: Final = re.compile(r"node([0-9]{1,6})")
_CPU: Final = re.compile(r"cpu([0-9]{1,6})")
_PAGE_SIZE: Final = re.compile(r"hugepages-([0-9]{1,15})kB")
_MEMORY: Final = re.compile(r"^(?:Node +[0-9]+ +)?MemTotal: +([0-9]+) kB$", re.MULTILINE)

Count = Callable[[str], None]
"""Called with the name of a file that could not be used (``polyarch_numa_facts_errors_total{file}``)."""


# -- files -------------------------------------------------------------------------------------------------------------


class HostRoot:
    """The directory below which files of a host are read; paths are relative to it, a leading ``/`` means the same.

    Links are resolved before anything is opened. An absolute link is taken literally, so below a root other than ``/``
    it leads out.
    """

    __slots__ = ("_below", "_resolved", "top")

    def __init__(self, top: str, *, within: str | None = None) -> None:
        """``within``: a directory above ``top`` below which links may lead; else that is ``top`` itself."""
        self.top = top
        self._resolved = os.path.realpath(top if within is None else within)
        self._below = self._resolved.rstrip("/") + "/"

    def path(self, path: str) -> str:
        """The whole path, for messages and for files that are read by others."""
        return os.path.join(self.top, path.lstrip("/"))  # noqa: PTH118 - thousands of these are made per scan

    def bytes(self, path: str) -> bytes:
        """The content of a file. Raises OSError, also for a file outside the root or of more than
        :data:`MAX_FILE_BYTES`.
        """
        # A pipe must not hold up a scan: without O_NONBLOCK its open waits for a writer.
        descriptor = os.open(self._inside(path), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            parts, size = [], 0
            while part := os.read(descriptor, _CHUNK):
                parts.append(part)
                size += len(part)
                if size > MAX_FILE_BYTES:
                    raise OSError(errno.EFBIG, f"larger than {MAX_FILE_BYTES >> 20} MiB", self.path(path))
            return b"".join(parts)
        finally:
            os.close(descriptor)

    def text(self, path: str) -> str:
        """The content as text; bytes that are not UTF-8 are replaced."""
        return self.bytes(path).decode(errors="replace")

    def names(self, path: str) -> list[str]:
        """The entries of a directory, sorted. Raises OSError."""
        return sorted(os.listdir(self._inside(path)))  # noqa: PTH208 - names alone are needed

    def identity(self, path: str) -> tuple[int, int, int, int] | None:
        """Device, inode, size and time of modification of a file; None if there is none."""
        try:
            status = os.stat(self._inside(path))  # noqa: PTH116
        except OSError:
            return None
        return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns

    def _inside(self, path: str) -> str:
        whole = os.path.realpath(self.path(path))
        if whole != self._resolved and not whole.startswith(self._below):
            raise OSError(errno.EXDEV, f"a symlink leads out of {self._resolved}", self.path(path))
        return whole


class HostFiles(NamedTuple):
    """Both roots of a machine."""

    root: HostRoot
    sysfs: HostRoot


def host_files(root: str = "/", sysfs: str = "") -> HostFiles:
    """All files below ``root``; those of sysfs below ``sysfs`` instead of ``<root>/sys``, if it is given."""
    own = HostRoot(sysfs) if sysfs else HostRoot(os.path.join(root, "sys"), within=root)  # noqa: PTH118
    return HostFiles(HostRoot(root), own)


def os_error_text(error: OSError) -> str:
    """The file and its problem, for a message."""
    return f"{error.filename}: {error.strerror}" if error.filename else str(error.strerror or error)


# -- the machine now ---------------------------------------------------------------------------------------------------


class UnreadableMachine(Exception):  # noqa: N818 - the name says what is the matter
    """The CPUs of a zone, or the zones themselves, cannot be read: the scan fails."""


class MachineReader:
    """The machine for one scan after the other: a topology that is kept until something says that it has changed, and
    fresh counts of huge pages.

    Reading a topology takes two or three files per CPU, so a large machine would spend a scan's whole budget on what
    changes once a year. CPUs that come or go change the content of ``cpu/online``, which is read with each scan.
    """

    def __init__(self, files: HostFiles, *, clock: Clock, count: Count = lambda _: None) -> None:
        self._files = files
        self._clock = clock
        self._count = count
        self._topology: MachineTopology | None = None
        self._kubelet: Hashable = None
        self._due = 0.0

    def read(self, kubelet: Hashable = None) -> Machine:
        """The machine as of now. ``kubelet`` is the identity of the kubelet's socket: a restarted kubelet has another
        one. Raises UnreadableMachine; the next call starts afresh then.
        """
        topology, self._topology = self._topology, None
        now, sysfs = self._clock.monotonic(), self._files.sysfs
        if topology is None or kubelet != self._kubelet or now >= self._due or online(sysfs) != topology.online:
            topology = read_topology(self._files, self._count)
            self._kubelet, self._due = kubelet, now + TOPOLOGY_LIFETIME
        machine = Machine(
            zones=tuple(
                self._with_page_counts(zone, pages) for zone, pages in zip(topology.zones, topology.pages, strict=True)
            ),
            cores=topology.cores,
        )
        self._topology = topology
        return machine

    def _with_page_counts(self, zone: HostZone, pages: "tuple[PageCount, ...] | None") -> HostZone:
        """The zone with the number of its pages of each size; a size whose number cannot be read is left out."""
        if pages is None:
            return zone
        counts: dict[int, int] = {}
        for page in pages:
            try:
                text = self._files.sysfs.text(page.path).strip()
            except OSError:
                text = ""
            if text.isascii() and text.isdigit():
                counts[page.size] = int(text)
            else:
                self._count("nr_hugepages")
        return msgspec.structs.replace(zone, pages=counts)


# -- its topology ------------------------------------------------------------------------------------------------------


class PageCount(msgspec.Struct, frozen=True):
    """The file with the number of huge pages of one size."""

    size: int
    """Bytes."""
    path: str


class MachineTopology(msgspec.Struct, frozen=True, kw_only=True):
    """The zones without their counts of pages, and the content by which a change of them shows."""

    zones: tuple[HostZone, ...]
    pages: tuple[tuple[PageCount, ...] | None, ...]
    """Of each zone; None: its sizes could not be read."""
    cores: tuple[frozenset[int], ...]
    online: tuple[str | None, str | None]
    """Content of ``cpu/online`` and ``node/online``; None: no such file."""


def online(sysfs: HostRoot) -> tuple[str | None, str | None]:
    """The two files whose content changes with the topology. Raises UnreadableMachine."""
    return _optional(sysfs, CPUS_ONLINE), _optional(sysfs, ZONES_ONLINE)


def read_topology(files: HostFiles, count: Count) -> MachineTopology:
    """The topology as of now. Raises UnreadableMachine."""
    sysfs = files.sysfs
    cpus_online, zones_online = online(sysfs)
    ids = _ids(sysfs, zones_online)
    running = None if cpus_online is None else _numbers(sysfs.path(CPUS_ONLINE), cpus_online)
    if ids:
        zones = [_zone(sysfs, zone, ids, running, count) for zone in ids]
        folders = [f"{ZONES}/node{zone}/hugepages" for zone in ids]
    else:
        zones, folders = [_only_zone(files, running, count)], [PAGES]
    return MachineTopology(
        zones=tuple(zones),
        pages=tuple(_page_counts(sysfs, folder, count) for folder in folders),
        cores=_cores(sysfs, zones, count),
        online=(cpus_online, zones_online),
    )


def _ids(sysfs: HostRoot, zones_online: str | None) -> list[int]:
    """The online zones, ascending; none if the kernel knows no NUMA."""
    if zones_online is not None:
        ids = sorted(_numbers(sysfs.path(ZONES_ONLINE), zones_online))
        if not ids:
            raise UnreadableMachine(f"{sysfs.path(ZONES_ONLINE)}: is empty; a machine has at least one online cell")
        return ids
    return sorted(int(match[1]) for name in _names(sysfs, ZONES) if (match := _ZONE.fullmatch(name)))


def _zone(sysfs: HostRoot, id: int, ids: list[int], running: frozenset[int] | None, count: Count) -> HostZone:
    folder = f"{ZONES}/node{id}"
    path = f"{folder}/cpulist"
    try:
        cpus = _numbers(sysfs.path(path), sysfs.text(path))
    except OSError as error:
        raise UnreadableMachine(f"{os_error_text(error)}; without it the CPUs of cell {id} are not known") from None
    if running is not None:
        cpus &= running
    return HostZone(
        id=id,
        cpus=cpus,
        memory=_memory(sysfs, f"{folder}/meminfo", count),
        costs=_costs(sysfs, f"{folder}/distance", ids, count),
        socket=_socket(sysfs, cpus, count),
    )


def _only_zone(files: HostFiles, running: frozenset[int] | None, count: Count) -> HostZone:
    """The zone of a kernel without NUMA, as some s390x have."""
    cpus = running
    if cpus is None:
        cpus = frozenset(int(match[1]) for name in _names(files.sysfs, CPUS) if (match := _CPU.fullmatch(name)))
    if not cpus:
        place = files.sysfs.path(CPUS)
        raise UnreadableMachine(f"{place}: no CPUs and no cells here; is this the sysfs of a Linux machine?")
    return HostZone(
        id=0,
        cpus=cpus,
        memory=_memory(files.root, "proc/meminfo", count),
        costs=((0, LOCAL),),
        socket=_socket(files.sysfs, cpus, count),
    )


def _memory(root: HostRoot, path: str, count: Count) -> int | None:
    """Bytes of ``MemTotal``."""
    try:
        match = _MEMORY.search(root.text(path))
    except OSError:
        match = None
    if match is None:
        count("meminfo")
        return None
    return int(match[1]) * 1024


def _costs(sysfs: HostRoot, path: str, ids: list[int], count: Count) -> tuple[tuple[int, int], ...]:
    """Each number belongs to the online zone of the same rank; any other number of them means nothing."""
    try:
        row = sysfs.text(path).split()
    except OSError:
        row = []
    if len(row) != len(ids) or not all(word.isascii() and word.isdigit() for word in row):
        count("distance")
        return ()
    return tuple(zip(ids, map(int, row), strict=True))


def _page_counts(sysfs: HostRoot, folder: str, count: Count) -> tuple[PageCount, ...] | None:
    """Every size there is; none where the kernel has no huge pages."""
    try:
        names = sysfs.names(folder)
    except (FileNotFoundError, NotADirectoryError):
        return ()
    except OSError:
        count("hugepages")
        return None
    sizes = ((int(match[1]) * 1024, name) for name in names if (match := _PAGE_SIZE.fullmatch(name)))
    return tuple(PageCount(size, f"{folder}/{name}/nr_hugepages") for size, name in sorted(sizes))


def _socket(sysfs: HostRoot, cpus: Iterable[int], count: Count) -> int | None:
    """The package that all these CPUs belong to; kernels say -1 where they know none."""
    socket: int | None = None
    for cpu in sorted(cpus):
        try:
            package = int(sysfs.text(f"{CPUS}/cpu{cpu}/topology/physical_package_id"))
        except FileNotFoundError:
            return None
        except (OSError, ValueError):
            count("physical_package_id")
            return None
        if package < 0 or socket not in (None, package):
            return None
        socket = package
    return socket


def _cores(sysfs: HostRoot, zones: Iterable[HostZone], count: Count) -> tuple[frozenset[int], ...]:
    """The online CPUs of each core, ascending; one CPU of each core is read. A CPU that tells no siblings is alone."""
    left = {cpu for zone in zones for cpu in zone.cpus}
    cores: list[frozenset[int]] = []
    while left:
        cpu = min(left)
        siblings: frozenset[int] = frozenset()
        try:
            siblings = parse_cpu_list(sysfs.text(f"{CPUS}/cpu{cpu}/topology/thread_siblings_list"))
        except FileNotFoundError:
            pass
        except (OSError, ValueError):
            count("thread_siblings_list")
        cores.append(frozenset({cpu, *siblings} & left))
        left -= cores[-1]
    return tuple(cores)


def _names(root: HostRoot, path: str) -> list[str]:
    try:
        return root.names(path)
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise UnreadableMachine(os_error_text(error)) from None


def _optional(root: HostRoot, path: str) -> str | None:
    try:
        return root.text(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UnreadableMachine(os_error_text(error)) from None


def _numbers(place: str, text: str) -> frozenset[int]:
    try:
        return parse_cpu_list(text)
    except ValueError as error:
        raise UnreadableMachine(f"{place}: {error}") from None
