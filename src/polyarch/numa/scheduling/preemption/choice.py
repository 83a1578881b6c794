"""Where to make room: one node of all candidates, or none (NS-121 – NS-123). Pure."""

from collections.abc import Iterable
from typing import Final, Literal

import msgspec

from polyarch.numa.scheduling.preemption.victims import Candidate, Waits

Reason = Literal["Evicts", "WaitsForVictims", "NoVictims"]
MOST_NAMED: Final = 5
"""Pods in one message."""


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """What to do for a pod that fits nowhere."""

    reason: Reason
    message: str
    candidate: Candidate | None = None
    """Of reason ``Evicts``."""


def choose(found: Iterable[Candidate | Waits | None]) -> Choice:
    """Where pods are on their way out already, nobody else is evicted."""
    candidates: list[Candidate] = []
    waiting: list[Waits] = []
    for each in found:
        if isinstance(each, Waits):
            waiting.append(each)
        elif each is not None:
            candidates.append(each)
    if waiting:
        first = min(waiting, key=lambda each: each.node)
        told = listed(each.full_name for each in first.leaving)
        return Choice(reason="WaitsForVictims", message=f"it fits node {first.node} once {told} has ended")
    if not candidates:
        return Choice(reason="NoVictims", message="no pods of lower priority make room for it by leaving")
    best = min(candidates, key=lambda each: each.rank)
    told = listed(each.full_name for each in best.victims)
    return Choice(reason="Evicts", message=f"it fits node {best.node} without {told}", candidate=best)


def listed(names: Iterable[str]) -> str:
    """For one line; the first few of many."""
    known = list(names)
    more = f" and {len(known) - MOST_NAMED} more" if len(known) > MOST_NAMED else ""
    return ", ".join(known[:MOST_NAMED]) + more
