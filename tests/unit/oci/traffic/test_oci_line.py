"""Who gets the next slot of a host."""

import asyncio

import pytest

from polyarch.oci.concurrency import QueueFull, RequestPriority, RequestQueue, SingleFlight, Tenants
from polyarch.oci.settings import Share

pytestmark = pytest.mark.req("RG-052")


async def served(line, *entrants):
    """The order in which waiting entrants get the only slot, each giving it back at once."""
    order = []

    async def entrant(name, priority, tenant):
        async with line.slot(priority, tenant):
            order.append(name)

    await line.enter(RequestPriority.MANIFEST)
    tasks = []
    for name, priority, tenant in entrants:
        tasks.append(asyncio.create_task(entrant(name, priority, tenant)))
        await asyncio.sleep(0)
    line.leave()
    await asyncio.gather(*tasks)
    return order


async def test_manifests_go_before_blobs_however_long_those_wait():
    order = await served(
        RequestQueue(Share(1)),
        ("blob", RequestPriority.BLOB, ""),
        ("first", RequestPriority.MANIFEST, ""),
        ("second", RequestPriority.MANIFEST, ""),
    )
    assert order == ["first", "second", "blob"]


@pytest.mark.req("PL-851")
async def test_tenants_take_turns():
    """A tenant with many requests cannot starve one with few."""
    entrants = [(f"a{number}", RequestPriority.MANIFEST, "a") for number in range(3)]
    entrants += [(f"b{number}", RequestPriority.MANIFEST, "b") for number in range(2)]
    assert await served(RequestQueue(Share(1)), *entrants) == ["a0", "b0", "a1", "b1", "a2"]


async def test_no_more_than_its_slots_are_used_at_a_time():
    line, running, most = RequestQueue(Share(3)), 0, 0

    async def work():
        nonlocal running, most
        await line.enter(RequestPriority.MANIFEST)
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1
        line.leave()

    await asyncio.gather(*(work() for _ in range(20)))
    assert (most, line.idle, line.length) == (3, True, 0)


@pytest.mark.req("PL-851")
async def test_a_tenant_has_so_many_waiting_and_no_more():
    """At most 64 (here 2) waiting; the others do not mind."""
    line = RequestQueue(Share(1), waiting=Share(100, per_tenant=2))
    await line.enter(RequestPriority.MANIFEST, "a")
    waiting = [asyncio.create_task(line.enter(RequestPriority.MANIFEST, "a")) for _ in range(2)]
    await asyncio.sleep(0)
    with pytest.raises(QueueFull):
        await line.enter(RequestPriority.BLOB, "a")
    other = asyncio.create_task(line.enter(RequestPriority.MANIFEST, "b"))
    await asyncio.sleep(0)
    assert line.length == 3
    for tenant in ("a", "a", "b", "a"):
        line.leave(tenant)
    assert [await each for each in (*waiting, other)] == ["a", "a", "b"]
    assert line.idle


@pytest.mark.req("PL-851", "PL-854")
async def test_all_tenants_together_have_so_many_waiting_and_no_more():
    """And who takes most of the line leaves as much to the others as it has."""
    line = RequestQueue(Share(1), waiting=Share(8, per_tenant=4))
    await line.enter(RequestPriority.MANIFEST)
    waiting = []
    for tenant in ("loud", *"abcdefg"):
        for _ in range(8):
            waiting.append(asyncio.create_task(line.enter(RequestPriority.MANIFEST, tenant)))
            await asyncio.sleep(0)
    refused = [each for each in waiting if each.done()]
    assert all(isinstance(each.exception(), QueueFull) for each in refused)
    assert line.length == 8 == len(waiting) - len(refused)
    assert [each.done() for each in waiting[:8]] == [False] * 4 + [True] * 4
    for each in waiting:
        each.cancel()
    await asyncio.wait(waiting)
    assert line.length == 0


async def test_a_waiter_that_is_cancelled_loses_no_slot():
    line = RequestQueue(Share(1))
    await line.enter(RequestPriority.MANIFEST)
    gone = asyncio.create_task(line.enter(RequestPriority.MANIFEST))
    stays = asyncio.create_task(line.enter(RequestPriority.MANIFEST))
    await asyncio.sleep(0)
    gone.cancel()
    await asyncio.wait([gone])
    assert line.length == 1
    line.leave()
    await stays
    line.leave()
    assert line.idle


async def test_a_waiter_cancelled_in_the_turn_in_which_it_was_served_passes_the_slot_on():
    line = RequestQueue(Share(1))
    await line.enter(RequestPriority.MANIFEST)
    gone = asyncio.create_task(line.enter(RequestPriority.MANIFEST))
    stays = asyncio.create_task(line.enter(RequestPriority.MANIFEST))
    await asyncio.sleep(0)
    line.leave()  # hands the slot to the first
    gone.cancel()
    await asyncio.wait([gone])
    assert gone.cancelled()
    await asyncio.wait_for(stays, 5)
    line.leave()
    assert line.idle


async def test_a_slot_given_back_in_the_turn_of_a_cancellation_is_not_lost():
    line = RequestQueue(Share(1))
    await line.enter(RequestPriority.MANIFEST)
    gone = asyncio.create_task(line.enter(RequestPriority.MANIFEST))
    await asyncio.sleep(0)
    gone.cancel()  # still in line until it runs again
    line.leave()
    await asyncio.wait([gone])
    assert (line.idle, line.length) == (True, 0)


@pytest.mark.req("PL-851")
async def test_whoever_holds_all_slots_leaves_each_tenant_its_minimum():
    """And nothing is idle while a tenant alone wants it."""
    line = RequestQueue(Share(4, minimum=1, maximum=6))
    assert [await line.enter(RequestPriority.MANIFEST, "greedy") for _ in range(4)] == ["greedy"] * 4
    async with asyncio.timeout(1):
        assert await line.enter(RequestPriority.MANIFEST, "modest") == "modest"
        assert await line.enter(RequestPriority.MANIFEST, "late") == "late"
    beyond = [asyncio.create_task(line.enter(RequestPriority.MANIFEST, name)) for name in ("modest", "last")]
    await asyncio.sleep(0)
    assert line.length == 2
    line.leave("greedy")
    assert await beyond[1] == "last", "the next has none, so it comes before those with their minimum"
    line.leave("greedy")
    await asyncio.sleep(0)
    assert not beyond[0].done()
    for tenant in ("greedy", "greedy", "late"):
        line.leave(tenant)
    assert await beyond[0] == "modest"


@pytest.mark.req("PL-851")
async def test_a_request_that_another_tenant_joins_waits_no_longer_than_its_own_would():
    line = RequestQueue(Share(1, minimum=1, maximum=9))
    await line.enter(RequestPriority.MANIFEST, "greedy")
    asked_by = Tenants("greedy")
    shared = asyncio.create_task(line.enter(RequestPriority.MANIFEST, asked_by))
    await asyncio.sleep(0)
    assert not shared.done()
    asked_by.add("modest")
    async with asyncio.timeout(1):
        assert await shared == "modest"
    line.leave("greedy")
    line.leave("modest")
    assert (line.idle, line.length) == (True, 0)


@pytest.mark.req("PL-851")
async def test_a_call_that_is_joined_is_made_for_whoever_joins_it():
    calls, first, second = SingleFlight(), Tenants("greedy"), Tenants("modest")
    done = asyncio.Event()
    waiting = [asyncio.create_task(calls.join("key", done.wait, tenants=first))]
    await asyncio.sleep(0)
    waiting.append(asyncio.create_task(calls.join("key", done.wait, tenants=second)))
    await asyncio.sleep(0)
    second.add("third")
    assert list(first) == ["greedy", "modest", "third"]
    done.set()
    await asyncio.gather(*waiting)


@pytest.mark.req("PL-851")
async def test_two_requests_of_one_image_may_join_the_same_call():
    """And those who join the image later are still told to the call when one of both has left."""
    calls, first, second = SingleFlight(), Tenants("greedy"), Tenants("modest")
    done = asyncio.Event()
    waiting = [asyncio.create_task(calls.join("key", done.wait, tenants=each)) for each in (first, second, second)]
    await asyncio.sleep(0)
    waiting[1].cancel()
    await asyncio.wait(waiting[1:2])
    second.add("third")
    assert list(first) == ["greedy", "modest", "third"]
    done.set()
    assert await asyncio.gather(waiting[0], waiting[2]) == [True, True]
