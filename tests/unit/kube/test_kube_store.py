"""Stores swap at once, keep their indexes by difference, and are not confused by events that come twice."""

import gc

import msgspec
import pytest

from polyarch.kube.store import ObjectChange, Store
from polyarch.kube.watch import Apply, Delete, Init, InitApply, InitDone
from polyarch.objects import ObjectKey, ObjectMeta, PartialObjectMetadata


def thing(name, version, *, uid="", **labels):
    metadata = ObjectMeta(
        name=name, namespace="demo", resource_version=str(version), uid=uid or f"uid-{name}", labels=labels or None
    )
    return PartialObjectMetadata(metadata)


def key(name):
    return ObjectKey("demo", name)


def labels(object_):
    return [f"{name}={value}" for name, value in (object_.metadata.labels or {}).items()]


def take(store, *outputs):
    return [change for output in outputs for change in store.take(output)]


def brief(changes):
    return [(change.kind, change.key.name, change.initial) for change in changes]


@pytest.fixture
def store():
    return Store({"label": labels})


@pytest.fixture
def filled(store):
    take(store, Init(), InitApply(thing("a", 1, app="x")), InitApply(thing("b", 2, app="x")), InitDone())
    return store


@pytest.mark.req("KR-014")
def test_nothing_is_seen_before_the_list_is_complete(store):
    assert take(store, Init(), InitApply(thing("a", 1, app="x"))) == []
    assert store.get(key("a")) is None
    assert store.by_index("label", "app=x") == []
    assert brief(take(store, InitDone())) == [("apply", "a", True)]
    assert store.get(key("a")) == thing("a", 1, app="x")
    assert store.by_index("label", "app=x") == [key("a")]


@pytest.mark.req("KR-014")
def test_the_old_content_is_read_until_the_new_list_is_complete(filled):
    """A relist never shows half of a cluster."""
    take(filled, Init(), InitApply(thing("c", 9)))
    assert set(filled.keys()) == {key("a"), key("b")}
    take(filled, InitDone())
    assert set(filled.keys()) == {key("c")}


@pytest.mark.req("KR-014")
def test_what_vanished_meanwhile_is_deleted_after_the_swap(filled):
    """A handler that looks into the store during the delete finds the new content."""
    changes = take(filled, Init(), InitApply(thing("b", 2, app="x")), InitApply(thing("c", 9, app="x")), InitDone())
    assert brief(changes) == [("apply", "c", False), ("delete", "a", False)]
    assert changes[1] == ObjectChange("delete", key("a"), thing("a", 1, app="x"), None)
    assert filled.by_index("label", "app=x") == [key("b"), key("c")]


@pytest.mark.req("KR-014")
def test_an_object_the_new_list_shows_unchanged_stays_the_same(filled):
    """No change is told, no second copy kept."""
    before = filled.get(key("a"))
    changes = take(filled, Init(), InitApply(thing("a", 1, app="x")), InitApply(thing("b", 3, app="y")), InitDone())
    assert brief(changes) == [("apply", "b", False)]
    assert changes[0].old == thing("b", 2, app="x")
    assert filled.get(key("a")) is before


@pytest.mark.req("KR-014")
def test_a_namesake_is_another_object(filled):
    """Deleted and made again while nobody watched; also live."""
    changes = take(filled, Init(), InitApply(thing("a", 9, uid="new")), InitApply(thing("b", 2, app="x")), InitDone())
    assert brief(changes) == [("delete", "a", False), ("apply", "a", False)]
    assert [change.kind for change in take(filled, Apply(thing("a", 11, uid="newer")))] == ["delete", "apply"]


@pytest.mark.req("KR-014")
def test_a_list_that_was_begun_again_forgets_the_first_half(filled):
    take(filled, Init(), InitApply(thing("ghost", 9)), Init(), InitApply(thing("a", 1, app="x")), InitDone())
    assert set(filled.keys()) == {key("a")}


def test_live_changes_carry_what_was_and_what_is(filled):
    assert take(filled, Apply(thing("a", 5, app="y"))) == [
        ObjectChange("apply", key("a"), thing("a", 1, app="x"), thing("a", 5, app="y"))
    ]
    assert take(filled, Apply(thing("c", 6))) == [ObjectChange("apply", key("c"), None, thing("c", 6))]
    assert take(filled, Delete(key("b"), "7")) == [ObjectChange("delete", key("b"), thing("b", 2, app="x"), None)]
    assert take(filled, Delete(key("b"), "7")) == []
    assert len(filled) == 2
    assert key("b") not in filled


@pytest.mark.req("KR-014")
def test_indexes_follow_changes(filled):
    take(filled, Apply(thing("a", 5, app="y", tier="web")), Delete(key("b"), "6"))
    assert filled.by_index("label", "app=x") == []
    assert filled.by_index("label", "app=y") == filled.by_index("label", "tier=web") == [key("a")]
    assert filled.by_index("label", "never") == []
    with pytest.raises(KeyError):
        filled.by_index("unknown", "x")


@pytest.mark.req("KR-014")
def test_an_index_is_touched_only_where_values_differ(filled):
    """The order of keys shows that the entry was not taken out and put in again."""
    take(filled, Apply(thing("a", 5, app="x")))
    assert filled.by_index("label", "app=x") == [key("a"), key("b")]


def test_an_index_added_later_knows_what_is_there(filled):
    def by_name(object_):
        return [object_.metadata.name]

    filled.add_index("name", by_name)
    filled.add_index("name", by_name)
    assert filled.by_index("name", "a") == [key("a")]
    with pytest.raises(ValueError, match="another function"):
        filled.add_index("name", labels)


def test_an_index_function_that_fails_on_one_object_spoils_nothing_else(capsys):
    def picky(object_):
        if object_.metadata.name == "odd":
            raise KeyError("app")
        return ["all"]

    store = Store({"picky": picky})
    take(store, Init(), InitApply(thing("a", 1)), InitApply(thing("odd", 2)), InitDone())
    assert store.by_index("picky", "all") == [key("a")]
    assert len(store) == 2
    assert "demo/odd" in capsys.readouterr().out
    take(store, Delete(key("odd"), "3"))
    assert len(store) == 1


@pytest.mark.req("KR-040")
def test_events_that_come_twice_or_late_change_nothing(filled):
    """For one object, older than known is ignored; versions are numbers, 10 is later than 9."""
    take(filled, Apply(thing("a", 10)))
    assert take(filled, Apply(thing("a", 10)), Apply(thing("a", 9)), Delete(key("a"), "8")) == []
    assert filled.get(key("a")) == thing("a", 10)


@pytest.mark.req("KR-040")
def test_a_late_duplicate_does_not_bring_the_dead_back(filled):
    take(filled, Delete(key("a"), "12"))
    assert take(filled, Apply(thing("a", 9)), Apply(thing("a", 11))) == []
    assert brief(take(filled, Apply(thing("a", 13, uid="new")))) == [("apply", "a", False)]


@pytest.mark.req("KR-040")
def test_nor_one_from_before_the_list(filled):
    """The list at 20 says that `c` is not there, whatever an event of 15 says."""
    take(filled, Init(), InitApply(thing("a", 1, app="x")), InitDone("20"))
    assert take(filled, Apply(thing("c", 15)), Delete(key("a"), "15")) == []
    assert brief(take(filled, Apply(thing("c", 21)))) == [("apply", "c", False)]


@pytest.mark.req("KR-040")
def test_nor_while_a_streaming_list_is_read(store):
    take(store, Init(), InitApply(thing("a", 5)), InitApply(thing("a", 7)), InitApply(thing("a", 6)))
    take(store, InitApply(thing("b", 5)), Delete(key("b"), "8"), InitApply(thing("b", 5)), Delete(key("a"), "4"))
    take(store, InitDone())
    assert store.get(key("a")) == thing("a", 7)
    assert key("b") not in store
    assert take(store, Apply(thing("b", 6))) == []


def test_versions_that_are_no_numbers_are_taken_in_the_order_they_come(store):
    """An aggregated API server may use any text; then only equality means something."""
    take(store, Init(), InitApply(thing("a", "x9")), InitDone())
    assert len(take(store, Apply(thing("a", "x1")))) == 1
    assert take(store, Apply(thing("a", "x1"))) == []
    assert len(take(store, Delete(key("a"), "x0"))) == 1


@pytest.mark.req("KR-014")
def test_stored_values_are_frozen_and_invisible_to_the_garbage_collector(filled):
    object_ = filled.get(key("a"))
    with pytest.raises(AttributeError):
        object_.kind = "Pod"
    assert not gc.is_tracked(object_)
    assert not gc.is_tracked(msgspec.json.decode(b'{"name":"a"}', type=ObjectMeta))
