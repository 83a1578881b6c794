"""Leadership, events, admission, certificates and scraping against a real API server."""

import asyncio
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import aiohttp
import msgspec
import pytest
from manual_clock import ManualClock

from polyarch.kube.admission import AdmissionRequest, AdmissionResponse, Route, Webhooks
from polyarch.kube.certificate_rotation import PROPAGATION, SelfManaged, SelfManagedSettings
from polyarch.kube.certificates import SecretCertificates
from polyarch.kube.client import Client
from polyarch.kube.errors import ApiError
from polyarch.kube.events import Recorder, Regarding
from polyarch.kube.lease import LeaderElection, Lease
from polyarch.kube.metrics import Metrics
from polyarch.kube.patches import add
from polyarch.kube.resources import (
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    EVENTS,
    LEASES,
    MUTATING_WEBHOOKS,
    PODS,
    SECRETS,
    SERVICE_ACCOUNTS,
    Resource,
)
from polyarch.kube.server import HttpServer, MetricsPage, ScraperAuthorization
from polyarch.objects import PartialObjectMetadata

pytestmark = pytest.mark.req("KR-033", "KR-034", "KR-041")

SECONDS = 60
"""How long anything may take before the test fails; nothing is asserted about how quick it was."""


async def eventually(check: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(SECONDS):
        while not await check():
            await asyncio.sleep(0.1)


@asynccontextmanager
async def in_background(*coroutines: Any) -> AsyncIterator[list[asyncio.Task[None]]]:
    tasks = [asyncio.create_task(coroutine) for coroutine in coroutines]
    try:
        yield tasks
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@pytest.mark.req("KR-030")
async def test_the_lease_passes_from_one_replica_to_the_next(client: Client, namespace: str) -> None:
    first, second = (
        LeaderElection(
            client, namespace=namespace, name="l", identity=name, duration=6, renew_deadline=4, retry_period=0.2
        )
        for name in "ab"
    )

    async def renewals() -> str | None:
        lease = await client.get(LEASES, "l", namespace=namespace, type=Lease)
        return lease.spec.renew_time if lease.spec else None

    async with in_background(first.run()) as (leading,):
        await eventually(lambda: asyncio.sleep(0, first.is_leader))
        before = await renewals()
        async with in_background(second.run()):
            await eventually(lambda: _differs(renewals, before))
            assert first.is_leader
            assert not second.is_leader
            leading.cancel()
            await eventually(lambda: asyncio.sleep(0, second.is_leader))
            lease = await client.get(LEASES, "l", namespace=namespace, type=Lease)
            assert lease.spec is not None
            assert lease.spec.holder_identity == "b"
            assert lease.spec.lease_transitions == 1
            assert not first.is_leader
    lease = await client.get(LEASES, "l", namespace=namespace, type=Lease)
    assert lease.spec is not None
    assert not lease.spec.holder_identity, "given back"


async def _differs(read: Callable[[], Awaitable[str | None]], before: str | None) -> bool:
    return await read() != before


@pytest.mark.req("KR-031")
async def test_the_api_server_takes_events_and_their_series(client: Client, namespace: str) -> None:
    recorder = Recorder(client, controller="polyarch.dev/tests", instance="tests-0")

    def report(regarding: Regarding, note: str) -> None:
        recorder.event(regarding, type="Warning", reason="PolyarchPodHeld", note=note, action="Place", related=node)

    async def posted() -> list[dict[str, Any]]:
        return (await client.list(EVENTS, namespace=namespace)).items

    async def is_posted() -> bool:
        return bool(await posted())

    node = Regarding("v1", "Node", "", "amd64-0")
    pod = Regarding("v1", "Pod", namespace, "web-1", "0f1c6e5a-0000-4000-8000-000000000000")
    async with in_background(recorder.run()):
        report(pod, "held because quay.io does not answer")
        await eventually(is_posted)
        report(pod, "held because quay.io does not answer")
        report(Regarding("rbac.authorization.k8s.io/v1", "ClusterRole", "", "system:node"), "ü" * 2000)
        await recorder.close(SECONDS)
    assert recorder.dropped == 0
    (event,) = await posted()
    assert event["series"]["count"] == 2
    assert event["regarding"]["name"] == "web-1"
    assert event["related"]["kind"] == "Node"


class Labelled(msgspec.Struct, frozen=True):
    """A pod as the webhook of this test reads it; ``nodeName`` has a type that no pod has."""

    metadata: PartialObjectMetadata | None = None


class Odd(msgspec.Struct, frozen=True):
    spec: int


async def label(request: AdmissionRequest[Labelled]) -> AdmissionResponse:
    return AdmissionResponse(
        patch=(add("/metadata/labels", {"admitted": "yes"}),),
        warnings=("hello from\nthe webhook",),
        audit_annotations={"decision": "labelled"},
    )


def configuration(name: str, namespace: str, url: str) -> dict[str, Any]:
    """A webhook without which no pod can be created in the namespace: any failure shows."""
    webhook = {
        "name": "pods.polyarch.dev",
        "clientConfig": {"url": url},
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "operations": ["CREATE"]}],
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "failurePolicy": "Fail",
        "timeoutSeconds": 5,
    }
    return {
        "apiVersion": MUTATING_WEBHOOKS.api_version,
        "kind": MUTATING_WEBHOOKS.kind,
        "metadata": {"name": name},
        "webhooks": [webhook],
    }


def pod() -> dict[str, Any]:
    containers = [{"name": "app", "image": "registry.example/app:1"}]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"generateName": "web-"}, "spec": {"containers": containers}}


@asynccontextmanager
async def created(client: Client, resource: Resource, document: dict[str, Any]) -> AsyncIterator[None]:
    await client.create(resource, document)
    try:
        yield
    finally:
        await client.delete(resource, document["metadata"]["name"])


@pytest.mark.req("KR-032", "PL-103")
@pytest.mark.parametrize(
    ("read_as", "labels"),
    [
        pytest.param(Labelled, {"admitted": "yes"}, id="a review is answered with a patch"),
        pytest.param(Odd, None, id="an object that is not understood is admitted unchanged"),
    ],
)
async def test_pods_are_admitted_with_self_managed_certificates_also_while_they_rotate(
    client: Client, namespace: str, read_as: type, labels: dict[str, str] | None
) -> None:
    name = f"polyarch-test-{secrets.token_hex(4)}"
    clock = ManualClock(now=datetime.now(UTC))
    managed = SelfManaged(
        client,
        SelfManagedSettings(namespace=namespace, secret="certs", names=("127.0.0.1",), mutating_webhooks=(name,)),
        clock=clock,
    )
    certificates = SecretCertificates(client, namespace, "certs")
    route: Route[Any] = Route(path="/pods", name="test", type=read_as, handler=label, on_error="allow", resource=PODS)
    server = HttpServer(Webhooks([route]).serve, tls=certificates.context)
    await server.start()

    async def admitted() -> bool:
        try:
            stored = await client.create(PODS, pod(), namespace=namespace, dry_run=True)
        except ApiError:
            return False
        return stored.metadata.labels == labels

    async def refused() -> bool:
        try:
            await client.create(PODS, pod(), namespace=namespace, dry_run=True)
        except ApiError as error:
            return "pods.polyarch.dev" in str(error)
        return False

    try:
        async with created(client, MUTATING_WEBHOOKS, configuration(name, namespace, f"{server.url}/pods")):
            await eventually(refused)  # the API server knows the webhook, which has no certificate yet
            await managed.reconcile(managed.key)
            await certificates.load()
            await eventually(admitted)

            for lost in ("certs", "polyarch-ca"):
                await client.delete(SECRETS, lost, namespace=namespace)
            await managed.reconcile(managed.key)
            for _ in range(5):
                assert await admitted(), "the replica still serves the certificate that is lost"
            clock.advance(PROPAGATION)  # the API server of this test learns of the new CA much sooner
            await managed.reconcile(managed.key)
            assert await certificates.load()
            await eventually(admitted)
            for _ in range(5):
                assert await admitted()
    finally:
        await server.stop()


@pytest.mark.req("PL-703")
async def test_metrics_are_for_service_accounts_that_may_read_them(client: Client, namespace: str) -> None:
    await client.create(
        SERVICE_ACCOUNTS,
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "prometheus"}},
        namespace=namespace,
    )
    name = f"polyarch-test-{secrets.token_hex(4)}"
    group = "rbac.authorization.k8s.io"
    role = {"nonResourceURLs": ["/metrics"], "verbs": ["get"]}
    subject = {"kind": "ServiceAccount", "name": "prometheus", "namespace": namespace}
    metadata = {"metadata": {"name": name}, "apiVersion": f"{group}/v1"}
    binding = {"roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": name}, "subjects": [subject]}
    server = HttpServer(MetricsPage(Metrics(), authorization=ScraperAuthorization(client, keep=0)).serve)
    await server.start()

    async def status(token: str) -> int:
        headers = {"Authorization": f"Bearer {token}"}
        async with aiohttp.ClientSession(server.url) as session, session.get("/metrics", headers=headers) as response:
            return response.status

    async with (
        created(client, CLUSTER_ROLES, {**metadata, "kind": "ClusterRole", "rules": [role]}),
        created(client, CLUSTER_ROLE_BINDINGS, {**metadata, "kind": "ClusterRoleBinding", **binding}),
    ):
        token = (await client.token(namespace, "prometheus")).token

        async def allowed() -> bool:
            return await status(token) == 200

        await eventually(allowed)
        assert await status((await client.token(namespace, "default")).token) == 403
        assert await status("made-up") == 401
    await server.stop()
