"""The aiohttp transport: the only module of this package that sends requests to a network.

Features of aiohttp that are implemented elsewhere are turned off: redirects, decompression, cookies, ``.netrc``,
environment proxies, time-outs, and repeating a request after a broken connection. HTTP, TLS and connection pooling
remain. The connector checks each address when it connects, so that a DNS answer that changes between two lookups is
checked too.

Errors are translated, not passed on: aiohttp's exceptions contain the request's headers.
"""

import asyncio
import errno
import os
import socket
import ssl
from collections import Counter, deque
from collections.abc import AsyncIterable, AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import Any, Protocol

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.client_proto import ResponseHandler
from aiohttp.client_reqrep import ConnectionKey
from aiohttp.tracing import Trace
from aiohttp.typedefs import URL  # type: ignore[attr-defined]  # aiohttp's own parts are reached through it

from polyarch import __version__
from polyarch.oci.concurrency import RequestPriority, RequestQueue, SingleFlight, Tenants
from polyarch.oci.lru_cache import LRUCache
from polyarch.oci.mirror_files import Tls
from polyarch.oci.settings import IDLE_CONNECTIONS, NAME_LOOKUPS
from polyarch.oci.transport.addresses import (
    NAMED,
    AddressClass,
    AddressPolicy,
    HostProvenance,
    InvalidSetting,
    RefusedAddress,
    classify,
    literal,
    origin_of,
)
from polyarch.oci.transport.interface import (
    NO_TLS,
    BodyTooLarge,
    Cause,
    FailureKind,
    Headers,
    Phase,
    Timeouts,
    TransportError,
)
from polyarch.oci.transport.tls import TrustStore
from polyarch.proxies import Proxies, Proxy

KEEP_ALIVE = 15.0
DNS_SECONDS = 10.0
NAMES_KEPT = 1000


class Resolver(Protocol):
    """Interface for name resolution. ``OSError`` if a host has no address."""

    async def resolve(self, host: str) -> Sequence[str]: ...


class SystemResolver:
    """The machine's resolver, in threads of its own: names that take long hold up nothing else of the process."""

    __slots__ = ("_threads",)

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(NAME_LOOKUPS.maximum, thread_name_prefix="names")

    async def resolve(self, host: str) -> Sequence[str]:
        def ask() -> Sequence[str]:
            infos = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG)
            return list(dict.fromkeys(str(info[4][0]) for info in infos))

        return await asyncio.get_running_loop().run_in_executor(self._threads, ask)


class SharedNames(AbstractResolver):
    """A :class:`Resolver` with aiohttp's interface, shared by tenants.

    The machine's resolver blocks a thread for as long as the servers of the name take, and whoever names an image
    chooses these. So each tenant has a share of the lookups, and one that several wait for is in the queue of each.
    aiohttp's own cache of names would let them wait for the share of the first.
    """

    def __init__(self, resolver: Resolver) -> None:
        self._resolver = resolver
        self._queue = RequestQueue(NAME_LOOKUPS)
        self._calls: SingleFlight[str, Sequence[str]] = SingleFlight()
        self._asking: set[asyncio.Task[Sequence[str]]] = set()
        self._known: LRUCache[str, tuple[float, Sequence[str]]] = LRUCache(NAMES_KEPT)

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        attempt = current.get()
        attempt.phase = "name"
        try:
            addresses = await self._addresses(host, attempt.tenants)
        except OSError:
            attempt.phase = "connect"
            raise
        attempt.phase = "connect"
        if not addresses:
            raise OSError("the name has no address")
        return [
            ResolveResult(
                hostname=host,
                host=address,
                port=port,
                family=socket.AF_INET6 if ":" in address else socket.AF_INET,
                proto=0,
                flags=socket.AI_NUMERICHOST,
            )
            for address in addresses
        ]

    async def close(self) -> None:
        """Wait for no name any more; threads end when their servers have answered or timed out."""
        await self._calls.close()
        for asking in (tasks := list(self._asking)):
            asking.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _addresses(self, host: str, tenants: Tenants) -> Sequence[str]:
        known = self._known.get(host)
        if known is not None and asyncio.get_running_loop().time() - known[0] < DNS_SECONDS:
            return known[1]
        return await self._calls.join(host, lambda: self._ask(host, tenants), tenants=tenants)

    async def _ask(self, host: str, tenants: Tenants) -> Sequence[str]:
        tenant = await self._queue.enter(RequestPriority.MANIFEST, tenants)
        asking = asyncio.create_task(self._answer(host), name=f"name {host}")
        self._asking.add(asking)

        def ended(task: asyncio.Task[Sequence[str]]) -> None:
            self._asking.discard(task)
            self._queue.leave(tenant)
            if not task.cancelled():
                task.exception()  # mark it as retrieved: who waited for it may have left

        asking.add_done_callback(ended)  # not before: a thread cannot be interrupted
        return await asyncio.shield(asking)

    async def _answer(self, host: str) -> Sequence[str]:
        addresses = await self._resolver.resolve(host)
        self._known.put(host, (asyncio.get_running_loop().time(), addresses))
        return addresses


class AddressRefused(OSError):  # noqa: N818 - what happened, not a fault
    """Raised instead of connecting. An ``OSError``, so that aiohttp still tries the host's other addresses."""

    def __init__(self, refusal: RefusedAddress) -> None:
        super().__init__(refusal.message)
        self.refusal = refusal


class Attempt:
    """The permitted addresses and the progress of one request.

    ``deadline`` ends the current phase and is reset when a connection is established. For a ``proxied`` request the
    peer is the proxy, which is configured by the environment and not checked.
    """

    __slots__ = (
        "_policy",
        "_provenance",
        "_proxied",
        "_timeouts",
        "deadline",
        "host",
        "once",
        "opened",
        "peer",
        "phase",
        "refusal",
        "seconds",
        "tenants",
        "tried",
    )

    def __init__(
        self,
        host: str,
        *,
        policy: AddressPolicy,
        provenance: HostProvenance = NAMED,
        timeouts: Timeouts,
        proxied: bool = False,
        tenants: Tenants | None = None,
    ) -> None:
        self.host = host
        self.tenants = tenants or Tenants()
        self.deadline: asyncio.Timeout | None = None
        self.phase: Phase = "connect"
        self.peer = ""
        self.refusal: RefusedAddress | None = None
        self.tried = 0
        """Number of permitted addresses, which were tried."""
        self.opened = False
        """The latest connection is new; false if it came from the pool."""
        self.once = False
        """The body is a stream and cannot be sent twice."""
        self.seconds = timeouts.connect
        """Time limit of the current phase."""
        self._policy = policy
        self._provenance = provenance
        self._timeouts = timeouts
        self._proxied = proxied

    def connecting(self) -> None:
        """A connection is needed; also when aiohttp repeats a request after a stale pooled connection."""
        self.phase = "connect"
        self.opened = False
        self._extend(self._timeouts.connect)

    def permit(self, address: str) -> None:
        """``AddressRefused`` unless this address may be reached."""
        if not self._proxied:
            refusal = self._policy.check(address, host=self.host, provenance=self._provenance)
            if refusal is not None:
                self.refusal = refusal
                raise AddressRefused(refusal)
        self.tried += 1
        self.opened = True

    def connected(self, peer: str) -> None:
        """A new or pooled connection is ready; ``AddressRefused`` if this request may not use its peer."""
        if not self._proxied:
            refusal = self._policy.check(peer, host=self.host, provenance=self._provenance)
            if refusal is not None:
                self.refusal, self.tried = refusal, 0
                raise AddressRefused(refusal)
            self.peer = peer
        self.phase = "first byte"
        self._extend(self._timeouts.first_byte)

    def sending(self, *, seconds: float | None = None) -> None:
        """Restart the wait for the answer: after a piece of the body, or with ``seconds`` after the last one."""
        self._extend(self._timeouts.first_byte if seconds is None else seconds)

    def _extend(self, seconds: float) -> None:
        self.seconds = seconds
        if self.deadline is not None:
            self.deadline.reschedule(asyncio.get_running_loop().time() + seconds)


current: ContextVar[Attempt] = ContextVar("polyarch_oci_attempt")


class GuardedConnector(aiohttp.TCPConnector):
    """aiohttp's connector with address checks. Every request through it needs a current :class:`Attempt`.

    It has no limit for connections in use: the client limits concurrent requests, and waiting for a slot here would
    look like a slow host. Idle ones are limited, since each port of a host keeps its own: beyond the limit the oldest
    of the tenant that left most is closed.

    A check of a name, or of a DNS answer, can be undone by the next DNS answer. So the check uses the very address the
    socket is about to connect to, before the first packet, and again the peer of a pooled connection, which may have
    been opened for a request with a wider provenance. The context variable ``current`` carries the :class:`Attempt`
    into aiohttp, which opens sockets in its own tasks: these copy the context of the request.
    """

    def __init__(self, names: SharedNames) -> None:
        super().__init__(
            resolver=names,
            use_dns_cache=False,
            keepalive_timeout=KEEP_ALIVE,
            limit=0,
            socket_factory=_open,
        )
        self._users: dict[ResponseHandler, str] = {}
        """By connection in use: its tenant."""
        self._idle: dict[ResponseHandler, tuple[str, ConnectionKey]] = {}
        """By idle connection, oldest first: who used it last, and where aiohttp keeps it. The server may have closed
        it."""

    async def connect(
        self, req: aiohttp.ClientRequest, traces: list[Trace], timeout: aiohttp.ClientTimeout
    ) -> aiohttp.connector.Connection:
        attempt = current.get()
        attempt.connecting()
        connection = await super().connect(req, traces, timeout)
        if (protocol := connection.protocol) is not None:
            self._idle.pop(protocol, None)
            self._users[protocol] = attempt.tenants.first
        try:
            attempt.connected(_peer(connection))
        except BaseException:
            connection.release()
            raise
        return connection

    def _release(self, key: ConnectionKey, protocol: ResponseHandler, *, should_close: bool = False) -> None:
        super()._release(key, protocol, should_close=should_close)
        tenant = self._users.pop(protocol, "")
        if not protocol.is_connected():
            return
        self._idle[protocol] = (tenant, key)
        if len(self._idle) > IDLE_CONNECTIONS:
            self._close_one()

    def _close_one(self) -> None:
        left_by = Counter(tenant for tenant, _ in self._idle.values())
        most = max(left_by, key=left_by.__getitem__)
        protocol = next(each for each, (tenant, _) in self._idle.items() if tenant == most)
        _, key = self._idle.pop(protocol)
        protocol.abort()
        kept = self._conns.get(key)
        if kept is None:
            return
        kept = deque(each for each in kept if each[0] is not protocol)
        if kept:
            self._conns[key] = kept
        else:
            del self._conns[key]


def _open(info: tuple[Any, ...]) -> socket.socket:
    family, kind, protocol, _, address = info
    current.get().permit(address[0])
    return socket.socket(family=family, type=kind, proto=protocol)


def _peer(connection: aiohttp.connector.Connection) -> str:
    transport = connection.transport
    name = transport.get_extra_info("peername") if transport is not None else None
    if not name:
        raise ConnectionResetError("the connection was closed at once")
    return str(name[0])


def of_environment(environ: Mapping[str, str]) -> Proxies:
    """The proxies; InvalidSetting names the variable that is not a proxy URL and never its value.

    An unusable proxy is a usage error at the start, because it would affect many registries.
    """
    proxies = Proxies(environ)
    for problem in proxies.problems:
        raise InvalidSetting(str(problem))
    return proxies


# -- requests ----------------------------------------------------------------------------------------------------------


DEFAULT_HEADERS = {"user-agent": f"polyarch/{__version__}", "accept-encoding": "identity"}
STORING_SECONDS = 300.0
"""Time limit for the answer to a streamed upload: the registry may store gigabytes first."""
MAX_HEADER = 8 * 1024  # signed URLs in a Location are long
MAX_HEADERS = 64
READ_BUFFER = 32 * 1024
"""Bytes that a connection has in memory, half of them when it stops reading, until somebody reads them."""
_AIOHTTP_HEADERS = ("Accept", "Accept-Encoding", "User-Agent", "Content-Type")
_NO_TIMEOUT = aiohttp.ClientTimeout(total=None, connect=None, sock_connect=None, sock_read=None)
_CUT_OFF = {errno.ECONNRESET, errno.EPIPE, errno.ECONNABORTED}


class AiohttpTransport:
    """A :class:`~polyarch.oci.transport.interface.Transport` with a connection pool; ``close`` it when done.

    ``policy`` checks addresses (default: the command line's), ``trust`` provides certificates, ``proxies`` default to
    the environment's, ``resolver`` to the system's. ``InvalidSetting`` if a proxy of the environment is not a URL.
    """

    def __init__(
        self,
        *,
        policy: AddressPolicy | None = None,
        trust: TrustStore | None = None,
        timeouts: Timeouts | None = None,
        resolver: Resolver | None = None,
        proxies: Proxies | None = None,
    ) -> None:
        self.trust = TrustStore() if trust is None else trust
        self._policy = AddressPolicy() if policy is None else policy
        self._timeouts = Timeouts() if timeouts is None else timeouts
        self._resolver = SystemResolver() if resolver is None else resolver
        self._proxies = of_environment(os.environ) if proxies is None else proxies
        self._session: aiohttp.ClientSession | None = None
        self._names: SharedNames | None = None

    @asynccontextmanager
    async def request(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        body: bytes | AsyncIterable[bytes] | None = None,
        provenance: HostProvenance = NAMED,
        verified: bool = True,
        tls: Tls = NO_TLS,
        tenants: Tenants | None = None,
    ) -> AsyncIterator["HttpResponse"]:
        """See :meth:`polyarch.oci.transport.interface.Transport.request`."""
        origin = origin_of(url)
        if origin is None:
            raise TransportError("connect", phase="connect", host="", detail=f"{url[:200]!r} is not an http(s) URL")
        host = origin.host.strip("[]")
        proxy = self._proxies.proxy_for(origin.scheme, host, origin.port)
        name = url.partition("://")[2].partition("/")[0].partition("?")[0].lower()
        attempt = Attempt(
            name,
            policy=self._policy,
            provenance=provenance,
            timeouts=self._timeouts,
            proxied=proxy is not None,
            tenants=tenants,
        )
        refusal = self._policy.check_host(host, provenance=provenance)
        if refusal is not None:
            raise TransportError("refused-address", phase="connect", host=name, detail=f"it {refusal.message}")
        context: ssl.SSLContext | bool = True
        if origin.scheme == "https":
            context = await self._context(name, verified=verified, tls=tls)
        elif proxy is not None and proxy.url.startswith("https:"):
            context = await self._context(proxy.url.removeprefix("https://"))
        sent = {**DEFAULT_HEADERS, **{key.lower(): value for key, value in (headers or {}).items()}}
        answer = await self._send(attempt, method, url, sent, body, context, proxy)
        try:
            yield HttpResponse(answer, url, attempt, self._timeouts, proxied_host=host if proxy is not None else "")
        finally:
            if answer.content.is_eof():
                answer.release()
            else:
                answer.close()

    async def close(self) -> None:
        """Close all connections; the transport can be used again afterwards."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()
        names, self._names = self._names, None
        if names is not None:
            await names.close()

    async def _context(self, host: str, *, verified: bool = True, tls: Tls = NO_TLS) -> ssl.SSLContext:
        try:
            return await self.trust.context(host, verified=verified, tls=tls)
        except InvalidSetting as error:
            raise TransportError("tls", phase="connect", host=host, detail=str(error)) from None

    async def _send(
        self,
        attempt: Attempt,
        method: str,
        url: str,
        headers: dict[str, str],
        body: bytes | AsyncIterable[bytes] | None,
        context: ssl.SSLContext | bool,
        proxy: Proxy | None,
    ) -> aiohttp.ClientResponse:
        secure = url[:6].lower() == "https:"
        proxy_headers: dict[str, str] | None = None
        if proxy is not None and proxy.authorization is not None:
            if not secure:
                headers = {**headers, "proxy-authorization": proxy.authorization}
            else:
                proxy_headers = {"Proxy-Authorization": proxy.authorization}
        data: bytes | AsyncIterable[bytes] | None = body
        if body is not None and not isinstance(body, bytes):
            attempt.once = True
            data = _sent(body, attempt)
        token = current.set(attempt)
        try:
            async with asyncio.timeout(None) as attempt.deadline:
                return await self._open_session().request(
                    method,
                    URL(url, encoded=True),
                    headers=headers,
                    data=data,
                    ssl=context,
                    allow_redirects=False,
                    proxy=proxy.url if proxy is not None else None,
                    proxy_headers=proxy_headers,
                )
        except (aiohttp.ClientError, _Broken, OSError, ValueError) as error:
            failure = _explain(error, attempt, proxy, secure=secure)
        finally:
            current.reset(token)
        raise failure  # not in the handler above: no exception with headers in it becomes its context

    def _open_session(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._names = SharedNames(self._resolver)
            self._session = aiohttp.ClientSession(
                connector=GuardedConnector(self._names),
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,
                skip_auto_headers=_AIOHTTP_HEADERS,
                timeout=_NO_TIMEOUT,
                trust_env=False,
                max_line_size=MAX_HEADER,
                max_field_size=MAX_HEADER,
                max_headers=MAX_HEADERS,
                read_bufsize=READ_BUFFER,
                middlewares=(_once,),
            )
        return self._session


class HttpResponse:
    """A :class:`~polyarch.oci.transport.interface.Response`."""

    def __init__(
        self, answer: aiohttp.ClientResponse, url: str, attempt: Attempt, timeouts: Timeouts, *, proxied_host: str
    ) -> None:
        self._answer = answer
        self._attempt = attempt
        self._timeouts = timeouts
        self._waited = 0.0
        self._came = 0
        """Seconds of waiting and bytes of the current period."""
        self._proxied_host = proxied_host
        self.status = answer.status
        self.headers = Headers(answer.headers.items())
        self.url = url
        self.peer = attempt.peer

    @property
    def peer_class(self) -> AddressClass | None:
        address = literal(self._proxied_host) if self._proxied_host else self.peer
        return classify(address) if address else None

    async def read(self, limit: int, hold: Callable[[int], None] = lambda length: None) -> bytes:
        declared = self._answer.content_length
        if declared is not None and declared > limit and self._answer.method != "HEAD":
            raise BodyTooLarge(limit=limit, size=declared, host=self._attempt.host)
        body = bytearray()
        while chunk := await self._next():
            if len(body) + len(chunk) > limit:
                raise BodyTooLarge(limit=limit, size=None, host=self._attempt.host)
            hold(len(chunk))
            body += chunk
        return bytes(body)

    async def read_some(self, limit: int) -> bytes:
        body = bytearray()
        while len(body) < limit and (chunk := await self._next()):
            body += chunk
        return bytes(body[:limit])

    async def chunks(self) -> AsyncIterator[bytes]:
        while chunk := await self._next():
            yield chunk

    async def _next(self) -> bytes:
        """The next piece, empty at the end."""
        content, timeouts = self._answer.content, self._timeouts
        clock = asyncio.get_running_loop().time
        since = clock()
        try:
            async with asyncio.timeout(timeouts.idle):
                while not (chunk := await content.readany()) and not content.at_eof():
                    pass
        except TimeoutError:
            raise self._failed("timeout", _stalled("body", timeouts.idle)) from None
        except (aiohttp.ClientError, OSError):
            cut = True
        else:
            cut = False
        if cut:
            raise self._failed("truncated", "the connection broke off within the body")
        self._waited += clock() - since
        self._came += len(chunk)
        if chunk and self._waited >= timeouts.slow_period:
            if self._came < timeouts.slowest * self._waited:
                detail = f"no more than {self._came} bytes of the body within {self._waited:.0f} s: it comes too slowly"
                raise self._failed("timeout", detail)
            self._waited, self._came = 0.0, 0
        return chunk

    def _failed(self, kind: FailureKind, detail: str) -> TransportError:
        return TransportError(kind, phase="body", host=self._attempt.host, detail=detail)


class _Broken(Exception):  # noqa: N818 - never leaves this module
    """Wraps an error after which aiohttp would repeat the request."""

    def __init__(self, error: aiohttp.ClientError) -> None:
        super().__init__()
        self.error = error


async def _sent(body: AsyncIterable[bytes], attempt: Attempt) -> AsyncIterator[bytes]:
    """The pieces of the body; each restarts the time-out, because a slow upload is not a slow answer."""
    async for piece in body:
        attempt.sending()
        yield piece
    attempt.sending(seconds=STORING_SECONDS)


async def _once(request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
    """Allow aiohttp's repetition only for a pooled connection, which the server may have closed before reading
    anything, and not for a streamed body.
    """
    try:
        return await handler(request)
    except aiohttp.ClientConnectorError:
        raise
    except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError) as error:
        if current.get().opened or current.get().once:
            raise _Broken(error) from None
        raise


def _explain(error: Exception, attempt: Attempt, proxy: Proxy | None, *, secure: bool) -> TransportError:
    """The error in words that contain no header and no secret."""
    error = error.error if isinstance(error, _Broken) else error
    refusal, phase, host = attempt.refusal, attempt.phase, attempt.host
    if refusal is not None and attempt.tried == 0:
        return TransportError("refused-address", phase="connect", host=host, detail=f"it {refusal.message}")
    if isinstance(error, TimeoutError):
        return TransportError("timeout", phase=phase, host=host, detail=_stalled(phase, attempt.seconds))
    by = f" through the proxy {proxy.url}" if proxy is not None else ""
    if phase in ("name", "connect"):
        return _explain_connect(error, host, by, secure=secure)
    if isinstance(error.__cause__, ssl.SSLError):
        detail = f"the server ended TLS: {_tls_reason(error.__cause__)}"
        return TransportError("tls", phase=phase, host=host, detail=detail)
    if isinstance(error, aiohttp.ClientResponseError):
        return TransportError("truncated", phase=phase, host=host, detail=f"what answers{by} does not speak HTTP")
    if isinstance(error, ValueError):
        return TransportError("connect", phase=phase, host=host, detail="the request's headers or URL cannot be sent")
    return TransportError(
        "truncated", phase=phase, host=host, detail=f"the connection{by} was closed without an answer"
    )


def _explain_connect(error: Exception, host: str, by: str, *, secure: bool) -> TransportError:
    def failure(detail: str, *, cause: Cause = "", tls: bool = False) -> TransportError:
        return TransportError("tls" if tls else "connect", phase="connect", host=host, detail=detail, cause=cause)

    if isinstance(error, aiohttp.ClientHttpProxyError):
        # Proxies allow tunnels to few ports, so a plain registry on another one is reached without.
        cause: Cause = "" if error.status == 407 else "refused"
        return failure(f"the connection{by} was refused with HTTP {error.status}", cause=cause)
    if isinstance(error, aiohttp.ClientProxyConnectionError):
        return failure(f"cannot connect{by}: {_reason(error.os_error)}")
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        if not by and error.os_error.errno == socket.EAI_NONAME:  # not what time-outs and failing servers give
            return TransportError("unknown-host", phase="connect", host=host, detail="there is no host of this name")
        return failure("the name cannot be resolved")
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        inner = error.certificate_error
        reason = inner.verify_message if isinstance(inner, ssl.SSLCertVerificationError) else "its name is another"
        return failure(f"the certificate is not trusted: {reason}", cause="handshake", tls=True)
    inner = error.os_error if isinstance(error, aiohttp.ClientConnectorError) else error
    if isinstance(inner, ssl.SSLError):
        return failure(f"the TLS handshake failed: {_tls_reason(inner)}", cause="handshake", tls=True)
    if isinstance(inner, ConnectionRefusedError):
        return failure("the connection was refused", cause="refused")
    if secure and isinstance(inner, OSError) and (inner.errno in _CUT_OFF or isinstance(inner, ConnectionError)):
        return failure(f"the connection{by} was cut during the handshake", cause="handshake", tls=True)
    if isinstance(inner, OSError):
        return failure(f"cannot connect{by}: {_reason(inner)}")
    return failure("the request's headers or URL cannot be sent")


def _stalled(phase: str, seconds: float) -> str:
    what = {
        "name": "no address",
        "connect": "no connection",
        "first byte": "no answer",
        "body": "nothing more of the body",
    }[phase]
    return f"{what} within {seconds:g} s ({phase})"


def _tls_reason(error: ssl.SSLError) -> str:
    return (error.reason or "the server closed the connection").replace("_", " ").lower()


def _reason(error: OSError) -> str:
    if isinstance(error, socket.gaierror):
        return "the name cannot be resolved"
    return os.strerror(error.errno) if error.errno else "no connection"
