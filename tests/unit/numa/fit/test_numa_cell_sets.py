"""Policies restricted and best-effort: which sets of cells will do, and which of them the kubelet takes."""

from time import process_time

import pytest
from numa_nodes import amounts, cell, container, node, pod

from polyarch.numa.fit.evaluate import evaluate
from polyarch.numa.fit.facts import ExactOptions, FitDecision, PodFacts
from polyarch.numa.fit.zones import fewest_zones

THREE = tuple(cell(each, cpu=8, memory=32) for each in range(3))


def decide(pod: PodFacts, *cells: object, policy: str = "restricted", **settings: object) -> FitDecision:
    return evaluate(pod, node(*cells, policy=policy, **settings), {}, ExactOptions())


@pytest.mark.req("NS-060")
@pytest.mark.parametrize(
    ("group", "expected"),
    [
        ({"cpu": 8}, 1),
        ({"cpu": 9}, 2),
        ({"cpu": 24}, 3),
        ({"cpu": 25}, None),
        ({"memory": 36}, 2),
        ({"memory": 30, "pages": 5}, 2),
        ({"memory": 30, "pages": 13}, None),
    ],
)
def test_a_group_needs_as_many_cells_as_an_empty_machine_would_give_it(
    group: dict[str, float], expected: int | None
) -> None:
    """What is in use does not matter here; of CPUs the reserved ones count, too."""
    cells = tuple(cell(each, cpu=8, memory=32, pages=4, used={"cpu": 5, "memory": 30}) for each in range(3))
    assert fewest_zones(cells, amounts(group)) == expected


@pytest.mark.req("NS-060")
def test_more_than_the_machine_has_is_short() -> None:
    """All three cells together have 24 CPUs."""
    found = decide(pod(container("a", cpu=25, memory=1)), *THREE)
    assert (found.kind, found.message) == ("short", "cannot align container: cpu")


@pytest.mark.req("NS-061")
def test_a_device_of_one_cell_keeps_two_cells_of_cpus_away() -> None:
    """As the kubelet sees it, no set of cells is as small as can be for both."""
    cells = (cell(0, cpu=8, memory=32, nic=1), cell(1, cpu=8, memory=32))
    found = decide(pod(container("a", cpu=10, nic=1), qos="Guaranteed"), *cells)
    assert (found.kind, found.resources) == ("no-common-cell", ("cpu", "example.com/nic"))
    assert decide(pod(container("a", cpu=4, nic=1)), *cells).cells == {"a": (0,)}


@pytest.mark.req("NS-061")
def test_a_group_that_finds_nothing_free_is_short() -> None:
    """Two cells would do on an empty machine, and may not be three now."""
    used = tuple(cell(each, cpu=8, memory=32, used={"cpu": 4}) for each in range(3))
    found = decide(pod(container("a", cpu=10, memory=1)), *used)
    assert (found.kind, found.resources) == ("short", ("cpu",))


@pytest.mark.req("NS-062")
def test_blocks_over_cells_want_them_unused_or_their_own() -> None:
    """One-cell blocks and groups do not mix."""
    wide = pod(container("a", cpu=10, memory=36))
    fresh = cell(0, cpu=8, memory=32), cell(1, cpu=8, memory=32)
    touched = cell(0, cpu=8, memory=32, used={"memory": 1}), fresh[1]
    assert decide(wide, *fresh).memory_groups == ((0, 1),)
    assert decide(wide, *touched).kind == "short"
    own = [cell(each, cpu=8, memory=32, group=(0, 1), used={"memory": 2}) for each in range(2)]
    other = [cell(each, cpu=8, memory=32, group=(0, 1, 2), used={"memory": 2}) for each in range(3)]
    assert decide(wide, *own).cells == {"a": (0, 1)}
    assert decide(wide, *other).kind == "short"


@pytest.mark.req("NS-062")
def test_a_cell_of_a_group_is_no_single_cell() -> None:
    """Both containers would fit cell 0, but its memory is given out together with that of cell 1."""
    cells = [cell(each, cpu=8, memory=32, group=(0, 1) if each < 2 else ()) for each in range(3)]
    assert decide(pod(container("a", cpu=2, memory=1), container("b", cpu=2)), *cells).cells == {"a": (2,), "b": (0,)}


@pytest.mark.req("NS-062")
def test_containers_of_one_pod_make_groups_for_each_other() -> None:
    """The second container finds cells 0 and 1 in a group."""
    found = decide(pod(container("a", cpu=10, memory=36), container("b", cpu=2, memory=1)), *THREE)
    assert found.cells == {"a": (0, 1), "b": (2,)}


@pytest.mark.req("NS-062", "NS-100")
def test_reserved_groups_count_before_any_object_shows_them() -> None:
    """The pod that made the group is still on its way."""
    small = pod(container("a", cpu=2, memory=1))
    there = node(*THREE, policy="restricted")
    assert evaluate(small, there, {}, ExactOptions(), groups=[(0, 1)]).cells == {"a": (2,)}


@pytest.mark.req("NS-062")
def test_pinned_cpus_must_lie_in_the_set() -> None:
    """Cells 1 and 2 would do for the app container if its init container had not been on cell 0."""
    cells = (cell(0, cpu=8, memory=32, used={"cpu": 6}), *(cell(each, cpu=8, memory=32) for each in (1, 2)))
    wide = container("a", cpu=14, memory=40)
    assert decide(pod(wide), *cells).cells == {"a": (1, 2)}
    found = decide(pod(container("i", "init", cpu=2, memory=1), wide), *cells)
    assert (found.kind, found.resources) == ("short", ("cpu",))


@pytest.mark.req("NS-063")
def test_the_lowest_set_is_taken_or_the_closest() -> None:
    """{0, 3} is closer together than {0, 1}."""
    far = {0: {0: 10, 1: 21, 2: 21, 3: 11}, 1: {0: 21, 1: 10}, 2: {0: 21, 2: 10}, 3: {0: 11, 3: 10}}
    cells = [cell(each, cpu=8, memory=32, costs=far[each]) for each in range(4)]
    wide = pod(container("a", cpu=10, memory=36))
    assert decide(wide, *cells).cells == {"a": (0, 1)}
    closest = {"prefer-closest-numa-nodes": "true"}
    assert decide(wide, *cells, topology_options=closest).cells == {"a": (0, 3)}


@pytest.mark.req("NS-063")
def test_low_numbers_go_by_value_and_not_by_order() -> None:
    """{1, 2} is 6 and {0, 3} is 9."""
    used = {0: 0, 1: 0, 2: 0, 3: 0}
    cells = [cell(each, cpu=8, memory=32, used={"cpu": used[each]}) for each in range(4)]
    cells[0] = cell(0, cpu=8, memory=32, used={"cpu": 6})
    cells[3] = cell(3, cpu=8, memory=32)
    assert decide(pod(container("a", cpu=15, memory=40)), *cells).cells == {"a": (1, 2)}


@pytest.mark.req("NS-063")
def test_memory_and_devices_come_from_the_cells_in_ascending_order() -> None:
    cells = [cell(each, memory=32, nic=2) for each in range(2)]
    found = decide(pod(container("a", memory=40, nic=3)), *cells)
    assert found.taken == {0: amounts({"memory": 32, "nic": 2}), 1: amounts({"memory": 8, "nic": 1})}


@pytest.mark.req("NS-063", "NS-109")
def test_cpus_come_as_the_cpu_manager_packs_them() -> None:
    """The whole cell 1 first, then two of the cell that has less; in ascending order, the prediction
    would be wrong each time that CPUs of cell 0 are reserved."""
    cells = (cell(0, cpu=8, memory=32, used={"cpu": 1}), cell(1, cpu=8, memory=32))
    found = decide(pod(container("a", cpu=10, memory=36)), *cells)
    assert found.taken == {0: amounts({"cpu": 2, "memory": 32}), 1: amounts({"cpu": 8, "memory": 4})}
    even = decide(pod(container("a", cpu=10, memory=36)), *THREE)
    assert even.taken == {0: amounts({"cpu": 8, "memory": 32}), 1: amounts({"cpu": 2, "memory": 4})}


@pytest.mark.req("NS-064")
def test_best_effort_takes_one_cell_if_one_will_do() -> None:
    cells = (cell(0, cpu=8, memory=32, nic=1, used={"nic": 1}), cell(1, cpu=8, memory=32, nic=1))
    assert decide(pod(container("a", cpu=2, memory=1, nic=1)), *cells, policy="best-effort").cells == {"a": (1,)}


@pytest.mark.req("NS-064")
def test_best_effort_takes_the_smallest_set_with_enough_for_everything() -> None:
    """Restricted refuses this one."""
    wide = pod(container("a", cpu=10, memory=20))
    assert decide(wide, *THREE).kind == "no-common-cell"
    found = decide(wide, *THREE, policy="best-effort")
    assert (found.fits, found.cells, found.score) == (True, {"a": (0, 1)}, 0)


@pytest.mark.req("NS-064")
def test_best_effort_fits_whatever_is_left() -> None:
    """There is not enough on all cells together; the sums of the node are not its matter."""
    found = decide(pod(container("a", cpu=30, memory=20)), *THREE, policy="best-effort")
    assert (found.fits, found.cells, found.score) == (True, {"a": (0, 1, 2)}, 0)


@pytest.mark.req("NS-086")
@pytest.mark.parametrize("cells", [12, 32])
@pytest.mark.parametrize(("policy", "expected"), [("best-effort", 6), ("restricted", 0)])
def test_a_machine_of_many_cells_is_decided_in_time(cells: int, policy: str, expected: int) -> None:
    """With two CPUs left in each cell, twelve come from six cells: there are thousands of such sets."""
    many = [cell(each, cpu=8, memory=32, nic=2, used={"cpu": 6}) for each in range(cells)]
    since = process_time()
    found = decide(pod(container("a", cpu=12, memory=40, nic=3)), *many, policy=policy)
    assert process_time() - since < 2
    assert len(found.cells.get("a", ())) == expected


@pytest.mark.req("NS-086")
def test_nearly_all_of_many_cells_is_decided_in_time() -> None:
    """Memory with huge pages of 31 of 32 cells, CPUs of 30."""
    many = [cell(each, cpu=8, memory=32, pages=4) for each in range(32)]
    since = process_time()
    found = decide(pod(container("a", cpu=240, memory=40, pages=124)), *many)
    assert process_time() - since < 2
    assert (found.kind, found.resources) == ("no-common-cell", ("cpu", "hugepages-2Mi", "memory"))


@pytest.mark.req("NS-086")
def test_the_nearest_of_many_sets_are_looked_for_once_for_machines_that_are_alike() -> None:
    """Half of 16 cells: there are 12 870 such sets, too many to count for each of a thousand nodes."""
    costs = [{other: 10 + abs(each - other) for other in range(16)} for each in range(16)]
    many = node(*(cell(each, cpu=8, memory=32, costs=costs[each]) for each in range(16)), policy="restricted")
    since = process_time()
    for free in range(30):
        left = {each: amounts({"cpu": 8, "memory": 32 - free / 2}) for each in range(16)}
        found = evaluate(pod(container("a", cpu=64)), many, left, ExactOptions(strategy="LeastNUMANodes"))
        assert found.cells == {"a": tuple(range(8))}
    assert process_time() - since < 2


@pytest.mark.req("NS-064")
def test_best_effort_without_any_cell_fits() -> None:
    """Nothing is known of the cells."""
    found = decide(pod(container("a", cpu=3, memory=20)), policy="best-effort")
    assert (found.fits, found.cells) == (True, {})


@pytest.mark.req("NS-065")
@pytest.mark.parametrize(
    ("memory", "first_used", "expected"),
    [
        pytest.param(20, 0, "no-common-cell", id="one-cell-of-memory"),
        pytest.param(36, 0, (0, 1), id="two-cells-of-both"),
        pytest.param(36, 4, (1, 2), id="cell-0-is-used-by-itself"),
    ],
)
def test_the_worked_case(memory: int, first_used: int, expected: object) -> None:
    """Three cells of eight CPUs and 32 GiB, and a pod of ten CPUs."""
    first = cell(0, cpu=8, memory=32, used={"memory": first_used})
    found = decide(pod(container("a", cpu=10, memory=memory)), first, *THREE[1:])
    assert (found.cells.get("a") or found.kind) == expected


@pytest.mark.req("NS-063")
def test_by_socket_more_cells_than_needed_are_preferred_if_they_are_of_one_socket() -> None:
    """Two devices need two cells, the CPUs one: without the option no set suits both."""
    cells = [cell(each, cpu=8, memory=32, nic=1, socket=each // 2) for each in range(4)]
    asks = pod(container("a", cpu=8, nic=2), qos="Guaranteed")
    assert decide(asks, *cells).kind == "no-common-cell"
    assert decide(asks, *cells, cpu_options={"align-by-socket": "true"}).cells == {"a": (0, 1)}
    apart = [cell(each, cpu=8, memory=32, nic=each % 2, socket=each // 2) for each in range(4)]
    assert decide(asks, *apart, cpu_options={"align-by-socket": "1"}).kind == "no-common-cell"


@pytest.mark.req("NS-063")
@pytest.mark.parametrize(
    ("options", "cpus", "taken"),
    [
        ({}, 20, {0: 16, 1: 4}),
        ({"distribute-cpus-across-numa": "true"}, 20, {0: 10, 1: 10}),
        ({"distribute-cpus-across-numa": "true"}, 21, {0: 11, 1: 10}),
        ({"distribute-cpus-across-numa": "true", "full-pcpus-only": "true"}, 22, {0: 12, 1: 10}),
        ({"distribute-cpus-across-numa": "true"}, 16, {0: 16}),
    ],
)
def test_distributed_cpus_come_evenly_from_as_few_cells_as_can_be(
    options: dict[str, str], cpus: int, taken: dict[int, int]
) -> None:
    cells = (cell(0, cpu=16, memory=32), cell(1, cpu=16, memory=32))
    found = decide(pod(container("a", cpu=cpus), qos="Guaranteed"), *cells, cpu_options=options, threads_per_core=2)
    assert {zone: amounts["cpu"] // 1000 for zone, amounts in found.taken.items()} == taken
