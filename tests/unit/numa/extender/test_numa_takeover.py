"""What another replica did is known before the first answer after a silence."""

import asyncio

import pytest
from numa_extender import OURS, ExtenderWorld, document

from polyarch.kube.errors import ConnectionFailed
from polyarch.kube.resources import PODS
from polyarch.numa.extender.sources import POD, FailoverBarrier

LISTED = [("list", "pods", f"spec.schedulerName={OURS}")]


@pytest.fixture
def world():
    return ExtenderWorld()


@pytest.fixture
def takeover(world):
    return FailoverBarrier(world.api, world.sources.pods, OURS, clock=world.clock)


async def passes_after(takeover, clock):
    """Seconds that a filter call waits."""
    began = clock.monotonic()
    call = asyncio.create_task(takeover.passed())
    while not call.done():
        await clock.run(0.01)
    await call
    return clock.monotonic() - began


@pytest.mark.req("NS-151")
async def test_the_first_call_after_a_silence_waits_until_the_watch_has_shown_what_is_there(world, takeover):
    world.api.put(PODS, document("web"))
    call = asyncio.create_task(takeover.passed())
    await world.clock.run(0.5)
    assert not call.done()
    world.see(POD, world.api.read(PODS, "web", "demo"))
    await world.clock.run(0.05)
    assert call.done()
    assert world.api.requests == LISTED, "a consistent read, and one alone"


@pytest.mark.req("NS-151")
async def test_later_calls_do_not_wait_nor_ask_until_there_was_none_for_30_seconds(world, takeover):
    await takeover.passed()
    for _ in range(5):
        await world.clock.run(29)
        await takeover.passed()
    assert world.api.requests == LISTED
    await world.clock.run(31)
    await takeover.passed()
    assert world.api.requests == LISTED * 2


@pytest.mark.req("NS-151")
async def test_it_waits_less_than_a_verb_may_take_and_then_answers(world, takeover):
    world.api.put(PODS, document("never"))
    assert 1.4 < await passes_after(takeover, world.clock) < 2.0


@pytest.mark.req("NS-151")
async def test_an_api_server_that_is_away_does_not_hold_the_answer_up(world, takeover):
    world.api.refuse(PODS, "list", error=ConnectionFailed("no API server"))
    assert await passes_after(takeover, world.clock) < 0.1
