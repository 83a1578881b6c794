"""Preemption as users have it: a real kube-scheduler with the extender, on nodes that the kubelet model plays.

The judge of who had to go is brute force in the kubelet model (``preemption_clusters``).
"""

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import preemption_clusters as clusters
import pytest
from numa_fleet import eventually
from preemption_clusters import Cluster, Played

from polyarch.kube.resources import PODS
from polyarch.sandbox.cluster import Sandbox
from polyarch.sandbox.kubelet_model.layout import NumaLayout, node

SEEDS = range(10)
MANY = range(1000, 1500)
Plane = tuple[Sandbox, str]


@pytest.fixture(scope="module")
def plane() -> Iterator[Plane]:
    with ThreadPoolExecutor(1) as thread:
        found = thread.submit(asyncio.run, clusters.started_plane()).result()
        yield found
        thread.submit(asyncio.run, found[0].delete()).result()


async def judged(plane: Plane, folder: Path, seeds: range) -> clusters.Findings:
    async with clusters.playing(plane, folder, map(clusters.random_cluster, seeds)) as (played, _):
        await played.come()
        await played.rest()
        return await clusters.judge(played)


@pytest.mark.req("NS-125")
@pytest.mark.timeout(600)
async def test_nobody_is_evicted_for_nothing_and_nobody_waits_for_nothing(plane: Plane, tmp_path: Path) -> None:
    found = await judged(plane, tmp_path, SEEDS)
    assert found.faults == []
    assert len(found.preemptions) > 3


@pytest.mark.req("NS-125")
@pytest.mark.timeout(5400)
@pytest.mark.parametrize("part", range(2))
async def test_on_five_hundred_clusters_nobody_is_evicted_for_nothing(plane: Plane, tmp_path: Path, part: int) -> None:
    found = await judged(plane, tmp_path, MANY[part::2])
    assert found.faults == []
    assert len(found.preemptions) > 100


# -- one cluster, and what may happen between an eviction and the placement --------------------------------------------


def one_node(
    *, comers: tuple[tuple[str, str], ...] = (("big", "8"),), guard: int | None = None, **more: Any
) -> Cluster:
    """Zones of 7 and 8 CPUs, full: the least important pods are on the smaller one, which no pod of 8 CPUs can have.
    Pods that are gone come again, and would take what comes free."""
    model = node(NumaLayout.parse("2x8"))
    labels = {"guard": "guard"} if guard is not None else {}
    residents = [
        ("one", clusters.pod(name, "one", cpu, priority=priority, labels=labels, is_owned=True, **more))
        for name, cpu, priority in (("a", "3", "p-0"), ("b", "4", "p-0"), ("c", "4", "p-2"), ("d", "4", "p-2"))
    ]
    important = [clusters.pod(name, "one", cpu, priority="p-1000") for name, cpu in comers]
    return Cluster("one", {"one": model}, residents, {} if guard is None else {"guard": guard}, important)


async def begun(played: Played) -> None:
    """The first victim is on its way out."""

    async def evicted() -> bool:
        return bool(played.evicted)

    await eventually(evicted, bool)


def gone(played: Played) -> list[str]:
    return sorted(played.documents[uid]["metadata"]["name"] for uid in played.evicted)


@pytest.mark.req("NS-122")
@pytest.mark.timeout(300)
@pytest.mark.parametrize("killed", [(), ("extender",), ("scheduler",), ("scheduler", "extender")], ids="-".join)
async def test_the_zone_is_kept_for_the_pod_whoever_is_killed_meanwhile(
    plane: Plane, tmp_path: Path, killed: tuple[str, ...]
) -> None:
    """Two pods of the zone that can hold it take five seconds to end; those who come in their place wait."""
    async with clusters.playing(plane, tmp_path, [one_node(ends_after=5)], fragments=False) as (played, programs):
        await played.come()
        await begun(played)
        await asyncio.sleep(1)
        for name in killed:
            await programs.kill(name)
        await programs.start(*reversed(killed)) if killed else None
        await placed(played, "big")
        await played.rest()
        found = await clusters.judge(played)
        assert found.faults == []
        assert victims_of(played, found, "big") == ["c", "d"]


def victims_of(played: Played, found: clusters.Findings, name: str) -> list[str]:
    """Those who come in their place may evict others in turn."""
    names = {uid: document["metadata"]["name"] for uid, document in played.documents.items()}
    return sorted(names[victim] for each in found.preemptions if names[each.pod] == name for victim in each.victims)


async def placed(played: Played, *names: str) -> None:
    async with asyncio.timeout(150):
        while not {played.documents[uid]["metadata"]["name"] for uid in played.places} >= set(names):
            await asyncio.sleep(0.2)


@pytest.mark.req("NS-122")
@pytest.mark.timeout(300)
async def test_a_victim_that_takes_half_a_minute_to_end_is_waited_for(plane: Plane, tmp_path: Path) -> None:
    async with clusters.playing(plane, tmp_path, [one_node(ends_after=30)], fragments=False) as (played, _):
        await played.come()
        await placed(played, "big")
        await played.rest()
        found = await clusters.judge(played)
        assert found.faults == []
        assert victims_of(played, found, "big") == ["c", "d"]


@pytest.mark.req("NS-124")
@pytest.mark.timeout(300)
async def test_nobody_goes_for_a_pod_that_no_zone_can_hold_or_that_a_budget_keeps_waiting(
    plane: Plane, tmp_path: Path
) -> None:
    guarded = one_node(comers=(("impossible", "10"), ("big", "8")), guard=1)
    async with clusters.playing(plane, tmp_path, [guarded], fragments=False) as (played, _):
        await played.come()
        await played.rest()
        found = await clusters.judge(played)
        assert (found.faults, gone(played), found.waiting) == ([], [], 2)


@pytest.mark.req("NS-122")
@pytest.mark.timeout(300)
async def test_two_pods_that_come_at_once_get_a_zone_each(plane: Plane, tmp_path: Path) -> None:
    two = one_node(comers=(("first", "7"), ("second", "7")), ends_after=2)
    async with clusters.playing(plane, tmp_path, [two], fragments=False) as (played, _):
        await played.come()
        await placed(played, "first", "second")
        await played.rest()
        assert (await clusters.judge(played)).faults == []


@pytest.mark.req("NS-122")
@pytest.mark.timeout(300)
async def test_what_was_evicted_for_a_pod_that_is_deleted_goes_to_others(plane: Plane, tmp_path: Path) -> None:
    async with clusters.playing(plane, tmp_path, [one_node(ends_after=5)], fragments=False) as (played, _):
        await played.come()
        await begun(played)
        await played.client.delete(PODS, "big", namespace=clusters.NAMESPACE)
        await played.rest()
        assert len(gone(played)) <= 2
        running = len(played.kubelets["one"].pods)
        assert running == 4, "those that came in their place are there"
