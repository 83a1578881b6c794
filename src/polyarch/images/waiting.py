"""Pods that wait for images, and the lookups that they share.

A pod that cannot be decided yet holds no worker and no task, only an entry in the :class:`SharedLookup` of each image
it waits for. There is one lookup per image and credential, however many pods wait, and it schedules its own retries. A
pod is reconciled again for an inspection that it can use, for the first failure since it began to wait or since this
process leads, and for a change of the failure class, which changes its retry window. Other failures wake no pod.

::

    park ──► due ──start──► asking ──finish──► answered (waiters woken, lookup gone when the last has left)
              ▲                        │
              └────── backoff ◄────────┘ failed

State only, nothing here waits: :class:`WaitingPods` calls ``schedule`` when a lookup is due and ``wake`` when a pod
should be reconciled; times come from a clock. ``lookup_runner`` sends the requests.
"""

import random as _random
from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple

import msgspec

from polyarch.clock import Clock
from polyarch.images import backoff
from polyarch.images.backoff import Backoff
from polyarch.images.pod_images import TAG_TTL
from polyarch.images.pull_secrets import PodCredentials
from polyarch.objects import ObjectKey
from polyarch.oci.cache import BundleMode
from polyarch.oci.inspection import TENANT_LIMIT, Inspection, Status
from polyarch.oci.reference import Reference

# -- one lookup: image and credential, waiting pods, attempts and the last answer -------------------------------------

UNKNOWN: Final = "unknown"
"""Failure class of an image that was read but does not state its platforms; final, like invalid content."""


class ImageLookupKey(NamedTuple):
    """Key of a lookup: image and credentials."""

    reference: str
    credential: str
    bundle: BundleMode = "auto"
    """``always``: also check whether an index is an operator bundle, before a pod is found impossible."""


class PendingImage(NamedTuple):
    """One image that a pod waits for."""

    key: ImageLookupKey
    reference: Reference
    credentials: PodCredentials
    not_before: float | None = None
    """``imagePullPolicy: Always``: the tag must be checked at or after this time."""
    held: bool = False
    """The pod's window has ended and the policy holds it; retried only every five minutes."""
    since: float = 0.0
    """When the pod was first seen: earlier failures do not count against it."""


class LookupAttempt(NamedTuple):
    """Parameters of one attempt."""

    reference: Reference
    wants: tuple[PendingImage, ...]
    fresh: bool
    not_before: float | None
    failed_with: str
    """Failure class of the previous attempt; empty for the first."""


class SharedLookup:
    """One image and credential: waiting pods, result of the attempts so far, and when the next one is due."""

    __slots__ = (
        "answered_at",
        "asking",
        "due",
        "failures",
        "hastened",
        "inspection",
        "key",
        "namespaces",
        "reference",
        "reported_at",
        "revoked",
        "started_at",
        "unconfirmed",
        "waiters",
    )

    def __init__(self, key: ImageLookupKey, reference: Reference) -> None:
        self.key = key
        self.reference = reference
        self.waiters: dict[ObjectKey, PendingImage] = {}
        self.namespaces: dict[str, int] = {}
        """Number of waiting pods by namespace, in the order in which they are queued."""
        self.inspection: Inspection | None = None
        self.answered_at: float | None = None
        self.started_at: float | None = None
        self.asking = False
        self.due: float | None = None
        self.failures = 0
        self.hastened = False
        self.unconfirmed = False
        """The failure is older than this process's leadership and must be confirmed by a new attempt."""
        self.reported_at: float | None = None
        self.revoked = False
        """The running attempt may use credentials that have been revoked."""

    @property
    def failure(self) -> str:
        """Failure class of the last answer, or ``unknown``; empty if it succeeded."""
        return failure_of(self.inspection)

    @property
    def held(self) -> bool:
        """Whether all waiting pods are held."""
        return bool(self.waiters) and all(want.held for want in self.waiters.values())

    def is_pending(self, want: PendingImage) -> bool:
        """Whether the image has neither answered nor failed since the pod was first seen, or is being asked again: its
        answer is too old, or its failure predates this process's leadership. A failure with
        Retry-After counts until that time is over."""
        if not self.failure or self.answered_at is None or self.unconfirmed:
            return True
        return self.answered_at + asked_to_wait(self.inspection) < want.since

    def serves(self, want: PendingImage, now: float) -> bool:
        """Whether this pod may use the answer."""
        inspection = self.inspection
        if inspection is None or failure_of(inspection):
            return False
        if inspection.checked_at is None or self.reference.digest is not None:
            return True
        if want.not_before is not None:
            return inspection.checked_at >= want.not_before
        return now - inspection.checked_at <= TAG_TTL


def failure_of(inspection: Inspection | None) -> str:
    """The failure class of an unresolved answer; empty for a resolved or neutral one."""
    if inspection is None or inspection.status in (Status.RESOLVED, Status.NEUTRAL):
        return ""
    return inspection.error.error_class if inspection.error is not None else UNKNOWN


def is_tenants_own(inspection: Inspection) -> bool:
    """Whether it failed because the namespace that it was asked for has too many requests waiting."""
    return inspection.error is not None and inspection.error.code == TENANT_LIMIT


def asked_to_wait(inspection: Inspection | None) -> float:
    """The registry's Retry-After in seconds, or 0."""
    return inspection.error.retry_after or 0.0 if inspection is not None and inspection.error is not None else 0.0


def without_proof(inspection: Inspection) -> Inspection | None:
    """The part of an answer that does not depend on revoked credentials; None if there is none."""
    if inspection.status is Status.ERROR:
        good = inspection.last_good
        return inspection if good is None or good.public else msgspec.structs.replace(inspection, last_good=None)
    return inspection if inspection.public else None


# -- all parked pods and their lookups --------------------------------------------------------------------------------

RECHECK_DELAY: Final = 0.25
"""Delay of the next attempt if the answer is too old for a pod that needs a later tag check."""

_SHARED_BY_HOST: Final = ("transient", "limit")
"""Failure classes that concern a whole host: one success hastens its other images."""


class WaitingPods:
    """All parked pods and their lookups. No method waits; use from one event loop only."""

    def __init__(
        self,
        clock: Clock,
        *,
        schedule: Callable[[ImageLookupKey, float], None],
        wake: Callable[[ObjectKey], None],
        insists: Callable[[], bool] = lambda: True,
        retries: Backoff = backoff.ALL_ALIKE,
        uniform: Callable[[], float] = _random.random,
    ) -> None:
        """``insists``: whether this process retries lasting failures. A standby does not: the leader retries them, and
        only the leader writes the outcome of a failure. ``retries``: how long it waits between attempts."""
        self._clock = clock
        self._schedule = schedule
        self._wake = wake
        self._insists = insists
        self._retries = retries
        self._uniform = uniform
        self._lookups: dict[ImageLookupKey, SharedLookup] = {}
        self._pods: dict[ObjectKey, frozenset[ImageLookupKey]] = {}
        self._failing: dict[str, set[ImageLookupKey]] = {}
        """By host: failing lookups that a success on that host hastens."""
        self._by_reference: dict[str, set[ImageLookupKey]] = {}
        self._close_handlers: list[Callable[[ImageLookupKey], None]] = []

    def on_close(self, handler: Callable[[ImageLookupKey], None]) -> None:
        """Calls ``handler`` with each lookup that was removed because nobody waits for it."""
        self._close_handlers.append(handler)

    def __len__(self) -> int:
        """Number of parked pods."""
        return len(self._pods)

    def lookups(self) -> Iterator[SharedLookup]:
        return iter(self._lookups.values())

    def find(self, key: ImageLookupKey) -> SharedLookup | None:
        return self._lookups.get(key)

    def park(self, pod: ObjectKey, wants: Iterable[PendingImage]) -> None:
        """Makes the pod wait for exactly these images; it leaves all other lookups."""
        now = self._clock.monotonic()
        wanted = {want.key: want for want in wants}
        for key in self._pods.get(pod, frozenset()) - wanted.keys():
            self._leave(pod, key)
        self._pods[pod] = frozenset(wanted)
        for key, want in wanted.items():
            lookup = self._lookups.get(key) or self._open(key, want.reference)
            before = lookup.waiters.get(pod)
            lookup.waiters[pod] = want
            if before is None:
                self._count_in(lookup, pod.namespace, now)
            if before is None or (before.held and not want.held):
                self._newcomer(lookup, want, now)
            elif not lookup.asking and lookup.due is None and not lookup.serves(want, now):
                self._at(lookup, now)

    def leave(self, pod: ObjectKey) -> None:
        """Removes the pod from all lookups: it is decided, deleted or no longer eligible."""
        for key in self._pods.pop(pod, frozenset()):
            self._leave(pod, key)

    def start(self, key: ImageLookupKey) -> LookupAttempt | None:
        """The attempt to make now; None if it is not due (rescheduled, answered, running, or without waiters)."""
        lookup = self._lookups.get(key)
        now = self._clock.monotonic()
        if lookup is None or lookup.asking or lookup.due is None or not lookup.waiters:
            return None
        if lookup.due > now:
            self._schedule(key, lookup.due - now)
            return None
        lookup.asking, lookup.due, lookup.started_at = True, None, now
        times = [want.not_before for want in lookup.waiters.values() if want.not_before is not None]
        not_before = max(times, default=None)
        return LookupAttempt(
            lookup.reference,
            tuple(lookup.waiters.values()),
            fresh=lookup.failures > 0 or not_before is not None,
            not_before=not_before,
            failed_with=lookup.failure,
        )

    def finish(self, key: ImageLookupKey, inspection: Inspection) -> SharedLookup | None:
        """Records the answer of an attempt, wakes the pods concerned and schedules the next attempt."""
        lookup = self._lookups.get(key)
        if lookup is None:
            return None
        now = self._clock.monotonic()
        if lookup.revoked:
            lookup.revoked = False
            if (kept := without_proof(inspection)) is None:
                self.give_back(key, 0.0)
                return None
            inspection = kept
        before, after = lookup.failure, failure_of(inspection)
        news = after != before
        waited_for_any = [pod for pod, want in lookup.waiters.items() if lookup.is_pending(want)]
        lookup.asking, lookup.inspection, lookup.answered_at, lookup.unconfirmed = False, inspection, now, False
        if not lookup.waiters:
            self._close(lookup)
            return lookup
        if after:
            lookup.failures += 1
            self._note_failure(lookup, after)
            self._plan_retry(lookup, inspection, now)
            for pod in list(lookup.waiters) if news else waited_for_any:
                self._wake(pod)
            return lookup
        lookup.failures, lookup.hastened = 0, False
        self._forget_failure(lookup)
        for pod, want in list(lookup.waiters.items()):
            if lookup.serves(want, now):
                self._wake(pod)
            else:
                self._at(lookup, now + RECHECK_DELAY)
        self._success(lookup, now)
        return lookup

    def give_back(self, key: ImageLookupKey, delay: float) -> None:
        """The attempt was not made (changed secrets, or an internal error); it is due again after ``delay``."""
        lookup = self._lookups.get(key)
        if lookup is not None:
            lookup.asking = False
            if lookup.waiters:
                self._at(lookup, self._clock.monotonic() + delay)
            else:
                self._close(lookup)

    def pass_on(self, key: ImageLookupKey, namespace: str) -> bool:
        """The attempt in the turn of this namespace met the namespace's own limit: the next one is in the turn of
        another that waits. False if there is none.
        """
        lookup = self._lookups.get(key)
        if lookup is None or lookup.namespaces.keys() <= {namespace}:
            return False
        if namespace in lookup.namespaces:
            lookup.namespaces[namespace] = lookup.namespaces.pop(namespace)  # queued last
        self.give_back(key, RECHECK_DELAY)
        return True

    def hasten(self, which: Callable[[SharedLookup], bool]) -> None:
        """Makes scheduled lookups due now, spread over one second."""
        now = self._clock.monotonic()
        for lookup in self._lookups.values():
            if lookup.due is not None and which(lookup):
                self._at(lookup, now + self._spread())

    def revoke(self) -> None:
        """Shared credentials were revoked, and it is not recorded which answers they gave. So images not known to be
        public are looked up again, and the answers of running attempts are dropped."""
        now = self._clock.monotonic()
        for lookup in self._lookups.values():
            lookup.revoked = lookup.asking
            if lookup.inspection is None:
                continue
            lookup.inspection = without_proof(lookup.inspection)
            if lookup.inspection is None and not lookup.asking:
                self._at(lookup, now + self._spread())

    def confirm(self) -> None:
        """Repeats all failed lookups; the result wakes the pods even if the failure is the same."""
        for lookup in self._lookups.values():
            lookup.unconfirmed = bool(lookup.failure)
        self.hasten(lambda lookup: lookup.unconfirmed)

    def wake_waiters(self, keys: Iterable[ObjectKey]) -> None:
        for key in keys:
            if key in self._pods:
                self._wake(key)

    def _open(self, key: ImageLookupKey, reference: Reference) -> SharedLookup:
        lookup = self._lookups[key] = SharedLookup(key, reference)
        self._by_reference.setdefault(key.reference, set()).add(key)
        return lookup

    def _count_in(self, lookup: SharedLookup, namespace: str, now: float) -> None:
        waiting = lookup.namespaces[namespace] = lookup.namespaces.get(namespace, 0) + 1
        if waiting == 1 and lookup.due is not None and lookup.due <= now:
            self._schedule(lookup.key, 0.0)  # it is queued, and now for one more namespace

    def _newcomer(self, lookup: SharedLookup, want: PendingImage, now: float) -> None:
        """A newly parked pod causes an attempt at once, or 5 s after the last one: pods that came before it choose how
        long the backoff has become. What failed for the limit of another namespace has not been attempted for this one.
        """
        if lookup.asking or lookup.serves(want, now):
            return
        if (
            lookup.inspection is None
            or not lookup.failure
            or lookup.started_at is None
            or is_tenants_own(lookup.inspection)
        ):
            self._at(lookup, now)
            return
        due = now
        if self._rests(lookup):
            due = now + backoff.held_delay(uniform=self._uniform())
        elif now - lookup.started_at <= backoff.AT_ONCE_AFTER:
            delay = self._retries.delay(lookup.failures, lookup.failure, uniform=self._uniform())
            due = min(now + delay, lookup.started_at + backoff.AT_ONCE_AFTER)
        if lookup.answered_at is not None:
            due = max(due, lookup.answered_at + asked_to_wait(lookup.inspection))
        self._at(lookup, due)

    def _plan_retry(self, lookup: SharedLookup, inspection: Inspection, now: float) -> None:
        asked_for = asked_to_wait(inspection)
        if lookup.held or self._rests(lookup):
            delay = max(backoff.held_delay(uniform=self._uniform()), asked_for)
        else:
            delay = self._retries.delay(lookup.failures, lookup.failure, uniform=self._uniform(), retry_after=asked_for)
        self._at(lookup, now + delay)

    def _note_failure(self, lookup: SharedLookup, failure: str) -> None:
        """Lets a success on the host hasten this lookup, but only once between two regular attempts."""
        if lookup.hastened or failure not in _SHARED_BY_HOST:
            lookup.hastened = False
            self._forget_failure(lookup)
        else:
            self._failing.setdefault(lookup.reference.registry, set()).add(lookup.key)

    def _forget_failure(self, lookup: SharedLookup) -> None:
        failing = self._failing.get(lookup.reference.registry)
        if failing is not None:
            failing.discard(lookup.key)
            if not failing:
                del self._failing[lookup.reference.registry]

    def _rests(self, lookup: SharedLookup) -> bool:
        """Whether the leader retries this image, so that a retry here would gain nothing."""
        return lookup.failure not in ("", *_SHARED_BY_HOST) and not self._insists()

    def _success(self, lookup: SharedLookup, now: float) -> None:
        """A success hastens failing lookups of the same host, and of the same image with other credentials."""
        for key in self._failing.pop(lookup.reference.registry, set()):
            self._hasten(self._lookups[key], now)
        for key in self._by_reference[lookup.key.reference]:
            other = self._lookups[key]
            if other is not lookup and other.failure and not other.hastened:
                self._hasten(other, now)

    def _hasten(self, lookup: SharedLookup, now: float) -> None:
        if lookup.due is not None:
            lookup.hastened = True
            self._at(lookup, now + self._spread())

    def _spread(self) -> float:
        return backoff.SPREAD * self._uniform()

    def _at(self, lookup: SharedLookup, due: float) -> None:
        """Makes the lookup due at that time, unless it is due earlier."""
        if lookup.due is None or due < lookup.due:
            lookup.due = due
            self._schedule(lookup.key, max(due - self._clock.monotonic(), 0.0))

    def _leave(self, pod: ObjectKey, key: ImageLookupKey) -> None:
        lookup = self._lookups[key]
        if lookup.waiters.pop(pod, None) is not None:
            lookup.namespaces[pod.namespace] -= 1
            if not lookup.namespaces[pod.namespace]:
                del lookup.namespaces[pod.namespace]
        if not lookup.waiters and not lookup.asking:
            self._close(lookup)

    def _close(self, lookup: SharedLookup) -> None:
        del self._lookups[lookup.key]
        self._forget_failure(lookup)
        same = self._by_reference[lookup.key.reference]
        same.discard(lookup.key)
        if not same:
            del self._by_reference[lookup.key.reference]
        for handler in self._close_handlers:
            handler(lookup.key)
