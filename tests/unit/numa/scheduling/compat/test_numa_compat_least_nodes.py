"""LeastNUMANodes."""

import random
import time
from collections.abc import Mapping
from itertools import combinations

import pytest
from numa_snapshots import NIC, container, node, pod, whole

from polyarch.numa.fit import compat
from polyarch.numa.fit.compat import ZoneSet, ZoneSetSearch, graded
from polyarch.numa.fit.facts import NodeFacts, PodFacts

FAR = {(0, 0): 10, (1, 1): 10, (2, 2): 10, (0, 1): 30, (1, 0): 30, (0, 2): 20, (2, 0): 20, (1, 2): 20, (2, 1): 20}


def scored(asked: PodFacts, at: NodeFacts) -> int:
    return compat.least_nodes_score(asked, at, {cell.id: cell.available for cell in at.cells})


def chosen(at: NodeFacts, **requests: float) -> ZoneSet | None:
    return ZoneSetSearch(at, {cell.id: cell.available for cell in at.cells}).choose(whole(requests))


@pytest.mark.req("NS-034")
@pytest.mark.parametrize(
    ("size", "optimal", "most", "expected"),
    [(1, True, 8, 94), (1, False, 8, 88), (2, True, 8, 82), (8, True, 8, 10), (9, True, 8, 0), (5, False, 1024, 100)],
)
def test_each_cell_costs_its_share(size: int, *, optimal: bool, most: int, expected: int) -> None:
    assert graded(size, optimal=optimal, most=most) == expected


@pytest.mark.req("NS-034")
def test_the_smallest_set_then_the_nearest_then_the_first() -> None:
    cells = {0: {"cpu": 4}, 1: {"cpu": 4}, 2: {"cpu": 4}}
    assert chosen(node(cells, distances=FAR), cpu=4) == ((0,), True)
    assert chosen(node(cells, distances=FAR), cpu=8) == ((0, 2), True)
    assert chosen(node({**cells, 2: {"cpu": 3}}, distances=FAR), cpu=8) == ((0, 1), False)
    assert chosen(node(cells, distances=FAR), cpu=13) is None


@pytest.mark.req("NS-034")
def test_every_cell_of_a_set_lists_every_resource() -> None:
    cells = {0: {"cpu": 4}, 1: {"cpu": 4, "memory": 0}, 2: {"cpu": 4, "memory": 1}}
    assert chosen(node(cells), cpu=8, memory=1) == ((1, 2), True)
    assert chosen(node(cells), cpu=9, memory=1) is None
    assert chosen(node(cells), cpu=9, memory=0) is None


@pytest.mark.req("NS-034")
def test_a_missing_distance_is_255() -> None:
    cells = {0: {"cpu": 4}, 1: {"cpu": 4}, 2: {"cpu": 8}}
    assert chosen(node(cells), cpu=5) == ((2,), True)
    assert chosen(node(cells, distances={(0, 0): 254}), cpu=5) == ((2,), False)
    assert chosen(node(cells, distances={(0, 0): 256}), cpu=5) == ((2,), True)


@pytest.mark.req("NS-034")
def test_scores() -> None:
    at = node({0: {"cpu": 4}, 1: {"cpu": 4}, 2: {"cpu": 3}}, distances=FAR, scope="pod", most=4)
    assert scored(pod(container("a", cpu=2), container("b", cpu=2)), at) == 100 - 25 + 12
    assert scored(pod(container("a", cpu=5), container("b", cpu=3)), at) == 100 - 2 * 25
    assert scored(pod(container("a", cpu=12)), at) == 0
    assert scored(pod(container("a", nic=1)), at) == 100


@pytest.mark.req("NS-034")
def test_containers_follow_one_another_and_the_worst_of_them_counts() -> None:
    at = node({0: {"cpu": 4}, 1: {"cpu": 4}, 2: {"cpu": 4, NIC: 1}}, distances=FAR)
    assert scored(pod(container("a", cpu=4), container("b", cpu=4)), at) == 94
    assert scored(pod(container("a", cpu=6), container("b", cpu=6)), at) == 82
    # Cells 0 and 1 are left, which are not near each other.
    assert scored(pod(container("a", cpu=4, nic=1), container("b", cpu=8)), at) == 82 - 6
    assert scored(pod(container("a", cpu=6), container("b", cpu=7)), at) == 0
    assert scored(pod(container("i", "init", cpu=12), container("b", cpu=1)), at) == 0
    assert scored(pod(container("a", cpu=1, nic=2)), at) == 0


def expected(at: NodeFacts, requests: Mapping[str, int]) -> ZoneSet | None:
    """As it is said, set by set."""
    cells = {cell.id: cell for cell in at.cells}

    def distance(these: tuple[int, ...]) -> int:
        return sum(cells[one].costs.get(other, 255) for one in these for other in these)

    def holds(these: tuple[int, ...]) -> bool:
        found = [cells[each].available for each in these]
        return all(all(name in each for each in found) for name in requests) and all(
            sum(each[name] for each in found) >= amount for name, amount in requests.items()
        )

    for size in range(1, len(cells) + 1):
        sets = list(combinations(sorted(cells), size))
        if able := [each for each in sets if holds(each)]:
            best = min(able, key=distance)
            return ZoneSet(best, distance(best) == min(map(distance, sets)))
    return None


def some_node(chance: random.Random, most: int) -> NodeFacts:
    ids = sorted(chance.sample(range(2 * most), chance.randint(1, most)))
    cells = {each: {name: chance.randint(0, 6) for name in ("cpu", "memory") if chance.random() < 0.95} for each in ids}
    near = {(one, other): 10 if one == other else chance.randint(11, 13) for one in ids for other in ids}
    return node(cells, distances={pair: cost for pair, cost in near.items() if chance.random() < 0.95})


@pytest.mark.req("NS-034")
@pytest.mark.parametrize("seed", range(300))
def test_the_walk_finds_what_looking_at_all_sets_finds(seed: int) -> None:
    chance = random.Random(seed)
    at = some_node(chance, 7)
    requests = whole({"cpu": chance.randint(0, 12), "memory": chance.randint(0, 12)})
    assert ZoneSetSearch(at, {cell.id: cell.available for cell in at.cells}).choose(requests) == expected(at, requests)


@pytest.mark.req("NS-035")
@pytest.mark.parametrize("count", [13, 16, 24, 64])
def test_many_cells_take_no_longer_than_50_ms(count: int) -> None:
    """Of CPU, so that a busy machine does not matter; twice as long is allowed here, since its caches are shared."""
    chance = random.Random(count)
    ids = range(count)
    near = {(one, other): 10 if one == other else chance.randint(11, 60) for one in ids for other in ids}
    cells = {each: {"cpu": chance.randint(0, 8), "memory": chance.randint(0, 8)} for each in ids}
    at = node(cells, distances=near, most=64)
    for amount in range(1, 4 * count, max(1, count // 4)):
        asked = pod(container("a", cpu=amount, memory=amount), container("b", cpu=amount, memory=amount))
        begin = time.process_time()
        found = scored(asked, at)
        assert time.process_time() - begin < 0.1
        assert 0 <= found <= 100


@pytest.mark.req("NS-035")
def test_sets_beyond_those_that_are_looked_at_are_not_called_optimal() -> None:
    """The nearest pair is among the last of 2 016; the nearest sets of 20 cells are not looked for to the end."""
    ids = range(64)
    near = {(one, other): 10 if one == other else 20 - (min(one, other) == 62) for one in ids for other in ids}
    at = node({each: {"cpu": 4} for each in ids}, distances=near)
    assert chosen(at, cpu=8) == ((62, 63), True)
    found = chosen(at, cpu=80)
    assert found is not None
    assert (len(found.cells), found.optimal) == (20, False)
