"""The status listener: TLS of its own, health for all, the rest for those who may."""

import asyncio
import ssl
from contextlib import asynccontextmanager

import aiohttp
import msgspec
import pytest
import trustme
from numa_extender import ExtenderWorld
from numa_nodes import cell, node

from polyarch.clock import SystemClock
from polyarch.kube.metrics import Metrics
from polyarch.kube.resources import TOKEN_REVIEWS
from polyarch.kube.server import Health
from polyarch.numa.extender import state_document
from polyarch.numa.extender.settings import ExtenderSettings
from polyarch.numa.extender.status import StateDocumentWriter, StatusListener

CA = trustme.CA()


class Reviews:
    """An API server that knows two tokens: one may read everything, one nothing."""

    def __init__(self):
        self.asked = []

    async def create(self, resource, document, *, type=None, retry=True):
        if resource == TOKEN_REVIEWS:
            token = document["spec"]["token"]
            user = {"username": token}
            return type_of(type, {"status": {"authenticated": token in ("reader", "stranger"), "user": user}})
        self.asked.append(document["spec"]["nonResourceAttributes"])
        return type_of(type, {"status": {"allowed": document["spec"]["user"] == "reader"}})


def type_of(type, content):
    return msgspec.convert(content, type)


@asynccontextmanager
async def serving(cert_dir=""):
    extender = ExtenderWorld(node(cell(0, cpu=8, memory=16), name="a"), node(cell(0, cpu=4, memory=16), name="b"))
    reviews, health, metrics = Reviews(), Health(), Metrics()
    metrics.counter("scans_total", "Scans").inc()
    clock = SystemClock()
    report = StateDocumentWriter(extender.engine, caches=dict, problem=lambda: "", clock=clock)
    settings = ExtenderSettings(status_listen=("127.0.0.1", 0), cert_dir=str(cert_dir))
    endpoints = StatusListener(
        settings, client=reviews, health=health, metrics=metrics, state=report.state, clock=clock
    )
    health.readiness.add("certificate", endpoints.not_ready)
    keeping = asyncio.create_task(endpoints.certificates.run())
    await endpoints.certificates.ready()
    await endpoints.start()
    try:
        yield endpoints, reviews
    finally:
        keeping.cancel()
        await asyncio.gather(keeping, return_exceptions=True)
        await endpoints.stop()


async def ask(endpoints, path, *, context=False, **headers):
    connector = aiohttp.TCPConnector(ssl=context)
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    async with (
        aiohttp.ClientSession(connector=connector) as session,
        session.get(f"{endpoints.url}{path}", headers=named) as answer,
    ):
        return answer.status, await answer.read()


@pytest.mark.req("NS-087")
async def test_health_is_for_everybody_over_tls():
    async with serving() as (endpoints, _):
        assert endpoints.url.startswith("https://")
        assert (await ask(endpoints, "/healthz"))[0] == 200
        assert (await ask(endpoints, "/readyz"))[0] == 200


@pytest.mark.req("NS-087")
@pytest.mark.parametrize("path", ["/metrics", "/numa/state"])
async def test_metrics_and_state_are_for_those_whom_the_api_server_allows_that_path(path):
    async with serving() as (endpoints, reviews):
        assert (await ask(endpoints, path))[0] == 401
        assert (await ask(endpoints, path, Authorization="Bearer unknown"))[0] == 401
        status, said = await ask(endpoints, path, Authorization="Bearer stranger")
        assert status == 403
        assert path.encode() in said
        assert (await ask(endpoints, path, Authorization="Bearer reader"))[0] == 200
        assert reviews.asked == [{"path": path, "verb": "get"}] * 2


@pytest.mark.req("NS-087")
async def test_the_state_comes_through_the_api_servers_proxy_with_the_token_in_a_header_of_its_own():
    async with serving() as (endpoints, _):
        assert (await ask(endpoints, "/numa/state", Polyarch_Authorization="Bearer stranger"))[0] == 403
        status, body = await ask(endpoints, "/numa/state", Polyarch_Authorization="Bearer reader")
        assert status == 200
        found = state_document.read(body)
        assert [each.facts.name for each in found.nodes] == ["a", "b"]
        assert found.options.mode == "exact"


@pytest.mark.req("NS-087")
async def test_the_state_of_some_nodes():
    async with serving() as (endpoints, _):
        _, body = await ask(endpoints, "/numa/state?node=b&node=c", Authorization="Bearer reader")
        assert [each.facts.name for each in state_document.read(body).nodes] == ["b"]


@pytest.mark.req("NS-087")
async def test_without_files_the_certificate_is_its_own_and_has_the_name_of_the_host():
    async with serving() as (endpoints, _):
        port = int(endpoints.url.rpartition(":")[2])
        pem = await asyncio.to_thread(ssl.get_server_certificate, ("127.0.0.1", port))
        trusting = ssl.create_default_context()
        trusting.load_verify_locations(cadata=pem)
        trusting.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        assert (await ask(endpoints, "/healthz", context=trusting))[0] == 200


@pytest.mark.req("NS-087")
async def test_with_files_it_serves_their_certificate(tmp_path):
    issued = CA.issue_cert("127.0.0.1")
    (tmp_path / "tls.key").write_bytes(issued.private_key_pem.bytes())
    (tmp_path / "tls.crt").write_bytes(issued.cert_chain_pems[0].bytes())
    trusting = ssl.create_default_context()
    CA.configure_trust(trusting)
    async with serving(tmp_path) as (endpoints, _):
        assert (await ask(endpoints, "/healthz", context=trusting))[0] == 200


@pytest.mark.req("NS-087")
def test_a_state_of_another_version_is_refused_by_its_name():
    with pytest.raises(state_document.UnreadableState, match=r"numa-state\.v2"):
        state_document.read(b'{"version": "polyarch.dev/numa-state.v2"}')
    with pytest.raises(state_document.UnreadableState, match="cannot be read"):
        state_document.read(b"{")


@pytest.mark.req("NS-087")
async def test_the_document_has_reservations_and_answers_and_reads_back_as_it_was():
    from numa_nodes import container, pod

    extender = ExtenderWorld(node(cell(0, cpu=8, memory=16), name="a"))
    web = pod(container("app", cpu=2, memory=1), name="web", scheduler_name="topo-aware-scheduler")
    extender.engine.filter(web, ["a"], 1.0)
    report = StateDocumentWriter(extender.engine, caches=dict, problem=lambda: "stale", clock=SystemClock())
    found = state_document.read(await report.state(frozenset()))
    (entry,) = found.reservations
    assert (entry.namespace, entry.name, entry.node, entry.state) == ("default", "web", "a", "held")
    assert found.nodes[0].reserved[0]["cpu"] == 2000
    assert found.nodes[0].facts.cells[0].available["cpu"] == 8000, "as the object has it, nothing subtracted"
    assert [each.chosen for each in found.verdicts] == [("a",)]
    assert found.problem == "stale"


STATE_MEMBERS = {
    "State": "caches nodes options problem reservations verdicts version",
    "Options": "bestEffort candidates evicts mode reservations restricted schedulerName strategy unknownNodes weights",
    "CacheState": "objects problem staleSeconds",
    "NodeState": "ageSeconds explained facts mispredicted reserved",
    "NodeFacts": "allocatable cells fingerprint fingerprintMethod hasTopology kubelet lastScan name resourceVersion "
    "settings vectors zonesIgnored",
    "ZoneFacts": "allocatable available capacity costs id memoryGroup socket split",
    "NodeSettings": "cpuManager cpuOptions memoryManager mostCells podExclude podLevelManagers policy refreshPeriod "
    "scope threadsPerCore topologyOptions",
    "PodPattern": "name namespace",
    "PlacementVectors": "by_cell metadata",
    "ReservationDocument": "ageSeconds cells memoryGroups name namespace node spread state uid",
    "LastFilterResult": "asked chosen error fitting name namespace rejected secondsAgo uid",
}


@pytest.mark.req("NS-087")
def test_the_state_has_the_members_of_its_version():
    """A command reads the state of an extender of another release: a member that is renamed would be missing."""
    found = msgspec.json.schema(state_document.State)["$defs"]
    assert {name: " ".join(sorted(each["properties"])) for name, each in found.items()} == STATE_MEMBERS
