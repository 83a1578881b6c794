"""Faults of the machine that a process runs on, and load that is none of its business.

The clock jumps, the disk that it logs to is full, and another tenant's objects change thousands of times.
"""

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from fault_crowd import IN_FLIGHT
from fault_roles import Replica
from placement_cluster import pod

from polyarch.kube.client import Client
from polyarch.kube.patches import MergePatch
from polyarch.kube.resources import EVENTS, PODS

pytestmark = pytest.mark.req("PL-811")

HOUR = 3600.0
STALL = 8.0
"""As in ``test_replica_faults``, on a machine that others use, too."""
JUMPING = """
import datetime, pathlib, sys
from polyarch import clock

def now(self, seconds=pathlib.Path({path!r})):
    return datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=float(seconds.read_text()))

clock.SystemClock.now = now
from polyarch.cli import main
sys.exit(main())
"""
"""A program whose wall clock is off by as many seconds as a file says."""


@asynccontextmanager
async def replaced(faults, **how: Any) -> AsyncIterator[list[Replica]]:
    """Processes that were started in another way; afterwards they are gone."""
    replicas = await faults.fleet.others(**how)
    try:
        yield replicas
    finally:
        for replica in replicas:
            await replica.end()  # one that is killed leaves its Lease, and who comes next waits for its end


@pytest.mark.req("KR-030", "PL-335")
async def test_a_clock_that_jumps_an_hour_forward_and_back(faults, told, tmp_path: Path):
    """Leases, waiting pods and backoff go by the time that passes."""
    offset = tmp_path / "offset"
    offset.write_text("0")
    images, late = await faults.seed("steady", 4), await faults.seed("away", 4)
    async with replaced(faults, program=JUMPING.format(path=str(offset))) as replicas:
        leader = await faults.fleet.leader()
        async with faults.crowd("", writes=2) as crowd:
            for seconds in (HOUR, -HOUR, 0.0):
                async with faults.hosts["away"].refusing():
                    await crowd.create(late, 8)
                    whole = offset.with_suffix(".new")  # a process that reads it in between would find it empty
                    whole.write_text(f"{seconds}")
                    whole.replace(offset)
                    await crowd.create(images, 8)
                    await asyncio.sleep(2)
                await crowd.released(seconds=60)
            row = told(await crowd.row("clock an hour forward, and two back", note="a registry was away at each jump"))
        assert await faults.fleet.leader() is leader
        assert [await replica.is_ready() for replica in replicas] == [True] * len(replicas)
    assert row.sound, row
    assert row.released == row.pods
    assert not row.missed
    assert row.stall <= STALL, row


async def test_a_full_disk_under_the_log(faults, told):
    """What cannot be logged is lost, and nothing else."""
    images = await faults.seed("steady", 4)
    async with replaced(faults, errors=Path("/dev/full")) as replicas:
        async with faults.crowd() as crowd:
            await crowd.create(images, 20)
            faults.api.tear()
            await crowd.create(images, 20)
            await crowd.released(seconds=60)
            row = told(await crowd.row("full disk under the log"))
        assert [await replica.is_ready() for replica in replicas] == [True] * len(replicas)
    assert row.released == row.pods
    assert row.sound, row


async def storm(client: Client, namespace: str, number: int) -> None:
    """A tenant's Events and changes of its pods' status, as fast as the API server takes them."""
    names = [f"busy-{turn}" for turn in range(20)]
    for name in names:
        document = pod("steady.faults.test/unknown:1", name=name, schedulerName="nobody")
        await client.create(PODS, document, namespace=namespace)
    turns = iter(range(number))

    async def write() -> None:
        for turn in turns:
            condition = {"type": "Busy", "status": "True", "message": f"{turn}"}
            change = MergePatch({"status": {"conditions": [condition]}})
            await client.patch(PODS, names[turn % len(names)], change, namespace=namespace, subresource="status")
            await client.create(EVENTS, event(namespace, names[turn % len(names)]), namespace=namespace)

    await asyncio.gather(*(write() for _ in range(IN_FLIGHT)))


def event(namespace: str, name: str) -> dict[str, Any]:
    return {
        "apiVersion": EVENTS.api_version,
        "kind": EVENTS.kind,
        "metadata": {"name": f"{name}.{secrets.token_hex(8)}"},
        "eventTime": "2026-01-01T00:00:00.000000Z",
        "reportingController": "busy.test",
        "reportingInstance": "busy",
        "action": "Nothing",
        "reason": "Busy",
        "type": "Normal",
        "regarding": {"apiVersion": "v1", "kind": "Pod", "name": name, "namespace": namespace},
    }


def used(replicas: Sequence[Replica]) -> tuple[float, float]:
    each = [replica.used() for replica in replicas]
    return sum(cpu for cpu, _ in each), max(memory for _, memory in each)


@pytest.mark.req("PL-851")
@pytest.mark.parametrize("number", [300, 10_000])
async def test_a_tenant_whose_pods_and_events_change_all_the_time(faults, told, number):
    images = await faults.seed("steady", 4)
    replicas = [*faults.fleet.controllers, *faults.fleet.webhooks]
    async with faults.crowd("gated") as crowd, faults.crowd("hold") as busy:
        await crowd.create(images, 10)
        await crowd.released(seconds=60)
        cpu, memory = used(replicas)
        began = time.monotonic()
        storming = asyncio.create_task(storm(faults.client, busy.namespace, number))
        while not storming.done():
            await crowd.create(images, 5)
            await asyncio.sleep(1)
        await storming
        seconds = time.monotonic() - began
        await crowd.released(seconds=60)
        spent, grown = used(replicas)
        spent, grown = (spent - cpu) / number * 1000, grown - memory
        note = f"{spent:.1f} ms of CPU for each in {len(replicas)} processes, {grown:+.0f} MiB, in {seconds:.0f} s"
        row = told(await crowd.row(f"{number} Events and {number} changes of another tenant's pods", note=note))
    assert row.sound, row
    assert row.released == row.pods
    assert row.stall <= STALL, row
    assert not row.missed
    assert spent <= 20, note
    assert grown <= 32, note
