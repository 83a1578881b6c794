"""Runtimes of nodes and platforms that may come: read when they can have changed, and not at each status of a node."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from fake_api import FakeApi
from manual_clock import ManualClock
from placement_world import OPERATOR, FakeWatches, cppc, policy
from structlog.testing import capture_logs

from polyarch.kube.errors import ConnectionFailed
from polyarch.kube.resources import NODES, Resource
from polyarch.placement.facts import ClusterFacts
from polyarch.placement.node_details import RUNTIMES_AFTER, RUNTIMES_EVERY, TEMPLATES_EVERY
from polyarch.platforms import NodePlatform

pytestmark = pytest.mark.req("PL-218", "PL-219")

POOLS = Resource("karpenter.sh", "v1", "nodepools", "NodePool", namespaced=False)
MACHINES = Resource("cluster.x-k8s.io", "v1beta2", "machinedeployments", "MachineDeployment")
AMD64 = NodePlatform("linux", "amd64")
WINDOWS = {"key": "kubernetes.io/os", "operator": "In", "values": ["windows"]}


def machine(name: str, runtime: str, architecture: str = "amd64") -> dict[str, Any]:
    labels = {"kubernetes.io/arch": architecture, "kubernetes.io/os": "linux"}
    metadata = {"name": name, "uid": f"uid-{name}", "labels": labels}
    return {"metadata": metadata, "status": {"nodeInfo": {"containerRuntimeVersion": runtime}}}


def pool(name: str, *requirements: Any, **metadata: Any) -> dict[str, Any]:
    spec = {"template": {"spec": {"requirements": list(requirements)}}}
    return {"metadata": {"name": name, **metadata}, "spec": spec}


class World:
    """The facts of a cluster whose nodes are listed and watched."""

    def __init__(self, api: FakeApi, watches: FakeWatches, clock: ManualClock, facts: ClusterFacts) -> None:
        self.api, self.watches, self.clock, self.facts = api, watches, clock, facts

    def join(self, document: dict[str, Any]) -> None:
        self.api.put(NODES, document)
        self.watches["nodes"].put(document)

    async def after(self, seconds: float) -> None:
        await self.clock.run(seconds)

    @property
    def readings(self) -> int:
        """Lists of nodes."""
        return sum(request[:2] == ("list", "nodes") for request in self.api.requests)


@asynccontextmanager
async def running(*nodes: dict[str, Any], kinds: tuple[Resource, ...] = (), **spec: Any) -> AsyncIterator[World]:
    clock, watches = ManualClock(start=0), FakeWatches()
    watches.nodes_are_listed = False
    api = FakeApi(clock, kinds=kinds)
    for each in nodes:
        api.put(NODES, each)
    facts = ClusterFacts(watches, operator_namespace=OPERATOR, clock=clock, client=api)
    watches["clusterpodplacementconfigs"].list(cppc())
    watches["placementpolicies"].list(policy(**spec))
    watches.sync()
    task = asyncio.create_task(facts.run())
    world = World(api, watches, clock, facts)
    await world.after(0)
    if "nodes" in watches.informers:
        watches["nodes"].list(*nodes)
    watches.sync()
    await world.after(0)
    try:
        yield world
    finally:
        task.cancel()
        await asyncio.wait([task])


async def test_the_runtimes_are_known_before_a_process_is_ready() -> None:
    async with running(machine("a", "cri-o://1.34.0"), machine("b", "containerd://2.1.4", "arm64")) as world:
        assert world.facts.is_complete
        assert world.facts.of("team").runtimes.crio == {AMD64}
        assert world.facts.of("team").runtimes.mixed == frozenset()
        assert world.readings == 1


async def test_statuses_of_nodes_cost_no_request_and_nodes_that_join_together_one() -> None:
    async with running(machine("a", "cri-o://1.34.0")) as world:
        told: list[str | None] = []
        world.facts.on_change(told.append)
        for at in range(50):
            changed = machine("a", "cri-o://1.34.0")
            changed["metadata"]["annotations"] = {"status": str(at)}
            world.watches["nodes"].put(changed)
        await world.after(RUNTIMES_EVERY / 2)
        assert (world.readings, told) == (1, [])
        for at in range(20):
            world.join(machine(f"b{at}", "containerd://2.1.4"))
        await world.after(RUNTIMES_AFTER)
        assert world.readings == 2
        assert world.facts.of("team").runtimes.mixed == {AMD64}
        assert told == [None]


async def test_a_node_that_changes_its_runtime_is_seen_within_the_hour() -> None:
    async with running(machine("a", "containerd://2.1.4")) as world:
        assert world.facts.of("team").runtimes.crio == frozenset()
        world.api.put(NODES, machine("a", "cri-o://1.34.0"))
        await world.after(RUNTIMES_AFTER)
        await world.after(RUNTIMES_EVERY)
        assert world.facts.of("team").runtimes.crio == {AMD64}


async def test_another_node_of_the_same_name_has_its_own_runtime() -> None:
    async with running(machine("a", "containerd://2.1.4")) as world:
        world.watches["nodes"].remove("a")
        world.join(machine("a", "cri-o://1.34.0"))
        await world.after(RUNTIMES_AFTER * 2)
        assert world.facts.of("team").runtimes.crio == {AMD64}


async def test_a_cluster_whose_runtimes_cannot_be_read_goes_by_labels() -> None:
    async with running() as world:
        world.join(machine("a", "cri-o://1.34.0"))
        world.api.refuse(NODES, "list", error=ConnectionFailed("the API server is away"))
        with capture_logs() as logs:
            await world.after(RUNTIMES_AFTER)
            await world.after(RUNTIMES_EVERY)
        assert [each["what"] for each in logs if each["log_level"] == "warning"] == ["runtimes"]
        assert world.facts.is_complete
        assert world.facts.of("team").nodes == {AMD64}
        world.api.allow()
        await world.after(RUNTIMES_EVERY + RUNTIMES_AFTER)
        assert world.facts.of("team").runtimes.crio == {AMD64}


async def test_pools_of_windows_at_zero_are_platforms_that_may_come() -> None:
    async with running(machine("a", "containerd://2"), kinds=(POOLS, MACHINES)) as world:
        assert world.facts.of("team").coming == frozenset()
        labels = {"capacity.cluster-autoscaler.kubernetes.io/labels": "kubernetes.io/os=windows"}
        world.api.put(POOLS, pool("w", WINDOWS, {"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"]}))
        world.api.put(MACHINES, {"metadata": {"name": "m", "annotations": labels}, "spec": {"replicas": 0}})
        await world.after(TEMPLATES_EVERY)
        assert world.facts.of("team").coming == {NodePlatform("windows", "amd64"), NodePlatform("windows", "")}
        world.api.put(POOLS, pool("w", WINDOWS, deletionTimestamp="2026-01-01T00:00:00Z"))
        world.api.remove(MACHINES, "m")
        await world.after(TEMPLATES_EVERY)
        assert world.facts.of("team").coming == frozenset()


async def test_a_cluster_without_such_kinds_is_asked_one_question_in_five_minutes() -> None:
    async with running(machine("a", "containerd://2")) as world:
        before = len(world.api.requests)
        for _ in range(10):
            await world.after(TEMPLATES_EVERY)
        assert [each[:2] for each in world.api.requests[before:]] == [("get", "/apis")] * 10


async def test_templates_that_may_not_be_read_are_named_once_and_keep_nobody_waiting() -> None:
    with capture_logs() as logs:
        async with running(machine("a", "containerd://2"), kinds=(POOLS,)) as world:
            world.api.refuse(POOLS, "list")
            for _ in range(3):
                await world.after(TEMPLATES_EVERY)
            assert world.facts.is_complete
    assert [each["what"] for each in logs if each["log_level"] == "warning"] == ["templates"]


async def test_a_policy_that_asks_for_no_nodes_costs_nothing() -> None:
    async with running(machine("a", "containerd://2"), kinds=(POOLS,), osConstraint="always") as world:
        await world.after(RUNTIMES_EVERY)
        assert world.api.requests == []
