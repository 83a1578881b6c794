"""A control group for one process: what a kubelet would count of its container, and what a busy node would leave it.

Version 1 (a hierarchy for each controller) and version 2; both need root. Without, what ``/proc`` says of the process
takes the place of the counts, and nothing can be throttled.
"""

import time
from contextlib import suppress
from pathlib import Path
from typing import Final, Self

from bench.measure import cpu_seconds, resident_mib

PERIOD: Final = 100_000
"""Microseconds: the period of a kubelet's CPU quotas."""
MIB: Final = 2**20
_CONTROLLERS: Final = ("cpu", "cpuacct", "memory")


class ProcessCgroup:
    """The control group of one process. Its directories are removed by :meth:`close`, when the process has ended."""

    def __init__(self, name: str, *, mounts: str = "/proc/mounts") -> None:
        """``name``: of the directory, unique on the machine."""
        self.pid = 0
        self._folders: dict[str, Path] = {}
        for controller, root in _roots(Path(mounts).read_text()).items():
            folder = root / name
            with suppress(OSError):  # not root: /proc it is
                folder.mkdir(exist_ok=True)
                self._folders[controller] = folder
        if len(self._folders) < len(_CONTROLLERS):
            self.close()

    @classmethod
    def found(cls, name: str, *, below: str, mounts: str = "/proc/mounts") -> Self:
        """The group with this name that somebody has made anywhere below another, such as a container's. It is only
        read. FileNotFoundError if there is none."""
        made = cls.__new__(cls)
        made.pid = 0
        made._folders = {}
        for controller, root in _roots(Path(mounts).read_text()).items():
            folder = next((root / below).rglob(name), None)
            if folder is None:
                raise FileNotFoundError(f"no control group {name} below {root / below}")
            made._folders[controller] = folder
        return made

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def is_counted(self) -> bool:
        """Whether there is a group, and figures are its own."""
        return bool(self._folders)

    def hold(self, pid: int) -> None:
        """Move the process in. What it used before stays with the group that it came from."""
        self.pid = pid
        for folder in set(self._folders.values()):
            (folder / "cgroup.procs").write_text(str(pid))

    def throttle(self, cores: float | None) -> None:
        """So much CPU and no more, as on a node where all use what they requested; None: as much as it wants."""
        if (folder := self._folders.get("cpu")) is None:
            raise PermissionError("only root can throttle a process")
        quota = round(cores * PERIOD) if cores is not None else None
        if (folder / "cpu.cfs_quota_us").exists():
            (folder / "cpu.cfs_quota_us").write_text(str(quota or -1))
        else:
            (folder / "cpu.max").write_text(f"{quota or 'max'} {PERIOD}")

    def cpu_seconds(self) -> float:
        """User and system, of all threads and children."""
        if (folder := self._folders.get("cpuacct")) is None:
            return cpu_seconds(self.pid)
        if (usage := folder / "cpuacct.usage").exists():
            return int(usage.read_text()) / 1e9
        return _table(folder / "cpu.stat")["usage_usec"] / 1e6

    def working_set_mib(self) -> float:
        """What evictions and ``kubectl top`` go by: all that is charged, but for file pages that nobody used lately.

        Pages of files are charged to who read them first: on a node mostly to the first container of an image.
        """
        if (folder := self._folders.get("memory")) is None:
            return resident_mib(self.pid)
        if (usage := folder / "memory.usage_in_bytes").exists():
            idle = _table(folder / "memory.stat")["total_inactive_file"]
        else:
            usage, idle = folder / "memory.current", _table(folder / "memory.stat")["inactive_file"]
        return (int(usage.read_text()) - idle) / MIB

    def close(self) -> None:
        """Remove the directories; a process that is still in them goes back to the root."""
        for folder in set(self._folders.values()):
            with suppress(OSError):
                for pid in (folder / "cgroup.procs").read_text().split():
                    (folder.parent / "cgroup.procs").write_text(pid)
            for _ in range(50):
                try:
                    folder.rmdir()
                except FileNotFoundError:
                    break
                except OSError:  # the kernel has not reaped its process yet
                    time.sleep(0.02)
                else:
                    break
        self._folders = {}


def _roots(mounts: str) -> dict[str, Path]:
    """Controller → the directory in which groups of it are made. Empty if a controller is missing."""
    found: dict[str, Path] = {}
    for line in mounts.splitlines():
        _, place, kind, options, *_ = line.split()
        if kind == "cgroup":
            found |= {each: Path(place) for each in _CONTROLLERS if each in options.split(",")}
        elif kind == "cgroup2" and not found:
            active = Path(place) / "cgroup.subtree_control"
            names = active.read_text().split() if active.exists() else []
            if {"cpu", "memory"} <= set(names):
                found |= dict.fromkeys(_CONTROLLERS, Path(place))
    return found if len(found) == len(_CONTROLLERS) else {}


def _table(file: Path) -> dict[str, int]:
    """``name value`` lines."""
    return {name: int(value) for name, value in (line.split() for line in file.read_text().splitlines())}


def proportional_mib(pid: int) -> float:
    """Proportional set size: of each page the part that falls to this process."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) / 1024
    return 0.0
