"""A node in a folder: tracefs with a FIFO as ``trace_pipe``, ``/proc`` and ``/var/log/pods``.

The kernel creates an instance's files on mkdir and removes them on rmdir, but not while a file of the instance is open;
:meth:`FakeNode.make` and :meth:`FakeNode.remove` do that here.
"""

import contextlib
import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final

from polyarch.placement.exec_monitor_node import INSTANCE_PREFIX, TRACE_EVENTS, TraceInstance, open_instance

EVENTS: Final = tuple(TRACE_EVENTS)


class FakeNode:
    """``events``: those that this kernel has."""

    def __init__(self, folder: Path, *, events: tuple[str, ...] = EVENTS) -> None:
        self.tracefs = folder / "tracing"
        self.proc = folder / "proc"
        self.logs = folder / "pods"
        self._events = events
        for each in (self.tracefs / "instances", self.proc, self.logs):
            each.mkdir(parents=True)
        self._writers: dict[Path, int] = {}
        self.instance_folder = self.tracefs / "instances" / INSTANCE_PREFIX
        """That of the instance made last."""

    @property
    def instances(self) -> list[str]:
        return sorted(each.name for each in (self.tracefs / "instances").iterdir())

    def instance(self) -> AbstractContextManager[TraceInstance]:
        return open_instance([self.tracefs], make=self.make, remove=self.remove)

    def make(self, folder: Path) -> None:
        folder.mkdir()
        files = {"buffer_size_kb": "0", "events/enable": "0", "tracing_on": "1", "set_event_pid": ""}
        for name, text in {**files, "tracing_cpumask": "3"}.items():
            _file(folder / name, text)
        for event in self._events:
            _file(folder / "events" / event / "filter", "none")
            _file(folder / "events" / event / "enable", "0")
        os.mkfifo(folder / "trace_pipe")
        self._writers[folder] = os.open(folder / "trace_pipe", os.O_RDWR)
        self.instance_folder = folder

    def remove(self, folder: Path) -> None:
        if not folder.is_dir():
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        if any(folder in path.parents for number, path in _open_files() if number != self._writers.get(folder)):
            raise OSError(errno.EBUSY, os.strerror(errno.EBUSY))
        os.close(self._writers.pop(folder))
        shutil.rmtree(folder)

    def setting(self, name: str) -> str:
        return (self.instance_folder / name).read_text()

    def switch_off(self) -> None:
        """As ``echo 0 > events/enable`` does it."""
        for event in self._events:
            (self.instance_folder / "events" / event / "enable").write_text("0")

    def writes(self, data: bytes) -> None:
        """As the kernel writes to ``trace_pipe``."""
        os.write(self._writers[self.instance_folder], data)

    def fails(self, pid: int, comm: str = "runc:[2:INIT]") -> None:
        """An execve of this process fails with ENOEXEC."""
        self.writes(b"%16b-%-7d [001] ..... 12.5: sys_execve -> 0xfffffffffffffff8\n" % (comm.encode(), pid))

    def forks(self, pid: int) -> None:
        """runc forks this process."""
        text = b"sched_process_fork: comm=runc pid=1 child_comm=runc child_pid=%d" % pid
        self.writes(b"            runc-1       [000] ..... 12.4: %b\n" % text)

    def process(self, pid: int, cgroup: str, *, started: int = 1) -> None:
        """A process lives in this cgroup; ``started`` tells it from others with this pid."""
        _file(self.proc / str(pid) / "cgroup", f"0::{cgroup}\n")
        _file(self.proc / str(pid) / "stat", f"{pid} (a) (b) S {' '.join(['0'] * 18)} {started} 0 0\n")

    def ends(self, pid: int) -> None:
        shutil.rmtree(self.proc / str(pid))

    def pod(self, namespace: str, name: str, uid: str) -> None:
        """The kubelet has started a pod."""
        (self.logs / f"{namespace}_{name}_{uid}").mkdir()


def _open_files() -> Iterator[tuple[int, Path]]:
    for link in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            yield int(link.name), link.readlink()


def _file(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
