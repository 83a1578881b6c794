"""Objects that are handed on and not kept: in order, each once, and gone when they are."""

import asyncio

import pytest
from numa_extender import ExtenderWorld

from polyarch.kube.errors import ConnectionFailed
from polyarch.kube.resources import PODS
from polyarch.kube.watch import Apply, Bookmark, Delete, Init, InitApply, InitDone
from polyarch.numa.extender.sources import UncachedInformer
from polyarch.objects import ObjectKey, ObjectMeta, PartialObjectMetadata

pytestmark = pytest.mark.req("NS-171")


@pytest.fixture
def world():
    return ExtenderWorld()


@pytest.fixture
def told():
    return []


@pytest.fixture
def feed(world, told):
    return UncachedInformer(
        world.api,
        PODS,
        PartialObjectMetadata,
        seen=lambda pod: told.append(f"+{pod.metadata.name}@{pod.metadata.resource_version}"),
        gone=lambda key, uid: told.append(f"-{key.name}={uid}"),
        clock=world.clock,
        complete=lambda: told.append("complete"),
    )


@pytest.fixture
def take(feed, told):
    def take(*outputs):
        told.clear()
        for each in outputs:
            feed.take(each)
        return told

    return take


def pod(name, version, uid=""):
    return PartialObjectMetadata(
        metadata=ObjectMeta(name=name, namespace="demo", uid=uid or f"uid-{name}", resource_version=str(version))
    )


def listed(*pods, version=100):
    return [Init(), *map(InitApply, pods), InitDone(str(version))]


async def test_each_version_is_handed_on_once_and_the_first_list_is_told(feed, take):
    assert take(*listed(pod("a", 1), pod("b", 2))) == ["+a@1", "+b@2", "complete"]
    assert take(Apply(pod("a", 1)), Apply(pod("a", 5)), Apply(pod("a", 4))) == ["+a@5"]
    assert feed.has_synced
    assert len(feed) == 2


async def test_what_vanished_while_the_watch_was_broken_is_told_when_the_next_list_is_complete(take):
    take(*listed(pod("a", 1), pod("b", 2)))
    assert take(Init(), InitApply(pod("b", 2)), InitApply(pod("c", 9))) == ["+c@9"]
    assert take(InitDone("10")) == ["-a=uid-a"]


async def test_a_list_that_breaks_off_says_nothing_of_what_was_not_in_it(take):
    take(*listed(pod("a", 1), pod("b", 2)))
    take(Init(), InitApply(pod("a", 1)))
    assert take(*listed(pod("a", 1), pod("b", 2))) == []


async def test_an_object_made_again_under_its_name_is_another_one(take):
    take(*listed(pod("a", 1)))
    assert take(Apply(pod("a", 7, uid="other"))) == ["-a=uid-a", "+a@7"]


async def test_a_deletion_older_than_what_is_known_is_not_one(take):
    take(*listed(pod("a", 5)))
    assert take(Delete(ObjectKey("demo", "a"), "3")) == []
    assert take(Delete(ObjectKey("demo", "a"), "8")) == ["-a=uid-a"]
    assert take(Delete(ObjectKey("demo", "a"), "8")) == []


async def test_an_object_that_cannot_be_taken_in_hinders_no_other(world):
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
async def test_what_was_handed_on_is_known_by_its_version(feed, take):
    take(*listed(pod("a", 10)))
    key = ObjectKey("demo", "a")
    assert [feed.has(key, version) for version in ("9", "10", "11")] == [True, True, False]
    assert not feed.has(ObjectKey("demo", "b"), "1")


@pytest.fixture
async def running(world, feed):
    task = asyncio.create_task(feed.run())
    await world.clock.run(0)
    yield
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


@pytest.mark.req("NS-085")
@pytest.mark.usefixtures("running")
async def test_a_broken_watch_is_stale_from_the_moment_it_breaks(world, feed):
    assert feed.has_synced
    assert feed.stale_seconds == 0
    world.api.refuse(PODS, "watch", error=ConnectionFailed("no API server"))
    world.api.tell(PODS, ConnectionFailed("gone"))
    await world.clock.run(30)
    assert 29 <= feed.stale_seconds <= 31
    assert "no API server" in feed.last_error
    world.api.allow()
    await world.clock.run(5)
    assert feed.stale_seconds == 0


@pytest.mark.req("NS-085")
@pytest.mark.usefixtures("running")
async def test_an_open_watch_that_says_nothing_is_stale_once_its_bookmark_is_overdue(world, told, feed):
    await world.clock.run(70)
    assert feed.stale_seconds == 0
    await world.clock.run(35)
    assert 29 <= feed.stale_seconds <= 31
    world.api.tell(PODS, Bookmark("5"))
    await world.clock.run(1)
    assert feed.stale_seconds == 0
    world.api.put(PODS, {"metadata": {"name": "late", "namespace": "demo"}})
    await world.clock.run(1)
    assert any(each.startswith("+late@") for each in told)
