"""A global pull secret that is deleted or replaced opens no image to any pod any more."""

from typing import Any

import msgspec
import pytest
from controller_world import ControllerWorld
from placement_world import policy

from polyarch.oci.auth.credentials import Document

PRIVATE = "registry.example/private:1"
LOST = "registry.example/lost:1"
SECRET = Document(
    origin="the global secret",
    body=msgspec.json.encode({"auths": {"registry.example": {"username": "user", "password": "s3cr3t"}}}),
)


@pytest.fixture
async def shared(world: ControllerWorld) -> ControllerWorld:
    open_to_all(world)
    return world


def open_to_all(world: ControllerWorld) -> None:
    """The global pull secret opens one image; another one of the same host nobody can have."""
    world.registry.needs_credentials.add(world.registry.set(PRIVATE, "linux/arm64"))
    world.registry.set(LOST, error="network")
    world.secrets.set_global([SECRET])


def revoke(world: ControllerWorld) -> None:
    world.secrets.set_global([])
    world.controller.credentials_changed()


def slowly(world: ControllerWorld, seconds: float) -> None:
    inspect = world.registry.inspect

    async def later(*arguments: Any, **options: Any) -> Any:
        answer = await inspect(*arguments, **options)
        await world.clock.sleep(seconds)
        return answer

    world.registry.inspect = later  # type: ignore[method-assign]


@pytest.mark.req("PL-423", "PL-852")
async def test_what_the_secret_opened_is_told_to_nobody_once_it_is_gone(shared):
    """A pod that waits for another image keeps a look-up open, and others share it."""
    first = await shared.create(PRIVATE, LOST, name="first")
    await shared.run(3)
    revoke(shared)
    second = await shared.create(PRIVATE, name="second")
    await shared.run(60)
    assert not shared.cluster.is_gated(second)
    assert shared.cluster.architectures(second) is None, "it may not pull the image"
    assert shared.cluster.architectures(first) is None


@pytest.mark.req("PL-423")
async def test_an_attempt_under_way_does_not_count_if_its_secret_is_gone(shared):
    """The registry answered before the secret was deleted, and we hear of it after that."""
    slowly(shared, 2.0)
    key = await shared.create(PRIVATE)
    await shared.run(1)
    revoke(shared)
    await shared.run(60)
    assert not shared.cluster.is_gated(key)
    assert shared.cluster.architectures(key) is None
    assert shared.registry.count(PRIVATE) > 1


@pytest.mark.req("PL-407", "PL-423", "RG-111")
async def test_a_reading_of_before_does_not_stand_in_for_a_failing_registry(worlds):
    """It stands in while a registry fails, for hours, but not without the secret that opened it."""
    world = worlds(policy={"onUnresolved": {"action": "hold"}})
    open_to_all(world)
    await world.create(PRIVATE, LOST, name="first")
    await world.run(700)
    world.registry.set(PRIVATE, error="network")
    key = await world.create(PRIVATE, LOST, name="second")
    await world.run(3)
    assert world.registry.count(PRIVATE) > 1
    world.registry.kept.clear()  # its proofs are dropped
    world.registry.seconds = 3600.0  # and what we heard last is all that we hear
    revoke(world)
    world.configure("placementpolicies", policy(onUnresolved={"action": "release"}))
    await world.run(130)
    assert not world.cluster.is_gated(key)
    assert world.cluster.architectures(key) is None


@pytest.mark.req("PL-423", "PL-800")
async def test_what_is_public_is_not_asked_for_again(shared):
    """It was opened by nobody's secret."""
    shared.registry.set("registry.example/public:1", "linux/amd64")
    key = await shared.create("registry.example/public:1", LOST)
    await shared.run(3)
    revoke(shared)
    await shared.run(200)
    assert shared.registry.count("registry.example/public:1") == 1
    assert shared.cluster.architectures(key) == ["amd64"]


@pytest.mark.req("PL-333", "PL-423")
async def test_a_secret_that_is_replaced_opens_its_images_again_within_two_seconds(shared):
    """The pod is placed as soon as its other image is known."""
    key = await shared.create(PRIVATE, LOST)
    await shared.run(20)
    shared.secrets.set_global([msgspec.structs.replace(SECRET, origin="the new one")])
    shared.controller.credentials_changed()
    await shared.run(2)
    assert shared.registry.count(PRIVATE) == 2
    shared.registry.set(LOST, "linux/arm64", "linux/amd64")
    await shared.run(30)
    assert shared.cluster.architectures(key) == ["arm64"]
