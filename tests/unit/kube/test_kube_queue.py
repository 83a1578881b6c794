"""What a work queue promises to the workers and to whoever enqueues."""

import asyncio

import pytest
from manual_clock import ManualClock

from polyarch.kube.metrics import Metrics
from polyarch.kube.queue import Priority, ShutDown, Tenants, WorkQueue


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(start=0)


@pytest.fixture
def queue(clock) -> WorkQueue[str]:
    return WorkQueue("pods", clock, random=lambda: 1.0)


async def take(queue: WorkQueue[str]) -> str:
    """The next key, which must be there now."""
    async with asyncio.timeout(1):
        return await queue.get()


@pytest.mark.req("KR-020")
async def test_a_key_added_many_times_is_given_out_once(queue):
    for _ in range(3):
        queue.add("a")
    assert len(queue) == 1
    assert await take(queue) == "a"
    assert len(queue) == 0


@pytest.mark.req("KR-020")
async def test_a_key_added_while_processed_gets_exactly_one_more_pass(queue):
    queue.add("a")
    key = await take(queue)
    queue.add("a")
    queue.add("a")
    assert len(queue) == 0, "nobody else may take it now"
    queue.done(key)
    assert await take(queue) == "a"
    queue.done("a")
    assert len(queue) == 0


@pytest.mark.req("KR-020")
async def test_keys_come_in_the_order_they_were_added(queue):
    for key in "cab":
        queue.add(key)
    assert [await take(queue) for _ in range(3)] == ["c", "a", "b"]


@pytest.mark.req("KR-020")
async def test_of_several_delays_the_earliest_wins(queue, clock):
    queue.add_after("a", 10)
    queue.add_after("a", 5)
    queue.add_after("a", 20)
    clock.advance(4.9)
    assert len(queue) == 0
    clock.advance(0.1)
    assert await take(queue) == "a"
    queue.done("a")
    clock.advance(100)
    assert len(queue) == 0, "the later delays were for the same key"


@pytest.mark.req("KR-020")
async def test_a_waiting_worker_is_woken_when_a_delay_ends(queue, clock):
    queue.add_after("late", 30)
    worker = asyncio.create_task(queue.get())
    await clock.settle()
    queue.add_after("early", 10)
    await clock.run(10)
    assert worker.done()
    assert await worker == "early"
    second = asyncio.create_task(queue.get())
    await clock.run(20)
    assert await second == "late"
    assert clock.sleepers == 0


@pytest.mark.req("KR-020")
async def test_an_add_does_not_take_away_a_look_that_was_asked_for_later(queue, clock):
    queue.add_after("a", 5)
    queue.add("a")
    queue.done(await take(queue))
    clock.advance(5)
    assert await take(queue) == "a"


@pytest.mark.req("KR-020")
async def test_a_delay_that_ends_while_the_key_is_processed_leads_to_one_more_pass(queue, clock):
    queue.add("a")
    await take(queue)
    queue.add_after("a", 1)
    clock.advance(2)
    assert len(queue) == 0
    queue.done("a")
    assert await take(queue) == "a"


@pytest.mark.req("KR-020")
async def test_a_key_that_is_discarded_is_neither_given_out_nor_kept(queue, clock):
    queue.add("ready")
    queue.add("low", Priority.LOW)
    queue.add_after("delayed", 5)
    queue.retry("failed")
    queue.add("kept")
    for key in ("ready", "low", "delayed", "failed", "unknown"):
        queue.discard(key)
    clock.advance(600)
    assert (len(queue), queue.failures("failed")) == (1, 0)
    assert await take(queue) == "kept"


@pytest.mark.req("KR-020")
async def test_a_worker_that_was_woken_for_a_discarded_key_waits_for_the_next(queue):
    worker = asyncio.create_task(queue.get())
    await asyncio.sleep(0)
    queue.add("gone")
    queue.discard("gone")
    await asyncio.sleep(0.01)
    assert not worker.done()
    queue.add("next")
    assert await worker == "next"


@pytest.mark.req("KR-020")
async def test_failures_back_off_from_5_ms_to_5_min_and_success_forgets_them(clock):
    low = WorkQueue[str]("low", clock, random=lambda: 0.0)
    high = WorkQueue[str]("high", clock, random=lambda: 1.0)
    assert [low.retry("a") for _ in range(4)] == [0.005, 0.01, 0.02, 0.04]
    assert high.retry("a") == 0.01
    delays = [high.retry("a") for _ in range(60)]
    assert delays == sorted(delays)
    assert delays[-1] == 300
    high.forget("a")
    assert high.retry("a") == 0.01
    assert high.failures("a") == 1


@pytest.mark.req("KR-020")
async def test_a_retry_never_waits_longer_than_the_longest_backoff(queue, clock):
    """Whatever something before the server says."""
    assert queue.retry("a", at_least=86_400) == 300


@pytest.mark.req("KR-020")
async def test_a_retry_waits_at_least_as_long_as_the_server_asked(queue, clock):
    assert queue.retry("a", at_least=7) == 7
    clock.advance(6.9)
    assert len(queue) == 0
    clock.advance(0.1)
    assert len(queue) == 1


@pytest.mark.req("KR-020")
async def test_live_keys_pass_the_initial_list_without_starving_it(queue):
    for number in range(3):
        queue.add(f"old-{number}", Priority.LOW)
    for number in range(9):
        queue.add(f"new-{number}")
    order = [await take(queue) for _ in range(12)]
    assert order[0] == "new-0"
    assert order.index("old-0") == 4
    assert order.index("old-1") == 9
    assert [key for key in order if key.startswith("new")] == [f"new-{number}" for number in range(9)]


@pytest.mark.req("KR-020")
async def test_an_event_moves_a_key_of_the_initial_list_up(queue):
    for key in "abc":
        queue.add(key, Priority.LOW)
    queue.add("c")
    queue.add("c", Priority.LOW)
    assert [await take(queue) for _ in range(3)] == ["c", "a", "b"]


@pytest.mark.req("KR-020")
async def test_draining_gives_out_what_is_ready_and_takes_nothing_new(queue, clock):
    queue.add("a")
    queue.add("b")
    queue.add_after("later", 1)
    first = await take(queue)
    queue.add("a")
    queue.shut_down(drain=True)
    queue.add("c")
    queue.retry("a")
    drained = asyncio.create_task(queue.drained())
    assert await take(queue) == "b"
    queue.done("b")
    queue.done(first)
    assert await take(queue) == "a", "it was added while processed, before the end"
    await clock.settle()
    assert not drained.done()
    queue.done("a")
    await drained
    clock.advance(1000)
    with pytest.raises(ShutDown):
        await take(queue)


@pytest.mark.req("KR-020")
async def test_a_stop_without_draining_gives_out_nothing_more(queue):
    queue.add("a")
    queue.add("b")
    queue.shut_down(drain=False) if await take(queue) else None
    with pytest.raises(ShutDown):
        await take(queue)
    queue.done("a")
    await queue.drained()


@pytest.mark.req("KR-020")
async def test_shutting_down_wakes_every_waiting_worker(queue):
    workers = [asyncio.create_task(queue.get()) for _ in range(3)]
    await asyncio.sleep(0)
    queue.shut_down(drain=True)
    results = await asyncio.gather(*workers, return_exceptions=True)
    assert all(isinstance(result, ShutDown) for result in results)


async def test_a_key_is_not_lost_with_a_worker_that_is_cancelled_as_it_is_woken(queue):
    first, second = asyncio.create_task(queue.get()), asyncio.create_task(queue.get())
    await asyncio.sleep(0)
    queue.add("a")
    first.cancel()
    assert await asyncio.wait_for(second, 1) == "a"
    await asyncio.wait([first])
    assert first.cancelled()


async def test_a_worker_that_is_cancelled_while_waiting_leaves_no_timer(queue, clock):
    queue.add_after("a", 60)
    worker = asyncio.create_task(queue.get())
    await clock.settle()
    assert clock.sleepers == 1
    worker.cancel()
    await clock.settle()
    assert clock.sleepers == 0
    assert worker.cancelled()


@pytest.mark.req("KR-020")
async def test_metrics_say_depth_latency_work_retries_and_oldest_age(clock):
    metrics = Metrics()
    queue = WorkQueue[str]("pods", clock, metrics=metrics)

    def value(name: str) -> float | None:
        return metrics.registry.get_sample_value(name, {"name": "pods"})

    queue.add("a")
    queue.add("b")
    clock.advance(3)
    assert value("workqueue_depth") == 2
    assert queue.oldest_age == 3
    assert value("workqueue_oldest_age_seconds") == 0, "without workers nobody is late"
    key = await take(queue)
    assert value("workqueue_oldest_age_seconds") == 3
    assert value("workqueue_queue_duration_seconds_sum") == 3
    clock.advance(2)
    queue.retry(key)
    queue.done(key)
    assert value("workqueue_work_duration_seconds_sum") == 2
    assert value("workqueue_retries_total") == 1
    assert value("workqueue_adds_total") == 2
    assert value("workqueue_depth") == 1


async def test_two_queues_share_the_metric_families_of_a_process(clock):
    metrics = Metrics()
    WorkQueue[str]("one", clock, metrics=metrics).add("a")
    WorkQueue[str]("two", clock, metrics=metrics)
    text, content_type = metrics.render()
    assert b'workqueue_depth{name="one"} 1.0' in text
    assert b'workqueue_depth{name="two"} 0.0' in text
    assert content_type.startswith("text/plain")


def test_a_metric_name_has_one_kind():
    metrics = Metrics()
    metrics.counter("polyarch_things_total", "Things")
    with pytest.raises(TypeError, match="polyarch_things_total"):
        metrics.gauge("polyarch_things_total", "Things")


# -- tenants -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def shared(clock) -> WorkQueue[str]:
    """Eight workers; the first letter of a key is its tenant."""
    return WorkQueue("builds", clock, tenants=Tenants(lambda key: key[0], workers=8))


async def is_blocked(queue: WorkQueue[str]) -> bool:
    """Whether nothing is given out now."""
    getter = asyncio.create_task(queue.get())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    if getter.done():
        return False
    getter.cancel()
    return True


@pytest.mark.req("KR-024")
async def test_a_tenant_with_many_keys_is_served_in_turn_with_the_others(shared):
    for key in ("a1", "a2", "a3", "a4", "b1", "c1", "c2"):
        shared.add(key)
    served = []
    while shared:
        served.append(await take(shared))
        shared.done(served[-1])
    assert served == ["a1", "b1", "c1", "a2", "c2", "a3", "a4"]


@pytest.mark.req("KR-024")
async def test_tenants_take_turns_without_a_limit_where_reconciles_wait_for_nothing_of_theirs(clock):
    """A namespace alone has all workers."""
    queue = WorkQueue("pods", clock, tenants=Tenants(lambda key: key[0]))
    for number in range(100):
        queue.add(f"a{number}")
    assert len([await take(queue) for _ in range(8)]) == 8
    queue.add("b1")
    assert [await take(queue), await take(queue)][1] == "b1"


@pytest.mark.req("KR-024")
async def test_a_tenant_whose_keys_hang_leaves_as_many_workers_free_as_it_has(shared):
    for number in range(100):
        shared.add(f"a{number}")
    assert [await take(shared) for _ in range(4)] == ["a0", "a1", "a2", "a3"]
    assert await is_blocked(shared)
    shared.add("b1")
    shared.add("b2")
    shared.add("b3")
    assert [await take(shared) for _ in range(2)] == ["b1", "b2"]
    assert await is_blocked(shared)
    shared.add("c1")
    assert await take(shared) == "c1"
    shared.add("d1")
    assert await is_blocked(shared) is False, "there is always a worker for one more tenant"


@pytest.mark.req("KR-024")
async def test_a_worker_that_waits_for_a_tenant_is_woken_when_one_of_its_keys_is_done(shared):
    for number in range(5):
        shared.add(f"a{number}")
    held = [await take(shared) for _ in range(4)]
    getter = asyncio.create_task(shared.get())
    await asyncio.sleep(0)
    shared.done(held[0])
    async with asyncio.timeout(1):
        assert await getter == "a4"


@pytest.mark.req("KR-024")
async def test_draining_ends_workers_that_wait_for_a_tenant(shared):
    for number in range(5):
        shared.add(f"a{number}")
    held = [await take(shared) for _ in range(4)]
    getters = [asyncio.create_task(shared.get()) for _ in range(2)]
    await asyncio.sleep(0)
    shared.shut_down(drain=True)
    for key in held:
        shared.done(key)
    async with asyncio.timeout(1):
        results = await asyncio.gather(*getters, return_exceptions=True)
    assert sorted(type(each).__name__ for each in results) == ["ShutDown", "str"]


@pytest.mark.req("KR-024")
async def test_a_discarded_key_of_a_tenant_is_neither_given_out_nor_counted(shared):
    shared.add("a1")
    shared.add("a2", Priority.LOW)
    shared.discard("a1")
    shared.discard("a2")
    assert len(shared) == 0
    assert await is_blocked(shared)
