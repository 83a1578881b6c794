"""Writes to the API server: safe to repeat, by name, under preconditions, and never over somebody else's object;
a status only when it differs, progress at most every two seconds."""

from typing import Any

import msgspec
import pytest
from builder_world import KINDS, REF, BuilderWorld
from msgspec.structs import replace

from polyarch.builds.controller.informers import BuildRef
from polyarch.builds.controller.writes import WriteResult, jobs_of
from polyarch.builds.facts.build_facts import BuildStep, WriteFailure
from polyarch.builds.plan.document import Write, uid_placeholder
from polyarch.kube.errors import Forbidden, Unavailable
from polyarch.kube.resources import CONFIGMAPS, JOBS
from polyarch.objects import ObjectKey

RUN_OWNER = {"apiVersion": "polyarch.dev/v1alpha1", "kind": "ImageBuildRun", "name": "web-1", "uid": "run-1"}
MARKS = {"polyarch.dev/image-build": "web", "polyarch.dev/run": "web-1", "polyarch.dev/architecture": "arm64"}


def request(world: BuilderWorld, **metadata: Any) -> None:
    """The ImageBuild, as the API server has it."""
    world.api.put(KINDS["ImageBuild"], {"metadata": {"name": "web", "namespace": "team", "uid": "web-uid"} | metadata})


def run(world: BuilderWorld, **metadata: Any) -> None:
    """The Run that Jobs are made for, as the API server has it."""
    world.api.put(
        KINDS["ImageBuildRun"], {"metadata": {"name": "web-1", "namespace": "team", "uid": "run-1"} | metadata}
    )


@pytest.fixture
def world() -> BuilderWorld:
    made = BuilderWorld()
    request(made)
    run(made)
    return made


def a_job(name: str = "web-1-arm64", **metadata: Any) -> Write:
    body = {"metadata": {"name": name, "labels": MARKS, "ownerReferences": [{**RUN_OWNER, "controller": True}]}}
    body["metadata"] |= metadata
    return Write(verb="create", kind="Job", namespace="team", name=name, step=BuildStep.CREATE_JOB, body=body)


def a_run(spec: dict[str, Any]) -> Write:
    owner = {"kind": "ImageBuild", "name": "web", "uid": "web-uid"}
    body = {"metadata": {"name": "web-2", "ownerReferences": [owner]}, "spec": spec}
    return Write(
        verb="create", kind="ImageBuildRun", namespace="team", name="web-2", step=BuildStep.CREATE_EXECUTION, body=body
    )


def a_status(status: dict[str, Any], uid: str = "") -> Write:
    return Write(verb="status", kind="ImageBuildRun", namespace="team", name="web-2", uid=uid, body={"status": status})


@pytest.mark.req("BD-137")
async def test_a_job_that_is_there_already_with_our_owner_is_not_made_again(world):
    assert await world.do(a_job()) is WriteResult.DONE
    assert await world.do(a_job()) is WriteResult.NOT_NEEDED
    jobs = [each for each in world.api.objects if each[0] == JOBS]
    assert len(jobs) == 1


@pytest.mark.req("BD-324")
async def test_somebody_elses_job_under_our_name_is_left_alone(world):
    world.api.put(JOBS, {"metadata": {"name": "web-1-arm64", "namespace": "team", "uid": "theirs"}})
    before = world.api.read(JOBS, "web-1-arm64", "team")
    result = await world.do(a_job())
    assert isinstance(result, WriteFailure)
    assert (result.code, result.kind, result.name, result.step) == (
        "NameConflict",
        "Job",
        "web-1-arm64",
        BuildStep.CREATE_JOB,
    )
    assert world.api.read(JOBS, "web-1-arm64", "team") == before


@pytest.mark.req("BD-324")
async def test_a_job_whose_owner_somebody_took_away_is_known_by_its_labels(world):
    world.api.put(JOBS, {"metadata": {"name": "web-1-arm64", "namespace": "team", "uid": "ours", "labels": MARKS}})
    assert await world.do(a_job()) is WriteResult.NOT_NEEDED


async def test_a_job_that_another_execution_controls_is_not_ours_though_it_has_our_labels(world):
    other = {**RUN_OWNER, "uid": "run-2", "controller": True}
    found = {"name": "web-1-arm64", "namespace": "team", "labels": MARKS, "ownerReferences": [other]}
    world.api.put(JOBS, {"metadata": found})
    result = await world.do(a_job())
    assert isinstance(result, WriteFailure)
    assert result.code == "NameConflict"


async def test_a_job_that_is_being_deleted_has_to_go_first(world):
    going = {"name": "web-1-arm64", "namespace": "team", "labels": MARKS, "deletionTimestamp": "2026-01-01T00:00:00Z"}
    world.api.put(JOBS, {"metadata": going})
    assert await world.do(a_job()) is WriteResult.MOVED_ON


@pytest.mark.req("BD-021")
async def test_an_equal_run_is_the_one_and_another_spec_is_a_conflict(world):
    spec = {"serial": 1, "buildKey": "k", "imageBuild": {"name": "web", "uid": "web-uid", "generation": 1}}
    assert await world.do(a_run(spec)) is WriteResult.DONE
    later = {**spec, "format": "OCI", "imageBuild": {**spec["imageBuild"], "generation": 2}}
    assert await world.do(a_run(later)) is WriteResult.NOT_NEEDED, "defaults and the generation make no other Run"
    result = await world.do(a_run({**spec, "buildKey": "other"}))
    assert isinstance(result, WriteFailure)
    assert result.code == "NameConflict"
    assert world.api.read(KINDS["ImageBuildRun"], "web-2", "team")["spec"]["buildKey"] == "k"


@pytest.mark.req("BD-137")
@pytest.mark.parametrize("change", ["deleted", "made again", "going"])
async def test_no_run_is_made_of_a_build_that_only_the_cache_still_has(world, change):
    """The watch of ImageBuilds is behind that of Runs, as after a restart of the API server."""
    world.show()
    match change:
        case "deleted":
            await world.api.delete(KINDS["ImageBuild"], "web", namespace="team")
        case "made again":
            request(world, uid="another")
        case "going":
            request(world, deletionTimestamp="2026-01-01T00:00:00Z")
    assert await world.do(a_run({"serial": 1})) is WriteResult.MOVED_ON
    assert [name for kind, _, name in world.api.objects if kind == KINDS["ImageBuildRun"]] == ["web-1"]


@pytest.mark.req("BD-197")
@pytest.mark.parametrize("change", ["deleted", "made again", "going"])
async def test_no_job_is_made_for_a_run_that_only_the_cache_still_has(world, change):
    """It would be without an owner, and its pod at work, until garbage collection finds it."""
    world.show()
    match change:
        case "deleted":
            await world.api.delete(KINDS["ImageBuildRun"], "web-1", namespace="team")
        case "made again":
            run(world, uid="another")
        case "going":
            run(world, deletionTimestamp="2026-01-01T00:00:00Z")
    with world.writes.uids_of(REF):
        assert await world.do(a_job()) is WriteResult.MOVED_ON
    assert not [each for each in world.api.objects if each[0] == JOBS]


@pytest.mark.req("BD-346")
async def test_a_run_is_read_once_for_all_of_its_jobs_and_not_by_the_round_that_made_it(world):
    def reads():
        return [name for verb, _, name in world.api.requests if verb == "get"]

    with world.writes.uids_of(REF):
        for name in ("web-1-amd64", "web-1-arm64"):
            assert await world.do(a_job(name)) is WriteResult.DONE
    assert reads() == ["web-1"]
    owner = {**RUN_OWNER, "name": "web-2", "uid": uid_placeholder("ImageBuildRun", "web-2")}
    with world.writes.uids_of(REF):
        await world.do(a_run({"serial": 1}))
        await world.do(a_job("web-2-arm64", ownerReferences=[owner]))
    assert reads() == ["web-1", "web"]


@pytest.mark.req("BD-220")
async def test_a_refused_job_is_told_to_the_plan_in_the_servers_words(world):
    async def refuse(verb: str, resource: object, name: str) -> None:
        raise Forbidden(403, reason="Forbidden", message="exceeded quota: pods", verb=verb)

    world.api.hook = refuse
    result = await world.do(a_job())
    assert isinstance(result, WriteFailure)
    assert (result.code, result.message) == ("Forbidden", "exceeded quota: pods")


@pytest.mark.req("BD-221")
async def test_a_server_that_is_away_refuses_nothing(world):
    async def away(verb: str, resource: object, name: str) -> None:
        raise Unavailable(503, reason="ServiceUnavailable")

    world.api.hook = away
    with pytest.raises(Unavailable):
        await world.do(a_job())


# -- statuses ---------------------------------------------------------------------------------------------------------


@pytest.mark.req("BD-243")
async def test_an_equal_status_is_not_written(world):
    await world.do(a_run({"serial": 1}))
    world.show()
    assert await world.do(a_status({"phase": "Pending", "summary": "0/2"})) is WriteResult.DONE
    world.show()
    count = len(world.api.requests)
    assert await world.do(a_status({"phase": "Pending", "summary": "0/2"})) is WriteResult.NOT_NEEDED
    assert len(world.api.requests) == count


@pytest.mark.req("BD-324")
async def test_a_status_that_somebody_edited_is_put_right(world):
    await world.do(a_run({"serial": 1}))
    world.show()
    await world.do(a_status({"phase": "Building", "summary": "0/2"}))
    stored = world.api.read(KINDS["ImageBuildRun"], "web-2", "team")
    stored["status"] = {"phase": "Succeeded", "summary": "0/2", "mine": "too"}
    world.api.put(KINDS["ImageBuildRun"], stored)
    world.show()
    world.clock.advance(10)
    assert await world.do(a_status({"phase": "Building", "summary": "0/2"})) is WriteResult.DONE
    assert world.api.read(KINDS["ImageBuildRun"], "web-2", "team")["status"] == {"phase": "Building", "summary": "0/2"}


@pytest.mark.req("BD-243")
async def test_progress_is_written_every_two_seconds_at_most_and_an_end_at_once(world):
    await world.do(a_run({"serial": 1}))
    world.show()

    def at(phase: str, message: str) -> Write:
        architectures = [{"architecture": "arm64", "phase": phase, "message": message}]
        return a_status({"phase": "Building", "architectures": architectures})

    assert await world.do(at("Building", "one")) is WriteResult.DONE
    world.show()
    world.clock.advance(1.9)
    assert await world.do(at("Building", "two")) is WriteResult.LATER
    world.clock.advance(0.2)
    assert await world.do(at("Building", "two")) is WriteResult.DONE
    world.show()
    assert await world.do(at("Built", "")) is WriteResult.DONE, (
        "a child is recorded at once: the next step stands on it"
    )


@pytest.mark.req("BD-195")
async def test_a_status_is_written_over_what_it_was_compared_with_only(world):
    await world.do(a_run({"serial": 1}))
    world.show()
    stored = world.api.read(KINDS["ImageBuildRun"], "web-2", "team")
    world.api.put(KINDS["ImageBuildRun"], {**stored, "status": {"phase": "Failed"}})
    assert await world.do(a_status({"phase": "Building"})) is WriteResult.MOVED_ON
    assert world.api.read(KINDS["ImageBuildRun"], "web-2", "team")["status"] == {"phase": "Failed"}


async def test_two_writes_to_one_object_in_a_round_need_no_second_look(world):
    await world.do(a_run({"serial": 1}))
    world.show()
    note = {"metadata": {"annotations": {"polyarch.dev/architectures": "amd64,arm64"}}}
    patch = Write(verb="patch", kind="ImageBuildRun", namespace="team", name="web-2", how="merge", body=note)
    assert await world.do(patch) is WriteResult.DONE
    assert await world.do(a_status({"phase": "Building"})) is WriteResult.DONE


# -- patches and deletions --------------------------------------------------------------------------------------------


@pytest.mark.req("BD-093")
async def test_a_job_is_adopted_only_as_it_was_seen(world):
    await world.do(a_job())
    seen = world.api.read(JOBS, "web-1-arm64", "team")["metadata"]["resourceVersion"]
    world.api.put(JOBS, {**world.api.read(JOBS, "web-1-arm64", "team"), "status": {"active": 1}})
    body = {"metadata": {"labels": {"polyarch.dev/run": "web-2"}}}
    adopt = Write(
        verb="patch", kind="Job", namespace="team", name="web-1-arm64", how="merge", resource_version=seen, body=body
    )
    assert await world.do(adopt) is WriteResult.MOVED_ON
    assert world.api.read(JOBS, "web-1-arm64", "team")["metadata"]["labels"]["polyarch.dev/run"] == "web-1"


@pytest.mark.req("BD-282")
async def test_what_is_written_to_an_object_that_is_going_is_not_done(world):
    """A record goes once its images have gone; the build of the same name that needs another one waits for that."""
    going = {"name": "arch-web", "namespace": "team", "deletionTimestamp": "2027-01-01T00:00:00Z"}
    world.api.put(CONFIGMAPS, {"metadata": going})
    body = {"metadata": {"name": "arch-web", "namespace": "team"}, "data": {"a": "b"}}
    record = Write(verb="patch", kind="ConfigMap", namespace="team", name="arch-web", how="apply", body=body)
    assert await world.do(record) is WriteResult.MOVED_ON


@pytest.mark.req("BD-196")
async def test_a_job_is_deleted_by_its_uid_and_a_gone_one_is_done(world):
    await world.do(a_job())
    other = Write(
        verb="delete", kind="Job", namespace="team", name="web-1-arm64", uid="another", step=BuildStep.DELETE_JOB
    )
    assert await world.do(other) is WriteResult.MOVED_ON
    uid = world.api.read(JOBS, "web-1-arm64", "team")["metadata"]["uid"]
    own = Write(verb="delete", kind="Job", namespace="team", name="web-1-arm64", uid=uid, step=BuildStep.DELETE_JOB)
    assert await world.do(own) is WriteResult.DONE
    assert await world.do(own) is WriteResult.NOT_NEEDED


async def test_an_object_that_changed_since_it_was_seen_is_not_deleted(world):
    await world.do(a_job())
    seen = world.api.read(JOBS, "web-1-arm64", "team")["metadata"]
    world.api.change(JOBS, ObjectKey("team", "web-1-arm64"), lambda job: job.update(status={"active": 1}))
    own = Write(verb="delete", kind="Job", namespace="team", name="web-1-arm64", uid=seen["uid"])
    assert await world.do(replace(own, resource_version=seen["resourceVersion"])) is WriteResult.MOVED_ON
    now = world.api.read(JOBS, "web-1-arm64", "team")["metadata"]["resourceVersion"]
    assert await world.do(replace(own, resource_version=now)) is WriteResult.DONE


@pytest.mark.req("BD-049")
async def test_a_config_map_is_written_only_when_different(world):
    def record(content: str) -> Write:
        body = {"metadata": {"labels": MARKS, "ownerReferences": [RUN_OWNER]}, "data": {"architectures.json": content}}
        return Write(verb="patch", kind="ConfigMap", namespace="team", name="web-1-arch", how="apply", body=body)

    assert await world.do(record("a")) is WriteResult.DONE
    world.show()
    count = len(world.api.requests)
    assert await world.do(record("a")) is WriteResult.NOT_NEEDED
    assert len(world.api.requests) == count
    assert await world.do(record("b")) is WriteResult.DONE
    assert world.api.read(CONFIGMAPS, "web-1-arch", "team")["data"] == {"architectures.json": "b"}


# -- own writes that the caches do not show ---------------------------------------------------------------------------


@pytest.mark.req("BD-137")
async def test_a_build_waits_until_every_cache_shows_what_it_has_written(world):
    await world.do(a_run({"serial": 1}))
    await world.do(a_job())
    assert world.expectations.is_stale(REF)
    world.show("ImageBuildRun")
    assert world.expectations.is_stale(REF), "the cache of Jobs is behind"
    world.show("Job")
    assert not world.expectations.is_stale(REF)
    job = world.api.read(JOBS, "web-1-arm64", "team")["metadata"]["uid"]
    await world.do(Write(verb="delete", kind="Job", namespace="team", name="web-1-arm64", uid=job))
    assert world.expectations.is_stale(REF), "the deleted Job is still shown"
    world.show("Job")
    assert not world.expectations.is_stale(REF)
    other = BuildRef("ImageBuild", "team", "api")
    assert not world.expectations.is_stale(other)
    await world.do(a_status({"phase": "Building"}))
    assert world.expectations.is_stale(REF), "the status of the Run is the one of before"
    world.show("ImageBuildRun")
    assert not world.expectations.is_stale(REF)


@pytest.mark.req("BD-137")
@pytest.mark.parametrize("shown", ["going", "another"])
async def test_a_deleted_job_is_done_with_once_the_cache_shows_it_going_or_another_one(world, shown):
    """With a finalizer it stays for as long as its owner likes."""
    await world.do(a_job())
    world.show()
    job = world.api.read(JOBS, "web-1-arm64", "team")["metadata"]["uid"]
    await world.do(Write(verb="delete", kind="Job", namespace="team", name="web-1-arm64", uid=job))
    assert world.expectations.is_stale(REF)
    changed = {"uid": job, "deletionTimestamp": "2027-01-01T00:00:00Z"} if shown == "going" else {"uid": "another"}
    world.api.put(JOBS, {"metadata": {"name": "web-1-arm64", "namespace": "team", **changed}})
    world.show("Job")
    assert not world.expectations.is_stale(REF)


@pytest.mark.req("BD-137")
async def test_a_cache_that_never_shows_a_deletion_holds_a_build_for_a_minute(world):
    await world.do(a_job())
    world.show()
    job = world.api.read(JOBS, "web-1-arm64", "team")["metadata"]["uid"]
    await world.do(Write(verb="delete", kind="Job", namespace="team", name="web-1-arm64", uid=job))
    world.clock.advance(59)
    assert world.expectations.is_stale(REF)
    world.clock.advance(2)
    assert not world.expectations.is_stale(REF)


@pytest.mark.req("BD-049")
@pytest.mark.parametrize("part", ["labels", "ownerReferences", "data"])
async def test_each_part_of_a_config_map_that_differs_is_written(world, part):
    body = {"metadata": {"labels": MARKS, "ownerReferences": [RUN_OWNER]}, "data": {"a": "b"}, "immutable": None}
    other = {"labels": {"polyarch.dev/run": "web-2"}, "ownerReferences": [{**RUN_OWNER, "uid": "run-2"}]}
    if part == "data":
        changed = {**body, "data": {"a": "c"}}
    else:
        changed = {**body, "metadata": {**body["metadata"], part: other[part]}}
    record = Write(verb="patch", kind="ConfigMap", namespace="team", name="web-1-arch", how="apply", body=body)
    await world.do(record)
    world.show()
    assert await world.do(record) is WriteResult.NOT_NEEDED
    assert await world.do(msgspec.structs.replace(record, body=changed)) is WriteResult.DONE


@pytest.mark.req("BD-196")
async def test_what_a_round_creates_owns_what_it_creates_next(world):
    """A Job of a Run that was made a moment ago: its UID is in nobody's plan."""
    owner = {**RUN_OWNER, "name": "web-2", "uid": uid_placeholder("ImageBuildRun", "web-2")}
    with world.writes.uids_of(REF):
        await world.do(a_run({"serial": 1}))
        await world.do(a_job(ownerReferences=[owner]))
    run = world.api.read(KINDS["ImageBuildRun"], "web-2", "team")["metadata"]["uid"]
    assert world.api.read(JOBS, "web-1-arm64", "team")["metadata"]["ownerReferences"][0]["uid"] == run


@pytest.mark.req("BD-196")
async def test_a_run_that_was_found_owns_as_well(world):
    await world.do(a_run({"serial": 1}))
    owner = {**RUN_OWNER, "name": "web-2", "uid": uid_placeholder("ImageBuildRun", "web-2")}
    with world.writes.uids_of(REF):
        assert await world.do(a_run({"serial": 1})) is WriteResult.NOT_NEEDED
        await world.do(a_job(ownerReferences=[owner]))
    run = world.api.read(KINDS["ImageBuildRun"], "web-2", "team")["metadata"]["uid"]
    assert world.api.read(JOBS, "web-1-arm64", "team")["metadata"]["ownerReferences"][0]["uid"] == run


@pytest.mark.req("BD-093")
async def test_a_job_settles_for_every_build_of_its_namespace(world):
    await world.do(a_job())
    assert world.expectations.is_stale(jobs_of("team"))
    assert not world.expectations.is_stale(jobs_of("other"))
    world.show("Job")
    assert not world.expectations.is_stale(jobs_of("team"))
