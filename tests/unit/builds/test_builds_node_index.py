"""Nodes kept by difference: what is read of thousands of them decides as if all were read."""

from collections.abc import Iterator, Mapping

import msgspec
import pytest
from build_wishes import CONTROL_PLANE, DAY, NOW, facts, node, wanted, wish

from polyarch.builds.api.resources import ArchitectureScheduling, Scheduling
from polyarch.builds.architectures import NodeChangeEffect, NodeIndex, deciding_labels, resolve_architectures

DEFAULT = deciding_labels(wish().spec)
POOL = DEFAULT | {"pool"}


class CountingLabels(Mapping[str, str]):
    """Labels that know how often they were read."""

    def __init__(self) -> None:
        self.read = 0

    def __getitem__(self, key: str) -> str:
        self.read += 1
        raise KeyError(key)

    def __iter__(self) -> Iterator[str]:
        self.read += 1
        return iter(())

    def __len__(self) -> int:
        return 0


@pytest.mark.req("BD-348")
def test_the_labels_that_tell_nodes_apart_are_those_that_selectors_name() -> None:
    selector = {"matchLabels": {"pool": "gpu"}, "matchExpressions": [{"key": "zone", "operator": "Exists"}]}
    own = ArchitectureScheduling(architecture="arm64", node_selector={"disk": "ssd"})
    spec = wish(scheduling=Scheduling(per_architecture=[own]), **wanted(nodeSelector=selector)).spec
    assert deciding_labels(spec) == DEFAULT | {"pool", "zone", "disk"}


@pytest.mark.req("BD-323", "BD-348")
def test_five_thousand_nodes_of_two_kinds_are_two() -> None:
    """And as many of ten thousand."""
    for count in (5_000, 10_000):
        nodes = [node(f"n{each}", "arm64" if each % 3 else "amd64", age=DAY + each) for each in range(count)]
        index = NodeIndex(nodes)
        sample = index.sample(DEFAULT)
        assert [each.name for each in sample] == [nodes[count - 1].name, nodes[count - 2].name]
        assert len(index) == count
        assert resolve_architectures(facts(*sample)) == resolve_architectures(facts(*nodes))


@pytest.mark.req("BD-348")
def test_a_change_of_one_node_reads_no_other() -> None:
    counted = [CountingLabels() for _ in range(100)]
    nodes = [node(f"n{each}", "arm64", labels=labels) for each, labels in enumerate(counted)]
    index = NodeIndex(nodes)
    index.sample(DEFAULT)
    before = sum(each.read for each in counted)
    index.put(node("new", "s390x"))
    index.remove("new")
    index.put(node("new"))
    index.sample(DEFAULT)
    assert sum(each.read for each in counted) == before


@pytest.mark.req("BD-348")
def test_a_heartbeat_changes_nothing() -> None:
    index = NodeIndex([node("a")])
    sample = index.sample(DEFAULT)
    assert index.put(node("a")) == NodeChangeEffect()
    assert index.sample(DEFAULT) is sample


def test_the_oldest_of_a_kind_stands_for_it() -> None:
    index = NodeIndex([node("young", age=10), node("old", age=90), node("middle", age=50)])
    assert [each.name for each in index.sample(DEFAULT)] == ["old"]
    index.remove("old")
    assert [each.name for each in index.sample(DEFAULT)] == ["middle"]
    index.put(node("older", age=60))
    assert [each.name for each in index.sample(DEFAULT)] == ["older"]


def test_a_node_that_was_made_anew_under_its_name_is_as_young_as_it_is() -> None:
    index = NodeIndex([node("a", age=90), node("b", age=50)])
    index.put(node("a", age=1))
    assert [each.name for each in index.sample(DEFAULT)] == ["b"]
    for age in range(100):
        index.put(node("b", age=age % 7))
    assert [(each.name, each.created) for each in index.sample(DEFAULT)] == [("a", NOW - 1)]
    index.put(node("b", age=5))
    assert [(each.name, each.created) for each in index.sample(DEFAULT)] == [("b", NOW - 5)]


def test_views_tell_apart_only_what_they_have_to() -> None:
    index = NodeIndex([node("a", labels={"pool": "x"}), node("b", labels={"pool": "y"})])
    assert len(index.sample(DEFAULT)) == 1
    assert len(index.sample(POOL)) == 2


def test_what_a_change_made_a_difference_to() -> None:
    index = NodeIndex([node("a"), node("b")])
    index.sample(DEFAULT)
    index.sample(POOL)
    both = frozenset({DEFAULT, POOL})
    assert index.put(node("c", "arm64")) == NodeChangeEffect(both, both), "a new architecture"
    assert index.put(node("d", "arm64")) == NodeChangeEffect(), "one more of the same"
    assert index.put(node("d", "arm64", ready=False)) == NodeChangeEffect(availability=both), "a node that is not ready"
    assert index.put(node("d", "arm64", ready=False, labels={"pool": "x"})) == NodeChangeEffect(
        frozenset({POOL}), frozenset({POOL})
    ), "a label that one selector names"
    assert index.put(node("a", labels={"other": "y"})) == NodeChangeEffect(), "a label that none names"
    index.remove("d")
    assert index.remove("c") == NodeChangeEffect(both, both), "the last of an architecture"
    assert index.remove("c") == NodeChangeEffect(), "a node that is not there"


def test_a_node_that_is_being_deleted_is_gone() -> None:
    index = NodeIndex([node("a"), node("b", "arm64")])
    index.put(node("b", "arm64", deleting=True))
    assert index.architectures == ("amd64",)
    assert [each.name for each in index.sample(DEFAULT)] == ["a"]


@pytest.mark.req("BD-048")
def test_the_architectures_of_the_cluster_are_those_of_all_linux_nodes() -> None:
    index = NodeIndex([node("m", "s390x", labels=CONTROL_PLANE), node("a"), node("mute", "")])
    index.put(node("w", "arm64", operating_system="windows"))
    before = index.architectures
    index.remove("m")
    assert (before, index.architectures) == (("amd64", "s390x"), ("amd64",))


def test_views_that_no_build_needs_are_forgotten() -> None:
    index = NodeIndex([node("a")])
    index.sample(POOL)
    index.keep([DEFAULT])
    assert index.put(node("b", "arm64")) == NodeChangeEffect()
    assert len(index.sample(POOL)) == 2


def test_nodes_that_a_message_names_are_all_there() -> None:
    nodes = [*(node(f"bad-{each}", "arm64", mismatch=True) for each in range(3)), node("mute", ""), node("mute-2", "")]
    index = NodeIndex(nodes)
    resolved = resolve_architectures(facts(*index.sample(DEFAULT)))
    assert resolved.mismatched == ("bad-0", "bad-1", "bad-2")
    assert resolved.unplaced == ("mute", "mute-2")


def test_a_sample_is_a_value_of_its_own() -> None:
    """What a plan is being made of does not change under it."""
    index = NodeIndex([node("a")])
    sample = index.sample(DEFAULT)
    copy = msgspec.structs.replace(facts(), nodes=sample)
    index.put(node("b", "arm64"))
    assert [each.name for each in copy.nodes or ()] == ["a"]
