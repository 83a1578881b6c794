"""The extender under faults: cells are promised once, and what is not known is an error."""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import aiohttp
import pytest
import pytest_asyncio
from exporter_process import define
from extender_process import bind, cells, extending, forget, kubeconfig, pod, topology
from fault_proxy import CUT, Delay, FaultProxy, Lines, Seen, gone_event, server_tls, status
from placement_cluster import until

from polyarch.kube import config
from polyarch.kube.client import Client
from polyarch.kube.resources import NAMESPACES, PODS, Resource
from polyarch.numa.api.topology import TOPOLOGIES
from polyarch.sandbox.cluster import Sandbox

pytestmark = [pytest.mark.cluster, pytest.mark.asyncio(loop_scope="session"), pytest.mark.req("NS-150")]
HOME = "extender-faults"


@pytest_asyncio.fixture(loop_scope="session")
async def client(sandbox: Sandbox) -> AsyncIterator[Client]:
    async with Client(config.load(str(sandbox.kubeconfig)), role="tests") as client:
        await define(client)
        await client.apply(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": HOME}})
        yield client


@pytest_asyncio.fixture(loop_scope="session")
async def world(sandbox: Sandbox, client: Client, tmp_path: Path) -> AsyncIterator[Any]:
    """A proxy before the API server, and the credentials of an extender behind it."""
    trusted = ssl.create_default_context(cafile=str(sandbox.ca))
    async with FaultProxy(sandbox.api_server, upstream_ssl=trusted, server_ssl=server_tls(sandbox, tmp_path)) as proxy:
        file = await kubeconfig(sandbox, client, HOME, tmp_path, proxy.url)
        account = file.stem
        made: list[dict[str, Any]] = []

        async def new(cpu: int = 2) -> dict[str, Any]:
            made.append(await pod(client, HOME, account, cpu))
            return made[-1]

        yield SimpleNamespace(client=client, proxy=proxy, file=file, pod=new)
        for each in made:
            with contextlib.suppress(Exception):
                await client.delete(PODS, each["metadata"]["name"], namespace=HOME)
        await forget(client, account)


def watches(resource: Resource) -> Any:
    def matches(seen: Seen) -> bool:
        return seen.watch and seen.path.endswith(resource.plural)

    return matches


async def becomes(extender: Any, asked: dict[str, Any], node: str, expected: list[str], seconds: float = 30) -> None:
    """The answer, sooner or later; each one until then is an error or the answer of before."""

    async def so() -> bool:
        found: list[str] = (await extender.filter(asked, node))["NodeNames"]
        return found == expected

    await until(so, seconds=seconds)


@pytest.mark.req("NS-151")
async def test_an_extender_killed_in_mid_call_knows_afterwards_what_was_bound_meanwhile(world):
    async with cells(world.client, 2) as node:
        first, second = await world.pod(), await world.pod()
        async with extending(world.file, HOME) as extender:
            await until(extender.ready, seconds=30)
            slow = world.proxy.inject(lambda seen: "spec.schedulerName" in seen.query, Delay(5.0))
            call = asyncio.create_task(extender.filter(first, node))

            async def in_flight() -> bool:
                return slow.hits > 0

            await until(in_flight, seconds=20)
            extender.process.kill()
            with pytest.raises(aiohttp.ClientError):
                await call
            world.proxy.faults.clear()
        await bind(world.client, first, node)
        async with extending(world.file, HOME) as again:
            await until(again.ready, seconds=30)
            found = await again.filter(second, node)
            assert (found["NodeNames"], found["Error"]) == ([], "")


@pytest.mark.req("NS-085")
async def test_without_an_api_server_decisions_go_on_for_a_while_and_end_in_errors_not_in_all_nodes(
    world,
):
    async with cells(world.client, 2, 2) as node, extending(world.file, HOME, "--max-staleness=6s") as extender:
        await until(extender.ready, seconds=30)
        one, two, three = [await world.pod() for _ in range(3)]
        assert (await extender.filter(one, node))["NodeNames"] == [node]
        async with world.proxy.refusing():
            world.proxy.tear()
            await asyncio.sleep(1)
            found = await extender.filter(two, node)
            assert (found["NodeNames"], found["Error"]) == ([node], "")
            answers = []

            async def is_stale() -> bool:
                answers.append(await extender.filter(three, node))
                return bool(answers[-1]["Error"])

            await until(is_stale, seconds=30)
            assert all(each["NodeNames"] == [] for each in answers), "both cells are promised"
            assert "has not been current" in answers[-1]["Error"]
            assert not await extender.ready()
        await until(extender.ready, seconds=30)
        found = await extender.filter(one, node)
        assert (found["NodeNames"], found["Error"]) == ([node], "")


@pytest.mark.req("NS-085")
async def test_an_extender_that_never_saw_the_api_server_answers_with_the_cache_that_is_missing(world):
    async with world.proxy.refusing(), extending(world.file, HOME) as extender:
        asked = {"metadata": {"name": "a", "uid": "a"}, "spec": {}}
        found = await extender.filter(asked, "node")
        assert found["NodeNames"] == []
        assert "is not complete yet" in found["Error"]
        assert not await extender.ready()


WATCH_FAULTS = {
    "EOF in mid-line": Lines(lambda _: [CUT]),
    "410 as an event": Lines(lambda line: [line, gone_event()]),
    "410 as a status": status(410, "Expired"),
}


@pytest.mark.parametrize("fault", WATCH_FAULTS)
async def test_a_watch_that_breaks_misses_neither_a_deletion_nor_a_new_object(world, fault):
    async with cells(world.client, 2) as node, extending(world.file, HOME) as extender:
        await until(extender.ready, seconds=30)
        first, second = await world.pod(), await world.pod()
        assert (await extender.filter(first, node))["NodeNames"] == [node]
        await bind(world.client, first, node)
        await becomes(extender, second, node, [])
        for resource in (PODS, TOPOLOGIES):
            world.proxy.inject(watches(resource), WATCH_FAULTS[fault], times=3)
        world.proxy.tear()
        await world.client.delete(PODS, first["metadata"]["name"], namespace=HOME)
        await becomes(extender, second, node, [node])
        third = await world.pod()
        assert (await extender.filter(third, node))["NodeNames"] == []
        await world.client.apply(TOPOLOGIES, topology(node, [2, 2]))
        await becomes(extender, third, node, [node])


@pytest.mark.req("NS-152")
async def test_a_second_replica_knows_at_its_first_answer_what_the_first_has_bound(world):
    async with (
        cells(world.client, 2) as node,
        extending(world.file, HOME) as leader,
        extending(world.file, HOME) as standby,
    ):
        await until(leader.ready, seconds=30)
        await until(standby.ready, seconds=30)
        first, second = await world.pod(), await world.pod()
        assert (await leader.filter(first, node))["NodeNames"] == [node]
        world.proxy.inject(watches(PODS), Lines(lambda line: [line]))
        await bind(world.client, first, node)
        leader.process.kill()
        found = await standby.filter(second, node)
        assert (found["NodeNames"], found["Error"]) == ([], "")


@pytest.mark.req("NS-107")
async def test_while_an_exporter_is_silent_what_was_bound_stays_reserved(world):
    async with cells(world.client, 2) as node, extending(world.file, HOME, "--ttl=2s") as extender:
        await until(extender.ready, seconds=30)
        first, second = await world.pod(), await world.pod()
        await extender.filter(first, node)
        await bind(world.client, first, node)
        await asyncio.sleep(6)
        assert (await extender.filter(second, node))["NodeNames"] == []
