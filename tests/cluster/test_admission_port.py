"""The webhook's port is open to every pod: what strangers get from a real webhook, and what a real API server gets."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any, NamedTuple

import admission_port
import pytest
from placement_cluster import PlacementCluster, architectures, decision, is_gated, pod, until
from test_placement_gated import PRIVATE, placed_host

from polyarch.kube.resources import MUTATING_WEBHOOKS, PODS, SECRETS
from polyarch.kube.review_tokens import path_with_token, path_without_token
from polyarch.names import CERTIFICATES_SECRET, DEFAULT_NAMESPACE
from polyarch.objects import Secret
from polyarch.placement import names
from polyarch.placement.decision import parse_keys
from polyarch.sandbox.cluster import Sandbox
from polyarch.sandbox.network import loopback_of

ATTACKERS, BODY, ROOM = 1000, 8 * 2**20 - 4096, 32.0
UNFINISHED = 1536 * 2**10
"""Bytes of a body that is not refused for its length."""


class Port(NamedTuple):
    """The port of one webhook."""

    host: str
    pid: int

    async def ask(self, path: str, body: bytes) -> dict[str, Any]:
        return await admission_port.post_review(self.host, 9443, path, body)


@pytest.fixture
async def cluster(placed_sandbox: Sandbox) -> AsyncIterator[PlacementCluster]:
    async with placed_sandbox.client() as client:
        cluster = PlacementCluster(placed_sandbox, client)
        await cluster.configure()
        yield cluster


@pytest.fixture
async def ports(cluster: PlacementCluster) -> list[Port]:
    """Of all webhooks, once the API server asks them with a token."""
    await until(lambda: registered(cluster), seconds=60)
    pids = {each.pod: each.pid for each in cluster.sandbox.containers()}
    pods = (await cluster.client.list(PODS, namespace=DEFAULT_NAMESPACE)).items
    return [
        Port(loopback_of(each["status"]["podIP"]), pids[f"{DEFAULT_NAMESPACE}/{each['metadata']['name']}"])
        for each in pods
        if each["metadata"]["name"].startswith(f"{names.WEBHOOK}-") and each["status"].get("podIP")
    ]


async def registered(cluster: PlacementCluster) -> str:
    """The path with its token; empty without one."""
    found = await cluster.client.get(MUTATING_WEBHOOKS, names.WEBHOOK_CONFIGURATION)
    path = found["webhooks"][0]["clientConfig"]["service"]["path"]
    return path if path_without_token(path) == names.POD_WEBHOOK_PATH != path else ""


@pytest.mark.req("PL-870", "PL-871")
async def test_a_stranger_who_posts_a_review_gets_nothing_that_a_pull_secret_opens(cluster, ports):
    """No read of the Secret, no request to the registry, no architecture, no signature; in one's own cluster's API
    server the same pod is placed."""
    image = "registry.example.com/private/port:1"
    await cluster.seed({image: PRIVATE})
    async with cluster.namespace() as namespace:
        host = f"{placed_host(cluster)}/registry.example.com/private"
        await cluster.pull_secret(namespace, "pull", host, username="alice", password="wonderland")
        body = admission_port.review(pod(image, secrets=["pull"]), namespace)
        token = (await registered(cluster)).rpartition("/")[2]
        strangers = (
            names.POD_WEBHOOK_PATH,
            f"{names.POD_WEBHOOK_PATH}/{'0' * 40}",
            f"{names.POD_WEBHOOK_PATH}/{token[:-1]}",
            f"{names.POD_WEBHOOK_PATH}/{token}0",
            f"{names.POD_WEBHOOK_PATH}/?{token}",
        )

        async def answers() -> list[dict[str, Any]]:
            return [await ports[0].ask(path, body) for path in strangers]

        for response in await answers():
            assert response["allowed"]
            assert "arm64" not in json.dumps(response)
            assert names.DECISION_ANNOTATION.replace("/", "~1") not in json.dumps(response)
            assert {"op": "add", "path": "/spec/schedulingGates", "value": [{"name": names.GATE}]} in response["patch"]
        assert await cluster.requests(namespace) == []

        async def placed() -> bool:
            created = await cluster.create(pod(image, name="real", secrets=["pull"]), namespace, dry_run=True)
            return architectures(created) == ["arm64"] and bool(decision(created)["sig"])

        await until(placed)
        assert "get secrets pull" in await cluster.requests(namespace)
        for response in await answers():  # nor what is in memory by now
            assert "arm64" not in json.dumps(response)


@pytest.mark.req("PL-870")
async def test_the_token_that_the_operator_registers_is_made_of_the_key_in_its_secret(cluster, ports):
    secret = await cluster.client.get(SECRETS, CERTIFICATES_SECRET, namespace=DEFAULT_NAMESPACE, type=Secret)
    keys = parse_keys((secret.data or {})["record.key"])
    assert await registered(cluster) in [path_with_token(names.POD_WEBHOOK_PATH, key) for key in keys]


@pytest.mark.req("PL-872")
@pytest.mark.parametrize("size", [BODY, UNFINISHED], ids=["bodies of 8 MiB", "bodies that are not refused"])
async def test_a_thousand_unfinished_posts_cost_little_and_keep_no_pod_waiting(cluster, ports, size):
    image = f"quay.io/port/flood-{size}:1"
    await cluster.seed({image: ["linux/arm64"]})
    async with cluster.namespace() as namespace:

        async def inline(name: str = "warm") -> bool:
            return not is_gated(await cluster.create(pod(image, name=name), namespace, dry_run=True))

        await until(inline)
        sent = admission_port.unfinished(names.POD_WEBHOOK_PATH, size)
        before = {port: admission_port.memory(port.pid) for port in ports}

        async def admissions() -> list[bool]:
            placed = []
            for number in range(20):
                placed.append(await inline(f"during-{number}"))
                await asyncio.sleep(0.1)
            return placed

        for port in ports:
            attack = lambda port=port: admission_port.connect(port.host, 9443, sent, size)  # noqa: E731
            assert all(await admission_port.while_attacked(ATTACKERS, attack, admissions))
        more = {port: admission_port.memory(port.pid) - before[port] for port in ports}
        assert max(more.values()) <= ROOM, more
