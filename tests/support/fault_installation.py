"""Polyarch as a user installs it, in a sandbox whose nodes run its pods: what a scenario does to it.

Operator, webhook and controller are Deployments, asked through Services. Their processes are found by pod and ended by
pid. ``left`` compares every object of the API server with what was there before anything was installed.
"""

import asyncio
import contextlib
import os
import shutil
import signal
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
from audited import Audited
from fault_crowd import NAMESPACE_PREFIX, POLICY, Crowd, Expected, crowd_in, seed
from placement_cluster import is_gated, labels, pod, until

from polyarch.installation import apply, preflight, uninstall, wait
from polyarch.installation.inventory import ClusterInventory, InventoryObject, survey
from polyarch.installation.objects import documents
from polyarch.installation.settings import InstallationSettings
from polyarch.kube.client import Client
from polyarch.kube.errors import ApiError, ConnectionFailed, NotFound
from polyarch.kube.resources import NAMESPACES, PODS
from polyarch.names import DEFAULT_NAMESPACE
from polyarch.operator.settings import DEFAULT_IMAGE
from polyarch.placement import names
from polyarch.placement.api import CPPCS
from polyarch.platforms import IMAGE_ARCHITECTURES
from polyarch.sandbox import control_plane, processes
from polyarch.sandbox import control_plane as controlplane
from polyarch.sandbox.cluster import Sandbox
from polyarch.sandbox.control_plane import until_healthy
from polyarch.sandbox.errors import SilentStepProgress
from polyarch.sandbox.processes import Record

HOST = "quay.io"
AVAILABLE_SECONDS = 120.0


async def restart_api_server(sandbox: Sandbox, *, away: float) -> float:
    """A real kill, so many seconds without one, and a real start. The time at which it is ready again."""
    layout = sandbox.layout
    record = sandbox.records()["kube-apiserver"]
    await processes.stop([record], records=layout.folder.records, grace=0.0)
    await asyncio.sleep(away)
    started = await controlplane.ensure(layout, control_plane.kube_apiserver(layout))
    await until_healthy(started, controlplane.probes(layout)["kube-apiserver"], seconds=90)
    return asyncio.get_running_loop().time()


class Backup:
    """What etcd had at one moment, and the way back to it."""

    def __init__(self, sandbox: Sandbox, folder: Path) -> None:
        self._sandbox = sandbox
        self._folder = folder

    @classmethod
    @contextlib.contextmanager
    def of(cls, sandbox: Sandbox) -> Iterator["Backup"]:
        """As of now."""
        folder = sandbox.folder.etcd.with_name("etcd-backup")
        pid = sandbox.records()["etcd"].pid
        os.kill(pid, signal.SIGSTOP)  # what is copied is what a power failure would leave
        try:
            shutil.copytree(sandbox.folder.etcd, folder)
        finally:
            os.kill(pid, signal.SIGCONT)
        try:
            yield cls(sandbox, folder)
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    async def restore(self) -> None:
        """As an administrator does: the whole control plane is stopped, and started with the backup's data."""
        layout, records = self._sandbox.layout, self._sandbox.records()
        clients = [records[name] for name in ("kube-controller-manager", "kube-scheduler") if name in records]
        await processes.stop([*clients, records["kube-apiserver"]], records=layout.folder.records, grace=0.0)
        await processes.stop([records["etcd"]], records=layout.folder.records)
        shutil.rmtree(layout.folder.etcd)
        self._folder.rename(layout.folder.etcd)
        await control_plane.start(layout, SilentStepProgress())


class Installed:
    """``before``: every object that was there before polyarch."""

    def __init__(self, sandbox: Sandbox, client: Client, before: ClusterInventory) -> None:
        self.sandbox = sandbox
        self.client = client
        self.before = before

    @classmethod
    async def of(cls, sandbox: Sandbox, client: Client) -> "Installed":
        await sandbox.registry.seed({DEFAULT_IMAGE: [f"linux/{each}" for each in IMAGE_ARCHITECTURES]})
        return cls(sandbox, client, await survey(client))

    # -- installation --------------------------------------------------------------------------------------------------

    def settings(self, *, webhooks: int = 1, controllers: int = 1, configured: bool = True) -> InstallationSettings:
        values = {
            "operator": {"replicas": 1},
            "placement": {
                "webhookReplicas": webhooks,
                "controllerReplicas": controllers,
                "policy": POLICY,
                "configuration": {} if configured else None,
            },
            "registries": {
                "configuration": self.sandbox.registries_conf.read_text(),
                "allowAddresses": ["127.0.0.0/8"],
            },
        }
        return msgspec.convert(values, InstallationSettings)

    async def install(self, settings: InstallationSettings) -> None:
        """As ``polyarch install``; again where the API server went away meanwhile, as a user would."""
        while True:
            try:
                wanted = documents(settings)
                await apply.apply_all(self.client, wanted, await preflight.gather(self.client, wanted))
            except (ConnectionFailed, ApiError, apply.ApplyRefused):
                await asyncio.sleep(0.5)
            else:
                return

    async def available(self, *, configured: bool = True) -> None:
        end = time.monotonic() + AVAILABLE_SECONDS
        while True:
            try:
                await wait.available(
                    self.client,
                    DEFAULT_NAMESPACE,
                    switched_on=[CPPCS] if configured else [],
                    seconds=end - time.monotonic(),
                    tell=lambda _: None,
                    every=0.2,
                )
            except (ConnectionFailed, ApiError):
                await asyncio.sleep(0.5)
            else:
                break
        if configured:
            await until(self.is_asked, seconds=60)

    async def is_asked(self) -> bool:
        """Whether a pod that is created is seen by the webhook."""
        seen = await self.client.create(
            PODS, pod(f"{HOST}/no:1", name="probe"), namespace="default", type=dict, dry_run=True
        )
        return names.SCHEDULING_GATE_LABEL in labels(seen)

    async def remove(self, **how: Any) -> uninstall.UninstallResult:
        """As ``polyarch uninstall``, also through a restart of the API server."""
        while True:
            try:
                return await uninstall.remove(self.client, DEFAULT_NAMESPACE, **how)
            except (ConnectionFailed, ApiError):
                await asyncio.sleep(0.5)

    async def left(self) -> list[str]:
        """What is there and was not, but for the pods of scenarios."""
        seen = await survey(self.client)
        assert not seen.unread, seen.unread
        return [str(each) for each in seen.since(self.before) if not _of_a_scenario(each)]

    def audit(self, account: str) -> Audited:
        """What a ServiceAccount of polyarch asks from now on."""
        return Audited(self.sandbox, f"system:serviceaccount:{DEFAULT_NAMESPACE}:{account}")

    # -- processes -----------------------------------------------------------------------------------------------------

    def processes(self, workload: str) -> list[Record]:
        """The running processes of a Deployment's pods."""
        return [each for each in self.sandbox.containers() if f"/{workload}-" in f"/{each.pod.rpartition('/')[2]}"]

    def signal(self, workload: str, number: signal.Signals) -> int:
        """To all processes of its pods; returns how many they are."""
        found = self.processes(workload)
        for each in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(each.pid, number)
        return len(found)

    # -- pods ----------------------------------------------------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def crowd(self, case: str = "gated", *, writes: int = 1) -> AsyncIterator[Crowd]:
        async with crowd_in(self.client, self.sandbox.audit_log, case, writes=writes) as crowd:
            yield crowd

    async def seed(self, count: int) -> dict[str, Expected]:
        return await seed(self.sandbox, HOST, count)

    async def gated(self) -> list[str]:
        found = await self.client.list(PODS)
        return [each["metadata"]["name"] for each in found.items if is_gated(each)]


def _of_a_scenario(found: InventoryObject) -> bool:
    ref = found.ref
    name = ref.key.name if ref.resource == NAMESPACES else ref.key.namespace
    return name.startswith(NAMESPACE_PREFIX)


class FailedOpen:
    """What the API server says of webhooks that it could not ask, since this was made."""

    def __init__(self, sandbox: Sandbox) -> None:
        self._log = sandbox.folder.root / "logs" / "kube-apiserver.log"
        self._offset = self._log.stat().st_size

    def reasons(self) -> list[str]:
        with self._log.open("rb") as log:
            log.seek(self._offset)
            lines = log.read().decode(errors="replace").splitlines()
        return [each.rpartition("failed to call webhook:")[2] for each in lines if "failing open" in each]

    def but_for_time(self) -> list[str]:
        """Without those that were not answered within 5 s."""
        return [each for each in self.reasons() if "context deadline exceeded" not in each]


class Load:
    """Pods asked for at a steady rate, as dry runs: admission does all of its work, and nothing is left.

    The webhooks' ``failurePolicy: Ignore`` hides failures from whoever creates pods; what counts is whether the answer
    carries our label.
    """

    def __init__(self, client: Client, namespace: str, images: Sequence[str], *, per_second: float) -> None:
        self._client = client
        self._namespace = namespace
        self._images = images
        self._pause = 1 / per_second
        self.asked = 0
        self.answered = 0
        self.missed: list[float] = []
        """When a pod was asked for that no webhook saw."""
        self.refused: list[str] = []
        """What the API server said to those that it did not take."""
        self.seconds = 0.0

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator["Load"]:
        began = time.monotonic()
        asking = asyncio.create_task(self._run())
        try:
            yield self
        finally:
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)
            self.seconds = time.monotonic() - began

    async def _run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            due = time.monotonic()
            while True:
                due += self._pause
                await asyncio.sleep(max(due - time.monotonic(), 0))
                tasks.create_task(self._ask())

    async def _ask(self) -> None:
        self.asked += 1
        began = time.monotonic()
        document = pod(self._images[self.asked % len(self._images)], name=f"load-{self.asked}")
        try:
            seen = await self._client.create(PODS, document, namespace=self._namespace, type=dict, dry_run=True)
        except (ApiError, ConnectionFailed) as error:
            self.refused.append(str(error))
            return
        self.answered += 1
        if names.SCHEDULING_GATE_LABEL not in labels(seen):
            self.missed.append(began)


async def is_gone(client: Client, resource: Any, name: str, namespace: str = "") -> bool:
    try:
        await client.get(resource, name, namespace=namespace)
    except NotFound:
        return True
    return False
