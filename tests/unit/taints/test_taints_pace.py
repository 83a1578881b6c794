"""How fast nodes are written."""

import pytest
from manual_clock import ManualClock

from polyarch.taints.nodes import NodeRateLimiter


def writes(pace: NodeRateLimiter, clock: ManualClock, seconds: float, *, at_once: bool = False) -> list[float]:
    """As many as are allowed, for so long."""
    began, times = clock.monotonic(), []
    while True:
        rest = pace.rest(at_once=at_once)
        if clock.monotonic() + rest >= began + seconds:
            clock.advance(began + seconds - clock.monotonic())
            return times
        clock.advance(rest)
        pace.take()
        times.append(clock.monotonic() - began)


def most_in_a_minute(times: list[float]) -> int:
    return max(sum(first <= each < first + 60 - 1e-6 for each in times) for first in times)


@pytest.mark.req("TN-026")
@pytest.mark.parametrize("per_minute", [1, 7, 60, 600])
def test_a_rollout_stands_at_equal_distances(per_minute: int) -> None:
    clock = ManualClock()
    times = writes(NodeRateLimiter(clock, per_minute), clock, 600)
    assert len(times) == pytest.approx(per_minute * 10, abs=1)
    assert most_in_a_minute(times) <= per_minute
    assert times[0] == pytest.approx(60 / per_minute)


@pytest.mark.req("TN-026")
def test_events_may_use_the_whole_minute_at_once() -> None:
    clock = ManualClock()
    pace = NodeRateLimiter(clock, 30)
    clock.advance(60)
    times = writes(pace, clock, 150, at_once=True)
    assert times[29] == 0
    assert times[30] == 60
    assert most_in_a_minute(times) == 30


@pytest.mark.req("TN-026")
def test_after_a_start_nothing_goes_at_once() -> None:
    clock = ManualClock()
    pace = NodeRateLimiter(clock, 30)
    clock.advance(600)
    pace.begin()
    assert writes(pace, clock, 59, at_once=True)[0] == pytest.approx(2)


@pytest.mark.req("TN-026")
def test_a_rollout_waits_for_room_after_a_burst() -> None:
    clock = ManualClock()
    pace = NodeRateLimiter(clock, 30)
    clock.advance(60)
    burst = writes(pace, clock, 1, at_once=True)
    assert len(burst) == 30
    assert writes(pace, clock, 58) == []
    assert pace.rest() == pytest.approx(1)


@pytest.mark.req("TN-026")
def test_late_turns_do_not_add_up() -> None:
    clock = ManualClock()
    pace = NodeRateLimiter(clock, 600)
    count, began = 0, clock.monotonic()
    while clock.monotonic() < began + 300:
        clock.advance(pace.rest() + 0.03)  # whoever writes is always a little late
        pace.take()
        count += 1
    assert count >= 0.95 * 3000


def test_a_lower_ceiling_holds_at_once() -> None:
    clock = ManualClock()
    pace = NodeRateLimiter(clock, 60)
    clock.advance(60)
    writes(pace, clock, 1, at_once=True)
    pace.per_minute = 10
    assert writes(pace, clock, 55, at_once=True) == []
