"""Where pods are, by the placement vectors of their node's object."""

import pytest
from msgspec.structs import replace
from numa_nodes import amounts, cell, container, node, pod

from polyarch.numa.placement_vectors import PlacementVectors, encode_vectors
from polyarch.numa.preemption import actual_zones

FIRST = pod(container("setup", "init", cpu=2, memory=1), container("app", cpu=2, memory=1), name="first")
SECOND = pod(container("a", cpu=1, memory=1), container("b", cpu=3, memory=1), name="second")
TWO = node(cell(0, cpu=8, memory=32), cell(1, cpu=8, memory=32))


def said() -> PlacementVectors:
    placed = {
        ("default", "first", "app"): frozenset({1}),
        ("default", "second", "a"): frozenset({0}),
        ("default", "second", "b"): frozenset({1}),
    }
    found = encode_vectors(placed, [0, 1])
    assert isinstance(found, PlacementVectors)
    return found


@pytest.mark.req("NS-120")
def test_vectors_tell_the_cells_of_each_pod() -> None:
    found = actual_zones(replace(TWO, vectors=said()), [FIRST, SECOND])
    assert found == {
        "first": {1: amounts({"cpu": 2, "memory": 1})},
        "second": {0: amounts({"cpu": 1, "memory": 1}), 1: amounts({"cpu": 3, "memory": 1})},
    }


@pytest.mark.req("NS-122")
def test_vectors_about_other_pods_tell_nothing() -> None:
    assert actual_zones(replace(TWO, vectors=said()), [FIRST]) == {}
    assert actual_zones(TWO, [FIRST, SECOND]) == {}
    assert actual_zones(replace(TWO, vectors=PlacementVectors("npv0v001::ve=other", {})), [FIRST, SECOND]) == {}
