"""Responses, decoded into the caller's type: one object, a paged list, a watch (KR-004).

The type determines the ``Accept`` header: a caller that wants metadata only gets only metadata. A response that does
not decode raises ``UnreadableAnswer``. Caches read pages leniently, because one odd object must not stop them. The
verbs are in ``client.py``, the bytes come from ``transport.py``.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final, Generic, TypeVar

import aiohttp
import msgspec

from polyarch.kube.client import nesting, requests
from polyarch.kube.client.requests import Request, Selection
from polyarch.kube.client.stream import ListPage, WatchDecoder, WatchStream, decode_list, decoder
from polyarch.kube.client.transport import Transport
from polyarch.kube.client.watch_event import KubernetesObject, Page
from polyarch.kube.errors import Gone, UnreadableAnswer
from polyarch.kube.resources import Resource
from polyarch.model.meta import PartialObjectMetadata

T = TypeVar("T")
O = TypeVar("O", bound=KubernetesObject)  # noqa: E741 - an object, as everywhere in this module

# The fallback is for aggregated API servers without PartialObjectMetadata: a whole object decodes as well.
METADATA_ONLY: Final = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"
METADATA_ONLY_LIST: Final = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"

IDLE_MARGIN: Final = 15.0
"""Seconds after the server's own timeout at which a silent watch is given up."""

LINE_LIMIT: Final = 1024**2

_RESTARTS: Final = 3


class Listing(msgspec.Struct, Generic[T], frozen=True):
    """All objects that a list returned, and its resourceVersion."""

    items: list[T]
    resource_version: str


class IssuedToken(msgspec.Struct, frozen=True, rename="camel"):
    """A ServiceAccount's token; ``expiration_timestamp`` is RFC 3339."""

    token: str
    expiration_timestamp: str = ""

    def __repr__(self) -> str:
        return f"IssuedToken(…, {self.expiration_timestamp})"


class _TokenRequest(msgspec.Struct, frozen=True):
    status: IssuedToken


async def one(transport: Transport, request: Request, type: type[T], *, retry: bool = True) -> T:
    """The object, or another type that the request returns."""
    accept = METADATA_ONLY if type is PartialObjectMetadata else requests.JSON
    body = await transport.send(request, accept=accept, retry=retry)
    try:
        answer: T = decoder(type)(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        what = " ".join(part for part in (request.verb, request.resource, request.name) if part)
        problem = nesting.PROBLEM if isinstance(error, RecursionError) else error
        raise UnreadableAnswer(f"{what}: the answer does not read as {type.__name__}: {problem}") from None
    return answer


async def token(transport: Transport, request: Request) -> IssuedToken:
    """What a TokenRequest returns."""
    return (await one(transport, request, _TokenRequest)).status


async def everything(
    transport: Transport,
    resource: Resource,
    selection: Selection,
    type: type[T],
    *,
    limit: int,
    resource_version: str = "",
    retry: bool = True,
) -> Listing[T]:
    """All pages. If the continue token expires (410) the list starts again, at most three times."""
    for restart in range(_RESTARTS + 1):
        items: list[T] = []
        token = version = ""
        try:
            while True:
                request = requests.list_page(
                    resource, selection, limit=limit, continue_token=token, resource_version=resource_version
                )
                page = await _page(transport, request, type, strict=True, retry=retry)
                items += page.items or ()
                version = version or page.metadata.resource_version
                token = page.metadata.continue_
                if not token:
                    return Listing(items, version)
        except Gone:
            if restart == _RESTARTS or not token:
                raise
    raise AssertionError("unreachable")


async def page(transport: Transport, request: Request, type: type[O]) -> Page[O]:
    """One page for a cache. Objects that do not decode are left out; the caller retries failures."""
    found = await _page(transport, request, type, strict=False, retry=False)
    return Page(found.items or [], found.metadata.resource_version, found.metadata.continue_)


@asynccontextmanager
async def events(
    transport: Transport, request: Request, type: type[O], *, timeout_seconds: int
) -> AsyncIterator[WatchStream[O]]:
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
