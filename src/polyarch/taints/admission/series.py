"""What was decided for equal pods, such as the replicas of a template (TN-040, TN-091).

Most pods are created by the dozen. What was added to one is added to the next without deciding again, as long as the
facts are the same objects, the answers are equal and gates may be added as before. A hit costs a quarter of a decision.
The cache is bounded. Only for pods at admission: stored ones are decided one by one.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

import msgspec

from polyarch.kube.patches import Operation
from polyarch.objects import Pod
from polyarch.oci.answer import Inspection
from polyarch.pods.additions import NOTHING, Addition
from polyarch.pods.series import Series, are_few
from polyarch.taints.decide.decision import Outcome, PodDecision, Progress
from polyarch.taints.decide.rules import Case, Facts, decide, examine
from polyarch.taints.result.pod_patch import admission_patch

CAPACITY: Final = 256
"""Series in the cache; the least recently used is evicted."""
BYTES: Final = 512 * 1024
"""Limit of all keys together; the cached values take up to ten times as much."""


class Said(NamedTuple):
    """What is added to a pod, and the decision behind it."""

    decision: PodDecision
    addition: Addition


class _Known(NamedTuple):
    answers: Mapping[str, Inspection]
    progress: Progress
    said: Said


class Look:
    """One series; ``case`` was made for its first pod and is valid for all."""

    __slots__ = ("_known", "case")

    def __init__(self, case: Case) -> None:
        self.case = case
        self._known: _Known | None = None

    def said(self, answers: Mapping[str, Inspection], progress: Progress) -> Said:
        """What is added for these answers; what was said before if they are the same."""
        known = self._known
        if known is not None and known.progress is progress and known.answers == answers:
            return known.said
        decision = decide(self.case, answers, progress)
        said = Said(decision, addition(decision, admission_patch(self.case, decision)))
        if are_few(answers.values()):
            self._known = _Known(dict(answers), progress, said)
        return said


def recent_series() -> Series[Facts, Look]:
    """The series recently admitted by this process."""
    return Series(_look, _holds, capacity=CAPACITY, weight=BYTES)


def _look(facts: Facts, pod: Pod) -> Look:
    return Look(examine(msgspec.structs.replace(facts, pod=pod)))


def _holds(look: Look, now: Facts) -> bool:
    then = look.case.facts
    return (
        then.settings is now.settings
        and then.existing is now.existing
        and then.os == now.os
        and then.short_names_searched is now.short_names_searched
        and then.namespace_labels == now.namespace_labels
    )


def addition(decision: PodDecision, operations: tuple[Operation, ...]) -> Addition:
    """What a decision, carried out by these operations, adds to the answer about a pod."""
    if decision.outcome is Outcome.DENIED:
        return Addition(denial=decision.message)
    return Addition(operations) if operations else NOTHING
