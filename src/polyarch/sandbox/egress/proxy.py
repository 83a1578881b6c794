"""HTTP CONNECT on a unix socket: the API server's way into the cluster (SB-012).

The API server's egress selector opens one connection for each that it wants into the cluster and asks for a target. The
answer is 200 and then the bytes of both sides, or a refusal whose reason is in the status line, because that line is
what the API server puts into its error. Bodies are copied in small pieces; when one side has sent everything, the other
side may still send.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from http import HTTPStatus

import structlog

from polyarch.sandbox.egress.routing import Refused, Route, ToKubelet, ToPod

log = structlog.get_logger(__name__)

MAXIMUM_CONNECTIONS = 400
"""Two file descriptors each; the usual limit of a process is 1024."""
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


class Proxy:
    """Answers CONNECT as ``route`` says and GET /readyz with 200."""

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
        if isinstance(found, Refused):
            log.warning("connection refused", target=target, status=found.status, reason=found.reason)
            await _respond(writer, found.status, found.reason)
            return
        there = found[1]
        try:
            writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            await copy((reader, writer), found)
        finally:
            there.close()

    async def _connected(self, target: str) -> Streams | Refused:
        if len(self._open) > self._maximum:
            return Refused(503, f"more than {self._maximum} connections into the cluster")
        route = self._route(target)
        if isinstance(route, Refused):
            return route
        try:
            async with asyncio.timeout(DIAL_SECONDS):
                return await self._dial(route)
        except TimeoutError:
            return Refused(504, f"{target}: no connection in {DIAL_SECONDS:.0f} s")
        except OSError as error:
            return Refused(502, f"{target}: {error.strerror or error}")


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
