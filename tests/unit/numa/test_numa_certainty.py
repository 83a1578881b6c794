"""Pods on their way may arrive in another order: a node that fits is certain only if that does not matter."""

import pytest
from numa_ledgers import RULES, admitted, choose, exclusive, started_ledger, version
from numa_nodes import container, pod

from polyarch.numa.fit.evaluate import evaluate
from polyarch.numa.fit.facts import NodeFacts, PodFacts
from polyarch.numa.reservations import ReservationCache


def is_certain(ledger: ReservationCache, facts: PodFacts, node: NodeFacts, now: float = 2.0) -> bool:
    decision = evaluate(facts, node, ledger.free(node), RULES, groups=ledger.groups(node.name))
    assert decision.fits
    return ledger.is_certain(facts, decision, now)


def holding(*held: PodFacts, policy: str = "single-numa-node") -> tuple[ReservationCache, NodeFacts]:
    """Two cells of 8 CPUs."""
    ledger, empty = started_ledger(), version(1, policy=policy)
    ledger.topology_seen(empty, 0.0)
    for each in held:
        assert choose(ledger, each, empty, now=1.0)
    return ledger, empty


@pytest.mark.req("NS-111")
def test_a_node_with_nobody_on_the_way_is_certain() -> None:
    ledger, empty = holding()
    assert is_certain(ledger, exclusive("pod", cpu=8), empty)


@pytest.mark.req("NS-111")
def test_a_pod_that_always_finds_a_cell_is_certain() -> None:
    ledger, empty = holding(exclusive("one", cpu=3), exclusive("two", cpu=4))
    assert is_certain(ledger, exclusive("pod", cpu=2), empty)


@pytest.mark.req("NS-111")
def test_a_pod_that_others_may_keep_out_is_not() -> None:
    """3 and 4 are meant for cell 0; on different cells they leave no room for 6."""
    ledger, empty = holding(exclusive("one", cpu=3), exclusive("two", cpu=4))
    assert not is_certain(ledger, exclusive("pod", cpu=6), empty)


@pytest.mark.req("NS-111")
def test_a_pod_that_could_keep_another_out_is_not() -> None:
    ledger, empty = holding(exclusive("large", cpu=6))
    assert is_certain(ledger, exclusive("pod", cpu=2), empty)
    assert choose(ledger, exclusive("pod", cpu=4), empty, now=1.0)
    assert not is_certain(ledger, exclusive("next", cpu=3, memory=1), empty)


@pytest.mark.req("NS-111")
def test_pods_that_are_alike_fill_a_node_in_any_order() -> None:
    ledger, empty = holding(*(exclusive(f"pod-{number}", cpu=4) for number in range(3)))
    assert is_certain(ledger, exclusive("pod", cpu=4), empty)


@pytest.mark.req("NS-111")
def test_init_containers_that_tie_others_to_their_cell_want_the_node_for_themselves() -> None:
    facts = pod(container("init", "init", cpu=1), container("app", cpu=1), name="tied")
    ledger, empty = holding(exclusive("one", cpu=1))
    assert not is_certain(ledger, facts, empty)
    alone, _ = holding()
    assert is_certain(alone, facts, empty)
    choose(alone, facts, empty, now=1.0)
    assert not is_certain(alone, exclusive("one", cpu=1), empty)


@pytest.mark.req("NS-111")
def test_where_a_kubelet_refuses_nobody_everything_is_certain() -> None:
    ledger, empty = holding(exclusive("one", cpu=3), exclusive("two", cpu=4), policy="best-effort")
    assert is_certain(ledger, exclusive("pod", cpu=6), empty)


@pytest.mark.req("NS-111")
def test_a_pod_admitted_long_ago_is_where_it_was_predicted() -> None:
    ledger, empty = holding(exclusive("one", cpu=3), exclusive("two", cpu=4))
    for name, cpu in (("one", 3), ("two", 4)):
        ledger.pod_seen(admitted(exclusive(name, cpu=cpu), version=2), 2.0)
    assert not is_certain(ledger, exclusive("pod", cpu=6), empty, now=3.0)
    assert is_certain(ledger, exclusive("pod", cpu=6), empty, now=100.0)
