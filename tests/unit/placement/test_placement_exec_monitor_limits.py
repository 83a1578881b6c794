"""A container once in ten minutes, a node five times a second."""

import pytest

from polyarch.placement import exec_monitor_rules
from polyarch.placement.exec_monitor_rules import ReportRateLimiter


@pytest.mark.req("PL-606")
def test_a_container_is_reported_once_in_ten_minutes() -> None:
    mine = ReportRateLimiter()
    assert mine.admit("a", 0.0)
    assert mine.is_duplicate("a", 599.9)
    assert not mine.is_duplicate("b", 599.9)
    assert not mine.is_duplicate("a", 600.0)
    assert mine.admit("a", 600.0)
    assert mine.is_duplicate("a", 1199.0)


@pytest.mark.req("PL-606")
def test_a_node_reports_ten_at_once_and_then_five_a_second() -> None:
    mine = ReportRateLimiter()
    assert [mine.admit(f"c{number}", 100.0) for number in range(12)] == [True] * 10 + [False] * 2
    assert [mine.admit(f"d{number}", 101.0) for number in range(6)] == [True] * 5 + [False]
    assert not mine.is_duplicate("d5", 101.0), "what was not admitted may be reported later"
    assert [mine.admit(f"e{number}", 500.0) for number in range(11)] == [True] * 10 + [False]


@pytest.mark.req("PL-606")
def test_what_is_remembered_is_bounded() -> None:
    mine = ReportRateLimiter()
    for number in range(exec_monitor_rules.MAX_CONTAINERS + 1):
        assert mine.admit(str(number), float(number))
    assert not mine.is_duplicate("0", float(exec_monitor_rules.MAX_CONTAINERS))
    assert mine.is_duplicate("4000", float(exec_monitor_rules.MAX_CONTAINERS))
