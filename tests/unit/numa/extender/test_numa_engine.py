"""Which nodes are answered, and what is reserved for them, by mode."""

import msgspec
import pytest
from numa_extender import OURS, ExtenderWorld
from numa_nodes import cell, container, node, pod

from polyarch.numa.extender.engine import MOST_SCORES
from polyarch.numa.fingerprint import fingerprint
from polyarch.numa.fit.facts import NodeFacts

pytestmark = pytest.mark.req("NS-083")


def guaranteed(name="web", cpu=2.0, **others):
    return pod(container("app", cpu=cpu, memory=1), name=name, **{"scheduler_name": OURS, **others})


def two_cells(name, free=(8, 8)):
    return node(*(cell(number, cpu=cpus, memory=16) for number, cpus in enumerate(free)), name=name)


def held(extender):
    return {(each.name, each.node): dict(each.cells) for each in extender.books.reservations(1.0)}


@pytest.mark.req("NS-082")
def test_the_best_node_alone_is_answered_and_reserved_in_the_same_step():
    extender = ExtenderWorld(two_cells("a", (2, 2)), two_cells("b", (8, 8)), two_cells("c", (1, 1)))
    found = extender.engine.filter(guaranteed(), ["c", "a", "b"], 1.0)
    assert found.names == ["b"], "LeastAllocated: the emptiest"
    assert set(found.failed) == {"c"}, "a fits, was not chosen, and appears nowhere"
    assert found.fitting == 2
    assert set(held(extender)) == {("web", "b")}


@pytest.mark.req("NS-082")
def test_the_second_pod_sees_what_the_first_has_reserved():
    extender = ExtenderWorld(two_cells("a", (2, 2)))
    answers = [extender.engine.filter(guaranteed(name), ["a"], 1.0).names for name in ("one", "two", "three")]
    assert answers == [["a"], ["a"], []]


@pytest.mark.req("NS-082")
def test_several_candidates_in_the_order_of_the_question_each_reserved():
    extender = ExtenderWorld(two_cells("a"), two_cells("b"), two_cells("c"), candidates=2)
    found = extender.engine.filter(guaranteed(), ["c", "b", "a"], 1.0)
    assert len(found.names) == 2
    assert list(found.names) == sorted(found.names, reverse=True)
    assert set(held(extender)) == {("web", name) for name in found.names}


@pytest.mark.req("NS-082")
def test_among_equal_nodes_different_pods_go_to_different_ones_and_each_always_to_the_same():
    nodes = [f"node-{number}" for number in range(20)]
    chosen = {
        name: tuple(ExtenderWorld(*map(two_cells, nodes)).engine.filter(guaranteed(name), nodes, 1.0).names)
        for name in ("one", "two", "three", "four")
    }
    again = ExtenderWorld(*map(two_cells, reversed(nodes))).engine.filter(guaranteed("one"), nodes[::-1], 1.0).names
    assert tuple(again) == chosen["one"]
    assert len(set(chosen.values())) > 1


@pytest.mark.req("NS-082")
def test_a_pod_that_aligns_nothing_gets_every_node_and_no_reservation():
    extender = ExtenderWorld(two_cells("a"), two_cells("b"))
    burstable = pod(container("app", cpu=1), name="web", qos="Burstable", scheduler_name=OURS)
    assert list(extender.engine.filter(burstable, ["b", "a"], 1.0).names) == ["b", "a"]
    assert held(extender) == {}


@pytest.mark.req("NS-082")
def test_advise_answers_every_node_that_fits():
    extender = ExtenderWorld(two_cells("a"), two_cells("b"), two_cells("c", (1, 1)), mode="advise")
    found = extender.engine.filter(guaranteed(), ["b", "c", "a"], 1.0)
    assert list(found.names) == ["b", "a"]
    assert set(found.failed) == {"c"}
    assert held(extender) == {}


@pytest.mark.req("NS-003")
def test_advise_reserves_when_the_pod_is_seen_bound():
    extender = ExtenderWorld(two_cells("a"), mode="advise")
    extender.engine.filter(guaranteed(), ["a"], 1.0)
    extender.books.pod_seen(guaranteed(node_name="a"), 2.0)
    assert set(held(extender)) == {("web", "a")}


@pytest.mark.req("NS-101")
def test_asking_again_drops_what_was_held_before():
    extender = ExtenderWorld(two_cells("a", (2,)), two_cells("b", (2,)))
    (first,) = extender.engine.filter(guaranteed(), ["a", "b"], 1.0).names
    (second,) = extender.engine.filter(guaranteed(), ["a", "b"], 2.0).names
    assert first == second, "its own reservation does not stand in its way"
    assert len(held(extender)) == 1


@pytest.mark.req("NS-101")
def test_what_is_held_for_a_pod_that_is_never_bound_is_released():
    extender = ExtenderWorld(two_cells("a", (2,)), ttl=60.0)
    extender.engine.filter(guaranteed("lost"), ["a"], 1.0)
    assert not extender.engine.filter(guaranteed("next"), ["a"], 2.0).names
    extender.books.tick(60.9)
    assert not extender.engine.filter(guaranteed("next"), ["a"], 60.9).names
    extender.books.tick(61.1)
    assert list(extender.engine.filter(guaranteed("next"), ["a"], 61.1).names) == ["a"]
    assert 'polyarch_numa_reservation_releases_total{reason="ttl"} 1.0' in extender.page()


@pytest.mark.req("NS-084")
def test_a_pod_of_another_scheduler_is_answered_reserves_nothing_and_is_counted():
    extender = ExtenderWorld(two_cells("a", (2,)))
    other = guaranteed("other", scheduler_name="default-scheduler")
    assert list(extender.engine.filter(other, ["a"], 1.0).names) == ["a"]
    assert held(extender) == {}
    assert "polyarch_numa_foreign_questions_total 1.0" in extender.page()


@pytest.mark.req("NS-112")
def test_without_reservations_every_question_sees_the_object_alone():
    extender = ExtenderWorld(two_cells("a", (2,)), reservations=False)
    answers = [list(extender.engine.filter(guaranteed(name), ["a"], 1.0).names) for name in ("one", "two")]
    assert answers == [["a"], ["a"]]


@pytest.mark.req("NS-081")
def test_a_node_that_is_not_known_is_judged_as_one_without_an_object():
    assert list(ExtenderWorld().engine.filter(guaranteed(), ["new"], 1.0).names) == ["new"]
    rejecting = ExtenderWorld(unknown_nodes="reject").engine.filter(guaranteed(), ["new"], 1.0)
    assert list(rejecting.names) == []


@pytest.mark.req("NS-080")
def test_scores_of_candidates_are_those_by_which_they_were_chosen():
    """Evaluated again, a node would be fuller by the pod's own reservation."""
    extender = ExtenderWorld(two_cells("a", (2,)), two_cells("b", (4,)), candidates=2)
    extender.engine.filter(guaranteed(), ["a", "b"], 1.0)
    scores = dict(extender.engine.prioritize(guaranteed(), ["a", "b"]))
    fresh = ExtenderWorld(two_cells("a", (2,)), two_cells("b", (4,)), mode="advise")
    assert scores == dict(fresh.engine.prioritize(guaranteed(), ["a", "b"]))
    assert scores["b"] > scores["a"]


@pytest.mark.req("NS-171")
def test_scores_of_pods_that_nobody_asks_for_again_are_forgotten():
    """The scheduler asks right after the filter; of a pod deleted meanwhile no watch tells once more."""
    extender = ExtenderWorld(two_cells("a"))
    pods = [guaranteed(f"web-{number}") for number in range(MOST_SCORES + 1)]
    for number, each in enumerate(pods):
        assert extender.engine.filter(each, ["a"], 100.0 * number).names == ["a"]
        extender.books.tick(100.0 * number + 99.0)
    known = [extender.books.scores(each, []) for each in pods]
    assert known[0] == {}
    assert all(known[1:])


@pytest.mark.req("NS-080")
def test_a_node_that_does_not_fit_scores_nothing():
    extender = ExtenderWorld(two_cells("a", (1,)), mode="advise")
    assert extender.engine.prioritize(guaranteed(), ["a"]) == [("a", 0)]


@pytest.mark.req("NS-088")
def test_before_a_binding_a_pod_has_its_cells_or_gets_them():
    extender = ExtenderWorld(two_cells("a", (2,)), two_cells("b", (2,)))
    (chosen,) = extender.engine.filter(guaranteed(), ["a", "b"], 1.0).names
    assert extender.books.secure(guaranteed(), chosen, 2.0) == ""
    other = "b" if chosen == "a" else "a"
    assert extender.books.secure(guaranteed(), other, 3.0) == ""
    assert set(held(extender)) == {("web", other)}, "and leaves those that it does not need"


@pytest.mark.req("NS-088")
def test_without_room_a_pod_is_not_bound():
    extender = ExtenderWorld(two_cells("a", (2,)))
    extender.engine.filter(guaranteed("first"), ["a"], 1.0)
    assert "cannot align" in extender.books.secure(guaranteed("second"), "a", 1.0)


@pytest.mark.req("NS-088")
def test_what_we_have_bound_ourselves_is_bound_at_once():
    extender = ExtenderWorld(two_cells("a", (2,)))
    extender.engine.filter(guaranteed(), ["a"], 1.0)
    extender.books.bound(guaranteed(), "a", 1.0)
    (entry,) = extender.books.reservations(1.0)
    assert entry.state == "bound"
    extender.books.tick(1000.0)
    assert extender.books.reservations(1000.0), "and has no end"


@pytest.mark.req("NS-103")
def test_room_that_comes_back_is_told_with_the_name_of_its_node():
    extender = ExtenderWorld(two_cells("a", (2,)))
    freed = []
    extender.books.freed.append(freed.append)
    extender.engine.filter(guaranteed(), ["a"], 1.0)
    assert freed == []
    extender.books.pod_gone("web", 5.0)
    assert freed == ["a"]


@pytest.mark.req("NS-140")
@pytest.mark.parametrize("mode", ["exact", "advise"])
def test_a_rejected_pod_is_told_of_room_and_not_when_it_has_some(mode):
    extender = ExtenderWorld(two_cells("a", (1, 1)), mode=mode)
    extender.engine.filter(guaranteed(), ["a"], 1.0)
    assert extender.engine.node_with_capacity(2.0) == ""
    extender.books.node_seen(msgspec.structs.replace(two_cells("a", (1, 4)), resource_version="7"), 3.0)
    assert extender.engine.node_with_capacity(4.0) == "a"
    extender.engine.filter(guaranteed(), ["a"], 5.0)
    extender.books.node_seen(msgspec.structs.replace(two_cells("a", (1, 8)), resource_version="8"), 6.0)
    assert extender.engine.node_with_capacity(7.0) == ""


@pytest.mark.req("NS-140")
def test_a_reservation_that_ends_is_room():
    extender = ExtenderWorld(two_cells("a", (2,)), ttl=10.0)
    extender.engine.filter(guaranteed("first"), ["a"], 1.0)
    extender.engine.filter(guaranteed("second"), ["a"], 2.0)
    extender.books.tick(5.0)
    assert extender.engine.node_with_capacity(5.0) == ""
    extender.books.tick(12.0)
    assert extender.engine.node_with_capacity(12.0) == "a"


@pytest.mark.req("NS-140")
def test_what_is_kept_for_the_pod_itself_does_not_stand_in_its_way():
    extender = ExtenderWorld(two_cells("a", (2,)))
    extender.engine.filter(guaranteed(), ["a"], 1.0)
    assert extender.books.fits(guaranteed(), "a", 2.0)
    assert not extender.books.fits(guaranteed("other"), "a", 2.0)
    assert set(held(extender)) == {("web", "a")}, "and stays"


@pytest.mark.req("NS-111")
def test_a_node_is_passed_over_while_pods_on_their_way_may_take_its_cells_in_another_order():
    """1 and 2 CPUs on cell 0, 2 and 1 on cell 1: if both small pods come first, they share a cell, and one of the
    others has none."""
    extender = ExtenderWorld(two_cells("a", (3, 3)))
    for name, cpu in (("one", 1), ("two", 2), ("three", 2)):
        assert list(extender.engine.filter(guaranteed(name, cpu), ["a"], 1.0).names) == ["a"]
    found = extender.engine.filter(guaranteed("four", 1), ["a"], 1.0)
    assert (list(found.names), found.fitting, dict(found.kinds)) == ([], 1, {"unsettled": 1})
    assert "pods on their way" in found.failed["a"]
    assert "pods on their way" in extender.books.secure(guaranteed("four", 1), "a", 1.0)
    other = ExtenderWorld(two_cells("a", (3, 3)), two_cells("b", (3, 3)))
    for name, cpu in (("one", 1), ("two", 2), ("three", 2)):
        other.engine.filter(guaranteed(name, cpu), ["a"], 1.0)
    assert list(other.engine.filter(guaranteed("four", 1), ["a", "b"], 1.0).names) == ["b"]


@pytest.mark.req("NS-166")
def test_zones_that_are_no_cells_are_counted_as_long_as_their_object_is_there():
    odd = msgspec.structs.replace(two_cells("a"), zones_ignored=3)
    extender = ExtenderWorld(odd, two_cells("b"))
    assert extender.books.zones_ignored == 3
    extender.books.node_seen(msgspec.structs.replace(odd, zones_ignored=1, resource_version="9"), 1.0)
    assert extender.books.zones_ignored == 1
    extender.books.node_gone("a", 2.0)
    assert extender.books.zones_ignored == 0


@pytest.mark.req("NS-166")
def test_rejections_by_kind_and_nodes_by_question():
    extender = ExtenderWorld(two_cells("a", (1, 1)), two_cells("b", (8, 8)))
    extender.engine.filter(guaranteed(), ["a", "b"], 1.0)
    page = extender.page()
    assert 'polyarch_numa_rejections_total{kind="short"} 1.0' in page
    assert "polyarch_numa_filter_nodes_sum 1.0" in page
    assert "web" not in page, "no names of pods in labels"


@pytest.mark.req("NS-166")
def test_a_kubelet_that_refuses_a_pod_is_counted_and_its_node_is_mistrusted():
    extender = ExtenderWorld(two_cells("a"))
    extender.books.refused_by_kubelet("a", 1.0)
    assert 'polyarch_numa_kubelet_rejections_total{node="a"} 1.0' in extender.page()
    assert extender.books.node_state("a", 2.0).mispredicted
    extender.books.node_gone("a", 3.0)
    assert "polyarch_numa_kubelet_rejections_total{" not in extender.page()


@pytest.mark.req("NS-087")
def test_the_last_answer_to_each_pod_is_kept_for_people():
    extender = ExtenderWorld(two_cells("a", (1, 1)), two_cells("b"))
    extender.engine.filter(guaranteed(), ["a", "b"], 1.0)
    extender.engine.filter(guaranteed("other"), ["a"], 2.0)
    first, second = extender.engine.verdicts(11.0)
    assert (first.name, first.chosen, first.rejected, first.seconds_ago) == ("web", ("b",), {"short": 1}, 10.0)
    assert (second.name, second.chosen) == ("other", ())
    extender.engine.forget("other")
    assert [each.name for each in extender.engine.verdicts(12.0)] == ["web"]


@pytest.mark.req("NS-010")
def test_a_node_without_cells_answers_by_its_facts():
    bare = NodeFacts(name="a", has_topology=False)
    assert list(ExtenderWorld(bare).engine.filter(guaranteed(), ["a"], 1.0).names) == ["a"]


@pytest.mark.req("NS-140")
@pytest.mark.parametrize("asked_for_again_by", ["filter", "bind"])
def test_what_a_pod_no_longer_needs_when_it_is_asked_for_again_is_room(asked_for_again_by):
    """Its binding failed, or the scheduler did not wait for the answer."""
    extender = ExtenderWorld(two_cells("a", (2,)), two_cells("b", (1,)))
    extender.engine.filter(guaranteed("first"), ["a", "b"], 1.0)
    extender.engine.filter(guaranteed("second"), ["a", "b"], 2.0)
    extender.books.node_seen(msgspec.structs.replace(two_cells("b", (2,)), resource_version="7"), 3.0)
    assert extender.engine.node_with_capacity(4.0) == "b"
    if asked_for_again_by == "filter":
        extender.engine.filter(guaranteed("first"), ["b"], 5.0)
    else:
        assert extender.books.secure(guaranteed("first"), "b", 5.0) == ""
    assert extender.engine.node_with_capacity(6.0) == "a"


@pytest.mark.req("NS-140")
def test_a_pod_that_keeps_what_it_had_when_it_is_asked_for_again_wakes_nobody():
    extender = ExtenderWorld(two_cells("a", (4,)))
    extender.engine.filter(guaranteed("first"), ["a"], 1.0)
    extender.engine.filter(guaranteed("second", cpu=4.0), ["a"], 2.0)
    freed = []
    extender.books.freed.append(freed.append)
    extender.engine.filter(guaranteed("first"), ["a"], 3.0)
    assert freed == []


@pytest.mark.req("NS-140")
def test_a_pod_that_was_not_certain_for_one_that_has_left_is_woken_once_the_object_says_so():
    """The one that has left held nothing that is aligned, so that its end changes nothing in the object but the
    fingerprint of the pods."""
    left = pod(container("app", cpu=1), name="left", qos="Burstable", node_name="a")
    tied = pod(
        container("init", "init", cpu=4, memory=1),
        container("app", cpu=2, memory=1),
        name="tied",
        scheduler_name=OURS,
    )
    seen = msgspec.structs.replace(two_cells("a"), fingerprint_method="all", resource_version="7")
    extender = ExtenderWorld(msgspec.structs.replace(seen, fingerprint=fingerprint([("default", "left")])))
    extender.books.pod_seen(left, 1.0)
    extender.books.pod_gone(left.uid, 2.0)
    assert not extender.engine.filter(tied, ["a"], 3.0).names
    extender.engine.node_with_capacity(4.0)
    now = msgspec.structs.replace(seen, fingerprint=fingerprint([]), resource_version="8")
    extender.books.node_seen(now, 5.0)
    assert extender.engine.node_with_capacity(6.0) == "a"
