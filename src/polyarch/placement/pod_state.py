"""What this process remembers of one gated pod: waiting times, results of PATCHes, events already posted; and, of a
namespace, for which refusals its pods have waited.

No decision needs it: a process that starts without it counts waiting from its own first attempt and may repeat an
event. It is kept per pod and dropped when the uid changes. Times are ``Clock.monotonic()``; None: not yet. Pure.
"""

from collections.abc import Callable, Container, Hashable, Iterable, Mapping
from enum import Enum
from typing import Final, NamedTuple

from polyarch.images.pod_images import ImageFacts
from polyarch.oci.inspection import Inspection
from polyarch.oci.lru_cache import LRUCache
from polyarch.placement.rules import retry_window
from polyarch.placement.settings import Settings

# -- waiting for images ------------------------------------------------------------------------------------------------
# The retry windows start with the first attempt: they do not run while all lookups of the pod are queued, for ten
# minutes at most.

QUEUED_TIMEOUT: Final = 600.0
"""Seconds after which a pod with only queued lookups counts as attempted, and after which the pod no longer waits for
an image that neither answers nor fails."""


class RetryWindow:
    """Waiting times of one pod in this process."""

    __slots__ = ("first_attempt", "pending_since", "since")

    def __init__(self) -> None:
        self.since: float | None = None
        """When it first waited for an image, even if only in the queue."""
        self.first_attempt: float | None = None
        """Start of the retry windows."""
        self.pending_since: float | None = None

    def waits(self, now: float, *, begun: float | None) -> None:
        """The pod waits for images; ``begun``: when the first attempt for one began; None: all are queued."""
        self.since = now if self.since is None else self.since
        if self.first_attempt is None and (begun is not None or self.in_line_until(now) <= 0):
            self.first_attempt = max(begun if begun is not None else now, self.since)

    def waits_for_nothing(self, now: float) -> None:
        """No lookup can provide the unknown images, so the retry windows run."""
        self.first_attempt = now if self.first_attempt is None else self.first_attempt

    def put_off(self, now: float, *, pending: bool) -> float | None:
        """Seconds for which giving up is postponed for a ``pending`` image; None if none is or it takes too long.

        Pending: neither answered nor failed since the pod was first seen, or being looked up again (the last check is
        too old, or the credentials changed). Each image gets its attempt, so the order of answers does not matter.
        """
        if not pending:
            self.pending_since = None
            return None
        self.pending_since = now if self.pending_since is None else self.pending_since
        left = self.pending_since + QUEUED_TIMEOUT - now
        return left if left > 0 else None

    def in_line_until(self, now: float) -> float:
        """Seconds for which all lookups of the pod may still be queued."""
        return (self.since if self.since is not None else now) + QUEUED_TIMEOUT - now

    def elapsed(self, now: float) -> float:
        """Seconds since this process's first attempt for the pod."""
        return now - self.first_attempt if self.first_attempt is not None else 0.0


# -- PATCHes -----------------------------------------------------------------------------------------------------------
# At most one PATCH is sent per resourceVersion; the watch event of the change brings the pod back. Time without an
# answer from the API server does not count as time of refusal.

FIRST_REJECTED_DELAY: Final = 1.0
MAX_REJECTED_DELAY: Final = 60.0
EVENT_TIMEOUT: Final = 10.0
MAX_EVENT_WAITS: Final = 7
"""How long the watch event of a changed pod may take, and how often it is waited for: a process that was suspended has
not really waited, and a stray is seen again only by the next list, a minute later (``controller.LIST_INTERVAL``)."""
CONFLICT_EVENT_TIMEOUT: Final = 5.0
"""The same after HTTP 409, which is less specific: then the PATCH is sent again."""


class PatchHistory:
    """The PATCHes of one pod by this process."""

    __slots__ = (
        "_conflict",
        "_moved_on_at",
        "_refusals",
        "_refused_since",
        "_silent_since",
        "_unanswered",
        "_waits",
        "_written_from",
        "refusal",
    )

    def __init__(self) -> None:
        self.refusal = ""
        """The last refusal, such as ``HTTP 422``."""
        self._written_from = ""
        """The resourceVersion of our last PATCH."""
        self._moved_on_at: float | None = None
        """When the API server answered that the pod is newer than our cache; None: not for this version."""
        self._waits = 0
        self._conflict = False
        """It answered with HTTP 409."""
        self._refusals = 0
        self._refused_since: float | None = None
        self._unanswered = 0
        """Writes in a row that the API server did not answer."""
        self._silent_since: float | None = None
        """When it stopped answering, if it had refused the pod before."""

    # -- results of a PATCH --------------------------------------------------------------------------------------------

    def done(self, version: str) -> None:
        """The PATCH from this version was written."""
        self._written_from, self._moved_on_at = version, None
        self._unanswered = self._waits = 0

    def moved_on(self, version: str, now: float, *, conflict: bool) -> None:
        """The pod has changed since this version. ``conflict``: HTTP 409, not a failed test."""
        self.done(version)
        self._moved_on_at, self._conflict = now, conflict

    def refused(self, refusal: str, now: float) -> float:
        """The PATCH was refused; returns the seconds until the next attempt."""
        self._refusals += 1
        self.refusal = refusal
        if self._refused_since is None:
            self._refused_since = now
        elif self._silent_since is not None:
            self._refused_since += now - self._silent_since
        self._silent_since = None
        return min(FIRST_REJECTED_DELAY * 2.0 ** min(self._refusals - 1, 10), MAX_REJECTED_DELAY)

    def not_answered(self, now: float) -> int:
        """The API server did not answer; returns how often in a row."""
        self._unanswered += 1
        if self._refused_since is not None and self._silent_since is None:
            self._silent_since = now
        return self._unanswered

    # -- consequences --------------------------------------------------------------------------------------------------

    def is_written_from(self, version: str) -> bool:
        """Whether a PATCH was already sent from this version."""
        return self._written_from == version

    @property
    def wrote_last(self) -> bool:
        """Whether the last known write of the pod is ours."""
        return bool(self._written_from) and self._moved_on_at is None

    @property
    def awaits_event(self) -> bool:
        """Whether the pod has changed and its watch event has not arrived yet."""
        return self._moved_on_at is not None

    def refused_for(self, now: float) -> float:
        """Seconds for which the API server has refused the pod, without the time in which it did not answer."""
        if self._refused_since is None:
            return 0.0
        return (self._silent_since if self._silent_since is not None else now) - self._refused_since

    def wait_for_event(self, now: float) -> float | None:
        """Seconds until the pod is reconciled again even if no watch event arrives; None: wait for the event.

        Raises ``RuntimeError`` if a ``test`` of the patch failed but the pod does not change for long: then the patch
        itself is wrong.
        """
        if self._moved_on_at is None:
            return None
        if (left := self._moved_on_at + (CONFLICT_EVENT_TIMEOUT if self._conflict else EVENT_TIMEOUT) - now) > 0:
            return left
        self._waits += 1
        if not self._conflict and self._waits < MAX_EVENT_WAITS:
            self._moved_on_at = now
            return EVENT_TIMEOUT
        self._written_from, self._moved_on_at = "", None
        if self._conflict:
            return 0.0
        raise RuntimeError("the API server says that our patch does not fit a pod that has not changed")


# -- events and log lines ----------------------------------------------------------------------------------------------
# To limit repeats. A process that starts may repeat what another one posted.

HELD_INTERVAL: Final = 3600.0


class RepeatedEvent(Enum):
    """What is reported repeatedly while it lasts; the value starts with the interval in seconds."""

    REFUSAL = (300.0, "the API server refuses the write")
    SILENCE = (300.0, "the API server does not answer")
    HELD = (HELD_INTERVAL, "the pod is held")

    @property
    def interval(self) -> float:
        return self.value[0]


class EventThrottle:
    """What this process has reported about one pod."""

    __slots__ = ("_at", "failing", "gate")

    def __init__(self) -> None:
        self.failing = False
        """The pod is labelled as failing."""
        self.gate = 0
        """How often the gate event was considered: when the pod was first seen, and after 2 s."""
        self._at: dict[RepeatedEvent, float] | None = None  # few pods have anything here

    def posted_at(self, event: RepeatedEvent) -> float | None:
        """When it was last reported."""
        return self._at.get(event) if self._at is not None else None

    def record(self, event: RepeatedEvent, now: float) -> None:
        """Records that it is reported now."""
        self._at = {**(self._at or {}), event: now}

    def is_due(self, event: RepeatedEvent, now: float) -> bool:
        """Whether it is due: the first time, and then at its interval. If so, it counts as reported."""
        before = self.posted_at(event)
        if before is not None and now - before < event.interval:
            return False
        self.record(event, now)
        return True

    def seconds_until_due(self, event: RepeatedEvent, now: float) -> float | None:
        """Seconds until it is due again; None if it was never reported."""
        before = self.posted_at(event)
        return before + event.interval - now if before is not None else None


# -- the state ---------------------------------------------------------------------------------------------------------


NO_FAILURES: Final[dict[str, Inspection]] = {}
"""Shared by all pods without such a failure; never mutated."""
NO_REFUSALS: Final[dict[str, tuple[Hashable, float]]] = {}
"""As above."""


class PodState:
    """The state of one gated pod."""

    __slots__ = (
        "failed_once",
        "failing_since",
        "failures",
        "held_since",
        "patches",
        "refused_since",
        "retry_window",
        "seen_at",
        "standby_delay",
        "throttle",
        "uid",
        "waited",
    )

    def __init__(self, uid: str, now: float, *, standby_delay: float) -> None:
        self.uid = uid
        self.seen_at: Final = now
        self.retry_window = RetryWindow()
        self.failed_once: dict[str, Inspection] = NO_FAILURES
        """Failures of images that may exist on nodes only, by reference text."""
        self.refused_since: dict[str, tuple[Hashable, float]] = NO_REFUSALS
        """By reference text, which repository and credentials were refused, and since when without another result."""
        self.patches = PatchHistory()
        self.throttle = EventThrottle()
        self.held_since: float | None = None
        """When holding of the pod began: by policy, for a rejected release, or for an internal error."""
        self.failures = 0
        """Consecutive reconciles of the pod that failed with an internal error."""
        self.failing_since: float | None = None
        self.standby_delay: Final = standby_delay
        """Seconds from the first sight of the pod to a standby's first reconcile."""
        self.waited = False
        """The pod has waited for an image since it was last left to the leader."""

    def refused_for(self, refusals: Mapping[str, Hashable], others: Container[str], now: float) -> Mapping[str, float]:
        """Seconds since the first of the refusals in a row, by reference text. ``others``: images with another result,
        whose rows end."""
        if refusals or self.refused_since:
            rows = {text: row for text, row in self.refused_since.items() if text not in others}
            for text, refusal in refusals.items():
                if text not in rows or rows[text][0] != refusal:
                    rows[text] = (refusal, now)
            self.refused_since = rows
        return {text: now - self.refused_since[text][1] for text in refusals}

    def waits(self, now: float, *, begun: float | None) -> None:
        """It waits for lookups (``images.lookup_runner``)."""
        self.retry_window.waits(now, begun=begun)

    def waits_for_nothing(self, now: float) -> None:
        """No lookup can provide what is missing (``images.lookup_runner``)."""
        self.retry_window.waits_for_nothing(now)

    def hold(self, now: float) -> None:
        """The pod is held, if it is not already."""
        self.held_since = now if self.held_since is None else self.held_since

    def failed(self, now: float) -> float:
        """Counts a reconcile that failed with an internal error; returns the seconds since the first of them."""
        self.failures += 1
        self.failing_since = now if self.failing_since is None else self.failing_since
        return now - self.failing_since

    def succeeded(self) -> None:
        """A reconcile had no internal error."""
        self.failures, self.failing_since = 0, None


# -- standby replicas --------------------------------------------------------------------------------------------------
# A standby writes only while it sees no other replica release pods. So no pod waits for a Lease to expire, and a busy
# leader has no second writer whose PATCHes would conflict.

STANDBY_DELAY: Final = 1.0
STANDBY_SPREAD: Final = 1.0
"""A standby reconciles a pod once it has been gated for 1 to 2 s."""
STANDBY_GRACE_PERIOD: Final = 0.5
"""How long a standby that waited for an image gives the leader, which has the same answer, to write the pod."""
LEADER_QUIET_PERIOD: Final = 1.0
"""A standby writes once it has seen no other replica release a pod for this long."""
STANDBY_TIMEOUT: Final = 5.0
"""A standby writes a pod that has been gated for longer in any case."""


class Standby:
    """When the other replicas last released a pod, and how long this one leaves pods to them."""

    def __init__(self, uniform: Callable[[], float]) -> None:
        self._uniform = uniform
        self._others_released_at = float("-inf")

    def delay(self) -> float:
        """Seconds for which a new pod is left to the leader."""
        return STANDBY_DELAY + STANDBY_SPREAD * self._uniform()

    def pod_went(self, pod: PodState, now: float) -> None:
        """A pod was released or deleted; if not by us, another replica is active."""
        if not pod.patches.wrote_last:
            self._others_released_at = now

    def leave_to_others(self, pod: PodState, now: float) -> float:
        """Seconds for which a pod that can be placed is left to others; zero or less: write it now."""
        if pod.waited:
            pod.waited = False
            return STANDBY_GRACE_PERIOD * (1.0 + self._uniform())
        return min(self._others_released_at + LEADER_QUIET_PERIOD, pod.seen_at + STANDBY_TIMEOUT) - now


# -- refusals that a namespace has waited for --------------------------------------------------------------------------
# Where nodes pull by an identity of their own, which polyarch does not have, every pod of an image would wait the whole
# window for the same refusal. Each namespace has a memory of its own, of what its own pods have waited for: lookups are
# shared, and so are the credentials of pods without pull secrets, so that with a common memory one namespace could end
# the windows of another's pods. For the same reason no namespace takes another's places.

REFUSED: Final = ("unauthorized", "denied")
"""Codes of what a registry itself has refused. A credential helper that fails says nothing of the registry."""
WHOLE_WINDOW: Final = 0.8
"""The part of its window for which an image has been refused whose first answer took a moment."""
REMEMBERED_REFUSALS: Final = 32
"""Repositories and credentials of one namespace."""
REMEMBERED_NAMESPACES: Final = 2048
REFUSAL_MEMORY: Final = 3600.0
"""Seconds for which a refusal is remembered, from the last pod that met it."""


class RefusalMemory:
    """The repositories that have refused credentials for a whole window, by namespace."""

    def __init__(self) -> None:
        self._namespaces: LRUCache[str, LRUCache[Hashable, float]] = LRUCache(REMEMBERED_NAMESPACES)

    def remember(self, namespace: str, refusal: Hashable, now: float) -> None:
        """A pod of the namespace has waited for it in vain. ``refusal``: repository and credentials."""
        kept = self._namespaces.get(namespace)
        if kept is None:
            kept = LRUCache(REMEMBERED_REFUSALS)
            self._namespaces.put(namespace, kept)
        kept.put(refusal, now)

    def has(self, namespace: str, refusal: Hashable, now: float) -> bool:
        """Whether pods of the namespace have waited for it before."""
        kept = self._namespaces.get(namespace)
        at = kept.get(refusal) if kept is not None else None
        return at is not None and now - at < REFUSAL_MEMORY

    def forget(self, namespace: str, refusal: Hashable) -> None:
        """The repository has answered a pod of the namespace."""
        if (kept := self._namespaces.get(namespace)) is not None:
            kept.pop(refusal)

    def clear(self) -> None:
        """Credentials or registries changed for all."""
        self._namespaces.clear()


class PodRefusals(NamedTuple):
    """The refusals of one pod's images, and the memory of its namespace."""

    memory: RefusalMemory
    namespace: str
    refusals: Mapping[str, Hashable]
    """By the text of the reference."""
    lasts: Mapping[str, float]
    """For how many seconds the pod has met nothing else, by the text of the reference."""
    now: float

    @property
    def in_vain(self) -> frozenset[str]:
        """Images whose refusal the namespace has waited for before."""
        return frozenset(
            text for text, refusal in self.refusals.items() if self.memory.has(self.namespace, refusal, self.now)
        )

    def remember(self, unresolved: Iterable[ImageFacts], settings: Settings) -> None:
        """The pod waits no longer: what it has waited for a whole window, or did not because of this memory, is
        remembered. A window that began with another failure was not one of refusals."""
        known = self.in_vain
        for finding in unresolved:
            refusal = self.refusals.get(finding.text)
            if refusal is None:
                continue
            window = WHOLE_WINDOW * retry_window(finding.error_class, settings.retry_window)
            if finding.text in known or self.lasts[finding.text] >= window:
                self.memory.remember(self.namespace, refusal, self.now)
