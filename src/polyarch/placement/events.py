"""The Kubernetes events of a decision, by level, as values; the caller posts them.

``problems``: events that may need action; ``lean`` adds those that explain a pod's placement; ``full`` has every step,
as in multiarch-tuning-operator. Pods placed at admission get none. Notes are the decision's message. Pure."""

from enum import StrEnum
from typing import Final, Literal

import msgspec

from polyarch.images.pod_images import ImageEffect, listed, platforms_of
from polyarch.placement.decision import (
    PlacementDecision,
    PlacementOutcome,
    Reason,
    held_rejected_message,
    held_undecided_message,
)
from polyarch.placement.rules import ExaminedPod
from polyarch.placement.settings import EventLevel, Settings

MAX_NOTE: Final = 1024
"""Limit of ``note`` in events.k8s.io/v1."""
GATE_ADDED_AFTER: Final = 2.0
"""Seconds after which ``lean`` reports a gate that is still on the pod."""


class EventReason(StrEnum):
    """Event reasons; those without ``Polyarch`` are the names of multiarch-tuning-operator."""

    GATE_ADDED = "ArchAwareSchedGateAdded"
    PREDICATE_SET = "ArchAwarePredicateSet"
    GATE_REMOVED = "ArchAwareSchedGateRemovalSuccess"
    GATE_REMOVAL_FAILED = "ArchAwareSchedGateRemovalFailed"
    PREDICATES_CONFLICT = "ArchAwarePredicatesConflict"
    PREFERENCE_DUPLICATES = "ArchAwarePreferredAffinityDuplicates"
    NO_SUPPORTED_ARCHITECTURES = "NoSupportedArchitecturesFound"
    INSPECTION_ERROR = "ArchAwareInspectionError"
    FALLBACK_SET = "ArchAwareFallbackPredicateSet"
    GATED_POD_IGNORED = "ArchAwareGatedPodIgnored"
    EXEC_FORMAT_ERROR = "ExecFormatError"
    POD_HELD = "PolyarchPodHeld"
    NO_MATCHING_NODE = "PolyarchNoMatchingNode"
    UNPLACED_POD = "PolyarchUnplacedPod"
    FORCED_RELEASE = "PolyarchForcedRelease"
    POD_EVICTED = "PolyarchPodEvicted"


class Event(msgspec.Struct, frozen=True, gc=False):
    """One event about the pod, to be posted after the write that it reports. ``action`` is what was done."""

    reason: EventReason
    type: Literal["Normal", "Warning"]
    note: str
    action: str


def gate_added_event(case: ExaminedPod, decision: PlacementDecision, *, seconds_gated: float) -> Event | None:
    """The event for a pod with our gate; call it when the pod is first seen and after 2 s.

    ``full`` posts it when the pod is first seen, ``lean`` after 2 s. ``lean`` omits it for a failing pod: the Warning
    posted at the same time says why the pod waits, and a broken image may cause three events at most.
    """
    level = case.settings.events
    first = seconds_gated < GATE_ADDED_AFTER
    if (level == "full" and first) or (level == "lean" and not first and not decision.failure):
        return Event(
            EventReason.GATE_ADDED, "Normal", shorten_note(f"Scheduling gate added. {decision.message}"), "Gate"
        )
    return None


def events_for(case: ExaminedPod, decision: PlacementDecision) -> tuple[Event, ...]:
    """The events to post after the PATCH of this decision, in order."""
    match decision.outcome:
        case PlacementOutcome.FAILING:
            return (_event(EventReason.INSPECTION_ERROR, "Warning", decision.message, "Inspect"),)
        case PlacementOutcome.HELD:
            return (held_event(decision),)
        case PlacementOutcome.PLACED:
            level = case.settings.events
            return tuple(event for event, least in _placed(case, decision, level) if _RANK[level] >= _RANK[least])
        case _:
            return ()


def held_event(decision: PlacementDecision) -> Event:
    """The event for a held pod, posted when holding begins and then hourly."""
    return _event(EventReason.POD_HELD, "Warning", decision.message, "Hold")


def held_rejected_event(settings: Settings, refusal: str) -> Event:
    """The same for a pod whose release the API server rejects; ``refusal``: such as ``HTTP 422``."""
    return _event(EventReason.POD_HELD, "Warning", held_rejected_message(settings, refusal), "Hold")


def held_undecided_event(settings: Settings) -> Event:
    """The same for a pod that cannot be decided because of an internal error."""
    return _event(EventReason.POD_HELD, "Warning", held_undecided_message(settings), "Hold")


def gate_removal_failed_event(refusal: str) -> Event:
    """The event for a rejected release; ``refusal`` is the API server's message."""
    note = f"API server rejected the write that removes the scheduling gate: {refusal}"
    return _event(EventReason.GATE_REMOVAL_FAILED, "Warning", note, "RemoveGate")


_RANK: Final[dict[EventLevel, int]] = {"problems": 0, "lean": 1, "full": 2}


def _placed(case: ExaminedPod, decision: PlacementDecision, level: EventLevel) -> list[tuple[Event, EventLevel]]:
    """Each event with the lowest level that posts it."""
    due: list[tuple[Event, EventLevel]] = []
    match decision.reason:
        case Reason.ARCHITECTURES_SET | Reason.PREFERENCES_ONLY:
            due += [(event, "lean") for event in _predicate_set(decision, level)]
        case Reason.NO_SUPPORTED_ARCHITECTURE:
            note = f"{decision.message} {_each_image(decision)}"
            due.append((_event(EventReason.NO_SUPPORTED_ARCHITECTURES, "Normal", note, "Constrain"), "problems"))
        case Reason.FALLBACK_SET:
            due += [
                (_event(EventReason.INSPECTION_ERROR, "Warning", decision.message, "Inspect"), "problems"),
                (_event(EventReason.FALLBACK_SET, "Warning", decision.message, "Constrain"), "problems"),
            ]
        case Reason.PARTIALLY_CONSTRAINED | Reason.RELEASED_UNCONSTRAINED:
            due.append((_event(EventReason.INSPECTION_ERROR, "Warning", decision.message, "Inspect"), "problems"))
        case Reason.NO_LONGER_ELIGIBLE:
            due.append((_event(EventReason.GATED_POD_IGNORED, "Warning", decision.message, "Release"), "problems"))
    if decision.no_matching_node:
        note = f"No node has {listed(decision.architectures)} (kubernetes.io/arch). {decision.message}"
        due.append((_event(EventReason.NO_MATCHING_NODE, "Warning", note, "Constrain"), "problems"))
    if decision.reason is Reason.PREFERENCES_ONLY or decision.rule is Reason.ARCHITECTURE_ALREADY_REQUIRED:
        note = "Pod already constrains kubernetes.io/arch itself; no constraint was added."
        due.append((_event(EventReason.PREDICATES_CONFLICT, "Normal", note, "Constrain"), "full"))
    for source in _duplicate_sources(decision):
        note = f"No preference from {source} was added: its architectures are already preferred."
        due.append((_event(EventReason.PREFERENCE_DUPLICATES, "Normal", note, "Prefer"), "full"))
    note = f"Scheduling gate removed: {decision.reason.value}."
    due.append((_event(EventReason.GATE_REMOVED, "Normal", note, "RemoveGate"), "full"))
    return due


def _predicate_set(decision: PlacementDecision, level: EventLevel) -> list[Event]:
    applied: dict[str, list[str]] = {}
    for entry in decision.sources:
        if not entry.skipped:
            applied.setdefault(entry.source, []).append(f"{entry.architecture} (weight {entry.weight})")
    by_source = [f"Preferred by {source}: {', '.join(values)}." for source, values in applied.items()]
    if level != "full":
        notes = [" ".join((decision.message, *by_source))]
    else:
        notes = [decision.message, *by_source]
    return [_event(EventReason.PREDICATE_SET, "Normal", note, "Constrain") for note in notes]


def _duplicate_sources(decision: PlacementDecision) -> list[str]:
    applied = {entry.source for entry in decision.sources if not entry.skipped}
    return [source for source in dict.fromkeys(entry.source for entry in decision.sources) if source not in applied]


def _each_image(decision: PlacementDecision) -> str:
    constraining = (finding for finding in decision.images if finding.effect is ImageEffect.CONSTRAINS)
    return "; ".join(f"{finding.text}: {platforms_of(finding)}" for finding in constraining)


def _event(reason: EventReason, type: Literal["Normal", "Warning"], note: str, action: str) -> Event:
    return Event(reason, type, shorten_note(note), action)


def shorten_note(note: str) -> str:
    """The note, at most as long as an event's may be."""
    return note if len(note.encode()) <= MAX_NOTE else note.encode()[: MAX_NOTE - 3].decode(errors="ignore") + "…"
