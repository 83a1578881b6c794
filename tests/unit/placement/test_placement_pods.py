"""Gates without our label are found within a minute and removed like any other."""

import asyncio

import msgspec
import pytest
from manual_clock import ManualClock
from placement_world import placement_metrics, pod, value

from polyarch.kube.errors import ServerTimeout
from polyarch.objects import ObjectKey, Pod
from polyarch.placement import names
from polyarch.placement.controller import GATED_SELECTOR, STRAY_SELECTOR, GatedPods, StrayGates


class Cluster:
    """What the API server lists, and what the controller is told to look at."""

    def __init__(self) -> None:
        self.store: dict[ObjectKey, Pod] = {}
        self.pods = GatedPods(self.store)
        self.listed: list[Pod] = []
        self.failing = False
        self.leading = True
        self.lists = 0
        self.queued: list[str] = []
        self.metrics, placement = placement_metrics()
        self.clock = ManualClock()
        self.strays = StrayGates(
            self.pods,
            self._list,
            enqueue=lambda key: self.queued.append(key.name),
            is_leading=lambda: self.leading,
            clock=self.clock,
            metrics=placement,
        )

    async def _list(self) -> list[Pod]:
        self.lists += 1
        if self.failing:
            raise ServerTimeout(504, verb="list", resource="pods")
        return self.listed


def stored(name: str, *, gated: bool = True, version: str = "1", uid: str = "") -> Pod:
    document = pod("app:1", name=name, gated=gated)
    document["metadata"] |= {"uid": uid or name, "resourceVersion": version}
    document["metadata"]["labels"] = {}
    return msgspec.convert(document, Pod)


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


@pytest.mark.req("PL-300")
async def test_a_gate_without_label_is_queued_and_counted(cluster):
    cluster.listed = [stored("stray"), stored("other", gated=False)]
    await cluster.strays.look()
    assert cluster.queued == ["stray"]
    assert cluster.pods.get(ObjectKey("team", "stray")) is not None
    assert cluster.pods.get(ObjectKey("team", "other")) is None
    assert value(cluster.metrics, "polyarch_placement_stray_gates_total") == 1


@pytest.mark.req("PL-300")
async def test_a_stray_that_is_gone_is_looked_at_once_more_so_that_it_is_forgotten(cluster):
    cluster.listed = [stored("stray")]
    await cluster.strays.look()
    cluster.listed = []
    await cluster.strays.look()
    assert cluster.queued == ["stray", "stray"]
    assert cluster.pods.get(ObjectKey("team", "stray")) is None


@pytest.mark.req("PL-300")
async def test_an_unchanged_stray_is_not_queued_again(cluster):
    cluster.listed = [stored("stray")]
    await cluster.strays.look()
    await cluster.strays.look()
    assert cluster.queued == ["stray"]
    cluster.listed = [stored("stray", version="2")]
    await cluster.strays.look()
    assert cluster.queued == ["stray", "stray"]


@pytest.mark.req("PL-702")
async def test_a_stray_is_counted_once_however_often_it_changes(cluster):
    for version in ("1", "2", "3"):
        cluster.listed = [stored("stray", version=version)]
        await cluster.strays.look()
    cluster.pods.outdated(ObjectKey("team", "stray"))
    await cluster.strays.look()
    assert value(cluster.metrics, "polyarch_placement_stray_gates_total") == 1
    cluster.listed = [stored("stray", version="9", uid="another pod of that name")]
    await cluster.strays.look()
    assert value(cluster.metrics, "polyarch_placement_stray_gates_total") == 2


@pytest.mark.req("PL-306")
async def test_a_bug_met_in_a_look_ends_neither_the_looks_nor_the_process(cluster, capsys):
    cluster.listed = [None]
    task = asyncio.create_task(cluster.strays.run())
    await cluster.clock.run(61)
    assert not task.done()
    assert value(cluster.metrics, "polyarch_internal_errors_total") == 2
    assert capsys.readouterr().out.count("Traceback") == 1
    cluster.listed = [stored("stray")]
    await cluster.clock.run(60)
    assert cluster.queued == ["stray"]
    task.cancel()
    await asyncio.wait([task])


@pytest.mark.req("PL-306")
async def test_a_failed_list_leaves_everything_as_it_was(cluster):
    cluster.listed = [stored("stray")]
    await cluster.strays.look()
    cluster.failing = True
    await cluster.strays.look()
    assert cluster.pods.get(ObjectKey("team", "stray")) is not None


@pytest.mark.req("PL-300", "PL-800")
async def test_the_leader_lists_once_a_minute_and_a_standby_never(cluster):
    task = asyncio.create_task(cluster.strays.run())
    await cluster.clock.run(299)
    assert cluster.lists == 5
    cluster.leading = False
    await cluster.clock.run(300)
    assert cluster.lists == 5
    task.cancel()
    await asyncio.wait([task])


@pytest.mark.req("PL-306", "PL-530")
async def test_who_leads_no_more_forgets_its_strays(cluster):
    """Nobody would tell it that they changed, and it would try to write them for ever."""
    cluster.listed = [stored("stray")]
    task = asyncio.create_task(cluster.strays.run())
    await cluster.clock.run(1)
    cluster.leading = False
    await cluster.clock.run(60)
    task.cancel()
    await asyncio.wait([task])
    assert cluster.queued == ["stray", "stray"]
    assert cluster.pods.keys() == []


@pytest.mark.req("PL-304")
def test_what_the_watch_has_shown_is_not_taken_from_an_old_look(cluster):
    """A stray that was labelled, placed and left the watch is not gated any more."""
    key = ObjectKey("team", "stray")
    cluster.pods.take_strays({key: stored("stray")})
    cluster.pods.outdated(key)
    assert cluster.pods.get(key) is None
    assert [each.name for each in cluster.pods.take_strays({key: stored("stray", version="3")})] == ["stray"]


@pytest.mark.req("PL-701", "PL-900")
def test_the_gauge_counts_pods_with_our_gate_and_returns_to_nought(cluster):
    cluster.store[ObjectKey("team", "a")] = stored("a")
    cluster.store[ObjectKey("team", "b")] = stored("b", gated=False)
    cluster.pods.take_strays({ObjectKey("team", "c"): stored("c"), ObjectKey("team", "a"): stored("a")})
    assert cluster.pods.count() == 2
    cluster.pods.take_strays({})
    cluster.store.clear()
    assert cluster.pods.count() == 0


@pytest.mark.req("PL-004", "PL-300")
def test_the_selectors_are_those_of_the_label_that_is_watched():
    assert GATED_SELECTOR == "multiarch.openshift.io/scheduling-gate=gated"
    assert f"{names.SCHEDULING_GATE_LABEL}!={names.GATED}" == STRAY_SELECTOR
