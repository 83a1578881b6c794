"""Templates of DaemonSets in a cluster with a real DaemonSet controller and tainted nodes."""

import asyncio
import secrets
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from namespaces import create_namespace
from placement_cluster import until
from taint_process import KEY, configured, taint_role, tolerated, warnings

from polyarch.kube.client import Client
from polyarch.kube.patches import JsonPatch, MergePatch, add, remove
from polyarch.kube.resources import DAEMONSETS, NAMESPACES, NODES, PODS
from polyarch.sandbox.cluster import Sandbox
from polyarch.sandbox.files import file_lock
from polyarch.taints import names
from polyarch.taints.api import ARCHITECTURE_TAINTS

Json = dict[str, Any]
EVERYWHERE = ["linux/amd64", "linux/ppc64le"]
WHATEVER_JOINED = ["linux/amd64", "linux/arm64", "linux/ppc64le", "linux/s390x"]
"""Other tests let nodes join the same sandbox."""


class Place(NamedTuple):
    """A namespace of the test's own in the cluster whose nodes it may taint."""

    sandbox: Sandbox
    client: Client
    namespace: str

    async def create(self, name: str, image: str, **spec: Any) -> None:
        """A DaemonSet."""
        labels = {"app": name}
        pod_spec = {
            "containers": [{"name": "agent", "image": image, "imagePullPolicy": "IfNotPresent"}],
            "terminationGracePeriodSeconds": 0,
            **spec.pop("pod", {}),
        }
        document = {
            "apiVersion": "apps/v1",
            "kind": "DaemonSet",
            "metadata": {"name": name},
            "spec": {
                "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": pod_spec},
                **spec,
            },
        }
        await self.client.create(DAEMONSETS, document, namespace=self.namespace)

    async def get(self, name: str) -> dict[str, Any]:
        return await self.client.get(DAEMONSETS, name, namespace=self.namespace)

    async def tolerated(self, name: str) -> list[str]:
        return tolerated((await self.get(name))["spec"]["template"])

    async def nodes_of(self, name: str) -> set[str]:
        """Architectures of the nodes that have a running pod of it."""
        pods = (await self.client.list(PODS, namespace=self.namespace, label_selector=f"app={name}")).items
        found = {pod["spec"].get("nodeName") for pod in pods if pod.get("status", {}).get("phase") == "Running"}
        nodes = (await self.client.list(NODES)).items
        return {each["metadata"]["labels"]["kubernetes.io/arch"] for each in nodes if each["metadata"]["name"] in found}


@pytest.fixture
async def place(growing_sandbox: Sandbox) -> AsyncIterator[Place]:
    async with file_lock(growing_sandbox.folder.root / ".sole-taints.lock"), growing_sandbox.client() as client:
        name = f"daemons-{secrets.token_hex(4)}"
        await create_namespace(client, name)
        yield Place(growing_sandbox, client, name)
        await client.delete(NAMESPACES, name)


@pytest.fixture
async def tainted(place: Place) -> AsyncIterator[str]:
    """The architecture whose nodes carry their taint already."""
    nodes = [each["metadata"]["name"] for each in (await place.client.list(NODES)).items]
    foreign = [name for name in nodes if "ppc64le" in name]
    taint = {"key": KEY, "value": "ppc64le", "effect": "NoSchedule"}
    before = {}
    for name in foreign:
        before[name] = (await place.client.get(NODES, name))["spec"].get("taints") or []
        await place.client.patch(NODES, name, JsonPatch((add("/spec/taints", [*before[name], taint]),)))
    assert foreign
    yield "ppc64le"
    for name, taints in before.items():
        await place.client.patch(
            NODES, name, JsonPatch((add("/spec/taints", taints) if taints else remove("/spec/taints"),))
        )


def is_replaced(daemon_set: dict[str, Any]) -> bool:
    status = daemon_set.get("status", {})
    return status.get("observedGeneration") == daemon_set["metadata"]["generation"] and status.get(
        "updatedNumberScheduled", 0
    ) == status.get("desiredNumberScheduled", 0)


def is_rolled_out(daemon_set: dict[str, Any]) -> bool:
    return is_replaced(daemon_set) and not daemon_set["status"].get("numberUnavailable")


@pytest.mark.req("TN-050", "TN-094")
async def test_a_daemon_set_gets_pods_on_the_tainted_nodes_that_its_image_runs_on(
    place: Place, tainted: str, tmp_path: Path
) -> None:
    """Its controller creates none there before the template tolerates the taint, whatever pods get."""
    await place.sandbox.registry.seed(
        {"quay.io/taints-sets/both:1": EVERYWHERE, "quay.io/taints-sets/one:1": ["linux/amd64"]}
    )
    await place.create("both", "quay.io/taints-sets/both:1")
    await place.create("one", "quay.io/taints-sets/one:1")

    async def on_the_others() -> bool:
        return await place.nodes_of("both") == {"amd64"} and await place.nodes_of("one") == {"amd64"}

    await until(on_the_others, seconds=90)
    role = taint_role(place.sandbox, place.client, place.namespace, tmp_path)
    async with configured(place.client, place.namespace), role:

        async def everywhere() -> bool:
            return await place.nodes_of("both") == {"amd64", tainted}

        await until(everywhere, seconds=90)
        found = await place.get("both")
        added = [{"key": KEY, "operator": "Equal", "value": tainted, "effect": "NoSchedule"}]
        assert found["spec"]["template"]["spec"]["tolerations"] == added
        assert found["metadata"]["generation"] == 2
        record = found["metadata"]["annotations"][names.ADDED_TOLERATIONS_ANNOTATION]
        assert f'"value":"{tainted}"' in record
        one = await place.get("one")
        assert (one["metadata"]["generation"], await place.nodes_of("one")) == (1, {"amd64"})


@pytest.mark.req("TN-051")
async def test_one_rollout_at_a_time_the_network_first(place: Place, tmp_path: Path) -> None:
    await place.sandbox.registry.seed({"quay.io/taints-sets/rolling:1": WHATEVER_JOINED})
    order = ("a-cni", "b", "c")
    for name in reversed(order):
        await place.create(name, "quay.io/taints-sets/rolling:1")

    async def running() -> bool:
        return all([is_rolled_out(await place.get(name)) for name in order])

    await until(running, seconds=120)
    began: list[str] = []
    role = taint_role(place.sandbox, place.client, place.namespace, tmp_path)
    async with configured(place.client, place.namespace), role:

        async def done() -> bool:
            # From the last to the first: one that is read as changed had nothing before it under way any more.
            found = {name: await place.get(name) for name in reversed(order)}
            changed = [name for name in order if found[name]["metadata"]["generation"] > 1]
            began.extend(name for name in changed if name not in began)
            # All pods are new ones: that stays so, while a pod may be unavailable for a moment on a busy machine.
            under_way = [name for name in changed if not is_replaced(found[name])]
            assert len(under_way) <= 1, under_way
            return len(changed) == len(order) and not under_way

        await until(done, seconds=180)
    assert tuple(began) == order


@pytest.mark.req("TN-051")
async def test_a_slow_rollout_is_told_and_holds_the_next_until_it_is_confirmed(place: Place, tmp_path: Path) -> None:
    """Its second image is on no node, so its new pods never become available."""
    await place.sandbox.registry.seed({"quay.io/taints-sets/slow:1": WHATEVER_JOINED})
    never = {"name": "never", "image": "quay.io/taints-sets/on-no-node:1", "imagePullPolicy": "Never"}
    agent = {"name": "agent", "image": "quay.io/taints-sets/slow:1", "imagePullPolicy": "IfNotPresent"}
    await place.create("a", "quay.io/taints-sets/slow:1", pod={"containers": [agent, never]})
    await place.create("b", "quay.io/taints-sets/slow:1")

    async def told() -> bool:
        return [event["reason"] for event in await warnings(place.client, place.namespace, "a")] == [
            "DaemonSetRolloutSlow"
        ]

    role = taint_role(place.sandbox, place.client, place.namespace, tmp_path)
    async with configured(place.client, place.namespace, daemonSets={"rolloutTimeout": "10s"}), role:
        await until(told, seconds=90)
        assert "ppc64le" in await place.tolerated("a")
        await asyncio.sleep(3)
        assert await place.tolerated("b") == []
        generation = str((await place.get("a"))["metadata"]["generation"])
        confirmed = MergePatch({"metadata": {"annotations": {names.ROLLOUT_CONFIRMED_ANNOTATION: generation}}})
        await place.client.patch(DAEMONSETS, "a", confirmed, namespace=place.namespace)

        async def went_on() -> bool:
            return "ppc64le" in await place.tolerated("b")

        await until(went_on, seconds=60)


@pytest.mark.req("TN-052")
async def test_an_unknown_image_changes_nothing_and_is_told(place: Place, tmp_path: Path) -> None:
    await place.create("lost", "quay.io/taints-sets/nobody-pushed-this:1")

    async def told() -> bool:
        events = await warnings(place.client, place.namespace, "lost")
        return [event["reason"] for event in events] == ["ArchitectureUnknown"]

    role = taint_role(place.sandbox, place.client, place.namespace, tmp_path)
    async with configured(place.client, place.namespace), role:
        await until(told, seconds=90)
        assert (await place.get("lost"))["metadata"]["generation"] == 1


@pytest.mark.req("TN-053")
@pytest.mark.timeout(600)
@pytest.mark.parametrize("own", [[], [{"key": "team", "operator": "Exists"}]], ids=["without tolerations", "with some"])
async def test_a_tool_that_applies_its_manifest_again_and_again_is_answered_ever_more_rarely(
    place: Place, tmp_path: Path, own: list[Json]
) -> None:
    """The webhook of templates is not called here. A manifest takes tolerations away only if it has some of its own."""
    image = "quay.io/taints-sets/synced:1"
    await place.sandbox.registry.seed({image: WHATEVER_JOINED})
    await place.create("synced", image)
    found = await place.get("synced")
    pod = {"containers": [{"name": "agent", "image": image}], **({"tolerations": own} if own else {})}
    template = {"metadata": found["spec"]["template"]["metadata"], "spec": pod}
    manifest = {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": "synced", "namespace": place.namespace},
        "spec": {"selector": found["spec"]["selector"], "template": template},
    }
    added, before = 0, False
    role = taint_role(place.sandbox, place.client, place.namespace, tmp_path)
    async with configured(place.client, place.namespace), role:
        end = asyncio.get_running_loop().time() + 210
        while asyncio.get_running_loop().time() < end:
            now = "ppc64le" in await place.tolerated("synced")
            added, before = added + (now and not before), now
            if now:
                await place.client.apply(
                    DAEMONSETS, manifest, namespace=place.namespace, field_manager="argocd-controller"
                )
                before = "ppc64le" in await place.tolerated("synced")
            await asyncio.sleep(0.5)
        reasons = [event["reason"] for event in await warnings(place.client, place.namespace, "synced")]
        conditions = (await place.client.get(ARCHITECTURE_TAINTS, names.SINGLETON))["status"]["conditions"]
    [degraded] = [each["reason"] for each in conditions if each["type"] == "Degraded"]
    if own:
        assert (added, reasons, degraded) == (3, ["TolerationsTakenBack"], "TolerationsTakenBack")
    else:
        assert (added, reasons) == (1, [])
