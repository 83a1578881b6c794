"""What starts and stops when, and what a process tells about itself meanwhile."""

import asyncio
import gc
import os
import signal
import ssl
from collections.abc import Callable
from contextlib import asynccontextmanager

import aiohttp
import msgspec
import pytest
import structlog
import trustme
from fake_api import FakeApi
from manual_clock import ManualClock

from polyarch.kube.admission import AdmissionRequest, AdmissionResponse, Route, Webhooks
from polyarch.kube.certificates import CertificateError, Certificates, KeyPair
from polyarch.kube.controller import Controller, NoRequeue, Result
from polyarch.kube.errors import Unavailable
from polyarch.kube.events import Recorder, Regarding
from polyarch.kube.lease import LeaderElection
from polyarch.kube.manager import Components, Leadership, Manager, ManagerSettings, leader_check, log_unhandled
from polyarch.kube.metrics import Metrics
from polyarch.kube.resources import LEASES, SUBJECT_ACCESS_REVIEWS, TOKEN_REVIEWS, Resource
from polyarch.kube.server import EventLoopMonitor, Health, HealthChecks, HttpServer, MetricsPage, ScraperAuthorization

CA = trustme.CA()


class Caches:
    """Informers whose first lists are complete when the test says so."""

    def __init__(self, *, synced: bool = True) -> None:
        self.done = asyncio.Event()
        self.running = False
        self.failure: BaseException | None = None
        if synced:
            self.done.set()

    @property
    def problems(self) -> list[str]:
        return [] if self.done.is_set() else ["the cache of pods is not complete yet"]

    async def run(self) -> None:
        self.running = True
        try:
            while self.failure is None:
                await asyncio.sleep(0.001)
            raise self.failure
        finally:
            self.running = False

    async def synced(self) -> None:
        await self.done.wait()


class Source:
    """Where a certificate comes from, when the test puts one there."""

    def __init__(self) -> None:
        self.pair: KeyPair | None = None

    def issue(self) -> None:
        issued = CA.issue_cert("127.0.0.1")
        self.pair = KeyPair(issued.cert_chain_pems[0].bytes(), issued.private_key_pem.bytes())

    async def __call__(self) -> KeyPair:
        if self.pair is None:
            raise CertificateError("Secret polyarch/certs does not exist")
        return self.pair


async def admit(request: AdmissionRequest[dict]) -> AdmissionResponse:
    return AdmissionResponse()


class Process:
    """A role with everything in it, on free ports; ``passes`` are those of its controllers."""

    def __init__(self, *, api: FakeApi | None = None, synced: bool = True, certified: bool = True, **options) -> None:
        self.clock = options.pop("clock", None) or ManualClock(start=0)
        self.api = api or FakeApi()
        self.passes: list[str] = []
        self.caches = Caches(synced=synced)
        self.source = Source()
        if certified:
            self.source.issue()
        certificates = Certificates(self.source, "test", clock=self.clock)
        health = Health()
        self.health = HttpServer(health.serve)
        route = Route(path="/x", name="x", type=dict, handler=admit, on_error="allow")
        self.admission = HttpServer(Webhooks([route], clock=self.clock).serve, tls=certificates.context)
        identity = options.pop("identity", "a")
        self.election = LeaderElection(
            self.api, namespace="n", name="l", identity=identity, clock=self.clock, random=lambda: 0.5
        )
        self.recorder = Recorder(self.api, controller="polyarch.dev/x", instance=identity, clock=self.clock)
        self.reconcile: Callable[[str], Result] | None = None
        self.leader_only = Controller("leader", self.work("leader"), clock=self.clock)
        self.everywhere = Controller("standby", self.work("standby"), clock=self.clock)
        led = Leadership(election=self.election, controllers=(self.leader_only,))
        self.manager = Manager(
            Components(
                servers={"admission": self.admission},
                caches=(self.caches,),
                controllers=(self.everywhere,),
                leaderships=(led, *options.pop("leaderships", ())),
                recorders=(self.recorder,),
                **options.pop("components", {}),
            ),
            health=health,
            probes=[self.health, HttpServer(MetricsPage(Metrics()).serve)],
            certificates=[certificates],
            clock=self.clock,
            **options,
        )

    def work(self, name: str):
        async def reconcile(key: str) -> Result:
            self.passes.append(f"{name} {key}")
            if key == "slow":
                await self.clock.sleep(3)
                self.passes.append(f"{name} {key} finished")
            if key == "stuck":
                await asyncio.Event().wait()
            return NoRequeue()

        return reconcile

    async def ready(self) -> tuple[int, str]:
        return await self.get("/readyz")

    async def get(self, path: str) -> tuple[int, str]:
        async with aiohttp.ClientSession(self.health.url) as session, session.get(path) as response:
            return response.status, await response.text()

    async def is_admitting(self) -> bool:
        trust = ssl.create_default_context()
        CA.configure_trust(trust)
        review = {
            "apiVersion": "admission.k8s.io/v1",
            "kind": "AdmissionReview",
            "request": {"uid": "u", "object": {}, "operation": "CREATE"},
        }
        connector = aiohttp.TCPConnector(ssl=trust)
        try:
            async with (
                aiohttp.ClientSession(self.admission.url, connector=connector) as session,
                session.post("/x", json=review) as response,
            ):
                return response.status == 200
        except aiohttp.ClientConnectionError:
            return False


@asynccontextmanager
async def running(process: Process, **options):
    """The process, started as far as it gets, and ended by force if the test did not end it."""
    task = asyncio.create_task(process.manager.run(signals=False, **options))
    try:
        await turns(task, lambda: process.health.port != 0)
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def turns(task: asyncio.Task[None], until: Callable[[], bool]) -> None:
    """Lets everything run until something is so; sockets need real time, a little."""
    async with asyncio.timeout(10):
        while not until() and not task.done():
            await asyncio.sleep(0.001)


@pytest.mark.req("KR-034", "PL-531", "PL-900")
async def test_ready_only_when_caches_are_synced_and_the_certificate_is_loaded():
    process = Process(synced=False, certified=False)
    async with running(process) as task:
        status, report = await process.ready()
        assert status == 503
        assert "[-]caches failed: the cache of pods is not complete yet" in report
        assert "[-]certificates failed: " in report
        # Nothing else is liveness' business; no restart brings an API server back or grants a right.
        assert await process.get("/healthz") == (200, "[+]event-loop ok\nhealthz check passed\n")
        process.caches.done.set()
        await process.clock.settle()
        status, report = await process.ready()
        assert status == 503
        assert "[+]caches ok" in report
        assert "[-]certificates failed: Secret polyarch/certs does not exist" in report
        process.source.issue()
        await process.clock.run(2)
        await turns(task, process.manager.started.is_set)
        status, report = await process.ready()
        assert status == 200, report
        assert "[+]certificates ok" in report


@pytest.mark.req("KR-034")
async def test_admission_and_workers_wait_for_the_caches():
    process = Process(synced=False)
    process.leader_only.queue.add("k")
    process.everywhere.queue.add("k")
    async with running(process) as task:
        await process.clock.run(30)
        assert not await process.is_admitting()
        assert process.passes == []
        assert process.api.requests == [], "nor does it try to lead"
        process.caches.done.set()
        await turns(task, lambda: len(process.passes) == 2)
        assert await process.is_admitting()


@pytest.mark.req("KR-030")
async def test_a_standby_is_ready_admits_and_runs_only_what_is_safe():
    api = FakeApi()
    api.put(
        LEASES,
        {"metadata": {"name": "l", "namespace": "n"}, "spec": {"holderIdentity": "b", "leaseDurationSeconds": 15}},
    )
    process = Process(api=api)
    process.leader_only.queue.add("k")
    process.everywhere.queue.add("k")
    async with running(process) as task:
        await turns(task, process.manager.started.is_set)
        await process.clock.run(10)
        assert process.passes == ["standby k"]
        assert not process.election.is_leader
        assert (await process.ready())[0] == 200
        assert await process.is_admitting()
        await process.clock.run(8)
        assert process.election.is_leader
        assert process.passes == ["standby k", "leader k"], "what it collected meanwhile is what it begins with"


@pytest.mark.req("KR-030")
async def test_losing_the_lease_stops_the_workers_and_regaining_it_starts_them():
    process = Process()
    async with running(process) as task:
        await turns(task, lambda: process.election.is_leader)

        async def down(verb, resource, name):
            raise Unavailable(503)

        process.api.hook = down
        await process.clock.run(15)
        assert not process.election.is_leader
        process.leader_only.queue.add("k")
        process.everywhere.queue.add("k")
        await process.clock.run(1)
        assert process.passes == ["standby k"]
        process.api.hook = None
        await process.clock.run(20)
        assert process.passes == ["standby k", "leader k"]


@pytest.mark.req("KR-030")
async def test_after_a_standstill_the_leaders_workers_begin_nothing():
    """The Lease may be another's by then: 20 s is longer than it lasts. What is safe beside a leader goes on."""
    process = Process()
    async with running(process) as task:
        await turns(task, lambda: process.election.is_leader)
        process.leader_only.queue.add("before")
        await process.clock.settle()
        process.clock.advance(20)
        lease = process.api.read(LEASES, "l", "n")
        lease["spec"]["holderIdentity"] = "b"
        process.api.put(LEASES, lease)
        process.leader_only.queue.add("after")
        process.everywhere.queue.add("after")
        await process.clock.settle()
        assert process.passes == ["leader before", "standby after"]
        await process.clock.run(21)
        assert process.passes[2:] == ["leader after"], "b is silent for so long that the Lease is free again"


@pytest.mark.req("KR-034")
async def test_the_end_is_orderly():
    process = Process(settings=ManagerSettings(unready=5, drain=10))
    order: list[str] = []

    async def note(verb, resource: Resource, name):
        holder = process.api.objects.get((LEASES, "n", "l"), {}).get("spec", {}).get("holderIdentity")
        order.append(f"{verb} {resource} (held by {holder})")

    async with running(process) as task:
        await turns(task, lambda: process.election.is_leader)
        process.leader_only.queue.add("slow")
        await process.clock.settle()
        process.recorder.event(
            Regarding("v1", "Pod", "shop", "web"), type="Normal", reason="Done", note="", action="Place"
        )
        process.api.hook = note
        process.manager.stop()
        await process.clock.run(1)
        status, report = await process.ready()
        assert status == 503
        assert "[-]running failed: this process is stopping" in report
        assert await process.is_admitting(), "endpoints have not forgotten us yet"

        await process.clock.run(3.9)
        assert await process.is_admitting()
        process.leader_only.queue.add("slow")
        await process.clock.run(0.5)
        await turns(task, lambda: process.leader_only.queue._shut_down)
        assert not await process.is_admitting()
        assert process.election.is_leader, "a worker is still busy"
        assert process.caches.running
        await process.clock.run(5)
        await turns(task, task.done)
        await task
    assert process.passes == ["leader slow", "leader slow finished"] * 2
    assert process.api.read(LEASES, "l", "n")["spec"]["holderIdentity"] == ""
    assert not process.caches.running
    assert any(entry.startswith("create events") for entry in order)


@pytest.mark.req("KR-034")
async def test_a_worker_that_does_not_end_is_cut_off_and_the_lease_still_given_back():
    process = Process(settings=ManagerSettings(unready=1, drain=4))
    async with running(process) as task:
        await turns(task, lambda: process.election.is_leader)
        process.leader_only.queue.add("stuck")
        await process.clock.settle()
        process.manager.stop()
        await process.clock.run(2)
        await turns(task, lambda: process.leader_only.queue._shut_down)
        await process.clock.run(10)
        await turns(task, task.done)
        await task
    assert process.api.read(LEASES, "l", "n")["spec"]["holderIdentity"] == ""


@pytest.mark.req("KR-034")
async def test_a_standby_with_a_full_queue_ends_without_waiting_for_it():
    api = FakeApi()
    api.put(
        LEASES,
        {"metadata": {"name": "l", "namespace": "n"}, "spec": {"holderIdentity": "b", "leaseDurationSeconds": 15}},
    )
    process = Process(api=api, settings=ManagerSettings(unready=0, drain=1000))
    process.leader_only.queue.add("k")
    async with running(process) as task:
        await turns(task, process.manager.started.is_set)
        process.manager.stop()
        await turns(task, task.done)
        await task
    assert process.clock.monotonic() == 0
    assert api.read(LEASES, "l", "n")["spec"]["holderIdentity"] == "b", "not ours to give back"


@pytest.mark.req("KR-034")
async def test_it_can_be_stopped_before_it_has_started():
    process = Process(synced=False)
    async with running(process) as task:
        process.manager.stop()
        await turns(task, task.done)
        await task
    assert process.api.requests == []


@pytest.mark.req("KR-034")
@pytest.mark.parametrize(
    ("failure", "told"),
    [
        pytest.param(RuntimeError("a bug"), "a bug", id="a bug"),
        pytest.param(asyncio.CancelledError(), "was cancelled by something", id="what it awaits is cancelled"),
    ],
)
async def test_a_part_that_fails_ends_the_process_and_gives_the_lease_back(failure, told):
    process = Process()
    async with running(process) as task:
        await turns(task, lambda: process.election.is_leader)
        process.caches.failure = failure
        with pytest.raises(ExceptionGroup) as failed:
            await task
    assert failed.group_contains(RuntimeError, match=told)
    assert process.api.read(LEASES, "l", "n")["spec"]["holderIdentity"] == ""
    with pytest.raises(aiohttp.ClientConnectionError):
        await process.ready()


@pytest.mark.req("KR-030")
async def test_workers_that_ignore_the_loss_of_the_lease_end_the_process_at_once():
    ended = asyncio.Event()
    process = Process(abort=ended.set)

    async def stubborn(key: str) -> Result:
        while not ended.is_set():
            try:
                await ended.wait()
            except asyncio.CancelledError:
                process.passes.append("ignored")
        raise asyncio.CancelledError

    process.leader_only._reconcile = stubborn
    process.leader_only.queue.add("k")
    async with running(process) as task:
        await turns(task, lambda: process.election.is_leader)
        await process.clock.settle()

        async def down(verb, resource, name):
            raise Unavailable(503)

        process.api.hook = down
        await process.clock.run(10)
        assert not ended.is_set()
        await process.clock.run(5)
        assert ended.is_set()
        with pytest.raises(ExceptionGroup, match="unhandled errors"):
            await task
    assert "ignored" in process.passes


@pytest.mark.req("KR-034")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_signals_lead_to_the_orderly_end_and_a_second_one_cuts_it_short(number):
    process = Process(settings=ManagerSettings(unready=3600))
    task = asyncio.create_task(process.manager.run())
    await turns(task, lambda: process.election.is_leader)
    os.kill(os.getpid(), number)
    await turns(task, process.manager._stop_asked.is_set)
    await process.clock.settle()
    assert not task.done()
    assert (await process.ready())[0] == 503
    os.kill(os.getpid(), number)
    await turns(task, task.done)
    await task
    assert process.api.read(LEASES, "l", "n")["spec"]["holderIdentity"] == ""


@pytest.mark.req("KR-034")
async def test_without_an_election_every_controller_runs():
    clock, passes = ManualClock(), []

    async def reconcile(key: str) -> Result:
        passes.append(key)
        return NoRequeue()

    controller = Controller("only", reconcile, clock=clock)
    components = Components(leaderships=(Leadership(election=None, controllers=(controller,)),))
    manager = Manager(components, health=Health(), clock=clock)
    task = asyncio.create_task(manager.run(signals=False))
    controller.queue.add("k")
    await turns(task, lambda: bool(passes))
    assert leader_check(None)()
    manager.stop()
    await task


class Told:
    """A task that notes when it begins and ends."""

    def __init__(self, name: str, told: list[str]) -> None:
        self.name, self.told = name, told

    async def __call__(self) -> None:
        self.told.append(f"{self.name} begins")
        try:
            await asyncio.Event().wait()
        finally:
            self.told.append(f"{self.name} ends")


@pytest.mark.req("KR-055")
async def test_a_process_takes_part_in_several_elections_and_each_is_won_and_lost_alone():
    api, clock, told = FakeApi(), ManualClock(start=0), []
    other = {"holderIdentity": "b", "leaseDurationSeconds": 15}
    api.put(LEASES, {"metadata": {"name": "shard", "namespace": "n"}, "spec": other})
    shard = LeaderElection(api, namespace="n", name="shard", identity="a", clock=clock, random=lambda: 0.5)
    sharded = Leadership(election=shard, background={"work": Told("shard", told)})
    process = Process(
        api=api, clock=clock, leaderships=[sharded], components={"background": {"x": Told("replica", told)}}
    )
    async with running(process) as task:
        await turns(task, lambda: process.election.is_leader)
        assert told == ["replica begins"], "the other election is another's still"
        await clock.run(20)
        assert shard.is_leader
        assert told == ["replica begins", "shard begins"]
        document = api.read(LEASES, "shard", "n")
        api.put(LEASES, {**document, "spec": {**document["spec"], "holderIdentity": "c", "renewTime": "x"}})
        await clock.run(5)
        assert not shard.is_leader
        assert process.election.is_leader
        assert told == ["replica begins", "shard begins", "shard ends"]
        process.manager.stop()
        await clock.run(6)
        await turns(task, task.done)
        await task
    assert told[-1] == "replica ends"
    assert api.read(LEASES, "l", "n")["spec"]["holderIdentity"] == ""
    assert api.read(LEASES, "shard", "n")["spec"]["holderIdentity"] == "c", "not ours to give back"


@pytest.mark.req("KR-055")
async def test_two_parts_that_share_an_election_begin_and_end_together():
    api, clock, told = FakeApi(), ManualClock(start=0), []
    shared = LeaderElection(api, namespace="n", name="s", identity="a", clock=clock)
    one = Leadership(election=shared, background={"one": Told("one", told)})
    two = Leadership(election=shared, background={"two": Told("two", told)})
    process = Process(api=api, clock=clock, leaderships=[one, two])
    async with running(process) as task:
        await turns(task, lambda: len(told) == 2)
        process.manager.stop()
        await clock.run(6)
        await turns(task, task.done)
        await task
    assert sorted(told) == ["one begins", "one ends", "two begins", "two ends"]


@pytest.mark.req("KR-050")
async def test_a_roles_own_checks_are_told_beside_the_processs():
    problem: list[str] = []
    checks = {"components": {"readiness": {"first publish": lambda: problem[0] if problem else None}}}
    process = Process(**checks)
    async with running(process) as task:
        await turns(task, process.manager.started.is_set)
        assert "[+]first publish ok" in (await process.ready())[1]
        problem.append("nothing was published yet")
        status, report = await process.ready()
        assert status == 503
        assert "[-]first publish failed: nothing was published yet" in report


# -- health ------------------------------------------------------------------------------------------------------------


def test_checks_are_told_by_name_and_a_broken_check_is_a_failed_one():
    checks = HealthChecks("readyz")
    checks.add("caches", lambda: None)
    checks.add("certificate", lambda: "Secret a/b\ndoes not exist")
    checks.add("broken", lambda: 1 / 0)
    well, report = checks.report()
    assert not well
    assert report.splitlines() == [
        "[+]caches ok",
        "[-]certificate failed: Secret a/b does not exist",
        "[-]broken failed: the check itself failed: ZeroDivisionError",
        "readyz check failed",
    ]
    with pytest.raises(ValueError, match="caches"):
        checks.add("caches", lambda: None)


async def test_a_ready_process_says_what_it_does_without():
    process = Process(remark=lambda: "foos.example.com is not served")
    async with running(process) as task:
        await turns(task, process.manager.started.is_set)
        status, report = await process.ready()
        assert status == 200
        assert "[+]caches ok (foos.example.com is not served)" in report.splitlines()


@pytest.mark.req("PL-531")
async def test_liveness_fails_when_the_event_loop_stood_still_for_10_seconds():
    clock = ManualClock()
    watch = EventLoopMonitor(clock)
    task = asyncio.create_task(watch.run())
    await clock.run(30)
    assert watch.check() is None
    clock.advance(9)
    assert watch.check() is None
    await clock.settle()
    assert watch.check() is None, "9 s are bad, but no reason to restart"
    clock.advance(11)
    assert "stood still for 11 s" in watch.check(), "before the loop has done anything else"
    await clock.settle()
    assert "stood still for 11 s" in watch.check(), "the next probe still sees it"
    await clock.run(10)
    assert watch.check() is None
    task.cancel()
    await asyncio.wait([task])


async def test_health_answers_only_where_it_is_asked():
    async with aiohttp.ClientSession() as session, HttpServer(Health().serve) as server:
        async with session.get(f"{server.url}/elsewhere") as response:
            assert response.status == 404
        async with session.get(f"{server.url}/readyz") as response:
            assert (response.status, await response.text()) == (200, "readyz check passed\n")


# -- metrics -----------------------------------------------------------------------------------------------------------


class Reviews:
    """An API server that knows two users; ``asked`` are the reviews it was sent."""

    def __init__(self) -> None:
        self.asked: list[tuple[Resource, dict]] = []
        self.failure: Exception | None = None
        self.slow: Callable[[str], bool] = lambda token: False

    @property
    def tokens(self) -> list[str]:
        return [spec["token"] for resource, spec in self.asked if resource is TOKEN_REVIEWS]

    async def create(self, resource: Resource, document: dict, *, type, retry: bool = True):
        self.asked.append((resource, document["spec"]))
        if self.slow(document["spec"].get("token", "")):
            await asyncio.Event().wait()
        if self.failure is not None:
            raise self.failure
        spec = document["spec"]
        if resource is TOKEN_REVIEWS:
            known = spec["token"] in {"prometheus", "mallory"}
            user = {"username": spec["token"], "groups": ["g"], "extra": {"k": ["v"]}} if known else {}
            return msgspec.convert({"status": {"authenticated": known, "user": user}}, type)
        return msgspec.convert({"status": {"allowed": spec["user"] == "prometheus"}}, type)


@asynccontextmanager
async def scraping(*, certificates: Certificates | None = None, **options):
    metrics = Metrics()
    metrics.counter("polyarch_things_total", "Things").inc(3)
    trust = ssl.create_default_context()
    CA.configure_trust(trust)
    tls = certificates.context if certificates is not None else None
    async with (
        HttpServer(MetricsPage(metrics, **options).serve, tls=tls) as server,
        aiohttp.ClientSession(server.url, connector=aiohttp.TCPConnector(ssl=trust)) as session,
    ):
        yield session


@pytest.mark.req("KR-034")
async def test_metrics_are_served_in_the_scrapers_format():
    async with scraping() as session:
        async with session.get("/metrics") as response:
            assert "polyarch_things_total 3.0" in await response.text()
            assert response.content_type == "text/plain"
        wanted = {"Accept": "application/openmetrics-text; version=1.0.0"}
        async with session.get("/metrics", headers=wanted) as response:
            assert response.content_type == "application/openmetrics-text"
            assert (await response.text()).endswith("# EOF\n")
        async with session.get("/") as response:
            assert response.status == 404
        async with session.post("/metrics") as response:
            assert response.status == 405


@pytest.mark.req("PL-703")
@pytest.mark.parametrize(
    ("header", "status"),
    [
        pytest.param("Bearer prometheus", 200, id="allowed"),
        pytest.param("bearer prometheus", 200, id="scheme in lower case"),
        pytest.param("Bearer mallory", 403, id="known but not allowed"),
        pytest.param("Bearer nobody", 401, id="unknown"),
        pytest.param("Basic cHJvbWV0aGV1cw==", 401, id="another scheme"),
        pytest.param("Bearer ", 401, id="empty token"),
        pytest.param(None, 401, id="nothing"),
    ],
)
async def test_metrics_are_for_whoever_the_api_server_allows(header, status):
    source = Source()
    source.issue()
    certificates = Certificates(source, "test")
    await certificates.load()
    api = Reviews()
    options = {"certificates": certificates, "authorization": ScraperAuthorization(api)}
    headers = {"Authorization": header} if header else {}
    async with scraping(**options) as session, session.get("/metrics", headers=headers) as response:
        assert response.status == status
        assert ("polyarch_things_total" in await response.text()) == (status == 200)
        assert ("WWW-Authenticate" in response.headers) == (status == 401)
    if status == 200:
        assert api.asked[1] == (
            SUBJECT_ACCESS_REVIEWS,
            {
                "user": "prometheus",
                "uid": "",
                "groups": ["g"],
                "extra": {"k": ["v"]},
                "nonResourceAttributes": {"path": "/metrics", "verb": "get"},
            },
        )


@pytest.mark.req("PL-703")
async def test_a_scraper_is_asked_about_once_a_minute():
    api, clock = Reviews(), ManualClock()
    authorization = ScraperAuthorization(api, clock=clock)
    for _ in range(5):
        assert await authorization.verdict("prometheus") == "allowed"
    assert len(api.asked) == 2
    clock.advance(61)
    await authorization.verdict("prometheus")
    assert len(api.asked) == 4
    for number in range(500):
        await authorization.verdict(f"guess-{number}")
    assert len(authorization._others.verdicts) <= 64
    assert b"prometheus" not in b"".join(authorization._allowed.verdicts), "tokens are not kept"
    asked = len(api.asked)
    assert await authorization.verdict("prometheus") == "allowed"
    assert len(api.asked) == asked, "tokens that somebody makes up push nobody out"


@pytest.mark.req("PL-703")
async def test_made_up_tokens_do_not_hold_up_a_scraper_that_is_known():
    """Four of them, and an API server that is slow to say that it does not know them, queued everybody else."""
    api, clock = Reviews(), ManualClock()
    authorization = ScraperAuthorization(api, clock=clock)
    assert await authorization.verdict("prometheus") == "allowed"
    api.slow = lambda token: token.startswith("guess")
    guesses = [asyncio.create_task(authorization.verdict(f"guess-{number}")) for number in range(100)]
    await clock.settle()
    async with asyncio.timeout(5):
        assert await authorization.verdict("prometheus") == "allowed", "from memory"
        clock.advance(61)
        assert await authorization.verdict("prometheus") == "allowed", "asked anew, in a line of its own"
    await clock.run(6)
    answers = await asyncio.gather(*guesses, return_exceptions=True)
    assert [type(answer) for answer in answers] == [TimeoutError] * 100, "nobody waits for ever"
    assert len([token for token in api.tokens if token.startswith("guess")]) == 4
    assert "already" in str(answers[-1]), "and the line has a bound"


@pytest.mark.req("PL-703")
async def test_without_the_api_server_nobody_reads_metrics():
    api = Reviews()
    api.failure = Unavailable(503)
    headers = {"Authorization": "Bearer prometheus"}
    async with (
        scraping(authorization=ScraperAuthorization(api)) as session,
        session.get("/metrics", headers=headers) as response,
    ):
        assert response.status == 503
        assert "polyarch_things_total" not in await response.text()


# -- what nobody handles -----------------------------------------------------------------------------------------------


def left_behind(error: Exception) -> asyncio.Future[None]:
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    future.set_exception(error)
    return future


@pytest.mark.req("KR-034")
@pytest.mark.parametrize(
    "error", [ConnectionResetError(104, "reset"), BrokenPipeError(32, "broken"), ConnectionAbortedError()]
)
async def test_a_handshake_that_was_given_up_is_no_error(error: Exception, capfd: pytest.CaptureFixture[str]) -> None:
    asyncio.get_running_loop().set_exception_handler(log_unhandled)
    with structlog.testing.capture_logs() as logs:
        left_behind(error)
        gc.collect()
    assert [each["log_level"] for each in logs] == ["debug"]
    assert capfd.readouterr().err == ""


@pytest.mark.req("KR-034")
@pytest.mark.parametrize("is_task", [False, True])
async def test_other_errors_that_nobody_handles_are_lines_of_the_log(is_task: bool) -> None:
    """One of a task's own is never noise, not even a connection's."""

    async def fails() -> None:
        raise ConnectionResetError(104, "reset")

    asyncio.get_running_loop().set_exception_handler(log_unhandled)
    with structlog.testing.capture_logs() as logs:
        if is_task:
            running = asyncio.create_task(fails())
            await asyncio.wait([running])
            del running
        else:
            left_behind(ValueError("a bug"))
        gc.collect()
    (line,) = logs
    assert (line["log_level"], line["event"]) == ("error", "error that nobody handled")
    assert isinstance(line["exc_info"], ConnectionResetError if is_task else ValueError)
