"""The extender under faults: cells are promised once, and what is not known is an error."""

import asyncio
import contextlib
import signal
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import aiohttp
import pytest
import pytest_asyncio
from exporter_process import define
from extender_process import Extender, bind, cells, extending, forget, kubeconfig, pod, topology
from fault_proxy import CUT, Delay, FaultProxy, Hold, Lines, Seen, gone_event, server_tls, status
from fault_table import Row
from placement_cluster import until

from polyarch.kube import config
from polyarch.kube.client import Client
from polyarch.kube.resources import NAMESPACES, PODS, PRIORITY_CLASSES, Resource
from polyarch.numa.api.topology import TOPOLOGIES
from polyarch.numa.extender.preemption import CONFIRMED
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
        file = await kubeconfig(sandbox, client, HOME, tmp_path, proxy.url, preempts=True)
        account = file.stem
        made: list[dict[str, Any]] = []

        async def new(cpu: int = 2, **more: str) -> dict[str, Any]:
            made.append(await pod(client, HOME, account, cpu, **more))
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


# -- a replica that stood still while another one led ------------------------------------------------------------------

IMPORTANT = "extender-faults"


def nominations(seen: Seen) -> bool:
    return seen.method == "PATCH" and seen.path.endswith("/status")


def evictions(seen: Seen) -> bool:
    """Those that are tried dry have the same path, and come before the nomination."""
    return seen.method == "POST" and seen.path.endswith("/eviction")


class Overtaken:
    """Two nodes of four CPUs with two pods each, and an important pod that needs one of them.

    The first replica is to free the first node, and stands still with one of its writes on the way; it goes on when
    the second replica, whose scheduler leads by then, has done its work.
    """

    def __init__(self, world: Any, nodes: list[str], second: Extender, residents: list[list[dict[str, Any]]]) -> None:
        self.world = world
        self.nodes = nodes
        self.second = second
        self.residents = residents
        self.important: dict[str, Any] = {}

    @classmethod
    @contextlib.asynccontextmanager
    async def of(cls, world: Any, late: str) -> AsyncIterator["Overtaken"]:
        def is_late(seen: Seen) -> bool:
            if late == "nomination":
                return nominations(seen)
            return evictions(seen) and any(map(nominations, world.proxy.seen))

        client, flags, on_its_way = world.client, ("--preempt", "--kick=none"), asyncio.Event()
        await client.apply(PRIORITY_CLASSES, {"metadata": {"name": IMPORTANT}, "value": 1000})
        async with (
            cells(client, sum_of_cpus=4) as one,
            cells(client, sum_of_cpus=4) as other,
            extending(world.file, HOME, *flags) as first,
            extending(world.file, HOME, *flags) as second,
        ):
            self = cls(world, [one, other], second, [[await world.pod(2) for _ in "ab"] for _ in range(2)])
            for node, residents in zip(self.nodes, self.residents, strict=True):
                for each in residents:
                    await bind(client, each, node)
            self.important = await world.pod(4, priority_class=IMPORTANT)
            await until(first.ready, seconds=30)
            await until(second.ready, seconds=30)
            await asyncio.sleep(1)  # the watches show what was bound
            world.proxy.seen.clear()
            fault = world.proxy.inject(is_late, Hold(on_its_way), times=1)

            async def is_held() -> bool:
                return fault.hits > 0

            await first.propose(self.important, {one: self.uids(0)})
            await until(is_held, seconds=20)
            first.process.send_signal(signal.SIGSTOP)
            try:
                yield self
                await asyncio.sleep(CONFIRMED)  # a Lease lasts for longer
                on_its_way.set()
                await asyncio.sleep(0.5)
            finally:
                first.process.send_signal(signal.SIGCONT)
            await asyncio.sleep(2)
            assert first.process.returncode is None

    def uids(self, node: int) -> list[str]:
        return [each["metadata"]["uid"] for each in self.residents[node]]

    def names(self, node: int) -> set[str]:
        return {each["metadata"]["name"] for each in self.residents[node]}

    async def nominated(self) -> str:
        return str((await self._stored())["status"].get("nominatedNodeName"))

    async def is_freed(self, node: int) -> None:
        """By the second replica."""
        await self.second.propose(await self._stored(), {self.nodes[node]: self.uids(node)})

        async def is_empty() -> bool:
            return not (await self.there() & self.names(node))

        await until(is_empty, seconds=20)

    async def there(self) -> set[str]:
        """Names of pods that have a node."""
        found = (await self.world.client.list(PODS, namespace=HOME)).items
        return {each["metadata"]["name"] for each in found if each["spec"].get("nodeName")}

    async def _stored(self) -> dict[str, Any]:
        name = self.important["metadata"]["name"]
        found: dict[str, Any] = await self.world.client.get(PODS, name, namespace=HOME)
        return found


@pytest.mark.req("NS-122")
@pytest.mark.parametrize("late", ["nomination", "eviction"])
async def test_a_replica_that_stood_still_evicts_nobody_once_another_has_freed_a_node(world, told, late):
    """An eviction that was on its way cannot be called back; it is the last one."""
    async with Overtaken.of(world, late) as overtaken:
        await overtaken.is_freed(1)
    evicted = len(overtaken.names(0) - await overtaken.there())
    on_its_way = int(late == "eviction")
    note = f"{evicted} evicted by the first, {on_its_way} of them on its way"
    scenario = f"{late} of the extender arrives after another leads"
    told(Row(scenario=scenario, pods=5, wrong=evicted - on_its_way, note=note))
    assert evicted == on_its_way
    assert await overtaken.nominated() == overtaken.nodes[1], "what the second has written"


@pytest.mark.req("NS-122")
async def test_an_eviction_that_was_on_its_way_takes_no_pod_that_came_by_the_same_name(world, told):
    async with Overtaken.of(world, "eviction") as overtaken, cells(world.client) as third:
        await overtaken.is_freed(0)
        for name in overtaken.names(0):
            await bind(world.client, await world.pod(2, name=name), third)
    evicted = len(overtaken.names(0) - await overtaken.there())
    told(Row(scenario="late eviction of the extender, and a new pod of the name", pods=7, wrong=evicted))
    assert evicted == 0
    assert await overtaken.nominated() == overtaken.nodes[0]
