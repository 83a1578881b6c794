"""A sandbox whose nodes have NUMA cells, real or simulated, with an exporter on each; and whether what they publish is
what the kubelets account for in the files that they keep."""

import asyncio
import contextlib
import os
import signal
from collections.abc import Awaitable, Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from kubelet_accounts import KubeletAccounts, Zones
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
from polyarch.sandbox.kubelet_model.machine import Device, Node
from polyarch.sandbox.nodes import kubelet_files
from polyarch.sandbox.nodes.simulated_kubelet import STATE

SECONDS = 180.0
EVENTS = {"infoRefreshMode": "PeriodicAndEvents", "infoRefreshPeriod": "5s"}
Json = dict[str, Any]


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
    """An exporter on every node, by the documents of the operator."""
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

    def __init__(self, sandbox: Sandbox, client: Client, devices: Iterable[Device] | None = None) -> None:
        """``devices``: of real nodes those of their plugins, else those of the layout."""
        self.sandbox = sandbox
        self._client = client
        assert sandbox.state.settings.numa is not None
        self.model: Node = layout.node(sandbox.state.settings.numa)
        self.devices = self.model.machine.devices if devices is None else tuple(devices)

    def host(self, node: str) -> Path:
        own = self.sandbox.folder.root / "nodes" / node
        return own / ("machine" if self.sandbox.state.settings.real else "host")

    def kubelet(self, node: str) -> Path:
        """What is ``/var/lib/kubelet`` on the node."""
        own = self.sandbox.folder.root / "nodes" / node
        return own / ("lib/kubelet" if self.sandbox.state.settings.real else f"host/{STATE}")

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

    async def accounts(self, node: str) -> KubeletAccounts:
        """What the node's object ought to say. ValueError while a file is damaged."""
        pods = (await self._client.list(PODS, field_selector=f"spec.nodeName={node}")).items
        ended = {each["metadata"]["uid"] for each in pods if each["status"].get("phase") in {"Succeeded", "Failed"}}
        return KubeletAccounts(self.kubelet(node), self.host(node), devices=self.devices, ended=ended)

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
            accounts = await self.accounts(node)
            wanted = {"zones": accounts.zones, "costs": accounts.distances}
        except ValueError as problem:
            return {"damaged": str(problem)}
        topology = await self.topology(node)
        published = {"zones": zones_of(topology), "costs": costs_of(topology)}
        found: Json = {}
        if published != wanted:
            found = {"published": published, "accounted": wanted}
        pods = (await self._client.list(PODS, field_selector=f"spec.nodeName={node}")).items
        listed = [
            (pod["metadata"]["namespace"], pod["metadata"]["name"])
            for pod in pods
            if lasting(pod) & accounts.holding(pod["metadata"]["uid"])
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


def lasting(pod: Mapping[str, Any]) -> set[str]:
    """The containers that run as long as the pod: a kubelet lists no others, so the fingerprint has no others."""
    init = [each for each in pod["spec"].get("initContainers", ()) if each.get("restartPolicy") == "Always"]
    return {each["name"] for each in (*pod["spec"]["containers"], *init)}


def zones_of(topology: Mapping[str, Any]) -> Zones:
    names = ("capacity", "allocatable", "available")
    return {
        zone["name"]: {each["name"]: tuple(int(each[name]) for name in names) for each in zone["resources"]}  # type: ignore[misc]
        for zone in topology.get("zones", ())
    }


def costs_of(topology: Mapping[str, Any]) -> dict[str, dict[str, int]]:
    return {
        zone["name"]: {each["name"]: each["value"] for each in zone.get("costs", ())}
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
