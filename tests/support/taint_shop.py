"""A small shop in a cluster whose nodes get taints: workloads, commands as a user types them, and what came of it."""

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from namespaces import create_namespace
from placement_cluster import until
from placement_process import PROGRAM

from polyarch.kube.client import Client
from polyarch.kube.errors import NotFound
from polyarch.kube.patches import MergePatch
from polyarch.kube.resources import (
    DAEMONSETS,
    DEPLOYMENTS,
    MUTATING_WEBHOOKS,
    NAMESPACES,
    NODES,
    PODS,
    Resource,
)
from polyarch.sandbox.cluster import Sandbox
from polyarch.sandbox.files import file_lock
from polyarch.taints import names
from polyarch.taints.documents import bindings, policies

Json = dict[str, Any]
NAMESPACE = "taint-shop"
BOTH, INTEL = "quay.io/taint-shop/both:1", "quay.io/taint-shop/intel:1"
IMAGES = {BOTH: ["linux/amd64", "linux/arm64"], INTEL: ["linux/amd64"]}
OURS = {"key": "supported-arch", "value": "arm64", "effect": "NoSchedule"}
FOREIGN = {"key": "dedicated", "value": "batch", "effect": "PreferNoSchedule"}
OWN = ("node.kubernetes.io/", "node.cloudprovider.kubernetes.io/")
TOLD = (" tolerates ", " gets ", " loses ", " is created", " is brought", " is deleted", " is evicted")
"""What the commands say of a write."""
SECONDS = 60.0


class Ran(NamedTuple):
    code: int
    out: str
    err: str


class Shop:
    """Workloads in one namespace, and the nodes of the whole cluster."""

    def __init__(self, sandbox: Sandbox, client: Client) -> None:
        self.sandbox = sandbox
        self.client = client

    # -- commands ------------------------------------------------------------------------------------------------------

    def words(self, *arguments: str) -> list[str]:
        """``polyarch taint ARGUMENTS`` against this cluster and its registry."""
        access = ["--kubeconfig", str(self.sandbox.kubeconfig)]
        images = ["--registries-conf", str(self.sandbox.registries_conf)] if arguments[0] != "clean" else []
        return [sys.executable, "-c", PROGRAM, "taint", *arguments, *access, *images]

    async def taint(self, *arguments: str) -> Ran:
        """One command, until it ends."""
        done = await asyncio.to_thread(
            subprocess.run, self.words(*arguments), capture_output=True, text=True, check=False, timeout=240
        )
        return Ran(done.returncode, done.stdout, done.stderr)

    async def killed(self, *arguments: str, after: int) -> int:
        """One command that is killed when it has told of so many writes; returns how many it told of."""
        process = await asyncio.create_subprocess_exec(
            *self.words(*arguments), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL
        )
        assert process.stderr is not None
        told = 0
        async with asyncio.timeout(240):
            async for line in process.stderr:
                told += any(word in line.decode() for word in TOLD)
                if told >= after:
                    process.kill()
                    break
            await process.wait()
        return told

    # -- what there is -------------------------------------------------------------------------------------------------

    async def workload(self, resource: Resource, name: str, image: str = BOTH, **spec: Any) -> None:
        """A Deployment or DaemonSet whose pods are waited for."""
        labels = {"app": name}
        containers = [{"name": "main", "image": image}]
        template = {
            "metadata": {"labels": labels},
            "spec": {"containers": containers, "terminationGracePeriodSeconds": 0, **spec},
        }
        document = {
            "apiVersion": resource.api_version,
            "kind": resource.kind,
            "metadata": {"name": name},
            "spec": {"selector": {"matchLabels": labels}, "template": template},
        }
        await self.client.create(resource, document, namespace=NAMESPACE)

    async def open(self) -> None:
        """One Deployment and one DaemonSet, running."""
        await self.workload(DEPLOYMENTS, "web")
        await self.workload(DAEMONSETS, "agent")
        await self.runs(5)

    async def runs(self, number: int) -> None:
        """Returns when so many pods are ready and none is on its way out."""

        async def all_run() -> bool:
            pods = await self.pods()
            ready = [each for each in pods if _is_ready(each)]
            return len(ready) == len(pods) == number

        await until(all_run, seconds=SECONDS)

    async def pods(self) -> list[Json]:
        return (await self.client.list(PODS, namespace=NAMESPACE)).items

    async def taints(self) -> dict[str, list[Json]]:
        """Of each node, without those of Kubernetes itself."""
        nodes = (await self.client.list(NODES)).items
        return {
            each["metadata"]["name"]: [
                taint for taint in each["spec"].get("taints") or () if not taint["key"].startswith(OWN)
            ]
            for each in nodes
        }

    async def annotate(self, node: str, **spec: Any) -> None:
        """Writes a node as somebody else would."""
        await self.client.patch(NODES, node, MergePatch(spec))

    async def versions(self) -> dict[str, str]:
        """Of everything that a command may write; of pods and nodes what their kubelets do not write."""
        found: dict[str, str] = {}
        for resource in (NODES, PODS, DAEMONSETS, MUTATING_WEBHOOKS, policies("v1"), bindings("v1")):
            for each in (await self.client.list(resource)).items:
                metadata, spec = each["metadata"], each.get("spec", {})
                ours = {key: value for key, value in metadata.get("annotations", {}).items() if "polyarch.dev" in key}
                said = (spec.get("taints"), spec.get("tolerations"), spec.get("template"), spec.get("matchConditions"))
                found[f"{resource} {metadata['name']} {metadata['uid']}"] = str((said, ours, metadata.get("labels")))
        return found

    async def close(self) -> None:
        """Nothing of this test is left."""
        for resource, name in (
            (MUTATING_WEBHOOKS, names.ROLE),
            (bindings("v1"), names.REGISTRATION_POLICY),
            (policies("v1"), names.REGISTRATION_POLICY),
        ):
            with suppress(NotFound):
                await self.client.delete(resource, name)
        for node in (await self.client.list(NODES)).items:
            free = {"spec": {"taints": None, "unschedulable": None}}
            clean = {"metadata": {"annotations": {names.MANAGED_TAINTS_ANNOTATION: None}}}
            await self.client.patch(NODES, node["metadata"]["name"], MergePatch({**free, **clean}))
        with suppress(NotFound):
            await self.client.delete(NAMESPACES, NAMESPACE)

        async def gone() -> bool:
            try:
                await self.client.get(NAMESPACES, NAMESPACE)
            except NotFound:
                return True
            return False

        await until(gone, seconds=SECONDS)


@asynccontextmanager
async def shop(sandbox: Sandbox, client: Client) -> AsyncIterator[Shop]:
    """The cluster for one test alone, with an empty namespace in it and clean nodes."""
    async with file_lock(Path(sandbox.folder.root, ".taint-shop.lock")):
        found = Shop(sandbox, client)
        await found.close()
        await create_namespace(client, NAMESPACE)
        await sandbox.registry.seed(IMAGES)
        try:
            yield found
        finally:
            await found.close()


def tolerated(document: Json) -> list[str]:
    """The architectures that a pod or a template tolerates by tolerations as we write them."""
    spec = document["spec"].get("template", document)["spec"]
    return sorted(each.get("value", "") for each in spec.get("tolerations") or () if each.get("key") == OURS["key"])


def _is_ready(document: Json) -> bool:
    if document["metadata"].get("deletionTimestamp"):
        return False
    conditions = document.get("status", {}).get("conditions", ())
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)
