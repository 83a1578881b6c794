"""What another replica did is known before the first answer after a silence."""

import asyncio

import pytest
from manual_clock import ManualClock

from polyarch.kube.errors import ConnectionFailed
from polyarch.kube.responses import ListResult
from polyarch.numa.extender.sources import FailoverBarrier
from polyarch.objects import ObjectKey, ObjectMeta, PartialObjectMetadata


class TakeoverWorld:
    """An API server with pods, and a watch that has shown some of them."""

    def __init__(self, *pods):
        self.pods = pods
        self.shown = set()
        self.lists = []
        self.error = None
        self.clock = ManualClock()
        self.takeover = FailoverBarrier(self, self, "ours", clock=self.clock)

    async def list(self, resource, *, type, field_selector, retry):
        self.lists.append(field_selector)
        if self.error is not None:
            raise self.error
        metadata = (ObjectMeta(name=name, namespace="demo", resource_version=version) for name, version in self.pods)
        return ListResult([PartialObjectMetadata(metadata=each) for each in metadata], "9")

    def has(self, key, version):
        return (key, version) in self.shown

    async def passes_after(self):
        """Seconds that a filter call waits."""
        began = self.clock.monotonic()
        call = asyncio.create_task(self.takeover.passed())
        while not call.done():
            await self.clock.run(0.01)
        await call
        return self.clock.monotonic() - began


@pytest.mark.req("NS-151")
async def test_the_first_call_after_a_silence_waits_until_the_watch_has_shown_what_is_there():
    world = TakeoverWorld(("web", "7"))
    call = asyncio.create_task(world.takeover.passed())
    await world.clock.run(0.5)
    assert not call.done()
    world.shown.add((ObjectKey("demo", "web"), "7"))
    await world.clock.run(0.05)
    assert call.done()
    assert world.lists == ["spec.schedulerName=ours"], "a consistent read, and one alone"


@pytest.mark.req("NS-151")
async def test_later_calls_do_not_wait_nor_ask_until_there_was_none_for_30_seconds():
    world = TakeoverWorld()
    await world.takeover.passed()
    for _ in range(5):
        await world.clock.run(29)
        await world.takeover.passed()
    assert len(world.lists) == 1
    await world.clock.run(31)
    await world.takeover.passed()
    assert len(world.lists) == 2


@pytest.mark.req("NS-151")
async def test_it_waits_less_than_a_verb_may_take_and_then_answers():
    world = TakeoverWorld(("never", "7"))
    assert 1.4 < await world.passes_after() < 2.0


@pytest.mark.req("NS-151")
async def test_an_api_server_that_is_away_does_not_hold_the_answer_up():
    world = TakeoverWorld()
    world.error = ConnectionFailed("no API server")
    assert await world.passes_after() < 0.1
