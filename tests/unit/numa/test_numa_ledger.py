"""A reservation from the filter to the object that shows the pod."""

import sys

import pytest
from numa_ledgers import CELLS_OF_FOUR, admitted, bound, choose, cpus, exclusive, started_ledger, told, version
from numa_nodes import amounts, container, pod

from polyarch.numa.fit.facts import NodeFacts


@pytest.mark.req("NS-100")
def test_what_is_reserved_is_not_free() -> None:
    ledger, empty = started_ledger(), version(1)
    ledger.topology_seen(empty, 0.0)
    choose(ledger, exclusive("first", cpu=4), empty, now=1.0)
    choose(ledger, exclusive("second", cpu=5), empty, now=1.0)
    assert cpus(ledger) == {0: 4, 1: 5}
    assert {cell: free["cpu"] for cell, free in ledger.free(empty).items()} == {0: 4000, 1: 3000}
    assert choose(ledger, exclusive("third", cpu=5), empty, now=1.0) == []


@pytest.mark.req("NS-100")
def test_what_is_free_is_never_below_nothing() -> None:
    ledger, empty = started_ledger(), version(1)
    ledger.topology_seen(empty, 0.0)
    choose(ledger, exclusive("first", cpu=8), empty, now=1.0)
    used = version(2, used=({"cpu": 3}, {}))
    ledger.topology_seen(used, 2.0)
    assert ledger.free(used)[0]["cpu"] == 0


@pytest.mark.req("NS-101")
def test_a_pod_is_held_for_a_minute_and_with_claims_for_ten() -> None:
    ledger, empty = started_ledger(), version(1)
    ledger.topology_seen(empty, 0.0)
    choose(ledger, exclusive("plain"), empty, now=1.0)
    choose(ledger, exclusive("claiming", has_claims=True), empty, now=1.0)
    assert told(ledger.tick(60.9)) == []
    assert told(ledger.tick(61.0)) == [("released", "ttl", "plain")]
    assert told(ledger.tick(600.9)) == []
    assert told(ledger.tick(601.0)) == [("released", "ttl", "claiming")]
    assert ledger.reserved("worker") == {}
    assert ledger.held("plain") == []


@pytest.mark.req("NS-101")
def test_another_filter_call_drops_what_the_pod_holds_first() -> None:
    ledger, empty = started_ledger(), version(1)
    ledger.topology_seen(empty, 0.0)
    facts = exclusive("again", cpu=8, memory=32)
    for now in (1.0, 30.0, 59.0):
        assert [each.taken.keys() for each in choose(ledger, facts, empty, now=now)] == [{0}]
    assert told(ledger.tick(61.5)) == []
    assert told(ledger.tick(119.0)) == [("released", "ttl", "again")]


@pytest.mark.req("NS-102")
def test_a_bound_pod_keeps_its_cells_and_gives_back_the_other_nodes() -> None:
    ledger, here, there = started_ledger(), version(1, name="here"), version(1, name="there")
    for each in (here, there):
        ledger.topology_seen(each, 0.0)
    facts = exclusive("pod")
    choose(ledger, facts, here, there, now=1.0)
    changes = ledger.pod_seen(bound(facts, node="there"), 2.0)
    assert told(changes) == [("released", "other-node", "pod"), ("bound", "seen", "pod")]
    assert ledger.reserved("here") == {}
    assert ledger.reserved("there") == CELLS_OF_FOUR
    assert told(ledger.tick(1000.0)) == []


@pytest.mark.req("NS-102")
def test_a_pod_bound_elsewhere_is_taken_up_there() -> None:
    ledger, here, there = started_ledger(), version(1, name="here"), version(1, name="there")
    for each in (here, there):
        ledger.topology_seen(each, 0.0)
    facts = exclusive("pod")
    choose(ledger, facts, here, now=1.0)
    changes = ledger.pod_seen(bound(facts, node="there"), 2.0)
    assert told(changes) == [("released", "other-node", "pod"), ("reserved", "seen", "pod")]
    assert ledger.reserved("there") == CELLS_OF_FOUR


@pytest.mark.req("NS-103")
def test_a_pod_that_is_deleted_or_over_holds_nothing() -> None:
    ledger, empty = started_ledger(), version(1)
    ledger.topology_seen(empty, 0.0)
    for name in ("deleted", "over", "held"):
        choose(ledger, exclusive(name, cpu=2), empty, now=1.0)
    for name in ("deleted", "over"):
        ledger.pod_seen(bound(exclusive(name, cpu=2)), 2.0)
    assert told(ledger.pod_gone("deleted", 3.0)) == [("released", "deleted", "deleted")]
    over = bound(exclusive("over", cpu=2), phase="Failed")
    assert told(ledger.pod_seen(over, 3.0)) == [("released", "ended", "over")]
    assert told(ledger.pod_gone("held", 3.0)) == [("released", "deleted", "held")]
    assert ledger.reserved("worker") == {}


@pytest.mark.req("NS-103")
def test_a_node_that_is_deleted_holds_nothing_and_an_object_that_is_deleted_changes_nothing() -> None:
    ledger, empty = started_ledger(), version(1)
    ledger.topology_seen(empty, 0.0)
    choose(ledger, exclusive("pod"), empty, now=1.0)
    ledger.pod_seen(bound(exclusive("pod")), 2.0)
    choose(ledger, exclusive("held"), empty, now=2.0)
    without = NodeFacts(name="worker", has_topology=False)
    assert told(ledger.topology_seen(without, 3.0)) == []
    assert told(ledger.topology_seen(version(3), 4.0)) == []
    assert cpus(ledger) == {0: 8}
    assert told(ledger.node_gone("worker")) == [
        ("released", "node-deleted", "pod"),
        ("released", "node-deleted", "held"),
    ]
    assert ledger.held("held") == []


@pytest.mark.req("NS-171")
def test_nothing_is_kept_of_nodes_that_came_and_went() -> None:
    """An autoscaler gives each node a new name."""

    def kept(nodes: int) -> dict[str, int]:
        ledger = started_ledger()
        for number in range(nodes):
            name, passing = f"node-{number}", exclusive(f"pod-{number}")
            ledger.topology_seen(version(1, name=name), 0.0)
            choose(ledger, passing, version(1, name=name), now=1.0)
            ledger.pod_seen(bound(passing, node=name), 2.0)
            ledger.exporter_seen(name, is_ready=True, now=2.0)
            ledger.node_gone(name)
            ledger.exporter_seen(name, is_ready=False, now=3.0)
            ledger.pod_gone(passing.uid, 3.0)
        ledger.tick(1000.0)
        return {name: len(each) for name, each in vars(ledger).items() if hasattr(each, "__len__")}

    assert kept(20) == kept(1)


@pytest.mark.req("NS-103", "NS-106")
def test_a_node_that_comes_back_soon_knows_the_names_of_its_pods() -> None:
    """An object that names the earlier pod settles no later one of the same name."""
    ledger, first = started_ledger(), exclusive("pod")
    ledger.topology_seen(version(1), 0.0)
    ledger.pod_seen(admitted(first, version=1), 1.0)
    ledger.node_gone("worker")
    ledger.pod_gone("pod", 2.0)
    ledger.tick(60.0)
    ledger.topology_seen(version(2, [first]), 61.0)
    again = exclusive("pod", uid="again")
    choose(ledger, again, version(2, [first]), now=62.0)
    ledger.pod_seen(bound(again, version=3), 63.0)
    assert not ledger.is_settled("again")


@pytest.mark.req("NS-106")
def test_the_object_that_shows_the_pod_settles_it() -> None:
    ledger, empty = started_ledger(), version(1)
    ledger.topology_seen(empty, 0.0)
    first, second = exclusive("first"), exclusive("second")
    for each in (first, second):
        choose(ledger, each, empty, now=1.0)
        ledger.pod_seen(bound(each), 2.0)
    changes = ledger.topology_seen(version(2, [first], used=({"cpu": 4, "memory": 4}, {})), 3.0)
    assert told(changes) == [("released", "settled", "first")]
    assert ledger.is_settled("first")
    assert ledger.placed("first") == CELLS_OF_FOUR
    assert not ledger.is_settled("second")
    assert ledger.reserved("worker") == CELLS_OF_FOUR


@pytest.mark.req("NS-106")
def test_an_object_that_is_seen_before_the_binding_settles_the_pod_when_it_is_seen() -> None:
    ledger, empty, facts = started_ledger(), version(1), exclusive("pod")
    ledger.topology_seen(empty, 0.0)
    choose(ledger, facts, empty, now=1.0)
    assert told(ledger.topology_seen(version(3, [facts]), 2.0)) == []
    assert told(ledger.pod_seen(admitted(facts, version=2), 3.0)) == [
        ("bound", "seen", "pod"),
        ("released", "settled", "pod"),
    ]


@pytest.mark.req("NS-112")
def test_a_ledger_that_is_off_reserves_nothing() -> None:
    ledger, empty = started_ledger(is_on=False), version(1)
    ledger.topology_seen(empty, 0.0)
    assert len(choose(ledger, exclusive("pod"), empty, now=1.0)) == 1
    assert ledger.pod_seen(bound(exclusive("pod")), 2.0) == []
    assert ledger.pod_seen(bound(exclusive("foreign")), 2.0) == []
    assert ledger.reserved("worker") == {}


@pytest.mark.req("NS-113")
def test_a_burstable_pod_reserves_its_devices_alone() -> None:
    ledger, empty = started_ledger(), version(1)
    ledger.topology_seen(empty, 0.0)
    facts = pod(container("app", cpu=4, memory=4, nic=1), name="pod", qos="Burstable")
    choose(ledger, facts, empty, now=1.0)
    choose(ledger, pod(container("app", cpu=4), name="other", qos="Burstable"), empty, now=1.0)
    assert ledger.reserved("worker") == {0: amounts({"nic": 1})}


@pytest.mark.req("NS-106")
def test_devices_of_ended_init_containers_stay_reserved() -> None:
    ledger, empty = started_ledger(), version(1)
    ledger.topology_seen(empty, 0.0)
    facts = pod(container("init", "init", cpu=1, memory=1, nic=1), container("app", cpu=1, memory=1), name="pod")
    choose(ledger, facts, empty, now=1.0)
    ledger.pod_seen(bound(facts), 2.0)
    changes = ledger.topology_seen(version(2, [facts], used=({"cpu": 1, "memory": 1}, {})), 3.0)
    assert told(changes) == [("released", "settled", "pod"), ("reserved", "unseen", "pod")]
    assert ledger.reserved("worker") == {0: amounts({"nic": 1})}
    assert ledger.is_settled("pod")
    assert told(ledger.pod_gone("pod", 4.0)) == [("released", "deleted", "pod")]


@pytest.mark.req("NS-111")
def test_an_event_costs_the_same_however_many_other_nodes_there_are() -> None:
    def calls(others: int) -> int:
        ledger, empty, facts = started_ledger(), version(1), exclusive("pod")
        for number in range(others):
            ledger.topology_seen(version(1, name=f"other-{number}"), 0.0)
        ledger.topology_seen(empty, 0.0)
        choose(ledger, facts, empty, now=1.0)
        shown, counted = version(2, [facts]), 0

        def count(frame: object, event: str, argument: object) -> None:
            nonlocal counted
            counted += event == "call"

        sys.setprofile(count)
        try:
            ledger.pod_seen(bound(facts), 2.0)
            ledger.topology_seen(shown, 3.0)
            ledger.tick(4.0)
            ledger.pod_gone("pod", 5.0)
        finally:
            sys.setprofile(None)
        return counted

    assert calls(0) == calls(500)
