"""All nodes, kept so that a plan reads a handful of them and decides as if it had read all.

Which architectures a build is for, and where it is built, follows from what kinds of nodes there are and how old the
oldest of each kind is: not from how many there are. A *view* groups the nodes by everything that can make a difference,
and by the values of the labels that a build's selectors name; its *sample* is the oldest node of every group. Views are
kept by difference: a change of one node touches one group of each view. Builds whose selectors name the same labels
share one view; most share the one that no selector adds to."""

from collections import Counter
from collections.abc import Collection, Hashable, Iterable
from heapq import heapify, heappop, heappush
from typing import Final, NamedTuple

import msgspec

from polyarch.builds.architectures import LINUX
from polyarch.builds.facts.build_facts import NodeFacts

Labels = frozenset[str]
"""The label keys that a view tells nodes apart by: ``selection.deciding_labels``."""


_SLACK: Final = 16
"""Outdated ages that a group may hold on top of as many as it has nodes."""


class NodeChangeEffect(msgspec.Struct, frozen=True):
    """The views that a change of a node made a difference to."""

    membership: frozenset[Labels] = frozenset()
    """There is a kind of node that was not there before, or one is gone: D may be another."""
    availability: frozenset[Labels] = frozenset()
    """The same, or other nodes are Ready, schedulable or tainted: Jobs may go elsewhere."""


class NodeIndex:
    """The nodes by name. Those that are being deleted are none."""

    def __init__(self, nodes: Iterable[NodeFacts] = ()) -> None:
        self._nodes: dict[str, NodeFacts] = {}
        self._systems: Counter[tuple[str, str]] = Counter()
        self._views: dict[Labels, _View] = {}
        for node in nodes:
            self.put(node)

    def __len__(self) -> int:
        return len(self._nodes)

    def put(self, node: NodeFacts) -> NodeChangeEffect:
        """The node as it is now."""
        if node.deleting:
            return self.remove(node.name)
        old = self._nodes.get(node.name)
        if old == node:
            return NodeChangeEffect()
        self._nodes[node.name] = node
        return self._change(old, node)

    def remove(self, name: str) -> NodeChangeEffect:
        """The node is gone."""
        old = self._nodes.pop(name, None)
        return self._change(old, None) if old is not None else NodeChangeEffect()

    @property
    def architectures(self) -> tuple[str, ...]:
        """Of all linux nodes, sorted."""
        return tuple(sorted({architecture for system, architecture in self._systems if system == LINUX}))

    def sample(self, labels: Labels) -> tuple[NodeFacts, ...]:
        """Nodes that decide as all of them do for a build that tells nodes apart by these labels, the oldest first.

        The same value as before if nothing changed.
        """
        view = self._views.get(labels)
        if view is None:
            view = self._views[labels] = _View(labels, self._nodes.values())
        return view.sample()

    def keep(self, wanted: Collection[Labels]) -> None:
        """Forgets the views that no build needs any more."""
        for labels in [each for each in self._views if each not in wanted]:
            del self._views[labels]

    def _change(self, old: NodeFacts | None, new: NodeFacts | None) -> NodeChangeEffect:
        for node, step in ((old, -1), (new, 1)):
            if node is not None and node.architecture:
                place = node.operating_system, node.architecture
                self._systems[place] += step
                if not self._systems[place]:
                    del self._systems[place]
        changed = {labels: view.change(old, new) for labels, view in self._views.items()}
        return NodeChangeEffect(
            membership=frozenset(labels for labels, (members, _) in changed.items() if members),
            availability=frozenset(labels for labels, (_, available) in changed.items() if available),
        )


class _Group:
    """Nodes that make no difference among each other but by their age."""

    __slots__ = ("_ages", "nodes")

    def __init__(self) -> None:
        self.nodes: dict[str, NodeFacts] = {}
        self._ages: list[tuple[float, str]] = []
        """A heap, which may hold nodes that are gone or were put again."""

    def add(self, node: NodeFacts) -> None:
        self.nodes[node.name] = node
        heappush(self._ages, _age(node))
        if len(self._ages) > 2 * len(self.nodes) + _SLACK:
            self._ages = [_age(each) for each in self.nodes.values()]
            heapify(self._ages)

    def drop(self, node: NodeFacts) -> None:
        del self.nodes[node.name]

    @property
    def oldest(self) -> NodeFacts:
        while True:
            created, name = self._ages[0]
            node = self.nodes.get(name)
            if node is not None and node.created == created:
                return node
            heappop(self._ages)


class _Keys(NamedTuple):
    """What a node is grouped by."""

    member: tuple[Hashable, ...]
    """What decides about D."""
    group: tuple[Hashable, ...]
    """What decides about Jobs as well."""


class _View:
    """The nodes by group, for one set of labels."""

    def __init__(self, labels: Labels, nodes: Iterable[NodeFacts]) -> None:
        self._labels = tuple(sorted(labels))
        self._groups: dict[tuple[Hashable, ...], _Group] = {}
        self._members: Counter[tuple[Hashable, ...]] = Counter()
        self._sample: tuple[NodeFacts, ...] | None = None
        for node in nodes:
            self.change(None, node)

    def sample(self) -> tuple[NodeFacts, ...]:
        if self._sample is None:
            self._sample = tuple(sorted((group.oldest for group in self._groups.values()), key=_age))
        return self._sample

    def change(self, old: NodeFacts | None, new: NodeFacts | None) -> tuple[bool, bool]:
        """Whether there are other members now, and whether there are other groups."""
        self._sample = None
        before = self._keys(old) if old is not None else None
        after = self._keys(new) if new is not None else None
        appeared = self._join(new, after) if new is not None and after is not None and after != before else None
        vanished = self._leave(old, before) if old is not None and before is not None and after != before else None
        if new is not None and after is not None and after == before:
            self._groups[after.group].add(new)
        changes = [each for each in (appeared, vanished) if each is not None]
        return any(member for member, _ in changes), any(group for _, group in changes)

    def _join(self, node: NodeFacts, keys: _Keys) -> tuple[bool, bool]:
        self._members[keys.member] += 1
        group = self._groups.setdefault(keys.group, _Group())
        group.add(node)
        return self._members[keys.member] == 1, len(group.nodes) == 1

    def _leave(self, node: NodeFacts, keys: _Keys) -> tuple[bool, bool]:
        self._members[keys.member] -= 1
        group = self._groups[keys.group]
        group.drop(node)
        gone = not self._members[keys.member], not group.nodes
        if gone[0]:
            del self._members[keys.member]
        if gone[1]:
            del self._groups[keys.group]
        return gone

    def _keys(self, node: NodeFacts) -> _Keys | None:
        """None for a node that no build is for; one that a message names is a group of its own."""
        if node.operating_system not in ("", LINUX):
            return None
        named = node.name if node.mismatch or not (node.operating_system and node.architecture) else ""
        values = tuple(node.labels.get(key) for key in self._labels)
        member = (node.operating_system, node.architecture, values, named)
        return _Keys(member, (*member, node.ready, node.schedulable, node.taints, node.user_namespaces))


def _age(node: NodeFacts) -> tuple[float, str]:
    return node.created, node.name
