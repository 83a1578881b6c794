"""Old Runs and their images are deleted, and nothing that anybody needs (S11)."""

import asyncio
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import ClassVar

import msgspec
import pytest
from fake_api import FakeApi
from manual_clock import ManualClock

from polyarch.builds import names
from polyarch.builds.controller.informers import BY_BUILD, BY_JOB, BuildRef, RecordConfigMap, _build_of, _job_of
from polyarch.builds.controller.pruner import KEPT_BACK, SAID, DeletionReporter, ImagePruner, PruneJobs, subscribe
from polyarch.builds.controller.reconciler import SETTLING, RepositoryLocks
from polyarch.builds.facts.build_facts import ChildRecord, Execution, PlanSettings
from polyarch.builds.facts.objects import BuildObject, JobObject, NodeObject, PodObject, RunObject
from polyarch.builds.metrics import BuildMetrics
from polyarch.builds.registry import PruneResult, UndeletableImage
from polyarch.kube.controller import NoRequeue, RequeueAfter
from polyarch.kube.errors import BadRequest, Forbidden, Invalid, TooLarge
from polyarch.kube.events import Regarding
from polyarch.kube.metrics import Metrics
from polyarch.kube.resources import CONFIGMAPS, JOBS, PODS
from polyarch.kube.store import Store, WriteExpectations
from polyarch.kube.watch import Apply, Delete
from polyarch.objects import Namespace, ObjectKey
from polyarch.oci.auth.credential_stores import NoCredentials

REF = BuildRef("ImageBuild", "team", "web")
REPOSITORY = "quay.io/team/web"


def digest(letter):
    return "sha256:" + letter * 64


class Recorder:
    def __init__(self):
        self.events = []

    def event(self, regarding, *, type, reason, note, action):
        self.events.append((regarding.name, type, reason, note))


class Registries:
    """Deletes what it is told to, unless a test says otherwise."""

    def __init__(self):
        self.deleted = []
        self.answer = None
        self.used = []

    async def delete_images(self, images, *, credentials, tenant):
        self.used.append(credentials)
        self.deleted += [each.digest for each in images]
        return self.answer(images) if self.answer else PruneResult(done=tuple(each.reference for each in images))


class Inputs:
    def __init__(self):
        self.asked = []

    def credentials(self, namespace, wanted):
        self.asked.append((namespace, wanted))
        return NoCredentials()


class Place:
    """A namespace with ImageBuilds and Runs, pods and nodes, and what the builder sees of them."""

    def __init__(self):
        self.clock = ManualClock(now=datetime(2027, 1, 1, 12, tzinfo=UTC))
        self.api = FakeApi()
        builds, runs = Store(), Store({BY_BUILD: _build_of})
        self.informers = SimpleNamespace(
            builds=SimpleNamespace(store=builds, writes=WriteExpectations(builds, clock=self.clock)),
            runs=SimpleNamespace(store=runs, writes=WriteExpectations(runs, clock=self.clock)),
            nodes=SimpleNamespace(store=Store()),
            jobs=SimpleNamespace(store=Store()),
            pods=SimpleNamespace(store=Store({BY_JOB: _job_of})),
            records=SimpleNamespace(store=Store()),
            namespaces=SimpleNamespace(store=Store()),
        )
        self.recorder, self.registries, self.inputs = Recorder(), Registries(), Inputs()
        self.leads = True
        self.others = []
        self.locks = RepositoryLocks()
        self.cleanup = ImagePruner(
            self.api,
            self.informers,
            self.registries,
            self.inputs,
            jobs=PruneJobs(self.api, self.informers, PlanSettings(push_image="polyarch:1")),
            locks=self.locks,
            recorder=self.recorder,
            metrics=BuildMetrics(Metrics()),
            clock=self.clock,
            is_leading=lambda: self.leads,
            others=lambda: self.others,
        )

    async def build(self, name="web", *, history="Keep", successful=1, failed=1, current="", **status):
        spec = {
            "output": {"repository": REPOSITORY, "pushSecret": {"name": "push"}},
            "history": {"images": history, "successful": successful, "failed": failed},
        }
        document = {"metadata": {"name": name, "namespace": "team"}, "spec": spec}
        await self.api.create(names.IMAGE_BUILDS, document, namespace="team")
        self.api.objects[names.IMAGE_BUILDS, "team", name]["status"] = {"currentRun": current, **status}
        self.show()

    async def run(self, name, *children, result="", owner="web", uid="uid-1", phase="Succeeded", deleting="", **more):
        records = [{"architecture": a, "digest": digest(d), "phase": "Built"} for a, d in children]
        spec = {"imageBuild": {"name": owner, "uid": uid}, "repository": REPOSITORY}
        await self.api.create(
            names.IMAGE_BUILD_RUNS, {"metadata": {"name": name, **more}, "spec": spec}, namespace="team"
        )
        stored = self.api.objects[names.IMAGE_BUILD_RUNS, "team", name]
        stored["metadata"]["creationTimestamp"] = f"2027-01-01T00:00:{len(self.api.objects):02}Z"
        if deleting:
            stored["metadata"]["deletionTimestamp"] = deleting
            stored["metadata"].setdefault("finalizers", [names.IMAGES_FINALIZER])
        stored["status"] = {
            "phase": phase,
            "architectures": records,
            "result": f"{REPOSITORY}@{digest(result)}" if result else "",
        }
        self.show()

    def show(self):
        for store, resource, shape in (
            (self.informers.builds.store, names.IMAGE_BUILDS, BuildObject),
            (self.informers.runs.store, names.IMAGE_BUILD_RUNS, RunObject),
            (self.informers.jobs.store, JOBS, JobObject),
            (self.informers.records.store, CONFIGMAPS, RecordConfigMap),
        ):
            there = {ObjectKey(space, n): o for (res, space, n), o in self.api.objects.items() if res == resource}
            for each in there.values():
                store.take(Apply(msgspec.convert(each, shape)))
            for key in [key for key in store if key not in there]:
                store.take(Delete(key, str(self.api.version)))

    def node(self, name, **annotations):
        self.informers.nodes.store.take(
            Apply(msgspec.convert({"metadata": {"name": name, "annotations": annotations}}, NodeObject))
        )

    def namespace(self, name, *, going):
        metadata = {"name": name, **({"deletionTimestamp": "2027-01-01T11:59:00Z"} if going else {})}
        self.informers.namespaces.store.take(Apply(msgspec.convert({"metadata": metadata}, Namespace)))

    async def go(self, ref=REF):
        result = await self.cleanup.reconcile(ref)
        self.show()
        return result

    @property
    def runs(self):
        return sorted(name for res, _, name in self.api.objects if res == names.IMAGE_BUILD_RUNS)

    def finalizers(self, run):
        """Empty once the Run is gone."""
        return self.metadata(run)["finalizers"] if run in self.runs else []

    def metadata(self, run):
        return self.api.objects[names.IMAGE_BUILD_RUNS, "team", run]["metadata"]


@pytest.fixture
def place():
    return Place()


def pod(image, image_id=""):
    return {
        "metadata": {"name": "app", "namespace": "team"},
        "spec": {"containers": [{"image": image}]},
        "status": {"containerStatuses": [{"imageID": image_id}]},
    }


async def three_runs(place, **build):
    await place.build(current="new", **build)
    await place.run("old", ("amd64", "1"), ("arm64", "2"), result="a")
    await place.run("middle", ("amd64", "1"), ("arm64", "3"), result="b")
    await place.run("new", ("amd64", "1"), ("arm64", "4"), result="c")


class TestRuns:
    @pytest.mark.req("BD-230")
    async def test_old_runs_are_deleted(self, place):
        await three_runs(place)
        assert await place.go() == NoRequeue()
        assert (place.runs, place.registries.deleted) == (["new"], [])

    @pytest.mark.req("BD-346", "BD-348")
    async def test_nothing_is_asked_while_nothing_is_old(self, place):
        await three_runs(place, successful=3)
        place.api.requests.clear()
        assert await place.go() == NoRequeue()
        assert (place.runs, place.api.requests) == (["middle", "new", "old"], [])

    @pytest.mark.req("BD-230")
    async def test_what_runs_is_kept_and_looked_at_again(self, place):
        await three_runs(place)
        place.api.put(PODS, pod("mirror.example/web:1", f"mirror.example/web@{digest('a')}"))
        assert await place.go() == RequeueAfter(KEPT_BACK)
        assert place.runs == ["new", "old"]
        place.api.remove(PODS, "app", "team")
        place.clock.advance(KEPT_BACK)
        assert await place.go() == NoRequeue()
        assert place.runs == ["new"]

    @pytest.mark.req("BD-230")
    async def test_pods_are_listed_once_for_several_builds(self, place):
        for name in ("web", "shop"):
            uid = f"uid-{len(place.api.objects) + 1}"
            await place.build(name)
            await place.run(f"{name}-1", owner=name, uid=uid)
            await place.run(f"{name}-2", owner=name, uid=uid)
        await place.go()
        await place.go(BuildRef("ImageBuild", "team", "shop"))
        assert (place.runs, place.api.sent().count("list pods")) == (["shop-2", "web-2"], 1)

    @pytest.mark.req("BD-002")
    async def test_who_does_not_lead_deletes_nothing(self, place):
        await three_runs(place, history="Delete")
        place.leads = False
        await place.go()
        assert place.runs == ["middle", "new", "old"]
        assert all("finalizers" not in place.metadata(run) for run in place.runs)


class TestFinalizers:
    @pytest.mark.req("BD-233")
    async def test_runs_are_marked_where_images_are_deleted(self, place):
        """With the Secret, since the ImageBuild may be gone when it is needed."""
        await three_runs(place, history="Delete", successful=3)
        await place.go()
        for run in place.runs:
            metadata = place.metadata(run)
            assert metadata["finalizers"] == [names.IMAGES_FINALIZER]
            assert metadata["annotations"] == {names.PUSH_SECRET_ANNOTATION: "push"}

    @pytest.mark.req("BD-236")
    async def test_runs_are_not_marked_where_images_are_kept(self, place):
        await place.build(history="Keep")
        await place.run("one", finalizers=[names.IMAGES_FINALIZER, "other.example/hold"])
        await place.go()
        assert place.finalizers("one") == ["other.example/hold"]

    @pytest.mark.req("BD-231")
    async def test_images_go_with_their_run(self, place):
        await place.build(history="Delete", current="new", image=f"{REPOSITORY}@{digest('c')}")
        await place.run("new", ("amd64", "1"), ("arm64", "4"), result="c")
        await place.run("old", ("amd64", "1"), ("arm64", "2"), result="a", deleting="2027-01-01T11:59:00Z")
        assert await place.go() == NoRequeue()
        assert place.registries.deleted == [digest("a"), digest("2")]
        assert place.finalizers("old") == []
        assert [(reason, name) for name, _, reason, _ in place.recorder.events] == [("ImageDeleted", "old")]

    @pytest.mark.req("BD-231")
    async def test_nothing_is_counted_while_a_plan_has_recorded_what_no_cache_shows(self, place):
        """A new run reuses a child of the one that leaves, and the watch is a moment late."""
        await place.run("old", ("arm64", "2"), result="a", deleting="2027-01-01T11:59:00Z")
        place.informers.runs.writes.note_write(ObjectKey("team", "new"), "5000")
        assert await place.go() == RequeueAfter(SETTLING)
        assert place.registries.deleted == []
        place.api.version = 5000
        await place.run("new", ("arm64", "2"))
        assert await place.go() == NoRequeue()
        assert place.registries.deleted == [digest("a")]

    @pytest.mark.req("BD-231")
    async def test_two_runs_that_leave_together_do_not_keep_each_other(self, place):
        for name in ("one", "two"):
            await place.run(name, ("amd64", "1"), result="a", deleting="2027-01-01T11:59:00Z")
        await place.go()
        assert sorted(place.registries.deleted) == sorted([digest("1"), digest("a")])

    @pytest.mark.req("BD-231")
    @pytest.mark.parametrize("user", ["another build", "another kind", "a pod", "a node", "a status"])
    async def test_whoever_refers_to_it_keeps_it(self, place, user):
        await place.run("old", ("arm64", "2"), result="a", deleting="2027-01-01T11:59:00Z")
        if user == "another build":
            await place.run("shop-1", ("arm64", "2"), owner="shop", uid="other")
        if user == "another kind":
            child = ChildRecord(architecture="arm64", digest=digest("2"))
            place.others = [Execution(namespace="os", name="worker-1", repository=REPOSITORY, children=(child,))]
        if user == "a pod":
            place.api.put(PODS, pod(f"mirror.example/x@{digest('2')}"))
        if user == "a node":
            place.node("n1", **{"machineconfiguration.openshift.io/desiredImage": f"{REPOSITORY}@{digest('2')}"})
        if user == "a status":
            await place.build("shop", images=[{"architecture": "arm64", "reference": f"{REPOSITORY}@{digest('2')}"}])
        await place.go()
        assert place.registries.deleted == [digest("a")]

    @pytest.mark.req("BD-231")
    @pytest.mark.parametrize("going", ["build", "namespace"])
    async def test_what_is_going_itself_keeps_nothing(self, place, going):
        """A deletion in the foreground, and one of the namespace, take the Runs before their ImageBuild."""
        await place.build(image=f"{REPOSITORY}@{digest('a')}")
        await place.run("web-1", ("arm64", "2"), result="a", deleting="2027-01-01T11:59:00Z")
        if going == "build":
            stored = place.api.objects[names.IMAGE_BUILDS, "team", "web"]["metadata"]
            stored |= {"deletionTimestamp": "2027-01-01T11:59:00Z", "resourceVersion": "9000"}
            place.show()
        else:
            place.namespace("team", going=True)
        assert await place.go() == NoRequeue()
        assert place.registries.deleted == [digest("a"), digest("2")]

    @pytest.mark.req("BD-233")
    async def test_the_build_may_be_gone(self, place):
        """Its Runs say with which Secret."""
        mark = {names.PUSH_SECRET_ANNOTATION: "push"}
        await place.run("old", ("arm64", "2"), result="a", deleting="2027-01-01T11:59:00Z", annotations=mark)
        assert await place.go() == NoRequeue()
        assert place.inputs.asked == [("team", ("push",))]
        assert (len(place.registries.deleted), place.finalizers("old")) == (2, [])

    @pytest.mark.req("BD-233")
    async def test_it_is_tried_again_and_given_up_after_ten_minutes(self, place):
        await place.run("old", ("arm64", "2"), result="a", deleting="2027-01-01T11:55:00Z")
        place.registries.answer = lambda images: PruneResult(
            remaining=tuple(each.reference for each in images), problem="quay.io: HTTP 503"
        )
        found = await place.go()
        assert isinstance(found, RequeueAfter)
        assert found.seconds <= 60
        assert place.finalizers("old") == [names.IMAGES_FINALIZER]
        place.clock.advance(300)
        assert await place.go() == NoRequeue()
        assert place.finalizers("old") == []
        (name, kind, reason, note), *_ = place.recorder.events
        assert (name, kind, reason) == ("old", "Warning", "ImageCleanupAbandoned")
        assert digest("a") in note

    @pytest.mark.req("BD-233")
    async def test_a_pause_that_a_registry_asks_for_is_kept(self, place):
        await place.run("old", ("arm64", "2"), deleting="2027-01-01T11:59:00Z")
        place.registries.answer = lambda images: PruneResult(remaining=(images[0].reference,), retry_after=90.0)
        assert await place.go() == RequeueAfter(90.0)

    @pytest.mark.req("BD-233")
    async def test_no_pause_that_a_registry_asks_for_is_longer_than_the_ten_minutes(self, place):
        """Docker Hub asks for hours once its limit is used up; a namespace that is being deleted does not wait."""
        await place.run("old", ("arm64", "2"), result="a", deleting="2027-01-01T11:59:00Z")
        place.registries.answer = lambda images: PruneResult(
            remaining=tuple(each.reference for each in images), problem="429", retry_after=21600.0
        )
        assert await place.go() == RequeueAfter(540.0)
        place.clock.advance(540)
        assert await place.go() == NoRequeue()
        assert place.finalizers("old") == []

    @pytest.mark.req("BD-234")
    async def test_a_registry_that_deletes_nothing_is_told_once(self, place):
        for name in ("one", "two"):
            await place.run(name, ("arm64", name[0]), owner=name, deleting="2027-01-01T11:59:00Z")
        place.registries.answer = lambda images: PruneResult(
            kept=tuple(
                UndeletableImage(
                    repository=each.repository, reference=each.reference, outcome="unsupported", message="HTTP 405"
                )
                for each in images
            )
        )
        for name in ("one", "two"):
            assert await place.go(BuildRef("ImageBuild", "team", name)) == NoRequeue()
            assert place.finalizers(name) == []
        assert [reason for _, _, reason, _ in place.recorder.events] == ["ImageNotDeleted"]

    @pytest.mark.req("BD-234")
    async def test_what_was_told_of_former_repositories_is_forgotten(self, place):
        """A repository for each branch, in a registry that deletes nothing."""
        aftermath = DeletionReporter(place.recorder, BuildMetrics(Metrics()), place.clock)
        about = Regarding("polyarch.dev/v1alpha1", "ImageBuildRun", "team", "one", "u")
        for number in (*range(SAID + 200), SAID, 0):
            kept = UndeletableImage(
                repository=f"quay.io/team/{number}", reference="", outcome="unsupported", message="HTTP 405"
            )
            aftermath.tell(about, PruneResult(kept=(kept,)))
        assert len(place.recorder.events) == SAID + 200 + 1, "of the last ones it is remembered, of the first one not"


class TestByJob:
    """``registryAccess: Job``: the builder deletes nothing itself."""

    MARKS: ClassVar = {names.PUSH_SECRET_ANNOTATION: "push", names.REGISTRY_JOB_ANNOTATION: '{"pushImage":"own:2"}'}

    async def leaving(self, place, name="old", **more):
        child = more.pop("child", "2")
        await place.run(name, ("arm64", child), deleting="2027-01-01T11:59:00Z", annotations=dict(self.MARKS), **more)

    async def change(self, place, resource, name, **members):
        place.api.change(resource, ObjectKey("team", name), lambda document: document.update(members))
        place.show()

    def jobs(self, place):
        return [each for (res, _, _), each in place.api.objects.items() if res == JOBS]

    async def end(self, place, message, *, condition="Complete", code=0):
        (job,) = self.jobs(place)
        at = "2027-01-01T12:00:01Z"
        status = {"conditions": [{"type": condition, "status": "True", "lastTransitionTime": at}]}
        await self.change(place, JOBS, job["metadata"]["name"], status=status)
        uid, ended = job["metadata"]["uid"], {"exitCode": code, "message": message}
        owner = {"kind": "Job", "name": job["metadata"]["name"], "uid": uid, "controller": True}
        pod = {
            "metadata": {"name": f"of-{uid}", "namespace": "team", "ownerReferences": [owner]},
            "status": {
                "phase": "Failed" if code else "Succeeded",
                "containerStatuses": [{"name": "prune", "state": {"terminated": ended}}],
            },
        }
        place.informers.pods.store.take(Apply(msgspec.convert(pod, PodObject)))
        place.show()

    @pytest.mark.req("BD-178")
    async def test_runs_note_what_their_jobs_will_need(self, place):
        await place.build(history="Delete", current="new")
        spec = place.api.objects[names.IMAGE_BUILDS, "team", "web"]["spec"]
        by_job = {**spec, "registryAccess": "Job", "builder": {"pushImage": "own:2"}}
        await self.change(place, names.IMAGE_BUILDS, "web", spec=by_job)
        await place.run("new", ("arm64", "1"), result="c")
        await place.go()
        assert place.metadata("new")["annotations"] == self.MARKS
        place.api.requests.clear()
        await place.go()
        assert place.api.requests == [], "what is noted is not noted again"
        await self.change(place, names.IMAGE_BUILDS, "web", spec=spec)
        await place.go()
        assert place.metadata("new")["annotations"] == {names.PUSH_SECRET_ANNOTATION: "push"}

    @pytest.mark.req("BD-178")
    async def test_a_job_deletes_the_images_and_then_the_run_goes(self, place):
        await self.leaving(place, result="a")
        assert isinstance(await place.go(), RequeueAfter)
        (job,) = self.jobs(place)
        pod = job["spec"]["template"]["spec"]
        assert (pod["containers"][0]["image"], pod["volumes"][-1]["secret"]["secretName"]) == ("own:2", "push")
        (inputs,) = [each for (res, _, _), each in place.api.objects.items() if res == CONFIGMAPS]
        told = msgspec.json.decode(inputs["data"]["prune.json"])["images"]
        assert [each["digest"] for each in told] == [digest("a"), digest("2")]
        assert inputs["metadata"]["ownerReferences"][0]["uid"] == job["metadata"]["uid"], "it goes with the Job"
        assert isinstance(await place.go(), RequeueAfter)
        assert place.finalizers("old") == [names.IMAGES_FINALIZER]
        await self.end(place, '{"v":1,"deleted":2,"kept":0}')
        assert await place.go() == NoRequeue()
        assert (place.finalizers("old"), self.jobs(place)) == ([], [])
        assert [reason for _, _, reason, _ in place.recorder.events] == ["ImageDeleted"]
        assert (place.registries.deleted, place.registries.used) == ([], []), "the builder asks no registry"

    @pytest.mark.req("BD-178")
    async def test_the_inputs_are_made_again_where_the_builder_died_before_them(self, place):
        await self.leaving(place)
        await place.go()
        for key in [key for key in place.api.objects if key[0] == CONFIGMAPS]:
            del place.api.objects[key]
        place.show()
        await place.go()
        assert [key[0] for key in place.api.objects].count(CONFIGMAPS) == 1

    @pytest.mark.req("BD-178")
    async def test_what_leaves_meanwhile_is_deleted_by_the_next_job(self, place):
        await self.leaving(place)
        await place.go()
        await self.leaving(place, "older", child="3")
        await place.go()
        await self.end(place, '{"v":1,"deleted":1,"kept":0}')
        await place.go()
        assert place.finalizers("old") == [names.IMAGES_FINALIZER], "its Job was not told of the other"
        await place.go()
        await self.end(place, '{"v":1,"deleted":2,"kept":0}')
        assert await place.go() == NoRequeue()
        assert place.finalizers("old") == place.finalizers("older") == []

    @pytest.mark.req("BD-234")
    async def test_images_that_the_registry_keeps_are_told(self, place):
        await self.leaving(place)
        await place.go()
        await self.end(place, '{"v":1,"deleted":0,"kept":1}')
        assert await place.go() == NoRequeue()
        assert [reason for _, _, reason, _ in place.recorder.events] == ["ImageNotDeleted"]

    @pytest.mark.req("BD-233")
    async def test_a_job_that_fails_is_made_again_until_ten_minutes_are_over(self, place):
        await self.leaving(place)
        await place.go()
        await self.end(place, '{"v":1,"reason":"BuildFailed","message":"HTTP 503"}', condition="Failed", code=1)
        assert isinstance(await place.go(), RequeueAfter)
        assert self.jobs(place) == []
        await place.go()
        assert len(self.jobs(place)) == 1
        place.clock.advance(600)
        assert await place.go() == NoRequeue()
        assert place.finalizers("old") == []
        assert place.recorder.events[-1][2] == "ImageCleanupAbandoned"
        (job,) = self.jobs(place)
        assert job["spec"]["ttlSecondsAfterFinished"] == 3600, "nobody deletes it any more"

    @pytest.mark.req("BD-233")
    @pytest.mark.parametrize("kind", [JOBS, CONFIGMAPS], ids=str)
    @pytest.mark.parametrize("refusal", [Forbidden, Invalid, TooLarge, BadRequest])
    async def test_a_job_that_is_refused_holds_a_run_for_ten_minutes(self, place, kind, refusal):
        """Whatever refuses it (a quota, a policy, too many images for a ConfigMap), and whichever of its objects."""
        await self.leaving(place)

        async def refuse(verb, resource, name):
            if (verb, resource) == ("create", kind):
                raise refusal(400, reason="No", message="not here")

        place.api.hook = refuse
        assert isinstance(await place.go(), RequeueAfter)
        assert isinstance(await place.go(), RequeueAfter)
        assert place.finalizers("old") == [names.IMAGES_FINALIZER]
        place.clock.advance(600)
        assert await place.go() == NoRequeue()
        assert place.finalizers("old") == []
        (_, _, reason, note) = place.recorder.events[-1]
        assert reason == "ImageCleanupAbandoned"
        assert "not here" in note


@pytest.mark.req("BD-232")
async def test_a_plan_of_the_repository_is_waited_for(place):
    """Pruning and planning of one repository do not overlap."""
    await place.run("old", ("arm64", "2"), deleting="2027-01-01T11:59:00Z")
    async with place.locks.of("QUAY.io/team/web", "other"):
        running = asyncio.create_task(place.go())
        for _ in range(20):
            await asyncio.sleep(0)
        assert place.registries.deleted == []
    await running
    assert place.registries.deleted == [digest("2")]


@pytest.mark.req("BD-231")
async def test_what_a_plan_has_just_taken_is_not_deleted_before_the_caches_show_it(place):
    """A Run was made that reuses the image, after the Run that built it was deleted by hand."""
    await place.build(history="Delete")
    await place.run("going", ("amd64", "1"), result="1", deleting="2027-01-01T11:59:59Z")
    place.informers.runs.writes.note_write(ObjectKey("team", "new"), "999")
    assert await place.go() == RequeueAfter(SETTLING)
    assert (place.registries.deleted, place.runs) == ([], ["going"])
    place.clock.advance(60)
    await place.go()
    assert place.registries.deleted == [digest("1")]


@pytest.mark.req("BD-230")
async def test_runs_and_builds_wake_it(place):
    handlers = {"runs": [], "builds": []}
    informers = SimpleNamespace(
        runs=SimpleNamespace(add_handler=handlers["runs"].append),
        builds=SimpleNamespace(add_handler=handlers["builds"].append),
    )
    woken = []
    subscribe(informers, woken.append)
    run = msgspec.convert(
        {"metadata": {"name": "r", "namespace": "team"}, "spec": {"imageBuild": {"name": "web"}}}, RunObject
    )
    handlers["runs"][0](SimpleNamespace(key=ObjectKey("team", "r"), new=None, old=run))
    handlers["builds"][0](SimpleNamespace(key=ObjectKey("team", "shop"), new=None, old=None))
    assert woken == [REF, BuildRef("ImageBuild", "team", "shop")]


@pytest.mark.req("BD-231")
async def test_nothing_is_deleted_while_it_is_not_known_what_the_other_kind_refers_to(place):
    """A MachineOSBuild may have taken the image, and no cache shows it yet, or none has been read yet."""
    await place.build(history="Delete")
    await place.run("going", ("amd64", "1"), result="1", deleting="2027-01-01T11:59:59Z")
    place.others = None
    held = await place.go()
    assert isinstance(held, RequeueAfter)
    assert (place.registries.deleted, place.runs) == ([], ["going"])
    place.others = []
    await place.go()
    assert place.registries.deleted == [digest("1")]


@pytest.mark.req("BD-233")
async def test_what_stays_unknown_hangs_nothing_and_deletes_nothing(place):
    await place.build(history="Delete")
    await place.run("going", ("amd64", "1"), result="1", deleting="2027-01-01T11:40:00Z")
    place.others = None
    assert await place.go() == NoRequeue()
    assert (place.registries.deleted, place.finalizers("going")) == ([], [])
    ((_, _, reason, note),) = place.recorder.events
    assert (reason, digest("1") in note) == ("ImageCleanupAbandoned", True)


@pytest.mark.req("BD-233")
async def test_a_secret_that_may_not_be_read_is_told_when_it_is_given_up(place):
    await place.build(history="Delete")
    await place.run("going", ("amd64", "1"), result="1", deleting="2027-01-01T11:40:00Z")

    def forbidden(images):
        raise Forbidden(403, reason="Forbidden", message="secrets is forbidden")

    place.registries.answer = forbidden
    assert await place.go() == NoRequeue()
    ((_, _, reason, note),) = place.recorder.events
    assert (reason, "secrets is forbidden" in note) == ("ImageCleanupAbandoned", True)
