"""Whatever happens, in whatever order: no event is lost, none is late, scans keep their distance."""

from math import isinf

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from polyarch.numa.exporter.schedule import MAX_QUIET_WAIT, ScanSchedule, ScanTrigger

pytestmark = pytest.mark.req("NE-116", "NE-117", "NE-118", "NE-119")

SLACK = 1e-6


class Exporter(RuleBasedStateMachine):
    """An exporter that scans for some time, waits till it is woken, and fails now and then."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.events: list[tuple[str, float, float]] = []
        """Reason, when it came up, and the latest second for its scan, of those no scan has taken."""
        self.last = -1e9
        self.last_refresh = 0.0
        self.running: ScanTrigger | None = None

    @initialize(
        interval=st.sampled_from([0.0, 5.0, 60.0]),
        allocatable=st.sampled_from([0.0, 5.0, 60.0]),
        rate=st.sampled_from([0.0, 0.5, 1.0, 10.0]),
        stretch=st.floats(0.9, 1.1),
    )
    def start(self, interval: float, allocatable: float, rate: float, stretch: float) -> None:
        self.gap = 1 / rate if rate else 0.0
        self.interval = interval
        self.allocatable = allocatable
        self.pacing = ScanSchedule(0, interval=interval, allocatable=allocatable, rate=rate, stretch=lambda: stretch)
        self.events.append(("start", 0, 0))

    @rule(seconds=st.floats(0.001, 30))
    def time_passes(self, seconds: float) -> None:
        """In which the exporter scans if it is free and a scan is due."""
        end = self.now + seconds
        while self.running is None and self.pacing.due <= end:
            self.now = max(self.now, self.pacing.due)
            self._take()
            self.running = None
        self.now = end

    @rule(reason=st.sampled_from(["notify", "socket", "node", "signal"]))
    def something_happens(self, reason: str) -> None:
        self.pacing.note(reason, self.now)
        self.events.append((reason, self.now, self.now))

    @rule(reason=st.sampled_from(["cpu", "memory", "devices"]))
    def the_kubelets_state_changes(self, reason: str) -> None:
        self.pacing.note_state(reason, self.now)
        self.events.append((reason, self.now, self.now + MAX_QUIET_WAIT))

    @rule()
    def the_state_is_looked_at(self) -> None:
        self.pacing.looked(self.now)

    @precondition(lambda self: self.running is None and self.pacing.due <= self.now)
    @rule()
    def a_scan_begins(self) -> None:
        self._take()

    @precondition(lambda self: self.running is not None)
    @rule()
    def the_scan_ends(self) -> None:
        self.running = None

    @precondition(lambda self: self.running is not None)
    @rule(after=st.floats(0.5, 30))
    def the_scan_fails(self, after: float) -> None:
        assert self.running is not None
        self.pacing.put_back(self.running, self.now + after)
        self.events.extend((reason, self.running.since, self.now + after) for reason in self.running.reasons)
        self.running = None

    def _take(self) -> None:
        due = self.pacing.due
        assert self.pacing.take(due - 0.01) is None, "a scan before it is due"
        wake = self.pacing.take(self.now)
        assert wake is not None
        assert self.now - self.last >= self.gap - SLACK, "scans are too close"
        for reason, since, _ in self.events:
            assert reason in wake.reasons, f"{reason} is lost"
            assert wake.since <= since + SLACK
        reactive = {reason for reason, *_ in self.events} - {"start", "timer", "allocatable"}
        assert wake.trigger == ("reactive" if reactive else "periodic")
        self.events.clear()
        self.last = self.now
        if wake.refreshes:
            self.last_refresh = self.now
        self.running = wake
        assert self.pacing.due > self.now or not self.gap, "one event made two scans"

    @invariant()
    def nothing_is_late(self) -> None:
        """The next scan is due no later than the latest second of each event, or when the rate allows it."""
        if not hasattr(self, "pacing"):
            return
        for reason, _, latest in self.events:
            assert self.pacing.due <= max(latest, self.last + self.gap) + SLACK, f"{reason} is late"
        if self.interval:
            assert self.pacing.due <= max(self.last, 0) + max(self.interval * 1.1, self.gap) + SLACK
        if self.allocatable:
            assert self.pacing.due <= max(self.last_refresh + self.allocatable, self.last + self.gap) + SLACK
        if not (self.interval or self.allocatable or self.events):
            assert isinf(self.pacing.due), "a scan for nothing"


TestPacing = Exporter.TestCase
