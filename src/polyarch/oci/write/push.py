"""Pushes an index and everything below it.

Blobs are pushed first, then children, the index by digest, and last the tags, so that no tag ever names an incomplete
index. Each step first checks whether it is already done, so a second run is cheap and completes an interrupted one.
A single image is pushed like an index of which it is the only child."""

import random
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from typing import Any, Literal

import msgspec

from polyarch.oci.concurrency import map_concurrently
from polyarch.oci.documents import OCI_INDEX, ContentError, classify, digest_of
from polyarch.oci.image.contents import (
    TAG_SUFFIXES,
    RegistryConnection,
    RepositoryContents,
    list_referrers,
    read_descriptors,
    referrers_tag,
)
from polyarch.oci.image.parsing import Blob, read_blobs, read_index
from polyarch.oci.reference import Reference
from polyarch.oci.traffic.exchange import LONGEST_DELAY, Stream
from polyarch.oci.traffic.failures import PASSING, Failure
from polyarch.oci.write.assembly import AssembledIndex, Child
from polyarch.oci.write.children import ChildContent
from polyarch.oci.write.writer import Session, Writer

COPIES = 3
"""Concurrent blob transfers of one push."""


class BlobFailed(Failure):
    """A blob that could not be brought; ``digest`` says which, so that the image at fault can be found."""

    def __init__(self, failure: Failure, digest: str) -> None:
        super().__init__(failure.error)
        self.digest = digest


class BlobCopier:
    """Copies into one repository. ``note`` receives each blob that was brought; methods raise ``Failure``.

    A blob that is there already is left alone, so a copy that was cut off is completed by the next one. Streams pass
    through in small pieces and are never stored, whatever the size of the blob.
    """

    def __init__(
        self,
        connection: RegistryConnection,
        writer: Writer,
        *,
        note: Callable[[str], None] = lambda text: None,
        uniform: Callable[[float, float], float] = random.uniform,
    ) -> None:
        if connection.settings.requests_per_host < 2:
            raise ValueError("a copy within one host needs two requests at a time: allow requests_per_host 2 or more")
        self._connection = connection
        self._writer = writer
        self._note = note
        self._uniform = uniform

    def delay(self, attempt: int) -> float:
        """Seconds until the next attempt."""
        return self._uniform(0.0, min(LONGEST_DELAY, 0.25 * 2.0**attempt))

    async def copy_blobs(self, pieces: Iterable[ChildContent]) -> None:
        """All blobs of these manifests, each once; those with ``urls`` are hosted elsewhere."""
        blobs: dict[str, tuple[RepositoryContents, Blob]] = {}
        for piece in pieces:
            for blob in _blobs(piece):
                blobs.setdefault(blob.digest, (piece.contents, blob))

        async def one(each: tuple[RepositoryContents, Blob]) -> None:
            contents, blob = each
            how = await self._copy_blob(contents, blob)
            if how is not None:
                self._note(f"blob {blob.digest} ({how})")

        at_once = min(COPIES, self._connection.settings.requests_per_host // 2)
        await map_concurrently(one, blobs.values(), at_once=at_once)

    async def _copy_blob(self, contents: RepositoryContents, blob: Blob) -> Literal["mounted", "copied"] | None:
        """How the blob was transferred; None if it existed. Transient errors restart the transfer, after the pause that
        the registry asks for, as long as all pauses together fit ``max_wait``.
        """
        settings = self._connection.settings
        attempt, paused = 0, 0.0
        while True:
            attempt += 1
            try:
                if await self._writer.has_blob(blob.digest):
                    return None
                async with self._connection.rate_limiter.copying(self._connection.tenant):
                    return await self._copy_blob_once(contents, blob)
            except Failure as failure:
                pause = failure.error.retry_after or 0.0
                paused += pause
                passes = failure.error.error_class in PASSING and paused <= settings.max_wait
                if not passes or attempt >= settings.attempts:
                    raise BlobFailed(failure, blob.digest) from None
            await self._connection.clock.sleep(max(pause, self.delay(attempt)))

    async def _copy_blob_once(self, contents: RepositoryContents, blob: Blob) -> Literal["mounted", "copied"]:
        source, session = contents.source, None
        if source.host == self._writer.host and source.repository != self._writer.repository:
            session = await self._writer.mount(blob.digest, source.repository)
            if session is None:
                return "mounted"
        await self._copy(contents, blob, session)
        return "copied"

    async def _copy(self, contents: RepositoryContents, blob: Blob, session: Session | None) -> None:
        refused: list[Failure] = []

        async def receive(chunks: AsyncIterator[bytes]) -> None:
            nonlocal session
            stream = Stream(chunks, blob.size)
            try:
                place, session = session or await self._writer.begin(), None  # a session takes one attempt
                await self._writer.send(place, blob.digest, stream)
            except Failure as failure:
                if stream.error is not None:
                    raise stream.error from None
                refused.append(failure)

        await contents.stream(blob.digest, receive, self._connection.transfer())
        if refused:
            raise refused[-1]


def _blobs(piece: ChildContent) -> list[Blob]:
    try:
        return [blob for blob in read_blobs(classify(piece.manifest)) if not blob.urls]
    except ContentError as error:
        raise Failure.of(error.code, piece.contents.name, f"{piece.child.digest}: {error.message}") from None


# -- referrers: signatures and SBOMs of an image -----------------------------------------------------------------------


MOST = 64
"""Referrers of one image."""
DEEPEST = 3
"""Levels of indexes below one referrer."""


class ReferrerCopier:
    """Copies what refers to images; ``note`` receives what was written, ``notice`` what was left behind.

    An image keeps its digest when it is copied, so what refers to it stays valid; but nobody finds it where it is not.
    The artifacts are copied before their image: a copy that was cut off finds the image absent and does both again.
    What cannot be read is left behind with a notice, because an image without its signature is still an image; a
    registry that is busy is not, and its ``Failure`` is raised.
    """

    def __init__(
        self,
        connection: RegistryConnection,
        writer: Writer,
        blob_copier: BlobCopier,
        *,
        note: Callable[[str], None] = lambda text: None,
        notice: Callable[[str], None] = lambda text: None,
    ) -> None:
        self._connection = connection
        self._writer = writer
        self._blob_copier = blob_copier
        self._note = note
        self._notice = notice

    async def copy(self, contents: RepositoryContents, digest: str) -> None:
        """Everything that refers to this image where it comes from. Raises ``Failure`` of class transient or limit."""
        if not contents.source.host:
            return  # a layout directory lists none
        try:
            await self._listed(contents, digest)
            for suffix in TAG_SUFFIXES:
                await self._tagged(contents, f"{referrers_tag(digest)}{suffix}")
        except Failure as failure:
            if failure.error.error_class in PASSING:
                raise
            self._notice(f"signatures of {digest} are left behind: {failure.error.message}")

    async def _listed(self, contents: RepositoryContents, digest: str) -> None:
        tag = referrers_tag(digest)
        found = await list_referrers(self._connection, contents.access, digest)
        if found is None:
            manifest = await _present(contents, tag)
            found = read_descriptors(manifest.body, contents.name) if manifest is not None else []
        if len(found) > MOST:
            self._notice(f"{digest} has {len(found)} referrers, of which {MOST} are copied")
        unlisted = [each for each in found[:MOST] if not await self._copy_manifest(contents, each["digest"])]
        if unlisted:
            await self._list(tag, unlisted)

    async def _tagged(self, contents: RepositoryContents, tag: str) -> None:
        stated = await _head(self._connection, contents, tag)
        if stated and stated != await self._writer.digest_of(tag):
            await self._copy_manifest(contents, stated, tag=tag)

    async def _copy_manifest(self, contents: RepositoryContents, digest: str, *, tag: str = "", level: int = 1) -> bool:
        """Copy a manifest and all below it; returns whether the target lists it itself."""
        fetched = await contents.manifest(digest)
        try:
            document = classify(fetched.body)
            below = read_index(document).entries if document.type == "index" else ()
        except ContentError as error:
            raise Failure.of(error.code, contents.name, error.message) from None
        if below and level >= DEEPEST:
            raise Failure.of("too-complex", contents.name, f"{digest} is nested deeper than {DEEPEST} levels")
        for entry in below:
            await self._copy_manifest(contents, entry.digest, level=level + 1)
        if document.type != "index":
            child = Child(document.media_type, digest, len(fetched.body), None)
            await self._blob_copier.copy_blobs([ChildContent(child, contents, fetched.body)])
        listed = await self._writer.put_manifest(digest, fetched.body, document.media_type, digest)
        if tag:
            await self._writer.put_manifest(tag, fetched.body, document.media_type, digest)
        self._note(f"referrer {digest}")
        return listed

    async def _list(self, tag: str, descriptors: list[dict[str, Any]]) -> None:
        """Add them to the index under ``tag``, for registries that list none."""
        there = await _present(self._writer.contents, tag)
        listed = read_descriptors(there.body, self._writer.host) if there is not None else []
        by_digest = {each["digest"]: each for each in (*descriptors, *listed)}
        members = [by_digest[digest] for digest in sorted(by_digest)]
        body = msgspec.json.encode({"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": members})
        digest = digest_of(body)
        if there is None or there.digest != digest:
            await self._writer.put_manifest(tag, body, OCI_INDEX, digest)
            self._note(f"tag {tag}")


async def _present(contents: RepositoryContents, selector: str) -> Any:
    try:
        return await contents.manifest(selector)
    except Failure as failure:
        if failure.error.code == "not-found":
            return None
        raise


async def _head(connection: RegistryConnection, contents: RepositoryContents, tag: str) -> str:
    """What a tag names; ``""`` for nothing."""
    try:
        stated = await connection.client.head_manifest(contents.access, tag, connection.context())
    except Failure as failure:
        if failure.error.code == "not-found":
            return ""
        raise
    if stated is not None:
        return stated.digest
    fetched = await _present(contents, tag)
    return fetched.digest if fetched is not None else ""


# -- the push of an index ----------------------------------------------------------------------------------------------


CHILDREN = 8


class PushResult(msgspec.Struct, frozen=True):
    """The result of a push: ``copied`` are the digests of the children that were new."""

    changed: bool
    copied: frozenset[str] = frozenset()


class PushFailed(Exception):  # noqa: N818 - it says what happened
    """An incomplete push; ``done`` lists what was written, which a second run skips, and ``blob`` is the digest of the
    blob that could not be brought, if it was one.
    """

    def __init__(self, failure: Failure, done: Sequence[str]) -> None:
        super().__init__(failure.error.message)
        self.error = failure.error
        self.done = tuple(done)
        self.blob = failure.digest if isinstance(failure, BlobFailed) else ""


async def open_destination(connection: RegistryConnection, reference: Reference) -> Writer:
    """The repository to write to, regardless of mirrors. Raises ``Failure`` ``blocked``."""
    return Writer(connection, await connection.destination(reference))


class Push:
    """One push. ``notice`` receives a message for each step done, and for what could not be copied.

    ``child_tags`` are tags to give to children that are copied here, by digest. A tag that fails for a moment is tried
    by the next push, like everything that cannot be repeated blindly.
    """

    def __init__(
        self,
        connection: RegistryConnection,
        writer: Writer,
        assembled: AssembledIndex,
        pieces: Mapping[str, ChildContent],
        *,
        child_tags: Mapping[str, str] | None = None,
        notice: Callable[[str], None] = lambda text: None,
        uniform: Callable[[float, float], float] = random.uniform,
    ) -> None:
        self._connection = connection
        self._writer = writer
        self._assembled = assembled
        self._pieces = [pieces[child.digest] for child in assembled.children]
        self._child_tags = child_tags or {}
        self._notice = notice
        self._blob_copier = BlobCopier(connection, writer, note=self._note, uniform=uniform)
        self._referrers = ReferrerCopier(connection, writer, self._blob_copier, note=self._note, notice=notice)
        self._done: list[str] = []

    async def unchanged(self, tags: Iterable[str]) -> bool:
        """Whether every tag already names this index; nothing is written."""
        return all(digest == self._assembled.digest for digest in await self._named_by(list(tags)))

    async def go(self, tags: Sequence[str], *, begun_from: str | None = None) -> PushResult:
        """Write what is missing, then the tags in order. Raises :class:`PushFailed`.

        ``begun_from`` is the digest that the first tag named when the index was built from it, ``""`` for none. If the
        tag names another one by then, it is left alone: a concurrent change would be lost.
        """
        try:
            named = await self._named_by(tags)
            if tags and all(digest == self._assembled.digest for digest in named):
                return PushResult(changed=False)
            copied = await self._write_children()
            await self._write_index()
            if begun_from is not None:
                await self._check_not_moved(tags[0], begun_from)
            for tag, digest in zip(tags, named, strict=True):
                if digest != self._assembled.digest:
                    await self._put_index(tag)
                    await self._check_written(tag, f"tag {tag}")
                    self._note(f"tag {tag}")
        except Failure as failure:
            raise PushFailed(failure, self._done) from None
        return PushResult(changed=bool(self._done), copied=frozenset(copied))

    async def _named_by(self, tags: Sequence[str]) -> list[str]:
        return await map_concurrently(self._writer.digest_of, tags, at_once=CHILDREN)

    # -- children ------------------------------------------------------------------------------------------------------

    async def _write_children(self) -> list[str]:
        """Write missing children, blobs and referrers first; returns their digests."""
        elsewhere = {piece.child.digest: piece for piece in self._pieces if not self._is_home(piece)}
        heads = await map_concurrently(self._writer.digest_of, elsewhere, at_once=CHILDREN)
        absent = [piece for piece, head in zip(elsewhere.values(), heads, strict=True) if head != piece.child.digest]
        await self._blob_copier.copy_blobs(absent)
        for piece in absent:
            child = piece.child
            if not child.is_attestation:
                await self._referrers.copy(piece.contents, child.digest)
            await self._writer.put_manifest(child.digest, piece.manifest, child.media_type, child.digest)
            self._note(f"child {child.platform or 'attestation'} {child.digest}")
        for piece in elsewhere.values():
            await self._tag_child(piece)
        return [piece.child.digest for piece in absent]

    def _is_home(self, piece: ChildContent) -> bool:
        """Whether the child was read from the target itself, which therefore has it."""
        source = piece.contents.source
        return (source.base_url, source.path_prefix, source.repository, source.mirror) == (
            self._writer.source.base_url,
            self._writer.source.path_prefix,
            self._writer.repository,
            False,
        )

    async def _tag_child(self, piece: ChildContent) -> None:
        child, tag = piece.child, self._child_tags.get(piece.child.digest, "")
        if tag and await self._writer.digest_of(tag) != child.digest:
            await self._writer.put_manifest(tag, piece.manifest, child.media_type, child.digest)
            self._note(f"child tag {tag}")

    async def _write_index(self) -> None:
        index = self._assembled
        if index.digest in {child.digest for child in index.children}:
            return  # a single image, written as its own child
        if await self._writer.digest_of(index.digest) == index.digest:
            return
        await self._put_index(index.digest)
        await self._check_written(index.digest, f"the index {index.digest}")
        self._note(f"index {index.digest}")

    async def _check_written(self, selector: str, what: str) -> None:
        """Check that the registry returns what it accepted; some need a moment until all of their servers do."""
        attempt, named = 1, await self._writer.digest_of(selector)
        while named != self._assembled.digest:
            if attempt >= self._connection.settings.attempts:
                found = f"names {named or 'nothing'}" if ":" not in selector else "is not there"
                raise Failure.of("server-error", self._writer.host, f"{what} was accepted, but it {found}")
            await self._connection.clock.sleep(self._blob_copier.delay(attempt))
            attempt, named = attempt + 1, await self._writer.digest_of(selector)

    async def _check_not_moved(self, tag: str, begun_from: str) -> None:
        now = await self._writer.digest_of(tag)
        if now not in (begun_from, self._assembled.digest):
            what = f"{tag} named {begun_from or 'nothing'} when the index was made from it and names {now} now"
            raise Failure.of("server-error", self._writer.host, what, action="run the command again")

    async def _put_index(self, selector: str) -> None:
        index = self._assembled
        await self._writer.put_manifest(selector, index.body, index.media_type, index.digest)

    def _note(self, what: str) -> None:
        self._done.append(what)
        self._notice(what)
