"""How long a feature waits between attempts for an image, by the class of its failure."""

import pytest

from polyarch.images.backoff import Backoff

SLOW = Backoff(most=120.0, every={"absent": 60.0, "auth": 120.0})


@pytest.mark.req("TN-046")
@pytest.mark.parametrize("failure", ["transient", "limit"])
def test_what_time_cures_is_asked_for_after_one_second_and_then_less_often(failure):
    delays = [SLOW.delay(number, failure, uniform=0.5) for number in range(1, 10)]
    assert delays == [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 120.0, 120.0]


@pytest.mark.req("TN-046")
@pytest.mark.parametrize(("failure", "seconds"), [("absent", 60.0), ("auth", 120.0)])
def test_what_somebody_has_to_mend_is_asked_for_at_its_interval(failure, seconds):
    assert {SLOW.delay(number, failure, uniform=0.5) for number in (1, 2, 50)} == {seconds}


@pytest.mark.req("TN-046")
def test_a_registry_may_ask_for_more_time():
    assert SLOW.delay(1, "limit", uniform=0.5, retry_after=300.0) == 300.0
    assert SLOW.delay(1, "absent", uniform=0.5, retry_after=5.0) == 60.0


@pytest.mark.req("TN-046")
@pytest.mark.parametrize("failure", ["transient", "absent"])
def test_no_retry_comes_at_once(failure):
    """Not a hot loop, whatever chance says."""
    assert min(SLOW.delay(number, failure, uniform=0.0) for number in range(1, 100)) >= 0.75
