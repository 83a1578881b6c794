"""Whoever deletes a MachineOSBuild, or its config, deletes its images, and no image that is in use."""

from datetime import UTC, datetime
from types import SimpleNamespace

import msgspec
import pytest
from fake_api import FakeApi
from machine_world import MachineWorld
from manual_clock import ManualClock

from polyarch.builds import names
from polyarch.builds.controller.informers import RecordConfigMap
from polyarch.builds.controller.machine_os import MachineOSImages
from polyarch.builds.controller.pruner import ImagePruner
from polyarch.builds.controller.reconciler import RepositoryLocks
from polyarch.builds.facts.build_facts import written
from polyarch.builds.facts.objects import NodeObject
from polyarch.builds.machineos import api
from polyarch.builds.machineos.api import name_of
from polyarch.builds.machineos.records import recorded_executions
from polyarch.builds.metrics import BuildMetrics
from polyarch.builds.registry import PruneResult
from polyarch.kube.controller import NoRequeue, RequeueAfter
from polyarch.kube.errors import Forbidden
from polyarch.kube.metrics import Metrics
from polyarch.kube.resources import CONFIGMAPS
from polyarch.kube.store import Store, WriteExpectations
from polyarch.kube.watch import Apply, Delete
from polyarch.objects import ObjectKey
from polyarch.oci.auth.credential_stores import NoCredentials

NAMESPACE = api.NAMESPACE
CURRENT = "machineconfiguration.openshift.io/currentImage"


class Place:
    """A pool in a simulated world; garbage collection and what the builder sees of records are the test's."""

    def __init__(self, **spec):
        self.world = MachineWorld(**spec)
        self.clock = ManualClock(now=datetime(2027, 1, 1, 12, tzinfo=UTC))
        self.api = FakeApi()
        self.records, self.nodes = Store(), Store()
        empty = Store()
        informers = SimpleNamespace(
            builds=SimpleNamespace(store=empty, writes=WriteExpectations(empty, clock=self.clock)),
            runs=SimpleNamespace(store=empty, writes=WriteExpectations(empty, clock=self.clock)),
            nodes=SimpleNamespace(store=self.nodes),
            namespaces=SimpleNamespace(store=Store()),
        )
        self.events, self.deleted, self.secrets = [], [], []
        self.answer = lambda images: PruneResult(done=tuple(each.reference for each in images))
        self.config_is_gone = self.behind = False
        metrics, locks = BuildMetrics(Metrics()), RepositoryLocks()
        shared = {"locks": locks, "recorder": self, "metrics": metrics, "clock": self.clock}
        cleanup = ImagePruner(
            self.api, informers, self, self, jobs=None, others=self.executions, used=self.published, **shared
        )
        self.images = MachineOSImages(
            self.api,
            SimpleNamespace(store=self.records),
            cleanup,
            self,
            self,
            namespace=NAMESPACE,
            lives=lambda uid: uid in {each["metadata"]["uid"] for each in self.world.mosbs.values()},
            **shared,
        )

    # what MachineImages needs of others

    def event(self, regarding, *, type, reason, note, action):
        self.events.append((regarding.kind, regarding.name, reason))

    def credentials(self, namespace, wanted):
        self.secrets.append((namespace, wanted))
        return NoCredentials()

    async def delete_images(self, images, *, credentials, tenant):
        found = self.answer(images)
        self.deleted += [each.partition("@")[2] for each in found.done]
        return found

    def executions(self):
        if self.behind:
            return None
        return [] if self.config_is_gone else recorded_executions(self.world.case())

    def published(self):
        stored = [self.world.config] if not self.config_is_gone else []
        return [
            *((each.get("status") or {}).get("currentImagePullSpec", "") for each in stored),
            *((each.get("status") or {}).get("digestedImagePushSpec", "") for each in self.world.mosbs.values()),
        ]

    # what people and garbage collection do

    async def delete_build(self, name):
        """``kubectl delete machineosbuild``: its record has a finalizer, so it stays for now."""
        del self.world.mosbs[name]
        await self.delete_record(name)

    async def delete_record(self, name):
        record = self.world.config_maps.pop(api.record_name(name))
        record["metadata"]["deletionTimestamp"] = written(self.clock.now().timestamp())
        await self.api.create(CONFIGMAPS, record, namespace=NAMESPACE)

    async def delete_config(self):
        self.config_is_gone = True
        for name in list(self.world.mosbs):
            await self.delete_build(name)
        for name in [each for each in self.world.config_maps if each.startswith("arch-")]:
            await self.delete_record(name.removeprefix("arch-"))

    def node_runs(self, image):
        node = {"metadata": {"name": "n", "annotations": {CURRENT: image}}}
        self.nodes.take(Apply(msgspec.convert(node, NodeObject)))

    async def go(self):
        there = {
            ObjectKey(space, name): each for (kind, space, name), each in self.api.objects.items() if kind == CONFIGMAPS
        }
        for each in there.values():
            self.records.take(Apply(msgspec.convert(each, RecordConfigMap)))
        for key in [key for key in self.records if key not in there]:
            self.records.take(Delete(key, str(self.api.version)))
        return await self.images.reconcile(self.images.key)

    @property
    def held(self):
        """Records that have the finalizer still."""
        return [
            name
            for (_, _, name), each in self.api.objects.items()
            if names.IMAGES_FINALIZER in (each["metadata"].get("finalizers") or ())
        ]


def digests(build, world):
    known = recorded_executions(world.case())
    found = next(each for each in known if each.name == build)
    return {found.result.partition("@")[2], *(each.digest for each in found.children)}


def rolled(**spec):
    """A pool that went from one image to another."""
    place = Place(**spec)
    place.world.build_all()
    first = name_of(place.world.build)
    place.world.configure(containerFile=[{"containerfileArch": "NoArch", "content": "RUN other\n"}])
    place.world.build_all()
    return place, first


@pytest.mark.req("BD-282")
async def test_the_images_of_a_deleted_build_go_with_the_push_secret_of_its_config():
    place, first = rolled()
    wanted = digests(first, place.world)
    await place.delete_build(first)
    assert await place.go() == NoRequeue()
    assert set(place.deleted) == wanted
    assert place.deleted[0] not in {each.digest for each in place.executions()[0].children}
    assert place.secrets == [(NAMESPACE, ("push",))]
    assert place.events == [("MachineOSBuild", first, "ImageDeleted")]
    assert place.held == []


@pytest.mark.req("BD-231", "BD-282")
async def test_images_that_are_published_or_used_again_stay():
    """The child of the architecture whose text did not change is in the new image, too."""
    both = [
        {"containerfileArch": "NoArch", "content": "RUN common\n"},
        {"containerfileArch": "ARM64", "content": "RUN arm\n"},
    ]
    place = Place(containerFile=both)
    place.world.build_all()
    first = name_of(place.world.build)
    old = digests(first, place.world)
    place.world.configure(containerFile=[both[0], {"containerfileArch": "ARM64", "content": "RUN other\n"}])
    place.world.build_all()
    (second,) = set(place.world.mosbs) - {first}
    await place.delete_build(first)
    await place.go()
    assert set(place.deleted) == old - digests(second, place.world)
    assert len(place.deleted) == 2


@pytest.mark.req("BD-282")
async def test_the_image_of_a_config_stays_though_its_build_is_deleted():
    place = Place()
    place.world.build_all()
    await place.delete_build(name_of(place.world.build))
    await place.go()
    assert (place.deleted, place.held) == ([], [])


@pytest.mark.req("BD-231")
async def test_an_image_that_a_node_runs_stays_with_all_of_its_children():
    place, first = rolled()
    place.node_runs(place.world.mosbs[first]["status"]["digestedImagePushSpec"])
    await place.delete_build(first)
    await place.go()
    assert (place.deleted, place.held) == ([], [])


@pytest.mark.req("BD-282")
async def test_a_config_takes_all_of_its_images_along_and_those_of_builds_that_were_taken_away():
    place = Place()
    place.world.reconcile()
    child = place.world.succeed("amd64")
    place.world.settle()
    place.world.configure(containerFile=[{"containerfileArch": "NoArch", "content": "RUN other\n"}])
    place.world.build_all()
    (last,) = place.world.mosbs
    wanted = {child, *digests(last, place.world)}
    await place.delete_config()
    await place.go()
    assert set(place.deleted) == wanted
    assert place.held == []


@pytest.mark.req("BD-282")
async def test_a_record_that_somebody_deletes_is_released_and_its_build_keeps_its_images():
    place = Place()
    place.world.reconcile()
    place.world.succeed("amd64")
    place.world.settle()
    await place.delete_record(name_of(place.world.build))
    await place.go()
    assert (place.deleted, place.held) == ([], [])


@pytest.mark.req("BD-281")
async def test_an_image_that_was_taken_as_it_is_belongs_to_its_user():
    place = Place()
    place.world.annotate(api.PRE_BUILT, "registry.example.com/os/worker@sha256:" + "5" * 64)
    place.world.bases["registry.example.com/os/worker@sha256:" + "5" * 64] = place.world.bases[
        "registry.example.com/release/os:4.19"
    ]
    place.world.settle()
    assert place.world.build["metadata"]["labels"][api.PRE_BUILT] == "true"
    await place.delete_config()
    await place.go()
    assert (place.deleted, place.held) == ([], [])


@pytest.mark.req("BD-233")
@pytest.mark.parametrize("minutes", [1, 11])
async def test_a_registry_that_fails_holds_a_record_for_ten_minutes(minutes):
    place, first = rolled()
    await place.delete_build(first)
    place.answer = lambda images: PruneResult(remaining=tuple(each.reference for each in images), problem="503")
    place.clock.advance(minutes * 60)
    found = await place.go()
    if minutes == 1:
        assert isinstance(found, RequeueAfter)
        assert place.held == [api.record_name(first)]
    else:
        assert place.held == []
        assert place.events == [("MachineOSBuild", first, "ImageCleanupAbandoned")]


@pytest.mark.req("BD-232")
async def test_nothing_is_deleted_while_caches_do_not_show_who_refers_to_it():
    place, first = rolled()
    await place.delete_build(first)
    place.behind = True
    assert isinstance(await place.go(), RequeueAfter)
    assert (place.deleted, place.held) == ([], [api.record_name(first)])


@pytest.mark.req("BD-233")
async def test_a_record_goes_though_nobody_learns_who_refers_to_its_images():
    """As where the kinds of machine OS images were removed: their namespace could not be deleted any more."""
    place, first = rolled()
    await place.delete_build(first)
    place.behind = True
    place.clock.advance(11 * 60)
    assert await place.go() == NoRequeue()
    assert (place.deleted, place.held) == ([], [])
    assert place.events == [("MachineOSBuild", first, "ImageCleanupAbandoned")]


@pytest.mark.req("BD-233")
@pytest.mark.parametrize("minutes", [1, 11])
async def test_a_secret_that_may_not_be_read_holds_a_record_for_ten_minutes(minutes):
    """As where the right was taken away together with the namespace."""
    place, first = rolled()
    await place.delete_build(first)

    def refuse(images):
        raise Forbidden(403, reason="Forbidden", message="secrets is forbidden")

    place.answer = refuse
    place.clock.advance(minutes * 60)
    await place.go()
    assert place.held == ([api.record_name(first)] if minutes == 1 else [])


@pytest.mark.req("BD-233")
async def test_a_record_that_is_no_builds_is_left_to_whoever_holds_it():
    """The finalizer alone tells nothing: it is released only where images were looked after."""
    place, _ = rolled()
    for name, namespace, notes in (
        ("note", NAMESPACE, {}),
        ("arch-other", "elsewhere", {api.CONFIG_LABEL: "worker"}),
    ):
        metadata = {"name": name, "annotations": notes, "finalizers": [names.IMAGES_FINALIZER]}
        metadata["deletionTimestamp"] = written(place.clock.now().timestamp())
        await place.api.create(CONFIGMAPS, {"metadata": metadata}, namespace=namespace)
    assert await place.go() == NoRequeue()
    assert place.held == ["note", "arch-other"]
