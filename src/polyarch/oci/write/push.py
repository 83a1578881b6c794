"""Pushes an index and everything below it (RG-155).

Blobs are pushed first, then children, the index by digest, and last the tags, so that no tag ever names an incomplete
index. Each step first checks whether it is already done, so a second run is cheap and completes an interrupted one.
A single image is pushed like an index of which it is the only child.
"""

import random
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from polyarch.oci.concurrent import map_concurrently
from polyarch.oci.image.contents import Connection
from polyarch.oci.mirrors import sources as mirrors
from polyarch.oci.reference import Reference
from polyarch.oci.traffic.failures import Failure
from polyarch.oci.write.assembly import Assembled
from polyarch.oci.write.copying import BlobFailed, Copying
from polyarch.oci.write.gather import Piece
from polyarch.oci.write.referrers import Referrers
from polyarch.oci.write.upload import Writer

CHILDREN = 8


class Pushed(msgspec.Struct, frozen=True):
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


async def open_destination(connection: Connection, reference: Reference) -> Writer:
    """The repository to write to, regardless of mirrors. Raises ``Failure`` ``blocked``."""
    try:
        source = mirrors.destination(reference, connection.configuration)
    except mirrors.Blocked as error:
        raise Failure.of("blocked", "", str(error)) from None
    return Writer(connection, await connection.access(reference, source))


class Push:
    """One push. ``notice`` receives a message for each step done, and for what could not be copied.

    ``child_tags`` are tags to give to children that are copied here, by digest. A tag that fails for a moment is tried
    by the next push, like everything that cannot be repeated blindly (RG-061).
    """

    def __init__(
        self,
        connection: Connection,
        writer: Writer,
        assembled: Assembled,
        pieces: Mapping[str, Piece],
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
        self._copying = Copying(connection, writer, note=self._note, uniform=uniform)
        self._referrers = Referrers(connection, writer, self._copying, note=self._note, notice=notice)
        self._done: list[str] = []

    async def unchanged(self, tags: Iterable[str]) -> bool:
        """Whether every tag already names this index; nothing is written."""
        return all(digest == self._assembled.digest for digest in await self._named_by(list(tags)))

    async def go(self, tags: Sequence[str], *, begun_from: str | None = None) -> Pushed:
        """Write what is missing, then the tags in order. Raises :class:`PushFailed`.

        ``begun_from`` is the digest that the first tag named when the index was built from it, ``""`` for none. If the
        tag names another one by then, it is left alone: a concurrent change would be lost.
        """
        try:
            named = await self._named_by(tags)
            if tags and all(digest == self._assembled.digest for digest in named):
                return Pushed(changed=False)
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
        return Pushed(changed=bool(self._done), copied=frozenset(copied))

    async def _named_by(self, tags: Sequence[str]) -> list[str]:
        return await map_concurrently(self._writer.digest_of, tags, at_once=CHILDREN)

    # -- children ------------------------------------------------------------------------------------------------------

    async def _write_children(self) -> list[str]:
        """Write missing children, blobs and referrers first; returns their digests."""
        elsewhere = {piece.child.digest: piece for piece in self._pieces if not self._is_home(piece)}
        heads = await map_concurrently(self._writer.digest_of, elsewhere, at_once=CHILDREN)
        absent = [piece for piece, head in zip(elsewhere.values(), heads, strict=True) if head != piece.child.digest]
        await self._copying.bring_blobs(absent)
        for piece in absent:
            child = piece.child
            if not child.is_attestation:
                await self._referrers.copy(piece.contents, child.digest)
            await self._writer.put_manifest(child.digest, piece.manifest, child.media_type, child.digest)
            self._note(f"child {child.platform or 'attestation'} {child.digest}")
        for piece in elsewhere.values():
            await self._tag_child(piece)
        return [piece.child.digest for piece in absent]

    def _is_home(self, piece: Piece) -> bool:
        """Whether the child was read from the target itself, which therefore has it."""
        source = piece.contents.source
        return (source.base_url, source.path_prefix, source.repository, source.mirror) == (
            self._writer.source.base_url,
            self._writer.source.path_prefix,
            self._writer.repository,
            False,
        )

    async def _tag_child(self, piece: Piece) -> None:
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
            await self._connection.clock.sleep(self._copying.delay(attempt))
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
