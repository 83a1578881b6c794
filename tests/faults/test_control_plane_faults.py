"""A control plane that is overloaded or slow for a long time, or that was restored from a backup.

Nothing is gated for ever, no role ends or is restarted by its probes, and none adds to the load of an API server that
has too much of it.
"""

import asyncio
import os
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import ExitStack, asynccontextmanager

import pytest
from fault_installation import Backup
from fault_proxy import Action, Delay, Seen, status
from fault_roles import Replica
from placement_cluster import is_gated

from polyarch.kube.patches import MergePatch
from polyarch.kube.resources import NAMESPACES

pytestmark = pytest.mark.req("PL-811")

SECONDS, LONG = 15.0, 180.0
REQUESTS_PER_SECOND = 40.0
"""Of one process: each of its workers tries a request again after five seconds at most, and after 0.1 s at first. So it
depends on the workers, not on the pods."""
BACK_SECONDS = 30.0
OVERLOADED: dict[str, Action] = {
    "429": status(429, "TooManyRequests"),
    "429 with Retry-After": status(429, "TooManyRequests", retry_after=5),
}


def role_of(seen: Seen) -> str:
    return seen.user_agent.partition("/")[0]


@asynccontextmanager
async def probed(replicas: Sequence[Replica]) -> AsyncIterator[Counter[str]]:
    """How often a replica's liveness probe failed, as the kubelet would ask."""
    failed: Counter[str] = Counter()

    async def probe() -> None:
        while True:
            for replica in replicas:
                failed[replica.role] += not await replica.is_alive()
            await asyncio.sleep(1.0)

    probing = asyncio.create_task(probe())
    try:
        yield failed
    finally:
        probing.cancel()
        await asyncio.gather(probing, return_exceptions=True)


async def overloaded(faults, told, scenario: str, matches: Callable[[Seen], bool], action: Action, seconds: float):
    """Pods before, during and after."""
    images = await faults.seed("steady", 4)
    replicas = [*faults.fleet.controllers, *faults.fleet.webhooks]
    async with faults.crowd(writes=2) as crowd, probed(replicas) as failed:
        await crowd.create(images, 10)
        fault = faults.api.inject(matches, action)
        first = len(faults.api.seen)
        await crowd.create(images, 30)
        await asyncio.sleep(seconds)
        sent = Counter(role_of(seen) for seen in faults.api.seen[first:] if matches(seen))
        faults.api.withdraw(fault)
        back = asyncio.get_running_loop().time()
        await crowd.create(images, 10)
        await crowd.released(seconds=90)
        after = max(crowd.released_at.values(), default=back) - back
        rates = {role: round(number / seconds, 1) for role, number in sent.items()}
        note = f"requests a second: {rates}; the last was released {after:.1f} s after the end"
        row = told(await crowd.row(scenario, note=note))
    assert fault.hits
    assert row.sound, row
    assert row.released == row.pods
    assert all(replica.is_running for replica in replicas)
    assert not failed.total(), failed
    assert after <= BACK_SECONDS, note
    assert all(rate <= REQUESTS_PER_SECOND * 2 for rate in rates.values()), "leader and standby"


@pytest.mark.req("KR-002", "KR-012", "PL-531")
@pytest.mark.parametrize("seconds", [SECONDS, LONG], ids=["15 s", "3 min"])
@pytest.mark.parametrize("whom", ["polyarch-", "polyarch-controller"], ids=["everybody", "the controllers"])
@pytest.mark.parametrize("answer", OVERLOADED)
async def test_an_api_server_that_refuses_everything_for_too_many_requests(faults, told, answer, whom, seconds):
    faults.api.tear()  # watches have to be opened again, too
    scenario = f"{answer} to {whom}* for {seconds:.0f} s"
    await overloaded(faults, told, scenario, lambda seen: role_of(seen).startswith(whom), OVERLOADED[answer], seconds)


@pytest.mark.req("KR-002", "PL-531")
@pytest.mark.parametrize("seconds", [SECONDS, LONG], ids=["15 s", "3 min"])
async def test_an_api_server_that_answers_after_four_seconds(faults, told, seconds):
    scenario = f"every answer 4 s late for {seconds:.0f} s"
    await overloaded(faults, told, scenario, lambda seen: role_of(seen).startswith("polyarch-"), Delay(4.0), seconds)


@asynccontextmanager
async def pulsing(pid: int, *, stopped: float, going: float) -> AsyncIterator[None]:
    """etcd stands still again and again, as on a disk that is too slow."""

    async def pulse() -> None:
        while True:
            os.kill(pid, signal.SIGSTOP)
            await asyncio.sleep(stopped)
            os.kill(pid, signal.SIGCONT)
            await asyncio.sleep(going)

    pulses = asyncio.create_task(pulse())
    try:
        yield
    finally:
        pulses.cancel()
        await asyncio.gather(pulses, return_exceptions=True)
        os.kill(pid, signal.SIGCONT)


@pytest.mark.req("KR-002", "KR-030", "PL-531")
@pytest.mark.parametrize("seconds", [SECONDS, LONG], ids=["15 s", "3 min"])
async def test_an_etcd_that_is_slow(faults, told, seconds):
    images = await faults.seed("steady", 4)
    replicas = [*faults.fleet.controllers, *faults.fleet.webhooks]
    async with faults.crowd(writes=2) as crowd, probed(replicas) as failed:
        first, began = len(faults.api.seen), time.monotonic()
        async with pulsing(faults.sandbox.records()["etcd"].pid, stopped=2.0, going=0.5):
            creating = asyncio.create_task(crowd.create(images, 30))
            await asyncio.sleep(seconds)
        sent = Counter(role_of(seen) for seen in faults.api.seen[first:])
        rates = {role: round(number / (time.monotonic() - began), 1) for role, number in sent.items()}
        await creating
        await crowd.released(seconds=90)
        row = told(await crowd.row(f"etcd stands still 2 of 2.5 s, for {seconds:.0f} s", note=f"{rates} a second"))
    assert row.sound, row
    assert row.released == row.pods
    assert all(replica.is_running for replica in replicas)
    assert not failed.total(), failed
    assert all(rate <= REQUESTS_PER_SECOND * 2 for rate in rates.values()), rates


@pytest.mark.req("KR-012")
async def test_an_etcd_that_was_restored_from_a_backup(faults, told):
    """Pods that were released since are gated again, and resourceVersions begin again where they were then."""
    images = await faults.seed("away", 4)
    host = faults.hosts["away"]
    async with faults.crowd(writes=4) as crowd:
        with ExitStack() as stack:
            async with host.refusing():
                await crowd.create(images, 20)
                assert not crowd.released_at
                backup = stack.enter_context(Backup.of(faults.sandbox))
            await crowd.released(seconds=60)
            for turn in range(300):
                change = MergePatch({"metadata": {"annotations": {"others.test/turn": str(turn)}}})
                await faults.client.patch(NAMESPACES, crowd.namespace, change)
            await backup.restore()
        back = asyncio.get_running_loop().time()
        namespace = await faults.client.get(NAMESPACES, crowd.namespace)
        assert "others.test/turn" not in namespace["metadata"].get("annotations", {}), "it was not restored"

        async def none_is_gated() -> bool:
            return not any(is_gated(each) for each in (await crowd.pods()).values())

        end = back + 60
        while not await none_is_gated() and asyncio.get_running_loop().time() < end:
            await asyncio.sleep(0.3)
        note = f"released again {asyncio.get_running_loop().time() - back:.1f} s after it was back"
        row = told(await crowd.row("etcd restored from a backup", note=note))
    assert not row.stuck, row
    async with faults.crowd() as later:
        await later.create(await faults.seed("steady", 4), 20)
        await later.released(seconds=60)
        row = told(await later.row("pods created after etcd was restored"))
    assert row.sound, row
    assert row.released == row.pods
    assert not row.missed
