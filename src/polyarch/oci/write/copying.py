"""Brings the blobs of manifests to a repository: mounted within one registry, else streamed (RG-155).

A blob that is there already is left alone, so a copy that was cut off is completed by the next one. Streams pass
through in small pieces and are never stored, whatever the size of the blob.
"""

import random
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Literal

from polyarch.oci.concurrent import map_concurrently
from polyarch.oci.documents import ContentError, classify
from polyarch.oci.image.contents import Connection, Contents
from polyarch.oci.image.parsing import Blob, read_blobs
from polyarch.oci.traffic.exchange import LONGEST_DELAY, Stream
from polyarch.oci.traffic.failures import PASSING, Failure
from polyarch.oci.write.gather import Piece
from polyarch.oci.write.upload import Session, Writer

COPIES = 3
"""Concurrent blob transfers of one push."""


class BlobFailed(Failure):
    """A blob that could not be brought; ``digest`` says which, so that the image at fault can be found."""

    def __init__(self, failure: Failure, digest: str) -> None:
        super().__init__(failure.error)
        self.digest = digest


class Copying:
    """Copies into one repository. ``note`` receives each blob that was brought; methods raise ``Failure``."""

    def __init__(
        self,
        connection: Connection,
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

    async def bring_blobs(self, pieces: Iterable[Piece]) -> None:
        """All blobs of these manifests, each once; those with ``urls`` are hosted elsewhere (RG-155)."""
        blobs: dict[str, tuple[Contents, Blob]] = {}
        for piece in pieces:
            for blob in _blobs(piece):
                blobs.setdefault(blob.digest, (piece.contents, blob))

        async def one(each: tuple[Contents, Blob]) -> None:
            contents, blob = each
            how = await self._bring(contents, blob)
            if how is not None:
                self._note(f"blob {blob.digest} ({how})")

        at_once = min(COPIES, self._connection.settings.requests_per_host // 2)
        await map_concurrently(one, blobs.values(), at_once=at_once)

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
                    raise BlobFailed(failure, blob.digest) from None
            await self._connection.clock.sleep(max(pause, self.delay(attempt)))

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
    try:
        return [blob for blob in read_blobs(classify(piece.manifest)) if not blob.urls]
    except ContentError as error:
        raise Failure.of(error.code, piece.contents.name, f"{piece.child.digest}: {error.message}") from None
