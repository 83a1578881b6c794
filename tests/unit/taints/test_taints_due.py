"""Which node is written next."""

import pytest

from polyarch.taints.nodes import LOSING, NodeWriteQueue


@pytest.mark.req("TN-026")
def test_what_a_single_event_asks_for_comes_first_then_the_rollout_by_architecture_and_name() -> None:
    due = NodeWriteQueue()
    for name, architecture in (("b", "s390x"), ("d", "arm64"), ("c", "arm64"), ("a", "ppc64le")):
        due.put(name, architecture, at_once=False)
    due.put("new", "s390x", at_once=True)
    order = ("arm64", "s390x")
    assert [due.take(order) for _ in range(6)] == ["new", "c", "d", "b", "a", None]


@pytest.mark.req("TN-026")
def test_nodes_that_need_nothing_any_more_are_forgotten() -> None:
    """Those of an autoscaler have new names each time, and a rollout that is on hold takes none of them."""
    due = NodeWriteQueue()
    for number in range(1000):
        due.put(f"node-{number}", "arm64", at_once=False)
        due.drop(f"node-{number}")
    assert not due._names
    assert len(due) == 0


@pytest.mark.req("TN-026")
def test_nodes_that_only_lose_taints_come_before_every_architecture() -> None:
    due = NodeWriteQueue()
    due.put("a", "arm64", at_once=False)
    due.put("b", LOSING, at_once=False)
    assert [due.take(("arm64",)) for _ in range(3)] == ["b", "a", None]
