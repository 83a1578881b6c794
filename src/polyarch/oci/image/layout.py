"""OCI layout directories, read like a registry.

Builders write ``oci-layout``, ``index.json`` and ``blobs/`` without a registry. The content is as untrusted as a
registry's: every blob is verified against its digest, every read has a limit, and links that leave the directory are
refused."""

import asyncio
import hashlib
import os
import stat
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from polyarch.oci.auth.authorization import SourceCredentials
from polyarch.oci.auth.credentials import ANONYMOUS
from polyarch.oci.cache import BundleMode
from polyarch.oci.documents import CONFIG_LIMIT, MANIFEST_LIMIT, ContentError, check_body, decode, digest_of
from polyarch.oci.image.client import FetchedManifest
from polyarch.oci.image.reader import ImageReader
from polyarch.oci.inspection import Inspection, InspectionError, Status
from polyarch.oci.pull_sources import PullSource
from polyarch.oci.reference import Reference, check_digest
from polyarch.oci.traffic.exchange import Receive, RequestContext
from polyarch.oci.traffic.failures import Failure

REF_NAME = "org.opencontainers.image.ref.name"
CONTAINERD_NAME = "io.containerd.image.name"
VERSION_LIMIT = 4096
CHUNK = 256 * 1024
_SHOWN_TAGS = 20


class ImageLayout:
    """One directory, with the interface of a registry client, so that readers need not distinguish them.

    Raises ``Failure``: ``layout`` for an invalid directory, ``not-found`` for a missing blob, and codes of class
    content.
    """

    def __init__(self, path: str) -> None:
        self.name = f"oci:{path}"
        self._path = path
        self._root = Path(path)

    @classmethod
    def of(cls, reference: Reference) -> "ImageLayout":
        """The directory that an ``oci:`` reference means.

        Names of images in a layout may have ``/`` and ``:``, and so may directories: if what stands before the last
        colon is no layout, the directory ends at the first one before which there is a layout, as skopeo reads it.
        """
        path = reference.repository
        if not (Path(path) / "oci-layout").exists():
            ends = (at for at, character in enumerate(path) if character == ":" and at)
            path = next((path[:end] for end in ends if (Path(path[:end]) / "oci-layout").exists()), path)
        return cls(path)

    def _name_of(self, reference: Reference) -> str | None:
        """What the image is called in this directory; None if the reference does not say."""
        path, tag = reference.repository, reference.tag
        rest = path[len(self._path) + 1 :]
        return ":".join(part for part in (rest, tag) if part) or None

    @property
    def access(self) -> SourceCredentials:
        """``SourceCredentials`` for the interface; it is not used."""
        source = PullSource(base_url="", host="", repository=str(self._root), origin=self.name)
        return SourceCredentials(source, [ANONYMOUS])

    async def inspect(self, reference: Reference, context: RequestContext, *, mode: BundleMode) -> Inspection:
        """The answer for an image in the directory. Never raises for a faulty image."""
        try:
            digest = await self.resolve(reference)
            manifest = await self.get_manifest(self.access, digest, context)
            read = await ImageReader(self, self.access, context).read(manifest, mode=mode)
        except ContentError as error:
            found = InspectionError.of(error.code, f"{reference}: {error.message}")
        except Failure as failure:
            found = failure.about(reference.canonical)
        else:
            return read.reading.inspection(reference, mode=mode, source=None, warnings=tuple(context.warnings))
        return Inspection(reference, Status.ERROR, error=found)

    async def resolve(self, reference: Reference) -> str:
        """The digest of the reference: given, by tag, or of the only entry."""
        return await asyncio.to_thread(self._resolve, reference)

    async def get_manifest(
        self, access: SourceCredentials, selector: str, context: RequestContext, *, etag: str = ""
    ) -> FetchedManifest:
        """The manifest with this digest."""
        body = await asyncio.to_thread(self._read_blob, selector, "the manifest", MANIFEST_LIMIT)
        return FetchedManifest(body=body, digest=selector, content_type="")

    async def get_blob(
        self,
        access: SourceCredentials,
        digest: str,
        context: RequestContext,
        *,
        what: str = "the config",
        limit: int = CONFIG_LIMIT,
    ) -> bytes:
        """A small blob."""
        return await asyncio.to_thread(self._read_blob, digest, what, limit)

    async def stream_blob(
        self, access: SourceCredentials, digest: str, context: RequestContext, receive: Receive
    ) -> None:
        """Stream a blob of any size; raises at the end if the digest is wrong."""
        with await asyncio.to_thread(self._open, self._blob_path(digest), f"the blob {digest}") as file:
            await receive(self._chunks(file, digest))

    async def _chunks(self, file: BinaryIO, digest: str) -> AsyncIterator[bytes]:
        actual = hashlib.new(digest.partition(":")[0])
        while chunk := await asyncio.to_thread(file.read, CHUNK):
            actual.update(chunk)
            yield chunk
        if f"{actual.name}:{actual.hexdigest()}" != digest:
            raise self._damaged(digest, f"{actual.name}:{actual.hexdigest()}")

    # -- the folder, in threads ----------------------------------------------------------------------------------------

    def _resolve(self, reference: Reference) -> str:
        self._check_version()
        if reference.digest is not None:
            return reference.digest
        body = self._read(self._root / "index.json", "index.json", MANIFEST_LIMIT)
        try:
            entries = decode(body, _Index, "index.json").manifests
        except ContentError as error:
            raise self._failure(error.message, "write the layout again with a current tool") from None
        name = self._name_of(reference)
        found = [each for each in entries if name is None or name in each.names]
        digests = list(dict.fromkeys(each.digest for each in found))
        if len(digests) == 1:
            if problem := check_digest(digests[0]):
                raise self._failure(f"index.json has an unusable digest: {problem}", "write the layout again")
            return digests[0]
        tags = _listed(entries)
        if digests:
            which = "several images" if name is None else f"several images tagged {name}"
            raise self._failure(f"it has {which}: {tags}", f"name one, {self.name}:TAG or {self.name}@DIGEST")
        if not entries:
            raise self._failure("it has no image", "write one into it")
        raise self._failure(f"it has no image tagged {name}, but {tags}", "name one of these")

    def _check_version(self) -> None:
        body = self._read(self._root / "oci-layout", "oci-layout", VERSION_LIMIT)
        try:
            version = decode(body, _Version, "oci-layout").version
        except ContentError as error:
            raise self._failure(error.message, "write the layout again with a current tool") from None
        if version.partition(".")[0] != "1":
            raise self._failure(f"its version is {version[:40]!r}", "only version 1 of OCI layouts can be read")

    def _blob_path(self, digest: str) -> Path:
        if problem := check_digest(digest):
            raise self._failure(f"{digest[:200]!r} is no digest: {problem}", "write the layout again")
        algorithm, _, digits = digest.partition(":")
        return self._root / "blobs" / algorithm / digits

    def _read_blob(self, digest: str, what: str, limit: int) -> bytes:
        body = self._read(self._blob_path(digest), f"{what} {digest}", limit, code="not-found")
        try:
            check_body(body, digest)
        except ContentError:
            raise self._damaged(digest, digest_of(body, digest.partition(":")[0])) from None
        return body

    def _read(self, path: Path, what: str, limit: int, *, code: str = "layout") -> bytes:
        with self._open(path, what, code=code) as file:
            body = file.read(limit + 1)
            if len(body) > limit:
                size = os.fstat(file.fileno()).st_size
                message = f"{what} is too large: {size} bytes where at most {limit} bytes are read"
                raise Failure.of("too-large", self.name, message)
        return body

    def _open(self, path: Path, what: str, *, code: str = "not-found") -> BinaryIO:
        """Open a regular file inside the directory; links may lead only to other places in the directory."""
        try:
            root, real = self._root.resolve(strict=True), path.resolve(strict=True)
        except (FileNotFoundError, NotADirectoryError):
            where = path.relative_to(self._root)
            if code == "layout":
                raise self._failure(f"there is no {where} in it", "name an OCI layout directory") from None
            raise Failure.of(code, self.name, f"{what} is not there ({where})", action="copy it again") from None
        except (OSError, RuntimeError) as error:
            raise self._failure(f"{path} cannot be read: {_reason(error)}", "check its permissions") from None
        if not real.is_relative_to(root):
            raise self._failure(f"{path} leads to {real}, outside of the folder", "copy the file into the folder")
        try:
            file = open(os.open(real, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC), "rb")  # noqa: PTH123, SIM115
        except OSError as error:
            raise self._failure(f"{path} cannot be read: {_reason(error)}", "check its permissions") from None
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            file.close()
            raise self._failure(f"{path} is no file", "write the layout again")
        return file

    def _damaged(self, digest: str, actual: str) -> Failure:
        message = f"the blob {digest} has bytes that are {actual}"
        return self._failure(message, "write the layout again: it is damaged")

    def _failure(self, problem: str, action: str) -> Failure:
        return Failure.of("layout", self.name, problem, action=action)


class _Descriptor(msgspec.Struct):
    digest: str
    annotations: dict[str, Any] | None = None

    @property
    def tag(self) -> str | None:
        name = (self.annotations or {}).get(REF_NAME)
        return name if isinstance(name, str) else None

    @property
    def names(self) -> tuple[Any, ...]:
        """What the image may be called: its tag, or its whole name as ``docker save`` and ``ctr export`` keep it."""
        annotations = self.annotations or {}
        return annotations.get(REF_NAME), annotations.get(CONTAINERD_NAME)


class _Index(msgspec.Struct):
    manifests: list[_Descriptor]


class _Version(msgspec.Struct):
    version: str = msgspec.field(name="imageLayoutVersion")


def _listed(entries: Sequence[_Descriptor]) -> str:
    names = list(dict.fromkeys(each.tag or f"@{each.digest}" for each in entries))
    more = f" and {len(names) - _SHOWN_TAGS} more" if len(names) > _SHOWN_TAGS else ""
    return ", ".join(name[:200] for name in names[:_SHOWN_TAGS]) + more


def _reason(error: OSError | RuntimeError) -> str:
    return error.strerror or "" if isinstance(error, OSError) else "its links go in a circle"
