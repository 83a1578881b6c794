"""The watch protocol as a pure state machine: server events in, store operations out.

It has no server, clock or socket, so tests can drive it through any history. :func:`request_for` is the request to send
in a state, :func:`step` the transition on its answer, :func:`delay_before` the backoff before the request::

    Empty ──(streaming list)──> Streaming ──(end mark)──┐
      │ └───(first page)──────> Paging ──(last page)────┴──> Watching
      └────────────── 410, garbled answer ──────────────────────┘

A kind that the server does not have leaves the machine in ``Empty``, with an empty store that is complete.
Every failure leads to a state from which the cache becomes correct again: to ``Empty``, or, if no event can have been
missed, to the same state with one more failure counted.
"""

from enum import Enum
from typing import Any, Final, Generic, Literal, Protocol, TypeVar

import msgspec

from polyarch.kube.errors import (
    ApiError,
    ConnectionFailed,
    Forbidden,
    Gone,
    KubernetesError,
    NotFound,
    Unauthorized,
    Unavailable,
    UnreadableAnswer,
)
from polyarch.kube.requests import Random, backoff
from polyarch.objects import ObjectKey, ObjectMeta

# -- inputs: what the server said --------------------------------------------------------------------------------------


class KubernetesObject(Protocol):
    """What the runtime requires of a type: ``metadata``."""

    @property
    def metadata(self) -> ObjectMeta: ...


T = TypeVar("T", bound=KubernetesObject)


class StreamOpened(msgspec.Struct, frozen=True, gc=False):
    """The server accepted a watch or a streaming list."""


class Page(msgspec.Struct, Generic[T], frozen=True):
    """A page of a LIST; the last page has no continue token."""

    objects: list[T]
    resource_version: str
    continue_token: str = ""


class ObjectChanged(msgspec.Struct, Generic[T], frozen=True):
    """ADDED or MODIFIED, with the object's present state."""

    object: T


class ObjectDeleted(msgspec.Struct, frozen=True, gc=False):
    """DELETED, or changed to something that does not decode: the cache must not have the object any more."""

    key: ObjectKey
    resource_version: str


class Bookmark(msgspec.Struct, frozen=True, gc=False):
    """All events up to ``resource_version`` were sent; ``initial_end`` marks the end of a streaming list."""

    resource_version: str
    initial_end: bool = False


class StreamEnded(msgspec.Struct, frozen=True, gc=False):
    """The server closed the stream ``lasted`` seconds after it was opened."""

    lasted: float


class RequestFailed(msgspec.Struct, frozen=True):
    """A request or stream failed, or the stream sent an ERROR event.

    ``lasted``: seconds since the stream was opened; None if it was not.
    """

    error: KubernetesError
    lasted: float | None = None


class StorageVersion(msgspec.Struct, frozen=True, gc=False):
    """The resourceVersion of a list that was read from storage just now."""

    resource_version: str


class KindNotServed(msgspec.Struct, frozen=True, gc=False):
    """The server does not have this kind, so there are no objects of it."""


Input = (
    StreamOpened
    | Page[T]
    | ObjectChanged[T]
    | ObjectDeleted
    | Bookmark
    | StreamEnded
    | RequestFailed
    | StorageVersion
    | KindNotServed
)


BACKOFF_BASE: Final = 0.5
BACKOFF_CAP: Final = 10.0
AWAY_CAP: Final = 2.0
"""The cap while the server is unreachable or has just restarted: such requests cost it nothing, and pods wait at most
this long after it is back."""
MAX_REFUSALS: Final = 15
"""Refusals (401, 403) in a row that may come from an API server that has not loaded its RBAC roles yet."""
RETRY_AFTER_CAP: Final = 60.0
"""A proxy before the API server may ask for hours; the cache must not stay stale for so long."""
HEALTHY_AFTER: Final = 30.0
"""A stream that stayed open for so many seconds resets the failure count."""
REFUSALS_UNTIL_PROBLEM: Final = 2
STREAMING_ATTEMPTS: Final = 2
"""After so many failed streaming lists the next list is paged, whatever the reason was."""


# -- outputs: what the store has to do ---------------------------------------------------------------------------------


class Init(msgspec.Struct, frozen=True, gc=False):
    """A new list starts; an unfinished one is discarded."""


class InitApply(msgspec.Struct, Generic[T], frozen=True):
    """An object of the new list."""

    object: T


class InitDone(msgspec.Struct, frozen=True, gc=False):
    """The new list is complete, at ``resource_version``, and replaces the store's content."""

    resource_version: str = ""


class Apply(msgspec.Struct, Generic[T], frozen=True):
    """An object was added or changed."""

    object: T


class Delete(msgspec.Struct, frozen=True, gc=False):
    """An object was deleted. While a list is being read, it is removed from that list."""

    key: ObjectKey
    resource_version: str


Output = Init | InitApply[T] | InitDone | Apply[T] | Delete


# -- states -----------------------------------------------------------------------------------------------------------


class WatchHealth(msgspec.Struct, frozen=True, gc=False):
    """Failures in a row, how many of them were refusals (401, 403), and the server's ``Retry-After``."""

    failures: int = 0
    refusals: int = 0
    retry_after: float | None = None
    streaming: bool = True
    """False once the server has refused streaming lists as unsupported."""
    broken_lists: int = 0
    """Lists that failed since the last complete one."""
    relists: int = 0
    """Lists that had to be repeated since a stream last stayed open."""
    is_away: bool = False
    """The last failure means that the server is unreachable or still starting."""


class Empty(msgspec.Struct, frozen=True, gc=False):
    """Nothing has been listed, or the cache may have missed events."""

    health: WatchHealth = WatchHealth()


class Streaming(msgspec.Struct, frozen=True, gc=False):
    """A streaming list is being read."""

    health: WatchHealth


class Paging(msgspec.Struct, frozen=True, gc=False):
    """A list is being read in pages, all of one resourceVersion."""

    continue_token: str
    resource_version: str
    health: WatchHealth


class Watching(msgspec.Struct, frozen=True, gc=False):
    """Everything up to ``resource_version`` is known."""

    resource_version: str
    health: WatchHealth
    verify: bool = False
    """The server was unreachable: its storage may have been restored from a backup, which a watch does not tell. From a
    resourceVersion that is yet to come it sends nothing until that has passed."""


WatchState = Empty | Streaming | Paging | Watching


# -- the machine ------------------------------------------------------------------------------------------------------


class WatchRequest(msgspec.Struct, frozen=True, gc=False):
    """A request to send. ``page`` is answered at once, the others are streams."""

    kind: Literal["page", "streaming-list", "watch"]
    resource_version: str = ""
    continue_token: str = ""
    verify: bool = False
    """Before the watch, :class:`StorageVersion` is wanted."""


def request_for(state: WatchState) -> WatchRequest:
    """The request to send in this state."""
    match state:
        case Empty(health=health):
            streaming = health.streaming and health.broken_lists < STREAMING_ATTEMPTS
            return WatchRequest("streaming-list" if streaming else "page")
        case Paging(continue_token=token):
            return WatchRequest("page", continue_token=token)
        case Watching(resource_version=version, verify=verify):
            return WatchRequest("watch", resource_version=version, verify=verify)
    raise _impossible(state, "request")


def delay_before(state: WatchState, random: Random) -> float:
    """Seconds to wait before the request: 0 at first, then ``Retry-After`` plus exponential backoff with full
    jitter.

    An answer resets the backoff, so the pages of a list follow each other without a pause. Only the start of a
    list counts the failures of earlier lists: the API server must not send all objects over and over to a client that
    cannot use them.
    """
    health = state.health
    failures = health.failures
    if isinstance(state, Empty):
        failures = max(failures, health.broken_lists, health.relists)
    if not failures:
        return 0.0
    asked = min(health.retry_after or 0.0, RETRY_AFTER_CAP)
    cap = AWAY_CAP if health.is_away else BACKOFF_CAP
    return asked + backoff(failures - 1, base=BACKOFF_BASE, cap=cap, random=random)


def refused(state: WatchState) -> bool:
    """Whether the server has refused the watch repeatedly, so that the cache may be out of date."""
    return state.health.refusals >= REFUSALS_UNTIL_PROBLEM


def step(state: WatchState, event: Input[T]) -> tuple[WatchState, tuple[Output[T], ...]]:
    """The next state and the outputs. Raises ValueError for an event that is impossible in this state."""
    match state, event:
        case Watching(), ObjectChanged(object=object_):
            version = newer(state.resource_version, object_.metadata.resource_version)
            return Watching(version, state.health), (Apply(object_),)
        case Watching(), ObjectDeleted(key=key, resource_version=removed):
            return Watching(newer(state.resource_version, removed), state.health), (Delete(key, removed),)
        case Watching(), Bookmark(resource_version=version):
            return Watching(newer(state.resource_version, version), state.health), ()
        case Watching(), StreamOpened():
            return Watching(state.resource_version, _accepted(state.health)), ()
        case Watching(), StreamEnded(lasted=lasted):
            health = (
                WatchHealth(streaming=state.health.streaming)
                if lasted >= HEALTHY_AFTER
                else _failed(state.health, None, None)
            )
            return Watching(state.resource_version, health), ()
        case Watching(), RequestFailed(error=error, lasted=lasted):
            health = _failed(state.health, lasted, error)
            cause = _cause(error)
            if cause is _Cause.OTHER:
                unreachable = lasted is None and health.is_away and not health.refusals
                return Watching(state.resource_version, health, state.verify or unreachable), ()
            # 410 Gone is an answer, so the outage before it is over.
            failures = 0 if cause is _Cause.GONE else health.failures
            return Empty(_changed(health, failures=failures, relists=health.relists + 1)), ()

        case Watching(), StorageVersion(resource_version=version):
            if newer(state.resource_version, version) != version:
                return Empty(_changed(state.health, failures=0)), ()
            return Watching(state.resource_version, state.health), ()

        case Empty(), StreamOpened():
            return Streaming(_accepted(state.health)), (Init(),)
        case Streaming(), ObjectChanged(object=object_):
            return state, (InitApply(object_),)
        case Streaming(), ObjectDeleted(key=key, resource_version=removed):
            return state, (Delete(key, removed),)
        case Streaming(), Bookmark(resource_version=version, initial_end=True):
            return Watching(version, _complete(_arrived(state.health))), (InitDone(version),)
        case Streaming(), Bookmark():
            return state, ()
        case Streaming(), StreamEnded():
            return Empty(_broken_list(_failed(state.health, None, None))), ()

        case Empty(), KindNotServed():
            return state, (Init(), InitDone())
        case Empty(), Page():
            return _page(state, event)
        case Paging(), Page():
            return _page(state, event)
        case Paging(), RequestFailed(error=error, lasted=lasted) if _cause(error) is _Cause.OTHER:
            health = _failed(state.health, lasted, error)
            return Paging(state.continue_token, state.resource_version, health), ()
        case _, RequestFailed():
            return _no_list(state, event), ()
    raise _impossible(state, type(event).__name__)


def newer(one: str, other: str) -> str:
    """The later of two resourceVersions. They are decimals since KEP-5504; of any others, the one seen last."""
    if not other:
        return one
    if one.isdecimal() and other.isdecimal() and (len(other), other) < (len(one), one):
        return one
    return other


def _page(state: Empty | Paging, page: Page[T]) -> tuple[WatchState, tuple[Output[T], ...]]:
    outputs: list[Output[T]] = [InitApply(object_) for object_ in page.objects]
    health = _arrived(state.health)
    version = page.resource_version
    if isinstance(state, Empty):
        outputs.insert(0, Init())
    else:
        # All pages of a list have the first page's version.
        version = state.resource_version
    if page.continue_token:
        return Paging(page.continue_token, version, health), tuple(outputs)
    outputs.append(InitDone(version))
    return Watching(version, _complete(health)), tuple(outputs)


def _no_list(state: WatchState, failed: RequestFailed) -> WatchState:
    if _cause(failed.error) is _Cause.UNSUPPORTED and request_for(Empty(state.health)).kind == "streaming-list":
        return Empty(_changed(state.health, streaming=False))
    return Empty(_broken_list(_failed(state.health, failed.lasted, failed.error)))


_changed = msgspec.structs.replace


def _accepted(health: WatchHealth) -> WatchHealth:
    """The server accepted the request: it neither refuses nor asks to wait."""
    if health.refusals or health.retry_after is not None:
        return _changed(health, refusals=0, retry_after=None)
    return health


def _arrived(health: WatchHealth) -> WatchHealth:
    """The answer has arrived: the backoff is reset."""
    return _changed(_accepted(health), failures=0)


def _broken_list(health: WatchHealth) -> WatchHealth:
    return _changed(health, broken_lists=health.broken_lists + 1)


def _complete(health: WatchHealth) -> WatchHealth:
    return _changed(health, broken_lists=0) if health.broken_lists else health


def _failed(health: WatchHealth, lasted: float | None, error: KubernetesError | None) -> WatchHealth:
    refusals = health.refusals + 1 if isinstance(error, (Unauthorized, Forbidden)) else 0
    retry_after = error.retry_after if isinstance(error, ApiError) else None
    held = lasted is not None and lasted >= HEALTHY_AFTER
    failures, relists = (1, 0) if held else (health.failures + 1, health.relists)
    is_away = isinstance(error, Unavailable) or (isinstance(error, ConnectionFailed) and not error.permanent)
    is_away = is_away or 0 < refusals <= MAX_REFUSALS
    return WatchHealth(failures, refusals, retry_after, health.streaming, health.broken_lists, relists, is_away)


class _Cause(Enum):
    GONE = "what we know is too old, or from another history"
    UNSUPPORTED = "the server does not understand the question"
    GARBLED = "the answer makes no sense"
    OTHER = "anything that may pass"


def _cause(error: KubernetesError) -> _Cause:
    if isinstance(error, UnreadableAnswer):
        return _Cause.GARBLED
    if isinstance(error, ApiError):
        if isinstance(error, (Gone, NotFound)):
            return _Cause.GONE
        # A resourceVersion from the future: the server's storage was restored from a backup.
        if any(cause.reason == "ResourceVersionTooLarge" for cause in error.causes):
            return _Cause.GONE
        if error.status in (400, 405, 406, 415, 422):
            return _Cause.UNSUPPORTED
    return _Cause.OTHER


def _impossible(state: WatchState, what: Any) -> ValueError:
    return ValueError(f"the watch cannot see {what} while {type(state).__name__.lower()}")
