"""When architectures are tainted, in which order, and when that stops."""

import pytest

from polyarch.taints.node_rules import (
    PendingPodMonitor,
    RolloutPauseReason,
    RolloutPreconditions,
    held_back,
    in_order,
    stop_message,
)
from polyarch.taints.settings import TaintSettings

BOTH = TaintSettings(mode="both")
USUAL = TaintSettings()


@pytest.mark.req("TN-025")
@pytest.mark.parametrize(
    ("safety", "settings", "reason"),
    [
        (RolloutPreconditions(), USUAL, None),
        (RolloutPreconditions(admission="no webhook"), USUAL, RolloutPauseReason.ADMISSION_NOT_READY),
        (RolloutPreconditions(uncovered=["a/b"]), USUAL, RolloutPauseReason.DAEMON_SETS_NOT_COVERED),
        (RolloutPreconditions(uncovered=None), USUAL, RolloutPauseReason.DAEMON_SETS_NOT_COVERED),
        (RolloutPreconditions(uncovered=["a/b"]), TaintSettings(templates="ignore"), None),
        (RolloutPreconditions(undecided=["a/b"]), USUAL, None),
        (RolloutPreconditions(undecided=["a/b"]), BOTH, RolloutPauseReason.PODS_UNDECIDED),
        (RolloutPreconditions(undecided=None), BOTH, RolloutPauseReason.PODS_UNDECIDED),
        (RolloutPreconditions(running_prepared=False), USUAL, None),
        (
            RolloutPreconditions(running_prepared=False),
            TaintSettings(effect="NoExecute"),
            RolloutPauseReason.PODS_UNDECIDED,
        ),
        (
            RolloutPreconditions(admission="no webhook", uncovered=["a/b"], undecided=["a/b"]),
            BOTH,
            RolloutPauseReason.ADMISSION_NOT_READY,
        ),
        (
            RolloutPreconditions(admission="no webhook", uncovered=["a/b"], undecided=["a/b"]),
            TaintSettings(rollout="immediate"),
            None,
        ),
    ],
)
def test_what_holds_the_first_node_back(
    safety: RolloutPreconditions, settings: TaintSettings, reason: RolloutPauseReason | None
) -> None:
    hold = held_back("arm64", settings, safety)
    assert (hold.reason if hold is not None else None) == reason


@pytest.mark.req("TN-025")
def test_the_first_five_are_named() -> None:
    hold = held_back("arm64", USUAL, RolloutPreconditions(uncovered=[f"kube-system/d{number}" for number in range(7)]))
    assert hold is not None
    assert "kube-system/d4 and 2 more" in hold.message
    assert "d5" not in hold.message


@pytest.mark.req("TN-026")
def test_other_architectures_come_before_the_primary_ones() -> None:
    nodes = {"amd64": 1, "arm64": 30, "s390x": 2, "ppc64le": 2, "riscv64": 400}
    assert in_order(nodes, frozenset({"amd64"})) == ("ppc64le", "s390x", "arm64", "riscv64", "amd64")


# -- pods that became pending ------------------------------------------------------------------------------------------

POD = {"u1": "demo/app"}


def watched(*looks: tuple[float, dict[str, str]], tainted: float = 0.0) -> PendingPodMonitor:
    watch = PendingPodMonitor().looked(-1.0, {}).tainted(tainted)
    for now, pending in looks:
        watch = watch.looked(now, pending)
    return watch


@pytest.mark.req("TN-026")
def test_pods_that_appear_within_a_minute_stop_the_rollout() -> None:
    watch = watched((58, POD), (64, POD))
    assert watch.stopped
    assert "demo/app" in stop_message("arm64", watch.names)


@pytest.mark.req("TN-026")
def test_a_pod_that_gets_its_tolerations_at_once_stops_nothing() -> None:
    assert not watched((1, POD), (4, {}), (10, {})).stopped


@pytest.mark.req("TN-026")
def test_pods_that_appear_later_stop_nothing() -> None:
    assert not watched((61, POD), (70, POD), (100, POD)).stopped


@pytest.mark.req("TN-026")
def test_pods_that_were_pending_before_stop_nothing() -> None:
    watch = PendingPodMonitor().looked(0.0, POD).tainted(1.0).looked(2.0, POD).looked(9.0, POD)
    assert not watch.stopped


@pytest.mark.req("TN-026")
def test_a_later_batch_opens_the_window_again() -> None:
    watch = watched((100, {})).tainted(200.0).looked(210.0, POD).looked(216.0, POD)
    assert watch.stopped


@pytest.mark.req("TN-026")
def test_ten_minutes_without_such_pods_end_the_stop() -> None:
    watch = watched((1, POD), (7, POD), (20, {}), (619, {}))
    assert watch.stopped
    assert not watch.looked(620.0, {}).stopped


@pytest.mark.req("TN-026")
def test_another_such_pod_starts_the_ten_minutes_again() -> None:
    watch = watched((1, POD), (7, POD), (20, {}), (600, {"u2": "demo/other"}), (610, {}), (1200, {}))
    assert watch.stopped
    assert not watch.looked(1210.0, {}).stopped


@pytest.mark.req("TN-026")
def test_a_change_of_the_object_accepts_the_pods_there_are() -> None:
    watch = watched((1, POD), (7, POD)).accepted()
    assert not watch.stopped
    watch = watch.tainted(10.0).looked(11.0, POD).looked(20.0, POD)
    assert not watch.stopped
    assert watch.looked(21.0, POD | {"u2": "demo/other"}).looked(27.0, POD | {"u2": "demo/other"}).stopped


@pytest.mark.req("TN-026")
def test_a_stop_outlives_a_restart() -> None:
    watch = PendingPodMonitor(stopped=True).looked(0.0, POD).looked(700.0, POD)
    assert watch.stopped
    assert watch.names == ("demo/app",)
