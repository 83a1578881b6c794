"""Passes over a build: questions answered, writes in the plan's order, failures told, events once."""

import asyncio

import msgspec
import pytest
from builder_world import KINDS, REF, BuilderWorld, planned

from polyarch.builds.api.resources import ImageBuildSpec
from polyarch.builds.controller.informers import BuildRef
from polyarch.builds.controller.reconciler import (
    LATEST_WRITE,
    MAX_POSTED_EVENTS,
    UNANSWERED,
    PostedEvents,
    RepositoryLocks,
)
from polyarch.builds.controller.writes import WriteResult, jobs_of
from polyarch.builds.facts.build_facts import (
    BuildFacts,
    BuildLookup,
    BuildStep,
    Execution,
    FoundJob,
    WriteFailure,
)
from polyarch.builds.plan.conditions import STATUS_INTERVAL
from polyarch.builds.plan.document import (
    BuildPlan,
    EventObject,
    PlannedArchitecture,
    PlannedEvent,
    Write,
    uid_placeholder,
)
from polyarch.kube.controller import Controller, NoRequeue, RequeueAfter
from polyarch.kube.resources import JOBS, RUNTIME_CLASSES
from polyarch.objects import ObjectKey

pytestmark = pytest.mark.req("BD-001")


def create(name: str) -> Write:
    body = {"metadata": {"name": name, "ownerReferences": [{"kind": "ImageBuildRun", "name": "run", "uid": "run"}]}}
    return Write(verb="create", kind="Job", namespace="team", name=name, step=BuildStep.CREATE_JOB, body=body)


@pytest.fixture
def world() -> BuilderWorld:
    made = BuilderWorld()
    made.api.put(KINDS["ImageBuildRun"], {"metadata": {"name": "run", "namespace": "team", "uid": "run"}})
    return made


async def test_a_plan_without_writes_ends_the_pass_until_it_asks_to_be_made_again(world):
    assert await world.look() == NoRequeue()
    world.plans = lambda facts: planned(requeue_after=30.0)
    assert await world.look() == RequeueAfter(30.0)
    world.inputs.again = 10.0
    assert await world.look() == RequeueAfter(10.0)
    assert world.api.requests == []


@pytest.mark.req("BD-243")
async def test_progress_that_was_not_written_yet_is_written_two_seconds_later(world):
    await world.api.create(KINDS["ImageBuildRun"], {"metadata": {"name": "web-1"}}, namespace="team")
    world.show()

    def progress(message: str) -> BuildPlan:
        status = {
            "phase": "Building",
            "architectures": [{"architecture": "a", "phase": "Building", "message": message}],
        }
        return planned(
            Write(verb="status", kind="ImageBuildRun", namespace="team", name="web-1", body={"status": status}),
            requeue_after=60.0,
        )

    world.plans = lambda facts: progress("one")
    assert await world.look() == RequeueAfter(60.0)
    world.show()
    world.clock.advance(1)
    world.plans = lambda facts: progress("two")
    assert await world.look() == RequeueAfter(STATUS_INTERVAL)
    world.clock.advance(STATUS_INTERVAL)
    assert await world.look() == RequeueAfter(60.0)
    stored = world.api.read(KINDS["ImageBuildRun"], "web-1", "team")["status"]
    assert stored["architectures"][0]["message"] == "two"


async def test_questions_are_answered_and_the_plan_is_made_again(world):
    tag, child = "quay.io/base/os:9", "quay.io/team/web@sha256:" + "a" * 64

    def asking(facts: BuildFacts) -> BuildPlan:
        if tag not in facts.images:
            return planned(lookups=(BuildLookup(reference=tag, what="inspect"),), decision="Wait")
        if not facts.pins_fresh:
            lookups = (
                BuildLookup(reference=tag, what="inspect", revalidate=True),
                BuildLookup(reference=child, what="head"),
                BuildLookup(reference="texts", what="configmap"),
                BuildLookup(reference="push", what="secret"),
            )
            return planned(lookups=lookups, decision="Wait")
        return planned()

    world.plans = asking
    assert await world.look() == NoRequeue()
    assert world.registry.asked == [("inspect", tag), ("fresh inspect", tag), ("head", child)]
    last = world.seen[-1]
    assert last.existing[child].digest
    assert last.inputs.config_maps == {"texts": {"data": {"Containerfile": "FROM scratch"}}}
    assert last.inputs.secrets == {"push": None}
    assert last.inputs.readable


@pytest.mark.req("BD-331")
async def test_a_namespace_in_which_secrets_may_not_be_read_is_told_to_the_plan(world):
    world.inputs.forbidden = True
    lookup = BuildLookup(reference="push", what="secret")
    world.plans = lambda facts: planned() if "push" in facts.inputs.secrets else planned(lookups=(lookup,))
    await world.look()
    assert not world.seen[-1].inputs.readable


@pytest.mark.req("BD-331")
@pytest.mark.parametrize("what", ["inspect", "head"])
async def test_a_registry_that_cannot_be_asked_for_want_of_a_secret_has_not_refused(world, what):
    """The plan says who has to allow it, and does not ask for ever."""
    world.registry.forbidden = True
    lookup = BuildLookup(reference="quay.io/base/os:9", what=what)
    world.plans = lambda facts: planned(lookups=() if {**facts.images, **facts.existing} else (lookup,))
    await world.look()
    assert not world.seen[-1].inputs.readable


@pytest.mark.req("BD-331")
async def test_a_push_that_waits_for_a_right_is_told_as_unreadable_inputs_and_tried_again(world):
    """No failure of the execution: when the administrator has bound the role, the next look publishes."""
    world.registry_writes.answer = WriteFailure(verb="push-index", code="NamespaceNotEnabled")
    push = Write(verb="push-index", reference="quay.io/team/web@sha256:" + "b" * 64, step=BuildStep.PUBLISH)
    world.plans = lambda facts: planned(push) if facts.inputs.readable else planned(requeue_after=60.0)
    assert [await world.look(), await world.look()] == [RequeueAfter(0.0), RequeueAfter(60.0)]
    assert (world.seen[-1].failures, world.seen[-1].inputs.readable) == ((), False)
    world.registry_writes.answer = WriteResult.DONE
    assert await world.look() == NoRequeue()
    assert world.registry_writes.done == [push, push]


@pytest.mark.req("BD-152")
async def test_a_runtime_class_is_read_by_its_name(world):
    world.api.put(RUNTIME_CLASSES, {"metadata": {"name": "sandboxed"}, "handler": "runsc"})
    lookups = tuple(BuildLookup(reference=each, what="runtimeclass") for each in ("sandboxed", "gone"))
    world.plans = lambda facts: planned() if facts.runtime_handlers else planned(lookups=lookups)
    await world.look()
    assert world.seen[-1].runtime_handlers == {"sandboxed": "runsc", "gone": None}


@pytest.mark.req("BD-324")
async def test_a_job_that_no_watch_shows_is_read_by_its_name(world):
    labels = {"polyarch.dev/run": "web-1"}
    template = {"template": {"metadata": {"labels": labels}}}
    world.api.put(JOBS, {"metadata": {"name": "live", "namespace": "team", "uid": "j"}, "spec": template})
    going = {"name": "going", "namespace": "team", "uid": "k", "deletionTimestamp": "2027-01-01T00:00:00Z"}
    world.api.put(JOBS, {"metadata": going})
    lookups = tuple(BuildLookup(reference=each, what="job") for each in ("live", "going", "gone"))
    world.plans = lambda facts: planned() if facts.found_jobs else planned(lookups=lookups)
    await world.look()
    found = world.seen[-1].found_jobs
    assert found == {"live": FoundJob(uid="j", template_labels=labels), "going": None, "gone": None}


async def test_a_plan_that_asks_for_ever_is_a_bug_that_is_named(world):
    world.plans = lambda facts: planned(lookups=(BuildLookup(reference="quay.io/a/b:1", what="inspect"),))
    with pytest.raises(RuntimeError, match=r"the plan asks again what was answered: inspect quay\.io/a/b:1"):
        await world.look()


@pytest.mark.req("BD-347")
async def test_what_a_head_has_found_is_not_asked_again_while_an_execution_is_under_way(world):
    child = BuildLookup(reference="quay.io/team/web@sha256:" + "a" * 64, what="head")
    broken = BuildLookup(reference="quay.io/team/broken:1", what="head")

    def asking(facts: BuildFacts) -> BuildPlan:
        there = child.reference in facts.existing
        return planned(execution="web-1") if there else planned(lookups=(child, broken))

    world.plans = asking
    for _ in range(5):
        await world.look()
    assert world.registry.asked.count(("head", child.reference)) == 1
    assert world.registry.asked.count(("head", broken.reference)) == 5, "an error is no answer to keep"
    world.plans = lambda facts: planned(
        Write(verb="tag", reference="quay.io/team/web@sha256:" + "a" * 64, step=BuildStep.MOVE_TAGS), execution="web-1"
    )
    await world.look()
    world.plans = asking
    await world.look()
    assert world.registry.asked.count(("head", child.reference)) == 2, "after a write it is asked again"


@pytest.mark.req("BD-196")
async def test_writes_are_carried_out_in_the_plans_order(world):
    push = Write(verb="push-index", reference="quay.io/team/web@sha256:" + "b" * 64, step=BuildStep.PUBLISH)
    world.plans = lambda facts: planned(create("a"), create("b"), push)
    await world.look()
    assert [name for verb, _, name in world.api.requests if verb == "create"] == ["a", "b"]
    assert world.registry_writes.done == [push]


async def test_a_refused_write_ends_the_round_and_is_told_to_the_next_plan_once(world):
    world.api.put(JOBS, {"metadata": {"name": "a", "namespace": "team", "uid": "theirs"}})
    world.plans = lambda facts: planned() if facts.failures else planned(create("a"), create("b"))
    assert await world.look() == RequeueAfter(0.0)
    assert [name for verb, _, name in world.api.requests if verb == "create"] == ["a"]
    assert await world.look() == NoRequeue()
    (failure,) = world.seen[-1].failures
    assert (failure.code, failure.name) == ("NameConflict", "a")
    await world.look()
    assert world.seen[-1].failures == (), "it is tried again: the world may have changed"


@pytest.mark.req("BD-220")
async def test_refusals_are_told_together_until_a_plan_was_carried_out(world):
    """Two Jobs that a quota refuses: a plan that knew of one of them only would make the other one again, for ever."""
    for name in ("a", "b"):
        world.api.put(JOBS, {"metadata": {"name": name, "namespace": "team", "uid": "theirs"}})

    def others(facts: BuildFacts) -> BuildPlan:
        refused = {each.name for each in facts.failures}
        return planned(*(create(name) for name in ("a", "b", "c") if name not in refused))

    world.plans = others
    assert [await world.look(), await world.look()] == [RequeueAfter(0.0), RequeueAfter(0.0)]
    assert await world.look() == NoRequeue()
    assert {each.name for each in world.seen[-1].failures} == {"a", "b"}
    world.show()
    await world.look()
    assert world.seen[-1].failures == (), "they are tried again later"


@pytest.mark.req("BD-220")
async def test_of_several_refused_objects_the_plan_learns_of_all(world):
    """Told of one at a time, it would try the others in turn without any pause, and record nothing."""
    for name in ("a", "b"):
        world.api.put(JOBS, {"metadata": {"name": name, "namespace": "team", "uid": "theirs"}})

    def plans(facts: BuildFacts) -> BuildPlan:
        refused = {each.name for each in facts.failures}
        return planned(*(create(name) for name in ("a", "b") if name not in refused), requeue_after=5.0)

    world.plans = plans
    assert [await world.look() for _ in range(3)] == [RequeueAfter(0.0), RequeueAfter(0.0), RequeueAfter(5.0)]
    assert [each.name for each in world.seen[-1].failures] == ["a", "b"]


@pytest.mark.req("BD-195")
async def test_a_refusal_that_the_plan_has_no_answer_to_is_not_repeated_without_a_pause(world):
    world.api.put(JOBS, {"metadata": {"name": "a", "namespace": "team", "uid": "theirs"}})
    world.plans = lambda facts: planned(create("a"))
    assert [await world.look() for _ in range(4)] == [RequeueAfter(0.0), RequeueAfter(UNANSWERED)] * 2


async def test_a_registry_step_that_failed_is_told_too(world):
    trouble = WriteFailure(verb="push-index", code="RegistryUnreachable", retry_after=7.0, passing=True)
    world.registry_writes.answer = trouble
    push = Write(verb="push-index", reference="quay.io/team/web@sha256:" + "b" * 64, step=BuildStep.PUBLISH)
    world.plans = lambda facts: planned(requeue_after=7.0) if facts.failures else planned(push)
    assert await world.look() == RequeueAfter(0.0)
    assert await world.look() == RequeueAfter(7.0)
    assert world.seen[-1].failures == (trouble,)


@pytest.mark.req("BD-219")
async def test_a_registry_that_is_away_is_not_asked_again_by_every_pass(world):
    """What is recorded of a failure brings the next pass within milliseconds."""
    trouble = WriteFailure(verb="push-index", code="RegistryUnreachable", retry_after=7.0, passing=True)
    world.registry_writes.answer = trouble
    push = Write(verb="push-index", reference="quay.io/team/web@sha256:" + "b" * 64, step=BuildStep.PUBLISH)
    world.plans = lambda facts: planned(requeue_after=7.0) if facts.failures else planned(push)
    for _ in range(5):
        await world.look()
    assert len(world.registry_writes.done) == 1
    world.clock.advance(7.0)
    world.registry_writes.answer = WriteResult.DONE
    assert await world.look() == RequeueAfter(LATEST_WRITE)
    assert len(world.registry_writes.done) == 2


@pytest.mark.req("BD-137")
async def test_no_pass_plans_from_caches_that_do_not_show_its_last_one(world):
    world.plans = lambda facts: planned(create("a"))
    await world.look()
    count = len(world.seen)
    result = await world.look()
    assert isinstance(result, RequeueAfter)
    assert len(world.seen) == count
    world.show()
    await world.look()
    assert len(world.seen) == count + 1


@pytest.mark.req("BD-093")
async def test_a_build_waits_until_the_jobs_of_its_neighbours_are_seen(world):
    world.expectations.wrote(jobs_of("team"), world.informers["Job"].writes, ObjectKey("team", "x"), "999")
    assert isinstance(await world.look(), RequeueAfter)
    assert world.seen == []


@pytest.mark.req("BD-002")
async def test_a_process_that_does_not_lead_any_more_writes_nothing(world):
    world.plans = lambda facts: planned(create("a"))
    world.leads = False
    assert await world.look() == NoRequeue()
    assert world.api.requests == []


@pytest.mark.req("BD-242")
async def test_an_event_is_posted_once_and_after_the_writes_that_it_tells_of(world):
    built = PlannedEvent(
        type="Normal", reason="ArchitectureBuilt", message="arm64", architecture="arm64", execution="web-1"
    )
    world.api.put(JOBS, {"metadata": {"name": "a", "namespace": "team", "uid": "theirs"}})
    world.plans = lambda facts: planned(create("a"), events=(built,))
    await world.look()
    assert world.events == []
    world.plans = lambda facts: planned(events=(built,))
    for _ in range(3):
        await world.look()
    assert world.events == [("ArchitectureBuilt", "arm64")]
    world.plans = lambda facts: planned(events=(msgspec.structs.replace(built, execution="web-2"),))
    await world.look()
    assert len(world.events) == 2


@pytest.mark.req("BD-242")
def test_events_are_remembered_up_to_a_number_those_of_the_build_told_of_last_the_longest() -> None:
    told, first = PostedEvents(), PlannedEvent(type="Normal", reason="RunStarted", message="0")
    others = [msgspec.structs.replace(first, message=str(number)) for number in range(1, MAX_POSTED_EVENTS)]
    assert told.is_news(REF, "u", first)
    assert all(told.is_news(BuildRef("ImageBuild", "team", "shop"), "v", each) for each in others)
    assert not told.is_news(REF, "u", first)
    assert told.is_news(REF, "u", msgspec.structs.replace(first, message="new"))
    assert len(told) == MAX_POSTED_EVENTS
    assert not told.is_news(REF, "u", first)
    assert told.is_news(BuildRef("ImageBuild", "team", "shop"), "v", others[0])


@pytest.mark.req("BD-242")
def test_events_of_builds_that_are_gone_are_forgotten() -> None:
    """A build for each branch, each with its events: the last 20 000 of them were kept."""
    told, event = PostedEvents(), PlannedEvent(type="Normal", reason="RunStarted", message="")
    for number in range(1000):
        ref = BuildRef("ImageBuild", "team", f"branch-{number}")
        assert told.is_news(ref, str(number), event)
        told.forget(ref)
    assert len(told) == 0
    assert not told._of


@pytest.mark.req("BD-242")
async def test_with_a_build_goes_what_was_told_of_it(world):
    world.plans = lambda facts: planned(events=(PlannedEvent(type="Normal", reason="RunStarted", message=""),))
    await world.look()
    assert len(world.passes._told) == 1
    world.there = False
    await world.look()
    assert len(world.passes._told) == 0


@pytest.mark.req("BD-290")
async def test_an_event_may_be_about_an_object_that_the_round_has_made(world):
    made = EventObject("Job", "a", uid_placeholder("Job", "a"))
    told = PlannedEvent(type="Normal", reason="JobCreated", message="a", about=made)
    world.plans = lambda facts: planned(create("a"), events=(told,))
    await world.look()
    (regarding,) = world.about
    assert (regarding.kind, regarding.name) == ("Job", "a")
    assert regarding.uid == world.api.objects[JOBS, "team", "a"]["metadata"]["uid"]


@pytest.mark.req("BD-244")
async def test_an_adoption_is_counted(world):
    owner = {"metadata": {"name": "web-1-arm64", "namespace": "team", "uid": "j", "labels": {}}}
    world.api.put(JOBS, owner)
    adopt = Write(
        verb="patch",
        kind="Job",
        namespace="team",
        name="web-1-arm64",
        how="merge",
        step=BuildStep.ADOPT_JOB,
        body={"metadata": {}},
    )
    adopted = PlannedArchitecture(architecture="arm64", action="Adopt", job="web-1-arm64")
    world.plans = lambda facts: planned(adopt, per_architecture=(adopted,))
    await world.look()
    sample = world.metrics.registry.get_sample_value(
        "polyarch_build_architectures_total", {"arch": "arm64", "result": "adopted"}
    )
    assert sample == 1


async def test_a_build_that_is_gone_is_forgotten(world):
    world.there = False
    assert await world.look() == NoRequeue()
    assert world.inputs.forgotten == [REF]


@pytest.mark.req("BD-232")
@pytest.mark.parametrize("error", [RuntimeError("a bug"), RecursionError(), ValueError("5000 digits"), MemoryError()])
async def test_a_plan_that_fails_stops_no_other_build_of_its_repository(world, error):
    """It is tried again by itself, later; the next one is planned at once."""
    tried = 0

    def plan(facts: BuildFacts) -> BuildPlan:
        nonlocal tried
        tried += 1
        if tried == 1:
            raise error
        return planned()

    world.plans = plan
    controller = Controller("builds", world.passes.reconcile, workers=1, clock=world.clock)
    controller.queue.add(REF)
    controller.queue.add(BuildRef("ImageBuild", REF.namespace, "other"))
    running = asyncio.create_task(controller.run())
    for _ in range(100):
        await asyncio.sleep(0)
    assert (tried, running.done()) == (2, False)
    running.cancel()
    await asyncio.wait([running])


@pytest.mark.req("BD-195", "BD-232", "BD-348")
async def test_a_pass_that_waited_for_its_turn_plans_from_what_is_there_then(world):
    """One that did not wait reads the caches once."""
    await world.look()
    assert world.looked_up == 1
    repository = ImageBuildSpec().output.repository
    async with world.locks.of(repository, REF.namespace) as waited:
        assert not waited
        waiting = asyncio.create_task(world.look())
        for _ in range(5):
            await asyncio.sleep(0)
        assert world.looked_up == 2
        world.there = False
    assert await waiting == NoRequeue()
    assert (world.looked_up, len(world.seen)) == (3, 1)


@pytest.mark.req("BD-232")
async def test_one_repository_is_one_turn_however_it_is_written():
    locks, order = RepositoryLocks(), []

    async def work(repository: str, name: str) -> None:
        async with locks.of(repository, "team"):
            order.append(f"{name} begins")
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            order.append(f"{name} ends")

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(work("docker.io/library/web", "one"))
        tasks.create_task(work("docker.io/web", "two"))
        tasks.create_task(work("quay.io/web", "other"))
    assert order.index("one ends") < order.index("two begins")
    assert order.index("other begins") < order.index("one ends")


@pytest.mark.req("BD-156")
async def test_a_plan_that_hangs_keeps_no_other_namespace_from_its_repository():
    """A tenant may name the repository of another one, and a base image in a registry that never answers."""
    locks = RepositoryLocks()
    async with locks.of("quay.io/shop/web", "evil"):
        deletion = asyncio.create_task(locks.for_deletion("quay.io/shop/web").__aenter__())
        async with asyncio.timeout(1), locks.of("quay.io/shop/web", "shop") as waited:
            assert not waited
        same = asyncio.create_task(locks.of("quay.io/shop/web", "evil").__aenter__())
        await asyncio.sleep(0.01)
        assert (deletion.done(), same.done()) == (False, False)
    async with asyncio.timeout(1):
        await same
    same.cancel()
    deletion.cancel()


@pytest.mark.req("BD-232")
async def test_nothing_is_planned_for_a_repository_while_images_are_deleted_from_it():
    locks = RepositoryLocks()
    async with locks.for_deletion("quay.io/shop/web"):
        plans = [asyncio.create_task(locks.of("quay.io/shop/web", each).__aenter__()) for each in ("shop", "team")]
        await asyncio.sleep(0.01)
        assert not any(each.done() for each in plans)
        plans.pop(0).cancel()  # one that gives up holds nobody up
    async with asyncio.timeout(1):
        assert await plans[0] is True


# -- tags that a late write may move back ------------------------------------------------------------------------------


RESULT = "quay.io/team/web@sha256:" + "b" * 64
PUSH = Write(verb="push-index", reference=RESULT, step=BuildStep.PUBLISH)


async def published(world: BuilderWorld) -> None:
    """The result is pushed, and from then on it is what is wanted."""
    world.executions = (Execution(namespace="team", name="web-2", result=RESULT, phase="Succeeded"),)
    world.plans = lambda facts: planned(PUSH, decision="Reassemble")
    await world.look()
    world.plans = lambda facts: planned(execution="web-2", tags=("web-2", "latest"))


@pytest.mark.req("BD-002")
async def test_soon_after_a_change_of_leaders_tags_are_looked_at_again_once(world):
    """A write of the former leader may be on its way, and a registry has no preconditions."""
    world.led = 3.0
    await published(world)
    assert await world.look() == RequeueAfter(LATEST_WRITE)
    world.clock.advance(LATEST_WRITE - 1)
    assert await world.look() == RequeueAfter(1.0)
    assert world.registry_writes.done == [PUSH]
    world.clock.advance(1)
    assert await world.look() == NoRequeue()
    again = world.registry_writes.done[1]
    assert (again.verb, again.reference, again.body) == ("tag", RESULT, {"tags": ["web-2", "latest"]})
    world.clock.advance(LATEST_WRITE)
    assert await world.look() == NoRequeue()
    assert len(world.registry_writes.done) == 2


@pytest.mark.req("BD-002")
async def test_a_leader_of_long_standing_asks_no_registry_again(world):
    world.led = LATEST_WRITE
    await published(world)
    assert await world.look() == NoRequeue()
    assert world.registry_writes.done == [PUSH]


@pytest.mark.req("BD-002")
@pytest.mark.parametrize("passing", [True, False])
async def test_after_a_push_that_had_no_answer_tags_are_looked_at_again(world, passing):
    """It may still arrive. One that was refused does not."""
    world.registry_writes.answer = WriteFailure(verb="push-index", code="RegistryUnreachable", passing=passing)
    world.plans = lambda facts: planned(PUSH, decision="Reassemble")
    await world.look()
    world.registry_writes.answer = WriteResult.DONE
    await published(world)
    assert await world.look() == (RequeueAfter(LATEST_WRITE) if passing else NoRequeue())


@pytest.mark.req("BD-002")
async def test_tags_of_a_result_that_is_not_wanted_any_more_are_left_alone(world):
    world.led = 3.0
    await published(world)
    world.clock.advance(LATEST_WRITE)
    wanted = world.plans
    world.plans = lambda facts: planned(decision="Build", execution="web-3")
    assert await world.look() == NoRequeue()
    assert world.registry_writes.done == [PUSH]
    world.plans, world.leads = wanted, False
    await world.look()
    assert world.registry_writes.done == [PUSH], "another process leads"


@pytest.mark.req("BD-002")
async def test_a_registry_that_is_away_when_tags_are_looked_at_is_asked_again(world):
    world.led = 3.0
    await published(world)
    world.clock.advance(LATEST_WRITE)
    world.registry_writes.answer = WriteFailure(verb="tag", code="RegistryUnreachable", passing=True)
    assert await world.look() == RequeueAfter(LATEST_WRITE)
    world.registry_writes.answer = WriteResult.NOT_NEEDED
    world.clock.advance(LATEST_WRITE)
    assert await world.look() == NoRequeue()
    assert len(world.registry_writes.done) == 3
