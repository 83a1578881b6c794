"""``polyarch run numa-exporter --oneshot``: one topology, three attempts, and always an end."""

import asyncio
from pathlib import Path

import pytest
from fake_api import FakeApi
from manual_clock import ManualClock
from numa_host import NODE, NumaHost, available, published, register
from structlog.testing import capture_logs

from polyarch.kube.errors import Unavailable
from polyarch.numa.api.topology import TOPOLOGIES
from polyarch.numa.exporter.settings import ExporterSettings, PublishSettings
from polyarch.numa.facts import HostSettings
from polyarch.run.numa_exporter import once

LONG = 200.0
"""Seconds in which everything has ended: three attempts of 30, and the pauses between them."""


class ExporterOnceWorld:
    def __init__(self, root: Path, *, socket: str = "", **publish: bool) -> None:
        self.host, self.api, self.clock = NumaHost(root), FakeApi(), ManualClock()
        register(self.api, "one")
        self._settings = ExporterSettings(
            hostname=NODE,
            host=HostSettings(
                root=str(root), kubelet_config="file", podresources_socket=socket or f"fake://{root / 'answers'}"
            ),
            publish=PublishSettings(oneshot=True, **publish),
        )

    async def end(self, seconds: float = LONG, *, allowed_after: float = 0.0) -> tuple[int, list[int]]:
        """The exit code, and the numbers of the attempts that failed."""
        with capture_logs() as self.logged:
            task = asyncio.create_task(once(self._settings, self.api, clock=self.clock))
            if allowed_after:
                await self.clock.run(allowed_after)
                self.api.allow()
            await self.clock.run(seconds)
            assert task.done(), f"it has not ended after {seconds:g} s"
        failed = [each["attempt"] for each in self.logged if each["event"] == "scan or publish failed"]
        return task.result(), failed


@pytest.mark.req("NE-115")
async def test_one_scan_and_one_write_then_the_end(tmp_path: Path) -> None:
    world = ExporterOnceWorld(tmp_path)
    assert await world.end(0) == (0, [])
    assert available(published(world.api)) == [3, 4]
    assert world.api.verbs(TOPOLOGIES) == ["get", "create"]


@pytest.mark.req("NE-115")
async def test_a_kubelet_that_answers_nothing_is_asked_three_times(tmp_path: Path) -> None:
    world = ExporterOnceWorld(tmp_path)
    world.host.break_kubelet()
    assert await world.end() == (3, [1, 2, 3])
    assert world.api.verbs(TOPOLOGIES) == []


@pytest.mark.req("NE-115")
async def test_a_socket_that_never_comes_is_not_waited_for_without_end(tmp_path: Path) -> None:
    world = ExporterOnceWorld(tmp_path, socket=f"unix://{tmp_path}/kubelet.sock")
    assert await world.end() == (3, [1, 2, 3])


@pytest.mark.req("NE-115")
async def test_a_write_that_fails_is_tried_again_and_its_failures_count(tmp_path: Path) -> None:
    world = ExporterOnceWorld(tmp_path)
    world.api.refuse(TOPOLOGIES, "create", error=Unavailable(503))
    assert await world.end() == (3, [1, 2, 3])


@pytest.mark.req("NE-115")
async def test_what_works_at_last_is_a_success(tmp_path: Path) -> None:
    world = ExporterOnceWorld(tmp_path)
    world.api.refuse(TOPOLOGIES, "create", error=Unavailable(503))
    assert await world.end(allowed_after=1.0) == (0, [1])
    assert available(published(world.api)) == [3, 4]


@pytest.mark.req("NE-114")
@pytest.mark.parametrize("works", [True, False], ids=["works", "fails"])
async def test_without_publishing_it_scans_and_writes_nothing(tmp_path: Path, works: bool) -> None:
    """The intended object is logged, at debug level alone."""
    world = ExporterOnceWorld(tmp_path, no_publish=True)
    if not works:
        world.host.break_kubelet()
    assert await world.end() == ((0, []) if works else (3, [1, 2, 3]))
    assert world.api.verbs(TOPOLOGIES) == []
    told = [each for each in world.logged if "topology" in each]
    assert [(each["log_level"], available(each["topology"])) for each in told] == ([("debug", [3, 4])] if works else [])
