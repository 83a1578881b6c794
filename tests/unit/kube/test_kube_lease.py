"""At most one leader, no wall clock believed, and no longer without one than needed."""

import asyncio
from contextlib import asynccontextmanager

import pytest
from fake_api import FakeApi
from manual_clock import ManualClock

from polyarch.kube.errors import Unavailable
from polyarch.kube.lease import LeaderElection, LeadershipError, Lease, LeaseAge, LeaseSpec
from polyarch.kube.resources import LEASES

NAME = "ppc-controllers-208d7abd.multiarch.openshift.io"


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(start=0)


@pytest.fixture
def api() -> FakeApi:
    return FakeApi()


class Replica:
    """A process that wants to lead; ``led`` holds the intervals in which its workers ran."""

    def __init__(self, api: FakeApi, clock: ManualClock, identity: str, **options) -> None:
        self.clock = clock
        self.led: list[list[float]] = []
        self.stop_takes = options.pop("stop_takes", 0.0)
        self.election = LeaderElection(
            api,
            namespace="polyarch",
            name=NAME,
            identity=identity,
            clock=clock,
            random=lambda: 0.5,
            on_started=self.started,
            on_stopped=self.stopped,
            **options,
        )

    async def started(self) -> None:
        self.led.append([self.clock.monotonic()])

    async def stopped(self) -> None:
        await self.clock.sleep(self.stop_takes)
        self.led[-1].append(self.clock.monotonic())

    @property
    def leads(self) -> bool:
        return bool(self.led) and len(self.led[-1]) == 1


@asynccontextmanager
async def running(*replicas: Replica):
    tasks = [asyncio.create_task(replica.election.run()) for replica in replicas]
    try:
        yield tasks
    finally:
        for task in tasks:
            task.cancel()
        gone = asyncio.gather(*tasks, return_exceptions=True)
        await replicas[0].clock.run(60)
        await gone


def spec(api: FakeApi) -> dict:
    return api.read(LEASES, NAME, "polyarch")["spec"]


def held_by(identity: str, **fields) -> dict:
    record = {"holderIdentity": identity, "leaseDurationSeconds": 15, "leaseTransitions": 3} | fields
    return {"metadata": {"name": NAME, "namespace": "polyarch"}, "spec": record}


@pytest.mark.req("KR-030")
async def test_the_first_replica_makes_the_lease_and_leads(api, clock):
    replica = Replica(api, clock, "a")
    async with running(replica):
        await clock.run(0)
        assert replica.leads
        assert replica.election.is_leader
        assert spec(api)["holderIdentity"] == "a"
        assert spec(api)["renewTime"] == "2025-01-01T00:00:00.000000Z"
        assert spec(api)["leaseDurationSeconds"] == 15


@pytest.mark.req("KR-030")
async def test_only_one_of_many_leads_and_it_stays_the_same(api, clock):
    replicas = [Replica(api, clock, name) for name in "abc"]
    async with running(*replicas):
        await clock.run(0)
        leaders = [replica.leads for replica in replicas]
        assert sum(leaders) == 1
        await clock.run(300)
        assert [replica.leads for replica in replicas] == leaders
        assert all(replica.election.holder == "a" for replica in replicas)


@pytest.mark.req("KR-030")
async def test_a_renewal_is_one_conditional_put_and_no_get(api, clock):
    replica = Replica(api, clock, "a")
    async with running(replica):
        await clock.run(60)
        verbs = [verb for verb, _, _ in api.requests]
        assert verbs[:2] == ["get", "create"]
        assert set(verbs[2:]) == {"replace"}
        assert 25 <= len(verbs) <= 42


@pytest.mark.req("KR-030")
async def test_expiry_is_judged_by_the_local_clock_whatever_the_record_says(api, clock):
    api.put(LEASES, held_by("other", renewTime="1999-01-01T00:00:00.000000Z"))
    replica = Replica(api, clock, "a")
    async with running(replica):
        await clock.run(14.9)
        assert not replica.leads, "an old renewTime means a wrong clock somewhere, not an expired Lease"
        await clock.run(2.1)
        assert replica.leads
        assert spec(api)["leaseTransitions"] == 4


@pytest.mark.req("KR-030")
async def test_a_lease_from_the_future_still_runs_out(api, clock):
    api.put(LEASES, held_by("other", renewTime="2999-01-01T00:00:00.000000Z"))
    replica = Replica(api, clock, "a")
    async with running(replica):
        await clock.run(18)
        assert replica.leads


@pytest.mark.req("KR-030")
async def test_a_crash_is_taken_over_within_17_seconds(api, clock):
    first, second = Replica(api, clock, "a"), Replica(api, clock, "b")
    async with running(first, second) as tasks:
        await clock.run(30)
        first.election._client = Unreachable(clock)
        tasks[0].cancel()
        crashed = clock.monotonic()
        await clock.run(17)
        assert second.leads
        assert 13 <= second.led[0][0] - crashed <= 17


class Unreachable:
    """The network of a replica that is gone."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock

    async def get(self, *args, **kwargs):
        await self.clock.sleep(3600)

    create = replace = get


@pytest.mark.req("KR-030")
async def test_an_orderly_end_stops_the_workers_then_gives_the_lease_back(api, clock):
    first, second = Replica(api, clock, "a", stop_takes=4), Replica(api, clock, "b")
    async with running(first, second) as tasks:
        await clock.run(30)
        tasks[0].cancel()
        await clock.run(3.9)
        assert spec(api)["holderIdentity"] == "a", "workers are still busy"
        await clock.run(0.1 + 2)
        assert first.led == [[0, 34]]
        assert second.leads
        assert 34 <= second.led[0][0] <= 36


@pytest.mark.req("KR-030")
async def test_a_leader_that_is_cut_off_stops_before_another_starts(api, clock):
    first, second = Replica(api, clock, "a", stop_takes=4), Replica(api, clock, "b")
    async with running(first, second):
        await clock.run(30)
        first.election._client = Unreachable(clock)
        await clock.run(40)
        assert second.leads
        started, ended = first.led[0]
        assert started == 0
        assert ended <= second.led[0][0], "two would have led at the same time"
        assert not first.election.is_leader


@pytest.mark.req("KR-030")
async def test_errors_of_the_server_are_survived_until_the_renew_deadline(api, clock):
    replica = Replica(api, clock, "a")
    async with running(replica):
        await clock.run(10)

        async def down(verb, resource, name):
            raise Unavailable(503, message="etcd is restarting")

        api.hook = down
        await clock.run(7)
        api.hook = None
        await clock.run(60)
        assert replica.led == [[0]]


@pytest.mark.req("KR-030")
async def test_one_request_that_hangs_does_not_cost_the_lease(api, clock):
    """As a connection through a load balancer whose other end is gone: the next one is through another."""
    replica = Replica(api, clock, "a")
    async with running(replica):
        await clock.run(10)

        async def hang_once(verb, resource, name):
            api.hook = None
            await clock.sleep(3600)

        api.hook = hang_once
        await clock.run(60)
        assert replica.led == [[0]]


@pytest.mark.req("KR-030")
async def test_an_end_in_the_midst_of_a_renewal_gives_the_lease_back(api, clock):
    """The answer is never seen, so the record is read again: the next leader need not wait until it runs out."""
    replica = Replica(api, clock, "a")
    async with running(replica) as tasks:
        await clock.run(10)

        async def hang_once(verb, resource, name):
            api.hook = None
            await clock.sleep(3600)

        api.hook = hang_once
        await clock.run(2)
        tasks[0].cancel()
        await clock.run(1)
        assert spec(api)["holderIdentity"] == ""


@pytest.mark.req("KR-030")
async def test_an_end_in_the_midst_of_a_renewal_gives_back_only_what_is_ours(api, clock):
    replica = Replica(api, clock, "a")
    async with running(replica) as tasks:
        await clock.run(10)

        async def hang_once(verb, resource, name):
            api.hook = None
            api.put(LEASES, held_by("thief"))
            await clock.sleep(3600)

        api.hook = hang_once
        await clock.run(2)
        tasks[0].cancel()
        await clock.run(1)
        assert spec(api)["holderIdentity"] == "thief"


@pytest.mark.req("KR-030")
async def test_a_lost_lease_is_sought_again(api, clock):
    replica = Replica(api, clock, "a")
    async with running(replica):
        await clock.run(10)
        api.put(LEASES, held_by("thief"))
        await clock.run(4)
        assert not replica.leads
        assert replica.election.holder == "thief"
        await clock.run(20)
        assert replica.leads
        assert len(replica.led) == 2


@pytest.mark.req("KR-030")
async def test_workers_that_do_not_stop_end_the_process(api, clock):
    replica = Replica(api, clock, "a", stop_takes=60)
    task = asyncio.create_task(replica.election.run())
    await clock.run(10)
    replica.election._client = Unreachable(clock)
    await clock.run(30)
    with pytest.raises(LeadershipError, match="did not stop within 5 s"):
        await task


@pytest.mark.req("KR-030")
async def test_an_end_that_comes_while_the_workers_stop_lets_them_stop(api, clock):
    replica = Replica(api, clock, "a", stop_takes=3)
    async with running(replica) as (task,):
        await clock.run(10)
        api.put(LEASES, held_by("thief"))
        await clock.run(4)
        assert replica.leads, "its workers are stopping"
        task.cancel()
        await clock.run(0)
        assert not task.done(), "it would have left them behind"
        await clock.run(3)
        assert task.cancelled()
        assert not replica.leads
    assert spec(api)["holderIdentity"] == "thief"


@pytest.mark.req("KR-030")
async def test_after_a_standstill_of_the_process_it_does_not_believe_to_lead(api, clock):
    replica = Replica(api, clock, "a")
    async with running(replica):
        await clock.run(10)
        assert replica.election.leading_for == 10
        clock.advance(11)
        assert not replica.election.is_leader, "nothing ran meanwhile, another may lead by now"
        assert replica.election.leading_for == 0


@pytest.mark.req("KR-030")
async def test_fields_of_the_lease_that_we_do_not_know_survive(api, clock):
    document = held_by("", strategy="OldestEmulationVersion")
    document["metadata"]["annotations"] = {"note": "keep me"}
    api.put(LEASES, document)
    replica = Replica(api, clock, "a")
    async with running(replica):
        await clock.run(10)
    lease = api.read(LEASES, NAME, "polyarch")
    assert lease["spec"]["strategy"] == "OldestEmulationVersion"
    assert lease["metadata"]["annotations"] == {"note": "keep me"}
    assert lease["spec"]["holderIdentity"] == ""


async def test_two_that_create_the_lease_at_once_do_not_both_lead(api, clock):
    meet = asyncio.Barrier(2)

    async def together(verb, resource, name):
        if verb == "create":
            await meet.wait()

    api.hook = together
    replicas = [Replica(api, clock, name) for name in "ab"]
    async with running(*replicas):
        await clock.run(5)
        assert sum(replica.leads for replica in replicas) == 1


@pytest.mark.req("KR-030")
@pytest.mark.parametrize(
    ("duration", "renew_deadline", "retry_period"), [(10, 10, 2), (15, 10, 10), (15, 10, 0), (10, 15, 2)]
)
def test_settings_under_which_two_could_lead_are_refused(api, duration, renew_deadline, retry_period):
    with pytest.raises(ValueError, match="before another one starts"):
        LeaderElection(
            api,
            namespace="n",
            name="l",
            identity="i",
            duration=duration,
            renew_deadline=renew_deadline,
            retry_period=retry_period,
        )


@pytest.mark.req("PL-107")
def test_the_age_of_a_record_is_the_time_since_it_changed_here(clock):
    age = LeaseAge(clock)
    clock.advance(5)
    assert age.age() == 5
    lease = Lease(spec=LeaseSpec(holder_identity="a", renew_time="2020-01-01T00:00:00.000000Z"))
    age.observe(lease)
    clock.advance(29)
    age.observe(lease)
    assert age.age() == 29
    age.observe(Lease(spec=LeaseSpec(holder_identity="a", renew_time="2020-01-01T00:00:01.000000Z")))
    assert age.age() == 0
    clock.advance(31)
    assert age.age() == 31


@pytest.mark.req("KR-030")
async def test_what_the_leader_tells_goes_with_its_renewals() -> None:
    """As annotations; an empty value takes one away, and those of others stay."""
    api, clock, told = FakeApi(), ManualClock(start=0), {"a/b": "1", "c/d": "2"}
    election = LeaderElection(
        api, namespace="n", name="l", identity="me", clock=clock, random=lambda: 0.0, notes=lambda: told
    )
    lease = {"metadata": {"name": "l", "namespace": "n", "annotations": {"other/x": "y"}}, "spec": {}}
    api.put(LEASES, lease)
    task = asyncio.create_task(election.run())
    try:
        while not election.is_leader:
            await asyncio.sleep(0)
        assert api.read(LEASES, "l", "n")["metadata"]["annotations"] == {"other/x": "y", "a/b": "1", "c/d": "2"}
        told["c/d"] = ""
        for _ in range(50):
            clock.advance(0.1)
            await asyncio.sleep(0)
        assert api.read(LEASES, "l", "n")["metadata"]["annotations"] == {"other/x": "y", "a/b": "1"}
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
