"""State of one shared look-up: image and credential, waiting pods, attempts and the last answer.

``waiting.py`` owns these objects and schedules attempts; this module has what follows from an answer alone (PL-330,
PL-404, PL-423). State only, no clock.
"""

from typing import Final, NamedTuple

import msgspec

from polyarch.objects import Key
from polyarch.oci.answer import Inspection, Status
from polyarch.oci.cache.image_reading import BundleMode
from polyarch.oci.reference import Reference
from polyarch.pods.images import TAG_TTL
from polyarch.pods.lookups.secrets import PodCredentials

UNKNOWN: Final = "unknown"
"""Failure class of an image that was read but does not state its platforms; final, like invalid content."""


class ImageKey(NamedTuple):
    """Key of a look-up: image and credentials (PL-331)."""

    reference: str
    credential: str
    bundle: BundleMode = "auto"
    """``always``: also check whether an index is an operator bundle, before a pod is found impossible (RG-046)."""


class Want(NamedTuple):
    """One image that a pod waits for."""

    key: ImageKey
    reference: Reference
    credentials: PodCredentials
    not_before: float | None = None
    """``imagePullPolicy: Always``: the tag must be checked at or after this time (PL-404)."""
    held: bool = False
    """The pod's window has ended and the policy holds it; retried only every five minutes (PL-334)."""
    since: float = 0.0
    """When the pod was first seen: earlier failures do not count against it (PL-330)."""


class Ask(NamedTuple):
    """Parameters of one attempt."""

    reference: Reference
    wants: tuple[Want, ...]
    fresh: bool
    not_before: float | None
    failed_with: str
    """Failure class of the previous attempt; empty for the first."""


class Lookup:
    """One image and credential: waiting pods, result of the attempts so far, and when the next one is due."""

    __slots__ = (
        "answer",
        "answered_at",
        "asking",
        "due",
        "failures",
        "hastened",
        "key",
        "namespaces",
        "reference",
        "reported_at",
        "revoked",
        "started_at",
        "unconfirmed",
        "waiters",
    )

    def __init__(self, key: ImageKey, reference: Reference) -> None:
        self.key = key
        self.reference = reference
        self.waiters: dict[Key, Want] = {}
        self.namespaces: dict[str, int] = {}
        """Number of waiting pods by namespace."""
        self.answer: Inspection | None = None
        self.answered_at: float | None = None
        self.started_at: float | None = None
        self.asking = False
        self.due: float | None = None
        self.failures = 0
        self.hastened = False
        self.unconfirmed = False
        """The failure is older than this process's leadership and must be confirmed by a new attempt (PL-301)."""
        self.reported_at: float | None = None
        self.revoked = False
        """The running attempt may use credentials that have been revoked."""

    @property
    def failure(self) -> str:
        """Failure class of the last answer (RG-060, or ``unknown``); empty if it succeeded."""
        return failure_of(self.answer)

    @property
    def held(self) -> bool:
        """Whether all waiting pods are held."""
        return bool(self.waiters) and all(want.held for want in self.waiters.values())

    def is_pending(self, want: Want) -> bool:
        """Whether the image has neither answered nor failed since the pod was first seen, or is being asked again: its
        answer is too old (PL-330), or its failure predates this process's leadership (PL-301). A failure with
        Retry-After counts until that time is over."""
        if not self.failure or self.answered_at is None or self.unconfirmed:
            return True
        return self.answered_at + asked_to_wait(self.answer) < want.since

    def serves(self, want: Want, now: float) -> bool:
        """Whether this pod may use the answer."""
        answer = self.answer
        if answer is None or failure_of(answer):
            return False
        if answer.checked_at is None or self.reference.digest is not None:
            return True
        if want.not_before is not None:
            return answer.checked_at >= want.not_before
        return now - answer.checked_at <= TAG_TTL


def failure_of(answer: Inspection | None) -> str:
    """The failure class of an unresolved answer (PL-211, PL-330); empty for a resolved or neutral one."""
    if answer is None or answer.status in (Status.RESOLVED, Status.NEUTRAL):
        return ""
    return answer.error.error_class if answer.error is not None else UNKNOWN


def asked_to_wait(answer: Inspection | None) -> float:
    """The registry's Retry-After in seconds, or 0."""
    return answer.error.retry_after or 0.0 if answer is not None and answer.error is not None else 0.0


def without_proof(answer: Inspection) -> Inspection | None:
    """The part of an answer that does not depend on revoked credentials; None if there is none."""
    if answer.status is Status.ERROR:
        good = answer.last_good
        return answer if good is None or good.public else msgspec.structs.replace(answer, last_good=None)
    return answer if answer.public else None
