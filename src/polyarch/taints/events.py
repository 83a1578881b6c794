"""What people are told about decisions: events about pods, templates and nodes, and ``polyarch explain``. Pure.

Events are values, which the caller posts. All events about pods are Warnings: ordinary success has no event. An event
is due once per object and ``cause``, so that a pod that is decided a hundred times while a registry is down has one.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from typing import Any, Final, Literal, NamedTuple

import msgspec

from polyarch.images.pod_images import failed
from polyarch.objects import Node
from polyarch.taints.decision import PodDecision, Reason, TolerationOutcome
from polyarch.taints.node_rules import Kind, NodeDecision, NodeReason, decide_node
from polyarch.taints.pod_rules import Case, ImageChange
from polyarch.taints.settings import TaintSettings
from polyarch.tolerations import Taint, Toleration, covers

# -- events about pods and templates -----------------------------------------------------------------------------------


class PodEventReason(StrEnum):
    """Reasons of events whose object is a pod or a DaemonSet."""

    UNKNOWN = "ArchitectureUnknown"
    NO_COMMON = "NoCommonArchitecture"
    GATE_TIMEOUT = "ArchitectureGateTimeout"
    SHRUNK = "ArchitectureSetShrunk"


class PodEvent(NamedTuple):
    """One Warning. Two with equal reason and ``cause`` tell of the same thing, whatever the note says."""

    reason: PodEventReason
    note: str
    action: str
    cause: str = ""


HOURLY: Final = frozenset({PodEventReason.GATE_TIMEOUT})
"""Reasons that are told again every hour while they last."""


def events_for(decision: PodDecision) -> tuple[PodEvent, ...]:
    """The events of this decision, in order; call it after the write, if there is one."""
    return tuple(_due(decision))


def _due(decision: PodDecision) -> Iterator[PodEvent]:
    if decision.reason is Reason.NO_COMMON_ARCHITECTURE:
        if decision.outcome is not TolerationOutcome.DENIED:
            yield PodEvent(PodEventReason.NO_COMMON, decision.message, "Tolerate")
        return
    for finding in decision.unresolved:
        if not finding.is_pending:
            note = f"{failed((finding,))}."
            yield PodEvent(PodEventReason.UNKNOWN, note, "Inspect", f"{finding.text} {finding.failure}")
    if decision.timed_out and decision.unresolved:
        action = "Gate" if decision.keeps_gate else "RemoveGate"
        yield PodEvent(PodEventReason.GATE_TIMEOUT, decision.message, action)


def with_problems(events: Iterable[PodEvent], problems: Sequence[str]) -> Iterator[PodEvent]:
    """What is said about an unknown image names the pull secrets that could not be used, too."""
    for event in events:
        detailed = problems and event.reason is PodEventReason.UNKNOWN
        yield event._replace(note=f"{event.note} ({'; '.join(problems)})") if detailed else event


def shrunk(change: ImageChange) -> PodEvent | None:
    """The event for tolerations that a changed image no longer justifies, unless the change was refused."""
    if not change.lost or change.decision.outcome is TolerationOutcome.DENIED:
        return None
    action = "Evict" if change.policy == "evict" else "Report"
    return PodEvent(PodEventReason.SHRUNK, change.message, action, ",".join(change.lost))


# -- events about nodes ------------------------------------------------------------------------------------------------

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
    if decision.reason is NodeReason.UNKNOWN:
        found.append(NodeEvent("Warning", NodeEventReason.UNKNOWN, f"No taint: {decision.message}."))
    if decision.reason is NodeReason.FOREIGN:
        found.append(NodeEvent("Warning", NodeEventReason.FOREIGN, f"No taint: {decision.message}."))
    return tuple(found)


def refused(decision: NodeDecision, error: str) -> NodeEvent:
    """The API server, a webhook or a policy does not accept the write; it is tried again."""
    note = f"Taints not changed, although {decision.message}: {error}"
    return NodeEvent("Warning", NodeEventReason.REFUSED, note)


def _listed(taints: list[Taint]) -> str:
    return ", ".join(str(taint) for taint in taints)


# -- ``polyarch explain`` ----------------------------------------------------------------------------------------------
# Per architecture of the cluster's nodes: the taint, what covers it or nothing, and the decision, which is the one that
# admission and controller make.

Json = dict[str, Any]


def explain_tolerations(case: Case, decision: PodDecision, nodes: Iterable[Node]) -> Json:
    """The member ``tolerations`` of a pod's entry in the document ``polyarch.dev/explain/v1``."""
    return {
        "reason": decision.reason.value,
        "message": decision.message,
        "outcome": decision.outcome.value,
        "architectures": list(decision.architectures),
        "adds": list(decision.added),
        "nodes": [_row(case, decision, *counted) for counted in _counted(nodes, case.settings)],
    }


def _counted(nodes: Iterable[Node], settings: TaintSettings) -> list[tuple[str, int, int]]:
    """Architecture, its nodes, and those that carry the taint."""
    total: Counter[str] = Counter()
    tainted: Counter[str] = Counter()
    for node in nodes:
        found = decide_node(node, settings)
        total[found.architecture] += 1
        tainted[found.architecture] += found.carried
    return [(name, total[name], tainted[name]) for name in sorted(total) if name]


def _row(case: Case, decision: PodDecision, architecture: str, nodes: int, tainted: int) -> Json:
    settings = case.settings
    taint = settings.taint(architecture) if settings.is_tainted(architecture) else None
    covering = _covering(case, taint) if taint is not None else None
    return {
        "architecture": architecture,
        "nodes": nodes,
        "taint": str(taint) if taint is not None else None,
        "tainted": tainted,
        "toleratedBy": msgspec.to_builtins(covering) if covering is not None else None,
        "added": architecture in decision.added,
    }


def _covering(case: Case, taint: Taint) -> Toleration | None:
    return next((each for each in case.pod.spec.tolerations or () if covers(each, taint)), None)
