"""The exporter's own Node: who owns the topology, what the kubelet says it has, and where the kubelet answers.

Its uid is that of the live Node (NE-018). A Node that was deleted and registered again has another one, and the garbage
collector deletes whatever refers to the old one. So the Node is watched, and read once more before a reference to it is
written.
"""

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

import msgspec
import structlog

from polyarch.clock import Clock
from polyarch.kube.errors import Forbidden
from polyarch.kube.rbac import rule
from polyarch.kube.requests import Random
from polyarch.kube.resources import NODES
from polyarch.numa.exporter.cluster.followed import Followed, ReadingClient
from polyarch.objects import ObjectMeta

log = structlog.get_logger(__name__)

RIGHTS: Final = (rule(NODES, "get", "list", "watch"),)
"""Always asked for by name."""
KUBELET_PORT: Final = 10250
"""Where a Node does not say otherwise."""


class _Address(msgspec.Struct, frozen=True, gc=False):
    type: str = ""
    address: str = ""


class _Endpoint(msgspec.Struct, frozen=True, gc=False):
    port: int = msgspec.field(default=0, name="Port")


class _Endpoints(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    kubelet_endpoint: _Endpoint = _Endpoint()


class _Status(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    capacity: dict[str, str] | None = None
    allocatable: dict[str, str] | None = None
    addresses: list[_Address] | None = None
    daemon_endpoints: _Endpoints = _Endpoints()


class Place(NamedTuple):
    """Where a kubelet answers."""

    host: str
    port: int


class NodeObject(msgspec.Struct, frozen=True, gc=False):
    """core/v1 Node, reduced to what an exporter reads of it."""

    metadata: ObjectMeta = ObjectMeta()
    status: _Status = _Status()

    @property
    def kubelet(self) -> Place:
        """The InternalIP, empty if there is none, and the port."""
        several = self.status.addresses or ()
        host = next((each.address for each in several if each.type == "InternalIP"), "")
        return Place(host, self.status.daemon_endpoints.kubelet_endpoint.port or KUBELET_PORT)


class OwnNode:
    """``replaced`` is called when the uid has changed, ``moved`` when the kubelet's address has, ``resized`` when
    capacity or allocatable has."""

    def __init__(
        self,
        client: ReadingClient,
        name: str,
        *,
        clock: Clock,
        resync: float = 600.0,
        chance: Random | None = None,
        replaced: Callable[[], None] = lambda: None,
        resized: Callable[[], None] = lambda: None,
        moved: Callable[[], None] = lambda: None,
    ) -> None:
        self._replaced = replaced
        self._resized = resized
        self._moved = moved
        self._before: NodeObject | None = None
        self._followed = Followed(
            client, NODES, name, NodeObject, clock=clock, resync=resync, chance=chance, changed=self._compare
        )

    @property
    def uid(self) -> str:
        """Of the live Node; empty if there is none, or if it may not be read."""
        found = self._followed.object
        return found.metadata.uid if found is not None else ""

    @property
    def resources(self) -> tuple[Mapping[str, str], Mapping[str, str]]:
        """``status.capacity`` and ``status.allocatable``."""
        found = self._followed.object
        return _resources(found)

    @property
    def kubelet(self) -> Place:
        """Where the kubelet answers; an empty host: that is not known."""
        return _kubelet(self._followed.object)

    async def settled(self) -> None:
        """Returns when it is known whether there is a Node, or that it may not be read."""
        await self._followed.settled()

    async def confirmed(self) -> str:
        """The uid as the API server has it now. Raises ``KubernetesError`` if it cannot be asked.

        If it may not be asked, the one from the watch.
        """
        try:
            await self._followed.read(retry=False)
        except Forbidden as error:
            log.debug("own Node cannot be confirmed", error=str(error))
        self._compare()
        return self.uid

    async def run(self) -> None:
        """Follows until cancelled."""
        await self._followed.run()

    def _compare(self) -> None:
        before, now = self._before, self._followed.object
        self._before = now
        if _uid(before) != _uid(now):
            self._replaced()
        if _kubelet(before) != _kubelet(now):
            self._moved()
        if before is not None and _resources(before) != _resources(now):
            self._resized()


def _uid(node: NodeObject | None) -> str:
    return node.metadata.uid if node is not None else ""


def _kubelet(node: NodeObject | None) -> Place:
    return node.kubelet if node is not None else Place("", KUBELET_PORT)


def _resources(node: NodeObject | None) -> tuple[Mapping[str, str], Mapping[str, str]]:
    if node is None:
        return {}, {}
    return node.status.capacity or {}, node.status.allocatable or {}
