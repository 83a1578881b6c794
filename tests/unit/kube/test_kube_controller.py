"""What becomes of a key, by how its pass ended."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
import structlog
from manual_clock import ManualClock

from polyarch.kube.controller import Controller, NoRequeue, RequeueAfter, Result, TerminalError
from polyarch.kube.errors import TooManyRequests
from polyarch.kube.metrics import Metrics
from polyarch.kube.queue import WorkQueue
from polyarch.kube.store import Store, WriteExpectations
from polyarch.kube.watch import Apply
from polyarch.objects import ObjectKey, ObjectMeta, PartialObjectMetadata


class Script:
    """A reconcile function whose passes do what the test wrote down; after that they are done."""

    def __init__(self, clock: ManualClock, *steps: Callable[[], Result | Awaitable[Result]]) -> None:
        self.clock = clock
        self.steps = list(steps)
        self.passes: list[tuple[float, str]] = []

    async def __call__(self, key: str) -> Result:
        self.passes.append((self.clock.monotonic(), key))
        if not self.steps:
            return NoRequeue()
        result = self.steps.pop(0)()
        return await result if isinstance(result, Awaitable) else result

    @property
    def times(self) -> list[float]:
        return [time for time, _ in self.passes]


def raising(error: BaseException) -> Callable[[], Result]:
    def step() -> Result:
        raise error

    return step


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(start=0)


@pytest.fixture
async def run(clock):
    """Runs a controller over a script, and stops it at the end of the test."""
    tasks: list[asyncio.Task[None]] = []

    def start(script: Script, **options) -> Controller[str]:
        queue = options.pop("queue", None) or WorkQueue("things", clock, random=lambda: 0.0)
        controller = Controller("things", script, queue=queue, clock=clock, **options)
        tasks.append(asyncio.create_task(controller.run()))
        return controller

    yield start
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


@pytest.mark.req("KR-021")
async def test_done_ends_a_key_until_it_is_added_again(clock, run):
    script = Script(clock)
    controller = run(script)
    controller.queue.add("a")
    await clock.run(1000)
    assert script.times == [0]


@pytest.mark.req("KR-021")
async def test_after_brings_the_key_back_in_that_time(clock, run):
    script = Script(clock, lambda: RequeueAfter(30), lambda: RequeueAfter(5))
    run(script).queue.add("a")
    await clock.run(100)
    assert script.times == [0, 30, 35]


@pytest.mark.req("KR-021")
async def test_a_failure_is_retried_with_growing_delays_and_success_forgets_it(clock, run):
    script = Script(clock, *[raising(RuntimeError("no luck"))] * 3, NoRequeue, raising(RuntimeError("again")))
    controller = run(script)
    controller.queue.add("a")
    await clock.run(10)
    assert script.times == pytest.approx([0, 0.005, 0.015, 0.035])
    controller.queue.add("a")
    await clock.run(10)
    assert script.times[4:] == pytest.approx([10, 10.005])


@pytest.mark.req("KR-021")
async def test_a_worker_outlives_the_cancellation_of_what_its_pass_awaits(clock, run):
    """A shared look-up that somebody cancels is a failed pass; workers must not vanish one by one."""

    async def shared() -> Result:
        lookup = asyncio.get_running_loop().create_future()
        lookup.cancel()
        return await lookup

    script = Script(clock, shared)
    controller = run(script, workers=1)
    controller.queue.add("a")
    controller.queue.add("b")
    await clock.run(10)
    assert [key for _, key in script.passes] == ["a", "b", "a"]


@pytest.mark.req("KR-021")
async def test_a_terminal_failure_is_not_retried(clock, run):
    script = Script(clock, raising(TerminalError("the selector does not parse")))
    run(script).queue.add("a")
    with structlog.testing.capture_logs() as logs:
        await clock.run(1000)
    assert script.times == [0]
    assert logs[0]["reason"] == "the selector does not parse"


@pytest.mark.req("KR-021")
async def test_a_pass_that_hangs_is_ended_at_its_timeout_and_retried(clock, run):
    async def hang() -> Result:
        await asyncio.Event().wait()
        return NoRequeue()

    script = Script(clock, hang)
    controller = run(script, timeout=20, workers=1)
    controller.queue.add("a")
    controller.queue.add("b")
    with structlog.testing.capture_logs() as logs:
        await clock.run(30)
    assert script.passes == [(0, "a"), (20, "b"), (20.005, "a")]
    assert "within 20 s" in logs[0]["error"]


@pytest.mark.req("KR-021")
async def test_a_server_that_says_when_to_come_back_is_heeded(clock, run):
    script = Script(clock, raising(TooManyRequests(429, retry_after=7)))
    run(script).queue.add("a")
    await clock.run(10)
    assert script.times == [0, 7]


@pytest.mark.req("KR-021")
async def test_one_failing_object_does_not_hold_up_the_others(clock):
    def always_broken() -> Result:
        raise ValueError("broken object")

    async def reconcile(key: str) -> Result:
        script.passes.append((clock.monotonic(), key))
        return always_broken() if key == "bad" else NoRequeue()

    script = Script(clock)
    controller = Controller("things", reconcile, clock=clock, workers=1)
    task = asyncio.create_task(controller.run())
    for number in range(5):
        controller.queue.add("bad")
        controller.queue.add(f"good-{number}")
    await clock.run(60)
    assert {key for _, key in script.passes} == {"bad", *(f"good-{number}" for number in range(5))}
    bad = [time for time, key in script.passes if key == "bad"]
    assert 10 <= len(bad) <= 20, "it backs off, and is not forgotten"
    task.cancel()
    await asyncio.wait([task])


@pytest.mark.req("KR-021")
async def test_a_bug_is_logged_with_its_traceback_once_however_many_objects_meet_it(clock):
    async def reconcile(key: str) -> Result:
        raise KeyError("spec")

    controller = Controller("things", reconcile, clock=clock)
    for number in range(20):
        controller.queue.add(f"pod-{number}")
    with structlog.testing.capture_logs() as logs:
        task = asyncio.create_task(controller.run())
        await clock.settle()
        task.cancel()
        await asyncio.wait([task])
    assert len(logs) == 20
    assert sum(entry["exc_info"] is not None for entry in logs) == 1


@pytest.mark.req("KR-021")
async def test_passes_of_different_keys_run_at_the_same_time(clock, run):
    gate = asyncio.Event()

    async def wait() -> Result:
        await gate.wait()
        return NoRequeue()

    script = Script(clock, wait, wait, wait)
    controller = run(script, workers=2)
    for key in "abc":
        controller.queue.add(key)
    await clock.settle()
    assert len(script.passes) == 2
    gate.set()
    await clock.settle()
    assert len(script.passes) == 3


@pytest.mark.req("KR-040")
async def test_a_key_whose_pass_was_cut_off_is_the_next_ones(clock):
    """Nothing is lost across a change of leader."""
    finished: list[str] = []

    async def reconcile(key: str) -> Result:
        await clock.sleep(10)
        finished.append(key)
        return NoRequeue()

    controller = Controller("things", reconcile, clock=clock, workers=1)
    controller.queue.add("a")
    controller.queue.add("b")
    first = asyncio.create_task(controller.run())
    await clock.run(5)
    first.cancel()
    await asyncio.wait([first])
    assert finished == []
    controller.queue.add("c")
    second = asyncio.create_task(controller.run())
    await clock.run(30)
    assert sorted(finished) == ["a", "b", "c"]
    second.cancel()
    await asyncio.wait([second])


async def test_stopping_finishes_what_is_ready_and_ends_the_workers(clock, run):
    script = Script(clock, lambda: RequeueAfter(1))
    controller = run(script)
    controller.queue.add("a")
    controller.queue.add("b")
    assert await controller.stop(5)
    await clock.run(100)
    assert sorted(key for _, key in script.passes) == ["a", "b"]


async def test_stopping_gives_up_on_a_pass_that_does_not_end(clock, run):
    async def hang() -> Result:
        await asyncio.Event().wait()
        return NoRequeue()

    controller = run(Script(clock, hang))
    controller.queue.add("a")
    await clock.settle()
    stopping = asyncio.create_task(controller.stop(5))
    await clock.run(5)
    assert await stopping is False


@pytest.mark.req("KR-021")
async def test_passes_are_counted_by_how_they_ended(clock, run):
    metrics = Metrics()
    steps = [NoRequeue, lambda: RequeueAfter(1), raising(TerminalError("no")), raising(ValueError("x"))]
    controller = run(Script(clock, *steps), metrics=metrics, workers=1)
    for key in "abcd":
        controller.queue.add(key)
    await clock.settle()
    counted = {
        result: metrics.registry.get_sample_value(
            "polyarch_reconciles_total", {"controller": "things", "result": result}
        )
        for result in ("done", "after", "terminal", "error")
    }
    assert counted == {"done": 1, "after": 1, "terminal": 1, "error": 1}


def stored(version: int) -> PartialObjectMetadata:
    return PartialObjectMetadata(ObjectMeta(name="a", namespace="demo", uid="1", resource_version=str(version)))


@pytest.fixture
def store() -> Store[PartialObjectMetadata]:
    """A cache that shows the object at version 7."""
    store: Store[PartialObjectMetadata] = Store()
    store.take(Apply(stored(7)))
    return store


KEY = ObjectKey("demo", "a")


@pytest.mark.req("KR-022")
async def test_no_pass_begins_on_a_cache_that_has_not_seen_our_own_write(clock, run, store):
    writes = WriteExpectations(store, clock=clock)

    async def write_once() -> Result:
        if store.get(KEY).metadata.resource_version == "7":
            writes.note_write(KEY, "8")
        return NoRequeue()

    script = Script(clock, write_once, write_once)
    controller = run(script, writes=writes)
    controller.queue.add(KEY)
    await clock.run(1)
    controller.queue.add(KEY)
    await clock.run(1)
    assert script.times == [0], "a second pass would have decided from the object as it was before the write"
    store.take(Apply(stored(8)))
    controller.queue.add(KEY)
    await clock.settle()
    assert script.times == [0, 2], "the event of the write lets the pass begin"


@pytest.mark.req("KR-022")
async def test_a_write_that_never_shows_up_in_the_cache_does_not_block_for_ever(clock, run, store):
    writes = WriteExpectations(store, clock=clock, keep=60)
    writes.note_write(KEY, "8")
    script = Script(clock)
    run(script, writes=writes).queue.add(KEY)
    await clock.run(59)
    assert script.passes == []
    await clock.run(10)
    assert script.times == [60]


@pytest.mark.req("KR-021")
async def test_passes_that_wait_for_nothing_leave_turns_to_the_rest_of_the_process(clock, run):
    """A full queue of objects that are as they should be does not hold up a Lease."""
    script = Script(clock)
    controller = run(script, workers=1)
    for number in range(1000):
        controller.queue.add(f"{number:04}")
    turns = 0
    while len(script.passes) < 1000:
        turns += 1
        await asyncio.sleep(0)
    assert turns >= 1000 // 64
