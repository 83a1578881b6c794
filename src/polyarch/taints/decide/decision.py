"""The decision about the tolerations of one pod: a reason, one sentence, and what is added (TN-002).

Patches, events, warnings, metrics and ``polyarch explain`` all use this value, so they cannot differ. Pure.
"""

from collections.abc import Iterable
from enum import StrEnum
from typing import Final

import msgspec

from polyarch.pods.finding import Finding, Verdict


class Reason(StrEnum):
    """Why the decision is as it is."""

    # Not touched (TN-041, TN-010).
    FINISHED = "Finished"
    TERMINATING = "Terminating"
    MIRROR_POD = "MirrorPod"
    ALREADY_BOUND = "AlreadyBound"
    OPTED_OUT = "OptedOut"
    NOT_SELECTED = "NotSelected"
    TEMPLATES_IGNORED = "TemplatesIgnored"
    PAUSED = "Paused"
    REMOVING = "Removing"
    COVERED = "Covered"
    """Every wanted taint is tolerated already, or none is wanted."""
    # What the architectures come from (TN-042).
    IMAGES = "Images"
    PRIMARY_FALLBACK = "PrimaryFallback"
    ALL_FALLBACK = "AllFallback"
    COMPATIBILITY = "Compatibility"
    # Nothing can be added, or not yet (TN-046, TN-047).
    ARCHITECTURE_UNKNOWN = "ArchitectureUnknown"
    NO_COMMON_ARCHITECTURE = "NoCommonArchitecture"


SOURCES: Final = (Reason.IMAGES, Reason.PRIMARY_FALLBACK, Reason.ALL_FALLBACK, Reason.COMPATIBILITY)
"""The values of the annotation ``tolerations-reason``; of several the rightmost is written (TN-042)."""


class Outcome(StrEnum):
    """What becomes of the pod. Our gate is lifted by every outcome but ``GATED``."""

    UNCHANGED = "unchanged"
    """Nothing is added, and no answer can change that."""
    TOLERATED = "tolerated"
    """Tolerations are added."""
    GATED = "gated"
    """It waits for answers under a gate, ours or placement's."""
    PASSED = "passed"
    """Answers are missing and nothing is added now; it is completed when they arrive (TN-043)."""
    DENIED = "denied"
    """The request is refused (TN-047, TN-049)."""
    BLOCKED = "blocked"
    """A template whose answers are missing: it has no gate, so nothing is added until they arrive (TN-052)."""


class Progress(StrEnum):
    """How far the search for answers is, which decides what missing ones mean (TN-046, TN-048)."""

    FIRST = "first"
    """At admission, with somebody to lift a gate."""
    UNGUARDED = "unguarded"
    """At admission when no gate can be added: nobody would lift it, or the pod exists already."""
    WAITING = "waiting"
    """A stored pod; some image has neither answered nor failed yet."""
    FAILING = "failing"
    """A stored pod; each missing answer has failed at least once."""
    ENDED = "ended"
    """The time of the gate is over, or placement lifts its gate now."""


class PodDecision(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The decision for one pod, or for the pods of a template. ``message`` is one sentence."""

    reason: Reason
    outcome: Outcome
    message: str = ""
    architectures: tuple[str, ...] = ()
    """A of TN-031, or what a fallback makes of it; sorted."""
    added: tuple[str, ...] = ()
    """The architectures whose taint is tolerated from now on, sorted (TN-032)."""
    timed_out: bool = False
    """The time of the gate is over, and answers are still missing (TN-048)."""
    system: str = ""
    """The operating system that A is of."""
    of_template: bool = False
    """About the pods of a template, which gets the tolerations in their place."""
    images: tuple[Finding, ...] = ()

    @property
    def unresolved(self) -> tuple[Finding, ...]:
        """The images without an answer; the others already restrict A."""
        return missing_answers(self.images)

    @property
    def keeps_gate(self) -> bool:
        return self.outcome is Outcome.GATED


def missing_answers(images: Iterable[Finding]) -> tuple[Finding, ...]:
    return tuple(finding for finding in images if finding.verdict is Verdict.UNRESOLVED)
