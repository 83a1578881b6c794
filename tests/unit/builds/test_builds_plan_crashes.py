"""A builder that is killed before any write, any number of times, ends with the same result."""

import contextlib
from typing import Any

import pytest
from builds_world import REPOSITORY, SPEC, BuildPlanWorld, CutOff

from polyarch.builds import names
from polyarch.builds.facts.build_facts import BuildStep

pytestmark = pytest.mark.req("BD-190", "BD-195")


def run_to_the_end(world: BuildPlanWorld, name: str = "web") -> None:
    world.build_all(name)
    assert world.plan(name).writes == ()


def counted(world: BuildPlanWorld) -> tuple[str, list[str], list[str]]:
    """The result, the Jobs that were made, and what was put into the registry."""
    return world.status().get("image", ""), sorted(world.made), sorted(world.puts)


def first_build(world: BuildPlanWorld) -> None:
    """Nothing is there yet."""


def children_done(world: BuildPlanWorld) -> None:
    world.reconcile()
    world.succeed("amd64")
    world.succeed("arm64")


def edited(world: BuildPlanWorld) -> None:
    """One architecture's text changes while both are being built."""
    world.reconcile()
    world.set("source.overrides", [{"architecture": "arm64", "containerfile": "FROM busybox:1.36\nRUN echo arm\n"}])


def moved(world: BuildPlanWorld) -> None:
    world.build_all()
    world.set("output.repository", "registry.example.com/team/other")


def reverted(world: BuildPlanWorld) -> None:
    world.build_all()
    world.set("source.containerfile", "FROM busybox:1.36\nRUN false\n")
    world.build_all()
    world.set("source.containerfile", SPEC["source"]["containerfile"])


def forced(world: BuildPlanWorld) -> None:
    world.build_all()
    world.set("rebuild", {"token": "1", "architectures": ["arm64"]})


def failing(world: BuildPlanWorld) -> None:
    world.reconcile()
    world.succeed("amd64")
    world.fail("arm64")


def retagged(world: BuildPlanWorld) -> None:
    world.build_all()
    world.set("output.tags", ["one", "two"])


SITUATIONS = [first_build, children_done, edited, moved, reverted, forced, failing, retagged]


def writes_in(situation: Any) -> list[str]:
    world = BuildPlanWorld()
    situation(world)
    return [f"{write.step} {write.verb} {write.kind} {write.name}" for write in world.plan().writes]


@pytest.mark.req("BD-197")
@pytest.mark.parametrize("situation", SITUATIONS, ids=lambda each: each.__name__)
def test_killed_before_any_write_the_same_result_comes_out(situation: Any) -> None:
    undisturbed = BuildPlanWorld()
    situation(undisturbed)
    run_to_the_end(undisturbed)
    steps = writes_in(situation)
    assert steps
    for at in range(len(steps)):
        world = BuildPlanWorld()
        situation(world)
        with pytest.raises(CutOff):
            world.reconcile(stop_before=at)
        run_to_the_end(world)
        assert counted(world) == counted(undisturbed), f"killed before {steps[at]}"
        assert world.tags == undisturbed.tags, f"killed before {steps[at]}"
        phases = {run["status"]["phase"] for run in world.runs.values()}
        assert "Interrupted" not in phases, f"killed before {steps[at]}"


@pytest.mark.req("BD-197")
@pytest.mark.parametrize("situation", [first_build, edited, moved, forced], ids=lambda each: each.__name__)
def test_killed_again_and_again_it_still_ends(situation: Any) -> None:
    undisturbed = BuildPlanWorld()
    situation(undisturbed)
    run_to_the_end(undisturbed)
    world = BuildPlanWorld()
    situation(world)
    for at in range(1, 120):
        plan = world.plan()
        live = [job for job in world.jobs.values() if not job.get("status")]
        if plan.writes:
            with contextlib.suppress(CutOff):
                world.carry_out(plan, stop_before=at % (len(plan.writes) + 1))
        elif live:
            world.succeed(live[0]["metadata"]["labels"][names.ARCHITECTURE_LABEL])
        else:
            break
    assert world.plan().writes == ()
    assert counted(world) == counted(undisturbed)


@pytest.mark.req("BD-196")
def test_steps_come_in_their_order() -> None:
    world = BuildPlanWorld()
    steps = [write.step for write in world.plan().writes]
    assert steps == [
        BuildStep.CREATE_EXECUTION,
        BuildStep.CREATE_JOB,
        BuildStep.CREATE_JOB,
        BuildStep.CREATE_JOB,
        BuildStep.CREATE_JOB,
        BuildStep.RECORD_PROGRESS,
        BuildStep.RECORD_PROGRESS,
        BuildStep.REPORT,
        BuildStep.REPORT,
    ]
    kinds = [write.kind for write in world.plan().writes if write.step == BuildStep.CREATE_JOB]
    assert kinds == ["ConfigMap", "Job", "ConfigMap", "Job"]
    children_done(world)
    steps = [write.step for write in world.plan().writes]
    assert steps == [
        BuildStep.RECORD_PROGRESS,
        BuildStep.RECORD_PROGRESS,
        BuildStep.PUBLISH,
        BuildStep.RECORD_END,
        BuildStep.RECORD_PROGRESS,
        BuildStep.DELETE_JOB,
        BuildStep.DELETE_JOB,
        BuildStep.REPORT,
    ]


@pytest.mark.req("BD-196")
def test_an_uid_that_was_recorded_late_is_taken_from_the_job_once() -> None:
    world = BuildPlanWorld()
    plan = world.plan()
    at = next(i for i, write in enumerate(plan.writes) if write.step == BuildStep.RECORD_PROGRESS)
    with pytest.raises(CutOff):
        world.carry_out(plan, stop_before=at)
    world.reconcile()
    run = next(iter(world.runs.values()))
    uids = {each["jobUID"] for each in run["status"]["architectures"]}
    assert uids == {job["metadata"]["uid"] for job in world.jobs.values()}


@pytest.mark.req("BD-196")
def test_an_older_execution_whose_jobs_were_taken_over_is_not_called_interrupted() -> None:
    world = BuildPlanWorld()
    edited(world)
    plan = world.plan()
    at = next(i for i, write in enumerate(plan.writes) if write.step == BuildStep.END_SUPERSEDED)
    first = next(iter(world.runs))
    with pytest.raises(CutOff):
        world.carry_out(plan, stop_before=at)
    run_to_the_end(world)
    assert world.runs[first]["status"]["phase"] == "Superseded"


@pytest.mark.req("BD-193")
def test_tags_are_moved_after_the_index_is_there() -> None:
    """An execution has not succeeded before its tags are on the result."""
    world = BuildPlanWorld({**SPEC, "output": {**SPEC["output"], "tags": ["latest"]}})
    children_done(world)
    plan = world.plan()
    at = next(i for i, write in enumerate(plan.writes) if write.step == BuildStep.RECORD_END)
    with pytest.raises(CutOff):
        world.carry_out(plan, stop_before=at)
    run = next(iter(world.runs.values()))
    assert run["status"]["phase"] == "Assembling"
    assert f"{REPOSITORY}:latest" in world.tags
    puts = list(world.puts)
    run_to_the_end(world)
    assert world.puts == puts, "no second PUT"
