"""PL-601 to PL-606 end to end: a failing exec on a node in a folder becomes an ENoExecEvent."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from fake_api import FakeApi
from fake_node import FakeNode
from manual_clock import ManualClock
from structlog.testing import capture_logs

from polyarch.clock import Clock, SystemClock
from polyarch.kube.errors import Invalid, Unavailable
from polyarch.kube.metrics import Metrics
from polyarch.placement.api import ENOEXECEVENTS
from polyarch.placement.exec_monitor_node import (
    CHECK_INTERVAL,
    MAX_QUEUED_REPORTS,
    REPORT_BACKOFF,
    REPORT_TIMEOUT,
    RETRY_INTERVAL,
    NodeAgent,
    NodeAgentMetrics,
    PodAttribution,
    Report,
    Reporter,
    event_name,
    open_instance,
)
from polyarch.placement.exec_monitor_rules import ENOEXEC, ProcessForked, SyscallReturned

pytestmark = pytest.mark.req("PL-603", "PL-605")

UID = "5d2a1b3c-9e8f-4a7b-8c6d-0e1f2a3b4c5d"
OTHER = "36b6d6be73b1065af369b3985edafa09"
ID = "3f" * 32
CGROUP = f"/kubepods/burstable/pod{UID}/crio-{ID}"
SERVICE = "/system.slice/containerd.service"


class ExecMonitor:
    def __init__(self, folder: Path, clock: Clock | None = None) -> None:
        self.node = FakeNode(folder)
        self.api = FakeApi()
        self.metrics = Metrics()
        clock = clock or SystemClock()
        mine = NodeAgentMetrics(self.metrics)
        self.reporter = Reporter(
            self.api,
            namespace="polyarch-system",
            node="worker-1",
            clock=clock,
            count=lambda result: mine.results[result].inc(),
        )
        attribution = PodAttribution(proc=self.node.proc, logs=self.node.logs, now=clock.monotonic)
        self.side = NodeAgent(attribution, self.reporter, instance=self.instance, metrics=mine, clock=clock)
        self.instance_of = self.node.instance

    def instance(self) -> Any:
        return self.instance_of()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        tasks = [asyncio.create_task(each) for each in (self.side.run(), self.reporter.run())]
        try:
            await self.until(lambda: self.value("polyarch_exec_monitor_up") == 1)
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    @property
    def reported(self) -> dict[str, Any]:
        """Statuses of the ENoExecEvents."""
        return {event["metadata"]["name"]: event["status"] for event in self.api.of(ENOEXECEVENTS)}

    async def until(self, condition: Any) -> None:
        async with asyncio.timeout(10):
            while not condition():
                await asyncio.sleep(0.005)

    async def counted(self, result: str, count: int = 1) -> None:
        await self.until(lambda: self.results(result) == count)

    def results(self, result: str) -> float:
        return self.value("polyarch_exec_format_errors_total", result=result)

    def value(self, name: str, **labels: str) -> float:
        value = self.metrics.registry.get_sample_value(name, labels)
        assert value is not None, f"{name} is not exported"
        return value


@pytest.mark.req("PL-606")
async def test_a_failed_exec_becomes_an_enoexecevent_with_all_facts(tmp_path: Path) -> None:
    world = ExecMonitor(tmp_path)
    world.node.process(4711, CGROUP)
    world.node.pod("shop", "cart-7d9f", UID)
    async with world.running():
        world.node.fails(4711)
        await world.counted("reported")
    assert world.reported == {
        f"{UID}-{ID}": {
            "nodeName": "worker-1",
            "podName": "cart-7d9f",
            "podNamespace": "shop",
            "containerID": f"cri-o://{ID}",
        }
    }
    assert world.value("polyarch_exec_monitor_up") == 0
    assert world.node.instances == []


@pytest.mark.req("PL-604")
async def test_a_process_that_is_gone_is_known_from_its_fork(tmp_path: Path) -> None:
    world = ExecMonitor(tmp_path)
    world.node.process(4711, CGROUP)
    world.node.pod("shop", "cart", UID)
    async with world.running():
        world.node.forks(4711)
        world.node.process(4712, SERVICE)
        world.node.fails(4712)
        await world.counted("not_a_pod")  # so the fork has been read
        world.node.ends(4711)
        world.node.fails(4711)
        await world.counted("reported")


@pytest.mark.req("PL-604")
async def test_a_child_that_is_moved_to_its_container_after_the_fork_is_known(tmp_path: Path) -> None:
    world = ExecMonitor(tmp_path)
    world.node.process(4711, SERVICE)
    world.node.pod("shop", "cart", UID)
    async with world.running():
        world.node.forks(4711)
        await asyncio.sleep(0.01)
        world.node.process(4711, CGROUP)
        await asyncio.sleep(0.2)
        world.node.ends(4711)
        world.node.fails(4711)
        await world.counted("reported")


@pytest.mark.req("PL-604")
async def test_a_child_that_systemd_moves_late_is_known(tmp_path: Path) -> None:
    world = ExecMonitor(tmp_path)
    world.node.process(4711, SERVICE)
    world.node.pod("shop", "cart", UID)
    async with world.running():
        world.node.forks(4711)
        await asyncio.sleep(0.2)
        world.node.process(4711, CGROUP)
        await asyncio.sleep(0.5)
        world.node.ends(4711)
        world.node.fails(4711)
        await world.counted("reported")


REUSED: dict[str, tuple[float, bool, str, str]] = {
    "the same process, which has ended and is not gone": (599, True, "sh", "reported"),
    "another process of the node that has its pid": (1, False, "runc:[2:INIT]", "not_a_pod"),
    "a process that is gone at once": (9, None, "sh", "reported"),
    "a process that is gone, when its pid may be that of another": (11, None, "sh", "unattributed"),
    "a container's first program that waited long": (599, None, "runc:[2:INIT]", "reported"),
    "a container's first program that waited too long": (601, None, "crun", "unattributed"),
}


@pytest.mark.req("PL-604")
@pytest.mark.parametrize(("seconds", "same", "comm", "result"), REUSED.values(), ids=REUSED)
async def test_what_is_remembered_of_a_fork_counts_for_the_same_process_alone(
    tmp_path: Path, seconds: float, same: bool | None, comm: str, result: str
) -> None:
    """Pids are used again. ``same``: what has the pid when the exec fails, in no container; None: nothing."""
    node, now = FakeNode(tmp_path), [0.0]
    node.process(4711, CGROUP, started=100)
    node.pod("shop", "cart", UID)
    attribution = PodAttribution(proc=node.proc, logs=node.logs, now=lambda: now[0])
    attribution.forked(ProcessForked(4711))
    now[0] = seconds
    if same is None:
        node.ends(4711)
    else:
        node.process(4711, "/", started=100 if same else 200)
    found = attribution.failed(SyscallReturned(4711, comm, "execve", ENOEXEC))
    assert ("reported" if isinstance(found, Report) else found) == result


@pytest.mark.req("PL-604")
@pytest.mark.parametrize("is_lost", [False, True], ids=["its fork is seen", "its fork is lost"])
async def test_a_new_process_of_a_runtime_is_not_taken_for_the_one_that_had_its_pid(
    tmp_path: Path, is_lost: bool
) -> None:
    """It is gone before anybody could look where it lived."""
    node, now = FakeNode(tmp_path), [0.0]
    node.process(4711, CGROUP)
    node.pod("shop", "cart", UID)
    attribution = PodAttribution(proc=node.proc, logs=node.logs, now=lambda: now[0])
    attribution.forked(ProcessForked(4711))
    node.ends(4711)
    now[0] = 60.0
    if is_lost:
        attribution.missed()
    else:
        attribution.forked(ProcessForked(4711))
    assert attribution.failed(SyscallReturned(4711, "runc:[2:INIT]", "execve", ENOEXEC)) == "unattributed"


@pytest.mark.req("PL-603")
async def test_a_program_of_a_cluster_in_a_pod_is_told_on_the_pod_of_this_node(tmp_path: Path) -> None:
    world = ExecMonitor(tmp_path)
    world.node.process(4711, f"{CGROUP}/docker/{'ab' * 32}/kubelet/kubepods/pod{OTHER}/{'cd' * 32}")
    world.node.pod("ci", "kind", UID)
    async with world.running():
        world.node.fails(4711)
        await world.counted("reported")
    assert [status["containerID"] for status in world.reported.values()] == [f"cri-o://{ID}"]


@pytest.mark.req("PL-604")
async def test_what_stays_unknown_is_counted(tmp_path: Path) -> None:
    world = ExecMonitor(tmp_path)
    async with world.running():
        world.node.fails(1)
        await world.counted("unattributed")
        world.node.process(2, CGROUP)
        world.node.fails(2)  # without a directory of logs the pod has no name
        await world.counted("unattributed", 2)
        world.node.process(3, SERVICE)
        world.node.fails(3)
        await world.counted("not_a_pod")
    assert world.reported == {}


@pytest.mark.req("PL-606")
async def test_a_container_is_reported_once(tmp_path: Path) -> None:
    world = ExecMonitor(tmp_path)
    world.node.process(4711, CGROUP)
    world.node.pod("shop", "cart", UID)
    async with world.running():
        for _ in range(3):
            world.node.fails(4711)
        await world.counted("duplicate", 2)
        await world.counted("reported")
    assert len(world.reported) == 1


@pytest.mark.req("PL-606")
async def test_a_node_full_of_failures_reports_a_few_and_counts_the_others(tmp_path: Path) -> None:
    world = ExecMonitor(tmp_path, clock=ManualClock())
    world.node.pod("shop", "cart", UID)
    for number in range(15):
        world.node.process(100 + number, f"/kubepods/pod{UID}/{number:064x}")
    async with world.running():
        for number in range(15):
            world.node.fails(100 + number)
        await world.counted("limited", 5)
        await world.counted("reported", 10)


@pytest.mark.req("PL-602")
async def test_lines_that_cannot_be_read_are_counted_and_harm_nothing(tmp_path: Path) -> None:
    world = ExecMonitor(tmp_path)
    world.node.process(4711, CGROUP)
    world.node.pod("shop", "cart", UID)
    async with world.running():
        world.node.writes(b"what\nCPU:1 [LOST 217 EVENTS]\nCPU:0 [LOST EVENTS]\n\n")
        world.node.writes(b"x" * 5000)
        await world.until(lambda: world.value("polyarch_exec_trace_unread_total", kind="cut") == 1)
        world.node.writes(b"\n            runc-4711    [001] ..... 12.5: sys_exe")
        await asyncio.sleep(0.05)
        world.node.writes(b"cve -> 0xfffffffffffffff8\n")
        await world.counted("reported")
    assert world.value("polyarch_exec_trace_unread_total", kind="garbage") == 1
    assert world.value("polyarch_exec_trace_unread_total", kind="lost") == 218


@pytest.mark.req("PL-602")
async def test_other_errors_of_exec_are_no_exec_format_errors(tmp_path: Path) -> None:
    """The filter keeps them out; a kernel that ignored it would report every missing file."""
    world = ExecMonitor(tmp_path)
    world.node.process(4711, CGROUP)
    async with world.running():
        world.node.writes(b"              sh-4711    [000] .....    61.1: sys_execve -> 0xfffffffffffffffe\n")
        world.node.fails(1)
        await world.counted("unattributed")
    assert world.reported == {}


@pytest.mark.req("PL-601")
async def test_a_node_without_tracefs_stays_up_and_says_so_once(tmp_path: Path) -> None:
    """No crash loop; once tracefs is mounted the node is watched without a restart."""
    clock = ManualClock()
    world = ExecMonitor(tmp_path, clock=clock)
    world.instance_of = lambda: open_instance([tmp_path / "nowhere"])
    with capture_logs() as logs:
        task = asyncio.create_task(world.side.run())
        await clock.run(600)
        assert world.value("polyarch_exec_monitor_up") == 0
        assert [each["log_level"] for each in logs] == ["warning"]
        assert "no tracefs at" in logs[0]["problem"]
        world.instance_of = world.node.instance
        await clock.run(60)
        assert world.value("polyarch_exec_monitor_up") == 1
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@pytest.mark.req("PL-601")
async def test_gauge_and_readiness_follow_what_the_kernel_says_of_the_events(tmp_path: Path) -> None:
    clock = ManualClock()
    world = ExecMonitor(tmp_path, clock=clock)
    assert world.side.unready() is not None, "the trace has not been opened"
    async with world.running():
        assert world.side.unready() is None
        for passes in (1, 2):  # whoever does it again and again keeps the gauge at 0
            world.node.switch_off()
            with capture_logs() as logs:
                await clock.run(CHECK_INTERVAL)
            assert world.value("polyarch_exec_monitor_up") == 0
            assert world.value("polyarch_exec_trace_unread_total", kind="off") == passes
            assert world.node.setting("events/syscalls/sys_exit_execve/enable") == "1"
            assert "switched off syscalls/sys_exit_execve" in (world.side.unready() or "")
            assert len(logs) == (1 if passes == 1 else 0)
        await clock.run(CHECK_INTERVAL)
        assert world.value("polyarch_exec_monitor_up") == 1
        assert world.side.unready() is None


@pytest.mark.req("PL-601")
async def test_an_instance_whose_files_are_gone_is_replaced_after_a_minute(tmp_path: Path) -> None:
    clock = ManualClock()
    world = ExecMonitor(tmp_path, clock=clock)
    async with world.running():
        (world.node.instance_folder / "events/syscalls/sys_exit_execve/enable").unlink()
        await clock.run(CHECK_INTERVAL)
        assert world.value("polyarch_exec_monitor_up") == 0
        assert world.side.unready() is None, "a node that cannot be watched is not waited for"
        await clock.run(RETRY_INTERVAL)
        assert world.value("polyarch_exec_monitor_up") == 1
        assert len(world.node.instances) == 1


REPORT = Report(UID, "shop", "cart", f"cri-o://{ID}")


async def _report(world: ExecMonitor, clock: ManualClock) -> None:
    task = asyncio.create_task(world.reporter.run())
    world.reporter.offer(REPORT)
    await clock.run(60)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


@pytest.mark.req("PL-606")
@pytest.mark.parametrize(
    ("failures", "result"),
    [
        ([Unavailable(503)] * 2, "reported"),
        ([Unavailable(503)] * 3, "failed"),
        ([Invalid(422)], "failed"),
        ([], "reported"),
    ],
    ids=["two failures", "three failures", "a refusal that no retry changes", "a report of an earlier process"],
)
async def test_a_report_is_retried_twice_and_then_counted(
    tmp_path: Path, failures: list[Exception], result: str
) -> None:
    clock = ManualClock()
    world = ExecMonitor(tmp_path, clock=clock)
    if failures:
        world.api.refuse(ENOEXECEVENTS, "create", error=failures)
    else:
        world.api.put(ENOEXECEVENTS, {"metadata": {"name": event_name(REPORT), "namespace": "polyarch-system"}})
    await _report(world, clock)
    assert {name: world.results(name) for name in ("reported", "failed")} == {"reported": 0, "failed": 0} | {result: 1}
    assert len(world.reported) == world.results("reported")


@pytest.mark.req("PL-606")
async def test_an_api_server_that_does_not_answer_blocks_nothing(tmp_path: Path) -> None:
    """Reports wait in a bounded line; beyond it they are dropped and counted."""
    clock = ManualClock()
    world = ExecMonitor(tmp_path, clock=clock)

    async def hang(*_: Any) -> None:
        await asyncio.Event().wait()

    world.api.hook = hang
    for _ in range(MAX_QUEUED_REPORTS + 3):
        world.reporter.offer(REPORT)
    assert world.results("failed") == 3
    task = asyncio.create_task(world.reporter.run())
    await clock.run(3 * REPORT_TIMEOUT + sum(REPORT_BACKOFF))
    assert world.results("failed") == 4, "three tries with a deadline each"
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
