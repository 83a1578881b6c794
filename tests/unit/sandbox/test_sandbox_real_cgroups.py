"""The control groups of real nodes, on trees of files that stand for cgroup v2 as systemd leaves it, and for v1."""

import errno
import os
from pathlib import Path

import pytest

from polyarch.sandbox.real import cgroups
from polyarch.sandbox.real.cgroups import HOST, Cgroups

pytestmark = pytest.mark.req("SB-017")

THERE = {"cpuset", "cpu", "io", "memory", "hugetlb", "pids", "rdma", "misc"}
"""``cgroup.controllers`` of Debian's kernels 6.12 and 7.2."""
ON = {"memory", "pids"}
"""What systemd 257 turns on for the groups below the first."""


class Kernel:
    """Groups of cgroup v2: a folder gets its files when it is made, and loses them when it is removed.

    A group has the controllers that its parent hands on, and hands on those that it has. It cannot cease to hand on one
    that a group below hands on.
    """

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root = root
        self.handed: dict[Path, set[str]] = {root: set(ON)}
        self._make, self._remove, self._write = Path.mkdir, Path.rmdir, Path.write_text
        self._fill(root)
        monkeypatch.setattr(Path, "mkdir", lambda path, **_: self.make(path))
        monkeypatch.setattr(Path, "rmdir", lambda path: self.remove(path))
        monkeypatch.setattr(Path, "write_text", lambda path, text, **_: self.write(path, text))

    def controllers(self, group: Path) -> set[str]:
        return THERE if group == self.root else self.handed[group.parent]

    def _fill(self, group: Path) -> None:
        self._write(group / "cgroup.procs", "")
        for each in self.handed:
            self._write(each / "cgroup.controllers", " ".join(self.controllers(each)))
            self._write(each / "cgroup.subtree_control", " ".join(self.handed[each]))

    def make(self, group: Path) -> None:
        if group not in self.handed:
            self._make(group)
            self.handed[group] = set()
            self._fill(group)

    def remove(self, group: Path) -> None:
        for file in ("cgroup.procs", "cgroup.controllers", "cgroup.subtree_control"):
            (group / file).unlink()
        self._remove(group)
        del self.handed[group]

    def write(self, path: Path, text: str) -> int:
        group, controller = path.parent, text[1:]
        assert path.name == "cgroup.subtree_control"
        if text[0] == "+":
            if controller not in self.controllers(group):
                raise OSError(errno.ENOENT, "")
            self.handed[group].add(controller)
        elif any(controller in on for each, on in self.handed.items() if each.parent == group):
            raise OSError(errno.EBUSY, "")
        else:
            self.handed[group].discard(controller)
        self._fill(group)
        return len(text)


@pytest.fixture
def kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Kernel:
    return Kernel(tmp_path, monkeypatch)


def test_pods_of_a_node_get_every_controller_though_systemd_had_most_of_them_off(kernel: Kernel) -> None:
    groups = Cgroups("one", root=kernel.root)
    groups.make(HOST)
    groups.make("amd64-1")
    node = kernel.root / "polyarch-one" / "amd64-1"
    assert kernel.controllers(node) == kernel.handed[node] == THERE
    assert kernel.handed[kernel.root / "polyarch-one" / HOST] == set(), "a group with processes hands on none"
    programs = groups.host_of("amd64-1")
    groups.make(programs)
    assert kernel.handed[kernel.root / "polyarch-one" / programs] == set()
    assert groups.joining(programs, ("kubelet",))[4] == str(kernel.root / "polyarch-one" / programs)


def test_what_systemd_had_off_is_off_again_when_the_last_sandbox_has_gone(kernel: Kernel) -> None:
    first, second = Cgroups("first", root=kernel.root), Cgroups("second", root=kernel.root)
    first.make(HOST)
    first.make("amd64-1")
    second.make(HOST, "amd64-1")
    first.remove()
    assert kernel.handed[kernel.root] == THERE, "the second one needs them"
    Cgroups("second", root=kernel.root).remove()  # by another process
    assert kernel.handed == {kernel.root: ON}


def test_a_controller_that_the_machine_has_come_to_need_stays_on(kernel: Kernel) -> None:
    groups = Cgroups("one", root=kernel.root)
    groups.make("amd64-1")
    own = kernel.root / "system.slice"
    own.mkdir()
    (own / "cgroup.subtree_control").write_text("+cpu")
    groups.remove()
    assert kernel.handed[kernel.root] == ON | {"cpu"}


def test_groups_on_a_file_system_without_attributes_are_made_all_the_same(
    kernel: Kernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(*_: object) -> None:
        raise OSError(errno.EOPNOTSUPP, "")

    monkeypatch.setattr(os, "setxattr", refuses)
    monkeypatch.setattr(os, "getxattr", refuses)
    groups = Cgroups("one", root=kernel.root)
    groups.make("amd64-1")
    groups.remove()
    assert set(kernel.handed) == {kernel.root}


def test_each_hierarchy_of_cgroup_v1_has_the_groups(tmp_path: Path) -> None:
    for name in ("cpuset", "memory", "freezer", "pids", "cpu,cpuacct"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "cgroup.procs").touch()
    for name in ("cpuset.cpus", "cpuset.mems"):
        (tmp_path / "cpuset" / name).write_text("0-1\n")
    (tmp_path / "unified").mkdir()
    (tmp_path / "unified" / "cgroup.procs").touch()
    (tmp_path / "unified" / "cgroup.controllers").touch()
    assert not cgroups.is_unified(tmp_path)
    assert cgroups.missing_controllers(tmp_path) == []
    Cgroups("one", root=tmp_path).make("amd64-1")
    assert {str(path.parent.parent.relative_to(tmp_path)) for path in tmp_path.glob("*/*/amd64-1")} == {
        "cpuset",
        "memory",
        "freezer",
        "pids",
        "cpu,cpuacct",
    }
