"""``polyarch run``: processes that say where they listen, become ready, lead, and end in order (PL-530, PL-531)."""

import asyncio
import json
import secrets
import signal
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from placement_cluster import architectures, is_gated, pod, until

from polyarch.kube.client import Client
from polyarch.kube.errors import Forbidden
from polyarch.kube.resources import LEASES, NAMESPACES, PODS, SERVICE_ACCOUNTS
from polyarch.placement import names
from polyarch.placement.api import CPPCS
from polyarch.sandbox import kubeconfigs, roles
from polyarch.sandbox.cluster import Sandbox


class Running:
    """A process of polyarch, and what it said."""

    def __init__(self, process: asyncio.subprocess.Process, said: dict[str, str]) -> None:
        self.process = process
        self.said = said

    async def ask(self, path: str) -> tuple[int, str]:
        async with aiohttp.ClientSession() as session, session.get(f"{self.said['health']}{path}") as answer:
            return answer.status, await answer.text()

    async def ready(self) -> bool:
        return (await self.ask("/readyz"))[0] == 200


@asynccontextmanager
async def run(role: str, sandbox: Sandbox, namespace: str, log: Path, *flags: str) -> AsyncIterator[Running]:
    """One process with ports of its own choice; it is ended at the end, whatever happened."""
    program = "import sys; from polyarch.cli import main; sys.exit(main())"
    arguments = [
        *("run", role, f"--namespace={namespace}", f"--kubeconfig={sandbox.kubeconfig}"),
        *("--port=0", "--metrics-port=0", "--health-port=0", "--allow-address=127.0.0.0/8"),
        *(f"--registries-conf={sandbox.registries_conf}", *flags),
    ]
    with log.open("wb") as errors:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", program, *arguments), stdout=asyncio.subprocess.PIPE, stderr=errors
        )
    try:
        assert process.stdout is not None
        async with asyncio.timeout(60):
            line = await process.stdout.readline()
        assert line, log.read_text()
        yield Running(process, json.loads(line))
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


@pytest.fixture
async def place(sandbox: Sandbox, client: Client, namespace: str) -> str:
    """A namespace for polyarch itself, in a control plane without any, with placement's kinds and configuration."""
    await roles.install(client)
    await client.apply(CPPCS, roles.cluster_configuration())
    return namespace


async def gated_pod(client: Client, image: str) -> tuple[str, str]:
    """A pod that carries our gate as if the webhook had put it there."""
    name = f"run-{secrets.token_hex(4)}"
    await client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    document = pod(image, schedulingGates=[{"name": names.GATE}], automountServiceAccountToken=False)
    document["metadata"]["labels"] = {names.SCHEDULING_GATE_LABEL: names.GATED}

    async def created() -> bool:
        try:
            await client.create(PODS, document, namespace=name)
        except Forbidden:  # the ServiceAccount of the namespace is not there yet
            return False
        return True

    await until(created)
    return name, "app"


async def placed(client: Client, namespace: str, name: str, *, seconds: float = 20.0) -> dict[str, Any]:
    async def gone() -> bool:
        return not is_gated(await client.get(PODS, name, namespace=namespace))

    await until(gone, seconds=seconds)
    return await client.get(PODS, name, namespace=namespace)


async def holder(client: Client, namespace: str) -> str:
    lease = await client.get(LEASES, names.CONTROLLER_LEASE, namespace=namespace)
    return lease["spec"].get("holderIdentity") or ""


async def test_all_roles_in_one_process(sandbox, client, place, tmp_path):
    """PL-531, PL-530: one JSON line, ready, places pods, and on SIGTERM gives the Lease back and ends with 0."""
    await sandbox.registry.seed({"quay.io/run/all:1": ["linux/arm64"]})
    flags = (f"--cert-dir={sandbox.layout.pki.webhook_folder}",)
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


async def test_a_standby_takes_over_when_the_leader_is_killed(sandbox, client, place, tmp_path):
    """PL-530: pods whose images are known do not wait for the Lease to run out."""
    await sandbox.registry.seed({"quay.io/run/standby:1": ["linux/s390x"]})
    async with (
        run("placement-controller", sandbox, place, tmp_path / "first.log") as first,
        run("placement-controller", sandbox, place, tmp_path / "second.log") as second,
    ):

        async def led() -> bool:
            return bool(await holder(client, place))

        await until(led)
        assert await second.ready(), "PL-531: a standby is ready"
        first.process.kill()
        await first.process.wait()
        namespace, name = await gated_pod(client, "quay.io/run/standby:1")
        assert architectures(await placed(client, namespace, name, seconds=10)) == ["s390x"]
        await client.delete(NAMESPACES, namespace)


async def test_a_controller_without_rights_is_not_ready_and_says_which(sandbox, client, place, tmp_path):
    """PL-301, PL-531, KR-012: without its caches nothing is decided, and readiness names the missing right."""
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "powerless"}}
    await client.create(SERVICE_ACCOUNTS, account, namespace=place)
    token = await client.token(place, "powerless")
    file = tmp_path / "kubeconfig"
    kubeconfigs.write(
        file, kubeconfigs.with_token("powerless", sandbox.layout.api_server, sandbox.layout.pki.ca, token.token)
    )
    log = tmp_path / "powerless.log"
    program = "import sys; from polyarch.cli import main; sys.exit(main())"
    port = _free_port()
    with log.open("wb") as errors:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", program, "run", "placement-controller", f"--namespace={place}"),
            *(f"--kubeconfig={file}", f"--health-port={port}", "--metrics-port=0"),
            stdout=asyncio.subprocess.DEVNULL,
            stderr=errors,
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


async def test_a_port_that_is_taken_ends_the_process_with_a_sentence(sandbox, place, tmp_path):
    """PL-751: exit code 3, naming the address."""
    port = _free_port()
    taken = await asyncio.start_server(lambda *_: None, "127.0.0.1", port)
    log = tmp_path / "taken.log"
    program = "import sys; from polyarch.cli import main; sys.exit(main())"
    with log.open("wb") as errors:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", program, "run", "placement-controller", f"--namespace={place}"),
            *(f"--kubeconfig={sandbox.kubeconfig}", f"--health-port={port}", "--metrics-port=0"),
            stdout=asyncio.subprocess.DEVNULL,
            stderr=errors,
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
