"""What is built again after what change: Jobs, result and decision of every row of the table; names and records."""

import json
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import pytest
from builds_world import BASE, NAMESPACE, REPOSITORY, SPEC, BuildPlanWorld, digest, index_of, node

from polyarch.builds import names
from polyarch.builds.facts.build_facts import BuildStep, SecretFacts
from polyarch.builds.keys import OUTLINES_FILE, key_outline

Change = Callable[[BuildPlanWorld], object]
COMMON = "FROM busybox:1.36\nRUN true\n"
BOTH = {"amd64", "arm64"}


def built(spec: Mapping[str, Any] = SPEC, prepare: Change = lambda world: None) -> BuildPlanWorld:
    """A world whose image is built and published."""
    world = BuildPlanWorld(spec)
    prepare(world)
    world.build_all()
    assert world.condition("Ready") == ("True", "Published")
    world.made.clear()
    world.puts.clear()
    world.asked.clear()
    return world


def with_spec(**parts: Any) -> dict[str, Any]:
    return {**SPEC, **{name: {**SPEC.get(name, {}), **part} for name, part in parts.items()}}


def outcome(world: BuildPlanWorld) -> tuple[str, set[str], bool]:
    """The first decision, the architectures whose Jobs were made, and whether the result is another one."""
    before = world.status()["image"]
    decision = world.plan().decision
    world.build_all()
    made = [each.split()[0] for each in world.made]
    assert len(made) == len(set(made)), f"built twice: {world.made}"
    return decision, set(made), world.status()["image"] != before


OVERRIDES = [
    {"architecture": "arm64", "containerfile": "FROM busybox:1.36\nRUN echo arm\n"},
    {"architecture": "amd64", "buildArgs": {"MODE": "fast"}},
]
SECRET = {"id": "token", "secret": {"name": "token", "key": "value"}}


def secret(world: BuildPlanWorld, content: str) -> None:
    world.secrets["token"] = SecretFacts(
        type="Opaque", resource_version=content, keys=frozenset({"value"}), fingerprints={"value": digest(content)[7:]}
    )


NOTHING: Mapping[str, tuple[Mapping[str, Any], Change, Change]] = {
    "order of overrides": (
        with_spec(source={"overrides": OVERRIDES}),
        lambda world: None,
        lambda world: world.set("source.overrides", OVERRIDES[::-1]),
    ),
    "order of nodes": (SPEC, lambda world: None, lambda world: world.nodes.reverse()),
    "more nodes of known architectures": (
        SPEC,
        lambda world: None,
        lambda world: world.nodes.append(node("arm64", "young", created=world.now)),
    ),
    "nodes that are not ready": (
        SPEC,
        lambda world: None,
        lambda world: world.nodes.__setitem__(0, node("amd64", ready=False)),
    ),
    "strategy": (SPEC, lambda world: None, lambda world: world.set("strategy", "PreferNative")),
    "retries": (SPEC, lambda world: None, lambda world: world.set("retries", 7)),
    "timeouts": (SPEC, lambda world: None, lambda world: world.set("timeouts.build", "2h")),
    "scheduling": (SPEC, lambda world: None, lambda world: world.set("scheduling.maxParallel", 1)),
    "fail fast": (SPEC, lambda world: None, lambda world: world.set("failFast", True)),
    "history": (SPEC, lambda world: None, lambda world: world.set("history.successful", 9)),
    "builder": (SPEC, lambda world: None, lambda world: world.set("builder.serviceAccount", "other")),
    "preflight": (SPEC, lambda world: None, lambda world: world.set("baseImages.preflight", "Warn")),
    "staging": (
        SPEC,
        lambda world: None,
        lambda world: world.set("output.stagingRepository", "registry.example.com/team/staging"),
    ),
    "tags of children": (SPEC, lambda world: None, lambda world: world.set("output.archTags", "None")),
    "suspend": (SPEC, lambda world: None, lambda world: world.set("suspend", True)),
    "name of the push secret": (
        SPEC,
        lambda world: None,
        lambda world: world.set("output.pushSecret", {"name": "other"}),
    ),
    "override of an architecture that is not wanted": (
        SPEC,
        lambda world: None,
        lambda world: world.set("source.overrides", [{"architecture": "s390x", "containerfile": "FROM scratch\n"}]),
    ),
    "override that says the same": (
        SPEC,
        lambda world: None,
        lambda world: world.set("source.overrides", [{"architecture": "arm64", "containerfile": COMMON}]),
    ),
    "line ends": (
        SPEC,
        lambda world: None,
        lambda world: world.set("source.containerfile", "\ufeff" + COMMON.replace("\n", "\r\n") + "\n\n"),
    ),
    "ConfigMap with another name": (
        with_spec(source={"context": {"type": "ConfigMap", "configMap": {"name": "one"}}}),
        lambda world: world.inputs.update(one={"data": {"a": "b"}}, two={"data": {"a": "b"}}),
        lambda world: world.set("source.context.configMap.name", "two"),
    ),
    "URL of the same commit": (
        with_spec(source={"context": {"type": "Git", "git": {"url": "https://one.example.com/x", "commit": "a" * 40}}}),
        lambda world: None,
        lambda world: world.set("source.context.git.url", "https://two.example.com/x"),
    ),
    "data of a secret": (
        with_spec(source={"secrets": [SECRET]}),
        lambda world: secret(world, "one"),
        lambda world: secret(world, "two"),
    ),
    "a base moved, OnBuild": (
        SPEC,
        lambda world: None,
        lambda world: world.bases.__setitem__(BASE, index_of(BASE, ("amd64", "arm64"), "new")),
    ),
    "a base moved, Never": (
        with_spec(baseImages={"policy": "Never"}),
        lambda world: None,
        lambda world: world.bases.__setitem__(BASE, index_of(BASE, ("amd64", "arm64"), "new")),
    ),
}


@pytest.mark.req("BD-100", "BD-101", "BD-105", "BD-106", "BD-107", "BD-109", "BD-110", "BD-111")
@pytest.mark.parametrize("row", NOTHING)
def test_what_builds_nothing(row: str) -> None:
    """0 Jobs, the same result, nothing pushed."""
    spec, prepare, change = NOTHING[row]
    world = built(spec, prepare)
    change(world)
    assert outcome(world) == ("UpToDate", set(), False)
    assert world.puts == []
    assert world.asked == []
    assert world.status()["observedGeneration"] == world.builds["web"]["metadata"]["generation"]
    assert len(world.runs) == 1


@pytest.mark.req("BD-094", "BD-100")
def test_nothing_changed_is_no_write_and_no_question() -> None:
    world = built()
    world.now += 3600
    world.builds["web"]["metadata"]["labels"] = {"team": "a"}
    plan = world.plan()
    assert (plan.decision, plan.writes, plan.events, world.asked) == ("UpToDate", (), (), [])


@pytest.mark.req("BD-105")
def test_an_unused_override_is_told_once() -> None:
    world = built()
    world.set("source.overrides", [{"architecture": "s390x", "containerfile": "FROM scratch\n"}])
    plan = world.reconcile()
    assert [each.reason for each in plan.events] == ["OverrideUnused"]
    assert world.plan().events == ()


@pytest.mark.req("BD-102")
def test_tags_are_added_to_the_present_digest_and_abandoned_where_they_are() -> None:
    world = built(with_spec(output={"tags": ["one"]}))
    image = world.status()["image"].partition("@")[2]
    world.set("output.tags", ["two"])
    plan = world.plan()
    assert plan.decision == "Retag"
    assert [(write.verb, write.body["tags"]) for write in plan.writes if write.verb == "tag"] == [("tag", ["two"])]
    assert [(each.reason, "one" in each.message) for each in plan.events] == [("TagAbandoned", True)]
    world.settle()
    assert world.tags[f"{REPOSITORY}:two"] == world.tags[f"{REPOSITORY}:one"] == image
    assert world.status()["tags"] == ["two"]
    assert (world.made, world.puts) == ([], [])


BUILT: Mapping[str, tuple[Mapping[str, Any], Change, Change, set[str]]] = {
    "text of one architecture": (
        with_spec(source={"overrides": OVERRIDES}),
        lambda world: None,
        lambda world: world.set(
            "source.overrides", [{**OVERRIDES[0], "containerfile": "FROM busybox:1.36\nRUN echo new\n"}, OVERRIDES[1]]
        ),
        {"arm64"},
    ),
    "argument of one architecture": (
        with_spec(source={"overrides": OVERRIDES}),
        lambda world: None,
        lambda world: world.set("source.overrides", [OVERRIDES[0], {**OVERRIDES[1], "buildArgs": {"MODE": "slow"}}]),
        {"amd64"},
    ),
    "common text": (
        SPEC,
        lambda world: None,
        lambda world: world.set("source.containerfile", "FROM busybox:1.36\nRUN false\n"),
        BOTH,
    ),
    "common text that one overrides": (
        with_spec(source={"overrides": OVERRIDES}),
        lambda world: None,
        lambda world: world.set("source.containerfile", "FROM busybox:1.36\nRUN false\n"),
        {"amd64"},
    ),
    "common argument that one overrides": (
        with_spec(source={"overrides": OVERRIDES, "buildArgs": {"MODE": "x"}}),
        lambda world: None,
        lambda world: world.set("source.buildArgs", {"MODE": "y"}),
        {"arm64"},
    ),
    "context": (
        with_spec(source={"context": {"type": "ConfigMap", "configMap": {"name": "one"}}}),
        lambda world: world.inputs.update(one={"data": {"a": "b"}}),
        lambda world: world.inputs.update(one={"data": {"a": "c"}}),
        BOTH,
    ),
    "labels": (SPEC, lambda world: None, lambda world: world.set("output.labels", {"a": "b"}), BOTH),
    "format": (SPEC, lambda world: None, lambda world: world.set("output.format", "Docker"), BOTH),
    "timestamp": (SPEC, lambda world: None, lambda world: world.set("reproducible.timestamp", 5), BOTH),
    "target": (
        with_spec(source={"containerfile": "FROM busybox:1.36 AS one\nFROM one AS two\n"}),
        lambda world: None,
        lambda world: world.set("source.target", "one"),
        BOTH,
    ),
    "data of a secret that counts": (
        with_spec(source={"secrets": [{**SECRET, "rebuildOnChange": True}]}),
        lambda world: secret(world, "one"),
        lambda world: secret(world, "two"),
        BOTH,
    ),
    "an architecture joins": (
        SPEC,
        lambda world: None,
        lambda world: world.nodes.append(node("s390x")),
        {"s390x"},
    ),
}


@pytest.mark.req("BD-103", "BD-104", "BD-108", "BD-110", "BD-119")
@pytest.mark.parametrize("row", BUILT)
def test_what_is_built(row: str) -> None:
    """Exactly these Jobs, and a new result."""
    spec, prepare, change, made = BUILT[row]
    world = built(spec, prepare)
    change(world)
    assert outcome(world) == ("Build", made, True)
    assert world.condition("Ready") == ("True", "Published")


@pytest.mark.req("BD-111")
def test_a_base_that_moved_is_used_by_the_next_job_of_any_kind() -> None:
    world = built()
    before = world.status()["bases"]
    world.bases[BASE] = index_of(BASE, ("amd64", "arm64"), "new")
    world.set("source.overrides", [{"architecture": "arm64", "containerfile": "FROM busybox:1.36\nRUN echo arm\n"}])
    decision, made, _ = outcome(world)
    assert (decision, made) == ("Build", BOTH)
    assert world.status()["bases"] != before
    assert world.plan().decision == "UpToDate"


@pytest.mark.req("BD-111")
def test_interval_builds_what_moved_for_its_architecture() -> None:
    world = built(with_spec(baseImages={"policy": "Interval", "interval": "1h"}))
    fresh = index_of(BASE, ("amd64", "arm64"), "new")
    old = world.bases[BASE]
    kept = [each for each in old.entries if each.platform.architecture == "amd64"]
    moved = [each for each in fresh.entries if each.platform.architecture == "arm64"]
    world.bases[BASE] = msgspec.structs.replace(fresh, entries=(*kept, *moved))
    assert world.plan().decision == "UpToDate", "the interval is not over"
    world.now += 3601
    assert outcome(world) == ("Build", {"arm64"}, True)


@pytest.mark.req("BD-112")
def test_an_index_digest_that_moved_with_equal_children_builds_nothing() -> None:
    world = built(with_spec(baseImages={"policy": "Interval", "interval": "1h"}))
    world.bases[BASE] = msgspec.structs.replace(world.bases[BASE], digest=digest("other"))
    world.now += 3601
    assert outcome(world) == ("UpToDate", set(), False)
    assert world.status()["bases"][0]["digest"] == digest("other")


@pytest.mark.req("BD-113")
@pytest.mark.parametrize(
    ("path", "value"), [("output.annotations", {"a": "b"}), ("output.index", "Always"), ("output.attestations", "Keep")]
)
def test_index_options_join_the_same_children_again(path: str, value: Any) -> None:
    world = built()
    image = world.status()["image"]
    world.set(path, value)
    decision, made, _ = outcome(world)
    assert (decision, made) == ("Reassemble", set())
    assert (world.status()["image"] == image) == (path != "output.annotations")
    assert len(world.runs) == 2


@pytest.mark.req("BD-114")
def test_another_repository_gets_the_same_bytes_without_a_job() -> None:
    world = built()
    image = world.status()["image"].partition("@")[2]
    world.set("output.repository", "registry.example.com/team/other")
    assert outcome(world)[:2] == ("Reassemble", set())
    assert world.status()["image"] == f"registry.example.com/team/other@{image}"
    assert world.puts[-1] == world.status()["image"], "the index comes after its children"


@pytest.mark.req("BD-119")
def test_next_build_postpones_an_architecture_that_joins() -> None:
    world = built(with_spec(architectures={"onNewArchitecture": "NextBuild"}))
    world.nodes.append(node("s390x"))
    assert outcome(world) == ("UpToDate", set(), False)
    assert ("ArchitecturePending", "s390x") in world.events
    assert "s390x" in world.status()["summary"]
    world.set("output.labels", {"a": "b"})
    assert outcome(world) == ("Build", {"amd64", "arm64", "s390x"}, True)


@pytest.mark.req("BD-120")
def test_an_architecture_that_leaves_by_its_nodes_changes_nothing_until_the_next_execution() -> None:
    world = built()
    world.nodes = [each for each in world.nodes if each.architecture == "amd64"]
    assert outcome(world) == ("UpToDate", set(), False)
    world.set("output.labels", {"a": "b"})
    assert outcome(world) == ("Build", {"amd64"}, True)
    assert [each["architecture"] for each in world.status()["images"]] == ["amd64"]


@pytest.mark.req("BD-121")
def test_an_architecture_that_the_spec_forbids_is_dropped_at_once() -> None:
    world = built(with_spec(output={"index": "Always"}))
    world.set("architectures.exclude", ["arm64"])
    assert outcome(world) == ("Reassemble", set(), True)
    assert [each["architecture"] for each in world.status()["images"]] == ["amd64"]


@pytest.mark.req("BD-122")
def test_an_architecture_that_comes_back_needs_no_job() -> None:
    world = built(with_spec(output={"index": "Always"}))
    first = world.status()["image"]
    world.set("architectures.exclude", ["arm64"])
    world.build_all()
    world.set("architectures.exclude", None)
    world.asked.clear()
    assert outcome(world) == ("Repoint", set(), True)
    assert world.status()["image"] == first


@pytest.mark.req("BD-123")
def test_back_to_former_inputs_is_the_former_digest_and_tags_move_back() -> None:
    world = built(with_spec(output={"tags": ["latest"]}))
    first = world.status()["image"]
    world.set("source.containerfile", "FROM busybox:1.36\nRUN false\n")
    world.build_all()
    assert world.status()["image"] != first
    world.set("source.containerfile", COMMON)
    world.made.clear()
    runs = len(world.runs)
    assert outcome(world) == ("Repoint", set(), True)
    assert world.status()["image"] == first
    assert world.tags[f"{REPOSITORY}:latest"] == first.partition("@")[2]
    assert len(world.runs) == runs


@pytest.mark.req("BD-124")
def test_an_index_that_is_gone_is_pushed_again_from_its_children() -> None:
    world = built()
    first = world.status()["image"]
    world.set("source.containerfile", "FROM busybox:1.36\nRUN false\n")
    world.build_all()
    del world.manifests[first]
    world.made.clear()
    world.set("source.containerfile", COMMON)
    assert outcome(world) == ("Reassemble", set(), True)
    assert world.status()["image"] == first


@pytest.mark.req("BD-125")
def test_a_child_that_is_gone_is_built_again() -> None:
    world = built()
    arm = next(each for each in world.status()["images"] if each["architecture"] == "arm64")
    world.set("source.containerfile", "FROM busybox:1.36\nRUN false\n")
    world.build_all()
    world.vanish(arm["reference"].partition("@")[2])
    world.made.clear()
    world.set("source.containerfile", COMMON)
    decision, made, _ = outcome(world)
    assert (decision, made) == ("Build", {"arm64"})


# -- rebuilds ----------------------------------------------------------------------------------------------------------


@pytest.mark.req("BD-126")
def test_a_token_rebuilds_what_it_lists() -> None:
    world = built()
    world.set("rebuild", {"token": "1", "architectures": ["arm64"]})
    assert outcome(world)[:2] == ("Build", {"arm64"})
    assert world.status()["rebuildToken"] == "1"
    assert ("RebuildRequested", "") in world.events
    assert world.plan().decision == "UpToDate"


@pytest.mark.req("BD-126")
def test_without_a_list_a_good_build_is_renewed() -> None:
    world = built()
    world.set("rebuild", {"token": "1"})
    assert outcome(world)[:2] == ("Build", BOTH)


@pytest.mark.req("BD-126")
def test_without_a_list_a_failed_build_is_resumed() -> None:
    world = BuildPlanWorld()
    world.reconcile()
    world.succeed("amd64")
    world.fail("arm64")
    world.reconcile()
    assert world.plan().decision == "Held"
    world.made.clear()
    world.set("rebuild", {"token": "1"})
    world.build_all()
    assert [each.split()[0] for each in world.made] == ["arm64"]
    assert world.condition("Ready") == ("True", "Published")


@pytest.mark.req("BD-135")
def test_a_token_that_was_honoured_does_nothing_when_it_comes_back() -> None:
    world = built()
    world.set("rebuild", {"token": "1"})
    world.build_all()
    world.set("rebuild", {"token": "2"})
    world.build_all()
    world.made.clear()
    world.set("rebuild", {"token": "1"})
    assert outcome(world) == ("UpToDate", set(), False)


@pytest.mark.req("BD-135")
def test_unknown_architectures_of_a_token_are_named_and_nothing_is_built() -> None:
    world = built()
    world.set("rebuild", {"token": "1", "architectures": ["riscv64"]})
    plan = world.plan()
    assert [(each.type, each.reason, each.architecture) for each in plan.events] == [
        ("Warning", "RebuildArchitectureUnknown", "riscv64")
    ]
    assert outcome(world) == ("UpToDate", set(), False)
    assert world.plan().events == ()


@pytest.mark.req("BD-136")
def test_what_is_not_forced_is_reused() -> None:
    world = built()
    world.set("rebuild", {"token": "1", "architectures": ["arm64", "riscv64"]})
    plan = world.plan()
    assert [(each.architecture, each.action) for each in plan.per_architecture] == [
        ("amd64", "Reuse"),
        ("arm64", "Build"),
    ]


@pytest.mark.req("BD-136")
def test_a_forced_rebuild_survives_an_edit_of_another_architecture() -> None:
    world = built()
    world.set("rebuild", {"token": "1", "architectures": ["arm64"]})
    world.reconcile()
    job = world.job_of("arm64")
    world.made.clear()
    world.set("source.overrides", [{"architecture": "amd64", "containerfile": "FROM busybox:1.36\nRUN echo x\n"}])
    world.reconcile()
    assert world.job_of("arm64") == job, "the forced Job goes on under the new execution"
    world.build_all()
    assert [each.split()[0] for each in world.made] == ["amd64"]


# -- while an execution runs -------------------------------------------------------------------------------------------


@pytest.mark.req("BD-127")
def test_an_edit_takes_over_the_jobs_that_are_still_right() -> None:
    world = BuildPlanWorld()
    world.reconcile()
    kept, dropped = world.job_of("amd64"), world.job_of("arm64")
    first = next(iter(world.runs))
    world.set("source.overrides", [{"architecture": "arm64", "containerfile": "FROM busybox:1.36\nRUN echo arm\n"}])
    plan = world.reconcile()
    assert {each.architecture: each.action for each in plan.per_architecture} == {"amd64": "Adopt", "arm64": "Build"}
    assert [write.step for write in plan.writes][:4] == [
        BuildStep.CREATE_EXECUTION,
        BuildStep.ADOPT_JOB,
        BuildStep.ADOPT_JOB,
        BuildStep.END_SUPERSEDED,
    ]
    assert kept in world.jobs
    assert dropped not in world.jobs
    assert world.runs[first]["status"]["phase"] == "Superseded"
    owner = world.jobs[kept]["metadata"]["ownerReferences"][0]
    assert owner["name"] == world.status()["activeRun"]
    world.build_all()
    assert sorted(each.split()[0] for each in world.made) == ["amd64", "arm64", "arm64"]


@pytest.mark.req("BD-127")
def test_back_to_a_finished_result_supersedes_without_a_new_execution() -> None:
    world = built()
    world.set("source.containerfile", "FROM busybox:1.36\nRUN false\n")
    world.reconcile()
    runs = len(world.runs)
    world.set("source.containerfile", COMMON)
    plan = world.reconcile()
    assert (plan.decision, len(world.runs), world.jobs) == ("UpToDate", runs, {})
    assert ("BuildSuperseded", "") in world.events
    assert world.plan().writes == ()


@pytest.mark.req("BD-128")
def test_after_a_failure_only_the_failed_architecture_is_built() -> None:
    world = BuildPlanWorld(with_spec(source={"overrides": OVERRIDES}))
    world.reconcile()
    world.succeed("amd64")
    world.fail("arm64")
    world.reconcile()
    world.made.clear()
    world.set("source.overrides", [{**OVERRIDES[0], "containerfile": "FROM busybox:1.36\nRUN echo ok\n"}, OVERRIDES[1]])
    plan = world.plan()
    assert {each.architecture: each.action for each in plan.per_architecture} == {"amd64": "Reuse", "arm64": "Build"}
    world.build_all()
    assert [each.split()[0] for each in world.made] == ["arm64"]


@pytest.mark.req("BD-090")
def test_a_result_that_covers_is_found_before_any_registry_is_asked() -> None:
    world = built()
    world.unreachable = True
    world.set("retries", 1)
    assert world.plan().decision == "UpToDate"
    assert world.asked == []


@pytest.mark.req("BD-091")
def test_an_index_of_more_architectures_covers() -> None:
    world = built(with_spec(architectures={"mode": "Explicit", "list": ["amd64", "arm64"]}))
    world.set("architectures", {"include": ["amd64"]})
    world.nodes = [node("amd64")]
    assert outcome(world) == ("UpToDate", set(), False)


@pytest.mark.req("BD-092")
def test_children_of_another_build_of_the_namespace_are_reused_and_copied() -> None:
    world = built()
    world.add("other", {**with_spec(output={"repository": "registry.example.com/team/other"})})
    plan = world.plan("other")
    assert [each.action for each in plan.per_architecture] == ["Reuse", "Reuse"]
    world.settle("other")
    assert world.status("other")["image"].startswith("registry.example.com/team/other@")
    assert world.made == []


@pytest.mark.req("BD-151")
def test_why_a_pod_has_its_profile_is_in_plan_and_status() -> None:
    world = BuildPlanWorld()
    plan = world.plan()
    assert all(each.profile.startswith(("UserNamespace: ", "Rootless: ")) for each in plan.per_architecture)
    world.reconcile()
    (run,) = world.runs.values()
    assert [each["profile"] for each in run["status"]["architectures"]] == [e.profile for e in plan.per_architecture]
    world.succeed("amd64")
    world.reconcile()
    assert all(each["profile"] for each in run["status"]["architectures"]), "it stays known"
    other = BuildPlanWorld(with_spec(builder={"securityProfile": "Rootless"}))
    assert other.plan().per_architecture[0].profile == "Rootless: spec.builder.securityProfile"


@pytest.mark.req("BD-092")
@pytest.mark.parametrize("error", ["network", "timeout", "unauthorized", "forbidden", "rate-limited", "server-error"])
def test_what_another_repository_does_not_show_is_built_and_told(error: str) -> None:
    """A registry that is gone, or that keeps its images to itself, holds nobody who has moved away from it."""
    world = built()
    world.set("output.repository", "registry.example.com/moved/web")
    world.heads |= dict.fromkeys(world.manifests, error)
    plan = world.plan()
    assert (plan.decision, {each.action for each in plan.per_architecture}) == ("Build", {"Build"})
    assert all(f"could not be looked up ({error}): it is built again" in each.message for each in plan.per_architecture)
    told = [each for each in plan.events if each.reason == "ReuseFailed"]
    assert [(each.type, each.architecture) for each in told] == [("Warning", "amd64"), ("Warning", "arm64")]
    world.build_all()
    assert world.status()["image"].startswith("registry.example.com/moved/web@")


@pytest.mark.req("BD-092")
def test_a_build_with_equal_inputs_in_another_repository_waits_for_no_registry_but_its_own() -> None:
    world = built()
    world.add("other", with_spec(output={"repository": "registry.example.com/team/other"}))
    world.heads |= dict.fromkeys(world.manifests, "network")
    assert world.plan("other").decision == "Build"
    world.set("output.tags", ["more"])
    world.set("format", None)
    assert world.plan("web").decision != "Wait"


@pytest.mark.req("BD-092")
def test_what_the_own_repository_does_not_show_for_now_is_waited_for() -> None:
    world = built()
    world.set("source.containerfile", f"{COMMON}RUN more\n")
    world.build_all()
    world.made.clear()
    world.runs = {name: run for name, run in world.runs.items() if not name.endswith("-2")}
    world.set("source.containerfile", COMMON)
    world.set("output.annotations", {"a": "b"})
    world.heads |= dict.fromkeys(world.manifests, "network")
    plan = world.plan()
    assert (plan.decision, plan.reason) == ("Wait", "RegistryUnreachable")
    assert plan.requeue_after is not None


@pytest.mark.req("BD-092")
def test_what_is_only_gone_is_built_without_a_warning() -> None:
    world = built()
    world.set("output.repository", "registry.example.com/moved/web")
    world.manifests.clear()
    assert [each.reason for each in world.plan().events if each.reason == "ReuseFailed"] == []


@pytest.mark.req("BD-092")
def test_the_child_of_the_same_repository_comes_first_and_the_first_that_is_found_is_taken() -> None:
    world = built()
    world.add("other", {**with_spec(output={"repository": "registry.example.com/team/other"})})
    world.settle("other")
    world.recreate()
    sources = {each.source for each in world.plan().per_architecture}
    assert all(each.startswith("web-") for each in sources), sources


@pytest.mark.req("BD-021", "BD-024")
def test_a_recreated_build_starts_over_but_reuses_the_children() -> None:
    world = built()
    first = next(iter(world.runs))
    world.recreate()
    plan = world.plan()
    assert (plan.decision, {each.action for each in plan.per_architecture}) == ("Reassemble", {"Reuse"})
    assert plan.execution == first.removesuffix("1") + "2", "the serial counts runs of any UID"
    assert world.made == []


@pytest.mark.req("BD-335")
def test_children_of_another_namespace_are_never_used() -> None:
    world = built()
    strangers = [msgspec.structs.replace(each, namespace="other") for each in world.facts().executions]
    world.recreate()
    plan = world.plan(executions=tuple(strangers))
    assert {each.action for each in plan.per_architecture} == {"Build"}


@pytest.mark.req("BD-093")
def test_a_live_job_of_another_build_is_waited_for_and_its_child_reused() -> None:
    world = BuildPlanWorld()
    world.reconcile()
    world.add("other", SPEC)
    plan = world.reconcile("other")
    assert [each.action for each in plan.per_architecture] == ["Wait", "Wait"]
    assert plan.per_architecture[0].reason == f"SharedWith {world.job_of('amd64')}"
    assert len(world.made) == 2
    world.build_all()
    world.settle("other")
    assert len(world.made) == 2
    assert world.status("other")["image"] == world.status()["image"]


@pytest.mark.req("BD-349")
def test_one_of_four_architectures_costs_one_job_three_heads_and_one_index() -> None:
    four = ("amd64", "arm64", "ppc64le", "s390x")
    world = BuildPlanWorld(SPEC, architectures=four)
    world.build_all()
    world.made.clear()
    world.asked.clear()
    world.puts.clear()
    world.set("source.overrides", [{"architecture": "s390x", "containerfile": "FROM busybox:1.36\nRUN echo z\n"}])
    world.build_all()
    assert [each.split()[0] for each in world.made] == ["s390x"]
    heads = {each for each in world.asked if each.startswith("head ")}
    assert len(heads) == 3
    indexes = [each for each in world.puts if world.manifests[each][1]]
    assert len(indexes) == 1


@pytest.mark.req("BD-021", "BD-137")
def test_names_come_from_inputs_so_two_replicas_make_the_same() -> None:
    """Work is never started twice for one reason."""
    one, two = BuildPlanWorld().plan(), BuildPlanWorld().plan()
    assert [(write.kind, write.name) for write in one.writes] == [(write.kind, write.name) for write in two.writes]
    assert one.execution.startswith(f"web-{one.build_key[:10]}-1")


@pytest.mark.req("BD-048")
def test_the_architectures_are_recorded_for_people_in_order() -> None:
    world = BuildPlanWorld(architectures=("s390x", "amd64"))
    world.reconcile()
    assert world.builds["web"]["metadata"]["annotations"] == {names.ARCHITECTURES_ANNOTATION: "amd64,s390x"}
    run = next(iter(world.runs.values()))
    assert run["metadata"]["annotations"][names.ARCHITECTURES_ANNOTATION] == "amd64,s390x"
    assert run["metadata"]["namespace"] == NAMESPACE


@pytest.mark.req("BD-044")
def test_one_architecture_is_one_job_without_index_and_suffix() -> None:
    world = BuildPlanWorld(architectures=("amd64",))
    assert world.plan().index.action == "Single"
    world.build_all()
    image = world.status()["image"].partition("@")[2]
    run = world.status()["currentRun"]
    assert world.tags == {f"{REPOSITORY}:{run}": image}
    assert world.manifests[world.status()["image"]][1] == ()
    assert world.plan().index.action == "Single"


@pytest.mark.req("BD-023")
def test_a_run_holds_no_containerfile() -> None:
    world = BuildPlanWorld()
    world.reconcile()
    assert "RUN true" not in str(next(iter(world.runs.values())))


@pytest.mark.req("BD-199")
def test_a_suspended_build_starts_nothing_and_what_runs_ends_normally() -> None:
    world = BuildPlanWorld({**SPEC, "suspend": True})
    assert (world.plan().decision, world.plan().reason) == ("Wait", "Suspended")
    world.settle()
    assert (world.runs, world.condition("Progressing")) == ({}, ("False", "Suspended"))
    world.set("suspend", False)
    world.reconcile()
    world.set("suspend", True)
    world.build_all()
    assert world.condition("Ready") == ("True", "Published")


@pytest.mark.req("BD-302")
def test_the_record_of_an_execution_says_what_its_keys_were_made_of() -> None:
    world = built()
    record = world.config_maps[f"{world.status()['currentRun']}-arch"]["data"]
    outlines = json.loads(record[OUTLINES_FILE])
    assert outlines == {
        architecture: key_outline(document) for architecture, document in world.plan().key_documents.items()
    }


@pytest.mark.req("BD-049")
def test_the_record_holds_the_children_and_the_index() -> None:
    world = built()
    record = json.loads(world.config_maps[f"{world.status()['currentRun']}-arch"]["data"][names.ARCHITECTURES_FILE])
    assert record["schema"] == 1
    assert [(each["architecture"], each["phase"]) for each in record["architectures"]] == [
        ("amd64", "Built"),
        ("arm64", "Built"),
    ]
    assert world.status()["image"].endswith(record["index"]["digest"])
