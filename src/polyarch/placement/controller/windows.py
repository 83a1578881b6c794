"""How long a pod has waited for its images, and since when that counts (PL-330).

Times are ``Clock.monotonic()``; None: not yet. The retry windows do not run while all
look-ups of the pod are queued, but for ten minutes at most.
"""

from typing import Final

IN_LINE: Final = 600.0
"""Seconds after which a pod whose images were not even asked for counts as attempted, and after which an image that
neither answers nor fails is waited for no longer."""


class Windows:
    """The waiting of one pod, as this process has seen it."""

    __slots__ = ("first_attempt", "pending_since", "since")

    def __init__(self) -> None:
        self.since: float | None = None
        """When it first had to wait for an image, be it only in line."""
        self.first_attempt: float | None = None
        """The windows run from here."""
        self.pending_since: float | None = None

    def waits(self, now: float, *, begun: float | None) -> None:
        """The pod waits for images; ``begun``: when the first attempt for one of them began, None: all are in line."""
        self.since = now if self.since is None else self.since
        if self.first_attempt is None and (begun is not None or self.in_line_until(now) <= 0):
            self.first_attempt = max(begun if begun is not None else now, self.since)

    def waits_for_nothing(self, now: float) -> None:
        """What is not known of the pod's images cannot be asked for, so the windows run."""
        self.first_attempt = now if self.first_attempt is None else self.first_attempt

    def put_off(self, now: float, *, pending: bool) -> float | None:
        """Seconds for which the pod is not given up because an image is ``pending``: not answered and not failed since
        the pod was first looked at, or asked for anew (its check has become too old, or other credentials count). Each
        gets its attempt, so it decides nothing which of them answers first. None if there is none, or if it takes too
        long.
        """
        if not pending:
            self.pending_since = None
            return None
        self.pending_since = now if self.pending_since is None else self.pending_since
        left = self.pending_since + IN_LINE - now
        return left if left > 0 else None

    def in_line_until(self, now: float) -> float:
        """Seconds for which the pod may go on standing in line."""
        return (self.since if self.since is not None else now) + IN_LINE - now

    def elapsed(self, now: float) -> float:
        """Seconds since this process's first attempt for the pod."""
        return now - self.first_attempt if self.first_attempt is not None else 0.0
