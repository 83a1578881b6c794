"""PL-601, PL-604: our own instance in tracefs, set up and taken down."""

import os
from pathlib import Path

import pytest
from fake_node import FakeNode

from polyarch.placement.execmonitor import tracefs
from polyarch.placement.execmonitor.node import watched


def test_events_are_filtered_before_they_are_enabled_and_all_goes_at_the_end_pl_601(tmp_path: Path) -> None:
    node = FakeNode(tmp_path)
    with node.instance() as pipe:
        assert pipe == node.instance_folder / "trace_pipe"
        assert node.setting("buffer_size_kb").startswith("64")
        for syscall in ("execve", "execveat"):
            assert node.setting(f"events/syscalls/sys_exit_{syscall}/filter").startswith("ret == -8")
            assert node.setting(f"events/syscalls/sys_exit_{syscall}/enable") == "1"
        wanted = 'parent_comm ~ "runc*" || parent_comm ~ "crun*" || parent_comm ~ "youki*"'
        assert node.setting("events/sched/sched_process_fork/filter").startswith(wanted)
        assert node.setting("events/sched/sched_process_fork/enable") == "1"
    assert not node.instance_folder.exists()
    assert [each["events/enable"] for each in node.removed] == ["0"]


def test_other_tracing_of_the_node_is_not_touched_pl_601(tmp_path: Path) -> None:
    node = FakeNode(tmp_path)
    (node.tracefs / "instances" / "somebody").mkdir()
    (node.tracefs / "tracing_on").write_text("1")
    with node.instance():
        pass
    assert (node.tracefs / "instances" / "somebody").is_dir()
    assert (node.tracefs / "tracing_on").read_text() == "1"


def test_a_left_over_instance_is_removed_first_pl_601(tmp_path: Path) -> None:
    """A killed monitor leaves its instance, with events enabled."""
    node = FakeNode(tmp_path)
    node.make(node.instance_folder)
    (node.instance_folder / "stale").touch()
    with node.instance():
        assert not (node.instance_folder / "stale").exists()
    assert len(node.removed) == 2


def test_a_kernel_without_execveat_or_fork_events_is_watched_all_the_same_pl_601(tmp_path: Path) -> None:
    node = FakeNode(tmp_path, events=("syscalls/sys_exit_execve",))
    with node.instance():
        assert node.setting("events/syscalls/sys_exit_execve/enable") == "1"


def test_an_event_whose_filter_is_refused_is_not_enabled_pl_601(tmp_path: Path) -> None:
    """Without its filter it would report every exec of the node."""
    node = FakeNode(tmp_path)

    def make(folder: Path) -> None:
        node.make(folder)
        (folder / "events/syscalls/sys_exit_execveat/filter").unlink()

    with tracefs.instance([node.tracefs], make=make, remove=node.remove):
        assert node.setting("events/syscalls/sys_exit_execve/enable") == "1"
        assert node.setting("events/syscalls/sys_exit_execveat/enable") == "0"


def test_a_kernel_without_events_of_system_calls_is_said_so_and_nothing_stays_pl_601(tmp_path: Path) -> None:
    node = FakeNode(tmp_path, events=("sched/sched_process_fork",))
    with pytest.raises(tracefs.Unavailable, match="CONFIG_FTRACE_SYSCALLS"), node.instance():
        pass
    assert not node.instance_folder.exists()


def test_the_second_place_is_used_if_the_first_has_no_tracefs_pl_601(tmp_path: Path) -> None:
    node = FakeNode(tmp_path)
    empty = tmp_path / "empty"
    empty.mkdir()
    with tracefs.instance([empty, node.tracefs], make=node.make, remove=node.remove) as pipe:
        assert node.tracefs in pipe.parents


def test_no_tracefs_is_said_with_the_places_and_what_to_do_pl_601(tmp_path: Path) -> None:
    with (
        pytest.raises(tracefs.Unavailable, match=f"no tracefs at {tmp_path}: .*sys-kernel-tracing.mount"),
        tracefs.instance([tmp_path]),
    ):
        pass


def test_an_instance_that_another_monitor_reads_is_left_alone_pl_601(tmp_path: Path) -> None:
    node = FakeNode(tmp_path)
    node.make(node.instance_folder)

    def busy(folder: Path) -> None:
        raise OSError(16, os.strerror(16))

    with (
        pytest.raises(tracefs.Unavailable, match="is another exec-monitor running"),
        tracefs.instance([node.tracefs], make=node.make, remove=busy),
    ):
        pass
    assert node.instance_folder.is_dir()


def test_a_node_with_a_pid_namespace_of_its_own_is_not_watched_pl_600(tmp_path: Path) -> None:
    """On a node of kind the numbers in the trace are those of the host: no pod would be found, or a wrong one."""
    node = FakeNode(tmp_path)
    (node.proc / "self" / "ns").mkdir(parents=True)
    link = node.proc / "self" / "ns" / "pid"
    link.symlink_to("pid:[4026532901]")
    with pytest.raises(tracefs.Unavailable, match="pid namespace of its own"), watched(node.proc, [node.tracefs]):
        pass
    assert not node.instance_folder.exists()
