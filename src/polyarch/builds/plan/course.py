"""The course: what was decided in one round, before a front-end turns it into objects and writes. Pure.

The planner decides with executions, children and Jobs alone; whether an execution is an ImageBuildRun or a
MachineOSBuild is the front-end's matter (``front``).
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from polyarch.builds.api.resources import Base, LastFailure
from polyarch.builds.executions.state import State
from polyarch.builds.executions.target import Target
from polyarch.builds.facts.facts import Execution, Facts
from polyarch.builds.facts.problem import Problem
from polyarch.builds.jobs.index_outcome import IndexWork
from polyarch.builds.plan.document import Outcome, PlannedArchitecture, PlannedEvent, PlannedIndex
from polyarch.objects import Condition


class Course(msgspec.Struct, frozen=True, kw_only=True):
    """What was decided about one wish."""

    facts: Facts
    decision: Outcome
    reason: str
    message: str
    architectures: tuple[str, ...] | None = None
    """D; None where it is not known, and the last one stays."""
    target: Target | None = None
    """None where the keys are not known: inputs are missing, wrong, or not to be read."""
    documents: Mapping[str, Mapping[str, Any]] = {}
    per_architecture: tuple[PlannedArchitecture, ...] = ()
    index: PlannedIndex = PlannedIndex()
    before: Execution | None = None
    """The execution that is worked on, as it is stored; None where it is new or there is none."""
    execution: State | None = None
    """The same as it is after this round."""
    held: str = ""
    """Name of the execution that has failed and that nothing has released yet (BD-218)."""
    superseded: tuple[tuple[Execution, State], ...] = ()
    current: State | None = None
    """The execution whose result is the published one after this round."""
    index_work: IndexWork | None = None
    """A Job is made that publishes a result (BD-178)."""
    awaited: str = ""
    """UID of the index Job of a finished execution that is still needed."""
    problems: tuple[Problem, ...] = ()
    conditions: tuple[Condition, ...] = ()
    """Of the wish."""
    summary: str = ""
    tags: tuple[str, ...] = ()
    """``output.tags`` as they stand on the result after this round."""
    rebuild_token: str = ""
    """The last one that was honoured, after this round."""
    bases: tuple[Base, ...] | None = None
    """The pins after this round; None: as they are."""
    last_failure: LastFailure | None = None
    events: tuple[PlannedEvent, ...] = ()
    requeue_after: float | None = None
