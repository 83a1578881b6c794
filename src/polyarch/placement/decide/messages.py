"""The message of each decision: one sentence that names the deciding images and the next action (PL-247, PL-751).

Events, warnings, conditions and ``explain`` print it unchanged. For a failure it has class, host, HTTP status and code,
never text that a registry sent. Pure.
"""

from typing import Final

from polyarch.durations import format_duration
from polyarch.images.pod_images import conflict, deciders, failed, listed, named, remedy
from polyarch.placement.api.settings import Settings
from polyarch.placement.decide.decision import Decision, Reason

_RULES: Final = {
    Reason.OPERATOR_NAMESPACE: "it is in the operator's namespace",
    Reason.KUBE_NAMESPACE: "pods in kube-* namespaces are never placed",
    Reason.EXCLUDED_NAMESPACE: "its namespace is in the PlacementPolicy's excludedNamespaces",
    Reason.OPTED_OUT: "its annotation polyarch.dev/skip-placement is true",
    Reason.ALREADY_BOUND: "spec.nodeName is already set",
    Reason.CONTROL_PLANE_POD: "its nodeSelector selects control-plane nodes",
    Reason.DAEMON_SET_POD: "it belongs to a DaemonSet, which sets its node",
    Reason.ARCHITECTURE_ALREADY_REQUIRED: "its nodeSelector or node affinity already constrains kubernetes.io/arch",
}


def ineligible(rule: Reason, namespace: str, *, was_gated: bool) -> str:
    """For a pod that is not placed; ``was_gated``: it became ineligible after it was gated (PL-310)."""
    place = f" (namespace {namespace})" if rule in _NAMESPACE_RULES else ""
    if was_gated:
        return f"Pod is released without a constraint: {_RULES[rule]}{place} ({rule.value})."
    return f"Pod is skipped: {_RULES[rule]}{place}."


_NAMESPACE_RULES: Final = (Reason.OPERATOR_NAMESPACE, Reason.KUBE_NAMESPACE, Reason.EXCLUDED_NAMESPACE)


def sentence(decision: Decision, settings: Settings) -> str:
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


def refused(decision: Decision, refusal: str) -> str:
    """For PL-305."""
    wanted = listed(decision.architectures) or "the term that no node matches"
    return (
        f"API server rejected the node affinity ({refusal}); pod is released without {wanted}; "
        "find the webhook or policy that rejects it."
    )


def held_refused(settings: Settings, refusal: str) -> str:
    """For PL-305, if the policy never releases a pod without a constraint."""
    until = _until(settings, "the write is accepted")
    return (
        f"API server rejected the write that removes the scheduling gate ({refusal}); "
        f"the policy holds the pod{until}; find the webhook or policy that rejects it."
    )


def held_undecided(settings: Settings) -> str:
    """For PL-306, if the policy never releases a pod without a constraint."""
    until = _until(settings, "it can be placed")
    return (
        f"Internal error of polyarch while placing the pod; the policy holds the pod{until}; see the controller's log."
    )


def _until(settings: Settings, end: str) -> str:
    limit = settings.hold_limit
    return f" for at most {format_duration(limit)}" if limit is not None else f" until {end}"


def unavailable(decision: Decision, *, deprovisioning: bool) -> str:
    """For PL-107. ``deprovisioning``: the ClusterPodPlacementConfig is being deleted."""
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


def _no_node(decision: Decision) -> str:
    return (
        "; no node has any of these architectures: add one, or the pod stays Pending"
        if decision.no_matching_node
        else ""
    )
