"""The egress proxy on its socket: handshake, copying, limits."""

import asyncio
import contextlib
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from polyarch.sandbox import egress as module
from polyarch.sandbox.egress import (
    ConnectionRejected,
    EgressProxy,
    Route,
    Streams,
    ToKubelet,
    ToPod,
    api_server_for_nodes,
)

POD = ToPod("10.244.0.1", 9443)
SECONDS = 10


def to_pod(_target: str) -> Route:
    return POD


class Backend:
    """A server that answers each connection with what it has read, after the client's end."""

    def __init__(self) -> None:
        self.port = 0
        self.received = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while piece := await reader.read(65536):
                self.received += len(piece)
            writer.write(b"whole")
            await writer.drain()
        writer.close()

    async def dial(self, _route: ToPod | ToKubelet) -> Streams:
        return await asyncio.open_connection("127.0.0.1", self.port)


@pytest.fixture
async def backend() -> AsyncIterator[Backend]:
    backend = Backend()
    server = await asyncio.start_server(backend.serve, "127.0.0.1", 0)
    backend.port = server.sockets[0].getsockname()[1]
    yield backend
    server.close()


async def connect(path: Path, target: str = "10.244.0.1:9443") -> tuple[str, Streams]:
    """The status line of the answer, and the connection."""
    reader, writer = await asyncio.open_unix_connection(str(path))
    writer.write(f"CONNECT {target} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
    head = await reader.readuntil(b"\r\n\r\n")
    return head.decode().splitlines()[0], (reader, writer)


@pytest.mark.req("SB-012")
async def test_bytes_pass_and_the_end_of_one_direction_leaves_the_other_open(tmp_path: Path, backend: Backend) -> None:
    path = tmp_path / "s"
    async with asyncio.timeout(SECONDS), EgressProxy(to_pod, backend.dial).serving(str(path)):
        status, (reader, writer) = await connect(path)
        assert status == "HTTP/1.1 200 Connection established"
        body = b"x" * 3_000_000
        writer.write(body)
        writer.write_eof()
        assert await reader.read() == b"whole"
        assert backend.received == len(body)
        writer.close()


@pytest.mark.req("SB-012")
async def test_a_body_is_never_buffered_whole(tmp_path: Path) -> None:
    read = 0

    tested = asyncio.Event()

    async def slow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal read
        read = len(await reader.read(1))
        await tested.wait()
        writer.transport.abort()

    server = await asyncio.start_server(slow, "127.0.0.1", 0, limit=1024)
    port = server.sockets[0].getsockname()[1]

    async def dial(_route: ToPod | ToKubelet) -> Streams:
        return await asyncio.open_connection("127.0.0.1", port)

    path = tmp_path / "s"
    async with asyncio.timeout(SECONDS), EgressProxy(to_pod, dial).serving(str(path)):
        _, (_, writer) = await connect(path)
        for _ in range(64):
            writer.write(b"x" * 1024 * 1024)
        with pytest.raises(TimeoutError):  # nobody reads, so at some point nobody takes any more
            async with asyncio.timeout(1):
                await writer.drain()
        assert read == 1
        assert writer.transport.get_write_buffer_size() > 32 * 1024 * 1024
        tested.set()
        writer.transport.abort()
    server.close()


@pytest.mark.req("SB-012")
@pytest.mark.parametrize(
    ("route", "error", "status"),
    [
        (ConnectionRejected(403, "10.0.0.1:1 is not of this sandbox"), None, "403 10.0.0.1:1 is not of this sandbox"),
        (ConnectionRejected(503, "no ready endpoint"), None, "503 no ready endpoint"),
        (POD, ConnectionRefusedError(111, "nobody listens"), "502 10.0.0.1:1: nobody listens"),
        (POD, TimeoutError(), "504 10.0.0.1:1: no connection in 5 s"),
    ],
    ids=["forbidden", "not ready", "nobody listens", "no answer"],
)
async def test_a_refusal_says_why_in_its_status_line(
    tmp_path: Path, route: Route, error: OSError | None, status: str
) -> None:
    async def dial(_route: ToPod | ToKubelet) -> Streams:
        assert error is not None
        raise error

    path = tmp_path / "s"
    async with asyncio.timeout(SECONDS), EgressProxy(lambda _: route, dial).serving(str(path)):
        line, (reader, writer) = await connect(path, "10.0.0.1:1")
        assert line == f"HTTP/1.1 {status}"
        await reader.read()
        writer.close()


async def ask(path: Path, request: bytes) -> bytes:
    reader, writer = await asyncio.open_unix_connection(str(path))
    writer.write(request)
    answer = await reader.read()
    writer.close()
    return answer.partition(b"\r\n")[0]


@pytest.mark.req("SB-012")
async def test_other_requests_and_nonsense_are_answered_or_closed(tmp_path: Path, backend: Backend) -> None:
    path = tmp_path / "s"
    async with asyncio.timeout(SECONDS), EgressProxy(to_pod, backend.dial).serving(str(path)):
        assert await ask(path, b"GET /readyz HTTP/1.1\r\n\r\n") == b"HTTP/1.1 200 OK"
        assert (await ask(path, b"GET / HTTP/1.1\r\n\r\n")).startswith(b"HTTP/1.1 405")
        with contextlib.suppress(ConnectionResetError):
            assert await ask(path, b"x" * 300_000) == b""
        assert await ask(path, b"GET /readyz HTTP/1.1\r\n\r\n") == b"HTTP/1.1 200 OK"
    assert backend.received == 0


@pytest.mark.req("SB-012")
async def test_connections_are_bounded(tmp_path: Path, backend: Backend) -> None:
    path = tmp_path / "s"
    async with asyncio.timeout(SECONDS), EgressProxy(to_pod, backend.dial, maximum=2).serving(str(path)):
        held = [await connect(path) for _ in range(2)]
        assert [line for line, _ in held] == ["HTTP/1.1 200 Connection established"] * 2
        line, (_, third) = await connect(path)
        assert line == "HTTP/1.1 503 more than 2 connections into the cluster"
        third.close()
        reader, writer = held[0][1]
        writer.write_eof()
        assert await reader.read() == b"whole"
        writer.close()
        await asyncio.sleep(0.1)
        line, (_, fourth) = await connect(path)
        assert line == "HTTP/1.1 200 Connection established"
        fourth.close()
        held[1][1][1].close()


@pytest.mark.req("SB-012")
async def test_the_socket_of_a_process_that_was_killed_is_replaced(tmp_path: Path, backend: Backend) -> None:
    path = tmp_path / "s"
    async with asyncio.timeout(SECONDS):
        for _ in range(2):
            leftover = await asyncio.start_unix_server(backend.serve, str(path))
            leftover.close()
            async with EgressProxy(to_pod, backend.dial).serving(str(path)):
                assert await ask(path, b"GET /readyz HTTP/1.1\r\n\r\n") == b"HTTP/1.1 200 OK"


@pytest.mark.req("SB-012")
async def test_open_connections_end_with_the_proxy(tmp_path: Path, backend: Backend) -> None:
    path = tmp_path / "s"
    async with asyncio.timeout(SECONDS):
        async with EgressProxy(to_pod, backend.dial).serving(str(path)):
            _, (reader, writer) = await connect(path)
        with contextlib.suppress(ConnectionResetError):
            assert await reader.read() == b""
        writer.close()


@pytest.mark.req("SB-012")
async def test_a_connection_that_one_side_closed_does_not_stay_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other side may still send, but not be silent for ever."""
    monkeypatch.setattr(module, "HALF_CLOSED_SECONDS", 0.2)
    ended = asyncio.Event()

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        with contextlib.suppress(OSError):
            for _ in range(4):
                writer.write(b"slow ")
                await asyncio.sleep(0.1)
            await asyncio.sleep(0.5)
            while not writer.is_closing():
                writer.write(b"too late")
                await asyncio.sleep(0.05)
        writer.close()
        ended.set()

    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]

    async def dial(_route: ToPod | ToKubelet) -> Streams:
        return await asyncio.open_connection("127.0.0.1", port)

    path = tmp_path / "s"
    async with asyncio.timeout(SECONDS), EgressProxy(to_pod, dial).serving(str(path)):
        _, (reader, writer) = await connect(path)
        writer.write_eof()
        with contextlib.suppress(ConnectionResetError):
            assert (await reader.read()).startswith(b"slow slow ")
        await ended.wait()
        writer.close()
    server.close()


def listener() -> socket.socket:
    made = socket.create_server(("127.0.0.1", 0))
    made.setblocking(False)
    return made


@pytest.mark.req("SB-017")
async def test_connections_of_nodes_to_the_api_server_are_bounded(backend: Backend) -> None:
    async def asked(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
        """What comes back for what is sent; empty if the connection was reset."""
        try:
            writer.write(b"list")
            writer.write_eof()
            return await reader.read()
        except OSError:
            return b""
        finally:
            writer.close()

    with listener() as here:
        where = here.getsockname()
        async with asyncio.timeout(SECONDS), api_server_for_nodes(here, backend.port, maximum=2):
            held = [await asyncio.open_connection(*where) for _ in range(2)]
            for _, writer in held:
                writer.write(b"watch")
            while backend.received < 2 * len(b"watch"):  # both are under way
                await asyncio.sleep(0.01)
            for _ in range(5):
                assert await asked(*await asyncio.open_connection(*where)) == b"", "beyond the limit"
            assert await asked(*held[0]) == b"whole", "those that were there go on"
            answer = b""
            while not answer:  # the room of the one that has ended is free in a moment
                answer = await asked(*await asyncio.open_connection(*where))
            assert answer == b"whole"
            assert await asked(*held[1]) == b"whole"


@pytest.mark.req("SB-017")
async def test_a_connection_of_a_node_that_finds_no_api_server_takes_no_room(backend: Backend) -> None:
    with listener() as here, listener() as closed:
        where, port = here.getsockname(), closed.getsockname()[1]
        closed.close()
        async with asyncio.timeout(SECONDS), api_server_for_nodes(here, port, maximum=1):
            for _ in range(5):
                reader, writer = await asyncio.open_connection(*where)
                with contextlib.suppress(OSError):
                    assert await reader.read() == b""
                writer.close()
            server = await asyncio.start_server(backend.serve, "127.0.0.1", port)
            reader, writer = await asyncio.open_connection(*where)
            writer.write_eof()
            assert await reader.read() == b"whole"
            writer.close()
            server.close()


@pytest.mark.req("SB-012", "SB-017")
def test_both_directions_together_have_descriptors_enough() -> None:
    """In a process of its own, whose limit is the usual one."""
    code = """
import resource
resource.setrlimit(resource.RLIMIT_NOFILE, (%d, %d))
from polyarch.sandbox.egress import allow_descriptors
allow_descriptors(1700)
print(resource.getrlimit(resource.RLIMIT_NOFILE))
"""
    for soft, hard, allowed in ((1024, 4096, 1700), (2000, 4096, 2000), (1024, 1500, 1500)):
        ran = subprocess.run([sys.executable, "-c", code % (soft, hard)], capture_output=True, text=True, check=True)
        assert ran.stdout.strip() == str((allowed, hard))
