"""The next move of every architecture of an execution: reuse, take over, wait, build, or look at its Job (BD-090).

Pure. What a move leads to in records is decided here; in which order it is written, the planner says.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

from polyarch.builds.api.settings import BuildTimes
from polyarch.builds.executions.adoption import adoption, own_job, shared
from polyarch.builds.executions.observed import CHILD_VANISHED, MADE_AGAIN, Observed, failed, observe
from polyarch.builds.executions.progress import is_halted
from polyarch.builds.executions.reuse import Reusable, Search, search
from polyarch.builds.executions.state import FINAL_CHILD
from polyarch.builds.executions.target import Target
from polyarch.builds.facts.facts import ChildRecord, Execution, Facts, JobFacts, Question, StepFailure
from polyarch.builds.jobs.contract import configmap_name, context_name

REUSE_FAILED: Final = "ReuseFailed"
"""A child of another repository could not be copied: it is built."""
QUEUED: Final = "Queued"
SHARED: Final = "SharedWith"
JOB_REFUSED: Final = "JobRefused"
UNREACHABLE: Final = "RegistryUnreachable"
_RETRY: Final = 5.0
_LONGEST_RETRY: Final = 60.0
_LOOK_AGAIN: Final = 60.0


class Move(msgspec.Struct, frozen=True, kw_only=True):
    """What happens with one architecture now."""

    child: ChildRecord
    """Its record after the move."""
    build: bool = False
    """Its Job is made."""
    adopt: JobFacts | None = None
    """This Job is taken over."""
    reuse: Reusable | None = None
    delete: JobFacts | None = None
    """This Job is deleted once the record is stored."""
    wait: str = ""
    """What it waits for, in words."""
    questions: tuple[Question, ...] = ()
    requeue_after: float | None = None

    @property
    def needs_job(self) -> bool:
        """Neither a child nor a Job is there for it, whether or not its Job can be made at once."""
        return self.build or self.child.reason in (QUEUED, JOB_REFUSED)


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    """Under which an execution is carried on."""

    name: str
    """Of the execution."""
    job_name: Callable[[str], str]
    host: Callable[[str], tuple[str, str]]
    """Of an architecture: that of the nodes where it is built, and ``Native`` or ``Emulated``."""
    may_start: bool = True
    """Keys are as the execution has them: further Jobs may be made (BD-023)."""


def moves(facts: Facts, target: Target, execution: Execution | None, rules: Rules) -> tuple[Move, ...]:
    """One move for each architecture, in order."""
    records = _records(target, execution)
    seen = [observe(facts, execution, each) if execution is not None else Observed(child=each) for each in records]
    halted = is_halted([each.child for each in seen], target)
    running = sum(each.child.phase in ("Building", "WaitingForNode") for each in seen)
    free = _free(facts, running)
    found: list[Move] = []
    for each in seen:
        move = _observed(each)
        if each.child.phase == "Pending" and move.delete is None and rules.may_start and not halted:
            move = _start(facts, target, execution, each.child, rules, free=free)
            free -= move.build
        found.append(move)
    return tuple(found)


def _records(target: Target, execution: Execution | None) -> Sequence[ChildRecord]:
    keys: Mapping[str, str] = target.keys
    if execution is not None and execution.keys:
        keys = {each.architecture: each.key for each in execution.keys}
    known = {each.architecture: each for each in execution.children} if execution is not None else {}
    return [known.get(each) or ChildRecord(architecture=each, key=keys[each]) for each in sorted(keys)]


def _observed(seen: Observed) -> Move:
    questions = (seen.question,) if seen.question is not None else ()
    return Move(child=seen.child, delete=seen.delete, questions=questions, requeue_after=seen.requeue_after)


def _free(facts: Facts, running: int) -> int:
    """How many Jobs may be made now (BD-154)."""
    free = facts.settings.max_active_jobs - facts.active_jobs - facts.queued
    if limit := facts.wish.spec.scheduling.max_parallel:
        free = min(free, limit - running)
    return max(0, free)


def _start(
    facts: Facts, target: Target, execution: Execution | None, record: ChildRecord, rules: Rules, *, free: int
) -> Move:
    """A pending architecture: a child that is there, a Job that is there, one to wait for, or one to make."""
    architecture = record.architecture
    if record.reason == CHILD_VANISHED and facts.leaves_registries_to_jobs:
        look = Search()  # a record is all that could be asked, and it would give the same child again
    else:
        look = search(facts, target, architecture, elsewhere=record.reason != REUSE_FAILED)
    if look.questions:
        return Move(child=record, questions=look.questions)
    if look.found is not None:
        return _reuse(facts, record, look.found)
    if look.unreachable:
        child = _changed(record, reason=UNREACHABLE, message=f"{look.unreachable}; it is tried again.")
        return Move(child=child, wait=look.unreachable, requeue_after=_LOOK_AGAIN)
    if (job := adoption(facts, target, architecture, execution=rules.name)) is not None:
        return _adopt(record, job)
    if (job := shared(facts, target, architecture, execution=rules.name)) is not None:
        text = f"Job {job.name} of {job.run} builds the same; its image will be used."
        return Move(child=_changed(record, reason=f"{SHARED} {job.name}", message=text), wait=text)
    if execution is not None and own_job(facts, execution, architecture) is not None:
        return Move(child=record, wait="Its former Job is being deleted.", requeue_after=_RETRY)
    return _build(facts, record, rules, free=free)


def _reuse(facts: Facts, record: ChildRecord, found: Reusable) -> Move:
    child = found.child
    reused = _changed(record, phase="Reused", reason="", message="", reused_from=found.execution, completed=facts.now)
    image = {"digest": child.digest, "size": child.size, "media_type": child.media_type, "variant": child.variant}
    return Move(child=_changed(reused, **image), reuse=found)


def _adopt(record: ChildRecord, job: JobFacts) -> Move:
    taken = _changed(record, phase="Building", reason="", message="", job=job.name, job_uid=job.uid)
    host = job.host or record.architecture
    execution = "Native" if host == record.architecture else "Emulated"
    return Move(child=_changed(taken, host=host, execution=execution, started=job.started), adopt=job)


def _build(facts: Facts, record: ChildRecord, rules: Rules, *, free: int) -> Move:
    name = rules.job_name(record.architecture)
    if (refusal := _refusal(facts, name)) is not None:
        return _refused(facts, record, refusal)
    if free <= 0:
        text = "It waits until fewer Jobs of builds are at work."
        return Move(child=_changed(record, reason=QUEUED, message=text), wait=text)
    host, how = rules.host(record.architecture)
    kept = record.reason if record.reason in MADE_AGAIN else ""
    child = _changed(record, phase="Building", reason=kept, message="", job=name, host=host, execution=how)
    return Move(child=_changed(child, started=None), build=True)


def _refusal(facts: Facts, job: str) -> StepFailure | None:
    made = (job, configmap_name(job), context_name(job))
    return next((each for each in facts.failures if each.step == "S4" and each.name in made), None)


def _refused(facts: Facts, record: ChildRecord, refusal: StepFailure) -> Move:
    """Refused by quota, admission, or somebody else's object of that name: tried again for ``nodeWait`` (BD-220)."""
    reason = "NameConflict" if refusal.code == "NameConflict" else JOB_REFUSED
    since = record.started if record.started is not None else facts.now
    waited = facts.now - since
    message = f"{refusal.kind} {refusal.name}: {refusal.message}"
    if waited >= BuildTimes.of(facts.wish.spec).node_wait:
        return Move(child=failed(record, reason, message, at=facts.now))
    child = _changed(record, reason=reason, message=message, started=since)
    return Move(child=child, wait=message, requeue_after=min(_LONGEST_RETRY, max(_RETRY, waited)))


def final(found: Sequence[Move]) -> bool:
    """Whether nothing more will change by itself."""
    return all(each.child.phase in FINAL_CHILD for each in found)


def _changed(record: ChildRecord, **fields: Any) -> ChildRecord:
    return msgspec.structs.replace(record, **fields)
