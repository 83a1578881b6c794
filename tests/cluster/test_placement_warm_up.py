"""Images of workload templates are read before there are pods of them, by a real controller."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, NamedTuple

import own_roles
import pytest
from audited import Audited
from placement_cluster import PlacementCluster, architectures, decision, is_gated, pod, until
from placement_process import roles

from polyarch.kube.client import Client
from polyarch.kube.errors import NotFound
from polyarch.kube.patches import MergePatch
from polyarch.kube.resources import CRONJOBS, DEPLOYMENTS, MUTATING_WEBHOOKS
from polyarch.operator.components import placement_objects
from polyarch.placement import names
from polyarch.placement.api import POLICIES
from polyarch.sandbox.cluster import Sandbox
from polyarch.sandbox.state import NAMESPACE


class WarmUpCluster(NamedTuple):
    cluster: PlacementCluster
    audited: Audited
    namespace: str

    async def warm(self, wanted: bool) -> None:
        """Switches the warm-up on or off; no webhook ever asks a registry itself."""
        spec = {"inline": {"budget": "0s"}, "warmUp": {"enabled": wanted, "imagesPerMinute": 600}}
        document = {
            "apiVersion": POLICIES.api_version,
            "kind": POLICIES.kind,
            "metadata": {"name": names.SINGLETON},
            "spec": spec,
        }
        await self.cluster.client.apply(POLICIES, document)

    def reads(self) -> set[str]:
        """Kinds of which the controller has listed or watched all objects."""
        user = f"system:serviceaccount:{NAMESPACE}:{names.CONTROLLER}"
        found = set()
        for event in self.cluster.audit():
            at = event.get("objectRef", {})
            if event["user"].get("username") == user and event["verb"] in ("list", "watch") and "name" not in at:
                found.add(at.get("resource", ""))
        return found & {"deployments", "statefulsets", "daemonsets", "cronjobs"}


@pytest.fixture
async def world(
    sandbox: Sandbox, client: Client, sole_controller: None, tmp_path: Path
) -> AsyncIterator[WarmUpCluster]:
    await own_roles.install(client)
    cluster = PlacementCluster(sandbox, client)
    async with AsyncExitStack() as stack:
        audited = Audited(sandbox, f"system:serviceaccount:{NAMESPACE}:{names.CONTROLLER}")
        namespace = await stack.enter_async_context(cluster.namespace())
        world = WarmUpCluster(cluster, audited, namespace)
        await world.warm(False)
        stack.push_async_callback(client.delete, POLICIES, names.SINGLETON)
        running = await roles(stack, sandbox, client, tmp_path)
        registration = placement_objects.webhook_configuration(
            NAMESPACE,
            url=running[own_roles.WEBHOOK].said["admission"],
            ca_bundle=sandbox.ca.read_bytes(),
            review_key=own_roles.review_key(sandbox),
            namespace_selector={"matchLabels": {"kubernetes.io/metadata.name": namespace}},
        )
        await client.create(MUTATING_WEBHOOKS, registration)
        stack.push_async_callback(_unregister, client)
        yield world


async def _unregister(client: Client) -> None:
    try:
        await client.delete(MUTATING_WEBHOOKS, names.WEBHOOK_CONFIGURATION)
    except NotFound:
        return


def workload(image: str) -> dict[str, Any]:
    template = {"metadata": {"labels": {"app": "warm"}}, "spec": pod(image)["spec"]}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "warm"},
        "spec": {"replicas": 0, "selector": {"matchLabels": {"app": "warm"}}, "template": template},
    }


def cron_job(image: str) -> dict[str, Any]:
    spec = pod(image, restartPolicy="Never")["spec"]
    return {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": {"name": "warm"},
        "spec": {"schedule": "0 0 1 1 *", "jobTemplate": {"spec": {"template": {"spec": spec}}}},
    }


@pytest.mark.req("PL-380", "PL-410", "PL-550")
async def test_the_first_pod_of_a_workload_is_placed_at_admission(world):
    """Without gate, request, or a look-up by the webhook; and off means that nothing is read."""
    cluster, namespace = world.cluster, world.namespace
    first, later, cron = (f"quay.io/warm/{name}:1" for name in ("first", "later", "cron"))
    await cluster.seed({first: ["linux/arm64"], later: ["linux/s390x"], cron: ["linux/ppc64le"]})
    await cluster.client.create(DEPLOYMENTS, workload(first), namespace=namespace)
    await cluster.client.create(CRONJOBS, cron_job(cron), namespace=namespace)

    async def gated(image: str) -> bool:
        return is_gated(await cluster.create(pod(image, name="next"), namespace, dry_run=True))

    await until(lambda: gated(first))
    assert world.reads() == set()
    await world.warm(True)
    for image in (first, cron):

        async def inline(image: str = image) -> bool:
            return not await gated(image)

        await until(inline, seconds=30)
    created = await cluster.create(pod(first), namespace)
    assert architectures(created) == ["arm64"]
    assert decision(created)["by"] == "admission"
    change = MergePatch({"spec": {"template": {"spec": pod(later)["spec"]}}})
    await cluster.client.patch(DEPLOYMENTS, "warm", change, namespace=namespace)

    async def changed() -> bool:
        return not await gated(later)

    await until(changed, seconds=30)
    assert world.reads() == {"deployments", "statefulsets", "daemonsets", "cronjobs"}
    assert await world.audited.refused() == [], "PL-550"
