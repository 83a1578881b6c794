"""A node with polyarch's pods on it is lost; the scheduler has put them, and pods go on being created."""

import asyncio
import secrets
import time
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from operator_world import OperatorWorld, eventually

from polyarch.kube.patches import MergePatch
from polyarch.kube.resources import EVENTS, NODES, PODS
from polyarch.operator.operands import WEBHOOK_PORT
from polyarch.placement import names
from polyarch.placement.api import CPPCS
from polyarch.sandbox.cluster import Sandbox
from polyarch.sandbox.nodes.plans import LOST_ANNOTATION

IMAGE = "quay.io/mirror/only-arm:1"
SECONDS, LONG = 15.0, 75.0
"""A node that is silent for 50 s is NotReady, and only then its pods leave their Services."""
WEBHOOK_SECONDS = 5.0
"""How long the API server waits for a webhook."""
FOUND_SECONDS = 150.0
"""The node is NotReady, which the webhook's Deployment shows, and pods on nodes are listed 45 s after that."""


@pytest.fixture
async def world(running_sandbox: Sandbox, tmp_path: Path) -> AsyncIterator[OperatorWorld]:
    async with OperatorWorld.opened(running_sandbox, tmp_path) as world:
        yield world


@pytest.mark.req("PL-370", "SB-016")
@pytest.mark.parametrize("seconds", [SECONDS, LONG], ids=["15 s", "75 s"])
async def test_pods_created_while_a_node_is_lost_are_placed_or_found(world: OperatorWorld, seconds: float) -> None:
    """The node of the webhook that the API server talks to. It asks another one after its first request has failed; the
    pod of that request passes, is bound at once, and is named by the sweep."""
    await world.sandbox.registry.seed({IMAGE: ["linux/arm64"]})
    team = await world.team()
    registries = {"configuration": world.sandbox.registries_conf.read_text(), "allowAddresses": ["127.0.0.0/8"]}
    async with world.deployed(others={"registries": registries}):
        await world.create(CPPCS, names.SINGLETON, {})
        await world.condition("Available", "True")
        await world.client.create(PODS, pod("before"), namespace=team)
        connections = await connections_by_node(world)
        assert len(connections) == 3, f"the scheduler put the webhooks on {list(connections)}"
        lost = max(connections, key=connections.__getitem__)
        assert connections[lost], "the API server has asked no webhook"
        await annotate(world, lost, "true")
        try:
            slowest = await create_pods(world, team, seconds)
            assert slowest < WEBHOOK_SECONDS + 2
            assert await is_ready(world, lost) == (seconds < LONG)
            missed = await missed_pods(world, team)
            assert len(missed) <= 3
            await eventually(lambda: all_found(world, team, missed), seconds=FOUND_SECONDS, what=f"{missed} are found")
        finally:
            await annotate(world, lost, None)
        await eventually(lambda: is_ready(world, lost), seconds=60)


def pod(name: str) -> dict[str, Any]:
    container = {"name": "main", "image": IMAGE, "resources": {"requests": {"cpu": "1m"}}}
    return {"metadata": {"name": name}, "spec": {"containers": [container], "terminationGracePeriodSeconds": 0}}


async def connections_by_node(world: OperatorWorld) -> dict[str, int]:
    """Connections to the webhook of each node; the API server keeps one and sends all requests on it."""
    selector = f"{names.CONTROLLER_LABEL}={names.WEBHOOK}"
    pods = (await world.client.list(PODS, namespace=world.namespace, label_selector=selector)).items
    lines = (line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:])
    established = Counter(fields[1] for fields in lines if fields[3] == "01")
    return {each["spec"]["nodeName"]: established[_as_the_kernel_prints(each["status"]["podIP"])] for each in pods}


def _as_the_kernel_prints(pod_address: str) -> str:
    """The process of pod 10.N.a.b listens on 127.N.a.b; the number is little-endian."""
    parts = [127, *map(int, pod_address.split(".")[1:])]
    return "".join(f"{part:02X}" for part in reversed(parts)) + f":{WEBHOOK_PORT:04X}"


async def annotate(world: OperatorWorld, node: str, value: str | None) -> None:
    await world.client.patch(NODES, node, MergePatch({"metadata": {"annotations": {LOST_ANNOTATION: value}}}))


async def is_ready(world: OperatorWorld, node: str) -> bool:
    conditions = (await world.client.get(NODES, node))["status"]["conditions"]
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


async def create_pods(world: OperatorWorld, team: str, seconds: float) -> float:
    """Two pods a second; the seconds of the slowest request."""
    slowest, began = 0.0, time.monotonic()
    while time.monotonic() - began < seconds:
        asked = time.monotonic()
        await world.client.create(PODS, pod(f"pod-{secrets.token_hex(3)}"), namespace=team)
        slowest = max(slowest, time.monotonic() - asked)
        await asyncio.sleep(0.5)
    return slowest


async def missed_pods(world: OperatorWorld, team: str) -> set[str]:
    """Pods that nothing keeps from nodes which cannot run their image."""
    pods = (await world.client.list(PODS, namespace=team)).items
    return {
        each["metadata"]["name"]
        for each in pods
        if not each["spec"].get("schedulingGates")
        and "arm64" not in str(each["spec"].get("affinity", {}).get("nodeAffinity", {}))
        and not each["spec"].get("nodeName", "").startswith("arm64")
    }


async def all_found(world: OperatorWorld, team: str, missed: set[str]) -> bool:
    events = (await world.client.list(EVENTS, namespace=team)).items
    return missed <= {each["regarding"]["name"] for each in events if each["reason"] == "PolyarchUnplacedPod"}
