"""Pushes an index and everything below it (RG-155).

Blobs are pushed first, then children, the index by digest, and last the tags, so that no tag ever names an incomplete
index. Each step first checks whether it is already done, so a second run is cheap and completes an interrupted one.
Blobs in the same registry are mounted; others are streamed from their source, a few at a time, and never stored.
"""

import random
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from typing import Literal

import msgspec

from polyarch.oci.concurrent import map_concurrently
from polyarch.oci.documents import ContentError, classify
from polyarch.oci.image.contents import Connection, Contents
from polyarch.oci.image.parsing import Blob, read_blobs
from polyarch.oci.mirrors import sources as mirrors
from polyarch.oci.reference import Reference
from polyarch.oci.traffic.exchange import LONGEST_DELAY, Stream
from polyarch.oci.traffic.failures import Failure
from polyarch.oci.write.assembly import Assembled
from polyarch.oci.write.gather import Piece
from polyarch.oci.write.upload import Session, Writer

COPIES = 3
"""Concurrent blob transfers of one push."""
CHILDREN = 8
PASSING = frozenset({"transient", "limit"})


class Pushed(msgspec.Struct, frozen=True):
    """The result of a push: ``copied`` are the digests of the children that were new."""

    changed: bool
    copied: frozenset[str] = frozenset()


class PushFailed(Exception):  # noqa: N818 - it says what happened
    """An incomplete push; ``done`` lists what was written, which a second run skips."""

    def __init__(self, failure: Failure, done: Sequence[str]) -> None:
        super().__init__(failure.error.message)
        self.error = failure.error
        self.done = tuple(done)


async def open_destination(connection: Connection, reference: Reference) -> Writer:
    """The repository to write to, regardless of mirrors. Raises ``Failure`` ``blocked``."""
    try:
        source = mirrors.destination(reference, connection.configuration)
    except mirrors.Blocked as error:
        raise Failure.of("blocked", "", str(error)) from None
    return Writer(connection, await connection.access(reference, source))


class Push:
    """One push. ``notice`` receives a message for each step done."""

    def __init__(
        self,
        connection: Connection,
        writer: Writer,
        assembled: Assembled,
        pieces: Mapping[str, Piece],
        *,
        notice: Callable[[str], None] = lambda text: None,
        uniform: Callable[[float, float], float] = random.uniform,
    ) -> None:
        if connection.settings.requests_per_host < 2:
            raise ValueError("a copy within one host needs two requests at a time: allow requests_per_host 2 or more")
        self._connection = connection
        self._writer = writer
        self._assembled = assembled
        self._pieces = [pieces[child.digest] for child in assembled.children]
        self._notice = notice
        self._uniform = uniform
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
            if all(digest == self._assembled.digest for digest in named):
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
        return Pushed(changed=True, copied=frozenset(copied))

    async def _named_by(self, tags: Sequence[str]) -> list[str]:
        return await map_concurrently(self._writer.digest_of, tags, at_once=CHILDREN)

    # -- children ------------------------------------------------------------------------------------------------------

    async def _write_children(self) -> list[str]:
        """Write missing children, blobs first; returns their digests."""
        pieces = list({piece.child.digest: piece for piece in self._pieces}.values())
        heads = await map_concurrently(
            self._writer.digest_of, [piece.child.digest for piece in pieces], at_once=CHILDREN
        )
        absent = [piece for piece, head in zip(pieces, heads, strict=True) if head != piece.child.digest]
        blobs: dict[str, tuple[Contents, Blob]] = {}
        for piece in absent:
            for blob in _blobs(piece):
                blobs.setdefault(blob.digest, (piece.contents, blob))
        await self._write_blobs(blobs.values())
        for piece in absent:
            child = piece.child
            await self._writer.put_manifest(child.digest, piece.manifest, child.media_type, child.digest)
            self._note(f"child {child.platform or 'attestation'} {child.digest}")
        return [piece.child.digest for piece in absent]

    async def _write_index(self) -> None:
        index = self._assembled
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
            await self._connection.clock.sleep(self._delay(attempt))
            attempt, named = attempt + 1, await self._writer.digest_of(selector)

    def _delay(self, attempt: int) -> float:
        return self._uniform(0.0, min(LONGEST_DELAY, 0.25 * 2.0**attempt))

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

    # -- blobs ---------------------------------------------------------------------------------------------------------

    async def _write_blobs(self, blobs: Iterable[tuple[Contents, Blob]]) -> None:
        async def one(each: tuple[Contents, Blob]) -> None:
            contents, blob = each
            how = await self._bring(contents, blob)
            if how is not None:
                self._note(f"blob {blob.digest} ({how})")

        await map_concurrently(one, blobs, at_once=min(COPIES, self._connection.settings.requests_per_host // 2))

    async def _bring(self, contents: Contents, blob: Blob) -> Literal["mounted", "copied"] | None:
        """How the blob was transferred; None if it existed. Transient errors restart the transfer, after the pause that
        the registry asks for, as long as all pauses together fit ``max_wait`` (RG-062).
        """
        settings = self._connection.settings
        attempt, paused = 0, 0.0
        while True:
            attempt += 1
            try:
                if await self._writer.has_blob(blob.digest):
                    return None
                async with self._connection.pacing.copying():
                    return await self._bring_once(contents, blob)
            except Failure as failure:
                pause = failure.error.retry_after or 0.0
                paused += pause
                passes = failure.error.error_class in PASSING and paused <= settings.max_wait
                if not passes or attempt >= settings.attempts:
                    raise
            await self._connection.clock.sleep(max(pause, self._delay(attempt)))

    async def _bring_once(self, contents: Contents, blob: Blob) -> Literal["mounted", "copied"]:
        source, session = contents.source, None
        if source.host == self._writer.host and source.repository != self._writer.repository:
            session = await self._writer.mount(blob.digest, source.repository)
            if session is None:
                return "mounted"
        await self._copy(contents, blob, session)
        return "copied"

    async def _copy(self, contents: Contents, blob: Blob, session: Session | None) -> None:
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


def _blobs(piece: Piece) -> list[Blob]:
    """The blobs to push before the manifest; those with ``urls`` are hosted elsewhere (RG-155)."""
    try:
        return [blob for blob in read_blobs(classify(piece.manifest, piece.child.media_type)) if not blob.urls]
    except ContentError as error:
        raise Failure.of(error.code, piece.contents.name, f"{piece.child.digest}: {error.message}") from None
