"""The egress proxy, ``python -m polyarch.sandbox.egress FOLDER``: the API server's way to Services and pods.

The API server never connects into the cluster itself: its egress selector sends every such connection to the unix
socket of this process, as HTTP CONNECT. ``Routes`` decides where it leads, as kube-proxy does in a real cluster:

    10.96.4.1:443    → the Service with this ClusterIP → one of its ready endpoints in turn, at its target port
    10.244.0.7:8081  → the pod's process, 127.244.0.7:8081
    10.250.0.1:10250 → the kubelet endpoint of the sandbox's nodes

Everything else is rejected. As in kube-proxy, an endpoint that does not answer is not replaced by another one, and pods
that are terminating but still serve are used only if no endpoint is ready.
"""

import asyncio
import contextlib
import errno
import resource
import signal
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from http import HTTPStatus
from pathlib import Path
from typing import Final

import msgspec
import structlog

from polyarch.kube import config
from polyarch.kube.client import Client
from polyarch.kube.informer import InformerFactory
from polyarch.kube.resources import ENDPOINT_SLICES, SERVICES
from polyarch.kube.store import Store
from polyarch.objects import ObjectMeta
from polyarch.sandbox import namespaces, network
from polyarch.sandbox.namespaces import gateway_of
from polyarch.sandbox.network import KUBELET_PORT, egress_socket, is_listening, kubelet_socket
from polyarch.sandbox.state import LOOPBACK, Folder

SERVICE_NAME: Final = "kubernetes.io/service-name"
BY_ADDRESS: Final = "address"
BY_SERVICE: Final = "service"
MAXIMUM_TURNS: Final = 10_000


class Port(msgspec.Struct, frozen=True, gc=False):
    """A port of a Service, or of an EndpointSlice, which have the same name there."""

    name: str | None = None
    port: int | None = None
    protocol: str | None = "TCP"


class ServiceSpec(msgspec.Struct, frozen=True, gc=False):
    cluster_ip: str = msgspec.field(default="", name="clusterIP")
    ports: list[Port] | None = None


class Service(msgspec.Struct, frozen=True, gc=False):
    """core/v1 Service, as far as routing reads it."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ServiceSpec = ServiceSpec()


class Conditions(msgspec.Struct, frozen=True, gc=False):
    """``ready`` that is absent means ready (discovery/v1)."""

    ready: bool | None = None
    serving: bool | None = None
    terminating: bool | None = None


class Endpoint(msgspec.Struct, frozen=True, gc=False):
    addresses: list[str] | None = None
    conditions: Conditions = Conditions()

    @property
    def is_ready(self) -> bool:
        return self.conditions.ready is not False

    @property
    def ends_but_serves(self) -> bool:
        return bool(self.conditions.serving and self.conditions.terminating)


class EndpointSlice(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """discovery.k8s.io/v1 EndpointSlice, as far as routing reads it."""

    metadata: ObjectMeta = ObjectMeta()
    address_type: str = ""
    endpoints: list[Endpoint] | None = None
    ports: list[Port] | None = None


class ToPod(msgspec.Struct, frozen=True):
    """Connect to the pod's process, which listens at this loopback address."""

    pod: str
    port: int

    @property
    def loopback(self) -> str:
        return network.loopback_of(self.pod)


class ToKubelet(msgspec.Struct, frozen=True):
    """Connect to the kubelet of the node with this address; simulated nodes share one endpoint."""

    node: str


class ConnectionRejected(msgspec.Struct, frozen=True):
    """Do not connect; ``status`` is the answer to the CONNECT request, ``reason`` one line for people."""

    status: int
    reason: str


Route = ToPod | ToKubelet | ConnectionRejected


class Routes:
    """The routing table of one sandbox, over the stores of Services and EndpointSlices."""

    def __init__(
        self, services: Store[Service], slices: Store[EndpointSlice], *, pod_network: int, nodes_serve: bool = False
    ) -> None:
        """Adds the indexes it needs to the stores. ``nodes_serve``: pods on a node's network have its address."""
        services.add_index(BY_ADDRESS, cluster_addresses)
        slices.add_index(BY_SERVICE, service_of)
        self._services = services
        self._slices = slices
        self._pod_network = pod_network
        self._nodes_serve = nodes_serve
        self._turns: dict[tuple[str, int], int] = {}

    def route(self, target: str) -> Route:
        """The way to ``ADDRESS:PORT``."""
        address, _, digits = target.rpartition(":")
        port = int(digits) if digits.isascii() and digits.isdigit() and len(digits) < 6 else 0
        if network.is_service(address) and port:
            return self._to_service(address, port)
        if network.is_node(address) and port == KUBELET_PORT:
            return ToKubelet(address)
        if network.is_pod(address, network=self._pod_network) and port:
            return ToPod(address, port)
        return ConnectionRejected(403, f"{target} is neither a Service nor a pod nor a kubelet of this sandbox")

    def _to_service(self, address: str, port: int) -> Route:
        service = next(filter(None, map(self._services.get, self._services.by_index(BY_ADDRESS, address))), None)
        if service is None:
            return ConnectionRejected(403, f"no Service has the address {address}")
        name = str(service.metadata.key)
        found = [each for each in service.spec.ports or () if each.port == port and each.protocol in (None, "TCP")]
        if not found:
            return ConnectionRejected(403, f"Service {name} has no TCP port {port}")
        slices = [self._slices.get(key) for key in self._slices.by_index(BY_SERVICE, name)]
        endpoints = serving(filter(None, slices), found[0].name or "")
        if not endpoints:
            return ConnectionRejected(503, f"Service {name} has no ready endpoint for port {port}")
        pod, target_port = endpoints[self._turn(address, port) % len(endpoints)]
        if not network.is_pod(pod, network=self._pod_network) and not (self._nodes_serve and network.is_node(pod)):
            return ConnectionRejected(403, f"endpoint {pod} of Service {name} is not a pod of this sandbox")
        return ToPod(pod, target_port)

    def _turn(self, address: str, port: int) -> int:
        turn = self._turns.pop((address, port), 0)
        self._turns[address, port] = turn + 1
        if len(self._turns) > MAXIMUM_TURNS:
            del self._turns[next(iter(self._turns))]
        return turn


def serving(slices: Iterable[EndpointSlice], port: str) -> Sequence[tuple[str, int]]:
    """(address, port) of the endpoints that serve the port of this name: the ready ones, else those that terminate but
    still serve."""
    ready: set[tuple[str, int]] = set()
    ending: set[tuple[str, int]] = set()
    for each in slices:
        if each.address_type != "IPv4":
            continue
        numbers = [one.port for one in each.ports or () if (one.name or "") == port and one.port]
        for endpoint in each.endpoints or ():
            pairs = {(address, number) for address in (endpoint.addresses or ())[:1] for number in numbers}
            if endpoint.is_ready:
                ready |= pairs
            elif endpoint.ends_but_serves:
                ending |= pairs
    return sorted(ready or ending)


def cluster_addresses(service: Service) -> tuple[str, ...]:
    return (service.spec.cluster_ip,)


def service_of(slice_: EndpointSlice) -> tuple[str, ...]:
    """``namespace/name`` of the Service that the slice belongs to."""
    labels = slice_.metadata.labels or {}
    return (f"{slice_.metadata.namespace}/{labels.get(SERVICE_NAME, '')}",)


# -- the proxy ---------------------------------------------------------------------------------------------------------


log = structlog.get_logger(__name__)

MAXIMUM_CONNECTIONS = 400
"""Two file descriptors each; the usual limit of a process is 1024."""
MAXIMUM_CONNECTIONS_OF_NODES = 400
"""The same in the other direction, of real nodes and their pods: neither direction can use up the other's."""
OTHER_DESCRIPTORS = 100
REQUEST_SECONDS = 10.0
DIAL_SECONDS = 5.0
HALF_CLOSED_SECONDS = 60.0
"""How long a connection that one side has closed may stay silent."""
PIECE_BYTES = 64 * 1024
WAITING = 1024
"""Connections that wait to be accepted: an API server opens one for each admission that is under way."""

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Dial = Callable[[ToPod | ToKubelet], Awaitable[Streams]]
"""Opens the connection; raises OSError."""


class EgressProxy:
    """Answers CONNECT as ``route`` says and GET /readyz with 200.

    The API server's egress selector opens one connection for each that it wants into the cluster and asks for a target.
    The answer is 200 and then the bytes of both sides, or a rejection whose reason is in the status line, because that
    line is what the API server puts into its error. Bodies are copied in small pieces; when one side has sent
    everything, the other side may still send.
    """

    def __init__(self, route: Callable[[str], Route], dial: Dial, *, maximum: int = MAXIMUM_CONNECTIONS) -> None:
        self._route = route
        self._dial = dial
        self._maximum = maximum
        self._open: set[asyncio.Task[None]] = set()

    @contextlib.asynccontextmanager
    async def serving(self, path: str) -> AsyncIterator[None]:
        """Listen on the unix socket ``path`` during the block; a socket that an earlier process left is replaced."""
        server = await asyncio.start_unix_server(self._accept, path, limit=PIECE_BYTES, backlog=WAITING)
        try:
            yield
        finally:
            server.close()
            for task in self._open:
                task.cancel()
            await asyncio.gather(*self._open, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101  this coroutine runs in a task
        self._open.add(task)
        try:
            await self._answer(reader, writer)
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
            log.debug("connection ended early", error=str(error) or type(error).__name__)
        finally:
            self._open.discard(task)
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async with asyncio.timeout(REQUEST_SECONDS):
            head = await reader.readuntil(b"\r\n\r\n")
        line = head.partition(b"\r\n")[0].decode("latin-1")
        method, _, rest = line.partition(" ")
        target = rest.partition(" ")[0]
        if method != "CONNECT":
            is_probe = (method, target) == ("GET", "/readyz")
            await _respond(writer, 200 if is_probe else 405, "" if is_probe else "only CONNECT is answered here")
            return
        found = await self._connected(target)
        if isinstance(found, ConnectionRejected):
            log.warning("connection refused", target=target, status=found.status, reason=found.reason)
            await _respond(writer, found.status, found.reason)
            return
        there = found[1]
        try:
            writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            await copy((reader, writer), found)
        finally:
            there.close()

    async def _connected(self, target: str) -> Streams | ConnectionRejected:
        if len(self._open) > self._maximum:
            return ConnectionRejected(503, f"more than {self._maximum} connections into the cluster")
        route = self._route(target)
        if isinstance(route, ConnectionRejected):
            return route
        try:
            async with asyncio.timeout(DIAL_SECONDS):
                return await self._dial(route)
        except TimeoutError:
            return ConnectionRejected(504, f"{target}: no connection in {DIAL_SECONDS:.0f} s")
        except OSError as error:
            return ConnectionRejected(502, f"{target}: {error.strerror or error}")


async def _respond(writer: asyncio.StreamWriter, status: int, reason: str) -> None:
    text = " ".join((reason or HTTPStatus(status).phrase).split())
    body = f"{text}\n".encode()
    head = f"HTTP/1.1 {status} {text}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    writer.write(head.encode("ascii", "replace") + body)
    async with asyncio.timeout(REQUEST_SECONDS):
        await writer.drain()


class _Meter:
    """Counts pieces, so that a silent connection can be told from a slow one."""

    pieces = 0


async def copy(one: Streams, other: Streams) -> None:
    """Copy bytes both ways until both sides have sent everything; an end in one direction is handed on as such."""
    meter = _Meter()
    ways = {
        asyncio.create_task(_one_way(one[0], other[1], meter)),
        asyncio.create_task(_one_way(other[0], one[1], meter)),
    }
    whole = False
    try:
        done, left = await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        while left and not any(task.exception() for task in done):
            before = meter.pieces
            done, left = await asyncio.wait(left, timeout=HALF_CLOSED_SECONDS)
            if left and meter.pieces == before:
                break
        whole = not left and not any(task.exception() for task in ways)
    finally:
        for task in ways:
            task.cancel()
        await asyncio.gather(*ways, return_exceptions=True)
        if not whole:  # closing would wait for a peer that may never read the rest
            one[1].transport.abort()
            other[1].transport.abort()


async def _one_way(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, meter: _Meter) -> None:
    while piece := await reader.read(PIECE_BYTES):
        meter.pieces += 1
        writer.write(piece)
        await writer.drain()
    if writer.can_write_eof():
        writer.write_eof()


# -- the process -------------------------------------------------------------------------------------------------------


async def serve(folder: Folder) -> None:
    """Answer the API server until SIGTERM or SIGINT; listen only when all Services are known."""
    state = folder.load()
    if state is None:
        raise SystemExit(f"{folder.root}: there is no sandbox here")
    main = asyncio.current_task()
    assert main is not None  # noqa: S101  this coroutine runs in a task
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, main.cancel)

    async def dial_real(route: ToPod | ToKubelet) -> Streams:
        where = (route.node, KUBELET_PORT) if isinstance(route, ToKubelet) else (route.pod, route.port)
        return await asyncio.open_connection(sock=await namespaces.connected(gateway_of(folder), *where))

    async def dial(route: ToPod | ToKubelet) -> Streams:
        if state.settings.real:
            return await dial_real(route)
        if isinstance(route, ToKubelet):
            return await asyncio.open_unix_connection(kubelet_socket(folder.root))
        if not is_listening(route.loopback, route.port):
            problem = f"no process of a pod listens on {route.pod}:{route.port}"
            raise ConnectionRefusedError(errno.ECONNREFUSED, problem)
        return await asyncio.open_connection(route.loopback, route.port)

    async with Client(config.load(str(folder.kubeconfig_of("egress"))), role="egress") as client:
        informers = InformerFactory(client)
        services = informers.informer(SERVICES, Service)
        slices = informers.informer(ENDPOINT_SLICES, EndpointSlice)
        real = state.settings.real
        routes = Routes(services.store, slices.store, pod_network=state.pod_network, nodes_serve=real)
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(informers.run())
            await informers.synced()
            async with contextlib.AsyncExitStack() as stack:
                await stack.enter_async_context(EgressProxy(routes.route, dial).serving(egress_socket(folder.root)))
                if real:
                    allow_descriptors(2 * (MAXIMUM_CONNECTIONS + MAXIMUM_CONNECTIONS_OF_NODES) + OTHER_DESCRIPTORS)
                    listener = namespaces.listening(gateway_of(folder), network.GATEWAY, network.GATEWAY_API_PORT)
                    await stack.enter_async_context(api_server_for_nodes(listener, state.ports.apiserver))
                await running


@contextlib.asynccontextmanager
async def api_server_for_nodes(
    listener: socket.socket, port: int, *, maximum: int = MAXIMUM_CONNECTIONS_OF_NODES
) -> AsyncIterator[None]:
    """Hand on what real nodes and pods send to the gateway's address, where ``listener`` listens, to the API server,
    during the block. Connections beyond ``maximum`` are reset."""
    count = 0

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal count
        count += 1
        try:
            if count > maximum:
                raise ConnectionRefusedError(errno.ECONNREFUSED, f"more than {maximum} connections of nodes and pods")
            async with asyncio.timeout(DIAL_SECONDS):
                there = await asyncio.open_connection(LOOPBACK, port)
        except (OSError, TimeoutError) as error:
            log.warning("connection of a node refused", error=str(error) or type(error).__name__)
            writer.transport.abort()
            count -= 1
            return
        try:
            await copy((reader, writer), there)
        except OSError as error:
            log.debug("connection of a node ended early", error=str(error))
        finally:
            there[1].close()
            writer.close()
            count -= 1

    server = await asyncio.start_server(accept, sock=listener, limit=PIECE_BYTES)
    try:
        yield
    finally:
        server.close()


def allow_descriptors(count: int) -> None:
    """Raise the process's limit of open files to this number, as far as it may."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = count if hard == resource.RLIM_INFINITY else min(count, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def main(folder: Path) -> int:
    with contextlib.suppress(asyncio.CancelledError):
        asyncio.run(serve(Folder(folder)))
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
