"""One run of the demo's pods in a namespace of its own, watched until each has settled."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Self

import msgspec

from polyarch.kube.client import Client
from polyarch.kube.errors import NotFound
from polyarch.kube.informer import InformerFactory
from polyarch.kube.resources import NAMESPACES, PODS, SECRETS, SERVICE_ACCOUNTS, Resource
from polyarch.kube.store import ObjectChange
from polyarch.sandbox.demo import workloads
from polyarch.sandbox.demo.workloads import WORKLOADS, DemoRow, DemoWorkload, pull_secret
from polyarch.sandbox.errors import ProcessFailed
from polyarch.sandbox.nodes.pods import Pod
from polyarch.sandbox.tasks import until

SETTLE_SECONDS = 30.0
CLEAN_SECONDS = 180.0

Listener = Callable[[str, tuple[DemoRow, ...]], None]
"""Called with the namespace and all rows after each change of a row."""


async def clean(client: Client, namespace: str) -> None:
    """Delete the namespace of an earlier demo."""
    try:
        await client.delete(NAMESPACES, namespace)
    except NotFound:
        return
    if not await until(lambda: is_absent(client, NAMESPACES, namespace), seconds=CLEAN_SECONDS):
        raise ProcessFailed(f"namespace {namespace} of an earlier demo is not gone after {CLEAN_SECONDS:.0f} s")


async def create_namespace(client: Client, name: str) -> None:
    await client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})


async def is_absent(client: Client, resource: Resource, name: str, *, namespace: str = "") -> bool:
    try:
        await client.get(resource, name, namespace=namespace)
    except NotFound:
        return True
    return False


class DemoRun:
    """One run of all workloads in a new namespace, watched until each has settled."""

    def __init__(self, client: Client, registry: str, namespace: str, listener: Listener) -> None:
        """``registry``: the address of the sandbox's registry, for the pull secret."""
        self._client = client
        self._registry = registry
        self._namespace = namespace
        self._listener = listener
        self._rows = {workload.name: DemoRow(name=workload.name) for workload in WORKLOADS}
        self._asked: dict[str, float] = {}
        self._changed = asyncio.Event()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Self]:
        """Create the pods, and watch them during the block."""
        await self._prepare()
        informers = InformerFactory(self._client, freeze=False)
        pods = informers.informer(PODS, Pod, namespace=self._namespace)
        pods.add_handler(self._seen)
        watching = asyncio.create_task(informers.run())
        try:
            await informers.synced()
            for workload in WORKLOADS:
                await self._create(workload)
            yield self
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)

    async def settled(self) -> dict[str, DemoRow]:
        """The rows when all pods have settled, or after a while."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(SETTLE_SECONDS):
                while not all(row.settled for row in self._rows.values()):
                    self._changed.clear()
                    await self._changed.wait()
        return dict(self._rows)

    async def hold_again(self) -> None:
        """Create the pods again that no node can run: without polyarch, nobody held them any longer."""
        for workload in WORKLOADS:
            row = self._rows[workload.name]
            if row.path == "gated" and not row.node:
                await self._create_again(workload)

    async def _create_again(self, workload: DemoWorkload) -> None:
        async def is_gone() -> bool:
            return await is_absent(self._client, PODS, workload.name, namespace=self._namespace)

        await self._client.delete(PODS, workload.name, namespace=self._namespace, grace_period_seconds=0)
        if not await until(is_gone, seconds=CLEAN_SECONDS):
            raise ProcessFailed(f"pod {self._namespace}/{workload.name} is not gone after {CLEAN_SECONDS:.0f} s")
        await self._client.create(PODS, workload.document(self._namespace), namespace=self._namespace)

    async def _prepare(self) -> None:
        name = self._namespace
        await create_namespace(self._client, name)
        secret = pull_secret(name, self._registry)
        await self._client.create(SECRETS, secret, namespace=name)

        async def has_account() -> bool:
            return not await is_absent(self._client, SERVICE_ACCOUNTS, "default", namespace=name)

        if not await until(has_account, seconds=SETTLE_SECONDS):
            raise ProcessFailed(f"namespace {name} has no default ServiceAccount after {SETTLE_SECONDS:.0f} s")

    async def _create(self, workload: DemoWorkload) -> None:
        document = workload.document(self._namespace)
        self._asked[workload.name] = time.monotonic()
        pod = await self._client.create(PODS, document, namespace=self._namespace, type=Pod)
        row = workloads.created(self._rows[workload.name], pod, self._elapsed(workload.name))
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

    def _seen(self, change: ObjectChange[Pod]) -> None:
        name = change.key.name
        if change.new is not None and name in self._asked:
            self._keep(workloads.seen(self._rows[name], change.new, self._elapsed(name)))

    def _keep(self, row: DemoRow) -> None:
        if self._rows[row.name] != row:
            self._rows[row.name] = row
            self._listener(self._namespace, tuple(self._rows.values()))
            self._changed.set()
