"""What is left where somebody removes the operator or its kinds otherwise than in order."""

import asyncio
import secrets
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import pytest
from aiohttp import ClientSession
from operator_world import OperatorWorld, eventually

from polyarch.kube.errors import ApiError, NotFound
from polyarch.kube.patches import MergePatch
from polyarch.kube.resources import (
    CRDS,
    DEPLOYMENTS,
    LEASES,
    MUTATING_WEBHOOKS,
    NAMESPACES,
    PODS,
    SERVICES,
    VALIDATING_WEBHOOKS,
)
from polyarch.operator.components import placement_objects
from polyarch.operator.settings import ClusterCapabilities, OperatorSettings
from polyarch.placement import names
from polyarch.placement.api import CPPCS, ENOEXECEVENTS, POLICIES, PPCS
from polyarch.sandbox.cluster import Sandbox

pytestmark = pytest.mark.req("PL-540")

HELD = "example.com/held"


@pytest.fixture
async def world(operated_sandbox: Sandbox, tmp_path: Path) -> AsyncIterator[OperatorWorld]:
    async with OperatorWorld.opened(operated_sandbox, tmp_path) as world:
        yield world


async def conversion(world: OperatorWorld) -> str:
    return str((await world.client.get(CRDS, str(CPPCS)))["spec"]["conversion"]["strategy"])


@pytest.mark.req("PL-522")
async def test_all_kinds_deleted_at_once_placement_is_removed(world: OperatorWorld) -> None:
    """``kubectl delete -f deploy/crds``: the other kinds are gone before the ClusterPodPlacementConfig is."""
    try:
        async with world.operator():
            await world.create(CPPCS, names.SINGLETON, {})
            await world.condition("Available", "True")
            for kind in (PPCS, ENOEXECEVENTS, POLICIES, CPPCS):
                await world.client.delete(CRDS, str(kind))
            await eventually(lambda: world.is_gone(CRDS, str(CPPCS)))
            assert await world.left() == []
    finally:
        with suppress(NotFound):
            await world.delete(CPPCS, names.SINGLETON)
        await eventually(lambda: world.is_gone(CRDS, str(CPPCS)))
        await world.install()


@pytest.mark.req("PL-500")
async def test_an_operator_leads_for_the_kinds_that_exist_and_takes_up_others(world: OperatorWorld) -> None:
    """An upgrade whose new definitions are not applied, as Helm leaves it: placement goes on meanwhile, webhook and
    controller included."""
    await world.client.delete(CRDS, str(POLICIES))
    await eventually(lambda: world.is_gone(CRDS, str(POLICIES)))
    try:
        async with world.operator() as operator:
            await world.create(CPPCS, names.SINGLETON, {})
            await world.condition("Available", "True")
            async with (
                ClientSession() as session,
                session.get(f"{(await operator.serves())['health']}/readyz") as ready,
            ):
                assert ready.status == 200
                assert f"{POLICIES} is not served: apply its definition" in await ready.text()
            assert [each for each in operator.entries if each["event"].startswith("kind is not served")]
            await world.install()
            await world.create(POLICIES, names.SINGLETON, {"mode": "audit"})

            async def has_status() -> bool:
                found = await world.client.get(POLICIES, names.SINGLETON)
                return bool(found.get("status", {}).get("conditions"))

            await eventually(has_status)
            await operator.kill()
    finally:
        await world.install()


@pytest.mark.req("PL-500")
async def test_an_operator_before_its_definitions_waits_for_them_as_a_leader(world: OperatorWorld) -> None:
    """As GitOps may apply it: nothing has to be restarted when the definitions come."""
    kinds = (PPCS, ENOEXECEVENTS, POLICIES, CPPCS)
    for kind in kinds:
        await world.client.delete(CRDS, str(kind))
    for kind in kinds:
        await eventually(lambda kind=kind: world.is_gone(CRDS, str(kind)))
    try:
        async with world.operator() as operator:

            async def leads() -> bool:
                lease = await world.client.get(LEASES, names.OPERATOR_LEASE, namespace=world.namespace)
                return bool(lease["spec"].get("holderIdentity"))

            await eventually(leads)
            await world.install()
            await world.create(CPPCS, names.SINGLETON, {})
            await world.condition("Available", "True")
            await operator.kill()
    finally:
        await world.install()


@pytest.mark.req("PL-520")
async def test_a_deleted_namespace_leaves_no_gated_pod_and_no_webhook_that_nobody_answers(world: OperatorWorld) -> None:
    """``kubectl delete namespace polyarch-system``: the operator has seconds, and rights that vanish meanwhile."""
    pod = f"held-{secrets.token_hex(3)}"
    async with world.deployed(replicas=2):
        await world.create(CPPCS, names.SINGLETON, {})
        await world.create(POLICIES, names.SINGLETON, {"onUnresolved": {"action": "hold"}})
        await world.condition("Available", "True")
        document = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": pod},
            "spec": {"containers": [{"name": "main", "image": "registry.invalid/absent:1"}]},
        }
        await world.client.create(PODS, document, namespace="default")
        try:
            assert (await world.client.get(PODS, pod, namespace="default"))["spec"]["schedulingGates"]
            await world.client.delete(NAMESPACES, world.namespace)
            await eventually(lambda: world.is_gone(NAMESPACES, world.namespace), seconds=90)
            assert "schedulingGates" not in (await world.client.get(PODS, pod, namespace="default"))["spec"]
        finally:
            await world.client.delete(PODS, pod, namespace="default")
        assert await world.is_gone(MUTATING_WEBHOOKS, names.WEBHOOK_CONFIGURATION)
        assert await world.is_gone(MUTATING_WEBHOOKS, names.OPERATOR)
        assert await world.is_gone(VALIDATING_WEBHOOKS, names.OPERATOR)
        assert await conversion(world) == "None"
        await world.client.delete(CPPCS, names.SINGLETON)  # nobody has to be asked


@pytest.mark.req("PL-520")
async def test_a_deployment_deleted_in_the_foreground_switches_the_conversion_off(world: OperatorWorld) -> None:
    """Argo CD deletes like this: the Deployment is there until its pods are gone."""
    async with world.deployed(replicas=2):
        await world.client.delete(DEPLOYMENTS, names.OPERATOR, namespace=world.namespace, propagation="Foreground")
        await eventually(lambda: world.is_gone(DEPLOYMENTS, names.OPERATOR, world.namespace))
        assert await conversion(world) == "None"


@pytest.mark.req("PL-031")
async def test_nobody_prolongs_an_uninstall_by_new_configurations(world: OperatorWorld) -> None:
    """A ClusterPodPlacementConfig on its way out waits for PodPlacementConfigs, so no more of them are taken."""
    async with world.deployed():
        await world.create(CPPCS, names.SINGLETON, {}, finalizers=[HELD])
        await world.client.delete(CPPCS, names.SINGLETON)
        await world.condition("Deprovisioning", "True")
        with pytest.raises(ApiError, match="is being deleted"):
            await world.create(PPCS, "late", {"plugins": {}}, namespace="default")


@pytest.mark.req("PL-521")
async def test_an_object_that_others_hold_is_not_asked_for_all_the_time(world: OperatorWorld) -> None:
    """A finalizer of others may stay for days."""
    async with world.operator():
        await world.create(CPPCS, names.SINGLETON, {})
        await world.condition("Available", "True")
        hold = MergePatch({"metadata": {"finalizers": [HELD]}})
        await world.client.patch(SERVICES, names.WEBHOOK, hold, namespace=world.namespace)
        await world.client.delete(CPPCS, names.SINGLETON)
        words = f"Service {world.namespace}/{names.WEBHOOK} is held by finalizer {HELD} of others"

        async def named() -> bool:
            return words in (await world.condition("Deprovisioning", "True"))["message"]

        await eventually(named)
        await asyncio.sleep(20)
        audit = world.audit()
        await asyncio.sleep(15)
        assert (await audit.requests()).count("list pods") <= 10
        free = MergePatch({"metadata": {"finalizers": None}})
        await world.client.patch(SERVICES, names.WEBHOOK, free, namespace=world.namespace)
        await eventually(lambda: world.is_gone(CPPCS, names.SINGLETON))


@pytest.mark.req("PL-630")
async def test_a_monitor_that_nothing_reminds_of_is_removed_as_well(world: OperatorWorld) -> None:
    """Its ClusterPodPlacementConfig lost its finalizers and is gone; the next one does not enable the monitor."""
    objects = placement_objects.monitor_objects(OperatorSettings(namespace=world.namespace), ClusterCapabilities())
    handler = next(each for each in objects if each["kind"] == "Deployment")
    await world.client.apply(DEPLOYMENTS, handler, namespace=world.namespace)
    await world.create(CPPCS, names.SINGLETON, {})
    async with world.operator():
        await world.condition("Available", "True")
        await eventually(lambda: world.is_gone(DEPLOYMENTS, names.ENOEXEC_HANDLER, world.namespace))


@pytest.mark.req("PL-503")
async def test_a_predecessor_that_runs_ends_its_own_uninstall(world: OperatorWorld) -> None:
    """Its controller is in its own namespace and constrains pods; ours would only release them."""
    elsewhere, name = f"operator-{secrets.token_hex(3)}-former", "multiarch-tuning-operator-controller-manager"
    await world.client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": elsewhere}})
    pod = {"containers": [{"name": "manager", "image": "registry.invalid/none:1"}]}
    labels = {"app": "predecessor"}
    template = {"metadata": {"labels": labels}, "spec": pod}
    spec = {"replicas": 1, "selector": {"matchLabels": labels}, "template": template}
    await world.create(DEPLOYMENTS, name, spec, namespace=elsewhere)
    gated = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "waits", "labels": {names.SCHEDULING_GATE_LABEL: names.GATED}},
        "spec": {**pod, "schedulingGates": [{"name": names.GATE}]},
    }
    await world.client.create(PODS, gated, namespace=elsewhere)
    await world.create(CPPCS, names.SINGLETON, {}, finalizers=[names.POD_PLACEMENT_FINALIZER])
    await world.client.delete(CPPCS, names.SINGLETON)

    async def is_gated() -> bool:
        return "schedulingGates" in (await world.client.get(PODS, "waits", namespace=elsewhere))["spec"]

    async with world.operator():
        leaving = await world.condition("Deprovisioning", "True")
        assert f"kubectl scale deployment {name} -n {elsewhere} --replicas=0" in leaving["message"]
        await asyncio.sleep(3)
        assert await is_gated()
        await world.client.patch(DEPLOYMENTS, name, MergePatch({"spec": {"replicas": 0}}), namespace=elsewhere)
        await eventually(lambda: world.is_gone(CPPCS, names.SINGLETON))
        assert not await is_gated()
    await world.client.delete(NAMESPACES, elsewhere)
