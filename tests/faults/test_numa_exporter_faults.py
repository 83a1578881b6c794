"""§16 of the exporter: whatever happens to its API server, each object it writes is one that a scan found, in the order
of the scans, and the last one arrives.
"""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
import pytest_asyncio
from exporter_process import Exporter, define, exporting, make_node, published
from fault_proxy import CUT, Delay, FaultProxy, Lines, Reset, Seen, gone_event, server_tls, status
from numa_host import NumaHost, available
from placement_cluster import until

from polyarch.kube import config
from polyarch.kube.client import Client
from polyarch.kube.errors import NotFound
from polyarch.kube.informer import Informer
from polyarch.kube.requests import ListOptions
from polyarch.kube.resources import NAMESPACES, NODES, Resource
from polyarch.numa.api.topology import TOPOLOGIES
from polyarch.objects import Unstructured
from polyarch.sandbox.cluster import Sandbox

pytestmark = [pytest.mark.cluster, pytest.mark.asyncio(loop_scope="session")]
"""One loop for all: connections that are reset by a fault end in it, after their test."""

STATES = [[3, 4 - busy] for busy in range(4)]
"""Free CPUs by cell, one more of the second one is taken with each step."""
HOME = "numa-faults"


@pytest_asyncio.fixture(loop_scope="session")
async def client(sandbox: Sandbox) -> AsyncIterator[Client]:
    async with Client(config.load(str(sandbox.kubeconfig)), role="tests") as client:
        await define(client)
        await client.apply(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": HOME}})
        yield client


@pytest_asyncio.fixture(loop_scope="session")
async def proxy(sandbox: Sandbox, tmp_path: Path) -> AsyncIterator[FaultProxy]:
    trusted = ssl.create_default_context(cafile=str(sandbox.ca))
    async with FaultProxy(sandbox.api_server, upstream_ssl=trusted, server_ssl=server_tls(sandbox, tmp_path)) as proxy:
        yield proxy


class History:
    """Every version of one topology that the API server has had."""

    def __init__(self, client: Client, node: str) -> None:
        selection = ListOptions(field_selector=f"metadata.name={node}")
        self._informer = Informer(client, TOPOLOGIES, Unstructured, selection=selection)
        self._informer.add_handler(lambda change: self._see(change.new))
        self.states: list[list[int]] = []
        self.owners: list[str] = []

    def _see(self, found: Unstructured | None) -> None:
        if found is not None:
            self.states.append(available(found.document))
            self.owners += [each.uid for each in found.metadata.owner_references or ()]

    @contextlib.asynccontextmanager
    async def watched(self) -> AsyncIterator["History"]:
        watching = asyncio.create_task(self._informer.run())
        try:
            await self._informer.synced()
            yield self
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)


def topology(*methods: str) -> Callable[[Seen], bool]:
    """Requests for the topology that are no watches."""
    return lambda seen: not seen.watch and TOPOLOGIES.plural in seen.path and (not methods or seen.method in methods)


def watches(resource: Resource) -> Callable[[Seen], bool]:
    return lambda seen: seen.watch and seen.path.endswith(resource.plural)


async def steps(host: NumaHost, *, pause: float = 1.5) -> None:
    """The kubelet gives away one CPU after the other."""
    for busy in range(1, len(STATES)):
        host.pods({f"pod-{cpu}": [cpu] for cpu in range(4, 4 + busy)})
        await asyncio.sleep(pause)


@contextlib.asynccontextmanager
async def disturbed(
    sandbox: Sandbox, client: Client, proxy: FaultProxy, folder: Path
) -> AsyncIterator[tuple[Exporter, NumaHost, History]]:
    """An exporter behind the proxy that has published its first state; at the end its last one is there, and no
    version was anything else than a state, in order."""
    host = NumaHost(folder / "host")
    flags = ("--sleep-interval=500ms", "--max-events-per-second=10", "--podreadiness=false")
    exporter_of = exporting(sandbox, client, HOME, folder, host, *flags, server=proxy.url)
    async with exporter_of as exporter, History(client, exporter.node).watched() as history:
        await published(exporter, STATES[0])
        yield exporter, host, history
        proxy.faults.clear()
        await published(exporter, STATES[-1], seconds=90)
        await asyncio.sleep(1.5)
        assert history.states == sorted(history.states, reverse=True), "an older state was written over a newer one"
        assert history.states[-1] == STATES[-1]
        assert all(state in STATES for state in history.states)


ANSWERS = {
    "409": status(409, "Conflict"),
    "429": status(429, "TooManyRequests", retry_after=1),
    "500": status(500, "InternalError"),
    "503": status(503, "ServiceUnavailable"),
    "torn before": Reset(),
    "torn after": Reset(after=True),
    "slow": Delay(2.0),
}


@pytest.mark.parametrize("fault", ANSWERS)
async def test_writes_that_fail_lose_no_update_and_write_nothing_old(sandbox, client, proxy, tmp_path, fault):
    async with disturbed(sandbox, client, proxy, tmp_path) as (_, host, _):
        injected = proxy.inject(topology("PATCH", "POST", "PUT"), ANSWERS[fault], times=3)
        await steps(host)
        assert injected.hits


WATCH_FAULTS = {
    "EOF in mid-line": Lines(lambda _: [CUT]),
    "410 as an event": Lines(lambda line: [line, gone_event()]),
    "410 as a status": status(410, "Expired"),
    "events are lost": Lines(lambda _: []),
}


@pytest.mark.parametrize("fault", WATCH_FAULTS)
async def test_whatever_a_watch_delivers_the_topology_is_right(sandbox, client, proxy, tmp_path, fault):
    async with disturbed(sandbox, client, proxy, tmp_path) as (_, host, _):
        for resource in (TOPOLOGIES, NODES):
            proxy.inject(watches(resource), WATCH_FAULTS[fault], times=5)
        proxy.tear()
        await steps(host)


async def test_an_api_server_that_is_away_gets_the_newest_state_when_it_is_back(sandbox, client, proxy, tmp_path):
    async with disturbed(sandbox, client, proxy, tmp_path) as (exporter, host, history):
        async with proxy.refusing():
            await steps(host)
            assert exporter.process.returncode is None
        await published(exporter, STATES[-1], seconds=60)
        assert history.states == [STATES[0], STATES[-1]]


async def test_an_api_server_that_does_not_answer_stops_no_scan(sandbox, client, proxy, tmp_path):
    async with disturbed(sandbox, client, proxy, tmp_path) as (exporter, host, _), proxy.silent():
        await steps(host)
        status_code, _ = await exporter.running.ask("/healthz")
        assert status_code == 200


async def test_an_exporter_that_is_killed_in_mid_write_leaves_a_whole_object(sandbox, client, proxy, tmp_path):
    host = NumaHost(tmp_path / "host")
    flags = ("--sleep-interval=500ms", "--podreadiness=false")
    async with contextlib.AsyncExitStack() as stack:
        exporter_of = exporting(sandbox, client, HOME, tmp_path, host, *flags, server=proxy.url)
        first = await stack.enter_async_context(exporter_of)
        history = await stack.enter_async_context(History(client, first.node).watched())
        await published(first, STATES[0])
        slow = proxy.inject(topology("PATCH"), Delay(3.0))
        host.pods({"pod-4": [4]})

        async def in_flight() -> bool:
            return slow.hits > 0

        await until(in_flight, seconds=30)
        first.process.kill()
        await first.process.wait()
        proxy.faults.clear()
        host.pods({"pod-4": [4], "pod-5": [5]})
        again = exporting(sandbox, client, HOME, tmp_path, host, *flags, server=proxy.url, node=first.node)
        second = await stack.enter_async_context(again)
        await published(second, STATES[2])
        await asyncio.sleep(4)
        assert await second.shows(STATES[2]), "what the first one had sent comes late and is repaired"
        assert all(state in STATES for state in history.states)


async def test_a_stop_finishes_the_write_in_flight(sandbox, client, proxy, tmp_path):
    async with disturbed(sandbox, client, proxy, tmp_path) as (exporter, host, _):
        slow = proxy.inject(topology("PATCH"), Delay(2.0), times=1)
        host.pods({f"pod-{cpu}": [cpu] for cpu in range(4, 7)})

        async def in_flight() -> bool:
            return slow.hits > 0

        await until(in_flight, seconds=30)
        exporter.process.terminate()
        async with asyncio.timeout(30):
            assert await exporter.process.wait() == 0
        assert await exporter.shows(STATES[-1])


async def test_a_definition_that_is_missing_is_waited_for(sandbox, client, proxy, tmp_path):
    host = NumaHost(tmp_path / "host")
    missing = status(404, "NotFound", "the server could not find the requested resource")
    proxy.inject(lambda seen: TOPOLOGIES.group in seen.path, missing)
    async with exporting(sandbox, client, HOME, tmp_path, host, server=proxy.url) as exporter:

        async def says_so() -> bool:
            code, report = await exporter.running.ask("/readyz")
            return code == 503 and "is not served" in report

        await until(says_so, seconds=60)
        assert exporter.process.returncode is None
        proxy.faults.clear()
        await published(exporter, STATES[0], seconds=60)
        await until(exporter.running.ready, seconds=10)


@pytest.mark.req("NE-018")
async def test_no_reference_to_a_dead_node_is_ever_written(sandbox, client, proxy, tmp_path):
    """The watch of Nodes is blind while the Node is registered again, and a write is due."""
    async with disturbed(sandbox, client, proxy, tmp_path) as (exporter, host, history):
        old = (await client.get(NODES, exporter.node))["metadata"]["uid"]
        proxy.inject(watches(NODES), Lines(lambda _: []))
        proxy.tear()
        await asyncio.sleep(2)
        await client.delete(NODES, exporter.node)
        new = await make_node(client, exporter.node)
        with contextlib.suppress(NotFound):  # the garbage collector may be faster, as its owner is gone
            await client.delete(TOPOLOGIES, exporter.node)
        history.owners.clear()
        await steps(host)

        async def owned() -> bool:
            return new in history.owners

        await until(owned, seconds=60)
        assert old not in history.owners
