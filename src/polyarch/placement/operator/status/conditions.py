"""The conditions of the ClusterPodPlacementConfig, computed from what was observed (PL-020, PL-021).

They are computed on every pass, also while the object is being deleted. The order and the reasons are those that
existing tooling knows. Pure.
"""

from collections.abc import Iterable, Mapping
from typing import Final, Literal

import msgspec

from polyarch.kube.managed_fields import FieldConflict
from polyarch.objects import Condition
from polyarch.operating.rollouts import Rollout
from polyarch.operating.settings import OLDEST_KUBERNETES, Cluster
from polyarch.placement import names

AVAILABLE: Final = "Available"
PROGRESSING: Final = "Progressing"
DEGRADED: Final = "Degraded"
DEPROVISIONING: Final = "Deprovisioning"
CONTROLLER_NOT_ROLLED_OUT: Final = "PodPlacementControllerNotRolledOut"
WEBHOOK_NOT_ROLLED_OUT: Final = "PodPlacementWebhookNotRolledOut"
NOT_CONFIGURED: Final = "MutatingWebhookConfigurationNotAvailable"
UNREACHABLE: Final = "PodPlacementWebhookUnreachable"
"""A reason only: tools that know the conditions expect these and no others."""
ALL_READY: Final = "AllComponentsReady"
MOST_PROBLEMS: Final = 5
"""Named in one message."""
LONGEST: Final = 4096
"""Characters of one message. The API server refuses more than 32768, and its own words about one refused object may be
longer than that."""


class Observed(msgspec.Struct, frozen=True, kw_only=True):
    """What one pass has observed."""

    controller: Rollout
    webhook: Rollout
    configured: bool
    """The pod webhook's configuration exists."""
    unreachable: tuple[str, ...] = ()
    """Why the pod webhook cannot be called, or not by its right rules, although all that exists; as sentences."""
    deleting: bool = False
    """The ClusterPodPlacementConfig has a deletion timestamp."""
    gated_pods: int | None = None
    """Pods that still carry our gate; None: not counted."""
    waiting_for: str = ""
    """What else an uninstall waits for, or what it could not do, as a sentence."""
    problems: tuple[str, ...] = ()
    """What is wrong although pods may be available, each with what to do about it."""


def conditions(observed: Observed) -> tuple[Condition, ...]:
    """All conditions, in the order of PL-020."""
    broken = _broken(observed)
    reason = "".join(broken) or ALL_READY
    why = "; ".join(broken.values())
    stands = observed.configured and observed.controller.available and observed.webhook.available
    available = stands and UNREACHABLE not in broken
    progressing = not observed.deleting and not (
        observed.configured and observed.controller.up_to_date and observed.webhook.up_to_date
    )
    degraded = not observed.deleting and (not available or bool(observed.problems))
    found = [
        _condition(AVAILABLE, available, reason, why or "every component is ready"),
        _condition(PROGRESSING, progressing, reason, why if progressing else "nothing is being changed"),
        _condition(
            DEGRADED,
            degraded,
            "Degraded" if degraded else "NotDegraded",
            _problems(observed, "" if available else why) if degraded else "",
        ),
        _condition(
            DEPROVISIONING,
            observed.deleting,
            "Deprovisioning" if observed.deleting else "NotDeprovisioning",
            _leaving(observed) if observed.deleting else "",
        ),
    ]
    for kind, ready in (
        (CONTROLLER_NOT_ROLLED_OUT, "PodPlacementController"),
        (WEBHOOK_NOT_ROLLED_OUT, "PodPlacementWebhook"),
    ):
        word = "NotReady" if kind in broken else "Ready"
        found.append(_condition(kind, kind in broken, ready + word, broken.get(kind, "")))
    found.append(_condition(NOT_CONFIGURED, NOT_CONFIGURED in broken, reason, broken.get(NOT_CONFIGURED, "")))
    return tuple(found)


def _broken(observed: Observed) -> dict[str, str]:
    """The last three conditions that are True, and whether the webhook can be called; with what is the case."""
    found = {}
    for kind, name, rollout in (
        (CONTROLLER_NOT_ROLLED_OUT, names.CONTROLLER, observed.controller),
        (WEBHOOK_NOT_ROLLED_OUT, names.WEBHOOK, observed.webhook),
    ):
        if not (rollout.available and rollout.up_to_date):
            found[kind] = f"Deployment {name}: {rollout.summary}"
    if not observed.configured:
        found[NOT_CONFIGURED] = (
            "the pod webhook is not registered"
            if observed.deleting
            else "the pod webhook is registered once both Deployments are available"
        )
    if observed.unreachable and not observed.deleting:
        why = "; ".join(observed.unreachable[:MOST_PROBLEMS])
        found[UNREACHABLE] = f"new pods are not placed: {why}"
    return found


def _problems(observed: Observed, why: str) -> str:
    named = [*([why] if why else ()), *observed.problems[:MOST_PROBLEMS]]
    more = len(observed.problems) - MOST_PROBLEMS
    return "; ".join([*named, *([f"and {more} more"] if more > 0 else ())])


def _leaving(observed: Observed) -> str:
    count = observed.gated_pods
    gated = "" if count is None else f"{count} pod{'' if count == 1 else 's'} still gated"
    return "; ".join(part for part in (gated, observed.waiting_for) if part) or "placement is being removed"


def _condition(type: str, is_so: bool, reason: str, message: str) -> Condition:
    status: Literal["True", "False"] = "True" if is_so else "False"
    return Condition(type, status, reason, message if len(message) <= LONGEST else message[: LONGEST - 1] + "…")


def contested(fields: Iterable[tuple[object, FieldConflict]]) -> tuple[str, ...]:
    """Problems: fields that another manager keeps taking back (PL-501). The objects are an apply set's refs."""
    return tuple(
        f"{ref}: {conflict.manager} keeps changing {conflict.field}, which is left alone for now; "
        f"stop one of the two from setting it"
        for ref, conflict in fields
    )


def put_right(ref: object, taken: Iterable[FieldConflict]) -> str:
    """Why the webhook cannot be called: somebody has just changed what it is called by."""
    several = [f"{conflict.manager} changed {conflict.field}" for conflict in taken]
    return f"{ref}: {', '.join(several) or 'somebody changed or deleted it'}; it is being put right"


def refused(ref: object, failure: object) -> str:
    """An operand that the API server refuses."""
    return f"{ref} could not be changed: {failure}"


def left_out(resources: Mapping[str, str]) -> tuple[str, ...]:
    """Problems: facts that decisions are made without, by resource, each with the API server's words (PL-301)."""
    return tuple(
        f"pods are placed without {resource}, which the policy asks for: {words}"
        for resource, words in resources.items()
    )


def unusable(problems: Iterable[str]) -> tuple[str, ...]:
    """Problems: settings that the roles would refuse as they start (IN-030)."""
    return tuple(f"nothing is deployed or changed until this is corrected: {each}" for each in problems)


def version_problem(cluster: Cluster) -> tuple[str, ...]:
    """A problem if Kubernetes is too old to deploy anything (PL-504)."""
    if cluster.version >= OLDEST_KUBERNETES:
        return ()
    found, needed = (".".join(map(str, version)) for version in (cluster.version, OLDEST_KUBERNETES))
    return (f"this is Kubernetes {found}, and placement needs {needed} or newer: nothing is deployed",)


def refused_webhook(message: str) -> tuple[str, ...]:
    """A problem: the API server refused the pod webhook's configuration (PL-750)."""
    stays = "the API server refused the pod webhook's configuration, so the one in force stays"
    return (f"{stays}; correct spec.namespaceSelector: {message}",)
