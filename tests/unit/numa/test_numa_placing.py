"""Pods placed in order on snapshots, copies counted, nodes drained."""

import random
from typing import Any

import msgspec
import pytest
from numa_nodes import amounts, cell, container, node, pod

from polyarch.numa.fit import demand
from polyarch.numa.fit.facts import ExactOptions, NodeFacts, PodFacts
from polyarch.numa.simulation import INSUFFICIENT, SimulatedCluster, SimulationResult, leaving_pods, simulate
from polyarch.numa.snapshot import Choice, NodeSnapshot, Snapshot, SnapshotPod, SnapshotReservation, rules_of

EXACT = rules_of(Choice())


def snapshot(*nodes: NodeFacts | NodeSnapshot, **others: Any) -> Snapshot:
    found = (each if isinstance(each, NodeSnapshot) else NodeSnapshot(facts=each) for each in nodes)
    return Snapshot(source="files", nodes=tuple(found), **others)


def two_cells(name: str, **has: float) -> NodeFacts:
    return node(cell(0, **has), cell(1, **has), name=name)


def asking(cpu: float, memory: float = 1, *, name: str = "pod", **others: Any) -> PodFacts:
    return pod(container("app", cpu=cpu, memory=memory), name=name, **others)


def places(answer: SimulationResult) -> list[tuple[str, tuple[int, ...]] | None]:
    return [
        None if (found := each.decision) is None else (found.node, found.cells.get("app", ()))
        for each in answer.outcomes
    ]


@pytest.mark.req("NS-162")
def test_each_pod_takes_what_it_needs_from_the_next() -> None:
    nodes = snapshot(two_cells("a", cpu=4, memory=8))
    answer = simulate(nodes, [asking(3)], EXACT, repeat=3)
    assert places(answer) == [("a", (0,)), ("a", (1,)), None]
    assert [each.pod.name for each in answer.outcomes] == ["pod-1", "pod-2", "pod-3"]
    ((refusal, count),) = answer.unplaced[0].refusals.items()
    assert (refusal.kind, refusal.resources, count) == ("short", ("cpu",), 1)


@pytest.mark.req("NS-162")
def test_reservations_count_as_taken() -> None:
    held = SnapshotReservation(pod="shop/web", cells={0: amounts({"cpu": 2})})
    facts = two_cells("a", cpu=4, memory=8)
    answer = simulate(snapshot(NodeSnapshot(facts=facts, held=(held,))), [asking(3)], EXACT)
    assert places(answer) == [("a", (1,))]


@pytest.mark.req("NS-162")
def test_the_best_score_wins() -> None:
    nodes = snapshot(two_cells("full", cpu=4, memory=8), two_cells("roomy", cpu=16, memory=64))
    assert places(simulate(nodes, [asking(2)], EXACT)) == [("roomy", (0,))]
    packed = rules_of(Choice(exact=ExactOptions(strategy="MostAllocated")))
    assert places(simulate(nodes, [asking(2)], packed)) == [("full", (0,))]


@pytest.mark.req("NS-162")
def test_sums_over_a_node_are_judged_where_the_node_is_known() -> None:
    """Burstable pods hold no cell, and yet their requests are gone."""
    facts = node(cell(0, cpu=8, memory=8), name="a", allocatable=amounts({"cpu": 8, "memory": 8}))
    burstable = SnapshotPod(pod(container("app", cpu=6), name="other", qos="Burstable"))
    nodes = snapshot(NodeSnapshot(facts=facts, residents=(burstable,)), knows_pods=True)
    (outcome,) = simulate(nodes, [asking(4)], EXACT).outcomes
    assert [(each.kind, each.resources) for each in outcome.refusals] == [(INSUFFICIENT, ("cpu",))]


@pytest.mark.req("NS-162")
def test_a_node_takes_so_many_pods_as_it_says() -> None:
    facts = node(cell(0, cpu=8, memory=8), name="a", allocatable=amounts({"cpu": 8, "memory": 8, "pods": 2}))
    answer = simulate(snapshot(facts), [asking(1)], EXACT, fills=True)
    assert answer.filled is not None
    assert answer.filled.copies == 1
    assert answer.filled.stopped_by is not None
    assert [each.resources for each in answer.filled.stopped_by.refusals] == [("pods",)]


@pytest.mark.req("NS-162")
@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (pod(container("a", cpu=1), container("b", cpu=2)), {"cpu": 3}),
        (pod(container("i", "init", cpu=4), container("a", cpu=1)), {"cpu": 4}),
        (pod(container("s", "sidecar", cpu=2), container("i", "init", cpu=4), container("a", cpu=1)), {"cpu": 6}),
        (pod(container("i", "init", cpu=2), container("s", "sidecar", cpu=2), container("a", cpu=1)), {"cpu": 3}),
        (pod(container("a", cpu=1), overhead=amounts({"cpu": 0.25})), {"cpu": 1.25}),
        (pod(container("a", cpu=1, nic=1), pod_requests=amounts({"cpu": 5})), {"cpu": 5, "nic": 1}),
    ],
)
def test_what_a_pod_requests_of_its_node(given: PodFacts, expected: dict[str, float]) -> None:
    assert demand.whole_request(given) == amounts(expected) | {"pods": 1000}


@pytest.mark.req("NS-162")
def test_fill_counts_whole_copies_and_says_what_runs_out() -> None:
    nodes = snapshot(two_cells("a", cpu=8, memory=8), two_cells("b", cpu=4, memory=64))
    pods = [asking(3, 2, name="first"), asking(1, 1, name="second")]
    answer = simulate(nodes, pods, EXACT, fills=True)
    filled = answer.filled
    assert filled is not None
    assert filled.stopped_by is not None
    assert filled.copies == 4
    assert sum(filled.by_node.values()) == 2 * filled.copies
    assert filled.stopped_by.pod.name == "first"
    assert {each.resources for each in filled.stopped_by.refusals} == {("cpu",)}


@pytest.mark.req("NS-162")
def test_what_needs_nothing_fits_for_ever() -> None:
    filled = simulate(
        snapshot(two_cells("a", cpu=1)), [pod(container("app"))], EXACT, fills=True, most_copies=50
    ).filled
    assert filled is not None
    assert (filled.copies, filled.is_limited, filled.stopped_by) == (50, False, None)


@pytest.mark.req("NS-162")
def test_a_drained_node_and_a_cordoned_one_take_nothing() -> None:
    residents = (
        SnapshotPod(asking(2, name="low", priority=1)),
        SnapshotPod(asking(2, name="high", priority=9)),
        SnapshotPod(asking(2, name="daemon"), stays=True),
    )
    nodes = snapshot(
        NodeSnapshot(facts=two_cells("a", cpu=64, memory=64), residents=residents),
        two_cells("b", cpu=3, memory=8),
        NodeSnapshot(facts=two_cells("c", cpu=64, memory=64), is_cordoned=True),
        knows_pods=True,
    )
    answer = simulate(nodes, [asking(2, name="more")], EXACT, drain="a")
    assert [each.pod.name for each in answer.outcomes] == ["high", "low", "more"]
    assert places(answer) == [("b", (0,)), ("b", (1,)), None]
    assert leaving_pods(nodes, "no-such-node") == ()


@pytest.mark.req("NS-162")
def test_equal_nodes_are_chosen_alike_every_time_and_not_by_name_alone() -> None:
    nodes = [two_cells(f"worker-{number}", cpu=8, memory=64) for number in range(30)]
    random.Random(7).shuffle(nodes)
    once = places(simulate(snapshot(*nodes), [asking(8)], EXACT, repeat=30))
    again = places(simulate(snapshot(*reversed(nodes)), [asking(8)], EXACT, repeat=30))
    assert once == again
    assert once != sorted(each for each in once if each is not None)


@pytest.mark.req("NS-162")
def test_many_like_pods_are_placed_as_if_every_node_were_asked_each_time() -> None:
    """Nodes that did not change are not asked again."""
    chance = random.Random(11)
    for _ in range(20):
        nodes = [
            node(*(cell(i, cpu=chance.randint(1, 12), memory=chance.randint(1, 24)) for i in range(3)), name=f"n{each}")
            for each in range(6)
        ]
        pods = [asking(chance.randint(1, 4), chance.randint(1, 6), name=f"p{each}") for each in range(3)] * 12
        shared = SimulatedCluster(snapshot(*nodes), EXACT)
        found = [shared.place(each) for each in pods]
        left = list(nodes)
        for pod_, outcome in zip(pods, found, strict=True):
            fresh = SimulatedCluster(snapshot(*left), EXACT).place(pod_)
            assert fresh == outcome
            if (decision := fresh.decision) is not None:
                left = [_after(each, decision.taken) if each.name == decision.node else each for each in left]


def _after(facts: NodeFacts, taken: Any) -> NodeFacts:
    cells = tuple(
        msgspec.structs.replace(
            each,
            available={name: amount - taken.get(each.id, {}).get(name, 0) for name, amount in each.available.items()},
        )
        for each in facts.cells
    )
    return msgspec.structs.replace(facts, cells=cells)


@pytest.mark.req("NS-162")
def test_what_every_node_says_is_told_as_of_that_moment() -> None:
    nodes = snapshot(two_cells("a", cpu=4, memory=8))
    first, *_, last = simulate(nodes, [asking(3)], EXACT, repeat=3, explains=True).outcomes
    assert first.asked["a"] == first.decision
    assert last.asked["a"] == next(iter(last.refusals))


@pytest.mark.req("NS-065")
def test_the_worked_case_of_sets_of_cells() -> None:
    cells = [cell(number, cpu=8, memory=32) for number in range(3)]
    nodes = snapshot(node(*cells, policy="restricted"))
    refused, spread = simulate(nodes, [asking(10, 20), asking(10, 36)], EXACT).outcomes
    assert [each.kind for each in refused.refusals] == ["no-common-cell"]
    assert spread.decision is not None
    assert spread.decision.cells == {"app": (0, 1)}
    in_use = node(cell(0, cpu=8, memory=32, used={"memory": 4}), *cells[1:], policy="restricted")
    (elsewhere,) = simulate(snapshot(in_use), [asking(10, 36)], EXACT).outcomes
    assert elsewhere.decision is not None
    assert elsewhere.decision.cells == {"app": (1, 2)}
