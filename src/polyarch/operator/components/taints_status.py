"""The conditions of ArchitectureTaints that the operator writes.

The role's leader writes the status. What it cannot know the operator applies as a field manager of its own. What it
cannot say, because no pod of it runs, the operator sets until the leader is back. Pure."""

from collections.abc import Sequence
from typing import Final

import msgspec

from polyarch.objects import Condition
from polyarch.operator.operands import NAMESPACE_NAME, RolloutStatus
from polyarch.selectors import Requirement, Selector
from polyarch.taints import names
from polyarch.taints.settings import TaintSettings

FIELD_MANAGER: Final = "polyarch-operator"
DEPLOYED: Final = "Deployed"
"""Only there while it is False."""
SILENCE_REPORTED_AFTER: Final = 30.0
"""Seconds without an available pod after which what the leader said last is no longer true."""
NAMED_AT_MOST: Final = 5
LONGEST: Final = 4096
"""Characters of one message."""


def not_available(rollout: RolloutStatus, problems: Sequence[str]) -> Condition:
    """No pod of the role is available. ``problems``: objects that the API server refused."""
    told = "; ".join([f"Deployment {names.ROLE}: {rollout.summary}", *_few(problems)])
    return Condition("Ready", "False", "RoleNotAvailable", _shortened(told))


def refused(problems: Sequence[str]) -> Condition | None:
    """Not everything of the role is as it should be, whatever its leader says; None: it is."""
    return Condition(DEPLOYED, "False", "OperandRefused", _shortened("; ".join(_few(problems)))) if problems else None


def not_removed(failures: Sequence[str]) -> Condition:
    """The object is being deleted, and this is what the operator itself could not remove, and why."""
    told = f"taints or gates could not be removed: {'; '.join(_few(failures))}"
    return Condition("Degraded", "True", "NotRemoved", _shortened(told))


def _few(several: Sequence[str]) -> list[str]:
    more = len(several) - NAMED_AT_MOST
    return [*several[:NAMED_AT_MOST], *([f"and {more} more"] if more > 0 else [])]


def _shortened(message: str) -> str:
    return message if len(message) <= LONGEST else message[: LONGEST - 1] + "…"


# -- Whether placement constrains the pods that taints are for: condition ``AffinityCovered``.


AFFINITY_COVERED: Final = "AffinityCovered"


class PlacementScope(msgspec.Struct, frozen=True, kw_only=True):
    """What placement does, as far as it matters here."""

    namespaces: Selector | None = None
    """Whose pods it places; None: those of all."""
    excluded: tuple[str, ...] = ()
    """Names of namespaces, and ``prefix-*``."""
    audits: bool = False
    """It only tells what it would do."""


def affinity_covered(taints: TaintSettings, placement: PlacementScope | None) -> Condition | None:
    """The condition; None in the other modes, which ask nothing of placement. ``placement`` is None if it is off."""
    if taints.mode != "both":
        return None
    if placement is None:
        return _condition(
            "PlacementNotConfigured",
            "there is no ClusterPodPlacementConfig, so pods get tolerations and no node affinity; create the one that "
            "is called cluster",
        )
    if placement.audits:
        return _condition(
            "PlacementAudits",
            "the PlacementPolicy has mode audit, so pods get tolerations and no node affinity; set mode: enforce",
        )
    if missing := _not_placed(taints, placement):
        return _condition(
            "PodsNotPlaced",
            f"pods of namespaces without {missing[0]} get tolerations and no node affinity; choose the same namespaces "
            "in the ClusterPodPlacementConfig and in spec.pods",
        )
    return Condition(AFFINITY_COVERED, "True", "SamePods", "placement constrains the pods that get tolerations")


def _not_placed(taints: TaintSettings, placement: PlacementScope) -> list[str]:
    """What placement asks of a namespace and taints does not."""
    asked = placement.namespaces.requirements if placement.namespaces is not None else ()
    known = taints.namespace_selector.requirements if taints.namespace_selector is not None else ()
    missing = [_words(each) for each in asked if each not in known and not _is_excluded(each, taints)]
    excluded = sorted(set(placement.excluded) - set(taints.excluded_namespaces))
    return missing + [f"{NAMESPACE_NAME} other than {name}" for name in excluded]


def _is_excluded(asked: Requirement, taints: TaintSettings) -> bool:
    """Whether it keeps away namespaces by name that are excluded here as well."""
    by_name = asked.key == NAMESPACE_NAME and asked.operator == "NotIn"
    return by_name and set(asked.values) <= set(taints.excluded_namespaces)


def _words(asked: Requirement) -> str:
    values = f" {', '.join(asked.values)}" if asked.values else ""
    return f"{asked.key} {asked.operator}{values}"


def _condition(reason: str, message: str) -> Condition:
    return Condition(AFFINITY_COVERED, "False", reason, message)
