"""What differs between the kinds of builds: names, and the objects that an execution and a wish are recorded in.

``own`` is the front of ImageBuild and ImageBuildRun. All of it is pure; a front decides nothing about what is built.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from polyarch.builds.executions.state import State
from polyarch.builds.executions.target import Target
from polyarch.builds.facts.facts import Execution, Facts
from polyarch.builds.facts.problem import Problem
from polyarch.builds.plan.course import Course
from polyarch.builds.plan.document import Write
from polyarch.builds.plan.making import Making


class Front(Protocol):
    """The kind of a build, for the planner."""

    def obstacle(self, facts: Facts) -> Problem | None:
        """What forbids a new execution now although everything else is right: ``Suspended``, ``PoolDegraded``."""
        ...

    def name(self, facts: Facts, target: Target) -> tuple[str, int]:
        """Name and serial of the next execution for this target (BD-021, BD-263)."""
        ...

    def is_named(self, facts: Facts, target: Target, execution: Execution) -> bool:
        """Whether the wish can have this execution, which makes or has what is wanted, as its own (BD-276)."""
        ...

    def job_name(self, execution: str, architecture: str, *, architectures: int) -> str:
        """Of ``architectures`` Jobs the one that builds this architecture (BD-079)."""
        ...

    def index_job_name(self, execution: str) -> str: ...

    def record_name(self, execution: str) -> str:
        """The ConfigMap of BD-049."""
        ...

    def tags(self, facts: Facts, execution: str) -> tuple[str, ...]:
        """What the result is tagged with, the execution's own tag first (BD-080, BD-177)."""
        ...

    def child_tag(self, facts: Facts, execution: str, architecture: str, *, architectures: int) -> str:
        """The tag of a child; empty where it has none."""
        ...

    def owner(self, name: str, uid: str) -> dict[str, Any]:
        """The controller owner reference to an execution."""
        ...

    def manifests(self, making: Making) -> Sequence[Mapping[str, Any]]:
        """What has to be created for one architecture, in order, its Job last (S4)."""
        ...

    def preparations(self, making: Making) -> Sequence[Write]:
        """What has to be there before these, beyond them (S4)."""
        ...

    def create(self, course: Course, state: State) -> Sequence[Write]:
        """The execution itself (S1)."""
        ...

    def record(self, course: Course, before: Execution | None, state: State) -> Sequence[Write]:
        """Status and ConfigMap of an execution (S5, S9): nothing where they are stored already."""
        ...

    def supersede(self, course: Course, before: Execution, state: State) -> Sequence[Write]:
        """What makes an older execution end, after its Jobs were taken over or deleted (S3)."""
        ...

    def report(self, course: Course) -> Sequence[Write]:
        """The status of the wish and what else is told about it (S10): nothing where it is stored already."""
        ...
