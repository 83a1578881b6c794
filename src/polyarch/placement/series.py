"""Pods come in series: what the rules said of a pod is said again of the next one like it.

A thousand replicas of one template are a thousand equal questions, as a pod without a name yet differs from its
siblings in nothing that a rule reads. The likeness of two pods is the encoded form of exactly what the model reads of
them, so that nothing a rule could look at is left out of it; the settings, sources and nodes have to be the same
objects, and the answers of the registries equal. Everything else is decided anew. Pure, like the rules themselves; an
answer from here costs a third of a decision (PL-801), and how much is remembered is bounded.
"""

from collections import OrderedDict
from collections.abc import Mapping
from typing import Final, NamedTuple

import msgspec

from polyarch.model.meta import OwnerReference
from polyarch.model.pod import PodSpec
from polyarch.oci.inspection import Inspection
from polyarch.placement.admission import Admission, admit
from polyarch.placement.rules import Case, Facts, decide, examine

CAPACITY: Final = 512
"""Series in memory, of about 10 KiB each; the one not asked for longest is forgotten."""
LONGEST: Final = 32 * 1024
"""Bytes of a likeness; a pod of more is decided each time."""


class _Likeness(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """All that a decision at admission can depend on in the pod itself: no name, no uid, no times."""

    namespace: str
    labels: dict[str, str] | None
    annotations: dict[str, str] | None
    owners: list[OwnerReference] | None
    spec: PodSpec


_encode = msgspec.json.Encoder().encode


class _Said(NamedTuple):
    """What was answered last, and what it rested on."""

    answers: Mapping[str, Inspection]
    controller_available: bool
    deprovisioning: bool
    admission: Admission


class Look:
    """One series: ``case`` is the look at its first pod, and holds for all of them."""

    __slots__ = ("_said", "case")

    def __init__(self, case: Case) -> None:
        self.case = case
        self._said: _Said | None = None

    def admission(
        self, answers: Mapping[str, Inspection], *, controller_available: bool, deprovisioning: bool
    ) -> Admission:
        """What :func:`admit` says; the last time's if it rests on the same."""
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
            said = self._said = _Said(dict(answers), controller_available, deprovisioning, admission)
        return said.admission


class Series:
    """The series of pods that one process has admitted lately. For pods that are being admitted, not stored ones."""

    def __init__(self, capacity: int = CAPACITY) -> None:
        self._capacity = capacity
        self._looks: OrderedDict[bytes, Look] = OrderedDict()

    def __len__(self) -> int:
        return len(self._looks)

    def look(self, facts: Facts) -> Look:
        """The look at a pod like this one under the same facts, or a new one."""
        pod, metadata = facts.pod, facts.pod.metadata
        key = _encode(
            _Likeness(facts.namespace, metadata.labels, metadata.annotations, metadata.owner_references, pod.spec)
        )
        look = self._looks.get(key)
        if look is not None and _are_same(look.case.facts, facts):
            self._looks.move_to_end(key)
            return look
        look = Look(examine(facts))
        if len(key) <= LONGEST:
            self._looks[key] = look
            self._looks.move_to_end(key)
            if len(self._looks) > self._capacity:
                self._looks.popitem(last=False)
        return look


def _are_same(then: Facts, now: Facts) -> bool:
    """What is compiled once per namespace is compared as an object: a change makes a new one."""
    return then.settings is now.settings and then.sources is now.sources and then.nodes is now.nodes
