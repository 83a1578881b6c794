"""``polyarch run numa-exporter --oneshot``: one topology, three attempts, and always an end."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from exporter_world import ExporterWorld
from numa_host import available, published, register
from structlog.testing import capture_logs

from polyarch.kube.errors import Unavailable
from polyarch.numa.api.topology import TOPOLOGIES
from polyarch.numa.exporter.settings import PublishSettings
from polyarch.run.numa_exporter import once

LONG = 200.0
"""Seconds in which everything has ended: three attempts of 30, and the pauses between them."""


def once_world(root: Path, *, no_publish: bool = False, **host: str) -> ExporterWorld:
    world = ExporterWorld(root, host=host, publish=PublishSettings(oneshot=True, no_publish=no_publish))
    register(world.api, "one")
    return world


@pytest.fixture
def world(tmp_path: Path) -> ExporterWorld:
    return once_world(tmp_path)


@pytest.fixture
def logged() -> Iterator[list[Any]]:
    with capture_logs() as logged:
        yield logged


async def end(
    world: ExporterWorld, logged: list[Any], seconds: float = LONG, *, allowed_after: float = 0.0
) -> tuple[int, list[int]]:
    """The exit code, and the numbers of the attempts that failed."""
    task = asyncio.create_task(once(world.settings, world.api, clock=world.clock))
    if allowed_after:
        await world.clock.run(allowed_after)
        world.api.allow()
    await world.clock.run(seconds)
    assert task.done(), f"it has not ended after {seconds:g} s"
    return task.result(), [each["attempt"] for each in logged if each["event"] == "scan or publish failed"]


@pytest.mark.req("NE-115")
async def test_one_scan_and_one_write_then_the_end(world: ExporterWorld, logged: list[Any]) -> None:
    assert await end(world, logged, 0) == (0, [])
    assert available(published(world.api)) == [3, 4]
    assert world.api.verbs(TOPOLOGIES) == ["get", "create"]


@pytest.mark.req("NE-115")
async def test_a_kubelet_that_answers_nothing_is_asked_three_times(world: ExporterWorld, logged: list[Any]) -> None:
    world.host.break_kubelet()
    assert await end(world, logged) == (3, [1, 2, 3])
    assert world.api.verbs(TOPOLOGIES) == []


@pytest.mark.req("NE-115")
async def test_a_socket_that_never_comes_is_not_waited_for_without_end(tmp_path: Path, logged: list[Any]) -> None:
    world = once_world(tmp_path, podresources_socket=f"unix://{tmp_path}/kubelet.sock")
    assert await end(world, logged) == (3, [1, 2, 3])


@pytest.mark.req("NE-115")
async def test_a_write_that_fails_is_tried_again_and_its_failures_count(
    world: ExporterWorld, logged: list[Any]
) -> None:
    world.api.refuse(TOPOLOGIES, "create", error=Unavailable(503))
    assert await end(world, logged) == (3, [1, 2, 3])


@pytest.mark.req("NE-115")
async def test_what_works_at_last_is_a_success(world: ExporterWorld, logged: list[Any]) -> None:
    world.api.refuse(TOPOLOGIES, "create", error=Unavailable(503))
    assert await end(world, logged, allowed_after=1.0) == (0, [1])
    assert available(published(world.api)) == [3, 4]


@pytest.mark.req("NE-114")
@pytest.mark.parametrize("works", [True, False], ids=["works", "fails"])
async def test_without_publishing_it_scans_and_writes_nothing(tmp_path: Path, logged: list[Any], works: bool) -> None:
    """The intended object is logged, at debug level alone."""
    world = once_world(tmp_path, no_publish=True)
    if not works:
        world.host.break_kubelet()
    assert await end(world, logged) == ((0, []) if works else (3, [1, 2, 3]))
    assert world.api.verbs(TOPOLOGIES) == []
    told = [each for each in logged if "topology" in each]
    assert [(each["log_level"], available(each["topology"])) for each in told] == ([("debug", [3, 4])] if works else [])
