"""Pods on nodes: whether, when and how fast they get tolerations."""

from collections.abc import Callable
from typing import Any

import pytest
from placement_world import pod, refused_by_validation
from tainted_pods_world import KEY, TaintedPodsWorld, settings_of

from polyarch.kube.errors import Unavailable
from polyarch.kube.resources import PODS
from polyarch.objects import ObjectKey

APP = "quay.io/team/app:1"
NOWHERE = {"taint": {"preset": "custom", "key": "example.com/arch"}}


@pytest.fixture
def world_of(world_of: Callable[..., TaintedPodsWorld]) -> Callable[..., TaintedPodsWorld]:
    def make(**options: Any) -> TaintedPodsWorld:
        world = world_of(**options)
        world.registry.set(APP, "linux/amd64", "linux/arm64")
        return world

    return make


def add(world: TaintedPodsWorld, count: int, image: str = APP, prefix: str = "app", **spec: Any) -> list[ObjectKey]:
    documents = [pod(image, name=f"{prefix}-{number}", nodeName="worker", **spec) for number in range(count)]
    return [world.cluster.create(document) for document in documents]


def pages(world: TaintedPodsWorld) -> int:
    """How many were listed."""
    return len([verb for verb, _, _ in world.api.requests if verb == "list"])


@pytest.mark.req("TN-044")
async def test_twenty_pods_a_second_at_most(world_of):
    world = world_of()
    keys = add(world, 100)
    await world.look_at_bound_pods()
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
    add(world, 1200, tolerations=[{"operator": "Exists"}])
    await world.look_at_bound_pods()
    await world.clock.run(1)
    assert world.bound.is_done
    assert (world.api.patches, pages(world)) == ([], 3)


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
    add(world, 1)
    await world.look_at_bound_pods()
    await world.clock.run(600)
    assert bool(pages(world)) == looks
    assert world.bound.is_done, "or nothing is to be done"


@pytest.mark.req("TN-044")
async def test_once_and_again_when_other_tolerations_are_wanted(world_of):
    world = world_of()
    (key,) = add(world, 1)
    await world.look_at_bound_pods()
    await world.clock.run(3600)
    assert pages(world) == 1
    world.facts.configure(**NOWHERE, pods={"running": "tolerate"})
    await world.clock.run(1)
    assert pages(world) == 2
    assert [each["key"] for each in world.cluster.tolerations(key)] == [KEY, "example.com/arch"]


@pytest.mark.req("TN-044")
async def test_what_could_not_be_done_is_tried_again(world_of):
    """An image that nobody knows yet, a refused write, and an API server that is away."""
    world = world_of()
    world.registry.set("quay.io/team/later:1", error="network")
    (key,) = add(world, 1, "quay.io/team/later:1")
    world.api.refuse(PODS, "list", error=Unavailable(503, reason="ServiceUnavailable"))
    await world.look_at_bound_pods()
    world.api.allow()
    await world.clock.run(301)
    assert pages(world) == 2, "the first was refused"
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
    add(world, 200)
    await world.look_at_bound_pods()
    await world.clock.run(1)
    world.facts.become(settings_of(state="paused"))
    await world.clock.run(60)
    assert len(world.api.patches) <= 22
