"""The Node objects of a sandbox: how many of which architecture, what they can hold, how they are labelled.

Pure: documents only.
"""

import datetime as dt
from collections.abc import Mapping
from typing import Any

import msgspec

from polyarch.sandbox.binaries.versions import KUBERNETES
from polyarch.sandbox.state import Numa, Settings, Taint

LABEL = "sandbox.polyarch.dev/node"
"""On every node of ours, and on nothing else: a node of an earlier, larger fleet is found by it and deleted."""
NUMA_ANNOTATION = "sandbox.polyarch.dev/numa"
NODE_PREFIX = "10.250"
DEFAULT_CPUS = 16
GIBIBYTE = 1024**3
MEMORY_PER_CPU = 4 * GIBIBYTE
MAXIMUM_PODS = 250
ZONES = ("zone-a", "zone-b", "zone-c")
LEASE_SECONDS = 40
"""As a kubelet's; the controller manager gives a node up 50 s after its last renewal."""


class NodePlan(msgspec.Struct, frozen=True):
    """One node to be."""

    name: str
    architecture: str
    number: int
    """Counts over the whole fleet: addresses come from it."""
    numa: Numa | None = None
    taints: tuple[Taint, ...] = ()

    @property
    def address(self) -> str:
        return f"{NODE_PREFIX}.{self.number // 250}.{self.number % 250 + 1}"

    @property
    def cpus(self) -> int:
        return self.numa.zones * self.numa.cpus if self.numa else DEFAULT_CPUS


def plan(settings: Settings) -> list[NodePlan]:
    """All nodes of the settings: ``amd64-1``, ``amd64-2``, ``arm64-1`` …"""
    plans: list[NodePlan] = []
    for architecture, count in settings.nodes.items():
        taints = tuple(taint for taint in settings.taints if taint.architecture in {architecture, "*"})
        plans += [
            NodePlan(f"{architecture}-{index}", architecture, len(plans) + index - 1, settings.numa, taints)
            for index in range(1, count + 1)
        ]
    return plans


def node(plan: NodePlan) -> dict[str, Any]:
    """What is created."""
    labels = {
        "kubernetes.io/arch": plan.architecture,
        "kubernetes.io/os": "linux",
        "kubernetes.io/hostname": plan.name,
        "beta.kubernetes.io/arch": plan.architecture,
        "beta.kubernetes.io/os": "linux",
        "node-role.kubernetes.io/worker": "",
        "topology.kubernetes.io/region": "sandbox",
        "topology.kubernetes.io/zone": ZONES[plan.number % len(ZONES)],
        LABEL: "",
    }
    metadata: dict[str, Any] = {"name": plan.name, "labels": labels}
    if plan.numa:
        metadata["annotations"] = {NUMA_ANNOTATION: f"{plan.numa.zones}x{plan.numa.cpus}"}
    spec: dict[str, Any] = {"providerID": f"polyarch-sandbox://{plan.name}"}
    if plan.taints:
        spec["taints"] = [{"key": taint.key, "value": taint.value, "effect": taint.effect} for taint in plan.taints]
    return {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": spec}


def status(plan: NodePlan, now: dt.datetime) -> dict[str, Any]:
    """What the kubelet reports: ready, its capacity, its architecture."""
    capacity = {
        "cpu": str(plan.cpus),
        "memory": f"{plan.cpus * MEMORY_PER_CPU // GIBIBYTE}Gi",
        "ephemeral-storage": "100Gi",
        "pods": str(MAXIMUM_PODS),
    }
    return {
        "capacity": capacity,
        "allocatable": capacity,
        "addresses": [
            {"type": "InternalIP", "address": plan.address},
            {"type": "Hostname", "address": plan.name},
        ],
        "conditions": [_condition(*row, now=now) for row in _CONDITIONS],
        "nodeInfo": {
            "architecture": plan.architecture,
            "operatingSystem": "linux",
            "osImage": "polyarch sandbox",
            "kernelVersion": "sandbox",
            "containerRuntimeVersion": "polyarch-sandbox://1",
            "kubeletVersion": f"v{KUBERNETES}",
            "kubeProxyVersion": "",
            "machineID": plan.name,
            "systemUUID": plan.name,
            "bootID": plan.name,
        },
    }


_CONDITIONS = (
    ("Ready", "True", "KubeletReady", "the sandbox's node is ready"),
    ("MemoryPressure", "False", "KubeletHasSufficientMemory", "the sandbox's node has memory"),
    ("DiskPressure", "False", "KubeletHasNoDiskPressure", "the sandbox's node has disk space"),
    ("PIDPressure", "False", "KubeletHasSufficientPID", "the sandbox's node has process ids"),
)


def _condition(type: str, status: str, reason: str, message: str, *, now: dt.datetime) -> Mapping[str, str]:
    at = timestamp(now)
    return {
        "type": type,
        "status": status,
        "reason": reason,
        "message": message,
        "lastHeartbeatTime": at,
        "lastTransitionTime": at,
    }


def lease(plan: NodePlan, now: dt.datetime) -> dict[str, Any]:
    """The Lease in ``kube-node-lease`` by which the controller manager knows that the node lives."""
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": plan.name},
        "spec": {
            "holderIdentity": plan.name,
            "leaseDurationSeconds": LEASE_SECONDS,
            "renewTime": now.strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        },
    }


def timestamp(now: dt.datetime) -> str:
    """metav1.Time."""
    return now.strftime("%Y-%m-%dT%H:%M:%SZ")
