"""Instances of tracefs: each exec monitor has one of its own, with the events that it reads (PL-601, PL-604).

An instance has its own buffer, events and filters, so other tracing on the node is not touched, and removing it leaves
nothing behind. Two monitors may share a kernel: a pod that hangs and its successor, or two installations. So the name
is this process's alone, and an instance that somebody holds is never changed: the kernel refuses to remove it (EBUSY),
which tells it from what a killed monitor has left. No eBPF, no capability: uid 0 owns tracefs.

Source: Documentation/trace/ftrace.rst, section "Instances".
"""

import contextlib
import errno
import os
import re
import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import structlog

log = structlog.get_logger(__name__)

ROOTS: Final = (Path("/sys/kernel/tracing"), Path("/sys/kernel/debug/tracing"))
INSTANCE: Final = "polyarch-exec"
"""What the name of every instance of ours starts with; the process's id and a random part follow."""
MOST_INSTANCES: Final = 8
"""On one kernel: each takes memory for every CPU until its process has ended."""
BUFFER_KIB: Final = 64
"""Per CPU. A failed exec takes about 50 bytes."""
FAILED: Final = "ret == -8"
RUNTIMES: Final = 'parent_comm ~ "runc*" || parent_comm ~ "crun*" || parent_comm ~ "youki*"'
EVENTS: Final = {
    "syscalls/sys_exit_execve": FAILED,
    "syscalls/sys_exit_execveat": FAILED,
    "sched/sched_process_fork": RUNTIMES,
}
"""Events and their filters. The kernel has execveat since 3.19; sched needs no configuration of its own."""
NARROWING: Final = ("set_event_pid", "set_event_notrace_pid", "tracing_cpumask")
"""Files of an instance that leave out processes or CPUs of events that are on. Older kernels do not have all."""

_GONE: Final = (errno.ENOENT, errno.ENODEV)
"""What the kernel answers about an instance that another process has removed, or is removing."""
_OURS: Final = re.compile(rf"{INSTANCE}(-\d+-[0-9a-f]+)?")


class Unavailable(Exception):  # noqa: N818 - a state of the node, which the monitor outlives
    """This node's tracefs cannot be used; the text says why and what to do."""


class Instance:
    """An instance of this process with its events enabled. Raises :class:`Unavailable` without an event for execve."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        try:
            _write(folder / "buffer_size_kb", str(BUFFER_KIB))
        except OSError as error:
            log.warning("the size of the trace buffer is the kernel's default", problem=error.strerror)
        filters = {event: _enable_event(folder / "events" / event, wanted) for event, wanted in EVENTS.items()}
        self._filters = {event: text for event, text in filters.items() if text is not None}
        if not any(event.startswith("syscalls/") for event in self._filters):
            raise Unavailable(f"{folder} has no event for execve: the kernel is built without CONFIG_FTRACE_SYSCALLS")
        self._narrowing = {name: _read(folder / name) for name in NARROWING if (folder / name).exists()}
        log.info("watching for programs that cannot be executed", instance=str(folder), events=list(self._filters))

    @property
    def pipe(self) -> Path:
        return self.folder / "trace_pipe"

    def restore(self) -> list[str]:
        """Switches on again what somebody else has switched off; returns the names of those events and files.

        Raises OSError if they cannot be read or written any more.
        """
        changed: list[str] = []
        tracing = self.folder / "tracing_on"
        if not _read(tracing).startswith("1"):
            _write(tracing, "1")
            changed.append(tracing.name)
        for name, text in self._narrowing.items():
            if _read(self.folder / name) != text:
                (self.folder / name).write_text(text, encoding="utf-8")  # truncating empties the lists of processes
                changed.append(name)
        for event, text in self._filters.items():
            place = self.folder / "events" / event
            # The kernel appends "*" to the value of an event that has a trigger.
            if _read(place / "enable").startswith("1") and _read(place / "filter") == text:
                continue
            _write(place / "filter", EVENTS[event])
            _write(place / "enable", "1")
            changed.append(event)
        return changed


@contextmanager
def instance(
    roots: Sequence[Path] = ROOTS,
    *,
    make: Callable[[Path], None] = os.mkdir,
    remove: Callable[[Path], None] = os.rmdir,
) -> Iterator[Instance]:
    """An instance of our own with its events enabled; removed at the end. What dead monitors left goes first.

    ``make`` and ``remove`` are mkdir and rmdir, by which tracefs creates and removes an instance with all its files.
    Raises :class:`Unavailable`.
    """
    root = next((root for root in roots if (root / "instances").is_dir()), None)
    if root is None:
        places = " or ".join(str(root) for root in roots)
        raise Unavailable(f"no tracefs at {places}: mount it on the node (systemctl start sys-kernel-tracing.mount)")
    try:
        _remove_abandoned(root / "instances", remove)
        folder, held = _make(root / "instances", make, remove)
    except OSError as error:
        raise Unavailable(f"{root}: an instance cannot be created: {error.strerror}") from error
    try:
        yield Instance(folder)
    finally:
        os.close(held)
        try:
            remove(folder)
        except OSError as error:
            if error.errno not in _GONE:  # else a monitor that starts was quicker
                with contextlib.suppress(OSError):
                    _write(folder / "events" / "enable", "0")  # of no use to anybody: it is this process's alone
                log.warning("the tracefs instance could not be removed", path=str(folder), problem=error.strerror)


def _remove_abandoned(instances: Path, remove: Callable[[Path], None]) -> None:
    """Raises :class:`Unavailable` if too many monitors are alive, or hang."""
    held: list[str] = []
    for folder in sorted(instances.iterdir()):
        if not _OURS.fullmatch(folder.name):
            continue
        try:
            remove(folder)
        except OSError as error:
            if error.errno not in _GONE:  # else another monitor was quicker
                held.append(folder.name)
        else:
            log.info("an instance that a former exec monitor left has been removed", instance=str(folder))
    if len(held) >= MOST_INSTANCES:
        raise Unavailable(
            f"{len(held)} exec monitors hold an instance in {instances} already, and there may be {MOST_INSTANCES}: "
            f"end those that hang ({', '.join(held[:MOST_INSTANCES])}: the number is the process's id)"
        )


def _make(instances: Path, make: Callable[[Path], None], remove: Callable[[Path], None]) -> tuple[Path, int]:
    """A new instance and an open file of it, which keeps other monitors from removing it (``trace_pipe`` may be opened
    only once).

    Until that file is open, a monitor that starts at the same moment takes the instance for an abandoned one. Then the
    file cannot be opened, or it is open and belongs to an instance that was made in the same memory since.
    """
    for _ in range(MOST_INSTANCES):
        folder = instances / f"{INSTANCE}-{os.getpid()}-{secrets.token_hex(3)}"
        make(folder)
        try:
            held = os.open(folder / "tracing_on", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            try:
                remove(folder)
            except OSError as error:
                if error.errno in _GONE:
                    continue
            raise
        if folder.is_dir():
            return folder, held
        os.close(held)
    raise Unavailable(f"{instances}: another program removes every instance as soon as it is made")


def _enable_event(event: Path, wanted: str) -> str | None:
    """The event's filter as the kernel says it, or None if the event cannot be used.

    The filter is set first: an unfiltered event would report every exec of the node.
    """
    if not event.is_dir():
        return None
    try:
        _write(event / "filter", wanted)
        text = _read(event / "filter")
        _write(event / "enable", "1")
    except OSError as error:
        log.warning("a trace event cannot be used", name=event.name, problem=error.strerror)
        return None
    return text


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8").strip()


def _write(path: Path, text: str) -> None:
    """Opens without creating: a missing file is an error."""
    with path.open("r+b", buffering=0) as file:
        file.write(text.encode())
