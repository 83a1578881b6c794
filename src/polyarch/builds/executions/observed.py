"""What the Jobs of an execution tell about its architectures (BD-150, BD-190, BD-200, BD-215 to BD-217). Pure.

A record follows from the Job as it is now and from what was recorded before; nothing is counted from events. A Job with
another UID than the recorded one is somebody else's: its outcome is never taken.
"""

from typing import Any, Final

import msgspec

from polyarch.builds.api.settings import BuildTimes, Phase
from polyarch.builds.architectures.hosts import is_available
from polyarch.builds.executions.adoption import own_job
from polyarch.builds.executions.reuse import PASSING
from polyarch.builds.executions.state import FINAL_CHILD
from polyarch.builds.facts.facts import ChildRecord, Execution, Facts, JobFacts, Question
from polyarch.builds.jobs.harvest import job_failure, pushed
from polyarch.durations import format_duration
from polyarch.oci.answer import ERROR_CODES, Inspection

LONGEST_MESSAGE: Final = 1024
CHILD_UNKNOWN: Final = "ChildUnknown"
"""The Job is done, and nothing tells what it made: it is built again."""
CHILD_VANISHED: Final = "ChildVanished"
"""The registry lost it after it was made: it is built again, once for each execution (BD-177)."""
MADE_AGAIN: Final = frozenset({CHILD_UNKNOWN, CHILD_VANISHED})


class Observed(msgspec.Struct, frozen=True, kw_only=True):
    """One architecture as its Job shows it."""

    child: ChildRecord
    question: Question | None = None
    """Has to be answered before the record is right."""
    delete: JobFacts | None = None
    """The Job to delete once the record is stored."""
    requeue_after: float | None = None


def observe(facts: Facts, execution: Execution, record: ChildRecord) -> Observed:
    """The record of one architecture after a look at its Job."""
    if record.phase in FINAL_CHILD:
        return Observed(child=record)
    job = own_job(facts, execution, record.architecture)
    if job is None:
        return Observed(child=_deleted(record, facts) if record.job_uid else record)
    if record.phase == "Pending" and record.reason in MADE_AGAIN and job.complete is not None:
        return Observed(child=record, delete=job)
    known = _changed(
        record, job=job.name, job_uid=job.uid, host=job.host or record.host, attempts=_attempts(record, job)
    )
    known = _changed(known, node=job.pod.node if job.pod is not None and job.pod.node else record.node)
    known = _changed(known, started=record.started if record.started is not None else job.started)
    if job.complete is not None:
        return _harvested(facts, known, job)
    if job.failure is not None:
        why = job_failure(job)
        return Observed(child=failed(known, why.reason, why.message, at=job.failure))
    if job.deleting:
        return Observed(child=_deleted(known, facts))
    return _waiting(facts, known, job)


def failed(record: ChildRecord, reason: str, message: str, *, at: float) -> ChildRecord:
    """The record of an architecture that failed. Whatever it made is not usable."""
    cleared = _changed(record, phase="Failed", digest="", size=0, media_type="", variant="", completed=at)
    return _changed(cleared, reason=reason, message=message[-LONGEST_MESSAGE:])


def cancelled(record: ChildRecord, reason: str, *, at: float) -> ChildRecord:
    """The record of an architecture that is not wanted to its end."""
    return _changed(record, phase="Cancelled", reason=reason, message="", completed=at)


def pending(record: ChildRecord, reason: str, message: str = "") -> ChildRecord:
    """The record of an architecture that has to be made (again): without image and without Job."""
    cleared = _changed(record, phase="Pending", digest="", size=0, media_type="", variant="", completed=None)
    return _changed(cleared, job="", job_uid="", node="", reused_from="", started=None, reason=reason, message=message)


def _deleted(record: ChildRecord, facts: Facts) -> ChildRecord:
    message = f"Job {record.job} was deleted by somebody else while it ran."
    return _changed(record, phase="Interrupted", reason="JobDeleted", message=message, completed=facts.now)


def _attempts(record: ChildRecord, job: JobFacts) -> int:
    running = 1 if job.active or job.complete is not None else 0
    return max(record.attempts, job.failed + running)


# -- a Job that is done ------------------------------------------------------------------------------------------------


def _harvested(facts: Facts, record: ChildRecord, job: JobFacts) -> Observed:
    told = pushed(job.pod.message, architecture=record.architecture) if job.pod is not None else None
    at = job.complete if job.complete is not None else facts.now
    if told is None:
        return _from_tag(facts, record, job, at)
    return Observed(child=_built(record, told.digest, told.size, told.media_type, told.variant, at))


def _from_tag(facts: Facts, record: ChildRecord, job: JobFacts, at: float) -> Observed:
    """Pod or message are gone: the tag of the child says what was pushed, since its Job is its only writer (BD-150)."""
    if not job.tag or not job.repository or facts.leaves_registries_to_jobs:
        return _again(facts, record, job)
    tag = f"{job.repository}:{job.tag}"
    known = facts.existing.get(tag)
    if known is None:
        return Observed(child=record, question=Question(reference=tag, what="head"))
    if known.error and ERROR_CODES.get(known.error) in PASSING:
        return Observed(child=_unread(record, tag, known.error), requeue_after=60.0)
    if known.error or not known.digest:
        return _again(facts, record, job)
    image = f"{job.repository}@{known.digest}"
    answer = facts.images.get(image)
    if answer is None:
        return Observed(child=record, question=Question(reference=image, what="inspect"))
    if answer.error is not None:
        if answer.error.error_class in PASSING:
            return Observed(child=_unread(record, image, answer.error.code), requeue_after=60.0)
        return _again(facts, record, job)
    return Observed(child=_inspected(record, answer, known.size, at))


def _inspected(record: ChildRecord, answer: Inspection, size: int, at: float) -> ChildRecord:
    platforms = [entry.platform for entry in answer.entries]
    if answer.kind == "index" or len(platforms) != 1:
        return failed(record, "LayoutInvalid", "What the Job pushed is not one image of one platform.", at=at)
    platform = platforms[0]
    if (platform.os, platform.architecture) != ("linux", record.architecture):
        return _mismatch(record, str(platform), at)
    measured = answer.entries[0].size
    return _built(record, answer.digest, measured or size, answer.media_type, platform.variant, at)


def _again(facts: Facts, record: ChildRecord, job: JobFacts) -> Observed:
    """Nothing tells what was made: it is built again, as one more of the attempts that a Job has."""
    attempts = record.attempts + 1
    if attempts > facts.wish.spec.retries + 1:
        message = f"Job {job.name} is done, but neither its pod nor a tag tells what it pushed, {attempts} times."
        return Observed(child=failed(record, "BuildFailed", message, at=facts.now))
    message = f"Job {job.name} is done, but nothing tells what it pushed; it is built again."
    again = _changed(pending(record, CHILD_UNKNOWN, message), attempts=attempts)
    return Observed(child=again, delete=job)


def _unread(record: ChildRecord, reference: str, code: str) -> ChildRecord:
    message = f"{reference} could not be looked up ({code}); it is tried again."
    return _changed(record, phase="Building", reason="RegistryUnreachable", message=message)


def _mismatch(record: ChildRecord, what: str, at: float) -> ChildRecord:
    message = f"The image is for {what}, not linux/{record.architecture}: build it FROM images of that architecture."
    return failed(record, "ArchitectureMismatch", message, at=at)


def _built(record: ChildRecord, digest: str, size: int, media_type: str, variant: str, at: float) -> ChildRecord:
    plain = _changed(_calm(record, "Built"), completed=at)
    return _changed(plain, digest=digest, size=size, media_type=media_type, variant=variant)


# -- a Job at work -----------------------------------------------------------------------------------------------------


def _waiting(facts: Facts, record: ChildRecord, job: JobFacts) -> Observed:
    """At work, or without a node: for at most ``nodeWait``, after which its architecture failed (BD-215)."""
    pod = job.pod
    if pod is not None and (pod.node or (pod.unscheduled_since is None and pod.phase not in ("", "Pending"))):
        return Observed(child=_calm(record, "Building"))
    unscheduled = pod is not None and pod.unscheduled_since is not None
    if pod is not None and pod.unscheduled_since is not None:
        since = pod.unscheduled_since
    else:
        since = job.started if job.started is not None else job.created
    left = since + BuildTimes.of(facts.wish.spec).node_wait - facts.now
    architecture = job.host or record.architecture
    said = pod.unscheduled_message if pod is not None else ""
    if left <= 0:
        return Observed(child=_no_node(facts, record, job, architecture, said), delete=job)
    if not unscheduled:
        return Observed(child=_calm(record, "Building"), requeue_after=left)
    message = said or f"No linux/{architecture} node takes the pod."
    waiting = _changed(record, phase="WaitingForNode", reason="WaitingForNode", message=message[:LONGEST_MESSAGE])
    return Observed(child=waiting, requeue_after=left)


def _no_node(facts: Facts, record: ChildRecord, job: JobFacts, architecture: str, said: str) -> ChildRecord:
    waited = format_duration(BuildTimes.of(facts.wish.spec).node_wait)
    if is_available(facts, architecture):
        reason = "Unschedulable"
        what = f"No linux/{architecture} node took the pod of Job {job.name} within {waited}"
    else:
        reason = "NoNodeForArchitecture"
        what = f"There was no Ready, schedulable linux/{architecture} node within {waited}"
    return failed(record, reason, f"{what}: {said}" if said else f"{what}.", at=facts.now)


def _calm(record: ChildRecord, phase: Phase) -> ChildRecord:
    """Nothing is wrong with it. That it was lost once stays known."""
    reason = CHILD_VANISHED if record.reason == CHILD_VANISHED else ""
    return _changed(record, phase=phase, reason=reason, message="")


def _changed(record: ChildRecord, **fields: Any) -> ChildRecord:
    return msgspec.structs.replace(record, **fields)
