"""The decision about the tolerations of one pod: a reason, one sentence, and what is added. Pure.

Patches, events, warnings, metrics and ``polyarch explain`` all use this value, so they cannot differ. The sentence
names what decided and the next action; it is printed unchanged everywhere.
"""

from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Final

import msgspec

from polyarch.images.pod_images import (
    ImageEffect,
    ImageFacts,
    common_platforms,
    conflict,
    deciders,
    failed,
    listed,
    named,
    remedy,
)
from polyarch.taints.settings import ImageChange, TaintSettings


class Reason(StrEnum):
    """Why the decision is as it is."""

    # Not touched.
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
    # What the architectures come from.
    IMAGES = "Images"
    PRIMARY_FALLBACK = "PrimaryFallback"
    ALL_FALLBACK = "AllFallback"
    COMPATIBILITY = "Compatibility"
    # Nothing can be added, or not yet.
    ARCHITECTURE_UNKNOWN = "ArchitectureUnknown"
    NO_COMMON_ARCHITECTURE = "NoCommonArchitecture"


SOURCES: Final = (Reason.IMAGES, Reason.PRIMARY_FALLBACK, Reason.ALL_FALLBACK, Reason.COMPATIBILITY)
"""The values of the annotation ``tolerations-reason``; of several the rightmost is written."""


class TolerationOutcome(StrEnum):
    """What becomes of the pod. Our gate is lifted by every outcome but ``GATED``."""

    UNCHANGED = "unchanged"
    """Nothing is added, and no answer can change that."""
    TOLERATED = "tolerated"
    """Tolerations are added."""
    GATED = "gated"
    """It waits for answers under a gate, ours or placement's."""
    PASSED = "passed"
    """Answers are missing and nothing is added now; it is completed when they arrive."""
    DENIED = "denied"
    """The request is refused."""
    BLOCKED = "blocked"
    """A template whose answers are missing: it has no gate, so nothing is added until they arrive."""


class TolerationLookupProgress(StrEnum):
    """How far the search for answers is, which decides what missing ones mean."""

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
    outcome: TolerationOutcome
    message: str = ""
    architectures: tuple[str, ...] = ()
    """The architectures that could run the pod, or what a fallback makes of them; sorted."""
    added: tuple[str, ...] = ()
    """The architectures whose taint is tolerated from now on, sorted."""
    timed_out: bool = False
    """The time of the gate is over, and answers are still missing."""
    system: str = ""
    """The operating system that A is of."""
    of_template: bool = False
    """About the pods of a template, which gets the tolerations in their place."""
    images: tuple[ImageFacts, ...] = ()

    @property
    def unresolved(self) -> tuple[ImageFacts, ...]:
        """The images without an answer; the others already restrict A."""
        return missing_answers(self.images)

    @property
    def keeps_gate(self) -> bool:
        return self.outcome is TolerationOutcome.GATED


def missing_answers(images: Iterable[ImageFacts]) -> tuple[ImageFacts, ...]:
    return tuple(finding for finding in images if finding.effect is ImageEffect.UNRESOLVED)


# -- the sentence of a decision ----------------------------------------------------------------------------------------

_UNTOUCHED: Final = {
    Reason.FINISHED: "it has finished",
    Reason.TERMINATING: "it is being deleted",
    Reason.MIRROR_POD: "it is the mirror of a static pod",
    Reason.ALREADY_BOUND: "spec.nodeName is already set",
    Reason.OPTED_OUT: "it or its namespace has polyarch.dev/taints: disabled",
    Reason.NOT_SELECTED: "ArchitectureTaints does not select it, or excludes namespace {namespace}",
    Reason.TEMPLATES_IGNORED: "spec.daemonSets.templates is ignore",
    Reason.PAUSED: "ArchitectureTaints is paused",
    Reason.REMOVING: "ArchitectureTaints is being removed",
    Reason.COVERED: "its tolerations cover every architecture taint that its own constraints leave to it",
}


def untouched(decision: PodDecision, namespace: str) -> str:
    """For a pod that is not touched, whatever its images are."""
    return f"No toleration is added: {_UNTOUCHED[decision.reason].format(namespace=namespace)}."


def sentence(decision: PodDecision, settings: TaintSettings) -> str:
    """For every outcome that depends on images."""
    subject = "template" if decision.of_template else "pod"
    match decision.reason:
        case Reason.NO_COMMON_ARCHITECTURE:
            text = _impossible(decision)
        case Reason.COVERED:
            text = f"No toleration is added: {_covered(decision, settings)}"
        case Reason.ARCHITECTURE_UNKNOWN:
            text = f"{failed(decision.unresolved)}; {subject} {_waiting(decision)}"
        case _ if decision.unresolved:
            what = f"tolerates {_taints(decision.added)}" if decision.added else "gets no toleration"
            text = f"{failed(decision.unresolved)}; {subject} {what} by {_policy(decision)}; {_CORRECT}"
        case _:
            text = f"{subject.capitalize()} tolerates {_taints(decision.added)}: {_grounds(decision)}"
    return text + "."


def shrunk(decision: PodDecision, lost: Sequence[str], policy: ImageChange) -> str:
    """For tolerations of ours that a changed image no longer justifies."""
    fact = f"pod tolerates {_taints(lost)}, which its changed images do not support"
    if decision.reason is Reason.NO_COMMON_ARCHITECTURE:
        fact += f" ({decision.message.rstrip('.')})"
    match policy:
        case "deny":
            return f"Image change is refused by spec.pods.imageChange deny: {fact}; create a new pod instead."
        case "evict":
            return f"P{fact[1:]}; tolerations cannot be taken back, so it is evicted if an owner recreates it."
        case _:
            return f"P{fact[1:]}; tolerations cannot be taken back: delete the pod to have it created anew."


def _taints(architectures: Sequence[str]) -> str:
    return f"the taint{'s' if len(architectures) > 1 else ''} of {listed(architectures)}"


_CORRECT: Final = "correct the image or its pull secret"


def _waiting(decision: PodDecision) -> str:
    match decision.outcome:
        case TolerationOutcome.GATED if decision.timed_out:
            return f"stays gated by spec.pods.onTimeout keep, though the time of the gate is over; {_CORRECT}"
        case TolerationOutcome.GATED:
            return "stays gated until its architectures are known"
        case _ if decision.timed_out:
            return f"gets no toleration though the time of its gate is over; {_CORRECT}"
        case _:
            return "gets no toleration until its architectures are known"


def _policy(decision: PodDecision) -> str:
    value = "all" if decision.reason is Reason.ALL_FALLBACK else "primary-only"
    if decision.reason is Reason.COMPATIBILITY:
        return "spec.compatibility and the policy for unknown images"
    return f"spec.pods.{'onTimeout' if decision.timed_out else 'onUnknown'} {value}"


def _covered(decision: PodDecision, settings: TaintSettings) -> str:
    tainted = sorted(settings.tainted.intersection(decision.architectures))
    if tainted:
        return f"it already tolerates {_taints(tainted)}"
    if decision.architectures:
        return f"nodes with {listed(decision.architectures)}, where it can run, are not tainted"
    return "its images run on no managed architecture"


def _grounds(decision: PodDecision) -> str:
    constraining = [finding for finding in decision.images if finding.effect is ImageEffect.CONSTRAINS]
    if not constraining:
        return (
            f"{named(decision.images)} fit any platform" if len(decision.images) > 1 else "its image fits any platform"
        )
    by = " by spec.compatibility" if decision.reason is Reason.COMPATIBILITY else ""
    return f"supported{by} by {deciders(decision.images)}"


def _impossible(decision: PodDecision) -> str:
    """The images that exclude each other, or the pod's operating system, or its constraints."""
    common = common_platforms(decision.images)
    if not common:
        return f"No node can run the pod: {conflict(decision.images)}; {remedy(decision.images)}"
    if common.is_everything:
        return (
            "No node can run the pod: its nodeSelector or node affinity admits no architecture; correct its constraints"
        )
    have = ", ".join(map(str, common))
    if not common.architectures(decision.system):
        return (
            f"No node can run the pod: its operating system is {decision.system}, and its images have {have}; "
            "set spec.os.name or a nodeSelector for kubernetes.io/os, or choose another tag"
        )
    return (
        f"No node can run the pod: its nodeSelector or node affinity admits none of {have}, which its images have; "
        "correct the constraints, or choose another tag"
    )
