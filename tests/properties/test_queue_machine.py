"""After any sequence of adds, delays, passes, failures and cancellations the queue kept its promises.

The model is what a reader would write down: for each key whether it is owed a pass and from when on. The machine drives
a real queue with real (asyncio) waiting workers, on a clock moved by hand.
"""

import asyncio

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from manual_clock import ManualClock

from polyarch.kube.queue import Priority, ShutDown, WorkQueue

pytestmark = pytest.mark.req("KR-040")

KEYS = st.sampled_from("abcdef")


class QueueMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.clock = ManualClock(start=0)
        self.queue: WorkQueue[str] = WorkQueue("model", self.clock, random=lambda: 0.5)
        self.owed_now: set[str] = set()
        self.owed_at: dict[str, float] = {}
        self.held: list[str] = []
        self.getters: list[asyncio.Task[str]] = []
        self.passes = 0

    def teardown(self) -> None:
        for getter in self.getters:
            getter.cancel()
        self.step()
        self.runner.close()

    def step(self) -> None:
        """Lets the waiting workers run, and books what they were given."""
        self.runner.run(self.clock.settle(turns=6))
        for getter in [getter for getter in self.getters if getter.done()]:
            self.getters.remove(getter)
            if not getter.cancelled():
                self.book(getter.result())

    def book(self, key: str) -> None:
        assert key not in self.held, f"two workers have {key}"
        self.mature()
        assert key in self.owed_now, f"{key} was given out although nobody asked for it (again)"
        self.owed_now.remove(key)
        self.held.append(key)
        self.passes += 1

    def mature(self) -> None:
        for key, due in list(self.owed_at.items()):
            if due <= self.clock.monotonic():
                del self.owed_at[key]
                self.owed_now.add(key)

    @rule(key=KEYS, priority=st.sampled_from(Priority))
    def add(self, key: str, priority: Priority) -> None:
        self.runner.run(self._call(lambda: self.queue.add(key, priority)))
        self.owed_now.add(key)
        self.step()

    @rule(key=KEYS, seconds=st.sampled_from([0.0, 0.5, 1.0, 2.0, 5.0]))
    def add_after(self, key: str, seconds: float) -> None:
        self.mature()
        self.runner.run(self._call(lambda: self.queue.add_after(key, seconds)))
        self.owe(key, seconds)
        self.step()

    def owe(self, key: str, seconds: float) -> None:
        if seconds <= 0:
            self.owed_now.add(key)
        else:
            due = self.clock.monotonic() + seconds
            self.owed_at[key] = min(due, self.owed_at.get(key, due))

    @precondition(lambda self: len(self.getters) < 3)
    @rule()
    def worker_asks(self) -> None:
        self.getters.append(self.runner.run(self._start()))
        self.step()

    @precondition(lambda self: self.getters)
    @rule(data=st.data())
    def waiting_worker_is_cancelled(self, data: st.DataObject) -> None:
        data.draw(st.sampled_from(self.getters)).cancel()
        self.step()

    @precondition(lambda self: self.getters)
    @rule(data=st.data(), key=KEYS)
    def waiting_worker_is_cancelled_as_a_key_arrives(self, data: st.DataObject, key: str) -> None:
        getter = data.draw(st.sampled_from(self.getters))

        def both() -> None:
            self.queue.add(key)
            getter.cancel()

        self.runner.run(self._call(both))
        self.owed_now.add(key)
        self.step()

    @precondition(lambda self: self.held)
    @rule(data=st.data(), fails=st.booleans())
    def worker_finishes(self, data: st.DataObject, fails: bool) -> None:
        key = data.draw(st.sampled_from(self.held))
        self.mature()

        def finish() -> None:
            if fails:
                self.owe(key, self.queue.retry(key))
            else:
                self.queue.forget(key)
            self.queue.done(key)

        self.runner.run(self._call(finish))
        self.held.remove(key)
        self.step()

    @rule(seconds=st.sampled_from([0.25, 0.5, 1.0, 3.0]))
    def time_passes(self, seconds: float) -> None:
        self.runner.run(self.clock.run(seconds))
        self.mature()
        self.step()

    @rule()
    def everything_owed_is_given_once_workers_catch_up(self) -> None:
        """Nothing is lost: with workers that never fail and time that goes on, every key owed gets its pass, and then
        the queue is empty."""
        for getter in self.getters:
            getter.cancel()
        self.step()
        for key in self.held:
            self.queue.done(key)
        self.held.clear()
        self.runner.run(self.clock.run(400))
        self.mature()
        while len(self.queue):
            key = self.runner.run(self.queue.get())
            self.book(key)
            self.queue.done(key)
            self.held.remove(key)
        assert not self.owed_now, f"lost: {self.owed_now}"
        assert not self.owed_at
        self.runner.run(asyncio.wait_for(self.queue.drained(), 1))

    @invariant()
    def ready_keys_are_those_owed_and_not_held(self) -> None:
        self.mature()
        if not self.getters:
            assert len(self.queue) == len(self.owed_now - set(self.held))

    @invariant()
    def no_worker_waits_while_a_key_is_ready(self) -> None:
        if self.getters:
            self.mature()
            assert not self.owed_now - set(self.held), "a worker sleeps although a key is ready"

    @staticmethod
    async def _call(action) -> None:
        action()

    async def _start(self) -> asyncio.Task[str]:
        return asyncio.create_task(self.queue.get())


QueueMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestQueueMachine = QueueMachine.TestCase


@pytest.mark.req("KR-020")
@pytest.mark.parametrize("drain", [True, False])
def test_stopping_ends_every_worker_whatever_they_do(drain):
    async def scenario() -> list[str]:
        clock, seen = ManualClock(), []
        queue: WorkQueue[str] = WorkQueue("stop", clock)

        async def worker() -> None:
            while True:
                try:
                    key = await queue.get()
                except ShutDown:
                    return
                seen.append(key)
                await asyncio.sleep(0)
                queue.retry(key)
                queue.done(key)

        async with asyncio.TaskGroup() as workers:
            for _ in range(2):
                workers.create_task(worker())
            for key in "abcdef":
                queue.add(key)
            await asyncio.sleep(0)
            queue.shut_down(drain=drain)
            await queue.drained()
        return seen

    seen = asyncio.run(scenario())
    assert sorted(seen) == (list("abcdef") if drain else sorted(seen)[:2])
