"""Pods placed one after the other on a snapshot, as the scheduler would with the extender beside it (NS-162).

Each pod takes the best node that holds it, by score; of equal ones the one that the extender would take for a pod
without uid, so that the same question has the same answer. Sums over nodes are checked where they are known. Taints,
selectors and affinity are not: whoever asks gives the nodes that matter. Pure; the field is mutable.
"""

from collections import Counter
from collections.abc import Mapping
from heapq import heapify, heappop, heappush
from typing import Final

import msgspec

from polyarch.numa import names
from polyarch.numa.decide.xxh64 import xxh64
from polyarch.numa.scheduling.facts.decision import Decision
from polyarch.numa.scheduling.facts.pods import PodFacts
from polyarch.numa.scheduling.simulation import node_sums
from polyarch.numa.scheduling.simulation.rules import Decide, Rules
from polyarch.numa.scheduling.simulation.snapshot import Cells, NodeSnapshot, Snapshot

INSUFFICIENT: Final = "insufficient"
"""The kind of a node whose sums are too small, as the scheduler's own plugin sees it."""


class Refusal(msgspec.Struct, frozen=True, gc=False, order=True):
    """Why a node does not hold a pod."""

    kind: str
    message: str
    resources: tuple[str, ...] = ()


class Outcome(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """What became of one pod."""

    pod: PodFacts
    decision: Decision | None = None
    """Where it went; None: it has no node."""
    refusals: Mapping[Refusal, int] = {}
    """Nodes by reason, the most frequent one first; of a pod without a node."""
    asked: Mapping[str, Decision | Refusal] = {}
    """What every node said, by name, where that is wanted."""


class Field:
    """Nodes, and what is left of them."""

    def __init__(self, snapshot: Snapshot, rules: Rules) -> None:
        self._rules: Final = rules
        self._places: Final = {each.name: _Place(each) for each in snapshot.nodes}
        self._order: Final = {name: (xxh64(name.encode(), xxh64(b"", 0)), name) for name in self._places}
        self._changed: Final[list[str]] = []
        """Nodes that took a pod, in the order of events."""
        self._questions: Final[dict[bytes, _Question]] = {}

    def place(self, pod: PodFacts, *, explains: bool = False) -> Outcome:
        """Takes what the pod needs, if it finds a node. ``explains``: with what every node said."""
        question = self._question(pod)
        asked = {name: question.answer(name) for name in self._places} if explains else {}
        name = question.best()
        if name is None:
            counted = Counter(question.refusals.values())
            reasons = dict(sorted(counted.items(), key=lambda each: (-each[1], each[0])))
            return Outcome(pod=pod, refusals=reasons, asked=asked)
        decision = question.decisions[name]
        self._places[name].take(decision, question.request)
        self._changed.append(name)
        return Outcome(pod=pod, decision=decision, asked=asked)

    def _question(self, pod: PodFacts) -> "_Question":
        """The one that all pods like this one share, as of now."""
        shape = _shape(pod)
        found = self._questions.get(shape)
        if found is None:
            found = self._questions[shape] = _Question(pod, self._rules(pod), self._places, self._order)
            found.seen = len(self._changed)
        for name in dict.fromkeys(self._changed[found.seen :]):
            found.ask(name)
        found.seen = len(self._changed)
        return found


class _Place:
    """One node, and what is left of it."""

    def __init__(self, node: NodeSnapshot) -> None:
        self.facts: Final = node.facts
        self.free: Final = {cell.id: node.free(cell) for cell in node.facts.cells}
        self.groups: tuple[Cells, ...] = node.memory_groups
        self.limits: Final = node.facts.allocatable
        self.used: Final = node_sums.total(node_sums.whole_request(each.facts) for each in node.residents)

    def lacking(self, request: Mapping[str, int]) -> tuple[str, ...]:
        """Resources whose sum over the node is too small; none where the Node is not known."""
        return node_sums.exceeded(self.limits, self.used, request) if self.limits is not None else ()

    def take(self, decision: Decision, request: Mapping[str, int]) -> None:
        for cell, amounts in decision.taken.items():
            free = self.free[cell]
            for resource, amount in amounts.items():
                free[resource] = max(0, free.get(resource, 0) - amount)
        self.groups += decision.memory_groups
        node_sums.add(self.used, request)


class _Question:
    """Pods with the same needs: what each node answers. Only nodes that changed are asked again."""

    def __init__(
        self, pod: PodFacts, decide: Decide, places: Mapping[str, _Place], order: Mapping[str, tuple[int, str]]
    ) -> None:
        self.request: Final = node_sums.whole_request(pod)
        self.decisions: Final[dict[str, Decision]] = {}
        self.refusals: Final[dict[str, Refusal]] = {}
        self.seen = 0
        self._decide: Final = decide
        self._places: Final = places
        self._order: Final = order
        self._best: Final[list[tuple[int, tuple[int, str]]]] = []
        """A heap with the better ones first; entries of earlier answers are passed over."""
        for name in places:
            self._answer(name)
        self._best.extend((-each.score, order[name]) for name, each in self.decisions.items())
        heapify(self._best)

    def ask(self, name: str) -> None:
        """Again, since the node has changed."""
        if (found := self._answer(name)) is not None:
            heappush(self._best, (-found.score, self._order[name]))

    def answer(self, name: str) -> Decision | Refusal:
        """Of one node."""
        return self.decisions.get(name) or self.refusals[name]

    def best(self) -> str | None:
        """The name of the node; None: no node will do."""
        while self._best:
            score, (_, name) = self._best[0]
            known = self.decisions.get(name)
            if known is not None and known.score == -score:
                return name
            heappop(self._best)
        return None

    def _answer(self, name: str) -> Decision | None:
        place = self._places[name]
        found = self._decide(place.facts, place.free, place.groups)
        refusal = None if found.fits else Refusal(found.kind, found.message, found.resources)
        if refusal is None and (lacking := place.lacking(self.request)):
            refusal = Refusal(INSUFFICIENT, f"insufficient {', '.join(lacking)}", lacking)
        if refusal is None:
            self.decisions[name] = found
            self.refusals.pop(name, None)
            return found
        self.refusals[name] = refusal
        self.decisions.pop(name, None)
        return None


def _shape(pod: PodFacts) -> bytes:
    """The same for pods that differ in nothing that a decision reads."""
    needs = (pod.qos, pod.containers, pod.overhead, pod.pod_requests, pod.annotations.get(names.REQUIRE))
    return msgspec.json.encode(needs, order="deterministic")
