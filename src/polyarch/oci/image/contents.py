"""Access to the manifests and blobs of a repository or layout directory, and what can be listed there.

An ``Inspector`` is enough for platforms. Code that looks into images or copies them needs the source that has the image
and the credential that opens it: :class:`RepositoryContents`, opened by a :class:`RegistryConnection`. Mirrors come
first, as for all reads.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import msgspec

from polyarch.clock import Clock
from polyarch.oci import pull_sources
from polyarch.oci.auth.authorization import Authorization, SourceCredentials
from polyarch.oci.auth.credential_stores import CredentialStore
from polyarch.oci.concurrency import Tenants
from polyarch.oci.documents import (
    CONFIG_LIMIT,
    MANIFEST_LIMIT,
    OCI_INDEX,
    ContentError,
    Document,
    classify,
    decode,
    is_manifest,
)
from polyarch.oci.image.client import ContentStore, FetchedManifest, RegistryClient, source_request
from polyarch.oci.image.layout import ImageLayout
from polyarch.oci.image.parsing import (
    ATTESTATION_ANNOTATIONS,
    Artifact,
    ConfigReading,
    Finding,
    FlatIndex,
    IndexEntry,
    IndexReading,
    flatten,
)
from polyarch.oci.image.reader import ImageReader
from polyarch.oci.inspection import InspectionError, Kind
from polyarch.oci.mirror_files import InvalidMirrorConfiguration
from polyarch.oci.pull_sources import Configuration, PullSource
from polyarch.oci.reference import Reference, check_digest
from polyarch.oci.settings import InspectorSettings
from polyarch.oci.traffic.exchange import Exchange, Receive, RequestContext, TimeBudget, is_error_page, not_as_asked
from polyarch.oci.traffic.failures import Failure, of_status, read_errors
from polyarch.oci.traffic.rate_limiter import RegistryRateLimiter
from polyarch.platforms import Platform

TRANSFER_SECONDS = 24 * 3600.0
"""Effectively unlimited: a transfer ends when it is idle."""


@dataclass(frozen=True, slots=True)
class RepositoryContents:
    """Manifests and blobs of one repository or directory. Methods raise ``Failure``."""

    store: ContentStore
    access: SourceCredentials
    name: str
    """The place in messages: a host, or ``oci:PATH``."""
    context: Callable[[], RequestContext]
    """Makes the time limit for one step."""

    @property
    def source(self) -> PullSource:
        return self.access.source

    async def manifest(self, selector: str, context: RequestContext | None = None) -> FetchedManifest:
        """The manifest of a tag, or of a digest, verified. Without ``context`` each call has its own time limit."""
        fetched = await self.store.get_manifest(self.access, selector, context or self.context())
        if fetched is None:
            raise AssertionError("304 without If-None-Match")
        return fetched

    async def blob(
        self, digest: str, context: RequestContext | None = None, *, what: str = "the config", limit: int = CONFIG_LIMIT
    ) -> bytes:
        """A small blob, verified."""
        return await self.store.get_blob(self.access, digest, context or self.context(), what=what, limit=limit)

    async def stream(self, digest: str, receive: Receive, context: RequestContext) -> None:
        """A blob of any size; see ``RegistryClient.stream_blob``. ``receive`` must not raise ``Failure``, which would
        be taken for an error of this place.
        """
        await self.store.stream_blob(self.access, digest, context, receive)

    def reader(self) -> ImageReader:
        """Reads an image of this place, all of it within one time limit."""
        return ImageReader(self.store, self.access, self.context())


class OpenedImage(NamedTuple):
    """An opened reference: its manifest, and access to everything below it."""

    contents: RepositoryContents
    manifest: FetchedManifest


@dataclass(frozen=True, slots=True)
class RegistryConnection:
    """The parts of an inspector, for code that needs more than platforms."""

    exchange: Exchange
    authorization: Authorization
    client: RegistryClient
    rate_limiter: RegistryRateLimiter
    configuration: Configuration
    credentials: CredentialStore
    clock: Clock
    settings: InspectorSettings
    tenant: str = ""

    def using(self, credentials: CredentialStore, tenant: str = "") -> "RegistryConnection":
        """The same parts with other credentials, and no others, for a tenant: for the images of one build or one user.
        Tokens stay shared among equal credentials only.
        """
        return replace(self, credentials=credentials, tenant=tenant)

    def context(self, *, seconds: float | None = None) -> RequestContext:
        """A time limit for one step, ``--timeout`` by default."""
        seconds = self.settings.timeout if seconds is None else seconds
        budget = TimeBudget(self.clock, seconds=seconds, max_wait=self.settings.max_wait)
        return RequestContext(budget, wait=self.settings.wait, tenants=Tenants(self.tenant))

    def transfer(self) -> RequestContext:
        """A time limit for a transfer: only the idle time counts."""
        return self.context(seconds=max(self.settings.timeout, TRANSFER_SECONDS))

    async def access(self, reference: Reference, source: PullSource) -> SourceCredentials:
        """The source with the credentials to try, anonymous last."""
        credentials = await self.credentials.candidates(reference, source)
        return SourceCredentials(source, credentials, loopback=self.settings.insecure_loopback)

    async def open(self, reference: Reference) -> OpenedImage:
        """The first source that has the image. Raises the last source's ``Failure``, with the image's name."""
        if reference.transport == "oci":
            return await self._open_layout(reference)
        attempts: list[str] = []
        failure: Failure | None = None
        for source in self.sources(reference):
            contents = self.at(await self.access(reference, source))
            try:
                return OpenedImage(contents, await contents.manifest(source.digest or source.tag or ""))
            except Failure as error:
                failure = error
                attempts.append(f"{'mirror ' if source.mirror else ''}{error.error.message}")
        if failure is None:
            raise AssertionError("an image has at least one source")
        raise Failure(failure.about(reference.canonical, tuple(attempts) if len(attempts) > 1 else ()))

    def at(self, access: SourceCredentials) -> RepositoryContents:
        """The contents of one source."""
        return RepositoryContents(self.client, access, access.source.host, self.context)

    def within(self, layout: ImageLayout) -> RepositoryContents:
        """The contents of a layout directory."""
        return RepositoryContents(layout, layout.access, layout.name, self.context)

    def sources(self, reference: Reference) -> list[PullSource]:
        """The sources in order; ``Failure`` ``blocked`` if the configuration leaves none."""
        try:
            return pull_sources.sources(reference, self.configuration)
        except (pull_sources.Blocked, InvalidMirrorConfiguration) as error:
            raise Failure.of("blocked", "", str(error)) from None

    async def destination(self, reference: Reference) -> SourceCredentials:
        """The repository to write to, regardless of mirrors, with its credentials. Raises ``Failure`` ``blocked``."""
        try:
            source = pull_sources.destination(reference, self.configuration)
        except pull_sources.Blocked as error:
            raise Failure.of("blocked", "", str(error)) from None
        return await self.access(reference, source)

    async def _open_layout(self, reference: Reference) -> OpenedImage:
        layout = ImageLayout.of(reference)
        contents = self.within(layout)
        try:
            return OpenedImage(contents, await contents.manifest(await layout.resolve(reference)))
        except Failure as failure:
            raise Failure(failure.about(reference.canonical)) from None


# -- the raw descriptors of an index and of what it lists --------------------------------------------------------------
# Inspection keeps only the platforms of an entry. Copying or printing an index needs the descriptors themselves:
# annotations, attestations, skipped entries and the reasons.


class IndexNode(msgspec.Struct, frozen=True):
    """One descriptor of an index. ``raw`` is the JSON; ``inner`` are the nodes of an index behind it."""

    raw: Mapping[str, Any]
    entry: IndexEntry
    platform: Platform | None = None
    reason: str = ""
    """Why it is no runnable image; ``""`` if it is one, or an index."""
    inner: "tuple[IndexNode, ...] | None" = None

    @property
    def annotations(self) -> dict[str, str]:
        return annotations_of(self.raw)

    @property
    def is_attestation(self) -> bool:
        return any(name in self.annotations for name in ATTESTATION_ANNOTATIONS)


class IndexTree(msgspec.Struct, frozen=True):
    """A manifest and what is below it; ``platform`` is that of a single image, if stated."""

    digest: str
    kind: Kind
    media_type: str
    size: int
    annotations: Mapping[str, str] = {}
    nodes: tuple[IndexNode, ...] = ()
    flat: FlatIndex = FlatIndex()
    platform: Platform | None = None

    def walk(self) -> Iterator[IndexNode]:
        """Every node once; the nodes of an inner index replace the node that names it."""
        seen: set[str] = set()
        pending = [iter(self.nodes)]
        while pending:
            node = next(pending[-1], None)
            if node is None:
                pending.pop()
            elif node.inner is None:
                yield node
            elif node.entry.digest not in seen:
                seen.add(node.entry.digest)
                pending.append(iter(node.inner))


async def read_tree(contents: RepositoryContents, manifest: FetchedManifest) -> IndexTree:
    """The tree of a manifest; an unreadable child becomes a node's ``reason``.

    Raises ``ContentError`` and ``Failure``.
    """
    document = classify(manifest.body)
    annotations = annotations_of(decode(document.body, dict[str, Any], "the manifest"))
    if document.type != "index":
        config = await read_platform(contents, document)
        kind: Kind = "schema1" if document.type == "schema1" else "image" if config is not None else "artifact"
        platform = config.platform if config is not None else None
        return IndexTree(manifest.digest, kind, document.media_type, len(manifest.body), annotations, platform=platform)
    top, found = await contents.reader().read_tree(document, manifest.digest)
    documents = {manifest.digest: manifest.body}
    for digest, finding in found.items():
        if isinstance(finding, IndexReading) and digest not in documents:
            documents[digest] = (await contents.manifest(digest)).body
    nodes = _Nodes(documents, found).of(manifest.digest, top)
    flat = flatten(top, found, every=True)
    return IndexTree(manifest.digest, "index", document.media_type, len(manifest.body), annotations, nodes, flat)


async def read_platform(contents: RepositoryContents, document: Document) -> ConfigReading | None:
    """The platform of a single image; None for an artifact. Raises ``ContentError`` and ``Failure``."""
    found = await contents.reader().read_image(document)
    return found if isinstance(found, ConfigReading) else None


def annotations_of(raw: Mapping[str, Any]) -> dict[str, str]:
    """The string annotations of a descriptor or document."""
    found = raw.get("annotations")
    if not isinstance(found, Mapping):
        return {}
    return {key: value for key, value in found.items() if isinstance(key, str) and isinstance(value, str)}


class _Index(msgspec.Struct):
    manifests: list[dict[str, Any]] | None = None


class _Nodes:
    """Builds the nodes; an index named several times is built once."""

    def __init__(self, documents: Mapping[str, bytes], found: Mapping[str, Finding]) -> None:
        self._documents = documents
        self._found = found
        self._made: dict[str, tuple[IndexNode, ...]] = {}

    def of(self, digest: str, reading: IndexReading) -> tuple[IndexNode, ...]:
        nodes = self._made.get(digest)
        if nodes is None:
            raw = decode(self._documents[digest], _Index, "the index").manifests or []
            nodes = tuple(self._node(*pair) for pair in zip(raw, reading.entries, strict=True))
            self._made[digest] = nodes
        return nodes

    def _node(self, raw: Mapping[str, Any], entry: IndexEntry) -> IndexNode:
        if entry.outcome == "skipped":
            return IndexNode(raw, entry, reason=entry.reason)
        if entry.outcome == "runnable":
            return IndexNode(raw, entry, entry.platform)
        finding = self._found.get(entry.digest)
        if isinstance(finding, IndexReading):
            return IndexNode(raw, entry, inner=self.of(entry.digest, finding))
        if isinstance(finding, ConfigReading):
            return IndexNode(raw, entry, finding.platform, "" if finding.platform is not None else "empty-config")
        if isinstance(finding, Artifact):
            return IndexNode(raw, entry, reason="artifact")
        error = finding.message if isinstance(finding, InspectionError) else "it was not read"
        return IndexNode(raw, entry, reason=f"no-platform: {error}")


# -- referrers and tags, as the distribution specification lists them --------------------------------------------------
# Registries without the referrers API keep the list in an index under the tag ``sha256-<hex>``; tools that are older
# than both keep each artifact under a tag of its own that begins so. Both are found by their names alone: repositories
# may have too many tags to list them all.


TAG_SUFFIXES = (".sig", ".att", ".sbom")
"""Tags of single artifacts, after ``sha256-<hex>``."""
MEMBERS = ("mediaType", "digest", "size", "annotations", "artifactType")
"""The members that a descriptor in such an index may have."""


def referrers_tag(digest: str) -> str:
    """The tag of the index that lists an image's referrers where there is no API for it."""
    algorithm, _, digits = digest.partition(":")
    return f"{algorithm}-{digits}"[:128]


async def list_referrers(
    connection: RegistryConnection, access: SourceCredentials, digest: str
) -> list[dict[str, Any]] | None:
    """The descriptors that the registry lists; None if it has no such API. Raises ``Failure``."""
    request = source_request(
        access,
        "GET",
        f"referrers/{digest}",
        operation="referrers",
        what=f"the referrers of {digest}",
        limit=MANIFEST_LIMIT,
        headers={"Accept": OCI_INDEX, "Accept-Encoding": "identity"},
    )
    response = await connection.authorization.fetch(request, access, connection.context())
    if response.status == 200:
        # Some registries answer a page of theirs to a path that they do not know.
        return read_descriptors(response.body, access.source.host) if is_manifest(response.body) else None
    if 400 <= response.status < 500 or response.status == 501:
        return None
    raise of_status(access.source.host, request.what, response.status, read_errors(response.body, access.secrets))


def read_descriptors(body: bytes, host: str) -> list[dict[str, Any]]:
    """The usable descriptors of such an index, each with its own members only. Raises ``Failure``."""
    try:
        listed = decode(body, _Index, "the list of referrers").manifests or []
    except ContentError as error:
        raise Failure.of(error.code, host, error.message) from None
    return [
        {name: each[name] for name in MEMBERS if name in each}
        for each in listed
        if isinstance(each.get("digest"), str) and check_digest(each["digest"]) is None
    ]


MAX_TAGS = 1000


async def list_tags(connection: RegistryConnection, reference: Reference) -> tuple[str, ...]:
    """As the first source lists them. Raises ``Failure``.

    One page only, as many as a registry gives at once: a repository may have any number of tags, and who looks for a
    newer one finds it among a thousand, or has to say which.
    """
    source = connection.sources(reference)[0]
    access = await connection.access(reference, source)
    request = source_request(
        access,
        "GET",
        f"tags/list?n={MAX_TAGS}",
        operation="tags",
        what=f"the tags of {reference.name}",
        limit=MANIFEST_LIMIT,
        headers={"Accept": "application/json", "Accept-Encoding": "identity"},
    )
    response = await connection.authorization.fetch(request, access, connection.context())
    if response.status != 200:
        if is_error_page(response):
            raise not_as_asked(request, response, "a list of tags", access.secrets)
        raise of_status(source.host, request.what, response.status, read_errors(response.body, access.secrets))
    try:
        found = decode(response.body, _Tags, "the list of tags").tags or []
    except ContentError:
        raise not_as_asked(request, response, "a list of tags", access.secrets) from None
    return tuple(found)


class _Tags(msgspec.Struct):
    tags: list[str] | None
