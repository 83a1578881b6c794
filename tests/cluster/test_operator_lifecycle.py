"""The operator deploys placement, keeps it as it should be, and removes it."""

import asyncio
import secrets
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from operator_world import OPERANDS, Operator, OperatorWorld, eventually

from polyarch.kube.patches import JsonPatch, MergePatch, remove, replace
from polyarch.kube.resources import (
    CLUSTER_ROLES,
    DEPLOYMENTS,
    LEASES,
    MUTATING_WEBHOOKS,
    NAMESPACES,
    POD_DISRUPTION_BUDGETS,
    PODS,
    ROLES,
    SERVICE_ACCOUNTS,
    SERVICES,
    Resource,
)
from polyarch.operator.settings import DEFAULT_IMAGE
from polyarch.placement import names
from polyarch.placement.api import CPPCS, POLICIES, PPCS
from polyarch.platforms import IMAGE_ARCHITECTURES
from polyarch.sandbox.cluster import Sandbox

pytestmark = pytest.mark.req("PL-502", "PL-504")

HEALED_SECONDS = 5.0
GATED = {names.SCHEDULING_GATE_LABEL: names.GATED}


@pytest.fixture
async def world(operated_sandbox: Sandbox, tmp_path: Path) -> AsyncIterator[OperatorWorld]:
    async with OperatorWorld.opened(operated_sandbox, tmp_path) as world:
        yield world


@asynccontextmanager
async def available(world: OperatorWorld) -> AsyncIterator[Operator]:
    """The operator has deployed placement. It is killed at the end, and the world cleared by force."""
    async with world.operator() as operator:
        await world.create(CPPCS, names.SINGLETON, {})
        await world.condition("Available", "True")
        yield operator
        await operator.kill()


async def deleted(world: OperatorWorld, *, propagation: str = "Background", seconds: float = 60.0) -> float:
    """Seconds until the ClusterPodPlacementConfig is gone, with all that belonged to it."""
    began = time.monotonic()
    await world.client.delete(CPPCS, names.SINGLETON, propagation=propagation)  # type: ignore[arg-type]  # by parameter
    await eventually(lambda: world.is_gone(CPPCS, names.SINGLETON), seconds=seconds)
    took = time.monotonic() - began
    assert await eventually(lambda: nothing_left(world), seconds=10)
    return took


async def nothing_left(world: OperatorWorld) -> bool:
    return not await world.left()


async def gate(world: OperatorWorld, count: int) -> str:
    """Pods that carry our gate, with images that nobody can resolve; their namespace."""
    namespace = await world.team()
    document = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"labels": GATED},
        "spec": {
            "automountServiceAccountToken": False,
            "schedulingGates": [{"name": names.GATE}],
            "containers": [{"name": "c", "image": "registry.invalid/none:1"}],
        },
    }

    async def create(number: int) -> None:
        metadata = {"name": f"gated-{number}", "labels": GATED}
        await world.client.create(PODS, {**document, "metadata": metadata}, namespace=namespace)

    for start in range(0, count, 20):
        await asyncio.gather(*(create(number) for number in range(start, min(start + 20, count))))
    return namespace


async def gates(world: OperatorWorld, namespace: str) -> list[str]:
    pods = (await world.client.list(PODS, namespace=namespace)).items
    return [each["metadata"]["name"] for each in pods if each["spec"].get("schedulingGates")]


@pytest.mark.req("PL-020", "PL-022", "PL-500", "PL-520", "PL-550")
async def test_created_it_is_available_and_deleted_nothing_is_left(world: OperatorWorld) -> None:
    """PL-020, PL-022, PL-520, with exactly the rights of PL-550."""
    audited = world.audit()
    async with world.operator() as operator:
        await world.create(CPPCS, names.SINGLETON, {})
        await eventually(lambda: all_ready(world))
        assert (await world.condition("Degraded", "False"))["reason"] == "NotDegraded"
        assert names.POD_PLACEMENT_FINALIZER in (await world.configuration())["metadata"]["finalizers"]
        took = await deleted(world)
        assert took < 60
        await operator.kill()
    assert await audited.refused() == []


@pytest.mark.req("IN-001")
async def test_another_image_of_the_operator_is_that_of_every_role(world: OperatorWorld) -> None:
    """As by ``kubectl set image deploy/polyarch-operator`` or kustomize's ``images``: nothing else names the image."""
    other = f"{DEFAULT_IMAGE}-next"
    await world.sandbox.registry.seed({other: [f"linux/{each}" for each in IMAGE_ARCHITECTURES]})
    async with world.deployed():
        await world.create(CPPCS, names.SINGLETON, {})
        await world.condition("Available", "True")
        change = JsonPatch((replace("/spec/template/spec/containers/0/image", other),))
        await world.client.patch(DEPLOYMENTS, names.OPERATOR, change, namespace=world.namespace)

        async def images() -> bool:
            found = (await world.client.list(DEPLOYMENTS, namespace=world.namespace)).items
            pods = {each["metadata"]["name"]: each["spec"]["template"]["spec"] for each in found}
            return {name: pods[name]["containers"][0]["image"] for name in pods} == dict.fromkeys(pods, other)

        await eventually(images)
        await deleted(world)


async def all_ready(world: OperatorWorld) -> bool:
    return (await world.condition("Available", "True"))["reason"] == "AllComponentsReady"


@pytest.mark.req("PL-501")
async def test_what_is_deleted_or_edited_is_put_right(world: OperatorWorld) -> None:
    """Every kind of operand, within 5 s."""
    edits: tuple[tuple[Resource, str, Any], ...] = (
        (DEPLOYMENTS, names.WEBHOOK, {"spec": {"replicas": 1}}),
        (SERVICES, names.WEBHOOK, {"spec": {"ports": [{"name": "metrics", "port": 8443, "targetPort": 1}]}}),
        (CLUSTER_ROLES, names.CONTROLLER, {"rules": []}),
        (ROLES, names.CONTROLLER, {"rules": []}),
        (POD_DISRUPTION_BUDGETS, names.WEBHOOK, {"spec": {"maxUnavailable": 2}}),
        (SERVICE_ACCOUNTS, names.WEBHOOK, {"metadata": {"labels": {names.CONTROLLER_LABEL: "x"}}}),
    )
    async with available(world):
        for resource, name, change in edits:
            where = world.namespace if resource.namespaced else ""
            before = await world.client.get(resource, name, namespace=where)
            await world.client.patch(resource, name, MergePatch(change), namespace=where, field_manager="kubectl-edit")

            async def restored(resource: Resource = resource, name: str = name, where: str = where) -> bool:
                now = await world.client.get(resource, name, namespace=where)
                return bool(essence(now) == essence(before))  # noqa: B023 - awaited within the loop

            await eventually(restored, seconds=HEALED_SECONDS, what=f"{resource} {name} restored")
        policy = JsonPatch((remove("/webhooks/0/reinvocationPolicy"),))
        await world.client.patch(MUTATING_WEBHOOKS, names.WEBHOOK_CONFIGURATION, policy)
        await eventually(lambda: reinvoked(world), seconds=HEALED_SECONDS)
        for resource in OPERANDS:
            for metadata in await world.found(resource, world.namespace if resource.namespaced else ""):
                where = metadata.get("namespace", "")
                await world.client.delete(resource, metadata["name"], namespace=where)

                async def remade(
                    resource: Resource = resource, metadata: dict[str, Any] = metadata, where: str = where
                ) -> bool:
                    now = await world.client.get(resource, metadata["name"], namespace=where)
                    return bool(now["metadata"]["uid"] != metadata["uid"])

                await eventually(remade, seconds=HEALED_SECONDS, what=f"{resource} {metadata['name']} made anew")


async def reinvoked(world: OperatorWorld) -> bool:
    found = await world.client.get(MUTATING_WEBHOOKS, names.WEBHOOK_CONFIGURATION)
    return bool(found["webhooks"][0]["reinvocationPolicy"] == "IfNeeded")


def essence(document: dict[str, Any]) -> Any:
    """What the operator says of an object."""
    return (
        document.get("spec"),
        document.get("rules"),
        document["metadata"].get("labels"),
        document["metadata"].get("finalizers"),
    )


@pytest.mark.req("PL-501")
async def test_a_foreign_controller_that_fights_over_a_field_is_named(world: OperatorWorld) -> None:
    taken = MergePatch({"spec": {"replicas": 1}})

    async def insists() -> Any:
        """It does not give up: a busy operator takes back several of its changes at once."""
        await world.client.patch(
            DEPLOYMENTS, names.WEBHOOK, taken, namespace=world.namespace, field_manager="autoscaler"
        )
        found = (await world.configuration()).get("status", {}).get("conditions", ())
        return next((each for each in found if (each["type"], each["status"]) == ("Degraded", "True")), None)

    async with available(world):
        degraded = await eventually(insists, seconds=60, pause=0.5)
        assert "autoscaler keeps changing .spec.replicas" in degraded["message"]


@pytest.mark.req("PL-013", "PL-522")
async def test_created_and_deleted_within_a_second_nothing_is_left(world: OperatorWorld) -> None:
    """Several times, deleted earlier and later, while it is Progressing in any case."""
    async with world.operator() as operator:
        await eventually(lambda: led(operator))
        for pause in (0.0, 0.05, 0.3, 0.9):
            await world.create(CPPCS, names.SINGLETON, {})
            await asyncio.sleep(pause)
            await deleted(world)
        await operator.kill()


async def led(operator: Operator) -> bool:
    return any(entry.get("event") == "leading" for entry in operator.entries)


@pytest.mark.req("PL-520")
async def test_a_foreground_deletion_takes_the_controller_last(world: OperatorWorld) -> None:
    async with available(world):
        namespace = await gate(world, 3)
        assert await deleted(world, propagation="Foreground", seconds=100) < 100
        assert await gates(world, namespace) == []


@pytest.mark.req("PL-021", "PL-520", "PL-900")
async def test_two_hundred_gated_pods_are_released_within_a_minute(world: OperatorWorld) -> None:
    """Until it is gone the conditions say how many are left.

    Images that nobody can resolve hold none.
    """
    policy = {"onUnresolved": {"action": "hold", "retryWindow": "10m"}}
    await world.create(POLICIES, names.SINGLETON, policy)
    async with available(world) as operator:
        namespace = await gate(world, 200)
        began = time.monotonic()
        await world.client.delete(CPPCS, names.SINGLETON)
        leaving = await world.condition("Deprovisioning", "True", seconds=5)
        assert "still gated" in leaving["message"]
        await eventually(lambda: world.is_gone(CPPCS, names.SINGLETON), seconds=90)
        assert time.monotonic() - began < 90
        assert await gates(world, namespace) == []
        forced = [
            each
            for each in operator.entries
            if str(each.get("event", "")).startswith("gate removed without a decision")
        ]
        assert not forced, "the controller did it"


@pytest.mark.req("PL-521")
async def test_gates_are_removed_at_once_if_it_is_forced(world: OperatorWorld) -> None:
    """With no controller that would do it."""
    async with available(world):
        namespace = await gate(world, 30)
        broken = MergePatch({"metadata": {"annotations": {"polyarch.dev/force-uninstall": "true"}}})
        await world.client.patch(CPPCS, names.SINGLETON, broken)
        assert await deleted(world) < 45
        assert await gates(world, namespace) == []


@pytest.mark.req("PL-520")
async def test_the_namespace_may_be_deleted_before_the_configuration(world: OperatorWorld) -> None:
    async with available(world):
        namespace = await gate(world, 5)
        await world.client.delete(NAMESPACES, world.namespace)
        await eventually(lambda: nothing_left(world), seconds=60)
        assert await gates(world, namespace) == []
        await world.client.delete(CPPCS, names.SINGLETON)
        await eventually(lambda: world.is_gone(CPPCS, names.SINGLETON))
        await eventually(lambda: world.is_gone(NAMESPACES, world.namespace))


@pytest.mark.req("PL-522")
async def test_an_operator_that_is_killed_is_followed_by_one_that_goes_on(world: OperatorWorld) -> None:
    """Once in an installation and once in an uninstall; tests/faults/test_operator_faults.py kills it at every step."""
    await world.create(CPPCS, names.SINGLETON, {})
    await until_logged(world, "object applied", 3)
    async with world.operator() as operator:
        await world.condition("Available", "True")
        await operator.kill()
    namespace = await gate(world, 5)
    await world.client.delete(CPPCS, names.SINGLETON)
    await until_logged(world, "uninstall", 1)
    async with world.operator() as operator:
        await eventually(lambda: world.is_gone(CPPCS, names.SINGLETON))
        await eventually(lambda: nothing_left(world))
        await operator.kill()
    assert await gates(world, namespace) == []


async def until_logged(world: OperatorWorld, event: str, times: int) -> None:
    """Runs an operator, which is killed as soon as it has logged this so often, or has nothing left to do."""
    async with world.operator() as operator:

        async def done() -> bool:
            entries = operator.entries
            return sum(entry.get("event") == event for entry in entries) >= times or any(
                entry.get("event") == "placement is uninstalled" for entry in entries
            )

        await eventually(done, seconds=40, pause=0.01)
        await operator.kill()
    # The Lease of who was killed expires after 15 s; this is not what the test is about.
    await world.client.delete(LEASES, names.OPERATOR_LEASE, namespace=world.namespace)


@pytest.mark.req("PL-500")
async def test_idle_it_writes_nothing_but_its_lease_and_stays_small(world: OperatorWorld) -> None:
    """A short look here; ten minutes belong to the soak test. One dry run may be among it: of the webhook's probe."""
    async with available(world) as operator:
        await asyncio.sleep(4)
        audited = world.audit()
        await asyncio.sleep(20)
        asked = await audited.requests()
        assert [each for each in asked if each.split()[0] not in ("get", "list")] in ([], ["create configmaps"])
        status = Path(f"/proc/{operator.process.pid}/status").read_text()
        resident = int(status.partition("VmRSS:")[2].split()[0]) / 1024
        print(f"operator: {resident:.1f} MiB resident")  # noqa: T201 - a figure
        assert resident <= 80


@pytest.mark.req("PL-030", "PL-032", "PL-033", "PL-041")
async def test_configs_and_policy_have_a_status(world: OperatorWorld) -> None:
    namespace = await world.team(tier="gold")
    selector = {"matchLabels": {"tier": "gold"}}
    await world.create(
        POLICIES, names.SINGLETON, {"overrides": [{"name": "gold", "namespaceSelector": selector, "mode": "audit"}]}
    )
    async with available(world):
        for name in ("a", "b"):
            await world.create(PPCS, name, {"plugins": {}, "priority": 7}, namespace=namespace)

        async def ready(name: str) -> dict[str, Any] | None:
            found = await world.client.get(PPCS, name, namespace=namespace)
            conditions = found.get("status", {}).get("conditions") or [None]
            first: dict[str, Any] | None = conditions[0]
            return first

        assert (await eventually(lambda: ready("a")))["reason"] == "Valid"
        assert (await eventually(lambda: ready("b")))["reason"] == "ShadowedByPriority"

        async def told() -> bool:
            status = (await world.client.get(POLICIES, names.SINGLETON)).get("status", {})
            return (
                status.get("overrides") == [{"name": "gold", "matchedNamespaces": 1}]
                and status["conditions"][0]["reason"] == "Valid"
                and (status["heldPods"], status["unplacedPods"]) == (0, 0)
            )

        await eventually(told)


@pytest.mark.req("PL-503")
async def test_a_predecessor_that_runs_is_waited_for(world: OperatorWorld) -> None:
    name = f"{secrets.token_hex(2)}-predecessor"
    await world.client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    labels = {"app": "predecessor"}
    pod = {"containers": [{"name": "manager", "image": "registry.invalid/none:1"}]}
    spec = {
        "replicas": 1,
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": pod},
    }
    predecessor = "multiarch-tuning-operator-controller-manager"
    await world.create(DEPLOYMENTS, predecessor, spec, namespace=name)
    async with world.operator() as operator:
        await world.create(CPPCS, names.SINGLETON, {})
        degraded = await world.condition("Degraded", "True")
        command = f"kubectl scale deployment {predecessor} -n {name} --replicas=0"
        assert command in (await eventually(lambda: mentioned(world, command)))["message"], degraded
        assert await world.left() == []
        await world.client.patch(DEPLOYMENTS, predecessor, MergePatch({"spec": {"replicas": 0}}), namespace=name)
        await world.condition("Available", "True")
        await operator.kill()
    await world.client.delete(NAMESPACES, name)


@pytest.mark.req("PL-503")
async def test_a_predecessor_in_the_same_namespace_holds_the_lease_and_degraded_says_so(world: OperatorWorld) -> None:
    """Once it is scaled down and has given the Lease back, workloads of other selectors are made anew."""
    predecessor = "multiarch-tuning-operator-controller-manager"
    selected = {"app": "predecessor"}
    pod = {"containers": [{"name": "manager", "image": "registry.invalid/none:1"}]}
    template = {"metadata": {"labels": selected}, "spec": pod}
    spec = {"replicas": 1, "selector": {"matchLabels": selected}, "template": template}
    marks = {names.OPERAND_LABEL: names.OPERAND, names.CONTROLLER_LABEL: names.CONTROLLER}
    await world.create(DEPLOYMENTS, predecessor, spec, namespace=world.namespace)
    await world.create(DEPLOYMENTS, names.CONTROLLER, spec, namespace=world.namespace, labels=marks)
    held = {"holderIdentity": "predecessor", "leaseDurationSeconds": 600, "renewTime": "2026-01-01T00:00:00.000000Z"}
    await world.create(LEASES, names.OPERATOR_LEASE, held, namespace=world.namespace)
    async with world.operator() as operator:
        await world.create(CPPCS, names.SINGLETON, {})
        command = f"kubectl scale deployment {predecessor} -n {world.namespace} --replicas=0"
        await eventually(lambda: mentioned(world, command))
        assert not await led(operator)
        down = MergePatch({"spec": {"replicas": 0}})
        await world.client.patch(DEPLOYMENTS, predecessor, down, namespace=world.namespace)
        free = MergePatch({"spec": {"holderIdentity": "", "leaseDurationSeconds": 1}})
        await world.client.patch(LEASES, names.OPERATOR_LEASE, free, namespace=world.namespace)
        await world.condition("Available", "True")
        found = await world.client.get(DEPLOYMENTS, names.CONTROLLER, namespace=world.namespace)
        (container,) = found["spec"]["template"]["spec"]["containers"]
        assert container["image"] == DEFAULT_IMAGE
        assert "app" not in found["spec"]["selector"]["matchLabels"]
        await operator.kill()


async def mentioned(world: OperatorWorld, text: str) -> dict[str, Any] | None:
    found = await world.condition("Degraded", "True")
    return found if text in found["message"] else None
