"""With a controller in the cluster its object is set and its status watched."""

import asyncio
from typing import Any

import msgspec
import pytest
from fake_api import FakeApi
from manual_clock import ManualClock
from taint_cluster import taint_api

from polyarch.kube.resources import LEASES
from polyarch.taints.api import ARCHITECTURE_TAINTS, ArchitectureTaints
from polyarch.taints.bootstrap import BootstrapProgress, ControllerBootstrap, NotInTime, observed, ready, tainted
from polyarch.taints.cluster import is_renewed
from polyarch.taints.plan import held, is_held, node_selector, released

DOCUMENT = {"metadata": {"name": "cluster"}, "spec": {"mode": "both"}}
LABELS = {"matchLabels": {"pool": "arm"}}


def spec(**nodes: Any) -> dict[str, Any]:
    return {"nodes": {name: value for name, value in nodes.items() if value is not None}}


@pytest.mark.req("TN-063")
@pytest.mark.parametrize("selector", [None, LABELS, {"matchExpressions": [{"key": "a", "operator": "Exists"}]}])
def test_nodes_are_held_back_and_let_go_and_the_rest_of_the_selector_stays(selector: Any) -> None:
    before = spec(selector=selector, perMinute=7)
    assert not is_held(before)
    assert is_held(held(before))
    assert held(held(before)) == held(before)
    assert released(held(before)) == before
    assert released(before) == before


class Lived:
    """An API server with the object, and time that passes."""

    def __init__(self) -> None:
        self.api = taint_api()
        self.clock = ManualClock()
        self.told: list[str] = []
        self.delegated = ControllerBootstrap(
            self.api, clock=self.clock, tell=lambda change: self.told.append(f"{change.ref.key} {change.what}")
        )

    @property
    def spec(self) -> Any:
        return self.api.read(ARCHITECTURE_TAINTS, "cluster")["spec"]

    def live(self) -> ArchitectureTaints:
        return msgspec.convert(self.api.read(ARCHITECTURE_TAINTS, "cluster"), ArchitectureTaints)

    def says(self, generation: int = 1, *, managed: int = 4, done: int = 0, **conditions: str) -> None:
        status = {
            "observedGeneration": generation,
            "nodes": {"managed": managed, "tainted": done},
            "conditions": [
                {"type": name, "status": value.split()[0], "reason": value.split()[-1], "message": f"{name} is {value}"}
                for name, value in conditions.items()
            ],
        }
        found = self.api.read(ARCHITECTURE_TAINTS, "cluster")
        found["metadata"]["generation"] = 1
        self.api.put(ARCHITECTURE_TAINTS, {**found, "status": status})


@pytest.mark.req("TN-063")
async def test_bootstrap_creates_the_object_with_its_nodes_held_back_and_apply_lets_them_go() -> None:
    world = Lived()
    await world.delegated.prepare({**DOCUMENT, "spec": {"nodes": {"selector": LABELS, "perMinute": 7}}}, None)
    assert is_held(world.live().spec)
    assert world.spec["nodes"]["perMinute"] == 7
    await world.delegated.prepare(DOCUMENT, world.live())
    await world.delegated.release(DOCUMENT, world.live())
    assert not is_held(world.live().spec)
    assert node_selector(world.live().spec) == LABELS
    await world.delegated.release(DOCUMENT, world.live())
    assert world.told == ["cluster is created, nodes held back", "cluster lets nodes go"]


@pytest.mark.req("TN-063")
async def test_without_another_selector_none_is_left() -> None:
    world = Lived()
    await world.delegated.prepare(DOCUMENT, None)
    await world.delegated.release(DOCUMENT, world.live())
    assert not node_selector(world.live().spec)
    assert world.spec["mode"] == "both"


@pytest.mark.req("TN-063")
async def test_apply_creates_the_object_where_there_is_none() -> None:
    world = Lived()
    await world.delegated.release(DOCUMENT, None)
    assert world.spec == {"mode": "both"}


@pytest.mark.req("TN-063")
async def test_a_file_replaces_the_spec_of_an_object_unless_it_means_the_same() -> None:
    world = Lived()
    await world.delegated.release(DOCUMENT, None)
    await world.delegated.configure({**DOCUMENT, "spec": {"mode": "both", "nodes": {"perMinute": 60}}}, world.live())
    assert world.spec == {"mode": "both"}
    await world.delegated.configure({**DOCUMENT, "spec": {"mode": "tolerations"}}, world.live())
    assert world.spec == {"mode": "tolerations"}


@pytest.mark.req("TN-063")
async def test_the_status_counts_once_the_controller_has_seen_the_object() -> None:
    world = Lived()
    await world.delegated.release(DOCUMENT, None)
    seen: list[BootstrapProgress] = []
    work = asyncio.create_task(world.delegated.wait(tainted, seconds=600, seen=seen.append))
    world.says(0, Ready="True", NodesTainted="True")
    await world.clock.run(5)
    assert not work.done()
    assert "not seen the object" in seen[-1].waits_for
    world.says(1, done=2, Ready="True", NodesTainted="False InProgress")
    await world.clock.run(5)
    assert seen[-1].tainted == 2
    assert seen[-1].waits_for == "NodesTainted: NodesTainted is False InProgress"
    world.says(1, done=4, Ready="True", NodesTainted="True")
    await world.clock.run(5)
    assert (await work).done


@pytest.mark.req("TN-063")
async def test_a_controller_that_stopped_is_not_waited_for() -> None:
    world = Lived()
    await world.delegated.release(DOCUMENT, None)
    world.says(1, Ready="True", NodesTainted="False", Degraded="True PodsBecamePending")
    ended = await world.delegated.wait(tainted, seconds=600)
    assert ended.stopped == "Degraded is True PodsBecamePending"
    world.says(1, Ready="True", NodesTainted="True", Degraded="True NodesNotWritten")
    assert (await world.delegated.wait(tainted, seconds=600)).done


@pytest.mark.req("TN-063")
@pytest.mark.parametrize("progressed", [ready, tainted, observed])
async def test_what_is_waited_for_is_said_when_time_is_over(progressed: Any) -> None:
    world = Lived()
    await world.delegated.release(DOCUMENT, None)
    work = asyncio.create_task(world.delegated.wait(progressed, seconds=10))
    world.says(0)
    await world.clock.run(12)
    with pytest.raises(NotInTime, match="the controller, which has not seen the object yet"):
        await work


@pytest.mark.req("TN-063")
async def test_an_object_that_is_gone_is_waited_for_until_time_is_over() -> None:
    world = Lived()
    work = asyncio.create_task(world.delegated.wait(ready, seconds=3))
    await world.clock.run(5)
    with pytest.raises(NotInTime, match="gone"):
        await work


def lease(name: str = "polyarch-taints", holder: str = "a", renewed: str = "1") -> dict[str, Any]:
    return {
        "metadata": {"name": name, "namespace": "polyarch-system", "uid": f"u-{name}"},
        "spec": {"holderIdentity": holder, "renewTime": renewed},
    }


async def is_led(api: FakeApi, clock: ManualClock, *, renewing: bool) -> bool:
    work = asyncio.create_task(is_renewed(api, "polyarch-taints", clock=clock))
    for second in range(40):
        await clock.run(1)
        if renewing:
            api.put(LEASES, lease(renewed=str(second)))
    return await work


@pytest.mark.req("TN-070")
async def test_a_lease_that_is_renewed_is_somebodys_whatever_its_times_say() -> None:
    api, clock = taint_api(), ManualClock()
    api.put(LEASES, lease())
    assert await is_led(api, clock, renewing=True)
    began = clock.monotonic()
    assert not await is_led(api, clock, renewing=False)
    assert clock.monotonic() - began >= 30


@pytest.mark.req("TN-070")
async def test_without_a_lease_or_with_one_that_was_given_back_nobody_is_waited_for() -> None:
    api, clock = taint_api(), ManualClock()
    assert not await is_renewed(api, "polyarch-taints", clock=clock)
    api.put(LEASES, lease(holder=""))
    api.put(LEASES, lease(name="another"))
    assert not await is_renewed(api, "polyarch-taints", clock=clock)
