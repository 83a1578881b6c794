"""Nodes that have to be written, in the order in which they get their turns (TN-026).

What a single event asks for comes first, in the order of the events; then the nodes of a rollout, architecture by
architecture, in the order of their names.
"""

import heapq
from collections.abc import Iterable


class Due:
    """Names of nodes, each once. A node that waits in the rollout stays there, whatever happens to it meanwhile."""

    def __init__(self) -> None:
        self._at_once: dict[str, None] = {}
        self._rollout: dict[str, str] = {}
        """Node → architecture."""
        self._names: dict[str, list[str]] = {}
        """Architecture → a heap of names; those that are no longer due are passed over."""

    def put(self, name: str, architecture: str, *, at_once: bool) -> None:
        """The node has to be written; nothing changes if that is known, but for its architecture."""
        if name in self._at_once or self._rollout.get(name) == architecture:
            return
        if at_once and name not in self._rollout:
            self._at_once[name] = None
            return
        self._rollout[name] = architecture
        heapq.heappush(self._names.setdefault(architecture, []), name)

    def drop(self, name: str) -> None:
        """Nothing is to be written."""
        self._at_once.pop(name, None)
        self._rollout.pop(name, None)
        if not self._rollout:
            self._names.clear()

    def take(self, order: Iterable[str]) -> str | None:
        """The next node. ``order``: architectures; those that are not in it come last, by name."""
        if self._at_once:
            name = next(iter(self._at_once))
            del self._at_once[name]
            return name
        known = list(order)
        for architecture in (*known, *sorted(self._names.keys() - set(known))):
            if (following := self._next(architecture)) is not None:
                return following
        return None

    @property
    def has_at_once(self) -> bool:
        return bool(self._at_once)

    def __len__(self) -> int:
        return len(self._at_once) + len(self._rollout)

    def _next(self, architecture: str) -> str | None:
        names = self._names.get(architecture, [])
        while names:
            name = heapq.heappop(names)
            if self._rollout.get(name) == architecture:
                del self._rollout[name]
                return name
        self._names.pop(architecture, None)
        return None
