"""The first build of an image, from nothing to a published index."""

import pytest
from builds_world import REPOSITORY, BuildPlanWorld

from polyarch.builds.facts.build_facts import BuildStep


def test_a_first_build_makes_one_job_for_each_architecture() -> None:
    world = BuildPlanWorld()
    plan = world.plan()
    assert plan.decision == "Build"
    jobs = [write.name for write in plan.writes if write.kind == "Job"]
    assert len(jobs) == 2
    assert [each.action for each in plan.per_architecture] == ["Build", "Build"]


@pytest.mark.req("BD-006")
def test_a_plan_that_was_carried_out_has_nothing_more_to_do() -> None:
    world = BuildPlanWorld()
    world.reconcile()
    after = world.plan()
    assert [(write.verb, write.kind, write.name, write.step) for write in after.writes] == []
    assert after.decision == "InProgress"


def test_children_become_an_index_with_tags() -> None:
    world = BuildPlanWorld()
    world.set("output.tags", ["latest"])
    world.build_all()
    status = world.status()
    assert status["image"].startswith(f"{REPOSITORY}@sha256:")
    assert world.tags[f"{REPOSITORY}:latest"] == status["image"].partition("@")[2]
    assert status["summary"] == "2/2"
    assert world.condition("Ready") == ("True", "Published")
    assert world.jobs == {}


@pytest.mark.req("BD-154", "BD-345")
def test_nothing_is_waited_for_but_jobs() -> None:
    """All Jobs are made in one round, and the round that sees the last of them end publishes the result."""
    four = ("amd64", "arm64", "ppc64le", "s390x")
    world = BuildPlanWorld(architectures=four)
    world.set("output.tags", ["latest"])
    world.reconcile()
    assert len(world.jobs) == 4
    for architecture in four[:-1]:
        world.succeed(architecture)
        world.reconcile()
    assert f"{REPOSITORY}:latest" not in world.tags
    world.succeed(four[-1])
    plan = world.reconcile()
    assert [write.verb for write in plan.writes if write.step in (BuildStep.PUBLISH, BuildStep.MOVE_TAGS)] == [
        "push-index"
    ]
    assert world.tags[f"{REPOSITORY}:latest"] == world.status()["image"].partition("@")[2]


@pytest.mark.req("BD-346")
def test_writes_of_a_build_of_four_architectures_are_within_their_budget() -> None:
    """Of every round, if each Job and each pod is seen by itself: writes to the API server, and events."""
    four = ("amd64", "arm64", "ppc64le", "s390x")
    world = BuildPlanWorld(architectures=four)
    written = _api_writes(world)
    for architecture in four:
        world.schedule(architecture)
        written += _api_writes(world)
    for architecture in four:
        world.succeed(architecture)
        written += _api_writes(world)
    written += _api_writes(world)
    assert world.condition("Ready") == ("True", "Published")
    assert written <= 10 + 8 * len(four)
    assert len(world.told) <= 6 + 2 * len(four)
    assert _api_writes(world) == 0


def _api_writes(world: BuildPlanWorld) -> int:
    """Of one round."""
    plan = world.reconcile()
    return sum(write.verb in ("create", "patch", "status", "delete") for write in plan.writes)
