"""TN-092 for nodes: whatever the API server does to the role, every node ends with its taint and with its own."""

import asyncio
import secrets
import signal
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from fault_proxy import CUT, Action, Delay, Fault, Lines, Reset, Seen, gone_event, status
from namespaces import create_namespace
from placement_cluster import until
from taint_process import define, remove, taint_role

from polyarch.kube.client import Client
from polyarch.kube.patches import MergePatch
from polyarch.kube.resources import LEASES, NAMESPACES, NODES
from polyarch.taints import names
from polyarch.taints.api import ARCHITECTURE_TAINTS

pytestmark = pytest.mark.asyncio(loop_scope="session")

Json = dict[str, Any]
NUMBER = 25
SECONDS = 120.0
LEASE_SECONDS, LEASE_LOST = 15.0, 20.0
TAINT = {"key": "supported-arch", "value": "arm64", "effect": "NoSchedule"}
BEFORE = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}
AFTER = {"key": "team", "value": "a", "effect": "PreferNoSchedule"}


def of_nodes(seen: Seen) -> bool:
    return seen.path.endswith("/api/v1/nodes") and seen.watch


def patches(seen: Seen) -> bool:
    return seen.method == "PATCH" and "/api/v1/nodes/" in seen.path


def every(number: int, change: Callable[[bytes], list[bytes | object]]) -> Lines:
    """The change to every so many lines, over all watches."""
    count = 0

    def changed(line: bytes) -> list[bytes | object]:
        nonlocal count
        count += 1
        return change(line) if count % number == 0 else [line]

    return Lines(changed)


SCENARIOS: dict[str, tuple[Callable[[Seen], bool], Callable[[], Action], int | None]] = {
    "watch: EOF in mid-line": (of_nodes, lambda: every(7, lambda line: [CUT]), None),
    "watch: 410 as an event": (of_nodes, lambda: every(9, lambda line: [line, gone_event()]), None),
    "watch: 410 as a status": (of_nodes, lambda: status(410, "Expired"), 3),
    "watch: every event twice": (of_nodes, lambda: Lines(lambda line: [line, line]), None),
    "409 again and again": (patches, lambda: status(409, "Conflict"), 3 * NUMBER),
    "429 with Retry-After": (patches, lambda: status(429, "TooManyRequests", retry_after=1), NUMBER),
    "500": (patches, lambda: status(500, "InternalError"), NUMBER),
    "503": (patches, lambda: status(503, "ServiceUnavailable"), NUMBER),
    "answers lost": (patches, lambda: Reset(after=True), NUMBER // 2),
    "connections torn": (patches, lambda: Reset(), NUMBER // 2),
}


@pytest_asyncio.fixture(loop_scope="session")
async def home(faults: Any) -> AsyncIterator[str]:
    """The role's namespace; nodes, object and policy are gone afterwards."""
    client, name = faults.client, f"taint-faults-{secrets.token_hex(3)}"
    await create_namespace(client, name)
    await define(client)
    nodes = {"rollout": "immediate", "perMinute": 600, "atRegistration": "none"}
    await client.apply(
        ARCHITECTURE_TAINTS,
        {
            "apiVersion": ARCHITECTURE_TAINTS.api_version,
            "kind": ARCHITECTURE_TAINTS.kind,
            "metadata": {"name": names.SINGLETON},
            "spec": {"nodes": nodes},
        },
    )
    yield name
    faults.api.faults.clear()
    await remove(client)
    for node in (await client.list(NODES)).items:
        if node["metadata"]["name"].startswith("made-"):
            await client.delete(NODES, node["metadata"]["name"])
    await client.delete(NAMESPACES, name)


async def make(client: Client, number: int, *, name: str = "", architecture: str = "arm64") -> str:
    name = name or f"made-{number:03}-{secrets.token_hex(2)}"
    labels = {"kubernetes.io/arch": architecture, "kubernetes.io/os": "linux"}
    metadata = {"name": name, "labels": labels}
    spec = {"taints": [BEFORE, AFTER]}
    await client.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": spec})
    return name


async def made(client: Client) -> dict[str, list[Json]]:
    """Taints by node, without those of Kubernetes itself."""
    found = (await client.list(NODES)).items
    return {
        node["metadata"]["name"]: [
            taint for taint in node["spec"].get("taints", ()) if not taint["key"].startswith("node.kubernetes.io/")
        ]
        for node in found
        if node["metadata"]["name"].startswith("made-")
    }


def all_are(client: Client, number: int, *taints: Json) -> Callable[[], Awaitable[bool]]:
    async def check() -> bool:
        found = await made(client)
        return len(found) == number and all(each == list(taints) for each in found.values())

    return check


@pytest.mark.req("TN-092")
@pytest.mark.parametrize(("matches", "action", "times"), SCENARIOS.values(), ids=SCENARIOS.keys())
async def test_nodes_end_as_if_nothing_had_happened(
    faults: Any,
    home: str,
    tmp_path: Path,
    matches: Callable[[Seen], bool],
    action: Callable[[], Action],
    times: int | None,
) -> None:
    client = faults.client
    for number in range(NUMBER - 5):
        await make(client, number)
    fault = Fault(matches, action(), times)
    faults.api.faults.append(fault)
    async with taint_role(faults.sandbox, client, home, tmp_path, server=faults.api.url):
        for number in range(NUMBER - 5, NUMBER):
            await make(client, number)
        await until(all_are(client, NUMBER, BEFORE, AFTER, TAINT), seconds=SECONDS)
        assert fault.hits > 0, "the fault was never met"
        name = next(iter(await made(client)))
        await client.patch(NODES, name, MergePatch({"spec": {"taints": [AFTER, {**TAINT, "value": "s390x"}, BEFORE]}}))

        async def corrected() -> bool:
            return (await made(client))[name] == [AFTER, TAINT, BEFORE]

        await until(corrected, seconds=SECONDS)


@pytest.mark.req("TN-092")
async def test_an_api_server_that_is_away_for_a_while(faults: Any, home: str, tmp_path: Path) -> None:
    client = faults.client
    async with taint_role(faults.sandbox, client, home, tmp_path, server=faults.api.url):
        for number in range(5):
            await make(client, number)
        async with faults.api.refusing():
            for number in range(5, NUMBER):
                await make(client, number)
            await asyncio.sleep(5)
        await until(all_are(client, NUMBER, BEFORE, AFTER, TAINT), seconds=SECONDS)


@pytest.mark.req("TN-092")
async def test_a_leader_killed_in_the_middle(faults: Any, home: str, tmp_path: Path) -> None:
    """The next one goes on where it ended, and writes no node twice."""
    client = faults.client
    nodes = {"nodes": {"perMinute": 60}}
    await client.patch(ARCHITECTURE_TAINTS, names.SINGLETON, MergePatch({"spec": nodes}))
    for number in range(NUMBER):
        await make(client, number)
    async with (
        taint_role(faults.sandbox, client, home, tmp_path, server=faults.api.url, name="first") as first,
        taint_role(faults.sandbox, client, home, tmp_path, server=faults.api.url, name="second") as second,
    ):

        async def some() -> bool:
            found = await made(client)
            return sum(TAINT in each for each in found.values()) >= 4

        await until(some, seconds=SECONDS)
        lease = await client.get(LEASES, names.LEASE, namespace=home)
        holder = lease["spec"]["holderIdentity"]
        leading = [
            role
            for role, log in ((first, "first.log"), (second, "second.log"))
            if holder in (tmp_path / log).read_text()
        ]
        assert len(leading) == 1
        leading[0].process.kill()
        faults.api.seen.clear()
        left = [name for name, each in (await made(client)).items() if TAINT not in each]
        await until(all_are(client, NUMBER, BEFORE, AFTER, TAINT), seconds=SECONDS)
        written = [each.path.rpartition("/")[2] for each in faults.api.seen if patches(each)]
        assert sorted(written) == sorted(left), "each of those that were left, once"


@pytest.mark.req("TN-092", "KR-030")
async def test_a_leader_whose_write_arrives_after_its_lease_was_lost(faults: Any, home: str, tmp_path: Path) -> None:
    """Process and PATCH stand still until another leads; meanwhile the node was made anew with another architecture."""
    client = faults.client
    async with (
        taint_role(faults.sandbox, client, home, tmp_path, server=faults.api.url) as leader,
        taint_role(faults.sandbox, client, home, tmp_path, server=faults.api.url) as standby,
    ):
        faults.api.seen.clear()
        late = faults.api.inject(patches, Delay(LEASE_LOST), times=1)
        victim = await make(client, 0)

        async def is_held() -> bool:
            return late.hits > 0

        await until(is_held, seconds=SECONDS)
        leader.process.send_signal(signal.SIGSTOP)
        await client.delete(NODES, victim)
        await make(client, 0, name=victim, architecture="amd64")
        others = {await make(client, number) for number in range(1, 6)}

        async def has_followed() -> bool:
            found = await made(client)
            return all(found[name] == [BEFORE, AFTER, TAINT] for name in others)

        await until(has_followed, seconds=SECONDS)
        leader.process.send_signal(signal.SIGCONT)
        await asyncio.sleep(LEASE_LOST - LEASE_SECONDS + 2)
        assert leader.process.returncode is None
        assert standby.process.returncode is None
        assert await leader.ready()
        found = await made(client)
        assert found.pop(victim) == [BEFORE, AFTER], "what was decided for the node before it"
        assert found == {name: [BEFORE, AFTER, TAINT] for name in others}
        written = Counter(each.path.rpartition("/")[2] for each in faults.api.seen if patches(each))
        assert written == Counter([victim, *others])
