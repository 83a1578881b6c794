"""The one patch that carries out the decision about a node (TN-024).

Taints are named by their index in the list as read, and the patch begins with a test of the resourceVersion: whoever
changed the node meanwhile makes it fail, so no foreign taint is ever moved or lost. Neither a PUT nor a server-side
apply could say that much, since the list is atomic. Pure.
"""

from typing import Any

from polyarch.kube.patches import Operation, add, pointer, remove, replace, test
from polyarch.objects import Node
from polyarch.taints.decide.node_taints import Kind, NodeDecision
from polyarch.taints.names import MANAGED_TAINTS_ANNOTATION
from polyarch.tolerations import Taint

_TAINTS = "/spec/taints"
_ANNOTATIONS = "/metadata/annotations"
_RECORD = pointer("metadata", "annotations", MANAGED_TAINTS_ANNOTATION)


def node_patch(node: Node, decision: NodeDecision) -> tuple[Operation, ...]:
    """The operations; empty if nothing is to be written. ``node`` is what was decided about."""
    if decision.kind is Kind.NONE:
        return ()
    return (
        test("/metadata/resourceVersion", node.metadata.resource_version),
        *_taints(node, decision),
        *_annotation(node, decision),
    )


def _taints(node: Node, decision: NodeDecision) -> list[Operation]:
    operations = []
    if decision.replaced is not None:
        operations.append(replace(f"{_TAINTS}/{decision.replaced.index}", _json(decision.replaced.taint)))
    operations += [remove(f"{_TAINTS}/{index}") for index in sorted(decision.removed, reverse=True)]
    if decision.appended is not None:
        taint = _json(decision.appended)
        operations.append(add(_TAINTS, [taint]) if node.spec.taints is None else add(f"{_TAINTS}/-", taint))
    return operations


def _annotation(node: Node, decision: NodeDecision) -> list[Operation]:
    if decision.record is None:
        return []
    if not decision.record:
        return [remove(_RECORD)]
    if node.metadata.annotations is None:
        return [add(_ANNOTATIONS, {MANAGED_TAINTS_ANNOTATION: decision.record})]
    return [add(_RECORD, decision.record)]


def _json(taint: Taint) -> dict[str, Any]:
    return {"key": taint.key, "value": taint.value, "effect": taint.effect}
