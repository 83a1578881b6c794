"""Nodes as they are at one moment, with what is promised on them, wherever that is known from. Pure."""

from collections.abc import Mapping
from typing import Literal

import msgspec

from polyarch.numa.scheduling.facts.amounts import Amounts
from polyarch.numa.scheduling.facts.nodes import CellFacts, NodeFacts
from polyarch.numa.scheduling.facts.pods import PodFacts

Cells = tuple[int, ...]
Source = Literal["live", "reconstructed", "files"]
"""An extender's own state, or what it would make of the cluster's objects if it started now, or objects in files."""


class Held(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """What one pod holds until the node's object shows it."""

    pod: str
    """Namespace and name."""
    uid: str = ""
    cells: Mapping[int, Amounts] = {}
    is_spread: bool = False
    """Its cells are not known: ``cells`` has its amounts on every cell that lists them."""
    memory_groups: tuple[Cells, ...] = ()


class Resident(msgspec.Struct, frozen=True, gc=False):
    """A pod that is bound to the node and not over."""

    facts: PodFacts
    stays: bool = False
    """Whoever drains the node leaves it: a DaemonSet's pod, or a static one."""


class NodeSnapshot(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """One node."""

    facts: NodeFacts
    held: tuple[Held, ...] = ()
    residents: tuple[Resident, ...] = ()
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

    def free(self, cell: CellFacts) -> dict[str, int]:
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
