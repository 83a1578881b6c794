"""Our own instance in tracefs, set up and taken down."""

import contextlib
import errno
import os
from pathlib import Path
from typing import Any

import pytest
from fake_node import FakeNode

from polyarch.placement.exec_monitor_node import TRACE_EVENTS, TraceUnavailable, open_instance, open_node_trace

pytestmark = pytest.mark.req("PL-604")


@pytest.mark.req("PL-601")
def test_events_are_filtered_before_they_are_enabled_and_all_goes_at_the_end(tmp_path: Path) -> None:
    node = FakeNode(tmp_path)
    with node.instance() as instance:
        assert instance.pipe == node.instance_folder / "trace_pipe"
        assert node.setting("buffer_size_kb").startswith("64")
        for syscall in ("execve", "execveat"):
            assert node.setting(f"events/syscalls/sys_exit_{syscall}/filter").startswith("ret == -8")
            assert node.setting(f"events/syscalls/sys_exit_{syscall}/enable") == "1"
        wanted = 'parent_comm ~ "runc*" || parent_comm ~ "crun*" || parent_comm ~ "youki*"'
        assert node.setting("events/sched/sched_process_fork/filter").startswith(wanted)
        assert node.setting("events/sched/sched_process_fork/enable") == "1"
    assert node.instances == []


@pytest.mark.req("PL-601")
def test_other_tracing_of_the_node_is_not_touched(tmp_path: Path) -> None:
    node = FakeNode(tmp_path)
    (node.tracefs / "instances" / "somebody").mkdir()
    (node.tracefs / "tracing_on").write_text("1")
    with node.instance():
        pass
    assert (node.tracefs / "instances" / "somebody").is_dir()
    assert (node.tracefs / "tracing_on").read_text() == "1"


@pytest.mark.req("PL-601")
@pytest.mark.parametrize("name", ["polyarch-exec", "polyarch-exec-1-0a1b2c", "polyarch-exec-4194304-ffffff"])
def test_what_a_killed_monitor_left_is_removed_first(tmp_path: Path, name: str) -> None:
    node = FakeNode(tmp_path)
    node.make(node.tracefs / "instances" / name)
    node.make(node.tracefs / "instances" / "polyarch-exec-of-somebody")
    with node.instance():
        assert node.instances == sorted([node.instance_folder.name, "polyarch-exec-of-somebody"])
    assert node.instances == ["polyarch-exec-of-somebody"]


@pytest.mark.req("PL-601")
def test_a_kernel_without_execveat_or_fork_events_is_watched_all_the_same(tmp_path: Path) -> None:
    node = FakeNode(tmp_path, events=("syscalls/sys_exit_execve",))
    with node.instance():
        assert node.setting("events/syscalls/sys_exit_execve/enable") == "1"


@pytest.mark.req("PL-601")
def test_an_event_whose_filter_is_refused_is_not_enabled(tmp_path: Path) -> None:
    """Without its filter it would report every exec of the node."""
    node = FakeNode(tmp_path)

    def make(folder: Path) -> None:
        node.make(folder)
        (folder / "events/syscalls/sys_exit_execveat/filter").unlink()

    with open_instance([node.tracefs], make=make, remove=node.remove):
        assert node.setting("events/syscalls/sys_exit_execve/enable") == "1"
        assert node.setting("events/syscalls/sys_exit_execveat/enable") == "0"


@pytest.mark.req("PL-601")
def test_a_kernel_without_events_of_system_calls_is_said_so_and_nothing_stays(tmp_path: Path) -> None:
    node = FakeNode(tmp_path, events=("sched/sched_process_fork",))
    with pytest.raises(TraceUnavailable, match="CONFIG_FTRACE_SYSCALLS"), node.instance():
        pass
    assert node.instances == []


@pytest.mark.req("PL-601")
def test_the_second_place_is_used_if_the_first_has_no_tracefs(tmp_path: Path) -> None:
    node = FakeNode(tmp_path)
    empty = tmp_path / "empty"
    empty.mkdir()
    with open_instance([empty, node.tracefs], make=node.make, remove=node.remove) as instance:
        assert node.tracefs in instance.folder.parents


@pytest.mark.req("PL-601")
def test_no_tracefs_is_said_with_the_places_and_what_to_do(tmp_path: Path) -> None:
    with (
        pytest.raises(TraceUnavailable, match=f"no tracefs at {tmp_path}: .*sys-kernel-tracing.mount"),
        open_instance([tmp_path]),
    ):
        pass


@pytest.mark.req("PL-601")
def test_a_second_monitor_leaves_the_first_ones_events_on(tmp_path: Path) -> None:
    node = FakeNode(tmp_path)
    with node.instance() as first:
        (first.folder / "events/enable").write_text("X")  # as the kernel says it of events some of which are on
        with node.instance() as second:
            assert second.folder != first.folder
        assert (first.folder / "events/enable").read_text() == "X"
        assert first.restore() == []
    assert node.instances == []


@pytest.mark.req("PL-601")
def test_an_instance_that_another_starting_monitor_removed_is_made_again(tmp_path: Path) -> None:
    """Between mkdir and the first open nobody holds it."""
    node = FakeNode(tmp_path)
    made: list[str] = []

    def make(folder: Path) -> None:
        node.make(folder)
        made.append(folder.name)
        if len(made) == 1:
            node.remove(folder)

    with open_instance([node.tracefs], make=make, remove=node.remove) as instance:
        assert node.instances == [instance.folder.name] == made[1:]


@pytest.mark.req("PL-601")
@pytest.mark.parametrize("opens", [False, True], ids=["it cannot be opened", "another one of the kernel is opened"])
def test_an_instance_that_is_removed_while_it_is_opened_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, opens: bool
) -> None:
    """The kernel removes the instance before its files, and answers ENODEV or with what took its memory since."""
    node = FakeNode(tmp_path)
    real_open = os.open
    lost: set[Path] = set()

    def remove(folder: Path) -> None:
        if folder in lost:
            raise OSError(errno.ENODEV, os.strerror(errno.ENODEV))
        node.remove(folder)

    def slow_open(path: Any, flags: int, **more: Any) -> int:
        if Path(path).name == "tracing_on" and not lost:
            lost.add(path.parent)
            held = real_open(path, flags, **more) if opens else -1
            path.parent.rename(tmp_path / "gone")
            if opens:
                return held
            raise OSError(errno.ENODEV, os.strerror(errno.ENODEV), str(path))
        return real_open(path, flags, **more)

    monkeypatch.setattr(os, "open", slow_open)
    with open_instance([node.tracefs], make=node.make, remove=remove) as instance:
        assert node.instances == [instance.folder.name]
        assert instance.restore() == []
    assert node.instances == []


@pytest.mark.req("PL-601")
def test_no_more_than_eight_monitors_take_memory_of_one_kernel(tmp_path: Path) -> None:
    node = FakeNode(tmp_path)
    with contextlib.ExitStack() as others:
        for _ in range(8):
            others.enter_context(node.instance())
        held = node.instances
        with pytest.raises(TraceUnavailable, match=rf"8 exec monitors hold .*{held[0]}.* process"), node.instance():
            pass
        assert node.instances == held
    with node.instance():
        pass


@pytest.mark.req("PL-601")
def test_what_somebody_switches_off_is_told_and_on_again(tmp_path: Path) -> None:
    node = FakeNode(tmp_path)
    with node.instance() as instance:
        assert instance.restore() == []
        node.switch_off()
        assert instance.restore() == list(TRACE_EVENTS)
        (instance.folder / "tracing_on").write_text("0")
        assert instance.restore() == ["tracing_on"]
        (instance.folder / "events/syscalls/sys_exit_execve/filter").write_text("none")
        assert instance.restore() == ["syscalls/sys_exit_execve"]
        for name, everything in (("set_event_pid", ""), ("tracing_cpumask", "3")):
            (instance.folder / name).write_text("0")
            assert instance.restore() == [name]
            assert (instance.folder / name).read_text() == everything
        assert instance.restore() == []


@pytest.mark.req("PL-601")
def test_an_instance_that_somebody_holds_at_the_end_costs_nothing_more(tmp_path: Path) -> None:
    node = FakeNode(tmp_path)
    with node.instance() as instance:
        (instance.folder / "events/enable").write_text("1")
        reader = (instance.folder / "tracing_on").open()
    with reader:
        assert node.setting("events/enable") == "0"
    with node.instance():
        assert not instance.folder.exists(), "the next monitor removes it"


@pytest.mark.req("PL-600")
def test_a_node_with_a_pid_namespace_of_its_own_is_not_watched(tmp_path: Path) -> None:
    """On a node of kind the numbers in the trace are those of the host: no pod would be found, or a wrong one."""
    node = FakeNode(tmp_path)
    (node.proc / "self" / "ns").mkdir(parents=True)
    link = node.proc / "self" / "ns" / "pid"
    link.symlink_to("pid:[4026532901]")
    with pytest.raises(TraceUnavailable, match="pid namespace of its own"), open_node_trace(node.proc, [node.tracefs]):
        pass
    assert node.instances == []
