"""An API server that is restarted, that refuses, whose pods others write all the time, and an
older one."""

import asyncio

import pytest
from fault_proxy import WITHOUT_WATCH_LIST, Seen, as_of_1_30, status

from polyarch.kube.errors import ApiError
from polyarch.kube.patches import MergePatch
from polyarch.kube.resources import PODS


def patches(seen: Seen) -> bool:
    return seen.method == "PATCH" and "/pods/" in seen.path


@pytest.mark.req("PL-811")
async def test_nothing_is_stuck_after_the_api_server_was_restarted(faults, told):
    running = [replica for replica in faults.fleet.replicas if replica.is_running]
    images = await faults.seed("steady", 8)
    async with faults.crowd() as crowd:
        creating = asyncio.create_task(crowd.create(images, 200, in_flight=8))
        await crowd.released(40, seconds=60)
        ready = await faults.restart_api_server(away=3.0)
        await creating
        await crowd.released(seconds=90)
        waited = {name for name, at in crowd.gated_at.items() if at < ready}
        late = [at - ready for name, at in crowd.released_at.items() if name in waited and at > ready]
        first, last = min(late, default=0.0), max(late, default=0.0)
        note = f"the first was released {first:.1f} s after it was ready, the last {last:.1f} s"
        row = told(await crowd.row("API server killed for 3 s and started", note=note))
    assert row.sound, row
    assert first <= 2, "nobody waits for the end of a pause that began while it was away"
    assert last <= 5
    assert row.released == row.pods
    assert row.missed == 0, "a pod is not taken before its webhooks are known again"
    for replica in running:
        assert replica.is_running, f"{replica.role} ended:\n{replica.log.read_text()[-2000:]}"


@pytest.mark.req("PL-304")
async def test_a_storm_of_conflicts(faults, told):
    """Each answered with 409 although nothing else writes the pods: worse than what any real server does."""
    images = await faults.seed("steady", 4)
    async with faults.crowd() as crowd:
        storm = faults.api.inject(patches, status(409, "Conflict"), times=60)
        before = faults.api.count(patches)
        await crowd.create(images, 40)
        await crowd.released(seconds=90)
        sent = faults.api.count(patches) - before
        row = told(await crowd.row("storm of 409", note=f"{storm.hits} injected, {sent} PATCHes sent"))
    assert row.sound, row
    assert row.released == row.pods
    assert sent <= storm.hits + 2 * row.pods, "no PATCH is repeated without a reason"


@pytest.mark.req("PL-304")
async def test_pods_that_others_write_all_the_time(faults, told):
    """Real conflicts: the version that a PATCH was made from is old before it arrives."""
    images = await faults.seed("steady", 4)
    async with faults.crowd() as crowd:
        stop = asyncio.Event()
        written = 0

        async def annotate(name: str) -> None:
            nonlocal written
            turn = 0
            while not stop.is_set():
                turn += 1
                change = MergePatch({"metadata": {"annotations": {"others.test/turn": str(turn)}}})
                try:
                    await crowd.client.patch(PODS, name, change, namespace=crowd.namespace)
                    written += 1
                except ApiError as error:
                    if error.status not in (404, 409, 429):
                        raise
                await asyncio.sleep(0.1)

        pods = await crowd.create(images, 20)
        async with asyncio.TaskGroup() as tasks:
            for name in pods:
                tasks.create_task(annotate(name))
            await crowd.released(seconds=60)
            stop.set()
        row = told(await crowd.row("others write the pods", note=f"{written} writes of others"))
    assert row.sound, row
    assert row.released == row.pods
    assert row.refused_patches <= written + row.pods, "at most one PATCH from each version of a pod"


@pytest.mark.req("KR-002")
async def test_a_storm_of_refusals_for_too_many_requests(faults, told):
    images = await faults.seed("steady", 4)
    async with faults.crowd() as crowd:
        storm = faults.api.inject(
            lambda seen: not seen.watch and crowd.namespace in seen.path,
            status(429, "TooManyRequests", retry_after=1),
            times=120,
        )
        before = faults.api.count(patches)
        await crowd.create(images, 40)
        await crowd.released(seconds=90)
        sent = faults.api.count(patches) - before
        row = told(await crowd.row("storm of 429", note=f"{storm.hits} injected, {sent} PATCHes sent"))
    assert storm.hits
    assert row.sound, row
    assert row.released == row.pods
    assert sent <= storm.hits + 3 * row.pods


@pytest.mark.req("KR-011")
async def test_webhook_and_controller_start_with_an_api_server_as_of_1_30(faults, told):
    refused = faults.api.inject(as_of_1_30, WITHOUT_WATCH_LIST)
    for replica in (*faults.fleet.controllers, *faults.fleet.webhooks):
        await replica.end()
    await faults.fleet.ensure()
    images = await faults.seed("steady", 4)
    async with faults.crowd() as crowd:
        await crowd.create(images, 60)
        await crowd.released(seconds=60)
        note = f"{refused.hits} streamed lists refused"
        row = told(await crowd.row("API server as of 1.30", registry=[faults.hosts["steady"]], note=note))
    assert row.sound, row
    assert not row.missed
    assert refused.hits
