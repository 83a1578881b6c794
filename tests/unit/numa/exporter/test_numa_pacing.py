"""Which scan comes when: tables of what happens at which second."""

from math import inf

import pytest

from polyarch.numa.exporter.schedule import ScanSchedule, ScanTrigger


def pacing(
    *, interval: float = 0, allocatable: float = 0, rate: float = 0, stretch: float = 1.0, started: bool = True
) -> ScanSchedule:
    """At second 0; ``started``: the first scan has been taken."""
    made = ScanSchedule(0, interval=interval, allocatable=allocatable, rate=rate, stretch=lambda: stretch)
    if started:
        assert made.take(0) is not None
    return made


def wakes(of: ScanSchedule, until: float) -> list[tuple[float, str, list[str]]]:
    """Second, trigger and reasons of every scan until then, each taken when it is due."""
    taken = []
    while (due := of.due) <= until:
        wake = of.take(due)
        assert wake is not None
        taken.append((round(due, 3), wake.trigger, sorted(wake.reasons)))
    return taken


@pytest.mark.req("NE-117")
def test_the_first_scan_is_at_once_and_all_is_asked() -> None:
    """The timer."""
    wake = pacing(interval=60, started=False).take(0)
    assert wake == ScanTrigger("periodic", frozenset({"start"}), 0)
    assert wake.refreshes


@pytest.mark.req("NE-117")
def test_then_one_scan_per_interval() -> None:
    assert wakes(pacing(interval=10), 35) == [(second, "periodic", ["timer"]) for second in (10, 20, 30)]


@pytest.mark.req("NE-117")
@pytest.mark.parametrize("stretch", [0.9, 1.1])
def test_the_interval_is_stretched_so_that_nodes_spread(stretch: float) -> None:
    assert wakes(pacing(interval=10, stretch=stretch), 12) == [(10 * stretch, "periodic", ["timer"])]


@pytest.mark.req("NE-117")
def test_zero_disables_the_timer_and_nothing_else() -> None:
    paces = pacing(interval=0, allocatable=60)
    paces.note("node", 5)
    assert wakes(paces, 100) == [(5, "reactive", ["node"]), (65, "periodic", ["allocatable"])]
    assert pacing().due == inf


@pytest.mark.req("NE-118")
def test_a_scan_follows_200_ms_of_quiet() -> None:
    """Changes of the kubelet's files."""
    paces = pacing()
    paces.note_state("cpu", 5)
    paces.note_state("memory", 5.1)
    assert wakes(paces, 10) == [(5.3, "reactive", ["cpu", "memory"])]


@pytest.mark.req("NE-118")
def test_a_kubelet_that_never_gets_quiet_waits_one_second_for_a_scan() -> None:
    paces = pacing()
    for step in range(8):
        paces.note_state("cpu", 5 + step * 0.15)
    assert paces.due == 6


@pytest.mark.req("NE-118")
def test_any_other_trigger_takes_the_change_along() -> None:
    paces = pacing()
    paces.note_state("cpu", 5)
    paces.note("notify", 5.1)
    assert wakes(paces, 10) == [(5.1, "reactive", ["cpu", "notify"])]


@pytest.mark.req("NE-119")
def test_events_during_a_scan_make_exactly_one_more() -> None:
    """A scan lasts from 0 to 3."""
    paces = pacing(rate=1)
    for second, reason in ((1, "notify"), (1.5, "signal"), (2, "notify"), (2.5, "socket")):
        paces.note(reason, second)
    wake = paces.take(3)
    assert wake == ScanTrigger("reactive", frozenset({"notify", "signal", "socket"}), 1)
    assert paces.take(10) is None


@pytest.mark.req("NE-119")
def test_events_above_the_rate_wait_and_are_not_lost() -> None:
    paces = pacing(rate=0.5)
    paces.note("signal", 0.1)
    assert paces.take(1.9) is None
    assert paces.take(2) == ScanTrigger("reactive", frozenset({"signal"}), 0.1)
    paces.note_state("cpu", 2.1)
    assert wakes(paces, 60) == [(4, "reactive", ["cpu"])]


@pytest.mark.req("NE-119")
def test_a_state_that_is_quiet_before_its_turn_asks_for_no_more_looks() -> None:
    """Otherwise whoever waits for the rate would look without a pause."""
    paces = pacing(rate=0.1)
    paces.note_state("cpu", 1)
    paces.looked(1.2)
    assert paces.quiet == inf
    assert wakes(paces, 20) == [(10, "reactive", ["cpu"])]


@pytest.mark.req("NE-116")
def test_the_timer_is_bound_by_the_rate_too() -> None:
    assert [second for second, *_ in wakes(pacing(interval=0.1, rate=1), 3)] == [1, 2, 3]


@pytest.mark.req("NE-054")
@pytest.mark.parametrize("reason", ["devices", "socket", "node"])
def test_what_may_change_allocatable_asks_for_it_again(reason: str) -> None:
    paces = pacing()
    paces.note(reason, 5)
    wake = paces.take(5)
    assert wake is not None
    assert wake.refreshes


@pytest.mark.req("NE-054")
@pytest.mark.parametrize("reason", ["cpu", "memory", "notify", "signal"])
def test_other_events_do_not(reason: str) -> None:
    paces = pacing()
    paces.note(reason, 5)
    wake = paces.take(5)
    assert wake is not None
    assert not wake.refreshes


@pytest.mark.req("NE-054")
def test_zero_asks_for_allocatable_after_events_only() -> None:
    assert wakes(pacing(interval=60, allocatable=0), 200) == [
        (second, "periodic", ["timer"]) for second in (60, 120, 180)
    ]


@pytest.mark.req("NE-054")
def test_allocatable_is_never_older_than_its_interval() -> None:
    """Although the timer is slower."""
    paces = pacing(interval=3600, allocatable=60)
    assert [second for second, *_ in wakes(paces, 200)] == [60, 120, 180]


@pytest.mark.req("NE-054")
@pytest.mark.parametrize("stretch", [0.9, 1.0, 1.1])
def test_the_two_timers_of_a_minute_make_one_scan_a_minute(stretch: float) -> None:
    found = wakes(pacing(interval=60, allocatable=60, stretch=stretch), 600)
    assert {tuple(reasons) for _, _, reasons in found} == {("allocatable", "timer")}
    assert len(found) <= 11


@pytest.mark.req("NE-054")
def test_after_an_event_that_asks_the_interval_starts_anew() -> None:
    paces = pacing(allocatable=60)
    paces.note("devices", 30)
    assert wakes(paces, 100) == [(30, "reactive", ["devices"]), (90, "periodic", ["allocatable"])]


def test_a_scan_that_failed_comes_again_with_its_reasons() -> None:
    paces = pacing()
    paces.note("devices", 5)
    wake = paces.take(5)
    assert wake is not None
    paces.put_back(wake, 7)
    assert paces.take(6.9) is None
    again = paces.take(7)
    assert again == wake


def test_a_kubelet_that_is_back_does_not_wait_for_the_retry() -> None:
    paces = pacing()
    paces.note("devices", 5)
    wake = paces.take(5)
    assert wake is not None
    paces.put_back(wake, 35)
    paces.note("socket", 8)
    assert wakes(paces, 100) == [(8, "reactive", ["devices", "socket"])]


def test_a_failed_scan_of_the_timer_stays_periodic() -> None:
    paces = pacing(interval=60, started=False)
    wake = paces.take(0)
    assert wake is not None
    paces.put_back(wake, 1)
    assert wakes(paces, 2) == [(1, "periodic", ["start"])]
