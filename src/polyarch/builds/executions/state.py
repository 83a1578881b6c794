"""What is to be recorded of an execution after this round: the same value for every kind of execution.

A front-end writes it as the status of an ImageBuildRun or MachineOSBuild, and as the ConfigMap of BD-049. Pure.
"""

from collections.abc import Mapping

import msgspec

from polyarch.builds.api.resources import Forced, IndexStatus, Pin
from polyarch.builds.api.settings import ExecutionPhase
from polyarch.builds.facts.facts import ChildRecord, Execution
from polyarch.builds.facts.history import ENDED
from polyarch.objects import Condition

FINAL_CHILD = frozenset({"Reused", "Built", "Failed", "Cancelled", "Interrupted"})
"""Final phases of an architecture (BD-190)."""
FAULTY_CHILD = frozenset({"Failed", "Interrupted"})


class State(msgspec.Struct, frozen=True, kw_only=True):
    """An execution as it is to be recorded. ``uid`` is empty where this plan creates it."""

    name: str
    uid: str = ""
    serial: int = 1
    build_key: str = ""
    phase: ExecutionPhase = "Pending"
    children: tuple[ChildRecord, ...] = ()
    index: IndexStatus | None = None
    result: str = ""
    """``repository@digest``."""
    conditions: tuple[Condition, ...] = ()
    reason: str = ""
    message: str = ""
    started: float | None = None
    completed: float | None = None
    witness: Mapping[str, str] = {}
    """What nodes and Secrets were when it failed, so that a change of them releases it (BD-218)."""
    repository: str = ""
    pins: tuple[Pin, ...] = ()
    forced: Forced | None = None

    @property
    def finished(self) -> bool:
        return self.phase in ENDED

    def child(self, architecture: str) -> ChildRecord | None:
        return next((each for each in self.children if each.architecture == architecture), None)


def usable(child: ChildRecord) -> bool:
    """Whether this record names an image that may be published."""
    return bool(child.digest) and child.phase in ("Built", "Reused")


def recorded_child(execution: Execution, architecture: str) -> ChildRecord | None:
    """What an execution recorded of an architecture."""
    return next((each for each in execution.children if each.architecture == architecture), None)


def key_of(execution: Execution, architecture: str) -> str:
    """The key that an execution wants, or wanted, for an architecture; empty if it is none of its own."""
    for each in execution.keys:
        if each.architecture == architecture:
            return each.key
    child = recorded_child(execution, architecture)
    return child.key if child is not None else ""
