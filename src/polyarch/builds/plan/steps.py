"""Writes: the steps of BD-196 in their order, each safe to repeat and to be cut off before, in, or after. Pure."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from polyarch.builds import names
from polyarch.builds.executions.carrying import PUSH, Carried
from polyarch.builds.executions.moves import Move
from polyarch.builds.executions.state import State
from polyarch.builds.facts.facts import JobFacts
from polyarch.builds.jobs.contract import configmap_name
from polyarch.builds.keys import handles
from polyarch.builds.plan.course import Course
from polyarch.builds.plan.document import Write, uid_of
from polyarch.builds.plan.front import Front
from polyarch.builds.plan.making import Making

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
    if retag is not None:
        found.append(retag)
    found += _finished_jobs(course, carried)
    found += front.report(course)
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
        yield Write(
            verb="patch",
            kind=CONFIG_MAP,
            namespace=job.namespace,
            name=configmap_name(job.name),
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


def _creations(front: Front, makings: Iterable[Making]) -> Iterator[Write]:
    for making in makings:
        for body in front.manifests(making):
            metadata = body["metadata"]
            yield Write(
                verb="create",
                kind=body["kind"],
                namespace=metadata["namespace"],
                name=metadata["name"],
                step="S4",
                body=body,
            )


def _left(course: Course, execution: str, adopted: Iterable[str]) -> list[JobFacts]:
    """The Jobs that are still an execution's own after others were taken over (S3)."""
    taken = set(adopted)
    return sorted(
        (job for job in course.facts.jobs if job.run == execution and job.uid not in taken and not job.deleting),
        key=lambda job: job.name,
    )


def _finished_jobs(course: Course, carried: Carried | None) -> Iterator[Write]:
    """Jobs of what has succeeded or was superseded are not needed any more; those of failures are, for their logs."""
    done = {
        each.name
        for each in course.facts.executions
        if each.phase in ("Succeeded", "Superseded") and each.owner_uid == course.facts.wish.uid
    }
    if carried is not None and carried.published is not None:
        done.add(carried.published.name)
    taken = {move.adopt.uid for move in carried.moves if move.adopt is not None} if carried is not None else set()
    jobs = [job for job in course.facts.jobs if job.run in done and job.uid not in taken and not job.deleting]
    yield from _deletions(course, sorted(jobs, key=lambda job: job.name), step="S6")


def _deletions(course: Course, jobs: Iterable[JobFacts], *, step: str) -> Iterator[Write]:
    for job in jobs:
        if not job.deleting:
            yield Write(verb="delete", kind=JOB, namespace=job.namespace, name=job.name, step=step, uid=job.uid)


def tagging(namespace: str, name: str, reference: str, tags: Sequence[str]) -> Write:
    """Tags of a result that is published already (S8)."""
    body: dict[str, Any] = {"tags": list(tags)}
    return Write(verb="tag", namespace=namespace, name=name, reference=reference, step="S8", body=body)
