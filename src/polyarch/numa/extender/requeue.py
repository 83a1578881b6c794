"""Rejected pods are woken where kube-scheduler does not look: it watches no NodeResourceTopology.

It tries a pod that an extender rejected again after any event of a kind that it watches. CSIStorageCapacity is one of
them, and one that is in our namespace alone: its storage class does not exist, so it says nothing of any volume."""

import asyncio
from typing import Final, Protocol

import structlog

from polyarch.clock import Clock
from polyarch.kube.client import Client
from polyarch.kube.errors import AlreadyExists, KubernetesError, NotFound
from polyarch.kube.patches import MergePatch
from polyarch.kube.resources import NODES, Resource
from polyarch.numa.extender.metrics import ExtenderMetrics
from polyarch.numa.names import KICK, KICKS

log = structlog.get_logger(__name__)

CAPACITIES: Final = Resource("storage.k8s.io", "v1", "csistoragecapacities", "CSIStorageCapacity")
INTERVAL: Final = 1.0
"""Seconds between two kicks."""


class RequeueSignal(Protocol):
    """What a kick writes."""

    async def send(self, node: str, count: int) -> None: ...


class StorageCapacitySignal:
    """A counter on the one object of our namespace."""

    def __init__(self, client: Client, namespace: str) -> None:
        self._client = client
        self._namespace = namespace

    async def send(self, node: str, count: int) -> None:
        change = MergePatch({"metadata": {"annotations": {KICKS: str(count)}}})
        try:
            await self._client.patch(CAPACITIES, KICK, change, namespace=self._namespace, retry=False)
        except NotFound:
            await self._create(count)

    async def _create(self, count: int) -> None:
        document = {
            "apiVersion": CAPACITIES.api_version,
            "kind": CAPACITIES.kind,
            "metadata": {"name": KICK, "namespace": self._namespace, "annotations": {KICKS: str(count)}},
            "storageClassName": KICK,
        }
        try:
            await self._client.create(CAPACITIES, document, namespace=self._namespace, retry=False)
        except AlreadyExists:
            log.debug("another replica has made the object of kicks")


class NodeAnnotationSignal:
    """An annotation of the node that has room: for clusters whose scheduler watches no storage capacities."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def send(self, node: str, count: int) -> None:
        change = MergePatch({"metadata": {"annotations": {KICKS: str(count)}}})
        try:
            await self._client.patch(NODES, node, change, retry=False)
        except NotFound:
            log.debug("the node with room is gone", node=node)


class RequeueTrigger:
    """Sends at once when it is told of room, and at most once a second. A signal that fails is sent again."""

    def __init__(self, signal: RequeueSignal, *, metrics: ExtenderMetrics, clock: Clock) -> None:
        self._signal = signal
        self._metrics = metrics
        self._clock = clock
        self._wanted = asyncio.Event()
        self._node = ""

    def wake(self, node: str) -> None:
        """A rejected pod now fits on this node."""
        self._node = node
        self._wanted.set()

    async def run(self) -> None:
        """Sends until cancelled."""
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            node = self._node
            try:
                # The time, since another replica may have counted before.
                await self._signal.send(node, int(self._clock.now().timestamp() * 1000))
            except KubernetesError as error:
                log.warning("rejected pods could not be woken, trying again", error=str(error))
                self._wanted.set()
            else:
                self._metrics.kicked()
            await self._clock.sleep(INTERVAL)
