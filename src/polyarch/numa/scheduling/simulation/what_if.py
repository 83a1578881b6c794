"""What is asked of a snapshot: where pods go, how many more fit, where the pods of a node would go (NS-162). Pure."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec

from polyarch.numa.scheduling.facts.pods import PodFacts
from polyarch.numa.scheduling.simulation.placing import Field, Outcome
from polyarch.numa.scheduling.simulation.rules import Rules
from polyarch.numa.scheduling.simulation.snapshot import Snapshot

MOST_COPIES: Final = 200_000
"""Pods that need nothing fit for ever, so at some number counting is given up."""


class Filled(msgspec.Struct, frozen=True, kw_only=True):
    """How often all pods of a question fit once more."""

    copies: int
    is_limited: bool = True
    """False: the search was given up, there is room for more."""
    by_node: Mapping[str, int] = {}
    """Pods of whole copies, by node."""
    stopped_by: Outcome | None = None
    """The first pod without a node."""


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that was found out, in the order of the pods."""

    outcomes: tuple[Outcome, ...]
    filled: Filled | None = None

    @property
    def unplaced(self) -> tuple[Outcome, ...]:
        return tuple(each for each in self.outcomes if each.decision is None)


def simulate(
    snapshot: Snapshot,
    pods: Sequence[PodFacts],
    rules: Rules,
    *,
    repeat: int = 1,
    drain: str | None = None,
    fills: bool = False,
    explains: bool = False,
    most_copies: int = MOST_COPIES,
) -> Answer:
    """Pods of the drained node first, as they exist already; then ``pods``, ``repeat`` times; then as many copies of
    them as fit. Cordoned nodes take nothing."""
    leaving = leaving_pods(snapshot, drain) if drain is not None else ()
    nodes = tuple(each for each in snapshot.nodes if each.name != drain and not each.is_cordoned)
    field = Field(msgspec.structs.replace(snapshot, nodes=nodes), rules)
    outcomes = [field.place(pod, explains=explains) for pod in (*leaving, *_numbered(pods, repeat))]
    return Answer(outcomes=tuple(outcomes), filled=_fill(field, pods, most_copies) if fills else None)


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


def _fill(field: Field, pods: Sequence[PodFacts], most: int) -> Filled:
    """A copy is all of the pods together."""
    by_node: Counter[str] = Counter()
    for copies in range(most):
        taken: list[str] = []
        for pod in pods:
            outcome = field.place(pod)
            if outcome.decision is None:
                return Filled(copies=copies, by_node=dict(sorted(by_node.items())), stopped_by=outcome)
            taken.append(outcome.decision.node)
        by_node.update(taken)
    return Filled(copies=most, is_limited=False, by_node=dict(sorted(by_node.items())))
