"""The Node objects of a sandbox: names, architectures, labels, taints, capacity. Pure: documents only."""

import datetime as dt
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

import msgspec

from polyarch.objects import ObjectMeta
from polyarch.sandbox.kubelet_model import layout, machine
from polyarch.sandbox.kubelet_model.layout import NumaLayout
from polyarch.sandbox.kubelet_model.machine import Node as KubeletNode
from polyarch.sandbox.kubelet_model.requests import BARE_NODE, NodeObject
from polyarch.sandbox.network import KUBELET_PORT, node_address
from polyarch.sandbox.nodes.pods import Condition
from polyarch.sandbox.state import NodeBatch, Settings, Taint, joined
from polyarch.sandbox.versions import KUBERNETES
from polyarch.tolerations import Taint as NodeTaint

NODE_LABEL = "sandbox.polyarch.dev/node"
"""On every node of the sandbox and no other: it finds the nodes of an earlier, larger fleet, to delete them."""
LOST_ANNOTATION = "sandbox.polyarch.dev/lost"
"""With any value, the node is cut off: its kubelet is silent, and what runs on it answers nobody."""
NUMA_ANNOTATION = "sandbox.polyarch.dev/numa"
TAINTS_ANNOTATION = "sandbox.polyarch.dev/taints"
"""The taints that the sandbox set, ``KEY[=VALUE]:EFFECT,…``; every other taint of the node was set by somebody else."""
NOT_READY_TAINT = "node.kubernetes.io/not-ready"
DEFAULT_CPUS = 16
PLAIN_NODE = KubeletNode(
    machine.Machine(
        cells=(machine.SimulatedZone(id=0, memory=DEFAULT_CPUS * layout.MEMORY_PER_CPU),),
        cpus=tuple(machine.Cpu(number, core=number, socket=0, cell=0) for number in range(DEFAULT_CPUS)),
    ),
    machine.Configuration(),
)
"""Of nodes without ``--numa``."""
ZONES = ("zone-a", "zone-b", "zone-c")
RUNTIME_HANDLERS = ("", "runc")
"""Of the container runtime: the default one, which has its own name, too."""
LEASE_SECONDS = 40
"""A kubelet's value; the controller manager marks a node unreachable 50 s after its last renewal."""


class NodePlan(msgspec.Struct, frozen=True):
    """One node as configured."""

    name: str
    architecture: str
    number: int
    """Number within the whole fleet; the node's address and zone are derived from it."""
    numa: NumaLayout | None = None
    taints: tuple[Taint, ...] = ()
    register_taints: tuple[Taint, ...] = ()
    kubernetes: str = KUBERNETES
    """Version of its kubelet."""

    @property
    def address(self) -> str:
        return node_address(self.number)

    @property
    def model(self) -> KubeletNode:
        """Its machine and the settings of its kubelet; without cells, a kubelet without managers."""
        return layout.node(self.numa) if self.numa else PLAIN_NODE


class NodeSpec(msgspec.Struct, frozen=True, gc=False):
    """Taints stay documents, so that their unknown fields (``timeAdded``) are preserved in a patch."""

    taints: list[dict[str, Any]] | None = None


class NodeSystemInfo(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    kubelet_version: str = ""


class NodeStatus(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    conditions: list[Condition] | None = None
    capacity: dict[str, str] | None = None
    allocatable: dict[str, str] | None = None
    node_info: NodeSystemInfo = NodeSystemInfo()


class Node(msgspec.Struct, frozen=True, gc=False):
    """core/v1 Node, reduced to the fields that the sandbox compares with the plan."""

    metadata: ObjectMeta = ObjectMeta()
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()

    @property
    def is_lost(self) -> bool:
        return LOST_ANNOTATION in (self.metadata.annotations or {})

    @property
    def is_ready(self) -> bool:
        return any(each.type == "Ready" and each.status == "True" for each in self.status.conditions or ())

    @property
    def takes_pods(self) -> bool:
        """Ready, and without the taint that every new node has at first."""
        return self.is_ready and all(each.get("key") != NOT_READY_TAINT for each in self.spec.taints or ())


def node_object(node: Node | None) -> NodeObject:
    """What the node's kubelet sees of it; nothing before it has registered."""
    if node is None:
        return BARE_NODE
    taints = tuple(
        NodeTaint(each.get("key", ""), each.get("value", ""), each.get("effect", "")) for each in node.spec.taints or ()
    )
    return NodeObject(name=node.metadata.name, labels=node.metadata.labels or {}, taints=taints)


def node_plans(settings: Settings, fleet: Sequence[NodeBatch] = ()) -> list[NodePlan]:
    """All nodes of the settings: ``amd64-1``, ``amd64-2``, ``arm64-1`` …, numbered in the order in which they joined
    the fleet. Of two taints with the same key and effect the later one wins, because a node can have only one."""
    numbers = _numbers(joined(fleet, settings.nodes))
    plans: list[NodePlan] = []
    version = settings.kubernetes_version
    for architecture, count in settings.nodes.items():
        taints = _unique(settings.taints, architecture)
        at_first = _unique((*settings.register_taints, *taints), architecture)
        plans += [
            NodePlan(f"{architecture}-{index + 1}", architecture, number, settings.numa, taints, at_first, version)
            for index, number in enumerate(numbers.get(architecture, [])[:count])
        ]
    return plans


def _numbers(fleet: Sequence[NodeBatch]) -> dict[str, list[int]]:
    """The numbers of the nodes of each architecture."""
    numbers: dict[str, list[int]] = {}
    start = 0
    for batch in fleet:
        numbers.setdefault(batch.architecture, []).extend(range(start, start + batch.count))
        start += batch.count
    return numbers


def _unique(taints: Sequence[Taint], architecture: str) -> tuple[Taint, ...]:
    wanted = {(taint.key, taint.effect): taint for taint in taints if taint.architecture in {architecture, "*"}}
    return (*wanted.values(),)


def node_document(plan: NodePlan, now: dt.datetime) -> dict[str, Any]:
    """The Node object as a kubelet registers itself: with its labels, taints and a status that is not ready yet."""
    annotations = {name: value for name, value in _annotations(plan).items() if value is not None}
    metadata: dict[str, Any] = {"name": plan.name, "labels": _labels(plan)}
    if annotations:
        metadata["annotations"] = annotations
    spec: dict[str, Any] = {"providerID": f"polyarch-sandbox://{plan.name}"}
    if plan.register_taints:
        spec["taints"] = [_taint(taint) for taint in plan.register_taints]
    first = node_status(plan, now, ready=False)
    return {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": spec, "status": first}


def node_patch(plan: NodePlan, there: Node) -> dict[str, Any] | None:
    """The merge patch that makes a node match its plan; None if it does.

    Taints are patched only if the configured ones differ from those that the sandbox set before: the former ones are
    removed, those set by others stay. A taint that somebody removed by hand is not restored.
    """
    labels, annotations = there.metadata.labels or {}, there.metadata.annotations or {}
    new_labels = {name: value for name, value in _labels(plan).items() if labels.get(name) != value}
    new_annotations = {name: value for name, value in _annotations(plan).items() if annotations.get(name) != value}
    if not new_labels and not new_annotations:
        return None
    metadata: dict[str, Any] = {"resourceVersion": there.metadata.resource_version}
    document: dict[str, Any] = {"metadata": {**metadata, "labels": new_labels, "annotations": new_annotations}}
    if TAINTS_ANNOTATION in new_annotations:
        before = annotations.get(TAINTS_ANNOTATION, "")
        document["spec"] = {"taints": _taints(plan.taints, there.spec.taints or (), before)}
    return document


def _taints(wanted: Sequence[Taint], there: Sequence[dict[str, Any]], before: str) -> list[dict[str, Any]]:
    ours = {_identity(text) for text in before.split(",") if text} | {(taint.key, taint.effect) for taint in wanted}
    foreign = [taint for taint in there if (taint.get("key"), taint.get("effect")) not in ours]
    return [*foreign, *(_taint(taint) for taint in wanted)]


def _identity(text: str) -> tuple[str, str]:
    """Key and effect of ``KEY[=VALUE]:EFFECT``; together they identify a taint of a node."""
    name, _, effect = text.rpartition(":")
    return name.partition("=")[0], effect


def _taint(taint: Taint) -> dict[str, Any]:
    return {"key": taint.key, "value": taint.value, "effect": taint.effect}


def _labels(plan: NodePlan) -> dict[str, str]:
    return {
        "kubernetes.io/arch": plan.architecture,
        "kubernetes.io/os": "linux",
        "kubernetes.io/hostname": plan.name,
        "beta.kubernetes.io/arch": plan.architecture,
        "beta.kubernetes.io/os": "linux",
        "node-role.kubernetes.io/worker": "",
        "topology.kubernetes.io/region": "sandbox",
        "topology.kubernetes.io/zone": ZONES[plan.number % len(ZONES)],
        NODE_LABEL: "",
    }


def _annotations(plan: NodePlan) -> dict[str, str | None]:
    """Annotations of the node; None: the node must not have it."""
    texts = (
        f"{each.key}={each.value}:{each.effect}" if each.value else f"{each.key}:{each.effect}" for each in plan.taints
    )
    return {
        NUMA_ANNOTATION: plan.numa.size if plan.numa else None,
        TAINTS_ANNOTATION: ",".join(texts) or None,
    }


def node_status(plan: NodePlan, now: dt.datetime, *, ready: bool = True) -> dict[str, Any]:
    """The status that a kubelet reports: conditions, capacity, addresses, architecture."""
    return {
        **_resources(plan),
        "addresses": [
            {"type": "InternalIP", "address": plan.address},
            {"type": "Hostname", "address": plan.name},
        ],
        "runtimeHandlers": [
            {"name": name, "features": {"recursiveReadOnlyMounts": True, "userNamespaces": True}}
            for name in RUNTIME_HANDLERS
        ],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": KUBELET_PORT}},
        "conditions": [_condition(*row, now=now) for row in (_READY if ready else _STARTING, *_PRESSURES)],
        "nodeInfo": {
            "architecture": plan.architecture,
            "operatingSystem": "linux",
            "osImage": "polyarch sandbox",
            "kernelVersion": "sandbox",
            "containerRuntimeVersion": "polyarch-sandbox://1",
            "kubeletVersion": f"v{plan.kubernetes}",
            "kubeProxyVersion": "",
            "machineID": plan.name,
            "systemUUID": plan.name,
            "bootID": plan.name,
        },
    }


def reports_plan(plan: NodePlan, there: Node) -> bool:
    """Whether the node says that it has the resources and the kubelet that its plan gives it."""
    planned, status = _resources(plan), there.status
    reported = {"capacity": status.capacity or {}, "allocatable": status.allocatable or {}}
    has_resources = all(planned[each].items() <= reported[each].items() for each in planned)
    return has_resources and not former_pages(plan, there) and status.node_info.kubelet_version == f"v{plan.kubernetes}"


def former_pages(plan: NodePlan, there: Node) -> dict[str, None]:
    """Huge pages that the node reports and has no more, to be merged into its resources. Other resources may have
    been added by others."""
    planned = _resources(plan)["capacity"]
    reported = {**(there.status.capacity or {}), **(there.status.allocatable or {})}
    return {name: None for name in sorted(reported) if name.startswith(machine.PAGES) and name not in planned}


def _resources(plan: NodePlan) -> dict[str, dict[str, str]]:
    model = plan.model
    return {"capacity": _amounts(machine.capacity(model)), "allocatable": _amounts(machine.allocatable(model))}


def _amounts(amounts: Mapping[str, Fraction]) -> dict[str, str]:
    """In the spelling in which the API server gives them back, so that they can be compared."""
    return {name: _spelled(int(amount), is_size=amount >= layout.GIBIBYTE) for name, amount in amounts.items()}


def _spelled(amount: int, *, is_size: bool) -> str:
    step, suffixes = (1024, ("", "Ki", "Mi", "Gi", "Ti")) if is_size else (1000, ("", "k", "M"))
    for suffix in suffixes[:-1]:
        if not amount or amount % step:
            return f"{amount}{suffix}"
        amount //= step
    return f"{amount}{suffixes[-1]}"


_STARTING = ("Ready", "False", "KubeletNotReady", "the sandbox's node is starting")
_READY = ("Ready", "True", "KubeletReady", "the sandbox's node is ready")
_PRESSURES = (
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


def lease_document(plan: NodePlan, now: dt.datetime) -> dict[str, Any]:
    """The Lease in ``kube-node-lease`` that tells the controller manager that the node is alive."""
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
    """A time as metav1.Time."""
    return now.strftime("%Y-%m-%dT%H:%M:%SZ")
