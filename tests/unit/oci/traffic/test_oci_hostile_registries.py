"""Registries of hostile tenants on loopback, and the real client: what they hold of memory, places and time."""

import asyncio
import gzip
import json
import zlib
from contextlib import asynccontextmanager
from typing import NamedTuple

import pytest
from scripted_registry import OCI_INDEX, Answer, ScriptedRegistry

from polyarch.clock import SystemClock
from polyarch.oci.reference import parse
from polyarch.oci.settings import PLACEMENT
from polyarch.oci.traffic import exchange
from polyarch.oci.transport.http import AiohttpTransport
from polyarch.oci.transport.interface import Timeouts, TransportError
from polyarch.oci.transport.tls import TrustSettings, TrustStore
from polyarch.proxies import Proxies

pytestmark = pytest.mark.req("RG-052", "PL-851", "PL-854")

MIB = 2**20
PATIENT = Timeouts(first_byte=600.0, idle=600.0, slow_period=600.0)


class Hostile(NamedTuple):
    hosts: list
    held: set

    async def hold(self, requests):
        """Wait until they hold so many."""
        async with asyncio.timeout(30):
            while len(self.held) < requests:
                await asyncio.sleep(0.02)


@asynccontextmanager
async def hostile(behaviour, ports):
    """Servers that read a request and then do as they like; the hosts, and the requests that they hold."""

    serving, held = set(), set()

    async def serve(reader, writer):
        serving.add(asyncio.current_task())
        try:
            if await reader.readexactly(1) != b"\x16":  # TLS
                await reader.readuntil(b"\r\n\r\n")
                held.add(writer)
                await behaviour(writer)
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, asyncio.CancelledError):
            pass
        finally:
            held.discard(writer)
            writer.transport.abort()

    servers = [await asyncio.start_server(serve, "127.0.0.1", 0) for _ in range(ports)]
    try:
        yield Hostile([f"127.0.0.1:{server.sockets[0].getsockname()[1]}" for server in servers], held)
    finally:
        for server in servers:
            server.close()
        for _ in range(3):  # what was accepted last is served last
            for task in serving:
                task.cancel()
            await asyncio.gather(*serving)
            await asyncio.sleep(0.05)


def head(length=None, *more):
    lines = ["HTTP/1.1 200 OK", f"Content-Type: {OCI_INDEX}", *more]
    lines.append("Transfer-Encoding: chunked" if length is None else f"Content-Length: {length}")
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


async def drip(writer, piece=b" ", every=1.0):
    while True:
        writer.write(piece)
        await writer.drain()
        await asyncio.sleep(every)


async def all_but_the_end(writer):
    """Two MiB at once, and then nothing to speak of."""
    writer.write(head(2 * MIB) + b" " * (2 * MIB - 1000))
    await drip(writer)


async def chunks_without_length(writer):
    writer.write(head())
    await drip(writer, b"10000\r\n" + b" " * 65536 + b"\r\n", 0.5)


async def no_headers(writer):
    await drip(writer, b"HTTP", 30)


async def slow_headers(writer):
    writer.write(b"HTTP/1.1 200 OK\r\n")
    await drip(writer, b"X-A: " + b"a" * 4000 + b"\r\n", 0.2)


async def slow_token(writer):
    """Asks for a token of its own, which never comes: the second request has no end either."""
    writer.write(b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 500000\r\n\r\n")
    await drip(writer)


HOSTILE = [all_but_the_end, chunks_without_length, no_headers, slow_headers, slow_token]


@pytest.fixture
def client(make_inspector):
    """The client of a process in a cluster, whose requests to hostile registries do not end by themselves."""

    def make(timeouts=PATIENT, **arguments):
        names = ("wait", "public_probe", "reserve", "guaranteed_per_host", "guaranteed", "bytes_in_flight", "timeout")
        settings = {name: getattr(PLACEMENT, name) for name in (*names, "waiting_per_tenant", "waiting")}
        return make_inspector(clock=SystemClock(), timeouts=timeouts, **{**settings, **arguments})

    return make


@pytest.mark.parametrize("behaviour", HOSTILE, ids=lambda each: each.__name__)
async def test_namespaces_whose_registries_hang_neither_delay_nor_fail_the_look_ups_of_others(
    client, registry, behaviour
):
    for at in range(60):
        registry.push_index(f"app{at}", "1", "linux/amd64", "linux/arm64")
    inspector = client(timeout=600.0)
    async with hostile(behaviour, 20) as evil:
        attacks = [
            asyncio.create_task(inspector.inspect(parse(f"{host}/x{tenant}/y:1"), tenant=f"evil-{tenant}"))
            for tenant in range(8)
            for host in evil.hosts
        ]
        bytes_run_out = behaviour in (all_but_the_end, chunks_without_length)
        await evil.hold(8 if bytes_run_out else PLACEMENT.requests)
        async with asyncio.timeout(40):
            for at in range(60):  # one after the other: each would wait for ever if there were no place
                found = await inspector.inspect(parse(f"{registry.host}/app{at}:1"), tenant=f"team-{at % 10}")
                assert found.status == "resolved"
        for attack in attacks:
            attack.cancel()
        await asyncio.wait(attacks)


@pytest.mark.parametrize("tenants", [1, 8, 30])
async def test_the_bytes_of_hostile_bodies_stay_within_the_budget_and_a_small_one_has_room(client, registry, tenants):
    registry.push_index("app", "1", "linux/arm64")
    inspector = client()
    capacity = inspector.connection.rate_limiter.bytes_in_flight
    async with hostile(all_but_the_end, 20) as (hosts, _):
        attacks = [
            asyncio.create_task(inspector.inspect(parse(f"{host}/x{tenant}/y:1"), tenant=f"evil-{tenant}"))
            for tenant in range(tenants)
            for host in hosts[: 160 // tenants]
        ]
        most = 0
        for _ in range(30):
            await asyncio.sleep(0.05)
            most = max(most, capacity.used)
            assert capacity.held("evil-0") <= PLACEMENT.bytes_in_flight.per_tenant
        assert 4 * MIB < most <= PLACEMENT.bytes_in_flight.maximum
        found = await inspector.inspect(parse(f"{registry.host}/app:1"), tenant="modest")
        assert found.status == "resolved"
        for attack in attacks:
            attack.cancel()
        await asyncio.wait(attacks)
    del attacks
    await inspector.close()
    assert capacity.used == 0, "nothing is kept of what was given up"


async def test_a_body_that_comes_too_slowly_is_given_up(client):
    inspector = client(attempts=1, transport=None, timeouts=Timeouts(slow_period=0.5, slowest=1000))
    async with hostile(all_but_the_end, 1) as (hosts, _):
        found = await inspector.inspect(parse(f"{hosts[0]}/x/y:1"), tenant="evil")
    assert found.error.code == "timeout"
    assert "too slowly" in found.error.message


async def test_bodies_that_were_given_up_make_room_for_the_next_attempt(client):
    """An image that is asked for four times has one body at a time."""
    inspector, most = client(timeouts=Timeouts(slow_period=0.2, slowest=1000)), 0
    capacity = inspector.connection.rate_limiter.bytes_in_flight
    async with hostile(all_but_the_end, 1) as (hosts, _):
        asking = asyncio.create_task(inspector.inspect(parse(f"{hosts[0]}/x/y:1"), tenant="evil"))
        while not asking.done():
            await asyncio.sleep(0.02)
            most = max(most, capacity.held("evil"))
    assert (await asking).error.code == "timeout"
    assert MIB < most <= 2 * MIB


async def test_a_body_that_is_slow_but_fast_enough_is_read(client):
    body = json.dumps({"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": []}).encode()

    async def steady(writer):
        writer.write(head(len(body)))
        for at in range(0, len(body), 10):
            writer.write(body[at : at + 10])
            await writer.drain()
            await asyncio.sleep(0.05)

    inspector = client(timeouts=Timeouts(slow_period=0.2, slowest=50))
    async with hostile(steady, 1) as (hosts, _):
        found = await inspector.inspect(parse(f"{hosts[0]}/x/y:1"), tenant="team")
    assert found.error is None


@pytest.mark.parametrize("headers", [200, 64 * 20])
async def test_more_headers_than_a_registry_sends_are_refused(client, headers):
    async def many(writer):
        writer.write(head(2, *(f"X-{at}: {'a' * 1000}" for at in range(headers))) + b"{}")
        await drip(writer)

    async with hostile(many, 1) as (hosts, _):
        found = await client(attempts=1).inspect(parse(f"{hosts[0]}/x/y:1"), tenant="evil")
    assert found.error.code == "network"


async def test_a_compressed_body_is_unpacked_to_the_limit_only(client):
    bomb = gzip.compress(b" " * 50 * MIB)

    async def compressed(writer):
        writer.write(head(len(bomb), "Content-Encoding: gzip") + bomb)
        await asyncio.sleep(5)

    inspector = client(attempts=1)
    async with hostile(compressed, 1) as (hosts, _):
        found = await inspector.inspect(parse(f"{hosts[0]}/x/y:1"), tenant="evil")
    assert found.error.code == "too-large", found.error.message


@pytest.mark.req("RG-061")
async def test_a_tenant_whose_images_hang_at_a_host_does_not_close_it_for_others(client):
    """Repositories behind a proxy's cache: some hang, which says nothing about the host."""
    async with ScriptedRegistry() as shared:
        shared.push_index("good", "1", "linux/arm64")
        shared.script("GET", "evil", Answer(200, b"", delay=30), forever=True)
        inspector = client(attempts=1, timeouts=Timeouts(first_byte=0.2))
        for at in range(8):
            await inspector.inspect(parse(f"{shared.host}/evil{at}:1"), tenant="evil")
        shut = await inspector.inspect(parse(f"{shared.host}/evil:1"), tenant="evil")
        assert "circuit open" in shut.error.message
        found = await inspector.inspect(parse(f"{shared.host}/good:1"), tenant="modest")
        assert found.status == "resolved"


@pytest.mark.req("RG-063")
async def test_a_tenant_uses_up_its_share_of_a_rate_limit_and_leaves_some_to_others(client):
    async with ScriptedRegistry() as hub:
        for at in range(100):
            hub.push_index(f"app{at}", "1", "linux/amd64", "linux/arm64")
        inspector, left = client(), 100
        for at in range(100):
            hub.headers = {"RateLimit-Limit": "100;w=21600", "RateLimit-Remaining": f"{left};w=21600"}
            found = await inspector.inspect(parse(f"{hub.host}/app{at}:1"), tenant="greedy")
            if found.error is not None:
                break
            left -= 1
        assert "its share of the rate limit" in found.error.message
        assert 20 < left < 40
        other = await inspector.inspect(parse(f"{hub.host}/app99:1"), tenant="modest")
        assert other.status == "resolved"


class SlowNamesOf:
    """A transport for which the names that one tenant asks for take too long."""

    def __init__(self, transport, tenant):
        self.transport, self.tenant = transport, tenant

    def request(self, method, url, *, tenants, **options):
        if tenants.first == self.tenant:
            raise TransportError("timeout", phase="name", host="a host", detail="no address within 5 s (name)")
        return self.transport.request(method, url, tenants=tenants, **options)


@pytest.mark.req("RG-061")
async def test_a_tenant_whose_names_wait_for_its_share_does_not_close_a_host_for_others(client, stack):
    """It may have used up its share of the resolver, and then ask for images that everybody uses."""
    transport = AiohttpTransport(trust=TrustStore(TrustSettings(system=False)), proxies=Proxies({}))
    stack.push_async_callback(transport.close)
    async with ScriptedRegistry() as shared:
        shared.push_index("good", "1", "linux/arm64")
        inspector = client(attempts=1, transport=SlowNamesOf(transport, "evil"))
        reference = parse(f"{shared.host}/good:1")
        for at in range(8):
            await inspector.inspect(parse(f"{shared.host}/evil{at}:1"), tenant="evil")
        assert inspector.host_busy(reference, "evil")
        assert not inspector.host_busy(reference, "modest")
        found = await inspector.inspect(reference, tenant="modest")
        assert found.status == "resolved"


async def test_a_body_of_empty_members_does_not_hold_up_others():
    """It gives nothing that a limit counts, and each member would copy all that follows it."""
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    async def body():
        yield zlib.compress(b"") * (256 * 1024 // 8)

    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(others())
        assert [piece async for piece in exchange._inflated(body(), "registry.example")] == []
        running.cancel()
    assert turns >= 60
