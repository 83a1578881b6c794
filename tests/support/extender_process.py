"""``polyarch run numa-extender`` started by a test, with a ServiceAccount and the rights that the operator gives it."""

import asyncio
import json
import secrets
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
from placement_process import Running, start

from polyarch.kube.client import Client
from polyarch.kube.errors import NotFound
from polyarch.kube.patches import MergePatch
from polyarch.kube.rbac import granted
from polyarch.kube.resources import CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES, NODES, PODS, SERVICE_ACCOUNTS, by_kind
from polyarch.numa.api.topology import TOPOLOGIES
from polyarch.operator.components.numa_scheduler_objects import extender_rules, kick_rules
from polyarch.placement.names import SKIP_ANNOTATION
from polyarch.sandbox.certificates import kubeconfig_with_token
from polyarch.sandbox.cluster import Sandbox
from polyarch.sandbox.files import write_json

OURS = "topo-aware-scheduler"


class Extender:
    """A process, and the questions of a scheduler."""

    def __init__(self, running: Running, session: aiohttp.ClientSession) -> None:
        self.process = running.process
        self.url = running.said["servers"]["numa-extender"]  # type: ignore[index]
        self.status = running.said["health"]
        self._session = session

    async def filter(self, pod: dict[str, Any], *names: str) -> dict[str, Any]:
        body = json.dumps({"Pod": pod, "Nodes": None, "NodeNames": list(names)})
        async with self._session.post(f"{self.url}/numa/filter", data=body) as answer:
            assert answer.status == 200, await answer.text()
            found: dict[str, Any] = await answer.json(content_type=None)
            return found

    async def propose(self, pod: dict[str, Any], victims: Mapping[str, Sequence[str]]) -> None:
        """Without these pods, by node, kube-scheduler would take the node."""
        proposed = {node: {"Pods": [{"UID": uid} for uid in uids]} for node, uids in victims.items()}
        body = json.dumps({"Pod": pod, "NodeNameToVictims": None, "NodeNameToMetaVictims": proposed})
        async with self._session.post(f"{self.url}/numa/preempt", data=body) as answer:
            assert answer.status == 200, await answer.text()

    async def ready(self) -> bool:
        async with self._session.get(f"{self.status}/readyz", ssl=False) as answer:
            return answer.status == 200


async def kubeconfig(
    sandbox: Sandbox, client: Client, namespace: str, folder: Path, server: str = "", *, preempts: bool = False
) -> Path:
    """Of a ServiceAccount with the rights that the operator gives an extender."""
    account = f"extender-{secrets.token_hex(4)}"
    document = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": account}}
    await client.create(SERVICE_ACCOUNTS, document, namespace=namespace)
    for where, several in (("", extender_rules(preempts=preempts)), (namespace, kick_rules())):
        for each in granted(account, several, [(namespace, account)], namespace=where):
            await client.apply(by_kind(each["apiVersion"], each["kind"]), each, namespace=where)
    issued = await client.token(namespace, account)
    file, layout = folder / f"{account}.kubeconfig", sandbox.layout
    write_json(file, kubeconfig_with_token(account, server or layout.api_server, layout.pki.ca, issued.token))
    return file


@asynccontextmanager
async def extending(file: Path, namespace: str, *flags: str) -> AsyncIterator[Extender]:
    """An extender; it is not waited for until it is ready."""
    log = file.with_suffix(f".{secrets.token_hex(2)}.log")
    own = ("--listen=127.0.0.1:0", "--status-listen=127.0.0.1:0", f"--namespace={namespace}", "-v=4")
    words = ("run", "numa-extender", f"--kubeconfig={file}", *own, *flags)
    process = await start(log, *words, output=asyncio.subprocess.PIPE)
    try:
        assert process.stdout is not None
        async with asyncio.timeout(60):
            line = await process.stdout.readline()
        assert line, log.read_text()
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=30)) as session:
            yield Extender(Running(process, json.loads(line)), session)
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


def topology(node: str, cpus: Sequence[int]) -> dict[str, Any]:
    """One zone per number of free CPUs."""
    zones = [
        {"name": f"node-{number}", "type": "Node", "resources": _resources(free)} for number, free in enumerate(cpus)
    ]
    policies = ["SingleNUMANodeContainerLevel"]
    return {"metadata": {"name": node}, "topologyPolicies": policies, "zones": zones}


def _resources(cpus: int) -> list[dict[str, str]]:
    amounts = {"cpu": str(cpus), "memory": "8Gi"}
    return [{"name": name, "capacity": each, "allocatable": each, "available": each} for name, each in amounts.items()]


@asynccontextmanager
async def cells(client: Client, *cpus: int, sum_of_cpus: int = 64) -> AsyncIterator[str]:
    """A Node that nobody runs, and its object if it has zones; its name."""
    name = f"cells-{secrets.token_hex(4)}"
    await client.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})
    amounts = {"cpu": str(sum_of_cpus), "memory": "64Gi", "pods": "100"}
    status = {"status": {"allocatable": amounts, "capacity": amounts}}
    await client.patch(NODES, name, MergePatch(status), subresource="status")
    if cpus:
        await client.apply(TOPOLOGIES, topology(name, cpus))
    try:
        yield name
    finally:
        for resource in (TOPOLOGIES, NODES):
            try:
                await client.delete(resource, name)
            except NotFound:
                continue


async def pod(
    client: Client, namespace: str, account: str, cpu: int = 2, *, name: str = "", priority_class: str = ""
) -> dict[str, Any]:
    """A Guaranteed pod of our scheduler, as the API server has it; where there is a pod webhook, it passes by it."""
    amounts = {"cpu": str(cpu), "memory": "1Gi"}
    container = {
        "name": "app",
        "image": "registry.invalid/app",
        "resources": {"requests": amounts, "limits": amounts},
    }
    document = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name or f"web-{secrets.token_hex(4)}", "annotations": {SKIP_ANNOTATION: "true"}},
        "spec": {
            "schedulerName": OURS,
            "serviceAccountName": account,
            "automountServiceAccountToken": False,
            "terminationGracePeriodSeconds": 0,
            "containers": [container],
            **({"priorityClassName": priority_class} if priority_class else {}),
        },
    }
    found: dict[str, Any] = await client.create(PODS, document, namespace=namespace, type=dict)
    return found


async def bind(client: Client, created: dict[str, Any], node: str) -> None:
    metadata = created["metadata"]
    await client.bind(metadata["namespace"], metadata["name"], node, metadata["uid"])


async def forget(client: Client, account: str) -> None:
    await client.delete(CLUSTER_ROLE_BINDINGS, account)
    await client.delete(CLUSTER_ROLES, account)
