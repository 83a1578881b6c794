"""Pods on nodes: whether, when and how fast they get tolerations."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from fake_pods import FakePods
from leader_world import KEY, FakeFacts, is_watched, settings_of
from manual_clock import ManualClock
from placement_world import FakeInspector, FakeSecrets, pod, refused_by_validation

from polyarch.images.metrics import LookupMetrics
from polyarch.images.pull_secrets import PullSecrets
from polyarch.images.resolver import LowPriorityLookups
from polyarch.kube.errors import Unavailable
from polyarch.kube.metrics import Metrics
from polyarch.kube.resources import PODS
from polyarch.objects import ObjectKey
from polyarch.taints.bound_pods import BoundPods
from polyarch.taints.metrics import TaintMetrics

APP = "quay.io/team/app:1"
NOWHERE = {"taint": {"preset": "custom", "key": "example.com/arch"}}


class BoundPodsWorld:
    """The leader's look at pods on nodes."""

    def __init__(self, **spec: Any) -> None:
        self.clock = ManualClock(start=0)
        self.facts = FakeFacts(**spec)
        self.cluster = FakePods(shows=is_watched)
        self.api = self.cluster.api
        self.registry = FakeInspector(self.clock)
        self.registry.set(APP, "linux/amd64", "linux/arm64")
        self.secrets = PullSecrets(FakeSecrets(), self.clock)
        metrics = Metrics()
        self.bound = BoundPods(
            self.api,
            facts=self.facts,
            images=LowPriorityLookups(self.registry, self.secrets, self.clock, LookupMetrics(metrics)),
            clock=self.clock,
            metrics=TaintMetrics(metrics),
        )
        self._task: asyncio.Task[None] | None = None

    def add(self, count: int, image: str = APP, prefix: str = "app", **spec: Any) -> list[ObjectKey]:
        documents = [pod(image, name=f"{prefix}-{number}", nodeName="worker", **spec) for number in range(count)]
        return [self.cluster.create(document) for document in documents]

    @property
    def pages(self) -> int:
        """How many were listed."""
        return len([verb for verb, _, _ in self.api.requests if verb == "list"])

    async def lead(self) -> None:
        self._task = asyncio.create_task(self.bound.run())
        await self.clock.run(0)

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self.secrets.aclose()


@pytest.fixture
async def world_of() -> AsyncIterator[Callable[..., BoundPodsWorld]]:
    worlds: list[BoundPodsWorld] = []

    def make(**spec: Any) -> BoundPodsWorld:
        worlds.append(BoundPodsWorld(**spec))
        return worlds[-1]

    yield make
    for world in worlds:
        await world.close()


@pytest.mark.req("TN-044")
async def test_twenty_pods_a_second_at_most(world_of):
    world = world_of()
    keys = world.add(100)
    await world.lead()
    await world.clock.run(2)
    assert 30 <= len(world.api.patches) <= 42
    assert not world.bound.is_done
    await world.clock.run(4)
    assert {tuple(world.cluster.tolerated(key)) for key in keys} == {("arm64",)}
    assert world.bound.is_done
    assert len(world.api.patches) == 100
    assert world.registry.count(APP) == 1


@pytest.mark.req("TN-044")
async def test_pods_that_lack_nothing_cost_no_time_and_no_request(world_of):
    world = world_of()
    world.add(1200, tolerations=[{"operator": "Exists"}])
    await world.lead()
    await world.clock.run(1)
    assert world.bound.is_done
    assert (world.api.patches, world.pages) == ([], 3)


@pytest.mark.req("TN-044")
@pytest.mark.parametrize(
    ("spec", "looks"),
    [
        pytest.param({}, True, id="archaware: as it does"),
        pytest.param({"taint": {"preset": "gke"}}, False, id="another preset: they are left alone"),
        pytest.param({"taint": {"preset": "gke"}, "pods": {"running": "tolerate"}}, True, id="said so"),
        pytest.param({"pods": {"running": "skip"}}, False, id="said not to"),
        pytest.param(
            {"pods": {"running": "skip"}, "taint": {"effect": "NoExecute", "acknowledgeEviction": True}},
            True,
            id="NoExecute would evict them",
        ),
        pytest.param({"state": "paused"}, False, id="paused"),
    ],
)
async def test_pods_on_nodes_are_looked_at_if_the_policy_says_so(world_of, spec, looks):
    world = world_of(**spec)
    world.add(1)
    await world.lead()
    await world.clock.run(600)
    assert bool(world.pages) == looks
    assert world.bound.is_done, "or nothing is to be done"


@pytest.mark.req("TN-044")
async def test_once_and_again_when_other_tolerations_are_wanted(world_of):
    world = world_of()
    (key,) = world.add(1)
    await world.lead()
    await world.clock.run(3600)
    assert world.pages == 1
    world.facts.configure(**NOWHERE, pods={"running": "tolerate"})
    await world.clock.run(1)
    assert world.pages == 2
    assert [each["key"] for each in world.cluster.tolerations(key)] == [KEY, "example.com/arch"]


@pytest.mark.req("TN-044")
async def test_what_could_not_be_done_is_tried_again(world_of):
    """An image that nobody knows yet, a refused write, and an API server that is away."""
    world = world_of()
    world.registry.set("quay.io/team/later:1", error="network")
    (key,) = world.add(1, "quay.io/team/later:1")
    world.api.refuse(PODS, "list", error=Unavailable(503, reason="ServiceUnavailable"))
    await world.lead()
    world.api.allow()
    await world.clock.run(301)
    assert world.pages == 2, "the first was refused"
    assert world.cluster.tolerated(key) == []
    assert not world.bound.is_done
    world.registry.set("quay.io/team/later:1", "linux/arm64")
    world.cluster.refuse(refused_by_validation())
    await world.clock.run(301)
    assert not world.bound.is_done
    world.api.allow()
    await world.clock.run(301)
    assert world.cluster.tolerated(key) == ["arm64"]
    assert world.bound.is_done


@pytest.mark.req("TN-044")
async def test_a_round_ends_when_the_configuration_changes(world_of):
    world = world_of()
    world.add(200)
    await world.lead()
    await world.clock.run(1)
    world.facts.become(settings_of(state="paused"))
    await world.clock.run(60)
    assert len(world.api.patches) <= 22
