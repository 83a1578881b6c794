"""An operator that dies at every step, that is fought, and that meets an older API server."""

import asyncio
import base64
import datetime as dt
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from cryptography import x509
from fault_crowd import POLICY, crowd_in, seed
from fault_mortal import Mortal
from fault_operator import mortal_operator
from fault_proxy import WITHOUT_WATCH_LIST, Answer, Hold, Seen, as_of_1_30
from operator_world import OperatorWorld, eventually
from placement_cluster import labels, pod

from polyarch.kube.patches import JsonPatch, MergePatch, add
from polyarch.kube.resources import MUTATING_WEBHOOKS, PODS, SECRETS
from polyarch.kube.x509 import Purpose, Subject, issue, make_authority
from polyarch.placement import names
from polyarch.placement.api import CPPCS, POLICIES

pytestmark = pytest.mark.req("PL-500", "PL-501", "PL-502", "PL-503", "PL-520", "PL-521")

VERSION_1_30 = Answer(
    200, b'{"major": "1", "minor": "30", "gitVersion": "v1.30.0"}', [("Content-Type", "application/json")]
)


VERSION_1_29 = Answer(
    200, b'{"major": "1", "minor": "29+", "gitVersion": "v1.29.9"}', [("Content-Type", "application/json")]
)


@pytest_asyncio.fixture(loop_scope="session")
async def world(installed, tmp_path: Path) -> AsyncIterator[OperatorWorld]:
    """Without the installation that tests before this file may have left, whose webhooks nobody would answer."""
    await installed.remove(force=True)
    async with OperatorWorld.opened(installed.sandbox, tmp_path) as world:
        metadata = {"name": names.SINGLETON}
        policy = {"apiVersion": POLICIES.api_version, "kind": POLICIES.kind, "metadata": metadata, "spec": POLICY}
        await world.client.apply(POLICIES, policy)
        yield world


@pytest_asyncio.fixture(loop_scope="session")
async def mortal(world: OperatorWorld) -> AsyncIterator[Mortal]:
    async with mortal_operator(world) as mortal:
        yield mortal
        assert not mortal.bugs()


def applies_the_webhook(seen: Seen) -> bool:
    return seen.method == "PATCH" and "mutatingwebhookconfigurations" in seen.path


async def until_asked(world: OperatorWorld) -> None:
    async def is_asked() -> bool:
        document = pod("quay.io/no:1", name="probe")
        seen = await world.client.create(PODS, document, namespace="default", type=dict, dry_run=True)
        return names.SCHEDULING_GATE_LABEL in labels(seen)

    await eventually(is_asked)


@pytest.mark.req("PL-522")
async def test_killed_at_every_step_of_install_and_uninstall(world, mortal, told):
    """At each step once after the API server carried the write out, and once before it saw it."""
    images = await seed(world.sandbox, "quay.io", 4)
    await world.create(CPPCS, names.SINGLETON, {})

    async def is_available() -> bool:
        conditions = (await world.configuration()).get("status", {}).get("conditions", ())
        return any((each["type"], each["status"]) == ("Available", "True") for each in conditions)

    await mortal.killed_until(is_available)
    installed_at, installing = set(mortal.killed_at), mortal.note
    await until_asked(world)
    async with crowd_in(world.client, world.sandbox.audit_log) as placed:
        await placed.create(images, 40)
        await placed.released(seconds=60)
        row = told(await placed.row("operator killed at every step of an install", note=installing))
    assert row.sound, row
    assert row.missed == 0
    assert {"PATCH deployments", "PATCH clusterroles", "POST secrets"} <= installed_at

    async with crowd_in(world.client, world.sandbox.audit_log, "hold") as held:
        await held.create({"quay.io/none-such/app:1": None}, 20)
        await mortal.kill()
        mortal.killed_at.clear()
        await world.client.delete(CPPCS, names.SINGLETON)

        async def is_removed() -> bool:
            return await world.is_gone(CPPCS, names.SINGLETON) and not await world.left()

        await mortal.killed_until(is_removed)
        await held.released(seconds=10)
        left = await world.left()
        removing = f"{mortal.note}; left: {', '.join(left) or 'nothing'}"
        row = told(await held.row("operator killed at every step of an uninstall", note=removing))
    assert not left
    assert row.sound, row
    assert {"DELETE mutatingwebhookconfigurations", "DELETE deployments"} <= set(mortal.killed_at)


@pytest.mark.req("PL-504", "PL-522")
async def test_made_and_deleted_within_a_second_and_an_api_server_as_of_1_30(world, mortal, told):
    """The operator meets an API server that does not stream lists, and a ClusterPodPlacementConfig that comes and goes
    before and while it acts."""
    mortal.proxy.inject(as_of_1_30, WITHOUT_WATCH_LIST)
    mortal.proxy.inject(lambda seen: seen.path == "/version", VERSION_1_30)
    await mortal.start()
    images = await seed(world.sandbox, "quay.io", 4)
    for pause in (0.0, 0.3, 0.9):
        await world.create(CPPCS, names.SINGLETON, {})
        await asyncio.sleep(pause)
        await world.client.delete(CPPCS, names.SINGLETON, propagation="Foreground" if pause else "Background")
        await eventually(lambda: world.is_gone(CPPCS, names.SINGLETON))

    async def nothing_is_left() -> bool:
        return not await world.left()

    await eventually(nothing_is_left)
    await world.create(CPPCS, names.SINGLETON, {})
    await until_asked(world)
    async with crowd_in(world.client, world.sandbox.audit_log) as crowd:
        await crowd.create(images, 20)
        await crowd.released(seconds=60)
        await world.client.delete(CPPCS, names.SINGLETON)
        await eventually(lambda: world.is_gone(CPPCS, names.SINGLETON))
        await eventually(nothing_is_left)
        streamed = mortal.proxy.count(as_of_1_30)
        row = told(
            await crowd.row(
                "made and deleted within a second; API server as of 1.30",
                note=f"{streamed} streamed lists refused; left: nothing",
            )
        )
    assert row.sound, row
    assert not row.missed
    assert streamed


@pytest.mark.req("PL-504")
async def test_on_an_older_kubernetes_nothing_is_deployed_and_degraded_says_which_it_needs(world, mortal):
    mortal.proxy.inject(lambda seen: seen.path == "/version", VERSION_1_29)
    await mortal.start()
    await world.create(CPPCS, names.SINGLETON, {})

    async def said() -> str:
        message = str((await world.condition("Degraded", "True"))["message"])
        return message if "Kubernetes" in message else ""

    message = await eventually(said)
    assert "1.29" in message
    assert "1.30" in message
    await asyncio.sleep(6)  # another pass
    assert await world.left() == []
    await world.client.delete(CPPCS, names.SINGLETON)
    await eventually(lambda: world.is_gone(CPPCS, names.SINGLETON))


@pytest.mark.req("PL-540", "KR-033")
async def test_certificates_that_expired_while_everything_was_off(world, mortal, told):
    """CA and leaf. The operator is started, the webhook was never stopped: pods are placed within seconds."""
    images = await seed(world.sandbox, "quay.io", 2)
    await world.create(CPPCS, names.SINGLETON, {})
    await mortal.start()
    await until_asked(world)
    await mortal.kill()
    leaf = x509.load_pem_x509_certificate((await world.secret(names.CERTIFICATES_SECRET))["tls.crt"])
    hosts = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value.get_values_for_type(x509.DNSName)
    then = dt.datetime.now(dt.UTC) - dt.timedelta(days=400)
    life = dt.timedelta(days=300)
    old = make_authority(f"polyarch CA of {world.namespace}"[:64], now=then, lifetime=life)
    expired = issue(old, Subject("polyarch"), now=then, lifetime=life, purposes=[Purpose.SERVER], names=hosts)
    for secret, entries in (
        (names.AUTHORITY_SECRET, {"ca.crt": old.certificate_pem, "ca.key": old.key_pem}),
        (names.CERTIFICATES_SECRET, {"tls.crt": expired.certificate_pem, "tls.key": expired.key_pem}),
    ):
        data = {entry: base64.b64encode(content).decode() for entry, content in entries.items()}
        await world.client.patch(SECRETS, secret, MergePatch({"data": data}), namespace=world.namespace)
    webhooks = (await world.client.get(MUTATING_WEBHOOKS, names.WEBHOOK_CONFIGURATION))["webhooks"]
    bundle = base64.b64encode(old.certificate_pem).decode()
    change = JsonPatch(tuple(add(f"/webhooks/{at}/clientConfig/caBundle", bundle) for at in range(len(webhooks))))
    await world.client.patch(MUTATING_WEBHOOKS, names.WEBHOOK_CONFIGURATION, change)

    async def is_off() -> bool:
        document = pod("quay.io/no:1", name="probe")
        seen = await world.client.create(PODS, document, namespace="default", type=dict, dry_run=True)
        return names.SCHEDULING_GATE_LABEL not in labels(seen)

    await eventually(is_off)
    began = time.monotonic()
    await mortal.start()
    await until_asked(world)
    seconds = time.monotonic() - began
    async with crowd_in(world.client, world.sandbox.audit_log) as placed:
        await placed.create(images, 10)
        await placed.released(seconds=60)
        note = f"placing again {seconds:.0f} s after the operator was started"
        row = told(await placed.row("CA and certificate expired while everything was off", note=note))
    await world.client.delete(CPPCS, names.SINGLETON)
    await eventually(lambda: world.is_gone(CPPCS, names.SINGLETON))
    assert row.sound, row
    assert not row.missed
    assert seconds <= 30, note


@pytest.mark.req("PL-522", "KR-030")
async def test_a_write_that_arrives_after_another_operator_has_removed_everything(world, mortal):
    """Operator and PATCH stand still until another leads, and the object that they are about was removed by it."""
    arrive = asyncio.Event()
    late = mortal.proxy.inject(applies_the_webhook, Hold(arrive), times=1)
    await mortal.start()
    await world.create(CPPCS, names.SINGLETON, {})

    async def is_held() -> bool:
        return late.hits > 0

    async def nothing_is_left() -> bool:
        return not await world.left()

    await eventually(is_held)
    mortal.stop()
    async with mortal_operator(world) as other:
        await other.start()
        await world.client.delete(CPPCS, names.SINGLETON)
        await eventually(lambda: world.is_gone(CPPCS, names.SINGLETON))
        await eventually(nothing_is_left)
        arrive.set()
        await asyncio.sleep(1)
        mortal.go_on()
        await asyncio.sleep(5)
        await eventually(nothing_is_left, seconds=60)
        assert mortal.is_running
        assert not other.bugs()
