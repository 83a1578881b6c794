"""One image and what may be shown to get it: who waits for it, what came of the attempts, and whom that serves.

``waiting.py`` keeps these and decides when to ask; here is what follows from an answer alone (PL-330, PL-404, PL-423).
State only: no clock of its own.
"""

from typing import Final, NamedTuple

import msgspec

from polyarch.model.meta import Key
from polyarch.oci.answer import Inspection, Status
from polyarch.oci.cache.image_reading import BundleMode
from polyarch.oci.reference import Reference
from polyarch.placement.lookups.secrets import PodCredentials

UNKNOWN: Final = "unknown"
"""Stands for the class of an image that answered without saying what it runs on; as final as unusable content."""


class ImageKey(NamedTuple):
    """What an attempt is made for: an image, and what may be shown to get it (PL-331)."""

    reference: str
    credential: str
    bundle: BundleMode = "auto"
    """``always``: whether an index is an operator bundle, asked when nothing else can save the pod (RG-046)."""


class Want(NamedTuple):
    """One image that a pod waits for."""

    key: ImageKey
    reference: Reference
    credentials: PodCredentials
    not_before: float | None = None
    """``imagePullPolicy: Always``: the tag has to be checked at or after this time (PL-404)."""
    tag_ttl: float = 600.0
    """How old the check of a tag may be otherwise (RG-110)."""
    held: bool = False
    """The pod has given up and is held by policy; it asks every five minutes only (PL-334)."""
    since: float = 0.0
    """When the pod was first looked at: what failed before does not count against it (PL-330)."""


class Ask(NamedTuple):
    """What an attempt has to do."""

    reference: Reference
    wants: tuple[Want, ...]
    fresh: bool
    not_before: float | None
    failed_with: str
    """Class of the failure before this attempt; empty for the first."""


class Lookup:
    """One image and credential: who waits, what came of the attempts so far, and when the next one is due."""

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
        """Of those who wait: how many in each."""
        self.answer: Inspection | None = None
        self.answered_at: float | None = None
        self.started_at: float | None = None
        self.asking = False
        self.due: float | None = None
        self.failures = 0
        self.hastened = False
        self.unconfirmed = False
        """The failure was seen before this process led, and counts when it is seen again (PL-301)."""
        self.reported_at: float | None = None
        self.revoked = False
        """The attempt under way may show credentials that do not count any more."""

    @property
    def failure(self) -> str:
        """The class of the last answer if it was none (RG-060, or ``unknown``), else empty."""
        return failure_of(self.answer)

    @property
    def held(self) -> bool:
        """Whether nobody but held pods waits."""
        return bool(self.waiters) and all(want.held for want in self.waiters.values())

    def is_pending(self, want: Want) -> bool:
        """Whether this waiter's image has neither answered nor failed since the pod was first looked at, or is asked
        for anew: the answer is too old (PL-330), or a failure that this process has not seen since it leads (PL-301). A
        registry that asked to wait goes on failing until then."""
        if not self.failure or self.answered_at is None or self.unconfirmed:
            return True
        return self.answered_at + asked_to_wait(self.answer) < want.since

    def serves(self, want: Want, now: float) -> bool:
        """Whether the answer is one that this waiter may use."""
        answer = self.answer
        if answer is None or failure_of(answer):
            return False
        if answer.checked_at is None or self.reference.digest is not None:
            return True
        if want.not_before is not None:
            return answer.checked_at >= want.not_before
        return now - answer.checked_at <= want.tag_ttl


def failure_of(answer: Inspection | None) -> str:
    """The class by which an answer counts as unresolved (PL-211, PL-330), or the empty text for one that is known."""
    if answer is None or answer.status in (Status.RESOLVED, Status.NEUTRAL):
        return ""
    return answer.error.error_class if answer.error is not None else UNKNOWN


def asked_to_wait(answer: Inspection | None) -> float:
    """Seconds for which the registry said not to come back."""
    return answer.error.retry_after or 0.0 if answer is not None and answer.error is not None else 0.0


def without_proof(answer: Inspection) -> Inspection | None:
    """What is left of an answer when it may rest on credentials that do not count any more; None if nothing is."""
    if answer.status is Status.ERROR:
        good = answer.last_good
        return answer if good is None or good.public else msgspec.structs.replace(answer, last_good=None)
    return answer if answer.public else None
