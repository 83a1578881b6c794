"""The Kubernetes events about nodes, as values; the caller posts them (TN-020, TN-023, TN-024). Pure."""

from enum import StrEnum
from typing import Final, Literal

import msgspec

from polyarch.objects import Node
from polyarch.taints.decide.node_taints import Kind, NodeDecision, Reason
from polyarch.tolerations import Taint

ACTION: Final = "Taint"


class NodeEventReason(StrEnum):
    """Reasons of events whose object is a node."""

    APPLIED = "ArchitectureTaintApplied"
    CORRECTED = "ArchitectureTaintCorrected"
    REMOVED = "ArchitectureTaintRemoved"
    MISMATCH = "NodeArchitectureMismatch"
    UNKNOWN = "NodeArchitectureUnknown"
    FOREIGN = "ForeignArchitectureTaint"
    REFUSED = "ArchitectureTaintRefused"
    """The API server does not accept the write."""


class NodeEvent(msgspec.Struct, frozen=True, gc=False):
    """One event about a node."""

    type: Literal["Normal", "Warning"]
    reason: NodeEventReason
    note: str


_WRITTEN: Final = {
    Kind.APPLY: NodeEventReason.APPLIED,
    Kind.CORRECT: NodeEventReason.CORRECTED,
    Kind.REMOVE: NodeEventReason.REMOVED,
}


def written(node: Node, decision: NodeDecision) -> NodeEvent | None:
    """The event after the write, from what to what; none if only the record of a taint that is gone was cleared."""
    before = node.spec.taints or []
    gone = [before[at] for at in decision.removed]
    if decision.replaced is not None:
        gone.insert(0, before[decision.replaced.index])
    match decision.kind:
        case Kind.APPLY:
            note = f"Taint {decision.appended} added."
        case Kind.CORRECT if decision.replaced is not None:
            note = f"Taint {_listed(gone)} replaced by {decision.desired}."
        case Kind.CORRECT:
            note = f"Taint {_listed(gone)} removed: the node keeps {decision.desired}."
        case Kind.REMOVE if gone:
            note = f"Taint {_listed(gone)} removed: {decision.message}."
        case _:
            return None
    return NodeEvent("Normal", _WRITTEN[decision.kind], note)


def warnings(decision: NodeDecision) -> tuple[NodeEvent, ...]:
    """What somebody has to look at on this node, whether or not anything is written."""
    found = []
    if decision.mismatch:
        note = (
            f"Label kubernetes.io/arch says {decision.mismatch}, the kubelet reports {decision.architecture or 'none'}:"
            " the kubelet's word is taken. Pods that select nodes by the label may fail here; correct the label."
        )
        found.append(NodeEvent("Warning", NodeEventReason.MISMATCH, note))
    if decision.reason is Reason.UNKNOWN:
        found.append(NodeEvent("Warning", NodeEventReason.UNKNOWN, f"No taint: {decision.message}."))
    if decision.reason is Reason.FOREIGN:
        found.append(NodeEvent("Warning", NodeEventReason.FOREIGN, f"No taint: {decision.message}."))
    return tuple(found)


def refused(decision: NodeDecision, error: str) -> NodeEvent:
    """The API server, a webhook or a policy does not accept the write; it is tried again."""
    note = f"Taints not changed, although {decision.message}: {error}"
    return NodeEvent("Warning", NodeEventReason.REFUSED, note)


def _listed(taints: list[Taint]) -> str:
    return ", ".join(str(taint) for taint in taints)
