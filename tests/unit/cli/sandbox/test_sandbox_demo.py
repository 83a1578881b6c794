"""The demo's counting and reading, from documents."""

import io
from typing import Any

import msgspec
import pytest
from rich.console import Console

from polyarch.cli.sandbox import demo as sandbox_demo
from polyarch.placement import names
from polyarch.sandbox import document
from polyarch.sandbox.demo import workloads
from polyarch.sandbox.demo.show import WITH, WITHOUT, summarize
from polyarch.sandbox.demo.workloads import IMAGES, WORKLOADS, DemoRow, DemoWorkload, can_run, platforms, pull_secret
from polyarch.sandbox.document import Demo, DemoBuild, DemoGrowth, DemoOperator, DemoReport, Document, Milliseconds
from polyarch.sandbox.nodes.pods import Pod
from polyarch.sandbox.operator import ACCOUNTS
from polyarch.sandbox.registry.images import read_descriptions

ALL = ["amd64", "arm64", "ppc64le", "s390x"]
WEBHOOK, CONTROLLER = f"{ACCOUNTS}{names.WEBHOOK}", f"{ACCOUNTS}{names.CONTROLLER}"


GROWTH = DemoGrowth(joined=2, tainted=2, daemon_set_pods=2, kept_away=4)
BUILD = DemoBuild(
    image="127.0.0.1:5000/demo-builds/shop@sha256:1",
    built=["amd64", "arm64"],
    seconds=9.04,
    built_again=["arm64"],
    reused=["amd64"],
    seconds_again=3.2,
)
REPORT = DemoReport(target="arm64", could_run="62.5 %", in_the_way=["quay.io/demo/legacy:1"], seconds=3.14)
OPERATOR = DemoOperator(installed=11, made=23, install_seconds=4.2, uninstall_seconds=12.5)


def event(user: str, verb: str, resource: str, name: str, **more: Any) -> bytes:
    reference = {"resource": resource, "namespace": more.pop("namespace", "demo"), "name": name}
    body = {"stage": "ResponseComplete", "verb": verb, "user": {"username": user}, "objectRef": reference, **more}
    return msgspec.json.encode(body) + b"\n"


@pytest.mark.req("SB-007")
def test_requests_are_counted_for_polyarch_alone_and_by_pod() -> None:
    lines = [
        event(CONTROLLER, "patch", "pods", "a"),
        event(CONTROLLER, "create", "events", "a.18b2"),
        event(CONTROLLER, "create", "events", "b.18b3"),
        event(WEBHOOK, "get", "secrets", "registry"),
        event(WEBHOOK, "get", "secrets", "other"),
        event(CONTROLLER, "watch", "pods", "a"),
        event(CONTROLLER, "patch", "leases", "a"),
        event(CONTROLLER, "patch", "pods", "a", namespace="elsewhere"),
        event(CONTROLLER, "patch", "pods", "a", stage="ResponseStarted"),
        event("system:kube-scheduler", "patch", "pods", "a"),
        event(CONTROLLER, "patch", "pods", "a")[:-1],
    ]
    counted = workloads.count(
        workloads.read(lines), accounts=ACCOUNTS, namespace="demo", pods=["a", "b", "c"], secrets={"registry": "c"}
    )
    assert counted == {"a": 2, "b": 1, "c": 1}


@pytest.mark.req("SB-010")
def test_the_webhooks_note_says_why_a_pod_was_left_alone() -> None:
    note = {workloads.DECISION: "ArchitectureAlreadyRequired ignored"}
    lines = [
        event("admin", "create", "pods", "a", annotations=note),
        event("admin", "create", "pods", "b"),
        event("admin", "create", "pods", "c", annotations=note, namespace="elsewhere"),
        event("admin", "patch", "pods", "d", annotations=note),
    ]
    assert workloads.decisions(workloads.read(lines), namespace="demo") == {"a": "ArchitectureAlreadyRequired ignored"}


@pytest.mark.req("SB-007")
def test_a_container_that_ended_once_is_waited_for() -> None:
    ended = {"state": {"terminated": {"exitCode": 1, "message": "exec /bin/app: exec format error"}}}
    row = workloads.seen(DemoRow(name="a"), seen(status={"phase": "Running", "containerStatuses": [ended]}), 1.0)
    assert row.problem == "Error: exec format error"
    assert not row.settled
    assert row.times.running is None


def seen(**fields: Any) -> Pod:
    return msgspec.convert(fields, Pod)


DECISION = msgspec.json.encode(
    {"v": 1, "by": "admission", "mode": "enforce", "reason": "ArchitecturesSet", "arch": ["amd64", "arm64"]}
).decode()


@pytest.mark.req("SB-010")
@pytest.mark.parametrize(
    ("labels", "gates", "path"),
    [
        ({names.SCHEDULING_GATE_LABEL: "removed"}, [], "inline"),
        ({names.SCHEDULING_GATE_LABEL: "gated"}, [{"name": names.GATE}], "gated"),
        ({names.SCHEDULING_GATE_LABEL: "not-set"}, [], "ignored"),
        ({}, [], ""),
    ],
)
def test_the_way_through_admission_is_read_off_the_created_pod(
    labels: dict[str, str], gates: list[dict[str, str]], path: str
) -> None:
    pod = seen(metadata={"labels": labels}, spec={"schedulingGates": gates})
    assert workloads.created(DemoRow(name="a"), pod, 7.0).path == path


@pytest.mark.req("SB-010")
def test_times_are_those_of_the_first_look_at_each_step() -> None:
    gated = seen(
        metadata={"labels": {names.SCHEDULING_GATE_LABEL: "gated"}}, spec={"schedulingGates": [{"name": names.GATE}]}
    )
    annotated = {"annotations": {names.DECISION_ANNOTATION: DECISION}}
    row = workloads.created(DemoRow(name="a"), gated, 10.0)
    row = workloads.seen(row, seen(metadata=annotated), 50.0)
    row = workloads.seen(row, seen(metadata=annotated, spec={"nodeName": "amd64-1"}), 60.0)
    running = seen(metadata=annotated, spec={"nodeName": "amd64-1"}, status={"phase": "Running"})
    row = workloads.seen(row, running, 90.0)
    row = workloads.seen(row, running, 500.0)
    assert row.times == Milliseconds(admission=10.0, released=50.0, bound=60.0, running=90.0)
    assert (row.reason, row.architectures, row.settled) == ("ArchitecturesSet", ("amd64", "arm64"), True)


@pytest.mark.req("SB-007")
@pytest.mark.parametrize(
    ("status", "problem"),
    [
        pytest.param({"phase": "Pending"}, "", id="not yet"),
        pytest.param(
            {
                "containerStatuses": [
                    {
                        "state": {"waiting": {"reason": "CrashLoopBackOff"}},
                        "lastState": {"terminated": {"message": "exec /bin/app: exec format error"}},
                    }
                ]
            },
            "CrashLoopBackOff: exec format error",
            id="foreign binary",
        ),
        pytest.param(
            {
                "containerStatuses": [
                    {"state": {"waiting": {"reason": "ErrImagePull", "message": "no match for platform in manifest"}}}
                ]
            },
            "ErrImagePull: no match for platform",
            id="platform missing",
        ),
        pytest.param(
            {"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]},
            "Unschedulable",
            id="no node",
        ),
        pytest.param(
            {"conditions": [{"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}]}, "", id="held"
        ),
    ],
)
def test_what_keeps_a_pod_from_running_is_said_in_its_own_words(status: dict[str, Any], problem: str) -> None:
    assert workloads.problem_of(seen(status=status)) == problem


@pytest.mark.req("SB-007")
def test_the_demo_shows_every_way_and_one_pod_that_can_run_nowhere() -> None:
    able = {workload.name: can_run(workload, ALL) for workload in WORKLOADS}
    assert [name for name, possible in able.items() if not possible] == ["impossible"]
    assert not can_run(DemoWorkload("x", ("quay.io/acme/billing:2.3",), architecture="arm64"), ALL)
    assert not can_run(DemoWorkload("x", ("quay.io/acme/billing:2.3",)), ["arm64"])


@pytest.mark.req("SB-007")
def test_every_image_of_the_demo_is_pushed() -> None:
    described = {each.reference.canonical for each in read_descriptions(IMAGES)}
    for workload in WORKLOADS:
        for image in workload.images:
            assert platforms(image), image
    assert "registry.example.com/overseas/reports:1.8" in described


@pytest.mark.req("SB-007")
def test_the_pull_secret_is_for_the_place_that_is_asked() -> None:
    secret = pull_secret("demo", "127.0.0.1:5000")
    assert secret["type"] == "kubernetes.io/dockerconfigjson"
    assert secret["metadata"]["namespace"] == "demo"


def outcome(**problems: str) -> tuple[dict[str, DemoRow], dict[str, DemoRow]]:
    def row(workload: DemoWorkload, problem: str) -> DemoRow:
        return DemoRow(name=workload.name, path="inline", phase="Pending" if problem else "Running", problem=problem)

    good = {each.name: row(each, problems.get(each.name, "")) for each in WORKLOADS}
    return good, {each.name: row(each, "CrashLoopBackOff") for each in WORKLOADS}


@pytest.mark.req("SB-010")
def test_the_demo_fails_only_for_a_pod_that_could_have_run() -> None:
    fine = summarize(*outcome(impossible="Unschedulable"), {}, ALL, OPERATOR, GROWTH, BUILD, REPORT)
    assert "2 arm64 nodes joined with taints on: 2 were tainted before a pod was there" in fine.demo.summary
    assert "after a change for arm64 in 3.2 s, with amd64 reused" in fine.demo.summary
    assert "was there after 3.1 s: 62.5 % of the load could run on arm64, and quay.io/demo/legacy:1 holds" in (
        fine.demo.summary
    )
    assert fine.failed == ()
    assert "8 of 8" in fine.demo.summary
    assert "8 of the same 8 fail" in fine.demo.summary
    broken = summarize(
        *outcome(impossible="Unschedulable", web="ErrImagePull"), {}, ALL, OPERATOR, GROWTH, BUILD, REPORT
    )
    assert broken.failed == ("web",)


@pytest.mark.req("SB-010")
def test_the_document_has_the_names_of_the_specification() -> None:
    good, without = outcome(impossible="Unschedulable")
    described = Document(
        schema_version=document.SCHEMA_VERSION,
        name="default",
        kubeconfig="/k",
        context="polyarch-default",
        api_server="https://127.0.0.1:1",
        version="v1.36.2",
        registry=document.RegistryAddress("127.0.0.1:2", True),
        audit_log="/a",
        registry_log="/r",
        processes=[document.Process("etcd", 1, "/l", "https://127.0.0.1:3", True, "")],
        nodes=[document.NodeLine("amd64-1", "amd64", True)],
        demo=summarize(good, without, {}, ALL, OPERATOR, GROWTH, BUILD, REPORT).demo,
    )
    found = msgspec.to_builtins(described)
    assert found["schemaVersion"] == "polyarch.dev/sandbox/v1"
    assert set(found) == {
        *("schemaVersion", "name", "kubeconfig", "context", "apiServer", "version", "registry", "auditLog"),
        *("registryLog", "processes", "nodes", "demo"),
    }
    assert {"name", "pid", "log", "url"} <= set(found["processes"][0])
    assert {"name", "architecture"} <= set(found["nodes"][0])
    pod = found["demo"]["pods"][0]
    assert set(pod) == {
        *("name", "namespace", "images", "path", "reason", "architectures", "node", "nodeArchitecture", "phase"),
        *("milliseconds", "requests", "without"),
    }
    assert found["demo"]["operator"] == {
        "installed": 11,
        "made": 23,
        "installSeconds": 4.2,
        "uninstallSeconds": 12.5,
        "left": [],
    }
    assert set(pod["milliseconds"]) == {"admission", "released", "bound", "running"}
    assert set(pod["without"]) == {"node", "nodeArchitecture", "phase", "reason"}
    assert set(pod["images"][0]) == {"image", "platforms"}
    assert isinstance(found["demo"]["summary"], str)


@pytest.mark.req("SB-010")
def test_without_a_demo_there_is_no_such_member() -> None:
    assert "demo" not in msgspec.to_builtins(
        Document("s", "n", "k", "c", "a", "v", document.RegistryAddress("r", True), "a", "r", [], [])
    )
    assert Demo([], "") != Demo([], "x")


@pytest.mark.req("SB-007")
@pytest.mark.parametrize(("width", "shown", "left_out"), [(160, "IMAGES RUN ON", ""), (80, "REQUESTS", "ADMISSION")])
def test_the_live_table_fits_its_terminal(width: int, shown: str, left_out: str) -> None:
    good, without = outcome(impossible="Unschedulable")
    console = Console(width=width, file=io.StringIO(), record=True)
    console.print(sandbox_demo.tables({WITH: tuple(good.values())}, None, width))
    text = console.export_text()
    assert "Unschedulable" in text
    assert shown in text
    assert not left_out or left_out not in text
    assert len(text.splitlines()) == 2 + len(WORKLOADS), "no row is wrapped"
    rows = {WITH: tuple(good.values()), WITHOUT: tuple(without.values())}
    console.print(sandbox_demo.tables(rows, OPERATOR, width))
    text = console.export_text()
    assert "the same pods without polyarch" in text
    assert "11 objects  23 objects  4.2 s            12.5 s          nothing" in text


@pytest.mark.req("SB-007")
def test_in_a_pipe_the_demo_says_what_it_does_now_and_nothing_twice() -> None:
    stream = io.StringIO()
    audience = sandbox_demo.in_lines(stream)
    failing = DemoRow(name="web", phase="Pending", problem="ErrImagePull", node="arm64-1")
    for problem in ("ErrImagePull", "ImagePullBackOff", "ErrImagePull", "ImagePullBackOff"):
        audience.listener(WITHOUT, (msgspec.structs.replace(failing, problem=problem),))
    audience.begin("nodes join")
    audience.tell(OPERATOR)
    assert stream.getvalue().splitlines() == [
        f"{WITHOUT}/web: ErrImagePull on arm64-1",
        f"{WITHOUT}/web: ImagePullBackOff on arm64-1",
        "now: nodes join",
        "operator: uninstalled in 12.5 s, left: nothing",
    ]


@pytest.mark.req("SB-007")
def test_a_terminal_shows_below_the_tables_what_is_done_now() -> None:
    console = Console(width=160, file=io.StringIO(), record=True)
    console.print(sandbox_demo.tables({}, OPERATOR, 160, now="polyarch is installed again"))
    assert console.export_text().splitlines()[-1] == "polyarch is installed again …"


@pytest.mark.req("SB-007")
def test_the_points_of_the_summary_stay_points_in_a_narrow_pipe() -> None:
    summary = "with polyarch 8 of 8 pods that can run do run; uninstall left nothing"
    assert sandbox_demo.points(summary, 24).splitlines() == [
        "• with polyarch 8 of 8",
        "  pods that can run do",
        "  run",
        "• uninstall left nothing",
    ]
    assert sandbox_demo.points(summary, 171).splitlines() == [f"• {each}" for each in summary.split("; ")]
