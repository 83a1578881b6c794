"""What happens next with each architecture of an execution: reuse, adopt, wait or build. Pure.

A record follows from the Job as it is now and from what was recorded before; nothing is counted from events. A Job
with another UID than the recorded one is somebody else's: its result is never taken.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from polyarch.builds.api.formats import BuildTimes, ExecutionPhase, Phase
from polyarch.builds.architectures import explained_profile, host_of, is_available
from polyarch.builds.facts.build_facts import (
    ENDED_CHILD,
    BuildFacts,
    BuildLookup,
    BuildStep,
    ChildRecord,
    Execution,
    HeadResult,
    JobFacts,
    PodFacts,
    Problem,
    WriteFailure,
)
from polyarch.builds.jobs.contract import configmap_name, context_name
from polyarch.builds.jobs.results import BUILD_TIMEOUT, job_failure, push_message, shown_message
from polyarch.builds.plan.document import JOB, uid_placeholder
from polyarch.builds.plan.executions import (
    FAULTY_CHILD,
    PASSING,
    ExecutionNames,
    ReusableChild,
    ReuseSearch,
    adoption,
    find_reusable_child,
    own_job,
    shared,
    usable,
)
from polyarch.builds.plan.request import DesiredBuild
from polyarch.durations import format_duration
from polyarch.oci.documents import OCI_MANIFEST
from polyarch.oci.inspection import ERROR_CODES, Inspection

MAX_MESSAGE: Final = 1024
CHILD_UNKNOWN: Final = "ChildUnknown"
"""The Job is done, and nothing tells what it made: it is built again."""
CHILD_VANISHED: Final = "ChildVanished"
"""The registry lost it after it was made: it is built again, once for each execution."""
POD_NOT_STARTED: Final = "PodNotStarted"
"""The Job's pod is on a node that does not start it (yet)."""
MADE_AGAIN: Final = frozenset({CHILD_UNKNOWN, CHILD_VANISHED})
REUSE_FAILED: Final = "ReuseFailed"
"""A child with the wanted key cannot be had from its repository: it is built."""
QUEUED: Final = "Queued"
SHARED: Final = "SharedWith"
JOB_REFUSED: Final = "JobRefused"
UNREACHABLE: Final = "RegistryUnreachable"
_RETRY: Final = 5.0
_LONGEST_RETRY: Final = 60.0
_LOOK_AGAIN: Final = 60.0


class ArchitectureAction(msgspec.Struct, frozen=True, kw_only=True):
    """What happens with one architecture now."""

    child: ChildRecord
    """Its record afterwards."""
    build: bool = False
    """Its Job is made."""
    adopt: JobFacts | None = None
    """This Job is taken over."""
    reuse: ReusableChild | None = None
    delete: JobFacts | None = None
    """This Job is deleted once the record is stored."""
    not_reused: str = ""
    """Why it is built although a child with its key is recorded."""
    lookups: tuple[BuildLookup, ...] = ()
    requeue_after: float | None = None

    @property
    def needs_job(self) -> bool:
        """Neither a child nor a Job is there for it, whether or not its Job can be made at once."""
        return self.build or self.child.reason in (QUEUED, JOB_REFUSED)


def next_actions(
    facts: BuildFacts, target: DesiredBuild, execution: Execution | None, names: ExecutionNames | None = None
) -> tuple[ArchitectureAction, ...]:
    """One action for each architecture, in order. Without ``names`` nothing new is started."""
    records = _records(target, execution)
    seen = [
        observe_job(facts, execution, record) if execution is not None else ArchitectureAction(child=record)
        for record in records
    ]
    halted = is_halted([each.child for each in seen], target)
    running = sum(each.child.phase in ("Building", "WaitingForNode") for each in seen)
    started = 0
    found: list[ArchitectureAction] = []
    for action in seen:
        if action.child.phase == "Pending" and action.delete is None and names is not None and not halted:
            action = _start(facts, target, execution, action.child, names, shortage=_shortage(facts, running, started))
            started += action.build
        found.append(action)
    return tuple(found)


def _records(target: DesiredBuild, execution: Execution | None) -> Sequence[ChildRecord]:
    keys: Mapping[str, str] = target.keys
    if execution is not None and execution.keys:
        keys = {each.architecture: each.key for each in execution.keys}
    known = {each.architecture: each for each in execution.children} if execution is not None else {}
    return [known.get(each) or ChildRecord(architecture=each, key=keys[each]) for each in sorted(keys)]


def _shortage(facts: BuildFacts, running: int, started: int) -> str:
    """Why no Job can be made besides those of this build that run and that are made now; empty: one can be made.

    Other namespaces are not named, nor are Jobs counted: who may build need not see who else does.
    """
    places, most = facts.places, facts.settings.max_active_jobs
    limit = facts.request.spec.scheduling.max_parallel
    if limit and running + started >= limit:
        return f"It waits until fewer Jobs of this build are at work: spec.scheduling.maxParallel is {limit}."
    if started < places.free:
        return ""
    if places.predecessor:
        return f"It waits for a Job after ImageBuildRun {places.predecessor} of this namespace."
    if started >= places.room:
        return f"It waits until this namespace has fewer Jobs, at work or waiting for a node: it may have {most}."
    return f"It waits for other namespaces' Jobs, which have the rest of {most} places or more."


def _start(
    facts: BuildFacts,
    target: DesiredBuild,
    execution: Execution | None,
    record: ChildRecord,
    names: ExecutionNames,
    *,
    shortage: str,
) -> ArchitectureAction:
    """A pending architecture: a child that is there, a Job that is there, one to wait for, or one to make."""
    architecture = record.architecture
    if record.reason == CHILD_VANISHED and facts.leaves_registries_to_jobs:
        look = ReuseSearch()  # a record is all that could be asked, and it would give the same child again
    else:
        look = find_reusable_child(facts, target, architecture, elsewhere=record.reason != REUSE_FAILED)
    if look.lookups:
        return ArchitectureAction(child=record, lookups=look.lookups)
    if look.found is not None:
        return _reuse(facts, record, look.found)
    if look.unreachable:
        child = _changed(record, reason=UNREACHABLE, message=f"{look.unreachable}; it is tried again.")
        return ArchitectureAction(child=child, requeue_after=_LOOK_AGAIN)
    if (job := adoption(facts, target, architecture, execution=names.execution)) is not None:
        return _adopt(record, job)
    if (job := shared(facts, target, architecture, execution=names.execution)) is not None:
        text = f"Job {job.name} of {job.run} builds the same; its image will be used."
        return ArchitectureAction(child=_changed(record, reason=f"{SHARED} {job.name}", message=text))
    if execution is not None and own_job(facts, execution, architecture) is not None:
        return ArchitectureAction(child=record, requeue_after=_RETRY)  # its former Job is being deleted
    refused = record.message if record.reason == REUSE_FAILED else look.refused
    action = _build(facts, record, names, shortage=shortage)
    if not action.build or not refused:
        return action
    message = f"{refused}: it is built again."
    child = _changed(action.child, message=message[:MAX_MESSAGE])
    return msgspec.structs.replace(action, child=child, not_reused=message)


def _reuse(facts: BuildFacts, record: ChildRecord, found: ReusableChild) -> ArchitectureAction:
    """Of an image that was taken as it was, an index told digest and size alone: the registry says the rest."""
    child = found.child
    stated = facts.existing.get(found.reference) or HeadResult()
    reused = _changed(record, phase="Reused", reason="", message="", reused_from=found.execution, completed=facts.now)
    image = {
        "digest": child.digest,
        "size": child.size or stated.size,
        "media_type": child.media_type or stated.media_type or OCI_MANIFEST,
        "variant": child.variant,
    }
    return ArchitectureAction(child=_changed(reused, **image), reuse=found)


def _adopt(record: ChildRecord, job: JobFacts) -> ArchitectureAction:
    taken = _changed(record, phase="Building", reason="", message="", job=job.name, job_uid=job.uid)
    host = job.host or record.architecture
    execution = "Native" if host == record.architecture else "Emulated"
    return ArchitectureAction(child=_changed(taken, host=host, execution=execution, started=job.started), adopt=job)


def _build(facts: BuildFacts, record: ChildRecord, names: ExecutionNames, *, shortage: str) -> ArchitectureAction:
    name = names.jobs[record.architecture]
    if (refusal := _refusal(facts, name)) is not None:
        return _refused(facts, record, refusal)
    if shortage:
        first = not facts.places.predecessor
        child = _changed(record, reason=QUEUED, message=facts.request.worded(shortage))
        return ArchitectureAction(child=child, requeue_after=_LOOK_AGAIN if first else None)
    host = host_of(facts, record.architecture)
    kept = record.reason if record.reason in MADE_AGAIN else ""
    child = _changed(record, phase="Building", reason=kept, message="", job=name, job_uid=uid_placeholder(JOB, name))
    child = _changed(child, host=host.architecture, execution=host.execution, started=None)
    child = _changed(child, profile=explained_profile(facts, record.architecture, host.architecture)[:MAX_MESSAGE])
    return ArchitectureAction(child=child, build=True)


def reuse_problems(actions: Iterable[ArchitectureAction]) -> tuple[Problem, ...]:
    """A Warning for each architecture that is built although a child of it is recorded."""
    return tuple(
        Problem(
            reason=REUSE_FAILED,
            message=f"{action.child.architecture}: {action.not_reused}",
            architecture=action.child.architecture,
            severity="Warning",
        )
        for action in actions
        if action.not_reused
    )


def _refusal(facts: BuildFacts, job: str) -> WriteFailure | None:
    made = (job, configmap_name(job), context_name(job))
    return next((each for each in facts.failures if each.step == BuildStep.CREATE_JOB and each.name in made), None)


def _refused(facts: BuildFacts, record: ChildRecord, refusal: WriteFailure) -> ArchitectureAction:
    """Refused by quota, admission, or somebody else's object of that name: tried again for ``nodeWait``."""
    reason = "NameConflict" if refusal.code == "NameConflict" else JOB_REFUSED
    since = record.started if record.started is not None else facts.now
    waited = facts.now - since
    message = f"{refusal.kind} {refusal.name}: {refusal.message}"
    if waited >= BuildTimes.of(facts.request.spec).node_wait:
        return ArchitectureAction(child=failed_child(record, reason, message, at=facts.now))
    child = _changed(record, reason=reason, message=message, started=since)
    return ArchitectureAction(child=child, requeue_after=min(_LONGEST_RETRY, max(_RETRY, waited)))


# -- a look at the Job -------------------------------------------------------------------------------------------------


def observe_job(facts: BuildFacts, execution: Execution, record: ChildRecord) -> ArchitectureAction:
    """The record of one architecture after a look at its Job."""
    if record.phase in ENDED_CHILD:
        return ArchitectureAction(child=record)
    job = own_job(facts, execution, record.architecture)
    if job is None:
        return ArchitectureAction(child=_deleted(record, facts) if record.job_uid else record)
    if record.phase == "Pending" and record.reason in MADE_AGAIN and job.complete is not None:
        return ArchitectureAction(child=record, delete=job)
    known = _changed(
        record, job=job.name, job_uid=job.uid, host=job.host or record.host, attempts=_attempts(record, job)
    )
    known = _changed(known, node=job.pod.node if job.pod is not None and job.pod.node else record.node)
    known = _changed(known, started=record.started if record.started is not None else job.started)
    if job.complete is not None:
        return _harvested(facts, known, job)
    if job.failure is not None:
        why = job_failure(job)
        said = why.message
        if why.reason == BUILD_TIMEOUT and known.reason == POD_NOT_STARTED:
            said = f"{said}: {known.message}"  # its pod is gone by now
        return ArchitectureAction(child=failed_child(known, why.reason, said, at=job.failure))
    if job.deleting:
        return ArchitectureAction(child=_deleted(known, facts))
    return _waiting(facts, known, job)


def failed_child(record: ChildRecord, reason: str, message: str, *, at: float) -> ChildRecord:
    """The record of an architecture that failed. Whatever it made is not usable."""
    cleared = _changed(record, phase="Failed", digest="", size=0, media_type="", variant="", completed=at)
    return _changed(cleared, reason=reason, message=message[-MAX_MESSAGE:])


def cancelled_child(record: ChildRecord, reason: str, *, at: float) -> ChildRecord:
    """The record of an architecture that is not wanted to its end."""
    return _changed(record, phase="Cancelled", reason=reason, message="", completed=at)


def pending_child(record: ChildRecord, reason: str, message: str = "") -> ChildRecord:
    """The record of an architecture that has to be made (again): without image and without Job."""
    cleared = _changed(record, phase="Pending", digest="", size=0, media_type="", variant="", completed=None)
    return _changed(cleared, job="", job_uid="", node="", reused_from="", started=None, reason=reason, message=message)


def _deleted(record: ChildRecord, facts: BuildFacts) -> ChildRecord:
    message = f"Job {record.job} was deleted by somebody else while it ran."
    return _changed(record, phase="Interrupted", reason="JobDeleted", message=message, completed=facts.now)


def _attempts(record: ChildRecord, job: JobFacts) -> int:
    running = 1 if job.active or job.complete is not None else 0
    return max(record.attempts, job.failed + running)


# -- a Job that is done ------------------------------------------------------------------------------------------------


def _harvested(facts: BuildFacts, record: ChildRecord, job: JobFacts) -> ArchitectureAction:
    told = push_message(job.pod.message, architecture=record.architecture) if job.pod is not None else None
    at = job.complete if job.complete is not None else facts.now
    if told is None:
        return _from_tag(facts, record, job, at)
    return ArchitectureAction(child=_built(record, told.digest, told.size, told.media_type, told.variant, at))


def _from_tag(facts: BuildFacts, record: ChildRecord, job: JobFacts, at: float) -> ArchitectureAction:
    """Pod or message are gone: the tag of the child says what was pushed, since its Job is its only writer."""
    if not job.tag or not job.repository or facts.leaves_registries_to_jobs:
        return _again(facts, record, job)
    tag = f"{job.repository}:{job.tag}"
    known = facts.existing.get(tag)
    if known is None:
        return ArchitectureAction(child=record, lookups=(BuildLookup(reference=tag, what="head"),))
    if known.error and ERROR_CODES.get(known.error) in PASSING:
        return ArchitectureAction(child=_unread(record, tag, known.error), requeue_after=60.0)
    if known.error or not known.digest:
        return _again(facts, record, job)
    image = f"{job.repository}@{known.digest}"
    answer = facts.images.get(image)
    if answer is None:
        return ArchitectureAction(child=record, lookups=(BuildLookup(reference=image, what="inspect"),))
    if answer.error is not None:
        if answer.error.error_class in PASSING:
            return ArchitectureAction(child=_unread(record, image, answer.error.code), requeue_after=60.0)
        return _again(facts, record, job)
    return ArchitectureAction(child=_inspected(record, answer, known.size, at))


def _inspected(record: ChildRecord, answer: Inspection, size: int, at: float) -> ChildRecord:
    platforms = [entry.platform for entry in answer.entries]
    if answer.kind == "index" or len(platforms) != 1:
        return failed_child(record, "LayoutInvalid", "What the Job pushed is not one image of one platform.", at=at)
    platform = platforms[0]
    if (platform.os, platform.architecture) != ("linux", record.architecture):
        return _mismatch(record, str(platform), at)
    measured = answer.entries[0].size
    return _built(record, answer.digest, measured or size, answer.media_type, platform.variant, at)


def _again(facts: BuildFacts, record: ChildRecord, job: JobFacts) -> ArchitectureAction:
    """Nothing tells what was made: it is built again, as one more of the attempts that a Job has."""
    attempts = record.attempts + 1
    if attempts > facts.request.spec.retries + 1:
        message = f"Job {job.name} is done, but neither its pod nor a tag tells what it pushed, {attempts} times."
        return ArchitectureAction(child=failed_child(record, "BuildFailed", message, at=facts.now))
    message = f"Job {job.name} is done, but nothing tells what it pushed; it is built again."
    again = _changed(pending_child(record, CHILD_UNKNOWN, message), attempts=attempts)
    return ArchitectureAction(child=again, delete=job)


def _unread(record: ChildRecord, reference: str, code: str) -> ChildRecord:
    message = f"{reference} could not be looked up ({code}); it is tried again."
    return _changed(record, phase="Building", reason="RegistryUnreachable", message=message)


def _mismatch(record: ChildRecord, what: str, at: float) -> ChildRecord:
    message = f"The image is for {what}, not linux/{record.architecture}: build it FROM images of that architecture."
    return failed_child(record, "ArchitectureMismatch", message, at=at)


def _built(record: ChildRecord, digest: str, size: int, media_type: str, variant: str, at: float) -> ChildRecord:
    plain = _changed(_calm(record, "Built"), completed=at)
    return _changed(plain, digest=digest, size=size, media_type=media_type, variant=variant)


# -- a Job at work -----------------------------------------------------------------------------------------------------


def _waiting(facts: BuildFacts, record: ChildRecord, job: JobFacts) -> ArchitectureAction:
    """A Job without a node waits for at most ``nodeWait``, after which its architecture has failed."""
    pod = job.pod
    if pod is not None and (pod.node or (pod.unscheduled_since is None and pod.phase not in ("", "Pending"))):
        return ArchitectureAction(child=_on_node(record, pod))
    unscheduled = pod is not None and pod.unscheduled_since is not None
    if pod is not None and pod.unscheduled_since is not None:
        since = pod.unscheduled_since
    else:
        since = job.started if job.started is not None else job.created
    left = since + BuildTimes.of(facts.request.spec).node_wait - facts.now
    architecture = job.host or record.architecture
    said = pod.unscheduled_message if pod is not None else ""
    if left <= 0:
        return ArchitectureAction(child=_no_node(facts, record, job, architecture, said), delete=job)
    if not unscheduled:
        return ArchitectureAction(child=_calm(record, "Building"), requeue_after=left)
    message = said or f"No linux/{architecture} node takes the pod."
    waiting = _changed(record, phase="WaitingForNode", reason="WaitingForNode", message=message[:MAX_MESSAGE])
    return ArchitectureAction(child=waiting, requeue_after=left)


def _on_node(record: ChildRecord, pod: PodFacts) -> ChildRecord:
    """It may still start, so it has until ``timeouts.build``; what keeps it from that is told meanwhile."""
    if not pod.stalled:
        return _calm(record, "Building")
    message = f"pod {pod.name} does not start on node {pod.node}: {shown_message(pod.stalled)}"
    reason = _calm(record, "Building").reason or POD_NOT_STARTED
    return _changed(record, phase="Building", reason=reason, message=message[:MAX_MESSAGE])


def _no_node(facts: BuildFacts, record: ChildRecord, job: JobFacts, architecture: str, said: str) -> ChildRecord:
    waited = format_duration(BuildTimes.of(facts.request.spec).node_wait)
    if is_available(facts, architecture):
        reason = "Unschedulable"
        what = f"No linux/{architecture} node took the pod of Job {job.name} within {waited}"
    else:
        reason = "NoNodeForArchitecture"
        what = f"There was no Ready, schedulable linux/{architecture} node within {waited}"
    return failed_child(record, reason, f"{what}: {said}" if said else f"{what}.", at=facts.now)


def _calm(record: ChildRecord, phase: Phase) -> ChildRecord:
    """Nothing is wrong with it. That it was lost once stays known."""
    reason = CHILD_VANISHED if record.reason == CHILD_VANISHED else ""
    return _changed(record, phase=phase, reason=reason, message="")


def _changed(record: ChildRecord, **fields: Any) -> ChildRecord:
    return msgspec.structs.replace(record, **fields)


# -- progress of the execution -----------------------------------------------------------------------------------------


class ExecutionProgress(msgspec.Struct, frozen=True, kw_only=True):
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


def execution_progress(
    children: Sequence[ChildRecord], target: DesiredBuild, *, fail_fast: bool, now: float
) -> ExecutionProgress:
    """Where an execution with these architectures stands."""
    ordered = tuple(sorted(children, key=lambda each: each.architecture))
    faulty = [each for each in ordered if each.phase in FAULTY_CHILD]
    if not faulty:
        return ExecutionProgress(phase=_untroubled(ordered), children=ordered)
    if can_be_partial(ordered, target):
        if any(each.phase not in ENDED_CHILD for each in ordered):
            return ExecutionProgress(phase="Building", children=ordered)
        return ExecutionProgress(phase="Assembling", children=ordered, reason="PartialIndex", message=described(faulty))
    started = [each for each in ordered if each.phase in ("Building", "WaitingForNode")]
    failed = [each for each in ordered if each.phase == "Failed"]
    if started and not (fail_fast and failed):
        return ExecutionProgress(phase="Building", children=ordered, reason=faulty[0].reason, message=described(faulty))
    ended = tuple(
        each if each.phase in ENDED_CHILD else cancelled_child(each, "SiblingFailed", at=now) for each in ordered
    )
    return ExecutionProgress(
        phase="Failed" if failed else "Interrupted",
        children=ended,
        reason=(failed or faulty)[0].reason,
        message=described(faulty),
        cancelled=tuple(each.architecture for each in started),
    )


def is_halted(children: Iterable[ChildRecord], target: DesiredBuild) -> bool:
    """Whether no further Job is started, since the execution fails in any case."""
    known = tuple(children)
    return any(each.phase in FAULTY_CHILD for each in known) and not can_be_partial(known, target)


def can_be_partial(children: Iterable[ChildRecord], target: DesiredBuild) -> bool:
    """Whether what succeeds may be published although something failed."""
    if not target.partial or not target.required:
        return False
    phases = {each.architecture: each.phase for each in children}
    return all(phases.get(each) not in {*FAULTY_CHILD, "Cancelled", None} for each in target.required)


def described(children: Iterable[ChildRecord]) -> str:
    """Every architecture with its reason: ``arm64: BuildFailed: RUN make: exit 2``."""
    return "; ".join(
        ": ".join(part for part in (child.architecture, child.reason, child.message) if part) for child in children
    )


def progress_summary(children: Sequence[ChildRecord]) -> str:
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
