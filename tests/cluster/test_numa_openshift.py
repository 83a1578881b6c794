"""NUMA groups of MachineConfigPools, with kinds of OpenShift that take anything, in a control plane of their own."""

import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from numa_operated import create, opened, resource, served, state
from operator_world import OperatorWorld, eventually
from test_placement_openshift import definition

from polyarch.installation.operator import rights
from polyarch.kube.patches import MergePatch
from polyarch.kube.resources import CONFIGMAPS, CRDS, DAEMONSETS, NAMESPACES, Resource, by_kind
from polyarch.numa import names
from polyarch.numa.api.resources import OPERATORS
from polyarch.operator.components.numa_exporter_objects import CONSTRAINTS, MACHINE_CONFIGS
from polyarch.operator.components.numa_facts import API_SERVERS, CLUSTER_VERSIONS, INFRASTRUCTURES, POOLS
from polyarch.operator.components.numa_node_groups import HOSTED_NAMESPACE, KUBELET_CONFIGS
from polyarch.operator.settings import ClusterCapabilities, OperatorSettings
from polyarch.sandbox.cluster import Sandbox
from polyarch.sandbox.state import Settings

Json = dict[str, Any]
KINDS = (CLUSTER_VERSIONS, INFRASTRUCTURES, API_SERVERS, POOLS, KUBELET_CONFIGS, MACHINE_CONFIGS, CONSTRAINTS)
POOL = "worker"
DAEMON_SET = f"numaresourcesoperator-{POOL}"
MACHINE_CONFIG = f"51-numaresourcesoperator-{POOL}"


@pytest.fixture
async def openshift() -> AsyncIterator[Sandbox]:
    settings = Settings(name=f"numa-openshift-{os.getpid()}", nodes={"amd64": 1}, polyarch=False)
    sandbox = await Sandbox.start(settings, owner=os.getpid())
    yield sandbox
    await sandbox.delete()


@pytest.fixture
async def world(openshift: Sandbox, tmp_path: Path) -> AsyncIterator[OperatorWorld]:
    async with opened(openshift, tmp_path) as world:
        for kind in KINDS:
            await world.client.apply(CRDS, definition(kind))
            await eventually(lambda kind=kind: served(world, kind))
        for name in ("openshift-config", HOSTED_NAMESPACE):
            await world.client.apply(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        for document in rights(OperatorSettings(namespace=world.namespace), ClusterCapabilities(openshift=True)):
            kind = by_kind(document["apiVersion"], document["kind"])
            await world.client.apply(kind, document, namespace=document["metadata"].get("namespace", ""))
        await put(world, CLUSTER_VERSIONS, "version", {})
        await put(world, INFRASTRUCTURES, "cluster", {"status": {"controlPlaneTopology": "HighlyAvailable"}})
        yield world


async def put(world: OperatorWorld, kind: Resource, name: str, content: Json, **labels: str) -> None:
    metadata = {"name": name, "labels": labels}
    document = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, **content}
    await world.client.apply(kind, document, field_manager="tests")


async def kubelet(world: OperatorWorld) -> Json:
    """What the exporters of the pool are told of their kubelets."""
    found = await world.client.get(CONFIGMAPS, DAEMON_SET, namespace=world.namespace)
    told: Json = msgspec.json.decode(found["data"]["config.yaml"])["kubelet"]
    return told


async def digest(world: OperatorWorld) -> str:
    found = await world.client.get(DAEMONSETS, DAEMON_SET, namespace=world.namespace)
    return str(found["spec"]["template"]["metadata"]["annotations"][names.CONFIG_HASH])


@pytest.mark.req("NO-030", "NO-031", "NO-057", "NO-091", "NO-110", "NO-111", "NO-113", "NO-120")
async def test_pools_and_what_their_kubelets_are_told(world: OperatorWorld) -> None:
    """A KubeletConfig that comes and goes rolls the pods, a paused pool is told of, and the legacy policy waits for the
    machines; nothing is refused to the operator."""
    audit = world.audit()
    spec = {"nodeSelector": {"matchLabels": {"node-role.kubernetes.io/worker": ""}}, "paused": False}
    await put(world, POOLS, POOL, {"spec": spec, "status": {"conditions": []}}, tier="numa")
    async with world.operator():
        await create(world, [{"machineConfigPoolSelector": {"matchLabels": {"tier": "numa"}}}])
        await eventually(lambda: world.is_there(DAEMONSETS, DAEMON_SET))
        assert await kubelet(world) == {"topologyManagerPolicy": "none", "topologyManagerScope": "container"}

        async def constrained() -> bool:
            return len((await world.client.list(CONSTRAINTS)).items) == 2

        await eventually(constrained)
        before = await digest(world)
        chosen = {"topologyManagerPolicy": "single-numa-node", "topologyManagerScope": "pod"}
        selector = {"matchLabels": {"tier": "numa"}}
        await put(
            world, KUBELET_CONFIGS, "numa", {"spec": {"machineConfigPoolSelector": selector, "kubeletConfig": chosen}}
        )

        async def told() -> bool:
            return await kubelet(world) == chosen and await digest(world) != before

        await eventually(told)
        await world.client.delete(KUBELET_CONFIGS, "numa")

        async def by_default() -> bool:
            return (await kubelet(world))["topologyManagerPolicy"] == "none" and await digest(world) == before

        await eventually(by_default)
        await put(world, POOLS, POOL, {"spec": {**spec, "paused": True}, "status": {"conditions": []}}, tier="numa")

        async def paused() -> bool:
            several = (await resource(world))["status"]["conditions"]
            (found,) = [each for each in several if each["type"] == "MachineConfigPoolPaused"]
            return found["status"] == "True" and POOL in found["message"]

        await eventually(paused)
        legacy = {names.SELINUX_POLICY: "custom"}
        group = {"machineConfigPoolSelector": selector, "annotations": legacy}
        await world.client.patch(OPERATORS, names.OPERATOR_SINGLETON, MergePatch({"spec": {"nodeGroups": [group]}}))
        await eventually(lambda: world.is_there(MACHINE_CONFIGS, MACHINE_CONFIG))

        async def waits() -> bool:
            return (await state(world))[:2] == ("Progressing", "MachineConfigPoolIsUpdating")

        await eventually(waits)
        without = {"machineConfigPoolSelector": selector, "annotations": None}
        await world.client.patch(OPERATORS, names.OPERATOR_SINGLETON, MergePatch({"spec": {"nodeGroups": [without]}}))
        await eventually(lambda: world.is_gone(MACHINE_CONFIGS, MACHINE_CONFIG))
    assert await audit.refused() == []
