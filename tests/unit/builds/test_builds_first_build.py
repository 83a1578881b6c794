"""The first build of an image, from nothing to a published index."""

from builds_world import REPOSITORY, World


def test_a_first_build_makes_one_job_for_each_architecture() -> None:
    world = World()
    plan = world.plan()
    assert plan.decision == "Build"
    jobs = [write.name for write in plan.writes if write.kind == "Job"]
    assert len(jobs) == 2
    assert [each.action for each in plan.per_architecture] == ["Build", "Build"]


def test_bd_006_a_plan_that_was_carried_out_has_nothing_more_to_do() -> None:
    world = World()
    world.reconcile()
    after = world.plan()
    assert [(write.verb, write.kind, write.name, write.step) for write in after.writes] == []
    assert after.decision == "InProgress"


def test_children_become_an_index_with_tags() -> None:
    world = World()
    world.set("output.tags", ["latest"])
    world.build_all()
    status = world.status()
    assert status["image"].startswith(f"{REPOSITORY}@sha256:")
    assert world.tags[f"{REPOSITORY}:latest"] == status["image"].partition("@")[2]
    assert status["summary"] == "2/2"
    assert world.condition("Ready") == ("True", "Published")
    assert world.jobs == {}
