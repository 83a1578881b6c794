"""NUMA in a cluster in which the operator runs: objects as users and exporters make them, and what became of them."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from operator_world import OperatorWorld, eventually

from polyarch.kube.errors import NotFound
from polyarch.kube.patches import MergePatch
from polyarch.kube.resources import (
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    CONFIGMAPS,
    CRDS,
    DAEMONSETS,
    DEPLOYMENTS,
    NAMESPACES,
    NETWORK_POLICIES,
    NODES,
    ROLE_BINDINGS,
    SERVICE_ACCOUNTS,
    SERVICES,
    VALIDATING_POLICIES,
    VALIDATING_POLICY_BINDINGS,
    Resource,
)
from polyarch.names import NUMA_EXPORTER, NUMA_SCHEDULER, OPERAND_LABEL
from polyarch.numa import names
from polyarch.numa.api import crds
from polyarch.numa.api.resources import OPERATORS, SCHEDULERS
from polyarch.numa.api.topology import TOPOLOGIES
from polyarch.sandbox.cluster import Sandbox

Json = dict[str, Any]
GROUP = "telco"
ROLE = f"node-role.kubernetes.io/{GROUP}"
"""Nodes of the sandbox are workers already."""
DAEMON_SET = f"numaresourcesoperator-{GROUP}"
PRIVILEGED = {"pod-security.kubernetes.io/enforce": "privileged"}
KINDS = (
    DAEMONSETS,
    DEPLOYMENTS,
    CONFIGMAPS,
    SERVICES,
    SERVICE_ACCOUNTS,
    NETWORK_POLICIES,
    ROLE_BINDINGS,
    CLUSTER_ROLES,
    CLUSTER_ROLE_BINDINGS,
    VALIDATING_POLICIES,
    VALIDATING_POLICY_BINDINGS,
)


@asynccontextmanager
async def opened(sandbox: Sandbox, folder: Path) -> AsyncIterator[OperatorWorld]:
    """A world with the definitions of NUMA and a namespace of the level that exporters need."""
    async with OperatorWorld.opened(sandbox, folder) as world:
        await cleared(world)
        for document in crds.crds():
            await world.client.apply(CRDS, document)
        for kind in (OPERATORS, SCHEDULERS):
            await eventually(lambda kind=kind: served(world, kind))
        home = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": world.namespace, "labels": PRIVILEGED}}
        await world.client.apply(NAMESPACES, home, field_manager="tests")
        yield world
        await cleared(world)


async def served(world: OperatorWorld, kind: Resource) -> bool:
    await world.client.list(kind)
    return True


async def cleared(world: OperatorWorld) -> None:
    """What one of these tests has left."""
    for kind in (OPERATORS, SCHEDULERS):
        with suppress(NotFound):
            for each in (await world.client.list(kind)).items:
                await world.delete(kind, each["metadata"]["name"])
    with suppress(NotFound):
        for each in (await world.client.list(TOPOLOGIES)).items:
            await world.delete(TOPOLOGIES, each["metadata"]["name"])
    for kind in KINDS[-4:]:
        for name in (await objects(world, kind, NUMA_EXPORTER)) + (await objects(world, kind, NUMA_SCHEDULER)):
            await world.delete(kind, name)
    for node in (await world.client.list(NODES)).items:
        wrong = {key: None for key in node["metadata"]["labels"] if key == ROLE}
        if wrong:
            await world.client.patch(NODES, node["metadata"]["name"], MergePatch({"metadata": {"labels": wrong}}))


async def objects(world: OperatorWorld, kind: Resource, part: str = NUMA_EXPORTER) -> list[str]:
    where = world.namespace if kind.namespaced else ""
    listed = await world.client.list(kind, namespace=where, label_selector=f"{OPERAND_LABEL}={part}")
    return sorted(each["metadata"]["name"] for each in listed.items)


async def resource(world: OperatorWorld, kind: Resource = OPERATORS) -> Json:
    name = names.OPERATOR_SINGLETON if kind is OPERATORS else names.SCHEDULER_SINGLETON
    return await world.client.get(kind, name)


async def state(world: OperatorWorld, kind: Resource = OPERATORS, name: str = "") -> tuple[str, str, str]:
    """Which of the three states holds, with reason and message; empty before there is one."""
    found = await world.client.get(kind, name) if name else await resource(world, kind)
    held = [
        each
        for each in found.get("status", {}).get("conditions", ())
        if each["type"] in ("Available", "Progressing", "Degraded") and each["status"] == "True"
    ]
    assert len(held) <= 1, held
    return (held[0]["type"], held[0]["reason"], held[0]["message"]) if held else ("", "", "")


async def label(world: OperatorWorld, nodes: int) -> list[str]:
    """That many nodes get a role."""
    chosen = [each["metadata"]["name"] for each in (await world.client.list(NODES)).items][:nodes]
    for name in chosen:
        await world.client.patch(NODES, name, MergePatch({"metadata": {"labels": {ROLE: ""}}}))
    return chosen


async def create(world: OperatorWorld, groups: list[Json], *, version: str = "v1", **metadata: Any) -> Json:
    kind = Resource(OPERATORS.group, version, OPERATORS.plural, OPERATORS.kind, namespaced=False)
    return await world.create(kind, names.OPERATOR_SINGLETON, {"nodeGroups": groups}, **metadata)


async def topology(world: OperatorWorld, node: str, group: str | None) -> None:
    """As an exporter writes it."""
    labels = {names.NODE_GROUP_LABEL: group} if group is not None else {}
    zone = {"name": "node-0", "type": "Node", "resources": []}
    document = {
        "apiVersion": TOPOLOGIES.api_version,
        "kind": TOPOLOGIES.kind,
        "metadata": {"name": node, "labels": labels},
        "zones": [zone],
    }
    await world.client.apply(TOPOLOGIES, document, field_manager="tests")


async def published(world: OperatorWorld) -> list[str]:
    with suppress(NotFound):
        return sorted(each["metadata"]["name"] for each in (await world.client.list(TOPOLOGIES)).items)
    return []
