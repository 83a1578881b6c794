"""The plugin's Score."""

from fractions import Fraction

import pytest
from numa_snapshots import NIC, container, node, pod, whole

from polyarch.numa.api.resources import ScoringType
from polyarch.numa.facts import TopologyPolicy
from polyarch.numa.fit.compat import CompatOptions, cell_score, score
from polyarch.numa.fit.facts import NodeFacts, PodFacts, Qos

LEAST, MOST, BALANCED = (CompatOptions(strategy=s) for s in ("LeastAllocated", "MostAllocated", "BalancedAllocation"))
FEWEST = CompatOptions(strategy="LeastNUMANodes")


def scored(asked: PodFacts, at: NodeFacts, options: CompatOptions = LEAST, *, foreign: bool = False) -> int:
    return score(asked, at, {cell.id: cell.available for cell in at.cells}, options, foreign=foreign)


@pytest.mark.req("NS-030")
@pytest.mark.parametrize("qos", ["Burstable", "BestEffort"])
def test_pods_without_cells_of_their_own_find_every_node_best(qos: Qos) -> None:
    assert scored(pod(container("c", cpu=99), qos=qos), node({0: {"cpu": 1}}), foreign=True) == 100


@pytest.mark.req("NS-030")
@pytest.mark.parametrize("strategy", ["LeastAllocated", "MostAllocated", "BalancedAllocation", "LeastNUMANodes"])
def test_nothing_is_known_of_a_foreign_node_or_one_without_an_object(strategy: ScoringType) -> None:
    asked, options = pod(container("c", cpu=1)), CompatOptions(strategy=strategy)
    assert scored(asked, node({0: {"cpu": 4}}), options, foreign=True) == 0
    assert scored(asked, NodeFacts(name="n", has_topology=False), options) == 0


@pytest.mark.req("NS-030")
@pytest.mark.parametrize("policy", ["none", "best-effort", "restricted"])
def test_only_least_numa_nodes_ignores_the_policy(policy: TopologyPolicy) -> None:
    asked, at = pod(container("c", cpu=1)), node({0: {"cpu": 4}}, policy=policy)
    assert [scored(asked, at, each) for each in (LEAST, MOST, BALANCED)] == [0, 0, 0]
    assert scored(asked, at, FEWEST) == 94


@pytest.mark.req("NS-031")
@pytest.mark.parametrize(
    ("asked", "available", "least", "most"),
    [
        (1, 4, 75, 25),
        (1, 3, 66, 33),
        (4, 4, 0, 100),
        (4.001, 4, 0, 0),
        (0, 4, 100, 0),
        (0, 0, 0, 0),
        # Rounded up: 2 of 4, although it is 1.5 of 3.5.
        (1.5, 3.5, 50, 50),
    ],
)
def test_one_resource(asked: float, available: float, least: int, most: int) -> None:
    requests, cell = whole({"cpu": asked}), whole({"cpu": available})
    assert (cell_score(requests, cell, LEAST), cell_score(requests, cell, MOST)) == (least, most)


@pytest.mark.req("NS-031")
def test_weights_of_one_at_least_and_resources_that_the_cell_lacks_count_as_nothing() -> None:
    requests, cell = whole({"cpu": 1, "memory": 3, NIC: 1}), whole({"cpu": 4, "memory": 4})
    assert cell_score(requests, cell, LEAST) == (75 + 25 + 0) // 3
    weighed = CompatOptions(weights={"cpu": 5, "memory": 0, NIC: -3, "hugepages-2Mi": 99})
    assert cell_score(requests, cell, weighed) == (5 * 75 + 25 + 0) // 7


@pytest.mark.req("NS-032")
def test_balance_is_what_the_sample_variance_leaves() -> None:
    requests, cell = whole({"cpu": 1, "memory": 3, NIC: 2}), whole({"cpu": 4, "memory": 4, NIC: 3})
    shares = [Fraction(1, 4), Fraction(3, 4), Fraction(2, 3)]
    mean = sum(shares) / 3
    variance = sum((each - mean) ** 2 for each in shares) / 2
    assert cell_score(requests, cell, BALANCED) == int((1 - variance) * 100) == 92


@pytest.mark.req("NS-032")
def test_balance_of_equal_shares_of_what_is_missing_and_of_too_much() -> None:
    assert cell_score(whole({"cpu": 1, "memory": 2}), whole({"cpu": 4, "memory": 8}), BALANCED) == 100
    assert cell_score(whole({"cpu": 1, "memory": 2}), whole({"cpu": 4}), BALANCED) == 71
    assert cell_score(whole({"cpu": 5, "memory": 2}), whole({"cpu": 4, "memory": 8}), BALANCED) == 0


@pytest.mark.req("NS-032")
def test_one_resource_alone_is_balanced_and_no_request_scores_nothing() -> None:
    assert cell_score(whole({"cpu": 1}), whole({"cpu": 4}), BALANCED) == 100
    assert cell_score(whole({"cpu": 5}), whole({"cpu": 4}), BALANCED) == 0
    assert [cell_score({}, whole({"cpu": 4}), each) for each in (LEAST, MOST, BALANCED)] == [0, 0, 0]


@pytest.mark.req("NS-033")
def test_the_worst_cell_that_scores_at_all() -> None:
    cells = {0: {"cpu": 10}, 1: {"cpu": 4}, 2: {"cpu": 1}}
    assert scored(pod(container("c", cpu=2)), node(cells, scope="pod")) == 50
    assert scored(pod(container("c", cpu=20)), node(cells, scope="pod")) == 0


@pytest.mark.req("NS-033")
def test_a_cell_that_cannot_hold_the_pod_counts_if_it_scores() -> None:
    cells = {0: {"cpu": 10, "memory": 10}, 1: {"cpu": 10, "memory": 1}}
    assert scored(pod(container("c", cpu=2, memory=2)), node(cells)) == 80 // 2


@pytest.mark.req("NS-033")
def test_pod_scope_scores_effective_requests() -> None:
    asked = pod(container("i", "init", cpu=3), container("a", cpu=1), container("b", cpu=1), overhead={"cpu": 1})
    assert scored(asked, node({0: {"cpu": 8}}, scope="pod")) == 50


@pytest.mark.req("NS-033")
def test_container_scope_is_the_mean_over_all_containers_on_untouched_cells() -> None:
    asked = pod(container("i", "init", cpu=8), container("s", "sidecar", cpu=1), container("a", cpu=3))
    assert scored(asked, node({0: {"cpu": 8}})) == (0 + 87 + 62) // 3
