"""The operator deploys taints, beside placement or alone, and takes everything out of the cluster again.

With real pods of the role.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from audited import Audited
from operator_world import OperatorWorld, eventually

from polyarch.installation.inventory import ClusterInventory, survey
from polyarch.kube.errors import NotFound
from polyarch.kube.patches import MergePatch
from polyarch.kube.resources import DEPLOYMENTS, LEASES, MUTATING_WEBHOOKS, NODES, PODS, SECRETS, Resource
from polyarch.kube.review_tokens import path_without_token
from polyarch.operator.components.taints_objects import adding_permissions, role_permissions
from polyarch.operator.owned_objects import combined
from polyarch.operator.settings import ClusterCapabilities, OperatorSettings
from polyarch.placement import names as placement
from polyarch.placement.api import CPPCS, POLICIES
from polyarch.sandbox.cluster import Sandbox
from polyarch.taints import names
from polyarch.taints.api import ARCHITECTURE_TAINTS

KEY = "supported-arch"
EPHEMERAL = ("pods", "replicasets", "endpointslices", "leases", "podmetrics")
"""What others make of what was there, and remove some time after it is gone."""
GROUP = "admissionregistration.k8s.io"
POLICY = Resource(GROUP, "v1", "validatingadmissionpolicies", "ValidatingAdmissionPolicy", namespaced=False)
BINDING = Resource(
    GROUP, "v1", "validatingadmissionpolicybindings", "ValidatingAdmissionPolicyBinding", namespaced=False
)


@pytest.fixture
async def world(operated_sandbox: Sandbox, tmp_path: Path) -> AsyncIterator[OperatorWorld]:
    async with OperatorWorld.opened(operated_sandbox, tmp_path) as world:
        yield world


async def tainted(world: OperatorWorld) -> dict[str, set[str]]:
    """The taints with an architecture as value, by architecture of the nodes that have them."""
    found: dict[str, set[str]] = {}
    for node in (await world.client.list(NODES)).items:
        for taint in node["spec"].get("taints") or ():
            if taint["key"] in (KEY, "example.com/arch"):
                found.setdefault(node["metadata"]["labels"]["kubernetes.io/arch"], set()).add(taint["value"])
    return found


async def entries(world: OperatorWorld) -> list[dict[str, Any]]:
    found = await world.client.get(MUTATING_WEBHOOKS, names.ROLE)
    several: list[dict[str, Any]] = found.get("webhooks") or []
    return several


async def condition(world: OperatorWorld, kind: str) -> dict[str, Any]:
    """A condition of the object; empty if there is none."""
    status = (await world.client.get(ARCHITECTURE_TAINTS, names.SINGLETON)).get("status") or {}
    return next((each for each in status.get("conditions", ()) if each["type"] == kind), {})


async def new_since(world: OperatorWorld, before: ClusterInventory, *, seconds: float = 20.0) -> list[str]:
    """What was not there before, once what goes by itself has had time to."""
    end = time.monotonic() + seconds
    while True:
        found = [
            str(each)
            for each in (await survey(world.client)).since(before)
            if each.ref.resource.plural not in EPHEMERAL
        ]
        if not found or time.monotonic() >= end:
            return found
        await asyncio.sleep(1)


async def removed(world: OperatorWorld, *, seconds: float = 60.0) -> float:
    """Deletes the object; seconds until it is gone."""
    began = time.monotonic()
    await world.client.delete(ARCHITECTURE_TAINTS, names.SINGLETON)
    await eventually(lambda: world.is_gone(ARCHITECTURE_TAINTS, names.SINGLETON), seconds=seconds)
    return time.monotonic() - began


@pytest.mark.req("TN-003", "TN-073", "TN-081")
async def test_applied_it_taints_and_deleted_nothing_is_left(world: OperatorWorld) -> None:
    """With exactly their rights, operator and role ask for nothing that is refused."""
    operator, role = world.audit(), Audited(world.sandbox, f"system:serviceaccount:{world.namespace}:{names.ROLE}")
    async with world.operator():
        for resource, name in ((LEASES, placement.OPERATOR_LEASE), (SECRETS, placement.CERTIFICATES_SECRET)):
            await eventually(lambda resource=resource, name=name: world.is_there(resource, name))
        before = await survey(world.client)
        await world.create(ARCHITECTURE_TAINTS, names.SINGLETON, {})
        secondary = {"arm64", "ppc64le", "s390x"}

        async def all_tainted() -> bool:
            return await tainted(world) == {each: {each} for each in secondary}

        await eventually(all_tainted)
        assert [each["name"] for each in await entries(world)][-1] == names.TEMPLATE_WEBHOOK
        await eventually(lambda: ready(world))
        took = await removed(world)
        assert took < 45
        assert await world.left() == []
        assert await tainted(world) == {}

        assert await new_since(world, before) == []
    assert await operator.refused() == []
    assert await role.refused() == []  # its rights go after its pods, which write their last status and free the Lease
    settings = OperatorSettings(namespace=world.namespace)
    granted = combined(
        role_permissions(settings, ClusterCapabilities(), evicts=False), adding_permissions(world.namespace)
    )
    assert await role.not_allowed((*granted.cluster, *granted.namespaces[world.namespace])) == []


async def ready(world: OperatorWorld) -> bool:
    return (await condition(world, "Ready")).get("status") == "True"


@pytest.mark.req("TN-004", "TN-013", "TN-081")
async def test_beside_placement(world: OperatorWorld) -> None:
    """Whichever comes and goes, a pod costs one call, and our pods run on tainted nodes."""
    async with world.deployed():
        taint = {"preset": "custom", "key": "example.com/arch"}
        spec = {"mode": "both", "taint": taint, "nodes": {"rollout": "immediate", "perMinute": 600}}
        await world.create(ARCHITECTURE_TAINTS, names.SINGLETON, spec)

        async def covered(reason: str) -> bool:
            return (await condition(world, "AffinityCovered")).get("reason") == reason

        await eventually(lambda: covered("PlacementNotConfigured"))

        async def everywhere() -> bool:
            return len(await tainted(world)) == 4

        await eventually(everywhere)
        selector = {"matchExpressions": [{"key": "placed", "operator": "Exists"}]}
        await world.create(CPPCS, placement.SINGLETON, {"namespaceSelector": selector})
        await world.condition("Available", "True")  # its pods tolerate the taint of every node
        await eventually(lambda: covered("PodsNotPlaced"))

        async def beside() -> bool:
            return any(
                {"key": "placed", "operator": "DoesNotExist"} in each["namespaceSelector"]["matchExpressions"]
                for each in await entries(world)
                if path_without_token(each["clientConfig"]["service"]["path"]) == names.POD_WEBHOOK_PATH
            )

        await eventually(beside)
        for name in (names.ROLE, placement.WEBHOOK, placement.CONTROLLER):
            deployment = await world.client.get(DEPLOYMENTS, name, namespace=world.namespace)
            tolerations = deployment["spec"]["template"]["spec"]["tolerations"]
            assert {"key": "example.com/arch", "operator": "Exists"} in tolerations
        await world.client.patch(CPPCS, placement.SINGLETON, MergePatch({"spec": {"namespaceSelector": None}}))
        await eventually(lambda: covered("SamePods"))
        await world.client.delete(CPPCS, placement.SINGLETON)
        await eventually(lambda: world.is_gone(CPPCS, placement.SINGLETON))
        await eventually(lambda: covered("PlacementNotConfigured"))

        async def alone() -> bool:
            created = [each for each in await entries(world) if each["rules"][0]["operations"] == ["CREATE"]]
            return len(created) == 1 and not await beside()

        await eventually(alone)
        await removed(world)
        assert await tainted(world) == {}
        assert await world.left() == []


@pytest.mark.req("TN-013")
async def test_the_other_modes_say_nothing_of_placement(world: OperatorWorld) -> None:
    """And what the operator said in mode both is withdrawn."""
    async with world.operator():
        await world.create(ARCHITECTURE_TAINTS, names.SINGLETON, {"mode": "both", "state": "paused"})
        await eventually(lambda: condition(world, "AffinityCovered"))
        await world.client.patch(ARCHITECTURE_TAINTS, names.SINGLETON, MergePatch({"spec": {"mode": "secondary-only"}}))

        async def withdrawn() -> bool:
            return not await condition(world, "AffinityCovered")

        await eventually(withdrawn)
        assert await world.is_gone(MUTATING_WEBHOOKS, names.ROLE)  # paused: admission adds nothing


async def mark(world: OperatorWorld) -> list[str]:
    """Two nodes with a taint of ours, as the role leaves them."""
    nodes = [node["metadata"]["name"] for node in (await world.client.list(NODES)).items][:2]
    for name in nodes:
        record = {"metadata": {"annotations": {names.MANAGED_TAINTS_ANNOTATION: f"{KEY}=arm64:NoSchedule"}}}
        await world.client.patch(NODES, name, MergePatch(record))
        taints = [{"key": KEY, "value": "arm64", "effect": "NoSchedule"}]
        await world.client.patch(NODES, name, MergePatch({"spec": {"taints": taints}}))
    return nodes


async def gated(world: OperatorWorld) -> str:
    namespace = await world.team()
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "gated", "labels": {names.GATED_LABEL: names.GATED}},
        "spec": {
            "schedulingGates": [{"name": names.GATE}],
            "containers": [{"name": "c", "image": "registry.invalid/none:1"}],
        },
    }
    await world.client.create(PODS, pod, namespace=namespace)
    return namespace


@pytest.mark.req("TN-073")
async def test_a_dead_role_holds_up_nothing_and_a_node_that_cannot_be_written_is_named(world: OperatorWorld) -> None:
    """The operator removes taints and gates itself; one node that is refused does not hold the others."""
    async with world.operator("--image=registry.invalid/never:1"):
        await world.create(ARCHITECTURE_TAINTS, names.SINGLETON, {})

        async def told() -> bool:
            return (await condition(world, "Ready")).get("reason") == "RoleNotAvailable"

        await eventually(told)
        stuck, free = await mark(world)
        namespace = await gated(world)
        await refuse(world, stuck)
        await world.client.delete(ARCHITECTURE_TAINTS, names.SINGLETON)

        async def named() -> bool:
            found = await condition(world, "Degraded")
            return found.get("reason") == "NotRemoved" and stuck in found["message"] and free not in found["message"]

        await eventually(named)
        assert "taints" not in (await world.client.get(NODES, free))["spec"]
        pod = await world.client.get(PODS, "gated", namespace=namespace)
        assert "schedulingGates" not in pod["spec"]
        assert names.GATED_LABEL not in pod["metadata"].get("labels", {})
        assert not await world.is_gone(ARCHITECTURE_TAINTS, names.SINGLETON)  # the finalizer comes last
        await allow(world)
        await eventually(lambda: world.is_gone(ARCHITECTURE_TAINTS, names.SINGLETON))
        assert "taints" not in (await world.client.get(NODES, stuck))["spec"]
        assert await world.left() == []


async def refuse(world: OperatorWorld, node: str) -> None:
    """An admission policy that refuses every change of this node's spec by the operator."""
    user = f"system:serviceaccount:{world.namespace}:{placement.OPERATOR}"
    rules = [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": ["nodes"]}]
    expression = f"object.metadata.name != '{node}' || request.userInfo.username != '{user}'"
    await world.client.apply(
        POLICY,
        {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": POLICY.kind,
            "metadata": {"name": "stuck-node"},
            "spec": {
                "failurePolicy": "Fail",
                "matchConstraints": {"resourceRules": rules},
                "validations": [{"expression": expression, "message": "this node is mine"}],
            },
        },
    )
    await world.client.apply(
        BINDING,
        {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": BINDING.kind,
            "metadata": {"name": "stuck-node"},
            "spec": {"policyName": "stuck-node", "validationActions": ["Deny"]},
        },
    )
    await asyncio.sleep(2)  # until every API server has seen it


async def allow(world: OperatorWorld) -> None:
    for kind in (BINDING, POLICY):
        try:
            await world.client.delete(kind, "stuck-node")
        except NotFound:
            continue


@pytest.mark.req("TN-073", "TN-092")
async def test_an_operator_that_is_killed_is_followed_by_one_that_goes_on(world: OperatorWorld) -> None:
    """Nothing is remembered but times; at whatever step it ends."""
    async with world.operator() as operator:
        await world.create(ARCHITECTURE_TAINTS, names.SINGLETON, {})
        await eventually(lambda: world.is_there(MUTATING_WEBHOOKS, names.ROLE))
        await eventually(lambda: tainted(world))
        await world.client.delete(ARCHITECTURE_TAINTS, names.SINGLETON)
        await eventually(lambda: world.is_gone(MUTATING_WEBHOOKS, names.ROLE))
        await operator.kill()
    async with world.operator():
        await eventually(lambda: world.is_gone(DEPLOYMENTS, names.ROLE, world.namespace))
        await eventually(lambda: world.is_gone(ARCHITECTURE_TAINTS, names.SINGLETON))
        assert await tainted(world) == {}
        assert await world.left() == []


@pytest.mark.req("TN-003")
async def test_what_is_deleted_or_edited_is_put_right(world: OperatorWorld) -> None:
    """As for placement's objects; and placement's policy does not touch them."""
    async with world.operator():
        await world.create(ARCHITECTURE_TAINTS, names.SINGLETON, {"state": "paused"})
        await eventually(lambda: world.is_there(DEPLOYMENTS, names.ROLE, world.namespace))
        change = MergePatch({"spec": {"replicas": 5}})
        await world.client.patch(
            DEPLOYMENTS, names.ROLE, change, namespace=world.namespace, field_manager="kubectl-edit"
        )

        async def two() -> bool:
            found = await world.client.get(DEPLOYMENTS, names.ROLE, namespace=world.namespace)
            return bool(found["spec"]["replicas"] == 2)

        await eventually(two)
        before = (await world.client.get(DEPLOYMENTS, names.ROLE, namespace=world.namespace))["metadata"]["uid"]
        await world.client.delete(DEPLOYMENTS, names.ROLE, namespace=world.namespace)

        async def again() -> bool:
            found = await world.client.get(DEPLOYMENTS, names.ROLE, namespace=world.namespace)
            return bool(found["metadata"]["uid"] != before)

        await eventually(again)
        await world.create(POLICIES, placement.SINGLETON, {"mode": "audit"})
        await removed(world)
        assert await world.left() == []
