"""A webhook that the API server does not reach is found out, whatever lies between them, and the condition says so.

The judge is a real API server, and each cause is a real one, but for packets that are dropped: a socket whose queue is
full answers as little as a network policy lets through.
"""

import asyncio
import datetime as dt
import os
import signal
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from aiohttp import web
from operator_world import OperatorWorld, eventually

from polyarch.clock import SystemClock
from polyarch.kube import x509
from polyarch.kube.admission import AdmissionRequest, AdmissionResponse, Route, Webhooks
from polyarch.kube.client import Client
from polyarch.kube.resources import ENDPOINT_SLICES, MUTATING_WEBHOOKS, PODS, SERVICES
from polyarch.kube.server import Handler, HttpServer
from polyarch.kube.webhook_probe import NOT_KNOWN, WebhookProbe, probe_entry
from polyarch.kube.x509 import Purpose, Subject
from polyarch.placement import names
from polyarch.placement.api import CPPCS
from polyarch.sandbox.cluster import Sandbox
from polyarch.sandbox.network import loopback_of, pod_address

PORT = 9443
DAY = dt.timedelta(days=1)
WEBHOOK = "pods.example.com"


class Cause(msgspec.Struct, frozen=True):
    """How things are set up; by default as they should be."""

    service: str = "hook"
    """Its name."""
    port: int = 443
    endpoints: int = 1
    listens: bool = True
    program: str = "ours"
    """What listens."""
    name: str = ""
    """In the certificate; empty: the right one."""
    age: dt.timedelta = dt.timedelta()
    """Of the certificate, which is valid for a day."""
    trusts_another: bool = False
    registered: bool = True


CAUSES = {
    "nothing is wrong": (Cause(), ""),
    "no process at the endpoint": (Cause(listens=False), "cannot call it"),
    "no endpoint": (Cause(endpoints=0), "cannot call it"),
    "a Service of another name": (Cause(service="other"), "cannot call it"),
    "another port of the Service": (Cause(port=8443), "cannot call it"),
    "another CA": (Cause(trusts_another=True), "certificate signed by unknown authority"),
    "a certificate for another name": (Cause(name="hook.other.svc"), "certificate is valid for hook.other.svc"),
    "an expired certificate": (Cause(age=2 * DAY), "certificate has expired or is not yet valid"),
    "packets are dropped": (Cause(program="none that accepts"), "cannot call it"),
    "a process that stands still": (Cause(program="stands still"), "cannot call it"),
    "another path": (Cause(program="another path"), "cannot call it"),
    "another program, without TLS": (Cause(program="plain"), "cannot call it"),
    "another program, which allows everything": (Cause(program="allows"), "another program answers"),
    "an entry that somebody removed": (Cause(registered=False), "passes it by"),
}


async def labelled(_: AdmissionRequest[Any]) -> AdmissionResponse:
    return AdmissionResponse()


async def allows(request: web.BaseRequest) -> web.Response:
    review = msgspec.json.decode(await request.read())
    answer = {**review, "request": None, "response": {"uid": review["request"]["uid"], "allowed": True}}
    return web.Response(body=msgspec.json.encode(answer), content_type="application/json")


async def stands_still(_: web.BaseRequest) -> web.Response:
    await asyncio.sleep(3600)
    raise AssertionError


def program(name: str) -> Handler:
    route: Route[Any] = Route(path="/pods", name="t", type=Any, handler=labelled, on_error="allow", resource=PODS)
    ours = Webhooks([msgspec.structs.replace(route, path="/others") if name == "another path" else route])
    return {"allows": allows, "stands still": stands_still}.get(name, ours.serve)


@asynccontextmanager
async def listening(cause: Cause, address: str, tls: ssl.SSLContext) -> AsyncIterator[None]:
    host = loopback_of(address)
    if not cause.listens:
        yield
    elif cause.program == "none that accepts":
        with socket.create_server((host, PORT), backlog=0), socket.socket() as waiting, socket.socket() as more:
            for each in (waiting, more):
                each.setblocking(False)
                each.connect_ex((host, PORT))
            yield
    else:
        plain = cause.program == "plain"
        async with HttpServer(program(cause.program), host=host, port=PORT, tls=None if plain else tls):
            yield


def context(cause: Cause, authority: x509.IssuedCertificate, name: str, folder: Path) -> ssl.SSLContext:
    begin = dt.datetime.now(dt.UTC) - cause.age
    pair = x509.issue(
        authority, Subject("hook"), now=begin, lifetime=DAY, purposes=[Purpose.SERVER], names=[cause.name or name]
    )
    (folder / "pair.pem").write_bytes(pair.certificate_pem + pair.key_pem)
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(folder / "pair.pem")
    return tls


async def offer(client: Client, namespace: str, cause: Cause, address: str) -> None:
    document = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": cause.service},
        "spec": {"ports": [{"port": cause.port, "targetPort": PORT}]},
    }
    await client.apply(SERVICES, document, namespace=namespace)
    slice_ = {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {"name": cause.service, "labels": {"kubernetes.io/service-name": cause.service}},
        "addressType": "IPv4",
        "endpoints": [{"addresses": [address], "conditions": {"ready": True}}] * cause.endpoints,
        "ports": [{"name": "", "port": PORT, "protocol": "TCP"}],
    }
    await client.apply(ENDPOINT_SLICES, slice_, namespace=namespace)


def registration(namespace: str, bundle: bytes) -> dict[str, Any]:
    service = {"namespace": namespace, "name": "hook", "path": "/pods", "port": 443}
    webhook = {
        "name": WEBHOOK,
        "clientConfig": {"service": service, "caBundle": bundle},
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "operations": ["CREATE"]}],
        "namespaceSelector": {"matchLabels": {"nobody": "has-it"}},
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "failurePolicy": "Ignore",
        "timeoutSeconds": 2,
    }
    return {
        "apiVersion": MUTATING_WEBHOOKS.api_version,
        "kind": MUTATING_WEBHOOKS.kind,
        "metadata": {"name": namespace},
        "webhooks": [webhook, probe_entry(webhook, namespace=namespace)],
    }


@pytest.mark.req("KR-035")
@pytest.mark.parametrize(("cause", "words"), CAUSES.values(), ids=CAUSES)
async def test_the_api_server_says_whether_it_reaches_a_webhook_and_why_not(
    sandbox: Sandbox, client: Client, namespace: str, tmp_path: Path, cause: Cause, words: str
) -> None:
    address = pod_address(55_000 + list(CAUSES.values()).index((cause, words)), network=sandbox.state.pod_network)
    now = dt.datetime.now(dt.UTC)
    authority, other = (x509.make_authority(each, now=now - 3 * DAY, lifetime=9 * DAY) for each in ("tests", "others"))
    tls = context(cause, authority, f"hook.{namespace}.svc", tmp_path)
    bundle = x509.pem((other if cause.trusts_another else authority).certificate)
    document = registration(namespace, bundle)
    if not cause.registered:
        document["webhooks"].pop()

    async def said() -> str:
        probe = WebhookProbe(client, SystemClock(), webhook=WEBHOOK, namespace=namespace)
        while (found := await probe.problem(was_reached=False, is_current=True)) == NOT_KNOWN:
            await asyncio.sleep(0.1)
        return found

    async def as_expected() -> bool:
        found = await said()
        return words in found if words else not found

    async with listening(cause, address, tls):
        await offer(client, namespace, cause, address)
        await client.create(MUTATING_WEBHOOKS, document)
        try:
            await eventually(as_expected, seconds=20)
            assert await as_expected(), "and it stays so"
        finally:
            await client.delete(MUTATING_WEBHOOKS, namespace)


@pytest.fixture
async def world(operated_sandbox: Sandbox, tmp_path: Path) -> AsyncIterator[OperatorWorld]:
    async with OperatorWorld.opened(operated_sandbox, tmp_path) as world:
        yield world


@pytest.mark.req("PL-020")
async def test_placement_is_not_available_while_the_api_server_reaches_no_ready_pod(
    operated_sandbox: Sandbox, world: OperatorWorld
) -> None:
    """Nothing that the operator makes is changed, and every pod is Ready: what carries the API server's calls stands
    still."""
    egress = operated_sandbox.records()["egress"].pid
    async with world.operator():
        await world.create(CPPCS, names.SINGLETON, {})
        await world.condition("Available", "True")
        os.kill(egress, signal.SIGSTOP)
        try:
            available = await world.condition("Available", "False", seconds=90)
            assert available["reason"] == "PodPlacementWebhookUnreachable", "every component is ready"
            assert f'failed calling webhook "probe.{names.POD_WEBHOOK}"' in available["message"]
            degraded = await world.condition("Degraded", "True")
            assert available["message"] in degraded["message"]
        finally:
            os.kill(egress, signal.SIGCONT)
        await world.condition("Available", "True", seconds=60)
