"""``polyarch run numa-exporter`` started by a test itself, with the rights that the operator gives it."""

import asyncio
import json
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from numa_host import NumaHost, available
from placement_cluster import until
from placement_process import Running, start

from polyarch.installation import wait
from polyarch.kube.client import Client
from polyarch.kube.errors import NotFound
from polyarch.kube.rbac import PolicyRule, granted
from polyarch.kube.resources import CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES, CRDS, NODES, PODS, SERVICE_ACCOUNTS, by_kind
from polyarch.numa.api.topology import TOPOLOGIES
from polyarch.numa.api.topology_crd import topology_crd
from polyarch.operator.components.numa_exporter_objects import OWN_PODS, ExporterContext, cluster_rules
from polyarch.sandbox.certificates import kubeconfig_with_token
from polyarch.sandbox.cluster import Sandbox
from polyarch.sandbox.files import write_json

DEFAULT_RIGHTS = cluster_rules(ExporterContext())
"""In the whole cluster."""


async def define(client: Client) -> None:
    """The NodeResourceTopology."""
    document = topology_crd()
    await client.apply(CRDS, document)
    await wait.established(client, [document["metadata"]["name"]])


class Exporter:
    """A process, the Node it says it runs on, and the Pod it says it is."""

    def __init__(self, client: Client, running: Running, node: str, namespace: str, pod: str, user: str) -> None:
        self._client = client
        self.running = running
        self.process = running.process
        self.node = node
        self.namespace = namespace
        self.pod = pod
        self.user = user

    async def topology(self) -> dict[str, Any] | None:
        try:
            return await self._client.get(TOPOLOGIES, self.node)
        except NotFound:
            return None

    async def conditions(self) -> dict[str, tuple[str, str]]:
        """Status and reason of the Pod's conditions by type."""
        found = await self._client.get(PODS, self.pod, namespace=self.namespace)
        return {
            each["type"]: (each["status"], each.get("reason", ""))
            for each in found.get("status", {}).get("conditions") or ()
        }

    async def shows(self, cpus: list[int]) -> bool:
        """Whether the topology has so many CPUs available in its zones."""
        found = await self.topology()
        return found is not None and available(found) == cpus


async def make_node(client: Client, name: str) -> str:
    """A Node that nobody runs; its uid."""
    found = await client.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}, type=dict)
    return str(found["metadata"]["uid"])


@asynccontextmanager
async def exporting(
    sandbox: Sandbox,
    client: Client,
    namespace: str,
    folder: Path,
    host: NumaHost,
    *flags: str,
    node: str = "",
    allowed: tuple[PolicyRule, ...] = DEFAULT_RIGHTS,
    server: str = "",
) -> AsyncIterator[Exporter]:
    """An exporter for a Node of its own; it is not waited for. ``server``: what it takes for the API server."""
    name = node or f"numa-{secrets.token_hex(4)}"
    if not node:
        await make_node(client, name)
    account = f"rte-{secrets.token_hex(4)}"
    document = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": account}}
    await client.create(SERVICE_ACCOUNTS, document, namespace=namespace)
    for where, several in (("", allowed), (namespace, OWN_PODS)):
        for each in granted(account, several, [(namespace, account)], namespace=where):
            await client.apply(by_kind(each["apiVersion"], each["kind"]), each, namespace=where)
    container = {"name": "exporter", "image": "registry.invalid/exporter"}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": account},
        "spec": {"containers": [container], "nodeName": name, "automountServiceAccountToken": False},
    }
    await client.create(PODS, pod, namespace=namespace)
    issued = await client.token(namespace, account)
    file, layout = folder / f"{account}.kubeconfig", sandbox.layout
    write_json(file, kubeconfig_with_token(account, server or layout.api_server, layout.pki.ca, issued.token))
    own = ("--metrics-mode=http", "--metrics-ip=127.0.0.1", "--metrics-port=0", f"--hostname={name}", "-v=4")
    environment = {"POD_NAME": account, "POD_NAMESPACE": namespace}
    try:
        async with process(folder / f"{account}.log", file, *own, *host.flags, *flags, **environment) as running:
            user = f"system:serviceaccount:{namespace}:{account}"
            yield Exporter(client, running, name, namespace, account, user)
    finally:
        await client.delete(CLUSTER_ROLE_BINDINGS, account)
        await client.delete(CLUSTER_ROLES, account)
        for resource in (TOPOLOGIES, NODES):
            try:
                await client.delete(resource, name)
            except NotFound:
                continue


@asynccontextmanager
async def process(log: Path, kubeconfig: Path, *flags: str, **environment: str) -> AsyncIterator[Running]:
    """One process; it is ended at the end, whatever happened."""
    words = ("run", "numa-exporter", f"--kubeconfig={kubeconfig}", *flags)
    running = await start(log, *words, output=asyncio.subprocess.PIPE, **environment)
    try:
        assert running.stdout is not None
        async with asyncio.timeout(60):
            line = await running.stdout.readline()
        assert line, log.read_text()
        yield Running(running, json.loads(line))
    finally:
        if running.returncode is None:
            running.kill()
        await running.wait()


async def published(exporter: Exporter, cpus: list[int], *, seconds: float = 60.0) -> dict[str, Any]:
    """The topology, once it has so many CPUs available in its zones."""
    await until(lambda: exporter.shows(cpus), seconds=seconds)
    found = await exporter.topology()
    assert found is not None
    return found
