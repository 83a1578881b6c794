"""The soak's own judgement: a wrong pod, memory that grows and what is left over have to be seen."""

from collections import Counter
from typing import Any
from xml.etree import ElementTree as ET

import msgspec
import pytest
from bench.soak import fill as soakfill
from bench.soak.faults import NAMES, Faults
from bench.soak.report import REST_LIMIT, Requests, Sample, judge, restless, show, slope, svg
from bench.soak.roles import CONTAINERS, metrics_of
from bench.soak.shop import problem_of
from bench.soak.trial import Problem
from bench.soak.world import Born, History, SoakWorld, is_let_through

from polyarch.objects import Pod
from polyarch.oci.image import parsing
from polyarch.placement import names
from polyarch.sandbox.nodes.pods import Pod as RunPod

IMAGE = "soak.test/app:1"
ARM, AMD = ("amd64", "arm64"), ("amd64", "ppc64le")


def test_while_a_change_is_under_way_both_values_hold() -> None:
    history = History()
    history.begin("old", 0.0)
    history.done(0.0)
    history.begin("new", 10.0)
    history.done(12.0)
    assert history.during(0, 9) == {"old"}
    assert history.during(11, 11) == {"old", "new"}
    assert history.during(13, 20) == {"new"}


def test_a_change_of_unknown_outcome_leaves_both_possible() -> None:
    history = History()
    history.begin("old", 0.0)
    history.begin("perhaps", 10.0)
    assert history.during(50, 60) == {"old", "perhaps"}


def placed(*values: str, by_us: bool = True, note: str = "", preferred: tuple[Any, ...] = ()) -> Pod:
    expression = {"key": names.ARCH_KEY, "operator": "In", "values": list(values)}
    required = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}} if values else {}
    said = {"v": 1, "by": "controller", "mode": "enforce", "reason": "ArchitecturesSet", "arch": values,
            "preferred": preferred, "images": {IMAGE: note}}  # fmt: skip
    metadata = {
        "name": "pod",
        "labels": {names.SCHEDULING_GATE_LABEL: names.REMOVED} if by_us else {},
        "annotations": {names.DECISION_ANNOTATION: msgspec.json.encode(said).decode()} if by_us else {},
    }
    return msgspec.convert({"metadata": metadata, "spec": {"affinity": affinity}}, Pod)


def world() -> SoakWorld:
    """One image that moved at 1000; a policy that became a fallback at 2000; no preferences."""
    image = History()
    for values, at in ((ARM, 0.0), (AMD, 1000.0)):
        image.begin(values, at)
        image.done(at)
    policy = History()
    for answer, at in ((None, 0.0), (("s390x",), 2000.0)):
        policy.begin(answer, at)
        policy.done(at)
    absent = History([(None, 0.0, float("inf"))])
    return SoakWorld(
        {IMAGE: image, "absent": absent, "other": History([(("arm64", "s390x"), 0.0, float("inf"))])},
        {"0123": ARM, "4567": AMD},
        policy,
        History([((), 0.0, float("inf"))]),
        [(500.0, 520.0)],
    )


@pytest.mark.parametrize(
    ("kind", "images", "at", "pod", "wrong"),
    [
        pytest.param("warm", (IMAGE,), 900, placed(*ARM), "", id="as the image is"),
        pytest.param("warm", (IMAGE,), 900, placed(), "expected one of", id="unconstrained"),
        pytest.param("warm", (IMAGE,), 900, placed(*AMD), "expected one of", id="of another image"),
        pytest.param("moving", (IMAGE,), 1300, placed(*ARM), "", id="a tag that moved within its ten minutes"),
        pytest.param("moving", (IMAGE,), 1300, placed(*AMD, note="0123"), "0123 supports", id="not of its digest"),
        pytest.param("moving", (IMAGE,), 1900, placed(*ARM), "expected one of", id="older than the tag's lifetime"),
        pytest.param("always", (IMAGE,), 1300, placed(*ARM), "expected one of", id="Always, the tag as it was"),
        pytest.param("always", (IMAGE,), 1300, placed(*AMD), "", id="Always, the tag as it is"),
        pytest.param("mixed", (IMAGE, "other"), 900, placed("arm64"), "", id="what both support"),
        pytest.param("mixed", (IMAGE, "other"), 900, placed(*ARM), "expected one of", id="what one supports"),
        pytest.param("missing", ("absent",), 900, placed(), "", id="missing, released"),
        pytest.param("missing", ("absent",), 900, placed("s390x"), "expected one of", id="fallback before its time"),
        pytest.param("missing", ("absent",), 2900, placed("s390x"), "", id="missing, fallback"),
        pytest.param("missing", ("absent",), 2900, placed(), "expected one of", id="released against the policy"),
        pytest.param("warm", (IMAGE,), 510, placed(by_us=False), "", id="created while no webhook answered"),
        pytest.param("warm", (IMAGE,), 900, placed(by_us=False), "did not see", id="passed by a webhook that was up"),
        pytest.param("warm", (IMAGE,), 900, placed(*ARM, preferred=(("arm64", 5),)), "prefers", id="of no preference"),
    ],
)
def test_what_a_pod_may_look_like(kind: str, images: tuple[str, ...], at: float, pod: Pod, wrong: str) -> None:
    said = world().judge("pod", Born(kind, images, at, 0.0, released_at=at + 1, pod=pod))
    assert (wrong in said) if wrong else not said, said


def test_a_pod_that_was_let_through_is_told_from_one_that_was_placed() -> None:
    passed = msgspec.convert({"metadata": {"labels": {names.SCHEDULING_GATE_LABEL: names.NOT_SET}}}, Pod)
    assert is_let_through(passed)
    assert not is_let_through(placed(*ARM))


def samples(**grows: float) -> list[Sample]:
    """A process over ten minutes; ``grows`` by so much a minute."""
    return [
        Sample(
            at=at,
            role="placement-controller",
            pid=7,
            mib=60 + grows.get("mib", 0) * at / 60,
            descriptors=int(20 + grows.get("descriptors", 0) * at / 60),
            sockets=9,
            threads=3,
            tasks=30 + grows.get("tasks", 0) * at / 60,
            gated=0,
        )
        for at in range(0, 601, 5)
    ]


@pytest.mark.parametrize(
    ("grows", "wrong"),
    [
        pytest.param({}, "", id="flat"),
        pytest.param({"mib": 0.9}, "", id="within the limit"),
        pytest.param({"mib": 1.1}, "memory grows by 1.10 MiB/min", id="memory"),
        pytest.param({"descriptors": 1}, "30 descriptors at the end, 22 at the start", id="connections"),
        pytest.param({"tasks": 1}, "40 tasks at the end, 32", id="tasks"),
    ],
)
def test_what_a_process_may_keep(grows: dict[str, float], wrong: str) -> None:
    _, problems = judge(samples(**grows))
    assert (wrong in " ".join(problems)) if wrong else problems == []


def test_a_run_too_short_to_judge_memory_does_not_pass() -> None:
    _, [problem] = judge([each for each in samples() if each.at < 90])
    assert "no process stood long enough" in problem


def test_a_role_that_asks_for_something_all_the_time_is_restless() -> None:
    found = restless({"builder": Requests(busy=300, rest=REST_LIMIT), "taints": Requests(busy=3, rest=REST_LIMIT + 1)})
    assert [each.partition(":")[0] for each in found] == ["taints"]


def test_the_table_has_a_line_for_each_role_and_counts_what_was_wrong(capsys: pytest.CaptureFixture[str]) -> None:
    verdicts, _ = judge(samples())
    requests = {"placement-controller": Requests(busy=12.5, rest=0.5)}
    problems = [Problem("stuck", "pod [x] waits"), Problem("orphan", "Job y"), Problem("stuck", "a build")]
    show(verdicts, requests, Counter({"pods judged": 3}), [(60.0, "builder killed")], problems)
    printed = capsys.readouterr().out
    assert "placement-controller" in printed
    assert "60/60/60" in printed
    assert "12.5" in printed
    assert "pod [x] waits" in printed
    assert "wrong 0, stuck 2, orphans 1" in printed


@pytest.mark.parametrize(
    ("node", "waiting", "wrong"),
    [
        pytest.param("amd64-1", None, "", id="where its image runs"),
        pytest.param("", None, "", id="not scheduled yet"),
        pytest.param("s390x-1", None, "on s390x-1", id="where it does not"),
        pytest.param("amd64-1", "CrashLoopBackOff", "CrashLoopBackOff", id="it does not start"),
        pytest.param("amd64-1", "ImagePullBackOff", "", id="a registry that is away"),
    ],
)
def test_what_a_pod_of_a_deployment_may_be(node: str, waiting: str | None, wrong: str) -> None:
    state = {"waiting": {"reason": waiting, "message": "x"}} if waiting else {}
    found = msgspec.convert(
        {
            "metadata": {"labels": {"app": "app0"}},
            "spec": {"nodeName": node},
            "status": {"containerStatuses": [{"name": "app", "state": state}]},
        },
        RunPod,
    )
    said = problem_of(found)
    assert (wrong in said) if wrong else not said


def test_every_fault_can_be_injected() -> None:
    faults = Faults(None, None, None)  # type: ignore[arg-type]
    assert all(callable(faults.of(name)) for name in NAMES)
    assert {name.removesuffix(" killed") for name in NAMES if name.endswith(" killed")} == set(CONTAINERS.values())


def test_a_metrics_address_is_that_of_the_container_in_its_pod() -> None:
    ports = [{"name": "webhook", "containerPort": 9443}, {"name": "metrics", "containerPort": 8443}]
    pod = {"status": {"podIP": "10.233.0.12"}, "spec": {"containers": [{"name": "web-hook", "ports": ports}]}}
    assert metrics_of(pod, "web-hook") == "127.233.0.12:8443"
    assert not metrics_of(pod, "other")
    assert not metrics_of(None, "web-hook")


def test_slope_is_by_the_minute() -> None:
    assert slope([(0, 1.0), (30, 2.0), (60, 3.0)]) == pytest.approx(2.0)


def test_the_curve_is_a_picture_with_each_process_and_fault() -> None:
    root = ET.fromstring(svg(samples(), [(60.0, "registry <down>")]))
    tags = [element.tag.rpartition("}")[2] for element in root.iter()]
    assert tags.count("polyline") == 1
    assert "registry <down>" in [element.text for element in root.iter()]


@pytest.mark.req("PL-810")
def test_images_that_fill_the_caches_are_all_different_and_need_one_request() -> None:
    """Each is an index whose platforms stand in it, so no child is asked for."""
    documents = [soakfill.index(number, AMD) for number in range(50)]
    assert len(set(documents)) == 50
    assert all(
        [entry.platform.architecture for entry in parsing.read_index(each).entries] == list(AMD) for each in documents
    )


@pytest.mark.req("PL-300")
def test_a_pod_that_fills_the_controllers_comes_with_the_gate() -> None:
    """The controller finds it by its label, without a webhook."""
    pod = msgspec.convert(soakfill.document("p", [IMAGE, IMAGE], gated=True), Pod)
    assert [gate.name for gate in pod.spec.scheduling_gates or ()] == [names.GATE]
    assert (pod.metadata.labels or {})[names.SCHEDULING_GATE_LABEL] == names.GATED
