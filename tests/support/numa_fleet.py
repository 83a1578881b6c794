"""A sandbox whose nodes have NUMA cells, with an exporter on each, deployed by the documents of the operator; and what
the modelled kubelets account for, read from the files that they keep."""

import asyncio
import contextlib
import os
import signal
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

from numa_cluster import planned

from polyarch.installation import wait
from polyarch.kube.client import Client
from polyarch.kube.errors import AlreadyExists, NotFound
from polyarch.kube.resources import CRDS, NAMESPACES, PODS, by_kind
from polyarch.names import DEFAULT_NAMESPACE
from polyarch.numa import fingerprint
from polyarch.numa.api.topology import TOPOLOGIES
from polyarch.numa.api.topology_crd import topology_crd
from polyarch.sandbox.cluster import Sandbox
from polyarch.sandbox.kubelet_model import cpu_manager, device_manager, layout, memory_manager
from polyarch.sandbox.kubelet_model.admission import ManagerStates
from polyarch.sandbox.kubelet_model.machine import Node
from polyarch.sandbox.nodes import kubelet_files
from polyarch.sandbox.nodes.kubelet_files import CorruptCheckpoint
from polyarch.sandbox.nodes.simulated_kubelet import STATE

SECONDS = 180.0
EVENTS = {"infoRefreshMode": "PeriodicAndEvents", "infoRefreshPeriod": "5s"}
Json = dict[str, Any]
Zones = dict[str, dict[str, tuple[int, int, int]]]
"""By zone and resource: capacity, allocatable, available."""


async def eventually(look: Callable[[], Awaitable[Any]], holds: Callable[[Any], object]) -> Any:
    """What was seen when it held; the last one is in the failure."""
    last: Any = None
    try:
        async with asyncio.timeout(SECONDS):
            while not holds(last := await look()):
                await asyncio.sleep(0.2)
    except TimeoutError:
        raise AssertionError(f"ended as {last}") from None
    return last


async def deploy(client: Client) -> None:
    """An exporter on every node."""
    await client.apply(CRDS, topology_crd())
    await wait.established(client, [topology_crd()["metadata"]["name"]])
    with contextlib.suppress(AlreadyExists):
        await client.create(NAMESPACES, {"metadata": {"name": DEFAULT_NAMESPACE}})
    group = {"poolName": "all", "nodeSelector": {"matchLabels": {"kubernetes.io/os": "linux"}}, "config": EVENTS}
    made = planned(group, has_own_authority=False)
    for document in made.documents or ():
        metadata = {name: each for name, each in document["metadata"].items() if name != "ownerReferences"}
        resource = by_kind(document["apiVersion"], document["kind"])
        await client.apply(resource, {**document, "metadata": metadata}, namespace=metadata.get("namespace", ""))


class Fleet:
    """The sandbox, and its nodes as the files in their folders tell."""

    def __init__(self, sandbox: Sandbox, client: Client) -> None:
        self.sandbox = sandbox
        self._client = client
        assert sandbox.state.settings.numa is not None
        self.model: Node = layout.node(sandbox.state.settings.numa)

    def host(self, node: str) -> Path:
        return self.sandbox.folder.root / "nodes" / node / "host"

    def held(self, node: str) -> ManagerStates:
        """Without pods that are over."""
        folder = self.host(node) / STATE
        active = {each.name for each in (folder / "pods").glob("*")}
        return ManagerStates(
            cpu_manager.forget(
                kubelet_files.read_cpus(self.model, (folder / kubelet_files.CPU_FILE).read_text()), active
            ),
            memory_manager.forget(
                kubelet_files.read_memory(self.model, (folder / kubelet_files.MEMORY_FILE).read_text()), active
            ),
            device_manager.forget(
                kubelet_files.read_devices(self.model, (folder / kubelet_files.DEVICES_FILE).read_text()), active
            ),
        )

    def account(self, node: str) -> Zones:
        """The zones that the node's object ought to have."""
        held, machine = self.held(node), self.model.machine
        exclusive = {
            cpu for by_container in held.cpus.held.values() for several in by_container.values() for cpu in several
        }
        free = cpu_manager.allocatable(self.model)
        zones: Zones = {}
        for cell in machine.cells:
            own = {cpu.id for cpu in machine.cpus if cpu.cell == cell.id}
            found = {"cpu": (len(own), len(own & free), len(own & free - exclusive))}
            for name, table in held.memory.cells[cell.id].tables.items():
                found[name] = (table.total, table.allocatable, table.free)
            for resource in machine.resources:
                ids = {device.id for device in machine.devices_of(resource) if cell.id in device.cells}
                found[resource] = (len(ids), len(ids), len(ids - held.devices.taken(resource)))
            zones[f"node-{cell.id}"] = found
        return zones

    def exclusive(self, node: str) -> set[str]:
        """The uids of pods that hold something."""
        held = self.held(node)
        return {*held.cpus.held, *held.memory.held, *held.devices.held}

    # -- what is published ---------------------------------------------------------------------------------------------

    async def topology(self, node: str) -> Json:
        try:
            return await self._client.get(TOPOLOGIES, node)
        except NotFound:
            return {}

    async def zones(self, node: str) -> Zones:
        return zones_of(await self.topology(node))

    async def follows(self, *nodes: str) -> None:
        """Wait until the objects of the nodes say what their kubelets account for, and name the same pods."""
        for node in nodes:

            async def difference(node: str = node) -> Json:
                return await self.difference(node)

            await eventually(difference, lambda found: not found)

    async def difference(self, node: str) -> Json:
        """Empty: none."""
        try:
            expected = self.account(node)
        except (CorruptCheckpoint, UnicodeDecodeError) as problem:
            return {"damaged": str(problem)}
        topology = await self.topology(node)
        published = zones_of(topology)
        found: Json = {}
        if published != expected:
            found = {"published": published, "accounted": expected}
        pods = (await self._client.list(PODS, field_selector=f"spec.nodeName={node}")).items
        exclusive = self.exclusive(node)
        listed = [
            (pod["metadata"]["namespace"], pod["metadata"]["name"])
            for pod in pods
            if pod["metadata"]["uid"] in exclusive
        ]
        verdict = fingerprint.check_fingerprint(attributes_of(topology).get("nodeTopologyPodsFingerprint", ""), listed)
        return found if verdict == "ok" else {**found, "fingerprint": verdict, "pods": listed}

    # -- what happens to nodes -----------------------------------------------------------------------------------------

    def stop_nodes(self) -> None:
        """Kill the process of all kubelets."""
        os.kill(self.sandbox.records()["nodes"].pid, signal.SIGKILL)

    async def start_nodes(self) -> None:
        await Sandbox.start(self.sandbox.state.settings, home=self.sandbox.folder.root.parent)

    async def exporter(self, node: str) -> Json:
        """The exporter's pod on a node."""
        selector = "name=resource-topology"
        pods = (await self._client.list(PODS, namespace=DEFAULT_NAMESPACE, label_selector=selector)).items
        return next((pod for pod in pods if pod["spec"].get("nodeName") == node), {})


def zones_of(topology: Mapping[str, Any]) -> Zones:
    names = ("capacity", "allocatable", "available")
    return {
        zone["name"]: {each["name"]: tuple(int(each[name]) for name in names) for each in zone["resources"]}  # type: ignore[misc]
        for zone in topology.get("zones", ())
    }


def attributes_of(topology: Mapping[str, Any]) -> dict[str, str]:
    return {each["name"]: each["value"] for each in topology.get("attributes", ())}


def conditions_of(pod: Mapping[str, Any]) -> dict[str, str]:
    return {each["type"]: each["status"] for each in pod.get("status", {}).get("conditions") or ()}


def pod(name: str, node: str, *, init: Mapping[str, str] | None = None, **limits: str) -> Json:
    """A Guaranteed pod on this node."""

    def container(name: str, limits: Mapping[str, str]) -> Json:
        named = {key.replace("nic", "example.com/nic"): value for key, value in limits.items()}
        return {"name": name, "image": "docker.io/library/nginx:1.27", "resources": {"limits": named}}

    spec: Json = {
        "nodeName": node,
        "terminationGracePeriodSeconds": 0,
        "tolerations": [{"operator": "Exists"}],
        "containers": [container("app", limits)],
    }
    if init is not None:
        spec["initContainers"] = [container("init", init)]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
