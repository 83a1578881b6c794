"""The events of the sweep, as values (PL-710): what is wrong with the pod, and the next action. Pure."""

from polyarch.images.pod_images import conflict, listed
from polyarch.placement.decide.decision import Decision, Reason
from polyarch.placement.result.events import Event, EventReason, cut
from polyarch.placement.sweep.verdict import Fault, Judgement


def reported(found: Judgement) -> Event:
    """The Warning for a pod that the webhook missed; nothing is changed."""
    recreated = "delete it, and its owner creates a new one, which is placed"
    remedy = recreated if found.owner is not None else "delete it and create it again"
    note = f"{_what(found)}; {remedy}."
    return Event(EventReason.UNPLACED_POD, "Warning", cut(note), "Report")


def evicted(found: Judgement) -> Event:
    """For a pod that was evicted; its owner creates a new one."""
    values = listed(found.decision.architectures)
    note = f"{_what(found)}; evicted, so that its owner creates a new one, which is constrained to {values}."
    return Event(EventReason.POD_EVICTED, "Normal", cut(note), "Evict")


def _what(found: Judgement) -> str:
    if found.fault is Fault.MISPLACED:
        where = f"node {found.pod.spec.node_name} ({found.node_architecture})"
        return f"Pod was not placed and is on {where}, which its images do not support: {_support(found.decision)}"
    begin = "Pod was created without placement"
    if found.fault is Fault.STALE:
        begin = "Images of the pod were changed after it was placed"
    return begin + _consequence(found.decision)


def _consequence(decision: Decision) -> str:
    match decision.reason:
        case Reason.ALL_IMAGES_NEUTRAL:
            return ", but its images run on any architecture"
        case Reason.PREFERENCES_ONLY:
            return "; it requires its architecture itself and lacks only the preferences"
    support = _support(decision)
    return f": nothing keeps it from nodes that cannot run its images{f' ({support})' if support else ''}"


def _support(decision: Decision) -> str:
    match decision.reason:
        case Reason.ARCHITECTURES_SET:
            return f"they support {listed(decision.supported)}"
        case Reason.NO_SUPPORTED_ARCHITECTURE:
            return conflict(decision.images)
        case _:
            return ""
