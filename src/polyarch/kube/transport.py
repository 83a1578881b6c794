"""One HTTP session with one API server: credentials, deadlines, retries and typed errors for every request.

Only this module of ``kube`` uses aiohttp's client. The number of ordinary requests in flight is bounded, so that a
burst does not open a thousand connections. Watches are not counted, nor are Leases: an overloaded API server answers
Lease requests first, so leader election must not wait here behind the other requests."""

import asyncio
import random
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, nullcontext
from typing import Final, Protocol, Self
from urllib.parse import urlsplit

import aiohttp
import msgspec
import structlog
from aiohttp.client_reqrep import ConnectionKey
from aiohttp.connector import Connection
from aiohttp.tracing import Trace
from yarl import URL

from polyarch import __version__
from polyarch.clock import Clock
from polyarch.kube.credentials import Credential, Credentials, TlsContexts, credentials_of
from polyarch.kube.errors import ConnectionFailed, KubernetesError, error_for
from polyarch.kube.requests import JSON, Random, Request, Retries, delay
from polyarch.kube.resources import LEASES
from polyarch.kube.settings import Configuration

log = structlog.get_logger(__name__)

# For a peer that vanished: the kernel probes after 30 s of silence and gives up after 30 s more.
_KEEPALIVE: Final = (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3))
KEEPALIVE: Final = 60.0
"""Seconds for which a connection without a request stays open."""
_WARNINGS_REMEMBERED: Final = 256
_UNQUEUED: Final = str(LEASES)


class ClientMetrics(Protocol):
    """Counts requests; ``code`` is the HTTP status, 0 if there was no response."""

    def request(self, verb: str, resource: str, code: int) -> None: ...


class TransportSettings(msgspec.Struct, frozen=True):
    """Seconds and counts. ``timeout`` limits one attempt, ``retries.deadline`` all attempts together.

    ``timeout`` is real time whatever clock the client has, since the network uses real time.
    """

    timeout: float = 30.0
    connect_timeout: float = 10.0
    in_flight: int = 64
    retries: Retries = Retries()


class Transport:
    """Sends requests; one per process and server. Use it as an async context manager."""

    def __init__(
        self,
        configuration: Configuration,
        *,
        role: str,
        clock: Clock,
        metrics: ClientMetrics | None = None,
        settings: TransportSettings | None = None,
        credentials: Credentials | None = None,
        chance: Random | None = None,
    ) -> None:
        self.host = urlsplit(configuration.server).netloc
        self._configuration = configuration
        self._role = role
        self._clock = clock
        self._metrics = metrics
        self._settings = settings or TransportSettings()
        self._credentials = credentials or credentials_of(configuration.user, clock)
        self._chance: Callable[[], float] = chance or random.SystemRandom().random
        self._tls = TlsContexts(configuration.tls, clock) if configuration.server.startswith("https:") else None
        server = URL(configuration.server, encoded=True)
        self._scheme, self._authority, self._below = server.scheme, server.raw_authority, server.raw_path.rstrip("/")
        self._timeout = aiohttp.ClientTimeout(total=None, sock_connect=self._settings.connect_timeout)
        self._session: aiohttp.ClientSession | None = None
        self._places = asyncio.Semaphore(self._settings.in_flight)
        self._warned: set[str] = set()

    async def __aenter__(self) -> Self:
        headers = {"User-Agent": f"polyarch-{self._role}/{__version__}"}
        if not (self._configuration.compression and self._role == "cli"):
            # In a cluster bandwidth is cheaper than CPU; kube-controller-manager also turns compression off.
            headers["Accept-Encoding"] = "identity"
        self._session = aiohttp.ClientSession(
            connector=_LastUsedFirst(limit=0, keepalive_timeout=KEEPALIVE),
            headers=headers,
            cookie_jar=aiohttp.DummyCookieJar(),
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def send(self, request: Request, *, accept: str = JSON, retry: bool = True) -> bytes:
        """The body of a successful response; raises ApiError, ConnectionFailed or ConfigurationError."""
        started = self._clock.monotonic()
        attempt = 0
        while True:
            try:
                async with nullcontext() if request.resource == _UNQUEUED else self._places:
                    return await self._attempt(request, accept)
            except KubernetesError as error:
                wait = delay(
                    error,
                    idempotent=request.idempotent,
                    attempt=attempt,
                    elapsed=self._clock.monotonic() - started,
                    retries=self._settings.retries,
                    random=self._chance,
                )
                if wait is None or not retry:
                    raise
                log.debug("request is tried again", error=str(error), attempt=attempt + 1, seconds=round(wait, 3))
            attempt += 1
            await self._clock.sleep(wait)

    @asynccontextmanager
    async def stream(self, request: Request, *, accept: str, idle: float) -> AsyncIterator[aiohttp.StreamReader]:
        """An open response, read until it ends. Raises ConnectionFailed after ``idle`` seconds without data."""
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=self._settings.connect_timeout, sock_read=idle)
        with self._failures(request):
            response = await self._answer(request, accept, timeout)
            try:
                _keep_alive(response)
                yield response.content
            finally:
                response.release()

    async def _attempt(self, request: Request, accept: str) -> bytes:
        with self._failures(request):
            return await self._body(await self._answer(request, accept, self._timeout))

    async def _body(self, response: aiohttp.ClientResponse) -> bytes:
        """The whole body. Usually it arrived with the headers, and no deadline is needed."""
        try:
            if response.content.is_eof():
                return await response.read()
            async with asyncio.timeout(self._settings.timeout):
                return await response.read()
        finally:
            # The connection returns to the pool if read to the end, and is closed otherwise.
            response.release()

    async def _answer(self, request: Request, accept: str, timeout: aiohttp.ClientTimeout) -> aiohttp.ClientResponse:
        """A 2xx response. Retries once with new credentials after a 401; raises for every other status.

        Getting credentials has its own time limits: a person may be logging in.
        """
        credential = await self._credentials.current()
        response = await self._exchange(request, accept, credential, timeout)
        if response.status == 401:
            if self._tls is not None:
                self._tls.expire()
            try:
                again = await self._credentials.refused(credential)
            except BaseException:
                response.release()
                raise
            if again:
                response.release()
                response = await self._exchange(request, accept, await self._credentials.current(), timeout)
        if 200 <= response.status < 300:
            self._warn(response)
            return response
        raise error_for(
            response.status,
            await self._body(response),
            retry_after=_retry_after(response.headers.get("Retry-After", "")),
            verb=request.verb,
            resource=request.resource,
            name=request.name,
        )

    async def _exchange(
        self, request: Request, accept: str, credential: Credential, timeout: aiohttp.ClientTimeout
    ) -> aiohttp.ClientResponse:
        if self._session is None:
            raise RuntimeError("the client is not open: use it as an async context manager")
        # Built from parts: parsing a complete URL costs three times as much.
        url = URL.build(
            scheme=self._scheme,
            authority=self._authority,
            path=self._below + request.path,
            query_string=request.query,
            encoded=True,
        )
        headers = [("Accept", accept), *credential.headers]
        if request.body is not None:
            headers.append(("Content-Type", request.content_type))
        proxy, proxy_headers = self._configuration.proxy, None
        if proxy is not None and proxy.authorization is not None:
            if self._tls is None:
                headers.append(("Proxy-Authorization", proxy.authorization))
            else:
                proxy_headers = {"Proxy-Authorization": proxy.authorization}
        context: ssl.SSLContext | bool = True
        if self._tls is not None:
            context = self._tls.current(credential.certificate)
        try:
            async with asyncio.timeout(self._settings.timeout):
                response = await self._session.request(
                    request.method,
                    url,
                    data=request.body,
                    headers=headers,
                    timeout=timeout,
                    ssl=context,
                    server_hostname=self._configuration.tls.server_name or None,
                    proxy=proxy.url if proxy is not None else None,
                    proxy_headers=proxy_headers,
                    allow_redirects=False,
                )
        except BaseException:
            self._count(request, 0)
            raise
        self._count(request, response.status)
        return response

    def _count(self, request: Request, code: int) -> None:
        if self._metrics is not None:
            self._metrics.request(request.verb, request.resource, code)

    def _failures(self, request: Request) -> "_Failures":
        return _Failures(request, self.host, self._settings)

    def _warn(self, response: aiohttp.ClientResponse) -> None:
        """Logs a ``Warning`` header of the response, each text once."""
        for value in response.headers.getall("Warning", ()):
            text = value.partition('"')[2].rpartition('"')[0] or value
            if text not in self._warned and len(self._warned) < _WARNINGS_REMEMBERED:
                self._warned.add(text)
                log.warning("the API server warns", warning=text.replace('\\"', '"'))


class _LastUsedFirst(aiohttp.TCPConnector):
    """Takes the connection that was used last, as Go's ``net/http`` and urllib3 do: those of a burst are closed then.

    aiohttp takes the one that has rested longest, so that one request a second keeps sixty of them open for ever. Each
    costs 0.3 MiB of memory with TLS, and the API server as much.
    """

    async def _get(self, key: ConnectionKey, traces: list[Trace]) -> Connection | None:
        if resting := self._conns.get(key):
            resting.rotate()
        return await super()._get(key, traces)


class _Failures:
    """Turns aiohttp's exceptions into ConnectionFailed, and says whether the request may have been carried out."""

    __slots__ = ("_host", "_request", "_settings")

    def __init__(self, request: Request, host: str, settings: TransportSettings) -> None:
        self._request = request
        self._host = host
        self._settings = settings

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        if error is None or isinstance(error, (KubernetesError, asyncio.CancelledError)):
            return
        sent, permanent = True, False
        match error:
            case aiohttp.ClientProxyConnectionError() | aiohttp.ClientHttpProxyError():
                sent, problem = False, f"the proxy does not connect us: {error}"
            case aiohttp.ClientConnectorCertificateError():
                sent, permanent, problem = False, True, f"its certificate is not accepted: {error.certificate_error}"
            case aiohttp.ClientConnectorError():
                sent, permanent, problem = False, isinstance(error, aiohttp.ClientSSLError), str(error.os_error)
            case aiohttp.ConnectionTimeoutError():
                sent, problem = False, f"no connection within {self._settings.connect_timeout:g} s"
            case aiohttp.SocketTimeoutError():
                problem = "silent for too long"
            case TimeoutError():
                problem = f"no answer within {self._settings.timeout:g} s"
            case aiohttp.ServerDisconnectedError() | aiohttp.ClientPayloadError() | ConnectionResetError():
                problem = "the connection was cut off"
            case aiohttp.ClientError() | OSError():
                problem = str(error) or type(error).__name__
            case _:
                return
        raise ConnectionFailed(
            problem,
            host=self._host,
            verb=self._request.verb,
            resource=self._request.resource,
            sent=sent,
            permanent=permanent,
        ) from error


def _retry_after(value: str) -> float | None:
    """Seconds; the API server never sends the date form."""
    return float(value) if value.isascii() and value.isdigit() else None


def _keep_alive(response: aiohttp.ClientResponse) -> None:
    """Lets the kernel notice a vanished peer minutes before the idle timeout would."""
    connection = response.connection
    transport = connection.transport if connection is not None else None
    sock = transport.get_extra_info("socket") if transport is not None else None
    if sock is None or sock.family not in (socket.AF_INET, socket.AF_INET6):
        return
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEPALIVE:
        if hasattr(socket, name):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
