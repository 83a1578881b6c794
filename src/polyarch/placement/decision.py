"""The decision about one pod: a reason, one sentence, and the values to write.

Events, warnings, the annotation, the audit log and ``polyarch explain`` all print this value, so they cannot differ.
Pure: no I/O, no clock.
"""

from enum import StrEnum
from typing import Final

import msgspec

from polyarch.durations import format_duration
from polyarch.images.pod_images import ImageEffect, ImageFacts, conflict, deciders, failed, listed, named, remedy
from polyarch.placement.settings import PreferenceEntry, Settings


class Reason(StrEnum):
    """The reason of the outcome, as the specification names it."""

    # Not eligible, in the order of the rules.
    OPERATOR_NAMESPACE = "OperatorNamespace"
    KUBE_NAMESPACE = "KubeNamespace"
    EXCLUDED_NAMESPACE = "ExcludedNamespace"
    OPTED_OUT = "OptedOut"
    ALREADY_BOUND = "AlreadyBound"
    CONTROL_PLANE_POD = "ControlPlanePod"
    DAEMON_SET_POD = "DaemonSetPod"
    ARCHITECTURE_ALREADY_REQUIRED = "ArchitectureAlreadyRequired"
    # Placed.
    ARCHITECTURES_SET = "ArchitecturesSet"
    ALL_IMAGES_NEUTRAL = "AllImagesNeutral"
    PREFERENCES_ONLY = "PreferencesOnly"
    NO_SUPPORTED_ARCHITECTURE = "NoSupportedArchitecture"
    FALLBACK_SET = "FallbackSet"
    PARTIALLY_CONSTRAINED = "PartiallyConstrained"
    RELEASED_UNCONSTRAINED = "ReleasedUnconstrained"
    # Not placed, or not by us.
    IMAGES_NOT_RESOLVED_YET = "ImagesNotResolvedYet"
    HELD_BY_POLICY = "HeldByPolicy"
    NO_LONGER_ELIGIBLE = "NoLongerEligible"
    CONTROLLER_UNAVAILABLE = "ControllerUnavailable"


class PlacementOutcome(StrEnum):
    """The state of the pod after the decision."""

    IGNORED = "ignored"
    """Left alone: not eligible, or no controller is there to remove a gate."""
    WAITING = "waiting"
    """Gated until its images are known."""
    FAILING = "failing"
    """Gated, and failing long enough to be labelled so."""
    HELD = "held"
    """Gated because the policy says ``hold``."""
    PLACED = "placed"
    """The outcome is written and our gate is removed."""


class LookupProgress(StrEnum):
    """Progress of the attempts to resolve a pod's images."""

    FIRST = "first"
    """No waiting yet: an admission, or the first reconcile."""
    WAITING = "waiting"
    FAILING = "failing"
    """Failing for two seconds or more; the retry window has not ended."""
    ENDED = "ended"
    """The retry window has ended."""
    HOLD_ENDED = "hold-ended"
    """``holdLimit`` has ended: release."""

    @property
    def is_final(self) -> bool:
        return self in (LookupProgress.ENDED, LookupProgress.HOLD_ENDED)


class PlacementDecision(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The decision for one pod; ``message`` is one sentence that names the deciding images and the next step."""

    reason: Reason
    outcome: PlacementOutcome
    message: str
    rule: Reason | None = None
    """The eligibility rule that applied, if the pod is not eligible."""
    architectures: tuple[str, ...] = ()
    """The architectures to write, sorted; from the images or the fallback."""
    supported: tuple[str, ...] = ()
    """Architectures that all resolved images support (A; K while some are unresolved), even if others are written."""
    os: str = ""
    """The value of the OS expression, if one is written."""
    terms: tuple[int, ...] = ()
    """Indexes of the required terms that get our expressions."""
    os_terms: tuple[int, ...] = ()
    """Those of them that get the OS expression too."""
    created: bool = False
    """The required term is ours."""
    preferred: tuple[tuple[str, int], ...] = ()
    """Preferred terms to add: architecture and weight."""
    sources: tuple[PreferenceEntry, ...] = ()
    scoring_applies: bool = False
    images: tuple[ImageFacts, ...] = ()
    stale: bool = False
    no_matching_node: bool = False
    """``nodeAware``: no node has any of the architectures."""
    failure: str = ""
    """Class, host and status of what could not be resolved, ≤ 256 characters."""

    @property
    def unresolved(self) -> tuple[ImageFacts, ...]:
        return tuple(finding for finding in self.images if finding.effect is ImageEffect.UNRESOLVED)

    @property
    def writes_expression(self) -> bool:
        """At least one required expression of ours is written."""
        return bool(self.terms)


# -- messages ----------------------------------------------------------------------------------------------------------
# One sentence names the deciding images and the next action; all outputs print it unchanged. For a failure it has
# class, host, HTTP status and code, never text that a registry sent.

_EXCLUSIONS: Final = {
    Reason.OPERATOR_NAMESPACE: "it is in the operator's namespace",
    Reason.KUBE_NAMESPACE: "pods in kube-* namespaces are never placed",
    Reason.EXCLUDED_NAMESPACE: "its namespace is in the PlacementPolicy's excludedNamespaces",
    Reason.OPTED_OUT: "its annotation polyarch.dev/skip-placement is true",
    Reason.ALREADY_BOUND: "spec.nodeName is already set",
    Reason.CONTROL_PLANE_POD: "its nodeSelector selects control-plane nodes",
    Reason.DAEMON_SET_POD: "it belongs to a DaemonSet, which sets its node",
    Reason.ARCHITECTURE_ALREADY_REQUIRED: "its nodeSelector or node affinity already constrains kubernetes.io/arch",
}


def ineligible_message(rule: Reason, namespace: str, *, was_gated: bool) -> str:
    """For a pod that is not placed; ``was_gated``: it became ineligible after it was gated."""
    place = f" (namespace {namespace})" if rule in _NAMESPACE_EXCLUSIONS else ""
    if was_gated:
        return f"Pod is released without a constraint: {_EXCLUSIONS[rule]}{place} ({rule.value})."
    return f"Pod is skipped: {_EXCLUSIONS[rule]}{place}."


_NAMESPACE_EXCLUSIONS: Final = (Reason.OPERATOR_NAMESPACE, Reason.KUBE_NAMESPACE, Reason.EXCLUDED_NAMESPACE)


def decision_message(decision: PlacementDecision, settings: Settings) -> str:
    """For every outcome that depends on images or preferences."""
    match decision.reason:
        case Reason.ARCHITECTURES_SET:
            text = f"Pod is constrained to {listed(decision.architectures)}, supported by {deciders(decision.images)}"
            text += _no_node(decision)
        case Reason.ALL_IMAGES_NEUTRAL:
            verb = "runs" if len(decision.images) == 1 else "run"
            text = f"Pod needs no constraint: {named(decision.images)} {verb} on any architecture"
        case Reason.PREFERENCES_ONLY:
            text = "Pod already constrains kubernetes.io/arch itself; only preferences are added"
        case Reason.NO_SUPPORTED_ARCHITECTURE:
            text = f"No node can run the pod: {conflict(decision.images)}; {remedy(decision.images)}"
        case Reason.FALLBACK_SET:
            text = f"{failed(decision.unresolved)}; pod is constrained to the fallback {listed(decision.architectures)}"
            text += _no_node(decision) or "; check that the images support it"
        case Reason.PARTIALLY_CONSTRAINED:
            text = (
                f"{failed(decision.unresolved)}; pod is constrained to {listed(decision.architectures)}, "
                "supported by the other images"
            )
            text += _no_node(decision)
        case Reason.RELEASED_UNCONSTRAINED:
            text = f"{failed(decision.unresolved)}; pod is released without a constraint; "
            text += "correct the image or its pull secret"
        case Reason.HELD_BY_POLICY:
            until = _until(settings, "the image is resolved")
            text = (
                f"{failed(decision.unresolved)}; the policy holds the pod{until}; correct the image or its pull secret"
            )
        case Reason.IMAGES_NOT_RESOLVED_YET if decision.failure:
            text = f"{failed(decision.unresolved)}; pod stays gated while polyarch retries"
        case _:
            text = f"Waiting for the platforms of {named(decision.unresolved)}"
    return text + "."


def rejected_message(decision: PlacementDecision, refusal: str) -> str:
    """For a pod whose PATCH the API server keeps rejecting."""
    wanted = listed(decision.architectures) or "the term that no node matches"
    return (
        f"API server rejected the node affinity ({refusal}); pod is released without {wanted}; "
        "find the webhook or policy that rejects it."
    )


def held_rejected_message(settings: Settings, refusal: str) -> str:
    """The same, if the policy never releases a pod without a constraint."""
    until = _until(settings, "the write is accepted")
    return (
        f"API server rejected the write that removes the scheduling gate ({refusal}); "
        f"the policy holds the pod{until}; find the webhook or policy that rejects it."
    )


def held_undecided_message(settings: Settings) -> str:
    """For an internal error, if the policy never releases a pod without a constraint."""
    until = _until(settings, "it can be placed")
    return (
        f"Internal error of polyarch while placing the pod; the policy holds the pod{until}; see the controller's log."
    )


def _until(settings: Settings, end: str) -> str:
    limit = settings.hold_limit
    return f" for at most {format_duration(limit)}" if limit is not None else f" until {end}"


def unavailable_message(decision: PlacementDecision, *, deprovisioning: bool) -> str:
    """While no controller can remove a gate. ``deprovisioning``: the ClusterPodPlacementConfig is being deleted."""
    unknown = f" and the platforms of {named(decision.unresolved)} are unknown" if decision.unresolved else ""
    if deprovisioning:
        return (
            f"Pod is not constrained: the ClusterPodPlacementConfig is being deleted{unknown}; "
            "once it is gone, create another to place pods."
        )
    return (
        f"Pod is not constrained: the placement controller is down{unknown}; "
        "check Deployment pod-placement-controller, then recreate the pod."
    )


def _no_node(decision: PlacementDecision) -> str:
    return (
        "; no node has any of these architectures: add one, or the pod stays Pending"
        if decision.no_matching_node
        else ""
    )
