"""What somebody changes of the operands is put right, told, and never hidden behind ``Available``.

With the operator as a process and exactly its rights; each edit is one that server-side apply alone does not undo.
"""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import numa_operated
import pytest
from operator_world import OperatorWorld, eventually

from polyarch import names as shared
from polyarch.builds import names as builds
from polyarch.installation.operator import rights as operator_rights
from polyarch.kube import config
from polyarch.kube.client import Client
from polyarch.kube.errors import Invalid
from polyarch.kube.patches import JsonPatch, MergePatch, Operation, add, replace
from polyarch.kube.resources import (
    DAEMONSETS,
    DEPLOYMENTS,
    EVENTS,
    MUTATING_WEBHOOKS,
    PODS,
    SERVICES,
    VALIDATING_POLICIES,
    VALIDATING_POLICY_BINDINGS,
    ObjectRef,
    by_kind,
)
from polyarch.objects import ObjectKey
from polyarch.operator.apply_sets import RESTORED
from polyarch.operator.settings import ClusterCapabilities, OperatorSettings
from polyarch.placement import names
from polyarch.placement.api import CPPCS
from polyarch.sandbox.cluster import Sandbox
from polyarch.taints import names as taints
from polyarch.taints.api import ARCHITECTURE_TAINTS

CONTAINER = "/spec/template/spec/containers/0"
PORT = [replace("/spec/ports/0/port", 8080)]
WORKLOAD = (
    [replace(f"{CONTAINER}/ports/0/containerPort", 1234)],
    [replace(f"{CONTAINER}/name", "other")],
    [
        add("/spec/template/spec/volumes/-", {"name": "more", "emptyDir": {}}),
        add(f"{CONTAINER}/env/-", {"name": "MORE", "value": "1"}),
    ],
)
ENTRY = [replace("/webhooks/0/name", "other.example.com")]


@pytest.fixture
async def world(operated_sandbox: Sandbox, tmp_path: Path) -> AsyncIterator[OperatorWorld]:
    async with numa_operated.opened(operated_sandbox, tmp_path) as world:
        for document in operator_rights(
            OperatorSettings(namespace=world.namespace, builds="on"), ClusterCapabilities()
        ):
            where = document["metadata"].get("namespace", "")
            await world.client.apply(by_kind(document["apiVersion"], document["kind"]), document, namespace=where)
        yield world


async def edit(world: OperatorWorld, ref: ObjectRef, operations: list[Operation]) -> None:
    """As by ``kubectl patch``."""
    patch, where = JsonPatch(tuple(operations)), ref.key.namespace
    await world.client.patch(ref.resource, ref.key.name, patch, namespace=where, field_manager="kubectl-patch")


async def said(world: OperatorWorld, ref: ObjectRef) -> Any:
    document = await world.client.get(ref.resource, ref.key.name, namespace=ref.key.namespace)
    return document.get("spec") or document.get("webhooks")


async def notes(world: OperatorWorld, ref: ObjectRef) -> list[str]:
    """Of the events on an object that tell of repairs."""
    listed = (await world.client.list(EVENTS, namespace=ref.key.namespace or "default")).items
    return [
        each["note"]
        for each in listed
        if each["reason"] == RESTORED
        and (each["regarding"]["kind"], each["regarding"]["name"]) == (ref.resource.kind, ref.key.name)
    ]


async def changed_and_put_right(world: OperatorWorld, ref: ObjectRef, *edits: list[Operation]) -> None:
    for operations in edits:
        before = await said(world, ref)
        await edit(world, ref, operations)
        assert await said(world, ref) != before or await notes(world, ref), operations

        async def as_before(before: Any = before) -> bool:
            return bool(await said(world, ref) == before)

        await eventually(as_before, seconds=15, what=f"{ref} after {operations}")
    await eventually(lambda: named(world, ref), seconds=15)


async def named(world: OperatorWorld, ref: ObjectRef) -> bool:
    return any("kubectl-patch" in each for each in await notes(world, ref))


@pytest.mark.req("PL-501")
async def test_operands_of_every_feature_are_put_right_and_who_changed_them_is_told(world: OperatorWorld) -> None:
    home, audited = world.namespace, world.audit()
    await numa_operated.label(world, 1)
    async with world.operator("--builds=on", "--builder-replicas=1"):
        await world.create(CPPCS, names.SINGLETON, {"plugins": {"execFormatErrorMonitor": {"enabled": True}}})
        await world.create(ARCHITECTURE_TAINTS, taints.SINGLETON, {})
        await numa_operated.create(world, [{"poolName": numa_operated.GROUP}])
        edits = {
            ObjectRef(SERVICES, ObjectKey(home, names.WEBHOOK)): [PORT],
            ObjectRef(DEPLOYMENTS, ObjectKey(home, names.WEBHOOK)): WORKLOAD,
            ObjectRef(MUTATING_WEBHOOKS, ObjectKey("", names.WEBHOOK_CONFIGURATION)): [ENTRY],
            ObjectRef(SERVICES, ObjectKey(home, names.ENOEXEC_HANDLER)): [PORT],
            ObjectRef(DAEMONSETS, ObjectKey(home, names.ENOEXEC_DAEMON)): WORKLOAD[1:],
            ObjectRef(SERVICES, ObjectKey(home, taints.ROLE)): [PORT],
            ObjectRef(DEPLOYMENTS, ObjectKey(home, taints.ROLE)): WORKLOAD,
            ObjectRef(MUTATING_WEBHOOKS, ObjectKey("", taints.ROLE)): [ENTRY],
            ObjectRef(SERVICES, ObjectKey(home, builds.ROLE)): [PORT],
            ObjectRef(DEPLOYMENTS, ObjectKey(home, builds.ROLE)): WORKLOAD,
            ObjectRef(DAEMONSETS, ObjectKey(home, numa_operated.DAEMON_SET)): WORKLOAD,
        }
        for ref in edits:
            await eventually(
                lambda ref=ref: world.is_there(ref.resource, ref.key.name, ref.key.namespace), what=str(ref)
            )
        for ref, several in edits.items():
            await changed_and_put_right(world, ref, *several)
        available = await world.condition("Available", "True")
        assert not available["reason"].endswith("PodPlacementWebhookUnreachable")
    assert await audited.refused() == []


@pytest.mark.req("PL-020")
async def test_while_somebody_keeps_the_webhooks_service_wrong_placement_is_not_available(world: OperatorWorld) -> None:
    service = ObjectRef(SERVICES, ObjectKey(world.namespace, names.WEBHOOK))

    async def insists() -> Any:
        if (await said(world, service))["ports"][0]["port"] == 443:
            await edit(world, service, PORT)
        found = (await world.configuration())["status"]["conditions"]
        stands = {each["type"]: each for each in found}
        return stands if "keeps changing" in stands["Available"]["message"] else None

    async with world.operator():
        await world.create(CPPCS, names.SINGLETON, {})
        await world.condition("Available", "True")
        conditions = await eventually(insists, seconds=60)
        available, degraded = conditions["Available"], conditions["Degraded"]
        assert available["status"] == "False"
        assert available["reason"].endswith("PodPlacementWebhookUnreachable")
        assert (
            f"services {world.namespace}/{names.WEBHOOK}: kubectl-patch keeps changing .spec.ports"
            in available["message"]
        )
        assert degraded["status"] == "True"
        assert available["message"] in degraded["message"]
        await world.condition("Available", "True", seconds=120)  # it has given up
        assert (await said(world, service))["ports"][0]["port"] == 443


@pytest.mark.req("PL-020")
async def test_an_operand_that_is_refused_takes_availability_away_until_it_is_not(world: OperatorWorld) -> None:
    """A policy of the cluster forbids the operator what the repair takes."""
    service, name = ObjectRef(SERVICES, ObjectKey(world.namespace, names.WEBHOOK)), f"no-repairs-{world.namespace}"
    account = f"system:serviceaccount:{world.namespace}:{names.OPERATOR}"
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": ["services"]}
    policy = {
        "matchConstraints": {"resourceRules": [rule]},
        "validations": [{"expression": f"request.userInfo.username != '{account}'", "message": "not you"}],
    }
    async with world.operator():
        await world.create(CPPCS, names.SINGLETON, {})
        await world.condition("Available", "True")
        await world.create(VALIDATING_POLICIES, name, policy)
        await world.create(VALIDATING_POLICY_BINDINGS, name, {"policyName": name, "validationActions": ["Deny"]})
        try:
            await eventually(lambda: forbidden(world, service))
            await edit(world, service, PORT)
            available = await world.condition("Available", "False", seconds=30)
            assert available["reason"].endswith("PodPlacementWebhookUnreachable")

            async def told() -> bool:
                return "could not be changed" in (await world.condition("Available", "False"))["message"]

            await eventually(told, seconds=30)
            assert "not you" in (await world.condition("Degraded", "True"))["message"]
        finally:
            for kind in (VALIDATING_POLICY_BINDINGS, VALIDATING_POLICIES):
                await world.delete(kind, name)
        await world.condition("Available", "True", seconds=120)
        assert (await said(world, service))["ports"][0]["port"] == 443


@pytest.mark.req("PL-020")
async def test_a_registration_that_may_not_be_put_right_takes_availability_away(world: OperatorWorld) -> None:
    """Nor does a quarrel over another field hide that the object is wrong: while it is left alone it stays so."""
    registration, name = (
        ObjectRef(MUTATING_WEBHOOKS, ObjectKey("", names.WEBHOOK_CONFIGURATION)),
        f"no-repairs-{world.namespace}",
    )
    service = ObjectRef(SERVICES, ObjectKey(world.namespace, names.WEBHOOK))
    account = f"system:serviceaccount:{world.namespace}:{names.OPERATOR}"
    rule = {
        "apiGroups": [MUTATING_WEBHOOKS.group],
        "apiVersions": ["v1"],
        "operations": ["UPDATE"],
        "resources": [MUTATING_WEBHOOKS.plural],
    }
    policy = {
        "matchConstraints": {"resourceRules": [rule]},
        "validations": [{"expression": f"request.userInfo.username != '{account}'", "message": "not you"}],
    }

    async def stays_unreachable(words: str) -> None:
        async def told() -> bool:
            return words in (await world.condition("Degraded", "True"))["message"]

        await eventually(told, seconds=30)
        for _ in range(20):
            found = (await world.configuration())["status"]["conditions"]
            available = next(each for each in found if each["type"] == "Available")
            assert available["reason"].endswith("PodPlacementWebhookUnreachable"), available
            await asyncio.sleep(0.1)

    async with world.operator():
        await world.create(CPPCS, names.SINGLETON, {})
        await world.condition("Available", "True")
        await world.create(VALIDATING_POLICIES, name, policy)
        await world.create(VALIDATING_POLICY_BINDINGS, name, {"policyName": name, "validationActions": ["Deny"]})
        try:
            await eventually(lambda: forbidden(world, registration))
            await edit(world, registration, [replace("/webhooks/0/rules/0/resources", ["pods/status"])])
            await stays_unreachable("not you")
        finally:
            for kind in (VALIDATING_POLICY_BINDINGS, VALIDATING_POLICIES):
                await world.delete(kind, name)
        await world.condition("Available", "True", seconds=120)

        async def quarrels() -> bool:
            found = await world.client.get(SERVICES, names.WEBHOOK, namespace=world.namespace)
            if found["metadata"]["labels"][shared.CONTROLLER_LABEL] != "theirs":
                await edit(world, service, [replace(f"/metadata/labels/{shared.CONTROLLER_LABEL}", "theirs")])
            return "keeps changing" in str((await world.configuration())["status"])

        await eventually(quarrels, seconds=60)
        await edit(world, service, PORT)
        await stays_unreachable("kubectl-patch changed .spec.ports")


async def forbidden(world: OperatorWorld, ref: ObjectRef) -> bool:
    """Policies take effect a moment after they are stored: until then the operator may write."""
    change = {"metadata": {"labels": {"x": "y"}}}
    try:
        async with Client(config.load(str(await world.kubeconfig())), role="tests") as its:
            await its.patch(ref.resource, ref.key.name, MergePatch(change), namespace=ref.key.namespace)
    except Invalid:
        return True
    return False


@pytest.mark.req("PL-020")
async def test_the_time_without_a_webhook_shows_in_the_condition(world: OperatorWorld) -> None:
    """Pods that were created meanwhile are not placed, so ``Available`` was False, also if only for a moment."""
    service = ObjectRef(SERVICES, ObjectKey(world.namespace, names.WEBHOOK))
    async with world.operator() as operator:
        await world.create(CPPCS, names.SINGLETON, {})
        before = await world.condition("Available", "True")
        await asyncio.sleep(1.1)  # of which the condition's times have no fractions
        await edit(world, service, PORT)

        async def again() -> bool:
            now = await world.condition("Available", "True")
            return bool(now["lastTransitionTime"] > before["lastTransitionTime"])

        await eventually(again, seconds=30)
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "p"},
            "spec": {"containers": [{"name": "c", "image": "registry.invalid/none:1"}]},
        }
        await eventually(lambda: placed(world, pod), seconds=30)
        assert operator.process.returncode is None


async def placed(world: OperatorWorld, pod: dict[str, Any]) -> bool:
    """A pod that is created now goes through the webhook."""
    namespace = await world.team()
    made = await world.client.create(PODS, pod, namespace=namespace, dry_run=True, type=dict)
    return bool((made["metadata"].get("labels") or {}).get(names.SCHEDULING_GATE_LABEL))
