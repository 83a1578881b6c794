"""The control groups of a sandbox with real nodes, on cgroup v1 and v2: made, filled, emptied and removed.

``/polyarch-<sandbox>`` in each hierarchy; below it ``host`` for the gateway, ``host-<node>`` for the programs of a node
and one group for its pods, which is the ``cgroupRoot`` of its kubelet. What runs in any of them belongs to the sandbox,
whoever started it.
"""

import contextlib
import os
import signal
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

ROOT: Final = Path("/sys/fs/cgroup")
HOST: Final = "host"
"""The group of the process that keeps the gateway's namespace; names of the others of programs begin so."""
PODS: Final = "kubepods"
"""The group below a node's in which its kubelet makes those of pods."""
END_SECONDS: Final = 20.0
JOIN: Final = 'for f in $1; do echo $$ > "$f/cgroup.procs" || exit 71; done; shift; exec "$@"'
"""A shell's program: joins the groups in its first argument, then becomes the program of the others."""
_NOTE: Final = "user.polyarch.controllers"
"""Attribute of a sandbox's group of cgroup v2: controllers that the machine's groups did not have before."""


def is_unified(root: Path = ROOT) -> bool:
    """Whether the machine has cgroup v2 alone."""
    return (root / "cgroup.controllers").is_file()


def hierarchies(root: Path = ROOT) -> list[Path]:
    """The roots that a kubelet uses: the only one of cgroup v2, else one for each controller of cgroup v1."""
    if is_unified(root):
        return [root]
    return sorted(each for each in root.iterdir() if each.is_dir() and not each.is_symlink() and _is_v1(each))


def _is_v1(hierarchy: Path) -> bool:
    return (hierarchy / "cgroup.procs").is_file() and not (hierarchy / "cgroup.controllers").exists()


class Cgroups:
    """Those of one sandbox."""

    def __init__(self, sandbox: str, *, root: Path = ROOT) -> None:
        self.name = f"polyarch-{sandbox}"
        self._root = root

    @property
    def _own(self) -> list[Path]:
        return [each / self.name for each in hierarchies(self._root)]

    @property
    def _all(self) -> list[Path]:
        """With the one of cgroup v2 beside those of v1, in which the runtime makes groups, too."""
        return [*self._own, self._root / "unified" / self.name]

    def of_node(self, node: str) -> str:
        """The kubelet's ``cgroupRoot``."""
        return f"/{self.name}/{node}"

    @staticmethod
    def host_of(node: str) -> str:
        """The group of its containerd and what that starts, kubelet, kube-proxy, and what keeps its namespaces."""
        return f"{HOST}-{node}"

    def make(self, *names: str) -> None:
        """Create the groups that are missing, with every controller that there is."""
        for own in self._own:
            own.mkdir(exist_ok=True)
            if is_unified(self._root):
                self._note_controllers(own)
            for group in (own, *(own / name for name in names)):
                group.mkdir(exist_ok=True)
                _open(group)

    def _note_controllers(self, own: Path) -> None:
        """systemd leaves most controllers off. What sandboxes turn on belongs to all of them, and to the last one."""
        ours = _words(self._root / "cgroup.controllers") - _words(self._root / "cgroup.subtree_control")
        for other in self._root.glob("polyarch-*"):
            ours |= _noted(other)
        with contextlib.suppress(OSError):
            os.setxattr(own, _NOTE, " ".join(sorted(ours)).encode())

    def joining(self, group: str, arguments: Sequence[str]) -> tuple[str, ...]:
        """The command line that starts a program in this group: no moment passes in which it is elsewhere."""
        one = self._own[:1] if is_unified(self._root) else [each for each in self._own if each.parent.name in _ENOUGH]
        groups = " ".join(str(each / group) for each in one)
        return ("/bin/sh", "-c", JOIN, "sh", groups, *arguments)

    def processes(self, *names: str) -> set[int]:
        """The pids in these groups, or in all of them."""
        found: set[int] = set()
        for own in self._all:
            for top in [own / name for name in names] or [own]:
                for group in _below(top):
                    found |= _members(group)
        return found - {0, os.getpid()}

    def kill(self, *names: str) -> None:
        """End every process in these groups, or in all of them, at once; TimeoutError if one does not end."""
        deadline = time.monotonic() + END_SECONDS
        while left := self.processes(*names):
            for pid in left:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue
            if time.monotonic() > deadline:
                raise TimeoutError(f"processes {sorted(left)} of {self.name} do not end")
            time.sleep(0.02)

    def remove(self, *names: str) -> None:
        """Remove these groups, or all of them, and turn off what the machine had off before; they must be empty."""
        for own in self._all:
            noted = set() if names else _noted(own)
            groups = [group for top in [own / name for name in names] or [own] for group in _below(top)]
            for group in sorted(groups, key=lambda each: len(each.parts), reverse=True):
                _remove(group)
            for each in sorted(noted):
                _turn(self._root / "cgroup.subtree_control", f"-{each}")  # refused while another group hands it on


_ENOUGH: Final = ("freezer", "pids")
"""Hierarchies of cgroup v1 that the programs of nodes join: enough to find them, and none that limits them."""


def _open(group: Path) -> None:
    """Give a new group what its parent has: cgroup v1 leaves the CPUs of a cpuset empty, v2 turns no controller on."""
    for name in ("cpuset.cpus", "cpuset.mems"):
        file, parent = group / name, group.parent / name
        if file.exists() and parent.exists() and not file.read_text().strip():
            file.write_text(parent.read_text())
    controllers = group / "cgroup.controllers"
    if controllers.exists() and group.name.split("-")[0] != HOST:  # a group with processes of its own hands nothing on
        control = group.parent / "cgroup.subtree_control"
        for each in sorted(_words(group.parent / "cgroup.controllers")):
            _turn(control, f"+{each}")
        for each in sorted(_words(controllers)):
            _turn(group / "cgroup.subtree_control", f"+{each}")


def _turn(control: Path, change: str) -> None:
    """What cannot be had is missed by the kubelet, which says so."""
    with contextlib.suppress(OSError):
        control.write_text(change)


def _words(file: Path) -> set[str]:
    return set(file.read_text().split())


def _noted(group: Path) -> set[str]:
    try:
        return set(os.getxattr(group, _NOTE).decode().split())
    except OSError:
        return set()


def _below(group: Path) -> Iterator[Path]:
    if group.is_dir():
        yield group
        try:
            inner = [each for each in group.iterdir() if each.is_dir()]
        except FileNotFoundError:
            return
        for each in inner:
            yield from _below(each)


def _members(group: Path) -> set[int]:
    try:
        return {int(line) for line in (group / "cgroup.procs").read_text().split()}
    except (FileNotFoundError, OSError):
        return set()


def _remove(group: Path) -> None:
    """A group whose last process has just ended stays busy for a moment."""
    for _ in range(100):
        try:
            group.rmdir()
        except FileNotFoundError:
            return
        except OSError:
            time.sleep(0.02)
        else:
            return
    raise TimeoutError(f"{group} is still in use")


def missing_controllers(root: Path = ROOT) -> list[str]:
    """Controllers that a kubelet needs and this machine lacks."""
    if is_unified(root):
        there = _words(root / "cgroup.controllers")
    else:
        there = {name for each in hierarchies(root) for name in each.name.split(",")}
    return sorted({"cpu", "cpuset", "memory", "pids"} - there)
