"""Whatever is cut off, killed or restarted, never two lead at once, and nothing is lost.

Three replicas share one Lease and one set of objects. The plan says when a replica loses and regains its connection to
the API server, is killed, is ended in order (and replaced by a new one), and when objects appear. Workers take time and
need the API server, like real ones.
"""

import asyncio
import itertools
import random

import pytest
import structlog
from fake_api import FakeApi
from hypothesis import given, settings
from hypothesis import strategies as st
from manual_clock import ManualClock

from polyarch.kube.controller import Controller, NoRequeue, Result
from polyarch.kube.errors import ConnectionFailed
from polyarch.kube.lease import LeaderElection

REPLICAS = 3
LEADER = -1
WHOM = st.sampled_from([LEADER, LEADER, LEADER, *range(REPLICAS)])
STEPS = st.tuples(
    st.one_of(
        st.tuples(st.sampled_from(["cut", "heal", "kill", "end", "nothing"]), WHOM),
        st.tuples(st.just("add"), st.integers(0, 9)),
    ),
    st.sampled_from([0.0, 0.5, 2.0, 7.0, 12.0, 20.0]),
)
"""What happens, and how much time passes after it."""


class Connection:
    """What a replica sees of the API server, until it is cut off, in the middle of a request, too.

    A write may arrive although its answer is lost.
    """

    def __init__(self, api: FakeApi, chance: random.Random) -> None:
        self.api = api
        self.chance = chance
        self.cut = False

    async def request(self) -> None:
        await self.api.clock.sleep(self.chance.uniform(0.01, 0.2))
        if self.cut:
            await self.api.clock.sleep(self.chance.choice([0.1, 5, 60]))
            raise ConnectionFailed("cut off")

    async def get(self, *arguments, **options) -> dict:
        await self.request()
        return await self.api.get(*arguments, **options)

    async def create(self, *arguments, **options) -> dict:
        return await self.write(self.api.create, *arguments, **options)

    async def replace(self, *arguments, **options) -> dict:
        return await self.write(self.api.replace, *arguments, **options)

    async def write(self, verb, *arguments, **options) -> dict:
        await self.request()
        written = await verb(*arguments, **options)
        if self.chance.random() < 0.1:
            raise ConnectionFailed("answer lost", sent=True)
        return written


class Replica:
    """A process: an election, and a controller whose workers run while it leads."""

    def __init__(self, world: "Replicas", identity: str) -> None:
        self.world = world
        self.identity = identity
        self.connection = Connection(world.api, world.chance)
        self.worker: asyncio.Task[None] | None = None
        self.election = LeaderElection(
            self.connection,
            namespace="n",
            name="l",
            identity=identity,
            clock=world.clock,
            random=world.chance.random,
            on_started=self.started,
            on_stopped=self.stopped,
        )
        self.controller = Controller("objects", self.reconcile, clock=world.clock, workers=2, timeout=30, metrics=None)
        for number in world.wanted:
            self.controller.queue.add(number)
        self.task = asyncio.create_task(self.election.run())

    async def started(self) -> None:
        assert self.world.leading is None, f"{self.world.leading} and {self.identity} lead at the same time"
        self.world.leading = self.identity
        self.worker = asyncio.create_task(self.controller.run())

    async def stopped(self) -> None:
        await self.world.clock.sleep(self.world.chance.uniform(0, 3))
        if self.worker is not None:
            self.worker.cancel()
            await asyncio.wait([self.worker])
        assert self.world.leading == self.identity
        self.world.leading = None

    async def reconcile(self, number: int) -> Result:
        version = self.world.wanted[number]
        await self.connection.request()
        assert self.world.leading == self.identity, "a worker outlived its leadership"
        self.world.made[number] = version
        return NoRequeue()

    async def end(self, *, orderly: bool) -> None:
        self.connection.cut = self.connection.cut or not orderly
        if not orderly and self.worker is not None:
            self.worker.cancel()
        self.task.cancel()
        while not self.task.done():
            await self.world.clock.run(1)
        failure = None if self.task.cancelled() else self.task.exception()
        assert failure is None, failure


class Replicas:
    def __init__(self, seed: int) -> None:
        self.clock = ManualClock(start=0, turns=10)
        self.chance = random.Random(seed)
        self.api = FakeApi(self.clock)
        self.wanted: dict[int, int] = {}
        self.made: dict[int, int] = {}
        self.leading: str | None = None
        self.names = itertools.count()
        self.replicas = [self.replica() for _ in range(REPLICAS)]

    def replica(self) -> Replica:
        return Replica(self, f"replica-{next(self.names)}")

    def whom(self, index: int) -> int:
        """The leader, if there is one."""
        leaders = [number for number, replica in enumerate(self.replicas) if replica.identity == self.leading]
        return index if index != LEADER else (leaders or [0])[0]

    async def take(self, what: str, index: int) -> None:
        match what:
            case "cut":
                self.replicas[self.whom(index)].connection.cut = True
            case "heal":
                for replica in self.replicas:
                    replica.connection.cut = False
            case "add":
                self.wanted[index] = self.wanted.get(index, 0) + 1
                for replica in self.replicas:
                    replica.controller.queue.add(index)
            case "kill" | "end":
                number = self.whom(index)
                await self.replicas[number].end(orderly=what == "end")
                self.replicas[number] = self.replica()

    async def pass_time(self, seconds: float) -> None:
        await self.clock.run(seconds)
        for replica in self.replicas:
            if replica.task.done():
                replica.task.result()

    async def is_well(self) -> None:
        """With every connection healed and some time, one leads and everything that was asked for is done."""
        for replica in self.replicas:
            replica.connection.cut = False
        await self.pass_time(120)
        assert self.leading is not None, "after everything is well again somebody leads"
        assert self.made == self.wanted, "what was asked for was not done"
        assert sum(replica.election.is_leader for replica in self.replicas) == 1
        for replica in self.replicas:
            await replica.end(orderly=True)
        assert self.leading is None

    async def close(self) -> None:
        for replica in self.replicas:
            replica.task.cancel()
            if replica.worker is not None:
                replica.worker.cancel()
        await self.clock.run(100)


@pytest.mark.req("KR-030", "KR-040")
@settings(max_examples=60, deadline=None)
@given(st.lists(STEPS, min_size=3, max_size=12), st.integers(0, 2**16))
def test_never_two_leaders_and_nothing_lost(steps, seed):
    async def scenario() -> None:
        world = Replicas(seed)
        try:
            for (what, index), seconds in steps:
                await world.take(what, index)
                await world.pass_time(seconds)
            await world.is_well()
        finally:
            await world.close()

    with structlog.testing.capture_logs():
        asyncio.run(scenario())
