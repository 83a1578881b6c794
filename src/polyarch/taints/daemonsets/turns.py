"""Rollouts that our changes of templates cause: a few at a time, in order, with a limit (TN-051).

A changed template replaces every pod of its DaemonSet. So templates stand in line, those that others need first, and a
place is free again when a rollout is done, or when an admin has confirmed one that takes too long. What is under way is
read from the DaemonSets themselves, so that a new leader goes on where the former one was. Times are
``Clock.monotonic()``.
"""

from collections.abc import Callable
from typing import Final

from polyarch.objects import DaemonSet, Key
from polyarch.taints import names
from polyarch.taints.plan.rollout_order import rollout_rank

SLOW: Final = "DaemonSetRolloutSlow"
"""Reason of the Warning, and of the problem in the status."""


class _Rollout:
    __slots__ = ("is_confirmed", "is_slow", "since")

    def __init__(self, now: float) -> None:
        self.since: Final = now
        self.is_slow = False
        self.is_confirmed = False


class RolloutTurns:
    """``wake`` looks at a DaemonSet again: its turn has come."""

    def __init__(self, wake: Callable[[Key], None]) -> None:
        self._wake = wake
        self._rolling: dict[Key, _Rollout] = {}
        self._line: set[Key] = set()
        self._called: set[Key] = set()
        """Those in line that know that their turn has come; nobody is called twice."""
        self._seen: set[Key] = set()

    @property
    def slow(self) -> list[Key]:
        """Those that take too long and are not confirmed, in order."""
        return sorted(key for key, each in self._rolling.items() if each.is_slow and not each.is_confirmed)

    @property
    def waiting(self) -> int:
        """Number of templates in line."""
        return len(self._line)

    def observe(self, daemon_set: DaemonSet, now: float, *, limit: float) -> float | None:
        """Takes note of how far it is; seconds until it takes too long, if it is under way."""
        key = daemon_set.metadata.key
        is_new = key not in self._seen
        self._seen.add(key)
        if is_new and key not in self._rolling and _is_rolling_for_us(daemon_set):
            self._rolling[key] = _Rollout(now)
        rollout = self._rolling.get(key)
        if rollout is None:
            return None
        if daemon_set.is_rolled_out:
            del self._rolling[key]
            return None
        rollout.is_confirmed = _is_confirmed(daemon_set)
        left = rollout.since + limit - now
        return left if left > 0 else None

    def is_too_slow(self, key: Key, now: float, *, limit: float) -> bool:
        """Whether it takes too long and was not found to before."""
        rollout = self._rolling.get(key)
        if rollout is None or rollout.is_slow or now < rollout.since + limit:
            return False
        rollout.is_slow = True
        return True

    def line_up(self, key: Key) -> None:
        """Its template is to be changed."""
        self._line.add(key)

    def is_turn_of(self, key: Key, *, most: int) -> bool:
        """Whether its template may be changed now; if not, it is called later. ``most``: how many may be under way."""
        if key in self._next(most):
            self._called.add(key)
            return True
        self._called.discard(key)
        return False

    def call(self, *, most: int) -> None:
        """Wakes those whose turn has come, once."""
        for key in self._next(most):
            if key not in self._called:
                self._called.add(key)
                self._wake(key)

    def begin(self, key: Key, now: float) -> None:
        """Its template was changed."""
        self.leave(key)
        self._rolling[key] = _Rollout(now)

    def leave(self, key: Key) -> None:
        """It needs no change, or cannot have one now."""
        self._line.discard(key)
        self._called.discard(key)

    def forget(self, key: Key) -> None:
        """It is gone."""
        self.leave(key)
        self._rolling.pop(key, None)
        self._seen.discard(key)

    def start_again(self) -> None:
        """A new leader knows nothing yet."""
        self._rolling.clear()
        self._line.clear()
        self._called.clear()
        self._seen.clear()

    def _next(self, most: int) -> list[Key]:
        under_way = {key for key, each in self._rolling.items() if not each.is_confirmed}
        return sorted(self._line - under_way, key=rollout_rank)[: max(most - len(under_way), 0)]


def _is_rolling_for_us(daemon_set: DaemonSet) -> bool:
    """Whether a former leader may have begun it. One whose pods are all replaced, but not all available, may as well be
    waiting for a node that is down, and holds nobody."""
    status = daemon_set.status
    return names.ADDED_TOLERATIONS_ANNOTATION in (daemon_set.metadata.annotations or {}) and (
        status.observed_generation < daemon_set.metadata.generation
        or status.updated_number_scheduled < status.desired_number_scheduled
    )


def _is_confirmed(daemon_set: DaemonSet) -> bool:
    annotations = daemon_set.metadata.annotations or {}
    return annotations.get(names.ROLLOUT_CONFIRMED_ANNOTATION) == str(daemon_set.metadata.generation)
