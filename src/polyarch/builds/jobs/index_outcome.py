"""What has come of the Job that publishes a result, where registries are left to Jobs (BD-178). Pure.

A Job is known by its key: a hash of the result, its tags, and the Jobs that built its images. So the outcome of one is
never taken for that of other work, not even where an image was built again with the same digest. Only one such Job of a
build is at work at a time, and none begins before the pods of the former are gone: two of them could move the same tag.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from polyarch.builds import names
from polyarch.builds.facts.facts import ChildRecord, JobFacts
from polyarch.builds.jobs import contract
from polyarch.builds.jobs.harvest import Failure, index_failure, index_pushed
from polyarch.builds.keys import canonical


class IndexWork(msgspec.Struct, frozen=True, kw_only=True):
    """One result of an execution, to be published by a Job."""

    execution: str
    uid: str = ""
    """Of the execution; empty where this plan creates it."""
    key: str
    document: Mapping[str, Any]
    """What the Job is told: a ``publishing.Publication``."""


class IndexOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """Where that work stands."""

    job: JobFacts | None = None
    """The Job of this very work, whether at work or ended."""
    pushed: contract.IndexPushed | None = None
    """It was published, or its Job says which images are ``missing``."""
    failure: Failure | None = None
    lost: bool = False
    """The Job is done, but nothing tells what it did: it has to be made again."""
    stale: tuple[JobFacts, ...] = ()
    """Jobs of this execution that did other work."""
    is_free: bool = True
    """The Job can be made now."""

    @property
    def missing(self) -> tuple[str, ...]:
        return self.pushed.missing if self.pushed is not None else ()


def index_work(execution: str, uid: str, document: Mapping[str, Any], children: Iterable[ChildRecord]) -> IndexWork:
    """The work with its key."""
    work = {
        "builders": {each.architecture: each.job_uid for each in children},
        "result": f"{document['repository']}@{document['digest']}",
        "tags": document["tags"],
    }
    return IndexWork(execution=execution, uid=uid, key=canonical.digest(work), document=document)


def index_outcome(jobs: Iterable[JobFacts], work: IndexWork, *, build: str) -> IndexOutcome:
    """``build`` is the wish's name: Jobs of its other executions have to have ended before this one's is made, also of
    executions that no cache shows, or that a former object of this name made: they move the same tags."""
    published = [job for job in jobs if job.role == names.INDEX_ROLE]
    own = [job for job in published if job.run == work.execution]
    job = next((each for each in own if each.key == work.key and not each.deleting), None)
    stale = tuple(sorted((each for each in own if each is not job), key=lambda each: each.name))
    if job is None:
        at_work = any(each.build == build and each.run != work.execution and not has_ended(each) for each in published)
        return IndexOutcome(stale=stale, is_free=not stale and not at_work)
    if job.failure is not None:
        return IndexOutcome(job=job, failure=index_failure(job), stale=stale)
    if job.complete is None:
        return IndexOutcome(job=job, stale=stale)
    told = index_pushed(job.pod.message) if job.pod is not None else None
    return IndexOutcome(job=job, pushed=told, lost=told is None, stale=stale)


def has_ended(job: JobFacts) -> bool:
    """Whether no pod of a Job is at work any more; while it is being deleted, its pods may be."""
    return not job.deleting and (job.complete is not None or job.failure is not None)


def told_missing(jobs: Iterable[JobFacts], execution: str) -> frozenset[str]:
    """Architectures of an execution whose images its index Job did not find."""
    found = [
        told
        for job in jobs
        if job.role == names.INDEX_ROLE and job.run == execution and job.complete is not None and job.pod is not None
        if (told := index_pushed(job.pod.message)) is not None
    ]
    return frozenset(architecture for told in found for architecture in told.missing)


def inputs_name(job: str, key: str) -> str:
    """The ConfigMap of an index Job: another one for other work, since it cannot be changed."""
    return f"{contract.configmap_name(job)}-{key[:10]}"
