"""Responses, decoded into the caller's type: one object, a paged list, a watch.

The type determines the ``Accept`` header: a caller that wants metadata only gets only metadata. A response that does
not decode raises ``UnreadableAnswer``. Caches read pages leniently, because one odd object must not stop them. The
verbs are in ``client.py``, the bytes come from ``transport.py``.
"""

import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import lru_cache
from typing import Any, ClassVar, Final, Generic, TypeVar, cast

import aiohttp
import msgspec
import structlog

from polyarch.kube import requests
from polyarch.kube.errors import Gone, Status, UnreadableAnswer, error_of
from polyarch.kube.requests import ListOptions, Request
from polyarch.kube.resources import Resource
from polyarch.kube.transport import Transport
from polyarch.kube.watch import Bookmark, Input, KubernetesObject, ObjectChanged, ObjectDeleted, Page, RequestFailed
from polyarch.objects import ObjectKey, ObjectMeta, PartialObjectMetadata, decode_hook

log = structlog.get_logger(__name__)

T = TypeVar("T", bound=KubernetesObject)
V = TypeVar("V")


# -- JSON that is nested deeper than the decoder follows ---------------------------------------------------------------


# An API server takes objects of up to ten thousand levels and stores them where a schema has
# ``x-kubernetes-preserve-unknown-fields``. msgspec gives up earlier with a RecursionError, also in a part that it only
# skips: so not even the object's name can be read, and one such object would keep the cache of its kind from ever being
# complete.

DEEPEST_NESTING: Final = 200
"""Levels that are kept. Objects of Kubernetes have about a dozen, the schemas of large CRDs some sixty."""
TOO_DEEP_MARK: Final = "polyarch: what stood here is nested too deeply"
"""What takes the place of the rest: a JSON string."""
TOO_DEEP: Final = f"it is nested more than {DEEPEST_NESTING} levels deep"

_JSON_TOKENS: Final = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[{}\[\]]', re.DOTALL)


def cut_deep_nesting(text: bytes) -> bytes:
    """The JSON text, with each object or array below ``DEEPEST_NESTING`` levels replaced by ``TOO_DEEP_MARK``."""
    kept: list[bytes] = []
    depth = begin = 0
    for token in _JSON_TOKENS.finditer(text):
        match token[0]:
            case b"{" | b"[":
                depth += 1
                if depth == DEEPEST_NESTING + 1:
                    kept += [text[begin : token.start()], b'"', TOO_DEEP_MARK.encode(), b'"']
            case b"}" | b"]":
                depth -= 1
                if depth == DEEPEST_NESTING:
                    begin = token.end()
    if depth > DEEPEST_NESTING:
        return b"".join(kept)  # it ends in the middle: no JSON anyway
    return b"".join([*kept, text[begin:]])


# -- lists and watches: bytes to typed events --------------------------------------------------------------------------


# Lines end at ``\n`` bytes only: other line separators of text libraries (U+0085, U+2028) may occur unescaped in JSON
# strings. A line is decoded directly into the caller's type in one pass; bookmarks, errors and objects that do not fit
# the type, or are nested too deeply, take a second, slower pass. A line cut off by the end of the stream is dropped:
# the next watch sends it again.

INITIAL_EVENTS_END: Final = "k8s.io/initial-events-end"


class _Event(msgspec.Struct, Generic[T], frozen=True, gc=False):
    type: str
    object: T


class _RawEvent(msgspec.Struct, frozen=True, gc=False):
    type: str
    object: msgspec.Raw


_MARK: Final = TOO_DEEP_MARK.encode()
_decode_raw: Final = msgspec.json.Decoder(_RawEvent).decode
_decode_status: Final = msgspec.json.Decoder(Status).decode
_decode_metadata: Final = msgspec.json.Decoder(PartialObjectMetadata).decode


class MultiTypeDecoder:
    """One object decoded into several types, for caches of different types that share a watch.

    ``views`` are in the order of ``types``; None where the object does not fit that type, which does not affect the
    others.
    """

    __slots__ = ("metadata", "views")
    types: ClassVar[tuple[type[Any], ...]] = ()

    def __init__(self, metadata: ObjectMeta, views: tuple[Any, ...]) -> None:
        self.metadata = metadata
        self.views = views


@lru_cache(maxsize=64)
def several(types: tuple[type[Any], ...]) -> type[MultiTypeDecoder]:
    """The type to request: its instances hold the object decoded into each of ``types``."""
    return type("MultiTypeDecoder", (MultiTypeDecoder,), {"__slots__": (), "types": types})


def _views(type: type[MultiTypeDecoder], raw: bytes | msgspec.Raw, resource: str) -> MultiTypeDecoder:
    metadata = _decode_metadata(raw).metadata
    views: list[Any] = []
    for each in type.types:
        try:
            views.append(decoder(each)(raw))
        except msgspec.ValidationError as error:
            _report(resource, metadata.key, str(error))
            views.append(None)
    return type(metadata, tuple(views))


@lru_cache(maxsize=256)
def _event_decoder(type: type[Any]) -> Callable[[bytes], Any]:
    return msgspec.json.Decoder(_Event[type], dec_hook=decode_hook).decode  # type: ignore[valid-type]


class LineSplitter:
    """Splits chunks of bytes into lines; looks at each byte once, however long a line is."""

    __slots__ = ("_rest",)

    def __init__(self) -> None:
        self._rest: list[bytes] = []

    def feed(self, chunk: bytes) -> list[bytes]:
        """The lines completed by this chunk, without line ends; empty lines are left out."""
        parts = chunk.split(b"\n")
        rest = parts.pop()
        if parts and self._rest:
            self._rest.append(parts[0])
            parts[0] = b"".join(self._rest)
            self._rest = []
        if rest:
            self._rest.append(rest)
        return [part for part in parts if part]


class WatchDecoder(Generic[T]):
    """Decodes the lines of a watch into inputs of the state machine."""

    def __init__(self, type: type[T], resource: str) -> None:
        self._resource = resource
        self._decode = _several_events(type, resource) if issubclass(type, MultiTypeDecoder) else _event_decoder(type)

    def __call__(self, line: bytes) -> Input[T]:
        """Raises UnreadableAnswer for a line that is not a watch event."""
        try:
            event = self._decode(line)
        except msgspec.ValidationError as error:
            return self._second_look(line, str(error))
        except RecursionError:
            return self._second_look(cut_deep_nesting(line), TOO_DEEP)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise UnreadableAnswer(f"watch {self._resource}: the stream is garbled: {error}") from None
        match event.type:
            case "MODIFIED" | "ADDED":
                return ObjectChanged(event.object)
            case "DELETED":
                metadata = event.object.metadata
                return ObjectDeleted(metadata.key, metadata.resource_version)
        return self._second_look(line)

    def _second_look(self, line: bytes, misfit: str = "") -> Input[T]:
        try:
            event = _decode_raw(line)
            match event.type:
                case "ERROR":
                    return RequestFailed(error_of(_decode_status(event.object), verb="watch", resource=self._resource))
                case "BOOKMARK":
                    metadata = _decode_metadata(event.object).metadata
                    end = (metadata.annotations or {}).get(INITIAL_EVENTS_END) == "true"
                    return Bookmark(metadata.resource_version, end)
                case "ADDED" | "MODIFIED" | "DELETED":
                    metadata = _decode_metadata(event.object).metadata
                    if event.type != "DELETED":
                        _report(self._resource, metadata.key, misfit)
                    return ObjectDeleted(metadata.key, metadata.resource_version)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise UnreadableAnswer(f"watch {self._resource}: the stream is garbled: {error}") from None
        raise UnreadableAnswer(f"watch {self._resource}: there are no events of type {event.type!r}")


def _several_events(type: type[MultiTypeDecoder], resource: str) -> Callable[[bytes], Any]:
    def decode(line: bytes) -> Any:
        event = _decode_raw(line)
        if event.type in {"ADDED", "MODIFIED"}:
            return _Event(event.type, _views(type, event.object, resource))
        return event if event.type != "DELETED" else _Event("DELETED", _decode_metadata(event.object))

    return decode


class WatchStream(Generic[T]):
    """An open watch. Iterates over batches of events, one per chunk of data, until the server closes it."""

    def __init__(self, content: aiohttp.StreamReader, decoder: WatchDecoder[T]) -> None:
        self._content = content
        self._decoder = decoder
        self._lines = LineSplitter()

    def __aiter__(self) -> "WatchStream[T]":
        return self

    async def __anext__(self) -> list[Input[T]]:
        while chunk := await self._content.readany():
            if lines := self._lines.feed(chunk):
                return self._events(lines)
        raise StopAsyncIteration

    def _events(self, lines: list[bytes]) -> list[Input[T]]:
        events: list[Input[T]] = []
        for line in lines:
            try:
                events.append(self._decoder(line))
            except UnreadableAnswer as error:
                # The events before it are valid; the machine then handles the failure.
                events.append(RequestFailed(error))
                break
        return events


class _ListMeta(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")


class ListPage(msgspec.Struct, Generic[T], frozen=True):
    """A LIST response: metadata and items, decoded in one pass."""

    metadata: _ListMeta
    items: list[T] | None = None


class _RawList(msgspec.Struct, frozen=True):
    metadata: _ListMeta
    items: list[msgspec.Raw] | None = None


_decode_raw_list: Final = msgspec.json.Decoder(_RawList).decode


@lru_cache(maxsize=256)
def _list_decoder(type: type[Any]) -> Callable[[bytes], Any]:
    return msgspec.json.Decoder(ListPage[type], dec_hook=decode_hook).decode  # type: ignore[valid-type]


def decoder(type: Any) -> Callable[[bytes], Any]:
    """The decoder of a type, cached."""
    return _decoder(type)


@lru_cache(maxsize=256)
def _decoder(type: Any) -> Callable[[bytes], Any]:
    return msgspec.json.Decoder(type, dec_hook=decode_hook).decode


def decode_list(body: bytes, type: type[T], resource: str, *, strict: bool) -> ListPage[T]:
    """A page of a list. An item that does not fit the type is an error if ``strict``, else it is left out and logged.

    Caches are lenient: one odd object must not hide ten thousand others. A response to a person is strict.
    """
    is_cut = False
    try:
        if issubclass(type, MultiTypeDecoder):
            raw = _decode_raw_list(body)
            return ListPage(raw.metadata, cast("list[T]", [_views(type, item, resource) for item in raw.items or ()]))
        page: ListPage[T] = _list_decoder(type)(body)
        return page
    except (msgspec.ValidationError, RecursionError) as error:
        if strict:
            problem = TOO_DEEP if isinstance(error, RecursionError) else error
            raise UnreadableAnswer(f"list {resource}: {problem}") from None
        is_cut = isinstance(error, RecursionError)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UnreadableAnswer(f"list {resource}: the answer is garbled: {error}") from None
    try:
        raw = _decode_raw_list(cut_deep_nesting(body) if is_cut else body)
        items: list[T] = []
        for item in raw.items or ():
            if is_cut and _MARK in bytes(item):
                _report(resource, _decode_metadata(item).metadata.key, TOO_DEEP)
                continue
            try:
                items.append(_item(item, type, resource))
            except msgspec.ValidationError as error:
                _report(resource, _decode_metadata(item).metadata.key, str(error))
    except msgspec.DecodeError as error:
        raise UnreadableAnswer(f"list {resource}: {error}") from None
    return ListPage(raw.metadata, items)


def _item(item: msgspec.Raw, type: type[T], resource: str) -> T:
    if issubclass(type, MultiTypeDecoder):
        return cast("T", _views(type, item, resource))
    read: T = decoder(type)(item)
    return read


def _report(resource: str, key: ObjectKey, problem: str) -> None:
    log.error("object left out, it does not fit its type", resource=resource, key=str(key), problem=problem)


# -- one function for each kind of response ----------------------------------------------------------------------------


# The fallback is for aggregated API servers without PartialObjectMetadata: a whole object decodes as well.
METADATA_ONLY: Final = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"
METADATA_ONLY_LIST: Final = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"

IDLE_MARGIN: Final = 15.0
"""Seconds after the server's own timeout at which a silent watch is given up."""

LINE_LIMIT: Final = 1024**2

_RESTARTS: Final = 3


class ListResult(msgspec.Struct, Generic[V], frozen=True):
    """All objects that a list returned, and its resourceVersion."""

    items: list[V]
    resource_version: str


class IssuedToken(msgspec.Struct, frozen=True, rename="camel"):
    """A ServiceAccount's token; ``expiration_timestamp`` is RFC 3339."""

    token: str
    expiration_timestamp: str = ""

    def __repr__(self) -> str:
        return f"IssuedToken(…, {self.expiration_timestamp})"


class _TokenRequest(msgspec.Struct, frozen=True):
    status: IssuedToken


async def one(transport: Transport, request: Request, type: type[V], *, retry: bool = True) -> V:
    """The object, or another type that the request returns."""
    accept = METADATA_ONLY if type is PartialObjectMetadata else requests.JSON
    body = await transport.send(request, accept=accept, retry=retry)
    try:
        answer: V = decoder(type)(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        what = " ".join(part for part in (request.verb, request.resource, request.name) if part)
        problem = TOO_DEEP if isinstance(error, RecursionError) else error
        raise UnreadableAnswer(f"{what}: the answer does not read as {type.__name__}: {problem}") from None
    return answer


class _Column(msgspec.Struct, frozen=True):
    name: str = ""


class _Row(msgspec.Struct, frozen=True):
    cells: list[Any]


class _Table(msgspec.Struct, frozen=True, rename="camel"):
    column_definitions: list[_Column] | None = None
    rows: list[_Row] | None = None


async def column(transport: Transport, request: Request, name: str) -> dict[str, str]:
    """The texts of one column of a table, by those of its column ``Name``."""
    body = await transport.send(request, accept=requests.TABLE)
    try:
        table = decoder(_Table)(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UnreadableAnswer(f"list {request.resource}: the answer does not read as a table: {error}") from None
    titles = [each.name for each in table.column_definitions or ()]
    if not {"Name", name} <= {*titles}:
        return {}
    of, value = titles.index("Name"), titles.index(name)
    rows = [each.cells for each in table.rows or () if len(each.cells) == len(titles)]
    return {str(cells[of]): cells[value] for cells in rows if isinstance(cells[value], str)}


async def token(transport: Transport, request: Request) -> IssuedToken:
    """What a TokenRequest returns."""
    return (await one(transport, request, _TokenRequest)).status


async def everything(
    transport: Transport,
    resource: Resource,
    selection: ListOptions,
    type: type[V],
    *,
    limit: int,
    resource_version: str = "",
    retry: bool = True,
    keep: Callable[[V], V] | None = None,
) -> ListResult[V]:
    """All pages. If the continue token expires (410) the list starts again, at most three times."""
    for restart in range(_RESTARTS + 1):
        items: list[V] = []
        token = version = ""
        try:
            while True:
                request = requests.list_page(
                    resource, selection, limit=limit, continue_token=token, resource_version=resource_version
                )
                page = await _page(transport, request, type, strict=True, retry=retry)
                found = page.items or ()
                items += found if keep is None else map(keep, found)
                version = version or page.metadata.resource_version
                token = page.metadata.continue_
                if not token:
                    return ListResult(items, version)
        except Gone:
            if restart == _RESTARTS or not token:
                raise
    raise AssertionError("unreachable")


async def page(transport: Transport, request: Request, type: type[T]) -> Page[T]:
    """One page for a cache. Objects that do not decode are left out; the caller retries failures."""
    found = await _page(transport, request, type, strict=False, retry=False)
    return Page(found.items or [], found.metadata.resource_version, found.metadata.continue_)


@asynccontextmanager
async def events(
    transport: Transport, request: Request, type: type[T], *, timeout_seconds: int
) -> AsyncIterator[WatchStream[T]]:
    """A watch that the server accepted; read it until it ends."""
    accept = METADATA_ONLY if type is PartialObjectMetadata else requests.JSON
    async with transport.stream(request, accept=accept, idle=timeout_seconds + IDLE_MARGIN) as content:
        yield WatchStream(content, WatchDecoder(type, request.resource))


@asynccontextmanager
async def log_lines(transport: Transport, request: Request, *, idle: float) -> AsyncIterator[AsyncIterator[str]]:
    """The lines of a log that is followed."""
    async with transport.stream(request, accept="*/*", idle=idle) as content:
        yield _decoded(content)


async def _decoded(content: aiohttp.StreamReader) -> AsyncIterator[str]:
    rest = b""
    async for chunk in content.iter_any():
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            yield line[:LINE_LIMIT].decode("utf-8", "replace").removesuffix("\r")
        rest = rest[: LINE_LIMIT + 1]
    if rest:
        yield rest[:LINE_LIMIT].decode("utf-8", "replace")


async def _page(transport: Transport, request: Request, type: Any, *, strict: bool, retry: bool) -> ListPage[Any]:
    accept = METADATA_ONLY_LIST if type is PartialObjectMetadata else requests.JSON
    body = await transport.send(request, accept=accept, retry=retry)
    return decode_list(body, type, request.resource, strict=strict)
