"""``registryAccess: Job``: pods publish, move tags and say what is missing; the builder asks no registry."""

from typing import Any

import msgspec
import pytest
from builds_world import REPOSITORY, SPEC, BuildPlanWorld, CutOff, made_by

from polyarch.builds import names
from polyarch.builds.facts.build_facts import SecretFacts
from polyarch.builds.jobs import contract

BY_JOB = {**SPEC, "registryAccess": "Job"}


def world_of(**parts: Any) -> BuildPlanWorld:
    return BuildPlanWorld({**BY_JOB, **parts})


def until_published(world: BuildPlanWorld) -> None:
    """Every architecture is built, and the index Job is at work."""
    world.reconcile()
    for architecture in ("amd64", "arm64"):
        world.succeed(architecture)
    world.reconcile(rounds=2)


def built(**parts: Any) -> BuildPlanWorld:
    world = world_of(**parts)
    world.build_all()
    world.made.clear()
    return world


def job_names(world: BuildPlanWorld) -> list[str]:
    return sorted(made_by(job) for job in world.jobs.values())


def made(world: BuildPlanWorld) -> list[str]:
    return [each.split()[0] for each in world.made]


def run_phases(world: BuildPlanWorld) -> list[str]:
    return [run["status"]["phase"] for run in world.runs.values()]


@pytest.mark.req("BD-178")
def test_a_job_publishes_the_result_once_every_image_is_known() -> None:
    world = world_of()
    world.reconcile()
    world.succeed("amd64")
    world.reconcile()
    assert "index" not in job_names(world), "made only when all children are known"
    world.succeed("arm64")
    world.reconcile()
    assert (world.settle().decision, run_phases(world)) == ("InProgress", ["Assembling"])
    assert (world.tags.keys() - {f"{REPOSITORY}:{name}" for name in child_tags(world)}) == set()
    world.publish()
    world.settle()
    (run,) = world.runs
    assert world.status()["image"].partition("@")[2] == world.tags[f"{REPOSITORY}:{run}"]
    assert (run_phases(world), world.condition("Ready")) == (["Succeeded"], ("True", "Published"))
    assert (world.jobs, made(world)) == ({}, ["amd64", "arm64", "index"])
    assert world.plan().decision == "UpToDate"


def child_tags(world: BuildPlanWorld) -> list[str]:
    return [f"{run}-{architecture}" for run in world.runs for architecture in ("amd64", "arm64")]


@pytest.mark.req("BD-178")
def test_no_registry_is_asked_and_no_secret_is_read() -> None:
    output = {**SPEC["output"], "pushSecret": {"name": "push"}, "pullSecrets": [{"name": "pull"}], "tags": ["latest"]}
    world = world_of(output=output)
    world.secrets["push"] = world.secrets["pull"] = SecretFacts(type="Opaque")  # unusable, if anybody looked
    world.build_all()
    world.set("source.containerfile", "FROM busybox:1.36\nRUN false\n")
    world.reconcile()
    world.fail("amd64", code=44, message="denied")
    world.succeed("arm64")
    world.reconcile(rounds=3)
    assert world.asked == []


@pytest.mark.req("BD-178")
def test_the_index_job_is_told_the_images_and_the_tags() -> None:
    world = world_of(output={**SPEC["output"], "tags": ["latest"]})
    until_published(world)
    (run,) = world.runs
    name = world.job_of("index")
    assert name == f"{run}-index"
    labels = world.jobs[name]["metadata"]["labels"]
    assert (labels[names.RUN_LABEL], labels[names.ROLE_LABEL]) == (run, "index")
    text = next(each["data"]["index.json"] for key, each in world.config_maps.items() if key.startswith(f"{name}-in"))
    told = msgspec.json.decode(text)
    assert [each["architecture"] for each in told["children"]] == ["amd64", "arm64"]
    assert (told["repository"], told["tags"]) == (REPOSITORY, [run, "latest"])


@pytest.mark.req("BD-179")
def test_one_architecture_without_an_index_is_tagged_by_a_job_as_well() -> None:
    world = world_of(architectures={"mode": "Explicit", "list": ["amd64"]})
    world.build_all()
    assert world.status()["image"].partition("@")[2] == world.status()["images"][0]["reference"].partition("@")[2]


@pytest.mark.req("BD-102")
def test_tags_are_moved_by_a_job_and_told_when_it_is_done() -> None:
    world = built()
    world.set("output.tags", ["latest"])
    plan = world.reconcile()
    assert (plan.decision, made(world), world.status().get("tags")) == ("Retag", ["index"], None)
    assert not world.settle().writes
    world.publish()
    world.settle()
    assert world.tags[f"{REPOSITORY}:latest"] == world.status()["image"].partition("@")[2]
    assert (world.status()["tags"], world.jobs) == (["latest"], {})


@pytest.mark.req("BD-123")
def test_back_to_former_inputs_a_job_moves_the_tags_back() -> None:
    world = built(output={**SPEC["output"], "tags": ["latest"]})
    first = world.status()["image"]
    world.set("source.containerfile", "FROM busybox:1.36\nRUN other\n")
    world.build_all()
    world.made.clear()
    world.set("source.containerfile", BY_JOB["source"]["containerfile"])
    plan = world.reconcile()
    assert (plan.decision, made(world), world.status()["image"] == first) == ("Repoint", ["index"], False)
    world.publish()
    world.settle()
    assert (world.status()["image"], world.tags[f"{REPOSITORY}:latest"]) == (first, first.partition("@")[2])


@pytest.mark.req("BD-125")
def test_what_a_former_result_lost_is_built_again() -> None:
    world = built(output={**SPEC["output"], "tags": ["latest"]})
    lost = next(each["reference"] for each in world.status()["images"] if each["architecture"] == "arm64")
    world.set("source.containerfile", "FROM busybox:1.36\nRUN other\n")
    world.build_all()
    world.vanish(lost.partition("@")[2])
    world.set("source.containerfile", BY_JOB["source"]["containerfile"])
    world.reconcile()
    world.publish()
    world.made.clear()
    world.build_all()
    assert made(world) == ["arm64", "index"]
    assert {each["architecture"] for each in world.status()["images"]} == {"amd64", "arm64"}
    assert world.plan().decision == "UpToDate"


def lose_arm64(world: BuildPlanWorld) -> None:
    """The registry loses the image before the index Job looks; the builder takes note."""
    (run,) = world.runs.values()
    world.vanish(next(each["digest"] for each in run["status"]["architectures"] if each["architecture"] == "arm64"))
    world.publish()
    world.reconcile(rounds=3)


@pytest.mark.req("BD-177")
def test_an_image_that_is_gone_is_built_once_more() -> None:
    """Its record is not believed again; the new image may have the same digest."""
    world = world_of()
    until_published(world)
    lose_arm64(world)
    assert made(world) == ["amd64", "arm64", "index", "arm64"]
    world.build_all()
    assert (run_phases(world), world.condition("Ready")) == (["Succeeded"], ("True", "Published"))


@pytest.mark.req("BD-177")
def test_a_registry_that_loses_it_twice_is_inconsistent() -> None:
    world = world_of()
    until_published(world)
    lose_arm64(world)
    world.succeed("arm64")
    world.reconcile(rounds=2)
    lose_arm64(world)
    assert (run_phases(world), world.condition("Degraded")) == (["Failed"], ("True", "RegistryInconsistent"))


@pytest.mark.req("BD-218")
def test_a_refused_push_is_tried_again_after_ten_minutes_since_no_secret_is_read() -> None:
    world = world_of(output={**SPEC["output"], "pushSecret": {"name": "push"}})
    until_published(world)
    world.fail("index", code=44, message='{"v":1,"reason":"PushDenied","message":"denied: no rights"}')
    world.settle()
    assert (run_phases(world), world.condition("Degraded")) == (["Failed"], ("True", "PushDenied"))
    assert "index" in job_names(world), "its logs can be read"
    plan = world.plan()
    assert (plan.decision, plan.requeue_after) == ("Held", 600.0)
    world.now += 601
    world.made.clear()
    world.build_all()
    assert (made(world), world.condition("Ready")) == (["index"], ("True", "Published"))


@pytest.mark.req("BD-150")
def test_an_index_job_of_which_nothing_is_known_is_made_again() -> None:
    world = world_of()
    until_published(world)
    world.publish()
    world.pods.clear()
    world.reconcile()
    assert job_names(world) == ["amd64", "arm64"]
    world.build_all()
    assert (made(world).count("index"), world.condition("Ready")) == (2, ("True", "Published"))


@pytest.mark.req("BD-322")
def test_an_index_job_that_published_something_else_is_not_believed() -> None:
    world = world_of()
    until_published(world)
    world.publish(f'{{"v":1,"size":9,"digest":"sha256:{"0" * 64}"}}')
    world.settle()
    assert (run_phases(world), world.condition("Degraded")) == (["Failed"], ("True", "RegistryInconsistent"))
    assert "image" not in world.status()


@pytest.mark.req("BD-220")
def test_a_refused_index_job_is_tried_again_and_fails_in_the_end() -> None:
    world = world_of()
    world.reconcile()
    (run,) = world.runs
    world.refused[f"{run}-index"] = "exceeded quota"
    for architecture in ("amd64", "arm64"):
        world.succeed(architecture)
    plan = world.reconcile()
    assert plan.requeue_after is not None
    assert run_phases(world) == ["Assembling"]
    world.refused.clear()
    world.now += 20
    world.reconcile()
    assert "index" in job_names(world)
    world.delete_job(world.job_of("index"))
    world.refused[f"{run}-index"] = "exceeded quota"
    world.now += 3600
    world.reconcile(rounds=2)
    assert (run_phases(world), world.condition("Degraded")) == (["Failed"], ("True", "JobRefused"))


@pytest.mark.req("BD-178")
def test_two_index_jobs_of_one_build_are_never_at_work_at_once() -> None:
    """The former could move a tag after the later one did."""
    world = world_of(output={**SPEC["output"], "tags": ["latest"]})
    until_published(world)
    former = world.job_of("index")
    world.set("output.annotations", {"a": "b"})
    plan = world.plan()
    deletion = next(each for each in plan.writes if each.verb == "delete" and each.name == former)
    assert deletion.how == "foreground", "it is there until its pods are gone"
    world.carry_out(plan)
    world.jobs[former] = {**restored(world, former)}
    world.reconcile(rounds=2)
    assert made(world).count("index") == 1
    world.delete_job(former)
    world.build_all()
    assert world.tags[f"{REPOSITORY}:latest"] == world.status()["image"].partition("@")[2]


def restored(world: BuildPlanWorld, name: str) -> dict[str, Any]:
    """A Job that is being deleted, as the API server shows it while its pods end."""
    run = name.removesuffix("-index")
    labels = {names.BUILD_LABEL: "web", names.RUN_LABEL: run, names.ROLE_LABEL: "index"}
    metadata = {"name": name, "namespace": "team", "uid": "going", "labels": labels, "annotations": {}}
    return {"metadata": {**metadata, "deletionTimestamp": "2027-01-15T08:00:00Z"}, "spec": {"template": {}}}


@pytest.mark.req("BD-197")
@pytest.mark.parametrize("at", range(12))
def test_the_builder_may_die_before_any_write(at: int) -> None:
    world = world_of(output={**SPEC["output"], "tags": ["latest"]})
    for _ in range(10):
        try:
            world.reconcile(stop_before=at)
        except CutOff:
            world.now += 1
        world.reconcile()
        for job in [job for job in world.jobs.values() if not (job.get("status") or {}).get("conditions")]:
            if made_by(job) == "index":
                world.publish()
            else:
                world.succeed(made_by(job))
    world.settle()
    assert (sorted(made(world)), world.jobs) == (["amd64", "arm64", "index"], {})
    assert world.tags[f"{REPOSITORY}:latest"] == world.status()["image"].partition("@")[2]


@pytest.mark.req("BD-178")
def test_pods_that_publish_have_the_push_secret_only() -> None:
    world = world_of(output={**SPEC["output"], "pushSecret": {"name": "push"}, "pullSecrets": [{"name": "pull"}]})
    until_published(world)
    pod = world.jobs[world.job_of("index")]["spec"]["template"]["spec"]
    assert [each["secret"]["secretName"] for each in pod["volumes"] if "secret" in each] == ["push"]
    assert [each["name"] for each in pod["containers"]] == [contract.INDEX_CONTAINER]


@pytest.mark.req("BD-137", "BD-178")
def test_an_index_job_of_an_execution_that_no_cache_shows_is_waited_for() -> None:
    """Runs and Jobs are watched apart; the Job of a Run that is not seen, or of an ImageBuild of this name that
    was deleted, moves the same tags."""
    world = world_of(output={**SPEC["output"], "tags": ["latest"]})
    until_published(world)
    former = world.job_of("index")
    world.set("output.annotations", {"a": "b"})
    unseen = world.runs.popitem()
    world.reconcile(rounds=3)
    assert [name for name in world.jobs if name.endswith("-index")] == [former]
    world.delete_job(former)
    world.build_all()
    assert world.tags[f"{REPOSITORY}:latest"] == world.status()["image"].partition("@")[2]
    assert unseen[0] not in world.runs
