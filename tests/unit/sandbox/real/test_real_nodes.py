"""When a real node's container runtime is there for its kubelet."""

import tempfile
from pathlib import Path

import pytest
from google.protobuf.empty_pb2 import Empty
from grpclib.const import Cardinality, Handler, Status
from grpclib.exceptions import GRPCError
from grpclib.server import Server, Stream

from polyarch.sandbox.real.nodes import VERSION_CALL, runtime_answers


class Runtime:
    """A container runtime that listens before it is initialized."""

    is_initialized = False

    async def version(self, stream: "Stream[Empty, Empty]") -> None:
        await stream.recv_message()
        if not self.is_initialized:
            raise GRPCError(Status.UNKNOWN, "server is not initialized yet")
        await stream.send_message(Empty())

    def __mapping__(self) -> dict[str, Handler]:
        return {VERSION_CALL: Handler(self.version, Cardinality.UNARY_UNARY, Empty, Empty)}


@pytest.mark.req("SB-017")
async def test_a_kubelet_is_started_when_the_runtime_answers_and_not_when_it_only_listens() -> None:
    with tempfile.TemporaryDirectory() as folder:
        socket, runtime = Path(folder, "s"), Runtime()
        assert not await runtime_answers(socket)
        server = Server([runtime])
        await server.start(path=str(socket))
        try:
            assert not await runtime_answers(socket)
            runtime.is_initialized = True
            assert await runtime_answers(socket)
        finally:
            server.close()
            await server.wait_closed()
        socket.touch()
        assert not await runtime_answers(socket), "a socket that an earlier runtime left"
