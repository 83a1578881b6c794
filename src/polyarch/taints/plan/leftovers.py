"""What is ours in a cluster that taints are removed from: on nodes, pods and DaemonSets (TN-070 to TN-072).

Only what polyarch recorded, or what the caller says to adopt, is ours; everything else keeps its content and its order.
A toleration that was recorded and changed since is somebody else's by now. Pure.
"""

from collections.abc import Iterable
from typing import Final

import msgspec

from polyarch.kube.client.jsonpatch import Operation, pointer, remove, test
from polyarch.model.node import Node
from polyarch.model.pod import Pod
from polyarch.model.taint import Taint, Toleration
from polyarch.model.workload import DaemonSet
from polyarch.taints.api.settings import TaintSettings
from polyarch.taints.decide.node_taints import decide_node
from polyarch.taints.names import (
    ADDED_TOLERATIONS_ANNOTATION,
    GATE,
    GATED_LABEL,
    MIRROR_ANNOTATION,
    TOLERATIONS_ANNOTATION,
)
from polyarch.taints.plan.inventory import is_over

_TOLERATIONS: Final = "/spec/template/spec/tolerations"
_RECORD: Final = pointer("metadata", "annotations", ADDED_TOLERATIONS_ANNOTATION)


def owned_taints(node: Node, settings: TaintSettings) -> tuple[Taint, ...]:
    """The taints that a node loses."""
    present = node.spec.taints or []
    return tuple(present[at] for at in decide_node(node, settings, leaving=True).removed)


def is_marked(pod: Pod) -> bool:
    """It has our gate or our label."""
    gates = pod.spec.scheduling_gates or ()
    return GATED_LABEL in (pod.metadata.labels or {}) or any(gate.name == GATE for gate in gates)


def stripped(daemon_set: DaemonSet) -> tuple[Operation, ...]:
    """The patch that takes the recorded tolerations from a DaemonSet's template, and the record; empty without one."""
    text = (daemon_set.metadata.annotations or {}).get(ADDED_TOLERATIONS_ANNOTATION)
    if text is None:
        return ()
    return (
        test("/metadata/resourceVersion", daemon_set.metadata.resource_version),
        *(remove(f"{_TOLERATIONS}/{at}") for at in reversed(_recorded_places(daemon_set, text))),
        remove(_RECORD),
    )


def _recorded_places(daemon_set: DaemonSet, text: str) -> list[int]:
    """Where the recorded tolerations are; each record stands for one toleration, the last of several equal ones."""
    wanted = list(_parsed(text))
    found = []
    for at, each in reversed(list(enumerate(daemon_set.template.spec.tolerations or ()))):
        if each in wanted:
            wanted.remove(each)
            found.append(at)
    return sorted(found)


def _parsed(text: str) -> Iterable[Toleration]:
    """A record that cannot be read names nothing."""
    try:
        return msgspec.json.decode(text, type=list[Toleration])
    except msgspec.DecodeError:
        return ()


def is_evictable(pod: Pod, *, bare: bool = False) -> bool:
    """Whether a pod carries our tolerations and a controller replaces it without them; ``bare``: whether it is such a
    pod without an owner, which nobody replaces."""
    annotations = pod.metadata.annotations or {}
    if TOLERATIONS_ANNOTATION not in annotations or MIRROR_ANNOTATION in annotations or is_over(pod):
        return False
    owner = pod.metadata.controller
    if owner is None:
        return bare
    return not bare and owner.kind not in ("DaemonSet", "Node")
