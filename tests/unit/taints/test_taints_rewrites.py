"""Somebody takes our tolerations away again and again: the pauses, and when they begin anew."""

import pytest

from polyarch.objects import ObjectKey
from polyarch.taints.daemonset_rollouts import FIRST_PAUSE, MAX_PAUSE, RewriteBackoff

AGENT, OTHER = ObjectKey("team", "agent"), ObjectKey("team", "other")


def written(*times: float) -> RewriteBackoff:
    rewrites = RewriteBackoff()
    for at in times:
        rewrites.wrote(AGENT, ["arm64"], at)
    return rewrites


@pytest.mark.req("TN-053")
@pytest.mark.parametrize(
    ("times", "pause"),
    [
        ((0.0,), 60.0),
        ((0.0, 100.0), 120.0),
        ((0.0, 100.0, 300.0), 240.0),
        (tuple(number * MAX_PAUSE for number in range(9)), MAX_PAUSE),
        (tuple(number * MAX_PAUSE for number in range(2000)), MAX_PAUSE),
    ],
)
def test_each_time_it_is_left_alone_twice_as_long_and_an_hour_at_most(times: tuple[float, ...], pause: float) -> None:
    rewrites = written(*times)
    assert rewrites.rest(AGENT, ["arm64"], times[-1]) == pause
    assert rewrites.rest(AGENT, ["arm64"], times[-1] + pause - 1) == 1.0
    assert rewrites.rest(AGENT, ["arm64"], times[-1] + pause + 5) == 0.0


@pytest.mark.req("TN-053")
def test_what_was_never_added_is_added_at_once() -> None:
    rewrites = written(0.0)
    assert rewrites.rest(OTHER, ["arm64"], 0.0) == 0.0
    assert rewrites.rest(AGENT, ["arm64", "s390x"], 0.0) == 0.0
    rewrites.forget(AGENT)
    assert rewrites.rest(AGENT, ["arm64"], 0.0) == 0.0


@pytest.mark.req("TN-053")
@pytest.mark.parametrize(("later", "pause"), [(2 * MAX_PAUSE - 1, 4 * FIRST_PAUSE), (2 * MAX_PAUSE, FIRST_PAUSE)])
def test_two_hours_in_peace_and_the_pauses_begin_anew(later: float, pause: float) -> None:
    rewrites = written(0.0, 100.0, 100.0 + later)
    assert rewrites.rest(AGENT, ["arm64"], 100.0 + later) == pause


@pytest.mark.req("TN-053")
def test_who_took_them_away_twice_is_told_of() -> None:
    """Once is a manifest that was applied again; twice is somebody who does it each time."""
    assert written(0.0, 100.0).contested == ()
    assert written(0.0, 100.0, 300.0).contested == (AGENT,)
    assert written(0.0, 100.0, 300.0, 300.0 + 2 * MAX_PAUSE).contested == ()
