"""A live Job that lost its label is not taken for deleted nor made a second time; it gets the label back."""

import contextlib
from collections.abc import Callable

import pytest
from builds_world import SPEC, BuildPlanWorld, CutOff

from polyarch.builds import names
from polyarch.builds.facts.build_facts import BuildStep, WriteFailure

TEMPLATE = ("controller-uid", "batch.kubernetes.io/job-name")


def at_work() -> BuildPlanWorld:
    """Both architectures are being built, and amd64's Job has lost its label."""
    world = BuildPlanWorld()
    world.reconcile()
    for job in world.jobs.values():
        job["spec"]["template"]["metadata"]["labels"] |= dict.fromkeys(TEMPLATE, "of Kubernetes")
    world.unlabel(world.job_of("amd64"))
    return world


def labels(world: BuildPlanWorld, architecture: str = "amd64") -> dict[str, str]:
    found: dict[str, str] = world.jobs[world.job_of(architecture)]["metadata"]["labels"]
    return found


@pytest.mark.req("BD-324")
def test_the_label_is_put_back_and_nothing_else_is_done() -> None:
    undisturbed = BuildPlanWorld()
    undisturbed.reconcile()
    world = at_work()
    before = world.plan()
    assert [(each.verb, each.kind, each.name) for each in before.writes] == [("patch", "Job", world.job_of("amd64"))]
    assert before.decision == "Wait"
    world.reconcile()
    assert labels(world) == labels(undisturbed)
    assert world.plan().writes == ()
    world.build_all()
    assert (len(world.made), world.status()["summary"]) == (2, "2/2")


@pytest.mark.req("BD-324")
def test_of_a_job_that_was_taken_over_the_label_names_its_new_run() -> None:
    """Its pods still have the label of the run that made it."""
    world = BuildPlanWorld()
    world.reconcile()
    world.set("source.overrides", [{"architecture": "arm64", "containerfile": "FROM busybox:1.36\nRUN echo arm\n"}])
    world.reconcile()
    taken_over = dict(labels(world))
    world.unlabel(world.job_of("amd64"))
    world.reconcile()
    assert labels(world) == taken_over
    world.build_all()
    assert len(world.made) == 3


@pytest.mark.req("BD-093", "BD-324")
def test_inputs_that_change_meanwhile_find_the_job_all_the_same() -> None:
    """Else a new run would make a second Job for the same key."""
    world = at_work()
    world.set("source.overrides", [{"architecture": "arm64", "containerfile": "FROM busybox:1.36\nRUN echo arm\n"}])
    world.build_all()
    assert [each.split()[0] for each in sorted(world.made)] == ["amd64", "arm64", "arm64"]


@pytest.mark.req("BD-093", "BD-324")
def test_another_build_of_the_same_key_does_not_make_a_second_job() -> None:
    world = at_work()
    world.add("shop", SPEC)
    world.reconcile("shop")
    world.reconcile("shop")
    assert len(world.made) == 2
    assert world.plan("shop").per_architecture[0].action == "Wait"


@pytest.mark.req("BD-192")
@pytest.mark.parametrize("again", [False, True], ids=["gone", "made again by somebody"])
def test_a_job_that_was_deleted_is_asked_for_once_and_its_run_is_interrupted(again: bool) -> None:
    world = at_work()
    name = world.job_of("amd64")
    job = world.jobs[name]
    world.delete_job(name)
    if again:
        world.jobs[name] = {**job, "metadata": {**job["metadata"], "uid": "another"}}
    world.reconcile()
    assert world.asked.count(f"job {name}") == 2, "once for each of the two plans"
    world.asked.clear()
    world.plan()
    run = next(iter(world.runs.values()))
    assert {each["architecture"]: each["phase"] for each in run["status"]["architectures"]}["amd64"] == "Interrupted"
    assert world.asked == []


@pytest.mark.req("BD-324")
def test_a_label_that_may_not_be_put_back_is_told_and_tried_again_later() -> None:
    world = at_work()
    refusal = WriteFailure(
        verb="patch",
        step=BuildStep.RESTORE_LABELS,
        kind="Job",
        name=world.job_of("amd64"),
        code="Forbidden",
        message="denied by policy",
    )
    found = world.plan(failures=(refusal,))
    assert (found.decision, found.reason, found.writes, found.requeue_after) == ("Wait", "Forbidden", (), 60.0)
    assert "denied by policy" in found.message


@pytest.mark.req("BD-324")
def test_a_job_that_has_its_labels_is_only_not_seen_yet() -> None:
    """The watch is late: nothing is written, and it is looked again at once."""
    world = at_work()
    name = world.job_of("amd64")
    world.jobs[name]["metadata"]["labels"][names.RUN_LABEL] = next(iter(world.runs))
    late = tuple(each for each in world.facts().jobs if each.name != name)
    found = world.plan(jobs=late)
    assert (found.decision, found.writes, found.requeue_after) == ("Wait", (), 1.0)


def before_the_record(change: Callable[[BuildPlanWorld], object]) -> BuildPlanWorld:
    """The builder was stopped when it had made amd64's Job; the Job lost its labels, and then the wish changed."""
    world = BuildPlanWorld()
    names_of_writes = [each.name for each in world.plan().writes]
    job = next(each for each in names_of_writes if each.endswith("-amd64"))
    with contextlib.suppress(CutOff):
        world.reconcile(stop_before=names_of_writes.index(job) + 1)
    assert list(world.jobs) == [job]
    world.unlabel(job)
    change(world)
    return world


@pytest.mark.req("BD-093", "BD-324")
def test_a_job_that_was_not_recorded_yet_is_found_by_its_name_and_taken_over() -> None:
    """Else the new run would make a second Job for the same key."""
    override = [{"architecture": "arm64", "containerfile": "FROM busybox:1.36\nRUN echo arm\n"}]
    world = before_the_record(lambda world: world.set("source.overrides", override))
    world.build_all()
    assert [each.split()[0] for each in sorted(world.made)] == ["amd64", "arm64"]
    assert (world.jobs, world.status()["summary"]) == ({}, "2/2")


@pytest.mark.req("BD-127")
def test_a_job_that_was_not_recorded_yet_and_is_not_wanted_any_more_is_deleted() -> None:
    """It would push an image that nobody asked for, until its run is pruned."""
    world = before_the_record(lambda world: world.set("source.containerfile", "FROM busybox:1.36\nRUN other\n"))
    (former,) = world.jobs
    world.reconcile(rounds=3)
    assert former not in world.jobs


@pytest.mark.req("BD-324")
def test_a_foreign_job_of_that_name_is_left_alone() -> None:
    world = before_the_record(lambda world: world.set("source.containerfile", "FROM busybox:1.36\nRUN other\n"))
    ((name, job),) = world.jobs.items()
    job["spec"]["template"]["metadata"]["labels"] = {"app": "somebody else's"}
    world.reconcile(rounds=3)
    assert names.RUN_LABEL not in world.jobs[name]["metadata"]["labels"]
