"""What placement decides of one pod: a reason, one sentence, and the values to write (PL-247).

Events, warnings, the annotation, the audit log and ``polyarch explain`` print this one value; no component has words of
its own. Pure: no I/O, no clock.
"""

from enum import StrEnum

import msgspec

from polyarch.platforms import NodePlatform


class Reason(StrEnum):
    """Why the outcome is what it is, in the words of the specification."""

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
    """What becomes of the pod: the groups of rows of PL-245."""

    IGNORED = "ignored"
    """Not eligible, or nobody there to lift a gate: left alone."""
    WAITING = "waiting"
    """Our gate stays on the pod until its images are known."""
    FAILING = "failing"
    """As waiting, and it has been failing long enough to say so on the pod."""
    HELD = "held"
    """Our gate stays on the pod because the policy says so."""
    PLACED = "placed"
    """The outcome is written and no gate of ours is left."""


class Progress(StrEnum):
    """How far the attempts to resolve a pod's images have come (PL-330, PL-332, PL-230)."""

    FIRST = "first"
    """Nothing was waited for: an admission, or the first look."""
    WAITING = "waiting"
    FAILING = "failing"
    """Failing for two seconds or more, the window not over."""
    ENDED = "ended"
    """The window is over."""
    HOLD_ENDED = "hold-ended"
    """The limit of holding is over: release."""

    @property
    def is_final(self) -> bool:
        return self in (Progress.ENDED, Progress.HOLD_ENDED)


class Verdict(StrEnum):
    """What one image says to the decision (PL-211)."""

    CONSTRAINS = "constrains"
    NEUTRAL = "neutral"
    UNRESOLVED = "unresolved"


class Finding(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """One image of the pod, as the decision read it.

    ``text`` is the reference as it stands in the pod. ``note`` is what the annotation says of it (PL-246): twelve hex
    digits of the digest, ``neutral``, ``local``, ``pending`` or the code of the error.
    """

    text: str
    verdict: Verdict
    note: str
    platforms: tuple[NodePlatform, ...] = ()
    stale: bool = False
    always: bool = False
    error_class: str = ""
    """Of an unresolved image that failed: the class by which it is retried (RG-060); empty while it is pending."""
    host: str = ""
    status: int | None = None
    problem: str = ""
    """What is wrong with the text of an invalid reference (RG-015)."""
    dropped: tuple[str, ...] = ()
    """Architecture names of the image that cannot be a node's (PL-233)."""

    @property
    def is_pending(self) -> bool:
        return self.verdict is Verdict.UNRESOLVED and not self.error_class

    @property
    def failure(self) -> str:
        """Class, host, HTTP status and code: all that a pod's owner is shown of a failure (PL-751)."""
        if self.is_pending:
            return "not answered yet"
        parts = [
            self.error_class,
            self.host,
            f"HTTP {self.status}" if self.status is not None else "",
            f"({self.note})",
        ]
        return " ".join(part for part in parts if part)


class PreferenceEntry(msgspec.Struct, frozen=True, gc=False):
    """One platform of one scoring source, and whether it was passed over (PL-242)."""

    architecture: str
    weight: int
    source: str
    skipped: bool = False

    def __str__(self) -> str:
        return f"{self.architecture}:{self.weight}:{self.source}" + (":skipped" if self.skipped else "")


class Decision(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The outcome for one pod; ``message`` is one sentence that names the images that decided and what to do next."""

    reason: Reason
    outcome: Outcome
    message: str
    rule: Reason | None = None
    """The row of PL-201 that applied, if the pod is not eligible."""
    architectures: tuple[str, ...] = ()
    """The values written, sorted; of the images, or of the fallback."""
    supported: tuple[str, ...] = ()
    """What the resolved images support together (A, or K while some are unresolved), whatever was written."""
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
