"""What decides about a node before its cells are looked at, and what policies are good for."""

import pytest
from msgspec.structs import replace
from numa_nodes import amounts, cell, container, node, pod

from polyarch.numa.fit.evaluate import evaluate
from polyarch.numa.fit.facts import Action, ExactOptions, FitDecision, NodeFacts, PodFacts

POD = pod(container("a", cpu=2, memory=1))
WIDE = pod(container("a", cpu=10, memory=1))
USUAL = ExactOptions()
BEST_EFFORT = pod(container("a"), qos="BestEffort")
ALIGNED = {"numa.polyarch.dev/require": "aligned"}
TWO = (cell(0, cpu=8, memory=8), cell(1, cpu=8, memory=8))


def decide(pod: PodFacts, node: NodeFacts, options: ExactOptions = USUAL) -> FitDecision:
    return evaluate(pod, node, {}, options)


def outcome(pod: PodFacts, node: NodeFacts, options: ExactOptions = USUAL) -> tuple[str, str]:
    found = decide(pod, node, options)
    assert found.fits == (not found.kind)
    return found.kind, found.message


@pytest.mark.req("NS-044")
def test_a_node_without_a_topology_fits() -> None:
    """Before anything else: it may well be that its exporter is about to start."""
    unknown = NodeFacts(name="worker", has_topology=False)
    assert outcome(replace(POD, annotations=ALIGNED), unknown) == ("", "")


@pytest.mark.req("NS-044")
@pytest.mark.parametrize("policy", ["none", "best-effort"])
def test_a_pod_may_require_that_its_node_guarantees_alignment(policy: str) -> None:
    """Only nodes that would refuse rather than spread it will do; a pod without demand does not care."""
    asking = replace(POD, annotations=ALIGNED)
    assert outcome(asking, node(*TWO, policy=policy)) == ("policy", "node does not guarantee alignment")
    assert outcome(asking, node(*TWO, policy="restricted")) == ("", "")
    assert outcome(replace(BEST_EFFORT, annotations=ALIGNED), node(*TWO, policy=policy)) == ("", "")


@pytest.mark.req("NS-044")
def test_a_node_that_aligns_but_has_no_cells_is_no_place_for_what_is_aligned() -> None:
    """Its object is broken, or not written yet."""
    assert outcome(POD, node()) == ("no-zones", "invalid node topology data")
    assert outcome(BEST_EFFORT, node()) == ("", "")
    assert outcome(POD, node(policy="none")) == ("", "")
    assert outcome(POD, node(policy="restricted"), ExactOptions(restricted="score")) == ("", "")


@pytest.mark.req("NS-044", "NS-053")
def test_what_the_node_does_not_have_at_all_is_named() -> None:
    """Not listed is not the same as none left; an unknown Node says nothing."""
    asking = pod(container("i", "init", cpu=1, memory=1, nic=1), container("a", cpu=1, memory=1))
    listed = amounts({"cpu": 16, "memory": 16})
    assert outcome(asking, node(*TWO, allocatable=listed)) == (
        "not-on-node",
        "cannot align init container: example.com/nic",
    )
    by_pod = decide(asking, node(*TWO, allocatable=listed, scope="pod"))
    assert (by_pod.message, by_pod.container) == ("cannot align pod: example.com/nic", "pod")
    assert outcome(asking, node(*TWO, allocatable={**listed, "example.com/nic": 0})) == ("", "")
    assert outcome(asking, node(*TWO)) == ("", "")


@pytest.mark.req("NS-044")
@pytest.mark.parametrize("policy", ["none", "best-effort", "restricted", "single-numa-node"])
def test_whole_cores_are_asked_for_under_any_policy(policy: str) -> None:
    """The CPU manager refuses by itself."""
    there = node(*TWO, policy=policy, cpu_options={"full-pcpus-only": "true"}, threads_per_core=2)
    assert outcome(pod(container("a", cpu=3, memory=1)), there) == ("smt", "cannot align container: cpu")
    assert outcome(pod(container("a", cpu=4, memory=1)), there) == ("", "")
    assert outcome(pod(container("a", cpu=2.5, memory=1)), there) == ("", "")
    by_pod = replace(there, settings=replace(there.settings, scope="pod"))
    halves = pod(container("a", cpu=3, memory=1), container("b", cpu=1, memory=1))
    assert outcome(halves, by_pod) == ("smt", "cannot align pod: cpu")


@pytest.mark.req("NS-044")
def test_what_init_containers_left_is_no_free_core() -> None:
    """As the CPU manager counts: two CPUs wait for this very pod, one is free, and it refuses."""
    full = node(
        cell(0, cpu=3, memory=8), cell(1, cpu=4, memory=8, used={"cpu": 4}),
        cpu_options={"full-pcpus-only": "true"}, threads_per_core=1,
    )  # fmt: skip
    again = pod(container("i", "init", cpu=2, memory=1), container("a", cpu=2, memory=1))
    assert outcome(again, full) == ("smt", "cannot align container: cpu")
    assert outcome(again, replace(full, settings=replace(full.settings, cpu_options={}))) == ("", "")


@pytest.mark.req("NS-044")
def test_a_core_that_is_reserved_in_part_is_no_whole_core() -> None:
    """Seven CPUs are free, but six of them are of whole cores."""
    there = cell(0, cpu=8, memory=8)
    one_reserved = replace(
        there, allocatable={**there.allocatable, "cpu": 7000}, available={"cpu": 7000, "memory": 10**15}
    )
    options = {"cpu_options": {"full-pcpus-only": "true"}, "threads_per_core": 2}
    assert outcome(pod(container("a", cpu=6, memory=1)), node(one_reserved, **options)) == ("", "")
    both = pod(container("i", "init", cpu=2, memory=1), container("a", cpu=6, memory=1))
    assert outcome(both, node(one_reserved, **options)) == ("smt", "cannot align container: cpu")


@pytest.mark.req("NS-045")
@pytest.mark.parametrize(
    ("policy", "options", "fits"),
    [
        ("single-numa-node", ExactOptions(), False),
        ("restricted", ExactOptions(), False),
        ("restricted", ExactOptions(restricted="score"), True),
        ("restricted", ExactOptions(restricted="ignore"), True),
        ("best-effort", ExactOptions(), True),
        ("best-effort", ExactOptions(best_effort="ignore"), True),
        ("none", ExactOptions(), True),
    ],
)
def test_a_policy_filters_scores_or_is_ignored(policy: Action, options: ExactOptions, fits: bool) -> None:
    """Ten CPUs and a device that one cell has cannot be aligned; where that is no reason, the score is 0."""
    cells = (cell(0, cpu=8, memory=8, nic=1), cell(1, cpu=8, memory=8))
    found = decide(pod(container("a", cpu=10, memory=1, nic=1)), node(*cells, policy=policy), options)
    assert (found.fits, found.score) == (fits, 0)


@pytest.mark.req("NS-045", "NS-111")
@pytest.mark.parametrize("policy", ["none", "best-effort"])
def test_the_memory_manager_refuses_under_every_policy(policy: str) -> None:
    """Memory of both cells is in use, so no block may lie on both; the kubelet would not start the
    pod. A node that does not say what its memory manager does is taken for one that would."""
    used = (cell(0, cpu=8, memory=8, used={"memory": 2}), cell(1, cpu=8, memory=8, used={"memory": 2}))
    wide = pod(container("a", cpu=1, memory=10))
    assert outcome(wide, node(*used, policy=policy, memory_manager="Static")) == (
        "short",
        "cannot align container: memory",
    )
    assert outcome(wide, node(*used, policy=policy)) == ("", "")


@pytest.mark.req("NS-045", "NS-111")
@pytest.mark.parametrize("policy", ["none", "best-effort"])
def test_the_cpu_manager_refuses_under_every_policy(policy: str) -> None:
    """The sums of the node may suffice although the CPUs are with others."""
    used = node(cell(0, cpu=8, used={"cpu": 7}), cell(1, cpu=8, used={"cpu": 7}), policy=policy, cpu_manager="static")
    assert outcome(pod(container("a", cpu=3)), used) == ("short", "cannot align container: cpu")
    assert outcome(pod(container("a", cpu=2)), used) == ("", "")
