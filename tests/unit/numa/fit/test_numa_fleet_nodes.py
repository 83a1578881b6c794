"""What the fleet keeps, and whom it chooses."""

import pytest
from xxhash import xxh64_intdigest

from polyarch.numa.fit.facts import ContainerFacts, ExactOptions, NodeFacts, NodeSettings, PodFacts, ZoneFacts
from polyarch.numa.fit.node_index import NumaNodeIndex, best_nodes

ALIGNING = NodeSettings(policy="single-numa-node")


def a_node(name: str, *cpus: int, settings: NodeSettings = ALIGNING) -> NodeFacts:
    cells = []
    for number, each in enumerate(cpus):
        amounts = {"cpu": each * 1000, "memory": 64_000}
        cells.append(ZoneFacts(id=number, capacity=amounts, allocatable=dict(amounts), available=dict(amounts)))
    return NodeFacts(name=name, cells=tuple(cells), settings=settings)


def a_pod(cpus: int, uid: str = "uid") -> PodFacts:
    requests = {"cpu": cpus * 1000, "memory": 1000}
    return PodFacts(uid=uid, qos="Guaranteed", containers=(ContainerFacts("app", "app", requests, requests),))


def a_fleet(*nodes: NodeFacts) -> NumaNodeIndex:
    fleet = NumaNodeIndex(ExactOptions())
    for each in nodes:
        fleet.put(each)
    return fleet


@pytest.mark.req("NS-100")
def test_what_is_reserved_is_missing_in_its_cell_alone_until_it_is_released() -> None:
    fleet = a_fleet(a_node("one", 8, 8))
    decision = fleet.fit(a_pod(6), ["one"]).best()[0]
    assert decision.cells == {"app": (0,)}
    fleet.reserve("one", decision.taken)
    assert fleet.free("one")[0]["cpu"] == 2000
    assert fleet.fit(a_pod(6), ["one"]).best()[0].cells == {"app": (1,)}
    fleet.release("one", decision.taken)
    assert fleet.fit(a_pod(6), ["one"]).best()[0].cells == {"app": (0,)}
    assert not fleet.reserved("one")


@pytest.mark.req("NS-100")
def test_more_reserved_than_available_leaves_nothing_and_not_less() -> None:
    fleet = a_fleet(a_node("one", 4))
    fleet.reserve("one", {0: {"cpu": 6000}})
    assert fleet.free("one")[0]["cpu"] == 0
    fleet.put(a_node("one", 8))
    assert fleet.fit(a_pod(2), ["one"]).fitting == ["one"]


@pytest.mark.req("NS-103")
def test_reservations_outlast_the_object_of_their_node() -> None:
    fleet = a_fleet(a_node("one", 8))
    fleet.reserve("one", {0: {"cpu": 6000}})
    fleet.remove("one")
    assert fleet.fit(a_pod(4), ["one"]).has_demand is False
    fleet.put(a_node("one", 8))
    fits = fleet.fit(a_pod(4), ["one"])
    assert fits.rejected == {"one": "cannot align container: cpu"}
    assert fits.kinds == {"short": 1}


@pytest.mark.req("NS-062")
def test_a_cell_whose_memory_is_promised_with_another_takes_no_memory_alone() -> None:
    fleet = a_fleet(a_node("one", 8, 8, 8))
    fleet.reserve("one", {0: {"memory": 1000}}, memory_groups=[(0, 1)])
    assert fleet.fit(a_pod(2), ["one"]).best()[0].cells == {"app": (2,)}
    fleet.release("one", {0: {"memory": 1000}}, memory_groups=[(0, 1)])
    assert fleet.fit(a_pod(2), ["one"]).best()[0].cells == {"app": (0,)}


@pytest.mark.req("NS-081")
def test_each_name_counts_once_in_the_order_of_the_question() -> None:
    fleet = a_fleet(a_node("b", 8), a_node("a", 8), a_node("small", 1))
    fits = fleet.fit(a_pod(2), ["b", "small", "a", "b", "small"])
    assert fits.fitting == ["b", "a"]
    assert list(fits.rejected) == ["small"]


@pytest.mark.req("NS-110")
def test_a_node_follows_its_new_policy_with_the_next_question() -> None:
    fleet = a_fleet(a_node("one", 2, 2), a_node("two", 2, 2))
    assert fleet.fit(a_pod(4), ["one", "two"]).fitting == []
    fleet.put(a_node("one", 2, 2, settings=NodeSettings(policy="none")))
    assert fleet.fit(a_pod(4), ["one", "two"]).fitting == ["one"]
    assert fleet.fit(a_pod(4), ["one"]).best()[0].cells == {}


@pytest.mark.req("NS-043")
@pytest.mark.parametrize("policy", ["none", "best-effort"])
def test_pods_that_ask_for_the_same_as_a_whole_are_not_one_question(policy: str) -> None:
    """With whole cores alone, what an init container has left does not count as free for the next one."""
    settings = {"policy": policy, "scope": "pod", "cpu_manager": "static", "threads_per_core": 2}
    whole_cores = NodeSettings(**settings, cpu_options={"full-pcpus-only": "true"})  # type: ignore[arg-type]
    of_16 = {"cpu": 16_000}
    at_once = PodFacts(uid="one", qos="Guaranteed", containers=(ContainerFacts("app", "app", of_16, of_16),))
    in_turn = PodFacts(
        uid="two", qos="Guaranteed", containers=(ContainerFacts("init", "init", of_16, of_16), *at_once.containers)
    )
    for first, second in ((at_once, in_turn), (in_turn, at_once)):
        fleet = a_fleet(a_node("one", 12, 12, settings=whole_cores))
        fitting = {each.uid: fleet.fit(each, ["one"]).fitting for each in (first, second)}
        assert fitting == {"one": ["one"], "two": []}


@pytest.mark.req("NS-082")
def test_of_equal_nodes_the_smaller_hash_wins_and_each_pod_has_another_order() -> None:
    names = [f"node-{number}" for number in range(40)]
    seed = xxh64_intdigest(b"uid-1", 0)
    expected = sorted(names, key=lambda name: xxh64_intdigest(name.encode(), seed))
    assert best_nodes(names, [70] * 40, uid="uid-1", count=40) == expected
    assert best_nodes(list(reversed(names)), [70] * 40, uid="uid-1", count=3) == expected[:3]
    assert len({best_nodes(names, [70] * 40, uid=f"uid-{number}", count=1)[0] for number in range(30)}) > 10


@pytest.mark.req("NS-082")
def test_a_better_score_goes_before_any_hash_and_what_does_not_fit_is_never_chosen() -> None:
    assert best_nodes(["a", "b", "c", "d"], [10, 90, -1, 20], uid="uid", count=3) == ["b", "d", "a"]


@pytest.mark.req("NS-171")
def test_equal_amounts_of_cells_are_one_value() -> None:
    fleet = a_fleet(a_node("one", 8, 8), a_node("two", 8, 8))
    cells = [cell for name in ("one", "two") for cell in fleet.node(name).cells]  # type: ignore[union-attr]
    assert len({id(amounts) for cell in cells for amounts in (cell.capacity, cell.allocatable, cell.available)}) == 1
