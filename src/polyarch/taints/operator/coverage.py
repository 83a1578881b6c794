"""Whether placement constrains the pods that taints are for: condition ``AffinityCovered`` (TN-013).

A taint repels and an affinity attracts: in mode ``both`` a pod should have both. The operator alone knows the
configurations of both features, so it writes this condition. Pure.
"""

from typing import Final

import msgspec

from polyarch.objects import Condition
from polyarch.operating.webhooks import NAMESPACE_NAME
from polyarch.selectors import Requirement, Selector
from polyarch.taints.settings import TaintSettings

AFFINITY_COVERED: Final = "AffinityCovered"


class Placement(msgspec.Struct, frozen=True, kw_only=True):
    """What placement does, as far as it matters here."""

    namespaces: Selector | None = None
    """Whose pods it places; None: those of all."""
    excluded: tuple[str, ...] = ()
    """Names of namespaces, and ``prefix-*``."""
    audits: bool = False
    """It only tells what it would do."""


def affinity_covered(taints: TaintSettings, placement: Placement | None) -> Condition | None:
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


def _not_placed(taints: TaintSettings, placement: Placement) -> list[str]:
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
