"""An execution after the actions of its architectures: what is recorded, published and deleted. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from polyarch.builds.api.formats import BuildTimes
from polyarch.builds.api.resources import IndexStatus
from polyarch.builds.base_images import builder_images
from polyarch.builds.facts.build_facts import (
    ENDED,
    BuildFacts,
    BuildLookup,
    ChildRecord,
    Execution,
    JobFacts,
    WriteFailure,
    written,
)
from polyarch.builds.jobs.results import (
    IndexJobRequest,
    IndexJobStatus,
    index_job_request,
    index_job_status,
    inputs_name,
)
from polyarch.builds.plan.actions import (
    CHILD_VANISHED,
    JOB_REFUSED,
    REUSE_FAILED,
    UNREACHABLE,
    ArchitectureAction,
    ExecutionProgress,
    cancelled_child,
    execution_progress,
    failed_child,
    pending_child,
)
from polyarch.builds.plan.executions import ExecutionNames, usable
from polyarch.builds.plan.failures import FailureCause, causes_of, unread_secrets, witness
from polyarch.builds.plan.request import DesiredBuild
from polyarch.oci.write.assembly import Child, InvalidIndex, assemble
from polyarch.platforms import Platform


class ExecutionResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result as it will be, or why there cannot be one."""

    digest: str = ""
    media_type: str = ""
    size: int = 0
    single: bool = False
    reason: str = ""
    """``MixedFormats`` or ``DuplicatePlatform``: there is no result."""
    message: str = ""


def execution_result(children: Sequence[ChildRecord], target: DesiredBuild) -> ExecutionResult:
    """The result of these children; those that are not usable are left out."""
    members = sorted((each for each in children if usable(each)), key=lambda each: each.architecture)
    if len(members) == 1 and not target.wants_index(len(children)):
        only = members[0]
        return ExecutionResult(digest=only.digest, media_type=only.media_type, size=only.size, single=True)
    try:
        index = assemble([_child(each) for each in members], annotations=dict(target.index_annotations))
    except InvalidIndex as refused:
        mixed = len({each.media_type for each in members}) > 1
        return ExecutionResult(reason="MixedFormats" if mixed else "DuplicatePlatform", message=str(refused))
    return ExecutionResult(digest=index.digest, media_type=index.media_type, size=len(index.body))


def place(facts: BuildFacts, target: DesiredBuild, child: ChildRecord) -> str:
    """The repository that a child is in now: its own execution's, or the staging repository until it is copied.

    Where nobody has asked yet, it is looked for where its Job has pushed it.
    """
    if child.phase != "Reused":
        return target.pushed_to
    source = next((each for each in facts.executions if each.name == child.reused_from), None)
    if source is None:
        return target.repository
    if source.phase == "Succeeded" or not target.staging:
        return source.repository
    known = facts.existing.get(f"{source.repository}@{child.digest}")
    return source.repository if known is not None and known.digest else target.staging


def publication(
    facts: BuildFacts,
    target: DesiredBuild,
    children: Sequence[ChildRecord],
    made: ExecutionResult,
    names: ExecutionNames,
) -> dict[str, Any]:
    """The body of the step that copies, assembles, pushes and tags."""
    members = sorted((each for each in children if usable(each)), key=lambda each: each.architecture)
    return {
        "repository": target.repository,
        "children": [
            {
                "architecture": each.architecture,
                "reference": f"{place(facts, target, each)}@{each.digest}",
                "tag": names.child_tags.get(each.architecture, ""),
            }
            for each in members
        ],
        "tags": list(names.tags),
        "single": made.single,
        "annotations": dict(target.index_annotations),
        "attestations": target.attestations,
        "required": list(target.required if target.partial else target.architectures),
        "digest": made.digest,
    }


def republication(execution: Execution, tags: Sequence[str]) -> dict[str, Any]:
    """The body of the step that gives a finished result these tags, where a Job does it: all of it is there."""
    members = [each for each in execution.children if usable(each)]
    return {
        "repository": execution.repository,
        "children": [
            {"architecture": each.architecture, "reference": f"{execution.repository}@{each.digest}", "tag": ""}
            for each in sorted(members, key=lambda each: each.architecture)
        ],
        "tags": list(tags),
        "single": execution.index is None,
        "annotations": dict(execution.index_annotations),
        "attestations": execution.attestations,
        "required": sorted(execution.required or (each.architecture for each in members)),
        "digest": execution.result.partition("@")[2],
    }


def _child(record: ChildRecord) -> Child:
    return Child(
        media_type=record.media_type,
        digest=record.digest,
        size=record.size,
        platform=Platform.of("linux", record.architecture, record.variant),
        source=record.architecture,
    )


# -- the execution -----------------------------------------------------------------------------------------------------


PUSH: Final = "push-index"
PARTIAL: Final = "PartialIndex"
PUBLISHED: Final = "Published"
INCONSISTENT: Final = "RegistryInconsistent"
_RETRY: Final = 15.0
_TRIED_AGAIN: Final = (UNREACHABLE, JOB_REFUSED)
"""Why an execution that only has to be published is not yet."""


class ExecutionUpdate(msgspec.Struct, frozen=True, kw_only=True):
    """One execution after its actions."""

    recorded: Execution
    """What is stored before anything is published."""
    published: Execution | None = None
    """What is stored once ``body`` was carried out; None: nothing is published now."""
    result: ExecutionResult = ExecutionResult()
    body: Mapping[str, Any] = {}
    reference: str = ""
    actions: tuple[ArchitectureAction, ...] = ()
    deletes: tuple[JobFacts, ...] = ()
    """Jobs to delete once ``recorded`` is stored."""
    index_job: IndexJobRequest | None = None
    """A Job is made that publishes the result."""
    lookups: tuple[BuildLookup, ...] = ()
    requeue_after: float | None = None

    @property
    def state(self) -> Execution:
        """The execution once everything is carried out."""
        return self.published or self.recorded


def update_execution(
    facts: BuildFacts,
    target: DesiredBuild,
    actions: Sequence[ArchitectureAction],
    base: Execution,
    names: ExecutionNames | None = None,
) -> ExecutionUpdate:
    """What becomes of an execution by these actions. Without ``names`` its result is not wanted any more."""
    lookups = tuple(lookup for action in actions for lookup in action.lookups)
    seen = [action.child for action in actions]
    work, status = None, IndexJobStatus()
    if names is not None and facts.leaves_registries_to_jobs:
        work, status = _index_job(facts, target, seen, base, names)
    failure = _failure(facts, base.name)
    if failure is None and names is not None and work is not None:
        failure = _job_failure(facts, work, status, names.index_job)
    vanished, children = _after_failure(facts, seen, failure)
    stage = execution_progress(children, target, fail_fast=facts.request.spec.fail_fast, now=facts.now)
    jobs = {job.uid: job for job in facts.jobs}
    deletes = [action.delete for action in actions if action.delete is not None]
    deletes += status.stale
    if status.job is not None and (status.lost or status.missing):
        deletes.append(status.job)
    deletes += [jobs[each.job_uid] for each in stage.children if _is_dropped(each, stage, vanished, jobs)]
    requeue = min((each.requeue_after for each in actions if each.requeue_after is not None), default=None)
    update = ExecutionUpdate(
        recorded=_recorded(facts, base, stage),
        actions=tuple(actions),
        deletes=tuple({job.uid: job for job in deletes}.values()),
        lookups=(*lookups, *unread_secrets(facts, causes_of(stage))),
        requeue_after=requeue,
    )
    if stage.phase != "Assembling":
        return update
    made = execution_result(stage.children, target)
    update = msgspec.structs.replace(update, result=made)
    if made.reason:
        return _ended(facts, update, made.reason, made.message)
    if failure is not None:
        return _after_push(facts, update, failure)
    if facts.leaves_registries_to_jobs:
        if status.pushed is not None:
            return _published(facts, target, update, stage)
        is_due = work is not None and status.job is None and status.is_free
        return msgspec.structs.replace(update, index_job=work if is_due else None)
    if names is None:
        return update
    body = publication(facts, target, stage.children, made, names)
    return msgspec.structs.replace(_published(facts, target, update, stage), body=body)


def _published(
    facts: BuildFacts, target: DesiredBuild, update: ExecutionUpdate, stage: ExecutionProgress
) -> ExecutionUpdate:
    state, made = update.recorded, update.result
    index = None if made.single else IndexStatus(made.media_type, made.digest, made.size, written(facts.now))
    published = msgspec.structs.replace(
        state,
        phase="Succeeded",
        index=index,
        result=f"{target.repository}@{made.digest}",
        reason=PARTIAL if stage.is_partial else PUBLISHED,
        message=stage.message if stage.is_partial else "",
        completed=facts.now,
        witness=witness(facts, causes_of(stage)) if stage.is_partial else {},
    )
    return msgspec.structs.replace(update, published=published, reference=published.result)


# -- where a Job publishes it ------------------------------------------------------------------------------------------


def _index_job(
    facts: BuildFacts,
    target: DesiredBuild,
    children: Sequence[ChildRecord],
    base: Execution,
    names: ExecutionNames,
) -> tuple[IndexJobRequest | None, IndexJobStatus]:
    """The request for the index Job once every child is known, and where it stands; until then it has no Job."""
    stage = execution_progress(children, target, fail_fast=facts.request.spec.fail_fast, now=facts.now)
    made = execution_result(stage.children, target) if stage.phase == "Assembling" else None
    if made is None or made.reason:
        nothing = IndexJobRequest(execution=base.name, key="", document={})
        return None, index_job_status(facts.jobs, nothing, build=facts.request.name)
    document = publication(facts, target, stage.children, made, names)
    work = index_job_request(base.name, base.uid, document, stage.children)
    return work, index_job_status(facts.jobs, work, build=facts.request.name)


def _job_failure(facts: BuildFacts, work: IndexJobRequest, status: IndexJobStatus, job: str) -> WriteFailure | None:
    """Why the index Job published nothing, in the words of the step that it stands for."""
    names = (job, inputs_name(job, work.key))
    refusal = next((each for each in facts.failures if each.verb == "create" and each.name in names), None)
    if refusal is not None:
        message = f"{refusal.kind} {refusal.name}: {refusal.message}"
        return msgspec.structs.replace(refusal, message=message, passing=refusal.code != "NameConflict")
    return why_unpublished(status, work, job)


def why_unpublished(status: IndexJobStatus, work: IndexJobRequest, job: str) -> WriteFailure | None:
    """Why an index Job that has ended did not publish what it was to publish; None if it did, or has not ended."""
    if status.failure is not None:
        return WriteFailure(verb=PUSH, code=status.failure.reason, message=status.failure.message)
    if status.lost:
        message = f"Job {job} is done, but nothing tells what it published; it is made again."
        return WriteFailure(verb=PUSH, code=UNREACHABLE, message=message, passing=True)
    if status.pushed is None:
        return None
    if status.missing:
        message = f"the images of {', '.join(status.missing)} are gone"
        return WriteFailure(verb=PUSH, code=INCONSISTENT, message=message, missing=status.missing)
    expected = work.document["digest"]
    if status.pushed.digest != expected:
        message = f"{status.pushed.digest} was published where {expected} was planned"
        return WriteFailure(verb=PUSH, code=INCONSISTENT, message=message)
    return None


def _after_push(facts: BuildFacts, update: ExecutionUpdate, failure: WriteFailure) -> ExecutionUpdate:
    """The registry did not take it: later again for ``timeouts.index``, or the execution has failed."""
    if not failure.passing:
        return _ended(facts, update, failure.code, failure.message)
    since = max((each.completed for each in update.recorded.children if each.completed is not None), default=facts.now)
    times, refused = BuildTimes.of(facts.request.spec), failure.verb == "create"
    reason = JOB_REFUSED if refused else UNREACHABLE
    left = since + (times.node_wait if refused else times.index) - facts.now
    if left <= 0:
        return _ended(facts, update, reason, failure.message)
    state = msgspec.structs.replace(update.recorded, reason=reason, message=failure.message)
    return msgspec.structs.replace(update, recorded=state, requeue_after=min(retry_pause(failure), left))


def retry_pause(failure: WriteFailure) -> float:
    """Seconds after which a step that failed in passing is tried again."""
    return max(failure.retry_after if failure.retry_after is not None else _RETRY, 1.0)


def _ended(facts: BuildFacts, update: ExecutionUpdate, reason: str, message: str) -> ExecutionUpdate:
    cause = FailureCause(reason=reason, message=message)
    state = msgspec.structs.replace(
        update.recorded,
        phase="Failed",
        reason=reason,
        message=message,
        completed=facts.now,
        witness=witness(facts, [cause]),
    )
    lookups = (*update.lookups, *unread_secrets(facts, [cause]))
    return msgspec.structs.replace(update, recorded=state, lookups=lookups)


def _failure(facts: BuildFacts, name: str) -> WriteFailure | None:
    return next((each for each in facts.failures if each.verb == PUSH and each.name == name), None)


def _after_failure(
    facts: BuildFacts, children: list[ChildRecord], failure: WriteFailure | None
) -> tuple[frozenset[str], list[ChildRecord]]:
    """Architectures that publishing found wanting, and the records after that."""
    if failure is None:
        return frozenset(), children
    gone = frozenset(failure.missing)
    after = []
    for child in children:
        if child.architecture in gone:
            after.append(_vanished(facts, child))
        elif child.architecture == failure.architecture and failure.code == REUSE_FAILED:
            after.append(pending_child(child, REUSE_FAILED, failure.message))
        elif child.architecture == failure.architecture and failure.code in ("ArchitectureMismatch", "LayoutInvalid"):
            after.append(failed_child(child, failure.code, failure.message, at=facts.now))
        else:
            after.append(child)
    return gone, after


def _vanished(facts: BuildFacts, child: ChildRecord) -> ChildRecord:
    if child.reason == CHILD_VANISHED:
        message = "The registry lost the image twice after it had taken it."
        return failed_child(child, INCONSISTENT, message, at=facts.now)
    return pending_child(child, CHILD_VANISHED, "The registry no longer has the image: it is built again.")


def _is_dropped(
    child: ChildRecord, stage: ExecutionProgress, vanished: frozenset[str], jobs: Mapping[str, JobFacts]
) -> bool:
    return child.architecture in stage.cancelled and child.job_uid in jobs and child.architecture not in vanished


def new_state(facts: BuildFacts, target: DesiredBuild, name: str, serial: int) -> Execution:
    """An execution that is begun now."""
    return Execution(
        namespace=target.namespace,
        name=name,
        phase="Pending",
        serial=serial,
        build_key=target.build_key,
        started=facts.now,
        repository=target.repository,
        pins=target.pins,
        forced=target.forced,
        builder=builder_images(facts),
    )


def recorded_state(before: Execution) -> Execution:
    """An execution as it is stored."""
    return msgspec.structs.replace(
        before,
        phase=before.phase or "Pending",
        children=tuple(sorted(before.children, key=lambda child: child.architecture)),
        started=before.started if before.started is not None else before.created,
    )


def _recorded(facts: BuildFacts, base: Execution, stage: ExecutionProgress) -> Execution:
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
        witness=witness(facts, causes_of(stage)) if ended else {},
    )


def superseded_state(facts: BuildFacts, before: Execution, found: Sequence[ChildRecord]) -> Execution:
    """An older execution that is not wanted any more: what its Jobs have done is kept."""
    children = tuple(
        each
        if each.phase in ("Built", "Reused", "Failed", "Interrupted", "Cancelled")
        else cancelled_child(each, "Superseded", at=facts.now)
        for each in found
    )
    return msgspec.structs.replace(
        recorded_state(before),
        phase="Superseded",
        children=children,
        reason="Superseded",
        message="What was wanted has changed while it ran.",
        completed=facts.now,
    )
