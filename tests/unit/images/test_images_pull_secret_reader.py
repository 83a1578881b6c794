"""Pull secrets of gated pods are read while no pass waits for them, and by namespaces in turn."""

import asyncio

import pytest
from placement_world import pod

from polyarch.images.pull_secrets import SOURCES_AT_ONCE
from polyarch.kube.errors import ConnectionFailed


def flood(world, namespace: str, pods: int, secrets: int) -> list:
    """Gated pods that name secrets of their own."""
    return [
        world.cluster.create(
            pod(
                "private.example/app:1",
                name=f"app-{number}",
                namespace=namespace,
                secrets=[f"s-{number}-{at}" for at in range(secrets)],
                gated=True,
            )
        )
        for number in range(pods)
    ]


@pytest.mark.req("PL-302", "PL-851")
async def test_a_slow_api_server_holds_no_worker(world):
    """Before, 32 pods of one namespace whose secrets were read stopped all others."""
    world.registry.know("public.example/app:1", "linux/arm64")
    world.reader.wait = asyncio.Event()
    flood(world, "greedy", 200, 32)
    await world.run(1)
    other = await world.create("public.example/app:1", namespace="modest")
    assert not world.cluster.is_gated(other)


@pytest.mark.req("PL-851")
async def test_the_secrets_of_one_namespace_delay_those_of_another_by_a_request_at_most(world):
    """Each pod of the flood has secrets of its own, and each takes a request."""
    image = world.registry.set("private.example/app:1", "linux/arm64")
    world.registry.needs_credentials.add(image)
    world.reader.wait = asyncio.Event()
    flood(world, "greedy", 100, 3)
    await world.run()
    world.reader.put("modest", "pull", host="private.example")
    modest = await world.create("private.example/app:1", namespace="modest", secrets=["pull"])
    await world.run(1)
    world.reader.wait.set()
    await world.run()
    assert list(world.reader.gets).index(("modest", "pull")) <= SOURCES_AT_ONCE + 1
    await world.run(1)
    assert world.cluster.architectures(modest) == ["arm64"]


@pytest.mark.req("PL-421")
async def test_pods_of_the_same_secrets_are_all_looked_at_again(world):
    """And one request serves them."""
    image = world.registry.set("private.example/app:1", "linux/arm64")
    world.registry.needs_credentials.add(image)
    world.reader.put("team", "pull", host="private.example")
    pods = [await world.create("private.example/app:1", name=f"app-{at}", secrets=["pull"]) for at in range(20)]
    await world.run(1)
    assert not any(map(world.cluster.is_gated, pods))
    assert world.reader.gets["team", "pull"] == 1


@pytest.mark.req("PL-302")
async def test_a_pod_that_goes_while_its_secrets_are_read_leaves_nothing(world):
    world.reader.wait = asyncio.Event()
    key = await world.create("private.example/app:1", secrets=["pull"])
    world.cluster.delete(key)
    world.reader.wait.set()
    await world.run(1)
    assert len(world.reads) == 0
    assert len(world.waiting) == 0


@pytest.mark.req("PL-330", "PL-422")
async def test_a_secret_that_cannot_be_read_is_a_failure_with_an_end(world):
    """Not a pod that waits for ever."""
    image = world.registry.set("private.example/app:1", "linux/arm64")
    world.registry.needs_credentials.add(image)
    world.reader.content["team", "pull"] = ConnectionFailed("reset", verb="get", resource="secrets")
    key = await world.create("private.example/app:1", secrets=["pull"])
    await world.run(60)
    assert not world.cluster.is_gated(key)


@pytest.mark.req("PL-306")
@pytest.mark.parametrize("pods", [1, 40])
async def test_a_bug_met_while_secrets_are_read_counts_as_one_of_their_pods(world, pods):
    """Bounded by the window like any other, and without a busy loop."""
    world.reader.content.update({("team", f"s-{at}-0"): RuntimeError("bug") for at in range(pods)})
    keys = flood(world, "team", pods, 1)
    await world.run(100)
    assert all(map(world.cluster.is_gated, keys))
    assert world.reader.gets.total() < 30 * pods
    await world.run(60)
    assert not any(map(world.cluster.is_gated, keys))


@pytest.mark.req("PL-810", "PL-854")
async def test_secrets_too_large_to_be_remembered_are_not_read_without_a_pause(world):
    """Thirty-two secrets of a megabyte are more than is kept."""
    image = world.registry.set("private.example/app:1", "linux/arm64")
    world.registry.needs_credentials.add(image)
    names = [f"s{at}" for at in range(32)]
    for at, name in enumerate(names):
        world.reader.put("team", name, host="other.example", password=f"{at:02}" * 500_000)
    key = await world.create("private.example/app:1", secrets=names)
    await world.run(60)
    assert not world.cluster.is_gated(key), "it is given up as one whose image cannot be had"
    assert world.reader.gets.total() < 32 * 20
