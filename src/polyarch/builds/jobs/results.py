"""What Jobs say at their end: messages of their pods, reasons of failures, and how far an index Job is.

Termination messages come from containers, one of which ran the user's code, and reach us through an object that
others may write: they are checked, and never trusted further than their Job.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeVar

import msgspec

from polyarch.builds import names
from polyarch.builds.facts.build_facts import ChildRecord, JobFacts, PodFacts
from polyarch.builds.jobs import contract
from polyarch.builds.keys import canonical_digest
from polyarch.oci.documents import DOCKER_SCHEMA2, OCI_MANIFEST
from polyarch.oci.reference import check_digest
from polyarch.platforms import Platform

SHOWN_BYTES: Final = 1024
"""How much of a log's end a status holds."""
LARGEST: Final = 4 * 1024 * 1024
"""Bytes of a manifest: no registry takes a larger one."""
START_ERROR: Final = 128
"""The exit code that kubelets report for a container that the runtime could not start."""
BUILD_FAILED: Final = "BuildFailed"
BUILD_TIMEOUT: Final = "BuildTimeout"
INDEX_REASONS: Final = (*contract.EXIT_REASONS[names.PUSH_DENIED], "ArchitectureMismatch", "RegistryUnreachable")

_VARIANT: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,31}|", re.ASCII)
"""What a status, an index and a terminal can hold of an image's variant."""

T = TypeVar("T", contract.PushMessage, contract.IndexMessage)


class JobFailure(msgspec.Struct, frozen=True):
    """Why a pod or a Job failed, with a reason as users read it."""

    reason: str
    message: str


def push_message(message: str, *, architecture: str) -> contract.PushMessage | None:
    """The child that ``push`` reported; None for anything that is not such a report about this architecture."""
    found = _decode(message, contract.PushMessage)
    if found is None or found.media_type not in (OCI_MANIFEST, DOCKER_SCHEMA2) or not 0 < found.size <= LARGEST:
        return None
    if check_digest(found.digest) is not None or check_digest(found.config) is not None:
        return None
    if _VARIANT.fullmatch(found.variant) is None:
        return None
    wanted = Platform.of("linux", architecture)
    return found if Platform.of(found.os, found.architecture, found.variant).node == wanted.node else None


def index_message(message: str) -> contract.IndexMessage | None:
    """What the index Job reported."""
    found = _decode(message, contract.IndexMessage)
    if found is None or bool(found.digest) == bool(found.missing):
        return None
    if found.digest and (check_digest(found.digest) is not None or not 0 < found.size <= LARGEST):
        return None
    if _VARIANT.fullmatch(found.variant) is None:
        return None
    return found


def job_failure(job: JobFacts) -> JobFailure:
    """Why a Job has failed."""
    if job.failure_reason == "DeadlineExceeded":
        return JobFailure(BUILD_TIMEOUT, f"Job {job.name} took longer than its build timeout and the wait for a node")
    if job.pod is None:
        return JobFailure(
            BUILD_FAILED, shown_message(job.failure_message) or f"Job {job.name} failed, and its pods are gone"
        )
    return pod_failure(job.pod)


def pod_failure(pod: PodFacts) -> JobFailure:
    """Why a pod has failed: its reason is one that its exit code may have."""
    reasons = contract.EXIT_REASONS.get(pod.exit_code if pod.exit_code is not None else -1, (BUILD_FAILED,))
    if pod.exit_code == START_ERROR and f'"{contract.BUILD_COMMAND[0]}"' in pod.message:
        reasons = contract.EXIT_REASONS[names.BUILDER_UNUSABLE]
    said = _failed(pod.message)
    if said is None:
        where = f"container {pod.container}" if pod.container else f"pod {pod.name}"
        code = f"exit {pod.exit_code}" if pod.exit_code is not None else "no exit code"
        tail = shown_message(pod.message)
        return JobFailure(reasons[0], f"{where}: {code}: {tail}" if tail else f"{where}: {code}")
    return JobFailure(said.reason if said.reason in reasons else reasons[0], shown_message(said.message))


def index_failure(job: JobFacts) -> JobFailure:
    """Why an index Job has failed: no code of a user runs in its pod, so its words stand for any exit code."""
    said = _failed(job.pod.message) if job.pod is not None else None
    if said is not None and said.reason in (*INDEX_REASONS, *contract.EXIT_REASONS[names.LAYOUT_INVALID]):
        return JobFailure(said.reason, shown_message(said.message))
    if job.failure_reason == "DeadlineExceeded":
        return JobFailure("RegistryUnreachable", f"Job {job.name} could not publish the index within timeouts.index")
    failure = job_failure(job)
    return JobFailure("RegistryUnreachable", failure.message) if failure.reason == BUILD_FAILED else failure


def shown_message(text: str) -> str:
    """The end of a text, in at most 1 KiB, without control characters: fit for a status and a terminal."""
    plain = "".join(each if each == "\n" or each.isprintable() else " " for each in text).strip()
    data = plain.encode(errors="replace")
    if len(data) <= SHOWN_BYTES:
        return data.decode()
    return data[-SHOWN_BYTES:].decode(errors="ignore").partition("\n")[2].strip() or _cut(data)


def _cut(data: bytes) -> str:
    return data[-SHOWN_BYTES:].decode(errors="ignore").strip()


def _decode(message: str, type: type[T]) -> T | None:
    if len(message.encode(errors="replace")) > contract.MESSAGE_LIMIT or "\n" in message.strip():
        return None
    try:
        found = msgspec.json.decode(message.strip(), type=type)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return None
    return found if found.v == 1 else None


def _failed(message: str) -> contract.FailureMessage | None:
    try:
        found = msgspec.json.decode(message.strip(), type=contract.FailureMessage)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return None
    return found if found.v == 1 else None


# -- index Jobs --------------------------------------------------------------------------------------------------------


class IndexJobRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One result of an execution, to be published by a Job."""

    execution: str
    uid: str = ""
    """UID of the execution; empty where this plan creates it."""
    key: str
    document: Mapping[str, Any]
    """What the Job is told: a ``publishing.Publication``."""


class IndexJobStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Where that work stands."""

    job: JobFacts | None = None
    """The Job of this very work, whether at work or ended."""
    pushed: contract.IndexMessage | None = None
    """What was published, or which images are ``missing``."""
    failure: JobFailure | None = None
    lost: bool = False
    """The Job is done, but nothing tells what it did: it has to be made again."""
    stale: tuple[JobFacts, ...] = ()
    """Jobs of this execution that did other work."""
    is_free: bool = True
    """The Job can be made now."""

    @property
    def missing(self) -> tuple[str, ...]:
        return self.pushed.missing if self.pushed is not None else ()


def index_job_request(
    execution: str, uid: str, document: Mapping[str, Any], children: Iterable[ChildRecord]
) -> IndexJobRequest:
    """The work with its key."""
    work = {
        "builders": {each.architecture: each.job_uid for each in children},
        "result": f"{document['repository']}@{document['digest']}",
        "tags": document["tags"],
    }
    return IndexJobRequest(execution=execution, uid=uid, key=canonical_digest(work), document=document)


def index_job_status(jobs: Iterable[JobFacts], work: IndexJobRequest, *, build: str) -> IndexJobStatus:
    """Where the index Job of an execution stands.

    Jobs of other executions of the same ``build`` have to end before this one is made, also those of executions that
    no cache shows or that a former object made: they move the same tags.
    """
    published = [job for job in jobs if job.role == names.INDEX_ROLE]
    own = [job for job in published if job.run == work.execution]
    job = next((each for each in own if each.key == work.key and not each.deleting), None)
    stale = tuple(sorted((each for each in own if each is not job), key=lambda each: each.name))
    if job is None:
        at_work = any(each.build == build and each.run != work.execution and not has_ended(each) for each in published)
        return IndexJobStatus(stale=stale, is_free=not stale and not at_work)
    if job.failure is not None:
        return IndexJobStatus(job=job, failure=index_failure(job), stale=stale)
    if job.complete is None:
        return IndexJobStatus(job=job, stale=stale)
    told = index_message(job.pod.message) if job.pod is not None else None
    return IndexJobStatus(job=job, pushed=told, lost=told is None, stale=stale)


def has_ended(job: JobFacts) -> bool:
    """Whether no pod of a Job is at work any more; while it is being deleted, its pods may be."""
    return not job.deleting and (job.complete is not None or job.failure is not None)


def told_missing(jobs: Iterable[JobFacts], execution: str) -> frozenset[str]:
    """Architectures of an execution whose images its index Job did not find."""
    found = [
        told
        for job in jobs
        if job.role == names.INDEX_ROLE and job.run == execution and job.complete is not None and job.pod is not None
        if (told := index_message(job.pod.message)) is not None
    ]
    return frozenset(architecture for told in found for architecture in told.missing)


def inputs_name(job: str, key: str) -> str:
    """The ConfigMap of an index Job: another one for other work, since it cannot be changed."""
    return f"{contract.configmap_name(job)}-{key[:10]}"
