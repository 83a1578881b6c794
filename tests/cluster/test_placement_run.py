"""``polyarch run``: processes that say where they listen, become ready, lead, and end in order."""

import asyncio
import signal
import socket

import aiohttp
import own_roles
import pytest
from placement_cluster import architectures, until
from placement_process import Running, gated_pod, placed, run, start

from polyarch.kube.client import Client
from polyarch.kube.resources import LEASES, NAMESPACES, SERVICE_ACCOUNTS
from polyarch.placement import names
from polyarch.sandbox.certificates import kubeconfig_with_token
from polyarch.sandbox.cluster import Sandbox
from polyarch.sandbox.files import write_json


@pytest.fixture
async def place(sandbox: Sandbox, client: Client, namespace: str, sole_controller: None, sole_taints: None) -> str:
    """A namespace for polyarch itself, in a control plane without any, with placement's kinds and configuration."""
    await own_roles.install(client)
    return namespace


async def holder(client: Client, namespace: str) -> str:
    lease = await client.get(LEASES, names.CONTROLLER_LEASE, namespace=namespace)
    return lease["spec"].get("holderIdentity") or ""


@pytest.mark.req("PL-530", "PL-531")
async def test_all_roles_in_one_process(sandbox, client, place, tmp_path):
    """One JSON line, ready, places pods, and on SIGTERM gives the Lease back and ends with 0."""
    await sandbox.registry.seed({"quay.io/run/all:1": ["linux/arm64"]})
    flags = (f"--cert-dir={sandbox.layout.pki.webhook_folder}", f"--registries-conf={sandbox.registries_conf}")
    async with run("all", sandbox, place, tmp_path / "all.log", *flags) as polyarch:
        assert polyarch.said.keys() == {"role", "admission", "health", "metrics"}
        assert polyarch.said["admission"].startswith("https://127.0.0.1:")
        await until(polyarch.ready)
        assert (await polyarch.ask("/healthz"))[0] == 200
        namespace, name = await gated_pod(client, "quay.io/run/all:1")
        assert architectures(await placed(client, namespace, name)) == ["arm64"]
        assert await holder(client, place)
        polyarch.process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(60):
            assert await polyarch.process.wait() == 0
        assert await holder(client, place) == ""
        await client.delete(NAMESPACES, namespace)


@pytest.mark.req("PL-530", "PL-531")
async def test_a_standby_takes_over_when_the_leader_is_killed(sandbox, client, place, tmp_path):
    """Pods whose images are known do not wait for the Lease to run out."""
    await sandbox.registry.seed({"quay.io/run/standby:1": ["linux/s390x"]})
    flag = f"--registries-conf={sandbox.registries_conf}"
    async with (
        run("placement-controller", sandbox, place, tmp_path / "first.log", flag) as first,
        run("placement-controller", sandbox, place, tmp_path / "second.log", flag) as second,
    ):

        async def led() -> bool:
            return bool(await holder(client, place))

        await until(led)
        assert await second.ready(), "a standby is ready"
        first.process.kill()
        await first.process.wait()
        namespace, name = await gated_pod(client, "quay.io/run/standby:1")
        assert architectures(await placed(client, namespace, name, seconds=10)) == ["s390x"]
        await client.delete(NAMESPACES, namespace)


@pytest.mark.req("KR-012", "PL-301", "PL-531")
async def test_a_controller_without_rights_is_not_ready_and_says_which(sandbox, client, place, tmp_path):
    """Without its caches nothing is decided, and readiness names the missing right."""
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "powerless"}}
    await client.create(SERVICE_ACCOUNTS, account, namespace=place)
    token = await client.token(place, "powerless")
    file = tmp_path / "kubeconfig"
    write_json(file, kubeconfig_with_token("powerless", sandbox.layout.api_server, sandbox.layout.pki.ca, token.token))
    log = tmp_path / "powerless.log"
    port = _free_port()
    process = await start(
        log,
        *("run", "placement-controller", f"--namespace={place}", f"--kubeconfig={file}"),
        *(f"--health-port={port}", "--metrics-port=0"),
    )
    try:
        running = Running(process, {"health": f"http://127.0.0.1:{port}"})

        async def told() -> bool:
            try:
                status, body = await running.ask("/readyz")
            except aiohttp.ClientError:
                return False
            return status == 503 and "not allowed to" in body and "pods" in body

        await until(told, seconds=60)
        assert (await running.ask("/healthz"))[0] == 200, "a restart gives no permission"
    finally:
        process.kill()
        await process.wait()


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


@pytest.mark.req("PL-751")
async def test_a_port_that_is_taken_ends_the_process_with_a_sentence(sandbox, place, tmp_path):
    """Exit code 3, naming the address."""
    port = _free_port()
    taken = await asyncio.start_server(lambda *_: None, "127.0.0.1", port)
    log = tmp_path / "taken.log"
    process = await start(
        log,
        *("run", "placement-controller", f"--namespace={place}", f"--kubeconfig={sandbox.kubeconfig}"),
        *(f"--health-port={port}", "--metrics-port=0"),
    )
    try:
        async with asyncio.timeout(60):
            assert await process.wait() == 3
    finally:
        if process.returncode is None:
            process.kill()
        taken.close()
        await taken.wait_closed()
    assert str(port) in log.read_text()
    assert "Traceback" not in log.read_text()
