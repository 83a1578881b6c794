"""Writes to and deletes from a registry: blobs in upload sessions, manifests by digest and by tag.

Content is addressed by digest, so every request but setting a tag can be repeated safely. An upload location named by
the registry is checked before any data is sent there. Source: the distribution specification.
"""

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal
from urllib.parse import quote, urlencode, urlsplit

import msgspec

from polyarch.oci.auth.authorization import SourceCredentials, push_scopes
from polyarch.oci.concurrency import RequestPriority
from polyarch.oci.image.client import HeadResult, source_request
from polyarch.oci.image.contents import RegistryConnection, RepositoryContents
from polyarch.oci.pull_sources import PullSource
from polyarch.oci.reference import Reference
from polyarch.oci.traffic.exchange import (
    CompleteResponse,
    Request,
    RequestContext,
    Stream,
    is_error_page,
    modes_of,
    not_as_asked,
)
from polyarch.oci.traffic.failures import Failure, RegistryError, is_page, of_refused_write, of_status, read_errors
from polyarch.oci.transport.addresses import Redirect, RegistryServer, UrlRejected, check_upload
from polyarch.oci.transport.interface import NO_TLS

ANSWER_LIMIT = 64 * 1024


Session = Redirect
"""An upload session: its URL, and whether to send the registry's credentials there."""


class Writer:
    """Writes to one repository with the credentials of ``access``. Methods raise ``Failure``."""

    def __init__(self, connection: RegistryConnection, access: SourceCredentials) -> None:
        self._connection = connection
        self._source = access.source
        self._access = self._with_push(access)
        self._mounting: dict[str, SourceCredentials] = {}

    @property
    def host(self) -> str:
        return self._source.host

    @property
    def repository(self) -> str:
        return self._source.repository

    # -- manifests -----------------------------------------------------------------------------------------------------

    @property
    def source(self) -> PullSource:
        return self._source

    @property
    def contents(self) -> RepositoryContents:
        """What is there, read with the access for writing: one token serves both."""
        return self._connection.at(self._access)

    async def stat(self, selector: str) -> HeadResult | None:
        """What a tag names, or that a digest exists, by HEAD where the registry has a usable one; None: nothing."""
        context, client = self._connection.context(), self._connection.client
        try:
            stated = await client.head_manifest(self._access, selector, context)
            if stated is not None:
                return stated
            fetched = await client.get_manifest(self._access, selector, context)
        except Failure as failure:
            if failure.error.code == "not-found":
                return None
            raise
        if fetched is None:
            raise AssertionError("304 without If-None-Match")
        return HeadResult(fetched.digest, fetched.etag, fetched.content_type, len(fetched.body))

    async def digest_of(self, selector: str) -> str:
        """The digest of a tag, or the digest itself if it exists; ``""`` if there is nothing."""
        stated = await self.stat(selector)
        return stated.digest if stated is not None else ""

    async def put_manifest(self, selector: str, body: bytes, media_type: str, digest: str) -> bool:
        """Write a manifest under its digest or a tag; an error unless the registry stored exactly these bytes.

        Returns whether the registry lists it among the referrers of its subject (``OCI-Subject``).
        """
        by_digest = ":" in selector
        request = self._request(
            "PUT",
            f"manifests/{quote(selector, safe=':')}",
            f"the manifest {selector}",
            operation="manifest-put",
            body=body,
            headers={"Content-Type": media_type},
            idempotent=by_digest,
        )
        response = await self._fetch(request, self._access)
        self._check_taken(request, response)
        stated = response.headers.get("docker-content-digest")
        if stated and stated != digest:
            what = f"{request.what} was written as {stated}, not as {digest}"
            raise Failure.of("digest-mismatch", self.host, what, action="report it to the registry's operator")
        return "oci-subject" in response.headers

    # -- blobs ---------------------------------------------------------------------------------------------------------

    async def has_blob(self, digest: str) -> bool:
        request = self._request("HEAD", f"blobs/{digest}", f"the blob {digest}", operation="blob-head")
        response = await self._fetch(request, self._access)
        if response.status == 200:
            # A page answers every path; who uploads a blob again that was there loses only time.
            return not is_page(response.headers.get("content-type")) or "docker-content-digest" in response.headers
        if response.status in (404, 405, 501):
            return False
        raise self._failure(request, response)

    async def mount(self, digest: str, repository: str) -> Session | None:
        """Mount a blob from another repository of the registry: None if done, else an upload session.

        Without read access there, or without support for mounts, an ordinary session is returned.
        """
        query = urlencode({"mount": digest, "from": repository}, safe=":/")
        try:
            response = await self._begin(f"?{query}", self._mounting_from(repository))
        except Failure as failure:
            error = failure.error
            refused = error.error_class in ("auth", "absent") or error.status in (400, 404, 405, 409, 412, 501)
            if not refused or error.code == "quota":
                raise
            return await self.begin()
        return None if response.status == 201 else self._session(response)

    async def begin(self) -> Session:
        """An upload session for one blob."""
        return self._session(await self._begin("", self._access))

    async def send(self, session: Session, digest: str, body: Stream) -> None:
        """Upload the blob and close its session."""
        joint = "&" if urlsplit(session.url).query else "?"
        home = session.keep_authorization
        request = Request(
            method="PUT",
            url=f"{session.url}{joint}{urlencode({'digest': digest}, safe=':')}",
            operation="blob-put",
            what=f"the blob {digest}",
            limit=ANSWER_LIMIT,
            headers={"Content-Type": "application/octet-stream"},
            own_headers=self._source.fields if home else {},
            body=body,
            priority=RequestPriority.BLOB,
            provenance=session.provenance,
            via="" if session.provenance.named else self.host,
            modes=modes_of(session.url, self._access.modes if home else ()),
            tls=self._source.tls if home else NO_TLS,
            secrets=self._access.secrets,
        )
        context = self._connection.transfer()
        if home:
            response = await self._fetch(request, self._access, context)
        else:
            response = await self._connection.exchange.fetch(request, context)
        self._check_taken(request, response)

    async def _begin(self, query: str, access: SourceCredentials) -> CompleteResponse:
        request = self._request("POST", f"blobs/uploads/{query}", "an upload", operation="upload-begin", body=b"")
        response = await self._fetch(request, access)
        if response.status not in (201, 202):
            raise self._failure(request, response)
        return response

    def _session(self, response: CompleteResponse) -> Session:
        location = response.headers.get("location")
        if not location:
            what = "an upload was begun, but it was not said where its bytes go (no Location)"
            raise Failure.of("server-error", self.host, what)
        server = RegistryServer(response.url, response.peer)
        place = check_upload(location, response.url, server, self._connection.exchange.policy)
        if isinstance(place, UrlRejected):
            raise Failure.of(place.code, self.host, place.message)
        return place

    def _mounting_from(self, repository: str) -> SourceCredentials:
        """The same credentials, for a token that may also read the other repository."""
        access = self._mounting.get(repository)
        if access is None:
            access = self._mounting[repository] = self._with_push(self._access, repository)
        access.accepted = self._access.accepted
        return access

    def _with_push(self, access: SourceCredentials, *mounted_from: str) -> SourceCredentials:
        """The same credentials with the scopes to read and write here, and to read ``mounted_from``."""
        return SourceCredentials(
            self._source,
            access.credentials,
            scopes=push_scopes(self.repository, mounted_from),
            loopback=self._connection.settings.insecure_loopback,
        )

    # -- requests ------------------------------------------------------------------------------------------------------

    def _request(
        self,
        method: str,
        path: str,
        what: str,
        *,
        operation: str,
        body: bytes | None = None,
        headers: dict[str, str] | None = None,
        idempotent: bool = False,
    ) -> Request:
        access = self._access
        request = source_request(
            access, method, path, operation=operation, what=what, limit=ANSWER_LIMIT, headers=headers
        )
        return replace(request, body=body, idempotent=idempotent)

    async def _fetch(
        self, request: Request, access: SourceCredentials, context: RequestContext | None = None
    ) -> CompleteResponse:
        try:
            return await self._connection.authorization.fetch(request, access, context or self._connection.context())
        except Failure as failure:
            raise self._refused(request, failure) from None

    def _check_taken(self, request: Request, response: CompleteResponse) -> None:
        if not 200 <= response.status < 300:
            raise self._failure(request, response)
        if is_page("", response.body):
            raise not_as_asked(request, response, "", self._access.secrets)

    def _failure(self, request: Request, response: CompleteResponse) -> Failure:
        registry_error = read_errors(response.body, self._access.secrets)
        return self._refused(request, of_status(self.host, request.what, response.status, registry_error))

    def _refused(self, request: Request, failure: Failure) -> Failure:
        if request.method in ("PUT", "POST"):
            selector = request.what.removeprefix("the manifest ") if request.operation == "manifest-put" else ""
            failure = of_refused_write(failure, tag="" if ":" in selector else selector)
        if failure.error.error_class != "auth":
            return failure
        message = f"{failure.error.message}; writing needs push rights on {self.host}/{self.repository}"
        return Failure(msgspec.structs.replace(failure.error, message=message))


# -- deletion of manifests ---------------------------------------------------------------------------------------------
# Registries differ most in deleting: many switch it off, some do not know it, some respond for what is deleted as if
# they had broken. Those responses are no errors here: whoever cleans up goes on. A manifest that may not go before its
# tags (Google's registries) goes after the tags that the caller calls its own.


Outcome = Literal["removed", "absent", "denied", "unsupported"]
_ABSENT = frozenset({"MANIFEST_UNKNOWN", "NAME_UNKNOWN", "NOT_FOUND"})
_GONE = re.compile(r"\b(deleted|expired)\b", re.IGNORECASE)
_TAGGED = re.compile(r"DANGLING_TAG|still (referenced|tagged)|referenced by tag", re.IGNORECASE)


class DeletionResult(msgspec.Struct, frozen=True):
    """What came of a deletion; only ``removed`` and ``absent`` mean that it is not there any more."""

    outcome: Outcome
    message: str = ""

    @property
    def gone(self) -> bool:
        return self.outcome in ("removed", "absent")


async def remove(connection: RegistryConnection, reference: Reference, *, tags: Sequence[str] = ()) -> DeletionResult:
    """Delete the manifest with this digest; ``tags`` are those that may be deleted first where the registry asks for
    it, if they still name it. Raises ``Failure`` for what may succeed later, and ``ValueError`` without a digest.
    """
    digest = reference.digest
    if digest is None:
        raise ValueError(f"{reference} has no digest: what a tag names may be somebody else's by now")
    access = await connection.destination(reference)
    source, credentials = access.source, access.credentials
    # "delete" is refused by some token servers and needed by others; all take the wildcard.
    scopes = (f"repository:{source.repository}:*",)
    access = SourceCredentials(source, credentials, scopes=scopes, loopback=connection.settings.insecure_loopback)
    removal, tagged = await _delete(connection, access, digest)
    if tagged and tags:
        for tag in tags:
            if await _names(connection, access, tag, digest):
                await _delete(connection, access, tag)
        removal, _ = await _delete(connection, access, digest)
    return removal


async def _delete(
    connection: RegistryConnection, access: SourceCredentials, selector: str
) -> tuple[DeletionResult, bool]:
    """What came of it, and whether it failed for its tags."""
    path = f"manifests/{quote(selector, safe=':')}"
    what = f"deleting {access.source.repository}@{selector}"
    request = source_request(access, "DELETE", path, operation="manifest-delete", what=what, limit=ANSWER_LIMIT)
    try:
        response = await connection.authorization.fetch(request, access, connection.context())
    except Failure as failure:
        error = failure.error
        if error.error_class == "auth":
            return DeletionResult("denied", error.message), False
        if error.status == 500 and _GONE.search(error.message):
            return DeletionResult("absent"), False
        raise
    if 200 <= response.status < 300:
        if is_page("", response.body):
            raise not_as_asked(request, response, "", access.secrets)
        return DeletionResult("removed"), False
    if is_error_page(response):
        raise not_as_asked(request, response, "", access.secrets)
    registry_error = read_errors(response.body, access.secrets)
    if response.status in (404, 410) or registry_error.code in _ABSENT:
        return DeletionResult("absent"), False
    return _refused(access, request, response, registry_error)


def _refused(
    access: SourceCredentials, request: Request, response: CompleteResponse, registry_error: RegistryError
) -> tuple[DeletionResult, bool]:
    failure = of_status(access.source.host, request.what, response.status, registry_error)
    if response.status in (401, 403):
        return DeletionResult("denied", failure.error.message), False
    if response.status in (400, 405, 409, 412, 501):
        return DeletionResult("unsupported", failure.error.message), _TAGGED.search(str(registry_error)) is not None
    raise failure


async def _names(connection: RegistryConnection, access: SourceCredentials, tag: str, digest: str) -> bool:
    try:
        stated = await connection.client.head_manifest(access, tag, connection.context())
    except Failure as failure:
        if failure.error.code == "not-found":
            return False
        raise
    return stated is not None and stated.digest == digest
