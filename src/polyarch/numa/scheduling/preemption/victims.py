"""The pods of one node that have to go for another one (NS-120, NS-121, NS-123). Pure.

All that may go are taken away, first those of a single cell, then those of all cells; then one after the other is
spared while the pod still fits, the most important first. More room is not always better for a kubelet, which takes
the lowest cell that will do: so sparing goes round until nothing can be spared any more.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Final

import msgspec

from polyarch.numa.scheduling.exact.options import ExactOptions
from polyarch.numa.scheduling.facts.decision import Decision
from polyarch.numa.scheduling.facts.pods import PodFacts
from polyarch.numa.scheduling.preemption.budgets import Budget, violating
from polyarch.numa.scheduling.preemption.occupancy import Occupancy, Occupant, fit

CURABLE: Final = frozenset({"short", "no-common-cell"})
"""Kinds of decisions that room on the cells can change."""


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    """Who may be a victim."""

    scheduler_name: str
    """Pods of other schedulers are left alone."""
    options: ExactOptions = ExactOptions()
    may_violate: bool = False
    """Disruption budgets count for the order alone (``--preempt-violating``)."""


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """A node on which the pod fits without these pods."""

    decision: Decision
    """About the pod once they are gone: what to reserve for it."""
    victims: tuple[PodFacts, ...]
    """The most important first; none of them can be spared."""
    violations: int = 0
    """Evictions that a disruption budget would refuse."""

    @property
    def node(self) -> str:
        return self.decision.node

    @property
    def rank(self) -> tuple[int, int, int, int, tuple[int, ...], str]:
        """The lowest is taken (NS-121)."""
        highest = max(each.priority for each in self.victims)
        starts = [each.started_at for each in self.victims if each.priority == highest and each.started]
        latest_first = tuple(-ord(letter) for letter in min(starts, default=""))
        total = sum(each.priority for each in self.victims)
        return self.violations, highest, len(self.victims), total, latest_first, self.node


class Waits(msgspec.Struct, frozen=True):
    """The pod fits as soon as pods are gone that are on their way out."""

    node: str
    leaving: tuple[PodFacts, ...]


def on_node(
    pod: PodFacts, occupancy: Occupancy, rules: Rules, budgets: Sequence[Budget] = ()
) -> Candidate | Waits | None:
    """None: nothing that may be evicted here makes the pod fit."""
    leaving = sorted((each for each in occupancy.occupants if each.pod.terminating and each.cells), key=_importance)
    now = fit(pod, occupancy, leaving, rules.options)
    if now.fits:
        return Waits(now.node, tuple(each.pod for each in leaving)) if leaving else None
    if now.kind not in CURABLE:
        return None
    movable = sorted((each for each in occupancy.occupants if _may_go(each, pod, rules)), key=_importance)
    refused = violating([each.pod for each in movable], budgets)
    search = _Search(pod, occupancy, leaving, rules.options)
    found: dict[frozenset[str], Candidate] = {}
    for start in _starts(occupancy, movable):
        victims = search.minimal(start, sorted(start, key=lambda each: each.pod.uid not in refused))
        if victims:
            pods = tuple(each.pod for each in victims)
            candidate = Candidate(
                decision=search.without(victims),
                victims=pods,
                violations=len(violating(pods, budgets)),
            )
            if rules.may_violate or not candidate.violations:
                found.setdefault(frozenset(each.uid for each in pods), candidate)
    return min(found.values(), key=lambda each: each.rank, default=None)


def _may_go(occupant: Occupant, preemptor: PodFacts, rules: Rules) -> bool:
    pod = occupant.pod
    return (
        bool(occupant.cells)
        and pod.priority < preemptor.priority
        and pod.scheduler_name == rules.scheduler_name
        and not pod.terminating
        and not pod.has_ended
    )


def _importance(occupant: Occupant) -> tuple[int, bool, str, str]:
    """The most important first: higher priority, then running for longer."""
    pod = occupant.pod
    return -pod.priority, not pod.started, pod.started_at, pod.uid


def _starts(occupancy: Occupancy, movable: Sequence[Occupant]) -> Iterator[list[Occupant]]:
    """Whom to take away at first: all on one cell, for each cell; then all."""
    for cell in occupancy.node.cells:
        on_cell = [each for each in movable if cell.id in (each.cells or ())]
        if 0 < len(on_cell) < len(movable):
            yield on_cell
    if movable:
        yield list(movable)


class _Search:
    """Decisions about one pod on one node, each made once."""

    def __init__(self, pod: PodFacts, occupancy: Occupancy, leaving: Iterable[Occupant], options: ExactOptions) -> None:
        self._pod = pod
        self._occupancy = occupancy
        self._leaving = tuple(leaving)
        self._options = options
        self._known: dict[frozenset[str], Decision] = {}

    def without(self, victims: Collection[Occupant]) -> Decision:
        key = frozenset(each.pod.uid for each in victims)
        if key not in self._known:
            self._known[key] = fit(self._pod, self._occupancy, (*self._leaving, *victims), self._options)
        return self._known[key]

    def minimal(self, start: list[Occupant], spared_first: Sequence[Occupant]) -> list[Occupant]:
        """Of these, those of whom none can be spared; empty: the pod does not fit without them either."""
        if not self.without(start).fits:
            return []
        victims = start
        changed = True
        while changed:
            changed = False
            for each in spared_first:
                rest = [one for one in victims if one is not each]
                if len(rest) < len(victims) and self.without(rest).fits:
                    victims, changed = rest, True
        return victims
