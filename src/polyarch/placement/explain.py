"""The document ``polyarch.dev/explain/v1``: how a pod would be placed, or was placed.

Built from the same decision, patch, warnings and events as the roles', so it cannot differ from them. Pure: the command
gathers facts, inspects images and prints."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from polyarch.durations import format_duration
from polyarch.images.pod_images import ImageEffect, ImageFacts
from polyarch.kube.patches import Operation, apply_patch
from polyarch.placement.admission import Admission
from polyarch.placement.decision import (
    DecisionRecord,
    PlacementDecision,
    PlacementOutcome,
    Reason,
    read_record,
    record_of,
)
from polyarch.placement.events import Event, events_for
from polyarch.placement.patch import AdmissionPath, DecidedBy, controller_patch, removal_patch
from polyarch.placement.rules import NEVER, ExaminedPod, retry_deadline

SCHEMA_VERSION: Final = "polyarch.dev/explain/v1"
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"

Json = dict[str, Any]


def document(pods: Iterable[Json]) -> Json:
    """The whole document."""
    return {"schemaVersion": SCHEMA_VERSION, "pods": list(pods)}


def explain_admission(pod: Mapping[str, Any], case: ExaminedPod, admission: Admission) -> Json:
    """The webhook's response. ``pod`` is the document of ``case``. The webhook posts no events."""
    return _entry(pod, case, admission.decision, admission.path, admission.operations, warnings=admission.warnings)


def explain_controller(pod: Mapping[str, Any], case: ExaminedPod, decision: PlacementDecision) -> Json:
    """The controller's PATCH and events for a stored pod."""
    operations = controller_patch(case, decision)
    return _entry(pod, case, decision, AdmissionPath.GATED, operations, events=events_for(case, decision))


def explain_finished(pod: Mapping[str, Any], case: ExaminedPod, decision: PlacementDecision) -> Json:
    """A stored pod without our gate, which is not written any more.

    ``case`` and ``decision`` are for the pod as if it were admitted now. ``before`` has the author's terms, ``after``
    the present ones.
    """
    recorded = read_record(case.pod.metadata.annotations)
    entry = _entry(pod, case, decision, _way_taken(recorded), ())
    original = apply_patch(pod, removal_patch(case))
    entry["required"]["before"] = _affinity(original, _REQUIRED)
    entry["preferred"]["before"] = _affinity(original, _PREFERRED)
    return {**entry, "agrees": agrees(case, decision), "next": None}


def _way_taken(recorded: DecisionRecord | None) -> AdmissionPath:
    if recorded is None:
        return AdmissionPath.IGNORED
    if recorded.mode == "audit":
        return AdmissionPath.AUDIT
    return AdmissionPath.INLINE if recorded.by == DecidedBy.ADMISSION else AdmissionPath.GATED


def agrees(case: ExaminedPod, decision: PlacementDecision) -> bool:
    """Whether a placed pod's annotation equals the present decision.

    A pod without one agrees if its affinity would not change now; otherwise the webhook missed it.
    """
    recorded = read_record(case.pod.metadata.annotations)
    if recorded is None:
        return case.is_audited or not (decision.writes_expression or decision.preferred)
    now = record_of(decision, by=recorded.by, mode=recorded.mode)
    return now == msgspec.structs.replace(recorded, images=now.images, stale=now.stale, sig=now.sig)


def can_run(decision: PlacementDecision) -> bool:
    """Whether some node could run the pod's images; otherwise ``explain`` exits with code 1."""
    return decision.reason is not Reason.NO_SUPPORTED_ARCHITECTURE and not decision.no_matching_node


def _entry(
    pod: Mapping[str, Any],
    case: ExaminedPod,
    decision: PlacementDecision,
    path: AdmissionPath,
    operations: Sequence[Operation],
    *,
    warnings: Sequence[str] = (),
    events: Sequence[Event] = (),
) -> Json:
    shown = [each for each in operations if each.op != "test" or each.value != ""]  # a file's pod has no uid to test
    after = apply_patch(pod, (each for each in operations if each.op != "test"))
    metadata, spec = after.get("metadata") or {}, after.get("spec") or {}
    recorded = read_record(case.pod.metadata.annotations)
    return {
        "namespace": case.facts.namespace,
        "name": case.pod.metadata.name or case.pod.metadata.generate_name,
        "path": path.value,
        "decision": _decision(decision),
        "recorded": msgspec.to_builtins(recorded) if recorded is not None else None,
        "required": {"before": _affinity(pod, _REQUIRED), "after": _affinity(after, _REQUIRED)},
        "preferred": {"before": _affinity(pod, _PREFERRED), "after": _affinity(after, _PREFERRED)},
        "labels": dict(metadata.get("labels") or {}),
        "annotations": dict(metadata.get("annotations") or {}),
        "gates": [gate.get("name", "") for gate in spec.get("schedulingGates") or ()],
        "patch": [msgspec.to_builtins(each) for each in shown],
        "pod": after,
        "warnings": list(warnings),
        "events": [{"reason": each.reason.value, "type": each.type, "note": each.note} for each in events],
        "next": _next(case, decision, path),
    }


def _decision(decision: PlacementDecision) -> Json:
    return {
        "reason": decision.reason.value,
        "message": decision.message,
        "rule": decision.rule.value if decision.rule is not None else None,
        "architectures": list(decision.architectures),
        "os": decision.os or None,
        "terms": list(decision.terms),
        "created": decision.created,
        "preferred": [{"architecture": name, "weight": weight} for name, weight in decision.preferred],
        "stale": decision.stale,
        "images": [_image(finding) for finding in decision.images],
    }


def _image(finding: ImageFacts) -> Json:
    return {
        "image": finding.text,
        "verdict": finding.effect.value,
        "note": finding.note,
        "platforms": list(map(str, finding.platforms)),
        "stale": finding.stale,
        "problem": finding.problem or (finding.failure if finding.effect is ImageEffect.UNRESOLVED else None),
    }


def _affinity(pod: Mapping[str, Any], member: str) -> Any:
    affinity = (pod.get("spec") or {}).get("affinity") or {}
    return (affinity.get("nodeAffinity") or {}).get(member)


def _next(case: ExaminedPod, decision: PlacementDecision, path: AdmissionPath) -> Json | None:
    """What a gated pod waits for, until when (counted from the first attempt), and what follows."""
    if path is not AdmissionPath.GATED or (decision.outcome is PlacementOutcome.PLACED and case.facts.stored):
        return None
    unresolved = decision.unresolved
    if not unresolved or decision.outcome is PlacementOutcome.PLACED:
        return {"waitsFor": "the placement controller", "images": [], "until": None, "then": decision.reason.value}
    images = [finding.text for finding in unresolved]
    if decision.outcome is PlacementOutcome.HELD:
        limit = case.settings.hold_limit
        until = format_duration(limit) if limit is not None else None
        return {"waitsFor": "its images", "images": images, "until": until, "then": "release" if until else None}
    end = retry_deadline(unresolved, case.settings)
    return {
        "waitsFor": "its images",
        "images": images,
        "until": format_duration(end) if end != NEVER else None,
        "then": case.settings.unresolved_action,
    }
