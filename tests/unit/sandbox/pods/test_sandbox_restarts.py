"""What becomes of containers whose processes start, fail, end or are lost, without processes or waiting."""

import datetime as dt
from typing import Any

import msgspec
import pytest

from polyarch.sandbox.nodes import lifecycle, reporting
from polyarch.sandbox.nodes.lifecycle import ContainerReason, SimulatedContainer
from polyarch.sandbox.nodes.pods import Pod
from polyarch.sandbox.pods.outcome import CannotStart, Exit, ProcessState, Started

NOW = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


def make_pod(*containers: str, init: tuple[dict[str, str], ...] = (), restart: str = "Always", **status: Any) -> Pod:
    spec = {
        "restartPolicy": restart,
        "containers": [{"name": name} for name in containers],
        "initContainers": list(init),
    }
    metadata = {"name": "p", "namespace": "n", "uid": "u"}
    return msgspec.convert({"metadata": metadata, "spec": spec, "status": status}, Pod)


class Host:
    """Starts what is due, as the nodes' controller does; processes end when the test says so."""

    def __init__(self, pod: Pod, *, ready: bool = True) -> None:
        self.pod = pod
        self.ready = ready
        self.now = NOW
        self.runs: dict[str, SimulatedContainer] = {}
        self.seen: dict[str, ProcessState] = {}
        self.problem: CannotStart | None = None
        self.starts: list[str] = []

    def step(self) -> "Host":
        wait: float | None = 0.0
        while wait == 0.0:
            tried: dict[str, Started | CannotStart] = {}
            for container in lifecycle.due(self.pod, self.runs, self.now):
                tried[container.name] = self._start(container.name)
            step = lifecycle.step(self.pod, self.runs, {}, self.now, starts=tried, observed=self.seen)
            self.runs, wait = step.runs, step.wait
        return self

    def _start(self, name: str) -> Started | CannotStart:
        if self.problem is not None:
            return self.problem
        self.starts.append(name)
        number = lifecycle.attempt(self.runs.get(name, SimulatedContainer()))
        self.seen[name] = ProcessState(number, self.now, None, self.ready, self.ready)
        return Started(self.now)

    def end(self, name: str, code: int = 0, *, after: float = 1.0, message: str = "") -> "Host":
        self.now += dt.timedelta(seconds=after)
        self.seen[name] = msgspec.structs.replace(self.seen[name], exit=Exit(code, self.now, message))
        return self.step()

    def wait(self, seconds: float) -> "Host":
        self.now += dt.timedelta(seconds=seconds)
        return self.step()

    def status(self) -> dict[str, Any]:
        return reporting.status(self.pod, self.runs, {}, host_address="h", pod_address="p", now=self.now)

    def container(self, name: str = "a") -> dict[str, Any]:
        statuses = self.status()["containerStatuses"] + self.status().get("initContainerStatuses", [])
        return next(status for status in statuses if status["name"] == name)


@pytest.mark.req("SB-011")
def test_the_first_restart_comes_at_once_then_the_delay_doubles() -> None:
    host = Host(make_pod("a")).step().end("a", 1)
    assert host.container()["state"]["terminated"]["exitCode"] == 1
    assert host.wait(1).container()["restartCount"] == 1
    for delay, restarts in ((10, 2), (20, 3), (40, 4), (80, 5), (160, 6), (300, 7), (300, 8)):
        host.end("a", 1)
        assert host.container()["state"]["waiting"]["reason"] == "CrashLoopBackOff"
        assert f"back-off {delay}s" in host.container()["state"]["waiting"]["message"]
        assert host.wait(delay - 1).container()["restartCount"] == restarts - 1
        assert host.wait(1).container()["restartCount"] == restarts
    assert host.container()["lastState"]["terminated"]["exitCode"] == 1


@pytest.mark.req("SB-011")
def test_who_has_run_for_ten_minutes_is_restarted_at_once_again() -> None:
    host = Host(make_pod("a")).step().end("a", 1).wait(1).end("a", 1).wait(10)
    assert host.container()["restartCount"] == 2
    host.end("a", 1, after=599)
    assert host.container()["state"]["waiting"]["reason"] == "CrashLoopBackOff"
    host.wait(20).end("a", 1, after=600)
    assert "terminated" in host.container()["state"]
    assert host.wait(1).container()["restartCount"] == 4
    assert "back-off 10s" in host.end("a", 1).container()["state"]["waiting"]["message"]


@pytest.mark.req("SB-011")
@pytest.mark.parametrize(
    ("policy", "code", "restarts", "phase"),
    [
        ("Always", 0, 1, "Running"),
        ("Always", 3, 1, "Running"),
        ("OnFailure", 0, 0, "Succeeded"),
        ("OnFailure", 3, 1, "Running"),
        ("Never", 0, 0, "Succeeded"),
        ("Never", 3, 0, "Failed"),
    ],
)
def test_the_restart_policy_decides(policy: str, code: int, restarts: int, phase: str) -> None:
    host = Host(make_pod("a", restart=policy)).step().end("a", code, message="last words").wait(2)
    assert host.container()["restartCount"] == restarts
    assert host.status()["phase"] == phase
    last = host.container()["lastState" if restarts else "state"]["terminated"]
    assert (last["exitCode"], last["message"]) == (code, "last words")
    assert last["reason"] == ("Error" if code else "Completed")
    assert (last["startedAt"], last["finishedAt"]) == ("2026-01-01T00:00:00Z", "2026-01-01T00:00:01Z")


@pytest.mark.req("SB-011")
def test_ready_is_what_the_probes_say() -> None:
    host = Host(make_pod("a"), ready=False).step()
    assert (host.container()["ready"], host.container()["started"]) == (False, False)
    host.seen["a"] = msgspec.structs.replace(host.seen["a"], started=True)
    assert (host.step().container()["ready"], host.container()["started"]) == (False, True)
    host.seen["a"] = msgspec.structs.replace(host.seen["a"], ready=True)
    assert host.step().container()["ready"] is True
    conditions = {each["type"]: each["status"] for each in host.status()["conditions"]}
    assert (conditions["Ready"], conditions["ContainersReady"]) == ("True", "True")
    assert host.wait(3600).status()["phase"] == "Running", "it is no played container, which would come to its end"


@pytest.mark.req("SB-011")
@pytest.mark.parametrize("reason", ["ContainerCreating", "CreateContainerConfigError", "RunContainerError"])
def test_what_cannot_start_is_tried_again_and_again(reason: Any) -> None:
    host = Host(make_pod("a"))
    host.problem = CannotStart(reason, "why")
    waiting = host.step().container()["state"]["waiting"]
    assert waiting == {"reason": reason, "message": "why"}
    assert host.status()["phase"] == "Pending"
    for seconds in (1, 2, 4, 8, 8):
        host.wait(seconds)
    assert host.runs["a"].pulls == 6
    host.problem = None
    assert host.wait(8).status()["phase"] == "Running"
    assert host.container()["restartCount"] == 0


@pytest.mark.req("SB-011")
def test_a_program_that_is_not_there_fails_a_pod_that_is_not_restarted() -> None:
    host = Host(make_pod("a", restart="Never"))
    host.problem = CannotStart("RunContainerError", 'exec: "sh": executable file not found')
    ended = host.step().container()["state"]["terminated"]
    assert (ended["exitCode"], ended["reason"]) == (128, "StartError")
    assert host.status()["phase"] == "Failed"


INIT = ({"name": "one"}, {"name": "two"})
SIDECAR = {"name": "side", "restartPolicy": "Always"}


@pytest.mark.req("SB-011")
def test_init_containers_run_to_their_end_one_after_the_other() -> None:
    host = Host(make_pod("a", init=INIT)).step()
    assert host.starts == ["one"]
    assert host.end("one", 1).wait(1).container("one")["restartCount"] == 1
    assert host.end("one").starts == ["one", "one", "two"]
    assert host.end("two").starts[-1] == "a"
    assert host.container("one")["state"]["terminated"]["reason"] == "Completed", "they are not started again"
    assert host.wait(60).starts.count("two") == 1


@pytest.mark.req("SB-011")
def test_an_init_container_that_fails_for_good_fails_the_pod() -> None:
    host = Host(make_pod("a", init=INIT, restart="Never")).step().end("one", 1)
    assert host.status()["phase"] == "Failed"
    assert host.wait(60).starts == ["one"]


@pytest.mark.req("SB-011")
def test_a_sidecar_starts_first_and_is_restarted_without_the_others() -> None:
    host = Host(make_pod("a", init=(SIDECAR, INIT[0]), restart="Never"), ready=False).step()
    assert host.starts == ["side"], "the others wait until its startup probe has succeeded"
    host.seen["side"] = msgspec.structs.replace(host.seen["side"], started=True)
    assert host.step().end("one").starts == ["side", "one", "a"]
    assert host.end("side", 1).wait(1).starts == ["side", "one", "a", "side"]
    assert host.end("a").status()["phase"] == "Succeeded"
    host.end("side")
    assert host.wait(60).starts == ["side", "one", "a", "side"], "the pod is over"


@pytest.mark.req("SB-011")
def test_what_was_lost_while_nobody_watched_is_restarted() -> None:
    """After a restart of the nodes' process: one container runs on, one is gone, one was started but not reported."""
    running = {"running": {"startedAt": "2026-01-01T00:00:00Z"}}
    crashed = {"terminated": {"exitCode": 2, "startedAt": "2026-01-01T00:00:00Z", "finishedAt": "2026-01-01T00:00:01Z"}}
    statuses = [
        {"name": "stays", "restartCount": 3, "state": running, "lastState": crashed},
        {"name": "gone", "restartCount": 5, "state": running},
        {"name": "new", "restartCount": 0, "state": crashed},
    ]
    pod = make_pod("stays", "gone", "new", phase="Running", containerStatuses=statuses)
    host = Host(pod)
    host.now = NOW + dt.timedelta(seconds=60)
    runs = lifecycle.recover(pod, host.now)
    host.runs = lifecycle.recover_processes(pod, runs, {"stays", "gone", "new"}, host.now)
    host.seen = {"stays": ProcessState(3, NOW, None, True, True)}
    host.step()
    assert (host.container("stays")["ready"], host.container("stays")["restartCount"]) == (True, 3)
    assert host.container("stays")["state"]["running"]["startedAt"] == "2026-01-01T00:00:00Z"
    assert host.container("stays")["lastState"]["terminated"]["exitCode"] == 2
    gone = host.container("gone")["state"]["terminated"]
    assert (gone["exitCode"], gone["reason"]) == (137, "ContainerStatusUnknown")
    host.wait(1)
    assert sorted(host.starts) == ["gone", "new"], "at once: `polyarch up` does not wait for delays of earlier failures"
    assert host.container("new")["restartCount"] == 1


@pytest.mark.req("SB-011")
def test_a_deleted_pod_ends_and_nothing_of_it_is_restarted() -> None:
    host = Host(make_pod("a", "b")).step()
    host.seen["a"] = msgspec.structs.replace(host.seen["a"], exit=Exit(0, host.now))
    runs = lifecycle.ending(host.runs, host.seen)
    assert (runs["a"].activity, runs["b"].activity) == (ContainerReason.COMPLETED, ContainerReason.RUNNING)
    document = reporting.status(host.pod, runs, {}, host_address="h", pod_address="p", now=host.now, ends=True)
    assert {each["type"]: each["status"] for each in document["conditions"]}["Ready"] == "False"
    host.seen["b"] = msgspec.structs.replace(host.seen["b"], exit=Exit(137, host.now))
    assert lifecycle.last_phase(host.pod, lifecycle.ending(runs, host.seen)) == "Failed"
    host.seen["b"] = msgspec.structs.replace(host.seen["b"], exit=Exit(0, host.now))
    assert lifecycle.last_phase(host.pod, lifecycle.ending(host.runs, host.seen)) == "Succeeded"


@pytest.mark.req("SB-011")
def test_a_condition_keeps_the_time_at_which_it_began() -> None:
    """Deployments count `minReadySeconds` from it."""
    host = Host(make_pod("a")).step()
    first = {each["type"]: each for each in host.status()["conditions"]}
    host.now += dt.timedelta(seconds=5)
    host.seen["a"] = msgspec.structs.replace(host.seen["a"], ready=False)
    host.step()
    document = reporting.status(host.pod, host.runs, {}, host_address="h", pod_address="p", now=host.now, since=first)
    times = {each["type"]: each["lastTransitionTime"] for each in document["conditions"]}
    assert times["Initialized"] == "2026-01-01T00:00:00Z"
    assert times["Ready"] == "2026-01-01T00:00:05Z"
