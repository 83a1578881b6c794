"""Since when a roll-out of a DaemonSet gets no further (NO-093): a time, which no object records."""

from collections.abc import Mapping
from typing import Any, Final

from polyarch.clock import Clock
from polyarch.numa.operator.rollout import PATIENCE

_PROGRESS: Final = (
    "observedGeneration",
    "desiredNumberScheduled",
    "currentNumberScheduled",
    "updatedNumberScheduled",
    "numberReady",
    "numberAvailable",
)


class Stalling:
    """After a restart of the operator the time begins again."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._seen: dict[str, tuple[tuple[Any, ...], float]] = {}

    def look(self, daemon_sets: Mapping[str, Mapping[str, Any]]) -> dict[str, float]:
        """By DaemonSet: seconds since its numbers last became others."""
        now = self._clock.monotonic()
        seen: dict[str, tuple[tuple[Any, ...], float]] = {}
        for name, document in daemon_sets.items():
            status = document.get("status") or {}
            numbers = (
                (document.get("metadata") or {}).get("generation"),
                *(status.get(field) for field in _PROGRESS),
            )
            known = self._seen.get(name)
            seen[name] = known if known is not None and known[0] == numbers else (numbers, now)
        self._seen = seen
        return {name: now - since for name, (_, since) in seen.items()}

    def is_long(self, stalled: Mapping[str, float]) -> bool:
        """Whether one of those that are not done has lasted so long that its pods are worth a look."""
        return any(seconds >= PATIENCE and not _is_done(self._seen[name][0]) for name, seconds in stalled.items())


def _is_done(numbers: tuple[Any, ...]) -> bool:
    generation, observed, desired, _, updated, ready, _ = numbers
    return bool(observed == generation and desired == (updated or 0) == (ready or 0))
