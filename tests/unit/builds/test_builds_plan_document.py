"""What a plan says of a build, and what is told about it."""

from collections import Counter

import pytest
from builds_world import REPOSITORY, SPEC, BuildPlanWorld

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
        "ChildrenReady": ("False", "Building"),
        "IndexPushed": ("False", "Building"),
        "Succeeded": ("Unknown", "Building"),
    }
    world.succeed("amd64")
    world.fail("arm64")
    world.reconcile()
    assert conditions() == {
        "ChildrenReady": ("False", "BuildFailed"),
        "IndexPushed": ("False", "BuildFailed"),
        "Succeeded": ("False", "BuildFailed"),
    }
    messages = [each["message"] for each in world.runs[run]["status"]["conditions"]]
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
