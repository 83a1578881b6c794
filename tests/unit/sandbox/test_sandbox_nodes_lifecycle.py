"""What nodes make of images and pods, without an API server and without waiting."""

import datetime as dt
from typing import Any

import msgspec
import pytest

from polyarch.oci.inspection import Entry, Inspection, InspectionError, Status
from polyarch.oci.reference import parse
from polyarch.platforms import Platform
from polyarch.sandbox.kubelet_model.layout import NumaLayout
from polyarch.sandbox.nodes import lifecycle, reporting
from polyarch.sandbox.nodes.lifecycle import (
    CannotPull,
    ContainerReason,
    Pulled,
    Runs,
    SimulatedContainer,
    Verdict,
    WrongFormat,
    verdict,
)
from polyarch.sandbox.nodes.plans import (
    NUMA_ANNOTATION,
    TAINTS_ANNOTATION,
    NodePlan,
    NodeSpec,
    _taint,
    former_pages,
    lease_document,
    node_document,
    node_patch,
    node_plans,
    node_status,
    reports_plan,
)
from polyarch.sandbox.nodes.plans import Node as ApiNode
from polyarch.sandbox.nodes.pods import Pod, ReadinessGate
from polyarch.sandbox.state import NodeBatch, Settings, Taint, joined

NOW = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


def answer(*platforms: str, kind: str = "index", **more: Any) -> Inspection:
    entries = tuple(Entry(Platform.parse(text), "sha256:0") for text in platforms)
    status = more.pop("status", Status.RESOLVED)
    return Inspection(parse("quay.io/acme/app:1"), status, kind=kind, entries=entries, **more)  # type: ignore[arg-type]


@pytest.mark.req("SB-004")
@pytest.mark.parametrize(
    ("given", "expected"),
    [
        pytest.param(answer("linux/amd64", "linux/arm64"), Runs, id="the index has the architecture"),
        pytest.param(answer("linux/arm64", kind="image"), Runs, id="the image is of the architecture"),
        pytest.param(answer("linux/amd64"), CannotPull, id="the index lacks the architecture"),
        pytest.param(answer(), CannotPull, id="the index is empty"),
        pytest.param(answer("linux/amd64", kind="image"), WrongFormat, id="the image is of another architecture"),
        pytest.param(answer("windows/arm64"), CannotPull, id="right architecture, other system"),
        pytest.param(answer(kind="artifact", status=Status.NEUTRAL), CannotPull, id="an artifact is no image"),
        pytest.param(answer(kind="image", status=Status.NEUTRAL), Runs, id="a bundle"),
        pytest.param(answer(kind="image", status=Status.UNKNOWN), Runs, id="an image that does not say"),
        pytest.param(
            answer(status=Status.ERROR, error=InspectionError.of("not-found", "no such tag")), CannotPull, id="absent"
        ),
    ],
)
def test_an_arm64_node_and_an_image(given: Inspection, expected: type[Verdict]) -> None:
    assert isinstance(verdict("quay.io/acme/app:1", given, "arm64"), expected)


@pytest.mark.req("SB-004")
@pytest.mark.parametrize(
    ("given", "text"),
    [
        (answer("linux/amd64"), "no match for platform in manifest"),
        (answer(status=Status.ERROR, error=InspectionError.of("not-found", "x")), "not found"),
        (answer(status=Status.ERROR, error=InspectionError.of("unauthorized", "x")), "pull access denied"),
        (answer(status=Status.ERROR, error=InspectionError.of("network", "connection refused")), "connection refused"),
    ],
)
def test_a_failed_pull_says_what_a_real_node_says(given: Inspection, text: str) -> None:
    found = verdict("quay.io/acme/app:1", given, "arm64")
    assert isinstance(found, CannotPull)
    assert text in found.message
    assert "quay.io/acme/app:1" in found.message


def make_pod(*containers: str, init: tuple[dict[str, str], ...] = (), restart: str = "Always", **status: Any) -> Pod:
    return msgspec.convert(
        {
            "metadata": {"name": "p", "namespace": "n", "uid": "u"},
            "spec": {
                "nodeName": "arm64-1",
                "restartPolicy": restart,
                "containers": [{"name": name, "image": name} for name in containers],
                "initContainers": list(init),
            },
            "status": status,
        },
        Pod,
    )


class Node:
    """A pod on a node, and time that passes when the test says so."""

    def __init__(self, pod: Pod, **verdicts: Verdict) -> None:
        self.pod = pod
        self.verdicts = verdicts
        self.now = NOW
        self.runs: dict[str, SimulatedContainer] = lifecycle.recover(pod, NOW)
        self.pulls: list[str] = []

    def advance(self, seconds: float = 0.0) -> "Node":
        """Let time pass, and every step that is due in it happen."""
        end = self.now + dt.timedelta(seconds=seconds)
        while True:
            due = lifecycle.due_images(self.pod, self.runs, self.now)
            self.pulls += due
            pulled = {image: Pulled(self.verdicts.get(image, Runs()), f"{image}@sha256:0") for image in due}
            step = lifecycle.step(self.pod, self.runs, pulled, self.now)
            self.runs = step.runs
            if step.wait is None or self.now + dt.timedelta(seconds=step.wait) > end:
                self.now = end
                return self
            self.now += dt.timedelta(seconds=step.wait)

    @property
    def activities(self) -> dict[str, ContainerReason]:
        return {name: run.activity for name, run in self.runs.items()}

    @property
    def phase(self) -> str:
        return lifecycle.phase(self.pod, self.runs)

    def status(self) -> dict[str, Any]:
        images = {name: Pulled(Runs(), f"{name}@sha256:0") for name in self.verdicts}
        return reporting.status(
            self.pod, self.runs, images, host_address="10.250.0.1", pod_address="10.244.0.1", now=self.now
        )

    def container(self, name: str) -> dict[str, Any]:
        statuses = self.status()["containerStatuses"] + self.status().get("initContainerStatuses", [])
        return next(status for status in statuses if status["name"] == name)


def conditions(status: dict[str, Any]) -> dict[str, str]:
    return {each["type"]: each["status"] for each in status["conditions"]}


def said(status: dict[str, Any], condition: str) -> tuple[str, str | None, str | None]:
    found = next(each for each in status["conditions"] if each["type"] == condition)
    return found["status"], found["reason"], found["message"]


@pytest.mark.req("SB-004")
def test_a_pod_with_fitting_images_is_running_and_ready() -> None:
    node = Node(make_pod("a", "b")).advance()
    assert node.phase == "Running"
    assert conditions(node.status())["Ready"] == "True"
    assert node.container("a")["state"]["running"]["startedAt"] == "2026-01-01T00:00:00Z"
    node.advance(3600)
    assert node.phase == "Running"
    assert node.pulls == ["a", "b"], "nothing is pulled twice"


@pytest.mark.req("SB-004")
def test_a_foreign_binary_ends_in_crash_loop_backoff_with_exec_format_error() -> None:
    node = Node(make_pod("a"), a=WrongFormat()).advance()
    first = node.container("a")["state"]["terminated"]
    assert (first["exitCode"], first["reason"]) == (1, "Error")
    assert "exec format error" in first["message"]
    node.advance(1)
    looping = node.container("a")
    assert looping["state"]["waiting"]["reason"] == "CrashLoopBackOff"
    assert "exec format error" in looping["lastState"]["terminated"]["message"]
    assert looping["restartCount"] == 1
    assert node.phase == "Running", "as kubectl shows it on a real node"
    assert conditions(node.status())["Ready"] == "False"


@pytest.mark.req("SB-004")
def test_restarts_come_after_10_20_40_seconds_and_never_later_than_5_minutes() -> None:
    node = Node(make_pod("a"), a=WrongFormat()).advance(1)
    for seconds, restarts in ((9, 1), (1, 2), (20, 3), (40, 4), (80, 5), (160, 6), (300, 7), (300, 8)):
        assert node.advance(seconds).container("a")["restartCount"] == restarts


@pytest.mark.req("SB-004")
def test_every_start_has_a_container_id_of_its_own() -> None:
    node = Node(make_pod("a"), a=WrongFormat()).advance()
    first = node.container("a")["containerID"]
    second = node.advance(1).container("a")["containerID"]
    assert first != second
    assert len(first.removeprefix("containerd://")) == 64


@pytest.mark.req("SB-004")
@pytest.mark.parametrize(("restart", "phase"), [("Never", "Failed"), ("OnFailure", "Running")])
def test_a_job_with_a_foreign_binary_fails_or_tries_again(restart: str, phase: str) -> None:
    assert Node(make_pod("a", restart=restart), a=WrongFormat()).advance(5).phase == phase


@pytest.mark.req("SB-004")
def test_a_missing_platform_is_err_image_pull_then_backoff_then_tried_again() -> None:
    node = Node(make_pod("a"), a=CannotPull("no match for platform in manifest")).advance()
    assert node.container("a")["state"]["waiting"] == {
        "reason": "ErrImagePull",
        "message": "no match for platform in manifest",
    }
    waiting = node.advance(2).container("a")["state"]["waiting"]
    assert waiting["reason"] == "ImagePullBackOff"
    assert "no match for platform" in waiting["message"]
    assert node.phase == "Pending"
    assert node.pulls == ["a"]
    node.advance(8)
    assert node.pulls == ["a", "a"]
    node.verdicts = {"a": Runs()}
    assert node.advance(30).phase == "Running", "somebody has pushed the platform meanwhile"


@pytest.mark.req("SB-004")
def test_one_bad_container_does_not_stop_the_other() -> None:
    node = Node(make_pod("a", "b"), a=CannotPull("x")).advance()
    assert node.activities == {"a": ContainerReason.PULL_FAILED, "b": ContainerReason.RUNNING}
    assert node.phase == "Pending"


@pytest.mark.req("SB-004")
@pytest.mark.parametrize("restart", ["Never", "OnFailure"])
def test_a_pod_that_comes_to_an_end_succeeds(restart: str) -> None:
    node = Node(make_pod("a", "b", restart=restart)).advance()
    assert node.phase == "Running"
    assert node.advance(1).phase == "Succeeded"
    assert node.container("a")["state"]["terminated"]["reason"] == "Completed"


INIT = ({"name": "one", "image": "one"}, {"name": "two", "image": "two"})


@pytest.mark.req("SB-004")
def test_init_containers_run_one_after_the_other_before_the_rest() -> None:
    node = Node(make_pod("a", init=INIT)).advance()
    assert node.activities == {
        "one": ContainerReason.RUNNING,
        "two": ContainerReason.INITIALIZING,
        "a": ContainerReason.INITIALIZING,
    }
    assert node.container("a")["state"]["waiting"]["reason"] == "PodInitializing"
    assert conditions(node.status())["Initialized"] == "False"
    node.advance(1)
    assert node.activities["two"] == ContainerReason.RUNNING
    node.advance(1)
    assert node.activities["a"] == ContainerReason.RUNNING
    assert conditions(node.status())["Initialized"] == "True"
    assert node.pulls == ["one", "two", "a"]


@pytest.mark.req("SB-004")
def test_a_foreign_init_container_keeps_the_pod_from_starting() -> None:
    node = Node(make_pod("a", init=INIT), one=WrongFormat()).advance(30)
    assert node.phase == "Pending"
    assert node.container("one")["state"]["waiting"]["reason"] == "CrashLoopBackOff"
    assert "two" not in node.pulls


@pytest.mark.req("SB-004")
def test_a_failed_init_container_that_is_not_restarted_fails_the_pod() -> None:
    assert Node(make_pod("a", init=INIT, restart="Never"), one=WrongFormat()).advance(5).phase == "Failed"


@pytest.mark.req("SB-004")
def test_a_sidecar_stays_and_the_others_start_beside_it() -> None:
    sidecar = {"name": "proxy", "image": "proxy", "restartPolicy": "Always"}
    node = Node(make_pod("a", init=(sidecar, INIT[0]))).advance(2)
    assert node.activities == {
        "proxy": ContainerReason.RUNNING,
        "one": ContainerReason.COMPLETED,
        "a": ContainerReason.RUNNING,
    }


@pytest.mark.req("SB-004")
def test_a_sidecar_ends_with_its_pod() -> None:
    sidecar = {"name": "proxy", "image": "proxy", "restartPolicy": "Always"}
    node = Node(make_pod("a", init=(sidecar,), restart="Never")).advance(2)
    assert (node.phase, node.activities["proxy"]) == ("Succeeded", ContainerReason.COMPLETED)
    assert node.container("proxy")["state"]["terminated"]["exitCode"] == 0


@pytest.mark.req("SB-004")
def test_conditions_name_the_containers_that_are_waited_for_and_forget_them_afterwards() -> None:
    """Nothing of an earlier reason or message may stay in the object, into which the status is merged."""
    sidecar = {"name": "proxy", "image": "proxy", "restartPolicy": "Always"}
    node = Node(make_pod("a", "b", init=(sidecar, *INIT))).advance()
    assert said(node.status(), "Initialized") == (
        "False",
        "ContainersNotInitialized",
        "containers with incomplete status: [one two]",
    )
    unready = "containers with unready status: [a b]"
    assert said(node.status(), "Ready") == ("False", "ContainersNotReady", unready)
    node.advance(5)
    for each in ("Initialized", "Ready", "ContainersReady"):
        assert said(node.status(), each) == ("True", None, None)
    assert node.container("one")["ready"], "an init container that is done is ready"


@pytest.mark.req("SB-004")
def test_a_status_says_which_generation_it_is_of_and_when_its_conditions_began() -> None:
    pod = make_pod("a", conditions=[{"type": "Ready", "status": "True", "lastTransitionTime": "2025-01-01T00:00:00Z"}])
    pod = msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, generation=3))
    status = Node(pod).advance().status()
    assert status["observedGeneration"] == 3
    assert {each["observedGeneration"] for each in status["conditions"]} == {3}
    since = {each["type"]: each["lastTransitionTime"] for each in status["conditions"]}
    assert (since["Ready"], since["ContainersReady"]) == ("2025-01-01T00:00:00Z", "2026-01-01T00:00:00Z")
    assert "observedGeneration" not in Node(make_pod("a")).advance().status(), "of an API server that counts none"


@pytest.mark.req("SB-004")
@pytest.mark.parametrize(
    ("there", "ready", "message"),
    [
        ([], "False", 'corresponding condition of pod readiness gate "up" does not exist.'),
        (
            [{"type": "up", "status": "False"}],
            "False",
            'the status of pod readiness gate "up" is not "True", but False',
        ),
        ([{"type": "up", "status": "True"}], "True", None),
    ],
)
def test_a_pod_is_ready_when_its_gates_are_open(there: list[dict[str, str]], ready: str, message: str | None) -> None:
    pod = make_pod("a", conditions=there)
    pod = msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, readiness_gates=[ReadinessGate("up")]))
    status = Node(pod).advance().status()
    assert said(status, "ContainersReady")[0] == "True"
    assert said(status, "Ready") == (ready, None if message is None else "ReadinessGatesNotReady", message)


@pytest.mark.req("SB-004")
def test_a_pod_that_no_scheduler_has_bound_is_told_to_be_scheduled() -> None:
    assert conditions(Node(make_pod("a")).advance().status())["PodScheduled"] == "True"
    scheduled = make_pod("a", conditions=[{"type": "PodScheduled", "status": "True"}])
    assert "PodScheduled" not in conditions(Node(scheduled).advance().status())


@pytest.mark.req("SB-004")
def test_a_restarted_node_keeps_the_image_ids_that_it_reported() -> None:
    reported = [{"name": "a", "imageID": "a@sha256:1", "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}}]
    assert Node(make_pod("a", containerStatuses=reported)).container("a")["imageID"] == "a@sha256:1"


@pytest.mark.req("NS-164")
def test_a_node_reports_no_huge_pages_that_it_has_no_more() -> None:
    (before,), (after,) = (
        node_plans(Settings(nodes={"arm64": 1}, numa=NumaLayout.parse(each))) for each in ("2x8,pages=2Mi:512", "2x8")
    )
    document = {"metadata": {"name": before.name}, "status": node_status(before, NOW)}
    document["status"]["capacity"]["example.com/added"] = "1"
    known = msgspec.convert(document, ApiNode)
    assert (reports_plan(before, known), former_pages(before, known)) == (True, {})
    assert (reports_plan(after, known), former_pages(after, known)) == (False, {"hugepages-2Mi": None})


@pytest.mark.req("SB-004")
def test_a_restarted_node_goes_on_from_what_it_reported() -> None:
    waiting = {"waiting": {"reason": "CrashLoopBackOff", "message": "m"}}
    statuses = [
        {"name": "a", "restartCount": 4, "state": waiting},
        {"name": "b", "restartCount": 0, "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}},
    ]
    node = Node(make_pod("a", "b", phase="Running", containerStatuses=statuses), a=WrongFormat()).advance()
    assert node.pulls == []
    assert node.container("a")["restartCount"] == 4
    assert node.advance(80).container("a")["restartCount"] == 5


@pytest.mark.req("SB-004")
def test_an_image_that_is_never_pulled_waits_for_somebody_to_bring_it() -> None:
    node = Node(make_pod("a"), a=CannotPull("not present with pull policy of Never", "ErrImageNeverPull")).advance(60)
    assert node.container("a")["state"]["waiting"]["reason"] == "ErrImageNeverPull"


@pytest.mark.req("SB-004")
def test_failures_are_told_as_events_and_what_runs_is_not() -> None:
    node = Node(make_pod("a", "b", "c"), a=WrongFormat(), b=CannotPull("no match for platform in manifest"))
    before = dict(node.runs)
    node.advance()
    first = reporting.kubelet_events(node.pod, before, node.runs)
    assert [(each.type, each.reason) for each in first] == [("Warning", "Failed"), ("Warning", "Failed")]
    assert "exec format error" in first[0].note
    assert "no match for platform" in first[1].note
    before = dict(node.runs)
    node.advance(2)
    then = reporting.kubelet_events(node.pod, before, node.runs)
    assert [(each.type, each.reason) for each in then] == [("Warning", "BackOff"), ("Normal", "BackOff")]
    assert reporting.kubelet_events(node.pod, node.runs, node.runs) == []


@pytest.mark.req("SB-004")
def test_the_fleet_is_what_was_asked_for() -> None:
    plans = node_plans(
        Settings(
            nodes={"amd64": 2, "s390x": 1},
            numa=NumaLayout(2, 8),
            taints=(Taint("s390x", "kubernetes.io/arch", "s390x", "NoSchedule"), Taint("*", "new", "", "NoExecute")),
        )
    )
    assert [plan.name for plan in plans] == ["amd64-1", "amd64-2", "s390x-1"]
    assert len({plan.address for plan in plans}) == 3
    node = node_document(plans[2], NOW)
    assert node["metadata"]["labels"]["kubernetes.io/arch"] == "s390x"
    assert node["metadata"]["labels"]["kubernetes.io/hostname"] == "s390x-1"
    taints = "kubernetes.io/arch=s390x:NoSchedule,new:NoExecute"
    assert node["metadata"]["annotations"] == {NUMA_ANNOTATION: "2x8", TAINTS_ANNOTATION: taints}
    assert [taint["key"] for taint in node["spec"]["taints"]] == ["kubernetes.io/arch", "new"]
    assert [taint["key"] for taint in node_document(plans[0], NOW)["spec"]["taints"]] == ["new"]
    status = node_status(plans[2], NOW)
    assert status["nodeInfo"]["architecture"] == "s390x"
    assert (status["capacity"]["cpu"], status["allocatable"]["cpu"]) == ("16", "15")
    assert (status["capacity"]["memory"], status["allocatable"]["memory"]) == ("64Gi", "63Gi")
    assert conditions(status)["Ready"] == "True"
    lease = lease_document(plans[0], NOW)
    assert lease["spec"]["renewTime"] == "2026-01-01T00:00:00.000000Z"


@pytest.mark.req("SB-020")
def test_a_nodes_kubelet_has_the_version_of_the_control_plane_and_reports_another_one() -> None:
    (before,), (after,) = (node_plans(Settings(nodes={"arm64": 1}, kubernetes=each)) for each in ("1.30", "1.33"))
    assert node_status(before, NOW)["nodeInfo"]["kubeletVersion"] == "v1.30.14"
    there = msgspec.convert({"metadata": {"name": before.name}, "status": node_status(before, NOW)}, ApiNode)
    assert reports_plan(before, there)
    assert not reports_plan(after, there)


@pytest.mark.req("SB-015")
def test_a_node_registers_as_a_kubelet_does_with_its_architecture_and_not_yet_ready() -> None:
    """What adds a taint at a node's creation reads the label or ``status.nodeInfo``: both have to be there by then."""
    (plan,) = node_plans(Settings(nodes={"arm64": 1}))
    registered = node_document(plan, NOW)
    assert registered["metadata"]["labels"]["kubernetes.io/arch"] == "arm64"
    assert registered["status"]["nodeInfo"]["architecture"] == "arm64"
    assert conditions(registered["status"])["Ready"] == "False"


@pytest.mark.req("SB-015")
def test_nodes_keep_number_address_and_zone_when_the_fleet_grows_and_shrinks() -> None:
    sizes: list[dict[str, int]] = [
        {"amd64": 2, "arm64": 1},
        {"amd64": 3, "arm64": 1},
        {"s390x": 1, "arm64": 2, "amd64": 3},
        {"arm64": 1},
        {"amd64": 4, "arm64": 2},
    ]
    fleet_now: tuple[NodeBatch, ...] = ()
    seen: dict[str, tuple[str, Any]] = {}
    for nodes in sizes:
        fleet_now = joined(fleet_now, nodes)
        plans = node_plans(Settings(nodes=nodes), fleet_now)
        assert len(plans) == sum(nodes.values())
        for plan in plans:
            place = plan.address, node_document(plan, NOW)["metadata"]["labels"]["topology.kubernetes.io/zone"]
            assert seen.setdefault(plan.name, place) == place, f"{plan.name} with {nodes}"
    assert len({address for address, _ in seen.values()}) == len(seen) == 7, "no address was given twice"


@pytest.mark.req("SB-015")
def test_taints_of_registration_are_of_new_nodes_only_and_are_never_restored() -> None:
    without, later = Settings(nodes={"arm64": 1}), Settings(nodes={"arm64": 1}, register_taints=(ARCH,))
    (old,), (new,) = node_plans(without), node_plans(later)
    assert node_document(new, NOW)["spec"]["taints"] == [_taint(ARCH)]
    assert node_patch(new, there(old)) is None
    assert node_patch(old, there(new)) is None
    cleaned = msgspec.structs.replace(there(new), spec=NodeSpec())
    assert node_patch(new, cleaned) is None


@pytest.mark.req("SB-015")
def test_a_taint_that_is_kept_wins_over_one_of_registration() -> None:
    kept = Taint("arm64", ARCH.key, "kept", ARCH.effect)
    (plan,) = node_plans(Settings(nodes={"arm64": 1}, taints=(kept,), register_taints=(ARCH,)))
    assert [taint["value"] for taint in node_document(plan, NOW)["spec"]["taints"]] == ["kept"]


@pytest.mark.req("SB-004")
def test_a_thousand_nodes_have_a_thousand_addresses() -> None:
    plans = node_plans(Settings(nodes={"amd64": 1000}))
    assert len({plan.address for plan in plans}) == 1000


ARCH = Taint("*", "kubernetes.io/arch", "arm64", "NoSchedule")
GONE = Taint("*", "gone", "", "NoExecute")
FOREIGN = {"key": "maintenance", "effect": "NoExecute", "timeAdded": "2026-01-01T00:00:00Z"}


def planned(*taints: Taint) -> NodePlan:
    (plan,) = node_plans(Settings(nodes={"arm64": 1}, taints=taints))
    return plan


def there(plan: NodePlan, *taints: dict[str, Any]) -> ApiNode:
    """A node made for ``plan``, with these taints besides."""
    document = node_document(plan, NOW)
    spec = {**document["spec"], "taints": [*document["spec"].get("taints", ()), *taints]}
    return msgspec.convert({**document, "spec": spec}, ApiNode)


@pytest.mark.req("SB-004")
@pytest.mark.parametrize(
    ("before", "others", "now", "after"),
    [
        pytest.param([ARCH], [FOREIGN], [], [FOREIGN], id="its own goes, another's stays as it is"),
        pytest.param([], [FOREIGN], [ARCH], [FOREIGN, _taint(ARCH)], id="a new one comes"),
        pytest.param([ARCH, GONE], [], [ARCH], [_taint(ARCH)], id="one of two goes"),
        pytest.param(
            [ARCH],
            [],
            [Taint("*", ARCH.key, "other", ARCH.effect)],
            [{**_taint(ARCH), "value": "other"}],
            id="another value",
        ),
        pytest.param([], [{**_taint(ARCH), "value": "x"}], [ARCH], [_taint(ARCH)], id="asked for, and set by another"),
        pytest.param([ARCH], [FOREIGN], [ARCH], None, id="as it was"),
    ],
)
def test_taints_are_those_asked_for_and_those_of_others(
    before: list[Taint], others: list[dict[str, Any]], now: list[Taint], after: list[dict[str, Any]] | None
) -> None:
    """Before, a changed --taint left the old one, and one that was set wiped what others had set."""
    change = node_patch(planned(*now), there(planned(*before), *others))
    assert (change["spec"]["taints"] if change else None) == after


@pytest.mark.req("SB-004")
def test_a_taint_taken_away_by_hand_does_not_come_back_by_itself() -> None:
    plan = planned(ARCH)
    node = there(plan)
    assert node_patch(plan, msgspec.structs.replace(node, spec=NodeSpec())) is None


@pytest.mark.req("SB-004")
def test_a_label_taken_away_comes_back_and_nothing_else_is_touched() -> None:
    plan = planned(ARCH)
    document = node_document(plan, NOW)
    del document["metadata"]["labels"]["kubernetes.io/arch"]
    document["metadata"] |= {"resourceVersion": "7"}
    change = node_patch(plan, msgspec.convert(document, ApiNode))
    assert change == {
        "metadata": {"resourceVersion": "7", "labels": {"kubernetes.io/arch": "arm64"}, "annotations": {}}
    }


@pytest.mark.req("SB-004")
def test_of_two_taints_that_a_node_cannot_have_both_the_later_counts() -> None:
    assert planned(ARCH, Taint("arm64", ARCH.key, "x", ARCH.effect)).taints[0].value == "x"
