"""What would become of pods on nodes as they are now, for people who ask before they act.

Pods are placed one after the other, as the scheduler would with the extender beside it: zones as the extender decides,
sums over nodes as kube-scheduler's NodeResourcesFit counts them (``component-helpers/resource``, PodRequests). Taints,
selectors and affinity are not judged: whoever asks gives the nodes that matter. Pure; the cluster is mutable.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from heapq import heapify, heappop, heappush
from typing import Final

import msgspec
from xxhash import xxh64_intdigest

from polyarch.numa import names
from polyarch.numa.fit.demand import add, exceeded, total, whole_request
from polyarch.numa.fit.facts import FitDecision, PodFacts
from polyarch.numa.snapshot import Cells, NodeRules, NodeSnapshot, PodRules, Snapshot

# -- placement ---------------------------------------------------------------------------------------------------------


INSUFFICIENT: Final = "insufficient"
"""The kind of a node whose sums are too small, as the scheduler's own plugin sees it."""


class SimulatedRejection(msgspec.Struct, frozen=True, gc=False, order=True):
    """Why a node does not hold a pod."""

    kind: str
    message: str
    resources: tuple[str, ...] = ()


class SimulatedPlacement(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """What became of one pod."""

    pod: PodFacts
    decision: FitDecision | None = None
    """Where it went; None: it has no node."""
    refusals: Mapping[SimulatedRejection, int] = {}
    """Nodes by reason, the most frequent one first; of a pod without a node."""
    asked: Mapping[str, FitDecision | SimulatedRejection] = {}
    """What every node said, by name, where that is wanted."""


class SimulatedCluster:
    """Nodes, and what is left of them."""

    def __init__(self, snapshot: Snapshot, rules: PodRules) -> None:
        self._rules: Final = rules
        self._places: Final = {each.name: SimulatedNode(each) for each in snapshot.nodes}
        self._order: Final = {
            name: (xxh64_intdigest(name.encode(), xxh64_intdigest(b"", 0)), name) for name in self._places
        }
        self._changed: Final[list[str]] = []
        """Nodes that took a pod, in the order of events."""
        self._questions: Final[dict[bytes, _Question]] = {}

    def place(self, pod: PodFacts, *, explains: bool = False) -> SimulatedPlacement:
        """Takes what the pod needs, if it finds a node. ``explains``: with what every node said."""
        question = self._question(pod)
        asked = {name: question.answer(name) for name in self._places} if explains else {}
        name = question.best()
        if name is None:
            counted = Counter(question.refusals.values())
            reasons = dict(sorted(counted.items(), key=lambda each: (-each[1], each[0])))
            return SimulatedPlacement(pod=pod, refusals=reasons, asked=asked)
        decision = question.decisions[name]
        self._places[name].take(decision, question.request)
        self._changed.append(name)
        return SimulatedPlacement(pod=pod, decision=decision, asked=asked)

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


class SimulatedNode:
    """One node, and what is left of it."""

    def __init__(self, node: NodeSnapshot) -> None:
        self.facts: Final = node.facts
        self.free: Final = {cell.id: node.free(cell) for cell in node.facts.cells}
        self.groups: tuple[Cells, ...] = node.memory_groups
        self.limits: Final = node.facts.allocatable
        self.used: Final = total(whole_request(each.facts) for each in node.residents)

    def lacking(self, request: Mapping[str, int]) -> tuple[str, ...]:
        """Resources whose sum over the node is too small; none where the Node is not known."""
        return exceeded(self.limits, self.used, request) if self.limits is not None else ()

    def take(self, decision: FitDecision, request: Mapping[str, int]) -> None:
        for cell, amounts in decision.taken.items():
            free = self.free[cell]
            for resource, amount in amounts.items():
                free[resource] = max(0, free.get(resource, 0) - amount)
        self.groups += decision.memory_groups
        add(self.used, request)


class _Question:
    """Pods with the same needs: what each node answers. Only nodes that changed are asked again."""

    def __init__(
        self,
        pod: PodFacts,
        decide: NodeRules,
        places: Mapping[str, SimulatedNode],
        order: Mapping[str, tuple[int, str]],
    ) -> None:
        self.request: Final = whole_request(pod)
        self.decisions: Final[dict[str, FitDecision]] = {}
        self.refusals: Final[dict[str, SimulatedRejection]] = {}
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

    def answer(self, name: str) -> FitDecision | SimulatedRejection:
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

    def _answer(self, name: str) -> FitDecision | None:
        place = self._places[name]
        found = self._decide(place.facts, place.free, place.groups)
        refusal = None if found.fits else SimulatedRejection(found.kind, found.message, found.resources)
        if refusal is None and (lacking := place.lacking(self.request)):
            refusal = SimulatedRejection(INSUFFICIENT, f"insufficient {', '.join(lacking)}", lacking)
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


# -- what if -----------------------------------------------------------------------------------------------------------


MOST_COPIES: Final = 200_000
"""Pods that need nothing fit for ever, so at some number counting is given up."""


class RemainingCapacity(msgspec.Struct, frozen=True, kw_only=True):
    """How often all pods of a question fit once more."""

    copies: int
    is_limited: bool = True
    """False: the search was given up, there is room for more."""
    by_node: Mapping[str, int] = {}
    """Pods of whole copies, by node."""
    stopped_by: SimulatedPlacement | None = None
    """The first pod without a node."""


class SimulationResult(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that was found out, in the order of the pods."""

    outcomes: tuple[SimulatedPlacement, ...]
    filled: RemainingCapacity | None = None

    @property
    def unplaced(self) -> tuple[SimulatedPlacement, ...]:
        return tuple(each for each in self.outcomes if each.decision is None)


def simulate(
    snapshot: Snapshot,
    pods: Sequence[PodFacts],
    rules: PodRules,
    *,
    repeat: int = 1,
    drain: str | None = None,
    fills: bool = False,
    explains: bool = False,
    most_copies: int = MOST_COPIES,
) -> SimulationResult:
    """Pods of the drained node first, as they exist already; then ``pods``, ``repeat`` times; then as many copies of
    them as fit. Cordoned nodes take nothing."""
    leaving = leaving_pods(snapshot, drain) if drain is not None else ()
    nodes = tuple(each for each in snapshot.nodes if each.name != drain and not each.is_cordoned)
    field = SimulatedCluster(msgspec.structs.replace(snapshot, nodes=nodes), rules)
    outcomes = [field.place(pod, explains=explains) for pod in (*leaving, *_numbered(pods, repeat))]
    return SimulationResult(outcomes=tuple(outcomes), filled=_fill(field, pods, most_copies) if fills else None)


def leaving_pods(snapshot: Snapshot, drained: str) -> tuple[PodFacts, ...]:
    """In the order in which the scheduler would take them up: by priority, then by name."""
    node = snapshot.node(drained)
    if node is None:
        return ()
    found = [each.facts for each in node.residents if not each.stays]
    return tuple(sorted(found, key=lambda each: (-each.priority, each.namespace, each.name)))


def _numbered(pods: Sequence[PodFacts], repeat: int) -> Iterator[PodFacts]:
    for number in range(1, repeat + 1):
        for pod in pods:
            yield pod if repeat == 1 else msgspec.structs.replace(pod, name=f"{pod.name}-{number}")


def _fill(field: SimulatedCluster, pods: Sequence[PodFacts], most: int) -> RemainingCapacity:
    """A copy is all of the pods together."""
    by_node: Counter[str] = Counter()
    for copies in range(most):
        taken: list[str] = []
        for pod in pods:
            outcome = field.place(pod)
            if outcome.decision is None:
                return RemainingCapacity(copies=copies, by_node=dict(sorted(by_node.items())), stopped_by=outcome)
            taken.append(outcome.decision.node)
        by_node.update(taken)
    return RemainingCapacity(copies=most, is_limited=False, by_node=dict(sorted(by_node.items())))
