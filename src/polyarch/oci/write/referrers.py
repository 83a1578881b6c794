"""Copies the signatures and SBOMs of an image along with it (BD-180).

An image keeps its digest when it is copied, so what refers to it stays valid; but nobody finds it where it is not. The
artifacts are copied before their image: a copy that was cut off finds the image absent and does both again. What
cannot be read is left behind with a notice, because an image without its signature is still an image; a registry that
is busy is not, and its ``Failure`` is raised.
"""

from collections.abc import Callable
from typing import Any

import msgspec

from polyarch.oci.documents import OCI_INDEX, ContentError, classify, digest_of
from polyarch.oci.image.contents import Connection, Contents
from polyarch.oci.image.listing import TAG_SUFFIXES, list_referrers, read_descriptors, referrers_tag
from polyarch.oci.image.parsing import read_index
from polyarch.oci.traffic.failures import PASSING, Failure
from polyarch.oci.write.assembly import Child
from polyarch.oci.write.copying import Copying
from polyarch.oci.write.gather import Piece
from polyarch.oci.write.upload import Writer

MOST = 64
"""Referrers of one image."""
DEEPEST = 3
"""Levels of indexes below one referrer."""


class Referrers:
    """Copies what refers to images; ``note`` receives what was written, ``notice`` what was left behind."""

    def __init__(
        self,
        connection: Connection,
        writer: Writer,
        copying: Copying,
        *,
        note: Callable[[str], None] = lambda text: None,
        notice: Callable[[str], None] = lambda text: None,
    ) -> None:
        self._connection = connection
        self._writer = writer
        self._copying = copying
        self._note = note
        self._notice = notice

    async def copy(self, contents: Contents, digest: str) -> None:
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

    async def _listed(self, contents: Contents, digest: str) -> None:
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

    async def _tagged(self, contents: Contents, tag: str) -> None:
        stated = await _head(self._connection, contents, tag)
        if stated and stated != await self._writer.digest_of(tag):
            await self._copy_manifest(contents, stated, tag=tag)

    async def _copy_manifest(self, contents: Contents, digest: str, *, tag: str = "", level: int = 1) -> bool:
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
            await self._copying.bring_blobs([Piece(child, contents, fetched.body)])
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


async def _present(contents: Contents, selector: str) -> Any:
    try:
        return await contents.manifest(selector)
    except Failure as failure:
        if failure.error.code == "not-found":
            return None
        raise


async def _head(connection: Connection, contents: Contents, tag: str) -> str:
    """What a tag names; ``""`` for nothing."""
    try:
        stated = await connection.client.head_manifest(contents.access, tag, connection.visit())
    except Failure as failure:
        if failure.error.code == "not-found":
            return ""
        raise
    if stated is not None:
        return stated.digest
    fetched = await _present(contents, tag)
    return fetched.digest if fetched is not None else ""
