"""Which scan comes next, when, and for which reasons.

Every event is pending until a scan takes it, and a scan takes all that is pending. So events during a scan make
exactly one more, and events above the rate wait and are not lost. A scan that failed is put back with its reasons.
Pure: time is a number that is passed in.
"""

from collections.abc import Callable
from math import inf
from typing import Final, Literal

import msgspec

ScanReason = Literal["start", "timer", "allocatable", "cpu", "memory", "devices", "notify", "socket", "node", "signal"]
"""``cpu``, ``memory``, ``devices``: that checkpoint of the kubelet changed; ``socket``: the kubelet restarted;
``allocatable``: the allocatable resources have to be requested again."""

TIMED: Final = frozenset[ScanReason]({"start", "timer", "allocatable"})
REFRESHING: Final = frozenset[ScanReason]({"start", "allocatable", "devices", "socket", "node"})
"""After these the allocatable resources are requested from the kubelet."""
QUIET_PERIOD: Final = 0.2
"""Seconds without another change of the kubelet's checkpoints before a scan."""
MAX_QUIET_WAIT: Final = 1.0
"""Seconds from the first change to the scan, however busy the kubelet is."""
EARLY: Final = 0.25
"""A timer whose last quarter has begun rings with a scan that is made anyway: two timers make one scan."""


class ScanTrigger(msgspec.Struct, frozen=True):
    """A scan is to be made."""

    trigger: Literal["periodic", "reactive"]
    reasons: frozenset[ScanReason]
    since: float
    """When the first of the reasons came up, on the clock of the caller."""

    @property
    def refreshes(self) -> bool:
        """Whether to request the allocatable resources as well."""
        return not REFRESHING.isdisjoint(self.reasons)


class _Timer:
    """Rings every ``interval`` seconds, never if that is 0."""

    def __init__(self, interval: float, stretch: Callable[[], float]) -> None:
        self._interval = interval
        self._stretch = stretch
        self.due = inf

    def start(self, now: float) -> None:
        if self._interval > 0:
            self.due = now + self._interval * self._stretch()

    def rings(self, now: float) -> bool:
        """Whether a scan that is made now rings it too."""
        return now >= self.due - EARLY * self._interval


class ScanSchedule:
    """The events, timers and limits between two scans."""

    def __init__(
        self, now: float, *, interval: float, allocatable: float, rate: float, stretch: Callable[[], float]
    ) -> None:
        """``interval`` and ``allocatable``: seconds, 0 for never; ``rate``: scans per second at most, 0 for any.

        ``stretch`` gives the factor of each interval, so that nodes spread.
        """
        self._timer = _Timer(interval, stretch)
        self._allocatable = _Timer(allocatable, lambda: 1.0)
        self._gap = 1 / rate if rate > 0 else 0.0
        self._earliest = -inf
        self._pending: dict[ScanReason, float] = {}
        self._wanted = inf
        self._quiet = inf
        self._busy_since: float | None = None
        self._timer.start(now)
        self._allocatable.start(now)
        self.note("start", now)

    def note(self, reason: ScanReason, now: float) -> None:
        """An event: a scan is wanted at once."""
        self._pending.setdefault(reason, now)
        self._wanted = min(self._wanted, now)

    def note_state(self, reason: ScanReason, now: float) -> None:
        """A checkpoint changed: a scan is wanted when the kubelet is quiet."""
        self._pending.setdefault(reason, now)
        if self._busy_since is None:
            self._busy_since = now
        self._quiet = min(now + QUIET_PERIOD, self._busy_since + MAX_QUIET_WAIT)

    def looked(self, now: float) -> None:
        """The checkpoints were looked at, and every change noted."""
        if now >= self._quiet:
            self._wanted = min(self._wanted, self._quiet)
            self._quiet = inf

    def put_back(self, trigger: ScanTrigger, again: float) -> None:
        """The scan failed: its reasons stand, and it is made again at ``again``, or with any scan before that."""
        for reason in trigger.reasons:
            self._pending[reason] = min(trigger.since, self._pending.get(reason, inf))
        self._wanted = min(self._wanted, again)

    @property
    def quiet(self) -> float:
        """When to look at the checkpoints next, as the kubelet is quiet if nothing changed since; infinite if it is."""
        return self._quiet

    @property
    def due(self) -> float:
        """When ``take`` gives the next scan, if nothing else happens."""
        return max(self._earliest, min(self._wanted, self._quiet, self._timer.due, self._allocatable.due))

    def take(self, now: float) -> ScanTrigger | None:
        """The scan that is due, with all that is pending; None if none is."""
        if now < self.due:
            return None
        if self._timer.rings(now):
            self._pending.setdefault("timer", min(now, self._timer.due))
            self._timer.start(now)
        if self._allocatable.rings(now):
            self._pending.setdefault("allocatable", min(now, self._allocatable.due))
        reasons = frozenset(self._pending)
        trigger = ScanTrigger("periodic" if reasons <= TIMED else "reactive", reasons, min(self._pending.values()))
        if trigger.refreshes:
            self._allocatable.start(now)
        self._pending = {}
        self._wanted = self._quiet = inf
        self._busy_since = None
        self._earliest = now + self._gap
        return trigger
