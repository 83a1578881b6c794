"""Writes: the steps of BD-196 in their order, each safe to repeat and to be cut off before, in, or after. Pure."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from polyarch.builds import names
from polyarch.builds.facts.build_facts import ENDED, BuildFacts, BuildLookup, ChildRecord, Execution, FoundJob, JobFacts
from polyarch.builds.jobs.contract import configmap_name, context_name
from polyarch.builds.jobs.manifests import index_manifests
from polyarch.builds.jobs.results import IndexJobRequest, inputs_name, told_missing
from polyarch.builds.jobs.spec import JobMetadata
from polyarch.builds.names import object_labels
from polyarch.builds.plan.actions import ArchitectureAction
from polyarch.builds.plan.document import BuildPlan, Write, uid_placeholder
from polyarch.builds.plan.kind import BuildKind, JobInputs, PlanOutcome, index_job_spec
from polyarch.builds.plan.reuse import FINAL_CHILD, ExecutionState
from polyarch.builds.plan.update import PUSH, ExecutionUpdate

JOB: Final = "Job"
CONFIG_MAP: Final = "ConfigMap"


def writes(
    course: PlanOutcome,
    front: BuildKind,
    carried: ExecutionUpdate | None,
    *,
    makings: Sequence[JobInputs],
    kind: str,
    retag: Write | None = None,
) -> tuple[Write, ...]:
    """Everything of one round. ``kind``: of executions, whose UIDs are not known before they are created."""
    found: list[Write] = []
    if carried is not None and course.before is None:
        found += front.create(course, carried.recorded)
    adopted = {move.adopt.uid for move in carried.moves if move.adopt is not None} if carried is not None else set()
    if carried is not None:
        uid = carried.recorded.uid or uid_placeholder(kind, carried.recorded.name)
        owner = front.owner(carried.recorded.name, uid)
        found += _adoptions(course, carried.moves, carried.recorded, owner)
    for before, state in course.superseded:
        found += _deletions(course, _left(course, before.name, adopted), step="S3")
        found += front.supersede(course, before, state)
    found += _creations(front, makings)
    if carried is not None:
        found += _records(course, front, carried)
    if course.index_work is not None:
        found += _index_job(course, front, course.index_work, kind)
    if retag is not None:
        found.append(retag)
    finished = _finished_jobs(course, carried)
    found += _deletions(course, [job for job in finished if job.role != names.INDEX_ROLE], step="S6")
    found += front.report(course)
    found += _deletions(course, [job for job in finished if job.role == names.INDEX_ROLE], step="S10")
    return tuple(_once(found))


def _once(found: Iterable[Write]) -> Iterator[Write]:
    """No Job is deleted twice."""
    deleted = set()
    for write in found:
        if write.verb == "delete":
            if write.uid in deleted:
                continue
            deleted.add(write.uid)
        yield write


def _records(course: PlanOutcome, front: BuildKind, carried: ExecutionUpdate) -> Iterator[Write]:
    yield from front.record(course, course.before, carried.recorded)
    yield from _deletions(course, carried.deletes, step="S6")
    if carried.published is None:
        return
    if carried.body:
        yield Write(
            verb=PUSH,
            namespace=course.facts.wish.namespace,
            name=carried.recorded.name,
            reference=carried.reference,
            step="S7",
            body=carried.body,
        )
    yield from front.record(course, course.before, carried.published)


def _adoptions(
    course: PlanOutcome, moves: Iterable[ArchitectureAction], state: ExecutionState, owner: Mapping[str, Any]
) -> Iterator[Write]:
    """The Job and its inputs change hands; label and owner decide whose it is (S2)."""
    wish = course.facts.wish
    for move in moves:
        job = move.adopt
        if job is None:
            continue
        marks = object_labels(image_build=wish.name, execution=state.name, role=names.ARCH_ROLE)
        metadata = {
            "labels": {key: marks.labels[key] for key in (names.BUILD_LABEL, names.RUN_LABEL)},
            "annotations": {key: marks.annotations.get(key) for key in (names.BUILD_LABEL, names.RUN_LABEL)},
            "ownerReferences": [dict(owner)],
        }
        for name in _inputs_of(course, job):
            yield Write(
                verb="patch",
                kind=CONFIG_MAP,
                namespace=job.namespace,
                name=name,
                step="S2",
                how="merge",
                body={"metadata": metadata},
            )
        yield Write(
            verb="patch",
            kind=JOB,
            namespace=job.namespace,
            name=job.name,
            step="S2",
            how="merge",
            uid=job.uid,
            resource_version=job.resource_version,
            body={"metadata": metadata},
        )


def _inputs_of(course: PlanOutcome, job: JobFacts) -> list[str]:
    """ConfigMaps that a Job mounts and that go with it. A Job of the same key has a context where this wish has one."""
    has_context = course.facts.wish.spec.source.context.type == "ConfigMap"
    return [configmap_name(job.name), *([context_name(job.name)] if has_context else ())]


def _creations(front: BuildKind, makings: Iterable[JobInputs]) -> Iterator[Write]:
    for making in makings:
        yield from front.preparations(making)
        for body in front.manifests(making):
            yield _creation(body, step="S4")


def _index_job(course: PlanOutcome, front: BuildKind, work: IndexJobRequest, kind: str) -> Iterator[Write]:
    """The Job that publishes a result, where the builder leaves registries to Jobs (S7)."""
    wish, job = course.facts.wish, front.index_job_name(work.execution)
    role = names.INDEX_ROLE
    marks = object_labels(image_build=wish.name, execution=work.execution, role=role, arch_key=work.key)
    identity = JobMetadata(
        namespace=wish.namespace,
        job=job,
        owners=(front.owner(work.execution, work.uid or uid_placeholder(kind, work.execution)),),
        labels=marks.labels,
        annotations=marks.annotations,
        execution=work.execution,
        record=front.record_name(work.execution),
        inputs=inputs_name(job, work.key),
    )
    for body in index_manifests(index_job_spec(course.facts, work, identity)):
        yield _creation(body, step="S7")


def _creation(body: Mapping[str, Any], *, step: str) -> Write:
    metadata = body["metadata"]
    return Write(
        verb="create",
        kind=body["kind"],
        namespace=metadata["namespace"],
        name=metadata["name"],
        step=step,
        body=body,
    )


def _jobs(course: PlanOutcome) -> Iterator[JobFacts]:
    """Jobs that plans make; those that delete images are the clean-up's."""
    return (job for job in course.facts.jobs if job.role != names.PRUNE_ROLE)


def _left(course: PlanOutcome, execution: str, adopted: Iterable[str]) -> list[JobFacts]:
    """The Jobs that are still an execution's own after others were taken over (S3)."""
    taken = set(adopted)
    return sorted(
        (job for job in _jobs(course) if job.run == execution and job.uid not in taken and not job.deleting),
        key=lambda job: job.name,
    )


def _finished_jobs(course: PlanOutcome, carried: ExecutionUpdate | None) -> Sequence[JobFacts]:
    """Jobs of what has succeeded or was superseded are not needed any more; those of failures are, for their logs.

    An index Job is all that tells where the tags are, until the status of the wish does.
    """
    done = {
        each.name
        for each in course.facts.executions
        if each.phase in ("Succeeded", "Superseded") and each.owner_uid == course.facts.wish.uid
    }
    if carried is not None and carried.published is not None:
        done.add(carried.published.name)
    taken = {move.adopt.uid for move in carried.moves if move.adopt is not None} if carried is not None else set()
    jobs = [
        job
        for job in _jobs(course)
        if job.run in done and job.uid not in taken and not job.deleting and not _is_needed(course, job)
    ]
    return sorted(jobs, key=lambda job: job.name)


def _is_needed(course: PlanOutcome, job: JobFacts) -> bool:
    """An index Job that still publishes, or all that is known of images that are gone."""
    if job.role != names.INDEX_ROLE:
        return False
    return job.uid == course.awaited or bool(told_missing([job], job.run))


def _deletions(course: PlanOutcome, jobs: Iterable[JobFacts], *, step: str) -> Iterator[Write]:
    for job in jobs:
        if not job.deleting:
            yield Write(
                verb="delete",
                kind=JOB,
                namespace=job.namespace,
                name=job.name,
                step=step,
                how="foreground" if job.role == names.INDEX_ROLE else "",
                uid=job.uid,
            )


def tagging(namespace: str, name: str, reference: str, tags: Sequence[str]) -> Write:
    """Tags of a result that is published already (S8)."""
    body: dict[str, Any] = {"tags": list(tags)}
    return Write(verb="tag", namespace=namespace, name=name, reference=reference, step="S8", body=body)


# -- Live Jobs from which somebody took the label by which they are watched: it is put back, and no more.


STEP: Final = "S4"
_OF_KUBERNETES: Final = ("controller-uid", "job-name")
"""Labels that the API server adds to pod templates of Jobs, with and without a prefix."""
_LATE: Final = 1.0
"""Seconds until it is looked again whether the cache shows a Job that has its labels."""
_REFUSED: Final = 60.0


def relabelling(facts: BuildFacts) -> BuildPlan | None:
    """The plan that asks for such Jobs, or puts their labels back; None where there are none."""
    missing = _missing(facts)
    return _asking(facts, missing) or _restoring(
        facts,
        [
            (execution, child, job)
            for execution, child in missing
            if (job := facts.found_jobs[child.job]) is not None and job.uid == child.job_uid
        ],
    )


def unrecorded(facts: BuildFacts, front: BuildKind, ending: Iterable[Execution]) -> BuildPlan | None:
    """The same for Jobs that were made before the builder was stopped, and not recorded yet.

    An execution that goes on finds them when it makes its Jobs. One that ends makes none: what it left would go on
    without anybody knowing, beside a second Job for the same key. Its pods' labels, which nobody can take off, tell
    that such a Job is its own.
    """
    missing = _unrecorded(facts, front, ending)
    return _asking(facts, missing) or _restoring(
        facts,
        [
            (execution, child, job)
            for execution, child in missing
            if (job := facts.found_jobs[child.job]) is not None
            and job.template_labels.get(names.RUN_LABEL) == _marks(execution)[names.RUN_LABEL]
        ],
    )


def _asking(facts: BuildFacts, missing: Iterable[tuple[Execution, ChildRecord]]) -> BuildPlan | None:
    unknown = [child.job for _, child in missing if child.job not in facts.found_jobs]
    if not unknown:
        return None
    return BuildPlan(
        decision="Wait",
        reason="Asking",
        message=f"{', '.join(unknown)} has to be looked up first.",
        questions=tuple(BuildLookup(reference=each, what="job") for each in unknown),
    )


def _restoring(facts: BuildFacts, alive: Sequence[tuple[Execution, ChildRecord, FoundJob]]) -> BuildPlan | None:
    if not alive:
        return None
    what = ", ".join(child.job for _, child, _ in alive)
    refusal = next((each for each in facts.failures if (each.step, each.verb, each.kind) == (STEP, "patch", JOB)), None)
    if refusal is not None:
        message = f"Job {refusal.name} had lost labels, which cannot be put back: {refusal.message}"
        return BuildPlan(decision="Wait", reason=refusal.code, message=message, requeue_after=_REFUSED)
    return BuildPlan(
        decision="Wait",
        reason="LabelsRestored",
        message=f"{what} had lost labels, which are put back.",
        execution=alive[0][0].name,
        writes=tuple(each for one in alive if (each := _patch(*one)) is not None),
        requeue_after=_LATE,
    )


def _missing(facts: BuildFacts) -> list[tuple[Execution, ChildRecord]]:
    """What is recorded as being at work, by name of the Job, where no Job of that name is known."""
    there = {job.name for job in facts.jobs}
    found = {
        child.job: (execution, child)
        for execution in facts.executions
        if execution.phase not in ENDED and not execution.deleting
        for child in execution.children
        if child.job_uid and child.phase not in FINAL_CHILD and child.job not in there
    }
    return [found[name] for name in sorted(found)]


def _unrecorded(
    facts: BuildFacts, front: BuildKind, ending: Iterable[Execution]
) -> list[tuple[Execution, ChildRecord]]:
    """Architectures of which no Job is known, with the name that it would have."""
    there = {job.name for job in facts.jobs}
    found = []
    for execution in ending:
        records = {each.architecture: each for each in execution.children}
        for each in execution.keys:
            name = front.job_name(execution.name, each.architecture, architectures=len(execution.keys))
            child = records.get(each.architecture) or ChildRecord(architecture=each.architecture)
            if name not in there and not child.job_uid and child.phase not in FINAL_CHILD:
                found.append((execution, msgspec.structs.replace(child, job=name)))
    return found


def _marks(execution: Execution) -> Mapping[str, str]:
    return object_labels(image_build=execution.owner_name, execution=execution.name, role="").labels


def _patch(execution: Execution, child: ChildRecord, job: FoundJob) -> Write | None:
    """The Job gets the labels of its pods; that of its execution it may have got when it was taken over (S2)."""
    labels = {
        name: value
        for name, value in {**job.template_labels, **_marks(execution)}.items()
        if name.rpartition("/")[2] not in _OF_KUBERNETES and job.labels.get(name) != value
    }
    if not labels:
        return None
    return Write(
        verb="patch",
        kind=JOB,
        namespace=execution.namespace,
        name=child.job,
        how="merge",
        step=STEP,
        uid=job.uid,
        body={"metadata": {"labels": labels}},
    )
