"""What all named nodes say of one pod, read in the ways that answers need (NS-082). Pure."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import msgspec

from polyarch.numa.scheduling.facts.decision import Decision, Kind
from polyarch.numa.scheduling.fleet import choice


class Refusal(msgspec.Struct, frozen=True, gc=False):
    """Why a node does not fit."""

    kind: Kind
    message: str


class Fits(msgspec.Struct, frozen=True, kw_only=True):
    """True until the fleet changes. Every name of the question counts once, in its order."""

    uid: str
    names: Sequence[str]
    has_demand: bool
    """On at least one of the nodes."""
    all_scores: Sequence[int]
    """By name: 0 – 100, or below 0 where the pod does not fit."""
    refusals: Mapping[str, Refusal]
    """By name of the node that does not fit."""
    decide: Callable[[str], Decision]
    """About one node, with cells and what is taken."""

    @property
    def fitting(self) -> list[str]:
        return [name for name, score in zip(self.names, self.all_scores, strict=True) if score >= 0]

    @property
    def scores(self) -> dict[str, int]:
        """Of nodes that fit."""
        return {name: score for name, score in zip(self.names, self.all_scores, strict=True) if score >= 0}

    @property
    def kinds(self) -> Mapping[Kind, int]:
        """How many nodes each kind of reason rules out."""
        return Counter(each.kind for each in self.refusals.values())

    @property
    def rejected(self) -> dict[str, str]:
        """What to say of each node that does not fit."""
        return {name: each.message for name, each in self.refusals.items()}

    def best(self, count: int = 1) -> list[Decision]:
        """The best first; equal ones by the pod's uid."""
        names = choice.best(self.names, self.all_scores, uid=self.uid, count=count)
        return [self.decide(name) for name in names]

    def decision(self, name: str) -> Decision:
        return self.decide(name)
