"""Processes of polyarch started by a test itself, in a control plane without any."""

import asyncio
import json
import os
import secrets
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
from own_roles import ACCOUNTS, WEBHOOK
from placement_cluster import is_gated, pod, until

from polyarch.kube.client import Client
from polyarch.kube.errors import Forbidden
from polyarch.kube.resources import NAMESPACES, PODS
from polyarch.names import DEFAULT_NAMESPACE
from polyarch.placement import names
from polyarch.sandbox.certificates import kubeconfig_with_token
from polyarch.sandbox.cluster import Sandbox
from polyarch.sandbox.files import write_json

PROGRAM = "import sys; from polyarch.cli import main; sys.exit(main())"


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


async def start(
    log: Path, *arguments: str, output: int = asyncio.subprocess.DEVNULL, **environment: str
) -> asyncio.subprocess.Process:
    with log.open("wb") as errors:
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", PROGRAM, *arguments), stdout=output, stderr=errors, env=os.environ | environment
        )


@asynccontextmanager
async def run(
    role: str, sandbox: Sandbox, namespace: str, log: Path, *flags: str, kubeconfig: Path | None = None
) -> AsyncIterator[Running]:
    """One process with ports of its own choice; it is ended at the end, whatever happened. Without a ``kubeconfig`` it
    has the administrator's rights."""
    process = await start(
        log,
        *("run", role, f"--namespace={namespace}", f"--kubeconfig={kubeconfig or sandbox.kubeconfig}"),
        *("--port=0", "--metrics-port=0", "--health-port=0", "--allow-address=127.0.0.0/8", *flags),
        output=asyncio.subprocess.PIPE,
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


async def roles(stack: AsyncExitStack, sandbox: Sandbox, client: Client, folder: Path) -> dict[str, Running]:
    """Webhook and controller by name, ready, each as its own ServiceAccount with the rights of ``own_roles``."""
    running = {}
    for role, account in ACCOUNTS.items():
        issued = await client.token(DEFAULT_NAMESPACE, account)
        file, layout = folder / f"{role}.kubeconfig", sandbox.layout
        write_json(file, kubeconfig_with_token(role, layout.api_server, layout.pki.ca, issued.token))
        flags = [f"--registries-conf={sandbox.registries_conf}"]
        if role == WEBHOOK:
            flags.append(f"--cert-dir={layout.pki.webhook_folder}")
        process = run(role, sandbox, DEFAULT_NAMESPACE, folder / f"{role}.log", *flags, kubeconfig=file)
        running[role] = await stack.enter_async_context(process)
        await until(running[role].ready, seconds=30)
    return running


async def gated_pod(client: Client, image: str, **spec: Any) -> tuple[str, str]:
    """A pod in a new namespace that carries our gate as if the webhook had put it there: (namespace, name)."""
    name = f"run-{secrets.token_hex(4)}"
    await client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    document = pod(image, schedulingGates=[{"name": names.GATE}], automountServiceAccountToken=False, **spec)
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
