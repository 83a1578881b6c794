"""Eligibility: which pods are not touched, and by which rule of TN-041; the first match wins.

There is no rule for system namespaces: their pods need tolerations most. Pure.
"""

from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from polyarch.objects import Pod
from polyarch.selectors import is_listed
from polyarch.taints import names
from polyarch.taints.api.settings import TaintSettings
from polyarch.taints.decide.decision import Reason

_NOTHING: Final[Mapping[str, str]] = {}


class Circumstances(msgspec.Struct, frozen=True, gc=False):
    """The input of the rules."""

    pod: Pod
    namespace: str
    namespace_labels: Mapping[str, str]
    settings: TaintSettings
    is_new: bool
    """It is being created."""


def is_finished(case: Circumstances) -> bool:
    status = case.pod.status
    return status is not None and status.phase in ("Succeeded", "Failed")


def is_terminating(case: Circumstances) -> bool:
    return case.pod.metadata.deletion_timestamp is not None


def is_mirror(case: Circumstances) -> bool:
    """A kubelet's picture of a pod that it runs from a file; the API server refuses changes."""
    return names.MIRROR_ANNOTATION in (case.pod.metadata.annotations or _NOTHING)


def is_born_bound(case: Circumstances) -> bool:
    return case.is_new and bool(case.pod.spec.node_name)


def opted_out(case: Circumstances) -> bool:
    annotations = case.pod.metadata.annotations or _NOTHING
    return names.DISABLED in (case.namespace_labels.get(names.OPT_OUT), annotations.get(names.OPT_OUT))


def not_selected(case: Circumstances) -> bool:
    settings = case.settings
    if is_listed(case.namespace, settings.excluded_namespaces):
        return True
    if settings.namespace_selector is not None and not settings.namespace_selector.matches(case.namespace_labels):
        return True
    return settings.pod_selector is not None and not settings.pod_selector.matches(case.pod.metadata.labels)


def paused(case: Circumstances) -> bool:
    return case.settings.state == "paused"


def removing(case: Circumstances) -> bool:
    return case.settings.state == "removing"


RULES: Final[tuple[tuple[Reason, Callable[[Circumstances], bool]], ...]] = (
    (Reason.FINISHED, is_finished),
    (Reason.TERMINATING, is_terminating),
    (Reason.MIRROR_POD, is_mirror),
    (Reason.ALREADY_BOUND, is_born_bound),
    (Reason.OPTED_OUT, opted_out),
    (Reason.NOT_SELECTED, not_selected),
    (Reason.PAUSED, paused),
    (Reason.REMOVING, removing),
)


def eligibility(case: Circumstances) -> Reason | None:
    """The rule by which the pod is not touched, or None. ``Covered`` is decided later, by its architectures."""
    for reason, applies in RULES:
        if applies(case):
            return reason
    return None
