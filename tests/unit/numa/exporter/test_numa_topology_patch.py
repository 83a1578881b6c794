"""What is written: the least that makes the object right, and nothing where it is right already."""

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace
from numa_facts import LISTING_ONLY, MACHINE, facts, pod

from polyarch.kube.patches import merge_patch
from polyarch.numa.api.topology import NodeResourceTopology
from polyarch.numa.exporter.topology_document import (
    Document,
    stamped,
    topology_document,
    topology_patch,
)
from polyarch.numa.exporter.zones import node_zones
from polyarch.numa.facts import ScanFacts, ScanSettings

SETTINGS = replace(LISTING_ONLY, node_group="group-1")
HELD = replace(facts(pod("holder", cpus=(5, 6)), pod("other", cpus=(4,))), node_uid="uid-1")
FOREIGN = {"apiVersion": "example.org/v1", "kind": "Rack", "name": "r1", "uid": "r", "blockOwnerDeletion": True}


def made(gathered: ScanFacts = HELD, settings: ScanSettings = SETTINGS) -> Document:
    return topology_document(gathered, node_zones(gathered, settings, "worker"), settings, refresh_period=60)


def stored(content: Any) -> NodeResourceTopology:
    return msgspec.convert(content, NodeResourceTopology)


def with_metadata(content: Document, **metadata: Any) -> Document:
    return {**content, "metadata": {**content["metadata"], **metadata}}


@pytest.mark.req("NE-019", "NE-110")
def test_nothing_is_written_when_the_object_is_right() -> None:
    """NE-110, NE-019-row "a write per period though nothing changed"."""
    assert topology_patch(made(), stored(made())) is None


@pytest.mark.req("NE-019", "NE-110")
def test_the_order_of_the_kubelets_answers_is_no_change() -> None:
    """NE-110, NE-019-row "unsorted zones"."""
    permuted = replace(HELD, pods=HELD.pods[::-1], machine=replace(MACHINE, zones=MACHINE.zones[::-1]))
    assert topology_patch(made(permuted), stored(made())) is None


@pytest.mark.req("NE-111")
def test_the_patch_holds_only_the_fields_that_changed() -> None:
    """The zones when CPUs are given out, not the attributes when the fingerprint stays."""
    same_pods = replace(HELD, pods=(pod("holder", cpus=(5, 6, 7)), HELD.pods[1]))
    patch = topology_patch(made(same_pods), stored(made()))
    assert patch == {"zones": made(same_pods)["zones"]}

    gone = replace(HELD, pods=HELD.pods[:1])
    patch = topology_patch(made(gone), stored(made()))
    assert patch is not None
    assert set(patch) == {"metadata", "attributes", "zones"}
    assert patch["metadata"] == {"annotations": made(gone)["metadata"]["annotations"]}


@pytest.mark.req("NE-112")
def test_a_foreign_edit_of_our_fields_is_taken_back() -> None:
    """Down to one value, one order, one entry too many."""
    for edited in (
        {**made(), "zones": made()["zones"][:1]},
        {**made(), "zones": made()["zones"][::-1]},
        {**made(), "zones": [*made()["zones"], {"name": "node-2", "type": "Node", "resources": []}]},
        {**made(), "zones": [{**made()["zones"][0], "parent": "rack"}, made()["zones"][1]]},
    ):
        assert topology_patch(made(), stored(edited)) == {"zones": made()["zones"]}
    edited = {**made(), "attributes": [*made()["attributes"], {"name": "a", "value": "b"}]}
    assert topology_patch(made(), stored(edited)) == {"attributes": made()["attributes"]}


@pytest.mark.req("NE-005", "NE-110")
def test_an_empty_list_null_and_none_are_the_same() -> None:
    """They are no reason to write."""
    settings = replace(SETTINGS, extra_attributes=False)
    wanted = made(settings=settings)
    for nothing in ([], None):
        found = {**wanted, "zones": [{**each, "attributes": nothing, "parent": ""} for each in wanted["zones"]]}
        assert topology_patch(wanted, stored(found)) is None
    bare = {**made(), "zones": [{**each, "resources": []} for each in made()["zones"]]}
    for nothing in ([], None):
        found = {**bare, "zones": [{**each, "resources": nothing} for each in bare["zones"]]}
        assert topology_patch(bare, stored(found)) is None


@pytest.mark.req("NE-012", "NE-110")
def test_another_spelling_of_a_quantity_is_rewritten_once() -> None:
    """It comes back as it was written, so the second comparison finds nothing."""
    foreign = made()
    zone = foreign["zones"][0]
    resources = [{**each, "capacity": int(each["capacity"])} for each in zone["resources"]]
    foreign = {**foreign, "zones": [{**zone, "resources": resources}, *foreign["zones"][1:]]}
    patch = topology_patch(made(), stored(foreign))
    assert patch == {"zones": made()["zones"]}
    assert topology_patch(made(), stored(merge_patch(foreign, patch))) is None


@pytest.mark.req("NE-017", "NE-112")
def test_labels_and_annotations_of_others_are_kept() -> None:
    """They are in no patch."""
    theirs = with_metadata(
        made(),
        labels={"a": "b", **made()["metadata"]["labels"]},
        annotations={"c": "d", **made()["metadata"]["annotations"]},
    )
    assert topology_patch(made(), stored(theirs)) is None
    bare = with_metadata(made(), labels={"a": "b"}, annotations={"c": "d"})
    patch = topology_patch(made(), stored(bare))
    assert patch == {
        "metadata": {"labels": made()["metadata"]["labels"], "annotations": made()["metadata"]["annotations"]}
    }
    after = merge_patch(bare, patch)["metadata"]
    assert (after["labels"]["a"], after["annotations"]["c"]) == ("b", "d")


@pytest.mark.req("NE-014", "NE-017")
def test_what_was_ours_and_is_no_longer_wanted_is_removed() -> None:
    """With null, as a merge patch removes."""
    without = replace(LISTING_ONLY, legacy_fields=False)
    patch = topology_patch(made(settings=without), stored(made()))
    assert patch == {
        "topologyPolicies": None,
        "metadata": {
            "labels": {"numa.polyarch.dev/node-group": None},
            "annotations": {"topology.node.k8s.io/fingerprint": None},
        },
    }
    assert topology_patch(made(settings=without), stored(merge_patch(made(), patch))) is None


@pytest.mark.req("NE-018", "NE-019")
def test_a_reference_to_a_node_that_is_gone_is_replaced_in_its_place() -> None:
    """NE-018, NE-019-row "stale owner uid after node replacement": others stay, with all their fields."""
    ours = made()["metadata"]["ownerReferences"][0]
    dead = {**ours, "uid": "uid-0"}
    patch = topology_patch(made(), stored(with_metadata(made(), ownerReferences=[FOREIGN, dead])))
    assert patch == {"metadata": {"ownerReferences": [FOREIGN, ours]}}
    patch = topology_patch(made(), stored(with_metadata(made(), ownerReferences=[dead, FOREIGN, ours])))
    assert patch == {"metadata": {"ownerReferences": [ours, FOREIGN]}}
    patch = topology_patch(made(), stored(with_metadata(made(), ownerReferences=[FOREIGN])))
    assert patch == {"metadata": {"ownerReferences": [FOREIGN, ours]}}


@pytest.mark.req("NE-018")
def test_our_reference_is_no_controller() -> None:
    ours = made()["metadata"]["ownerReferences"][0]
    for equal in ({**ours, "controller": False}, {**ours, "blockOwnerDeletion": False}):
        assert topology_patch(made(), stored(with_metadata(made(), ownerReferences=[equal, FOREIGN]))) is None
    patch = topology_patch(made(), stored(with_metadata(made(), ownerReferences=[{**ours, "controller": True}])))
    assert patch == {"metadata": {"ownerReferences": [ours]}}


@pytest.mark.req("NE-018")
@pytest.mark.parametrize(
    "wanted", [made(replace(HELD, node_uid="")), made(settings=replace(SETTINGS, add_nrt_owner=False))]
)
def test_references_are_left_alone_when_there_is_none_to_write(wanted: Document) -> None:
    """No Node is known, or its reference is not ours to add."""
    assert topology_patch(wanted, stored(made())) is None
    assert topology_patch(wanted, stored(with_metadata(made(), ownerReferences=[FOREIGN]))) is None


@pytest.mark.req("NE-019")
def test_trigger_and_timing_join_what_is_written_anyway() -> None:
    """Beside the annotations that are there, in a new object and in a patch."""
    stamp = {"k8stopoawareschedwg/rte-update": "periodic"}
    assert stamped(made(), stamp)["metadata"]["annotations"] == {**made()["metadata"]["annotations"], **stamp}
    assert stamped({"zones": []}, stamp) == {"zones": [], "metadata": {"annotations": stamp}}
    assert stamped({"zones": []}, {}) == {"zones": []}
    later = with_metadata(made(), annotations={**made()["metadata"]["annotations"], **stamp})
    assert topology_patch(made(), stored(later)) is None


@pytest.mark.req("NE-111")
def test_a_put_carries_the_whole_object_after_the_patch() -> None:
    """What others wrote is in it, null removes, lists are replaced."""
    found = {"metadata": {"labels": {"a": "b", "c": "d"}, "resourceVersion": "7"}, "zones": [1, 2], "old": 1}
    patch = {"metadata": {"labels": {"c": None}, "annotations": {"e": "f", "g": None}}, "zones": [3], "old": None}
    assert merge_patch(found, patch) == {
        "metadata": {"labels": {"a": "b"}, "resourceVersion": "7", "annotations": {"e": "f"}},
        "zones": [3],
    }
