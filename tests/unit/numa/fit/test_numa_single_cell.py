"""Policy single-numa-node: which cell each container gets, and why none will do."""

import pytest
from numa_nodes import amounts, cell, container, node, pod

from polyarch.numa.fit.evaluate import evaluate
from polyarch.numa.fit.facts import ExactOptions, FitDecision, NodeFacts, PodFacts

TWO = (cell(0, cpu=8, memory=32, nic=1), cell(1, cpu=8, memory=32, nic=1))


def decide(pod: PodFacts, node: NodeFacts) -> FitDecision:
    return evaluate(pod, node, {}, ExactOptions())


@pytest.mark.req("NS-050")
def test_each_container_gets_the_lowest_cell_that_will_do() -> None:
    """The second container finds what the first one leaves."""
    found = decide(
        pod(container("a", cpu=5, memory=1), container("b", cpu=5, memory=1), container("c", cpu=0.5)), node(*TWO)
    )
    assert found.cells == {"a": (0,), "b": (1,)}
    assert found.taken == {0: amounts({"cpu": 5, "memory": 1}), 1: amounts({"cpu": 5, "memory": 1})}


@pytest.mark.req("NS-050")
def test_a_pod_is_one_unit_in_scope_pod() -> None:
    """Ten CPUs together are on no cell."""
    both = pod(container("a", cpu=5, memory=1), container("b", cpu=5, memory=1))
    found = decide(both, node(*TWO, scope="pod"))
    assert (found.fits, found.kind, found.message) == (False, "short", "cannot align pod: cpu")
    small = decide(pod(container("a", cpu=5, memory=1), container("b", cpu=3, memory=1)), node(*TWO, scope="pod"))
    assert small.cells == {"pod": (0,)}


@pytest.mark.req("NS-050", "NS-100")
def test_reservations_count_as_taken() -> None:
    """``free`` is what is left of availability."""
    found = evaluate(pod(container("a", cpu=5)), node(*TWO), {0: amounts({"cpu": 4})}, ExactOptions())
    assert found.cells == {"a": (1,)}


@pytest.mark.req("NS-051")
def test_what_an_init_container_had_is_used_again_before_anything_is_taken() -> None:
    """Eight CPUs do for all of them; a sidecar keeps its own."""
    again = pod(
        container("i", "init", cpu=6, memory=4),
        container("s", "sidecar", cpu=2, memory=1),
        container("j", "init", cpu=5, memory=2),
        container("a", cpu=4, memory=5),
    )
    found = decide(again, node(*TWO))
    assert found.cells == {"i": (0,), "s": (0,), "j": (0,), "a": (0,)}
    assert found.taken == {0: amounts({"cpu": 7, "memory": 6})}


@pytest.mark.req("NS-052")
def test_cpus_that_wait_for_the_pod_keep_its_next_container_on_their_cell() -> None:
    """Cell 1 has all that the app container wants, and the kubelet still refuses."""
    pinned = pod(container("i", "init", cpu=2, memory=1), container("a", cpu=4, memory=1, nic=1))
    cells = (cell(0, cpu=8, memory=32), cell(1, cpu=8, memory=32, nic=1))
    found = decide(pinned, node(*cells))
    assert (found.kind, found.container, found.resources) == ("no-common-cell", "a", ("cpu", "example.com/nic"))
    assert decide(pod(container("a", cpu=4, memory=1, nic=1)), node(*cells)).cells == {"a": (1,)}


@pytest.mark.req("NS-052")
def test_memory_and_other_resources_pin_nothing() -> None:
    """The init container's memory stays behind, its CPUs came from the shared pool."""
    free_to_go = pod(container("i", "init", cpu=0.5, memory=1), container("a", cpu=4, memory=1, nic=1))
    found = decide(free_to_go, node(cell(0, cpu=8, memory=32), cell(1, cpu=8, memory=32, nic=1)))
    assert found.cells == {"i": (0,), "a": (1,)}
    assert found.taken == {0: amounts({"memory": 1}), 1: amounts({"cpu": 4, "memory": 1, "nic": 1})}


@pytest.mark.req("NS-052")
def test_devices_that_wait_for_the_pod_pin_and_stay_unseen() -> None:
    """One of both is used again; the other one is kept by the kubelet, and no exporter sees it."""
    cells = (cell(0, cpu=8, memory=32, nic=2), cell(1, cpu=8, memory=32, nic=2))
    both = decide(pod(container("i", "init", nic=2), container("a", cpu=8, memory=1, nic=1)), node(*cells))
    assert both.cells == {"i": (0,), "a": (0,)}
    assert both.taken == {0: amounts({"cpu": 8, "memory": 1, "nic": 2})}
    assert both.unseen == {0: amounts({"nic": 1})}


@pytest.mark.req("NS-053")
def test_what_no_cell_has_enough_of_is_short() -> None:
    """Both are named in order; the device would be there."""
    found = decide(pod(container("a", memory=40, cpu=9, nic=1)), node(*TWO))
    assert (found.kind, found.message) == ("short", "cannot align container: cpu, memory")
    assert (found.container, found.resources) == ("a", ("cpu", "memory"))


@pytest.mark.req("NS-053")
def test_what_no_cell_has_together_is_no_common_cell() -> None:
    """Memory rules out no cell and is not named."""
    cells = (cell(0, cpu=8, memory=32, nic=1, used={"nic": 1}), cell(1, cpu=8, memory=32, nic=1, used={"cpu": 6}))
    found = decide(pod(container("a", cpu=4, memory=1, nic=1)), node(*cells))
    assert (found.kind, found.resources) == ("no-common-cell", ("cpu", "example.com/nic"))


@pytest.mark.req("NS-053")
def test_the_phrase_tells_the_kind_of_container() -> None:
    for kind, phrase in (("init", "init container"), ("sidecar", "sidecar container"), ("app", "container")):
        found = decide(pod(container("x", kind, cpu=9), container("a", cpu=1)), node(*TWO))
        assert found.message == f"cannot align {phrase}: cpu"


@pytest.mark.req("NS-054")
def test_what_is_reserved_is_what_was_free() -> None:
    """The app container lives on what the init container had."""
    found = decide(pod(container("i", "init", cpu=6, memory=4), container("a", cpu=4, memory=1)), node(*TWO))
    assert found.taken == {0: amounts({"cpu": 6, "memory": 4})}


@pytest.mark.req("NS-062")
def test_a_cell_in_a_group_has_no_memory_for_a_pod_on_one_cell() -> None:
    """NS-062 holds for this policy, too: a pod from the time of another one is still there."""
    cells = (
        cell(0, cpu=8, memory=32, group=(0, 1)),
        cell(1, cpu=8, memory=32, group=(0, 1)),
        cell(2, cpu=8, memory=32),
    )
    assert decide(pod(container("a", cpu=4, memory=1)), node(*cells)).cells == {"a": (2,)}
    assert decide(pod(container("a", nic=1), qos="BestEffort"), node(*TWO)).cells == {"a": (0,)}
    reserved = evaluate(pod(container("a", cpu=4, memory=1)), node(*TWO), {}, ExactOptions(), groups=[(0, 1)])
    assert (reserved.kind, reserved.resources) == ("short", ("memory",))


@pytest.mark.req("NS-050")
def test_pages_of_an_init_container_alone_are_looked_for_too_late() -> None:
    """NS-050 in scope pod, as the kubelet does it: the lowest cell is chosen without them, and then lacks them."""
    asking = pod(container("i", "init", cpu=1, memory=1, pages=2), container("a", cpu=1, memory=1))
    cells = (cell(0, cpu=8, memory=32, pages=1), cell(1, cpu=8, memory=32, pages=2))
    swapped = (cell(0, cpu=8, memory=32, pages=2), cell(1, cpu=8, memory=32, pages=1))
    found = decide(asking, node(*cells, scope="pod", memory_manager="Static"))
    assert (found.kind, found.message) == ("short", "cannot align pod: hugepages-2Mi, memory")
    assert decide(asking, node(*swapped, scope="pod", memory_manager="Static")).cells == {"pod": (0,)}
