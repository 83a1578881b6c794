"""Which versions of an object show a pod, and when its reservation ends for want of one."""

import time

import pytest
from numa_ledgers import (
    CELLS_OF_FOUR,
    GRACE,
    RULES,
    admitted,
    bound,
    choose,
    cpus,
    exclusive,
    started_ledger,
    told,
    version,
)
from numa_nodes import cell, container, node, pod

from polyarch.numa.bound_pods import EXCLUSIVE, MOST_SETS, BoundPod, is_exclusive_by_spec, match_fingerprint
from polyarch.numa.facts import PodPattern
from polyarch.numa.fingerprint import fingerprint
from polyarch.numa.fit.facts import PodFacts
from polyarch.numa.reservations import ReservationCache, is_listed

SETTLED = [("released", "settled", "pod")]


def with_bound_pod(facts: PodFacts, *, method: str = EXCLUSIVE) -> ReservationCache:
    """Version 1 shows nothing; the pod is bound, and not admitted."""
    ledger, empty = started_ledger(), version(1, method=method)
    ledger.topology_seen(empty, 0.0)
    choose(ledger, facts, empty, now=1.0)
    ledger.pod_seen(bound(facts, version=2), 2.0)
    return ledger


def resident(name: str, *, is_shown: bool = False) -> BoundPod:
    found = BoundPod(exclusive(name))
    found.is_listed = found.is_listed_by_spec = True
    found.is_shown = is_shown
    return found


@pytest.mark.req("NS-104")
def test_sets_that_differ_little_from_the_pods_of_now_are_found() -> None:
    there = [resident("a", is_shown=True), resident("b"), resident("c"), resident("d")]
    gone, over = [resident("x"), resident("y")], [resident("z")]
    cases = {"abcd": (0, 0, False), "abc": (1, 0, False), "a": (3, 0, False), "abcdx": (0, 1, False)}
    cases |= {"abxy": (2, 2, False), "abcdz": (0, 0, True), "abcxz": (1, 1, True)}
    for names, (removed, departed, with_ended) in cases.items():
        found = match_fingerprint(fingerprint(("default", name) for name in names), EXCLUSIVE, there, gone, over)
        assert found is not None, names
        assert (len(found.removed), found.departed, found.with_ended) == (removed, departed, with_ended)
    for names in ("bcd", "acd", "abcdy", ""):
        assert match_fingerprint(fingerprint(("default", name) for name in names), EXCLUSIVE, there, gone, over) is None
    assert match_fingerprint("", EXCLUSIVE, there, gone, over) is None


@pytest.mark.req("NS-104")
def test_all_pods_count_where_the_method_says_so() -> None:
    plain = BoundPod(pod(container("app"), name="plain", qos="BestEffort"))
    there = [resident("a"), plain]
    text = fingerprint([("default", "a"), ("default", "plain")])
    assert match_fingerprint(text, "all", there, [], []) is not None
    assert match_fingerprint(text, EXCLUSIVE, there, [], []) is None


@pytest.mark.req("NS-104", "NS-171")
def test_no_more_sets_are_tried_than_the_limit_and_in_time() -> None:
    """256 sets of 250 pods within 150 ms."""
    there, gone = [resident(f"pod-{number}") for number in range(250)], [resident(f"x-{n}") for n in range(100)]
    began = time.process_time()
    assert match_fingerprint("pfp0v0010000000000000000", EXCLUSIVE, there, gone, []) is None
    taken = time.process_time() - began
    assert taken < 0.15, f"{MOST_SETS} sets took {taken * 1000:.0f} ms"


@pytest.mark.req("NS-105")
def test_exclusive_by_spec() -> None:
    node = version(1)
    asked = {
        "whole CPUs": (pod(container("app", cpu=2)), True),
        "memory": (pod(container("app", memory=1)), True),
        "a part of a CPU": (pod(container("app", cpu=0.5)), False),
        "a device that a cell lists": (pod(container("app", nic=1), qos="Burstable"), True),
        "a device that no cell lists": (pod(container("app", gpu=1), qos="Burstable"), False),
        "CPUs of a pod without limits": (pod(container("app", cpu=2), qos="Burstable"), False),
        "an init container alone": (pod(container("init", "init", cpu=2), container("app", cpu=0.5)), False),
        "a sidecar": (pod(container("side", "sidecar", cpu=2)), True),
    }
    assert {what: is_exclusive_by_spec(facts, node) for what, (facts, _) in asked.items()} == {
        what: expected for what, (_, expected) in asked.items()
    }


@pytest.mark.req("NS-105")
@pytest.mark.parametrize(("has", "counts"), [(0, False), (1, True)])
def test_a_device_of_which_zones_have_nothing_is_exclusive_to_nobody(has: int, *, counts: bool) -> None:
    """It is listed since its kubelet aligns it, on NUMA nodes that the machine does not have."""
    there = node(cell(0, cpu=4), cell(1, nic=has), policy="best-effort")
    for needs in ({"nic": 1}, {"nic": 1, "cpu": 0.5}):
        asking = pod(container("app", **needs), qos="Burstable")
        assert (is_listed(asking, there), is_exclusive_by_spec(asking, there)) == (counts, counts)
    assert is_listed(pod(container("app", nic=1, cpu=2, memory=1)), there)


@pytest.mark.req("NS-104")
def test_an_exporter_that_counts_by_spec_is_understood() -> None:
    """Its CPU manager gives nothing to anybody, but whole CPUs were requested."""
    ledger = started_ledger()
    quiet, busy = exclusive("quiet", cpu=2), exclusive("busy", cpu=2)
    ledger.topology_seen(version(1, cpu_manager="none", memory_manager="None"), 0.0)
    for each in (quiet, busy):
        ledger.pod_seen(admitted(each), 1.0)
    ledger.topology_seen(version(2, [quiet, busy], cpu_manager="none", memory_manager="None"), 2.0)
    assert ledger.is_explained("worker")


@pytest.mark.req("NS-106")
def test_a_pod_with_a_predecessor_of_its_name_needs_a_version_after_its_admission() -> None:
    old, new = exclusive("pod", uid="old"), exclusive("pod", uid="pod")
    ledger = with_bound_pod(old)
    shown = version(3, [old], used=({"cpu": 4, "memory": 4}, {}))
    ledger.topology_seen(shown, 3.0)
    assert ledger.is_settled("old")
    ledger.pod_gone("old", 10.0)
    choose(ledger, new, shown, now=11.0)
    assert told(ledger.pod_seen(bound(new, version=4), 12.0)) == [("bound", "seen", "pod")]
    assert told(ledger.pod_seen(admitted(new, version=5), 13.0)) == []
    assert told(ledger.topology_seen(version(6, [new], used=({}, {"cpu": 4, "memory": 4})), 14.0)) == SETTLED


@pytest.mark.req("NS-106")
def test_a_version_written_before_the_admission_and_seen_after_it_does_not_count() -> None:
    old, new = exclusive("pod", uid="old"), exclusive("pod", uid="pod")
    ledger = with_bound_pod(old)
    ledger.pod_gone("old", 3.0)
    choose(ledger, new, version(1), now=4.0)
    ledger.pod_seen(admitted(new, version=9), 5.0)
    assert told(ledger.topology_seen(version(8, [old]), 6.0)) == []
    assert told(ledger.topology_seen(version(10, [new]), 7.0)) == SETTLED


@pytest.mark.req("NS-106")
def test_a_namesake_that_needs_no_new_version_is_settled_after_the_grace() -> None:
    old, new = exclusive("pod", uid="old"), exclusive("pod", uid="pod")
    ledger = with_bound_pod(old)
    shown = version(3, [old], used=({"cpu": 4, "memory": 4}, {}))
    ledger.topology_seen(shown, 3.0)
    ledger.pod_gone("old", 10.0)
    choose(ledger, new, shown, now=11.0)
    ledger.pod_seen(admitted(new, version=5), 20.0)
    assert told(ledger.tick(20.0 + GRACE - 0.1)) == []
    assert told(ledger.tick(20.0 + GRACE)) == SETTLED


@pytest.mark.req("NS-106")
def test_a_fingerprint_of_all_pods_needs_the_admission() -> None:
    facts = exclusive("pod")
    ledger = with_bound_pod(facts, method="all")
    assert told(ledger.topology_seen(version(3, [facts], method="all"), 3.0)) == []
    assert told(ledger.pod_seen(admitted(facts, version=4), 4.0)) == []
    assert told(ledger.topology_seen(version(5, [facts], method="all"), 5.0)) == SETTLED


@pytest.mark.req("NS-107")
def test_nothing_is_dropped_while_a_set_without_the_pod_explains_the_object() -> None:
    facts = exclusive("pod")
    ledger = with_bound_pod(facts)
    ledger.pod_seen(admitted(facts, version=3), 3.0)
    ledger.topology_seen(version(4), 400.0)
    assert told(ledger.tick(1000.0)) == []
    assert cpus(ledger) == {0: 4}
    assert [(each.node, each.seconds) for each in ledger.silent(1000.0)] == [("worker", 997.0)]


@pytest.mark.req("NS-107")
def test_an_unexplained_object_settles_a_pod_once_its_exporter_has_scanned_since() -> None:
    facts, stranger = exclusive("pod"), exclusive("stranger")
    ledger = with_bound_pod(facts)
    ledger.pod_seen(admitted(facts, version=3), 3.0)
    assert told(ledger.topology_seen(version(4, [stranger]), 4.0)) == []
    assert told(ledger.tick(3.0 + GRACE)) == []
    assert told(ledger.topology_seen(version(5, [stranger, stranger]), 3.1 + GRACE)) == [
        ("released", "unexplained", "pod")
    ]
    (finding,) = ledger.findings()
    assert (finding.kind, finding.node) == ("unexplained", "worker")
    assert fingerprint([("default", "stranger")] * 2) in finding.message
    assert fingerprint([("default", "pod")]) in finding.message
    assert ledger.findings() == []


@pytest.mark.req("NS-107")
def test_an_exporter_that_was_ready_all_the_time_has_scanned() -> None:
    for ready_since, is_ready, expected in ((2.0, True, True), (3.5, True, False), (2.0, False, False)):
        facts, stranger = exclusive("pod"), exclusive("stranger")
        ledger = with_bound_pod(facts)
        ledger.exporter_seen("worker", is_ready=True, now=ready_since)
        ledger.pod_seen(admitted(facts, version=3), 3.0)
        ledger.topology_seen(version(4, [stranger]), 4.0)
        if not is_ready:
            ledger.exporter_seen("worker", is_ready=False, now=5.0)
        released = told(ledger.tick(3.0 + GRACE))
        assert released == ([("released", "unexplained", "pod")] if expected else [])


@pytest.mark.req("NS-108")
def test_a_pod_of_others_is_reserved_where_it_is_predicted() -> None:
    ledger = started_ledger()
    ledger.topology_seen(version(1), 0.0)
    assert told(ledger.pod_seen(bound(exclusive("foreign")), 1.0)) == [("reserved", "seen", "foreign")]
    assert ledger.reserved("worker") == CELLS_OF_FOUR
    assert ledger.placed("foreign") == CELLS_OF_FOUR


@pytest.mark.req("NS-108")
def test_a_pod_of_others_that_fits_no_cell_is_spread() -> None:
    ledger = started_ledger()
    ledger.topology_seen(version(1, used=({"cpu": 6}, {"cpu": 6})), 0.0)
    ledger.pod_seen(bound(exclusive("foreign")), 1.0)
    assert cpus(ledger) == {0: 4, 1: 4}
    assert ledger.placed("foreign") is None
    assert [each.is_spread for each in ledger.all_reservations()] == [True]


@pytest.mark.req("NS-108")
def test_pods_of_others_do_not_count_if_so_set() -> None:
    ledger = started_ledger(foreign="none", scheduler="ours")
    ledger.topology_seen(version(1), 0.0)
    ledger.pod_seen(bound(exclusive("foreign", scheduler_name="others")), 1.0)
    assert ledger.reserved("worker") == {}
    ledger.pod_seen(bound(exclusive("late", scheduler_name="ours")), 1.0)
    assert cpus(ledger) == {0: 4}


@pytest.mark.req("NS-109")
def test_a_pod_on_another_cell_than_predicted_makes_new_reservations_spread() -> None:
    ledger, empty, facts = started_ledger(), version(1), exclusive("pod")
    ledger.topology_seen(empty, 0.0)
    choose(ledger, facts, empty, now=1.0)
    ledger.pod_seen(bound(facts, version=2), 2.0)
    ledger.topology_seen(version(3, [facts], used=({}, {"cpu": 4, "memory": 4})), 3.0)
    assert [each.kind for each in ledger.findings()] == ["mispredicted"]
    assert ledger.is_distrusted("worker", 3.0)
    assert ledger.placed("pod") is None
    choose(ledger, exclusive("next", cpu=2), empty, now=4.0)
    assert cpus(ledger) == {0: 2, 1: 2}
    assert not ledger.is_distrusted("worker", 603.0)


@pytest.mark.req("NS-109")
def test_a_pod_where_it_was_predicted_and_room_given_back_late_are_no_misprediction() -> None:
    ledger, facts, after = started_ledger(), exclusive("pod"), exclusive("after")
    ledger.topology_seen(version(1, used=({}, {"cpu": 2})), 0.0)
    for each, number, used in (
        (facts, 3, ({"cpu": 4, "memory": 4}, {"cpu": 2})),
        (after, 5, ({"cpu": 8, "memory": 8}, {})),
    ):
        node = version(1, used=({}, {"cpu": 2})) if each is facts else version(3, used=({"cpu": 4, "memory": 4}, {}))
        choose(ledger, each, node, now=float(number))
        ledger.pod_seen(bound(each, version=number - 1), float(number))
        shown = [facts] if each is facts else [facts, after]
        assert told(ledger.topology_seen(version(number, shown, used=used), float(number)))
    assert ledger.findings() == []
    assert not ledger.is_distrusted("worker", 10.0)


@pytest.mark.req("NS-110")
def test_another_policy_drops_no_reservation() -> None:
    ledger, empty, facts = started_ledger(), version(1), exclusive("pod")
    ledger.topology_seen(empty, 0.0)
    choose(ledger, facts, empty, now=1.0)
    assert told(ledger.topology_seen(version(2, policy="none"), 2.0)) == []
    assert told(ledger.topology_seen(version(3, policy="restricted", scope="pod"), 3.0)) == []
    assert ledger.reserved("worker") == CELLS_OF_FOUR


@pytest.mark.req("NS-104")
def test_what_an_exporter_leaves_out_never_counts_and_stays_reserved() -> None:
    hidden, facts = exclusive("hidden-1", cpu=2), exclusive("pod", cpu=2)
    ledger, exclude = started_ledger(), (PodPattern("default", "hidden-*"), PodPattern("[", "x"))
    empty = version(1, pod_exclude=exclude)
    ledger.topology_seen(empty, 0.0)
    for each in (hidden, facts):
        choose(ledger, each, empty, now=1.0)
        ledger.pod_seen(admitted(each, version=2), 2.0)
    assert told(ledger.topology_seen(version(3, [facts], pod_exclude=exclude), 3.0)) == SETTLED
    assert told(ledger.tick(1000.0)) == []
    assert cpus(ledger) == {0: 2}
    assert ledger.silent(1000.0) == []


@pytest.mark.req("NS-150")
def test_at_the_start_pods_that_the_object_does_not_show_are_reserved() -> None:
    shown, coming = exclusive("shown"), exclusive("coming")
    ledger = ReservationCache(RULES)
    for each in (admitted(shown, version=1), bound(coming, version=4)):
        assert ledger.pod_seen(each, 0.0) == []
    assert ledger.topology_seen(version(3, [shown], used=({"cpu": 4, "memory": 4}, {})), 0.0) == []
    assert told(ledger.start(100.0, 2_000_000_000.0)) == [("reserved", "seen", "coming")]
    assert ledger.is_settled("shown")
    assert cpus(ledger) == {0: 4}


@pytest.mark.req("NS-150")
def test_at_the_start_an_unexplained_object_counts_for_pods_admitted_long_ago() -> None:
    old, young = exclusive("old", cpu=2), exclusive("young", cpu=2)
    ledger = ReservationCache(RULES)
    ledger.pod_seen(admitted(old), 0.0)
    ledger.pod_seen(bound(young, phase="Running", started_at="2026-01-01T00:00:40Z"), 0.0)
    ledger.topology_seen(version(3, [exclusive("stranger")]), 0.0)
    start = 1_767_225_600.0
    assert told(ledger.start(100.0, start + 50.0)) == [("reserved", "seen", "young")]


@pytest.mark.req("NS-150")
def test_at_the_start_a_name_in_the_object_may_be_that_of_an_earlier_pod() -> None:
    facts = exclusive("pod")
    ledger = ReservationCache(RULES)
    ledger.pod_seen(bound(facts, phase="Running", version=9, started_at="2026-01-01T00:00:40Z"), 0.0)
    ledger.topology_seen(version(3, [facts], used=({"cpu": 4, "memory": 4}, {})), 0.0)
    assert told(ledger.start(100.0, 1_767_225_600.0 + 50.0)) == [("reserved", "seen", "pod")]
    assert told(ledger.pod_seen(admitted(facts, version=9), 101.0)) == []
    assert told(ledger.tick(90.0 + GRACE)) == SETTLED


@pytest.mark.req("NS-151")
def test_what_was_bound_before_a_restart_is_reserved_after_it_and_what_was_held_is_not() -> None:
    ledger, empty = started_ledger(), version(1)
    ledger.topology_seen(empty, 0.0)
    for name in ("bound", "held"):
        choose(ledger, exclusive(name, cpu=2), empty, now=1.0)
    anew = ReservationCache(RULES)
    for name, facts in (("bound", bound(exclusive("bound", cpu=2))), ("held", exclusive("held", cpu=2))):
        assert anew.pod_seen(facts, 0.0) == [], name
    anew.topology_seen(empty, 0.0)
    assert told(anew.start(0.0, 0.0)) == [("reserved", "seen", "bound")]
    assert cpus(anew) == {0: 2}
