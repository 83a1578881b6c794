"""Carrying an execution on: from the moves of its architectures to what is recorded, published and deleted. Pure.

Everything is derived from what is observed (BD-195). Nothing here knows in which objects it is recorded.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from polyarch.builds.api.resources import IndexStatus
from polyarch.builds.api.settings import BuildTimes
from polyarch.builds.executions import progress as stages
from polyarch.builds.executions.failures import Cause, unread_secrets, witness
from polyarch.builds.executions.moves import JOB_REFUSED, REUSE_FAILED, Move
from polyarch.builds.executions.observed import CHILD_VANISHED, cancelled, failed, pending
from polyarch.builds.executions.progress import Progress
from polyarch.builds.executions.result import Result, publication, result
from polyarch.builds.executions.state import FAULTY_CHILD, State
from polyarch.builds.executions.target import Target
from polyarch.builds.facts.facts import ChildRecord, Execution, Facts, JobFacts, Question, StepFailure
from polyarch.builds.facts.history import ENDED
from polyarch.builds.facts.times import written
from polyarch.builds.jobs.index_outcome import IndexOutcome, IndexWork, index_outcome, index_work, inputs_name

PUSH: Final = "push-index"
PARTIAL: Final = "PartialIndex"
PUBLISHED: Final = "Published"
INCONSISTENT: Final = "RegistryInconsistent"
UNREACHABLE: Final = "RegistryUnreachable"
_RETRY: Final = 15.0
_TRIED_AGAIN: Final = (UNREACHABLE, JOB_REFUSED)
"""Why an execution that only has to be published is not yet."""


class Carried(msgspec.Struct, frozen=True, kw_only=True):
    """One execution after this round."""

    recorded: State
    """What is stored before anything is published."""
    published: State | None = None
    """What is stored once ``body`` was carried out; None: nothing is published in this round."""
    result: Result = Result()
    body: Mapping[str, Any] = {}
    reference: str = ""
    moves: tuple[Move, ...] = ()
    deletes: tuple[JobFacts, ...] = ()
    """Jobs to delete once ``recorded`` is stored."""
    index_work: IndexWork | None = None
    """A Job is made that publishes the result (BD-178)."""
    questions: tuple[Question, ...] = ()
    requeue_after: float | None = None

    @property
    def state(self) -> State:
        """The execution after the whole round."""
        return self.published or self.recorded


def carried(
    facts: Facts,
    target: Target,
    found: Sequence[Move],
    *,
    before: Execution | None,
    name: str,
    serial: int,
    tags: Sequence[str],
    child_tags: Mapping[str, str],
    index_job: str = "",
    publishes: bool = True,
) -> Carried:
    """What becomes of an execution. ``publishes``: its result is still wanted; ``index_job`` has the name of the Job
    that publishes it, where a Job does."""
    questions = tuple(question for move in found for question in move.questions)
    base = _base(facts, target, before, name, serial)
    seen = [move.child for move in found]
    work, outcome = None, IndexOutcome()
    if publishes and facts.leaves_registries_to_jobs:
        work, outcome = _by_job(facts, target, seen, base, tags, child_tags)
    failure = _failure(facts, name) or _job_failure(facts, work, outcome, index_job)
    vanished, children = _after_failure(facts, seen, failure)
    stage = stages.progress(children, target, fail_fast=facts.wish.spec.fail_fast, now=facts.now)
    jobs = {job.uid: job for job in facts.jobs}
    deletes = [move.delete for move in found if move.delete is not None]
    deletes += outcome.stale
    if outcome.job is not None and (outcome.lost or outcome.missing):
        deletes.append(outcome.job)
    deletes += [jobs[each.job_uid] for each in stage.children if _is_dropped(each, stage, vanished, jobs)]
    requeue = min((each.requeue_after for each in found if each.requeue_after is not None), default=None)
    carried = Carried(
        recorded=_recorded(facts, target, base, stage),
        moves=tuple(found),
        deletes=tuple({job.uid: job for job in deletes}.values()),
        questions=(*questions, *unread_secrets(facts, _causes(stage))),
        requeue_after=requeue,
    )
    if stage.phase != "Assembling":
        return carried
    if not facts.leaves_registries_to_jobs:
        return _assembling(facts, target, carried, stage, failure, tags, child_tags, publishes=publishes)
    return _assembling_by_job(facts, target, carried, stage, failure, work, outcome)


def _assembling(
    facts: Facts,
    target: Target,
    carried: Carried,
    stage: Progress,
    failure: StepFailure | None,
    tags: Sequence[str],
    child_tags: Mapping[str, str],
    *,
    publishes: bool,
) -> Carried:
    """All children are known: the result is published, or cannot be, or will be later."""
    made = result(stage.children, target)
    known = msgspec.structs.replace(carried, result=made)
    if made.reason:
        return _ended(facts, known, made.reason, made.message)
    if failure is not None:
        return _after_push(facts, known, failure)
    if not publishes:
        return known
    body = publication(facts, target, stage.children, made, tags=tags, child_tags=child_tags)
    return msgspec.structs.replace(_published(facts, target, known, stage), body=body)


def _published(facts: Facts, target: Target, known: Carried, stage: Progress) -> Carried:
    state, made = known.recorded, known.result
    index = None if made.single else IndexStatus(made.media_type, made.digest, made.size, written(facts.now))
    published = msgspec.structs.replace(
        state,
        phase="Succeeded",
        index=index,
        result=f"{target.repository}@{made.digest}",
        reason=PARTIAL if stage.is_partial else PUBLISHED,
        message=stage.message if stage.is_partial else "",
        completed=facts.now,
        witness=_witness(facts, stage) if stage.is_partial else {},
    )
    return msgspec.structs.replace(known, published=published, reference=published.result)


# -- where a Job publishes it (BD-178) ---------------------------------------------------------------------------------


def _by_job(
    facts: Facts,
    target: Target,
    children: Sequence[ChildRecord],
    base: State,
    tags: Sequence[str],
    child_tags: Mapping[str, str],
) -> tuple[IndexWork | None, IndexOutcome]:
    """The work of the index Job once every child is known, and where it stands; until then it has no Job."""
    stage = stages.progress(children, target, fail_fast=facts.wish.spec.fail_fast, now=facts.now)
    made = result(stage.children, target) if stage.phase == "Assembling" else Result(reason=stage.phase)
    if made.reason:
        nothing = IndexWork(execution=base.name, key="", document={})
        return None, index_outcome(facts.jobs, nothing, build=facts.wish.name)
    document = publication(facts, target, stage.children, made, tags=tags, child_tags=child_tags)
    work = index_work(base.name, base.uid, document, stage.children)
    return work, index_outcome(facts.jobs, work, build=facts.wish.name)


def _job_failure(facts: Facts, work: IndexWork | None, outcome: IndexOutcome, job: str) -> StepFailure | None:
    """Why the index Job published nothing, in the words of the step that it stands for."""
    if work is None:
        return None
    names = (job, inputs_name(job, work.key))
    refusal = next((each for each in facts.failures if each.verb == "create" and each.name in names), None)
    if refusal is not None:
        message = f"{refusal.kind} {refusal.name}: {refusal.message}"
        return msgspec.structs.replace(refusal, message=message, passing=refusal.code != "NameConflict")
    return why_unpublished(outcome, work, job)


def why_unpublished(outcome: IndexOutcome, work: IndexWork, job: str) -> StepFailure | None:
    """Why an index Job that has ended did not publish what it was to publish; None if it did, or has not ended."""
    if outcome.failure is not None:
        return StepFailure(verb=PUSH, code=outcome.failure.reason, message=outcome.failure.message)
    if outcome.lost:
        message = f"Job {job} is done, but nothing tells what it published; it is made again."
        return StepFailure(verb=PUSH, code=UNREACHABLE, message=message, passing=True)
    if outcome.pushed is None:
        return None
    if outcome.missing:
        message = f"the images of {', '.join(outcome.missing)} are gone"
        return StepFailure(verb=PUSH, code=INCONSISTENT, message=message, missing=outcome.missing)
    expected = work.document["digest"]
    if outcome.pushed.digest != expected:
        message = f"{outcome.pushed.digest} was published where {expected} was planned"
        return StepFailure(verb=PUSH, code=INCONSISTENT, message=message)
    return None


def _assembling_by_job(
    facts: Facts,
    target: Target,
    carried: Carried,
    stage: Progress,
    failure: StepFailure | None,
    work: IndexWork | None,
    outcome: IndexOutcome,
) -> Carried:
    """All children are known: their Job is made, is at work, or has ended."""
    made = result(stage.children, target)
    known = msgspec.structs.replace(carried, result=made)
    if made.reason:
        return _ended(facts, known, made.reason, made.message)
    if failure is not None:
        return _after_push(facts, known, failure)
    if outcome.pushed is not None:
        return _published(facts, target, known, stage)
    is_due = work is not None and outcome.job is None and outcome.is_free
    return msgspec.structs.replace(known, index_work=work if is_due else None)


def _after_push(facts: Facts, carried: Carried, failure: StepFailure) -> Carried:
    """The registry did not take it: later again for ``timeouts.index``, or the execution has failed (BD-219)."""
    if not failure.passing:
        return _ended(facts, carried, failure.code, failure.message)
    since = max((each.completed for each in carried.recorded.children if each.completed is not None), default=facts.now)
    times, refused = BuildTimes.of(facts.wish.spec), failure.verb == "create"
    reason = JOB_REFUSED if refused else UNREACHABLE
    left = since + (times.node_wait if refused else times.index) - facts.now
    if left <= 0:
        return _ended(facts, carried, reason, failure.message)
    state = msgspec.structs.replace(carried.recorded, reason=reason, message=failure.message)
    return msgspec.structs.replace(carried, recorded=state, requeue_after=min(pause(failure), left))


def pause(failure: StepFailure) -> float:
    """Seconds after which a step that failed in passing is tried again."""
    return max(failure.retry_after if failure.retry_after is not None else _RETRY, 1.0)


def _ended(facts: Facts, carried: Carried, reason: str, message: str) -> Carried:
    cause = Cause(reason=reason, message=message)
    state = msgspec.structs.replace(
        carried.recorded,
        phase="Failed",
        reason=reason,
        message=message,
        completed=facts.now,
        witness=witness(facts, [cause]),
    )
    questions = (*carried.questions, *unread_secrets(facts, [cause]))
    return msgspec.structs.replace(carried, recorded=state, questions=questions)


def _failure(facts: Facts, name: str) -> StepFailure | None:
    return next((each for each in facts.failures if each.verb == PUSH and each.name == name), None)


def _after_failure(
    facts: Facts, children: list[ChildRecord], failure: StepFailure | None
) -> tuple[frozenset[str], list[ChildRecord]]:
    """Architectures that publishing found wanting, and the records after that (BD-177, BD-173, BD-092)."""
    if failure is None:
        return frozenset(), children
    gone = frozenset(failure.missing)
    after = []
    for child in children:
        if child.architecture in gone:
            after.append(_vanished(facts, child))
        elif child.architecture == failure.architecture and failure.code == REUSE_FAILED:
            after.append(pending(child, REUSE_FAILED, failure.message))
        elif child.architecture == failure.architecture and failure.code in ("ArchitectureMismatch", "LayoutInvalid"):
            after.append(failed(child, failure.code, failure.message, at=facts.now))
        else:
            after.append(child)
    return gone, after


def _vanished(facts: Facts, child: ChildRecord) -> ChildRecord:
    if child.reason == CHILD_VANISHED:
        message = "The registry lost the image twice after it had taken it."
        return failed(child, INCONSISTENT, message, at=facts.now)
    return pending(child, CHILD_VANISHED, "The registry no longer has the image: it is built again.")


def _is_dropped(child: ChildRecord, stage: Progress, vanished: frozenset[str], jobs: Mapping[str, JobFacts]) -> bool:
    return child.architecture in stage.cancelled and child.job_uid in jobs and child.architecture not in vanished


def _base(facts: Facts, target: Target, before: Execution | None, name: str, serial: int) -> State:
    if before is None:
        return State(
            name=name,
            serial=serial,
            build_key=target.build_key,
            started=facts.now,
            repository=target.repository,
            pins=target.pins,
            forced=target.forced,
        )
    return kept(before)


def kept(before: Execution) -> State:
    """An execution as it is stored."""
    return State(
        name=before.name,
        uid=before.uid,
        serial=before.serial,
        build_key=before.build_key,
        phase=before.phase or "Pending",
        children=tuple(sorted(before.children, key=lambda each: each.architecture)),
        index=before.index,
        result=before.result,
        reason=before.reason,
        message=before.message,
        started=before.started if before.started is not None else before.created,
        completed=before.completed,
        repository=before.repository,
        pins=before.pins,
        forced=before.forced,
    )


def _recorded(facts: Facts, target: Target, base: State, stage: Progress) -> State:
    """While publishing is tried again, the reason of the last attempt stays: taken back before each one and written
    after it, it would be news each time, and every news brings the next pass."""
    ended = stage.phase in ENDED
    tried = (base.phase, stage.phase) == ("Assembling", "Assembling") and base.reason in _TRIED_AGAIN
    why = base if tried else stage
    return msgspec.structs.replace(
        base,
        phase=stage.phase,
        children=stage.children,
        reason=why.reason,
        message=why.message,
        completed=facts.now if ended else None,
        witness=_witness(facts, stage) if ended else {},
    )


def _witness(facts: Facts, stage: Progress) -> dict[str, str]:
    return witness(facts, _causes(stage))


def _causes(stage: Progress) -> list[Cause]:
    return [
        Cause(reason=each.reason, message=each.message, architecture=each.architecture, host=each.host)
        for each in stage.children
        if each.phase in FAULTY_CHILD
    ]


def superseded(facts: Facts, before: Execution, found: Sequence[ChildRecord]) -> State:
    """An older execution that is not wanted any more: what its Jobs have done is kept (BD-127)."""
    children = tuple(
        each
        if each.phase in ("Built", "Reused", "Failed", "Interrupted", "Cancelled")
        else cancelled(each, "Superseded", at=facts.now)
        for each in found
    )
    return msgspec.structs.replace(
        kept(before),
        phase="Superseded",
        children=children,
        reason="Superseded",
        message="What was wanted has changed while it ran.",
        completed=facts.now,
    )
