"""Deletion in steps; "gone" is what a live read says."""

import asyncio

import pytest
from fake_api import FakeApi
from manual_clock import ManualClock

from polyarch.kube.owners import DeletionTimeout, delete_object, delete_object_and_wait
from polyarch.kube.resources import CONFIGMAPS
from polyarch.objects import ObjectKey

pytestmark = pytest.mark.req("PL-522")

KEY = ObjectKey("n", "c")


def api_with(*, slowly=0, finalizers=("foregroundDeletion",)):
    """One object that goes ``slowly`` reads after it was deleted."""
    api = FakeApi()
    metadata = {"name": "c", "namespace": "n", "uid": "u-1", "finalizers": list(finalizers)}
    api.put(CONFIGMAPS, {"metadata": metadata})
    left = iter(range(slowly))

    async def read(verb, resource, name):
        if verb == "get" and api.deleted and next(left, None) is None and api.objects:
            api.remove(CONFIGMAPS, "c", "n")

    api.hook = read
    return api


async def test_each_step_looks_first_and_deletes_once():
    api = api_with(slowly=2)
    assert (await delete_object(api, CONFIGMAPS, KEY)).uid == "u-1"
    assert await delete_object(api, CONFIGMAPS, KEY) is not None
    assert await delete_object(api, CONFIGMAPS, KEY) is not None
    assert await delete_object(api, CONFIGMAPS, KEY) is None, "believed from the read alone"
    assert api.deleted == ["c"]


@pytest.mark.req("KR-052")
async def test_a_namesake_counts_as_gone_and_is_not_touched():
    api = api_with()
    assert await delete_object(api, CONFIGMAPS, KEY, uid="u-0") is None
    assert api.deleted == []


@pytest.mark.req("KR-052")
async def test_waiting_ends_when_it_is_gone():
    api, clock = api_with(slowly=3), ManualClock()
    task = delete_object_and_wait(api, CONFIGMAPS, KEY, clock=clock, seconds=60)
    running = asyncio.create_task(task)
    await clock.run(10)
    assert running.done()
    assert api.verbs(CONFIGMAPS).count("get") == 5


@pytest.mark.req("KR-052")
async def test_waiting_has_an_end_that_says_what_holds_the_object():
    api, clock = api_with(slowly=10**6, finalizers=["a/b", "c/d"]), ManualClock()
    running = asyncio.create_task(delete_object_and_wait(api, CONFIGMAPS, KEY, clock=clock, seconds=60))
    await clock.run(59)
    assert not running.done()
    await clock.run(2)
    with pytest.raises(DeletionTimeout, match=r"configmaps n/c is still there after 60 s, held by finalizers a/b, c/d"):
        await running
    assert api.verbs(CONFIGMAPS).count("get") < 60, "it does not look all the time"
