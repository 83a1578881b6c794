"""One request and its answer, through everything that can happen on the way (RG-050 to RG-052, RG-061, RG-062, RG-105).

A request waits for its host's turn, is cut off at the image's time, is repeated where the fault may pass, waits out a
pause or gives up at once, falls back from verified TLS only where that was configured, and follows redirects without
taking credentials along. What it means to be answered 401 or 404 is for the layers above.
"""

import asyncio
import ipaddress
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from urllib.parse import SplitResult, urljoin, urlsplit

from polyarch.oci.addresses import NAMED, AddressClass, Reach
from polyarch.oci.budget import Budget
from polyarch.oci.clock import Clock
from polyarch.oci.failures import REDIRECTS, RETRIED, Failure, clean, of_status, read_errors
from polyarch.oci.inspection import InspectionWarning
from polyarch.oci.line import LineFull, Urgency
from polyarch.oci.metrics import Metrics
from polyarch.oci.mirrors import Tls
from polyarch.oci.pacing import Host, Pacing, parse_retry_after
from polyarch.oci.settings import InspectorSettings
from polyarch.oci.transport import NO_TLS, BodyTooLarge, Headers, Response, Transport, TransportError

ERROR_BODY = 16 * 2**10
MAX_REDIRECTS = 5
LONGEST_DELAY = 8.0


class Redirects(Enum):
    """Where a redirect may lead (RG-105)."""

    ANYWHERE = "anywhere"
    SAME_ORIGIN = "same origin"


@dataclass(frozen=True, slots=True)
class Request:
    """What to ask. ``what`` names it in messages; ``secrets`` are blotted out of what the server writes."""

    method: str
    url: str
    operation: str
    what: str
    limit: int
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    own_headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    """For the first origin only: credentials and what a source's configuration adds."""
    body: bytes | None = field(default=None, repr=False)
    urgency: Urgency = Urgency.MANIFEST
    charged: bool = False
    """Counts against the rate limit of the host (RG-063)."""
    redirects: Redirects = Redirects.ANYWHERE
    reach: Reach = NAMED
    verified: bool = True
    insecure: bool = False
    """Configured so: unverified TLS is tried after verified, and then plain HTTP if ``plain`` (RG-101)."""
    plain: bool = False
    tls: Tls = NO_TLS
    secrets: frozenset[str] = field(default=frozenset(), repr=False)

    @property
    def repeatable(self) -> bool:
        return self.method in ("GET", "HEAD")


@dataclass(frozen=True, slots=True)
class Reply:
    """A complete answer. ``url`` is where it came from; ``peer`` the class of the registry's own address."""

    status: int
    headers: Headers
    body: bytes = field(repr=False)
    url: str = field(repr=False)
    peer: AddressClass | None


class Visit:
    """One image's dealings with registries: the time it has left, and what it has used and noticed so far."""

    __slots__ = ("budget", "requests", "tenant", "wait", "warnings")

    def __init__(self, budget: Budget, *, wait: bool, tenant: str = "") -> None:
        self.budget = budget
        self.wait = wait
        self.tenant = tenant
        self.requests = 0
        self.warnings: list[InspectionWarning] = []

    def warn(self, code: str, message: str) -> None:
        warning = InspectionWarning(code, message)
        if warning not in self.warnings:
            self.warnings.append(warning)


class Exchange:
    """Sends requests through a transport; ``notice`` is told what a user should know while it happens (RG-064)."""

    def __init__(
        self,
        transport: Transport,
        pacing: Pacing,
        *,
        clock: Clock,
        settings: InspectorSettings,
        metrics: Metrics,
        notice: Callable[[str], None],
        uniform: Callable[[float, float], float] = random.uniform,
    ) -> None:
        self._transport = transport
        self._pacing = pacing
        self._clock = clock
        self._settings = settings
        self._metrics = metrics
        self._notice = notice
        self._uniform = uniform
        self._ways: dict[str, tuple[str, bool]] = {}

    async def fetch(self, request: Request, visit: Visit) -> Reply:
        """The answer at the end of at most five redirects; ``Failure`` if there is none."""
        first = await self._send(request, visit)
        reply = first
        for _ in range(MAX_REDIRECTS):
            location = reply.headers.get("location")
            if reply.status not in REDIRECTS or not location or request.method not in ("GET", "HEAD"):
                return replace(reply, peer=first.peer)
            request = _redirected(request, reply.url, location, first)
            reply = await self._send(request, visit)
        if reply.status in REDIRECTS:
            raise Failure.of("refused-redirect", origin_host(first.url), f"more than {MAX_REDIRECTS} redirects")
        return replace(reply, peer=first.peer)

    async def _send(self, request: Request, visit: Visit) -> Reply:
        host = self._pacing.host(origin_host(request.url))
        attempts = 0
        while True:
            await self._clear(host, request, visit)
            attempts += 1
            try:
                reply = await self._attempt(host, request, visit)
            except TransportError as error:
                failure = _transport_failure(error, request, attempts)
                if failure.error.error_class != "transient":
                    raise failure from None
            else:
                retry_after = parse_retry_after(reply.headers.get("retry-after"), self._clock.now())
                if reply.status == 429 or (reply.status == 503 and retry_after is not None):
                    attempts -= 1
                    await self._pause(host, request, reply, retry_after, visit)
                    continue
                self._pacing.served(host)
                if reply.status not in RETRIED:
                    return reply
                said = read_errors(reply.body, request.secrets)
                failure = of_status(host.name, request.what, reply.status, said, attempts=attempts)
            delay = self._uniform(0.0, min(LONGEST_DELAY, 0.25 * 2.0**attempts))
            if (
                not request.repeatable
                or attempts >= self._settings.attempts
                or delay >= visit.budget.remaining
                or self._pacing.obstacle(host) is not None
            ):
                raise failure
            with visit.budget.running():
                await self._clock.sleep(delay)

    async def _clear(self, host: Host, request: Request, visit: Visit) -> None:
        """Returns when the host may be asked; ``Failure`` if that takes too long (RG-061 to RG-063)."""
        while (obstacle := self._pacing.obstacle(host, charged=request.charged)) is not None:
            waits = obstacle.code == "rate-limited" and visit.wait and visit.budget.may_wait(obstacle.seconds)
            if not waits:
                raise Failure.of(obstacle.code, host.name, obstacle.text, retry_after=obstacle.seconds)
            await visit.budget.wait(obstacle.seconds)

    async def _pause(self, host: Host, request: Request, reply: Reply, retry_after: float | None, visit: Visit) -> None:
        paused_before = self._pacing.obstacle(host) is not None
        seconds = self._pacing.limited(host, retry_after)
        if visit.wait and visit.budget.may_wait(seconds):
            if not paused_before:
                self._notice(f"{host.name} limits the rate of requests: waiting {seconds:.0f} s")
            return
        said = read_errors(reply.body, request.secrets)
        words = f" {said}" if str(said) else ""
        what = f"HTTP {reply.status}{words} for {request.what}; the host is left alone for {seconds:.0f} s"
        raise Failure.of("rate-limited", host.name, what, status=reply.status, retry_after=seconds)

    async def _attempt(self, host: Host, request: Request, visit: Visit) -> Reply:
        """One answer, in the first way of RG-101 that works; the way is remembered for the host."""
        known = self._ways.get(host.name) if request.insecure else None
        ways = _ways(request)
        for position, (scheme, verified) in enumerate(ways):
            if known in ways and known != (scheme, verified):
                continue
            last = position == len(ways) - 1 or known is not None
            url = request.url if scheme == urlsplit(request.url).scheme else f"http{request.url[len('https') :]}"
            try:
                reply = await self._timed(host, replace(request, url=url, verified=verified), visit)
            except TransportError as error:
                if not last and (error.kind == "tls" or (error.kind == "connect" and error.refused)):
                    continue
                self._ways.pop(host.name, None)
                if error.kind == "connect" or (error.kind == "timeout" and error.phase == "connect"):
                    self._pacing.unreachable(host)
                raise
            if request.insecure:
                self._ways[host.name] = (scheme, verified)
            self._pacing.answered(host, reply.headers)
            self._show_warnings(host, reply.headers, request)
            return reply
        raise AssertionError("a request has at least one way")

    async def _timed(self, host: Host, request: Request, visit: Visit) -> Reply:
        """One exchange in its slot, within the image's time, counted."""
        try:
            async with self._pacing.slot(host, request.urgency, visit.tenant):
                started = self._clock.monotonic()
                result = "cancelled"
                visit.requests += 1
                try:
                    with visit.budget.running():
                        async with asyncio.timeout(visit.budget.remaining):
                            reply = await self._once(request)
                    result = str(reply.status)
                    return reply
                except TimeoutError:
                    result = "timeout"
                    what = f"no complete answer for {request.what} in the {visit.budget.seconds:g} s for one image"
                    raise Failure.of("timeout", host.name, what) from None
                except TransportError as error:
                    result = error.kind
                    raise
                except Failure as failure:
                    result = failure.error.code
                    raise
                finally:
                    self._metrics.request(host.name, request.operation, result, self._clock.monotonic() - started)
        except LineFull:
            what = f"{self._settings.waiting_per_tenant} requests of the same namespace are waiting for it already"
            raise Failure.of("rate-limited", host.name, what, retry_after=1.0) from None

    async def _once(self, request: Request) -> Reply:
        headers = {**request.headers, **request.own_headers}
        async with self._transport.request(
            request.method,
            request.url,
            headers=headers,
            body=request.body,
            reach=request.reach,
            verified=request.verified,
            tls=request.tls,
        ) as response:
            body = await _read(request, response)
            return Reply(response.status, response.headers, body, request.url, response.peer_class)

    def _show_warnings(self, host: Host, headers: Headers, request: Request) -> None:
        """``Warning: 299 - "text"``, once per host and text (RG-064)."""
        for value in headers.get_all("warning"):
            if not value.lstrip().startswith("299"):
                continue
            _, _, quoted = value.partition('"')
            text = clean(quoted.rpartition('"')[0].replace('\\"', '"'), request.secrets)
            if text and text not in host.told and len(host.told) < 100:
                host.told.add(text)
                self._notice(f"{host.name} says: {text}")


def origin_host(url: str) -> str:
    """``host[:port]`` of a URL, as pauses, metrics and messages name it."""
    return urlsplit(url).netloc.rpartition("@")[2]


def same_host(one: str, other: str) -> bool:
    """Whether two URLs have the same host and port, whatever their schemes (RG-103)."""
    return _host_and_port(urlsplit(one)) == _host_and_port(urlsplit(other))


def is_loopback(host: str) -> bool:
    """Whether ``host[:port]`` names this machine by itself: ``localhost`` or a literal loopback address."""
    name = urlsplit(f"//{host}").hostname or ""
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


async def _read(request: Request, response: Response) -> bytes:
    if request.method == "HEAD":
        return b""
    if not 200 <= response.status < 300:
        return await response.read_some(ERROR_BODY)
    host = origin_host(request.url)
    encoding = response.headers.get("content-encoding").lower()
    if encoding not in ("", "identity"):
        what = (
            f"{request.what} came with Content-Encoding {clean(encoding, limit=40)!r} although identity was asked for"
        )
        raise Failure.of("unsupported-encoding", host, what, status=response.status)
    try:
        return await response.read(request.limit)
    except BodyTooLarge as error:
        size = f"{error.size} bytes" if error.size is not None else "more"
        what = f"{request.what} is too large: {size} where at most {error.limit} bytes are read"
        raise Failure.of("too-large", host, what, status=response.status) from None


def _ways(request: Request) -> list[tuple[str, bool]]:
    scheme = urlsplit(request.url).scheme
    if scheme == "http" or not request.insecure:
        return [(scheme, request.verified)]
    ways = [(scheme, True), (scheme, False)] if request.verified else [(scheme, False)]
    return [*ways, ("http", True)] if request.plain else ways


def _redirected(request: Request, at: str, location: str, first: Reply) -> Request:
    """The request for the next hop; ``Failure`` if it must not be followed. ``at`` is what was really asked."""
    host = origin_host(at)
    try:
        url = urljoin(at, location)
        there = urlsplit(url)
        origin, origin_there = _origin(urlsplit(at)), _origin(there)
    except ValueError:
        raise Failure.of("refused-redirect", host, "redirected to something that is not a URL") from None
    problem = ""
    if there.scheme not in ("http", "https") or not there.hostname:
        problem = "which is not an HTTP address"
    elif "@" in there.netloc:
        problem = "with user information in the address"
    elif at.startswith("https:") and there.scheme == "http":
        problem = "which would leave TLS"
    elif request.redirects is Redirects.SAME_ORIGIN and origin != origin_there:
        problem = "where only the same origin is followed"
    if problem:
        what = f"redirected from {origin} to {clean(origin_there, request.secrets)}, {problem}"
        raise Failure.of("refused-redirect", host, what)
    if origin_there == origin:
        return replace(request, url=url, plain=False)
    reach = request.reach if same_host(first.url, url) else Reach(named=False, registry=first.peer)
    return replace(
        request,
        url=url,
        own_headers={},
        reach=reach,
        verified=True,
        insecure=False,
        plain=False,
        tls=NO_TLS,
        charged=False,
    )


def _origin(url: SplitResult) -> str:
    host, port = _host_and_port(url)
    standard = {"https": 443, "http": 80}.get(url.scheme)
    shown = f"[{host}]" if ":" in host else host
    return f"{url.scheme}://{shown}" if port == standard else f"{url.scheme}://{shown}:{port}"


def _host_and_port(url: SplitResult) -> tuple[str, int | None]:
    return (url.hostname or "").lower(), url.port or {"https": 443, "http": 80}.get(url.scheme)


def _transport_failure(error: TransportError, request: Request, attempts: int) -> Failure:
    tried = f" after {attempts} attempts" if attempts > 1 else ""
    detail = clean(error.detail, request.secrets, limit=400)
    if error.kind == "timeout":
        return Failure.of("timeout", error.host, f"{detail} ({error.phase}) for {request.what}{tried}")
    code = {"tls": "tls", "refused-address": "refused-address"}.get(error.kind, "network")
    return Failure.of(code, error.host, f"{detail}{tried}")
