"""The benchmarks themselves: a budget that is broken, or a cost that grew by a fifth, fails the run."""

import json
import os
import re
from pathlib import Path

import msgspec
import pytest
from bench import load, one_build, runtime
from bench.__main__ import verdict
from bench.cgroups import ProcessCgroup
from bench.control import SOURCE
from bench.measure import Figure, percentile

from polyarch.kube.patches import Operation, apply_patch
from polyarch.objects import Pod
from polyarch.placement import names
from polyarch.sandbox.demo.workloads import ObjectReference, User


@pytest.mark.req("PL-812")
@pytest.mark.parametrize(
    ("value", "recorded", "limit", "compared", "fails"),
    [
        pytest.param(1.0, 1.0, None, True, False, id="the same as recorded"),
        pytest.param(1.19, 1.0, None, True, False, id="less than a fifth more"),
        pytest.param(1.21, 1.0, None, True, True, id="more than a fifth more"),
        pytest.param(0.015, 0.0, None, True, False, id="a hair above nothing is noise"),
        pytest.param(1.0, 1.0, 0.5, True, True, id="a cost over its budget, though recorded so"),
        pytest.param(9.0, None, 5.0, False, False, id="a latency over its budget: machines are shared"),
        pytest.param(9.0, 1.0, None, False, False, id="a latency is never compared"),
    ],
)
def test_what_fails_a_run_of_the_benchmarks(
    value: float, recorded: float | None, limit: float | None, compared: bool, fails: bool
) -> None:
    figure = Figure("cost", value, "ms", limit=limit, compared=compared)
    assert verdict(figure, {} if recorded is None else {"cost": recorded})[1] is fails


def test_a_floor_is_kept_from_above() -> None:
    assert Figure("speed", 400, "pods/s", limit=330, at_most=False).kept
    assert not Figure("speed", 300, "pods/s", limit=330, at_most=False).kept


@pytest.mark.parametrize(("percent", "expected"), [(50, 5), (99, 10), (100, 10), (10, 1)])
def test_percentiles_are_by_nearest_rank(percent: float, expected: float) -> None:
    assert percentile([10, 1, 9, 2, 8, 3, 7, 4, 6, 5], percent) == expected


@pytest.mark.req("KR-042")
def test_the_runtime_keeps_its_budgets() -> None:
    """CPU time of listing 20 000 pods, of watch events and of a PATCH, and the memory of the store."""
    figures = {figure.name: figure for figure in runtime.kube(lambda _: None)}
    assert len(figures) == 4
    assert [name for name, figure in figures.items() if not figure.kept and "PATCH" not in name] == []


@pytest.mark.req("PL-812")
def test_the_control_in_go_writes_on_the_pods_of_the_load_what_polyarch_writes() -> None:
    """A patch that did not fit would be refused, and the comparison be with nothing."""
    [text] = re.findall(r"const patch = `(.*?)`", (SOURCE / "main.go").read_text(), flags=re.DOTALL)
    patched = apply_patch(load.pod("quay.io/warm/app1:1"), msgspec.json.decode(text, type=tuple[Operation, ...]))
    pod = msgspec.convert(patched, Pod)
    assert load.constrained(pod)
    record = json.loads((pod.metadata.annotations or {})[names.DECISION_ANNOTATION])
    assert record["reason"] == "ArchitecturesSet"
    assert {names.SCHEDULING_GATE_LABEL, names.NODE_AFFINITY_LABEL, names.MULTI_ARCH_LABEL} <= set(
        pod.metadata.labels or {}
    )


@pytest.mark.req("BD-345", "BD-346")
def test_the_course_of_a_build_is_read_from_the_audit_log() -> None:
    """Other users' requests are nobody's cost, and a Job ends with the last update of its status."""
    home, controller = "system:serviceaccount:home:builder-1", "system:serviceaccount:kube-system:job-controller"
    events = [
        _event(0.0, "admin", "create", "imagebuilds"),
        _event(0.5, home, "create", "imagebuildruns"),
        _event(1.0, home, "create", "jobs", "run-amd64"),
        _event(1.5, home, "create", "jobs", "run-arm64"),
        _event(1.6, controller, "update", "jobs", "run-amd64", "status"),
        _event(4.0, controller, "update", "jobs", "run-amd64", "status"),
        _event(8.0, controller, "update", "jobs", "run-arm64", "status"),
        _event(8.2, home, "get", "secrets"),
        _event(8.5, home, "patch", "imagebuildruns", "run", "status"),
        _event(8.6, home, "create", "events"),
        _event(8.7, home, "watch", "pods"),
        _event(9.0, "admin", "list", "pods"),
    ]
    found = one_build.course(events, builder="system:serviceaccount:home:")
    assert (found.jobs, found.writes, found.reads, found.events) == (2, 4, 1, 1)
    assert found.created == pytest.approx(1.5)
    assert found.slowest == pytest.approx(6.5)
    assert found.joined == pytest.approx(0.5)
    assert found.makespan == pytest.approx(8.5)


def _event(at: float, user: str, verb: str, resource: str, name: str = "", subresource: str = "") -> one_build.Event:
    time = f"2027-01-01T00:00:{at:09.6f}Z"
    return one_build.Event(
        stage="ResponseComplete",
        verb=verb,
        user=User(username=user),
        object_ref=ObjectReference(resource=resource, name=name, subresource=subresource),
        request_received_timestamp=time,
        stage_timestamp=time,
    )


@pytest.mark.req("PL-502")
@pytest.mark.parametrize("version", [1, 2])
def test_a_process_is_counted_by_its_control_group(version: int, tmp_path: Path) -> None:
    """Of either version, by the files that the kernel has there."""
    if version == 1:
        lines = [f"cgroup {tmp_path} cgroup rw,{controller} 0 0" for controller in ("cpu,cpuacct", "memory")]
        files = {"cpuacct.usage": "1500000000", "memory.usage_in_bytes": str(30 << 20), "cpu.cfs_quota_us": "-1"}
        files["memory.stat"] = f"inactive_file 1\ntotal_inactive_file {10 << 20}\n"
    else:
        (tmp_path / "cgroup.subtree_control").write_text("cpu memory pids\n")
        lines = [f"cgroup2 {tmp_path} cgroup2 rw 0 0"]
        files = {
            "cpu.stat": "usage_usec 1500000\nuser_usec 1\n",
            "memory.current": str(30 << 20),
            "cpu.max": "max 100000",
        }
        files["memory.stat"] = f"anon 1\ninactive_file {10 << 20}\n"
    (tmp_path / "mounts").write_text("\n".join(lines))
    group = ProcessCgroup("one", mounts=str(tmp_path / "mounts"))
    for name, content in files.items():
        (tmp_path / "one" / name).write_text(content)
    group.hold(4711)
    group.throttle(0.05)
    assert (tmp_path / "one" / "cgroup.procs").read_text() == "4711"
    assert (group.is_counted, group.cpu_seconds(), group.working_set_mib()) == (True, 1.5, 20.0)
    quota = "cpu.cfs_quota_us" if version == 1 else "cpu.max"
    assert (tmp_path / "one" / quota).read_text().split()[0] == "5000"


@pytest.mark.req("PL-502")
def test_without_control_groups_a_process_is_counted_by_proc(tmp_path: Path) -> None:
    (tmp_path / "mounts").write_text("proc /proc proc rw 0 0")
    with ProcessCgroup("one", mounts=str(tmp_path / "mounts")) as group:
        group.hold(os.getpid())
        assert not group.is_counted
        assert group.cpu_seconds() > 0
        assert 5 < group.working_set_mib() < 5000
        with pytest.raises(PermissionError, match="only root"):
            group.throttle(0.05)
