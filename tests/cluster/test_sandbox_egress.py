"""The API server reaches Services and pods of the sandbox, and nothing else.

The servers of these tests listen where a pod's process would: on the loopback address of a pod's address.
"""

import asyncio
import contextlib
import datetime as dt
import secrets
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest
from aiohttp import web

from polyarch.kube import config, schema, x509
from polyarch.kube.client import Client
from polyarch.kube.errors import ApiError
from polyarch.kube.patches import MergePatch
from polyarch.kube.resources import (
    CONFIGMAPS,
    CRDS,
    ENDPOINT_SLICES,
    NAMESPACES,
    PODS,
    SERVICES,
    VALIDATING_WEBHOOKS,
    Resource,
)
from polyarch.kube.server import HttpServer
from polyarch.kube.x509 import IssuedCertificate, Purpose, Subject
from polyarch.sandbox import processes
from polyarch.sandbox.cluster import Sandbox, opened
from polyarch.sandbox.network import loopback_of, pod_address
from polyarch.sandbox.state import Settings

PORT = 9443
SECONDS = 30
Document = dict[str, Any]
Answer = Callable[[Document], Document]


class Hook:
    """A webhook at a pod's address; it closes every connection after one answer, so that the next one is a new one."""

    def __init__(self, address: str, answer: Answer) -> None:
        self.address = address
        self.seen = 0
        self._answer = answer

    async def serve(self, request: web.BaseRequest) -> web.Response:
        review = msgspec.json.decode(await request.read())
        self.seen += 1
        response = {"uid": review["request"]["uid"], **self._answer(review["request"])}
        review = {"apiVersion": review["apiVersion"], "kind": review["kind"], "response": response}
        answer = web.Response(body=msgspec.json.encode(review), content_type="application/json")
        answer.force_close()
        return answer


@pytest.fixture
def new_address(sandbox: Sandbox) -> Callable[[], str]:
    """Addresses of pods, from the end of the range, where the sandbox's own pods do not come."""
    numbers = iter(secrets.SystemRandom().sample(range(50_000, 62_500), 10))
    return lambda: pod_address(next(numbers), network=sandbox.state.pod_network)


@pytest.fixture
def authority() -> IssuedCertificate:
    return x509.make_authority("tests", now=dt.datetime.now(dt.UTC), lifetime=dt.timedelta(days=1))


@contextlib.asynccontextmanager
async def hook(
    address: str, answer: Answer, *, authority: IssuedCertificate, service: str, folder: Path
) -> AsyncIterator[Hook]:
    now = dt.datetime.now(dt.UTC)
    pair = x509.issue(
        authority, Subject("hook"), now=now, lifetime=dt.timedelta(days=1), purposes=[Purpose.SERVER], names=[service]
    )
    certificate = folder / f"{address}.pem"
    certificate.write_bytes(pair.certificate_pem + pair.key_pem)
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(certificate)
    served = Hook(address, answer)
    async with HttpServer(served.serve, host=loopback_of(address), port=PORT, tls=tls):
        yield served


async def offer(client: Client, namespace: str, endpoints: Mapping[str, bool], *, name: str = "hook") -> None:
    """A Service ``name`` with these endpoints; the value says whether it is ready."""
    document: Document = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name},
        "spec": {"ports": [{"port": 443, "targetPort": PORT}]},
    }
    await client.apply(SERVICES, document, namespace=namespace)
    slice_ = {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {"name": name, "labels": {"kubernetes.io/service-name": name}},
        "addressType": "IPv4",
        "endpoints": [{"addresses": [address], "conditions": {"ready": ready}} for address, ready in endpoints.items()],
        "ports": [{"name": "", "port": PORT, "protocol": "TCP"}],
    }
    await client.apply(ENDPOINT_SLICES, slice_, namespace=namespace)


@contextlib.asynccontextmanager
async def registered(client: Client, namespace: str, authority: IssuedCertificate) -> AsyncIterator[None]:
    """ConfigMaps of the namespace are validated by the Service ``hook``."""
    await client.patch(NAMESPACES, namespace, MergePatch({"metadata": {"labels": {"egress": namespace}}}))
    service = {"namespace": namespace, "name": "hook", "path": "/"}
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"], "operations": ["CREATE"]}
    webhook = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": namespace},
        "webhooks": [
            {
                "name": "egress.example.com",
                "clientConfig": {"service": service, "caBundle": x509.pem(authority.certificate)},
                "rules": [rule],
                "namespaceSelector": {"matchLabels": {"egress": namespace}},
                "admissionReviewVersions": ["v1"],
                "sideEffects": "None",
                "timeoutSeconds": 5,
            }
        ],
    }
    await client.create(VALIDATING_WEBHOOKS, webhook)
    try:
        yield
    finally:
        await client.delete(VALIDATING_WEBHOOKS, namespace)


def denied_by(name: str) -> Answer:
    return lambda _: {"allowed": False, "status": {"message": f"denied by {name}"}}


async def refusal(client: Client, namespace: str, *, but: str = "") -> str:
    """What the API server says to a new ConfigMap, once it asks the webhook and says something without ``but``."""
    async with asyncio.timeout(SECONDS):
        while True:
            name = f"probe-{secrets.token_hex(4)}"
            document = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}
            try:
                await client.create(CONFIGMAPS, document, namespace=namespace, retry=False)
            except ApiError as error:
                if not but or but not in str(error):
                    return str(error)
            await asyncio.sleep(0.05)


@pytest.mark.req("SB-012")
async def test_a_validating_webhook_by_service_reaches_its_ready_endpoints_in_turn(
    client: Client, namespace: str, new_address: Callable[[], str], authority: IssuedCertificate, tmp_path: Path
) -> None:
    first, second, unready = new_address(), new_address(), new_address()
    name = f"hook.{namespace}.svc"
    async with (
        hook(first, denied_by("one"), authority=authority, service=name, folder=tmp_path) as one,
        hook(second, denied_by("two"), authority=authority, service=name, folder=tmp_path) as two,
        hook(unready, denied_by("three"), authority=authority, service=name, folder=tmp_path) as three,
        registered(client, namespace, authority),
    ):
        await offer(client, namespace, {first: True, second: True, unready: False})
        await refusal(client, namespace, but="code 5")
        said = [await refusal(client, namespace) for _ in range(6)]
        assert sum("denied by one" in each for each in said) == 3
        assert sum("denied by two" in each for each in said) == 3
        assert three.seen == 0, "an endpoint that is not ready gets nothing"
        assert min(one.seen, two.seen) >= 3
        await offer(client, namespace, {first: False, second: False, unready: True})
        await refusal(client, namespace, but="denied by one")
        assert "denied by three" in await refusal(client, namespace, but="denied by two")


@pytest.mark.req("SB-012")
@pytest.mark.parametrize("outside", ["192.0.2.1", "10.250.0.1", "10.96.0.1"])
async def test_an_endpoint_that_is_no_pod_of_this_sandbox_is_refused(
    sandbox: Sandbox, client: Client, namespace: str, outside: str, authority: IssuedCertificate
) -> None:
    await offer(client, namespace, {outside: True})
    async with registered(client, namespace, authority):
        said = await refusal(client, namespace, but="no Service")
    assert f"endpoint {outside} of Service {namespace}/hook is not a pod of this sandbox" in said
    assert "code 403" in said
    log = (sandbox.folder.log("egress")).read_text()
    assert f"endpoint {outside} of Service {namespace}/hook" in log


@pytest.mark.req("SB-012")
async def test_conversion_by_service_reaches_the_operator(
    client: Client, namespace: str, new_address: Callable[[], str], authority: IssuedCertificate, tmp_path: Path
) -> None:
    group = f"{namespace}.example.dev"
    boats = Resource(group, "v1", "boats", "Boat")
    old = Resource(group, "v1alpha1", "boats", "Boat")

    def converted(request: Document) -> Document:
        objects = [each | {"apiVersion": request["desiredAPIVersion"]} for each in request["objects"]]
        return {"convertedObjects": objects, "result": {"status": "Success"}}

    spec = schema.obj({"name": schema.text()})
    versions = [
        schema.version("v1", "A boat.", spec, schema.obj({})),
        schema.version("v1alpha1", "A boat.", spec, schema.obj({}), storage=False),
    ]
    definition = schema.custom_resource(boats, versions)
    service = {"namespace": namespace, "name": "hook", "path": "/convert"}
    webhook = {
        "clientConfig": {"service": service, "caBundle": x509.pem(authority.certificate)},
        "conversionReviewVersions": ["v1"],
    }
    definition["spec"]["conversion"] = {"strategy": "Webhook", "webhook": webhook}
    address = new_address()
    name = f"hook.{namespace}.svc"
    async with hook(address, converted, authority=authority, service=name, folder=tmp_path) as served:
        await offer(client, namespace, {address: True})
        await client.apply(CRDS, definition)
        try:
            document = {"apiVersion": old.api_version, "kind": "Boat", "metadata": {"name": "x"}, "spec": {"name": "y"}}
            async with asyncio.timeout(SECONDS):
                while True:
                    try:
                        await client.create(old, document, namespace=namespace)
                        break
                    except ApiError:  # the API server does not serve it yet
                        await asyncio.sleep(0.1)
            found = await client.get(boats, "x", namespace=namespace)
            assert found["spec"] == {"name": "y"}
            assert served.seen >= 1
        finally:
            await client.delete(CRDS, definition["metadata"]["name"])


@pytest.fixture
async def http(sandbox: Sandbox) -> AsyncIterator[aiohttp.ClientSession]:
    """The administrator, without any client library: paths of the API server."""
    context = ssl.create_default_context(cafile=str(sandbox.ca))
    admin = sandbox.pki.client("admin")
    context.load_cert_chain(admin.certificate, admin.key)
    connector = aiohttp.TCPConnector(ssl=context)
    async with aiohttp.ClientSession(sandbox.api_server, connector=connector) as session:
        yield session


async def running_pod(client: Client, namespace: str) -> str:
    """The address of a new pod of the simulated nodes."""
    spec = {"containers": [{"name": "c", "image": "registry.k8s.io/pause:3.10"}]}
    document = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": spec}
    await client.create(PODS, document, namespace=namespace)
    async with asyncio.timeout(SECONDS):
        while True:
            status = (await client.get(PODS, "p", namespace=namespace)).get("status", {})
            if status.get("phase") == "Running":
                return str(status["podIP"])
            await asyncio.sleep(0.05)


@pytest.mark.req("SB-012")
async def test_a_pods_readiness_page_is_read_through_the_api_server(
    client: Client, namespace: str, http: aiohttp.ClientSession
) -> None:
    address = await running_pod(client, namespace)

    async def ready(_request: web.BaseRequest) -> web.Response:
        return web.Response(text="ok from the pod")

    path = f"/api/v1/namespaces/{namespace}/pods/p:8081/proxy/readyz"
    async with HttpServer(ready, host=loopback_of(address), port=8081), http.get(path) as answer:
        assert (answer.status, await answer.text()) == (200, "ok from the pod")


@pytest.mark.req("SB-012")
async def test_a_server_on_all_addresses_of_the_machine_is_not_reached_as_a_pod(
    client: Client, namespace: str, http: aiohttp.ClientSession
) -> None:
    address = await running_pod(client, namespace)
    asked = 0

    async def private(_request: web.BaseRequest) -> web.Response:
        nonlocal asked
        asked += 1
        return web.Response(text="this is not for the cluster")

    async with HttpServer(private, host="0.0.0.0") as server:
        answer = await http.get(f"/api/v1/namespaces/{namespace}/pods/p:{server.port}/proxy/")
        text = await answer.text()
    assert asked == 0
    assert answer.status >= 500
    assert f"no process of a pod listens on {address}:{server.port}" in text


@pytest.mark.req("SB-012")
async def test_the_proxy_may_read_services_and_endpoints_and_nothing_else(sandbox: Sandbox) -> None:
    async with Client(config.load(str(sandbox.folder.kubeconfig_of("egress"))), role="tests") as client:
        await client.list(SERVICES)
        await client.list(ENDPOINT_SLICES)
        with pytest.raises(ApiError, match="cannot list resource"):
            await client.list(PODS)
        with pytest.raises(ApiError, match="cannot get resource"):
            await client.get(SERVICES, "kubernetes", namespace="default")


@pytest.mark.req("SB-012")
@pytest.mark.parametrize("name", ["egress", "kube-apiserver"])
async def test_the_way_is_there_again_after_a_process_was_killed(tmp_path: Path, name: str) -> None:
    """In a folder so deep that the path of a unix socket would not fit."""
    home = tmp_path.joinpath(*["a-folder-of-a-deep-tree"] * 4)
    settings = Settings(name="restarts", polyarch=False, nodes={"amd64": 1}, seed_images=False)
    async with opened(settings, home=home) as sandbox, sandbox.client() as client:
        address = pod_address(50_000, network=sandbox.state.pod_network)
        authority = x509.make_authority("tests", now=dt.datetime.now(dt.UTC), lifetime=dt.timedelta(days=1))
        served = hook(address, denied_by("one"), authority=authority, service="hook.default.svc", folder=tmp_path)
        async with served, registered(client, "default", authority):
            await offer(client, "default", {address: True})
            assert "denied by one" in await refusal(client, "default", but="code 5")
            await processes.stop([sandbox.records()[name]], records=sandbox.folder.records, grace=0)
            if name == "egress":
                await refusal(client, "default", but="denied by one")
            await Sandbox.start(settings, home=home)
            assert "denied by one" in await refusal(client, "default", but="egress.sock")
