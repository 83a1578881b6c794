"""An instance of our own in tracefs, with the events that the monitor reads (PL-601, PL-604).

An instance has its own buffer, events and filters, so other tracing on the node is not touched, and removing it leaves
nothing behind. tracefs creates the files in it: nothing here creates one. No eBPF, no capability: uid 0 owns tracefs.

Source: Documentation/trace/ftrace.rst, section "Instances".
"""

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import structlog

log = structlog.get_logger(__name__)

ROOTS: Final = (Path("/sys/kernel/tracing"), Path("/sys/kernel/debug/tracing"))
INSTANCE: Final = "polyarch-exec"
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


class Unavailable(Exception):  # noqa: N818 - a state of the node, which the monitor outlives
    """This node's tracefs cannot be used; the text says why and what to do."""


@contextmanager
def instance(
    roots: Sequence[Path] = ROOTS,
    name: str = INSTANCE,
    *,
    make: Callable[[Path], None] = os.mkdir,
    remove: Callable[[Path], None] = os.rmdir,
) -> Iterator[Path]:
    """Our instance with its events enabled, yielded as its ``trace_pipe``; removed at the end.

    ``make`` and ``remove`` are mkdir and rmdir, by which tracefs creates and removes an instance with all its files.
    Raises :class:`Unavailable`.
    """
    root = next((root for root in roots if (root / "instances").is_dir()), None)
    if root is None:
        places = " or ".join(str(root) for root in roots)
        raise Unavailable(f"no tracefs at {places}: mount it on the node (systemctl start sys-kernel-tracing.mount)")
    folder = root / "instances" / name
    try:
        if folder.is_dir():
            _close(folder, remove)
        make(folder)
    except OSError as error:
        raise Unavailable(f"{folder} cannot be created: {error.strerror}; is another exec-monitor running?") from error
    try:
        _enable(folder)
        yield folder / "trace_pipe"
    finally:
        try:
            _close(folder, remove)
        except OSError as error:
            log.warning("the tracefs instance could not be removed", path=str(folder), problem=error.strerror)


def _enable(folder: Path) -> None:
    try:
        _write(folder / "buffer_size_kb", str(BUFFER_KIB))
    except OSError as error:
        log.warning("the size of the trace buffer is the kernel's default", problem=error.strerror)
    enabled = [event for event, wanted in EVENTS.items() if _enable_event(folder / "events" / event, wanted)]
    if not any(event.startswith("syscalls/") for event in enabled):
        raise Unavailable(f"{folder} has no event for execve: the kernel is built without CONFIG_FTRACE_SYSCALLS")
    log.info("watching for programs that cannot be executed", instance=str(folder), events=enabled)


def _enable_event(event: Path, wanted: str) -> bool:
    """The filter first: an unfiltered event would report every exec of the node."""
    if not event.is_dir():
        return False
    try:
        _write(event / "filter", wanted)
        _write(event / "enable", "1")
    except OSError as error:
        log.warning("a trace event cannot be used", name=event.name, problem=error.strerror)
        return False
    return True


def _close(folder: Path, remove: Callable[[Path], None]) -> None:
    with contextlib.suppress(OSError):
        _write(folder / "events" / "enable", "0")
    remove(folder)


def _write(path: Path, text: str) -> None:
    """Opens without creating: a missing file is an error."""
    with path.open("r+b", buffering=0) as file:
        file.write(text.encode())
