"""Rejected pods are tried again where room may have come free."""

import pytest
from numa_nodes import container, pod

from polyarch.numa.extender.engine import INTERVAL, MOST_PODS, MOST_TRIALS, REMEMBERED, UnschedulablePods
from polyarch.numa.fit.facts import PodFacts


def asking(name: str, cpu: float = 4) -> PodFacts:
    return pod(container("app", cpu=cpu), name=name)


class Trials:
    """What was tried."""

    def __init__(self, *fitting: tuple[str, str]) -> None:
        self.fitting = fitting
        self.tried: list[tuple[str, str]] = []

    def __call__(self, asked: PodFacts, node: str) -> bool:
        self.tried.append((asked.name, node))
        return (asked.name, node) in self.fitting


@pytest.mark.req("NS-140")
def test_a_rejected_pod_that_fits_a_freed_node_is_woken() -> None:
    waking, trials = UnschedulablePods(), Trials(("pod", "two"))
    waking.rejected(asking("pod"), 0.0)
    assert waking.woken(1.0, trials) == ""
    for node in ("one", "two"):
        waking.freed(node)
    assert waking.woken(2.0, trials) == "two"
    assert trials.tried == [("pod", "one"), ("pod", "two")]


@pytest.mark.req("NS-140")
def test_a_pod_for_which_something_is_kept_is_tried_beside_others_that_ask_for_the_same() -> None:
    waking, trials = UnschedulablePods(), Trials(("two", "node"))
    waking.rejected(asking("one"), 0.0)
    waking.rejected(asking("two"), 0.0, has_own=True)
    waking.freed("node")
    assert waking.woken(1.0, trials) == "node"


@pytest.mark.req("NS-140")
def test_what_has_not_changed_is_not_tried_again() -> None:
    waking, trials = UnschedulablePods(), Trials()
    waking.rejected(asking("pod"), 0.0)
    waking.freed("one")
    assert waking.woken(2.0, trials) == ""
    assert waking.woken(4.0, trials) == ""
    assert trials.tried == [("pod", "one")]


@pytest.mark.req("NS-140")
def test_nobody_is_woken_twice_within_a_second() -> None:
    waking, trials = UnschedulablePods(), Trials(("pod", "one"))
    waking.rejected(asking("pod"), 0.0)
    waking.freed("one")
    assert waking.woken(2.0, trials) == "one"
    waking.freed("one")
    assert waking.woken(2.0 + INTERVAL / 2, trials) == ""
    assert waking.woken(2.0 + INTERVAL, trials) == "one"


@pytest.mark.req("NS-140")
def test_pods_that_are_bound_or_rejected_long_ago_wake_nobody() -> None:
    waking, trials = UnschedulablePods(), Trials(("bound", "one"), ("old", "one"))
    waking.rejected(asking("old", 3), 0.0)
    waking.rejected(asking("bound"), 1.0)
    waking.forget("bound")
    waking.freed("one")
    assert waking.woken(REMEMBERED + 1.0, trials) == ""
    assert len(waking) == 0
    assert trials.tried == []


@pytest.mark.req("NS-140")
def test_of_too_many_pods_the_oldest_are_forgotten() -> None:
    waking, trials = UnschedulablePods(), Trials()
    for number in range(MOST_PODS + 1):
        waking.rejected(asking(f"pod-{number}", cpu=1 + number % 2), float(number) / MOST_PODS)
    assert len(waking) == MOST_PODS
    waking.freed("one")
    waking.woken(2.0, trials)
    assert sorted(trials.tried) == [("pod-0", "one"), ("pod-1", "one")]


@pytest.mark.req("NS-140")
def test_a_call_makes_few_decisions_and_the_next_one_goes_on() -> None:
    waking, trials = UnschedulablePods(), Trials((f"pod-{MOST_TRIALS}", "one"))
    for number in range(MOST_TRIALS + 1):
        waking.rejected(asking(f"pod-{number}", cpu=1 + number), 0.0)
    waking.freed("one")
    assert waking.woken(1.0, trials) == ""
    assert len(trials.tried) == MOST_TRIALS
    assert waking.woken(1.5, trials) == "one"
    assert len(trials.tried) == MOST_TRIALS + 1
