"""What the modelled topology manager admits, for each policy and scope; the worked cases of §5 – §7 of NUMA-aware
scheduling, judged by the model."""

import msgspec
import pytest
from kubelet_cases import GI, Kubelet, burstable, container, guaranteed, numa_node, pod

from polyarch.sandbox.kubelet_model.machine import mask, masks, members
from polyarch.sandbox.kubelet_model.topology_manager import ANY, NOTHING, TopologyHint, merge

pytestmark = pytest.mark.req("NS-051", "NS-053", "NS-054", "NS-060", "NS-063")

UNALIGNED = "TopologyAffinityError"
UNEXPECTED = "UnexpectedAdmissionError"


def hint(*cells: int, preferred: bool = True) -> TopologyHint:
    return TopologyHint(mask(cells), preferred=preferred)


BOTH = [hint(0), hint(1), hint(0, 1, preferred=False)]
SECOND = [hint(1), hint(0, 1, preferred=False)]
FIRST = [hint(0), hint(0, 1, preferred=False)]
WIDE = [hint(0, 1)]


@pytest.mark.req("NS-164")
@pytest.mark.parametrize(
    ("policy", "hints", "best", "is_admitted"),
    [
        pytest.param("best-effort", [{}], hint(0, 1), True, id="nobody has a preference"),
        pytest.param("single-numa-node", [{}], ANY, True, id="nobody has one: any cell"),
        pytest.param("restricted", [{"cpu": BOTH}], hint(0), True, id="the lowest of the narrowest"),
        pytest.param("restricted", [{"cpu": BOTH}, {"nic": SECOND}], hint(1), True, id="the one that both prefer"),
        pytest.param(
            "restricted",
            [{"cpu": FIRST}, {"nic": SECOND}],
            hint(0, preferred=False),
            False,
            id="no cell for both, restricted refuses",
        ),
        pytest.param(
            "best-effort",
            [{"cpu": FIRST}, {"nic": SECOND}],
            hint(0, preferred=False),
            True,
            id="no cell for both, best-effort does not mind",
        ),
        pytest.param(
            "single-numa-node", [{"cpu": FIRST}, {"nic": SECOND}], NOTHING, False, id="no cell for both, single"
        ),
        pytest.param("restricted", [{"cpu": WIDE}], hint(0, 1), True, id="two cells are as few as can be"),
        pytest.param("single-numa-node", [{"cpu": WIDE}], NOTHING, False, id="two cells are one too many"),
        pytest.param(
            "restricted", [{"cpu": BOTH, "memory": WIDE}], hint(0, 1, preferred=False), False, id="one cell beside two"
        ),
        pytest.param("restricted", [{"nic": []}], hint(0, 1, preferred=False), False, id="nothing suits a resource"),
        pytest.param("restricted", [{"nic": None}, {"cpu": SECOND}], hint(1), True, id="any cells suit a resource"),
    ],
)
def test_hints_become_one_as_in_the_kubelet(
    policy: str, hints: list[dict[str, list[TopologyHint] | None]], best: TopologyHint, is_admitted: bool
) -> None:
    assert merge(numa_node(f"2x8,policy={policy}"), hints) == (best, is_admitted)


@pytest.mark.req("NS-164")
def test_unpreferred_hints_are_as_wide_as_the_neediest_resource() -> None:
    """Of merged hints that are not preferred, one of as many cells as the neediest resource has at least is best."""
    node = numa_node("4x8,policy=best-effort")
    wide = [hint(0, 1), hint(2, 3), hint(0, 1, 2, 3, preferred=False)]
    narrow = [hint(2), hint(2, 3, preferred=False), hint(0, 1, 2, 3, preferred=False)]
    assert merge(node, [{"cpu": wide}, {"nic": narrow}]) == (hint(0, 1, preferred=False), True)


@pytest.mark.req("NS-164")
@pytest.mark.parametrize(("option", "best"), [("", hint(0, 1)), (",prefer-closest-numa-nodes=true", hint(2, 3))])
def test_closest_cells_are_preferred_where_the_option_says_so(option: str, best: TopologyHint) -> None:
    node = numa_node(f"4x8,policy=restricted{option}")
    rows = ((10, 30, 30, 30), (30, 10, 30, 30), (30, 30, 10, 12), (30, 30, 12, 10))
    cells = [msgspec.structs.replace(cell, distances=row) for cell, row in zip(node.machine.cells, rows, strict=True)]
    node = msgspec.structs.replace(node, machine=msgspec.structs.replace(node.machine, cells=tuple(cells)))
    two = [TopologyHint(cells, preferred=True) for cells in masks(range(4)) if len(members(cells)) == 2]
    assert merge(node, [{"cpu": two}]) == (best, True)


@pytest.mark.req("NS-164")
def test_cells_of_a_socket_are_nearer_and_memory_without_cpus_is_farther() -> None:
    machine = numa_node("4x2,sockets=2,cpuless=16Gi").machine
    assert [cell.distances for cell in machine.cells] == [
        (10, 12, 21, 21, 19),
        (12, 10, 21, 21, 19),
        (21, 21, 10, 12, 28),
        (21, 21, 12, 10, 28),
        (19, 19, 28, 28, 10),
    ]
    assert [(cpu.socket, cpu.cell) for cpu in machine.cpus] == [
        (0, 0), (0, 0), (0, 1), (0, 1), (1, 2), (1, 2), (1, 3), (1, 3),
    ]  # fmt: skip
    assert [cell.memory for cell in machine.cells] == [8 << 30] * 4 + [16 << 30]
    assert machine.cells_with_cpus == (0, 1, 2, 3)
    assert [cell.distances for cell in numa_node("2x4").machine.cells] == [(10, 21), (21, 10)]


@pytest.mark.req("NS-164")
def test_eight_cells_and_five_resources_are_merged_quickly() -> None:
    """The kubelet tries 255 ** 5 combinations; joined one by one they are some thousands."""
    node = numa_node("8x8,policy=restricted")
    every = [TopologyHint(cells, cells.bit_count() == 1) for cells in masks(range(8))]
    assert merge(node, [{str(number): every} for number in range(5)]) == (hint(0), True)


@pytest.mark.req("NS-050")
def test_the_lowest_cell_that_has_everything_is_taken() -> None:
    node = Kubelet(numa_node("2x8,devices=example.com/nic:1"))
    first, second, third = (guaranteed(name, cpu=2, memory=1, nic=1) for name in "abc")
    assert [node.reason(each) for each in (first, second)] == ["", ""]
    assert [node.cpus(each) for each in (first, second)] == [[1, 2], [8, 9]]
    assert node.reason(third) == UNALIGNED
    assert node.reason(guaranteed("d", cpu=6, memory=1)) == ""
    assert node.cpus(node.pods[-1]) == [10, 11, 12, 13, 14, 15]


@pytest.mark.req("NS-050")
def test_a_container_larger_than_a_cell_is_refused_with_the_kubelets_words() -> None:
    node = Kubelet(numa_node("2x8"))
    refused = node.admit(guaranteed("a", cpu=9, memory=1))
    assert refused is not None
    assert (refused.reason, refused.message) == (UNALIGNED, "Resources cannot be allocated with Topology locality")


@pytest.mark.req("NS-050")
@pytest.mark.parametrize(("scope", "reason"), [("container", ""), ("pod", UNALIGNED)])
def test_containers_may_sit_on_different_cells_only_in_container_scope(scope: str, reason: str) -> None:
    node = Kubelet(numa_node(f"2x8,scope={scope}"))
    wide = pod("a", container("app", cpu=6, memory=1), container("other", cpu=6, memory=1))
    assert node.reason(wide) == reason
    if not reason:
        assert node.cpus(wide) == [1, 2, 3, 4, 5, 6]
        assert node.cpus(wide, "other") == [8, 9, 10, 11, 12, 13]


@pytest.mark.req("NS-043")
def test_in_pod_scope_init_containers_count_only_while_they_run() -> None:
    node = Kubelet(numa_node("2x8,scope=pod"))
    apps = [container("app", cpu=4, memory=1), container("other", cpu=3, memory=1)]
    assert node.reason(pod("a", *apps, init=[container("init", cpu=7, memory=1)])) == ""
    assert node.reason(pod("b", *apps, init=[container("side", is_sidecar=True, cpu=2, memory=1)])) == UNALIGNED


@pytest.mark.req("NS-052")
def test_reusable_cpus_pin_later_containers_to_their_cell() -> None:
    """The init container takes CPUs of cell 0, where a later container does not fit: the kubelet refuses the pod though
    cell 1 is free."""
    node = Kubelet(numa_node("2x8"))
    assert node.reason(guaranteed("a", cpu=2, memory=1)) == ""
    pinned = pod("b", container("app", cpu=6, memory=1), init=[container("init", cpu=2, memory=1)])
    assert node.reason(pinned) == UNALIGNED
    assert node.reason(guaranteed("c", cpu=6, memory=1)) == ""


@pytest.mark.req("NS-052")
def test_reusable_memory_pins_nothing() -> None:
    """Devices and CPUs are not asked for in whole: only memory is aligned."""
    node = Kubelet(numa_node("2x8,memory=16Gi"))
    assert node.reason(guaranteed("a", cpu=0.5, memory=8)) == ""
    free = pod("b", container("app", cpu=0.5, memory=10), init=[container("init", cpu=0.5, memory=4)])
    assert node.reason(free) == ""
    assert node.held.memory.held["b"]["app"][0].cells == (1,)


@pytest.mark.req("NS-065")
@pytest.mark.parametrize(
    ("used", "cpu", "memory", "reason", "cells"),
    [
        pytest.param(0, 10, 20, UNALIGNED, (), id="CPUs need two cells, memory one"),
        pytest.param(0, 10, 36, "", (0, 1), id="both need two"),
        pytest.param(4, 10, 36, "", (1, 2), id="cell 0 has blocks of one cell"),
    ],
)
def test_restricted_wants_each_resource_on_the_fewest_cells_and_all_on_the_same(
    used: int, cpu: int, memory: int, reason: str, cells: tuple[int, ...]
) -> None:
    """Three cells of 8 CPUs and 32 GiB; the node's reserved GiB is taken off cell 0."""
    node = Kubelet(numa_node("3x8,policy=restricted,memory=33Gi"))
    if used:
        assert node.reason(guaranteed("first", cpu=0.5, memory=used)) == ""
    one = guaranteed("a", cpu=cpu, memory=memory)
    assert node.reason(one) == reason
    if cells:
        assert node.held.memory.held["a"]["app"][0].cells == cells


@pytest.mark.req("NS-061")
def test_a_device_on_one_cell_beside_cpus_on_two_is_refused_by_restricted() -> None:
    node = Kubelet(numa_node("2x8,policy=restricted,memory=64Gi,devices=example.com/nic:2"))
    assert node.reason(guaranteed("a", cpu=10, memory=70, nic=1)) == UNALIGNED
    assert node.reason(guaranteed("b", cpu=10, memory=70)) == ""


@pytest.mark.req("NS-062")
def test_cells_of_a_group_take_blocks_of_this_group_alone() -> None:
    node = Kubelet(numa_node("2x8,policy=restricted,memory=32Gi"))
    wide = guaranteed("a", cpu=9, memory=40)
    assert node.reason(wide) == ""
    assert [node.held.memory.cells[cell].group for cell in (0, 1)] == [(0, 1), (0, 1)]
    assert [node.free(0), node.free(1)] == [0, 23]
    assert node.reason(guaranteed("b", cpu=0.5, memory=1)) == UNALIGNED, "one cell would do, but only both together may"
    assert node.reason(guaranteed("c", cpu=0.5, memory=24)) == UNEXPECTED, "no hint at all: found when it allocates"
    node.end(wide)
    assert [node.held.memory.cells[cell].group for cell in (0, 1)] == [(0,), (1,)]
    assert node.reason(guaranteed("d", cpu=0.5, memory=1)) == ""


@pytest.mark.req("NS-064")
def test_best_effort_admits_what_fits_on_no_single_cell() -> None:
    node = Kubelet(numa_node("2x8,policy=best-effort"))
    assert node.reason(guaranteed("a", cpu=6, memory=1)) == ""
    spread = guaranteed("b", cpu=9, memory=40)
    assert node.reason(spread) == UNEXPECTED, "memory of cell 0 is in use by a block of one cell"
    assert node.reason(guaranteed("c", cpu=7, memory=1)) == ""
    assert node.cpus(node.pods[-1]) == [8, 9, 10, 11, 12, 13, 14]


@pytest.mark.req("NS-041")
def test_devices_are_aligned_whatever_the_quality_of_service() -> None:
    node = Kubelet(numa_node("2x4,devices=example.com/nic:1,devices=example.com/gpu:1"))
    assert node.reason(burstable("a", cpu=1, nic=1)) == ""
    assert node.held.devices.held["a"]["app"] == {"example.com/nic": {"nic-0-0"}}
    assert node.reason(burstable("b", nic=1, gpu=1)) == ""
    assert node.held.devices.held["b"]["app"] == {"example.com/nic": {"nic-1-0"}, "example.com/gpu": {"gpu-1-0"}}
    assert node.reason(burstable("c", nic=1)) == UNALIGNED


@pytest.mark.req("NS-164")
def test_devices_of_init_containers_are_used_again() -> None:
    node = Kubelet(numa_node("1x4,devices=example.com/nic:2"))
    one = pod("a", container("app", cpu=1, memory=1, nic=2), init=[container("init", cpu=1, memory=1, nic=1)])
    assert node.reason(one) == ""
    assert node.held.devices.held["a"]["app"]["example.com/nic"] == {"nic-0-0", "nic-0-1"}
    assert node.reason(burstable("b", nic=1)) == UNALIGNED


@pytest.mark.req("NS-164")
def test_huge_pages_are_aligned_with_memory() -> None:
    node = Kubelet(numa_node("2x4,memory=16Gi,pages=2Mi:1024"))
    assert node.free(0) == 13
    first, second = (guaranteed(name, cpu=1, memory=1, pages=1.5) for name in "ab")
    assert [node.reason(each) for each in (first, second)] == ["", ""]
    assert [{block.cells for block in node.held.memory.held[name]["app"]} for name in "ab"] == [{(0,)}, {(1,)}]
    assert node.free(0, "hugepages-2Mi") == 0.5


@pytest.mark.req("NS-164")
def test_memory_of_init_containers_is_given_back_when_the_next_container_starts() -> None:
    node = Kubelet(numa_node("1x4,memory=16Gi"))
    one = pod("a", container("app", cpu=1, memory=4), init=[container("init", cpu=1, memory=10)])
    assert node.reason(one) == ""
    assert node.free(0) == 5
    node.start(one)
    assert node.free(0) == 11
    assert set(node.held.memory.held["a"]) == {"app"}


@pytest.mark.req("NS-164")
@pytest.mark.parametrize(
    ("given", "reason", "message"),
    [
        (
            {"cpu": 7.5},
            "OutOfcpu",
            "Node didn't have enough resource: cpu, requested: 7500, used: 1000, capacity: 7000",
        ),
        (
            {"memory": 40},
            "OutOfmemory",
            f"Node didn't have enough resource: memory, requested: {40 * GI}, used: {GI}, capacity: {31 * GI}",
        ),
    ],
)
def test_a_pod_beyond_the_nodes_sum_is_refused_by_name(given: dict[str, float], reason: str, message: str) -> None:
    node = Kubelet(numa_node("1x8,policy=none"))
    assert node.reason(guaranteed("a", cpu=1, memory=1)) == ""
    refused = node.admit(burstable("b", **given))
    assert refused is not None
    assert (refused.reason, refused.message) == (reason, message)


@pytest.mark.req("NS-164")
def test_what_a_refused_pod_was_given_is_forgotten_with_the_next_admission() -> None:
    node = Kubelet(numa_node("2x8"))
    half = pod("a", container("app", cpu=6, memory=1), container("other", cpu=9, memory=1))
    assert node.reason(half) == UNALIGNED
    assert node.cpus(half) == [1, 2, 3, 4, 5, 6], "as in the kubelet's state file"
    assert node.reason(guaranteed("b", cpu=7, memory=1)) == ""
    assert node.cpus(node.pods[-1]) == [1, 2, 3, 4, 5, 6, 7]


@pytest.mark.req("NS-164")
def test_a_pod_that_is_admitted_again_after_a_restart_keeps_what_it_holds() -> None:
    node = Kubelet(numa_node("2x8,devices=example.com/nic:1"))
    one, other = guaranteed("a", cpu=2, memory=1, nic=1), guaranteed("b", cpu=3, memory=2)
    assert [node.reason(each) for each in (one, other)] == ["", ""]
    held, node.pods = node.held, []
    assert [node.reason(each) for each in (other, one)] == ["", ""]
    assert (node.held.cpus.held, node.held.memory.cells) == (held.cpus.held, held.memory.cells)
    assert node.held.devices.held == held.devices.held
