"""Which pods a version of a node's object accounts for: a set of pods with the version's fingerprint (NS-104, NS-105).

An object is always a little older than what is known of the pods, or a little younger. So the pods of now are tried
first, then without those bound last, with those that left last, with those that have ended. Pure.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

import msgspec

from polyarch.numa.decide.fingerprint import of_hashes
from polyarch.numa.scheduling.ledger.residents import Resident

MOST_SETS: Final = 256
EXCLUSIVE: Final = "with-exclusive-resources"
Reading = Callable[[Resident], bool]
"""Whether a pod counts in a fingerprint."""


class Explanation(msgspec.Struct, frozen=True):
    """The set that was found: the pods of the node without ``removed``, with this many that are gone or over."""

    reading: Reading
    removed: frozenset[str] = frozenset()
    """Uids of pods that are on the node, and not in the object yet."""
    departed: int = 0
    with_ended: bool = False

    def shows(self, resident: Resident) -> bool:
        return resident.uid not in self.removed

    def counts(self, resident: Resident) -> bool:
        """Whether the fingerprint would be another one without it."""
        return self.shows(resident) and self.reading(resident)

    @property
    def is_present(self) -> bool:
        """All pods of now are in the object, and no other."""
        return not (self.removed or self.departed or self.with_ended)


def readings(method: str) -> tuple[Reading, ...]:
    """By the attribute of the method. An exporter of others may count by the kubelet's list or by the pods' specs."""
    return (_by_demand, _by_spec) if method == EXCLUSIVE else (_all,)


def fingerprint_of(residents: Iterable[Resident], method: str) -> str:
    """Of these pods, as the first reading has it."""
    reading = readings(method)[0]
    return of_hashes([each.name_hash for each in residents if reading(each)])


def explain(
    fingerprint: str,
    method: str,
    residents: Sequence[Resident],
    departed: Sequence[Resident],
    ended: Sequence[Resident],
) -> Explanation | None:
    """``residents`` in the order in which they were bound, ``departed`` those that left last first. None: no set of
    the first :data:`MOST_SETS` has this fingerprint, or there is none."""
    if not fingerprint:
        return None
    walks = []
    seen: list[list[str]] = []
    for reading in readings(method):
        present, gone, over = ([each for each in group if reading(each)] for group in (residents, departed, ended))
        counted = [each.uid for each in (*present, *gone, *over)]
        if counted not in seen:
            seen.append(counted)
            walks.append(_candidates(reading, present, gone, over))
    for _, candidates in zip(range(MOST_SETS), _in_turn(walks), strict=False):
        explanation, hashes = candidates
        if of_hashes(hashes) == fingerprint:
            return explanation
    return None


def _by_demand(resident: Resident) -> bool:
    return resident.is_listed and not resident.is_excluded


def _by_spec(resident: Resident) -> bool:
    return resident.is_listed_by_spec and not resident.is_excluded


def _all(resident: Resident) -> bool:
    return not resident.is_excluded


Candidates = Iterator[tuple[Explanation, list[int]]]


def _candidates(
    reading: Reading, present: Sequence[Resident], gone: Sequence[Resident], over: Sequence[Resident]
) -> Candidates:
    """Sets that differ in few pods from those of now come first."""
    unshown = [each for each in reversed(present) if not each.is_shown]
    ended = [each.name_hash for each in over]
    for steps in range(len(unshown) + len(gone) + 1):
        for fewer in range(max(0, steps - len(gone)), min(steps, len(unshown)) + 1):
            removed = frozenset(each.uid for each in unshown[:fewer])
            more = steps - fewer
            hashes = [each.name_hash for each in present if each.uid not in removed]
            hashes += [each.name_hash for each in gone[:more]]
            yield Explanation(reading, removed, more, with_ended=False), hashes
            if ended:
                yield Explanation(reading, removed, more, with_ended=True), hashes + ended


def _in_turn(walks: Sequence[Candidates]) -> Candidates:
    """One of each walk after the other."""
    left = list(walks)
    while left:
        for walk in list(left):
            try:
                yield next(walk)
            except StopIteration:
                left.remove(walk)
