"""Cache of admission decisions for equal pods, such as the replicas of a template (PL-801).

A cached decision is used only if settings, sources and nodes are the same objects and the image answers are equal. A
hit costs a third of a decision. The cache is bounded. Pure, like the rules.
"""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

import msgspec

from polyarch.kube.client.jsonpatch import Operation
from polyarch.oci.answer import Inspection
from polyarch.oci.cache.recent import Recent
from polyarch.placement.decide.rules import Case, Facts, decide, examine
from polyarch.placement.result.admission import Admission, admit
from polyarch.pods.additions import Addition, joined
from polyarch.pods.likeness import LONGEST, Likeness

CAPACITY: Final = 512
"""Series in the cache, of about 10 KiB each; the least recently used is evicted."""
BYTES: Final = 1024 * 1024
"""Limit of all keys together; the cached values take up to thirty times as much."""
ENTRIES: Final = 256
"""Maximum index entries in the answers of a pod; with more, its decision is not cached."""


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
            if _entries(answers.values()) > ENTRIES:
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


class Series:
    """The series recently admitted by this process. For pods at admission, not stored ones."""

    def __init__(self, capacity: int = CAPACITY) -> None:
        self._looks: Recent[bytes, Look] = Recent(capacity, weight=BYTES)

    def __len__(self) -> int:
        return len(self._looks)

    def look(self, facts: Facts) -> Look:
        """The cached series of an equal pod under the same facts, or a new one."""
        likeness = Likeness.of(facts.pod, facts.namespace)
        key = likeness.key
        look = self._looks.get(key)
        if look is not None and _are_same(look.case.facts, facts):
            return look
        look = Look(examine(msgspec.structs.replace(facts, pod=likeness.pod)))
        if len(key) <= LONGEST:
            self._looks.put(key, look, weight=len(key))
        return look


def _are_same(then: Facts, now: Facts) -> bool:
    """Compares by identity what is compiled once per namespace: a change creates a new object."""
    return (
        then.settings is now.settings
        and then.sources is now.sources
        and then.nodes is now.nodes
        and then.seal is now.seal
        and then.record_was_sent is now.record_was_sent
    )


def _entries(answers: Iterable[Inspection]) -> int:
    """Index entries in the answers; their number is up to the images' publishers."""
    whole = [each for answer in answers for each in (answer, answer.last_good) if each is not None]
    return sum(len(each.entries) + len(each.skipped) for each in whole)
