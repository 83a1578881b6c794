"""A registry that fails while a result is published, at each of the requests in turn (S7 and S8).

Children are copied from a staging repository, the index is pushed, its tags are moved. Whichever request fails and
however: the result is the same, no tag ever names an index of which a part is missing, and once it is published nothing
is written again.
"""

import asyncio
import contextlib
import itertools
import secrets
import time
from collections.abc import AsyncIterator, Callable, Sequence

import aiohttp
import msgspec
import pytest
import pytest_asyncio
from fault_proxy import Action, Answer, Cut, FaultProxy, Reset, Seen, Slow
from registry_reader import Reader

from polyarch.builds.registry import ChildImage, Publication, PublishFailure, PublishResult, publish
from polyarch.oci.image.contents import RegistryConnection
from polyarch.oci.inspector import InspectorOptions, open_inspector
from polyarch.oci.pull_sources import Configuration
from polyarch.oci.settings import CLUSTER
from polyarch.oci.transport.addresses import AddressPolicy
from polyarch.sandbox.cluster import Sandbox

ARCHITECTURES = ("amd64", "arm64")
TAGS = ("run", "latest")
WITHIN = 90.0
AT_ONCE = 6

FAULTS: dict[str, Action] = {
    "429": Answer(429, b'{"errors":[{"code":"TOOMANYREQUESTS"}]}', [("Retry-After", "1")]),
    "500": Answer(500, b"broken"),
    "503": Answer(503, b"down", [("Retry-After", "1")]),
    "reset-before": Reset(),
    "reset-after": Reset(after=True),
    "cut": Cut(after_bytes=10),
    "slow": Slow(bytes_per_second=2000),
}


class Bench:
    """A staging repository, and a target of its own for each case."""

    def __init__(self, sandbox: Sandbox, children: Sequence[str], reader: Reader, staging: str) -> None:
        self.sandbox = sandbox
        self.children = tuple(children)
        self.reader = reader
        self.staging = staging

    def publication(self, proxy: FaultProxy, repository: str) -> Publication:
        children = tuple(
            ChildImage(
                architecture=architecture,
                reference=f"{proxy.address}/{self.staging}@{digest}",
                tag=f"run-{architecture}",
            )
            for architecture, digest in zip(ARCHITECTURES, self.children, strict=True)
        )
        return Publication(repository=f"{proxy.address}/{repository}", children=children, tags=TAGS)

    @contextlib.asynccontextmanager
    async def case(self) -> AsyncIterator[tuple[FaultProxy, RegistryConnection, str]]:
        """A proxy and a connection that know nothing of the other cases, and a new repository."""
        async with FaultProxy(f"http://{self.sandbox.registry.address}") as proxy:
            wiring = InspectorOptions(
                settings=msgspec.structs.replace(CLUSTER, max_wait=0.0, timeout=20.0),
                configuration=Configuration.load(insecure_hosts=[proxy.address]),
                policy=AddressPolicy.of("cluster", allow=["127.0.0.0/8"]),
            )
            async with open_inspector(wiring) as inspector:
                yield proxy, inspector.connection, f"faults/builds-{secrets.token_hex(6)}"

    async def whole(self, repository: str) -> set[str]:
        """The digests that the tags name; each of them whole."""
        found = set()
        for tag in TAGS:
            with contextlib.suppress(AssertionError):
                await self.reader.document(repository, tag)
                found.add(tag)
        return {(await self.reader.whole(repository, tag))[0] for tag in found}


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def bench(sandbox: Sandbox) -> AsyncIterator[Bench]:
    staging = f"quay.io/builds-{secrets.token_hex(4)}/staging"
    seeded = await sandbox.registry.seed(
        {f"{staging}:{each}": {"platforms": [f"linux/{each}"], "kind": "image"} for each in ARCHITECTURES}
    )
    digests = [each.digest for each in seeded]
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=60)) as session:
        place = seeded[0].location.partition("/")[2].rpartition(":")[0]
        yield Bench(sandbox, digests, Reader(session, sandbox.registry.address), place)


async def persist(connection: RegistryConnection, work: Publication) -> tuple[PublishResult | PublishFailure, int]:
    """As the builder does it: again while it may help; what came of it, and after how many calls."""
    began = time.monotonic()
    for attempts in itertools.count(1):
        found = await publish(connection, work)
        if isinstance(found, PublishResult) or not found.passing or time.monotonic() - began > WITHIN:
            return found, attempts
        await asyncio.sleep(found.retry_after if found.retry_after is not None else 1.0)
    raise AssertionError("counting never ends")


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def undisturbed(bench: Bench) -> tuple[str, int]:
    """The digest without faults, and the number of requests that it takes."""
    async with bench.case() as (proxy, connection, repository):
        found, attempts = await persist(connection, bench.publication(proxy, repository))
        assert isinstance(found, PublishResult)
        assert attempts == 1
        return found.digest, len(proxy.seen)


def nth(number: int) -> Callable[[Seen], bool]:
    """The request with this number, from 0."""
    count = itertools.count()
    return lambda seen: next(count) == number


@pytest.mark.req("BD-196", "BD-197", "BD-219", "BD-394")
@pytest.mark.parametrize("name", FAULTS)
@pytest.mark.asyncio(loop_scope="session")
async def test_one_request_fails(bench: Bench, undisturbed: tuple[str, int], name: str) -> None:
    """BD-196 (S7, S8), BD-197: each request of the sequence in turn."""
    digest, requests = undisturbed
    limit = asyncio.Semaphore(AT_ONCE)

    async def one(number: int, action: Action) -> None:
        async with limit, bench.case() as (proxy, connection, repository):
            fault = proxy.inject(nth(number), action)
            work = bench.publication(proxy, repository)
            found, _ = await persist(connection, work)
            assert fault.hits == 1, f"request {number} was never sent"
            assert isinstance(found, PublishResult), f"request {number}: {found}"
            assert found.digest == digest
            assert await bench.whole(repository) == {digest}
            proxy.seen.clear()
            again = await publish(connection, work)
            assert isinstance(again, PublishResult)
            assert {each.method for each in proxy.seen} <= {"GET", "HEAD"}

    async with asyncio.TaskGroup() as group:
        for number in range(requests):
            group.create_task(one(number, FAULTS[name]), name=f"request {number}")


@pytest.mark.req("BD-219")
@pytest.mark.asyncio(loop_scope="session")
@pytest.mark.parametrize("status", [500, 429])
async def test_a_registry_that_stays_down_is_told(bench: Bench, status: int) -> None:
    """While an index is pushed: RegistryUnreachable, all children recorded, no tag; later it is only assembled."""
    async with bench.case() as (proxy, connection, repository):
        work = bench.publication(proxy, repository)
        headers = [("Retry-After", "2")] if status == 429 else []
        fault = proxy.inject(
            lambda seen: seen.method == "PUT" and seen.path.endswith("/manifests/run"), Answer(status, b"", headers)
        )
        trouble = await publish(connection, work)
        assert isinstance(trouble, PublishFailure)
        assert (trouble.reason, trouble.passing) == ("RegistryUnreachable", True)
        assert await bench.whole(repository) == set()
        proxy.withdraw(fault)
        proxy.seen.clear()
        await asyncio.sleep(trouble.retry_after or 0.0)
        found, _ = await persist(connection, work)
        assert isinstance(found, PublishResult)
        written = [each.path.rpartition("/")[2] for each in proxy.seen if each.method in ("PUT", "POST")]
        assert written == list(TAGS)


@pytest.mark.req("BD-177", "BD-394")
@pytest.mark.asyncio(loop_scope="session")
async def test_a_child_vanishes_on_the_way(bench: Bench) -> None:
    """Gone between two calls, while the registry was away: its architecture is named, and the tags stay away."""
    async with bench.case() as (proxy, connection, repository):
        name = f"quay.io/{repository}"
        seeded = await bench.sandbox.registry.seed(
            {f"{name}:{each}": {"platforms": [f"linux/{each}"], "kind": "image"} for each in ARCHITECTURES}
        )
        place = seeded[0].location.partition("/")[2].rpartition(":")[0]
        children = tuple(
            ChildImage(architecture=architecture, reference=f"{proxy.address}/{place}@{each.digest}")
            for architecture, each in zip(ARCHITECTURES, seeded, strict=True)
        )
        work = Publication(repository=f"{proxy.address}/{place}", children=children, tags=TAGS)
        fault = proxy.inject(lambda seen: seen.method == "PUT", Answer(503))
        interrupted = await publish(connection, work)
        assert isinstance(interrupted, PublishFailure)
        assert interrupted.passing
        proxy.withdraw(fault)
        await bench.sandbox.registry.delete(f"{name}@{seeded[1].digest}")
        found, _ = await persist(connection, work)
        assert isinstance(found, PublishFailure)
        assert (found.reason, found.missing) == ("RegistryInconsistent", ("arm64",))
        assert await bench.whole(place) == set()
