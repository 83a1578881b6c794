"""The desired state of a pod for a decision: the table of PL-245 as a value.

It has labels, annotations, expressions, preferred terms and our gate. The webhook's inline path and the controller use
the same function, so their results differ only in ``by`` (PL-111). Pure.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

import msgspec

from polyarch.placement import names
from polyarch.placement.decide import record
from polyarch.placement.decide.decision import Decision, Outcome, Reason
from polyarch.placement.decide.rules import Case


class Path(StrEnum):
    """How admission handles a pod; ``explain`` and metrics use these values."""

    IGNORED = "ignored"
    INLINE = "inline"
    GATED = "gated"
    AUDIT = "audit"
    UNAVAILABLE = "unavailable"


class By(StrEnum):
    """Who wrote the outcome (PL-246)."""

    ADMISSION = "admission"
    CONTROLLER = "controller"


class Target(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Everything of ours that the pod should have; anything else of ours is removed."""

    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    gate: bool
    decision: Decision | None = None
    """Defines the expressions and preferred terms; None: there are none."""


_RECORDED: Final = frozenset(
    {
        Reason.ARCHITECTURES_SET,
        Reason.ALL_IMAGES_NEUTRAL,
        Reason.PREFERENCES_ONLY,
        Reason.NO_SUPPORTED_ARCHITECTURE,
        Reason.FALLBACK_SET,
        Reason.PARTIALLY_CONSTRAINED,
        Reason.RELEASED_UNCONSTRAINED,
    }
)
_UNRESOLVED: Final = frozenset({Reason.FALLBACK_SET, Reason.PARTIALLY_CONSTRAINED, Reason.RELEASED_UNCONSTRAINED})


def gating(case: Case) -> Target:
    """Our gate and nothing else (PL-105)."""
    return Target(labels=_state(names.GATED, scoring_applies=case.scoring_applies), annotations={}, gate=True)


def target(case: Case, decision: Decision, by: By) -> Target:
    """The row of PL-245 for this decision."""
    scoring = case.scoring_applies
    match decision.outcome:
        case Outcome.IGNORED:
            return Target(labels=_state(names.NOT_SET, scoring_applies=scoring), annotations={}, gate=False)
        case Outcome.WAITING:
            return gating(case)
        case Outcome.FAILING | Outcome.HELD:
            count = names.RETRYING_COUNT if decision.outcome is Outcome.FAILING else names.GIVEN_UP_COUNT
            return Target(
                labels=_state(names.GATED, scoring_applies=scoring) | _inspect_error(count),
                annotations={names.IMAGE_INSPECT_ERROR_ANNOTATION: decision.failure},
                gate=True,
            )
    labels = _state(
        names.REMOVED,
        scoring_applies=scoring,
        affinity=decision.writes_expression,
        preferred=bool(decision.preferred),
    )
    return Target(
        labels=labels | _results(decision),
        annotations=_annotations(case, decision, by),
        gate=False,
        decision=decision,
    )


def audit_annotations(case: Case, decision: Decision) -> dict[str, str]:
    """The only change to an audited pod: the decision that ``enforce`` would have made (PL-130)."""
    if case.rule is not None:
        return {}
    return {names.DECISION_ANNOTATION: record.write(decision, by=By.ADMISSION, mode="audit", scope=case.scope)}


def _state(gate: str, *, scoring_applies: bool, affinity: bool = False, preferred: bool = False) -> dict[str, str]:
    labels = {
        names.SCHEDULING_GATE_LABEL: gate,
        names.NODE_AFFINITY_LABEL: names.SET if affinity else names.NOT_SET,
    }
    if scoring_applies:
        labels[names.PREFERRED_NODE_AFFINITY_LABEL] = names.SET if preferred else names.NOT_SET
    return labels


def _inspect_error(count: str) -> dict[str, str]:
    return {names.IMAGE_INSPECT_ERROR_LABEL: "", names.IMAGE_INSPECT_ERROR_COUNT_LABEL: count}


def _results(decision: Decision) -> dict[str, str]:
    match decision.reason:
        case Reason.ARCHITECTURES_SET:
            values = decision.architectures
            labels = {names.SINGLE_ARCH_LABEL if len(values) == 1 else names.MULTI_ARCH_LABEL: ""}
            for value in values:
                if value in names.ARCHITECTURE_LABELS:
                    labels[names.ARCHITECTURE_LABELS[value]] = ""
            return labels
        case Reason.NO_SUPPORTED_ARCHITECTURE:
            return {names.NO_SUPPORTED_ARCH_LABEL: ""}
        case Reason.FALLBACK_SET:
            fallback = {names.FALLBACK_ARCH_LABEL: ".".join(decision.architectures)}
            return fallback | _inspect_error(names.GIVEN_UP_COUNT)
        case Reason.PARTIALLY_CONSTRAINED | Reason.RELEASED_UNCONSTRAINED:
            return _inspect_error(names.GIVEN_UP_COUNT)
        case _:
            return {}


def _annotations(case: Case, decision: Decision, by: By) -> dict[str, str]:
    annotations = {}
    if decision.reason in _RECORDED:
        annotations[names.DECISION_ANNOTATION] = record.write(decision, by=by, mode="enforce", scope=case.scope)
    if decision.sources:
        annotations[names.PREFERRED_AFFINITY_SOURCES_ANNOTATION] = ",".join(map(str, decision.sources))
    if decision.reason in _UNRESOLVED:
        annotations[names.IMAGE_INSPECT_ERROR_ANNOTATION] = decision.failure
    return annotations
