"""Sends one request and returns its response.

A request waits for a slot of its host, ends with the image's time, is retried after transient errors, waits for a pause
or fails at once, falls back from verified TLS only where configured, and follows redirects without credentials. The
layers above interpret statuses such as 401 and 404.
"""

import asyncio
import random
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from typing import NamedTuple
from urllib.parse import urlsplit

from polyarch.clock import Clock
from polyarch.oci.concurrency import QueueFull, RequestPriority, SharedBytes, Tenants
from polyarch.oci.documents import ERROR_BODY_LIMIT
from polyarch.oci.inspection import TENANT_LIMIT, InspectionWarning
from polyarch.oci.lru_cache import LRUCache
from polyarch.oci.metrics import Metrics
from polyarch.oci.mirror_files import Tls
from polyarch.oci.settings import InspectorSettings
from polyarch.oci.traffic.failures import (
    REDIRECTS,
    Failure,
    clean,
    is_page,
    is_passing_status,
    of_status,
    passes,
    read_errors,
)
from polyarch.oci.traffic.rate_limiter import (
    HOSTS_KEPT,
    HostState,
    HostUnavailable,
    RegistryRateLimiter,
    parse_rate_limit,
    parse_retry_after,
)
from polyarch.oci.transport.addresses import (
    NAMED,
    AddressClass,
    AddressPolicy,
    HostProvenance,
    Redirect,
    RedirectRequest,
    RegistryServer,
    UrlRejected,
    check_redirect,
)
from polyarch.oci.transport.interface import NO_TLS, BodyTooLarge, Headers, Response, Transport, TransportError
from polyarch.oci.transport.tls import TransportMode, try_next


class TimeBudget:
    """``seconds`` of work and ``max_wait`` seconds of pauses; ``purpose`` appears in messages.

    It runs while a request is in progress or a retry delay passes, and stops while a request waits in the queue or for
    a pause of a rate limit: otherwise a thousand images of one registry would time out in the queue, and pauses have
    their own limit. Concurrent requests of one image use the same time once.
    """

    __slots__ = ("_clock", "_pauses", "_running", "_since", "_used", "_whole", "max_wait", "purpose", "seconds")

    def __init__(
        self,
        clock: Clock,
        *,
        seconds: float,
        max_wait: float,
        purpose: str = "one image",
        whole: "TimeBudget | None" = None,
    ) -> None:
        """``whole``: the parent budget; what is used here is also used there."""
        self.seconds = seconds
        self.max_wait = max_wait
        self.purpose = purpose
        self._clock = clock
        self._whole = whole
        self._used = 0.0
        self._running = 0
        self._since = 0.0
        self._pauses = 0.0

    def half(self) -> "TimeBudget":
        """Half of the remaining work, for one source of several."""
        purpose = "one source of the image"
        return TimeBudget(self._clock, seconds=self.remaining / 2, max_wait=self.max_wait, purpose=purpose, whole=self)

    @property
    def remaining(self) -> float:
        """Seconds of work left; never negative."""
        used = self._used
        if self._running:
            used += self._clock.monotonic() - self._since
        return max(0.0, self.seconds - used)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Count the time inside the block, once for concurrent users."""
        if not self._running:
            self._since = self._clock.monotonic()
        self._running += 1
        try:
            with self._whole.running() if self._whole is not None else nullcontext():
                yield
        finally:
            self._running -= 1
            if not self._running:
                self._used += self._clock.monotonic() - self._since

    def may_wait(self, seconds: float) -> bool:
        """Whether a pause of this length still fits; a longer one is not started."""
        return self._pauses + seconds <= self.max_wait and (self._whole is None or self._whole.may_wait(seconds))

    async def wait(self, seconds: float) -> None:
        """Wait for a pause. Concurrent requests of one image are charged each, so a pause is never too long."""
        self._pauses += seconds
        await (self._whole.wait(seconds) if self._whole is not None else self._clock.sleep(seconds))


# -- the transport mode that works for an insecure host, found by one request at a time --------------------------------
# A host with several permitted modes is tried from the safest on. With a hundred images at one plain registry, each
# would start with two failing handshakes; so the first request searches, and concurrent ones wait briefly for its
# result. A result is reused only where the same search would have ended the same: for the same certificates, and if
# every safer mode of the new request was tried then.


LONGEST_WAIT = 2.0
"""Seconds that a request waits for another one's search before it searches itself."""


class _Found(NamedTuple):
    """The mode that works, and the failed ones tried before it."""

    mode: TransportMode
    failed: tuple[TransportMode, ...]


class ModeProbe:
    """One request's search, in ``order``. Call ``found`` with the working mode, or ``lost`` if there is none."""

    __slots__ = ("_key", "_modes", "order")

    def __init__(self, modes: "KnownModes", key: tuple[str, Tls], order: Sequence[TransportMode]) -> None:
        self._modes = modes
        self._key = key
        self.order = order

    def found(self, mode: TransportMode) -> None:
        if len(self.order) > 1:
            self._modes.keep(self._key, _Found(mode, tuple(self.order[: self.order.index(mode)])))

    def lost(self) -> None:
        self._modes.forget(self._key)


class KnownModes:
    """The known modes per host, and the searches in progress."""

    def __init__(self) -> None:
        self._found: LRUCache[tuple[str, Tls], _Found] = LRUCache(HOSTS_KEPT)
        self._searches: dict[tuple[str, Tls], asyncio.Event] = {}

    @asynccontextmanager
    async def search(self, host: str, tls: Tls, allowed: Sequence[TransportMode]) -> AsyncIterator[ModeProbe]:
        """The modes a request to ``host`` has to try: the known one, else all ``allowed``.

        Waits for another request's search, if any. At the end of the block, waiting requests continue.
        """
        key = (host, tls)
        if len(allowed) > 1 and self._known(key, allowed) is None and (other := self._searches.get(key)) is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(LONGEST_WAIT):
                    await other.wait()
        known = self._known(key, allowed)
        if known is not None or len(allowed) == 1:
            yield ModeProbe(self, key, allowed if known is None else (known,))
            return
        over = self._searches[key] = asyncio.Event()
        try:
            yield ModeProbe(self, key, allowed)
        finally:
            over.set()
            if self._searches.get(key) is over:
                del self._searches[key]
        await asyncio.sleep(0)  # lets waiting requests queue before this one's next request

    def keep(self, key: tuple[str, Tls], found: _Found) -> None:
        self._found.put(key, found)

    def forget(self, key: tuple[str, Tls]) -> None:
        self._found.pop(key)

    def _known(self, key: tuple[str, Tls], allowed: Sequence[TransportMode]) -> TransportMode | None:
        found = self._found.get(key)
        if found is None or found.mode not in allowed:
            return None
        safer = allowed[: allowed.index(found.mode)]
        return found.mode if set(safer) <= set(found.failed) else None


# -- requests ----------------------------------------------------------------------------------------------------------


LONGEST_DELAY = 8.0

Receive = Callable[[AsyncIterator[bytes]], Awaitable[None]]
"""Receives the body of a success as a stream. Called again when the request is retried; it may stop early."""


class Stream:
    """A request body of ``size`` bytes that is read from elsewhere while it is sent, so it can be sent only once.

    ``error`` is an error of the source, which makes the request fail too.
    """

    __slots__ = ("_chunks", "_started", "error", "size")

    def __init__(self, chunks: AsyncIterator[bytes], size: int) -> None:
        self._chunks = chunks
        self._started = False
        self.size = size
        self.error: Exception | None = None

    def begin(self, host: str) -> AsyncIterator[bytes]:
        """The pieces; the second time a transient ``Failure``, so that the whole transfer is restarted."""
        if self._started:
            raise Failure.of("network", host, "the upload was not accepted at once and has to begin anew")
        self._started = True
        return self._pieces()

    async def _pieces(self) -> AsyncIterator[bytes]:
        try:
            async for chunk in self._chunks:
                yield chunk
        except Exception as error:
            self.error = error
            raise


@dataclass(frozen=True, slots=True)
class Request:
    """A request. ``what`` names it in messages; ``secrets`` are removed from the server's texts."""

    method: str
    url: str
    operation: str
    what: str
    limit: int
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    own_headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    """For the first origin only: credentials and configured headers of the source."""
    body: bytes | Stream | None = field(default=None, repr=False)
    receive: Receive | None = field(default=None, repr=False)
    """Receives the body of a success as a stream; the response's body is then empty."""
    idempotent: bool = False
    """May be repeated although it is neither GET nor HEAD: a PUT by digest."""
    priority: RequestPriority = RequestPriority.MANIFEST
    charged: bool = False
    """Counts against the rate limit of the account."""
    metered: bool = False
    """Its response always has the rate limit headers, if there is a limit: a manifest's."""
    account: str = ""
    """Fingerprint of its credential; empty for anonymous."""
    token: bool = False
    """Goes to a token endpoint: redirects stay within its origin."""
    provenance: HostProvenance = NAMED
    via: str = ""
    """The registry that named the host, or that is behind it; empty: the host itself."""
    modes: tuple[TransportMode, ...] = (TransportMode.VERIFIED,)
    """The modes to try, in order."""
    tls: Tls = NO_TLS
    secrets: frozenset[str] = field(default=frozenset(), repr=False)

    @property
    def repeatable(self) -> bool:
        return self.idempotent or self.method in ("GET", "HEAD")


@dataclass(frozen=True, slots=True)
class CompleteResponse:
    """A response with its whole body. ``url`` is that of the last hop; ``peer`` the class of the registry's own
    address.
    """

    status: int
    headers: Headers
    body: bytes = field(repr=False)
    url: str = field(repr=False)
    peer: AddressClass | None
    elsewhere: bool = False
    """A redirect led to another origin: the response's challenges are not the registry's."""
    request: Request | None = field(default=None, repr=False)
    """The request of the last hop, with nothing of the source if that is ``elsewhere``."""
    registry: RegistryServer | None = None
    """The server of the first hop, by which every address is judged that an answer names."""


class RequestContext:
    """Time, request count, bytes and warnings of one image's requests.

    Its documents count as bytes in flight as long as the context is in use, because what is read from them stays in
    memory so long.
    """

    __slots__ = ("_bytes", "_image", "budget", "requests", "tenants", "wait", "warnings")

    def __init__(self, budget: TimeBudget, *, wait: bool, tenants: Tenants | None = None) -> None:
        self.budget = budget
        self.wait = wait
        self.tenants = tenants or Tenants()
        self.requests = 0
        self.warnings: list[InspectionWarning] = []
        self._bytes: SharedBytes | None = None
        self._image = object()
        """What the bytes are held for; not the context itself, which would never be dropped then."""

    @property
    def tenant(self) -> str:
        """The tenant that asked first, whose share of everything is used."""
        return self.tenants.first

    def hold(self, capacity: SharedBytes, amount: int) -> bool:
        """Count bytes as in flight until they are given back or the context is dropped; False if the tenant has no
        more room.
        """
        self._bytes = capacity
        return capacity.hold(self.tenant, self._image, amount)

    def give_back(self, amount: int | None = None) -> None:
        """Count so many bytes no more; what it held when it was closed is given back already."""
        if self._bytes is not None:
            self._bytes.give_back(self.tenant, self._image, amount)

    def close(self) -> None:
        """Count nothing as in flight any more."""
        self.give_back()

    def __del__(self) -> None:
        self.close()

    def warn(self, code: str, message: str) -> None:
        warning = InspectionWarning(code, message)
        if warning not in self.warnings:
            self.warnings.append(warning)


class _Overtaken(Exception):  # noqa: N818 - never leaves this module
    """A pause or an open circuit began while the request waited in the queue."""


class Exchange:
    """Sends requests through a transport; ``notice`` receives messages for the user as they occur."""

    def __init__(
        self,
        transport: Transport,
        rate_limiter: RegistryRateLimiter,
        *,
        clock: Clock,
        settings: InspectorSettings,
        policy: AddressPolicy,
        metrics: Metrics,
        notice: Callable[[str], None],
        uniform: Callable[[float, float], float] = random.uniform,
    ) -> None:
        self._transport = transport
        self._rate_limiter = rate_limiter
        self._clock = clock
        self._settings = settings
        self.policy = policy
        self._metrics = metrics
        self._notice = notice
        self._uniform = uniform
        self._modes = KnownModes()

    async def fetch(
        self, request: Request, context: RequestContext, *, registry: RegistryServer | None = None
    ) -> CompleteResponse:
        """The response after at most five redirects. Raises ``Failure``.

        ``registry``: the server whose redirect led to this request; the server itself is named by it.
        """
        first = response = await self._send(request, context)
        elsewhere = registry is not None
        registry = registry or RegistryServer(first.url, first.peer)
        followed = 0
        while response.status in REDIRECTS and (location := response.headers.get("location")):
            asked = RedirectRequest(response.url, method=request.method, redirects=followed, token=request.token)
            target = check_redirect(location, asked, registry, self.policy)
            if isinstance(target, UrlRejected):
                raise Failure.of(target.code, origin_host(first.url), clean(target.message, request.secrets, limit=400))
            request = _redirected(request, target)
            followed += 1
            elsewhere = elsewhere or not target.keep_authorization
            response = await self._send(request, context)
        return replace(response, peer=registry.address_class, elsewhere=elsewhere, request=request, registry=registry)

    async def _send(self, request: Request, context: RequestContext) -> CompleteResponse:
        host = self._rate_limiter.host(origin_host(request.url), request.via, context.tenant)
        attempts = 0
        while True:
            await self._clear(host, request, context)
            attempts += 1
            answer: CompleteResponse | None = None
            try:
                response = await self._attempt(host, request, context)
            except _Overtaken:
                attempts -= 1
                continue
            except TransportError as error:
                failure = _transport_failure(error, request, attempts)
                if failure.error.error_class != "transient":
                    raise failure from None
            else:
                retry_after = parse_retry_after(response.headers.get("retry-after"), self._clock.now())
                if response.status == 429 or (response.status == 503 and retry_after is not None):
                    attempts -= 1
                    await self._pause(host, request, response, retry_after, context)
                    continue
                self._rate_limiter.served(host, account=request.account)
                if not _is_passing(request, response):
                    return response
                answer = None if is_passing_status(response.status) else response
                registry_error = read_errors(response.body, request.secrets)
                failure = of_status(host.name, request.what, response.status, registry_error, attempts=attempts)
            delay = self._uniform(0.0, min(LONGEST_DELAY, 0.25 * 2.0**attempts))
            if (
                not request.repeatable
                or attempts >= self._settings.attempts
                or delay >= context.budget.remaining
                or self._unavailable(host, request, context, charged=False) is not None
            ):
                if answer is not None:
                    return answer
                raise failure
            with context.budget.running():
                await self._clock.sleep(delay)

    async def _clear(self, host: HostState, request: Request, context: RequestContext) -> None:
        """Wait until the host may be asked; ``Failure`` if that takes too long."""
        while (unavailable := self._unavailable(host, request, context)) is not None:
            waits = unavailable.code == "rate-limited" and context.wait and context.budget.may_wait(unavailable.seconds)
            if not waits:
                raise Failure.of(unavailable.code, host.name, unavailable.text, retry_after=unavailable.seconds)
            await context.budget.wait(unavailable.seconds)

    def _unavailable(
        self, host: HostState, request: Request, context: RequestContext, *, charged: bool = True
    ) -> HostUnavailable | None:
        return self._rate_limiter.unavailable(
            host, charged=charged and request.charged, account=request.account, tenant=context.tenant
        )

    async def _pause(
        self,
        host: HostState,
        request: Request,
        response: CompleteResponse,
        retry_after: float | None,
        context: RequestContext,
    ) -> None:
        """Pause after a 429: only the account if it reports no requests left or is not anonymous, else the whole host.

        Whoever has an account chooses what it is refused for, be it wrong passwords.
        """
        paused_before = self._unavailable(host, request, context, charged=False) is not None
        rate = parse_rate_limit(response.headers, 0.0)
        used_up = rate is not None and rate.remaining == 0
        is_accounts = used_up or (response.status == 429 and request.account != "")
        seconds = self._rate_limiter.limited(host, retry_after, account=request.account if is_accounts else None)
        if context.wait and context.budget.may_wait(seconds):
            if not paused_before:
                self._notice(f"{host.name} limits the rate of requests: waiting {seconds:.0f} s")
            return
        registry_error = read_errors(response.body, request.secrets)
        answer = f"HTTP {response.status}{registry_error.words} for {request.what}"
        what = f"{answer}; requests to the host are paused for {seconds:.0f} s"
        raise Failure.of("rate-limited", host.name, what, status=response.status, retry_after=seconds)

    async def _attempt(self, host: HostState, request: Request, context: RequestContext) -> CompleteResponse:
        """One response, in the first mode that works, which is cached for the host."""
        async with self._modes.search(host.name, request.tls, request.modes) as search:
            for mode in search.order:
                try:
                    response = await self._timed(host, request, mode, context)
                except TransportError as error:
                    if mode is not search.order[-1] and try_next(error):
                        continue
                    search.lost()
                    if error.phase == "connect" and error.kind in ("connect", "timeout"):
                        self._rate_limiter.unreachable(host)
                    elif error.kind == "timeout":  # of a name, too: others have their own share of the resolver
                        self._rate_limiter.silent(host, context.tenant)
                    raise
                search.found(mode)
                self._rate_limiter.answered(
                    host,
                    response.headers,
                    account=request.account,
                    metered=request.metered and response.status in (200, 304),
                    charged=request.charged,
                    tenant=context.tenant,
                )
                self._show_warnings(host, response.headers, request)
                return response
        raise AssertionError("a request has at least one mode")

    async def _timed(
        self, host: HostState, request: Request, mode: TransportMode, context: RequestContext
    ) -> CompleteResponse:
        """One exchange in a slot, within the image's time, with metrics."""
        try:
            async with self._rate_limiter.slot(host, request.priority, context.tenants):
                if self._unavailable(host, request, context) is not None:
                    raise _Overtaken
                started = self._clock.monotonic()
                result = "cancelled"
                context.requests += 1
                allowed = context.budget.remaining
                try:
                    with context.budget.running():
                        async with asyncio.timeout(allowed):
                            response = await self._once(request, mode, context)
                    result = str(response.status)
                    return response
                except TimeoutError:
                    result = "timeout"
                    if allowed >= self._settings.patience:
                        self._rate_limiter.silent(host, context.tenant)
                    time = f"{round(context.budget.seconds, 1):g} s for {context.budget.purpose}"
                    what = f"no complete answer for {request.what} in the {time}"
                    raise Failure.of("timeout", host.name, what) from None
                except TransportError as error:
                    result = error.kind
                    context.requests -= error.phase == "connect"  # nothing was asked
                    raise
                except Failure as failure:
                    result = failure.error.code
                    raise
                finally:
                    self._metrics.request(host.name, request.operation, result, self._clock.monotonic() - started)
        except QueueFull as full:
            raise Failure.of(TENANT_LIMIT, host.name, str(full), retry_after=1.0) from None

    async def _once(self, request: Request, mode: TransportMode, context: RequestContext) -> CompleteResponse:
        url = mode.url(request.url)
        headers = {**request.headers, **request.own_headers}
        body: bytes | AsyncIterator[bytes] | None
        if isinstance(request.body, Stream):
            body = request.body.begin(origin_host(request.url))
            headers["Content-Length"] = str(request.body.size)
        else:
            body = request.body
        async with self._transport.request(
            request.method,
            url,
            headers=headers,
            body=body,
            provenance=request.provenance,
            verified=mode.verified,
            tls=request.tls,
            tenants=context.tenants,
        ) as response:
            body = await _read(request, response, context, self._rate_limiter.bytes_in_flight)
            return CompleteResponse(response.status, response.headers, body, url, response.peer_class)

    def _show_warnings(self, host: HostState, headers: Headers, request: Request) -> None:
        """``Warning: 299 - "text"``, once per host and text."""
        for value in headers.get_all("warning"):
            if not value.lstrip().startswith("299"):
                continue
            _, _, quoted = value.partition('"')
            text = clean(quoted.rpartition('"')[0].replace('\\"', '"'), request.secrets)
            if text and text not in host.told and len(host.told) < 100:
                host.told.add(text)
                self._notice(f"{host.name} says: {text}")


def not_as_asked(request: Request, response: CompleteResponse, wanted: str, secrets: Iterable[str] = ()) -> Failure:
    """The failure for a success with a body that is not what was asked for, as maintenance pages, logins and portals
    answer. It says nothing about the image, and passes. ``wanted``: what the body should have been.
    """
    content_type = response.headers.get("content-type").partition(";")[0]
    shown = clean(content_type, secrets, limit=60) or "no Content-Type"
    registry_error = read_errors(response.body, secrets)
    if not response.body.strip():
        answered = "an empty body"
    elif is_page(content_type, response.body):
        answered = f"a web page ({shown})"
    else:
        answered = f"a body that is not {wanted} ({shown}{f', {registry_error}' if str(registry_error) else ''})"
    host, first = origin_host(response.url), origin_host(request.url)
    path = urlsplit(response.url).path
    what = f"{answered} came for {request.what} with HTTP {response.status}"
    if (host, path) != (first, urlsplit(request.url).path):
        what += f", after a redirect from {first} to {clean(f'{host}{path}', secrets)}"
    return Failure.of("not-a-registry", host, f"{what}: this is not a registry's answer", status=response.status)


def _is_passing(request: Request, response: CompleteResponse) -> bool:
    """Whether another attempt is worth it: for a status that passes, and for what is no answer to a plain GET. HEAD is
    followed by a GET, and a token endpoint says with any 4xx that it refuses the credential.
    """
    if is_passing_status(response.status):
        return True
    if request.method != "GET" or request.token or response.status in (401, 403):
        return False
    return passes(response.status, read_errors(response.body)) or is_error_page(response)


def is_error_page(response: CompleteResponse) -> bool:
    """Whether a web page says 4xx, as an ingress does while its registry is being replaced, and a firewall of what it
    blocks: the registry itself has neither refused anything nor said that the image is gone.

    Not 401, which proxies that ask for a password answer with a page; nor XML, in which object stores say what they do
    not have; nor the error of a registry, whatever its type.
    """
    content_type = response.headers.get("content-type").partition(";")[0].strip().lower()
    if not 400 <= response.status < 500 or response.status == 401 or content_type.endswith("/xml"):
        return False
    return is_page(content_type, response.body) and not str(read_errors(response.body))


def origin_host(url: str) -> str:
    """``host[:port]`` of a URL, as pauses, metrics and messages name it."""
    return urlsplit(url).netloc.rpartition("@")[2]


async def _read(request: Request, response: Response, context: RequestContext, capacity: SharedBytes) -> bytes:
    if request.method == "HEAD":
        return b""
    encoding = response.headers.get("content-encoding").lower()
    packed = encoding in _DEFLATED
    if not 200 <= response.status < 300:
        body = await response.read_some(ERROR_BODY_LIMIT)
        return _beginning(body, ERROR_BODY_LIMIT) if packed else body
    host = origin_host(request.url)
    page = is_page(response.headers.get("content-type"))
    if encoding not in ("", "identity") and not packed and not page:
        what = (
            f"{request.what} came with Content-Encoding {clean(encoding, limit=40)!r} although identity was asked for"
        )
        raise Failure.of("unsupported-encoding", host, what, status=response.status)
    if request.receive is not None:
        await request.receive(_inflated(response.chunks(), host) if packed else response.chunks())
        return b""
    held = 0

    def hold(amount: int) -> None:
        nonlocal held
        if not context.hold(capacity, amount):
            what = f"{request.what} is not read: the documents of its namespace in memory take {held} bytes and more"
            raise Failure.of(TENANT_LIMIT, host, what, retry_after=1.0)
        held += amount

    try:
        body = await response.read(request.limit, hold)
        if not packed:
            return body
        pieces = bytearray()
        async for piece in _inflated(_once_only(body), host):
            if len(pieces) + len(piece) > request.limit:
                raise BodyTooLarge(limit=request.limit, size=None, host=host)
            hold(len(piece))
            pieces += piece
        return bytes(pieces)
    except BaseException as error:
        context.give_back(held)
        if not isinstance(error, BodyTooLarge):
            raise
        if page and not packed:
            return await response.read_some(ERROR_BODY_LIMIT)
        size = f"{error.size} bytes" if error.size is not None else "more"
        what = f"{request.what} is too large: {size} where at most {error.limit} bytes are read"
        raise Failure.of("too-large", host, what, status=response.status) from None


_DEFLATED = frozenset({"gzip", "x-gzip", "deflate"})
"""Encodings that proxies use unasked, which Go's clients undo; ``deflate`` is zlib's format."""
_INFLATED_PIECE = 256 * 1024
_DEFLATED_SLICE = 4 * 1024


async def _once_only(body: bytes) -> AsyncIterator[bytes]:
    yield body


async def _inflated(chunks: AsyncIterator[bytes], host: str) -> AsyncIterator[bytes]:
    """The content of an encoded body, in pieces of at most 256 KiB; ``Failure`` ``network`` if it breaks off."""
    decompressor = zlib.decompressobj(wbits=47)  # gzip or zlib, by its first bytes
    async for chunk in chunks:
        for start in range(0, len(chunk), _DEFLATED_SLICE):
            # Members may be tiny, or empty: each copies what is left of its slice, and none need give anything.
            await asyncio.sleep(0)
            data = chunk[start : start + _DEFLATED_SLICE]
            while data:
                if decompressor.eof:
                    decompressor = zlib.decompressobj(wbits=47)
                try:
                    piece = decompressor.decompress(data, _INFLATED_PIECE)
                except zlib.error as error:
                    what = f"the body is not what its Content-Encoding says ({error})"
                    raise Failure.of("network", host, what) from None
                data = decompressor.unconsumed_tail or decompressor.unused_data
                if piece:
                    yield piece
    if not decompressor.eof:
        raise Failure.of("network", host, "the encoded body breaks off")


def _beginning(body: bytes, limit: int) -> bytes:
    """The first bytes of an encoded body that may be cut; the body itself if it is not encoded."""
    try:
        return zlib.decompressobj(wbits=47).decompress(body, limit)
    except zlib.error:
        return body


def modes_of(url: str, allowed: tuple[TransportMode, ...] = (TransportMode.VERIFIED,)) -> tuple[TransportMode, ...]:
    """The modes for a URL named by a server: its scheme is fixed, TLS as permitted for the host."""
    if url.startswith("http:"):
        return (TransportMode.PLAIN,)
    return tuple(mode for mode in allowed if mode is not TransportMode.PLAIN) or (TransportMode.VERIFIED,)


def _redirected(request: Request, target: Redirect) -> Request:
    """The request for the next hop. Another origin gets none of the source's settings."""
    if target.keep_authorization:
        modes = modes_of(target.url, request.modes)
        return replace(request, url=target.url, provenance=target.provenance, modes=modes)
    return replace(
        request,
        url=target.url,
        provenance=target.provenance,
        via=request.via or origin_host(request.url),
        own_headers={},
        modes=modes_of(target.url),
        tls=NO_TLS,
        charged=False,
        metered=False,
        account="",
    )


def _transport_failure(error: TransportError, request: Request, attempts: int) -> Failure:
    tried = f" after {attempts} attempts" if attempts > 1 else ""
    detail = clean(error.detail, request.secrets, limit=400)
    if error.kind == "timeout":
        return Failure.of("timeout", error.host, f"{detail} ({error.phase}) for {request.what}{tried}")
    code = error.kind if error.kind in ("tls", "unknown-host", "refused-address") else "network"
    return Failure.of(code, error.host, f"{detail}{tried}")
