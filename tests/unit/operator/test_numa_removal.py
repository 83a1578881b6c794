"""Which objects go when nobody keeps them any more, and which never do."""

import pytest

from polyarch.objects import ObjectMeta
from polyarch.operator.components.numa_exporter_plan import stale_topologies

OURS = {"numa.polyarch.dev/node-group": "worker"}


def topology(name: str, labels: dict[str, str] | None = None, **more: str) -> ObjectMeta:
    return ObjectMeta(name=name, labels=labels, **more)  # type: ignore[arg-type]  # times are texts


@pytest.mark.req("NO-071")
def test_a_node_that_left_all_groups() -> None:
    objects = [topology("in", OURS), topology("left", OURS), topology("ends", OURS)]
    assert stale_topologies(objects, group_nodes={"worker": ("in",)}, exporters_on={"ends"}) == ("left",)


@pytest.mark.req("NO-071")
def test_objects_of_others_stay() -> None:
    """NRTs without our label are never deleted."""
    assert stale_topologies([topology("a"), topology("b", {"x": "y"})], group_nodes={}, exporters_on=()) == ()


@pytest.mark.req("NO-071")
def test_what_is_being_deleted_is_not_deleted_again() -> None:
    going = topology("a", OURS, deletion_timestamp="2026-01-01T00:00:00Z")
    assert stale_topologies([going], group_nodes={}, exporters_on=()) == ()


@pytest.mark.req("NO-071")
def test_another_group_takes_the_node_over() -> None:
    objects = [topology("a", OURS)]
    assert stale_topologies(objects, group_nodes={"worker": (), "other": ("a",)}, exporters_on=()) == ()
