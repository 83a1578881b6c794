"""What of a pod's requests a node aligns."""

import pytest
from numa_nodes import amounts, cell, container, node, pod

from polyarch.numa.fit.demand import PodDemand, PodDemandCache, demand, managed, requested
from polyarch.numa.fit.facts import POD, ContainerFacts, NodeFacts, PodFacts

ALL = frozenset({"cpu", "memory", "hugepages-2Mi", "example.com/nic"})


def needs(found: PodDemand) -> dict[str, dict[str, int]]:
    return {each.name: dict(each.needs) for each in found.units}


def in_containers(pod: PodFacts, **others: bool) -> dict[str, dict[str, int]]:
    return needs(demand(pod, ALL, scope="container", **others))


def in_pod(pod: PodFacts, **others: bool) -> dict[str, int]:
    return needs(demand(pod, ALL, scope="pod", **others)).get(POD, {})


@pytest.mark.req("NS-040")
@pytest.mark.parametrize(
    ("there", "expected"),
    [
        pytest.param(node(cell(0, cpu=8, memory=8, nic=1)), {"cpu", "memory", "example.com/nic"}, id="amounts-tell"),
        pytest.param(node(cell(0, cpu=0, memory=0), cell(1, cpu=0)), set(), id="nothing-is-allocatable"),
        pytest.param(
            node(cell(0, cpu=8, memory=8), cpu_manager="none", memory_manager="None"), set(), id="the-managers-say-none"
        ),
        pytest.param(
            node(cell(0, cpu=0), cpu_manager="static", memory_manager="Static"), {"cpu", "memory"}, id="they-say-static"
        ),
        pytest.param(node(cell(0), cell(1, nic=0)), {"example.com/nic"}, id="a-device-that-a-cell-lists"),
    ],
)
def test_a_resource_is_managed_as_the_managers_or_the_amounts_say(there: NodeFacts, expected: set[str]) -> None:
    assert managed(there, ("cpu", "memory", "example.com/nic", "ephemeral-storage")) == expected


@pytest.mark.req("NS-041")
def test_only_guaranteed_pods_with_whole_cpus_align_more_than_devices() -> None:
    """Fractional CPUs come from the shared pool; devices always count; what the node does not manage never."""
    whole, part = container("whole", cpu=2, memory=1, nic=1), container("part", cpu=1.5, memory=1, gpu=1)
    assert in_containers(pod(whole, part)) == {
        "whole": amounts({"cpu": 2, "memory": 1, "nic": 1}),
        "part": amounts({"memory": 1}),
    }
    assert in_containers(pod(whole, part, qos="Burstable")) == {"whole": amounts({"nic": 1})}


@pytest.mark.req("NS-041")
def test_overhead_never_counts() -> None:
    with_overhead = pod(container("a", cpu=2, memory=1), overhead=amounts({"cpu": 1}))
    assert in_pod(with_overhead) == amounts({"cpu": 2, "memory": 1})


@pytest.mark.req("NS-042")
def test_resources_of_the_pod_leave_devices_alone_to_be_aligned() -> None:
    """Without the managers that know them."""
    whole = pod(container("a", cpu=2, memory=1, nic=1), pod_requests=amounts({"cpu": 4, "memory": 4}))
    assert in_containers(whole) == {"a": amounts({"nic": 1})}
    assert in_pod(whole) == amounts({"nic": 1})


@pytest.mark.req("NS-042")
def test_with_pod_level_managers_the_pod_is_one_piece() -> None:
    """Scope pod: its own CPUs, if they are whole, memory and pages."""
    containers = (container("a", cpu=2, memory=1, nic=1), container("b", nic=1))
    whole = pod(*containers, pod_requests=amounts({"cpu": 4, "memory": 4, "pages": 1}))
    assert in_pod(whole, pod_level_managers=True) == amounts({"cpu": 4, "memory": 4, "pages": 1, "nic": 2})
    part = pod(*containers, pod_requests=amounts({"cpu": 3.5, "memory": 4}))
    assert in_pod(part, pod_level_managers=True) == amounts({"memory": 4, "nic": 2})
    burstable = pod(*containers, qos="Burstable", pod_requests=amounts({"cpu": 4, "memory": 4}))
    assert in_pod(burstable, pod_level_managers=True) == amounts({"nic": 2})


@pytest.mark.req("NS-042")
def test_with_pod_level_managers_containers_count_whose_requests_are_their_limits() -> None:
    """Scope container."""
    limited = container("limited", cpu=2, memory=1)
    open_ended = ContainerFacts("open", "app", amounts({"cpu": 2, "memory": 1}), amounts({"cpu": 3, "memory": 1}))
    both = pod(limited, open_ended, pod_requests=amounts({"cpu": 6, "memory": 4}))
    assert in_containers(both, pod_level_managers=True) == {"limited": amounts({"cpu": 2, "memory": 1})}


@pytest.mark.req("NS-043")
def test_sidecars_stay_and_other_init_containers_come_one_by_one() -> None:
    """The init container after the sidecar runs beside it, the first one does not."""
    found = in_pod(
        pod(
            container("first", "init", cpu=6, memory=1),
            container("side", "sidecar", cpu=2, memory=2),
            container("second", "init", cpu=5, memory=1),
            container("a", cpu=1, memory=3),
            container("b", cpu=1, memory=3),
        )
    )
    assert found == amounts({"cpu": 7, "memory": 8})


@pytest.mark.req("NS-043")
def test_memory_that_no_app_container_requests_is_not_in_the_kubelets_sum() -> None:
    """As the memory manager reads it: its cells are looked for without the pages of the init container."""
    found = in_pod(pod(container("i", "init", cpu=1, memory=1, pages=1), container("a", cpu=1, memory=1)))
    assert found == amounts({"cpu": 1, "memory": 1})


@pytest.mark.req("NS-042")
def test_nodes_of_one_kind_share_one_demand() -> None:
    """Done once for a pod and a kind of node, which a filter over thousands of nodes relies on."""
    demands = PodDemandCache(pod(container("a", cpu=2, memory=1)))
    one, other = node(cell(0, cpu=8, memory=8)), node(cell(0, cpu=4, memory=4), cell(1, cpu=4), name="other")
    assert demands.on(one) is demands.on(other)
    by_pod = node(cell(0, cpu=8, memory=8), scope="pod")
    assert [each.name for each in demands.on(by_pod).units] == [POD]
    without_memory = node(cell(0, cpu=8))
    assert needs(demands.on(without_memory)) == {"a": amounts({"cpu": 2})}


@pytest.mark.req("NS-041")
def test_storage_is_nothing_to_align() -> None:
    """Only what may be managed is asked for on each node."""
    assert requested(pod(ContainerFacts("a", "app", {"cpu": 1, "ephemeral-storage": 5, "a/b": 0}, {}))) == ("cpu",)
