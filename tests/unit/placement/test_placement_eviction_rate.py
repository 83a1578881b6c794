"""How many pods may be evicted, and whose."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polyarch.placement.sweep_rules import MAX_OWNERS, NO_HELP_INTERVAL, OWNER_INTERVAL, EvictionRateLimiter

BEFORE, AFTER = "2026-01-01T00:00:00Z", "2026-01-01T00:00:01Z"


def evict(allowance, owner, now, *, latest=BEFORE):
    allowance.tried(now)
    allowance.granted(owner, now, latest=latest)


@pytest.mark.req("PL-371")
def test_one_pod_of_an_owner_in_five_minutes():
    allowance = EvictionRateLimiter()
    assert allowance.wait("web", 0.0, per_minute=10) == 0
    evict(allowance, "web", 0.0)
    assert allowance.wait("web", 100.0, per_minute=10) == OWNER_INTERVAL - 100
    assert allowance.wait("other", 100.0, per_minute=10) == 0
    assert allowance.wait("web", OWNER_INTERVAL, per_minute=10) == 0


@pytest.mark.req("PL-371")
def test_not_within_an_hour_if_the_new_pod_was_missed_as_well():
    """Never twice for one owner within an hour if it did not help."""
    allowance = EvictionRateLimiter()
    evict(allowance, "web", 0.0)
    allowance.saw("web", AFTER)
    assert allowance.wait("web", OWNER_INTERVAL, per_minute=10) == NO_HELP_INTERVAL - OWNER_INTERVAL
    assert allowance.wait("web", NO_HELP_INTERVAL, per_minute=10) == 0


@pytest.mark.req("PL-371")
def test_a_pod_that_was_there_before_says_nothing_about_whether_it_helped():
    """The other replicas, which were missed at the same time, follow every five minutes."""
    allowance = EvictionRateLimiter()
    evict(allowance, "web", 0.0)
    allowance.saw("web", BEFORE)
    assert allowance.wait("web", OWNER_INTERVAL, per_minute=10) == 0


@pytest.mark.req("PL-371")
def test_what_was_refused_counts_for_the_minute_but_not_for_the_owner():
    """A PodDisruptionBudget may refuse all; the API server is not asked more often for that."""
    allowance = EvictionRateLimiter()
    for _ in range(3):
        allowance.tried(0.0)
    assert allowance.wait("web", 1.0, per_minute=3) == 59
    assert allowance.wait("web", 60.0, per_minute=3) == 0


@pytest.mark.req("PL-371")
@given(
    st.lists(st.tuples(st.integers(0, 3), st.floats(0, 90)), max_size=60),
    st.integers(1, 5),
)
def test_no_minute_has_more_than_the_policy_allows_and_no_owner_more_than_one_in_five(steps, per_minute):
    """Whatever is found when: a property."""
    allowance, now, made = EvictionRateLimiter(), 0.0, []
    for owner, passed in steps:
        now += passed
        if allowance.wait(str(owner), now, per_minute=per_minute) <= 0:
            evict(allowance, str(owner), now)
            made.append((now, owner))
    for at, owner in made:
        assert sum(at <= other < at + 60 for other, _ in made) <= per_minute
        assert sum(at <= other < at + OWNER_INTERVAL and whose == owner for other, whose in made) == 1


@pytest.mark.req("PL-854")
def test_what_is_remembered_is_bounded():
    allowance = EvictionRateLimiter()
    for number in range(MAX_OWNERS + 10):
        evict(allowance, str(number), 0.0)
    assert len(allowance) == MAX_OWNERS
    allowance.wait("any", NO_HELP_INTERVAL, per_minute=1)
    assert len(allowance) == 0
