"""Collects the children of a new index from its sources.

A source is an image or an index, in a registry or a layout directory. An index contributes its runnable entries, nested
ones too, never itself; an image contributes itself with its config's platform. Every child's manifest is read, so that
sizes are correct and a missing child is found before anything is written."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from polyarch.oci.concurrency import map_concurrently
from polyarch.oci.documents import ContentError, classify
from polyarch.oci.image.contents import (
    IndexNode,
    IndexTree,
    OpenedImage,
    RegistryConnection,
    RepositoryContents,
    read_platform,
    read_tree,
)
from polyarch.oci.inspection import Entry
from polyarch.oci.reference import check_digest
from polyarch.oci.traffic.failures import Failure
from polyarch.oci.write.assembly import SUBJECT, Attestations, Child, InvalidIndex, RequestedPlatform, SourceImage
from polyarch.platforms import Platform

AT_ONCE = 8


@dataclass(frozen=True, slots=True)
class ChildContent:
    """A child, its manifest, and access to its blobs."""

    child: Child
    contents: RepositoryContents
    manifest: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class CollectedChildren:
    """The children of all sources; ``missing`` sources were skipped."""

    pieces: tuple[ChildContent, ...]
    missing: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SourceChildren:
    """The children of one source. ``digest`` and ``annotations`` are those of the source's manifest."""

    pieces: tuple[ChildContent, ...]
    digest: str
    annotations: Mapping[str, str] = field(default_factory=dict)


class ChildCollector:
    """Reads sources. Methods raise :class:`InvalidIndex` for a source that an index cannot contain, else ``Failure``.

    ``only`` are the platforms to take (all if empty); ``notice`` receives messages about omitted ones.
    """

    def __init__(
        self,
        connection: RegistryConnection,
        *,
        attestations: Attestations = "drop",
        only: Sequence[RequestedPlatform] = (),
        ignore_missing: bool = False,
        notice: Callable[[str], None] = lambda text: None,
    ) -> None:
        self._connection = connection
        self._keep = attestations == "keep"
        self._only = only
        self._ignore_missing = ignore_missing
        self._notice = notice

    async def gather(self, sources: Iterable[SourceImage]) -> CollectedChildren:
        """The children of all sources, in order."""
        given = list(sources)
        found = await map_concurrently(self._present, given, at_once=AT_ONCE)
        return CollectedChildren(
            tuple(piece for each in found if each is not None for piece in each.pieces),
            tuple(source.reference.canonical for source, each in zip(given, found, strict=True) if each is None),
        )

    async def read(self, source: SourceImage) -> SourceChildren:
        """The children of one source; ``Failure`` ``not-found`` if it does not exist."""
        return await self.read_opened(source, await self._connection.open(source.reference))

    async def read_opened(self, source: SourceImage, opened: OpenedImage) -> SourceChildren:
        """The children of a source that is open already, for callers that choose the place to read it from."""
        contents, manifest = opened
        name = source.reference.canonical
        try:
            document = classify(manifest.body)
            if document.type == "index":
                tree = await read_tree(contents, manifest)
                return SourceChildren(await self._entries(source, contents, tree), manifest.digest, tree.annotations)
            config = await read_platform(contents, document)
        except ContentError as error:
            raise Failure.of(error.code, contents.name, f"{name}: {error.message}") from None
        platform = config.platform if config is not None else None
        if source.wanted is not None:
            platform = source.wanted.platform if platform is None else source.wanted.refine(platform, name)
        if platform is not None and not self._takes(platform):
            self._notice(f"{name} is left out: --platform does not name {platform}")
            return SourceChildren((), manifest.digest)
        child = Child(document.media_type, manifest.digest, len(manifest.body), platform, name)
        return SourceChildren((ChildContent(child, contents, manifest.body),), manifest.digest)

    async def _present(self, source: SourceImage) -> SourceChildren | None:
        """None for a missing source, if that is allowed."""
        try:
            return await self.read(source)
        except Failure as failure:
            if failure.error.code != "not-found":
                raise
            message = failure.error.message
            if not self._ignore_missing:
                raise InvalidIndex(f"a source is missing: {message} (--ignore-missing goes on without it)") from None
            self._notice(f"{source.reference} is left out: {message}")
            return None

    def _takes(self, platform: Platform) -> bool:
        return not self._only or any(each.matches(platform) for each in self._only)

    # -- an index ------------------------------------------------------------------------------------------------------

    async def _entries(
        self, source: SourceImage, contents: RepositoryContents, tree: IndexTree
    ) -> tuple[ChildContent, ...]:
        if tree.flat.error is not None:
            raise Failure(tree.flat.error)
        name = source.reference.canonical
        for warning in tree.flat.warnings:
            self._notice(f"{name}: {warning.message}")
        entries = [each for each in _selected(tree.flat.entries, source) if self._takes(each.platform)]
        annotations: dict[str, dict[str, str]] = {}
        for node in tree.walk():
            annotations.setdefault(node.entry.digest, node.annotations)

        async def entry(each: Entry) -> ChildContent | None:
            return await self._entry(each, contents, name, annotations[each.digest])

        async def attestation(each: IndexNode) -> ChildContent:
            return await self._attestation(each, contents, name)

        found = await map_concurrently(entry, entries, at_once=AT_ONCE)
        pieces = [each for each in found if each is not None]
        there = {each.digest for each in entries}
        attestations = [
            node
            for node in tree.walk()
            # With PLATFORM= keep only the attestations of the selected entry.
            if node.is_attestation and (source.wanted is None or node.annotations.get(SUBJECT) in there)
        ]
        return (*pieces, *await map_concurrently(attestation, attestations, at_once=AT_ONCE))

    async def _entry(
        self, entry: Entry, contents: RepositoryContents, name: str, annotations: Mapping[str, str]
    ) -> ChildContent | None:
        try:
            manifest = await contents.manifest(entry.digest)
        except Failure as failure:
            if failure.error.code != "not-found":
                raise
            problem = f"{entry.platform} of {name} is missing: {failure.error.message}"
            if not self._ignore_missing:
                raise InvalidIndex(f"{problem} (--ignore-missing goes on without it)") from None
            self._notice(problem)
            return None
        media_type = classify(manifest.body).media_type
        child = Child(media_type, entry.digest, len(manifest.body), entry.platform, name, annotations)
        return ChildContent(child, contents, manifest.body)

    async def _attestation(self, node: IndexNode, contents: RepositoryContents, name: str) -> ChildContent:
        """Its manifest is read only if it is to be kept."""
        raw, digest = node.raw, node.entry.digest
        subject = node.annotations.get(SUBJECT, "")
        media_type, size = str(raw.get("mediaType") or ""), raw.get("size")
        child = Child(
            media_type, digest, size if isinstance(size, int) else 0, None, name, node.annotations, subject, raw
        )
        if not self._keep or check_digest(digest) is not None:
            return ChildContent(child, contents, b"")
        manifest = await contents.manifest(digest)
        media_type = classify(manifest.body).media_type
        child = msgspec.structs.replace(child, media_type=media_type, size=len(manifest.body))
        return ChildContent(child, contents, manifest.body)


def _selected(entries: Sequence[Entry], source: SourceImage) -> Sequence[Entry]:
    """The entry for ``PLATFORM=``; all entries without it."""
    wanted, name = source.wanted, source.reference.canonical
    if wanted is None:
        return entries
    found = [each for each in entries if wanted.matches(each.platform)]
    exact = [each for each in found if each.platform == wanted.platform]
    if not found:
        there = ", ".join(str(each.platform) for each in entries) or "none that runs"
        raise InvalidIndex(f"{name} has no entry for {wanted.text}: it has {there}")
    chosen = found if len(found) == 1 else exact
    if len({each.platform for each in chosen}) != 1:
        there = ", ".join(str(each.platform) for each in found)
        raise InvalidIndex(f"{name} has several entries for {wanted.text}: {there}; name one of them")
    return chosen
