"""Preemption as users have it: a real kube-scheduler with the extender, on nodes that the kubelet model plays.

The judge of who had to go is brute force in the kubelet model (``preemption_clusters``).
"""

import asyncio
from collections.abc import Iterable, Iterator
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
    name: str = "one", *, comers: tuple[tuple[str, str], ...] = (("big", "8"),), guard: int | None = None, **more: Any
) -> Cluster:
    """Zones of 7 and 8 CPUs, full: the least important pods are on the smaller one, which no pod of 8 CPUs can have.
    Pods that are gone come again, and would take what comes free."""
    model = node(NumaLayout.parse("2x8"))
    labels = {"guard": "guard"} if guard is not None else {}
    residents = [
        (name, clusters.pod(f"{name}-{each}", name, cpu, priority=priority, labels=labels, is_owned=True, **more))
        for each, cpu, priority in (("a", "3", "p-0"), ("b", "4", "p-0"), ("c", "4", "p-2"), ("d", "4", "p-2"))
    ]
    important = [clusters.pod(f"{name}-{each}", name, cpu, priority="p-1000") for each, cpu in comers]
    return Cluster(name, {name: model}, residents, {} if guard is None else {"guard": guard}, important)


async def begun(played: Played, node_name: str = "one") -> None:
    """The first victim is on its way out."""

    async def evicted() -> bool:
        return bool(gone(played, node_name))

    await eventually(evicted, bool)


def gone(played: Played, node_name: str) -> list[str]:
    return [played.documents[uid]["metadata"]["name"] for uid, seen in played.evicted.items() if seen.node == node_name]


@pytest.mark.req("NS-122")
@pytest.mark.timeout(300)
@pytest.mark.parametrize("killed", [("extender",), ("scheduler",), ("scheduler", "extender")], ids="-".join)
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
        await programs.start(*reversed(killed))
        await placed(played, "one-big")
        await played.rest()
        found = await clusters.judge(played)
        assert found.faults == []
        assert victims_of(played, found, "one-big") == ["one-c", "one-d"]


def victims_of(played: Played, found: clusters.Findings, name: str) -> list[str]:
    """Those who come in their place may evict others in turn."""
    names = {uid: document["metadata"]["name"] for uid, document in played.documents.items()}
    return sorted(names[victim] for each in found.preemptions if names[each.pod] == name for victim in each.victims)


def names_of(played: Played, uids: Iterable[str]) -> set[str]:
    return {played.documents[uid]["metadata"]["name"] for uid in uids}


async def placed(played: Played, *names: str) -> None:
    async with asyncio.timeout(150):
        while not names_of(played, played.places) >= set(names):
            await asyncio.sleep(0.2)


@pytest.mark.req("NS-122")
@pytest.mark.timeout(300)
async def test_a_victim_that_takes_half_a_minute_to_end_is_waited_for(plane: Plane, tmp_path: Path) -> None:
    async with clusters.playing(plane, tmp_path, [one_node(ends_after=30)], fragments=False) as (played, _):
        await played.come()
        await placed(played, "one-big")
        await played.rest()
        found = await clusters.judge(played)
        assert found.faults == []
        assert victims_of(played, found, "one-big") == ["one-c", "one-d"]


@pytest.mark.req("NS-122", "NS-124")
@pytest.mark.timeout(300)
async def test_each_gets_a_zone_what_a_deleted_pod_left_goes_to_others_and_nobody_goes_for_nothing(
    plane: Plane, tmp_path: Path
) -> None:
    """Three clusters at once: two pods for two zones; a pod that is deleted while its victims end; and one that no zone
    can hold beside one that a budget keeps waiting."""
    two = one_node("two", comers=(("first", "7"), ("second", "7")), ends_after=2)
    deleted = one_node("deleted", ends_after=5)
    guarded = one_node("guarded", comers=(("impossible", "10"), ("big", "8")), guard=1)
    async with clusters.playing(plane, tmp_path, [two, deleted, guarded], fragments=False) as (played, _):
        await played.come()
        await begun(played, "deleted")
        await played.client.delete(PODS, "deleted-big", namespace=clusters.NAMESPACE)
        await placed(played, "two-first", "two-second")
        await played.rest()
        found = await clusters.judge(played)
        assert [each for each in found.faults if "deleted-" not in each] == []
        assert gone(played, "guarded") == []
        assert names_of(played, played.places).isdisjoint({"guarded-impossible", "guarded-big"})
        assert len(gone(played, "deleted")) <= 2
        assert len(played.kubelets["deleted"].pods) == 4, "those that came in their place are there"
