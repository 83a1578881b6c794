"""Which executions are a wish's own, which one's result is published, and which one is under way (BD-024, BD-191)."""

from typing import Final

from polyarch.builds.facts.facts import Execution, Facts

ENDED: Final = frozenset({"Succeeded", "Failed", "Interrupted", "Superseded"})
"""Phases of executions that never change again."""
ENDED_CHILD: Final = frozenset({"Reused", "Built", "Failed", "Cancelled", "Interrupted"})
"""Phases of architectures that are kept (BD-190)."""
USABLE: Final = frozenset({"Built", "Reused"})
"""Phases of architectures whose child is there."""


def own_executions(facts: Facts) -> tuple[Execution, ...]:
    """Those of this very wish, the oldest first: one of a former object of the same name is not among them."""
    own = (each for each in facts.executions if each.owner_uid == facts.wish.uid)
    return tuple(sorted(own, key=lambda each: (each.created, each.serial, each.name)))


def current_execution(facts: Facts) -> Execution | None:
    """The one whose result is published: what the status says if it is so, else the one that succeeded last."""
    succeeded = [each for each in own_executions(facts) if each.phase == "Succeeded" and not each.deleting]
    said = [each for each in succeeded if each.name == facts.wish.current]
    return max(said or succeeded, key=lambda each: (each.completed or 0.0, each.created, each.name), default=None)


def active_execution(facts: Facts) -> Execution | None:
    """The newest that has not ended."""
    running = [each for each in own_executions(facts) if each.phase not in ENDED and not each.deleting]
    return running[-1] if running else None


def published_architectures(execution: Execution | None) -> frozenset[str]:
    """The architectures that the result of a finished execution has; those that it was for if no child is recorded."""
    if execution is None:
        return frozenset()
    there = {each.architecture for each in execution.children if each.digest and each.phase in USABLE}
    return frozenset(there or {each.architecture for each in execution.keys})


def planned_architectures(execution: Execution | None) -> frozenset[str]:
    """The architectures that an execution is for."""
    return frozenset(each.architecture for each in execution.keys) if execution is not None else frozenset()
