"""Cache of admission decisions for equal pods, such as the replicas of a template (PL-801).

A cached decision is used only if settings, sources and nodes are the same objects and the image answers are equal. A
hit costs a third of a decision. The cache is bounded. Pure, like the rules.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

import msgspec

from polyarch.images.additions import Addition, joined
from polyarch.images.decision_cache import Series, are_few
from polyarch.kube.patches import Operation
from polyarch.objects import Pod
from polyarch.oci.answer import Inspection
from polyarch.placement.decide.rules import Case, Facts, decide, examine
from polyarch.placement.result.admission import Admission, admit

CAPACITY: Final = 512
"""Series in the cache, of about 10 KiB each; the least recently used is evicted."""
BYTES: Final = 1024 * 1024
"""Limit of all keys together; the cached values take up to thirty times as much."""


class _Said(NamedTuple):
    """The last response, and the inputs it was made from."""

    answers: Mapping[str, Inspection]
    controller_available: bool
    deprovisioning: bool
    admission: Admission


class _Joined(NamedTuple):
    """The last patch with an addition, and what it was made from."""

    admission: Admission
    added: Addition
    operations: tuple[Operation, ...]


class Look:
    """One series; ``case`` was made for its first pod and is valid for all."""

    __slots__ = ("_joined", "_said", "case")

    def __init__(self, case: Case) -> None:
        self.case = case
        self._said: _Said | None = None
        self._joined: _Joined | None = None

    def admission(
        self, answers: Mapping[str, Inspection], *, controller_available: bool, deprovisioning: bool
    ) -> Admission:
        """The result of :func:`admit`; the cached one if the inputs are the same."""
        said = self._said
        if (
            said is None
            or said.controller_available is not controller_available
            or said.deprovisioning is not deprovisioning
            or said.answers != answers
        ):
            admission = admit(
                self.case,
                decide(self.case, answers),
                controller_available=controller_available,
                deprovisioning=deprovisioning,
            )
            if not are_few(answers.values()):
                return admission
            said = self._said = _Said(dict(answers), controller_available, deprovisioning, admission)
        return said.admission

    def patch(self, admission: Admission, added: Addition) -> tuple[Operation, ...]:
        """The result of :func:`joined`; the cached one for the same admission and addition."""
        if not added.operations:
            return admission.operations
        made = self._joined
        if made is None or made.admission is not admission or made.added is not added:
            made = self._joined = _Joined(admission, added, joined(admission.operations, added.operations))
        return made.operations


def recent_series(capacity: int = CAPACITY) -> Series[Facts, Look]:
    """The series recently admitted by this process."""
    return Series(_look, _holds, capacity=capacity, weight=BYTES)


def _look(facts: Facts, pod: Pod) -> Look:
    return Look(examine(msgspec.structs.replace(facts, pod=pod)))


def _holds(look: Look, now: Facts) -> bool:
    """Compares by identity what is compiled once per namespace: a change creates a new object."""
    then = look.case.facts
    return (
        then.settings is now.settings
        and then.sources is now.sources
        and then.nodes is now.nodes
        and then.seal is now.seal
        and then.record_was_sent is now.record_was_sent
    )
