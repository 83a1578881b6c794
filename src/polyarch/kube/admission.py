"""Admission webhooks: AdmissionReview v1 in, a response out, whatever the handler does; and the HTTP side of webhooks.

A handler gets the object decoded into its route's type, in the same pass as the envelope, and answers with JSON patch
operations. This module guarantees what must not depend on the handler: the request's deadline; the route's failure
policy (``allow`` with a warning, or ``deny`` with the reason) if the handler fails or is late, or if the object's
fields have unexpected types; and a plain sentence, never a stack trace, for a body that is not a review.

A process without webhooks does not load it: 1 MiB.
"""

import asyncio
import functools
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, Generic, Literal, Protocol, TypeVar
from urllib.parse import parse_qs

import msgspec
import structlog
from aiohttp.web_request import BaseRequest
from aiohttp.web_response import Response
from msgspec import UNSET, UnsetType

from polyarch.clock import Clock, SystemClock, deadline, is_cancelled
from polyarch.kube import webhook_probe
from polyarch.kube.connections import BodyTooLarge, Connection, read_body
from polyarch.kube.errors import SeenErrors
from polyarch.kube.metrics import ADMISSION_SECONDS, Metrics
from polyarch.kube.patches import Operation
from polyarch.kube.resources import Resource
from polyarch.kube.review_tokens import ReviewTokens
from polyarch.kube.server import JSON_HEADERS, text

log = structlog.get_logger(__name__)

T = TypeVar("T")

API_VERSION: Final = "admission.k8s.io/v1"
KIND: Final = "AdmissionReview"
MAX_BODY: Final = 8 * 2**20
MAX_UNPROVEN_BODY: Final = 2 * 2**20
"""Of a review that could have been proven and is not: more than etcd takes of a pod. Decoded it may be twenty times as
many."""
NAMESPACE_LENGTH: Final = 63
"""Characters of a namespace's name. Handlers keep facts by namespace, so a longer one of whoever made up a review would
stay in memory."""
LOGGED: Final = 253
"""Characters of what a review says of itself, in a log line: anybody may have made it up."""
WARNING_LENGTH: Final = 256
WARNINGS_LENGTH: Final = 4096
"""The API server's limit for warnings, in characters: for each warning and for all together."""

Failure = Literal["undecodable", "deadline", "exception"]
"""Why the route's policy answered and not its handler."""


class NotAReview(Exception):  # noqa: N818 - what the body is
    """The body is not an AdmissionReview of admission.k8s.io/v1; the text says what was found and what is expected."""


class GroupVersionKind(msgspec.Struct, frozen=True, gc=False):
    group: str = ""
    version: str = ""
    kind: str = ""


class GroupVersionResource(msgspec.Struct, frozen=True, gc=False):
    group: str = ""
    version: str = ""
    resource: str = ""


class UserInfo(msgspec.Struct, frozen=True, gc=False):
    """Who made the request (authentication/v1 UserInfo)."""

    username: str = ""
    uid: str = ""
    groups: list[str] | None = None


class AdmissionRequest(msgspec.Struct, Generic[T], frozen=True, kw_only=True):
    """A request as handlers see it. ``object`` has the route's type; a route for DELETE takes ``Type | None``.

    ``timeout_seconds`` is how long the API server waits in all, counted from ``arrived_at`` (monotonic clock). A pod
    made from ``generateName`` has neither name nor uid yet; ``uid`` here is the review's.

    ``is_proven``: the review comes from an API server, so ``user`` may create ``object`` in ``namespace``. Otherwise
    anybody may have made it up: no credentials are used for it, and its answer tells what everybody may know.
    """

    uid: str
    operation: str
    object: T
    old_object: T | None
    kind: GroupVersionKind
    resource: GroupVersionResource
    sub_resource: str
    name: str
    namespace: str
    dry_run: bool
    user: UserInfo
    timeout_seconds: float
    arrived_at: float
    is_proven: bool
    body: bytes

    @property
    def raw_object(self) -> msgspec.Raw:
        """The object's JSON as received, with the fields that the route's type omits; parsed again on each call."""
        return _RAW.decode(self.body).request.object


class AdmissionResponse(msgspec.Struct, frozen=True):
    """A handler's answer. ``code`` and ``message`` are for denials; warnings appear in the user's terminal."""

    allowed: bool = True
    patch: tuple[Operation, ...] = ()
    warnings: tuple[str, ...] = ()
    audit_annotations: Mapping[str, str] = {}
    code: int = 403
    message: str = ""


class Route(msgspec.Struct, Generic[T], frozen=True, kw_only=True):
    """One webhook. Reviews of other resources or operations than those given are allowed without calling the handler.

    ``failed`` is called for every answer that came from the failure policy ``on_error``. ``has_token``: the registered
    path may have a token (``review_tokens``).
    """

    path: str
    name: str
    type: Any
    handler: Callable[[AdmissionRequest[T]], Awaitable[AdmissionResponse]]
    on_error: Literal["allow", "deny"]
    resource: Resource | None = None
    operations: frozenset[str] = frozenset()
    failed: Callable[[Failure], None] | None = None
    has_token: bool = False

    @property
    def max_body(self) -> int:
        return MAX_BODY

    def answers(self, clock: Clock) -> "Reviewer[T]":
        return Reviewer(self, clock)


class _Request(msgspec.Struct, Generic[T], frozen=True, rename="camel"):
    uid: str
    object: T
    old_object: T | None = None
    kind: GroupVersionKind = GroupVersionKind()
    resource: GroupVersionResource = GroupVersionResource()
    sub_resource: str = ""
    operation: str = ""
    name: str = ""
    namespace: str = ""
    dry_run: bool | None = None
    user_info: UserInfo = UserInfo()


class _Review(msgspec.Struct, Generic[T], frozen=True, rename="camel"):
    api_version: str
    kind: str
    request: _Request[T]


class _Envelope(msgspec.Struct, frozen=True, rename="camel"):
    """A review before validation."""

    api_version: Any = None
    kind: Any = None
    request: msgspec.Raw = msgspec.Raw()


class _Addressed(msgspec.Struct, frozen=True, rename="camel"):
    """The parts of a request that an answer and a log line need when its object could not be decoded."""

    uid: str
    resource: GroupVersionResource = GroupVersionResource()
    sub_resource: str = ""
    operation: str = ""
    name: str = ""
    namespace: str = ""


class _RawRequest(msgspec.Struct, frozen=True):
    object: msgspec.Raw


class _RawReview(msgspec.Struct, frozen=True):
    request: _RawRequest


class _Status(msgspec.Struct, frozen=True):
    code: int
    message: str


class _Answer(msgspec.Struct, frozen=True, rename="camel"):
    uid: str
    allowed: bool
    patch_type: str | UnsetType = UNSET
    patch: bytes | UnsetType = UNSET
    warnings: list[str] | UnsetType = UNSET
    audit_annotations: Mapping[str, str] | UnsetType = UNSET
    status: _Status | UnsetType = UNSET


class _AnsweredReview(msgspec.Struct, frozen=True, rename="camel"):
    response: _Answer
    api_version: str = API_VERSION
    kind: str = KIND


_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_ENVELOPE = msgspec.json.Decoder(_Envelope)
_ADDRESSED = msgspec.json.Decoder(_Addressed)
_RAW = msgspec.json.Decoder(_RawReview)
_encode = msgspec.json.Encoder().encode


class Reviewer(Generic[T]):
    """Answers the reviews of one route."""

    def __init__(self, route: Route[T], clock: Clock) -> None:
        self.route = route
        self._clock = clock
        review: Any = _Review
        self._decode: Callable[[bytes], _Review[T]] = msgspec.json.Decoder(review[route.type]).decode
        self._causes = SeenErrors()

    async def answer(self, body: bytes, *, timeout: float, arrived_at: float, is_proven: bool = False) -> bytes:
        """The encoded AdmissionReview that answers ``body``. Raises only :class:`NotAReview`.

        The handler is cancelled shortly before ``timeout`` seconds after ``arrived_at`` (monotonic clock), so that the
        failure policy's answer still reaches the API server in time.
        """
        try:
            review = self._decode(body)
        except _UNREADABLE as error:
            return self._undecodable(body, error)
        _expect(review.api_version, review.kind)
        asked = review.request
        _check_namespace(asked)
        if self._is_foreign(asked):
            return _encoded(asked.uid, _passed_on(asked))
        request = AdmissionRequest(
            uid=asked.uid,
            operation=asked.operation,
            object=asked.object,
            old_object=asked.old_object,
            kind=asked.kind,
            resource=asked.resource,
            sub_resource=asked.sub_resource,
            name=asked.name,
            namespace=asked.namespace,
            dry_run=bool(asked.dry_run),
            user=asked.user_info,
            timeout_seconds=timeout,
            arrived_at=arrived_at,
            is_proven=is_proven,
            body=body,
        )
        left = arrived_at + timeout - min(0.5, timeout / 10) - self._clock.monotonic()
        try:
            async with deadline(self._clock, max(left, 0.0)) as scope:
                response = await self.route.handler(request)
            return _encoded(asked.uid, response)
        except (Exception, asyncio.CancelledError) as error:  # every admission gets an answer
            if isinstance(error, asyncio.CancelledError) and is_cancelled():
                raise
            if scope.expired():
                return self._by_policy(asked, "deadline", f"there was no decision within {timeout:g} s", None)
            return self._by_policy(asked, "exception", "an internal error occurred", error)

    def _undecodable(self, body: bytes, error: Exception) -> bytes:
        """The typed decode failed: either the body is not a review, or its object has unexpected types."""
        try:
            envelope = _ENVELOPE.decode(body)
        except _UNREADABLE as broken:
            raise NotAReview(f"the body is not JSON that can be read: {broken}") from None
        _expect(envelope.api_version, envelope.kind)
        try:
            asked = _ADDRESSED.decode(envelope.request)
        except _UNREADABLE as broken:
            raise NotAReview(f"the AdmissionReview has no usable request: {broken}") from None
        _check_namespace(asked)
        if self._is_foreign(asked):
            return _encoded(asked.uid, _passed_on(asked))
        return self._by_policy(asked, "undecodable", f"the object is not understood: {error}", None)

    def _is_foreign(self, asked: _Request[T] | _Addressed) -> bool:
        """Whether the review is outside the route's resource or operations; the webhook configuration may be wider."""
        expected = self.route.resource
        if expected is not None:
            found = asked.resource
            if (found.group, found.resource, asked.sub_resource) != (expected.group, expected.plural, ""):
                return True
        return bool(self.route.operations) and asked.operation not in self.route.operations

    def _by_policy(
        self, asked: _Request[T] | _Addressed, failure: Failure, problem: str, error: BaseException | None
    ) -> bytes:
        route = self.route
        log.error(
            "admission answered by policy",
            route=route.name,
            policy=route.on_error,
            failure=failure,
            problem=problem if error is None else f"{type(error).__name__}: {error}",
            uid=asked.uid[:LOGGED],
            namespace=asked.namespace,
            name=asked.name[:LOGGED],
            exc_info=error if error is not None and self._causes.is_new(error) else None,
        )
        if route.failed is not None:
            route.failed(failure)
        sentence = f"{route.name}: {problem} (review {asked.uid})"
        if route.on_error == "allow":
            return _encoded(asked.uid, AdmissionResponse(warnings=(f"{sentence}; admitted unchanged",)))
        return _encoded(asked.uid, AdmissionResponse(allowed=False, code=500, message=f"{sentence}; try again"))


def fit_warnings(warnings: tuple[str, ...]) -> list[str]:
    """Warnings as an API server passes them on: one line each, no control characters, no duplicates, limited length."""
    fitting: list[str] = []
    left = WARNINGS_LENGTH
    for warning in warnings:
        line = " ".join("".join(c if c.isprintable() else " " for c in warning).split())
        if len(line) > WARNING_LENGTH:
            line = line[: WARNING_LENGTH - 1] + "…"
        if line and line not in fitting and len(line) <= left:
            fitting.append(line)
            left -= len(line)
    return fitting


def _expect(api_version: object, kind: object) -> None:
    if api_version != API_VERSION or kind != KIND:
        raise NotAReview(
            f"expected apiVersion {API_VERSION} and kind {KIND}, found apiVersion {_quoted(api_version)} "
            f"and kind {_quoted(kind)}; set admissionReviewVersions: [v1] in the webhook configuration"
        )


def _check_namespace(asked: _Request[Any] | _Addressed) -> None:
    if len(asked.namespace) > NAMESPACE_LENGTH:
        raise NotAReview(f"no namespace has a name of {len(asked.namespace)} characters")


def _quoted(value: object) -> str:
    return "none" if value is None else repr(value)[:80]


def _passed_on(asked: _Request[Any] | _Addressed) -> AdmissionResponse:
    """The answer to a review that is none of the route's: it is allowed, unless it asks if anybody answers."""
    is_probe = webhook_probe.is_probe(asked.resource.resource, asked.name)
    if not is_probe:
        return AdmissionResponse()
    return AdmissionResponse(allowed=False, code=409, message=webhook_probe.REACHED)  # 403 in an audit means rights


def _encoded(uid: str, response: AdmissionResponse) -> bytes:
    patch = response.patch
    warnings = fit_warnings(response.warnings) if response.warnings else None
    return _encode(
        _AnsweredReview(
            _Answer(
                uid,
                response.allowed,
                "JSONPatch" if patch else UNSET,
                _encode(patch) if patch else UNSET,
                warnings or UNSET,
                response.audit_annotations or UNSET,
                UNSET if response.allowed else _Status(response.code, response.message or "refused without a reason"),
            )
        )
    )


# -- the HTTP side, for admission and conversion -----------------------------------------------------------------------


# HTTP/1.1 and TLS 1.2 or newer only; each route limits the body's size, and one deadline covers reading and deciding. A
# request that is not a review gets a 4xx and one plain sentence. A review always gets HTTP 200: after any other status
# the API server would apply its own failure policy, and the user would not learn why.

DEFAULT_TIMEOUT: Final = 10.0
"""Seconds for a review whose URL has no ``timeout``; an API server always sends one."""
MAX_TIMEOUT: Final = 30.0


class WebhookHandler(Protocol):
    """Answers the reviews of one route, whatever their kind."""

    async def answer(self, body: bytes, *, timeout: float, arrived_at: float, is_proven: bool = False) -> bytes: ...


class WebhookRoute(Protocol):
    """A route: :class:`Route` for admission, ``conversion.ConversionRoute``. ``max_body`` is in bytes."""

    @property
    def path(self) -> str: ...

    @property
    def name(self) -> str: ...

    @property
    def max_body(self) -> int: ...

    def answers(self, clock: Clock) -> WebhookHandler: ...


class _Served(msgspec.Struct, frozen=True):
    """One route, as requests find it."""

    handler: WebhookHandler
    max_body: int
    observe: Callable[[float], None]
    has_token: bool
    count: Mapping[bool, Callable[[], None]]
    """Counts a review: proven or not."""


class Webhooks:
    """Routes by path; :meth:`serve` is the request handler of the listener. ``tokens``: what proves a review."""

    def __init__(
        self,
        routes: Sequence[WebhookRoute],
        *,
        clock: Clock | None = None,
        metrics: Metrics | None = None,
        tokens: ReviewTokens | None = None,
    ) -> None:
        self._clock = clock or SystemClock()
        self._tokens = tokens or ReviewTokens()
        metrics = metrics or Metrics()
        seconds = metrics.histogram(
            "polyarch_admission_seconds",
            "Time from a review's arrival to its answer",
            ("route",),
            buckets=ADMISSION_SECONDS,
        )
        reviews = metrics.counter(
            "polyarch_admission_reviews_total",
            "Reviews that may bring a token, by whether they brought one: the others are answered from what everybody "
            "may know",
            ("route", "proven"),
        )

        def served(route: WebhookRoute) -> _Served:
            has_token = isinstance(route, Route) and route.has_token
            count = {proven: reviews.labels(route.name, str(proven).lower()).inc for proven in (True, False)}
            observe = seconds.labels(route.name).observe
            return _Served(route.answers(self._clock), route.max_body, observe, has_token, count if has_token else {})

        self._routes = {route.path: served(route) for route in routes}

    async def serve(self, request: BaseRequest) -> Response:
        """Answers one request; see the module's docstring."""
        path, _, query = request.raw_path.partition("?")
        served, is_proven = self._routes.get(path), False
        if served is None:
            bare, _, token = path.rpartition("/")
            served = self._routes.get(bare)
            if served is None or not served.has_token:
                return text(404, f"nothing is served at {path[:200]!r}; reviews go to {', '.join(self._routes)}")
            path, is_proven = bare, self._tokens.prove(bare, token)
        if request.method != "POST":
            return text(405, f"{path} takes reviews by POST, not {request.method}", Allow="POST")
        max_body = served.max_body
        if served.has_token:
            served.count[is_proven]()
            if is_proven:
                if isinstance(connection := request.protocol, Connection):
                    connection.prove()
            else:
                max_body = min(max_body, MAX_UNPROVEN_BODY)
        arrived_at = self._clock.monotonic()
        timeout = timeout_of(query)
        try:
            body = await read_body(request, max_body, timeout)
            answer = await served.handler.answer(body, timeout=timeout, arrived_at=arrived_at, is_proven=is_proven)
        except BodyTooLarge:
            return text(413, f"the body is larger than the {max_body} bytes that are read")
        except TimeoutError:
            return text(408, f"the body did not arrive within {timeout:g} s, or came too slowly")
        except NotAReview as problem:
            return text(400, str(problem))
        served.observe(self._clock.monotonic() - arrived_at)
        return Response(body=answer, headers=JSON_HEADERS)


@functools.lru_cache(maxsize=64)
def timeout_of(query: str) -> float:
    """Seconds that the API server waits, from ``timeout=10s`` in the URL (a Go duration); 10 if it is missing."""
    values = parse_qs(query).get("timeout", [""])
    if not _DURATION.fullmatch(values[-1]):
        return DEFAULT_TIMEOUT
    seconds = sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(values[-1]))
    return min(seconds, MAX_TIMEOUT) if seconds > 0 else DEFAULT_TIMEOUT


_UNITS: Final = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_PART: Final = re.compile(r"([0-9]+(?:\.[0-9]*)?)(ns|us|µs|ms|s|m|h)")
_DURATION: Final = re.compile(rf"(?:{_PART.pattern})+")
