"""A round: what is done now, and what of a build it leaves as it is. Pure.

It says which execution is carried on and how, which ones end, which result is the published one, and what keeps the
build waiting.
"""

from typing import Final

import msgspec

from polyarch.builds.executions.carrying import Carried, kept
from polyarch.builds.executions.failures import Hold
from polyarch.builds.executions.state import State
from polyarch.builds.executions.target import Target
from polyarch.builds.facts.facts import Execution, Facts, Question, StepFailure
from polyarch.builds.facts.history import current_execution
from polyarch.builds.facts.problem import Problem
from polyarch.builds.jobs.index_outcome import IndexWork
from polyarch.builds.plan.document import Outcome, Write

FIRST_RETRY: Final = 15.0
"""Seconds until something that may pass is tried again for the first time."""


class Round(msgspec.Struct, frozen=True, kw_only=True):
    """What is done now."""

    decision: Outcome
    reason: str
    message: str
    target: Target | None = None
    before: Execution | None = None
    carried: Carried | None = None
    index_work: IndexWork | None = None
    """A Job is made that gives a finished result its tags (BD-178)."""
    awaited: str = ""
    """UID of that Job once it is there."""
    ends_others: bool = False
    """Executions under way, but for the one that is carried on, are superseded."""
    current: State | None = None
    """The published result after the round."""
    retag: Write | None = None
    tags: tuple[str, ...] = ()
    """Of the spec, as they stand after the round."""
    problems: tuple[Problem, ...] = ()
    undecided: bool = False
    obstacle: Problem | None = None
    hold: Hold | None = None
    trouble: StepFailure | None = None
    """A step that failed, outside of any execution."""
    warnings: tuple[Problem, ...] = ()
    questions: tuple[Question, ...] = ()
    requeue_after: float | None = None


def stored_tags(facts: Facts) -> tuple[str, ...]:
    """The tags of the spec that are on the published result."""
    return tuple(facts.wish.status.get("tags") or ())


def standing(facts: Facts) -> State | None:
    """The published result, as it is recorded."""
    current = current_execution(facts)
    return kept(current) if current is not None else None
