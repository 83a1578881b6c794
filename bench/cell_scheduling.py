"""NS-172: pods through a real kube-scheduler and the extender, onto a thousand played nodes with cells.

A backlog of pods is made first, then scheduler and extender start: so what is measured is how fast they bind, and not
how fast pods are created. The judge is the kubelet's model on every node: no pod that was bound may be refused, and
when all is quiet no pod may wait that some kubelet would admit. Then a tenth of the pods goes, which has to wake those
that waited.

The controller manager and the other scheduler do not run meanwhile: the one would call nodes dead that send no
heartbeats, the other would only read along.
"""

import asyncio
import json
import os
import random
import secrets
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import msgspec

from bench.celled_nodes import CelledNodes, Kubelet, in_groups
from bench.measure import Figure, cpu_seconds, percentile, resident_mib
from bench.runtime import Say
from polyarch.installation import wait
from polyarch.kube.client import Client
from polyarch.kube.resources import CRDS, NAMESPACES, PODS, SERVICE_ACCOUNTS
from polyarch.numa.api.resources import SchedulerSettings, SchedulingMode
from polyarch.numa.api.topology_crd import topology_crd
from polyarch.numa.names import EXTENDER_PORT, STATUS_PORT
from polyarch.operator.components.numa_scheduler_objects import extender_configuration, scheduler_configuration, text
from polyarch.sandbox import processes
from polyarch.sandbox.cluster import Sandbox
from polyarch.sandbox.kubelet_model import layout
from polyarch.sandbox.kubelet_model.layout import NumaLayout
from polyarch.sandbox.kubelet_model.machine import Node
from polyarch.sandbox.nodes.pods import Pod, pod_request
from polyarch.sandbox.pods.programs import (
    NAME,
    PROGRAM,
    SchedulerPodContext,
    pod_scheduler_configuration,
    scheduler_command,
)
from polyarch.sandbox.pods.spec import Container
from polyarch.sandbox.state import Settings
from polyarch.sandbox.tasks import together

NODES: Final = 1000
PODS_WANTED: Final = 10_000
CELLS: Final = "2x8,devices=example.com/nic:1"
NAMESPACE: Final = "cells"
CREATED_AT_ONCE: Final = 32
QUIET_SECONDS: Final = 30.0
"""Nothing was bound for so long: longer than the scheduler's longest backoff, and than exporter and extender need."""
MOST_SECONDS: Final = 900.0
START_SECONDS: Final = 60.0
DELETED: Final = 0.1
Document = dict[str, Any]

_GUARANTEED: Final = ((30, 1, 1), (25, 2, 2), (10, 3, 4), (6, 4, 4), (2, 7, 8))
"""Weight, whole CPUs and GiB."""


def pods(count: int, scheduler: str) -> list[Document]:
    """Always the same. Two of three hold CPUs of their own, some a device, some after an init container."""
    chance = random.Random(172)
    weights = [weight for weight, _, _ in _GUARANTEED]
    made = []
    for number in range(count):
        init: list[Document] = []
        if chance.random() < 0.3:
            resources: Document = {"requests": {"cpu": "200m", "memory": "256Mi"}}
        else:
            _, whole, memory = chance.choices(_GUARANTEED, weights)[0]
            amounts = {"cpu": str(whole), "memory": f"{memory}Gi"}
            if chance.random() < 0.05:
                amounts["example.com/nic"] = "1"
            resources = {"limits": amounts}
            if chance.random() < 0.05:
                init = [_container("first", {"limits": {"cpu": str(whole), "memory": f"{memory}Gi"}})]
        spec = {
            "schedulerName": scheduler,
            "terminationGracePeriodSeconds": 0,
            "automountServiceAccountToken": False,
            "initContainers": init,
            "containers": [_container("main", resources)],
        }
        metadata = {"name": f"pod-{number:05}"}
        made.append({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
    return made


def _container(name: str, resources: Document) -> Document:
    return {"name": name, "image": "registry.example/app:1", "resources": resources}


class Trial:
    """One mode on one control plane."""

    def __init__(
        self,
        sandbox: Sandbox,
        client: Client,
        settings: SchedulerSettings,
        model: Node,
        program: str,
        say: Say,
        *,
        nodes: int = NODES,
        pods: int = PODS_WANTED,
    ) -> None:
        self._sandbox = sandbox
        self._pods = pods
        self._client = client
        self._settings = settings
        self._program = program
        self._say = say
        self.times: list[float] = []
        kubelets = (Kubelet(f"cells-{number:04}", model) for number in range(nodes))
        self.nodes = CelledNodes(client, kubelets, changed=lambda: self.times.append(time.monotonic()))

    async def run(self, folder: Path) -> list[Figure]:
        """Everything, as the module says."""
        mode = self._settings.mode
        await prepare(self._client)
        self._say(f"{mode}: {len(self.nodes.kubelets)} nodes with cells {CELLS}")
        await self.nodes.register()
        self._say(f"{mode}: {self._pods} pods")
        for group in in_groups(pods(self._pods, self._settings.name), CREATED_AT_ONCE):
            await together(self._client.create(PODS, each, namespace=NAMESPACE) for each in group)
        playing = asyncio.ensure_future(self.nodes.run())
        try:
            async with started(self._program, self._sandbox, self._settings, folder) as found:
                before = self._cpu(found)
                await self._quiet(playing, "the backlog")
                used = {name: seconds - before[name] for name, seconds in self._cpu(found).items()}
                memory = resident_mib(found["extender"])
                first = len(self.times)
                falsely = await self._falsely()
                self._say(f"{mode}: {first} bound, {await self._pending()} wait")
                await self._delete()
                await self._quiet(playing, "what was freed")
                later = len(self.times) - first
                falsely_later = await self._falsely()
                self._say(f"{mode}: {later} more bound, {await self._pending()} wait")
        finally:
            playing.cancel()
            await asyncio.gather(playing, return_exceptions=True)
        return self._figures(first, later, used, memory, falsely, falsely_later)

    def _cpu(self, found: dict[str, int]) -> dict[str, float]:
        return {name: cpu_seconds(pid) for name, pid in found.items()}

    async def _quiet(self, playing: asyncio.Future[None], what: str) -> None:
        """Until nothing has been bound for a while."""
        begun, count, since = time.monotonic(), len(self.times), time.monotonic()
        while time.monotonic() < begun + MOST_SECONDS:
            await asyncio.sleep(1)
            if playing.done():
                playing.result()
            if len(self.times) != count or not self.nodes.is_published:
                count, since = len(self.times), time.monotonic()
            if time.monotonic() > since + QUIET_SECONDS:
                return
        raise RuntimeError(f"{what}: pods are still being bound after {MOST_SECONDS:.0f} s")

    async def _waiting(self) -> list[Pod]:
        found = await self._client.list(PODS, namespace=NAMESPACE, field_selector="spec.nodeName=", type=Pod)
        return found.items

    async def _pending(self) -> int:
        return len(await self._waiting())

    async def _falsely(self) -> int:
        """How many pods wait that a kubelet would admit. Pods that ask for the same are judged once."""
        waiting_pods: dict[bytes, list[Pod]] = {}
        for pod in await self._waiting():
            key = msgspec.json.encode([each.resources for each in (*pod.init_containers, *pod.containers)])
            waiting_pods.setdefault(key, []).append(pod)
        falsely = 0
        for several in waiting_pods.values():
            wanted = pod_request(several[0])
            if any(kubelet.would_admit(wanted) for kubelet in self.nodes.kubelets.values()):
                falsely += len(several)
            await asyncio.sleep(0)
        return falsely

    async def _delete(self) -> None:
        """A tenth of the pods that run."""
        running = [pod.name for kubelet in self.nodes.kubelets.values() for pod in kubelet.pods.values()]
        gone = random.Random(173).sample(sorted(running), int(len(running) * DELETED))
        for group in in_groups(gone, CREATED_AT_ONCE):
            await together(self._client.delete(PODS, each, namespace=NAMESPACE) for each in group)

    def _figures(
        self, first: int, later: int, used: dict[str, float], memory: float, falsely: int, falsely_later: int
    ) -> list[Figure]:
        mode = self._settings.mode
        times = [each - self.times[0] for each in self.times[:first]]
        most = percentile(times, 95)
        rate = 0.95 * first / most if most else 0.0
        refused = sum(self.nodes.refused.values())
        return [
            Figure(f"{mode}: pods bound", rate, "/s", "NS-172", 100.0, at_most=False, note=f"of the first {first}"),
            Figure(f"{mode}: bound again after a tenth went", later, "pods"),
            Figure(f"{mode}: refused by kubelets", refused, "pods", "NS-172", 0.0),
            Figure(f"{mode}: falsely waiting", falsely, "pods", "NS-172", 0.0),
            Figure(f"{mode}: falsely waiting after a tenth went", falsely_later, "pods", "NS-172", 0.0),
            *(
                Figure(f"{mode}: CPU of {name} for a pod", 1000 * seconds / max(first, 1), "ms")
                for name, seconds in sorted(used.items())
            ),
            Figure(f"{mode}: memory of the extender", memory, "MiB", "NS-171", 250.0),
        ]


async def prepare(client: Client) -> None:
    """The definition of topologies, and a namespace that takes pods without a controller manager."""
    await client.apply(CRDS, topology_crd())
    await wait.established(client, [topology_crd()["metadata"]["name"]])
    await client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}
    await client.create(SERVICE_ACCOUNTS, account, namespace=NAMESPACE)


@asynccontextmanager
async def started(
    program: str, sandbox: Sandbox, settings: SchedulerSettings, folder: Path
) -> AsyncIterator[dict[str, int]]:
    """The pids of the extender, the scheduler (``program``) and the API server, once the extender answers."""
    address = f"127.{sandbox.state.pod_network}.249.{secrets.randbelow(250) + 1}"
    surroundings = SchedulerPodContext(
        program=program, address=address, kubeconfig=str(sandbox.kubeconfig), configuration=str(folder / "scheduler")
    )
    (folder / "extender").write_text(text(extender_configuration(settings)))
    generated = text(scheduler_configuration(settings, namespace="kube-system"))
    (folder / "scheduler").write_text(pod_scheduler_configuration(generated, surroundings))
    extends = [
        *(sys.executable, "-c", PROGRAM, "run", "numa-extender", f"--config={folder / 'extender'}"),
        *(f"--listen={address}:{EXTENDER_PORT}", f"--status-listen={address}:{STATUS_PORT}"),
        *(f"--kubeconfig={sandbox.kubeconfig}", f"--namespace={NAMESPACE}"),
    ]
    container = Container(NAME, command=[NAME], args=["--config=/x", "-v=0"])
    schedules = [*scheduler_command(container, {}, {}, surroundings), "--secure-port=0"]
    with (folder / "extender.log").open("ab") as first, (folder / "scheduler.log").open("ab") as second:
        extender = await asyncio.create_subprocess_exec(*extends, stdout=asyncio.subprocess.PIPE, stderr=first)
        try:
            assert extender.stdout is not None
            async with asyncio.timeout(START_SECONDS):
                said = json.loads(await extender.stdout.readline() or b"{}")
                assert said, (folder / "extender.log").read_text()
            scheduler = await asyncio.create_subprocess_exec(*schedules, stdout=second, stderr=second)
            try:
                yield {
                    "extender": extender.pid,
                    "kube-scheduler": scheduler.pid,
                    "kube-apiserver": sandbox.records()["kube-apiserver"].pid,
                }
            finally:
                scheduler.kill()
                await scheduler.wait()
        finally:
            extender.kill()
            await extender.wait()


async def measured(mode: SchedulingMode, say: Say, *, nodes: int = NODES, pods: int = PODS_WANTED) -> list[Figure]:
    """A trial in a sandbox of its own."""
    numa = NumaLayout.parse(CELLS)
    sandbox = await Sandbox.start(
        Settings(name=f"bench-cells-{os.getpid()}", nodes={}, polyarch=False, seed_images=False), owner=os.getpid()
    )
    try:
        records = sandbox.records()
        idle = [records[name] for name in ("kube-controller-manager", "kube-scheduler")]
        await processes.stop(idle, records=sandbox.folder.records)
        program = records["kube-scheduler"].arguments[0]
        with tempfile.TemporaryDirectory() as folder:
            async with sandbox.client() as client:
                settings = SchedulerSettings(mode=mode)
                trial = Trial(sandbox, client, settings, layout.node(numa), program, say, nodes=nodes, pods=pods)
                return await trial.run(Path(folder))
    finally:
        await sandbox.delete()


def exact(say: Say) -> list[Figure]:
    """One node at a time, with cells reserved."""
    return asyncio.run(measured("exact", say))


SCENARIOS: dict[str, Callable[[Say], list[Figure]]] = {"cells": exact}
