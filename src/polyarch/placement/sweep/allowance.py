"""How many pods may be evicted, and whose (PL-371).

At most so many a minute; one per owner in five minutes; and none for an hour if it did not help, that is, if the new
pod of that owner was missed as well. "New" is measured by creation times alone, all by the API server's clock. Other
times are ``Clock.monotonic()``. What is kept is bounded, since it ends after an hour. A process that begins to
lead begins anew. Pure.
"""

from collections import deque
from typing import Final

PER_OWNER: Final = 300.0
NO_HELP: Final = 3600.0
MINUTE: Final = 60.0
MOST: Final = 6000
"""Owners remembered: a hundred evictions a minute, for an hour."""


class _Owner:
    __slots__ = ("evicted_at", "latest", "no_help")

    def __init__(self, evicted_at: float, latest: str) -> None:
        self.evicted_at = evicted_at
        self.latest = latest
        """Creation time of the latest pod that existed then."""
        self.no_help = False

    @property
    def rests_until(self) -> float:
        return self.evicted_at + (NO_HELP if self.no_help else PER_OWNER)


class Allowance:
    """The evictions of the last hour."""

    def __init__(self) -> None:
        self._owners: dict[str, _Owner] = {}
        """In order of their last eviction."""
        self._tries: deque[float] = deque(maxlen=100)

    def __len__(self) -> int:
        return len(self._owners)

    def saw(self, owner: str, created: str) -> None:
        """A pod of this owner, created then (RFC 3339, UTC), was missed."""
        known = self._owners.get(owner)
        if known is not None and created > known.latest:
            known.no_help = True

    def wait(self, owner: str, now: float, *, per_minute: int) -> float:
        """Seconds until a pod of this owner may be evicted; 0: now."""
        self._forget(now)
        known = self._owners.get(owner)
        rest = known.rests_until - now if known is not None else 0.0
        if len(self._tries) >= per_minute:
            rest = max(rest, self._tries[-per_minute] + MINUTE - now)
        return max(rest, 0.0)

    def tried(self, now: float) -> None:
        """An eviction was asked for, and counts whether or not it was granted."""
        self._tries.append(now)

    def granted(self, owner: str, now: float, *, latest: str) -> None:
        """A pod of this owner was evicted; ``latest``: the latest creation time of any pod seen by then."""
        self._owners.pop(owner, None)
        self._owners[owner] = _Owner(now, latest)
        while len(self._owners) > MOST:
            del self._owners[next(iter(self._owners))]

    def _forget(self, now: float) -> None:
        while self._owners:
            oldest = next(iter(self._owners))
            if now - self._owners[oldest].evicted_at < NO_HELP:
                return
            del self._owners[oldest]
