"""The fault proxy: a reverse proxy that a test puts before the API server or the registry, and scripts.

It forwards request and answer byte for byte, streaming, and keeps the client's own ``Authorization``; so what stands
behind it is the real server, and the faults are the only thing that is not. Faults are values: which requests they hit
(a predicate on :class:`Seen`), what happens (an *action*), and how often. The first fault that matches is used.

Actions on a request: :class:`Answer` (409, 410, 429 with ``Retry-After``, 5xx …), :class:`Reset` (torn before or after
the server saw it), :class:`Cut` (the body ends after so many bytes and the connection is torn), :class:`Slow` (so many
bytes a second), :class:`Delay`, :class:`Hold`. For watches: :class:`Lines`, a function from one line of the stream to
the lines that are delivered instead (none, twice, later, an ERROR event), or :data:`CUT`, which tears the connection in
mid-line. The whole server goes away with :meth:`FaultProxy.refusing`; it is mute with :meth:`FaultProxy.silent`.

Everything that came through is recorded in :attr:`FaultProxy.seen`, to count requests as the server would.
"""

import asyncio
import contextlib
import datetime as dt
import ssl
import time
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import aiohttp
from aiohttp import web
from yarl import URL

from polyarch.sandbox.cluster import Sandbox

HOP_BY_HOP = frozenset({"connection", "keep-alive", "transfer-encoding", "te", "upgrade", "proxy-authorization"})
CUT = object()
Line = bytes


@dataclass(frozen=True)
class Seen:
    """One request as it came in."""

    method: str
    path: str
    query: str
    user_agent: str
    at: float
    body_bytes: int = 0
    authorization: str = ""

    @property
    def watch(self) -> bool:
        return "watch=1" in self.query or "watch=true" in self.query


@dataclass(frozen=True)
class Answer:
    """This answer instead of the server's; the request never reaches the server."""

    status: int
    body: bytes = b""
    headers: Sequence[tuple[str, str]] = ()


@dataclass(frozen=True)
class Reset:
    """The connection is torn. ``after`` says whether the server had seen and carried out the request before."""

    after: bool = False


@dataclass(frozen=True)
class Cut:
    """The real answer, torn after so many bytes of its body."""

    after_bytes: int


@dataclass(frozen=True)
class Slow:
    """The real answer, at so many bytes a second."""

    bytes_per_second: int


@dataclass(frozen=True)
class Delay:
    """The real answer, so many seconds later."""

    seconds: float


@dataclass(frozen=True)
class Hold:
    """The request is on its way until the event is set; only then the server sees it."""

    until: asyncio.Event


@dataclass(frozen=True)
class Lines:
    """The real watch, each line replaced by what ``change`` gives for it."""

    change: Callable[[Line], Iterable[Line | object]]


Action = Answer | Reset | Cut | Slow | Delay | Hold | Lines


@dataclass
class Fault:
    """What happens to the requests that ``matches`` takes, at most ``times`` (``None``: until it is withdrawn)."""

    matches: Callable[[Seen], bool]
    action: Action
    times: int | None = None
    hits: int = 0


def status(code: int, reason: str, message: str = "injected by the fault proxy", **details: object) -> Answer:
    """An answer as the API server writes it: a ``Status`` with code and reason, and ``Retry-After`` where given."""
    retry_after = details.pop("retry_after", None)
    document = (
        f'{{"kind":"Status","apiVersion":"v1","metadata":{{}},"status":"Failure","message":"{message}",'
        f'"reason":"{reason}","code":{code}}}'
    )
    headers = [("Content-Type", "application/json")]
    if retry_after is not None:
        headers.append(("Retry-After", str(retry_after)))
    return Answer(code, document.encode(), headers)


WITHOUT_WATCH_LIST = status(
    422, "Invalid", "sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled"
)
"""The answer of an API server as of 1.30 to ``as_of_1_30``."""


def as_of_1_30(seen: Seen) -> bool:
    """What such an API server refuses."""
    return "sendInitialEvents" in seen.query


def gone_event() -> Line:
    """The ERROR event with which a watch says that its resourceVersion is too old."""
    return (
        b'{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure",'
        b'"message":"too old resource version (injected)","reason":"Expired","code":410}}\n'
    )


def server_tls(sandbox: Sandbox, folder: Path) -> ssl.SSLContext:
    """A proxy with it speaks as the sandbox's API server: clients trust the same CA."""
    pair = sandbox.pki.serving("fault-proxy", folder, dt.datetime.now(dt.UTC))
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(pair.certificate, pair.key)
    return context


def _abort(transport: asyncio.Transport) -> None:
    # A TLS transport that was closed twice has no protocol any more in Python 3.11.2.
    with contextlib.suppress(AttributeError):
        transport.abort()


@dataclass
class FaultProxy:
    """``async with FaultProxy(upstream, upstream_ssl=…, server_ssl=…) as proxy``: then speak to ``proxy.url``."""

    upstream: str
    upstream_ssl: ssl.SSLContext | None = None
    server_ssl: ssl.SSLContext | None = None
    port: int = 0
    seen: list[Seen] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    _runner: web.AppRunner | None = None
    _session: aiohttp.ClientSession | None = None
    _open: set[asyncio.Transport] = field(default_factory=set)
    _silent: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def url(self) -> str:
        return f"{'https' if self.server_ssl else 'http'}://127.0.0.1:{self.port}"

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    async def __aenter__(self) -> Self:
        self._silent.set()
        connector = aiohttp.TCPConnector(limit=0, ssl=self.upstream_ssl or False)
        self._session = aiohttp.ClientSession(
            connector=connector,
            auto_decompress=False,
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=None),
        )
        await self._listen()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._silent.set()
        await self._close()
        if self._session is not None:
            await self._session.close()

    async def _listen(self) -> None:
        application = web.Application(client_max_size=64 * 1024 * 1024)
        application.router.add_route("*", "/{path:.*}", self._handle)
        self._runner = web.AppRunner(application, shutdown_timeout=0.1, access_log=None)
        await self._runner.setup()
        for attempt in range(50):
            site = web.TCPSite(self._runner, "127.0.0.1", self.port, ssl_context=self.server_ssl, reuse_address=True)
            try:
                await site.start()
                break
            except OSError:
                if attempt == 49:
                    raise
                await asyncio.sleep(0.1)
        server = site._server
        assert isinstance(server, asyncio.Server)
        self.port = server.sockets[0].getsockname()[1]

    async def _close(self) -> None:
        for transport in list(self._open):
            _abort(transport)
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    @contextlib.asynccontextmanager
    async def refusing(self) -> AsyncIterator[None]:
        """Inside, connections are refused and those that stood are torn: the server is down. The port stays."""
        await self._close()
        try:
            yield
        finally:
            await self._listen()

    @contextlib.asynccontextmanager
    async def silent(self) -> AsyncIterator[None]:
        """Inside, requests are taken and nobody answers: a network that swallows packets."""
        self._silent.clear()
        try:
            yield
        finally:
            self._silent.set()

    def tear(self) -> int:
        """Tear every connection that stands now; returns how many."""
        torn = len(self._open)
        for transport in list(self._open):
            _abort(transport)
        return torn

    def inject(self, matches: Callable[[Seen], bool], action: Action, *, times: int | None = None) -> Fault:
        """From now on ``action`` happens to requests that ``matches`` takes, at most ``times``."""
        fault = Fault(matches, action, times)
        self.faults.append(fault)
        return fault

    def withdraw(self, fault: Fault) -> None:
        self.faults.remove(fault)

    def count(self, matches: Callable[[Seen], bool]) -> int:
        return sum(1 for request in self.seen if matches(request))

    def _fault_for(self, seen: Seen) -> Action | None:
        for fault in self.faults:
            if (fault.times is None or fault.hits < fault.times) and fault.matches(seen):
                fault.hits += 1
                return fault.action
        return None

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        transport = request.transport
        assert transport is not None
        self._open.add(transport)
        try:
            return await self._answer(request)
        finally:
            self._open.discard(transport)

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        agent = request.headers.get("User-Agent", "")
        seen = Seen(
            request.method,
            request.path,
            request.query_string,
            agent,
            time.monotonic(),
            len(body),
            request.headers.get("Authorization", ""),
        )
        self.seen.append(seen)
        await self._silent.wait()
        action = self._fault_for(seen)
        match action:
            case Answer(code, content, headers):
                return web.Response(status=code, body=content, headers=dict(headers))
            case Reset(after=False):
                return self._torn(request)
            case Delay(seconds):
                await asyncio.sleep(seconds)
            case Hold(until):
                await until.wait()
        sent = {name: value for name, value in request.headers.items() if name.lower() not in HOP_BY_HOP | {"host"}}
        assert self._session is not None
        try:
            async with self._session.request(
                request.method,
                URL(f"{self.upstream}{request.raw_path}", encoded=True),
                headers=sent,
                data=body or None,
                skip_auto_headers=("Content-Type",),
                allow_redirects=False,
            ) as answer:
                if isinstance(action, Reset):
                    await answer.read()
                    return self._torn(request)
                return await self._forward(request, answer, action, lines=seen.watch)
        except aiohttp.ClientConnectionError:
            return self._torn(request)

    @staticmethod
    def _torn(request: web.Request) -> web.Response:
        if request.transport is not None:
            _abort(request.transport)
        return web.Response(status=502)

    async def _forward(
        self, request: web.Request, answer: aiohttp.ClientResponse, action: Action | None, *, lines: bool
    ) -> web.StreamResponse:
        response = web.StreamResponse(status=answer.status, reason=answer.reason)
        for name, value in answer.headers.items():
            if name.lower() not in HOP_BY_HOP:
                response.headers.add(name, value)
        try:
            await response.prepare(request)
            # A refusal is no stream; with other lines it would be shorter or longer than its header says.
            if lines and isinstance(action, Lines) and answer.status == 200:
                return await self._forward_lines(request, response, answer, action)
            sent = 0
            async for chunk in answer.content.iter_any():
                if isinstance(action, Cut) and sent + len(chunk) >= action.after_bytes:
                    await response.write(chunk[: action.after_bytes - sent])
                    return self._torn(request)
                if isinstance(action, Slow):
                    for start in range(0, len(chunk), max(1, action.bytes_per_second // 10)):
                        await response.write(chunk[start : start + max(1, action.bytes_per_second // 10)])
                        await asyncio.sleep(0.1)
                else:
                    await response.write(chunk)
                sent += len(chunk)
            await response.write_eof()
        except (ConnectionError, aiohttp.ClientPayloadError):
            return self._torn(request)
        return response

    async def _forward_lines(
        self, request: web.Request, response: web.StreamResponse, answer: aiohttp.ClientResponse, action: Lines
    ) -> web.StreamResponse:
        rest = b""
        async for chunk in answer.content.iter_any():
            *complete, rest = (rest + chunk).split(b"\n")
            for line in complete:
                for out in action.change(line + b"\n"):
                    if out is CUT:
                        await response.write(line[: len(line) // 2])
                        return self._torn(request)
                    assert isinstance(out, bytes)
                    await response.write(out)
        await response.write_eof()
        return response
