"""HTTP servers of a process: an HTTP/1.1 listener, plain or TLS, and the health and metrics endpoints.

The listener uses aiohttp's low-level server, without application, router and middlewares, which would cost more than an
admission itself. Only new connections use the TLS context, so another certificate can be loaded into it at any time.
What callers may cost is bounded (``connections``); compressed bodies are not decompressed (an API server sends none).
"""

import asyncio
import functools
import hashlib
import secrets
import socket
import ssl
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, Final, Literal, Protocol, Self

import msgspec
import structlog
from aiohttp import web_server
from aiohttp.web_request import BaseRequest
from aiohttp.web_response import Response

from polyarch.clock import Clock, SystemClock, deadline
from polyarch.kube.connections import FIRST_REQUEST, RECEIVE_BUFFER, UNPROVEN_BYTES, Connection, Connections, NoRoom
from polyarch.kube.errors import KubernetesError
from polyarch.kube.metrics import Metrics
from polyarch.kube.rbac import rule
from polyarch.kube.resources import SUBJECT_ACCESS_REVIEWS, TOKEN_REVIEWS, Resource

log = structlog.get_logger(__name__)

Handler = Callable[[BaseRequest], Awaitable[Response]]

_CUT_OFF: Final = 0.1
"""Seconds that aiohttp gives a connection at the very end; it takes zero as no limit."""
_ACCEPT_AGAIN: Final = 0.1
_BACKLOG: Final = 1024

JSON_HEADERS: Final = {"Content-Type": "application/json", "Server": "polyarch"}
_TEXT_HEADERS: Final = {"Content-Type": "text/plain; charset=utf-8", "Server": "polyarch"}


class HttpServer:
    """A listener and async context manager. With ``port`` 0 it takes a free port; see :attr:`port`.

    ``body_room``: bytes of bodies that are read at a time from callers who have not proven who they are.
    """

    def __init__(
        self,
        handler: Handler,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        tls: ssl.SSLContext | None = None,
        body_room: int = UNPROVEN_BYTES,
    ) -> None:
        self._handler = handler
        self._host = host
        self._port = port
        self._tls = tls
        self._body_room = body_room
        self._retired = False
        self._busy = 0
        self._idle = asyncio.Event()
        self._server: web_server.Server | None = None
        self._listening: list[socket.socket] = []
        self._accepting: set[asyncio.Task[None]] = set()

    @property
    def port(self) -> int:
        """The port it listens on; before ``start``, the port requested."""
        return self._port

    @property
    def url(self) -> str:
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"{'https' if self._tls else 'http'}://{host}:{self._port}"

    async def start(self) -> None:
        """Starts listening. Raises OSError if the address is not available."""
        self._server = server = web_server.Server(self._handle, handler_cancellation=True)
        connections = Connections(self._body_room)
        self._listening = await _listening(self._host, self._port)
        self._port = self._listening[0].getsockname()[1]
        for listening in self._listening:
            self._keep(self._accept(listening, server, connections))

    def retire(self) -> None:
        """Closes each connection after its next response, so that clients move to other replicas before the stop."""
        self._retired = True

    async def stop(self, seconds: float = 0.0) -> None:
        """Stops accepting connections, gives requests in flight ``seconds`` to finish, then cuts them off."""
        server, self._server = self._server, None
        if server is None:
            return
        self.retire()
        try:
            for task in (accepting := list(self._accepting)):
                task.cancel()
            await asyncio.gather(*accepting, return_exceptions=True)
            for listening in self._listening:
                listening.close()
            if self._busy and seconds > 0:
                self._idle.clear()
                async with asyncio.timeout(seconds):
                    await self._idle.wait()
        except TimeoutError:
            log.warning("requests cut off at the end of the process", requests=self._busy, waited=seconds)
        finally:
            open_ones = [each.transport for each in server.connections if each.transport is not None]
            server.pre_shutdown()
            await server.shutdown(_CUT_OFF)
            for transport in open_ones:  # else one waits for its peer to end TLS
                transport.abort()
            await asyncio.sleep(0)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    def _keep(self, run: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(run)
        self._accepting.add(task)
        task.add_done_callback(self._accepting.discard)
        return task

    async def _accept(self, listening: socket.socket, server: web_server.Server, connections: Connections) -> None:
        """Connections one by one: each is counted before its handshake, which costs more than anything else."""
        loop = asyncio.get_running_loop()
        while True:
            try:
                accepted, address = await loop.sock_accept(listening)
            except OSError as error:  # no descriptors left, or the caller has gone already
                log.warning("connection not accepted", problem=str(error))
                await asyncio.sleep(_ACCEPT_AGAIN)
                continue
            connection = Connection(server, connections, address[0])
            connections.admit(connection)
            connection.accepting = self._keep(self._open(accepted, connection, connections))
            connection.accepting.add_done_callback(functools.partial(_close_if_cancelled, accepted))
            await asyncio.sleep(0)  # a backlog of connections must not keep others from being served

    async def _open(self, accepted: socket.socket, connection: Connection, connections: Connections) -> None:
        loop, tls = asyncio.get_running_loop(), self._tls
        try:
            if tls is None:
                await loop.connect_accepted_socket(lambda: connection, accepted)
            else:
                await loop.connect_accepted_socket(
                    lambda: connection, accepted, ssl=tls, ssl_handshake_timeout=FIRST_REQUEST
                )
        except OSError as error:  # also a handshake that failed or took too long
            log.debug("no connection", peer=connection.peer, problem=str(error))
            connections.forget(connection)
        finally:
            connection.accepting = None

    async def _handle(self, request: BaseRequest) -> Response:
        connection: Any = request.protocol  # a Connection, as _accept makes them
        connection.requested()
        self._busy += 1
        try:
            response = await self._handler(request)
        except NoRoom:
            response = text(503, "too many bodies of yours are being read; send one after the other")
            response.force_close()
        finally:
            connection.is_answering = False
            self._busy -= 1
            if not self._busy:
                self._idle.set()
        if self._retired:
            response.force_close()
        return response


def _close_if_cancelled(accepted: socket.socket, opening: asyncio.Task[None]) -> None:
    """Also if it was cancelled before it began."""
    if opening.cancelled():
        accepted.close()


async def _listening(host: str, port: int) -> list[socket.socket]:
    """The listening sockets of a host, all on one port; an empty host means every address."""
    found = await asyncio.get_running_loop().getaddrinfo(
        host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    opened: list[socket.socket] = []
    try:
        for family, address in dict.fromkeys((family, address) for family, _, _, _, address in found):
            at = (address[0], opened[0].getsockname()[1], *address[2:]) if opened else address
            try:
                listening = socket.socket(family, socket.SOCK_STREAM)
            except OSError:
                continue  # a machine without IPv6 may know such addresses
            opened.append(listening)
            listening.setblocking(False)
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER)
            if family == socket.AF_INET6:
                listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            try:
                listening.bind(at)
                listening.listen(_BACKLOG)
            except OSError as error:
                raise OSError(error.errno, f"cannot listen on {address[0]} port {at[1]}: {error.strerror}") from None
    except BaseException:
        for listening in opened:
            listening.close()
        raise
    if not opened:
        raise OSError(f"no address of {host!r} can be listened on")
    return opened


def text(status: int, sentence: str, **headers: str) -> Response:
    """A plain-text response, mostly one sentence for a request to a wrong path or with a wrong method."""
    return Response(status=status, text=sentence + "\n", headers={**_TEXT_HEADERS, **headers})


# -- health and metrics: ``/healthz`` and ``/readyz`` with named checks, and ``/metrics`` ------------------------------


# A check is a function that returns what is wrong, or None. The response lists every check, as the API server's does,
# so that a pod that is not ready says why. Liveness covers only what a restart would fix, a stalled event loop: an
# unreachable API server is back sooner than a CrashLoopBackOff ends. ``/metrics`` is for users whom the API server
# allows to ``get`` that path.

Check = Callable[[], str | None]

SCRAPER_RIGHTS: Final = (rule(TOKEN_REVIEWS, "create"), rule(SUBJECT_ACCESS_REVIEWS, "create"))
"""RBAC rules for authorizing scrapers."""
STALL_LIMIT: Final = 10.0


class HealthChecks:
    """Named checks, run in the order in which they were added."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._checks: dict[str, Check] = {}
        self._remarks: dict[str, Check] = {}

    def add(self, name: str, check: Check, *, remark: Check = lambda: None) -> None:
        """``remark``: what people should know although the check passes."""
        if name in self._checks:
            raise ValueError(f"{self.name} has a check {name!r} already")
        self._checks[name] = check
        self._remarks[name] = remark

    def report(self) -> tuple[bool, str]:
        """Whether all checks pass, and one line per check."""
        lines: list[str] = []
        well = True
        for name, check in self._checks.items():
            problem = _ask(check)
            well = well and problem is None
            if problem is None:
                remark = _ask(self._remarks[name])
                lines.append(f"[+]{name} ok{f' ({remark})' if remark else ''}")
            else:
                lines.append(f"[-]{name} failed: {' '.join(problem.split())}")
        return well, "\n".join([*lines, f"{self.name} check {'passed' if well else 'failed'}"])


class Health:
    """Answers the kubelet's probes; its server starts first and stops last."""

    def __init__(self) -> None:
        self.liveness = HealthChecks("healthz")
        self.readiness = HealthChecks("readyz")
        self._paths = {"/healthz": self.liveness, "/readyz": self.readiness}

    async def serve(self, request: BaseRequest) -> Response:
        """The request handler of its ``HttpServer``."""
        checks = self._paths.get(request.path)
        if checks is None:
            return text(404, f"nothing is served at {request.path[:200]!r}; there are {' and '.join(self._paths)}")
        well, report = checks.report()
        return text(200 if well else 503, report)


class EventLoopMonitor:
    """Notices a stalled event loop: blocking work, or a process that was suspended."""

    def __init__(self, clock: Clock, *, beat: float = 1.0, limit: float = STALL_LIMIT) -> None:
        self._clock = clock
        self._beat = beat
        self._limit = limit
        self._last = clock.monotonic()
        self._stalled_until: float | None = None
        self._stalled_for = 0.0

    async def run(self) -> None:
        """Records a heartbeat regularly until cancelled."""
        self._last = self._clock.monotonic()
        while True:
            await self._clock.sleep(self._beat)
            now = self._clock.monotonic()
            late = now - self._last - self._beat
            self._last = now
            if late >= self._beat:
                log.warning("the event loop stood still", seconds=round(late, 1))
            if late + self._beat >= self._limit:
                self._stalled_for, self._stalled_until = late + self._beat, now

    def check(self) -> str | None:
        """Fails during a stall, and afterwards for as long as a stall is tolerated, so that the next probe sees it."""
        now = self._clock.monotonic()
        if now - self._last >= self._limit:
            return f"the event loop has stood still for {now - self._last:.0f} s"
        if self._stalled_until is not None and now - self._stalled_until < self._limit:
            return f"the event loop stood still for {self._stalled_for:.0f} s"
        return None


class ReviewClient(Protocol):
    """The part of the client that authorization uses."""

    async def create(self, resource: Resource, document: Any, *, type: type[Any] = ..., retry: bool = True) -> Any: ...


class _User(msgspec.Struct, frozen=True):
    username: str = ""
    uid: str = ""
    groups: list[str] | None = None
    extra: dict[str, list[str]] | None = None


class _TokenStatus(msgspec.Struct, frozen=True):
    authenticated: bool = False
    user: _User = _User()


class _TokenReview(msgspec.Struct, frozen=True):
    status: _TokenStatus = _TokenStatus()


class _AccessStatus(msgspec.Struct, frozen=True):
    allowed: bool = False


class _AccessReview(msgspec.Struct, frozen=True):
    status: _AccessStatus = _AccessStatus()


Verdict = Literal["allowed", "unauthenticated", "forbidden"]


_METRICS: Final = {"nonResourceAttributes": {"path": "/metrics", "verb": "get"}}


class ScraperAuthorization:
    """Asks the API server whose bearer token this is and whether that user may ``get`` the metrics, or what else the
    ``attributes`` of a SubjectAccessReview say; caches the answer for a minute.

    Tokens are stored as keyed hashes only. Tokens that were allowed are kept apart from unknown ones: made-up tokens
    share a queue of at most ``size``, of which ``at_once`` are reviewed concurrently, and can neither delay nor evict a
    known scraper.
    """

    def __init__(
        self,
        client: ReviewClient,
        *,
        attributes: Mapping[str, Mapping[str, str]] = _METRICS,
        clock: Clock | None = None,
        keep: float = 60.0,
        size: int = 64,
        at_once: int = 4,
        timeout: float = 5.0,
    ) -> None:
        self._client = client
        self._attributes = attributes
        self._clock = clock or SystemClock()
        self._keep = keep
        self._size = size
        self._timeout = timeout
        self._secret = secrets.token_bytes(32)
        self._allowed = _TokenReviewCache(at_once)
        self._others = _TokenReviewCache(at_once)

    async def verdict(self, token: str) -> Verdict:
        """Whether the token is allowed. Raises ``KubernetesError`` or ``TimeoutError`` if the API server cannot say."""
        digest = hashlib.blake2b(token.encode("utf-8", "surrogateescape"), key=self._secret).digest()
        if (known := self._known(digest)) is not None:
            return known
        line = self._allowed if digest in self._allowed.verdicts else self._others
        if line.present >= self._size:
            raise TimeoutError(f"{line.present} tokens are being reviewed already")
        line.present += 1
        try:
            async with deadline(self._clock, self._timeout), line.turns:
                if (known := self._known(digest)) is None:
                    known = await self._review(token)
                    self._remember(digest, known)
                return known
        finally:
            line.present -= 1

    async def refusal(self, header: str) -> Response | None:
        """What to answer to who sends this ``Authorization``; None: the token is allowed."""
        scheme, _, token = header.partition(" ")
        if scheme.lower() != "bearer" or not token.strip():
            return text(401, "send a ServiceAccount's token: Authorization: Bearer …", **_CHALLENGE)
        path = self._attributes.get("nonResourceAttributes", {}).get("path", "this path")
        try:
            verdict = await self.verdict(token.strip())
        except (KubernetesError, TimeoutError) as error:
            log.warning("reader could not be authorised", path=path, error=str(error) or "no answer in time")
            return text(503, f"the API server cannot be asked now who may read {path}")
        if verdict == "unauthenticated":
            return text(401, "the API server does not know this token", **_CHALLENGE)
        if verdict == "forbidden":
            return text(403, f"not allowed: bind a ClusterRole with nonResourceURLs [{path}], verbs [get]")
        return None

    def _known(self, digest: bytes) -> Verdict | None:
        for line in (self._allowed, self._others):
            known = line.verdicts.get(digest)
            if known is not None and self._clock.monotonic() < known[0]:
                return known[1]
        return None

    def _remember(self, digest: bytes, verdict: Verdict) -> None:
        for line in (self._allowed, self._others):
            line.verdicts.pop(digest, None)
        line = self._allowed if verdict == "allowed" else self._others
        line.verdicts[digest] = (self._clock.monotonic() + self._keep, verdict)
        if len(line.verdicts) > self._size:
            line.verdicts.popitem(last=False)

    async def _review(self, token: str) -> Verdict:
        asked = _review_document(TOKEN_REVIEWS, {"token": token})
        who: _TokenReview = await self._client.create(TOKEN_REVIEWS, asked, type=_TokenReview)
        if not who.status.authenticated:
            return "unauthenticated"
        user = who.status.user
        spec = {
            "user": user.username,
            "uid": user.uid,
            "groups": user.groups or [],
            "extra": user.extra or {},
            **self._attributes,
        }
        asked = _review_document(SUBJECT_ACCESS_REVIEWS, spec)
        may: _AccessReview = await self._client.create(SUBJECT_ACCESS_REVIEWS, asked, type=_AccessReview)
        return "allowed" if may.status.allowed else "forbidden"


class _TokenReviewCache:
    """Known or unknown tokens: the cached verdicts, the reviews in flight, and how many wait or are in review."""

    def __init__(self, at_once: int) -> None:
        self.present = 0
        self.turns = asyncio.Semaphore(at_once)
        self.verdicts: OrderedDict[bytes, tuple[float, Verdict]] = OrderedDict()


class MetricsPage:
    """``/metrics``: open to all, or to those whom ``authorization`` allows."""

    def __init__(self, metrics: Metrics, *, authorization: ScraperAuthorization | None = None) -> None:
        self._metrics = metrics
        self._authorization = authorization

    async def serve(self, request: BaseRequest) -> Response:
        """The request handler of its ``HttpServer``."""
        if request.path != "/metrics":
            return text(404, f"nothing is served at {request.path[:200]!r}; there is /metrics")
        if request.method != "GET":
            return text(405, "/metrics is read with GET", Allow="GET")
        if self._authorization is not None:
            refusal = await self._authorization.refusal(request.headers.get("Authorization", ""))
            if refusal is not None:
                return refusal
        body, content_type = self._metrics.render(request.headers.get("Accept", ""))
        return Response(body=body, headers={"Content-Type": content_type, "Server": "polyarch"})


_CHALLENGE: Final = {"WWW-Authenticate": "Bearer"}


def _review_document(resource: Resource, spec: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": resource.api_version, "kind": resource.kind, "spec": spec}


def _ask(check: Check) -> str | None:
    try:
        return check()
    except Exception as error:  # a check that raises has failed; the others are still reported
        log.exception("health check failed to run")
        return f"the check itself failed: {type(error).__name__}"
