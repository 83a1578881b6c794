"""What a plan says of a build, and what is told about it."""

import copy
from collections import Counter
from typing import Any

import msgspec
import pytest
from builds_world import EVERY, REPOSITORY, SPEC, TOOLS, BuildPlanWorld, digest, index_of

from polyarch.builds import names
from polyarch.builds.plan.planner import plan_build as planned
from polyarch.oci.documents import OCI_INDEX


@pytest.mark.req("BD-004")
def test_a_plan_names_architectures_keys_jobs_index_and_tags() -> None:
    world = BuildPlanWorld({**SPEC, "output": {**SPEC["output"], "tags": ["latest"]}}, architectures=("arm64", "amd64"))
    plan = world.plan()
    assert plan.architectures == ("amd64", "arm64")
    assert sorted(plan.keys) == ["amd64", "arm64"]
    assert [each.job for each in plan.per_architecture] == [f"{plan.execution}-amd64", f"{plan.execution}-arm64"]
    assert plan.tags == (plan.execution, "latest")
    assert (plan.index.action, plan.index.digest) == ("Push", ""), "its children are not known yet"
    world.reconcile()
    world.succeed("amd64")
    world.succeed("arm64")
    plan = world.plan()
    assert (plan.index.action, plan.index.media_type) == ("Push", OCI_INDEX)
    world.settle()
    assert world.status()["image"] == f"{REPOSITORY}@{plan.index.digest}", "known before it is pushed"
    assert (world.plan().index.action, world.plan().index.digest) == ("Exists", plan.index.digest)


@pytest.mark.req("BD-004")
def test_a_plan_with_questions_writes_nothing() -> None:
    found = planned(BuildPlanWorld().facts())
    assert [(each.what, each.reference) for each in found.lookups] == [("inspect", "docker.io/library/busybox:1.36")]
    assert (found.decision, found.writes) == ("Wait", ())


@pytest.mark.req("BD-241")
def test_conditions_of_a_run_name_architecture_and_reason() -> None:
    world = BuildPlanWorld()
    world.reconcile()
    run = next(iter(world.runs))

    def conditions() -> dict[str, tuple[str, str]]:
        found = world.runs[run]["status"]["conditions"]
        return {each["type"]: (each["status"], each["reason"]) for each in found}

    assert conditions() == {
        "BuilderPinned": ("True", "Pinned"),
        "ChildrenReady": ("False", "Building"),
        "IndexPushed": ("False", "Building"),
        "Succeeded": ("Unknown", "Building"),
    }
    world.succeed("amd64")
    world.fail("arm64")
    world.reconcile()
    assert conditions() == {
        "BuilderPinned": ("True", "Pinned"),
        "ChildrenReady": ("False", "BuildFailed"),
        "IndexPushed": ("False", "BuildFailed"),
        "Succeeded": ("False", "BuildFailed"),
    }
    messages = [each["message"] for each in world.runs[run]["status"]["conditions"] if each["status"] == "False"]
    assert all("arm64" in each for each in messages)


@pytest.mark.req("BD-242")
def test_each_event_is_told_once_for_an_architecture_and_an_execution() -> None:
    world = BuildPlanWorld()
    world.build_all()
    told = Counter((each.reason, each.architecture, each.execution) for each in world.told)
    assert max(told.values()) == 1
    assert [each.reason for each in world.told] == [
        "BuildStarted",
        "ArchitectureBuilt",
        "ArchitectureBuilt",
        "IndexPushed",
        "BuildSucceeded",
    ]


@pytest.mark.req("BD-221")
def test_after_a_time_without_api_server_the_plan_is_made_from_what_is_there() -> None:
    world = BuildPlanWorld()
    world.reconcile()
    world.succeed("amd64")
    world.succeed("arm64")
    world.now += 86_400
    world.settle()
    assert world.condition("Ready") == ("True", "Published")


# -- the images of pods, and what does not reach them ------------------------------------------------------------------


def pod_images(world: BuildPlanWorld) -> dict[str, set[str]]:
    """Container → the images that it has in all Jobs that there are."""
    found: dict[str, set[str]] = {}
    for job in world.jobs.values():
        pod = job["spec"]["template"]["spec"]
        for container in (*pod["initContainers"], *pod["containers"]):
            found.setdefault(container["name"], set()).add(container["image"])
    return found


def move(world: BuildPlanWorld, tool: str, to: str) -> str:
    """The tag leads to another image; what a pod runs of it then."""
    moved = digest(to)
    world.bases[tool] = msgspec.structs.replace(index_of(tool, EVERY), digest=moved)
    return f"{tool.rpartition(':')[0]}@{moved}"


@pytest.mark.req("BD-065")
def test_all_jobs_of_a_run_have_the_images_that_it_began_with_and_the_next_run_the_new_ones() -> None:
    world = BuildPlanWorld({**SPEC, "scheduling": {"maxParallel": 1}})
    first = [move(world, tool, "first") for tool in TOOLS]
    world.reconcile()
    assert len(world.jobs) == 1
    second = [move(world, tool, "second") for tool in TOOLS]
    world.succeed("amd64")
    world.reconcile()
    assert len(world.made) == 2
    assert pod_images(world) == {"build": {first[0]}, "push": {first[1]}}
    world.build_all()
    world.set("rebuild", {"token": "again"})
    world.reconcile()
    assert pod_images(world) == {"build": {second[0]}, "push": {second[1]}}


@pytest.mark.req("BD-065")
def test_where_a_tag_leads_is_asked_anew_for_each_run() -> None:
    """An answer that the builder has from before would be the image from before."""
    world = BuildPlanWorld()
    facts = world.facts()
    lookups = {}
    while asked := planned(facts).lookups:
        lookups |= {each.reference: each.revalidate for each in asked if each.what == "inspect"}
        facts = world._answered(facts, asked)
    assert [lookups[tool] for tool in TOOLS] == [True, True]


def run_condition(world: BuildPlanWorld, type: str) -> dict[str, Any]:
    (run,) = world.runs.values()
    return next((each for each in run["status"]["conditions"] if each["type"] == type), {})


@pytest.mark.req("BD-065")
def test_a_run_says_where_nobody_looked_up_what_its_pods_run() -> None:
    """The builder asks no registry then: nodes pull by tag, as ever."""
    world = BuildPlanWorld({**SPEC, "registryAccess": "Job"})
    world.reconcile()
    assert pod_images(world) == {"build": {TOOLS[0]}, "push": {TOOLS[1]}}
    found = run_condition(world, "BuilderPinned")
    assert (found["status"], found["reason"]) == ("False", "NotLookedUp")
    assert all(tool in found["message"] for tool in TOOLS)


@pytest.mark.req("BD-065")
@pytest.mark.parametrize("access", ["Controller", "Job"])
def test_an_image_that_is_named_by_digest_is_what_it_says(access: str) -> None:
    world = BuildPlanWorld({**SPEC, "registryAccess": access})
    named = [f"{tool.rpartition(':')[0]}@{digest(tool)}" for tool in TOOLS]
    world.settings = msgspec.structs.replace(world.settings, builder_image=named[0], push_image=named[1])
    world.bases |= {each: msgspec.structs.replace(index_of(each, EVERY), digest=each[-71:]) for each in named}
    world.reconcile()
    assert pod_images(world) == {"build": {named[0]}, "push": {named[1]}}
    assert run_condition(world, "BuilderPinned")["status"] == "True"


CHANGES: dict[str, Any] = {
    "spec.builder.image": "registry.example.com/tools/other:1",
    "spec.builder.pushImage": "registry.example.com/tools/other:2",
    "spec.builder.securityProfile": "Rootless",
    "spec.builder.serviceAccount": "robot",
    "spec.output.pullSecrets": [{"name": "pull"}],
    "spec.retries": 1,
    "spec.scheduling.perArchitecture": [{"architecture": "arm64", "priorityClassName": "high"}],
    "spec.timeouts": {"build": "2h"},
}


@pytest.mark.req("BD-246")
@pytest.mark.parametrize("field", CHANGES)
def test_a_change_that_does_not_reach_jobs_at_work_is_told(field: str) -> None:
    world = BuildPlanWorld()
    world.reconcile()
    made = copy.deepcopy(world.jobs)
    world.settle()
    assert "SettingsKept" not in dict(world.events)
    world.set(field.removeprefix("spec."), CHANGES[field])
    world.settle()
    assert world.jobs == made, "they go on as they were made"
    said = next(each["message"] for each in world.status()["conditions"] if each["type"] == "Progressing")
    assert field in said
    assert "new spec.rebuild.token" in said
    assert [each.reason for each in world.told].count("SettingsKept") == 1
    world.set(field.removeprefix("spec."), None)
    world.settle()
    assert field not in next(each["message"] for each in world.status()["conditions"] if each["type"] == "Progressing")


@pytest.mark.req("BD-246")
def test_a_change_for_one_architecture_names_that_one() -> None:
    world = BuildPlanWorld()
    world.reconcile()
    world.set("scheduling.perArchitecture", CHANGES["spec.scheduling.perArchitecture"])
    world.settle()
    said = next(each["message"] for each in world.status()["conditions"] if each["type"] == "Progressing")
    assert "spec.scheduling.perArchitecture (arm64)" in said


@pytest.mark.req("BD-246")
def test_a_rebuild_makes_a_run_with_what_has_changed() -> None:
    world = BuildPlanWorld()
    world.reconcile()
    world.set("builder.securityProfile", "Rootless")
    world.set("rebuild", {"token": "now"})
    world.reconcile(rounds=2)
    profiles = [
        "SYS_ADMIN" in job["spec"]["template"]["spec"]["initContainers"][0]["securityContext"]["capabilities"]["add"]
        for job in world.jobs.values()
    ]
    assert profiles == [False, False]


@pytest.mark.req("BD-246")
@pytest.mark.parametrize("text", ["", "{", "[]", '{"spec.retries": 1}', '"x"'], ids=repr)
def test_an_annotation_that_somebody_wrote_says_nothing(text: str) -> None:
    world = BuildPlanWorld()
    world.reconcile()
    for job in world.jobs.values():
        job["metadata"]["annotations"][names.SETTINGS_ANNOTATION] = text
    world.set("builder.securityProfile", "Rootless")
    world.settle()
    assert "SettingsKept" not in dict(world.events)
