"""Eligibility: which pods placement leaves alone, and by which rule of the table PL-201; the first match wins.

Each rule is a predicate on the pod's circumstances. Pure.
"""

from collections.abc import Callable
from typing import Final

import msgspec

from polyarch.placement import names
from polyarch.placement.api.settings import Settings
from polyarch.placement.decide.decision import Reason
from polyarch.placement.decide.view import View


class Circumstances(msgspec.Struct, frozen=True, gc=False):
    """The input of the rules."""

    view: View
    namespace: str
    settings: Settings
    scoring_applies: bool


def architecture_required(view: View) -> bool:
    """Whether the user requires an architecture: by nodeSelector, or in every required term (PL-202)."""
    if names.ARCH_KEY in view.node_selector:
        return True
    return bool(view.terms) and all(term.is_closed for term in view.terms)


def in_operator_namespace(pod: Circumstances) -> bool:
    return bool(pod.settings.operator_namespace) and pod.namespace == pod.settings.operator_namespace


def in_kube_namespace(pod: Circumstances) -> bool:
    return pod.namespace.startswith("kube-")


def in_excluded_namespace(pod: Circumstances) -> bool:
    return pod.settings.excludes(pod.namespace)


def opted_out(pod: Circumstances) -> bool:
    annotations = pod.view.pod.metadata.annotations or {}
    return annotations.get(names.SKIP_ANNOTATION) == "true" and pod.settings.pod_opt_out == "allowed"


def already_bound(pod: Circumstances) -> bool:
    return bool(pod.view.pod.spec.node_name)


def for_the_control_plane(pod: Circumstances) -> bool:
    return any(key in pod.view.node_selector for key in names.CONTROL_PLANE_KEYS)


def of_a_daemon_set(pod: Circumstances) -> bool:
    owners = pod.view.pod.metadata.owner_references or ()
    return any(owner.kind == "DaemonSet" and owner.controller is True for owner in owners)


def nothing_left_to_say(pod: Circumstances) -> bool:
    return architecture_required(pod.view) and (pod.view.prefers_architecture or not pod.scoring_applies)


RULES: Final[tuple[tuple[Reason, Callable[[Circumstances], bool]], ...]] = (
    (Reason.OPERATOR_NAMESPACE, in_operator_namespace),
    (Reason.KUBE_NAMESPACE, in_kube_namespace),
    (Reason.EXCLUDED_NAMESPACE, in_excluded_namespace),
    (Reason.OPTED_OUT, opted_out),
    (Reason.ALREADY_BOUND, already_bound),
    (Reason.CONTROL_PLANE_POD, for_the_control_plane),
    (Reason.DAEMON_SET_POD, of_a_daemon_set),
    (Reason.ARCHITECTURE_ALREADY_REQUIRED, nothing_left_to_say),
)


def eligibility(pod: Circumstances) -> Reason | None:
    """The rule by which the pod is left alone, or None if it is placed."""
    for reason, applies in RULES:
        if applies(pod):
            return reason
    return None
