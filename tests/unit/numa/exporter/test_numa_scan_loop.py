"""The loop of scans: triggers in, results out, and what a failed scan leads to."""

import asyncio
import itertools
import json

import pytest
from exporter_world import ExporterWorld, ScriptedKubelet
from manual_clock import ManualClock
from numa_facts import facts, pod
from numa_host import NODE
from prometheus_client import CollectorRegistry

from polyarch.kube.metrics import Metrics
from polyarch.numa import names
from polyarch.numa.exporter.scan import ALLOCATABLE_LIFETIME, AllocatableCache
from polyarch.numa.exporter.server import ExporterMetrics
from polyarch.numa.exporter.settings import TriggerSettings
from polyarch.numa.exporter.zones import node_zones
from polyarch.numa.facts import Allocatable, ScanSettings
from polyarch.numa.host.kubelet import NoKubeletSettings
from polyarch.numa.host.machine import UnreadableMachine
from polyarch.numa.host.podresources import PodResourcesError

EVERY_MINUTE = TriggerSettings(allocatable_interval=0)
KUBELET_DOWN = PodResourcesError("list", "no answer within 10 s")


def running(triggers=EVERY_MINUTE, **options):
    return ExporterWorld(triggers=triggers).scanning(**options)


def told(world):
    return [(each.type, each.status, each.reason, each.message) for each in world.conditions]


async def test_the_first_scan_is_at_once_and_its_result_is_offered_with_its_trigger():
    async with running() as world:
        await world.clock.run(0)
        world.triggers.poke("signal")
        await world.clock.run(2)
        assert [each.trigger for each in world.offers] == ["periodic", "reactive"]
        assert world.offers[0].document == {"kind": "made by the test"}


@pytest.mark.req("NE-120")
async def test_a_scan_that_fails_sets_the_condition_and_offers_nothing():
    async with running() as world:
        world.scanner.problem = KUBELET_DOWN
        await world.clock.run(61)
        assert len(world.offers) == 1
        assert told(world)[-1] == (names.PODRESOURCES_FETCHED, "False", "ScanFailed", str(KUBELET_DOWN))
        world.scanner.problem = None
        await world.clock.run(61)
        assert told(world)[-1][:2] == (names.PODRESOURCES_FETCHED, "True")
        assert len(world.offers) > 1


async def test_a_failed_scan_is_made_again_after_1_to_30_seconds():
    async with running(TriggerSettings(sleep_interval=0, allocatable_interval=0)) as world:
        times = []
        world.scanner.problem = UnreadableMachine("node1/cpulist: Input/output error")
        scan = world.scanner.scan

        async def timed(wake):
            times.append(world.clock.monotonic())
            return await scan(wake)

        world.scanner.scan = timed
        world.triggers.poke("signal")
        await world.clock.run(200)
        pauses = [later - earlier for earlier, later in itertools.pairwise(times)]
        assert pauses[:5] == [1, 2, 4, 8, 15]
        assert max(pauses) <= 30
        made = len(times)
        world.triggers.poke("socket")
        await world.clock.run(1)
        assert len(times) == made + 1, "a kubelet that is back is asked at once"


@pytest.mark.req("NE-103")
async def test_a_kubelets_settings_that_were_never_known_end_the_process():
    world = ExporterWorld()
    loop = world.scan_loop()
    world.scanner.problem = NoKubeletSettings("the kubelet's settings are not known")
    with pytest.raises(NoKubeletSettings):
        await loop.run()


@pytest.mark.req("NE-103")
async def test_settings_that_are_lost_later_set_a_condition_until_they_are_back():
    async with running() as world:
        assert not [each for each in told(world) if each[0] == names.SETTINGS_STALE]
        for stale in ("configz: 401", ""):
            world.scanner.stale = stale
            await world.clock.run(61)
        stale = [each[1:] for each in told(world) if each[0] == names.SETTINGS_STALE]
        assert stale == [("True", "NoSource", "configz: 401"), ("False", "Read", "the kubelet's settings are known")]


async def test_an_error_that_nobody_foresaw_is_a_failed_scan_and_the_loop_goes_on():
    async with running() as world:
        world.scanner.problem = ZeroDivisionError("in a rule")
        await world.clock.run(61)
        assert "ZeroDivisionError" in told(world)[-1][3]
        world.scanner.problem = None
        await world.clock.run(61)
        assert told(world)[-1][1] == "True"


# -- health ------------------------------------------------------------------------------------------------------------


@pytest.mark.req("NE-121")
async def test_a_scan_that_hangs_is_seen_after_three_periods_and_a_minute():
    async with running() as world:
        world.scanner.hangs = asyncio.Event()
        await world.clock.run(60 + 3 * 60 + 59)
        assert world.loop.stalled() is None
        await world.clock.run(2)
        assert "has not gone round" in world.loop.stalled()


@pytest.mark.req("NE-121")
@pytest.mark.parametrize("interval", [0.0, 10.0], ids=["no timer", "a timer"])
async def test_a_loop_with_nothing_to_do_lives(interval):
    async with running(TriggerSettings(sleep_interval=interval, allocatable_interval=0)) as world:
        await world.clock.run(600)
        assert world.loop.stalled() is None


@pytest.mark.req("NE-052")
async def test_waiting_for_the_kubelet_has_no_limit_and_is_no_stall():
    there = asyncio.Event()

    async def ready():
        await there.wait()

    async with running(ready=ready) as world:
        await world.clock.run(600)
        assert (world.loop.stalled(), world.scanner.wakes) == (None, [])
        there.set()
        await world.clock.run(1)
        assert len(world.scanner.wakes) == 1


# -- what is told ------------------------------------------------------------------------------------------------------


@pytest.mark.req("NE-085")
async def test_the_status_file_tells_the_pods_of_the_fingerprint_and_is_replaced_whole(tmp_path):
    path = tmp_path / "status.json"
    async with running(status_file=path) as world:
        world.scanner.pods = (pod("b", cpus=[2]), pod("a", cpus=[1]))
        await world.clock.run(61)
        told = json.loads(path.read_text())
        assert told["pods"] == [{"Namespace": "default", "Name": "a"}, {"Namespace": "default", "Name": "b"}]
        assert (told["nodeName"], told["fingerprintExpected"]) == (NODE, "pfp0v001before")
        assert told["fingerprintComputed"].startswith("pfp0v001")
        assert list(tmp_path.iterdir()) == [path]


@pytest.mark.req("NE-085")
async def test_a_status_file_that_cannot_be_written_does_not_fail_a_scan(tmp_path):
    async with running(status_file=tmp_path / "missing" / "status.json") as world:
        await world.clock.run(61)
        assert len(world.offers) == 2


@pytest.mark.req("NE-125")
async def test_delays_have_the_true_trigger():
    """Metrics that dashboards know."""
    async with running() as world:
        world.scanner.hangs = asyncio.Event()
        world.triggers.poke("signal")
        await world.clock.run(5)
        world.scanner.hangs.set()
        await world.clock.run(0)
        delay = "rte_operation_delay_milliseconds"
        labels = {"node": NODE, "operation_name": "podresources_scan"}
        assert world.value(delay, **labels, trigger="periodic") == 0
        assert world.value(delay, **labels, trigger="reactive") == pytest.approx(4000)
        assert world.value("rte_wakeup_delay_milliseconds", node=NODE, trigger="reactive") == pytest.approx(1000)


@pytest.mark.req("NE-126")
async def test_scans_zones_and_pods_are_counted():
    """Metrics of zones and scans."""
    async with running() as world:
        world.scanner.pods = (pod("a", cpus=[5]), pod("b"))
        await world.clock.run(61)
        world.scanner.problem = KUBELET_DOWN
        await world.clock.run(59.5)
        assert world.value("polyarch_numa_scans_total", trigger="periodic", result="success") == 2
        assert world.value("polyarch_numa_scans_total", trigger="periodic", result="failure") == 1
        assert world.value("polyarch_numa_scan_seconds_count") == 3
        zone = {"node": NODE, "zone": "node-1", "resource": "cpu"}
        told = [world.value(f"polyarch_numa_zone_{name}", **zone) for name in ("capacity", "allocatable", "available")]
        assert told == [4, 4, 3]
        assert [world.value("polyarch_numa_pods", kind=kind) for kind in ("listed", "exclusive", "excluded")] == [
            2,
            1,
            0,
        ]


@pytest.mark.req("NE-126")
def test_series_of_resources_that_vanished_disappear():
    registry = CollectorRegistry(auto_describe=False)
    metrics = ExporterMetrics(Metrics(registry), NODE)
    metrics.show(node_zones(facts(), ScanSettings(), NODE))
    nic = {"node": NODE, "zone": "node-0", "resource": "vendor.example/nic"}
    assert registry.get_sample_value("polyarch_numa_zone_available", nic) == 2
    without = Allocatable(cpus=(1, 2, 3, 4, 5, 6, 7))
    metrics.show(node_zones(facts(allocatable=without), ScanSettings(), NODE))
    assert registry.get_sample_value("polyarch_numa_zone_available", nic) is None
    assert registry.get_sample_value("polyarch_numa_zone_available", nic | {"resource": "cpu"}) == 3


# -- allocatable -------------------------------------------------------------------------------------------------------


@pytest.mark.req("NE-054")
async def test_allocatable_is_asked_for_when_something_tells_that_it_may_have_changed():
    kubelet = ScriptedKubelet()
    known = AllocatableCache(kubelet, clock=ManualClock())
    first = await known.current(refresh=False)
    kubelet.answer = Allocatable(cpus=(1, 2))
    assert await known.current(refresh=False) is first
    assert await known.current(refresh=True) is kubelet.answer
    assert len(kubelet.asked) == 2


@pytest.mark.req("NE-055")
async def test_the_last_answer_is_good_for_ten_minutes_and_the_next_is_asked_for_with_every_scan():
    """A known answer is good for ten minutes."""
    kubelet, clock = ScriptedKubelet(), ManualClock()
    known = AllocatableCache(kubelet, clock=clock)
    answer = await known.current(refresh=True)
    kubelet.problem = PodResourcesError("get_allocatable_resources", "refused")
    clock.advance(ALLOCATABLE_LIFETIME - 1)
    assert await known.current(refresh=True) is answer
    assert await known.current(refresh=False) is answer
    assert len(kubelet.asked) == 3, "an answer that is owed is asked for again"
    clock.advance(2)
    with pytest.raises(PodResourcesError):
        await known.current(refresh=False)
    kubelet.problem = None
    assert await known.current(refresh=False) == answer


@pytest.mark.req("NE-055")
async def test_an_answer_that_was_never_known_fails_the_scan():
    kubelet = ScriptedKubelet()
    kubelet.problem = PodResourcesError("get_allocatable_resources", "refused")
    with pytest.raises(PodResourcesError):
        await AllocatableCache(kubelet, clock=ManualClock()).current(refresh=False)
