"""The decision about one pod: a reason, one sentence, and the values to write (PL-247).

Events, warnings, the annotation, the audit log and ``polyarch explain`` all print this value, so they cannot differ.
Pure: no I/O, no clock.
"""

from enum import StrEnum

import msgspec

from polyarch.images.pod_images import Finding, Verdict


class Reason(StrEnum):
    """The reason of the outcome, as the specification names it."""

    # Not eligible: the rows of PL-201, in their order.
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


class Outcome(StrEnum):
    """The state of the pod after the decision: the groups of rows of PL-245."""

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


class Progress(StrEnum):
    """Progress of the attempts to resolve a pod's images (PL-330, PL-332, PL-230)."""

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
        return self in (Progress.ENDED, Progress.HOLD_ENDED)


class PreferenceEntry(msgspec.Struct, frozen=True, gc=False):
    """One platform of one scoring source, and whether it was skipped (PL-242)."""

    architecture: str
    weight: int
    source: str
    skipped: bool = False

    def __str__(self) -> str:
        return f"{self.architecture}:{self.weight}:{self.source}" + (":skipped" if self.skipped else "")


class Decision(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The decision for one pod; ``message`` is one sentence that names the deciding images and the next step."""

    reason: Reason
    outcome: Outcome
    message: str
    rule: Reason | None = None
    """The row of PL-201 that applied, if the pod is not eligible."""
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
    """Preferred terms to add: architecture and weight (PL-240)."""
    sources: tuple[PreferenceEntry, ...] = ()
    scoring_applies: bool = False
    images: tuple[Finding, ...] = ()
    stale: bool = False
    no_matching_node: bool = False
    """``nodeAware``: no node has any of the architectures (PL-218)."""
    failure: str = ""
    """Class, host and status of what could not be resolved, ≤ 256 characters (PL-004)."""

    @property
    def unresolved(self) -> tuple[Finding, ...]:
        return tuple(finding for finding in self.images if finding.verdict is Verdict.UNRESOLVED)

    @property
    def writes_expression(self) -> bool:
        """At least one required expression of ours is written (PL-223)."""
        return bool(self.terms)
