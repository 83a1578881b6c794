"""One scan: what it asks and reads, in which order, and when it reads again."""

from pathlib import Path

import pytest
from manual_clock import ManualClock
from numa_host import POLICY, SCOPE, NumaHost, available

from polyarch.numa import names
from polyarch.numa.exporter.scan import Scanner
from polyarch.numa.exporter.schedule import ScanTrigger
from polyarch.numa.exporter.settings import ExporterSettings
from polyarch.numa.facts import Allocatable, Container, HostSettings, ListedPod, PodPattern, ScanSettings
from polyarch.numa.host.podresources import PodResourcesError


class Kubelet:
    """Answers what a test sets, and remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.cpus = {"a": (5,), "b": (6,)}
        self.allocated = (1, 2, 3, 4, 5, 6, 7)

    async def list(self) -> list[ListedPod]:
        self.asked.append("list")
        return [ListedPod("default", name, (Container(name="app", cpus=held),)) for name, held in self.cpus.items()]

    async def allocatable(self) -> Allocatable:
        self.asked.append("allocatable")
        return Allocatable(cpus=self.allocated)


class Ended:
    def __init__(self, *pods: str) -> None:
        self._pods = pods

    def names(self) -> frozenset[tuple[str, str]]:
        return frozenset(("default", name) for name in self._pods)


class ScanWorld:
    def __init__(self, root: Path, *, ended: Ended | None = None, **settings: object) -> None:
        self.host, self.kubelet = NumaHost(root), Kubelet()
        host = HostSettings(root=str(root), kubelet_config="file")
        chosen = ExporterSettings(hostname="worker-1", host=host, scan=ScanSettings(**settings))
        self.clock = ManualClock()
        self.scanner = Scanner(chosen, self.kubelet, clock=self.clock, terminal=ended)

    async def scan(self, *reasons: str):
        return await self.scanner.scan(ScanTrigger("reactive", frozenset(reasons or ("timer",)), 0.0))

    async def available(self, *reasons: str) -> list[int]:
        return available((await self.scan(*reasons)).document)


@pytest.mark.req("NE-060")
async def test_the_kubelet_is_asked_first_for_its_pods(tmp_path):
    world = ScanWorld(tmp_path)
    scanned = await world.scan("start")
    assert world.kubelet.asked == ["list", "allocatable"]
    assert available(scanned.document) == [3, 2]
    told = {each["name"]: each["value"] for each in scanned.document["attributes"]}
    assert (told[names.POLICY], told[names.SCOPE]) == (POLICY, SCOPE)
    assert "ownerReferences" not in scanned.document["metadata"]


@pytest.mark.req("NE-060")
async def test_excluded_and_terminal_pods_count_nowhere(tmp_path):
    world = ScanWorld(tmp_path, ended=Ended("a"), pod_exclude=(PodPattern("*", "b"),))
    scanned = await world.scan("start")
    assert available(scanned.document) == [3, 4]
    assert (scanned.zones.counts.listed, scanned.zones.counts.excluded) == (2, 2)


@pytest.mark.req("NE-054")
@pytest.mark.parametrize("reason", ["allocatable", "devices", "socket", "node"])
async def test_what_may_change_the_allocatable_resources_asks_for_them_again(tmp_path, reason):
    world = ScanWorld(tmp_path)
    await world.scan("start")
    world.kubelet.allocated = (1, 2, 3)
    assert await world.available("timer", "cpu") == [3, 2]
    assert await world.available(reason) == [3, 0]


@pytest.mark.req("NE-037")
async def test_a_kubelet_that_restarted_makes_the_machine_be_read_again(tmp_path):
    """Distances change without a change of what is online, as when firmware is updated."""
    world = ScanWorld(tmp_path)

    async def costs(*reasons: str) -> list[int]:
        document = (await world.scan(*reasons)).document
        return [cost["value"] for cost in document["zones"][0]["costs"]]

    assert await costs("start") == [10, 21]
    (tmp_path / "sys/devices/system/node/node0/distance").write_text("10 32\n")
    assert await costs("timer") == [10, 21]
    assert await costs("socket") == [10, 32]


async def test_a_kubelet_that_does_not_answer_fails_the_scan_with_the_name_of_the_call(tmp_path):
    world = ScanWorld(tmp_path)

    async def refuse() -> list[ListedPod]:
        raise PodResourcesError("list", "refused")

    world.kubelet.list = refuse
    with pytest.raises(PodResourcesError, match="list: refused"):
        await world.scan("start")
