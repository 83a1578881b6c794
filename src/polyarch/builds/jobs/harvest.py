"""Reads what a finished pod said (BD-147, BD-149, BD-322).

Termination messages come from containers, one of which ran the user's code, and reach us through an object that others
can write. So a message is taken only if it is exactly what the contract says, reasons only those that the exit code may
have, and text only as far as it can be shown; everything else is as if there had been no message.
"""

import re
from typing import Final, TypeVar

import msgspec

from polyarch.builds import names
from polyarch.builds.facts.facts import JobFacts, PodFacts
from polyarch.builds.jobs import contract
from polyarch.oci.documents import DOCKER_SCHEMA2, OCI_MANIFEST
from polyarch.oci.reference import check_digest
from polyarch.platforms import Platform

SHOWN_BYTES: Final = 1024
"""How much of a log's end a status holds (BD-216)."""
LARGEST: Final = 4 * 1024 * 1024
"""Bytes of a manifest: no registry takes a larger one."""
BUILD_FAILED: Final = "BuildFailed"
BUILD_TIMEOUT: Final = "BuildTimeout"
INDEX_REASONS: Final = ("PushDenied", "ArchitectureMismatch", "RegistryUnreachable")

_VARIANT: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,31}|", re.ASCII)
"""What a status, an index and a terminal can hold of an image's variant."""

T = TypeVar("T", contract.Pushed, contract.IndexPushed)


class Failure(msgspec.Struct, frozen=True):
    """Why a pod or a Job failed, in the words of §11."""

    reason: str
    message: str


def pushed(message: str, *, architecture: str) -> contract.Pushed | None:
    """The child that ``push`` reported; None for anything that is not such a report about this architecture."""
    found = _decode(message, contract.Pushed)
    if found is None or found.media_type not in (OCI_MANIFEST, DOCKER_SCHEMA2) or not 0 < found.size <= LARGEST:
        return None
    if check_digest(found.digest) is not None or check_digest(found.config) is not None:
        return None
    if _VARIANT.fullmatch(found.variant) is None:
        return None
    wanted = Platform.of("linux", architecture)
    return found if Platform.of(found.os, found.architecture, found.variant).node == wanted.node else None


def index_pushed(message: str) -> contract.IndexPushed | None:
    """What the index Job reported."""
    found = _decode(message, contract.IndexPushed)
    if found is None or bool(found.digest) == bool(found.missing):
        return None
    if found.digest and (check_digest(found.digest) is not None or not 0 < found.size <= LARGEST):
        return None
    if _VARIANT.fullmatch(found.variant) is None:
        return None
    return found


def job_failure(job: JobFacts) -> Failure:
    """Why a Job has failed."""
    if job.failure_reason == "DeadlineExceeded":
        return Failure(BUILD_TIMEOUT, f"Job {job.name} took longer than its build timeout and the wait for a node")
    if job.pod is None:
        return Failure(BUILD_FAILED, shown(job.failure_message) or f"Job {job.name} failed, and its pods are gone")
    return pod_failure(job.pod)


def pod_failure(pod: PodFacts) -> Failure:
    """Why a pod has failed: its reason is one that its exit code may have (BD-147)."""
    reasons = contract.EXIT_REASONS.get(pod.exit_code if pod.exit_code is not None else -1, (BUILD_FAILED,))
    said = _failed(pod.message)
    if said is None:
        where = f"container {pod.container}" if pod.container else f"pod {pod.name}"
        code = f"exit {pod.exit_code}" if pod.exit_code is not None else "no exit code"
        tail = shown(pod.message)
        return Failure(reasons[0], f"{where}: {code}: {tail}" if tail else f"{where}: {code}")
    return Failure(said.reason if said.reason in reasons else reasons[0], shown(said.message))


def index_failure(job: JobFacts) -> Failure:
    """Why an index Job has failed: no code of a user runs in its pod, so its words stand for any exit code."""
    said = _failed(job.pod.message) if job.pod is not None else None
    if said is not None and said.reason in (*INDEX_REASONS, *contract.EXIT_REASONS[names.LAYOUT_INVALID]):
        return Failure(said.reason, shown(said.message))
    if job.failure_reason == "DeadlineExceeded":
        return Failure("RegistryUnreachable", f"Job {job.name} could not publish the index within timeouts.index")
    failure = job_failure(job)
    return Failure("RegistryUnreachable", failure.message) if failure.reason == BUILD_FAILED else failure


def shown(text: str) -> str:
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


def _failed(message: str) -> contract.Failed | None:
    try:
        found = msgspec.json.decode(message.strip(), type=contract.Failed)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return None
    return found if found.v == 1 else None
