"""The rules of a mode with its options, as one function for whoever only wants the decision. Pure."""

from collections.abc import Callable, Iterable, Mapping
from typing import Literal

import msgspec

from polyarch.numa.scheduling.compat.evaluate import evaluate as compat
from polyarch.numa.scheduling.compat.options import CompatOptions
from polyarch.numa.scheduling.exact.demand import Demands
from polyarch.numa.scheduling.exact.evaluate import evaluate as exact
from polyarch.numa.scheduling.exact.options import ExactOptions
from polyarch.numa.scheduling.facts.amounts import Amounts
from polyarch.numa.scheduling.facts.decision import Decision
from polyarch.numa.scheduling.facts.nodes import NodeFacts
from polyarch.numa.scheduling.facts.pods import PodFacts

Mode = Literal["exact", "advise", "compat"]
Decide = Callable[[NodeFacts, Mapping[int, Amounts], Iterable[tuple[int, ...]]], Decision]
"""Of one pod: a node, what is free by cell, and sets of cells whose memory is given out together."""
Rules = Callable[[PodFacts], Decide]


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """Of mode and options."""

    mode: Mode = "exact"
    exact: ExactOptions = ExactOptions()
    compat: CompatOptions = CompatOptions()
    scheduler: str = ""
    """Whose extender was asked; empty: none."""
    evicts: bool | None = None
    """Whether that one evicts pods for more important ones; None: nobody knows."""


def rules(choice: Choice) -> Rules:
    """Advise differs from exact in what is answered, not in what fits."""
    if choice.mode == "compat":
        return lambda pod: lambda node, free, _: compat(pod, node, free, choice.compat)

    def of(pod: PodFacts) -> Decide:
        demands = Demands(pod)
        return lambda node, free, groups: exact(
            pod, node, free, choice.exact, demand=demands.on(node) if node.has_topology else None, groups=groups
        )

    return of
