"""From the phases of architectures to the phase of their execution (BD-191, BD-192, BD-194). Pure."""

from collections.abc import Iterable, Sequence

import msgspec

from polyarch.builds.api.settings import ExecutionPhase
from polyarch.builds.executions.observed import cancelled
from polyarch.builds.executions.state import FAULTY_CHILD, FINAL_CHILD, usable
from polyarch.builds.executions.target import Target
from polyarch.builds.facts.facts import ChildRecord


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """The phase of an execution, with its architectures after what follows from that."""

    phase: ExecutionPhase
    children: tuple[ChildRecord, ...]
    reason: str = ""
    message: str = ""
    cancelled: tuple[str, ...] = ()
    """Architectures whose Jobs are not wanted to their end."""

    @property
    def is_partial(self) -> bool:
        """What succeeded is published without the rest."""
        return self.phase == "Assembling" and not all(usable(each) for each in self.children)


def progress(children: Sequence[ChildRecord], target: Target, *, fail_fast: bool, now: float) -> Progress:
    """Where an execution with these architectures stands."""
    ordered = tuple(sorted(children, key=lambda each: each.architecture))
    faulty = [each for each in ordered if each.phase in FAULTY_CHILD]
    if not faulty:
        return Progress(phase=_untroubled(ordered), children=ordered)
    if can_be_partial(ordered, target):
        if any(each.phase not in FINAL_CHILD for each in ordered):
            return Progress(phase="Building", children=ordered)
        return Progress(phase="Assembling", children=ordered, reason="PartialIndex", message=told(faulty))
    started = [each for each in ordered if each.phase in ("Building", "WaitingForNode")]
    failed = [each for each in ordered if each.phase == "Failed"]
    if started and not (fail_fast and failed):
        return Progress(phase="Building", children=ordered, reason=faulty[0].reason, message=told(faulty))
    ended = tuple(each if each.phase in FINAL_CHILD else cancelled(each, "SiblingFailed", at=now) for each in ordered)
    return Progress(
        phase="Failed" if failed else "Interrupted",
        children=ended,
        reason=(failed or faulty)[0].reason,
        message=told(faulty),
        cancelled=tuple(each.architecture for each in started),
    )


def is_halted(children: Iterable[ChildRecord], target: Target) -> bool:
    """Whether no further Job is started, since the execution fails in any case (BD-192)."""
    known = tuple(children)
    return any(each.phase in FAULTY_CHILD for each in known) and not can_be_partial(known, target)


def can_be_partial(children: Iterable[ChildRecord], target: Target) -> bool:
    """Whether what succeeds may be published although something failed (BD-194)."""
    if not target.partial or not target.required:
        return False
    phases = {each.architecture: each.phase for each in children}
    return all(phases.get(each) not in {*FAULTY_CHILD, "Cancelled", None} for each in target.required)


def told(children: Iterable[ChildRecord]) -> str:
    """Every failed architecture with its reason: ``arm64: BuildFailed: RUN make: exit 2`` (BD-216)."""
    return "; ".join(
        ": ".join(part for part in (each.architecture, each.reason, each.message) if part)
        for each in children
        if each.phase in FAULTY_CHILD
    )


def summary(children: Sequence[ChildRecord]) -> str:
    """``2/2``, or ``1/2 arm64: BuildFailed``: how far it is, and what keeps it."""
    done = sum(usable(each) for each in children)
    kept = [f"{each.architecture}: {each.reason}" for each in children if not usable(each) and each.reason]
    return " ".join([f"{done}/{len(children)}", ", ".join(kept)]).strip()


def _untroubled(children: Sequence[ChildRecord]) -> ExecutionPhase:
    if children and all(usable(each) for each in children):
        return "Assembling"
    if any(each.phase != "Pending" for each in children):
        return "Building"
    return "Pending"
