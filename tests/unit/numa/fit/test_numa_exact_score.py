"""How good a node is that fits."""

import pytest
from numa_nodes import cell, container, node, pod

from polyarch.numa.fit.evaluate import allocated, balanced, evaluate
from polyarch.numa.fit.facts import ExactOptions, NodeFacts, PodFacts, Strategy

TWO = (cell(0, cpu=8, memory=32, costs={0: 10, 1: 21}), cell(1, cpu=8, memory=32, costs={0: 21, 1: 10}))


def score(pod: PodFacts, node: NodeFacts, strategy: Strategy = "LeastAllocated", **weights: int) -> int:
    found = evaluate(pod, node, {}, ExactOptions(strategy=strategy, weights=weights))
    assert found.fits
    return found.score


@pytest.mark.req("NS-070")
@pytest.mark.parametrize(
    ("strategy", "weights", "expected"),
    [
        ("LeastAllocated", {}, (75 + 25) // 2),
        ("LeastAllocated", {"cpu": 3}, (75 * 3 + 25) // 4),
        ("LeastAllocated", {"cpu": 0, "memory": -4}, (75 + 25) // 2),
        ("MostAllocated", {}, (25 + 75) // 2),
        ("MostAllocated", {"memory": 4}, (25 + 75 * 4) // 5),
        ("BalancedAllocation", {}, 87),
    ],
)
def test_amounts_of_the_chosen_cell_are_scored(strategy: Strategy, weights: dict[str, int], expected: int) -> None:
    """2 of 8 CPUs, 24 of 32 GiB; the variance of 1/4 and 3/4 is 1/8. A weight below 1 is 1."""
    assert score(pod(container("a", cpu=2, memory=24)), node(*TWO), strategy, **weights) == expected


@pytest.mark.req("NS-070")
def test_units_are_scored_in_order_after_earlier_ones_took_theirs() -> None:
    """4 of 8 CPUs leave half, 3 of the other 4 leave a quarter; together 37, truncated."""
    both = pod(container("a", cpu=4), container("b", cpu=3))
    assert score(both, node(cell(0, cpu=8))) == (50 + 25) // 2


@pytest.mark.req("NS-070")
def test_amounts_are_not_rounded_up() -> None:
    """1/3 of the thousandths of a page, not of a whole one."""
    assert allocated({"x": 500}, {"x": 1500}, {}, most=True) == 33


@pytest.mark.req("NS-070")
def test_what_waits_for_the_pod_counts_as_there() -> None:
    """Six CPUs are free, two are its init container's."""
    again = pod(container("i", "init", cpu=2), container("a", cpu=4))
    assert score(again, node(cell(0, cpu=8))) == (75 + 50) // 2


@pytest.mark.req("NS-070")
def test_one_resource_alone_is_balanced() -> None:
    assert score(pod(container("a", cpu=2)), node(*TWO), "BalancedAllocation") == 100


@pytest.mark.req("NS-006", "NS-070")
def test_the_variance_is_exact() -> None:
    """7/10 and 9/10 vary by 2/100, which no float says exactly."""
    assert balanced({"a": 7, "b": 9}, {"a": 10, "b": 10}) == 98


@pytest.mark.req("NS-071")
@pytest.mark.parametrize(
    ("cpus", "most_cells", "expected"),
    [
        pytest.param(2, 8, 100 - 12 + 6, id="one-cell"),
        pytest.param(10, 8, 100 - 2 * 12 + 6, id="two-cells"),
        pytest.param(10, 2, 100 - 2 * 50 + 25, id="two-cells-of-two"),
    ],
)
def test_fewer_cells_are_better(cpus: int, most_cells: int, expected: int) -> None:
    """Both sets are as close as can be."""
    there = node(*TWO, policy="restricted", most_cells=most_cells)
    assert score(pod(container("a", cpu=cpus)), there, "LeastNUMANodes") == expected


@pytest.mark.req("NS-071")
def test_cells_that_are_not_the_closest_lose_half_a_step() -> None:
    """{0, 1} is taken since it is the lowest; {1, 2} is closer."""
    far = {0: {0: 10, 1: 31, 2: 31}, 1: {0: 31, 1: 10, 2: 11}, 2: {0: 31, 1: 11, 2: 10}}
    cells = [cell(each, cpu=8, costs=far[each]) for each in range(3)]
    wide = pod(container("a", cpu=10))
    assert score(wide, node(*cells, policy="restricted"), "LeastNUMANodes") == 100 - 2 * 12
    closest = {"prefer-closest-numa-nodes": "true"}
    there = node(*cells, policy="restricted", topology_options=closest)
    assert score(wide, there, "LeastNUMANodes") == 100 - 2 * 12 + 6


@pytest.mark.req("NS-071")
def test_the_neediest_unit_counts() -> None:
    """One container on one cell, one on two."""
    both = pod(container("a", cpu=2), container("b", cpu=10))
    three = [*TWO, cell(2, cpu=8)]
    assert score(both, node(*three, policy="restricted"), "LeastNUMANodes") <= 100 - 2 * 12 + 6


@pytest.mark.req("NS-072")
@pytest.mark.parametrize("strategy", ["LeastAllocated", "MostAllocated", "BalancedAllocation", "LeastNUMANodes"])
def test_without_demand_a_node_is_as_good_as_can_be(strategy: Strategy) -> None:
    """Policy none aligns nothing of what could be, and best-effort may spread it."""
    assert score(pod(container("a", cpu=1), qos="Burstable"), node(*TWO), strategy) == 100
    assert score(pod(container("a", cpu=1)), node(*TWO, policy="none"), strategy) == 0
    assert score(pod(container("a", cpu=10)), node(*TWO, policy="best-effort"), strategy) == 0
    assert score(pod(container("a", cpu=2)), node(*TWO, policy="best-effort"), strategy) > 0


@pytest.mark.req("NS-072")
def test_where_the_kubelet_would_refuse_the_score_is_0() -> None:
    """The administrator asked for that with ``--restricted=score``."""
    there = node(cell(0, cpu=8, nic=1), cell(1, cpu=8), policy="restricted")
    options = ExactOptions(restricted="score")
    both = pod(container("a", cpu=10, nic=1))
    assert (evaluate(both, there, {}, options).score, evaluate(both, there, {}, options).cells) == (0, {})
    assert evaluate(pod(container("a", cpu=4, nic=1)), there, {}, options).score > 0


@pytest.mark.req("NS-073")
@pytest.mark.parametrize(
    ("asking", "expected"),
    [
        pytest.param(pod(container("a", cpu=1)), 0, id="guaranteed"),
        pytest.param(pod(container("a", nic=1), qos="BestEffort"), 0, id="device"),
        pytest.param(pod(container("a", cpu=1), qos="Burstable"), 100, id="nothing-to-align"),
    ],
)
def test_a_node_without_a_topology_comes_last_for_what_would_be_aligned(asking: PodFacts, expected: int) -> None:
    """With ``--unknown-nodes=reject`` it does not come at all."""
    unknown = NodeFacts(name="worker", has_topology=False)
    assert score(asking, unknown) == expected
    found = evaluate(asking, unknown, {}, ExactOptions(unknown_nodes="reject"))
    assert (found.fits, found.kind) == ((True, "") if expected else (False, "no-topology"))
