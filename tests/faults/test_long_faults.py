"""Faults that last: half a minute without a registry, a missing image, a minute of another webhook's refusals.

Nothing here is shortened; the scenarios run side by side on hosts and pods of their own. One registry is away at a
time, so the attempts that fail for passing reasons are those for its images.
"""

import asyncio
import base64
import contextlib
import datetime as dt
import ssl
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
import pytest_asyncio
from aiohttp import web
from fault_proxy import FaultProxy
from fault_scenarios import side_by_side
from fault_table import Row
from placement_cluster import decision

from polyarch.kube.client import Client
from polyarch.kube.errors import NotFound
from polyarch.kube.resources import EVENTS, VALIDATING_WEBHOOKS

pytestmark = pytest.mark.req("PL-811")

AWAY = 30.0
REFUSED = 60.0
TRANSIENT = 'polyarch_placement_attempts_total{class="transient"}'


async def registry_away(faults) -> Row:
    """Pods before, during and after; connections are refused for 30 s."""
    host: FaultProxy = faults.hosts["away"]
    images = await faults.seed("away", 5)
    controllers = faults.fleet.controllers
    before = [await each.metric(TRANSIENT) for each in controllers]
    async with faults.crowd(writes=2) as crowd:
        async with host.refusing():
            await crowd.create(images, 40)
            await asyncio.sleep(AWAY / 2)
            await crowd.create(images, 10)
            await asyncio.sleep(AWAY / 2)
        back = asyncio.get_running_loop().time()
        await crowd.released(seconds=90)
        after = max(crowd.released_at.values(), default=back) - back
        made = [await each.metric(TRANSIENT) - known for each, known in zip(controllers, before, strict=True)]
        attempts = round(max(made) / len(images), 2)
        note = f"the last was released {after:.1f} s after it was back"
        row = await crowd.row("registry: refuses connections for 30 s", registry=[host], attempts=attempts, note=note)
        assert after <= 30, note
        return row


async def missing_image(faults) -> Row:
    """200 pods of an image that does not exist, with the webhook's budget and all."""
    host: FaultProxy = faults.hosts["missing"]
    async with faults.crowd("", writes=2) as crowd:
        began = time.monotonic()
        await crowd.create({"missing.faults.test/nothing/here:1": None}, 200)
        await crowd.released(seconds=120)
        seconds = time.monotonic() - began
        reasons = Counter(decision(each)["reason"] for each in (await crowd.pods()).values())
        note = f"all released by policy after {seconds:.0f} s"
        row = await crowd.row("image that does not exist", registry=[host], note=note)
        assert reasons == {"ReleasedUnconstrained": 200}
        return row


@contextlib.asynccontextmanager
async def refusing_webhook(faults, namespace: str, refused: Counter[str]) -> AsyncIterator[None]:
    """A validating webhook of somebody else's that denies every change of a pod in the namespace."""

    async def deny(request: web.Request) -> web.Response:
        review = await request.json()
        refused[review["request"]["name"]] += 1
        answer = {"uid": review["request"]["uid"], "allowed": False, "status": {"message": "not on a Friday"}}
        return web.json_response({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": answer})

    application = web.Application()
    application.router.add_post("/deny", deny)
    runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    pki = faults.sandbox.pki
    pair = pki.serving("other-webhook", pki.folder, dt.datetime.now(dt.UTC))
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(pair.certificate, pair.key)
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context)
    await site.start()
    assert isinstance(site._server, asyncio.Server)
    port = site._server.sockets[0].getsockname()[1]
    name = "other.faults.test"
    webhook = {
        "name": name,
        "clientConfig": {
            "url": f"https://127.0.0.1:{port}/deny",
            "caBundle": base64.b64encode(faults.sandbox.ca.read_bytes()).decode(),
        },
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": ["pods"]}],
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
        "failurePolicy": "Fail",
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    }
    client: Client = faults.client
    document = {
        "apiVersion": VALIDATING_WEBHOOKS.api_version,
        "kind": VALIDATING_WEBHOOKS.kind,
        "metadata": {"name": name},
        "webhooks": [webhook],
    }
    try:
        await client.create(VALIDATING_WEBHOOKS, document)
        await asyncio.sleep(1.5)  # until the API server asks it
        yield
    finally:
        with contextlib.suppress(NotFound):
            await client.delete(VALIDATING_WEBHOOKS, name)
        await asyncio.sleep(1.5)  # until the API server asks it no more
        await runner.cleanup()


async def other_webhook(faults) -> Row:
    """For a minute the API server refuses every PATCH, for reasons that are not ours."""
    images = await faults.seed("steady", 4)
    refused: Counter[str] = Counter()
    async with faults.crowd() as crowd:
        async with refusing_webhook(faults, crowd.namespace, refused):
            await crowd.create(images, 20)
            await asyncio.sleep(REFUSED)
        await crowd.released(seconds=90)
        events = (await crowd.client.list(EVENTS, namespace=crowd.namespace)).items
        told = Counter(
            each["regarding"]["name"] for each in events if each["reason"] == "ArchAwareSchedGateRemovalFailed"
        )
        widest = max(refused.values(), default=0)
        note = f"at most {widest} refused for one pod, {max(told.values(), default=0)} Warning each"
        row = await crowd.row("another webhook refuses our PATCH for 60 s", note=note)
        assert set(told) == set(crowd.expected), "each pod is told why it is still gated"
        assert set(told.values()) == {1}
        assert widest <= 2 * 8, "backoff from 1 s to 60 s in leader and standby"
        return row


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def under_way(standing):
    async with side_by_side(standing, (registry_away, missing_image, other_webhook)) as tasks:
        yield tasks


@pytest.fixture
def come_to(under_way, told) -> Callable[[str], Awaitable[Row]]:
    async def result(name: str) -> Row:
        row = told(await under_way[name])
        assert row.sound, row
        assert row.released == row.pods
        return row

    return result


@pytest.mark.req("PL-335", "PL-900 row 3")
async def test_half_a_minute_without_a_registry(come_to):
    row = await come_to("registry_away")
    assert row.attempts is not None
    assert row.attempts <= 12, "for each image and process"


@pytest.mark.req("PL-330", "PL-335")
async def test_an_image_that_does_not_exist(come_to):
    row = await come_to("missing_image")
    assert row.registry_requests <= 10
    assert 29 <= int(row.note.split()[-2]) <= 60, "30 to 40 s on a machine with time to spare"


@pytest.mark.req("PL-305")
async def test_another_webhook_refuses_our_patch(come_to):
    await come_to("other_webhook")
