"""Builds whose builder dies, whose Jobs are deleted or tampered with, and that are refused.

Whatever happens: one live Job for each key, every published index whole, and at last what an undisturbed build gives.
"""

import asyncio
import contextlib
import time

import pytest
from fault_builds import QUOTAS, Estate
from fault_mortal import PASS_SECONDS, is_write, step
from fault_proxy import Delay, Hold, Seen
from placement_cluster import until

from polyarch.builds import names
from polyarch.kube.resources import JOBS, LEASES, PODS

pytestmark = pytest.mark.req("BD-192", "BD-195", "BD-215", "BD-218", "BD-220", "BD-221", "BD-324")

RENEW_DEADLINE = 10.0
"""Seconds after its last renewal from which a leader no longer takes itself for one."""
SETTLED = 60.0
"""Seconds until what a late write has changed is put right."""


@pytest.mark.req("BD-196", "BD-197", "BD-394")
async def test_killed_at_every_step(build_faults, told):
    """Each step of a plan, and the deletion of old Runs, once before and once after the server carried it out.

    A build of two architectures, an edit while its Jobs wait (one is taken over, one deleted), its result, and a second
    one whose predecessor goes.
    """
    async with (
        build_faults.estate() as estate,
        build_faults.builder(estate.namespace) as mortal,
        build_faults.estate() as calm,
    ):
        await estate.want("web", history={"successful": 1, "failed": 0, "images": "Delete"})

        async def waits(*, ended: str = "") -> bool:
            active = (await estate.status("web")).get("activeRun")
            waiting = list((await estate.phases("web")).values()) == ["WaitingForNode"] * 2
            return waiting and active not in (None, ended)

        async def only_one_is_left() -> bool:
            return await estate.published("web") and len(await estate.runs("web")) == 1

        await mortal.killed_until(waits)
        await mortal.kill()
        first = (await estate.status("web"))["activeRun"]
        await estate.override("web", "second")
        await mortal.killed_until(lambda: waits(ended=first))
        await mortal.kill()
        await estate.open()
        await mortal.killed_until(only_one_is_left)
        await mortal.kill()
        former = await estate.whole("web")
        await estate.override("web", "third")
        await mortal.killed_until(only_one_is_left)
        digest = await estate.whole("web")

        await calm.want("web")
        await calm.override("web", "third")
        await calm.open()
        await calm.until(lambda: calm.published("web"))
        undisturbed = await calm.whole("web")
        orphans, repeated = await estate.orphans(), estate.repeated(mortal.lost)
        row = told(
            estate.row(
                "killed at every step", wrong=(digest != undisturbed) + len(orphans) + len(repeated), note=mortal.note
            )
        )
        assert row.sound, (orphans, repeated, estate.crowded)
        assert digest == (await estate.status("web"))["image"].partition("@")[2]
        assert former not in ("", digest)
        assert estate.jobs_of("web") == ["amd64", "arm64", "arm64", "arm64"]
        assert all(len(uids) == 1 for uids in estate.made.values())
    steps = set(mortal.killed_at)
    assert {"POST imagebuildruns", "POST configmaps", "POST jobs", "PATCH jobs", "DELETE jobs"} <= steps, steps
    assert {"PATCH imagebuildruns/status", "PATCH imagebuilds/status", "PATCH configmaps"} <= steps, steps
    assert {"PUT manifests by digest", "PUT manifests", "DELETE imagebuildruns"} <= steps, steps


@pytest.mark.req("BD-394")
async def test_jobs_deleted_tampered_with_refused_and_lying(build_faults, told):
    """All under one builder; what is done to Jobs is done while their pods wait for a node."""
    async with (
        build_faults.estate() as estate,
        build_faults.estate() as crowded,
        build_faults.builder(estate.namespace, "patient") as builder,
    ):
        await builder.start()
        await estate.want("deleted")
        await estate.want("unlabelled")
        await estate.want("ownerless")
        await estate.want("nodeless", mishap={"amd64": "seconds=5"})
        await estate.want("liar", mishap={"amd64": "architecture=s390x", "arm64": "layout"}, retries=0)
        async with asyncio.TaskGroup() as group:
            group.create_task(refused(crowded))
            for tamper in (delete_a_job, take_a_label_off, take_an_owner_away):
                group.create_task(tamper(estate))
        await estate.open()
        async with asyncio.TaskGroup() as group:
            for outcome in (resumed, gone_on, lost_pods, lying):
                group.create_task(outcome(estate))
        crowd = estate.crowded | crowded.crowded
        note = f"{len(estate.made) + len(crowded.made)} keys, one live Job each"
        assert told(estate.row("Jobs deleted, tampered with, refused, lying", wrong=len(crowd), note=note)).sound


async def delete_a_job(estate: Estate) -> None:
    await estate.reached("deleted", "WaitingForNode", "WaitingForNode")
    await estate.client.delete(JOBS, await estate.job("deleted", "arm64"), namespace=estate.namespace)


async def resumed(estate: Estate) -> None:
    """The Run is Interrupted and held; a new token builds what is missing, and nothing else again."""
    await estate.reached("deleted", "Built", "Interrupted")
    assert await estate.whole("deleted") == ""
    await estate.patch(names.IMAGE_BUILDS, "deleted", {"spec": {"rebuild": {"token": "again"}}})
    await estate.until(lambda: estate.published("deleted"))
    assert estate.jobs_of("deleted") == ["amd64", "arm64", "arm64"]


async def take_a_label_off(estate: Estate) -> None:
    """It is put back."""
    await estate.reached("unlabelled", "WaitingForNode", "WaitingForNode")
    name = await estate.job("unlabelled", "amd64")
    await estate.patch(JOBS, name, {"metadata": {"labels": {names.RUN_LABEL: None}}})

    async def has_it_again() -> bool:
        found = await estate.client.get(JOBS, name, namespace=estate.namespace)
        return names.RUN_LABEL in found["metadata"]["labels"]

    await estate.until(has_it_again)


async def take_an_owner_away(estate: Estate) -> None:
    await estate.reached("ownerless", "WaitingForNode", "WaitingForNode")
    change = {"metadata": {"ownerReferences": None}}
    await estate.patch(JOBS, await estate.job("ownerless", "amd64"), change)


async def gone_on(estate: Estate) -> None:
    """A Job without its label, or without its owner, is nobody else's."""
    for name in ("unlabelled", "ownerless"):
        await estate.until(lambda name=name: estate.published(name))
        assert estate.jobs_of(name) == ["amd64", "arm64"]


async def lost_pods(estate: Estate) -> None:
    """Pods that go, as with their node, interrupt nothing; another one of the same Job builds."""

    async def has_a_node() -> bool:
        found = (await estate.runs("nodeless"))[-1]["status"]["architectures"][0]
        return bool(found.get("node"))

    await estate.until(has_a_node)
    for pod in await estate.pods(await estate.job("nodeless", "amd64")):
        await estate.client.delete(PODS, pod, namespace=estate.namespace)
    await estate.until(lambda: estate.published("nodeless"))
    assert estate.jobs_of("nodeless") == ["amd64", "arm64"]


async def lying(estate: Estate) -> None:
    """An image of another architecture and a layout without a blob are never published."""
    await estate.reached("liar", "Failed", "Failed")
    status = (await estate.runs("liar"))[-1]["status"]
    assert [each["reason"] for each in status["architectures"]] == ["ArchitectureMismatch", "LayoutInvalid"]
    assert await estate.whole("liar") == ""


async def refused(estate: Estate) -> None:
    """The quota's words are told, and when there is room the Jobs are made."""
    metadata = {"name": "jobs", "namespace": estate.namespace}
    spec = {"hard": {"count/jobs.batch": "0"}}
    document = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": metadata, "spec": spec}
    await estate.client.create(QUOTAS, document, namespace=estate.namespace)

    async def is_enforced() -> bool:
        found = await estate.client.get(QUOTAS, "jobs", namespace=estate.namespace)
        return "hard" in (found.get("status") or {})

    await estate.until(is_enforced)
    await estate.open()
    await estate.want("refused")
    await estate.reached("refused", "Pending", "Pending")
    (run,) = await estate.runs("refused")
    for each in run["status"]["architectures"]:
        assert each["reason"] == "JobRefused"
        assert "exceeded quota" in each["message"]
    await estate.client.delete(QUOTAS, "jobs", namespace=estate.namespace)
    await estate.until(lambda: estate.published("refused"))
    assert estate.jobs_of("refused") == ["amd64", "arm64"]


@pytest.mark.req("BD-002", "BD-137")
async def test_a_leader_that_stands_still_is_replaced_and_writes_nothing_afterwards(build_faults, told):
    """It is stopped in mid-plan, and when it goes on has the rest of that plan in hand. Its Lease is deleted,
    so the second replica need not wait until it has expired."""
    async with (
        build_faults.estate() as estate,
        build_faults.builder(estate.namespace, "first") as first,
        build_faults.builder(estate.namespace, "second") as second,
    ):
        reached = asyncio.Event()

        def a_job(seen: Seen) -> bool:
            if is_write(seen) and step(seen) == "POST jobs" and not reached.is_set():
                first.stop()
                reached.set()
                return True
            return False

        first.proxy.inject(a_job, Delay(0.0))
        await estate.open()
        await first.start()
        await estate.want("web")
        async with asyncio.timeout(PASS_SECONDS):
            await reached.wait()
        stopped_at = time.monotonic()
        await estate.client.delete(LEASES, names.LEASE, namespace=estate.namespace)
        await second.start()
        await estate.until(lambda: estate.published("web"))
        await asyncio.sleep(max(0.0, stopped_at + RENEW_DEADLINE - time.monotonic()))
        before = len(first.proxy.seen)
        first.go_on()

        async def has_noticed() -> bool:
            return "lease lost" in first.log.read_text()

        await estate.until(has_noticed)
        late = [step(each) for each in first.proxy.seen[before:] if is_write(each)]
        row = told(estate.row("two replicas, the leader stops for a while", wrong=len(late)))
        assert row.sound, late
        assert estate.jobs_of("web") == ["amd64", "arm64"]
        assert len(await estate.runs("web")) == 1


LATE = (
    *("POST imagebuildruns", "POST jobs", "DELETE jobs", "DELETE imagebuildruns"),
    *("PATCH configmaps", "PATCH imagebuildruns/status", "PATCH imagebuilds/status"),
    *("PUT manifests by digest", "PUT manifests", "PUT tag"),
)


@pytest.mark.req("BD-002", "BD-195", "BD-196")
@pytest.mark.parametrize("late", LATE)
async def test_a_write_that_arrives_after_the_lease_was_lost(build_faults, told, late):
    """It is held until a second builder has built what was asked for meanwhile, another text; what is there then
    stays: image, tag, Runs and Jobs."""
    async with (
        build_faults.estate() as estate,
        build_faults.builder(estate.namespace, "first") as first,
        build_faults.builder(estate.namespace, "second") as second,
    ):
        reached, arrives = asyncio.Event(), asyncio.Event()

        def is_late(seen: Seen) -> bool:
            what = "PUT tag" if seen.path.endswith("/manifests/latest") else step(seen)
            if not is_write(seen) or what != late or reached.is_set():
                return False
            first.stop()
            reached.set()
            return True

        for proxy in (first.proxy, estate.registry):
            proxy.inject(is_late, Hold(arrives))
        waits = late == "DELETE jobs"
        await estate.open(None if waits else "open")
        await first.start()
        await estate.want("web", history={"successful": 1, "failed": 0, "images": "Keep"})
        if waits:
            await estate.reached("web", "WaitingForNode", "WaitingForNode")
        elif late == "DELETE imagebuildruns":
            await estate.until(lambda: estate.published("web"))
        if late.startswith("DELETE"):
            await estate.override("web", "second")
        async with asyncio.timeout(PASS_SECONDS):
            await reached.wait()
        stopped_at = time.monotonic()
        await estate.client.delete(LEASES, names.LEASE, namespace=estate.namespace)
        await estate.override("web", "third")
        await estate.open()
        await second.start()
        await estate.until(lambda: estate.published("web"))
        image = (await estate.status("web"))["image"]
        known = {each["metadata"]["uid"] for each in await estate.runs("web")}
        before, wrong = estate.jobs_of("web"), list[str]()
        arrives.set()
        arrived_at = time.monotonic()

        async def is_as_before() -> bool:
            wrong.clear()
            if await estate.whole("web") != image.partition("@")[2]:
                wrong.append("the tag names another image")
            if (status := await estate.status("web")).get("image") != image or status.get("activeRun"):
                wrong.append(f"status {status}")
            for run in await estate.runs("web"):
                if run["metadata"]["uid"] not in known and run.get("status", {}).get("phase") != "Superseded":
                    wrong.append(f"Run {run['metadata']['name']} {run.get('status')}")
            wrong.extend(await estate.orphans())
            return not wrong

        await asyncio.sleep(1)
        with contextlib.suppress(AssertionError):
            await until(is_as_before, seconds=SETTLED)
        seconds = time.monotonic() - arrived_at
        await asyncio.sleep(max(0.0, stopped_at + RENEW_DEADLINE - time.monotonic()))
        first.go_on()

        async def has_noticed() -> bool:
            return "lease lost" in first.log.read_text()

        await estate.until(has_noticed)
        await asyncio.sleep(1)
        await is_as_before()
        note = f"{len(estate.jobs_of('web')) - len(before)} Jobs more, as before {seconds:.0f} s later"
        row = told(estate.row(f"{late} arrives after another leads", wrong=len(wrong), note=note))
        assert row.sound, (wrong, estate.crowded)
