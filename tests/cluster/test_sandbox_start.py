"""The sandbox itself, as a user meets it: it starts, everything is well, and nothing leaves the machine."""

import asyncio
import ipaddress
import itertools
import ssl
from pathlib import Path

import aiohttp
import pytest

from polyarch.kube.client import Client
from polyarch.kube.errors import ApiError
from polyarch.kube.patches import MergePatch
from polyarch.kube.resources import CONFIGMAPS, NAMESPACES, SERVICES, VALIDATING_WEBHOOKS
from polyarch.sandbox.cluster import Sandbox
from polyarch.sandbox.processes import is_running


def sockets(pid: int) -> list[tuple[str, str]]:
    """(local, remote) address of each TCP socket the process holds, from /proc."""
    inodes = set()
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        try:
            target = str(descriptor.readlink())
        except FileNotFoundError:
            continue  # closed since we looked
        if target.startswith("socket:["):
            inodes.add(target[8:-1])
    found = []
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[9] in inodes:
                found.append((_address(fields[1]), _address(fields[2])))
    return found


def _address(text: str) -> str:
    """``0100007F:1F90`` → 127.0.0.1: words in the machine's order (little-endian on the machines tests run on)."""
    raw = bytes.fromhex(text.partition(":")[0])
    words = b"".join(raw[start : start + 4][::-1] for start in range(0, len(raw), 4))
    address = ipaddress.ip_address(words)
    mapped = getattr(address, "ipv4_mapped", None)
    return str(mapped or address)


@pytest.mark.req("SB-003")
async def test_everything_is_healthy_and_the_kubeconfig_works(sandbox: Sandbox, client: Client) -> None:
    assert {each.name: each.detail for each in await sandbox.health() if not each.healthy} == {}
    names = [item["metadata"]["name"] for item in (await client.list(NAMESPACES)).items]
    assert "kube-system" in names


@pytest.mark.req("SB-003")
async def test_files_of_the_sandbox_are_for_its_owner_only(sandbox: Sandbox) -> None:
    assert sandbox.kubeconfig.stat().st_mode & 0o077 == 0
    assert sandbox.folder.root.stat().st_mode & 0o077 == 0


@pytest.mark.req("SB-008")
async def test_every_socket_of_every_process_is_on_loopback(sandbox: Sandbox) -> None:
    seen = 0
    for record in sandbox.records().values():
        assert is_running(record)
        for local, remote in sockets(record.pid):
            assert ipaddress.ip_address(local).is_loopback, record.name
            assert remote in {"0.0.0.0", "::"} or ipaddress.ip_address(remote).is_loopback, record.name
            seen += 1
    assert seen > 10, "a control plane has listeners and connections"


async def first_refusal(client: Client, namespace: str) -> str:
    """Create ConfigMaps until the API server has seen the webhook and refuses one."""
    async with asyncio.timeout(20):
        for number in itertools.count():
            document = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": f"probe-{number}"}}
            try:
                await client.create(CONFIGMAPS, document, namespace=namespace, retry=False)
            except ApiError as error:
                return str(error)
    raise AssertionError("unreachable")


@pytest.mark.req("SB-008")
async def test_a_service_webhook_without_endpoints_is_refused_on_this_machine_instead_of_dialled(
    sandbox: Sandbox, client: Client, namespace: str
) -> None:
    await client.patch(NAMESPACES, namespace, MergePatch({"metadata": {"labels": {"egress": namespace}}}))
    service = {"metadata": {"name": "hook"}, "spec": {"ports": [{"port": 443}], "selector": {"app": "hook"}}}
    await client.create(SERVICES, {"apiVersion": "v1", "kind": "Service", **service}, namespace=namespace)
    webhook = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": namespace},
        "webhooks": [
            {
                "name": "egress.example.com",
                "clientConfig": {"service": {"namespace": namespace, "name": "hook", "path": "/"}},
                "rules": [
                    {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"], "operations": ["CREATE"]}
                ],
                "namespaceSelector": {"matchLabels": {"egress": namespace}},
                "admissionReviewVersions": ["v1"],
                "sideEffects": "None",
                "timeoutSeconds": 5,
            }
        ],
    }
    await client.create(VALIDATING_WEBHOOKS, webhook)
    try:
        refusal = await first_refusal(client, namespace)
    finally:
        await client.delete(VALIDATING_WEBHOOKS, namespace)
    assert "egress.sock" in refusal
    assert f"Service {namespace}/hook has no ready endpoint for port 443" in refusal


@pytest.mark.req("SB-003")
async def test_nobody_is_let_in_without_a_name(sandbox: Sandbox) -> None:

    context = ssl.create_default_context(cafile=str(sandbox.ca))
    async with (
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=context)) as session,
        session.get(f"{sandbox.api_server}/api/v1/namespaces") as answer,
    ):
        assert answer.status == 401
