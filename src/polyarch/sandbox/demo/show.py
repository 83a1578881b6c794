"""Run of the demo (SB-007): create the pods and watch them, do the same without polyarch, and summarise."""

import asyncio
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from polyarch.kube.client.client import Client
from polyarch.kube.errors import NotFound
from polyarch.kube.resources import NAMESPACES, PODS, SECRETS, SERVICE_ACCOUNTS, Resource
from polyarch.kube.runtime.informer import Informers
from polyarch.kube.runtime.store import Change
from polyarch.sandbox import roles
from polyarch.sandbox.cluster import Sandbox
from polyarch.sandbox.demo import audit, observation
from polyarch.sandbox.demo.audit import AuditEvent
from polyarch.sandbox.demo.observation import Row
from polyarch.sandbox.demo.workloads import IMAGES, PULL_SECRET, WORKLOADS, Workload, can_run, platforms, pull_secret
from polyarch.sandbox.document import Demo, DemoImage, DemoPod, Without
from polyarch.sandbox.errors import ProcessFailed
from polyarch.sandbox.nodes.pods import Pod
from polyarch.sandbox.tasks import together, until

WITH = "demo"
WITHOUT = "demo-without-polyarch"
SETTLE_SECONDS = 30.0
CLEAN_SECONDS = 60.0
AUDIT_SECONDS = 1.5
"""Wait for the audit log, which is written once a second."""

Listener = Callable[[str, tuple[Row, ...]], None]
"""Called with the namespace and all rows after each change of a row."""


class Shown(msgspec.Struct, frozen=True):
    """The demo's outcome; ``failed`` names the pods that could run and did not."""

    demo: Demo
    failed: tuple[str, ...]


async def show(sandbox: Sandbox, listener: Listener) -> Shown:
    """Run the whole demo on a running sandbox with polyarch."""
    architectures = sorted({architecture for _, architecture, _ in await sandbox.nodes()})
    await sandbox.registry.seed(IMAGES, origin="demo")
    async with sandbox.client() as client:
        await together(_clean(client, namespace) for namespace in (WITH, WITHOUT))
        mark = sandbox.audit_log.stat().st_size
        with_polyarch = await _Stage(client, sandbox, WITH, listener).run()
        await asyncio.sleep(AUDIT_SECONDS)
        with_polyarch = _with_audit(with_polyarch, _audit(sandbox.audit_log, mark))
        listener(WITH, tuple(with_polyarch.values()))
        await roles.unregister(client)
        try:
            without = await _Stage(client, sandbox, WITHOUT, listener).run()
        finally:
            await roles.register(sandbox.folder, client)
    nodes = {name: architecture for name, architecture, _ in await sandbox.nodes()}
    return summarize(with_polyarch, without, nodes, architectures)


def summarize(
    with_polyarch: Mapping[str, Row], without: Mapping[str, Row], nodes: Mapping[str, str], architectures: list[str]
) -> Shown:
    """The document and the failed pods. ``nodes`` maps node names to architectures."""
    pods = [_pod(workload, with_polyarch[workload.name], without[workload.name], nodes) for workload in WORKLOADS]
    able = [workload.name for workload in WORKLOADS if can_run(workload, architectures)]
    failed = tuple(name for name in able if with_polyarch[name].phase != "Running" or with_polyarch[name].problem)
    broken = [name for name in able if without[name].problem]
    requests = sum(row.requests for row in with_polyarch.values())
    inline = sum(row.path == "inline" for row in with_polyarch.values())
    parts = [
        f"with polyarch {len(able) - len(failed)} of {len(able)} pods that can run do run",
        f"{inline} were placed at admission, for {requests} API requests in all",
        f"without it {len(broken)} of the same {len(able)} fail on the node they got",
    ]
    if len(able) < len(WORKLOADS):
        parts.append(f"{len(WORKLOADS) - len(able)} can run nowhere, and only with polyarch says so before it is tried")
    return Shown(Demo(pods, "; ".join(parts)), failed)


def _pod(workload: Workload, row: Row, without: Row, nodes: Mapping[str, str]) -> DemoPod:
    return DemoPod(
        name=workload.name,
        namespace=WITH,
        images=[DemoImage(image, platforms(image)) for image in workload.images],
        path=row.path,
        reason=row.reason,
        architectures=list(row.architectures),
        node=row.node,
        node_architecture=nodes.get(row.node, ""),
        phase=row.phase,
        milliseconds=row.times,
        requests=row.requests,
        without=Without(without.node, nodes.get(without.node, ""), without.phase, without.problem),
    )


def _audit(log: Path, mark: int) -> list[AuditEvent]:
    """The audit events after the first ``mark`` bytes of the log."""
    with log.open("rb") as file:
        file.seek(mark)
        return audit.read(file)


def _with_audit(rows: Mapping[str, Row], events: list[AuditEvent]) -> dict[str, Row]:
    """The rows with polyarch's requests for each pod, and the reason of pods without an annotation."""
    private = dict.fromkeys([PULL_SECRET], next(workload.name for workload in WORKLOADS if workload.private))
    requests = audit.count(events, users=roles.USERS, namespace=WITH, pods=rows, secrets=private)
    noted = audit.decisions(events, namespace=WITH)
    return {
        name: msgspec.structs.replace(
            row, requests=requests[name], reason=row.reason or noted.get(name, "").partition(" ")[0]
        )
        for name, row in rows.items()
    }


async def _clean(client: Client, namespace: str) -> None:
    """Delete the namespace of an earlier demo."""
    try:
        await client.delete(NAMESPACES, namespace)
    except NotFound:
        return
    if not await until(lambda: _is_absent(client, NAMESPACES, namespace), seconds=CLEAN_SECONDS):
        raise ProcessFailed(f"namespace {namespace} of an earlier demo is not gone after {CLEAN_SECONDS:.0f} s")


async def _is_absent(client: Client, resource: Resource, name: str, *, namespace: str = "") -> bool:
    try:
        await client.get(resource, name, namespace=namespace)
    except NotFound:
        return True
    return False


class _Stage:
    """One run of all workloads in a new namespace, watched until each has settled."""

    def __init__(self, client: Client, sandbox: Sandbox, namespace: str, listener: Listener) -> None:
        self._client = client
        self._sandbox = sandbox
        self._namespace = namespace
        self._listener = listener
        self._rows = {workload.name: Row(name=workload.name) for workload in WORKLOADS}
        self._asked: dict[str, float] = {}
        self._changed = asyncio.Event()

    async def run(self) -> dict[str, Row]:
        """The rows at the end, also of pods that have not settled in time."""
        await self._prepare()
        informers = Informers(self._client, freeze=False)
        pods = informers.informer(PODS, Pod, namespace=self._namespace)
        pods.add_handler(self._seen)
        watching = asyncio.create_task(informers.run())
        try:
            await informers.synced()
            for workload in WORKLOADS:
                await self._create(workload)
            try:
                async with asyncio.timeout(SETTLE_SECONDS):
                    await self._settled()
            except TimeoutError:
                return self._rows
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)
        return self._rows

    async def _settled(self) -> None:
        while not all(row.settled for row in self._rows.values()):
            self._changed.clear()
            await self._changed.wait()

    async def _prepare(self) -> None:
        name = self._namespace
        await self._client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        secret = pull_secret(name, self._sandbox.registry.address)
        await self._client.create(SECRETS, secret, namespace=name)

        async def has_account() -> bool:
            return not await _is_absent(self._client, SERVICE_ACCOUNTS, "default", namespace=name)

        if not await until(has_account, seconds=SETTLE_SECONDS):
            raise ProcessFailed(f"namespace {name} has no default ServiceAccount after {SETTLE_SECONDS:.0f} s")

    async def _create(self, workload: Workload) -> None:
        document = workload.document(self._namespace)
        self._asked[workload.name] = time.monotonic()
        pod = await self._client.create(PODS, document, namespace=self._namespace, type=Pod)
        row = observation.created(self._rows[workload.name], pod, self._elapsed(workload.name))
        # The watch may be ahead of the answer; then its state is the newer one.
        known = self._rows[workload.name]
        if known.phase:
            row = msgspec.structs.replace(
                known,
                path=row.path,
                times=msgspec.structs.replace(known.times, admission=row.times.admission),
            )
        self._keep(row)

    def _elapsed(self, name: str) -> float:
        return round((time.monotonic() - self._asked[name]) * 1000, 1)

    def _seen(self, change: Change[Pod]) -> None:
        name = change.key.name
        if change.new is not None and name in self._asked:
            self._keep(observation.seen(self._rows[name], change.new, self._elapsed(name)))

    def _keep(self, row: Row) -> None:
        if self._rows[row.name] != row:
            self._rows[row.name] = row
            self._listener(self._namespace, tuple(self._rows.values()))
            self._changed.set()
