"""From watches into the books: what is kept of nodes and pods, and when the books begin."""

import msgspec
import pytest
from numa_extender import ExtenderWorld, document
from structlog.testing import capture_logs

from polyarch.numa.extender.sources import NODE, POD, TOPOLOGY
from polyarch.numa.fit.facts import PodObject, pod_facts


@pytest.fixture
def world():
    return ExtenderWorld()


def begin(world, *pods):
    world.list(NODE, node_document())
    world.list(TOPOLOGY, topology_document())
    world.list(POD, *pods)


def node_document(name="a", cpu="16"):
    return {"metadata": {"name": name}, "status": {"allocatable": {"cpu": cpu, "memory": "64Gi"}}}


def topology_document(name="a", cpus=(8, 8), zones=()):
    def resources(cpu):
        return [
            {"name": each, "capacity": amount, "allocatable": amount, "available": amount}
            for each, amount in (("cpu", str(cpu)), ("memory", "32Gi"))
        ]

    several = [
        {"name": f"node-{number}", "type": "Node", "resources": resources(cpu)} for number, cpu in enumerate(cpus)
    ]
    return {
        "metadata": {"name": name},
        "topologyPolicies": ["SingleNUMANodeContainerLevel"],
        "zones": [*several, *zones],
    }


def bound(name="web", node="a", phase="Running", **status):
    pod = document(name, nodeName=node)
    return {**pod, "status": {**pod["status"], "phase": phase, **status}}


@pytest.mark.req("NS-150")
def test_the_books_begin_when_all_three_lists_are_complete_and_not_before(world):
    started = []
    start = world.books.start
    world.books.start = lambda now, unix: (started.append(now), start(now, unix))
    world.list(NODE, node_document())
    world.list(TOPOLOGY, topology_document())
    assert started == []
    assert "pods is not complete yet" in world.sources.problem
    world.list(POD)
    assert len(started) == 1
    assert world.sources.problem == ""
    assert world.sources.not_ready() is None


@pytest.mark.req("NS-085")
def test_the_cache_that_is_not_complete_is_named(world):
    assert "noderesourcetopologies" in world.sources.problem
    world.list(TOPOLOGY, topology_document())
    assert "nodes is not complete yet" in world.sources.problem
    assert world.sources.not_ready()


@pytest.mark.req("NS-044")
def test_a_node_has_what_it_says_itself_and_what_its_object_says_whichever_comes_first():
    for order in ((NODE, TOPOLOGY), (TOPOLOGY, NODE)):
        world = ExtenderWorld()
        for feed in order:
            world.list(feed, {NODE: node_document, TOPOLOGY: topology_document}[feed]())
        facts = world.books.node("a")
        assert facts.allocatable["cpu"] == 16000
        assert [cell.available["cpu"] for cell in facts.cells] == [8000, 8000]


@pytest.mark.req("NS-171")
def test_a_heartbeat_of_a_node_changes_nothing(world):
    begin(world)
    before = world.books.node("a")
    world.see(NODE, node_document())
    assert world.books.node("a") is before
    world.see(NODE, node_document(cpu="12"))
    assert world.books.node("a").allocatable["cpu"] == 12000


@pytest.mark.req("NS-122")
@pytest.mark.parametrize(
    "changes",
    [
        {"spec": {"unschedulable": True}},
        {"spec": {"taints": [{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}]}},
        {"metadata": {"name": "a", "uid": "a", "labels": {"pool": "other"}}},
        None,
    ],
    ids=["cordoned", "tainted", "labelled", "gone"],
)
def test_a_node_that_filters_may_judge_otherwise_is_known_as_altered(changes):
    world = ExtenderWorld(preempt=True)
    begin(world)
    before = world.books.arrivals
    world.see(NODE, node_document())
    assert not world.books.is_altered_since("a", before), "a heartbeat"
    if changes is None:
        world.lose(NODE, "a")
    else:
        document = node_document()
        world.see(NODE, {**document, **changes, "metadata": {**document["metadata"], **changes.get("metadata", {})}})
    assert world.books.is_altered_since("a", before)


@pytest.mark.req("NS-103")
def test_an_object_that_is_gone_keeps_reservations_and_a_node_that_is_gone_has_none(world):
    begin(world, bound())
    assert [each.node for each in world.books.reservations(0.0)] == ["a"]
    world.lose(TOPOLOGY, "a")
    assert not world.books.node("a").has_topology
    assert [each.node for each in world.books.reservations(0.0)] == ["a"]
    world.see(TOPOLOGY, topology_document())
    assert world.books.node("a").has_topology
    world.lose(NODE, "a")
    assert world.books.reservations(0.0) == []
    assert world.books.node("a") is None
    world.see(NODE, node_document())
    assert world.books.node("a").has_topology, "its object has outlived it"


def test_a_node_without_object_and_node_is_not_there(world):
    begin(world)
    world.lose(NODE, "a")
    world.lose(TOPOLOGY, "a")
    assert world.books.node("a") is None


@pytest.mark.req("NS-103")
def test_a_pod_that_vanished_unseen_releases_what_it_had(world):
    begin(world, bound())
    world.list(POD)
    assert world.books.reservations(0.0) == []


@pytest.mark.req("NS-171")
def test_of_a_pod_that_aligns_nothing_only_its_name_and_node_are_kept(world):
    kept = []
    seen = world.books.pod_seen
    world.books.pod_seen = lambda pod, now: (kept.append(pod), seen(pod, now))
    small = bound("small")
    small["status"]["qosClass"] = "Burstable"
    small["metadata"] |= {"labels": {"app": "x"}, "annotations": {"a": "b"}}
    begin(world, small, bound("large"))
    bare, whole = kept
    assert (bare.containers, dict(bare.labels), dict(bare.annotations)) == ((), {}, {})
    assert (bare.full_name, bare.node_name, bare.phase) == ("demo/small", "a", "Running")
    assert whole.containers
    assert [each.name for each in world.books.pods_on("a")] == ["large"]


def test_a_pod_whose_quantities_cannot_be_read_hinders_no_other(world):
    odd = bound("odd")
    odd["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "many"
    with capture_logs() as logs:
        begin(world, odd, bound("web"))
    assert [each.name for each in world.books.reservations(0.0)] == ["web"]
    assert [each["pod"] for each in logs if each["log_level"] == "error"] == ["demo/odd"], "named, without a traceback"


@pytest.mark.req("NS-166")
@pytest.mark.parametrize("reason", ["TopologyAffinityError", "SMTAlignmentError"])
def test_a_pod_that_its_kubelet_refused_counts_once_and_not_if_it_was_refused_before_us(world, reason):
    begin(world, bound("old", phase="Failed", reason=reason))
    for _ in range(2):
        world.see(POD, bound("new", phase="Failed", reason=reason))
    world.see(POD, bound("other", phase="Failed", reason="Evicted"))
    assert 'polyarch_numa_kubelet_rejections_total{node="a"} 1.0' in world.page()


@pytest.mark.req("NS-107")
def test_an_exporter_is_ready_while_one_of_its_pods_on_the_node_is(world):
    told = []
    world.books.exporter_seen = lambda node, is_ready, now: told.append((node, is_ready))

    def exporter(name, ready):
        pod = bound(name, conditions=[{"type": "Ready", "status": ready}])
        pod["metadata"]["labels"] = {"name": "resource-topology"}
        return pod

    begin(world, exporter("old", "True"))
    world.see(POD, exporter("new", "False"))
    world.lose(POD, "old", "demo")
    world.see(POD, exporter("new", "True"))
    assert told == [("a", True), ("a", True), ("a", False), ("a", True)]


@pytest.mark.req("NS-087")
def test_the_answers_about_a_pod_are_forgotten_with_it(world):
    begin(world, document("web"))
    world.engine.filter(pod_facts(msgspec.convert(document("web"), PodObject)), ["a"], 0.0)
    assert world.engine.asked("uid-web") is not None
    world.lose(POD, "web", "demo")
    assert world.engine.asked("uid-web") is None
    assert world.engine.verdicts(0.0) == []
