"""Bounds of what callers of a listener may cost: connections, bytes of bodies that are being read, and time.

Every pod of a cluster can connect, mostly. Callers are unproven until a request has shown who they are
(:meth:`Connection.prove`); the API server's reviews do (``review_tokens``). What is unproven shares few connections and
bytes. When they are used up the caller that holds most loses its oldest, so that whoever comes rarely and is quick, as
an API server that cannot prove itself yet, a kubelet or Prometheus, is served beside any number of unfinished requests.
Proven connections are not counted; their bodies wait for room, and none is refused.
"""

import asyncio
import socket
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import structlog
from aiohttp import web_server
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.web_protocol import RequestHandler, RequestPayloadError
from aiohttp.web_request import BaseRequest

from polyarch.kube.errors import SeenErrors

log = structlog.get_logger(__name__)

UNPROVEN_CONNECTIONS: Final = 64
"""Of one listener, handshakes included. Each takes 300 KiB at most beside the body that is read."""
UNPROVEN_BYTES: Final = 8 * 2**20
"""Of bodies on unproven connections of one listener."""
PROVEN_BYTES: Final = 32 * 2**20
"""Of bodies on proven connections of one listener."""
FIRST_REQUEST: Final = 10.0
"""Seconds until the handshake has ended, and from then until the headers of the first request have arrived."""
BODY_GRACE: Final = 2.0
"""Seconds after which a body has to come with :data:`BODY_RATE` at least."""
BODY_RATE: Final = 64 * 2**10
"""Bytes per second."""
KEEP_ALIVE: Final = 120.0
"""Seconds; above the API server's 90 s, so that the client closes idle connections first and no request is cut off."""
RECEIVE_BUFFER: Final = 32 * 2**10
"""Bytes in the kernel for an unproven connection, and so in one read: every layer above keeps as many."""
PROVEN_RECEIVE_BUFFER: Final = 128 * 2**10
READ_BUFFER: Final = 16 * 2**10
"""Bytes of a body that nobody reads yet; at twice as many its connection is not read any more."""
_LINGERING: Final = 1.0
"""Seconds for which the rest of a refused body is read, so that its sender sees the answer."""
_QUIET: Final = 60.0
"""Seconds between two log lines about connections that were dropped."""


class BodyTooLarge(Exception):  # noqa: N818 - what happened
    """The request's body exceeds the limit."""


class NoRoom(Exception):  # noqa: N818 - what happened
    """The caller's bodies take all that unproven callers may take together."""


class Connection(RequestHandler):
    """One connection, from when it was accepted. ``peer``: the address of the caller."""

    __slots__ = ("_first_request", "_of", "accepting", "held", "is_answering", "is_proven", "peer")

    def __init__(self, server: web_server.Server, connections: "Connections", peer: str) -> None:
        super().__init__(
            server,
            loop=asyncio.get_running_loop(),
            keepalive_timeout=KEEP_ALIVE,
            access_log=None,  # type: ignore[arg-type]  # as aiohttp takes it
            auto_decompress=False,
            read_bufsize=READ_BUFFER,
            lingering_time=_LINGERING,
        )
        self.peer = peer
        self.accepting: asyncio.Task[Any] | None = None
        """The handshake, until it has ended."""
        self.held = 0
        """Bytes reserved for the body that is being read."""
        self.is_proven = False
        self.is_answering = False
        """A whole request has arrived, and its answer is awaited."""
        self._of = connections
        self._first_request: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._first_request = asyncio.get_running_loop().call_later(FIRST_REQUEST, self.abort)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if len(self._messages) > 1 and not self.is_proven:  # neither API servers nor kubelets pipeline requests
            self.abort()

    def connection_lost(self, exc: BaseException | None) -> None:
        self.requested()
        self._of.forget(self)
        super().connection_lost(exc)

    def log_exception(self, *_: Any, exc_info: BaseException | None = None, **__: Any) -> None:
        """Instead of aiohttp's lines: what a caller sent is no error of ours, and may have a credential in it."""
        problem = type(exc_info).__name__
        if isinstance(exc_info, HttpProcessingError | RequestPayloadError):
            log.debug("request not understood", peer=self.peer, problem=problem)
        else:
            is_new = exc_info is not None and self._of.causes.is_new(exc_info)
            log.error("request not answered", peer=self.peer, problem=problem, exc_info=exc_info if is_new else None)

    def requested(self) -> None:
        """The headers of a request have arrived."""
        if self._first_request is not None:
            self._first_request.cancel()
            self._first_request = None

    def prove(self) -> None:
        """The caller has shown that it is who may have more."""
        if not self.is_proven:
            self._of.proven(self)
            accepted = self.transport.get_extra_info("socket") if self.transport is not None else None
            if accepted is not None:
                accepted.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, PROVEN_RECEIVE_BUFFER)
                if hasattr(socket, "TCP_WINDOW_CLAMP"):  # the window stays as small as the buffer was, else
                    accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_WINDOW_CLAMP, PROVEN_RECEIVE_BUFFER)

    def abort(self) -> None:
        """Ends the connection at once."""
        self._of.forget(self)
        if self.accepting is not None:
            self.accepting.cancel()
        if self.transport is not None:
            self.transport.abort()

    def reading(self, size: int) -> Any:
        """Context manager: there is room for a body of ``size`` bytes. Raises :class:`NoRoom` on an unproven one."""
        return self._of.reading(self, size)


class Connections:
    """All connections of one listener. ``unproven_bytes``: room for bodies on unproven connections."""

    def __init__(self, unproven_bytes: int = UNPROVEN_BYTES) -> None:
        self.causes = SeenErrors()
        """Why requests were not answered."""
        self._unproven_bytes = unproven_bytes
        self._unproven: dict[Connection, None] = {}
        """In order of arrival."""
        self._proven_held = 0
        self._turn = asyncio.Lock()
        self._freed = asyncio.Event()
        self._dropped = 0
        self._told_at = float("-inf")

    def __len__(self) -> int:
        """Unproven connections."""
        return len(self._unproven)

    def admit(self, connection: Connection) -> None:
        """Counts a new connection; another one may have to go."""
        if len(self._unproven) >= UNPROVEN_CONNECTIONS:
            of_peers = Counter(each.peer for each in self._unproven)
            most = max(of_peers.values())
            oldest = [each for each in self._unproven if of_peers[each.peer] == most]
            self._drop(next((each for each in oldest if not each.is_answering), oldest[0]))
        self._unproven[connection] = None

    def proven(self, connection: Connection) -> None:
        """It does not count any more."""
        connection.is_proven = True
        self._unproven.pop(connection, None)

    def forget(self, connection: Connection) -> None:
        """It has ended, or will at once."""
        self._unproven.pop(connection, None)
        self._release(connection)

    @asynccontextmanager
    async def reading(self, connection: Connection, size: int) -> AsyncIterator[None]:
        """See :meth:`Connection.reading`. Waits for room on a proven connection."""
        if connection.is_proven:
            async with self._turn:  # whoever waits longest is next
                while self._proven_held and self._proven_held + size > PROVEN_BYTES:
                    self._freed.clear()
                    await self._freed.wait()
            self._proven_held += size
        else:
            self._make_room(connection, size)
        connection.held = size
        try:
            yield
        finally:
            self._release(connection)

    def _make_room(self, connection: Connection, size: int) -> None:
        """Takes room from callers that hold as much as this one would, and from this one's older connections."""
        held: Counter[str] = Counter()
        for each in self._unproven:
            held[each.peer] += each.held
        over = sum(held.values()) + size - self._unproven_bytes
        wanted = held[connection.peer] + size
        for each in list(self._unproven) if over > 0 else ():
            if over <= 0:
                break
            if each.held and each is not connection and (each.peer == connection.peer or held[each.peer] >= wanted):
                held[each.peer] -= each.held
                over -= each.held
                self._drop(each)
        if over > 0:
            raise NoRoom

    def _release(self, connection: Connection) -> None:
        if connection.held and connection.is_proven:
            self._proven_held -= connection.held
            self._freed.set()
        connection.held = 0

    def _drop(self, connection: Connection) -> None:
        connection.abort()
        self._dropped += 1
        now = asyncio.get_running_loop().time()
        if now - self._told_at >= _QUIET:
            log.warning("connections dropped, others need the room", dropped=self._dropped, peer=connection.peer)
            self._told_at, self._dropped = now, 0


async def read_body(request: BaseRequest, limit: int, seconds: float) -> bytes:
    """The whole body. Raises :class:`BodyTooLarge` as soon as it is known to exceed ``limit`` bytes, and
    :class:`NoRoom` if there is none for it.

    Raises TimeoutError if it has not arrived within ``seconds``, or comes slower than :data:`BODY_RATE`.
    """
    declared = request.content_length
    if (declared or 0) > limit:
        raise BodyTooLarge
    content, connection = request.content, request.protocol
    if content.is_eof():  # all of it came with the headers: no need for a deadline
        body = content.read_nowait()
        if len(body) > limit:
            raise BodyTooLarge
    elif isinstance(connection, Connection):
        async with asyncio.timeout(seconds), connection.reading(limit if declared is None else declared):
            body = await _read(content, limit, seconds)
    else:
        body = await _read(content, limit, seconds)
    if isinstance(connection, Connection):
        connection.is_answering = True
    return body


async def _read(content: Any, limit: int, seconds: float) -> bytes:
    loop = asyncio.get_running_loop()
    body = bytearray()
    begin = loop.time()
    async with asyncio.timeout_at(min(begin + seconds, begin + BODY_GRACE)) as deadline:
        while not content.at_eof():
            body += await content.readany()
            if len(body) > limit:
                raise BodyTooLarge
            deadline.reschedule(begin + min(seconds, BODY_GRACE + len(body) / BODY_RATE))
    return bytes(body)
