"""Where the image of the operands runs: as its registry says, and through an outage as it was decided before."""

from typing import Any

import pytest
from fake_api import FakeApi
from manual_clock import ManualClock

from polyarch.kube.errors import Forbidden
from polyarch.kube.resources import DEPLOYMENTS, Resource
from polyarch.names import BUILDER, PLACEMENT_WEBHOOK, TAINTS
from polyarch.numa.names import SCHEDULER
from polyarch.operator import operands
from polyarch.operator.cluster import MOST_READINGS, Discovery, ImageArchitectures
from polyarch.operator.settings import OperatorSettings
from polyarch.platforms import IMAGE_ARCHITECTURES

IMAGE = "registry.example/polyarch:1"


class Registry:
    """Answers with ``architectures``; None: nobody answers."""

    def __init__(self) -> None:
        self.architectures: tuple[str, ...] | None = None
        self.asked: list[str] = []

    async def read(self, image: str) -> tuple[str, ...] | None:
        self.asked.append(image)
        return self.architectures


def discovery(api: Any, registry: Registry, clock: ManualClock) -> Discovery:
    images = ImageArchitectures(registry.read, clock=clock)
    settings = OperatorSettings(namespace="home", image=IMAGE)
    return Discovery(api, lambda: None, settings=settings, images=images, clock=clock)


def deployment(name: str, architectures: tuple[str, ...], *, image: str = IMAGE) -> dict[str, Any]:
    terms = [{"matchExpressions": operands.runnable(architectures)}]
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}
    pod = {"containers": [{"name": "mesh"}, {"name": "role", "image": image}], "affinity": affinity}
    return {"metadata": {"name": name, "namespace": "home"}, "spec": {"template": {"spec": pod}}}


@pytest.mark.req("IN-035")
async def test_the_registry_says_where_operands_run() -> None:
    registry, clock = Registry(), ManualClock()
    registry.architectures = ("arm64", "s390x")
    found = discovery(FakeApi(), registry, clock)
    assert (await found.look()).image_architectures == ("arm64", "s390x")
    assert (await found.look()).image_architectures == ("arm64", "s390x")
    assert registry.asked == [IMAGE]


@pytest.mark.req("IN-035")
async def test_of_many_images_the_last_ones_are_remembered() -> None:
    registry, clock = Registry(), ManualClock()
    images = ImageArchitectures(registry.read, clock=clock)
    many = [f"{IMAGE}.{number}" for number in range(MOST_READINGS + 1)]
    for image in (*many, *many[1:], many[0]):
        await images.of(image)
    assert registry.asked == [*many, many[0]]


@pytest.mark.req("IN-035")
async def test_a_registry_that_is_away_rolls_nothing_out() -> None:
    """Neither while the operator runs nor as another one takes over, which has read nothing itself."""
    registry, clock = Registry(), ManualClock()
    registry.architectures = ("amd64",)
    found = discovery(FakeApi(), registry, clock)
    await found.look()
    registry.architectures = None
    clock.advance(3700)
    assert (await found.look()).image_architectures == ("amd64",)
    assert len(registry.asked) == 2
    clock.advance(59)
    await found.look()
    assert len(registry.asked) == 2
    registry.architectures = ("amd64", "arm64")
    clock.advance(2)
    assert (await found.look()).image_architectures == ("amd64", "arm64")

    registry.architectures = None
    for name in (PLACEMENT_WEBHOOK, TAINTS, BUILDER, SCHEDULER):
        api = FakeApi()
        api.put(DEPLOYMENTS, deployment(name, ("amd64",)))
        assert (await discovery(api, registry, clock).look()).image_architectures == ("amd64",)


@pytest.mark.req("IN-035")
async def test_the_scheduler_of_numa_is_asked_where_it_runs_and_only_where_there_is_numa() -> None:
    """It may be all that is installed, in a namespace of its own; without NUMA the operator has no right to it."""
    api, clock = FakeApi(), ManualClock()
    scheduler = deployment(SCHEDULER, ("amd64",))
    api.put(DEPLOYMENTS, scheduler | {"metadata": {"name": SCHEDULER, "namespace": "numa"}})
    images = ImageArchitectures(Registry().read, clock=clock)
    found = []
    for numa in ("auto", "off"):
        settings = OperatorSettings(namespace="home", numa_namespace="numa", numa=numa, image=IMAGE)
        looked = Discovery(api, lambda: None, settings=settings, images=images, clock=clock)
        found.append((await looked.look()).image_architectures)
    assert found == [("amd64",), IMAGE_ARCHITECTURES]


@pytest.mark.req("IN-035")
async def test_the_operator_starts_without_the_namespace_of_numa_and_without_a_registry() -> None:
    """The right to look there went with the namespace."""
    api, clock = FakeApi(), ManualClock()

    async def refused(verb: str, resource: Resource, name: str) -> None:
        if name == SCHEDULER:
            raise Forbidden(403, verb=verb, resource=str(resource))

    api.hook = refused
    assert (await discovery(api, Registry(), clock).look()).image_architectures == IMAGE_ARCHITECTURES


@pytest.mark.req("IN-035")
async def test_another_image_and_no_word_of_any_mean_the_released_architectures() -> None:
    registry, clock, api = Registry(), ManualClock(), FakeApi()
    assert (await discovery(api, registry, clock).look()).image_architectures == IMAGE_ARCHITECTURES
    api.put(DEPLOYMENTS, deployment(TAINTS, ("amd64",), image="registry.example/polyarch:0"))
    unlimited = deployment(BUILDER, ())
    del unlimited["spec"]["template"]["spec"]["affinity"]
    api.put(DEPLOYMENTS, unlimited)
    assert (await discovery(api, registry, clock).look()).image_architectures == IMAGE_ARCHITECTURES
