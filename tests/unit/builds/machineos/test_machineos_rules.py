"""What a MachineOSConfig says: pools, push specs, annotations, the rendered Containerfile, stages of a build."""

import msgspec
import pytest
from builds_world import START, digest, node

from polyarch.builds.facts.build_facts import ChildRecord, Execution, JobFacts
from polyarch.builds.machineos import api
from polyarch.builds.machineos.job_objects import Rendering, extension_packages, rendered_containerfile
from polyarch.builds.machineos.records import (
    CONDITIONS,
    build_end,
    build_start,
    observed_stage,
    related_objects,
    stage_conditions,
    stages_between,
)
from polyarch.builds.machineos.request import (
    AnnotationOptions,
    annotation_options,
    pool_nodes,
    pool_of,
    push_spec_problem,
    push_spec_repository,
    rebuild_request,
)


def pool(name, selector):
    return {"metadata": {"name": name}, "spec": {"nodeSelector": selector}}


POOLS = [
    pool_of(pool("worker", {"matchLabels": {"worker": ""}})),
    pool_of(pool("master", {"matchLabels": {"master": ""}})),
    pool_of(pool("infra", {"matchLabels": {"infra": ""}})),
    pool_of(pool("gpu", {"matchLabels": {"gpu": ""}})),
    pool_of(pool("empty", {})),
    pool_of(pool("none", None)),
]


def labelled(name, *labels):
    return msgspec.structs.replace(node("arm64", name), labels=dict.fromkeys(labels, ""))


NODES = [
    labelled("plain", "worker"),
    labelled("both", "worker", "infra"),
    labelled("leader", "master", "infra", "worker"),
    labelled("torn", "worker", "infra", "gpu"),
    labelled("nobody"),
]


@pytest.mark.req("BD-262")
@pytest.mark.parametrize(
    ("pool", "wanted"),
    [("worker", ["plain"]), ("infra", ["both"]), ("master", ["leader"]), ("gpu", []), ("empty", []), ("none", [])],
)
def test_a_node_counts_for_its_primary_pool_alone(pool, wanted):
    assert [each.name for each in pool_nodes(pool, POOLS, NODES).nodes] == wanted


@pytest.mark.req("BD-262")
def test_a_node_in_two_custom_pools_counts_for_none_and_is_named():
    (said,) = pool_nodes("gpu", POOLS, NODES).warnings
    assert said.severity == "Warning"
    assert "torn" in said.message
    assert "gpu, infra" in said.message
    assert pool_nodes("worker", POOLS, NODES).warnings[0].message == said.message


WRONG = [
    {"matchExpressions": [{"key": "a", "operator": "Equals", "values": ["b"]}]},
    {"matchExpressions": [{"key": "a", "operator": "In"}]},
    {"matchExpressions": [{"key": "a b", "operator": "Exists"}]},
    {"matchExpressions": [None]},
    {"matchExpressions": {"key": "a"}},
    {"matchLabels": {"a": 1}},
    {"matchLabels": ["a"]},
    "worker",
    ["worker"],
]


@pytest.mark.req("BD-262")
@pytest.mark.parametrize("selector", WRONG, ids=str)
def test_a_pool_whose_selector_nobody_understands_is_named_and_stops_no_other(selector):
    """Pools are other people's objects: only builds of this one wait for its selector."""
    pools = [*POOLS, pool_of(pool("broken", selector))]
    found = pool_nodes("infra", pools, NODES)
    assert [each.name for each in found.nodes] == ["both"]
    told = next(each for each in found.warnings if "broken" in each.message)
    assert (told.reason, told.severity) == ("PoolInvalid", "Warning")
    assert "MachineConfigPool broken: " in told.message
    (own,) = [each for each in pool_nodes("broken", pools, NODES).warnings if each.severity == "Error"]
    assert own.reason == "InvalidSpec"
    assert "correct the selector" in own.message


@pytest.mark.req("BD-262")
@pytest.mark.parametrize(
    "spec", [None, {}, {"nodeSelector": None}, {"nodeSelector": {"matchLabels": None}}, "x"], ids=str
)
def test_a_pool_without_a_selector_has_no_nodes(spec):
    found = pool_of({"metadata": {"name": "bare"}, "spec": spec})
    assert (found.selector, found.invalid) == (None, "")


@pytest.mark.req("BD-274")
@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        ("registry.example.com/os:latest", None),
        ("registry.example.com:5000/team/os:v1", None),
        ("registry.example.com/team/os.image:v1", None),
        ("image-registry.ns.svc:5000/ns/os:latest", None),
        ("registry.example.com/one/two/os:latest", "DigestFormUnsupported"),
        ("registry/os:latest", "InvalidSpec"),
        ("registry.example.com/Team/os:latest", "InvalidSpec"),
        ("registry.example.com/team/OS:latest", "InvalidSpec"),
        ("registry.example.com/team/os--:latest", "InvalidSpec"),
        ("Registry.Example.com/team/os:V1", None),
        ("registry.example.com/os", "InvalidSpec"),
        ("registry.example.com/te.am/os:latest", "InvalidSpec"),
        (f"registry.example.com/{'a' * 62}/os:latest", "InvalidSpec"),
        ("", "InvalidSpec"),
    ],
)
def test_a_push_spec_must_have_a_form_by_digest(spec, reason):
    found = push_spec_problem("worker", spec)
    assert (found.reason if found is not None else None) == reason


@pytest.mark.req("BD-270")
@pytest.mark.parametrize(
    ("spec", "repository"),
    [("r.example.com:5000/a/b:tag", "r.example.com:5000/a/b"), ("r.example.com:5000/a/b", "r.example.com:5000/a/b")],
)
def test_the_tag_of_a_push_spec_is_ignored(spec, repository):
    assert push_spec_repository(spec) == repository


@pytest.mark.req("BD-285")
@pytest.mark.parametrize(
    ("annotation", "text", "field", "value"),
    [
        (api.STRATEGY, "PreferNative", "strategy", "PreferNative"),
        (api.FAIL_FAST, "true", "fail_fast", True),
        (api.MISSING, "BaseOnly", "missing_containerfile", "BaseOnly"),
        (api.ON_NEW, "NextBuild", "on_new_architecture", "NextBuild"),
        (api.INDEX, "Always", "index", "Always"),
        (api.NODE_WAIT, "90s", "node_wait", "90s"),
        (api.BUILD_TIMEOUT, "2h", "build_timeout", "2h"),
        (api.MAX_PARALLEL, "2", "max_parallel", 2),
    ],
)
def test_knobs_are_annotations(annotation, text, field, value):
    usual = AnnotationOptions()
    found = annotation_options("worker", {annotation: text})
    assert getattr(found, field) == value != getattr(usual, field)
    assert not found.warnings


@pytest.mark.req("BD-285")
@pytest.mark.parametrize(
    ("annotation", "text"),
    [
        (api.STRATEGY, "native"),
        (api.FAIL_FAST, "yes"),
        (api.MISSING, ""),
        (api.ON_NEW, "Never"),
        (api.INDEX, "always"),
        (api.NODE_WAIT, "9s"),
        (api.BUILD_TIMEOUT, "an hour"),
        (api.MAX_PARALLEL, "-1"),
    ],
)
def test_a_wrong_value_is_a_warning_and_the_default(annotation, text):
    found = annotation_options("worker", {annotation: text})
    (said,) = found.warnings
    assert (said.reason, said.severity) == ("AnnotationInvalid", "Warning")
    assert annotation in said.message
    assert msgspec.structs.replace(found, warnings=()) == AnnotationOptions()


@pytest.mark.req("BD-279")
@pytest.mark.parametrize(
    ("text", "architectures"),
    [
        ("arm64", ("arm64",)),
        ("aarch64, x86_64", ("amd64", "arm64")),
        ("riscv64", ("riscv64",)),
        ("", ()),
        ("true", ()),
        ("arm64,please", ()),
    ],
)
def test_only_names_of_architectures_limit_a_rebuild(text, architectures):
    found = rebuild_request({api.REBUILD: text})
    assert found is not None
    assert found.architectures == architectures


@pytest.mark.req("BD-279")
def test_without_the_annotation_nothing_is_rebuilt():
    assert rebuild_request({}) is None


OS = f"registry.example.com/release/os@{digest('os')}"
EXTENSIONS = f"registry.example.com/release/extensions@{digest('extensions')}"


def text(**given):
    return rendered_containerfile(
        Rendering(os_image=OS, extensions_image=EXTENSIONS, pool="worker", rendered="rendered-1", **given)
    )


@pytest.mark.req("BD-269")
def test_user_text_follows_the_stage_that_applies_the_rendered_config():
    lines = text(user_text="RUN mine\n").splitlines()
    assert lines[0] == f"FROM {OS} AS configs"
    assert lines[-1] == "RUN mine"
    assert {"LABEL machineconfig=rendered-1", "LABEL machineconfigpool=worker"} <= set(lines)
    assert f"LABEL baseOSContainerImage={OS}" in lines
    assert EXTENSIONS not in text()


@pytest.mark.req("BD-269")
def test_packages_come_from_the_extensions_image():
    assert f"--mount=type=bind,from={EXTENSIONS}," in text(extensions=("usbguard",))
    assert "rpm-ostree install usbguard" in text(extensions=("usbguard",))
    assert "--install kernel-64k-core" in text(kernel_type="64k-pages")
    assert "--install kernel-rt-core" in text(kernel_type="realtime")
    assert "update-ca-trust" in text(has_trust=True)
    assert extension_packages(["ipsec", "acme"]) == ("NetworkManager-libreswan", "acme", "libreswan")


@pytest.mark.req("BD-271")
@pytest.mark.parametrize(
    ("stored", "wanted", "written"),
    [
        (None, "", ("",)),
        (None, "Failed", ("", "Failed")),
        (None, "Prepared", ("", "Prepared")),
        ("", "Succeeded", ("Succeeded",)),
        ("", "", ()),
        ("Prepared", "Building", ("Building",)),
        ("Prepared", "", ()),
        ("Building", "Prepared", ()),
        ("Building", "Succeeded", ("Succeeded",)),
        ("Failed", "Succeeded", ()),
        ("Succeeded", "Building", ()),
    ],
)
def test_only_the_allowed_steps_are_written(stored, wanted, written):
    assert stages_between(stored, wanted) == written


def job(**fields):
    return JobFacts(namespace="n", name="build-b", uid="j", run="b", **fields)


@pytest.mark.req("BD-272")
@pytest.mark.parametrize(
    ("phase", "child", "jobs", "stage"),
    [
        ("Pending", {}, [], ""),
        ("Building", {"phase": "Building", "job": "build-b"}, [], "Prepared"),
        ("Building", {"phase": "Building", "job": "build-b"}, [job()], "Prepared"),
        ("Building", {"phase": "Building", "job": "build-b"}, [job(active=1)], "Building"),
        ("Building", {"phase": "Building", "job": "build-b"}, [job(uncounted=1)], "Building"),
        ("Building", {"phase": "Built", "job": "build-b"}, [], "Building"),
        ("Assembling", {"phase": "Reused"}, [], ""),
        ("Assembling", {"phase": "Built", "job": "build-b"}, [], "Building"),
        ("Succeeded", {"phase": "Reused"}, [], "Succeeded"),
        ("Interrupted", {"phase": "Interrupted", "job": "build-b"}, [], "Interrupted"),
    ],
)
def test_the_stage_follows_from_what_its_jobs_do(phase, child, jobs, stage):
    state = Execution(namespace="", name="b", phase=phase, children=(ChildRecord(architecture="arm64", **child),))
    assert observed_stage(state, jobs) == stage


@pytest.mark.req("BD-271")
def test_all_five_conditions_are_written_and_one_at_most_is_true():
    for stage in ("", *CONDITIONS):
        found = stage_conditions(stage, None, now=START)
        assert [each["type"] for each in found] == ["Prepared", "Building", "Failed", "Interrupted", "Succeeded"]
        assert [each["type"] for each in found if each["status"] == "True"] == ([stage] if stage else [])
    succeeded = next(each for each in stage_conditions("Succeeded", None, now=START) if each["status"] == "True")
    assert (succeeded["reason"], succeeded["message"]) == ("Ready", "Build Ready")


@pytest.mark.req("BD-273")
def test_times_never_change_and_the_end_is_after_the_start():
    start = build_start({}, [job(created=START + 0.9)], now=START + 5)
    assert start == "2027-01-15T08:00:00Z"
    assert build_start({"buildStart": "2027-01-01T00:00:00Z"}, [], now=START) == "2027-01-01T00:00:00Z"
    assert build_end(start, now=START + 0.95) == "2027-01-15T08:00:01Z"
    assert build_end(start, now=START + 60) == "2027-01-15T08:01:00Z"


@pytest.mark.req("BD-273")
def test_ten_jobs_at_most_are_listed_each_with_a_group():
    listed = related_objects("n", [f"j{each:02}" for each in range(16)])
    assert len(listed) == 10
    assert {each["group"] for each in listed} == {"batch"}
