"""Lines of ``trace_pipe``, as the kernel prints them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polyarch.placement.exec_monitor_rules import EventsLost, ProcessForked, SyscallReturned, parse_trace_line

READABLE = {
    "execve, as a 64-bit kernel prints -8": (
        b"           runc-4711    [003] ..... 12081.206635: sys_execve -> 0xfffffffffffffff8",
        SyscallReturned(4711, "runc", "execve", -8),
    ),
    "execveat": (
        b" runc:[2:INIT]-90210   [000] d..2. 12081.206635: sys_execveat -> 0xfffffffffffffff8",
        SyscallReturned(90210, "runc:[2:INIT]", "execveat", -8),
    ),
    "the narrower columns of older kernels": (
        b"            bash-812   [001] ....  1722.115804: sys_execve -> 0xfffffffffffffff8",
        SyscallReturned(812, "bash", "execve", -8),
    ),
    "a 32-bit kernel": (
        b"              sh-77    [000] .....    61.000001: sys_execve -> 0xfffffff8",
        SyscallReturned(77, "sh", "execve", -8),
    ),
    "a signed number": (
        b"              sh-77    [000] .....    61.000001: sys_execve -> -8",
        SyscallReturned(77, "sh", "execve", -8),
    ),
    "another error": (
        b"              sh-77    [000] .....    61.000001: sys_execve -> 0xfffffffffffffffe",
        SyscallReturned(77, "sh", "execve", -2),
    ),
    "success": (
        b"              sh-77    [000] .....    61.000001: sys_execve -> 0x0",
        SyscallReturned(77, "sh", "execve", 0),
    ),
    "with the thread group, where an administrator has switched that on": (
        b"             app-1203    (   1200) [002] ..... 33.100000: sys_execve -> 0xfffffffffffffff8",
        SyscallReturned(1203, "app", "execve", -8),
    ),
    "a clock without fractions": (
        b"             app-1203    [002] ..... 3310000012: sys_execve -> 0xfffffffffffffff8",
        SyscallReturned(1203, "app", "execve", -8),
    ),
    "a name that looks like the rest of a line": (
        b" we ird(1)->[0] -15504   [001] ..... 12081.650857: sys_execve -> 0xfffffffffffffff8",
        SyscallReturned(15504, "we ird(1)->[0] ", "execve", -8),
    ),
    "a name that looks like another process": (
        b"        a-1 [0]-15504   [001] ..... 12081.650857: sys_execve -> 0xfffffffffffffff8",
        SyscallReturned(15504, "a-1 [0]", "execve", -8),
    ),
    "a name that is not UTF-8": (
        b"            \xff\xfe-7   [001] ..... 1.5: sys_execve -> 0xfffffffffffffff8",
        SyscallReturned(7, "\ufffd\ufffd", "execve", -8),
    ),
    "a name that the kernel has forgotten": (
        b"           <...>-4711    [003] ..... 12081.206635: sys_execve -> 0xfffffffffffffff8",
        SyscallReturned(4711, "<...>", "execve", -8),
    ),
    "a fork of a runtime": (
        (
            b" runc:[1:CHILD]-15432   [001] ..... 12080.675565: sched_process_fork: comm=runc:[1:CHILD] pid=15432"
            b" child_comm=runc:[1:CHILD] child_pid=15433"
        ),
        ProcessForked(15433),
    ),
    "a fork whose child has a number for a name": (
        b"  crun-1 [001] ..... 1.5: sched_process_fork: comm=crun pid=1 child_comm=child_pid=2 child_pid=33",
        ProcessForked(33),
    ),
    "a count of lost events": (b"CPU:1 [LOST 217 EVENTS]", EventsLost(217)),
    "lost events without a count": (b"CPU:11 [LOST EVENTS]", EventsLost(1)),
}

UNREADABLE = {
    "nothing": b"",
    "garbage": b"\x00\x01\x02 what",
    "the head of a line, cut by the buffer": b"            runc-4711    [003] ..... 12081.2066",
    "the tail of a line": b"35: sys_execve -> 0xfffffffffffffff8",
    "a value that was cut off": b"            runc-4711    [003] ..... 12081.206635: sys_execve -> 0x",
    "another event": b"            runc-4711    [003] ..... 12081.206635: sched_process_exit: comm=a pid=1 prio=120",
    "another system call": b"            runc-4711    [003] ..... 12081.206635: sys_openat -> 0xfffffffffffffff8",
    "the header of the file trace": b"# tracer: nop",
}


@pytest.mark.req("PL-602")
@pytest.mark.parametrize(("line", "event"), READABLE.values(), ids=READABLE)
def test_a_line_is_read(line: bytes, event: object) -> None:
    assert parse_trace_line(line) == event


@pytest.mark.req("PL-602")
@pytest.mark.parametrize("line", UNREADABLE.values(), ids=UNREADABLE)
def test_what_is_no_line_of_ours_is_unreadable_and_never_fatal(line: bytes) -> None:
    assert parse_trace_line(line) is None


@pytest.mark.req("PL-602")
@given(st.binary(max_size=200))
def test_no_bytes_are_fatal(line: bytes) -> None:
    parse_trace_line(line)


@pytest.mark.req("PL-602")
@given(st.binary(min_size=1, max_size=15).filter(lambda comm: b"\n" not in comm), st.integers(1, 4_194_304))
def test_no_name_of_a_process_changes_its_pid(comm: bytes, pid: int) -> None:
    """A process chooses its name: a report about another pod must not be had by it."""
    line = b"%16b-%-7d [001] ..... 12081.650857: sys_execve -> 0xfffffffffffffff8" % (comm, pid)
    event = parse_trace_line(line)
    assert isinstance(event, SyscallReturned)
    assert event.pid == pid
