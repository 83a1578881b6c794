"""The Kubernetes events about pods and templates, as values; the caller posts them (TN-046 to TN-049).

All are Warnings: ordinary success has no event (TN-042). An event is due once per object and ``cause``, so that a pod
that is decided a hundred times while a registry is down has one. Pure.
"""

from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from typing import Final, NamedTuple

from polyarch.pods.wording import failed
from polyarch.taints.decide.decision import Outcome, PodDecision, Reason
from polyarch.taints.decide.image_change import ImageChange


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
"""Reasons that are told again every hour while they last (TN-048)."""


def events_for(decision: PodDecision) -> tuple[PodEvent, ...]:
    """The events of this decision, in order; call it after the write, if there is one."""
    return tuple(_due(decision))


def _due(decision: PodDecision) -> Iterator[PodEvent]:
    if decision.reason is Reason.NO_COMMON_ARCHITECTURE:
        if decision.outcome is not Outcome.DENIED:
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
    """What is said about an unknown image names the pull secrets that could not be used, too (PL-422)."""
    for event in events:
        detailed = problems and event.reason is PodEventReason.UNKNOWN
        yield event._replace(note=f"{event.note} ({'; '.join(problems)})") if detailed else event


def shrunk(change: ImageChange) -> PodEvent | None:
    """The event for tolerations that a changed image no longer justifies, unless the change was refused."""
    if not change.lost or change.decision.outcome is Outcome.DENIED:
        return None
    action = "Evict" if change.policy == "evict" else "Report"
    return PodEvent(PodEventReason.SHRUNK, change.message, action, ",".join(change.lost))
