"""How long a pod has waited for its images, for the retry windows (PL-330).

Times are ``Clock.monotonic()``; None: not yet. The retry windows start with the first attempt: they do not run while
all look-ups of the pod are queued, for ten minutes at most.
"""

from typing import Final

IN_LINE: Final = 600.0
"""Seconds after which a pod with only queued look-ups counts as attempted, and after which the pod no longer waits for
an image that neither answers nor fails."""


class Windows:
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
        """No look-up can provide the unknown images, so the retry windows run."""
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
        left = self.pending_since + IN_LINE - now
        return left if left > 0 else None

    def in_line_until(self, now: float) -> float:
        """Seconds for which all look-ups of the pod may still be queued."""
        return (self.since if self.since is not None else now) + IN_LINE - now

    def elapsed(self, now: float) -> float:
        """Seconds since this process's first attempt for the pod."""
        return now - self.first_attempt if self.first_attempt is not None else 0.0
