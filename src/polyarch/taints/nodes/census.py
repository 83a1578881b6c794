"""How many nodes there are of each architecture, and what became of their taints (TN-014, TN-083).

Kept up to date with every decision, so that a status costs no walk over all nodes.
"""

from collections import Counter
from collections.abc import Iterator
from enum import StrEnum

import msgspec

from polyarch.taints.decide.node_taints import NodeDecision


class State(StrEnum):
    """What one node counts as."""

    TAINTED = "tainted"
    WAITING = "waiting"
    UNTAINTED = "untainted"
    """Managed, and not to be tainted: a primary architecture."""
    SKIPPED = "skipped"
    """Not managed."""
    UNKNOWN = "unknown"
    """Its architecture is not known."""


MANAGED = frozenset({State.TAINTED, State.WAITING, State.UNTAINTED})


class Seen(msgspec.Struct, frozen=True, gc=False):
    """What is kept of the decision about one node."""

    architecture: str
    state: State
    marked: bool
    """It carries the desired taint, or one that is ours."""


class Census:
    """The nodes by name, and their numbers."""

    def __init__(self) -> None:
        self._nodes: dict[str, Seen] = {}
        self._counts: Counter[tuple[str, str]] = Counter()
        self._marked: dict[str, None] = {}

    def put(self, name: str, decision: NodeDecision) -> None:
        """The node as it was last decided about."""
        seen = Seen(decision.architecture, _state(decision), decision.marked)
        if self._nodes.get(name) == seen:
            return
        self.drop(name)
        self._nodes[name] = seen
        self._counts[seen.architecture, seen.state] += 1
        if seen.marked:
            self._marked[name] = None

    def drop(self, name: str) -> None:
        """The node is gone."""
        seen = self._nodes.pop(name, None)
        if seen is None:
            return
        self._marked.pop(name, None)
        place = seen.architecture, seen.state
        self._counts[place] -= 1
        if not self._counts[place]:
            del self._counts[place]

    @property
    def architectures(self) -> list[str]:
        """Known architectures of all nodes, sorted."""
        return sorted({architecture for architecture, _ in self._counts if architecture})

    def number(self, *states: State, architecture: str | None = None) -> int:
        """Nodes in these states, of one architecture or of all."""
        return sum(
            count
            for (found, state), count in self._counts.items()
            if state in states and (architecture is None or found == architecture)
        )

    @property
    def counts(self) -> dict[tuple[str, str], int]:
        """Numbers by architecture and state, as metrics show them."""
        return {(architecture or "unknown", str(state)): count for (architecture, state), count in self._counts.items()}

    @property
    def marked(self) -> int:
        """Number of nodes that carry the desired taint, or one that is ours."""
        return len(self._marked)

    def of(self, architectures: frozenset[str]) -> Iterator[str]:
        """The names of the nodes of these architectures."""
        return (name for name, seen in list(self._nodes.items()) if seen.architecture in architectures)


def _state(decision: NodeDecision) -> State:
    if not decision.architecture:
        return State.UNKNOWN
    if not decision.managed:
        return State.SKIPPED
    if decision.waiting:
        return State.WAITING
    return State.TAINTED if decision.carried else State.UNTAINTED
