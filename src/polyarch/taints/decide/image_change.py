"""What a changed container image does to the tolerations of a running pod (TN-049).

Kubernetes lets the images of a stored pod be replaced, and tolerations be added, but none be removed. So what the new
images justify is added in the same request; what they no longer justify stays, and the policy says what follows. Only
tolerations that the pod's annotation records are ours; all others are the user's and never cause this. Pure.
"""

from collections.abc import Mapping

import msgspec

from polyarch.objects import Pod
from polyarch.oci.answer import Inspection
from polyarch.taints import names
from polyarch.taints.api.settings import ImageChange as Policy
from polyarch.taints.decide import messages
from polyarch.taints.decide.decision import Outcome, PodDecision, Progress, Reason
from polyarch.taints.decide.rules import Case, Facts, decide, examine


class ImageChange(msgspec.Struct, frozen=True, gc=False):
    """The decision about a pod whose images are changed."""

    decision: PodDecision
    """About the pod as it will be; ``DENIED`` if the change is refused."""
    lost: tuple[str, ...] = ()
    """Architectures whose toleration we added and which the new images no longer justify, sorted."""
    policy: Policy = "event"
    """What follows from ``lost``: an event, an eviction besides it, or the refusal."""
    message: str = ""
    """One sentence about ``lost``; empty if nothing is."""


def recorded(pod: Pod) -> frozenset[str]:
    """The architectures that the pod's annotation says we added (TN-042)."""
    text = (pod.metadata.annotations or {}).get(names.TOLERATIONS_ANNOTATION, "")
    return frozenset(each for each in text.split(",") if each)


def changes_images(old: Pod, new: Pod) -> bool:
    """Whether a container of the pod, one for initialisation included, has another image than before."""
    return any(
        [(each.name, each.image) for each in before or ()] != [(each.name, each.image) for each in after or ()]
        for before, after in (
            (old.spec.containers, new.spec.containers),
            (old.spec.init_containers, new.spec.init_containers),
        )
    )


def examine_change(facts: Facts, old: Pod) -> Case:
    """The case of the pod as it will be. Its images matter even if it tolerates every taint, because of ``lost``."""
    return examine(facts, needs_images=bool(recorded(old)))


def decide_change(case: Case, answers: Mapping[str, Inspection], old: Pod) -> ImageChange:
    """The decision about the update of ``old``. While an answer is missing, nothing counts as lost."""
    decision = decide(case, answers, Progress.UNGUARDED)
    settings = case.settings
    if decision.reason is Reason.NO_COMMON_ARCHITECTURE and settings.on_no_common == "deny":
        decision = msgspec.structs.replace(decision, outcome=Outcome.DENIED)
    lost = lost_of(case, decision, old)
    if not lost:
        return ImageChange(decision)
    policy = settings.image_change
    message = messages.shrunk(decision, lost, policy)
    if policy == "deny" and decision.outcome is not Outcome.DENIED:
        decision = msgspec.structs.replace(decision, outcome=Outcome.DENIED, message=message)
    return ImageChange(decision, lost, policy, message)


def lost_of(case: Case, decision: PodDecision, old: Pod) -> tuple[str, ...]:
    """The recorded architectures that the decision about the changed pod no longer justifies, sorted."""
    if case.rule is not None or decision.unresolved:
        return ()
    return tuple(sorted(recorded(old).difference(decision.architectures)))
