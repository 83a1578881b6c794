"""Results of the PATCHes of one pod, and the time of the next one (PL-304, PL-305).

At most one PATCH is sent per resourceVersion; the watch event of the change brings the pod back. Time without an answer
from the API server does not count as time of refusal. Times are ``Clock.monotonic()``; None: not yet.
"""

from typing import Final

REFUSED_FIRST: Final = 1.0
REFUSED_LAST: Final = 60.0
MOVED_ON_WAIT: Final = 10.0
MOVED_ON_WAITS: Final = 7
"""How long the watch event of a changed pod may take, and how often it is waited for: a process that was suspended has
not really waited, and a stray is seen again only by the next list, a minute later (``pods.EVERY``)."""
CONFLICT_WAIT: Final = 5.0
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
        """The PATCH was refused; returns the seconds until the next attempt (PL-305)."""
        self._refusals += 1
        self.refusal = refusal
        if self._refused_since is None:
            self._refused_since = now
        elif self._silent_since is not None:
            self._refused_since += now - self._silent_since
        self._silent_since = None
        return min(REFUSED_FIRST * 2.0 ** min(self._refusals - 1, 10), REFUSED_LAST)

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
        if (left := self._moved_on_at + (CONFLICT_WAIT if self._conflict else MOVED_ON_WAIT) - now) > 0:
            return left
        self._waits += 1
        if not self._conflict and self._waits < MOVED_ON_WAITS:
            self._moved_on_at = now
            return MOVED_ON_WAIT
        self._written_from, self._moved_on_at = "", None
        if self._conflict:
            return 0.0
        raise RuntimeError("the API server says that our patch does not fit a pod that has not changed")
