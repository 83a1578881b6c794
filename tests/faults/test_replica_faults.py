"""Replicas killed, paused and started under load. A pod waits for none of them for long."""

import asyncio
import base64
import json
import time
from statistics import median

import pytest
from fault_proxy import Delay, Seen
from own_roles import CONTROLLER, GLOBAL_PULL_SECRET
from placement_cluster import decision, pod

from polyarch.kube.resources import PODS, SECRETS
from polyarch.placement import names
from polyarch.sandbox.state import NAMESPACE

STALL = 2.0
"""What is promised, on a machine that is not busy with anything else."""
BUSY = 4.0
"""So many times longer may it take where other programs use the processors."""

TRIES = 3
"""A leader that other programs keep from working for a second is helped by its standby, as it should be."""


@pytest.mark.req("PL-530")
async def test_without_a_fault_the_standby_costs_nothing(faults, told):
    for replica in faults.fleet.controllers:  # those that stand may be waiting to watch again after other faults
        await replica.end()
    await faults.fleet.ensure()
    for _ in range(TRIES):
        images = await faults.seed("steady", 8)
        async with faults.crowd() as crowd:
            await crowd.create(images, 200)
            await crowd.released(seconds=60)
            row = await crowd.row("no fault", registry=[faults.hosts["steady"]])
        assert row.sound, row
        assert row.released == row.pods
        assert row.registry_requests <= 2 * len(images)
        if row.refused_patches <= 0.05 * row.pods:  # 1 % is usual
            break
    told(row)
    assert row.refused_patches <= 0.05 * row.pods, f"each of {TRIES} times"


@pytest.mark.req("PL-530")
async def test_the_leader_is_killed_with_300_of_1000_pods_released(faults, told):
    images = await faults.seed("steady", 40)
    async with faults.crowd() as crowd:
        leader = await faults.fleet.leader()
        creating = asyncio.create_task(crowd.create(images, 1000))
        await crowd.released(300, seconds=60)
        released = len(crowd.released_at)
        await leader.kill()
        killed_at = asyncio.get_running_loop().time()
        await creating
        await crowd.released(seconds=60)
        note = f"killed at {released}; afterwards at most {crowd.stall(since=killed_at)} s without a release"
        row = told(await crowd.row("leader killed (SIGKILL)", registry=[faults.hosts["steady"]], note=note))
    assert row.sound, row
    assert row.released == row.pods
    assert row.stall <= STALL * BUSY, note
    assert row.registry_requests <= 2.1 * len(images)  # each leader once; where a connection broke, once more


@pytest.mark.req("PL-530")
async def test_with_warm_images_nobody_notices(faults, told):
    """Placed at admission: the controller is not on the way."""
    images = await faults.seed("steady", 8)
    async with faults.crowd("") as crowd:
        await crowd.create(images, 16)
        await crowd.released(seconds=60)
        first = set(crowd.expected)
        leader = await faults.fleet.leader()
        await leader.kill()
        await crowd.create(images, 200)
        await crowd.released(seconds=60)
        inline = {name for name, each in (await crowd.pods()).items() if decision(each)["by"] == "admission"}
        waited = (set(crowd.expected) - first) & crowd.gated_at.keys()
        row = told(await crowd.row("leader killed, warm images", note=f"{len(inline)} placed at admission"))
    assert row.sound, row
    assert not waited
    assert row.missed == 0


@pytest.mark.req("PL-530")
async def test_the_leader_is_paused_for_40_s_and_goes_on(faults, told):
    """Whoever was stopped does not know it: what it then writes must be as good as never written."""
    images = await faults.seed("steady", 20)
    async with faults.crowd() as crowd:
        paused = await faults.fleet.leader()
        creating = asyncio.create_task(crowd.create(images, 200))
        await crowd.released(60, seconds=60)
        paused.pause()
        paused_at = asyncio.get_running_loop().time()
        try:
            await creating
            await asyncio.sleep(20)
            await crowd.create(images, 100)
            await asyncio.sleep(18)
        finally:
            paused.go_on()
        await crowd.create(images, 100)
        await crowd.released(seconds=60)
        await asyncio.sleep(2)
        leading = [each for each in faults.fleet.controllers if await each.metric(LEADS)]
        note = f"afterwards at most {crowd.stall(since=paused_at)} s without a release"
        row = told(await crowd.row("leader paused 40 s (SIGSTOP)", registry=[faults.hosts["steady"]], note=note))
    assert row.sound, row
    assert row.released == row.pods
    assert row.stall <= STALL * BUSY
    assert len(leading) == 1
    assert leading != [paused], "the standby took the Lease when it had run out"


LEADS = 'polyarch_leader{lease="ppc-controllers-208d7abd.multiarch.openshift.io"}'


@pytest.mark.req("PL-530")
async def test_a_webhook_replica_is_killed_and_another_rolled_out(faults, told):
    """With ``failurePolicy: Ignore`` only what a killed replica had in hand is created unseen, with SIGTERM nothing."""
    await faults.fleet.ensure(webhooks=2)
    images = await faults.seed("steady", 8)
    in_flight = 16
    async with faults.crowd() as crowd:
        creating = asyncio.create_task(crowd.create(images, 300, in_flight=in_flight))
        await crowd.released(60, seconds=60)
        killed, ended = faults.fleet.webhooks[:2]
        await killed.kill()
        await faults.fleet.ensure(webhooks=2)
        await creating
        await crowd.released(seconds=60)
        row = told(await crowd.row("webhook replica killed (SIGKILL)"))
    assert row.sound, row
    assert row.released == row.pods
    assert row.missed <= 2 * in_flight, "in the hands of the killed one, or sent to it before its end was known"
    async with faults.crowd() as crowd:
        creating = asyncio.create_task(crowd.create(images, 300, in_flight=in_flight))
        await crowd.released(60, seconds=60)
        await faults.fleet.roll_out(ended)
        await creating
        await crowd.released(seconds=60)
        gentle = await crowd.row("webhook replica ended (SIGTERM)")
    faults.fleet.balance()
    assert gentle.sound, gentle
    assert gentle.missed == 0


@pytest.mark.req("PL-301", "PL-850", "PL-900 row 11")
async def test_private_images_while_all_leaders_are_killed(faults, told):
    """New replicas see gated pods before they know the global pull secret, and decide nothing until they do."""
    images = await faults.seed("private", 4, private=True, users={"robot": "marker-7d1f"})
    host = faults.hosts["private"]
    authentication = base64.b64encode(b"robot:marker-7d1f").decode()
    secret = json.dumps(
        {"auths": {"private.faults.test": {"auth": authentication}, host.address: {"auth": authentication}}}
    )
    await faults.client.create(
        SECRETS,
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": GLOBAL_PULL_SECRET},
            "type": "kubernetes.io/dockerconfigjson",
            "data": {".dockerconfigjson": base64.b64encode(secret.encode()).decode()},
        },
        namespace=NAMESPACE,
    )

    def global_secret(seen: Seen) -> bool:
        return seen.path.endswith(f"/namespaces/{NAMESPACE}/secrets")

    try:
        async with faults.crowd("short") as crowd:
            creating = asyncio.create_task(crowd.create(images, 150))
            await crowd.released(40, seconds=60)
            late = faults.api.inject(global_secret, Delay(8.0))
            for replica in faults.fleet.controllers:
                await replica.kill()
            starting = [asyncio.create_task(faults.fleet.start(CONTROLLER)) for _ in range(2)]
            await creating
            while not late.hits:
                await asyncio.sleep(0.1)
            released = len(crowd.released_at)
            await asyncio.sleep(5)
            assert len(crowd.released_at) == released, "not before everything is known"
            await asyncio.gather(*starting)
            await crowd.released(seconds=60)
            faults.api.withdraw(late)
            row = told(await crowd.row("leaders killed, images behind the global secret", registry=[host]))
        assert late.hits
        assert row.sound, row
        assert row.released == row.pods
        assert "marker-7d1f" not in faults.fleet.logs(), "PL-850"
        assert authentication not in faults.fleet.logs(), "PL-850"
    finally:
        await faults.client.delete(SECRETS, GLOBAL_PULL_SECRET, namespace=NAMESPACE)


@pytest.mark.req("PL-109")
async def test_400_dry_runs_by_one_user_disturb_nobody(faults, told):
    """Of images whose registry takes requests and never answers, so each could use up the whole budget.

    What they cost others is compared with as many dry runs of pods that polyarch leaves alone: those occupy the API
    server and this machine just as much.
    """
    images = await faults.seed("steady", 4)
    host = faults.hosts["silent"]

    async def timed(crowd, count: int) -> float:
        seconds = []
        for _ in range(count):
            began = time.monotonic()
            await crowd.create(images, 1)
            seconds.append(time.monotonic() - began)
        return median(seconds)

    async with faults.crowd("") as others, faults.crowd("") as own:
        await timed(others, len(images))  # from now on these images are known
        alone = await timed(others, 20)

        async def beside(annotations: dict[str, str]) -> tuple[float, int]:
            """How long the others' creations take beside 400 dry runs, and how many of those were answered."""
            answered = 0
            queue = iter(range(400))

            async def dry_runs() -> None:
                nonlocal answered
                for number in queue:
                    document = pod(f"silent.faults.test/dry-{number}:1", name=f"dry-{number}")
                    document["metadata"]["annotations"] = annotations
                    await own.client.create(PODS, document, namespace=own.namespace, dry_run=True)
                    answered += 1

            async with asyncio.TaskGroup() as tasks:
                for _ in range(32):
                    tasks.create_task(dry_runs())
                taken = await timed(others, 20)
            return taken, answered

        control, _ = await beside({names.SKIP_ANNOTATION: "true"})
        async with host.silent():
            meanwhile, answered = await beside({})
        await others.released(seconds=60)
        times = " / ".join(f"{seconds * 1000:.0f}" for seconds in (alone, control, meanwhile))
        note = f"create p50 {times} ms alone / beside opted-out dry runs / beside these"
        row = told(await others.row("400 dry runs by one user", registry=[host], note=note))
        left = await own.pods()
    assert row.sound, row
    assert row.released == row.pods
    assert row.missed == 0
    assert answered == 400
    assert not left
    assert meanwhile <= 2 * control + 0.1, note
