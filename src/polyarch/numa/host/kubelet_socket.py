"""The podresources API of a running kubelet, over its socket.

A kubelet that restarts makes a new socket, and may leave the old connection hanging. So the socket is compared before
each call and while one is under way, and a call that lost its connection is made once more on a new one.

grpclib ends a call by cancelling the task that makes it and never takes that back, so that the task counts as cancelled
for good; and it takes messages of any length. Hence a task for every attempt, and a look at the length before a message
is received.
"""

import asyncio
from collections.abc import Callable
from typing import Final, TypeVar

import structlog
from google.protobuf.message import DecodeError, Message
from grpclib import GRPCError, Status
from grpclib.client import Channel, Stream, UnaryUnaryMethod
from grpclib.exceptions import ProtocolError, StreamTerminatedError
from h2.exceptions import H2Error

from polyarch.clock import Clock, deadline, is_cancelled
from polyarch.numa.facts import Allocatable, ListedPod
from polyarch.numa.host import podresources_pb2 as api
from polyarch.numa.host.podresources import (
    CALL_TIMEOUT,
    MAX_RESPONSE_BYTES,
    CallMetrics,
    PodResourcesAddress,
    PodResourcesCall,
    PodResourcesError,
    SocketIdentity,
    SocketPath,
    allocatable_resources,
    listed_pods,
    pod_of_get,
    socket_identity,
)
from polyarch.numa.host.podresources_grpc import PodResourcesListerStub

log = structlog.get_logger(__name__)

POLL_INTERVAL: Final = 1.0
"""Seconds between two looks at the socket: while it is not there, and during a call."""
REMINDER_INTERVAL: Final = 60.0
"""Seconds between two lines of the log about a socket that is not there."""
PREFIX_BYTES: Final = 5
"""The bytes before a message: whether it is compressed, and its length (gRPC over HTTP/2)."""
GET_DISABLED: Final = "Get method disabled"
"""What kubelets say, with status UNKNOWN, while their feature gate ``KubeletPodResourcesGet`` is off."""

Q = TypeVar("Q", bound=Message)
A = TypeVar("A", bound=Message)


class _Failed(Exception):  # noqa: N818 - what became of a call
    """The call cannot succeed: nobody listens, or the response is an error or cannot be read."""


class _Unimplemented(_Failed):
    """The kubelet does not have this function."""


class _Lost(Exception):  # noqa: N818 - what became of a connection
    """The connection ended before the response."""


class KubeletSocket:
    """One connection for all calls, opened by the first that needs it."""

    def __init__(self, address: PodResourcesAddress, *, metrics: CallMetrics, clock: Clock) -> None:
        self._address = address
        self._metrics = metrics
        self._clock = clock
        self._connection: _Connection | None = None

    async def until_ready(self) -> None:
        reminded: float | None = None
        while socket_identity(self._address.path) is None:
            now = self._clock.monotonic()
            if reminded is None or now - reminded >= REMINDER_INTERVAL:
                reminded = now
                log.warning("waiting for the kubelet's podresources socket", socket=str(self._address))
            await self._clock.sleep(POLL_INTERVAL)

    async def list(self) -> list[ListedPod]:
        pods, unnamed = listed_pods(
            await self._call("list", lambda kubelet: kubelet.List, api.ListPodResourcesRequest())
        )
        if unnamed:
            self._metrics.pods_unnamed(unnamed)
        return pods

    async def allocatable(self) -> Allocatable:
        request = api.AllocatableResourcesRequest()
        return allocatable_resources(
            await self._call("get_allocatable_resources", lambda kubelet: kubelet.GetAllocatableResources, request)
        )

    async def get(self, namespace: str, name: str) -> ListedPod:
        request = api.GetPodResourcesRequest(pod_namespace=namespace, pod_name=name)
        try:
            pod = pod_of_get(await self._answer("get", lambda kubelet: kubelet.Get, request))
        except _Unimplemented:
            wanted = (namespace, name)
            pod = next((pod for pod in await self.list() if (pod.namespace, pod.name) == wanted), None)
        except _Failed as error:
            raise self._error("get", error) from error
        if pod is None:
            raise self._error("get", f"there is no pod {namespace}/{name}")
        return pod

    async def close(self) -> None:
        if self._connection is not None:
            self._let_go(self._connection)

    async def _call(
        self, function: PodResourcesCall, method: Callable[[PodResourcesListerStub], UnaryUnaryMethod[Q, A]], request: Q
    ) -> A:
        try:
            return await self._answer(function, method, request)
        except _Failed as error:
            raise self._error(function, error) from error

    def _error(self, function: PodResourcesCall, why: _Failed | str) -> PodResourcesError:
        return PodResourcesError(function, f"{self._address}: {why}")

    async def _answer(
        self, function: PodResourcesCall, method: Callable[[PodResourcesListerStub], UnaryUnaryMethod[Q, A]], request: Q
    ) -> A:
        """One call, and once more if its connection was lost, all within the deadline; counts what fails."""
        waiting_for = "an answer"
        try:
            async with deadline(self._clock, CALL_TIMEOUT):
                try:
                    return await self._attempt(method, request)
                except _Lost as lost:
                    self._metrics.call_failed(function)
                    log.debug(
                        "the kubelet's podresources connection was lost", socket=str(self._address), why=str(lost)
                    )
                waiting_for = "the socket to come back, as the kubelet closed the connection"
                while socket_identity(self._address.path) is None:
                    await self._clock.sleep(POLL_INTERVAL / 10)
                waiting_for = "an answer"
                return await self._attempt(method, request)
        except TimeoutError as error:
            failure = _Failed(f"waited {CALL_TIMEOUT:g} s for {waiting_for}")
            failure.__cause__ = error
        except _Lost as lost:
            failure = _Failed(f"the connection was lost twice: {lost}")
        except _Failed as error:
            failure = error
        self._metrics.call_failed(function)
        raise failure

    async def _attempt(self, method: Callable[[PodResourcesListerStub], UnaryUnaryMethod[Q, A]], request: Q) -> A:
        connection = self._open()
        try:
            return await connection.call(method(connection.kubelet), request)
        except _Lost:
            self._let_go(connection)
            raise

    def _open(self) -> "_Connection":
        """The connection to the socket that is there now. Raises _Failed."""
        identity = socket_identity(self._address.path)
        if self._connection is not None and self._connection.identity != identity:
            self._let_go(self._connection)
        if identity is None:
            raise _Failed("there is no such socket; is the kubelet running, and its directory mounted?")
        if self._connection is None:
            try:
                self._connection = _Connection(self._address, identity)
            except OSError as error:
                raise _Failed(f"{error.strerror}") from error
        return self._connection

    def _let_go(self, connection: "_Connection") -> None:
        if self._connection is connection:
            self._connection = None
        connection.close()


class _Connection:
    """A channel to one socket, for as long as the socket is that one."""

    def __init__(self, address: PodResourcesAddress, identity: SocketIdentity) -> None:
        """Raises OSError."""
        self.identity = identity
        self._path = address.path
        self._reachable = SocketPath(address.path)
        self._channel = Channel(path=self._reachable.path)
        self.kubelet = PodResourcesListerStub(self._channel)

    def close(self) -> None:
        self._channel.close()
        self._reachable.close()

    async def call(self, method: UnaryUnaryMethod[Q, A], request: Q) -> A:
        """Raises _Failed or _Lost."""
        call = asyncio.create_task(_unary(method, request), name=method.name)
        try:
            while not (await asyncio.wait({call}, timeout=POLL_INTERVAL))[0]:
                if socket_identity(self._path) != self.identity:
                    raise _Lost("the kubelet made a new socket")
            return call.result()
        except asyncio.CancelledError as error:
            if is_cancelled():
                raise
            raise _Lost("the connection ended") from error
        finally:
            call.cancel()
            await asyncio.wait({call})
            if not call.cancelled():
                call.exception()  # asked for, so that asyncio does not report it once more


async def _unary(method: UnaryUnaryMethod[Q, A], request: Q) -> A:
    """The call, in a task of its own. Raises _Failed or _Lost."""
    try:
        async with method.open(timeout=CALL_TIMEOUT) as stream:
            await stream.send_message(request, end=True)
            await stream.recv_initial_metadata()
            data = await _receive(stream)
        if data is None:
            raise _Failed("an answer without a message")
        return method.reply_type.FromString(data)
    except GRPCError as error:
        if error.status is Status.UNIMPLEMENTED or GET_DISABLED in (error.message or ""):
            raise _Unimplemented("the kubelet does not have this function") from error
        raise _Failed(f"the kubelet answers {error.status.name}: {error.message or 'without a message'}") from error
    except (StreamTerminatedError, ConnectionError) as error:
        if isinstance(error, ConnectionRefusedError):
            raise _Failed("nobody listens at the socket; is the kubelet running?") from error
        raise _Lost(str(error)) from error
    except TimeoutError:
        raise
    except OSError as error:
        raise _Failed(f"{error.strerror}") from error
    except DecodeError as error:
        raise _Failed(f"the answer is no {method.reply_type.DESCRIPTOR.full_name}: {error}") from error
    except (AssertionError, AttributeError, H2Error, NotImplementedError, ProtocolError) as error:
        raise _Failed(f"what answers is no gRPC server: {error or type(error).__name__}") from error


async def _receive(stream: Stream[Q, A]) -> bytes | None:
    """The bytes of the message, None if there is none. Raises _Failed if it is too long.

    As ``Stream.recv_message`` of grpclib 0.4, which receives whatever length is announced.
    """
    with stream._wrapper:
        prefix = await stream._stream.recv_data(PREFIX_BYTES)
        if not prefix:
            return None
        if prefix[0]:
            raise _Failed("the answer is compressed, which was not offered")
        length = int.from_bytes(prefix[1:])
        if length > MAX_RESPONSE_BYTES:
            raise _Failed(f"an answer of {length} bytes is over the limit of {MAX_RESPONSE_BYTES >> 20} MiB")
        return await stream._stream.recv_data(length)
