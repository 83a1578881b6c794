"""The exporter's own Node: which of its changes are told to whom."""

import asyncio
from collections import Counter

import pytest
from fake_api import FakeApi
from manual_clock import ManualClock
from numa_host import NODE, register

from polyarch.kube.resources import NODES
from polyarch.numa.exporter.cluster import OwnNode

pytestmark = pytest.mark.req("NE-070", "NE-100")


async def test_each_change_of_the_node_is_told_to_those_whom_it_concerns() -> None:
    api, clock = FakeApi(), ManualClock()
    told: Counter[str] = Counter()

    def note(what: str) -> None:
        told[what] += 1

    def seen() -> dict[str, int]:
        found = dict(told)
        told.clear()
        return found

    node = OwnNode(
        api,
        NODE,
        clock=clock,
        chance=lambda: 0.5,
        replaced=lambda: note("replaced"),
        resized=lambda: note("resized"),
        moved=lambda: note("moved"),
    )
    here = [{"type": "InternalIP", "address": "10.0.0.1"}]
    sizes = {"capacity": {"cpu": "8"}, "allocatable": {"cpu": "7"}}
    register(api, "one", addresses=here, **sizes)
    following = asyncio.create_task(node.run())
    try:
        await clock.run(1)
        assert seen() == {"replaced": 1, "moved": 1}, "there is nothing yet that the first resources differ from"
        register(api, "one", addresses=here, conditions=[{"type": "Ready", "status": "True"}], **sizes)
        await clock.run(1)
        assert seen() == {}, "a heartbeat is no change"
        register(api, "one", addresses=here, **{**sizes, "allocatable": {"cpu": "6"}})
        await clock.run(1)
        assert seen() == {"resized": 1}
        register(api, "one", addresses=here, capacity={"cpu": "16"}, allocatable={"cpu": "6"})
        await clock.run(1)
        assert seen() == {"resized": 1}
        register(
            api, "one", addresses=[{**here[0], "address": "10.0.0.2"}], capacity={"cpu": "16"}, allocatable={"cpu": "6"}
        )
        await clock.run(1)
        assert (seen(), node.kubelet.host) == ({"moved": 1}, "10.0.0.2")
        api.remove(NODES, NODE)
        await clock.run(1)
        assert (seen()["replaced"], node.uid) == (1, "")
    finally:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
