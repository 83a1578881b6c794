"""Which CPUs the modelled kubelet hands out. The tables are cases of the kubelet's own documentation and tests
(k8s.io/kubernetes v1.36, pkg/kubelet/cm/cpumanager), said in this project's words."""

import pytest
from kubelet_cases import Kubelet, burstable, container, guaranteed, machine, numa_node, pod

from polyarch.sandbox.kubelet_model.cpu_manager import NotEnoughCpus, packed

ONE_SOCKET = machine({core: (0, 0, (core, core + 4)) for core in range(4)})
TWO_SOCKETS = machine({core: (core % 2, core % 2, (core, core + 6)) for core in range(6)})
FOUR_CELLS_IN_TWO_SOCKETS = machine({core: (core // 20, core // 10, (core, core + 40)) for core in range(40)})
MACHINES = {"one": ONE_SOCKET, "two": TWO_SOCKETS, "four": FOUR_CELLS_IN_TWO_SOCKETS}


def cpulist(text: str) -> frozenset[int]:
    found: set[int] = set()
    for part in filter(None, text.split(",")):
        low, _, high = part.partition("-")
        found.update(range(int(low), int(high or low) + 1))
    return frozenset(found)


@pytest.mark.req("NS-164")
@pytest.mark.parametrize(
    ("on", "free", "count", "chosen"),
    [
        pytest.param("one", "0-7", 0, "", id="none"),
        pytest.param("one", "0-7", 1, "0", id="one CPU"),
        pytest.param("one", "1,3,5-7", 1, "6", id="one CPU of a core that is in use already"),
        pytest.param("one", "0-7", 2, "0,4", id="a whole core"),
        pytest.param("one", "0-7", 8, "0-7", id="all"),
        pytest.param("one", "0-3,6", 2, "2,6", id="the only whole core"),
        pytest.param("two", "0-11", 6, "0,2,4,6,8,10", id="a whole socket"),
        pytest.param("two", "1-5,7-11", 1, "2", id="from the socket with the fewest left"),
        pytest.param("two", "0-11", 8, "0,6,2,8,4,10,1,7", id="a whole cell and a core of the next"),
        pytest.param("four", "0-79", 40, "0-19,40-59", id="a whole socket of two cells"),
        pytest.param("four", "0-79", 20, "0-9,40-49", id="a whole cell of a socket"),
        pytest.param("four", "10-39,50-79", 20, "10-19,50-59", id="the other cell of a socket in use"),
        pytest.param("four", "0-79", 60, "0-29,40-69", id="a socket and a cell"),
        pytest.param("four", "1-39,41-79", 60, "10-39,50-79", id="a socket and a cell, one core in use"),
        pytest.param("four", "0-79", 64, "0-29,40-69,30,31,70,71", id="a socket, a cell, and cores of the last one"),
    ],
)
def test_cpus_are_packed_into_whole_cells_sockets_and_cores(on: str, free: str, count: int, chosen: str) -> None:
    assert packed(MACHINES[on], cpulist(free), count) == cpulist(chosen)


@pytest.mark.req("NS-164")
def test_too_few_cpus_are_said_as_the_kubelet_says_it() -> None:
    with pytest.raises(NotEnoughCpus, match="not enough cpus available to satisfy request: requested=5, available=4"):
        packed(ONE_SOCKET, {0, 2, 4, 6}, 5)


@pytest.mark.req("NS-164")
def test_only_guaranteed_pods_with_whole_cpus_get_them_exclusively() -> None:
    node = Kubelet(numa_node("2x4,policy=none"))
    whole, part, loose = guaranteed("a", cpu=2, memory=1), guaranteed("b", cpu=1.5, memory=1), burstable("c", cpu=2)
    assert [node.admit(each) for each in (whole, part, loose)] == [None, None, None]
    assert [node.cpus(each) for each in (whole, part, loose)] == [[1, 2], [], []]
    assert node.held.cpus.shared == {0, 3, 4, 5, 6, 7}


@pytest.mark.req("NS-164")
def test_reserved_cpus_are_never_handed_out() -> None:
    node = Kubelet(numa_node("1x4,policy=none,reserved=2"))
    assert node.node.configuration.reserved_cpus == {0, 1}
    refused = node.admit(guaranteed("a", cpu=3, memory=1))
    assert refused is not None
    assert refused.reason == "UnexpectedAdmissionError"
    assert refused.message == (
        "Allocate failed due to not enough cpus available to satisfy request: requested=3, available=2, "
        "which is unexpected"
    )
    assert node.reason(guaranteed("b", cpu=2, memory=1)) == ""


@pytest.mark.req("NS-164")
def test_cpus_of_init_containers_are_used_again_but_not_those_of_sidecars() -> None:
    node = Kubelet(numa_node("1x8,policy=none"))
    one = pod(
        "a",
        container("app", cpu=2, memory=1),
        container("log", cpu=1, memory=1),
        init=[container("side", is_sidecar=True, cpu=1, memory=1), container("init", cpu=2, memory=1)],
    )
    assert node.admit(one) is None
    assert node.cpus(one, "side") == [1]
    assert node.cpus(one, "init") == node.cpus(one, "app") == [2, 3]
    assert node.cpus(one, "log") == [4]


@pytest.mark.req("NS-164")
def test_cpus_come_back_when_a_pod_is_over() -> None:
    node = Kubelet(numa_node("1x4"))
    first = guaranteed("a", cpu=3, memory=1)
    assert node.reason(first) == ""
    assert node.reason(guaranteed("b", cpu=1, memory=1)) == "TopologyAffinityError"
    node.end(first)
    assert node.held.cpus.shared == {0, 1, 2, 3}
    assert node.reason(guaranteed("c", cpu=3, memory=1)) == ""


@pytest.mark.req("NS-164")
@pytest.mark.parametrize(
    ("cpus", "message"),
    [
        (1, "SMT Alignment Error: requested 1 cpus not multiple cpus per core = 2"),
        (
            8,
            (
                "SMT Alignment Error: not enough free physical CPUs: available physical CPUs = 6, requested CPUs = 8, "
                "CPUs per core = 2"
            ),
        ),
    ],
)
def test_whole_cores_are_demanded_where_the_option_says_so(cpus: int, message: str) -> None:
    node = Kubelet(numa_node("1x8,policy=none,threads=2,full-pcpus-only=true"))
    refused = node.admit(guaranteed("a", cpu=cpus, memory=1))
    assert refused is not None
    assert (refused.reason, refused.message) == ("SMTAlignmentError", message)
    assert node.reason(guaranteed("b", cpu=6, memory=1)) == ""
