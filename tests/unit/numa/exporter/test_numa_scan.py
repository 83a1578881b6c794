"""One scan: what it asks and reads, in which order, and when it reads again."""

import pytest
from exporter_world import ExporterWorld
from numa_host import POLICY, SCOPE, available

from polyarch.numa import names
from polyarch.numa.facts import Allocatable, PodPattern, ScanSettings
from polyarch.numa.host.podresources import PodResourcesError


@pytest.fixture
def world(tmp_path):
    return ExporterWorld(tmp_path)


@pytest.mark.req("NE-060")
async def test_the_kubelet_is_asked_first_for_its_pods(world):
    scanned = await world.scan("start")
    assert world.kubelet.asked == ["list", "allocatable"]
    assert available(scanned.document) == [3, 2]
    told = {each["name"]: each["value"] for each in scanned.document["attributes"]}
    assert (told[names.POLICY], told[names.SCOPE]) == (POLICY, SCOPE)
    assert "ownerReferences" not in scanned.document["metadata"]


@pytest.mark.req("NE-060")
async def test_excluded_and_terminal_pods_count_nowhere(tmp_path):
    world = ExporterWorld(tmp_path, terminal={"a"}, scan=ScanSettings(pod_exclude=(PodPattern("*", "b"),)))
    scanned = await world.scan("start")
    assert available(scanned.document) == [3, 4]
    assert (scanned.zones.counts.listed, scanned.zones.counts.excluded) == (2, 2)


@pytest.mark.req("NE-054")
@pytest.mark.parametrize("reason", ["allocatable", "devices", "socket", "node"])
async def test_what_may_change_the_allocatable_resources_asks_for_them_again(world, reason):
    await world.scan("start")
    world.kubelet.answer = Allocatable(cpus=(1, 2, 3))
    assert available((await world.scan("timer", "cpu")).document) == [3, 2]
    assert available((await world.scan(reason)).document) == [3, 0]


@pytest.mark.req("NE-037")
async def test_a_kubelet_that_restarted_makes_the_machine_be_read_again(world, tmp_path):
    """Distances change without a change of what is online, as when firmware is updated."""

    async def costs(*reasons: str) -> list[int]:
        document = (await world.scan(*reasons)).document
        return [cost["value"] for cost in document["zones"][0]["costs"]]

    assert await costs("start") == [10, 21]
    (tmp_path / "sys/devices/system/node/node0/distance").write_text("10 32\n")
    assert await costs("timer") == [10, 21]
    assert await costs("socket") == [10, 32]


async def test_a_kubelet_that_does_not_answer_fails_the_scan_with_the_name_of_the_call(world):
    world.kubelet.problem = PodResourcesError("list", "refused")
    with pytest.raises(PodResourcesError, match="list: refused"):
        await world.scan("start")
