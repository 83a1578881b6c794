"""What is ours in a cluster that taints are removed from: on nodes and on pods (TN-070 to TN-072).

Only what polyarch recorded, or what the caller says to adopt, is ours; everything else keeps its content and its order.
Pure.
"""

from typing import Final

from polyarch.objects import Node, Pod
from polyarch.taints.api.settings import TaintSettings
from polyarch.taints.decide.node_taints import decide_node
from polyarch.taints.names import GATE, GATED_LABEL, MIRROR_ANNOTATION, TOLERATIONS_ANNOTATION
from polyarch.taints.plan.inventory import is_over
from polyarch.tolerations import Taint

RECORDED_ONLY: Final = TaintSettings(ownership="recorded", state="removing")
"""Where the object is gone nobody knows the key: ours is what nodes have a record of."""


def owned_taints(node: Node, settings: TaintSettings) -> tuple[Taint, ...]:
    """The taints that a node loses."""
    present = node.spec.taints or []
    return tuple(present[at] for at in decide_node(node, settings, leaving=True).removed)


def is_marked(pod: Pod) -> bool:
    """It has our gate or our label."""
    gates = pod.spec.scheduling_gates or ()
    return GATED_LABEL in (pod.metadata.labels or {}) or any(gate.name == GATE for gate in gates)


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
