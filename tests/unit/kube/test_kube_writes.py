"""A stale cache never causes a second, contradictory write."""

import pytest
from manual_clock import ManualClock

from polyarch.kube.store import Store, WriteExpectations
from polyarch.kube.watch import Apply, Delete, Init, InitApply, InitDone
from polyarch.objects import ObjectKey, ObjectMeta, PartialObjectMetadata

A = ObjectKey("demo", "a")


def thing(version):
    return PartialObjectMetadata(ObjectMeta(name="a", namespace="demo", resource_version=str(version), uid="u"))


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def store():
    store = Store()
    for output in (Init(), InitApply(thing(5)), InitDone()):
        store.take(output)
    return store


@pytest.fixture
def writes(store, clock):
    return WriteExpectations(store, clock=clock, keep=60)


@pytest.mark.req("KR-022")
def test_stale_from_the_write_until_the_cache_shows_it(store, writes):
    assert not writes.is_stale(A)
    writes.note_write(A, "9")
    assert writes.is_stale(A)
    store.take(Apply(thing(8)))
    assert writes.is_stale(A), "somebody else's write of before ours"
    store.take(Apply(thing(9)))
    assert not writes.is_stale(A)
    assert len(writes) == 0


@pytest.mark.req("KR-022")
def test_pending_while_any_write_is_not_seen_also_one_that_creates(store, writes):
    assert not writes.is_behind()
    writes.note_write(ObjectKey("demo", "new"), "9")
    store.take(Apply(thing(10)))
    assert writes.is_behind()
    new = ObjectMeta(name="new", namespace="demo", resource_version="9", uid="v")
    store.take(Apply(PartialObjectMetadata(new)))
    assert not writes.is_behind()


@pytest.mark.req("KR-022")
def test_a_later_version_of_somebody_else_includes_ours(store, writes):
    writes.note_write(A, "9")
    store.take(Apply(thing(10)))
    assert not writes.is_stale(A)


@pytest.mark.req("KR-022")
def test_an_event_that_outran_our_answer_leaves_nothing_behind(store, writes):
    """The watch may bring the write before the PATCH is answered."""
    store.take(Apply(thing(10)))
    writes.note_write(A, "10")
    assert not writes.is_stale(A)
    assert len(writes) == 0


@pytest.mark.req("KR-022")
def test_a_second_write_extends_the_memory(store, writes):
    writes.note_write(A, "9")
    writes.note_write(A, "11")
    store.take(Apply(thing(9)))
    assert writes.is_stale(A)


@pytest.mark.req("KR-022")
def test_something_created_is_stale_until_it_is_seen(store, writes):
    new = ObjectKey("demo", "new")
    writes.note_write(new, "20")
    assert writes.is_stale(new)


@pytest.mark.req("KR-022")
def test_nothing_is_remembered_of_what_was_deleted(store, writes):
    """The informer tells us of every change."""
    writes.note_write(A, "9")
    for change in store.take(Delete(A, "10")):
        writes.observe(change)
    assert len(writes) == 0
    assert not writes.is_stale(A)


@pytest.mark.req("KR-022")
def test_the_informer_empties_the_memory_even_if_nobody_asks(store, writes):
    writes.note_write(A, "9")
    for version, left in ((8, 1), (9, 0)):
        for change in store.take(Apply(thing(version))):
            writes.observe(change)
        assert len(writes) == left


@pytest.mark.req("KR-022")
def test_a_cache_that_is_cut_off_does_not_stop_us_for_ever(writes, clock):
    writes.note_write(A, "9")
    clock.advance(59)
    assert writes.is_stale(A)
    clock.advance(1)
    assert not writes.is_stale(A)


@pytest.mark.req("KR-022")
def test_versions_that_are_no_numbers(clock):
    """Then anything but what was there when we wrote is taken for later."""
    store = Store()
    for output in (Init(), InitApply(thing("x")), InitDone()):
        store.take(output)
    writes = WriteExpectations(store, clock=clock)
    writes.note_write(A, "y")
    assert writes.is_stale(A)
    store.take(Apply(thing("z")))
    assert not writes.is_stale(A)


@pytest.mark.req("KR-022")
def test_writes_that_the_cache_never_shows_are_forgotten_though_nobody_asks(writes, clock):
    """A patch that takes an object out of the selection must not be remembered as long as the process runs."""
    for number in range(100):
        writes.note_write(ObjectKey("demo", f"gone-{number}"), str(100 + number))
    clock.advance(60)
    writes.note_write(ObjectKey("demo", "last"), "300")
    assert len(writes) == 1


@pytest.mark.req("KR-022")
def test_it_is_behind_while_it_lacks_any_of_our_writes(writes, clock):
    """For who counts over all objects."""
    assert not writes.is_behind()
    writes.note_write(A, "9")
    writes.note_write(ObjectKey("demo", "made"), "10")
    assert writes.is_behind()
    clock.advance(60)
    assert not writes.is_behind()
