"""The places for Jobs are shared between namespaces: nobody waits for what another one does not need."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polyarch.builds.places import JobPlaces, NamespaceLoad, places_of

pytestmark = pytest.mark.req("BD-156")

Load = NamespaceLoad


@pytest.mark.parametrize(
    ("what", "loads", "expected"),
    [
        ("alone it may have all", {}, 20),
        ("what it has itself counts", {"a": Load(at_work=12)}, 8),
        ("it has no more than all", {"a": Load(at_work=20, queued=9)}, 0),
        ("its Jobs that wait for a node count against itself", {"a": Load(waiting=20)}, 0),
        ("others' Jobs that wait for a node take nothing", {"b": Load(waiting=20), "c": Load(waiting=20)}, 20),
        ("beside one that has all it gets its share", {"b": Load(at_work=20, queued=50)}, 10),
        ("its share and no more", {"a": Load(at_work=10), "b": Load(at_work=20)}, 0),
        ("free places go to whoever has fewest", {"a": Load(at_work=8), "b": Load(at_work=2, queued=9)}, 2),
        ("what nobody else wants is its own", {"a": Load(at_work=8), "b": Load(at_work=2)}, 10),
        ("of what another one wants the rest", {"a": Load(at_work=8), "b": Load(at_work=2, queued=1)}, 9),
        ("with more namespaces than places one each", {f"n{each}": Load(at_work=1) for each in range(25)}, 1),
        ("once there are half as many again it gets one", {"b": Load(at_work=20), "c": Load(at_work=10)}, 1),
        ("and no second one", {"a": Load(at_work=1), "b": Load(at_work=20), "c": Load(at_work=10)}, 0),
        ("up to that it gets what is left", {"b": Load(at_work=20), "c": Load(at_work=7)}, 3),
        ("beside twice as many it waits", {"b": Load(at_work=20), "c": Load(at_work=20)}, 0),
        ("there is an end to it", {f"n{each}": Load(at_work=1) for each in range(40)}, 0),
        ("queues that are blocked by themselves want nothing", {"b": Load(waiting=20, queued=500)}, 20),
    ],
)
def test_a_namespace_gets_its_share(what: str, loads: dict[str, NamespaceLoad], expected: int) -> None:
    assert places_of("a", loads, 20) == expected, what


def test_of_namespaces_that_have_equally_few_the_one_that_waits_longest_is_next() -> None:
    loads = {"b": Load(at_work=10, queued=1, oldest=5.0), "a": Load(at_work=9, queued=1, oldest=7.0)}
    assert (places_of("a", loads, 20), places_of("b", loads, 20)) == (1, 0)
    loads["a"] = Load(at_work=9, queued=1, oldest=3.0)
    assert places_of("a", loads, 20) == 1


def test_older_runs_of_the_namespace_come_first_and_are_named() -> None:
    assert JobPlaces.of("a", {}, 20, before=20, predecessor="web-1") == JobPlaces(free=0, room=20, predecessor="web-1")
    assert JobPlaces.of("a", {"a": Load(at_work=20)}, 20) == JobPlaces(free=0, room=0)


LOADS = st.dictionaries(
    st.sampled_from("abcdef"),
    st.builds(
        NamespaceLoad,
        at_work=st.integers(0, 25),
        waiting=st.integers(0, 25),
        queued=st.integers(0, 50),
        oldest=st.integers(1, 3).map(float),
    ),
    max_size=6,
)


@given(LOADS, st.integers(1, 24))
def test_what_tenants_do_takes_no_share_of_another_one(loads: dict[str, NamespaceLoad], limit: int) -> None:
    """Whatever up to five others want: a namespace without Jobs may make one while there are not twice as many Jobs as
    places, and its share while there are not half as many again."""
    others = {name: load for name, load in loads.items() if name != "a"}
    taken = sum(load.at_work for load in others.values())
    most = limit + limit // 2 - taken
    assert places_of("a", others, limit) >= max(min(most, max(1, limit // 6)), taken < 2 * limit)


@given(st.lists(st.tuples(st.integers(0, 99), st.integers(1, 30), st.integers(0, 2)), max_size=150), st.integers(1, 24))
def test_no_number_of_namespaces_gets_more_than_twice_the_places(steps: list[tuple[int, int, int]], limit: int) -> None:
    """They come in any order, each wants as much as it gets, and some Jobs end."""
    at_work: dict[str, int] = {}
    for namespace, wanted, ended in steps:
        name = f"n{namespace}"
        loads = {each: Load(at_work=count, queued=5) for each, count in at_work.items()}
        at_work[name] = at_work.get(name, 0) + min(wanted, places_of(name, loads, limit))
        assert sum(at_work.values()) <= 2 * limit
        at_work[name] = max(0, at_work[name] - ended)


@given(LOADS, st.integers(1, 24))
def test_no_place_stays_free_that_somebody_wants(loads: dict[str, NamespaceLoad], limit: int) -> None:
    taken = sum(load.at_work for load in loads.values())
    want = [name for name, load in loads.items() if load.queued and load.at_work + load.waiting < limit]
    got = {name: min(places_of(name, loads, limit), loads[name].queued) for name in want}
    if taken < limit and want:
        assert sum(got.values()) >= min(
            limit - taken, sum(min(loads[n].queued, limit - loads[n].at_work - loads[n].waiting) for n in want)
        )
