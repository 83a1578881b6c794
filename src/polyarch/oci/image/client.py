"""Client for manifests and blobs, with verified digests.

Every manifest request accepts all six types: for a client that does not accept indexes, some registries silently return
one of the children and others 404. ``/v2/`` is never pinged. A digest in a header is compared and reported, never
trusted for content."""

import hashlib
import re
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol
from urllib.parse import quote

from polyarch.oci.auth.authorization import Authorization, SourceCredentials
from polyarch.oci.concurrency import RequestPriority
from polyarch.oci.documents import (
    ACCEPT,
    CONFIG_LIMIT,
    DOCUMENT_TYPES,
    MANIFEST_LIMIT,
    ContentError,
    check_body,
    digest_of,
    is_manifest,
    signed_payload,
)
from polyarch.oci.reference import DIGEST_DIGITS, check_digest
from polyarch.oci.traffic.exchange import (
    CompleteResponse,
    Exchange,
    Receive,
    Request,
    RequestContext,
    is_error_page,
    not_as_asked,
    origin_host,
)
from polyarch.oci.traffic.failures import Failure, of_status, read_errors
from polyarch.oci.traffic.rate_limiter import HostState, RegistryRateLimiter

_MANIFEST_HEADERS = {"Accept": ", ".join(ACCEPT), "Accept-Encoding": "identity"}
_BLOB_HEADERS = {"Accept-Encoding": "identity"}
_SIZE = re.compile(r"[0-9]{1,9}", re.ASCII)
PAGE_LIMIT = 256 * 1024
"""Bytes of an unusable blob that are read to its end, to see whether it is the blob at all."""
_NO_HEAD_STATUSES = frozenset({400, 403, 405, 406, 501})


@dataclass(frozen=True, slots=True)
class FetchedManifest:
    """A manifest. ``digest`` is computed over the bytes; for signed schema 1 over the payload, which then is ``body``.
    ``advertised`` is the digest in the header, ``""`` if none.
    """

    body: bytes = field(repr=False)
    digest: str
    content_type: str
    advertised: str = ""
    etag: str = ""


@dataclass(frozen=True, slots=True)
class HeadResult:
    """The result of a HEAD: the digest that the registry states for a tag or confirms for a digest. Type and size are
    its words too; None where it states no size.
    """

    digest: str
    etag: str = ""
    media_type: str = ""
    size: int | None = None


class ContentStore(Protocol):
    """Interface for a place with manifests and blobs: a registry, or a layout directory."""

    async def get_manifest(
        self, access: SourceCredentials, selector: str, context: RequestContext, *, etag: str = ""
    ) -> FetchedManifest | None: ...

    async def get_blob(
        self,
        access: SourceCredentials,
        digest: str,
        context: RequestContext,
        *,
        what: str = "the config",
        limit: int = CONFIG_LIMIT,
    ) -> bytes: ...

    async def stream_blob(
        self, access: SourceCredentials, digest: str, context: RequestContext, receive: Receive
    ) -> None: ...


class RegistryClient:
    """The requests for reading images, with authorization, pauses and retries."""

    def __init__(self, exchange: Exchange, authorization: Authorization, rate_limiter: RegistryRateLimiter) -> None:
        self._exchange = exchange
        self._authorization = authorization
        self._rate_limiter = rate_limiter

    async def close(self) -> None:
        await self._authorization.close()

    async def head_manifest(
        self, access: SourceCredentials, selector: str, context: RequestContext
    ) -> HeadResult | None:
        """The result of a HEAD; None if this host has no usable HEAD and a GET is needed.

        Raises ``Failure``: a 404 is final on HEAD as on GET.
        """
        if self._rate_limiter.knows_no_head(self._host(access)):
            return None
        request = _manifest_request(access, "HEAD", selector)
        response = await self._authorization.fetch(request, access, context)
        if response.status == 200:
            stated = response.headers.get("docker-content-digest")
            content_type = response.headers.get("content-type").partition(";")[0].strip().lower()
            is_digest = ":" in selector
            if (
                check_digest(stated) is None
                and content_type in DOCUMENT_TYPES
                and stated == (selector if is_digest else stated)
            ):
                size = response.headers.get("content-length")
                return HeadResult(
                    stated, response.headers.get("etag"), content_type, int(size) if _SIZE.fullmatch(size) else None
                )
            return None
        if response.status in _NO_HEAD_STATUSES or is_error_page(response):
            return None  # no body says whose answer it is
        raise _failure(access, request, response)

    def has_no_head(self, access: SourceCredentials) -> None:
        """A GET succeeded where a HEAD had failed: send this host no HEAD for an hour."""
        self._rate_limiter.has_no_head(self._host(access))

    def _host(self, access: SourceCredentials) -> HostState:
        return self._rate_limiter.host(access.source.host, access.source.query)

    async def get_manifest(
        self, access: SourceCredentials, selector: str, context: RequestContext, *, etag: str = ""
    ) -> FetchedManifest | None:
        """A manifest by tag or digest, verified; None if it still has this ``etag`` (304).

        What no digest vouches for has to be a manifest at least: a maintenance page is neither the content of
        a tag nor proof that the repository may be read.
        """
        request = _manifest_request(access, "GET", selector, etag=etag)
        response = await self._authorization.fetch(request, access, context)
        if response.status == 304 and etag:
            return None
        if response.status != 200:
            raise _failure(access, request, response)
        advertised = response.headers.get("docker-content-digest")
        well_formed = check_digest(advertised) is None
        body = response.body
        if (payload := signed_payload(body)) is not None:
            body = payload  # the rest is in no digest
        if ":" in selector:
            digest = selector
            _check(access, request, response, digest, body, fits=is_manifest)
        else:
            algorithm = advertised.partition(":")[0] if well_formed else "sha256"
            digest = digest_of(body, algorithm if algorithm in DIGEST_DIGITS else "sha256")
            if advertised != digest and not is_manifest(body):
                raise not_as_asked(request, response, "a manifest", access.secrets)
        if well_formed and advertised != digest:
            what = f"{access.source.host} states {advertised} for bytes that are {digest}; the bytes count"
            context.warn("digest-header-mismatch", what)
        return FetchedManifest(
            body=body,
            digest=digest,
            content_type=response.headers.get("content-type"),
            advertised=advertised if well_formed else "",
            etag=response.headers.get("etag"),
        )

    async def get_blob(
        self,
        access: SourceCredentials,
        digest: str,
        context: RequestContext,
        *,
        what: str = "the config",
        limit: int = CONFIG_LIMIT,
    ) -> bytes:
        """A small blob, verified; queued behind all manifests of the same host."""
        request = _blob_request(access, digest, what=what, limit=limit)
        response = await self._fetch_blob(request, access, context)
        _check(access, request, response, digest, response.body, fits=lambda body: body.lstrip()[:1] == b"{")
        return response.body

    async def stream_blob(
        self, access: SourceCredentials, digest: str, context: RequestContext, receive: Receive
    ) -> None:
        """Stream a blob of any size to ``receive``.

        After the last piece the stream raises ``Failure`` ``digest-mismatch`` if the digest is wrong; a caller that
        stops early has no verified content. The same for a caller that cannot use a short body: a page is no blob.
        """

        async def verified(chunks: AsyncIterator[bytes]) -> None:
            stream = _verified(chunks, digest, access.source.host)
            try:
                await receive(stream)
            except Failure:
                raise
            except Exception:
                left = PAGE_LIMIT
                async for chunk in stream:
                    if (left := left - len(chunk)) < 0:
                        break
                raise

        request = _blob_request(access, digest, what="the blob", limit=0, receive=verified)
        await self._fetch_blob(request, access, context)

    async def _fetch_blob(
        self, request: Request, access: SourceCredentials, context: RequestContext
    ) -> CompleteResponse:
        response = await self._authorization.fetch(request, access, context)
        if response.status != 200:
            raise _failure(access, request, response)
        return response


def source_request(
    access: SourceCredentials,
    method: str,
    path: str,
    *,
    operation: str,
    what: str,
    limit: int,
    headers: Mapping[str, str] | None = None,
) -> Request:
    """A request to the source below its repository; ``path`` such as ``manifests/latest``, ``what`` for messages."""
    source = access.source
    return Request(
        method=method,
        url=f"{source.base_url}{source.path_prefix}/{source.repository}/{path}",
        operation=operation,
        what=what,
        limit=limit,
        headers=headers or {},
        own_headers=source.fields,
        via=source.query,
        modes=access.modes,
        tls=source.tls,
    )


def _pull_request(access: SourceCredentials, method: str, kind: str, selector: str, **members: Any) -> Request:
    request = source_request(access, method, f"{kind}/{quote(selector, safe=':')}", **members)
    query = access.source.query
    return replace(request, url=f"{request.url}?{query}") if query else request


def _manifest_request(access: SourceCredentials, method: str, selector: str, *, etag: str = "") -> Request:
    request = _pull_request(
        access,
        method,
        "manifests",
        selector,
        operation=f"manifest-{method.lower()}",
        what=f"the manifest {selector}",
        limit=MANIFEST_LIMIT,
        headers={**_MANIFEST_HEADERS, "If-None-Match": etag} if etag else _MANIFEST_HEADERS,
    )
    return replace(request, charged=method == "GET", metered=True)


def _blob_request(
    access: SourceCredentials, digest: str, *, what: str, limit: int, receive: Receive | None = None
) -> Request:
    headers, what = _BLOB_HEADERS, f"{what} {digest}"
    request = _pull_request(
        access, "GET", "blobs", digest, operation="blob-get", what=what, limit=limit, headers=headers
    )
    return replace(request, receive=receive, priority=RequestPriority.BLOB, charged=True)


async def _verified(chunks: AsyncIterator[bytes], digest: str, host: str) -> AsyncIterator[bytes]:
    actual = hashlib.new(digest.partition(":")[0])
    async for chunk in chunks:
        actual.update(chunk)
        yield chunk
    if f"{actual.name}:{actual.hexdigest()}" != digest:
        what = f"asked for {digest}, the bytes received are {actual.name}:{actual.hexdigest()}"
        raise Failure.of("digest-mismatch", host, what)


def _check(
    access: SourceCredentials,
    request: Request,
    response: CompleteResponse,
    digest: str,
    body: bytes,
    *,
    fits: Callable[[bytes], bool],
) -> None:
    """Other bytes than the digest's are no fact about the image, whatever they are."""
    try:
        check_body(body, digest)
    except ContentError as error:
        if not fits(body):
            raise not_as_asked(request, response, "what it should be", access.secrets) from None
        raise Failure.of(error.code, origin_host(response.url), error.message) from None


def _failure(access: SourceCredentials, request: Request, response: CompleteResponse) -> Failure:
    if 200 < response.status < 300 or is_error_page(response):
        return not_as_asked(request, response, "what it should be", access.secrets)
    registry_error = read_errors(response.body, access.secrets)
    return of_status(access.source.host, request.what, response.status, registry_error)
