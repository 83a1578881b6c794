"""Reads an image from its manifest down, with as few requests as possible.

An index is usually enough by itself. Fetched in addition, concurrently where possible: inner indexes, children without
a platform, and the single image of an index that may be an operator bundle. ``documents`` and
``parsing`` interpret the documents; this module only fetches them."""

import asyncio
from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from polyarch.oci.auth.authorization import SourceCredentials
from polyarch.oci.cache import BundleMode, ImageReading
from polyarch.oci.documents import DOCUMENT_TYPES, ContentError, Document, classify
from polyarch.oci.image.client import ContentStore, FetchedManifest
from polyarch.oci.image.parsing import (
    Artifact,
    ConfigReading,
    Finding,
    IndexEntry,
    IndexReading,
    flatten,
    read_config_of,
    read_index,
    read_manifest,
    read_schema1,
    wanted,
)
from polyarch.oci.inspection import Entry, InspectionError, Status
from polyarch.oci.traffic.exchange import RequestContext
from polyarch.oci.traffic.failures import PASSING, Failure

ARTIFACT = "artifact"


class ImageReadResult(NamedTuple):
    """A reading; not ``complete`` if a child could not be read: then it holds for this place, and for a while."""

    reading: ImageReading
    complete: bool = True


class ImageReader:
    """Reads everything below one manifest, with the manifest's access."""

    def __init__(self, store: ContentStore, access: SourceCredentials, context: RequestContext) -> None:
        self._store = store
        self._access = access
        self._context = context

    async def read(self, fetched: FetchedManifest, *, mode: BundleMode) -> ImageReadResult:
        """The reading of a manifest. Raises ``ContentError`` or ``Failure`` if there is none."""
        document = classify(fetched.body)
        header = fetched.content_type.partition(";")[0].strip().lower()
        if DOCUMENT_TYPES.get(header, document.type) != document.type:
            what = f"the registry says {header}, the document is {document.media_type}; the document counts"
            self._context.warn("content-type-mismatch", what)
        if document.type == "index":
            return await self._read_index(document, fetched.digest, mode=mode)
        size = len(fetched.body)
        found = await self.read_image(document)
        if isinstance(found, Artifact):
            reading = ImageReading(
                digest=fetched.digest,
                kind="artifact",
                media_type=document.media_type,
                status=Status.NEUTRAL,
                neutral_reason=ARTIFACT,
                bundle=False,
            )
            return ImageReadResult(reading)
        return ImageReadResult(_of_config(found, fetched.digest, document, size))

    async def read_tree(self, document: Document, digest: str) -> tuple[IndexReading, dict[str, Finding]]:
        """The index, and everything below it that is needed for its platforms, by digest."""
        top = read_index(document)
        found: dict[str, Finding] = {digest: top}
        while missing := wanted(top, found):
            found.update(await self._read_children(missing))
        return top, found

    async def look_for_bundle(self, reading: ImageReading) -> ImageReading:
        """The reading with the bundle labels of its first image; unchanged if these cannot be read."""
        entry = reading.entries[0]
        unread = IndexEntry("runnable", entry.digest, size=entry.size, platform=entry.platform)
        return _with_bundle(reading, await self._read_child(unread))

    async def _read_index(self, document: Document, digest: str, *, mode: BundleMode) -> ImageReadResult:
        top, found = await self.read_tree(document, digest)
        flat = flatten(top, found)
        if flat.error is not None:
            raise Failure(flat.error)
        reading = ImageReading(
            digest=digest,
            kind="index",
            media_type=document.media_type,
            status=Status.RESOLVED,
            entries=flat.entries,
            skipped=flat.skipped,
            warnings=flat.warnings,
        )
        for finding in found.values():
            if isinstance(finding, InspectionError) and _passes(finding):
                raise Failure(finding)
        complete = all(warning.code != "child-unresolved" for warning in flat.warnings)
        if not reading.settles(mode):
            first = reading.entries[0].digest
            child = found.get(first) or await self._read_child(_entry_of(first, top, found))
            reading = _with_bundle(reading, child)
        return ImageReadResult(reading, complete)

    async def _read_children(self, entries: Iterable[IndexEntry]) -> dict[str, Finding]:
        async with asyncio.TaskGroup() as group:
            tasks = {
                entry.digest: group.create_task(self._read_child(entry), name="child of an index") for entry in entries
            }
        return {digest: task.result() for digest, task in tasks.items()}

    async def _read_child(self, entry: IndexEntry) -> Finding:
        """The content of a child; an error is returned, not raised: one bad entry never fails an image."""
        try:
            body = entry.data
            if body is None:
                fetched = await self._store.get_manifest(self._access, entry.digest, self._context)
                if fetched is None:
                    raise AssertionError("304 without If-None-Match")
                body = fetched.body
            document = classify(body)
            if document.type == "index":
                return read_index(document)
            return await self.read_image(document)
        except ContentError as error:
            return error.error(self._access.source.host)
        except Failure as failure:
            return failure.error

    async def read_image(self, document: Document) -> ConfigReading | Artifact:
        """What a single image says of its platform. Raises ``ContentError`` and ``Failure``."""
        if document.type == "schema1":
            return read_schema1(document)
        manifest = read_manifest(document)
        config = manifest.config
        if config is None:
            return Artifact(manifest.artifact_type)
        body = config.data
        if body is None:
            body = await self._store.get_blob(self._access, config.digest, self._context)
        return read_config_of(manifest, body)


def _passes(error: InspectionError) -> bool:
    """Whether a child will be there when the image is asked for again. One with other bytes than its digest's is lost
    until somebody repairs the registry, so its image can do without.
    """
    return error.error_class in PASSING and error.code != "digest-mismatch"


def _of_config(config: ConfigReading, digest: str, document: Document, size: int) -> ImageReading:
    """The reading of a single image: one platform, or unknown."""
    entries = (Entry(config.platform, digest, size, config.stated),) if config.platform is not None else ()
    return ImageReading(
        digest=digest,
        kind="schema1" if document.type == "schema1" else "image",
        media_type=document.media_type,
        status=Status.RESOLVED if entries else Status.UNKNOWN,
        entries=entries,
        warnings=config.warnings,
        bundle=config.is_bundle,
    )


def _with_bundle(reading: ImageReading, child: Finding) -> ImageReading:
    if isinstance(child, ConfigReading):
        return msgspec.structs.replace(reading, bundle=child.is_bundle)
    if isinstance(child, Artifact):
        return msgspec.structs.replace(reading, bundle=False)
    return reading


def _entry_of(digest: str, top: IndexReading, found: dict[str, Finding]) -> IndexEntry:
    """The descriptor of a child, which may carry the child's content."""
    indexes = [top, *(each for each in found.values() if isinstance(each, IndexReading))]
    return next(entry for index in indexes for entry in index.entries if entry.digest == digest)
