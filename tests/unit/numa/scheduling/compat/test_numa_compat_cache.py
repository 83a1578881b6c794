"""The plugin's pessimistic cache, and which pods have resources of their own."""

import msgspec
import pytest
from numa_snapshots import NIC, container, node, pod, whole

from polyarch.numa.fingerprint import fingerprint
from polyarch.numa.fit.compat import CacheOptions, OverReserveCache, is_exclusive
from polyarch.numa.fit.facts import ContainerKind, NodeFacts, PodFacts, Qos

OURS, OTHERS = "topo-aware-scheduler", "default-scheduler"
EMPTY = {0: {"cpu": 8, NIC: 2}, 1: {"cpu": 8}}
EXCLUSIVE = "with-exclusive-resources"


def cache(options: CacheOptions | None = None) -> OverReserveCache:
    return OverReserveCache(options or CacheOptions(scheduler_names=frozenset({OURS})))


def shown(*names: str, cpu: float = 8, method: str = "all") -> NodeFacts:
    """The object of node ``n``: of these pods, with so many CPUs left on each cell."""
    at = node({0: {"cpu": cpu, NIC: 2}, 1: {"cpu": cpu}})
    text = fingerprint(("a", name) for name in names)
    return msgspec.structs.replace(at, fingerprint=text, fingerprint_method=method)


def named(name: str, asked: PodFacts, *, on: str = "n", phase: str = "Running", by: str = OURS) -> PodFacts:
    return msgspec.structs.replace(asked, name=name, uid=f"uid-{name}", node_name=on, phase=phase, scheduler_name=by)


def bound(of: OverReserveCache, name: str, cpu: float = 1, *, phase: str = "Pending") -> PodFacts:
    """Filter answers about it, then the watch shows it on the node."""
    asked = pod(container("c", cpu=cpu))
    of.answered(named(name, asked, on=""))
    seen = named(name, asked, phase=phase)
    of.pod_seen(seen)
    return seen


def left(of: OverReserveCache) -> dict[int, dict[str, int]]:
    return {cell: dict(amounts) for cell, amounts in of.free("n").items()}


@pytest.mark.req("NS-130")
def test_what_is_assumed_is_missing_on_every_cell_that_lists_it() -> None:
    of = cache()
    of.node_seen(node(EMPTY))
    for name, asked in {
        "x": pod(container("i", "init", cpu=3), container("c", cpu=1, nic=1), overhead={"cpu": 0.5}),
        "y": pod(container("c", cpu=1, memory=9), qos="Burstable"),
    }.items():
        of.answered(named(name, asked, on=""))
        of.pod_seen(named(name, asked, phase="Pending"))
    assert left(of) == {0: whole({"cpu": 3.5, NIC: 1}), 1: whole({"cpu": 3.5})}
    assert of.assumed("n") == {"a/x": whole({"cpu": 3.5, NIC: 1}), "a/y": whole({"cpu": 1, "memory": 9})}


@pytest.mark.req("NS-130")
def test_nothing_is_less_than_nothing() -> None:
    of = cache()
    of.node_seen(node(EMPTY))
    bound(of, "x", 6)
    bound(of, "y", 6)
    assert left(of) == {0: whole({"cpu": 0, NIC: 2}), 1: whole({"cpu": 0})}


@pytest.mark.req("NS-131")
def test_assumed_from_the_bind_that_the_watch_shows_until_the_pod_ends_or_is_deleted() -> None:
    of = cache()
    of.node_seen(node(EMPTY))
    of.answered(named("x", pod(container("c", cpu=2)), on=""))
    assert left(of) == {0: whole({"cpu": 8, NIC: 2}), 1: whole({"cpu": 8})}
    seen = bound(of, "x", 2)
    assert left(of)[1] == whole({"cpu": 6})
    of.pod_seen(msgspec.structs.replace(seen, phase="Failed"))
    assert left(of)[1] == whole({"cpu": 8})
    bound(of, "y", 3)
    of.pod_gone("uid-y")
    of.pod_gone("uid-never")
    assert left(of)[1] == whole({"cpu": 8})
    assert of.assumed("n") == {}


@pytest.mark.req("NS-131")
def test_a_pod_that_another_replica_answered_about_counts_if_it_was_seen_before() -> None:
    of = cache()
    of.node_seen(node(EMPTY))
    asked = pod(container("c", cpu=2))
    of.pod_seen(named("x", asked, on="", phase="Pending"))
    of.pod_seen(named("x", asked, phase="Pending"))
    of.pod_seen(named("old", asked))
    assert of.assumed("n") == {"a/x": whole({"cpu": 2})}


@pytest.mark.req("NS-131")
def test_nodes_without_an_object_assume_nothing_and_later_objects_are_used() -> None:
    of = cache()
    of.node_seen(NodeFacts(name="n", has_topology=False, allocatable={"cpu": 1}))
    bound(of, "x")
    assert of.free("n") == {}
    assert of.assumed("n") == {}
    assert of.node("n") == NodeFacts(name="n", has_topology=False, allocatable={"cpu": 1})
    of.node_seen(node(EMPTY))
    assert of.node("n") == node(EMPTY)
    assert left(of)[1] == whole({"cpu": 8})
    of.node_seen(NodeFacts(name="n", has_topology=False))
    assert of.free("n") == {}
    of.node_gone("n")
    assert of.node("n") is None
    assert not of.is_foreign("n")


@pytest.mark.req("NS-130")
def test_newer_objects_wait_for_the_flush_but_the_node_itself_does_not() -> None:
    of = cache()
    of.node_seen(node(EMPTY))
    of.node_seen(msgspec.structs.replace(shown("x", cpu=5), allocatable={"cpu": 7}))
    assert left(of)[1] == whole({"cpu": 8})
    found = of.node("n")
    assert found is not None
    assert found.allocatable == {"cpu": 7}


@pytest.mark.req("NS-132")
@pytest.mark.parametrize("by", [OTHERS, ""])
def test_a_pod_bound_by_another_scheduler_makes_its_node_foreign(by: str) -> None:
    of = cache()
    of.node_seen(node(EMPTY))
    of.pod_seen(named("x", pod(container("c", cpu=1)), on="", by=by))
    assert not of.is_foreign("n")
    of.pod_seen(named("x", pod(container("c", cpu=1)), by=by))
    assert of.is_foreign("n")
    assert of.assumed("n") == {}


@pytest.mark.req("NS-132")
def test_only_pods_with_resources_of_their_own_count_unless_all_do() -> None:
    small = named("x", pod(container("c", cpu=1.5)), by=OTHERS)
    relaxed, aggressive = cache(), cache(CacheOptions(scheduler_names=frozenset({OURS}), detection="Aggressive"))
    for of in (relaxed, aggressive):
        of.node_seen(node(EMPTY))
        of.pod_seen(small)
    assert (relaxed.is_foreign("n"), aggressive.is_foreign("n")) == (False, True)


@pytest.mark.req("NS-132")
def test_any_event_of_a_foreign_pod_counts_its_deletion_too() -> None:
    of = cache()
    of.node_seen(node(EMPTY))
    of.pod_seen(named("x", pod(container("c", cpu=1)), by=OTHERS))
    of.node_seen(shown("x", cpu=7))
    assert of.resync() == ("n",)
    assert not of.is_foreign("n")
    of.pod_gone("uid-x")
    assert of.is_foreign("n")


@pytest.mark.req("NS-132")
def test_a_node_without_an_object_is_not_foreign() -> None:
    of = cache()
    of.pod_seen(named("x", pod(container("c", cpu=1)), by=OTHERS))
    of.node_seen(NodeFacts(name="n", has_topology=False))
    of.pod_seen(named("y", pod(container("c", cpu=1)), by=OTHERS))
    assert not of.is_foreign("n")


@pytest.mark.req("NS-133")
def test_a_dirty_node_takes_the_object_that_shows_its_pods() -> None:
    of = cache()
    of.node_seen(node(EMPTY))
    bound(of, "x", phase="Running")
    of.node_seen(shown("x", cpu=7.5))
    assert of.resync() == ()
    of.rejected("n")
    assert (of.resync(), of.generation) == (("n",), 1)
    assert left(of)[1] == whole({"cpu": 7.5})
    of.node_seen(shown("x", cpu=1))
    assert (of.resync(), of.generation) == ((), 1)


@pytest.mark.req("NS-133")
@pytest.mark.parametrize("names", [(), ("y",), ("x", "y"), ("x", "x")])
def test_an_object_that_shows_other_pods_is_not_taken(names: tuple[str, ...]) -> None:
    of = cache()
    of.node_seen(node(EMPTY))
    bound(of, "x", phase="Running")
    of.rejected("n")
    of.node_seen(shown(*names, cpu=5))
    assert of.resync() == ()
    assert left(of)[1] == whole({"cpu": 7})
    of.node_seen(shown("x", cpu=5))
    assert of.resync() == ("n",)


@pytest.mark.req("NS-133")
def test_no_fingerprint_or_no_pod_that_counts_changes_nothing() -> None:
    of = cache()
    of.node_seen(node(EMPTY))
    of.rejected("n")
    of.node_seen(shown(cpu=5))
    assert of.resync() == ()
    bound(of, "x", phase="Running")
    of.rejected("n")
    of.node_seen(node({0: {"cpu": 5}}))
    assert of.resync() == ()


@pytest.mark.req("NS-133")
@pytest.mark.parametrize(
    ("informer", "phases"), [("Dedicated", {"Running", "Succeeded", "Failed", "Unknown"}), ("Shared", {"Running"})]
)
def test_which_pods_count(informer: str, phases: set[str]) -> None:
    counted = set()
    for phase in ("", "Pending", "Running", "Succeeded", "Failed", "Unknown"):
        of = cache(CacheOptions(scheduler_names=frozenset({OURS}), informer=informer))  # type: ignore[arg-type]
        of.node_seen(node(EMPTY))
        of.pod_seen(named("x", pod(container("c", cpu=1)), phase=phase))
        of.rejected("n")
        of.node_seen(shown("x"))
        if of.resync():
            counted.add(phase)
    assert counted == phases


@pytest.mark.req("NS-133")
def test_pods_without_resources_of_their_own_do_not_count_if_the_method_says_so() -> None:
    of = cache()
    of.node_seen(node(EMPTY))
    for name, asked in {
        "cpus": pod(container("c", cpu=1)),
        "nic": pod(container("c", nic=1), qos="Burstable"),
        "shared": pod(container("c", cpu=1), qos="Burstable"),
    }.items():
        of.pod_seen(named(name, asked))
    of.rejected("n")
    of.node_seen(shown("cpus", "nic", "shared", method=EXCLUSIVE))
    assert of.resync() == ()
    of.node_seen(shown("cpus", "nic", method=EXCLUSIVE))
    assert of.resync() == ("n",)


@pytest.mark.req("NS-133")
def test_a_change_of_configuration_is_taken_without_a_look_at_the_fingerprint() -> None:
    of = cache()
    of.node_seen(node(EMPTY))
    bound(of, "x", phase="Running")
    of.node_seen(node({0: {"cpu": 4}}, scope="pod"))
    assert (of.resync(), of.generation) == (("n",), 1)
    assert left(of) == {0: whole({"cpu": 4})}
    found = of.node("n")
    assert found is not None
    assert found.settings.scope == "pod"


@pytest.mark.req("NS-133")
def test_a_pod_that_is_bound_makes_a_dirty_node_clean() -> None:
    of = cache()
    of.node_seen(node(EMPTY))
    of.rejected("n")
    bound(of, "x", phase="Running")
    of.node_seen(shown("x", cpu=7))
    assert of.resync() == ()


@pytest.mark.req("NS-134")
def test_a_flush_never_forgets_a_bound_pod_that_is_still_pending() -> None:
    of = cache()
    of.node_seen(node(EMPTY))
    bound(of, "x", phase="Running")
    bound(of, "y", 2)
    of.rejected("n")
    of.node_seen(shown("x", cpu=7))
    assert of.resync() == ("n",)
    assert left(of)[1] == whole({"cpu": 5})


@pytest.mark.req("NS-134")
def test_the_plugin_forgets_it() -> None:
    of = cache(CacheOptions(scheduler_names=frozenset({OURS}), strict=True))
    of.node_seen(node(EMPTY))
    bound(of, "x", phase="Running")
    bound(of, "y", 2)
    of.rejected("n")
    of.node_seen(shown("x", cpu=7))
    assert of.resync() == ("n",)
    assert left(of)[1] == whole({"cpu": 7})


@pytest.mark.req("NS-105")
@pytest.mark.parametrize(
    ("kind", "qos", "asked", "expected"),
    [
        ("app", "Guaranteed", {"cpu": 2}, True),
        ("sidecar", "Guaranteed", {"cpu": 2}, True),
        ("init", "Guaranteed", {"cpu": 2}, False),
        ("app", "Guaranteed", {"cpu": 2.5}, False),
        ("app", "Guaranteed", {"cpu": 0}, False),
        ("app", "Guaranteed", {"cpu": 0.5, "memory": 1}, True),
        ("app", "Guaranteed", {"cpu": 0.5, "hugepages_2Mi": 1}, True),
        ("app", "Burstable", {"cpu": 2, "memory": 1}, False),
        ("app", "BestEffort", {"nic": 1}, True),
        ("app", "BestEffort", {"nic": 0}, False),
        ("init", "BestEffort", {"nic": 1}, False),
    ],
)
def test_exclusive_by_spec(kind: ContainerKind, qos: Qos, asked: dict[str, float], *, expected: bool) -> None:
    assert is_exclusive(pod(container("c", kind, **asked), qos=qos), node(EMPTY)) is expected


@pytest.mark.req("NS-105")
def test_a_device_that_no_cell_lists_is_nobodys_own() -> None:
    assert not is_exclusive(pod(container("c", nic=1), qos="BestEffort"), node({0: {"cpu": 1}}))
