"""A kubelet's podresources API for tests: a gRPC server on a socket, and one that speaks no gRPC at all."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from grpclib import GRPCError, Status
from grpclib.server import Server

from polyarch.numa.host import podresources_pb2 as api
from polyarch.numa.host.podresources_grpc import PodResourcesListerBase


class Answers(PodResourcesListerBase):
    """Answers with what it was given; ``before`` is awaited first, once per call."""

    def __init__(self) -> None:
        self.pods = api.ListPodResourcesResponse()
        self.resources = api.AllocatableResourcesResponse()
        self.pod: api.GetPodResourcesResponse | GRPCError = GRPCError(Status.UNIMPLEMENTED, "unknown method Get")
        self.calls: list[str] = []
        self.before: Callable[[int], Any] | None = None
        self.error: GRPCError | None = None

    async def _answer(self, name: str, stream: Any, answer: Any) -> None:
        await stream.recv_message()
        self.calls.append(name)
        if self.before is not None:
            await self.before(len(self.calls))
        if self.error is not None:
            raise self.error
        await stream.send_message(answer)

    async def List(self, stream: Any) -> None:
        await self._answer("List", stream, self.pods)

    async def GetAllocatableResources(self, stream: Any) -> None:
        await self._answer("GetAllocatableResources", stream, self.resources)

    async def Get(self, stream: Any) -> None:
        if isinstance(self.pod, GRPCError):
            await stream.recv_message()
            self.calls.append("Get")
            raise self.pod
        await self._answer("Get", stream, self.pod)


@contextlib.asynccontextmanager
async def serving(answers: PodResourcesListerBase, socket: Path) -> AsyncIterator[Server]:
    """Serves until the end of the block; removes the socket, as a kubelet does when it starts."""
    server = Server([answers])
    await server.start(path=str(socket))
    try:
        yield server
    finally:
        server.close()
        await server.wait_closed()
        socket.unlink(missing_ok=True)


@contextlib.asynccontextmanager
async def saying(data: bytes, socket: Path) -> AsyncIterator[None]:
    """Whoever connects gets these bytes and the end of the connection."""

    async def say(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            await reader.read(24)
            writer.write(data)
            await writer.drain()
        writer.close()

    server = await asyncio.start_unix_server(say, str(socket))
    try:
        yield
    finally:
        server.close()
        socket.unlink(missing_ok=True)


class Counted:
    """What a client counted."""

    def __init__(self) -> None:
        self.failed: list[str] = []
        self.unnamed = 0

    def call_failed(self, function: str) -> None:
        self.failed.append(function)

    def pods_unnamed(self, count: int) -> None:
        self.unnamed += count


def answer_with(message: bytes) -> bytes:
    """A server's side of HTTP/2 that answers the first request with this as the body, as it is."""
    from h2.config import H2Configuration
    from h2.connection import H2Connection

    server = H2Connection(H2Configuration(client_side=False))
    server.initiate_connection()
    client = H2Connection(H2Configuration())
    client.initiate_connection()
    client.send_headers(1, [(":method", "POST"), (":scheme", "http"), (":path", "/"), (":authority", "kubelet")])
    server.receive_data(client.data_to_send())
    server.send_headers(1, [(":status", "200"), ("content-type", "application/grpc")])
    server.send_data(1, message)
    server.send_headers(1, [("grpc-status", "0")], end_stream=True)
    return server.data_to_send()
