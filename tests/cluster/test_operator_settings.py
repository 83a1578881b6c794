"""The operator looks at its settings before it hands them on."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from operator_world import OperatorWorld, eventually

from polyarch.kube.patches import JsonPatch, replace
from polyarch.kube.resources import (
    CONFIGMAPS,
    DEPLOYMENTS,
    SERVICES,
    VALIDATING_POLICIES,
    VALIDATING_POLICY_BINDINGS,
)
from polyarch.placement import names
from polyarch.placement.api import CPPCS
from polyarch.sandbox.cluster import Sandbox
from polyarch.taints import names as taint_names
from polyarch.taints.api import ARCHITECTURE_TAINTS


@pytest.fixture
async def world(operated_sandbox: Sandbox, tmp_path: Path) -> AsyncIterator[OperatorWorld]:
    async with OperatorWorld.opened(operated_sandbox, tmp_path) as world:
        yield world


@pytest.mark.req("IN-030", "PL-020")
async def test_settings_that_the_roles_would_refuse_are_told_and_not_rolled_out(world: OperatorWorld) -> None:
    """Nobody gets pods that end as they start, neither at first nor by a change of the settings."""
    told = "nothing is deployed or changed until this is corrected: registries.allowAddresses"
    async with world.operator("--allow-address=10.0.0/8") as operator:
        await world.create(CPPCS, names.SINGLETON, {})
        await world.create(ARCHITECTURE_TAINTS, taint_names.SINGLETON, {})
        degraded = await eventually(lambda: degraded_by(world, told))
        assert "'10.0.0/8' is not an address range" in degraded

        async def said_of_taints() -> str:
            found = await world.client.get(ARCHITECTURE_TAINTS, taint_names.SINGLETON)
            ready = [each for each in found.get("status", {}).get("conditions", ()) if each["type"] == "Ready"]
            return "".join(each["message"] for each in ready if each["status"] == "False")

        assert "registries.allowAddresses" in await eventually(said_of_taints)
        assert await world.left() == []
        await operator.kill()
    await world.delete(ARCHITECTURE_TAINTS, taint_names.SINGLETON)
    async with world.operator("--allow-address=10.0.0.0/8") as operator:
        await world.condition("Available", "True")
        await world.condition("Degraded", "False")
        await operator.kill()
    async with world.operator("--allow-address=10.0.0.0/8", "--allow-address=lan") as operator:
        assert "'lan'" in await eventually(lambda: degraded_by(world, told))
        found = await world.client.get(DEPLOYMENTS, names.CONTROLLER, namespace=world.namespace)
        (container,) = found["spec"]["template"]["spec"]["containers"]
        assert [each for each in container["args"] if "allow-address" in each] == ["--allow-address=10.0.0.0/8"]
        await world.condition("Available", "True")
        # Nothing is put right either, so what stands in the way of the webhook is at least told.
        patch = JsonPatch((replace("/spec/ports/0/port", 8080),))
        await world.client.patch(
            SERVICES, names.WEBHOOK, patch, namespace=world.namespace, field_manager="kubectl-patch"
        )
        available = await world.condition("Available", "False")
        assert available["reason"].endswith("PodPlacementWebhookUnreachable")
        assert "kubectl-patch changed .spec.ports" in available["message"]
        await operator.kill()


async def degraded_by(world: OperatorWorld, words: str) -> str:
    """The message of the condition, once it has these words."""
    message = str((await world.condition("Degraded", "True"))["message"])
    return message if words in message else ""


@pytest.mark.req("IN-035")
async def test_operands_keep_to_the_architectures_of_their_image(world: OperatorWorld) -> None:
    """A mirror may have fewer than the publisher: a pod elsewhere would end with exec format error. What was found out
    stays while the registry cannot be asked."""
    image = "quay.io/mirror/polyarch:1"
    await world.sandbox.registry.seed({image: ["linux/arm64", "linux/s390x"]})

    async def architectures() -> list[str]:
        found = await world.client.get(DEPLOYMENTS, names.WEBHOOK, namespace=world.namespace)
        affinity = found["spec"]["template"]["spec"]["affinity"]["nodeAffinity"]
        (term,) = affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
        return [value for each in term["matchExpressions"] if each["key"] == names.ARCH_KEY for value in each["values"]]

    registries = {
        "metadata": {"name": "mirrors"},
        "data": {"registries.conf": world.sandbox.registries_conf.read_text()},
    }
    await world.client.create(CONFIGMAPS, registries, namespace=world.namespace)
    flags = f"--image={image}", "--registries-configmap=mirrors", "--allow-address=127.0.0.0/8"
    async with world.operator(*flags) as operator:
        await world.create(CPPCS, names.SINGLETON, {})
        assert await eventually(architectures) == ["arm64", "s390x"]
        await operator.kill()


@pytest.mark.req("IN-036")
async def test_policies_of_accounts_go_when_they_are_turned_off_and_come_back(world: OperatorWorld) -> None:
    """In either state nothing is left once the objects are deleted."""
    policies = {names.POD_POLICY, taint_names.POD_POLICY, taint_names.TEMPLATE_POLICY}

    async def is_so(wanted: set[str]) -> bool:
        for resource in (VALIDATING_POLICIES, VALIDATING_POLICY_BINDINGS):
            found = await world.client.list(resource, label_selector=names.OPERAND_LABEL)
            if {each["metadata"]["name"] for each in found.items} != wanted:
                return False
        return True

    objects = {CPPCS: names.SINGLETON, ARCHITECTURE_TAINTS: taint_names.SINGLETON}
    without = ("--no-admission-policies",)
    for flags, is_last in (((), False), (without, False), ((), True), (without, True)):
        for resource, name in objects.items():
            if await world.is_gone(resource, name):
                await world.create(resource, name, {})
        async with world.operator(*flags) as operator:
            await eventually(lambda: is_so(set() if flags else policies), seconds=90)  # noqa: B023 - called here
            if is_last:
                for resource, name in objects.items():
                    await world.client.delete(resource, name)
                await eventually(lambda: has_nothing(world), seconds=90)
            await operator.kill()


async def has_nothing(world: OperatorWorld) -> bool:
    return not await world.left()
