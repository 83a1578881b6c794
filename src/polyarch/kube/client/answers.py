"""Responses, decoded into the caller's type: one object, a paged list, a watch (KR-004).

The type decides in which form an answer is asked for: whoever wants metadata only is sent nothing else. What does not
decode is an ``UnreadableAnswer`` that says of what; a cache, which must not go blind over one odd object, reads pages
leniently. The verbs that ask are in ``client.py``, the bytes come from ``transport.py``.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final, Generic, TypeVar

import msgspec

from polyarch.kube.client import requests
from polyarch.kube.client.requests import Request, Selection
from polyarch.kube.client.stream import ListPage, WatchDecoder, WatchStream, decode_list, decoder
from polyarch.kube.client.transport import Transport
from polyarch.kube.client.watch_event import KubernetesObject, Page
from polyarch.kube.errors import Gone, UnreadableAnswer
from polyarch.kube.resources import Resource
from polyarch.model.meta import PartialObjectMetadata

T = TypeVar("T")
O = TypeVar("O", bound=KubernetesObject)  # noqa: E741 - an object, as everywhere in this module

# The second choice is for aggregated API servers that cannot reduce: a whole object decodes just as well.
METADATA_ONLY: Final = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"
METADATA_ONLY_LIST: Final = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"

IDLE_MARGIN: Final = 15.0
"""Seconds above the server's own timeout after which a silent watch is given up."""

_RESTARTS: Final = 3


class Listing(msgspec.Struct, Generic[T], frozen=True):
    """All objects that a list found, and the resourceVersion at which that was so."""

    items: list[T]
    resource_version: str


async def one(transport: Transport, request: Request, type: type[T], *, retry: bool = True) -> T:
    """The object, or whatever else the request answers with."""
    accept = METADATA_ONLY if type is PartialObjectMetadata else requests.JSON
    body = await transport.send(request, accept=accept, retry=retry)
    try:
        answer: T = decoder(type)(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        what = " ".join(part for part in (request.verb, request.resource, request.name) if part)
        raise UnreadableAnswer(f"{what}: the answer does not read as {type.__name__}: {error}") from None
    return answer


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
    """All pages. If they expire on the way (410) it begins again, thrice at most."""
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
    """One page for a cache: objects that do not decode are left out, failures are the caller's to retry."""
    found = await _page(transport, request, type, strict=False, retry=False)
    return Page(found.items or [], found.metadata.resource_version, found.metadata.continue_)


@asynccontextmanager
async def events(
    transport: Transport, request: Request, type: type[O], *, timeout_seconds: int
) -> AsyncIterator[WatchStream[O]]:
    """An accepted watch, to be read until it ends."""
    accept = METADATA_ONLY if type is PartialObjectMetadata else requests.JSON
    async with transport.stream(request, accept=accept, idle=timeout_seconds + IDLE_MARGIN) as content:
        yield WatchStream(content, WatchDecoder(type, request.resource))


async def _page(transport: Transport, request: Request, type: Any, *, strict: bool, retry: bool) -> ListPage[Any]:
    accept = METADATA_ONLY_LIST if type is PartialObjectMetadata else requests.JSON
    body = await transport.send(request, accept=accept, retry=retry)
    return decode_list(body, type, request.resource, strict=strict)
