"""What a plan and a removal know of a cluster: its nodes, its pods, and every template that pods are made of. Pure.

A template is judged as the pod that its controller would create. What another template makes is left out, so that each
workload counts once: a Deployment and not its ReplicaSets, a CronJob and not its Jobs. Objects of kinds that nobody
here knows (an Argo Rollout, say) count by the ReplicaSets or pods that they own.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import msgspec

from polyarch.images.node_fit import NodeView, RuntimeClasses
from polyarch.objects import CronJob, DaemonSet, LocalObjectReference, Node, ObjectKey, ObjectMeta, Pod, Workload
from polyarch.platforms import KNOWN_ARCHITECTURES, NodePlatform
from polyarch.taints.names import GATE, GATED_LABEL, MIRROR_ANNOTATION, TOLERATIONS_ANNOTATION
from polyarch.taints.node_rules import architecture_of, decide_node
from polyarch.taints.settings import TaintSettings
from polyarch.tolerations import Taint

# -- the inventory -----------------------------------------------------------------------------------------------------

KINDS: Final = ("DaemonSet", "Deployment", "StatefulSet", "Job", "CronJob", "ReplicaSet", "Pod")
"""Of templates, in the order in which they are listed."""
_CONTROLLERS: Final = frozenset(
    {
        *(("apps", kind) for kind in ("DaemonSet", "Deployment", "StatefulSet", "ReplicaSet")),
        *(("batch", kind) for kind in ("Job", "CronJob")),
        ("", "Node"),
    }
)
"""Group and kind of what makes pods of a template that is listed, or (Node) pods that no API server can change."""
_DONE: Final = ("Complete", "Failed")
_PHASES_DONE: Final = ("Succeeded", "Failed")


class Template(msgspec.Struct, frozen=True):
    """A pod that will be created, or a bare one that is there, and what makes it."""

    kind: str
    key: ObjectKey
    pod: Pod
    workload: DaemonSet | None = None
    """The object itself, if it is one whose template is written."""
    hosts: frozenset[NodePlatform] | None = None
    """Of a DaemonSet, the platforms of the nodes on which it has pods now."""

    @property
    def is_daemon_set(self) -> bool:
        return self.workload is not None

    def __str__(self) -> str:
        return f"{self.kind} {self.key}"


class ClusterSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """Nodes, workloads and pods of a cluster, each list read once."""

    nodes: tuple[Node, ...] = ()
    pods: tuple[Pod, ...] = ()
    daemon_sets: tuple[DaemonSet, ...] = ()
    workloads: Mapping[str, tuple[Workload, ...]] = {}
    """Deployments, StatefulSets, ReplicaSets and Jobs, by kind."""
    cron_jobs: tuple[CronJob, ...] = ()
    namespaces: Mapping[str, Mapping[str, str]] = {}
    """The labels of each."""
    accounts: Mapping[ObjectKey, tuple[str, ...]] = {}
    """The pull secrets of each ServiceAccount that has any."""
    runtime_classes: RuntimeClasses | None = None
    """None: nobody knows which there are."""

    @property
    def architectures(self) -> frozenset[str]:
        """The architectures of the nodes."""
        return frozenset(filter(None, map(architecture_of, self.nodes)))

    def labels(self, namespace: str) -> Mapping[str, str]:
        return self.namespaces.get(namespace, {})

    def templates(self) -> tuple[Template, ...]:
        """Every template and bare pod, by kind and name."""
        found = sorted(self._templates(), key=lambda each: (KINDS.index(each.kind), each.key))
        return tuple(self._with_secrets(each) for each in found)

    def _templates(self) -> Iterator[Template]:
        hosts = self._hosts()
        for each in self.daemon_sets:
            here = frozenset(hosts.get(each.metadata.uid, ()))
            pod = each.template.pod(each.metadata, kind="DaemonSet")
            yield Template("DaemonSet", each.metadata.key, pod, each, here)
        for kind, workloads in self.workloads.items():
            for workload in workloads:
                if not _is_made(workload.metadata) and not _has_ended(kind, workload):
                    yield Template(kind, workload.metadata.key, workload.template.pod(workload.metadata, kind=kind))
        for job in self.cron_jobs:
            yield Template("CronJob", job.metadata.key, job.template.pod(job.metadata, kind="Job"))
        for pod in self.pods:
            if not _is_made(pod.metadata) and not is_terminal(pod):
                yield Template("Pod", pod.metadata.key, _unbound(pod))

    def _hosts(self) -> dict[str, set[NodePlatform]]:
        """The platforms of the nodes on which DaemonSets have pods, by uid."""
        platforms = {node.metadata.name: NodeView.of(node).platform for node in self.nodes}
        found: dict[str, set[NodePlatform]] = {}
        for pod in self.pods:
            owner = pod.metadata.controller
            here = platforms.get(pod.spec.node_name)
            if owner is not None and owner.kind == "DaemonSet" and here is not None and not is_terminal(pod):
                found.setdefault(owner.uid, set()).add(here)
        return found

    def _with_secrets(self, template: Template) -> Template:
        """A pod that names no pull secret gets those of its ServiceAccount when it is created."""
        spec = template.pod.spec
        account = ObjectKey(template.key.namespace, spec.service_account_name or "default")
        secrets = self.accounts.get(account)
        if spec.image_pull_secrets or not secrets:
            return template
        spec = msgspec.structs.replace(spec, image_pull_secrets=[LocalObjectReference(name) for name in secrets])
        return msgspec.structs.replace(template, pod=msgspec.structs.replace(template.pod, spec=spec))


def is_terminal(pod: Pod) -> bool:
    """Nothing of the pod will run again."""
    ended = pod.status is not None and pod.status.phase in _PHASES_DONE
    return ended or pod.metadata.deletion_timestamp is not None


def unscheduled(pods: Iterable[Pod]) -> tuple[Pod, ...]:
    """Those that wait for a node."""
    return tuple(pod for pod in pods if not pod.spec.node_name and not is_terminal(pod))


def _is_made(metadata: ObjectMeta) -> bool:
    """Another template that is listed makes it."""
    owner = metadata.controller
    if owner is None:
        return False
    return (owner.api_version.rpartition("/")[0], owner.kind) in _CONTROLLERS


def _has_ended(kind: str, workload: Workload) -> bool:
    """It will create no pod again: a Job that is done, an old revision."""
    if kind == "Job":
        return any(each.type in _DONE and each.status == "True" for each in workload.status.conditions or ())
    return kind == "ReplicaSet" and workload.spec.replicas == 0


def _unbound(pod: Pod) -> Pod:
    """As it was before it was scheduled: the question is what would become of it now."""
    if not pod.spec.node_name:
        return pod
    return msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, node_name=""))


# -- what is ours on nodes and pods ------------------------------------------------------------------------------------
# Only what polyarch recorded, or what the caller says to adopt, is ours; everything else keeps its content and its
# order.

RECORDED_ONLY: Final = TaintSettings(ownership="recorded", state="removing")
"""Where the object is gone nobody knows the key: ours is what nodes have a record of."""


def owned_taints(node: Node, settings: TaintSettings) -> tuple[Taint, ...]:
    """The taints that a node loses."""
    present = node.spec.taints or []
    return tuple(present[at] for at in decide_node(node, settings, leaving=True).removed)


def foreign_taints(node: Node, settings: TaintSettings) -> tuple[Taint, ...]:
    """The taints with the key and an architecture that a node keeps, since polyarch has no record of them."""
    ours = owned_taints(node, settings)
    return tuple(
        taint
        for taint in node.spec.taints or ()
        if taint.key == settings.key and taint.value in KNOWN_ARCHITECTURES and taint not in ours
    )


def is_marked(pod: Pod) -> bool:
    """It has our gate or our label."""
    gates = pod.spec.scheduling_gates or ()
    return GATED_LABEL in (pod.metadata.labels or {}) or any(gate.name == GATE for gate in gates)


def is_evictable(pod: Pod, *, bare: bool = False) -> bool:
    """Whether a pod carries our tolerations and a controller replaces it without them; ``bare``: whether it is such a
    pod without an owner, which nobody replaces."""
    annotations = pod.metadata.annotations or {}
    if TOLERATIONS_ANNOTATION not in annotations or MIRROR_ANNOTATION in annotations or is_terminal(pod):
        return False
    owner = pod.metadata.controller
    if owner is None:
        return bare
    return not bare and owner.kind not in ("DaemonSet", "Node")
