"""Objects that are handed on and not kept: in order, each once, and gone when they are."""

import asyncio
from contextlib import asynccontextmanager

import msgspec
import pytest
from manual_clock import ManualClock

from polyarch.kube.errors import ConnectionFailed
from polyarch.kube.resources import PODS
from polyarch.kube.watch import Apply, Bookmark, Delete, Init, InitApply, InitDone, ObjectChanged
from polyarch.numa.extender.sources import UncachedInformer
from polyarch.objects import ObjectKey, ObjectMeta, PartialObjectMetadata

pytestmark = pytest.mark.req("NS-171")


class Watched:
    """An API server whose watch can break or fall silent."""

    def __init__(self):
        self.events = asyncio.Queue()
        self.is_away = False

    @asynccontextmanager
    async def watch(self, resource, selection, **options):
        if self.is_away:
            raise ConnectionFailed("no API server")
        yield self._stream()

    async def _stream(self):
        yield [Bookmark("1", initial_end=True)]
        while True:
            event = await self.events.get()
            if isinstance(event, Exception):
                raise event
            yield [event]

    async def is_served(self, resource):
        return True


class ExtenderFeedWorld:
    def __init__(self):
        self.told = []
        self.clock = ManualClock()
        self.api = Watched()
        self.feed = UncachedInformer(
            self.api,
            PODS,
            PartialObjectMetadata,
            seen=lambda pod: self.told.append(f"+{pod.metadata.name}@{pod.metadata.resource_version}"),
            gone=lambda key, uid: self.told.append(f"-{key.name}={uid}"),
            clock=self.clock,
            complete=lambda: self.told.append("complete"),
        )

    def take(self, *outputs):
        self.told.clear()
        for each in outputs:
            self.feed.take(each)
        return self.told


def pod(name, version, uid=""):
    return PartialObjectMetadata(
        metadata=ObjectMeta(name=name, namespace="demo", uid=uid or f"uid-{name}", resource_version=str(version))
    )


def listed(*pods, version=100):
    return [Init(), *map(InitApply, pods), InitDone(str(version))]


async def test_each_version_is_handed_on_once_and_the_first_list_is_told():
    world = ExtenderFeedWorld()
    assert world.take(*listed(pod("a", 1), pod("b", 2))) == ["+a@1", "+b@2", "complete"]
    assert world.take(Apply(pod("a", 1)), Apply(pod("a", 5)), Apply(pod("a", 4))) == ["+a@5"]
    assert world.feed.has_synced
    assert len(world.feed) == 2


async def test_what_vanished_while_the_watch_was_broken_is_told_when_the_next_list_is_complete():
    world = ExtenderFeedWorld()
    world.take(*listed(pod("a", 1), pod("b", 2)))
    assert world.take(Init(), InitApply(pod("b", 2)), InitApply(pod("c", 9))) == ["+c@9"]
    assert world.take(InitDone("10")) == ["-a=uid-a"]


async def test_a_list_that_breaks_off_says_nothing_of_what_was_not_in_it():
    world = ExtenderFeedWorld()
    world.take(*listed(pod("a", 1), pod("b", 2)))
    world.take(Init(), InitApply(pod("a", 1)))
    assert world.take(*listed(pod("a", 1), pod("b", 2))) == []


async def test_an_object_made_again_under_its_name_is_another_one():
    world = ExtenderFeedWorld()
    world.take(*listed(pod("a", 1)))
    assert world.take(Apply(pod("a", 7, uid="other"))) == ["-a=uid-a", "+a@7"]


async def test_a_deletion_older_than_what_is_known_is_not_one():
    world = ExtenderFeedWorld()
    world.take(*listed(pod("a", 5)))
    assert world.take(Delete(ObjectKey("demo", "a"), "3")) == []
    assert world.take(Delete(ObjectKey("demo", "a"), "8")) == ["-a=uid-a"]
    assert world.take(Delete(ObjectKey("demo", "a"), "8")) == []


async def test_an_object_that_cannot_be_taken_in_hinders_no_other():
    world = ExtenderFeedWorld()
    told = []

    def seen(pod):
        if pod.metadata.name == "odd":
            raise ValueError("odd")
        told.append(pod.metadata.name)

    feed = UncachedInformer(
        world.api, PODS, PartialObjectMetadata, seen=seen, gone=lambda key, uid: None, clock=world.clock
    )
    for each in listed(pod("odd", 1), pod("a", 2)):
        feed.take(each)
    assert told == ["a"]
    assert feed.has_synced


@pytest.mark.req("NS-151")
async def test_what_was_handed_on_is_known_by_its_version():
    world = ExtenderFeedWorld()
    world.take(*listed(pod("a", 10)))
    key = ObjectKey("demo", "a")
    assert [world.feed.has(key, version) for version in ("9", "10", "11")] == [True, True, False]
    assert not world.feed.has(ObjectKey("demo", "b"), "1")


@pytest.fixture
async def running():
    world = ExtenderFeedWorld()
    task = asyncio.create_task(world.feed.run())
    await world.clock.run(0)
    yield world
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


@pytest.mark.req("NS-085")
async def test_a_broken_watch_is_stale_from_the_moment_it_breaks(running):
    assert running.feed.has_synced
    assert running.feed.stale_seconds == 0
    running.api.is_away = True
    running.api.events.put_nowait(ConnectionFailed("gone"))
    await running.clock.run(30)
    assert 29 <= running.feed.stale_seconds <= 31
    assert "no API server" in running.feed.last_error
    running.api.is_away = False
    await running.clock.run(5)
    assert running.feed.stale_seconds == 0


@pytest.mark.req("NS-085")
async def test_an_open_watch_that_says_nothing_is_stale_once_its_bookmark_is_overdue(running):
    await running.clock.run(70)
    assert running.feed.stale_seconds == 0
    await running.clock.run(35)
    assert 29 <= running.feed.stale_seconds <= 31
    running.api.events.put_nowait(Bookmark("5"))
    await running.clock.run(1)
    assert running.feed.stale_seconds == 0
    running.api.events.put_nowait(ObjectChanged(msgspec.structs.replace(pod("late", 6))))
    await running.clock.run(1)
    assert "+late@6" in running.told
