"""The watch as one state machine: what happened goes in, what the store has to do comes out (KR-010).

It is the whole protocol between a cache and an API server on one page, without a server, a clock or a socket, so that
tests can drive it through any history. :func:`request_for` says what to ask the server in a state, :func:`step` what
follows from the answer, :func:`delay_before` how long to wait before asking::

    Empty ──(streaming list)──> Streaming ──(end mark)──┐
      │ └───(first page)──────> Paging ──(last page)────┴──> Watching
      └────────────── 410, garbled answer ──────────────────────┘

Every way of failing leads back to a state from which the truth is reached again: to ``Empty``, or, when nothing can
have been missed, to the same state with one more failure on its count. Pure.
"""

from enum import Enum
from typing import Any, Final, Generic, Literal, TypeVar

import msgspec

from polyarch.kube.client.retry import Random, backoff
from polyarch.kube.client.watch_event import (
    Bookmark,
    Ended,
    Failed,
    Input,
    KubernetesObject,
    Opened,
    Page,
    Removed,
    Seen,
)
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
from polyarch.model.meta import Key

BACKOFF_BASE: Final = 0.5
BACKOFF_CAP: Final = 10.0
AWAY_CAP: Final = 2.0
"""The same while the server is away or only just back: it is asked for nothing that costs it anything, and who waits
for a pod to be placed waits at most so long after it is there again."""
PATIENCE: Final = 15
"""Refusals (401, 403) in a row that may be those of an API server which does not know its own roles yet."""
RETRY_AFTER_CAP: Final = 60.0
"""Something before an API server may ask for hours; a cache is not blind for so long at anybody's word."""
QUIET: Final = 30.0
"""A stream that held for so many seconds was a good one: failures are counted from nought again (KR-012)."""
REFUSALS_UNTIL_PROBLEM: Final = 2
STREAMING_ATTEMPTS: Final = 2
"""After so many broken streaming lists the next one is read in pages, whatever the reason was."""


T = TypeVar("T", bound=KubernetesObject)


# -- what the store has to do ---------------------------------------------------------------------------------------


class Init(msgspec.Struct, frozen=True, gc=False):
    """A new list begins, beside what is known; one that had begun is forgotten."""


class InitApply(msgspec.Struct, Generic[T], frozen=True):
    """An object of the new list."""

    object: T


class InitDone(msgspec.Struct, frozen=True, gc=False):
    """The new list is complete and takes the place of the old; it says all that was up to ``resource_version``."""

    resource_version: str = ""


class Apply(msgspec.Struct, Generic[T], frozen=True):
    """An object came or changed."""

    object: T


class Delete(msgspec.Struct, frozen=True, gc=False):
    """An object went. While a list is being read, it goes from that list."""

    key: Key
    resource_version: str


Output = Init | InitApply[T] | InitDone | Apply[T] | Delete


# -- where we are -----------------------------------------------------------------------------------------------------


class Health(msgspec.Struct, frozen=True, gc=False):
    """What failures taught: how many in a row, how many of them were refusals (401, 403), what the server asked for."""

    failures: int = 0
    refusals: int = 0
    retry_after: float | None = None
    streaming: bool = True
    """False once the server said that it knows no streaming lists."""
    broken_lists: int = 0
    """Lists that failed since the last one that was complete."""
    relists: int = 0
    """Lists that had to be read anew since a stream last held."""
    is_away: bool = False
    """The last failure is that of a server which is not there, or not itself yet."""


class Empty(msgspec.Struct, frozen=True, gc=False):
    """Nothing is known, or nothing reliable."""

    health: Health = Health()


class Streaming(msgspec.Struct, frozen=True, gc=False):
    """A streaming list is being read (KR-011)."""

    health: Health


class Paging(msgspec.Struct, frozen=True, gc=False):
    """A list is being read in pages, all of one resourceVersion."""

    continue_token: str
    resource_version: str
    health: Health


class Watching(msgspec.Struct, frozen=True, gc=False):
    """Everything up to ``resource_version`` is known."""

    resource_version: str
    health: Health


State = Empty | Streaming | Paging | Watching


# -- the machine ------------------------------------------------------------------------------------------------------


class Ask(msgspec.Struct, frozen=True, gc=False):
    """The request of a state. A ``page`` is one answer, the others are streams."""

    kind: Literal["page", "streaming-list", "watch"]
    resource_version: str = ""
    continue_token: str = ""


def request_for(state: State) -> Ask:
    """What to ask the server; a state in the midst of a stream that broke asks as its step after the failure says."""
    match state:
        case Empty(health=health):
            streaming = health.streaming and health.broken_lists < STREAMING_ATTEMPTS
            return Ask("streaming-list" if streaming else "page")
        case Paging(continue_token=token):
            return Ask("page", continue_token=token)
        case Watching(resource_version=version):
            return Ask("watch", resource_version=version)
    raise _impossible(state, "request")


def delay_before(state: State, random: Random) -> float:
    """Seconds to wait before asking: none at first, then exponential with full jitter, after what the server asked.

    What arrives ends the waiting (KR-012), so the pages of a list follow each other without a pause. Only the beginning
    of a list counts all that went wrong with the lists before it: an API server is not made to send its objects over
    and over to somebody who cannot use them.
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


def refused(state: State) -> bool:
    """The server refused us repeatedly: this cache cannot be what it promises (KR-012)."""
    return state.health.refusals >= REFUSALS_UNTIL_PROBLEM


def step(state: State, event: Input[T]) -> tuple[State, tuple[Output[T], ...]]:
    """What follows from one event. ValueError: this event cannot come in this state, the driver has a bug."""
    match state, event:
        case Watching(), Seen(object=object_):
            version = newer(state.resource_version, object_.metadata.resource_version)
            return Watching(version, state.health), (Apply(object_),)
        case Watching(), Removed(key=key, resource_version=removed):
            return Watching(newer(state.resource_version, removed), state.health), (Delete(key, removed),)
        case Watching(), Bookmark(resource_version=version):
            return Watching(newer(state.resource_version, version), state.health), ()
        case Watching(), Opened():
            return Watching(state.resource_version, _accepted(state.health)), ()
        case Watching(), Ended(lasted=lasted):
            health = Health(streaming=state.health.streaming) if lasted >= QUIET else _failed(state.health, 0.0, None)
            return Watching(state.resource_version, health), ()
        case Watching(), Failed(error=error, lasted=lasted):
            health = _failed(state.health, lasted, error)
            cause = _cause(error)
            if cause is _Cause.OTHER:
                return Watching(state.resource_version, health), ()
            # "Gone" is an answer: what went wrong before it, such as the outage that made us fall behind, is over.
            failures = 0 if cause is _Cause.GONE else health.failures
            return Empty(_changed(health, failures=failures, relists=health.relists + 1)), ()

        case Empty(), Opened():
            return Streaming(_accepted(state.health)), (Init(),)
        case Streaming(), Seen(object=object_):
            return state, (InitApply(object_),)
        case Streaming(), Removed(key=key, resource_version=removed):
            return state, (Delete(key, removed),)
        case Streaming(), Bookmark(resource_version=version, initial_end=True):
            return Watching(version, _complete(_arrived(state.health))), (InitDone(version),)
        case Streaming(), Bookmark():
            return state, ()
        case Streaming(), Ended():
            return Empty(_broken_list(_failed(state.health, 0.0, None))), ()

        case Empty(), Page():
            return _page(state, event)
        case Paging(), Page():
            return _page(state, event)
        case Paging(), Failed(error=error, lasted=lasted) if _cause(error) is _Cause.OTHER:
            health = _failed(state.health, lasted, error)
            return Paging(state.continue_token, state.resource_version, health), ()
        case _, Failed():
            return _no_list(state, event), ()
    raise _impossible(state, type(event).__name__)


def newer(one: str, other: str) -> str:
    """The later of two resourceVersions. They are decimals since KEP-5504; of any others, the one seen last."""
    if not other:
        return one
    if one.isdecimal() and other.isdecimal() and (len(other), other) < (len(one), one):
        return one
    return other


def _page(state: Empty | Paging, page: Page[T]) -> tuple[State, tuple[Output[T], ...]]:
    outputs: list[Output[T]] = [InitApply(object_) for object_ in page.objects]
    health = _arrived(state.health)
    version = page.resource_version
    if isinstance(state, Empty):
        outputs.insert(0, Init())
    else:
        # The first page's: later than the list is nothing that a page of it says.
        version = state.resource_version
    if page.continue_token:
        return Paging(page.continue_token, version, health), tuple(outputs)
    outputs.append(InitDone(version))
    return Watching(version, _complete(health)), tuple(outputs)


def _no_list(state: State, failed: Failed) -> State:
    if _cause(failed.error) is _Cause.UNSUPPORTED and request_for(Empty(state.health)).kind == "streaming-list":
        return Empty(_changed(state.health, streaming=False))
    return Empty(_broken_list(_failed(state.health, failed.lasted, failed.error)))


_changed = msgspec.structs.replace


def _accepted(health: Health) -> Health:
    """The server took the request: not refused, though what comes of it remains to be seen."""
    if health.refusals or health.retry_after is not None:
        return _changed(health, refusals=0, retry_after=None)
    return health


def _arrived(health: Health) -> Health:
    """The server did what was asked: nothing is waited for any more."""
    return _changed(_accepted(health), failures=0)


def _broken_list(health: Health) -> Health:
    return _changed(health, broken_lists=health.broken_lists + 1)


def _complete(health: Health) -> Health:
    return _changed(health, broken_lists=0) if health.broken_lists else health


def _failed(health: Health, lasted: float, error: KubernetesError | None) -> Health:
    refusals = health.refusals + 1 if isinstance(error, (Unauthorized, Forbidden)) else 0
    retry_after = error.retry_after if isinstance(error, ApiError) else None
    held = lasted >= QUIET
    failures, relists = (1, 0) if held else (health.failures + 1, health.relists)
    is_away = isinstance(error, Unavailable) or (isinstance(error, ConnectionFailed) and not error.permanent)
    is_away = is_away or 0 < refusals <= PATIENCE
    return Health(failures, refusals, retry_after, health.streaming, health.broken_lists, relists, is_away)


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


def _impossible(state: State, what: Any) -> ValueError:
    return ValueError(f"the watch cannot see {what} while {type(state).__name__.lower()}")
