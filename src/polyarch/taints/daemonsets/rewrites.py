"""How soon a template is written again from which somebody takes our tolerations away (TN-053).

Each write replaces all pods of the DaemonSet. Where the webhook of templates is not called, a tool that applies the
original manifest again at each of its syncs would cause one rollout per sync, for ever. So the same tolerations are
added again after a pause that doubles, up to an hour. State only, no clock.
"""

from collections.abc import Collection
from typing import Final

from polyarch.objects import Key

FIRST: Final = 60.0
LONGEST: Final = 3600.0
TAKEN_BACK: Final = "TolerationsTakenBack"
"""Reason of the problem in ``Degraded``."""


class Rewrites:
    """What this process has added to each DaemonSet, and how often again."""

    def __init__(self) -> None:
        self._added: dict[Key, frozenset[str]] = {}
        self._written_at: dict[Key, float] = {}
        self._again: dict[Key, int] = {}

    @property
    def contested(self) -> tuple[Key, ...]:
        """DaemonSets whose tolerations were taken away more than once."""
        return tuple(sorted(key for key, count in self._again.items() if count > 1))

    def rest(self, key: Key, architectures: Collection[str], now: float) -> float:
        """Seconds until these architectures may be added; 0 unless all of them were added before."""
        if not self._added.get(key, frozenset()).issuperset(architectures):
            return 0.0
        pause = min(FIRST * 2.0 ** min(self._again.get(key, 0), 10), LONGEST)
        return max(self._written_at[key] + pause - now, 0.0)

    def wrote(self, key: Key, architectures: Collection[str], now: float) -> None:
        """They were added. Nobody has taken them back for two hours: the pauses begin anew."""
        known = self._added.get(key, frozenset())
        if known.issuperset(architectures) and now - self._written_at[key] < 2 * LONGEST:
            self._again[key] = self._again.get(key, 0) + 1
        else:
            self._again.pop(key, None)
        self._added[key] = known | frozenset(architectures)
        self._written_at[key] = now

    def forget(self, key: Key) -> None:
        """The DaemonSet is gone."""
        for values in (self._added, self._written_at, self._again):
            values.pop(key, None)
