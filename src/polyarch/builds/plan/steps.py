"""Writes: the steps of BD-196 in their order, each safe to repeat and to be cut off before, in, or after. Pure."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from polyarch.builds import names
from polyarch.builds.executions.carrying import PUSH, Carried
from polyarch.builds.executions.moves import Move
from polyarch.builds.executions.state import State
from polyarch.builds.facts.facts import JobFacts
from polyarch.builds.jobs.contract import configmap_name, context_name
from polyarch.builds.jobs.index_outcome import IndexWork, inputs_name, told_missing
from polyarch.builds.jobs.order import Identity
from polyarch.builds.jobs.registry_jobs import index_manifests
from polyarch.builds.keys import handles
from polyarch.builds.plan.course import Course
from polyarch.builds.plan.document import Write, uid_of
from polyarch.builds.plan.front import Front
from polyarch.builds.plan.making import Making, index_order

JOB: Final = "Job"
CONFIG_MAP: Final = "ConfigMap"


def writes(
    course: Course,
    front: Front,
    carried: Carried | None,
    *,
    makings: Sequence[Making],
    kind: str,
    retag: Write | None = None,
) -> tuple[Write, ...]:
    """Everything of one round. ``kind``: of executions, whose UIDs are not known before they are created."""
    found: list[Write] = []
    if carried is not None and course.before is None:
        found += front.create(course, carried.recorded)
    adopted = {move.adopt.uid for move in carried.moves if move.adopt is not None} if carried is not None else set()
    if carried is not None:
        uid = carried.recorded.uid or uid_of(kind, carried.recorded.name)
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


def _records(course: Course, front: Front, carried: Carried) -> Iterator[Write]:
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


def _adoptions(course: Course, moves: Iterable[Move], state: State, owner: Mapping[str, Any]) -> Iterator[Write]:
    """The Job and its inputs change hands; label and owner decide whose it is (S2)."""
    wish = course.facts.wish
    for move in moves:
        job = move.adopt
        if job is None:
            continue
        marks = handles.marks(image_build=wish.name, execution=state.name, role=names.ARCH_ROLE)
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


def _inputs_of(course: Course, job: JobFacts) -> list[str]:
    """ConfigMaps that a Job mounts and that go with it. A Job of the same key has a context where this wish has one."""
    has_context = course.facts.wish.spec.source.context.type == "ConfigMap"
    return [configmap_name(job.name), *([context_name(job.name)] if has_context else ())]


def _creations(front: Front, makings: Iterable[Making]) -> Iterator[Write]:
    for making in makings:
        yield from front.preparations(making)
        for body in front.manifests(making):
            yield _creation(body, step="S4")


def _index_job(course: Course, front: Front, work: IndexWork, kind: str) -> Iterator[Write]:
    """The Job that publishes a result, where the builder leaves registries to Jobs (S7, BD-178)."""
    wish, job = course.facts.wish, front.index_job_name(work.execution)
    role = names.INDEX_ROLE
    marks = handles.marks(image_build=wish.name, execution=work.execution, role=role, arch_key=work.key)
    identity = Identity(
        namespace=wish.namespace,
        job=job,
        owners=(front.owner(work.execution, work.uid or uid_of(kind, work.execution)),),
        labels=marks.labels,
        annotations=marks.annotations,
        execution=work.execution,
        record=front.record_name(work.execution),
        inputs=inputs_name(job, work.key),
    )
    for body in index_manifests(index_order(course.facts, work, identity)):
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


def _jobs(course: Course) -> Iterator[JobFacts]:
    """Jobs that plans make; those that delete images are the clean-up's."""
    return (job for job in course.facts.jobs if job.role != names.PRUNE_ROLE)


def _left(course: Course, execution: str, adopted: Iterable[str]) -> list[JobFacts]:
    """The Jobs that are still an execution's own after others were taken over (S3)."""
    taken = set(adopted)
    return sorted(
        (job for job in _jobs(course) if job.run == execution and job.uid not in taken and not job.deleting),
        key=lambda job: job.name,
    )


def _finished_jobs(course: Course, carried: Carried | None) -> Sequence[JobFacts]:
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


def _is_needed(course: Course, job: JobFacts) -> bool:
    """An index Job that still publishes, or all that is known of images that are gone (BD-178)."""
    if job.role != names.INDEX_ROLE:
        return False
    return job.uid == course.awaited or bool(told_missing([job], job.run))


def _deletions(course: Course, jobs: Iterable[JobFacts], *, step: str) -> Iterator[Write]:
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
