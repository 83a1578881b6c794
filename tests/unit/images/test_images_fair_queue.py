"""Namespaces take turns, hosts within a namespace too, and nobody is passed over but who cannot be served."""

import pytest

from polyarch.images.fair_queue import ConcurrencyLimits, FairQueue, QueueEntry
from polyarch.images.waiting import ImageLookupKey
from polyarch.oci.settings import Share


def image(name: str, host: str = "one.example") -> ImageLookupKey:
    return ImageLookupKey(f"{host}/{name}:1", "")


class Open(ConcurrencyLimits):
    """Places that never run out, but for these hosts and namespaces."""

    def __init__(self, *, full: tuple[str, ...] = (), sated: tuple[str, ...] = ()) -> None:
        super().__init__(Share(1_000_000), per_host=1_000_000)
        self.full = full
        self.sated = sated

    def allows(self, namespace: str) -> bool:
        return namespace not in self.sated

    def has_capacity(self, namespace: str, host: str) -> bool:
        return host not in self.full


def serve(turns: FairQueue, count: int = 100, *, full: tuple[str, ...] = (), sated: tuple[str, ...] = ()) -> list[str]:
    """Who has the next turns, as ``namespace: image``."""
    served, places = [], Open(full=full, sated=sated)
    for _ in range(count):
        turn = turns.next(places, waits=lambda key, namespace: True)
        if turn is None:
            break
        served.append(f"{turn.namespace}: {turn.key.reference.partition('/')[2]}")
    return served


def lines(**namespaces: int) -> FairQueue:
    turns = FairQueue()
    for namespace, count in namespaces.items():
        for number in range(count):
            turns.add(image(f"{namespace}{number}"), [namespace])
    return turns


def test_a_namespace_waits_for_one_of_each_other_namespace():
    assert serve(lines(a=3, b=1, c=2)) == ["a: a0:1", "b: b0:1", "c: c0:1", "a: a1:1", "c: c1:1", "a: a2:1"]


def test_who_comes_last_is_next_after_one_turn_of_each_other():
    turns = lines(a=10_000)
    serve(turns, 5)
    turns.add(image("late"), ["b"])
    assert serve(turns, 2) == ["a: a5:1", "b: late:1"]


def test_within_a_namespace_hosts_take_turns():
    turns = FairQueue()
    for host in ("one.example", "two.example"):
        for number in range(2):
            turns.add(image(f"{host[:3]}{number}", host), ["a"])
    assert serve(turns) == ["a: one0:1", "a: two0:1", "a: one1:1", "a: two1:1"]


def test_a_full_host_is_passed_over_and_its_images_keep_their_place():
    turns = FairQueue()
    turns.add(image("first", "full.example"), ["a"])
    turns.add(image("second"), ["a"])
    assert serve(turns, full=("full.example",)) == ["a: second:1"]
    assert len(turns) == 1
    assert serve(turns) == ["a: first:1"]


def test_a_namespace_that_has_enough_is_passed_over_and_keeps_its_place():
    turns = lines(a=1, b=2)
    assert serve(turns, 1, sated=("a",)) == ["b: b0:1"]
    assert serve(turns) == ["a: a0:1", "b: b1:1"]


def test_an_image_in_several_lines_is_served_once_by_whoever_is_first():
    turns = lines(a=2)
    turns.add(image("shared"), ["a", "b"])
    turns.add(image("shared"), ["c"])
    assert serve(turns) == ["a: a0:1", "b: shared:1", "a: a1:1"]
    assert len(turns) == 0


def test_who_waits_no_more_costs_no_turn_and_takes_nothing_from_who_does():
    turns = lines(a=2, b=1)
    turns.add(image("a0"), ["b"])
    gone = {(image("a0"), "a"), (image("a1"), "a")}
    served = []
    while turn := turns.next(Open(), waits=lambda *who: who not in gone):
        served.append((turn.namespace, turn.key))
    assert served == [("b", image("b0")), ("b", image("a0"))]
    assert len(turns) == 0


def test_what_stands_in_line_already_keeps_its_place():
    turns = lines(a=2)
    turns.add(image("a0"), ["a"])
    assert serve(turns) == ["a: a0:1", "a: a1:1"]


def test_who_is_dropped_leaves_all_lines():
    turns = lines(a=2, b=1)
    turns.add(image("a0"), ["b"])
    turns.drop(image("a0"))
    turns.drop(image("nobody"))
    assert len(turns) == 2
    assert serve(turns) == ["a: a1:1", "b: b0:1"]


@pytest.mark.req("PL-851")
def test_a_namespace_that_holds_all_places_leaves_each_other_its_minimum():
    places = ConcurrencyLimits(Share(8, minimum=2, maximum=12, per_tenant=8), per_host=100)
    greedy = [QueueEntry(image(f"{at}"), "greedy") for at in range(8)]
    for each in greedy:
        assert places.allows("greedy")
        places.acquire(each)
    assert not places.allows("greedy")
    for at in range(2):
        assert places.allows("modest")
        places.acquire(QueueEntry(image(f"m{at}"), "modest"))
    assert not places.allows("modest"), "beyond its minimum it waits for what is shared"
    for at in range(2):
        places.acquire(QueueEntry(image(f"l{at}"), "late"))
    assert places.exhausted
    assert not places.allows("fourth")
    for each in greedy:
        places.release(each)
    assert places.allows("modest")


@pytest.mark.req("PL-851")
def test_the_ports_of_a_host_are_one_host_and_its_limit_is_each_namespaces_own():
    places = ConcurrencyLimits(Share(100), per_host=3)
    queue: FairQueue[ImageLookupKey] = FairQueue()
    for namespace in ("a", "b"):
        for port in range(5):
            queue.add(image(f"{namespace}{port}", f"one.example:{port}"), [namespace])
    started = []
    while (entry := queue.next(places, waits=lambda *_: True)) is not None:
        places.acquire(entry)
        started.append(entry.namespace)
    assert sorted(started) == ["a"] * 3 + ["b"] * 3
