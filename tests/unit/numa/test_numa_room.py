"""Only changes that can make room are looked at."""

import msgspec
import pytest
from numa_nodes import cell, node

from polyarch.numa.extender.engine import has_more_room


@pytest.mark.req("NS-140")
@pytest.mark.parametrize(
    ("change", "more"),
    [
        ({}, False),
        ({"cells": (cell(0, cpu=8, memory=16, used={"cpu": 5}), cell(1, cpu=8, memory=16))}, False),
        ({"cells": (cell(0, cpu=8, memory=16, used={"cpu": 3}), cell(1, cpu=8, memory=16))}, True),
        ({"cells": (cell(0, cpu=8, memory=16, used={"cpu": 4}), cell(1, cpu=8, memory=16), cell(2, cpu=1))}, True),
        ({"allocatable": {"cpu": 1000}}, True),
        ({"has_topology": False, "cells": ()}, True),
        ({"resource_version": "9", "fingerprint": "x"}, False),
    ],
)
def test_only_what_may_make_room_is_looked_at(change, more):
    before = node(cell(0, cpu=8, memory=16, used={"cpu": 4}), cell(1, cpu=8, memory=16))
    assert has_more_room(before, msgspec.structs.replace(before, **change)) is more


@pytest.mark.req("NS-140")
def test_a_policy_that_loosens_and_a_new_node_may_make_room():
    before = node(cell(0, cpu=8))
    assert has_more_room(before, node(cell(0, cpu=8), policy="best-effort"))
    assert has_more_room(None, before)
