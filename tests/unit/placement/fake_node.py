"""A node in a folder: tracefs with a FIFO as ``trace_pipe``, ``/proc`` and ``/var/log/pods``.

The kernel creates an instance's files on mkdir and removes them on rmdir; :meth:`FakeNode.make` and
:meth:`FakeNode.remove` do that here. What the monitor writes is recorded in order.
"""

import os
import shutil
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final

from polyarch.placement.execmonitor import tracefs

EVENTS: Final = tuple(tracefs.EVENTS)


class FakeNode:
    """``events``: those that this kernel has."""

    def __init__(self, folder: Path, *, events: tuple[str, ...] = EVENTS) -> None:
        self.tracefs = folder / "tracing"
        self.proc = folder / "proc"
        self.logs = folder / "pods"
        self._events = events
        for each in (self.tracefs / "instances", self.proc, self.logs):
            each.mkdir(parents=True)
        self._writer = -1
        self.removed: list[dict[str, str]] = []
        """What was in the files of each instance when it was removed."""

    @property
    def instance_folder(self) -> Path:
        return self.tracefs / "instances" / tracefs.INSTANCE

    def instance(self) -> AbstractContextManager[Path]:
        return tracefs.instance([self.tracefs], make=self.make, remove=self.remove)

    def make(self, folder: Path) -> None:
        folder.mkdir()
        for name in ("buffer_size_kb", "events/enable"):
            _file(folder / name, "0")
        for event in self._events:
            _file(folder / "events" / event / "filter", "none")
            _file(folder / "events" / event / "enable", "0")
        os.mkfifo(folder / "trace_pipe")
        self._writer = os.open(folder / "trace_pipe", os.O_RDWR)

    def remove(self, folder: Path) -> None:
        self.removed.append({name: self.setting(name) for name in ("buffer_size_kb", "events/enable")})
        os.close(self._writer)
        shutil.rmtree(folder)

    def setting(self, name: str) -> str:
        return (self.instance_folder / name).read_text()

    def writes(self, data: bytes) -> None:
        """As the kernel writes to ``trace_pipe``."""
        os.write(self._writer, data)

    def fails(self, pid: int, comm: str = "runc:[2:INIT]") -> None:
        """An execve of this process fails with ENOEXEC."""
        self.writes(b"%16b-%-7d [001] ..... 12.5: sys_execve -> 0xfffffffffffffff8\n" % (comm.encode(), pid))

    def forks(self, pid: int) -> None:
        """runc forks this process."""
        text = b"sched_process_fork: comm=runc pid=1 child_comm=runc child_pid=%d" % pid
        self.writes(b"            runc-1       [000] ..... 12.4: %b\n" % text)

    def process(self, pid: int, cgroup: str) -> None:
        """A process lives in this cgroup."""
        _file(self.proc / str(pid) / "cgroup", f"0::{cgroup}\n")

    def ends(self, pid: int) -> None:
        shutil.rmtree(self.proc / str(pid))

    def pod(self, namespace: str, name: str, uid: str) -> None:
        """The kubelet has started a pod."""
        (self.logs / f"{namespace}_{name}_{uid}").mkdir()


def _file(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
