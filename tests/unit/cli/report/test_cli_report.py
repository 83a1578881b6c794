"""``polyarch report`` as a user runs it: forms, exit codes, files that cannot be used."""

import csv
import io
import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from commands import Command

from polyarch.reports.facts import decode_snapshot, encode_snapshot

PLATFORMS = """\
quay.io/acme/both:1: [linux/amd64, linux/arm64]
quay.io/acme/only:1: [linux/amd64]
quay.io/acme/only:2: [linux/amd64, linux/arm64]
quay.io/acme/away:1: {error: network}
"""


def deployment(name: str, image: str, cpu: str = "1", **metadata: str) -> str:
    content = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": "shop", **metadata},
        "spec": {
            "template": {
                "metadata": {"labels": {"team": "red"}},
                "spec": {"containers": [{"name": "c", "image": image, "resources": {"requests": {"cpu": cpu}}}]},
            }
        },
    }
    return f"---\n{yaml.safe_dump(content)}"


READY = deployment("ready", "quay.io/acme/both:1", "3")
BLOCKED = deployment("blocked", "quay.io/acme/only:1")
AWAY = deployment("away", "quay.io/acme/away:1")


@pytest.fixture
def report(capsys: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Command:
    command = Command("report", capsys, monkeypatch, tmp_path)
    command.write("platforms.yaml", PLATFORMS)
    command.write("all.yaml", READY + BLOCKED)
    return command


@pytest.mark.req("RP-020")
def test_text_says_how_much_could_run_and_what_is_in_the_way(report: Command) -> None:
    ran = report("-f", "all.yaml", "--target", "arm64")
    assert ran.code == 0
    assert "75.0 %" in ran.out
    assert "publish quay.io/acme/only:1 for arm64" in ran.out
    columns = re.split(" {2,}", next(line for line in ran.out.splitlines() if line.startswith("TARGET ")).strip())
    assert len(set(columns)) == len(columns), (
        "no two columns have one name: shares come first, numbers of workloads last"
    )
    assert "\x1b" not in ran.out


@pytest.mark.req("RP-020")
def test_text_has_one_row_for_targets_of_which_the_same_holds(report: Command) -> None:
    """A cluster of four architectures would repeat most rows four times; the other forms have one for each."""
    pinned = yaml.safe_load(READY)
    requirement = {"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"]}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [requirement]}]}
    pinned["metadata"]["name"] = "pinned"
    pinned["spec"]["template"]["spec"]["affinity"] = {
        "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}
    }
    report.write("more.yaml", READY + BLOCKED + AWAY + f"---\n{yaml.safe_dump(pinned)}")
    out = report("-f", "more.yaml", "--target", "amd64,arm64,ppc64le,s390x").out
    rows = [re.split(" {2,}", line)[3:] for line in out.splitlines() if line.startswith("shop/Deployment/")]
    assert [row[:2] for row in rows] == [
        ["amd64", "ready"],
        ["arm64", "constrained"],
        ["ppc64le, s390x", "image"],
        ["amd64, arm64", "ready"],
        ["ppc64le, s390x", "image"],
        ["amd64, arm64, ppc64le, s390x", "unknown"],
        ["amd64", "ready"],
        ["arm64, ppc64le, s390x", "image"],
    ]
    assert "its required affinity excludes ppc64le or s390x: kubernetes.io/arch In (amd64) (" in rows[2][2]
    assert rows[7][2] == "quay.io/acme/only:1 has linux/amd64, not arm64 or ppc64le or s390x"


@pytest.mark.req("RP-024")
@pytest.mark.parametrize("form", ["text", "json", "yaml", "csv", "markdown", "html"])
def test_equal_facts_give_equal_bytes(report: Command, form: str) -> None:
    first = report("-f", "all.yaml", "--target", "arm64", "-o", form)
    again = report("-f", "all.yaml", "--target", "arm64", "-o", form)
    assert first.out == again.out


@pytest.mark.req("RP-020")
def test_json_and_yaml_are_one_document(report: Command) -> None:
    as_json = json.loads(report("-f", "all.yaml", "--target", "arm64", "-o", "json").out)
    as_yaml = yaml.safe_load(report("-f", "all.yaml", "--target", "arm64", "-o", "yaml").out)
    assert as_json == as_yaml
    assert as_json["apiVersion"] == "polyarch.dev/report/v1"
    assert as_json["sums"][0]["readyShare"] == 0.75


@pytest.mark.req("RP-020")
def test_csv_has_one_row_a_workload_and_target(report: Command) -> None:
    out = report("-f", "all.yaml", "--target", "arm64,amd64", "-o", "csv").out
    rows = list(csv.DictReader(io.StringIO(out)))
    assert [(row["name"], row["target"], row["verdict"]) for row in rows] == [
        ("ready", "arm64", "ready"),
        ("ready", "amd64", "ready"),
        ("blocked", "arm64", "image"),
        ("blocked", "amd64", "ready"),
    ]
    assert rows[2]["blockedBy"] == "quay.io/acme/only:1"


@pytest.mark.req("RP-020")
def test_texts_of_others_are_neither_formulas_nor_markup(report: Command) -> None:
    report.write("bad.yaml", deployment("bad", "=cmd|' /C calc'!A0") + deployment("worse", "<img src=x>[a](b)`|"))
    rows = list(csv.DictReader(io.StringIO(report("-f", "bad.yaml", "--target", "arm64", "-o", "csv").out)))
    assert {row["images"][0] for row in rows} == {"'", "<"}
    out = report("-f", "bad.yaml", "--target", "arm64", "-o", "markdown").out
    assert re.search(r"(?<!\\)[<\]`]", out.replace("[kubernetes", "")) is None


@pytest.mark.req("RP-020")
@pytest.mark.parametrize("form", ["text", "csv", "markdown", "html"])
def test_a_terminal_obeys_no_text_of_others(report: Command, form: str) -> None:
    report.write("bad.yaml", deployment("a\x1b[31mb\x07", "c\x1b]0;d\u202ee:1", team="x"))
    out = report("-f", "bad.yaml", "--target", "arm64", "-o", form).out
    assert "a�[31mb�" in out.replace("\\", "")
    assert not {"\x1b", "\x07", "\u202e"} & set(out)


@pytest.mark.req("RP-020")
def test_csv_has_whole_numbers_and_no_formula_behind_white_space(report: Command) -> None:
    report.write("large.yaml", deployment("\n=1+1", "quay.io/acme/both:1", "1234567.25"))
    [row] = csv.DictReader(io.StringIO(report("-f", "large.yaml", "--target", "arm64", "-o", "csv").out))
    assert (row["cores"], row["name"]) == ("1234567.25", "' =1+1")


@pytest.mark.req("RP-020")
def test_markdown_makes_no_link_of_a_text_and_names_what_makes_no_sense(report: Command) -> None:
    report.write("bad.yaml", READY + deployment("x", "www.example.com/a:1", "many", namespace="https://example.com"))
    out = report("-f", "bad.yaml", "--target", "arm64", "-o", "markdown").out
    assert "www\\.example.com/a:1" in out
    assert "https\\://example.com/Deployment/x: container c: cpu: 'many' is not a quantity" in out
    assert not re.search(r"www\.|https?://", out)


@pytest.mark.req("RP-014")
def test_markdown_says_what_moving_costs_as_text_does(report: Command) -> None:
    node = {"kind": "Node", "metadata": {"name": "n", "labels": {"kubernetes.io/arch": "amd64"}}}
    pod = {
        "kind": "Pod",
        "metadata": {"name": "p", "namespace": "shop"},
        "spec": {
            "nodeName": "n",
            "containers": [{"name": "c", "image": "quay.io/acme/both:1", "resources": {"requests": {"cpu": "123456"}}}],
        },
    }
    report.write("dump.yaml", yaml.safe_dump({"kind": "List", "items": [node, pod]}))
    arguments = ("-f", "dump.yaml", "--target", "arm64", "--price", "amd64=0.03,arm64=0.04")
    said = "moving 123456 cores that are ready would cost about 901,228.80 a month"
    assert said in report(*arguments).out
    assert said in report(*arguments, "-o", "markdown").out


@pytest.mark.req("RP-023")
@pytest.mark.parametrize(
    ("manifests", "options", "code"),
    [
        (READY + BLOCKED, ("--fail-under", "75"), 0),
        (READY + BLOCKED, ("--fail-under", "75.1"), 1),
        (READY + AWAY, ("--fail-under", "10"), 3),
        (READY + AWAY, ("--fail-under", "10", "--max-unknown", "1"), 0),
        (READY + AWAY, (), 0),
        (READY + AWAY, ("--max-unknown", "0"), 3),
        (READY, ("--fail-under", "101"), 2),
        (READY, ("--max-unknown", "-1"), 2),
    ],
)
def test_exit_codes(report: Command, manifests: str, options: tuple[str, ...], code: int) -> None:
    report.write("given.yaml", manifests)
    assert report("-f", "given.yaml", "--target", "arm64", *options).code == code


LEFT_OUT = {
    "an unknown kind": """
apiVersion: example.com/v1
kind: Widget
metadata: {name: w, namespace: shop}
spec: {image: "quay.io/team/only:1", replicas: 3}
""",
    "a Rollout whose template is elsewhere": """
apiVersion: argoproj.io/v1alpha1
kind: Rollout
metadata: {name: r, namespace: shop}
spec: {replicas: 5, workloadRef: {apiVersion: apps/v1, kind: Deployment, name: gone}}
""",
    "a workload without containers": """
apiVersion: apps/v1
kind: Deployment
metadata: {name: d, namespace: shop}
spec: {template: {spec: {containers: null}}}
""",
}


@pytest.mark.req("RP-023")
@pytest.mark.parametrize("document", LEFT_OUT.values(), ids=LEFT_OUT)
def test_what_is_not_understood_is_not_ready_for_a_gate(report: Command, document: str) -> None:
    """It was left out, and a gate passed over it."""
    report.write("given.yaml", f"{READY}\n---{document}")
    arguments = ("-f", "given.yaml", "--target", "arm64")
    ran = report(*arguments, "--fail-under", "10")
    assert ran.code == 3
    assert "left out: given.yaml, document" in ran.err
    assert "1 object was left out, which count as unknown" in ran.err
    assert report(*arguments, "--fail-under", "10", "--max-unknown", "1").code == 0
    assert report(*arguments).code == 0


@pytest.mark.req("RP-023")
@pytest.mark.parametrize("form", ["text", "json=report.json"])
@pytest.mark.parametrize(
    ("documents", "limit", "code", "problem"),
    [
        (READY + "\n---" + LEFT_OUT["an unknown kind"], "0", 3, "1 object was left out"),
        (READY + AWAY, "0", 3, "1 workload is unknown"),
        (READY + BLOCKED, "90", 1, "75.0 % could run on arm64"),
    ],
)
def test_the_reason_of_the_exit_code_is_said_also_to_who_wants_no_notes(
    report: Command, documents: str, limit: str, code: int, problem: str, form: str
) -> None:
    report.write("given.yaml", documents)
    ran = report("-q", "-f", "given.yaml", "--target", "arm64", "--fail-under", limit, "-o", form)
    assert ran.code == code
    assert f"polyarch: {problem}" in ran.err


@pytest.mark.req("RP-002")
@pytest.mark.parametrize(("replicas", "counted"), [("3.0", 3), ("3e0", 3), ("0.0", 0), ("3.5", None)])
def test_replicas_may_be_written_with_a_point(report: Command, replicas: str, counted: int | None) -> None:
    manifest = READY.replace("spec:\n", f"spec:\n  replicas: {replicas}\n", 1)
    report.write("given.yaml", manifest)
    ran = report("-f", "given.yaml", "--target", "arm64", "-o", "json")
    assert ran.code == (2 if counted is None else 0)
    if counted is not None:
        assert [each["weight"]["replicas"] for each in json.loads(ran.out)["workloads"]] == [counted]


@pytest.mark.req("RP-023")
def test_every_target_has_to_reach_the_limit_and_the_one_that_does_not_is_named(report: Command) -> None:
    ran = report("-f", "all.yaml", "--target", "amd64", "--target", "arm64", "--fail-under", "90")
    assert ran.code == 1
    assert "75.0 % could run on arm64, less than 90 %" in ran.err
    assert "on amd64" not in ran.err


@pytest.mark.req("RP-023")
def test_limits_are_said_as_they_were_given(report: Command) -> None:
    report.write("given.yaml", READY + AWAY)
    arguments = ("-f", "given.yaml", "--target", "arm64", "--fail-under")
    assert "--fail-under 100.0001: expected a percentage" in report(*arguments, "100.0001").err
    ran = report(*arguments, "99.99999")
    assert "1 workload is unknown, and at most 0 may be" in ran.err
    assert "less than 99.99999 %" in ran.err


@pytest.mark.req("RP-023")
def test_the_share_that_is_too_small_is_said_as_in_the_table(report: Command) -> None:
    report.write("given.yaml", READY.replace("'3'", "'2'") + BLOCKED)
    ran = report("-f", "given.yaml", "--target", "arm64", "--fail-under", "70")
    assert "66.6 %" in ran.out
    assert "66.6 % could run on arm64, less than 70 %" in ran.err


@pytest.mark.req("RP-023")
@pytest.mark.parametrize(("ready", "limit", "code"), [("57", "57", 0), ("99.999", "100", 1), ("29", "29.01", 1)])
def test_the_limit_is_exact(report: Command, ready: str, limit: str, code: int) -> None:
    """100 times 0.57 is less than 57 to a processor; 99.999 percent round to 100, and are less."""
    manifests = deployment("ready", "quay.io/acme/both:1", ready) + deployment(
        "blocked", "quay.io/acme/only:1", f"{100 - float(ready):.3f}"
    )
    report.write("given.yaml", manifests)
    assert report("-f", "given.yaml", "--target", "arm64", "--fail-under", limit).code == code


@pytest.mark.req("RP-020")
def test_a_terminal_shows_what_could_run_as_a_bar_and_a_pipe_does_not(
    report: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "·" not in report("-f", "all.yaml", "--target", "arm64").out
    monkeypatch.setenv("FORCE_COLOR", "1")
    out = report("-f", "all.yaml", "--target", "arm64").out
    assert "▒▒▒▒▒▒▒▒▒▒▒▒\x1b[0m\x1b[2m····\x1b[0m 75.0 %" in out
    assert "█ runs there  ▒ could run there  · could not" in out


@pytest.mark.req("RP-002")
def test_a_snapshot_gives_an_equal_report_without_asking_anybody(report: Command) -> None:
    first = report("-f", "all.yaml", "--target", "arm64", "-o", "json", "--save", "facts.json")
    (report.folder / "platforms.yaml").unlink()
    again = report("--snapshot", "facts.json", "--target", "arm64", "-o", "json", known=False)
    assert (again.code, again.out) == (0, first.out)


@pytest.mark.req("RP-024")
def test_changes_since_a_former_report(report: Command) -> None:
    report("-f", "all.yaml", "--target", "arm64", "-o", "json=old.json")
    report.write("all.yaml", READY + deployment("blocked", "quay.io/acme/only:2"))
    ran = report("-f", "all.yaml", "--target", "arm64", "--compare", "old.json")
    assert "shop/Deployment/blocked" in ran.out[ran.out.index("BETTER") :]
    assert "75.0 % could run then, 100.0 % now" in ran.out


@pytest.mark.req("RP-012")
def test_a_substitute_that_has_the_target_is_suggested(report: Command) -> None:
    report.write("substitutes.yaml", "substitutes:\n  quay.io/acme/only:1: quay.io/acme/both:1\n")
    ran = report("-f", "all.yaml", "--target", "arm64", "--substitutes", "substitutes.yaml")
    assert "use quay.io/acme/both:1, which has arm64, instead of quay.io/acme/only:1" in ran.out


@pytest.mark.req("RP-014")
def test_money_is_mentioned_with_prices_only(report: Command) -> None:
    assert "price" not in report("-f", "all.yaml", "--target", "arm64").out
    ran = report("-f", "all.yaml", "--target", "arm64", "--price", "amd64=0.04,arm64=0.03")
    assert "arm64: nothing that is ready for arm64 runs on nodes of another platform that has a price" in ran.out


@pytest.mark.req("RP-050")
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("-f", "all.yaml"), "--target arm64"),
        (("-f", "all.yaml", "--target", "sparc"), "--target"),
        (("-f", "all.yaml", "--target", "arm64", "--price", "arm64=much"), "--price arm64=much"),
        (("-f", "all.yaml", "--snapshot", "facts.json"), "not both"),
        (("--snapshot", "nowhere.json"), "nowhere.json"),
        (("--snapshot", "all.yaml"), "polyarch.dev/report-snapshot/v1"),
        (("-f", "all.yaml", "--target", "arm64", "--compare", "all.yaml"), "polyarch.dev/report/v1"),
        (("-f", "all.yaml", "--target", "arm64", "--pull-secrets"), "--pull-secrets"),
        (("-f", "empty.yaml", "--target", "arm64"), "nothing to report on"),
        (("-f", "two.yaml", "--target", "arm64"), "two clusters"),
        (("-f", "all.yaml", "--target", "arm64", "--substitutes", "list.yaml"), "maps images to images"),
    ],
)
def test_what_cannot_be_used_is_named_with_what_was_expected(
    report: Command, arguments: tuple[str, ...], said: str
) -> None:
    report.write("empty.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n")
    report.write("two.yaml", deployment("a", "x:1", uid="1") + deployment("a", "x:1", uid="2"))
    report.write("list.yaml", "- a\n")
    ran = report(*arguments, known="--snapshot" not in arguments)
    assert ran.code == 2
    assert said in ran.err


@pytest.mark.req("RP-002")
def test_a_dump_of_a_cluster_counts_as_that_cluster(report: Command) -> None:
    node = {
        "kind": "Node",
        "metadata": {"name": "m1", "labels": {"kubernetes.io/arch": "arm64", "kubernetes.io/os": "linux"}},
        "status": {"nodeInfo": {"architecture": "arm64", "operatingSystem": "linux"}},
    }
    pod = {
        "kind": "Pod",
        "metadata": {"name": "p", "namespace": "shop"},
        "spec": {"nodeName": "m1", "containers": [{"name": "c", "image": "quay.io/acme/both:1"}]},
    }
    report.write("dump.yaml", yaml.safe_dump({"kind": "List", "items": [node, pod]}))
    document = json.loads(report("-f", "dump.yaml", "-o", "json").out)
    assert document["targets"] == ["arm64"]
    assert document["workloads"][0]["answers"][0]["verdict"] == "runs"


@pytest.mark.req("RP-002")
def test_the_same_object_twice_counts_once_and_a_folder_may_hold_other_files(report: Command) -> None:
    report.write("folder/a.yaml", READY)
    report.write("folder/b.yaml", READY)
    report.write("folder/values.yaml", "- just\n- a list\n")
    ran = report("-f", "folder", "--target", "arm64", "-o", "json")
    assert len(json.loads(ran.out)["workloads"]) == 1
    assert "is used, not" in ran.err


@pytest.mark.req("RP-002")
def test_a_kind_of_another_group_that_has_its_pods_elsewhere_is_left_out_and_named(report: Command) -> None:
    tasks = [{"replicas": 9, "template": {"spec": {"containers": [{"name": "c", "image": "quay.io/acme/only:1"}]}}}]
    job = {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {"name": "j"},
        "spec": {"tasks": tasks},
    }
    report.write("job.yaml", f"{READY}---\n{yaml.safe_dump(job)}")
    ran = report("-f", "job.yaml", "--target", "arm64", "-o", "json")
    assert [each["name"] for each in json.loads(ran.out)["workloads"]] == ["ready"]
    assert "Job j has no containers at spec.template.spec" in ran.err


SIDECARS = [
    "{apiVersion: opentelemetry.io/v1beta1, kind: OpenTelemetryCollector, spec: {mode: sidecar, image: a:1}}",
    "{apiVersion: opentelemetry.io/v1alpha1, kind: Instrumentation, spec: {java: {image: a:1}}}",
    "{apiVersion: apps.kruise.io/v1alpha1, kind: SidecarSet, spec: {containers: [{name: s, image: a:1}]}}",
]


@pytest.mark.req("RP-002")
@pytest.mark.parametrize("sidecar", SIDECARS)
def test_a_container_for_the_pods_of_others_is_no_workload(report: Command, sidecar: str) -> None:
    named = sidecar.replace("spec:", "metadata: {name: s, namespace: shop}, spec:", 1)
    report.write("s.yaml", f"{READY}---\n{named}\n")
    ran = report("-f", "s.yaml", "--target", "arm64", "-o", "json")
    assert [each["name"] for each in json.loads(ran.out)["workloads"]] == ["ready"]


@pytest.mark.req("RP-002")
def test_in_a_folder_an_object_that_cannot_be_used_is_left_out_and_a_file_that_is_named_is_refused(
    report: Command,
) -> None:
    report.write("folder/ready.yaml", READY)
    report.write("folder/draft.yaml", BLOCKED.replace("spec:", "spec:\n  replicas: some", 1))
    ran = report("-f", "folder", "--target", "arm64", "-o", "json")
    assert [each["name"] for each in json.loads(ran.out)["workloads"]] == ["ready"]
    assert "left out: folder/draft.yaml, document 1, line" in ran.err
    assert report("-f", "folder/*.yaml", "--target", "arm64").code == 0
    ran = report("-f", "folder", "-f", "./folder/draft.yaml", "--target", "arm64")
    assert (ran.code, "spec.replicas: Expected" in ran.err) == (2, True)


@pytest.mark.req("RP-002")
@pytest.mark.parametrize("option", [("--suggest",), ("--platforms-file", "platforms.yaml"), ("--fresh",)])
def test_with_a_snapshot_no_option_that_asks_is_ignored(report: Command, option: tuple[str, ...]) -> None:
    report("-f", "all.yaml", "--target", "arm64", "--save", "facts.json")
    ran = report("--snapshot", "facts.json", *option, known=False)
    assert ran.code == 2
    assert f"{option[0]}: with --snapshot nobody is asked" in ran.err


@pytest.mark.req("RP-002")
@pytest.mark.parametrize(
    ("given", "other"),
    [
        ("all.yaml", ()),
        ("platforms.yaml", ()),
        ("old.json", ("--compare", "old.json")),
        ("r.json", ("-o", "json=r.json")),
    ],
)
def test_saving_replaces_no_other_file_of_the_command_line(report: Command, given: str, other: tuple[str, ...]) -> None:
    report("-f", "all.yaml", "--target", "arm64", "-o", "json=old.json")
    report.write("r.json", "mine")
    before = (report.folder / given).read_bytes()
    ran = report("-f", "all.yaml", "--target", "arm64", *other, "--save", given)
    assert (ran.code, (report.folder / given).read_bytes()) == (2, before)
    assert f"--save {given}" in ran.err


@pytest.mark.req("RP-050")
def test_an_answer_about_what_is_no_image_counts_as_none(report: Command) -> None:
    report("-f", "all.yaml", "--target", "arm64", "--save", "facts.json")
    path = report.folder / "facts.json"
    path.write_bytes(path.read_bytes().replace(b'"image":"quay.io/acme/both:1","status"', b'"image":"a//b","status"'))
    ran = report("--snapshot", "facts.json", "--target", "arm64", "-o", "json", known=False)
    assert ran.code == 0
    verdicts = {each["name"]: each["answers"][0]["verdict"] for each in json.loads(ran.out)["workloads"]}
    assert verdicts == {"ready": "unknown", "blocked": "image"}


@pytest.mark.req("RP-051")
def test_what_was_interrupted_is_printed_as_incomplete_and_ends_with_3(report: Command) -> None:
    report("-f", "all.yaml", "--target", "arm64", "--save", "facts.json")
    path = report.folder / "facts.json"
    kept = decode_snapshot(path.read_bytes())
    path.write_bytes(encode_snapshot(kept.facts, kept.answers, complete=False))
    ran = report("--snapshot", "facts.json", "--target", "arm64", "-o", "json", known=False)
    assert ran.code == 3
    assert json.loads(ran.out)["complete"] is False


# -- who scales a workload ---------------------------------------------------------------------------------------------


HPA = "HorizontalPodAutoscaler"


def scaled(name: str, replicas: int | None, *others: str) -> str:
    made = yaml.safe_load(deployment(name, "quay.io/acme/only:1"))
    made["spec"] |= {} if replicas is None else {"replicas": replicas}
    return f"---\n{yaml.safe_dump(made)}{''.join(others)}"


def autoscaler(kind: str, target: str, **limits: int) -> str:
    said = "".join(f"  {member}: {number}\n" for member, number in limits.items())
    api = "keda.sh/v1alpha1" if kind == "ScaledObject" else "autoscaling/v2"
    of, _, name = target.partition("/")
    return (
        f"---\napiVersion: {api}\nkind: {kind}\nmetadata: {{name: {name}, namespace: shop}}\nspec:\n"
        f"  scaleTargetRef: {{kind: {of}, name: {name}}}\n{said}"
    )


def rollout(name: str, replicas: int, down: str = "") -> str:
    scale = f", scaleDown: {down}" if down else ""
    reference = f"{{apiVersion: apps/v1, kind: Deployment, name: {name}{scale}}}"
    return (
        f"---\napiVersion: argoproj.io/v1alpha1\nkind: Rollout\nmetadata: {{name: {name}, namespace: shop}}\n"
        f"spec: {{replicas: {replicas}, workloadRef: {reference}}}\n"
    )


@pytest.mark.req("RP-006")
@pytest.mark.parametrize(
    ("manifests", "cores"),
    [
        pytest.param(scaled("w", 0), 0, id="nobody scales it"),
        pytest.param(scaled("w", 0, rollout("w", 3)), 3, id="a Rollout runs its template"),
        pytest.param(scaled("w", 2, rollout("w", 3)), 5, id="beside its own pods"),
        pytest.param(scaled("w", 2, rollout("w", 3, "onsuccess")), 3, id="in their place"),
        pytest.param(scaled("w", 0, rollout("other", 3)), 0, id="another one's Rollout"),
        pytest.param(
            scaled("w", 0, rollout("w", 1), autoscaler(HPA, "Rollout/w", minReplicas=4, maxReplicas=9)),
            4,
            id="a Rollout that is scaled",
        ),
        pytest.param(
            scaled("w", None, autoscaler(HPA, "Deployment/w", minReplicas=5, maxReplicas=9)),
            5,
            id="at least the autoscaler's minimum",
        ),
        pytest.param(
            scaled("w", 20, autoscaler(HPA, "Deployment/w", minReplicas=5, maxReplicas=9)),
            9,
            id="at most its maximum",
        ),
        pytest.param(
            scaled("w", 7, autoscaler(HPA, "Deployment/w", minReplicas=5, maxReplicas=9)),
            7,
            id="between them",
        ),
        pytest.param(
            scaled("w", 0, autoscaler(HPA, "Deployment/w", minReplicas=5, maxReplicas=9)),
            0,
            id="one at 0 is not scaled",
        ),
        pytest.param(
            scaled("w", 1, autoscaler("ScaledObject", "Deployment/w", minReplicaCount=3)), 3, id="KEDA's minimum"
        ),
        pytest.param(scaled("w", 2, autoscaler("ScaledObject", "Deployment/w")), 2, id="KEDA without a minimum"),
        pytest.param(scaled("w", 1, autoscaler(HPA, "StatefulSet/w", minReplicas=5)), 1, id="another kind"),
    ],
)
def test_a_workload_weighs_what_those_who_scale_it_have_it_run(report: Command, manifests: str, cores: int) -> None:
    report.write("w.yaml", manifests)
    document = json.loads(report("-f", "w.yaml", "--target", "arm64", "-o", "json").out)
    assert document["weight"]["cores"] == cores
