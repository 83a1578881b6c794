"""The message of each decision: one sentence that names what decided and the next action (TN-002).

Events, warnings, refusals, conditions and ``explain`` print it unchanged. Pure.
"""

from collections.abc import Sequence
from typing import Final

from polyarch.platforms import PlatformSet
from polyarch.pods.finding import Verdict
from polyarch.pods.wording import conflict, deciders, failed, listed, named, remedy
from polyarch.taints.api.settings import ImageChange, TaintSettings
from polyarch.taints.decide.decision import Outcome, PodDecision, Reason

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
    """For tolerations of ours that a changed image no longer justifies (TN-049)."""
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
        case Outcome.GATED if decision.timed_out:
            return f"stays gated by spec.pods.onTimeout keep, though the time of the gate is over; {_CORRECT}"
        case Outcome.GATED:
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
    constraining = [finding for finding in decision.images if finding.verdict is Verdict.CONSTRAINS]
    if not constraining:
        return (
            f"{named(decision.images)} fit any platform" if len(decision.images) > 1 else "its image fits any platform"
        )
    by = " by spec.compatibility" if decision.reason is Reason.COMPATIBILITY else ""
    return f"supported{by} by {deciders(decision.images)}"


def _impossible(decision: PodDecision) -> str:
    """The images that exclude each other, or the pod's operating system, or its constraints (TN-047)."""
    constraining = [finding for finding in decision.images if finding.verdict is Verdict.CONSTRAINS]
    common = PlatformSet.EVERYTHING
    for finding in constraining:
        common &= PlatformSet.of(finding.platforms)
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
