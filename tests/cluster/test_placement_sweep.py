"""Pods that were missed while the API server could not call the webhook, on a real one."""

import asyncio
import secrets
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import own_roles
import pytest
from audited import Audited
from placement_cluster import PlacementCluster, architectures, is_gated, labels, pod, until
from placement_process import Running, roles

from polyarch.kube.client import Client
from polyarch.kube.errors import NotFound
from polyarch.kube.patches import MergePatch
from polyarch.kube.resources import MUTATING_WEBHOOKS, NAMESPACES, NODES, POD_DISRUPTION_BUDGETS, PODS, REPLICASETS
from polyarch.operator.components import placement_objects
from polyarch.placement import names
from polyarch.placement.api import POLICIES
from polyarch.sandbox.cluster import Sandbox
from polyarch.sandbox.state import NAMESPACE

CASE = "sweep-test"
IMAGE = "quay.io/sweep/arm:1"
WAITING: dict[str, Any] = {"schedulingGates": [{"name": "example.com/wait"}]}
"""A gate of somebody else: the pod stays Pending."""


class SweepCluster(NamedTuple):
    cluster: PlacementCluster
    controller: Running
    audited: Audited
    registration: dict[str, Any]
    reports: str
    evicts: str
    """Namespaces by what the policy says of them."""

    async def away(self) -> None:
        """The webhook is not registered any more, and the API server has learned of it."""
        await self.cluster.client.delete(MUTATING_WEBHOOKS, names.WEBHOOK_CONFIGURATION)
        await until(lambda: self._is_asked(False))

    async def back(self) -> None:
        await self.cluster.client.create(MUTATING_WEBHOOKS, self.registration)
        await until(lambda: self._is_asked(True))

    async def _is_asked(self, wanted: bool) -> bool:
        seen = await self.cluster.create(pod(IMAGE, name="probe"), self.reports, dry_run=True)
        return (names.SCHEDULING_GATE_LABEL in labels(seen)) is wanted

    async def reason(self, namespace: str, name: str, wanted: str) -> bool:
        return wanted in [each["reason"] for each in await self.cluster.events(namespace, name)]

    async def sample(self, name: str, **wanted: str) -> float | None:
        async with aiohttp.ClientSession() as session, session.get(f"{self.controller.said['metrics']}/metrics") as got:
            body = await got.text()
        inner = ",".join(f'{key}="{value}"' for key, value in wanted.items())
        at = f"{name}{{{inner}}} " if inner else f"{name} "
        return next((float(line.split()[-1]) for line in body.splitlines() if line.startswith(at)), None)


@pytest.fixture
async def world(sandbox: Sandbox, client: Client, sole_controller: None, tmp_path: Path) -> AsyncIterator[SweepCluster]:
    """Webhook and controller with the rights that the operator grants for this policy, and a webhook that comes and
    goes; nobody else's pods are in it."""
    token = secrets.token_hex(4)
    await own_roles.install(client)
    cluster = PlacementCluster(sandbox, client)
    await cluster.seed({IMAGE: ["linux/arm64"]})
    overrides = [
        {
            "name": action,
            "namespaceSelector": {"matchLabels": {CASE: f"{action}-{token}"}},
            "sweep": {"action": action},
        }
        for action in ("report", "evict")
    ]
    sweep = {"action": "off", "scope": "all", "interval": "1h", "minAge": "30s"}
    policy = {
        "apiVersion": POLICIES.api_version,
        "kind": POLICIES.kind,
        "metadata": {"name": names.SINGLETON},
        "spec": {"sweep": sweep, "overrides": overrides, "inline": {"budget": "0s"}},
    }
    async with AsyncExitStack() as stack:
        await client.create(POLICIES, policy)
        stack.push_async_callback(client.delete, POLICIES, names.SINGLETON)
        spaces = {action: await stack.enter_async_context(cluster.namespace()) for action in ("report", "evict")}
        for action, name in spaces.items():
            label = MergePatch({"metadata": {"labels": {CASE: f"{action}-{token}"}}})
            await client.patch(NAMESPACES, name, label)
        audited = Audited(sandbox, f"system:serviceaccount:{NAMESPACE}:{names.CONTROLLER}")
        running = await roles(stack, sandbox, client, tmp_path)
        registration = placement_objects.webhook_configuration(
            NAMESPACE,
            url=running[own_roles.WEBHOOK].said["admission"],
            ca_bundle=sandbox.ca.read_bytes(),
            review_key=own_roles.review_key(sandbox),
            namespace_selector={"matchExpressions": [{"key": CASE, "operator": "Exists"}]},
        )
        world = SweepCluster(
            cluster,
            running[own_roles.CONTROLLER],
            audited,
            registration,
            reports=spaces["report"],
            evicts=spaces["evict"],
        )
        await world.back()
        stack.push_async_callback(_unregister, client)
        yield world


async def _unregister(client: Client) -> None:
    try:
        await client.delete(MUTATING_WEBHOOKS, names.WEBHOOK_CONFIGURATION)
    except NotFound:
        return


@pytest.mark.req("PL-370", "PL-550", "PL-811")
async def test_all_pods_created_while_the_webhook_was_away_are_reported_within_a_minute(world):
    """And nothing is changed about them."""
    cluster, namespace = world.cluster, world.reports
    await asyncio.sleep(12)  # the first look of a new leader is over
    await world.away()
    missed = [f"missed-{number}" for number in range(40)]
    created = {name: await cluster.create(pod(IMAGE, name=name, **WAITING), namespace) for name in missed}
    optout = pod(IMAGE, name="opted-out", **WAITING)
    optout["metadata"]["annotations"] = {names.SKIP_ANNOTATION: "true"}
    await cluster.create(optout, namespace)
    assert all(names.SCHEDULING_GATE_LABEL not in labels(each) for each in created.values())
    await world.back()
    placed = await cluster.create(pod(IMAGE, name="placed", **WAITING), namespace)
    assert is_gated(placed)

    async def reported() -> bool:
        return all([await world.reason(namespace, name, "PolyarchUnplacedPod") for name in missed])

    await until(reported, seconds=60, pause=2)
    for other in ("placed", "opted-out"):
        assert not await world.reason(namespace, other, "PolyarchUnplacedPod")
    assert await world.sample("polyarch_placement_unplaced_pods", namespace=namespace) == 40
    for name in missed:
        assert (await cluster.get(namespace, name))["metadata"]["resourceVersion"] == created[name]["metadata"][
            "resourceVersion"
        ]
    assert await world.audited.refused() == [], "PL-550"


@pytest.mark.req("PL-371", "PL-550")
async def test_pods_that_were_missed_are_evicted_and_their_owners_create_placed_ones(world):
    """One waits for a node, one is on the wrong node, and one is protected by a PodDisruptionBudget."""
    cluster, namespace = world.cluster, world.evicts
    nodes = (await cluster.client.list(NODES)).items
    wrong = next(node["metadata"]["name"] for node in nodes if node["metadata"]["labels"][names.ARCH_KEY] == "amd64")
    there = {"key": "kubernetes.io/hostname", "operator": "In", "values": [wrong]}
    prefers = {
        "affinity": {
            "nodeAffinity": {
                "preferredDuringSchedulingIgnoredDuringExecution": [
                    {"weight": 100, "preference": {"matchExpressions": [there]}}
                ]
            }
        }
    }
    moved = "quay.io/sweep/moved:1"
    await cluster.seed({moved: ["linux/amd64", "linux/arm64"]})
    await world.away()
    await replica_set(cluster, namespace, "waiting", IMAGE, WAITING)
    await replica_set(cluster, namespace, "wrong", moved, prefers)
    await replica_set(cluster, namespace, "protected", moved, prefers)
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "protected"},
        "spec": {"maxUnavailable": 0, "selector": {"matchLabels": {"app": "protected"}}},
    }
    await cluster.client.create(POD_DISRUPTION_BUDGETS, budget, namespace=namespace)
    before = {app: await only_pod(cluster, namespace, app) for app in ("waiting", "wrong", "protected")}
    for app in ("wrong", "protected"):
        running = await cluster.running(namespace, before[app]["metadata"]["name"])
        assert running["spec"]["nodeName"] == wrong
    await cluster.seed({moved: ["linux/arm64"]})  # a node that has pulled the former one runs it
    await world.back()

    async def replaced(app: str) -> bool:
        own = await pods_of(cluster, namespace, app)
        return len(own) == 1 and own[0]["metadata"]["uid"] != before[app]["metadata"]["uid"] and not is_gated(own[0])

    for app in ("waiting", "wrong"):
        await until(lambda app=app: replaced(app), seconds=60)
        assert architectures(await only_pod(cluster, namespace, app)) == ["arm64"]
        gone = before[app]["metadata"]["name"]
        await until(lambda gone=gone: world.reason(namespace, gone, "PolyarchPodEvicted"))

    refused = before["protected"]["metadata"]["name"]
    await until(lambda: _was_refused(world, refused), seconds=30)
    assert (await only_pod(cluster, namespace, "protected"))["metadata"]["uid"] == before["protected"]["metadata"][
        "uid"
    ]
    await cluster.client.delete(POD_DISRUPTION_BUDGETS, "protected", namespace=namespace)
    await until(lambda: replaced("protected"), seconds=90)
    assert architectures(await only_pod(cluster, namespace, "protected")) == ["arm64"]
    assert await world.sample("polyarch_placement_evictions_total") == 3
    assert await world.audited.refused() == [], "PL-550"
    parts = placement_objects.OptionalFeatures(namespace=NAMESPACE, evicts=True, sweeps=True)
    evicting = [
        each
        for each in placement_objects.role_permissions(parts)[names.CONTROLLER].cluster
        if "pods/eviction" in each.resources
    ]
    assert await world.audited.never_used(evicting) == [], "PL-550"


async def _was_refused(world: SweepCluster, name: str) -> bool:
    return any(
        event["verb"] == "create"
        and event.get("objectRef", {}).get("subresource") == "eviction"
        and event["objectRef"].get("name") == name
        and event.get("responseStatus", {}).get("code") == 429
        for event in world.cluster.audit()
    )


async def replica_set(cluster: PlacementCluster, namespace: str, app: str, image: str, spec: dict[str, Any]) -> None:
    template = pod(image, **spec)
    document = {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {"name": app},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": {"app": app}},
            "template": {"metadata": {"labels": {"app": app}}, "spec": template["spec"]},
        },
    }
    await cluster.client.create(REPLICASETS, document, namespace=namespace)

    async def there() -> bool:
        return len(await pods_of(cluster, namespace, app)) == 1

    await until(there)


async def pods_of(cluster: PlacementCluster, namespace: str, app: str) -> list[dict[str, Any]]:
    found = (await cluster.client.list(PODS, namespace=namespace, label_selector=f"app={app}")).items
    return [each for each in found if "deletionTimestamp" not in each["metadata"]]


async def only_pod(cluster: PlacementCluster, namespace: str, app: str) -> dict[str, Any]:
    (found,) = await pods_of(cluster, namespace, app)
    return found
