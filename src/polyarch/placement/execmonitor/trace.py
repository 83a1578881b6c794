"""Lines of ``trace_pipe`` (PL-602).

The kernel prints an event as ``comm-pid [cpu] flags time: text``. A process chooses its ``comm`` (up to 15 bytes, any
characters), so a line is read from its end. Whatever is not understood is ``None``: the caller counts it. Pure.

Source: Documentation/trace/ftrace.rst and events.rst of the kernel.
"""

import re
from typing import Final, NamedTuple

ENOEXEC: Final = -8


class Returned(NamedTuple):
    """A system call returned. ``pid`` is that of the calling thread, ``syscall`` is ``execve`` or ``execveat``."""

    pid: int
    comm: str
    syscall: str
    ret: int


class Forked(NamedTuple):
    """A container runtime has forked; ``pid`` is the child's."""

    pid: int


class Lost(NamedTuple):
    """The kernel's buffer was full. ``events`` is 1 if the kernel does not say how many are lost."""

    events: int


_HEAD: Final = rb"^\s*(.*)-(\d+)\s+(?:\(\s*[-\d]+\)\s+)?\[\d+\]\s+\S+\s+[\d.]+: "
_RETURNED: Final = re.compile(_HEAD + rb"sys_(execve(?:at)?) -> (0x[0-9a-f]{1,16}|-?\d{1,19})\s*$", re.DOTALL)
_FORKED: Final = re.compile(_HEAD + rb"sched_process_fork: .* child_pid=(\d+)\s*$", re.DOTALL)
_LOST: Final = re.compile(rb"^CPU:\d+ \[LOST (?:(\d+) )?EVENTS\]\s*$")


def parse(line: bytes) -> Returned | Forked | Lost | None:
    """The event of one line, without its line break; None if it is none of ours or was cut off."""
    if (match := _RETURNED.match(line)) is not None:
        comm, pid, syscall, ret = match.groups()
        return Returned(int(pid), comm.decode("utf-8", "replace"), syscall.decode(), _signed(ret))
    if (match := _FORKED.match(line)) is not None:
        return Forked(int(match[3]))
    if (match := _LOST.match(line)) is not None:
        return Lost(int(match[1] or 1))
    return None


def _signed(text: bytes) -> int:
    """A C ``long`` that the kernel prints as unsigned: ``0xfffffffffffffff8`` is -8, and ``0xfffffff8`` of 32 bits."""
    value = int(text, 0)
    for bits in (32, 64):
        if 1 << (bits - 1) <= value < 1 << bits:
            return value - (1 << bits)
    return value
