"""Deletion in steps; "gone" is what a live read says."""

import asyncio

import pytest
from manual_clock import ManualClock

from polyarch.kube.errors import Conflict, NotFound
from polyarch.kube.owners import DeletionTimeout, delete_object, delete_object_and_wait
from polyarch.kube.resources import CONFIGMAPS
from polyarch.objects import ObjectKey, ObjectMeta, PartialObjectMetadata

pytestmark = pytest.mark.req("PL-522")

KEY = ObjectKey("n", "c")


class Api:
    """One object that goes ``slowly`` reads after it was deleted."""

    def __init__(self, *, slowly: int = 0, finalizers: list[str] | None = None) -> None:
        self.seen: ObjectMeta | None = ObjectMeta(
            name="c", namespace="n", uid="u-1", resource_version="5", finalizers=finalizers
        )
        self.slowly = slowly
        self.deleted: list[str | None] = []
        self.reads = 0

    async def get(self, resource, name, *, namespace="", type=PartialObjectMetadata):
        self.reads += 1
        if self.seen is not None and self.seen.deletion_timestamp is not None:
            self.slowly -= 1
            if self.slowly < 0:
                self.seen = None
        if self.seen is None:
            raise NotFound(404)
        return PartialObjectMetadata(self.seen)

    async def delete(self, resource, name, *, namespace="", uid=None, resource_version=None, propagation=None):
        self.deleted.append(uid)
        if self.seen is None:
            raise NotFound(404)
        if uid != self.seen.uid:
            raise Conflict(409)
        self.seen = ObjectMeta(
            name="c",
            namespace="n",
            uid="u-1",
            deletion_timestamp="2025-01-01T00:00:00Z",
            finalizers=self.seen.finalizers,
        )


@pytest.mark.req("KR-052")
async def test_each_step_looks_first_and_deletes_once():
    api = Api(slowly=2)
    assert (await delete_object(api, CONFIGMAPS, KEY)).uid == "u-1"
    assert await delete_object(api, CONFIGMAPS, KEY) is not None
    assert await delete_object(api, CONFIGMAPS, KEY) is not None
    assert await delete_object(api, CONFIGMAPS, KEY) is None, "believed from the read alone"
    assert api.deleted == ["u-1"]


@pytest.mark.req("KR-052")
async def test_a_namesake_counts_as_gone_and_is_not_touched():
    api = Api()
    assert await delete_object(api, CONFIGMAPS, KEY, uid="u-0") is None
    assert api.deleted == []


@pytest.mark.req("KR-052")
async def test_waiting_ends_when_it_is_gone():
    api, clock = Api(slowly=3), ManualClock()
    task = delete_object_and_wait(api, CONFIGMAPS, KEY, clock=clock, seconds=60)
    running = asyncio.create_task(task)
    await clock.run(10)
    assert running.done()
    assert api.reads == 5


@pytest.mark.req("KR-052")
async def test_waiting_has_an_end_that_says_what_holds_the_object():
    api, clock = Api(slowly=10**6, finalizers=["a/b", "c/d"]), ManualClock()
    running = asyncio.create_task(delete_object_and_wait(api, CONFIGMAPS, KEY, clock=clock, seconds=60))
    await clock.run(59)
    assert not running.done()
    await clock.run(2)
    with pytest.raises(DeletionTimeout, match=r"configmaps n/c is still there after 60 s, held by finalizers a/b, c/d"):
        await running
    assert api.reads < 60, "it does not look all the time"
