"""Nodes as they are at one moment, with what is promised on them, wherever that is known from; and the rules of a mode.

Without an extender, :func:`reconstructed` adds what one would hold reserved if it started now. Pure.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Literal

import msgspec

from polyarch.numa.fit.demand import PodDemandCache
from polyarch.numa.fit.evaluate import evaluate
from polyarch.numa.fit.facts import Amounts, ExactOptions, FitDecision, NodeFacts, PodFacts, ZoneFacts
from polyarch.numa.reservations import Reservation, ReservationCache

Mode = Literal["exact", "advise"]
NodeRules = Callable[[NodeFacts, Mapping[int, Amounts], Iterable[tuple[int, ...]]], FitDecision]
"""Of one pod: a node, what is free by cell, and sets of cells whose memory is given out together."""
PodRules = Callable[[PodFacts], NodeRules]


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """Of mode and options."""

    mode: Mode = "exact"
    exact: ExactOptions = ExactOptions()
    scheduler: str = ""
    """Whose extender was asked; empty: none."""
    evicts: bool | None = None
    """Whether that one evicts pods for more important ones; None: nobody knows."""


def rules_of(choice: Choice) -> PodRules:
    """Advise differs from exact in what is answered, not in what fits."""

    def of(pod: PodFacts) -> NodeRules:
        demands = PodDemandCache(pod)
        return lambda node, free, groups: evaluate(
            pod, node, free, choice.exact, demand=demands.on(node) if node.has_topology else None, groups=groups
        )

    return of


# -- the snapshot ------------------------------------------------------------------------------------------------------


Cells = tuple[int, ...]
Source = Literal["live", "reconstructed", "files"]
"""An extender's own state, or what it would make of the cluster's objects if it started now, or objects in files."""


class SnapshotReservation(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """What one pod holds until the node's object shows it."""

    pod: str
    """Namespace and name."""
    uid: str = ""
    cells: Mapping[int, Amounts] = {}
    is_spread: bool = False
    """Its cells are not known: ``cells`` has its amounts on every cell that lists them."""
    memory_groups: tuple[Cells, ...] = ()


class SnapshotPod(msgspec.Struct, frozen=True, gc=False):
    """A pod that is bound to the node and not over."""

    facts: PodFacts
    stays: bool = False
    """Whoever drains the node leaves it: a DaemonSet's pod, or a static one."""


class NodeSnapshot(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """One node."""

    facts: NodeFacts
    held: tuple[SnapshotReservation, ...] = ()
    residents: tuple[SnapshotPod, ...] = ()
    is_cordoned: bool = False
    is_unexplained: bool = False
    """No set of pods has the fingerprint of the object."""
    is_mispredicted: bool = False
    is_foreign: bool = False
    age: float | None = None
    """Seconds since the object was written or its exporter scanned, whichever is later; None: nobody knows."""
    is_stale: bool = False
    """Its exporter has been silent for too long."""

    @property
    def name(self) -> str:
        return self.facts.name

    @property
    def memory_groups(self) -> tuple[Cells, ...]:
        return tuple(group for each in self.held for group in each.memory_groups)

    def reserved(self, cell: int, resource: str) -> int:
        """On this cell, by all pods together."""
        return sum(each.cells.get(cell, {}).get(resource, 0) for each in self.held)

    def free(self, cell: ZoneFacts) -> dict[str, int]:
        """What is available without what is reserved."""
        left = dict(cell.available)
        for each in self.held:
            for resource, amount in each.cells.get(cell.id, {}).items():
                if resource in left:
                    left[resource] = max(0, left[resource] - amount)
        return left


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """The nodes in the order of their names."""

    source: Source
    nodes: tuple[NodeSnapshot, ...] = ()
    knows_pods: bool = False
    """``residents`` are all there are; else sums over a node count pods of the question alone."""

    def node(self, name: str) -> NodeSnapshot | None:
        return next((each for each in self.nodes if each.name == name), None)


# -- reservations without an extender ----------------------------------------------------------------------------------


def reconstructed(snapshot: Snapshot, options: ExactOptions, *, unix: float) -> Snapshot:
    """With reservations for pods that the objects do not show yet. ``unix``: the time of the snapshot, in seconds."""
    if not snapshot.knows_pods:
        return snapshot
    ledger = ReservationCache(options)
    for node in snapshot.nodes:
        ledger.topology_seen(node.facts, 0.0)
    for node in snapshot.nodes:
        for resident in node.residents:
            ledger.pod_seen(resident.facts, 0.0)
    ledger.start(0.0, unix)
    nodes = tuple(_with_reservations(node, ledger) for node in snapshot.nodes)
    return msgspec.structs.replace(snapshot, nodes=nodes)


def _with_reservations(node: NodeSnapshot, ledger: ReservationCache) -> NodeSnapshot:
    held = sorted(ledger.reservations(node.name).values(), key=lambda each: (each.pod, each.uid))
    is_unexplained = ledger.is_explained(node.name) is False and bool(node.facts.fingerprint)
    if not held and not is_unexplained:
        return node
    return msgspec.structs.replace(node, held=tuple(map(_held, held)), is_unexplained=is_unexplained)


def _held(found: Reservation) -> SnapshotReservation:
    return SnapshotReservation(
        pod=found.pod,
        uid=found.uid,
        cells=found.cells,
        is_spread=found.is_spread,
        memory_groups=found.memory_groups,
    )
