"""Writes to a registry: blobs in upload sessions, manifests by digest and by tag (distribution specification; RG-155).

Content is addressed by digest, so every request but setting a tag can be repeated safely. An upload location named by
the registry is checked before any data is sent there (RG-106).
"""

from urllib.parse import quote, urlencode, urlsplit

import msgspec

from polyarch.oci.auth.authorization import Access
from polyarch.oci.auth.tokens import push_scopes
from polyarch.oci.image.client import Stated
from polyarch.oci.image.contents import Connection, Contents
from polyarch.oci.mirrors.sources import Source
from polyarch.oci.traffic.exchange import Reply, Request, Stream, Visit, channels_of, not_as_asked
from polyarch.oci.traffic.failures import Failure, is_page, of_status, read_errors
from polyarch.oci.traffic.line import Urgency
from polyarch.oci.transport.redirects import Redirect, Refusal, RegistryServer, check_upload
from polyarch.oci.transport.seam import NO_TLS

ANSWER_LIMIT = 64 * 1024


Session = Redirect
"""An upload session: its URL, and whether to send the registry's credentials there."""


class Writer:
    """Writes to one repository with the credentials of ``access``. Methods raise ``Failure``."""

    def __init__(self, connection: Connection, access: Access) -> None:
        self._connection = connection
        self._source = access.source
        self._access = self._with_push(access)
        self._mounting: dict[str, Access] = {}

    @property
    def host(self) -> str:
        return self._source.host

    @property
    def repository(self) -> str:
        return self._source.repository

    # -- manifests -----------------------------------------------------------------------------------------------------

    @property
    def source(self) -> Source:
        return self._source

    @property
    def contents(self) -> Contents:
        """What is there, read with the access for writing: one token serves both."""
        return self._connection.at(self._access)

    async def stat(self, selector: str) -> Stated | None:
        """What a tag names, or that a digest exists, by HEAD where the registry has a usable one; None: nothing."""
        visit, client = self._connection.visit(), self._connection.client
        try:
            stated = await client.head_manifest(self._access, selector, visit)
            if stated is not None:
                return stated
            fetched = await client.get_manifest(self._access, selector, visit)
        except Failure as failure:
            if failure.error.code == "not-found":
                return None
            raise
        if fetched is None:
            raise AssertionError("304 without If-None-Match")
        return Stated(fetched.digest, fetched.etag, fetched.content_type, len(fetched.body))

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
            self._url("manifests", quote(selector, safe=":")),
            f"the manifest {selector}",
            operation="manifest-put",
            body=body,
            headers={"Content-Type": media_type},
            idempotent=by_digest,
        )
        reply = await self._fetch(request, self._access)
        self._check_taken(request, reply)
        stated = reply.headers.get("docker-content-digest")
        if stated and stated != digest:
            what = f"{request.what} was written as {stated}, not as {digest}"
            raise Failure.of("digest-mismatch", self.host, what, action="report it to the registry's operator")
        return "oci-subject" in reply.headers

    # -- blobs ---------------------------------------------------------------------------------------------------------

    async def has_blob(self, digest: str) -> bool:
        request = self._request("HEAD", self._url("blobs", digest), f"the blob {digest}", operation="blob-head")
        reply = await self._fetch(request, self._access)
        if reply.status == 200:
            # A page answers every path; who uploads a blob again that was there loses only time (RG-065).
            return not is_page(reply.headers.get("content-type")) or "docker-content-digest" in reply.headers
        if reply.status in (404, 405, 501):
            return False
        raise self._failure(request, reply)

    async def mount(self, digest: str, repository: str) -> Session | None:
        """Mount a blob from another repository of the registry: None if done, else an upload session (RG-155).

        Without read access there, or without support for mounts, an ordinary session is returned.
        """
        query = urlencode({"mount": digest, "from": repository}, safe=":/")
        try:
            reply = await self._begin(f"?{query}", self._mounting_from(repository))
        except Failure as failure:
            if failure.error.error_class not in ("auth", "absent") and failure.error.status not in (400, 405):
                raise
            return await self.begin()
        return None if reply.status == 201 else self._session(reply)

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
            urgency=Urgency.BLOB,
            reach=session.reach,
            channels=channels_of(session.url, self._access.channels if home else ()),
            tls=self._source.tls if home else NO_TLS,
            secrets=self._access.secrets,
        )
        visit = self._connection.transfer()
        if home:
            reply = await self._fetch(request, self._access, visit)
        else:
            reply = await self._connection.exchange.fetch(request, visit)
        self._check_taken(request, reply)

    async def _begin(self, query: str, access: Access) -> Reply:
        request = self._request(
            "POST", self._url("blobs", "uploads/") + query, "an upload", operation="upload-begin", body=b""
        )
        reply = await self._fetch(request, access)
        if reply.status not in (201, 202):
            raise self._failure(request, reply)
        return reply

    def _session(self, reply: Reply) -> Session:
        location = reply.headers.get("location")
        if not location:
            what = "an upload was begun, but it was not said where its bytes go (no Location)"
            raise Failure.of("server-error", self.host, what)
        server = RegistryServer(reply.url, reply.peer)
        place = check_upload(location, reply.url, server, self._connection.exchange.policy)
        if isinstance(place, Refusal):
            raise Failure.of(place.code, self.host, place.message)
        return place

    def _mounting_from(self, repository: str) -> Access:
        """The same credentials, for a token that may also read the other repository (RG-075)."""
        access = self._mounting.get(repository)
        if access is None:
            access = self._mounting[repository] = self._with_push(self._access, repository)
        access.accepted = self._access.accepted
        return access

    def _with_push(self, access: Access, *mounted_from: str) -> Access:
        """The same credentials with the scopes to read and write here, and to read ``mounted_from`` (RG-075)."""
        return Access(
            self._source,
            access.credentials,
            scopes=push_scopes(self.repository, mounted_from),
            loopback=self._connection.settings.insecure_loopback,
        )

    # -- requests ------------------------------------------------------------------------------------------------------

    def _url(self, kind: str, rest: str) -> str:
        source = self._source
        return f"{source.base_url}{source.path_prefix}/{source.repository}/{kind}/{rest}"

    def _request(
        self,
        method: str,
        url: str,
        what: str,
        *,
        operation: str,
        body: bytes | None = None,
        headers: dict[str, str] | None = None,
        idempotent: bool = False,
    ) -> Request:
        return Request(
            method=method,
            url=url,
            operation=operation,
            what=what,
            limit=ANSWER_LIMIT,
            headers=headers or {},
            own_headers=self._source.fields,
            body=body,
            idempotent=idempotent,
            channels=self._access.channels,
            tls=self._source.tls,
        )

    async def _fetch(self, request: Request, access: Access, visit: Visit | None = None) -> Reply:
        try:
            return await self._connection.authorization.fetch(request, access, visit or self._connection.visit())
        except Failure as failure:
            raise self._about_rights(failure) from None

    def _check_taken(self, request: Request, reply: Reply) -> None:
        if not 200 <= reply.status < 300:
            raise self._failure(request, reply)
        if is_page("", reply.body):
            raise not_as_asked(request, reply, "", self._access.secrets)

    def _failure(self, request: Request, reply: Reply) -> Failure:
        said = read_errors(reply.body, self._access.secrets)
        return self._about_rights(of_status(self.host, request.what, reply.status, said))

    def _about_rights(self, failure: Failure) -> Failure:
        if failure.error.error_class != "auth":
            return failure
        message = f"{failure.error.message}; writing needs push rights on {self.host}/{self.repository}"
        return Failure(msgspec.structs.replace(failure.error, message=message))
