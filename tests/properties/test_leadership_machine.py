"""KR-030, KR-040: whatever is cut off, killed or restarted, never two lead at once, and nothing is lost.

Three replicas share one Lease and one set of objects. The plan says when a replica loses and regains its connection to
the API server, is killed, is ended in order (and replaced by a new one), and when objects appear. Workers take time and
need the API server, like real ones.
"""

import asyncio
import itertools
import random

import structlog
from hypothesis import given, settings
from hypothesis import strategies as st

from polyarch.kube.clock import ManualClock
from polyarch.kube.controller import Controller, Done, Result
from polyarch.kube.errors import AlreadyExists, Conflict, ConnectionFailed, NotFound
from polyarch.kube.lease import LeaderElection

REPLICAS = 3
STEPS = st.one_of(
    st.tuples(st.just("run"), st.sampled_from([0.5, 2.0, 7.0, 12.0, 20.0])),
    st.tuples(st.sampled_from(["cut", "heal", "kill", "end"]), st.integers(0, REPLICAS - 1)),
    st.tuples(st.just("add"), st.integers(0, 9)),
)


class Api:
    """One Lease; each replica has a connection of its own that may be cut, in the middle of a request, too."""

    def __init__(self, clock: ManualClock, chance: random.Random) -> None:
        self.clock = clock
        self.chance = chance
        self.lease: dict | None = None
        self.version = 0

    def write(self, document: dict) -> dict:
        self.version += 1
        metadata = {**document["metadata"], "resourceVersion": str(self.version)}
        self.lease = {**document, "metadata": metadata}
        return self.lease


class Connection:
    """What a replica sees of the API server. A write may arrive although its answer is lost."""

    def __init__(self, api: Api) -> None:
        self.api = api
        self.cut = False

    async def request(self) -> None:
        await self.api.clock.sleep(self.api.chance.uniform(0.01, 0.2))
        if self.cut:
            await self.api.clock.sleep(self.api.chance.choice([0.1, 5, 60]))
            raise ConnectionFailed("cut off")

    async def answer(self) -> None:
        if self.api.chance.random() < 0.1:
            raise ConnectionFailed("answer lost", sent=True)

    async def get(self, resource, name, *, namespace="", retry=True) -> dict:
        await self.request()
        if self.api.lease is None:
            raise NotFound(404)
        return self.api.lease

    async def create(self, resource, document, *, namespace="", type=dict, retry=True) -> dict:
        await self.request()
        if self.api.lease is not None:
            raise AlreadyExists(409)
        written = self.api.write(document)
        await self.answer()
        return written

    async def replace(self, resource, document, *, namespace="", type=dict, retry=True) -> dict:
        await self.request()
        if document["metadata"]["resourceVersion"] != self.api.lease["metadata"]["resourceVersion"]:
            raise Conflict(409)
        written = self.api.write(document)
        await self.answer()
        return written


class Replica:
    """A process: an election, and a controller whose workers run while it leads."""

    def __init__(self, world: "World", identity: str) -> None:
        self.world = world
        self.identity = identity
        self.connection = Connection(world.api)
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
        self.worker.cancel()
        await asyncio.wait([self.worker])
        assert self.world.leading == self.identity
        self.world.leading = None

    async def reconcile(self, number: int) -> Result:
        version = self.world.wanted[number]
        await self.connection.request()
        assert self.world.leading == self.identity, "a worker outlived its leadership"
        self.world.made[number] = version
        return Done()

    async def end(self, *, orderly: bool) -> None:
        self.connection.cut = self.connection.cut or not orderly
        if not orderly and self.worker is not None:
            self.worker.cancel()
        self.task.cancel()
        while not self.task.done():
            await self.world.clock.run(1)
        failure = None if self.task.cancelled() else self.task.exception()
        assert failure is None, failure


class World:
    def __init__(self, seed: int) -> None:
        self.clock = ManualClock(start=0, turns=10)
        self.chance = random.Random(seed)
        self.api = Api(self.clock, self.chance)
        self.wanted: dict[int, int] = {}
        self.made: dict[int, int] = {}
        self.leading: str | None = None
        self.names = itertools.count()
        self.replicas = [self.replica() for _ in range(REPLICAS)]

    def replica(self) -> Replica:
        return Replica(self, f"replica-{next(self.names)}")

    async def take(self, step: tuple[str, float]) -> None:
        match step:
            case ("run", seconds):
                await self.clock.run(seconds)
            case ("cut", index):
                self.replicas[index].connection.cut = True
            case ("heal", index):
                self.replicas[index].connection.cut = False
            case ("add", number):
                self.wanted[number] = self.wanted.get(number, 0) + 1
                for replica in self.replicas:
                    replica.controller.queue.add(number)
            case (ending, index):
                await self.replicas[index].end(orderly=ending == "end")
                self.replicas[index] = self.replica()
        for replica in self.replicas:
            if replica.task.done():
                replica.task.result()


@settings(max_examples=40, deadline=None)
@given(st.lists(STEPS, max_size=25), st.integers(0, 2**16))
def test_kr_030_never_two_leaders_and_kr_040_nothing_lost(steps, seed):
    async def scenario() -> None:
        world = World(seed)
        for step in steps:
            await world.take(step)
        for replica in world.replicas:
            replica.connection.cut = False
        await world.clock.run(120)
        assert world.leading is not None, "after everything is well again somebody leads"
        assert world.made == world.wanted, "what was asked for was not done"
        assert sum(replica.election.is_leader for replica in world.replicas) == 1
        for replica in world.replicas:
            await replica.end(orderly=True)
        assert world.leading is None

    with structlog.testing.capture_logs():
        asyncio.run(scenario())
