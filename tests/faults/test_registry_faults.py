"""Registries that fail, each in its own way: refused connections, 503, 429, torn and slow bodies, redirects, realms.

The scenarios run side by side on hosts, images and namespaces of their own, as most of their time is spent waiting; so
each also shows that one host's trouble is no other's. Each is one test with its own row.
"""

import asyncio
import base64
import contextlib
import json
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from fault_proxy import Answer, Cut, FaultProxy, Seen, Slow
from fault_roles import Replica
from fault_scenarios import side_by_side
from fault_table import Row
from placement_cluster import decision, is_gated, pod, until

from polyarch.kube.client import Client
from polyarch.kube.errors import Forbidden
from polyarch.kube.resources import EVENTS, NAMESPACES, PODS, SECRETS
from polyarch.operator.components.placement_objects import controller_deployment, webhook_deployment
from polyarch.operator.settings import OperatorSettings

pytestmark = pytest.mark.req("RG-065", "RG-103", "RG-104", "RG-105")

SECONDS = 90.0
MARKER = "marker-0f9d2c7b"
"""Part of every secret of these tests: it may not turn up anywhere but at the registry itself."""


def manifests(seen: Seen) -> bool:
    return "/manifests/" in seen.path


async def unavailable(faults) -> Row:
    """503 for eight seconds."""
    host = faults.hosts["unavailable"]
    images = await faults.seed("unavailable", 4)
    fault = host.inject(manifests, Answer(503, b"down"))
    async with faults.crowd(writes=2) as crowd:
        await crowd.create(images, 40)
        await asyncio.sleep(8)
        host.withdraw(fault)
        await crowd.released(seconds=SECONDS)
        attempts = round(fault.hits / len(images) / 2, 2)
        return await crowd.row("registry: 503 for 8 s", registry=[host], attempts=attempts)


async def maintenance(faults) -> Row:
    """A page in place of the registry for eight seconds, with success."""
    host = faults.hosts["maintenance"]
    images = await faults.seed("maintenance", 4)
    page = Answer(200, b"<!doctype html><title>Back soon</title>", [("Content-Type", "text/html")])
    fault = host.inject(lambda seen: True, page)
    async with faults.crowd(writes=2) as crowd:
        await crowd.create(images, 40)
        await asyncio.sleep(8)
        host.withdraw(fault)
        await crowd.released(seconds=SECONDS)
        return await crowd.row("registry: a page for 8 s", registry=[host])


async def limited(faults) -> Row:
    """429 with Retry-After: nobody asks that host again before."""
    host = faults.hosts["limited"]
    images = await faults.seed("limited", 4)
    fault = host.inject(manifests, Answer(429, b"slow down", [("Retry-After", "6")]))
    async with faults.crowd(writes=2) as crowd:
        await crowd.create(images, 40)
        await asyncio.sleep(5)
        host.withdraw(fault)
        await crowd.released(seconds=SECONDS)
        row = await crowd.row("registry: 429, Retry-After 6", registry=[host])
        begun = [seen.at for seen in host.seen if manifests(seen)]
        row.note = f"{sum(at < begun[0] + 6 for at in begun)} requests before the 6 s were over"
        assert fault.hits
        return row


async def cut(faults) -> Row:
    """Every manifest torn in mid-body, eight times."""
    host = faults.hosts["cut"]
    images = await faults.seed("cut", 4)
    fault = host.inject(manifests, Cut(60), times=8)
    async with faults.crowd(writes=2) as crowd:
        await crowd.create(images, 40)
        await crowd.released(seconds=SECONDS)
        return await crowd.row("registry: body cut", registry=[host], note=f"{fault.hits} answers cut")


async def slow(faults) -> Row:
    """Bodies that take seconds: slower than a decision may take, not slow enough to give up."""
    host = faults.hosts["slow"]
    images = await faults.seed("slow", 4)
    host.inject(manifests, Slow(150))
    async with faults.crowd(writes=2) as crowd:
        await crowd.create(images, 40)
        await crowd.released(seconds=SECONDS)
        return await crowd.row("registry: 150 bytes/s", registry=[host])


async def pull_secret(faults, namespace: str, host: FaultProxy, name: str) -> str:
    """Credentials for a host; returns what must not be seen anywhere else."""
    password = f"{MARKER}-{name}"
    authentication = base64.b64encode(f"alice:{password}".encode()).decode()
    entry = {"auth": authentication}
    document = json.dumps({"auths": {f"{name}.faults.test": entry, host.address: entry}})
    await faults.client.create(
        SECRETS,
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": "pull"},
            "type": "kubernetes.io/dockerconfigjson",
            "data": {".dockerconfigjson": base64.b64encode(document.encode()).decode()},
        },
        namespace=namespace,
    )
    return password


async def redirecting(faults) -> Row:
    """A registry that wants credentials and then sends us elsewhere: they do not come along."""
    host, other = faults.hosts["redirecting"], faults.hosts["elsewhere"]
    images = await faults.seed("redirecting", 4)

    def anonymous(seen: Seen) -> bool:
        return manifests(seen) and not seen.authorization

    host.inject(anonymous, Answer(401, b"", [("WWW-Authenticate", 'Basic realm="faults"')]))
    for image in images:
        repository = image.partition("/")[2].partition(":")[0]
        host.inject(
            lambda seen, repository=repository: f"/{repository}/manifests/" in seen.path,
            Answer(307, b"", [("Location", f"{other.url}/v2/faults/redirecting/{repository}/manifests/1")]),
        )
    async with faults.crowd(writes=2) as crowd:
        password = await pull_secret(faults, crowd.namespace, host, "redirecting")
        await crowd.create(images, 40, imagePullSecrets=[{"name": "pull"}])
        await crowd.released(seconds=SECONDS)
        row = await crowd.row("registry: redirect with credentials", registry=[host, other])
        row.note = f"{sum(bool(seen.authorization) for seen in other.seen)} credentials sent elsewhere"
        assert any(seen.authorization for seen in host.seen), "the registry itself was shown the credentials"
        await not_told(faults, crowd.namespace, password)
        return row


async def realm(faults) -> Row:
    """A registry that asks for credentials at an address that polyarch must not reach."""
    host = faults.hosts["realm"]
    images = await faults.seed("realm", 2)
    # Link-local, where clouds keep their machines' credentials. Somebody who did connect would report the network.
    challenge = 'Bearer realm="http://169.254.169.254/token",service="faults"'
    host.inject(manifests, Answer(401, b"", [("WWW-Authenticate", challenge)]))
    async with faults.crowd("short", writes=2) as crowd:
        password = await pull_secret(faults, crowd.namespace, host, "realm")
        await crowd.create(dict.fromkeys(images), 20, imagePullSecrets=[{"name": "pull"}])
        await crowd.released(seconds=SECONDS)
        decisions = [decision(each) for each in (await crowd.pods()).values()]
        codes = sorted({code for each in decisions for code in each["images"].values()})
        note = f"{', '.join(codes)}; released by policy after 5 s"
        row = await crowd.row("registry: realm on a forbidden address", registry=[host], note=note)
        assert {each["reason"] for each in decisions} == {"ReleasedUnconstrained"}
        await not_told(faults, crowd.namespace, password)
        return row


async def not_told(faults, namespace: str, password: str) -> None:
    """In no log, event, pod or metric."""
    encoded = base64.b64encode(f"alice:{password}".encode()).decode()
    events = (await faults.client.list(EVENTS, namespace=namespace)).items
    said = faults.fleet.logs() + repr(events)
    assert password not in said
    assert encoded not in said


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def under_way(standing):
    async with side_by_side(standing, (unavailable, maintenance, limited, cut, slow, redirecting, realm)) as tasks:
        yield tasks


@pytest.fixture
def come_to(under_way, told) -> Callable[[str], Awaitable[Row]]:
    async def result(name: str) -> Row:
        row = told(await under_way[name])
        assert row.sound, row
        assert row.released == row.pods
        return row

    return result


@pytest.mark.req("PL-331", "PL-335", "RG-061")
async def test_a_registry_that_answers_503(come_to):
    row = await come_to("unavailable")
    assert row.attempts is not None
    assert row.attempts <= 4 * 12, "each attempt tries at most four times"


@pytest.mark.req("PL-331")
async def test_a_page_in_place_of_the_registry_releases_no_pod(come_to):
    row = await come_to("maintenance")
    assert (row.unconstrained, row.wrong) == (0, 0)


@pytest.mark.req("PL-331")
async def test_a_registry_that_asks_for_patience_gets_it(come_to):
    row = await come_to("limited")
    assert int(row.note.split()[0]) <= 3 * 4, "what was under way in each process, and no more"


@pytest.mark.req("PL-330")
async def test_a_registry_that_tears_its_answers(come_to):
    await come_to("cut")


@pytest.mark.req("PL-302")
async def test_a_registry_that_answers_slowly(come_to):
    await come_to("slow")


@pytest.mark.req("PL-850")
async def test_credentials_do_not_follow_a_redirect(come_to):
    row = await come_to("redirecting")
    assert row.note.startswith("0 "), row.note


@pytest.mark.req("PL-851")
async def test_a_realm_on_a_forbidden_address_is_not_asked(come_to):
    row = await come_to("realm")
    assert row.note.startswith("refused-address; "), row.note
    assert row.registry_requests <= 3 * 12 * 2


PORTS = 100
MIB = 2**20
LIMITS = {
    made.role: int(made.memory_limit.removesuffix("Mi")) * MIB
    for made in (webhook_deployment(OperatorSettings()), controller_deployment(OperatorSettings()))
}
"""Of the containers' memory, in bytes, by role."""


@contextlib.asynccontextmanager
async def dripping(ports: int) -> AsyncIterator[tuple[list[str], set[asyncio.StreamWriter]]]:
    """A host at so many ports, each with a manifest of which nearly two MiB come at once and the rest slowly; the
    addresses, and the bodies under way."""
    under_way: set[asyncio.StreamWriter] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            if await reader.readexactly(1) == b"\x16":  # TLS
                writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
                await writer.drain()
            else:
                await reader.readuntil(b"\r\n\r\n")
                under_way.add(writer)
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/vnd.oci.image.index.v1+json\r\n")
                writer.write(b"Transfer-Encoding: chunked\r\n\r\n")  # no length that tells what is to come
                for _ in range(30):
                    writer.write(b"10000\r\n" + b" " * 65536 + b"\r\n")
                    await writer.drain()
                while True:
                    writer.write(b"400\r\n" + b" " * 1024 + b"\r\n")
                    await writer.drain()
                    await asyncio.sleep(1)
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            under_way.discard(writer)
            writer.transport.abort()

    servers = [await asyncio.start_server(serve, "127.0.0.1", 0) for _ in range(ports)]
    try:
        yield [f"127.0.0.1:{server.sockets[0].getsockname()[1]}" for server in servers], under_way
    finally:
        for server in servers:
            server.close()
        for writer in list(under_way):
            writer.transport.abort()


def most_memory(replica: Replica) -> int:
    """The most bytes of memory that the process has had."""
    status = Path(f"/proc/{replica.process.pid}/status").read_text()
    return 1024 * int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM")))


async def _accepted(client: Client, document: dict[str, Any], namespace: str) -> bool:
    try:
        await client.create(PODS, document, namespace=namespace)
    except Forbidden:  # the ServiceAccount of the namespace is not there yet
        return False
    return True


@pytest.mark.req("PL-851", "PL-854")
async def test_a_pod_with_a_hundred_registries_that_drip_exhausts_no_process_and_delays_no_other(faults, told):
    """The pod stays, so the next leader meets it, too. Each of its images is about as large as may be read."""
    namespace = f"flood-{secrets.token_hex(4)}"
    images = await faults.seed("steady", 8)
    async with dripping(PORTS) as (addresses, under_way), contextlib.AsyncExitStack() as stack:
        hosts = {f"flood-{at}.faults.test": address for at, address in enumerate(addresses)}
        stack.callback(faults.fleet.also_at, {})
        faults.fleet.also_at(hosts)
        for replica in (*faults.fleet.webhooks, *faults.fleet.controllers):  # new ones: with these hosts, and small
            await replica.end()
        await faults.fleet.ensure()
        document = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
        await faults.client.create(NAMESPACES, document)
        flood = pod(*(f"{host}/x/y:1" for host in hosts), automountServiceAccountToken=False)
        creating = asyncio.create_task(until(lambda: _accepted(faults.client, flood, namespace), seconds=30))
        inline = 0
        while not creating.done():
            inline = max(inline, len(under_way))
            await asyncio.sleep(0.01)
        await creating
        memory: dict[str, int] = {}

        def measure() -> None:
            for replica in (*faults.fleet.webhooks, *faults.fleet.controllers):
                memory[replica.role] = max(memory.get(replica.role, 0), most_memory(replica))

        held = 0
        for turn in ("first", "next"):
            async with asyncio.timeout(60):
                while not under_way:
                    await asyncio.sleep(0.05)
            held = max(held, len(under_way))
            async with faults.crowd() as crowd:
                await crowd.create(images, 40)
                await crowd.released(seconds=SECONDS)
                row = await crowd.row(f"a hundred dripping registries, {turn} leader")
            for _ in range(20):
                await asyncio.sleep(0.5)
                held = max(held, len(under_way))
            measure()
            row.note = f"{inline} bodies at admission, at most {held}; " + "; ".join(
                f"{role} {size // MIB} MiB" for role, size in sorted(memory.items())
            )
            told(row)
            assert row.released == row.pods
            if turn == "first":
                await (await faults.fleet.leader()).kill()
                await faults.fleet.leader()
        assert held > 4
        for role, size in memory.items():
            assert size <= 0.8 * LIMITS[role], (role, size // MIB)
        assert is_gated(await faults.client.get(PODS, "app", namespace=namespace))
        await faults.client.delete(NAMESPACES, namespace)
