"""The plugin's Filter: which cell, which message, which resources."""

import pytest
from numa_snapshots import LISTED, NIC, container, node, pod, whole

from polyarch.numa.facts import TopologyPolicy
from polyarch.numa.fit.compat import CompatOptions, evaluate
from polyarch.numa.fit.facts import ContainerFacts, ContainerKind, FitDecision, NodeFacts, PodFacts, Qos


def decided(asked: PodFacts, at: NodeFacts, *, foreign: bool = False) -> FitDecision:
    free = {cell.id: cell.available for cell in at.cells}
    return evaluate(asked, at, free, CompatOptions(), foreign=foreign)


def reasons(found: FitDecision) -> tuple[str, str, str, tuple[str, ...]]:
    return found.kind, found.message, found.container, found.resources


FULL = node({0: {"cpu": 0, "memory": 0}})


@pytest.mark.req("NS-020")
def test_a_pod_without_requests_fits_even_a_foreign_node() -> None:
    assert decided(pod(container("c"), qos="BestEffort"), FULL, foreign=True).fits
    assert decided(pod(container("c", ephemeral_storage=1), qos="BestEffort"), FULL, foreign=True).fits


@pytest.mark.req("NS-020")
@pytest.mark.parametrize("kind", ["init", "sidecar", "app"])
def test_a_besteffort_pod_that_requests_a_device_is_looked_at(kind: ContainerKind) -> None:
    found = decided(pod(container("c", kind, nic=1), qos="BestEffort"), node({0: {NIC: 0}}))
    assert not found.fits
    assert not decided(pod(container("c", kind, nic=0), qos="BestEffort"), FULL, foreign=True).fits


@pytest.mark.req("NS-020")
def test_a_foreign_node_has_no_valid_data_even_without_an_object() -> None:
    found = decided(pod(container("c", cpu=1)), NodeFacts(name="n", has_topology=False), foreign=True)
    assert reasons(found) == ("foreign", "invalid node topology data", "", ())


@pytest.mark.req("NS-020")
def test_without_an_object_every_node_fits() -> None:
    found = decided(pod(container("c", cpu=1000)), NodeFacts(name="n", has_topology=False))
    assert (found.fits, found.cells, found.taken, found.score) == (True, {}, {}, 0)


@pytest.mark.req("NS-020")
@pytest.mark.parametrize("policy", ["none", "best-effort", "restricted"])
def test_other_policies_are_accepted_in_silence(policy: TopologyPolicy) -> None:
    assert decided(pod(container("c", cpu=1000)), node({0: {"cpu": 1}}, policy=policy)).fits


@pytest.mark.req("NS-021")
def test_the_lowest_cell_that_has_everything() -> None:
    cells = {0: {"cpu": 4, "memory": 1}, 1: {"cpu": 1, "memory": 9}, 2: {"cpu": 4, "memory": 9}, 3: LISTED}
    assert decided(pod(container("c", cpu=2, memory=4)), node(cells)).cells == {"c": (2,)}


@pytest.mark.req("NS-021")
def test_cells_are_numbered_by_their_ids_with_holes() -> None:
    assert decided(pod(container("c", cpu=2)), node({2: {"cpu": 1}, 63: {"cpu": 2}})).cells == {"c": (63,)}


@pytest.mark.req("NS-021")
def test_what_the_node_does_not_have_fails() -> None:
    found = decided(pod(container("c", cpu=1, nic=1)), node({0: {"cpu": 4}}, allocatable={"cpu": 4}))
    assert reasons(found) == ("not-on-node", "cannot align container", "c", (NIC,))


@pytest.mark.req("NS-021")
def test_nothing_of_a_resource_is_not_asked_for() -> None:
    assert decided(pod(container("c", cpu=1, nic=0)), node({0: {"cpu": 4}}, allocatable={"cpu": 4})).fits


@pytest.mark.req("NS-021")
@pytest.mark.parametrize("name", ["ephemeral-storage", NIC])
def test_what_no_cell_lists_but_the_host_has_is_passed_over(name: str) -> None:
    asked = ContainerFacts("c", "app", whole({"cpu": 1, name: 7}))
    assert decided(pod(asked), node({0: {"cpu": 0}, 1: {"cpu": 1}})).cells == {"c": (1,)}


@pytest.mark.req("NS-021")
@pytest.mark.parametrize("qos", ["Guaranteed", "Burstable"])
def test_memory_that_no_cell_lists_fails_even_for_a_burstable_pod(qos: Qos) -> None:
    found = decided(pod(container("c", cpu=1, memory=1), qos=qos), node({0: {"cpu": 4}}))
    assert reasons(found) == ("short", "cannot align container", "c", ("memory",))


@pytest.mark.req("NS-021")
def test_a_burstable_pod_is_asked_for_devices_only() -> None:
    at = node({0: {"cpu": 0, NIC: 0}, 1: {"cpu": 0, NIC: 1}})
    assert decided(pod(container("c", cpu=5, nic=1), qos="Burstable"), at).cells == {"c": (1,)}
    assert not decided(pod(container("c", cpu=5, nic=2), qos="Burstable"), at).fits


@pytest.mark.req("NS-021")
def test_a_cell_that_does_not_list_a_resource_others_list_is_out() -> None:
    assert decided(pod(container("c", cpu=1, nic=1)), node({0: {"cpu": 9}, 1: {"cpu": 1, NIC: 1}})).cells == {"c": (1,)}


@pytest.mark.req("NS-021")
def test_amounts_are_compared_to_the_thousandth() -> None:
    at = node({0: {"cpu": 1.999}, 1: {"cpu": 2}})
    assert decided(pod(container("c", cpu=2)), at).cells == {"c": (1,)}
    assert decided(pod(container("c", cpu=1.999)), at).cells == {"c": (0,)}


@pytest.mark.req("NS-021")
def test_resources_that_exclude_each_other_are_named() -> None:
    found = decided(
        pod(container("c", memory=8, cpu=8, nic=1)), node({0: {"cpu": 9, "memory": 1, NIC: 1}, 1: {**LISTED, "cpu": 1}})
    )
    assert reasons(found) == ("no-common-cell", "cannot align container", "c", ("cpu", "memory"))


@pytest.mark.req("NS-022")
@pytest.mark.parametrize(
    ("kind", "message"), [("init", "cannot align init container"), ("sidecar", "cannot align sidecar container")]
)
def test_the_first_failing_init_container_names_the_kind(kind: ContainerKind, message: str) -> None:
    other: ContainerKind = "sidecar" if kind == "init" else "init"
    asked = pod(container("ok", other, cpu=1), container("bad", kind, cpu=9), container("too", other, cpu=9))
    assert reasons(decided(asked, node({0: {"cpu": 8}}))) == ("short", message, "bad", ("cpu",))


@pytest.mark.req("NS-022")
def test_init_containers_are_looked_at_on_untouched_cells() -> None:
    asked = pod(container("s", "sidecar", cpu=8), container("i", "init", cpu=8), container("c", cpu=8))
    assert decided(asked, node({0: {"cpu": 8}})).cells == {"s": (0,), "i": (0,), "c": (0,)}


@pytest.mark.req("NS-022")
def test_app_containers_take_what_they_get() -> None:
    at = node({0: {"cpu": 8}, 1: {"cpu": 4}})
    assert decided(pod(container("a", cpu=5), container("b", cpu=4)), at).cells == {"a": (0,), "b": (1,)}
    found = decided(pod(container("a", cpu=5), container("b", cpu=4), container("c", cpu=4)), at)
    assert reasons(found) == ("short", "cannot align container", "c", ("cpu",))


@pytest.mark.req("NS-022")
def test_a_burstable_pod_takes_devices_only() -> None:
    at = node({0: {"cpu": 1, NIC: 1}, 1: {"cpu": 1, NIC: 1}})
    asked = pod(container("a", cpu=1, nic=1), container("b", cpu=1, nic=1), qos="Burstable")
    assert decided(asked, at).cells == {"a": (0,), "b": (1,)}
    assert decided(pod(container("a", cpu=9), container("b", cpu=9), qos="Burstable"), at).cells["b"] == (0,)


@pytest.mark.req("NS-023")
def test_a_pod_is_the_larger_of_its_sum_and_its_largest_init_container_and_its_overhead() -> None:
    at = node({0: {"cpu": 9}, 1: {"cpu": 10}}, scope="pod")
    sidecars = [container("s", "sidecar", cpu=6), container("i", "init", cpu=4)]
    asked = pod(*sidecars, container("a", cpu=4), container("b", cpu=4.5), overhead={"cpu": 0.5})
    assert decided(asked, at).cells == {"pod": (0,)}
    assert decided(pod(*sidecars, container("a", cpu=4), overhead={"cpu": 3.5}), at).cells == {"pod": (1,)}
    found = decided(pod(container("a", cpu=9), container("b", cpu=1.001)), at)
    assert reasons(found) == ("short", "cannot align pod", "pod", ("cpu",))


@pytest.mark.req("NS-024")
def test_a_rejection_has_a_kind_and_a_fit_says_what_the_cache_will_assume_on_every_cell() -> None:
    at = node({0: {"cpu": 8}, 1: {"cpu": 8, NIC: 1}}, scope="pod")
    found = decided(pod(container("a", cpu=2), container("b", cpu=1)), at)
    assert (found.kind, found.taken) == ("", {0: whole({"cpu": 3}), 1: whole({"cpu": 3})})
    assert decided(pod(container("a", cpu=9)), at).kind
