"""The API objects that an exporter uses beside its topology, its kubelet's port, and its permissions.

:class:`WatchedObject` watches one object by its name; the publisher watches the topology with it, too.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final, Generic, NamedTuple, TypeVar

import msgspec
import structlog

from polyarch.clock import Clock
from polyarch.kube.client import Client
from polyarch.kube.errors import ApiError, ConnectionFailed, Forbidden, KubernetesError, NotFound
from polyarch.kube.informer import Informer
from polyarch.kube.patches import StrategicPatch
from polyarch.kube.requests import ListOptions, Random, Request, backoff
from polyarch.kube.resources import NODES, PODS, Resource
from polyarch.kube.responses import WatchStream
from polyarch.kube.settings import Configuration, PemSource
from polyarch.kube.store import ObjectChange
from polyarch.kube.transport import Transport, TransportSettings
from polyarch.kube.watch import Apply, Delete, KubernetesObject, Page
from polyarch.numa.exporter.settings import ExporterSettings
from polyarch.numa.host.kubelet import ConfigzUnavailable
from polyarch.objects import Condition, ObjectKey, ObjectMeta

log = structlog.get_logger(__name__)

T = TypeVar("T", bound=KubernetesObject)

MAX_EARLY_FAILURES: Final = 5
"""Rejections in a row that may come from an API server that has not loaded its RBAC roles yet, or kinds missing since
they were defined a moment ago."""
NOT_SERVED_INTERVAL: Final = 30.0
"""Seconds until a kind that is not served is looked for again."""
FORBIDDEN_WATCH_INTERVAL: Final = 3600.0
"""Seconds until a forbidden watch is tried again."""
KUBELET_PORT: Final = 10250
"""Where a Node does not say otherwise."""
CONDITION_BACKOFF: Final = (1.0, 60.0)
"""Seconds before another try after a failure: at first, and at most."""
REJECTED_STATUSES: Final = frozenset({401, 403, 404})
CONFIGZ_HINT: Final = "; give the authority of kubelets with --kubelet-ca, or use --kubelet-config=file"
CONFIGZ_TIMEOUT: Final = 10.0
"""Seconds: the kubelet is on this machine."""
MAX_CONDITION_MESSAGE: Final = 256
"""Characters of a message; a cause is short."""
TERMINAL_PHASES: Final = ("Succeeded", "Failed")


class WatchedObject(Generic[T]):
    """A cluster-scoped object, watched by its name, or read now and then where the watch is forbidden.

    The watch selects ``metadata.name``, so that no exporter sees another node. It is the runtime's informer, with a
    client between the two that makes it wait longer where another request soon is of no use: a watch that RBAC forbids
    is tried once an hour, and a kind that is not served every 30 s. Meanwhile the object is read with GET.

    Responses to our own writes and reads go into the same store as the watch's events, and the store takes the newest.
    So nothing is decided from an object older than our last write.
    """

    def __init__(
        self,
        client: Client,
        resource: Resource,
        name: str,
        type: type[T],
        *,
        clock: Clock,
        resync: float,
        chance: Random | None = None,
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        """``changed`` is called after each change that the watch or a read has shown.

        ``resync``: seconds between two reads where the watch is forbidden.
        """
        self._client = client
        self._resource = resource
        self._name = name
        self._type = type
        self._clock = clock
        self._resync = resync
        self._changed = changed
        self._was_read = False
        self._forbidden = asyncio.Event()
        self._settled = asyncio.Event()
        self._not_served = False
        paced = _PacedClient(
            client, clock, opened=self._opened, forbidden=self._is_forbidden, missing=self._kind_is_missing
        )
        selection = ListOptions(field_selector=f"metadata.name={name}")
        self._informer = Informer(paced, resource, type, selection=selection, clock=clock, chance=chance)
        self._informer.add_handler(lambda _: self._changed())

    @property
    def object(self) -> T | None:
        """As last seen; None if there is none, or while nothing is known."""
        return self._informer.store.get(ObjectKey("", self._name))

    @property
    def known(self) -> bool:
        """Whether ``object`` says what the API server has."""
        return self._informer.has_synced or self._was_read

    @property
    def is_missing(self) -> bool:
        """The API server does not have this kind."""
        return self._not_served or self._informer.is_missing

    @property
    def is_watched(self) -> bool:
        """Whether changes are seen at once."""
        return not self._forbidden.is_set()

    @property
    def problem(self) -> str | None:
        """Why nothing is known; None if something is."""
        if self.known:
            return None
        return self._informer.problem or self._informer.last_error or f"{self._informer} is being read"

    async def settled(self) -> None:
        """Returns when the object is known, or is known to be unreadable."""
        await self._settled.wait()

    async def run(self) -> None:
        """Watches until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._informer.run(), name=f"watch {self._informer}")
            tasks.create_task(self._settle(), name=f"first list {self._informer}")
            tasks.create_task(self._reread(), name=f"resync {self._informer}")

    async def read(self, *, retry: bool = True) -> T | None:
        """The object by GET. Raises ``KubernetesError``; that it does not exist is an answer."""
        try:
            read = await self._client.get(self._resource, self._name, type=self._type, retry=retry)
        except NotFound:
            self.gone()
            return None
        self.seen(read)
        return read

    def seen(self, read: T) -> None:
        """The API server has responded to a read or a write of ours with this object."""
        self._was_read = True
        self._informer.store.take(Apply(read))

    def gone(self) -> None:
        """The API server has said that there is no such object."""
        self._was_read = True
        self._informer.store.take(Delete(ObjectKey("", self._name), ""))

    async def _settle(self) -> None:
        await self._informer.synced()
        self._settled.set()
        self._changed()

    async def _reread(self) -> None:
        """While the watch is forbidden."""
        while True:
            await self._forbidden.wait()
            before = self.object
            try:
                await self.read()
            except KubernetesError as error:
                log.warning("neither watch nor read", object=str(self._informer), error=str(error))
            self._settled.set()
            if self.object != before:
                self._changed()
            await self._clock.sleep(self._resync)

    def _opened(self) -> None:
        """Also tells of a kind that is served from now on, but has no object yet."""
        self._forbidden.clear()
        self._not_served = False
        self._changed()

    def _is_forbidden(self) -> None:
        if not self._forbidden.is_set():
            log.warning("watch is forbidden, reading instead", object=str(self._informer), seconds=self._resync)
        self._forbidden.set()

    def _kind_is_missing(self) -> None:
        """Also where discovery shows the kind: what is not found cannot be written."""
        self._not_served = True
        self._settled.set()
        self._changed()


class _PacedClient:
    """The client as the informer sees it: a request that is forbidden, or whose kind is missing, fails late."""

    def __init__(
        self,
        client: Client,
        clock: Clock,
        *,
        opened: Callable[[], None],
        forbidden: Callable[[], None],
        missing: Callable[[], None],
    ) -> None:
        self._client = client
        self._clock = clock
        self._opened = opened
        self._forbidden = forbidden
        self._missing = missing
        self._in_a_row = 0

    async def list_page(self, resource: Resource, selection: ListOptions, *, type: type[T], **options: Any) -> Page[T]:
        try:
            return await self._client.list_page(resource, selection, type=type, **options)
        except (Forbidden, NotFound) as error:
            await self._pause(error)
            raise

    @asynccontextmanager
    async def watch(
        self, resource: Resource, selection: ListOptions, *, type: type[T], **options: Any
    ) -> AsyncIterator[WatchStream[T]]:
        try:
            async with self._client.watch(resource, selection, type=type, **options) as stream:
                self._in_a_row = 0
                self._opened()
                yield stream
        except (Forbidden, NotFound) as error:
            await self._pause(error)
            raise

    async def is_served(self, resource: Resource) -> bool:
        return await self._client.is_served(resource)

    async def _pause(self, error: KubernetesError) -> None:
        self._in_a_row += 1
        if self._in_a_row <= MAX_EARLY_FAILURES:
            return
        if isinstance(error, Forbidden):
            self._forbidden()
            await self._clock.sleep(FORBIDDEN_WATCH_INTERVAL)
        else:
            self._missing()
            await self._clock.sleep(NOT_SERVED_INTERVAL)


# -- the own Node ------------------------------------------------------------------------------------------------------


class _NodeAddress(msgspec.Struct, frozen=True, gc=False):
    type: str = ""
    address: str = ""


class _DaemonEndpoint(msgspec.Struct, frozen=True, gc=False):
    port: int = msgspec.field(default=0, name="Port")


class _DaemonEndpoints(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    kubelet_endpoint: _DaemonEndpoint = _DaemonEndpoint()


class _NodeStatus(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    capacity: dict[str, str] | None = None
    allocatable: dict[str, str] | None = None
    addresses: list[_NodeAddress] | None = None
    daemon_endpoints: _DaemonEndpoints = _DaemonEndpoints()


class KubeletEndpoint(NamedTuple):
    """The address of a kubelet."""

    host: str
    port: int


class NodeObject(msgspec.Struct, frozen=True, gc=False):
    """core/v1 Node, reduced to what an exporter reads of it."""

    metadata: ObjectMeta = ObjectMeta()
    status: _NodeStatus = _NodeStatus()

    @property
    def resources(self) -> tuple[Mapping[str, str], Mapping[str, str]]:
        """Capacity and allocatable."""
        return self.status.capacity or {}, self.status.allocatable or {}

    @property
    def kubelet(self) -> KubeletEndpoint:
        """The InternalIP, empty if there is none, and the port."""
        addresses = self.status.addresses or ()
        host = next((address.address for address in addresses if address.type == "InternalIP"), "")
        return KubeletEndpoint(host, self.status.daemon_endpoints.kubelet_endpoint.port or KUBELET_PORT)


class OwnNode:
    """The exporter's own Node: the owner of the topology, with its resources and the address of its kubelet.

    The uid is that of the live Node. A Node that was deleted and registered again has another one, and the garbage
    collector deletes whatever refers to the old one. So the Node is watched, and read once more before a reference to
    it is written.
    """

    def __init__(
        self,
        client: Client,
        name: str,
        *,
        clock: Clock,
        resync: float = 600.0,
        chance: Random | None = None,
        replaced: Callable[[], None] = lambda: None,
        resized: Callable[[], None] = lambda: None,
        moved: Callable[[], None] = lambda: None,
    ) -> None:
        """``replaced`` is called when the uid has changed, ``moved`` when the kubelet's address has, ``resized`` when
        capacity or allocatable has.
        """
        self._replaced = replaced
        self._resized = resized
        self._moved = moved
        self._before: NodeObject | None = None
        self._watched = WatchedObject(
            client, NODES, name, NodeObject, clock=clock, resync=resync, chance=chance, changed=self._compare
        )

    @property
    def uid(self) -> str:
        """Of the live Node; empty if there is none, or if it may not be read."""
        return (self._watched.object or NodeObject()).metadata.uid

    @property
    def kubelet(self) -> KubeletEndpoint:
        """The address of the kubelet; an empty host: not known."""
        return (self._watched.object or NodeObject()).kubelet

    async def settled(self) -> None:
        """Returns when it is known whether there is a Node, or that it may not be read."""
        await self._watched.settled()

    async def confirmed(self) -> str:
        """The uid as the API server has it now; the one from the watch if reading is forbidden.

        Raises ``KubernetesError`` if there is no response.
        """
        try:
            await self._watched.read(retry=False)
        except Forbidden as error:
            log.debug("own Node cannot be confirmed", error=str(error))
        self._compare()
        return self.uid

    async def run(self) -> None:
        """Watches until cancelled."""
        await self._watched.run()

    def _compare(self) -> None:
        known, self._before = self._before, self._watched.object
        before, now = known or NodeObject(), self._before or NodeObject()
        if before.metadata.uid != now.metadata.uid:
            self._replaced()
        if before.kubelet != now.kubelet:
            self._moved()
        if known is not None and before.resources != now.resources:
            self._resized()


# -- the kubelet's port ------------------------------------------------------------------------------------------------


class KubeletPort:
    """The kubelet's ``/configz``: its configuration with flags and drop-ins, requested at the kubelet's own port.

    It needs the permission ``nodes/configz``. The API server's proxy would answer, too, but whoever may use it may run
    commands in every pod of the node, so it is never used. The pod's token is sent only to a server whose certificate
    verifies, unless somebody chose otherwise.
    """

    def __init__(self, configuration: Configuration, *, clock: Clock, ca: str = "", insecure: bool = False) -> None:
        """``configuration`` is that of the API server: its credentials are used, and its authority unless there is a
        file ``ca``. ``insecure``: any certificate will do.
        """
        authority = PemSource(path="--kubelet-ca", field="", file=ca) if ca else configuration.tls.ca
        tls = msgspec.structs.replace(configuration.tls, ca=authority, server_name="", skip_verify=insecure)
        self._configuration = msgspec.structs.replace(configuration, tls=tls, proxy=None)
        self._clock = clock
        self._server = ""

    def is_at(self, address: str, port: int = KUBELET_PORT) -> None:
        """The node's ``InternalIP``, as its Node says; empty: not known yet."""
        host = f"[{address}]" if ":" in address else address
        self._server = f"https://{host}:{port}" if address else ""

    async def get(self) -> bytes:
        """The answer of ``/configz``; raises ConfigzUnavailable."""
        if not self._server:
            raise ConfigzUnavailable("configz: the InternalIP of the node is not known yet", refused=False)
        configuration = msgspec.structs.replace(self._configuration, server=self._server)
        request = Request("GET", "/configz", "get", "configz")
        try:
            # A request every ten minutes at most: no connection is kept for it.
            async with Transport(
                configuration,
                role="numa-exporter",
                clock=self._clock,
                settings=TransportSettings(timeout=CONFIGZ_TIMEOUT),
            ) as transport:
                return await transport.send(request, retry=False)
        except ApiError as error:
            raise ConfigzUnavailable(str(error), refused=error.status in REJECTED_STATUSES) from error
        except ConnectionFailed as error:
            raise ConfigzUnavailable(
                f"{error}{CONFIGZ_HINT if error.permanent else ''}", refused=error.permanent
            ) from error
        except KubernetesError as error:
            raise ConfigzUnavailable(str(error), refused=False) from error


# -- the own Pod -------------------------------------------------------------------------------------------------------


class _PodCondition(msgspec.Struct, frozen=True):
    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""


class _PodStatus(msgspec.Struct, frozen=True):
    conditions: list[_PodCondition] | None = None


class _Pod(msgspec.Struct, frozen=True):
    status: _PodStatus = _PodStatus()


class OwnPod:
    """The conditions of the exporter's own Pod: whether scans succeed, whether the topology is written.

    Two of them are readiness gates, so they are written only when they change, and never in the way of a scan: a scan
    says how it went, and this task writes when it can.
    """

    def __init__(self, client: Client, namespace: str, name: str, *, clock: Clock, chance: Random) -> None:
        self._client = client
        self._namespace = namespace
        self._name = name
        self._clock = clock
        self._chance = chance
        self._wanted: dict[str, Condition] = {}
        self._written: dict[str, Condition] | None = None
        self._changed = asyncio.Event()

    def set(self, condition: Condition) -> None:
        """Sets the condition of its type; it is written soon."""
        short = msgspec.structs.replace(condition, message=condition.message[:MAX_CONDITION_MESSAGE])
        if self._wanted.get(short.type) != short:
            self._wanted[short.type] = short
            self._changed.set()

    async def run(self) -> None:
        """Writes what has changed, until cancelled, or until the Pod is gone."""
        failures = 0
        while True:
            await self._changed.wait()
            self._changed.clear()
            try:
                await self._write()
            except NotFound as error:
                log.warning("conditions are not written: the exporter's own Pod does not exist", error=str(error))
                return
            except KubernetesError as error:
                if not failures:
                    log.warning("conditions could not be written, trying again", error=str(error))
                base, cap = CONDITION_BACKOFF
                pause = base + backoff(failures, base=base, cap=cap, random=self._chance)
                failures += 1
                self._changed.set()
                await self._clock.sleep(pause)
            else:
                failures = 0

    async def _write(self) -> None:
        if self._written is None:
            pod: _Pod = await self._client.get(PODS, self._name, namespace=self._namespace, type=_Pod)
            self._written = {
                condition.type: msgspec.convert(condition, Condition, from_attributes=True)
                for condition in pod.status.conditions or ()
                if condition.status in ("True", "False", "Unknown")
            }
        changed = [condition for condition in self._wanted.values() if self._written.get(condition.type) != condition]
        if not changed:
            return
        conditions = [self._entry(condition, self._written.get(condition.type)) for condition in changed]
        patch = StrategicPatch({"status": {"conditions": conditions}})
        await self._client.patch(PODS, self._name, patch, namespace=self._namespace, subresource="status")
        self._written |= {condition.type: condition for condition in changed}

    def _entry(self, condition: Condition, before: Condition | None) -> Mapping[str, Any]:
        entry = {
            "type": condition.type,
            "status": condition.status,
            "reason": condition.reason,
            "message": condition.message,
        }
        if before is None or before.status != condition.status:
            entry["lastTransitionTime"] = self._clock.now().strftime("%Y-%m-%dT%H:%M:%SZ")
        return entry


# -- terminal pods -----------------------------------------------------------------------------------------------------


class _PhaseStatus(msgspec.Struct, frozen=True, gc=False):
    phase: str = ""


class PodPhase(msgspec.Struct, frozen=True, gc=False):
    """core/v1 Pod, reduced to its phase."""

    metadata: ObjectMeta = ObjectMeta()
    status: _PhaseStatus = _PhaseStatus()

    @property
    def is_terminal(self) -> bool:
        return self.status.phase in TERMINAL_PHASES


def pods_of_node(node: str) -> str:
    """The field selector of the watch."""
    return f"spec.nodeName={node}"


class TerminalPods:
    """The pods of this node in a terminal phase, which a kubelet may still list."""

    def __init__(self, pods: Informer[PodPhase], *, changed: Callable[[], None] = lambda: None) -> None:
        self._pods = pods
        self._changed = changed
        pods.add_handler(self._see)

    async def known(self) -> None:
        """Returns when all pods of the node are known."""
        await self._pods.synced()

    def names(self) -> frozenset[tuple[str, str]]:
        """Namespace and name of each."""
        return frozenset((key.namespace, key.name) for key, pod in self._pods.store.items() if pod.is_terminal)

    def _see(self, change: ObjectChange[PodPhase]) -> None:
        before = change.old is not None and change.old.is_terminal
        now = change.new is not None and change.new.is_terminal
        if now and not before and not change.initial:
            self._changed()


# -- what the settings make the exporter ask for ---------------------------------------------------------------------


def needs_node(settings: ExporterSettings) -> bool:
    """True if the own Node is watched: as the owner, for its resources, or for the kubelet's address."""
    return settings.scan.add_nrt_owner or settings.triggers.refresh_node_resources or asks_configz(settings)


def asks_configz(settings: ExporterSettings) -> bool:
    """True if the kubelet's ``/configz`` is a source of its settings."""
    host = settings.host
    given = host.topology_manager_policy is not None and host.topology_manager_scope is not None
    return not given and host.kubelet_config != "file"
