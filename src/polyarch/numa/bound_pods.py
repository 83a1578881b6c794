"""Which pods a node's NodeResourceTopology accounts for, so that nothing has to be reserved for them any more.

There is one :class:`BoundPod` for each bound pod of the cluster, so the pod's facts are kept only where it may hold
something of a zone. A version of the topology accounts for a set of pods that has its fingerprint. Where pods are not
on the zones that were predicted, predictions are distrusted for a while. Pure.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Final, Literal, Self

import msgspec

from polyarch.numa.facts import MalformedPattern, PodPattern, compile_pattern
from polyarch.numa.fingerprint import fingerprint_of_hashes, pod_hash
from polyarch.numa.fit.facts import CPU, NodeFacts, NodeSettings, PodFacts, is_affine, is_device, is_memory, is_whole


class BoundPod:
    """Mutable; its account changes it."""

    __slots__ = (
        "admitted",
        "admitted_at_event",
        "admitted_version",
        "facts",
        "full_name",
        "is_excluded",
        "is_listed",
        "is_listed_by_spec",
        "is_shown",
        "is_suspect",
        "is_waiting",
        "name_hash",
        "placed",
        "started",
        "uid",
        "version",
    )

    def __init__(self, pod: PodFacts) -> None:
        self.uid: Final = pod.uid
        self.full_name: Final = pod.full_name
        self.name_hash: Final = pod_hash((pod.namespace, pod.name))
        self.facts: PodFacts | None = pod if may_align(pod) else None
        self.version = pod.resource_version if self.facts is not None else ""
        """As it was seen first."""
        self.started = _unix(pod.started_at)
        """The kubelet's ``startTime``; None: it is not there yet, or no time."""
        self.admitted: float | None = None
        """When the kubelet's ``startTime`` was seen first."""
        self.admitted_at_event = 0
        """The number of that event."""
        self.admitted_version = ""
        self.is_excluded = False
        """The node's exporter leaves it out."""
        self.is_listed = False
        """The kubelet lists it as holding something exclusively, by its demand on this node."""
        self.is_listed_by_spec = False
        """The same, by the shorter rule: no init containers, and only devices that some cell lists."""
        self.is_waiting = True
        """Nobody has looked yet whether it needs a reservation: its node has no cells so far."""
        self.is_shown = False
        """Some version of the node's object has shown it."""
        self.is_suspect = False
        """A version may name it and mean an earlier pod of the same name."""
        self.placed: Mapping[int, Mapping[str, int]] | None = None
        """The cells it is predicted to hold; None: nothing, or nobody knows where."""


class PodExclusions:
    """The patterns of an exporter's ``podExclude``; what no shell would take for one covers nothing."""

    __slots__ = ("_pairs",)

    def __init__(self, patterns: tuple[PodPattern, ...]) -> None:
        self._pairs = list(_compiled(patterns))

    @classmethod
    @lru_cache(maxsize=64)
    def of(cls, patterns: tuple[PodPattern, ...]) -> Self:
        return cls(patterns)

    def covers(self, full_name: str) -> bool:
        if not self._pairs:
            return False
        namespace, _, name = full_name.partition("/")
        return any(ours.fullmatch(namespace) and theirs.fullmatch(name) for ours, theirs in self._pairs)


def _compiled(patterns: tuple[PodPattern, ...]) -> Iterator[tuple[re.Pattern[str], re.Pattern[str]]]:
    for each in patterns:
        try:
            yield compile_pattern(each.namespace), compile_pattern(each.name)
        except MalformedPattern:
            continue


def _unix(time: str) -> float | None:
    try:
        return datetime.fromisoformat(time).timestamp() if time else None
    except ValueError:
        return None


def may_align(pod: PodFacts) -> bool:
    """Whether the pod could hold something of a cell on some node."""
    if pod.is_guaranteed:
        return any(amount > 0 for each in _requests(pod) for amount in each.values())
    return any(is_device(name) and amount > 0 for each in _requests(pod) for name, amount in each.items())


def is_exclusive_by_spec(pod: PodFacts, node: NodeFacts) -> bool:
    """A container that runs as long as the pod requests a device that some cell has or, in a Guaranteed pod, whole
    CPUs, memory or huge pages."""
    devices = devices_of_zones(node)
    return any(
        _is_exclusive(name, amount, devices, is_guaranteed=pod.is_guaranteed)
        for each in pod.containers
        if each.kind != "init"
        for name, amount in each.requests.items()
    )


def devices_of_zones(node: NodeFacts) -> set[str]:
    """Devices that a zone has. Zones list others, with nothing of them: their kubelet knows no zone of those."""
    return {name for cell in node.cells for name, amount in cell.capacity.items() if amount and is_device(name)}


def _is_exclusive(name: str, amount: int, devices: set[str], *, is_guaranteed: bool) -> bool:
    if amount <= 0:
        return False
    if name == CPU:
        return is_guaranteed and is_whole(amount)
    return name in devices or (is_guaranteed and is_affine(name))


def has_ordinary_init(pod: PodFacts) -> bool:
    """Such containers hold what no exporter lists."""
    return any(each.kind == "init" for each in pod.containers)


def _requests(pod: PodFacts) -> list[Mapping[str, int]]:
    of_pod = [pod.pod_requests] if pod.pod_requests is not None else []
    return [*(each.requests for each in pod.containers), *of_pod]


# -- fingerprint -------------------------------------------------------------------------------------------------------


MOST_SETS: Final = 256
EXCLUSIVE: Final = "with-exclusive-resources"
Reading = Callable[[BoundPod], bool]
"""Whether a pod counts in a fingerprint."""


class FingerprintMatch(msgspec.Struct, frozen=True):
    """The set that was found: the pods of the node without ``removed``, with this many that are gone or over."""

    reading: Reading
    removed: frozenset[str] = frozenset()
    """Uids of pods that are on the node, and not in the object yet."""
    departed: int = 0
    with_ended: bool = False

    def shows(self, resident: BoundPod) -> bool:
        return resident.uid not in self.removed

    def counts(self, resident: BoundPod) -> bool:
        """Whether the fingerprint would be another one without it."""
        return self.shows(resident) and self.reading(resident)

    @property
    def is_present(self) -> bool:
        """All pods of now are in the object, and no other."""
        return not (self.removed or self.departed or self.with_ended)


def readings(method: str) -> tuple[Reading, ...]:
    """By the attribute of the method. An exporter of others may count by the kubelet's list or by the pods' specs."""
    return (_by_demand, _by_spec) if method == EXCLUSIVE else (_all,)


def fingerprint_of(residents: Iterable[BoundPod], method: str) -> str:
    """Of these pods, as the first reading has it."""
    reading = readings(method)[0]
    return fingerprint_of_hashes([each.name_hash for each in residents if reading(each)])


def match_fingerprint(
    fingerprint: str,
    method: str,
    residents: Sequence[BoundPod],
    departed: Sequence[BoundPod],
    ended: Sequence[BoundPod],
) -> FingerprintMatch | None:
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
        if fingerprint_of_hashes(hashes) == fingerprint:
            return explanation
    return None


def _by_demand(resident: BoundPod) -> bool:
    return resident.is_listed and not resident.is_excluded


def _by_spec(resident: BoundPod) -> bool:
    return resident.is_listed_by_spec and not resident.is_excluded


def _all(resident: BoundPod) -> bool:
    return not resident.is_excluded


Candidates = Iterator[tuple[FingerprintMatch, list[int]]]


def _candidates(
    reading: Reading, present: Sequence[BoundPod], gone: Sequence[BoundPod], over: Sequence[BoundPod]
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
            yield FingerprintMatch(reading, removed, more, with_ended=False), hashes
            if ended:
                yield FingerprintMatch(reading, removed, more, with_ended=True), hashes + ended


def _in_turn(walks: Sequence[Candidates]) -> Candidates:
    """One of each walk after the other."""
    left = list(walks)
    while left:
        for walk in list(left):
            try:
                yield next(walk)
            except StopIteration:
                left.remove(walk)


# -- confirmation ------------------------------------------------------------------------------------------------------


UNKNOWN_PERIOD: Final = 60.0
MARGIN: Final = 10.0


class TopologyVersion(msgspec.Struct, frozen=True, kw_only=True):
    """The version of a node's object that is there now, and how it came."""

    name: str
    """Its resourceVersion."""
    method: str
    received: float
    at_event: int
    """The number of the event by which it came."""
    is_first: bool = False
    """None was known before it."""
    is_doubtful: bool = False
    """Pods that nobody here has ever seen may be in it: it is the first, and nothing explained it."""


Confirmation = Literal["settled", "unexplained"]


def grace_period(settings: NodeSettings) -> float:
    """Seconds after an admission in which an exporter must have scanned."""
    period = settings.refresh_period
    return 2 * (period or UNKNOWN_PERIOD) + MARGIN


def confirmation(
    resident: BoundPod,
    version: TopologyVersion,
    explanation: FingerprintMatch | None,
    *,
    now: float,
    grace: float,
    is_namesake: bool,
    exporter_ready_since: float | None,
) -> Confirmation | None:
    """``is_namesake``: another pod of this namespace and name was on the node lately."""
    if resident.is_excluded:
        return None
    if explanation is None:
        late = _has_scanned_since(resident, version, now, grace, exporter_ready_since)
        return "unexplained" if late else None
    if not explanation.shows(resident):
        return None
    is_admitted = resident.admitted is not None
    may_be_later = is_admitted and not is_older(version.name, resident.admitted_version)
    # A fingerprint of exclusive resources with the pod in it proves that the pod holds them, if the name is its own.
    is_proof = version.method == EXCLUSIVE or may_be_later
    is_own_name = not (is_namesake or resident.is_suspect or version.is_doubtful)
    if is_proof and is_own_name and explanation.counts(resident):
        return "settled"
    # By another reading the set may leave out a pod that the kubelet lists: that tells nothing of it.
    is_told = explanation.counts(resident) or not resident.is_listed
    if is_told and may_be_later and version.at_event > resident.admitted_at_event:
        return "settled"
    return "settled" if resident.admitted is not None and now - resident.admitted >= grace else None


def is_shown_at_start(
    resident: BoundPod, version: TopologyVersion, explanation: FingerprintMatch | None, *, now: float, grace: float
) -> bool:
    """Whether the first version of an object shows a pod that was there before it. One admitted just now may
    have the name of an earlier one that the version means, unless the version is younger than what is known of it."""
    if resident.admitted is None or resident.is_excluded:
        return False
    if now - resident.admitted >= grace:
        return explanation is None or explanation.shows(resident)
    is_counted = explanation is not None and explanation.counts(resident)
    return is_counted and not is_older(version.name, resident.version)


def is_older(version: str, other: str) -> bool:
    """Of two resourceVersions: watches of two kinds do not keep a common order, but the numbers of one etcd do. This is
    never more than a reason to wait, so where the numbers are from two the ledger waits longer and is not wrong.
    False where they are no numbers."""
    return version.isdecimal() and other.isdecimal() and int(version) < int(other)


def _has_scanned_since(
    resident: BoundPod, version: TopologyVersion, now: float, grace: float, exporter_ready_since: float | None
) -> bool:
    admitted = resident.admitted
    if admitted is None or now - admitted < grace:
        return False
    if version.received > admitted + grace:
        return True
    is_after = version.at_event > resident.admitted_at_event
    return is_after and exporter_ready_since is not None and exporter_ready_since <= admitted


# -- prediction --------------------------------------------------------------------------------------------------------


DISTRUST: Final = 600.0
"""Seconds for which the reservations of a mispredicted node are spread."""


class TopologyPrediction:
    """Of one node. Begins with a version that shows just the pods that are there."""

    __slots__ = ("_available", "_totals")

    def __init__(self) -> None:
        self._available: dict[tuple[int, str], int] | None = None
        self._totals: dict[tuple[int, str], int] = {}

    def begin(self, node: NodeFacts) -> None:
        self._totals = _totals(node)
        self._available = {(cell.id, name): amount for cell in node.cells for name, amount in cell.available.items()}

    def forget(self) -> None:
        """Something has happened that cannot be reckoned with: a pod has left, or one is on cells that nobody knows."""
        self._available = None

    def settled(self, resident: BoundPod) -> None:
        """The object shows this pod now."""
        if self._available is None or resident.facts is None:
            return
        if resident.placed is None or has_ordinary_init(resident.facts):
            self.forget()
            return
        for cell, amounts in resident.placed.items():
            for name, amount in amounts.items():
                place = cell, name
                self._available[place] = self._available.get(place, 0) - amount

    def is_missed(self, node: NodeFacts) -> bool:
        """Some cell has less than expected."""
        if self._available is None or self._totals != _totals(node):
            return False
        # Nobody can tell which cell of a group a block of memory is taken from.
        return any(
            amount < self._available.get((cell.id, name), 0)
            for cell in node.cells
            for name, amount in cell.available.items()
            if not (cell.memory_group and is_memory(name))
        )


def _totals(node: NodeFacts) -> dict[tuple[int, str], int]:
    return {(cell.id, name): amount for cell in node.cells for name, amount in cell.allocatable.items()}
