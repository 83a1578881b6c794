"""The decision as one value."""

import msgspec
import pytest
from numa_nodes import amounts, cell, container, node, pod

from polyarch.numa.fit.evaluate import evaluate
from polyarch.numa.fit.facts import ExactOptions

TWO = (cell(0, cpu=8, memory=32), cell(1, cpu=8, memory=32))


@pytest.mark.req("NS-004")
def test_a_node_that_fits_has_cells_amounts_and_a_score() -> None:
    found = evaluate(pod(container("a", cpu=4, memory=8)), node(*TWO), {}, ExactOptions())
    assert msgspec.json.decode(msgspec.json.encode(found)) == {
        "node": "worker",
        "fits": True,
        "kind": "",
        "message": "",
        "container": "",
        "resources": [],
        "cells": {"a": [0]},
        "taken": {"0": amounts({"cpu": 4, "memory": 8})},
        "unseen": {},
        "memory_groups": [],
        "score": (50 + 75) // 2,
    }


@pytest.mark.req("NS-004")
def test_a_node_that_does_not_fit_says_why_and_nothing_else() -> None:
    """What the containers before it would have got is of no use."""
    found = evaluate(pod(container("a", cpu=4), container("b", cpu=9)), node(*TWO), {}, ExactOptions())
    assert (found.fits, found.kind, found.container, found.resources) == (False, "short", "b", ("cpu",))
    assert (found.cells, found.taken, found.score) == ({}, {}, 0)


@pytest.mark.req("NS-004")
def test_a_decision_cannot_be_changed() -> None:
    """Whoever renders it shows what was decided."""
    found = evaluate(pod(container("a", cpu=4)), node(*TWO), {}, ExactOptions())
    with pytest.raises(AttributeError):
        found.fits = False  # type: ignore[misc]
