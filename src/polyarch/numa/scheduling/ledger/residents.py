"""A pod on its node, as far as the ledger has to know it: a hash for fingerprints, when it was admitted, whether the
node's object shows it.

There is one for each pod of the cluster, so the pod itself is kept only where it may hold something of a cell
(NS-171). Pure.
"""

import re
from collections.abc import Iterator, Mapping
from datetime import datetime
from functools import lru_cache
from typing import Final, Self

from polyarch.numa.api.scan_settings import PodPattern
from polyarch.numa.decide.exclusions import MalformedPattern, pattern
from polyarch.numa.decide.fingerprint import pod_hash
from polyarch.numa.scheduling.facts.amounts import CPU, is_affine, is_device
from polyarch.numa.scheduling.facts.nodes import NodeFacts
from polyarch.numa.scheduling.facts.pods import PodFacts, is_whole
from polyarch.numa.scheduling.ledger.reservations import Cells


class Resident:
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
        """The same, by the shorter rule of NS-105."""
        self.is_waiting = True
        """Nobody has looked yet whether it needs a reservation: its node has no cells so far."""
        self.is_shown = False
        """Some version of the node's object has shown it."""
        self.is_suspect = False
        """A version may name it and mean an earlier pod of the same name."""
        self.placed: Cells | None = None
        """The cells it is predicted to hold; None: nothing, or nobody knows where."""


class Excluding:
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
            yield pattern(each.namespace), pattern(each.name)
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
    """A container that runs as long as the pod requests a device that some cell lists or, in a Guaranteed pod, whole
    CPUs, memory or huge pages (NS-105)."""
    devices = {name for cell in node.cells for name in cell.available if is_device(name)}
    return any(
        _is_exclusive(name, amount, devices, is_guaranteed=pod.is_guaranteed)
        for each in pod.containers
        if each.kind != "init"
        for name, amount in each.requests.items()
    )


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
