"""Checks the layout that a build left, before anything of it is sent (BD-148).

The container that wrote it ran the user's code, so it may hold anything: links to the files of this container, devices,
blobs that are not what they are called, an image of another architecture. Only plain files are opened, and every byte
that will be pushed is read once and compared with the digest and size under which it will be.
"""

import hashlib
import os
import stat
from pathlib import Path
from typing import Any

import msgspec

from polyarch.builds import names
from polyarch.oci.documents import (
    CONFIG_LIMIT,
    DOCKER_SCHEMA2,
    MANIFEST_LIMIT,
    OCI_MANIFEST,
    ContentError,
    check_body,
    classify,
    decode,
)
from polyarch.oci.image.parsing import Blob, read_blobs, read_config, read_manifest
from polyarch.oci.reference import check_digest
from polyarch.platforms import Platform

_CHUNK = 1024 * 1024
_MOST_FILES = 4096


class Unusable(Exception):  # noqa: N818 - it says what the layout is
    """The layout cannot be pushed; ``code`` is the exit code that says so."""

    def __init__(self, problem: str, *, code: int = names.LAYOUT_INVALID) -> None:
        super().__init__(problem)
        self.code = code


class CheckedLayout(msgspec.Struct, frozen=True):
    """The one image of a layout."""

    manifest: bytes
    media_type: str
    digest: str
    config: str
    """Digest of the config blob."""
    platform: Platform


def check_layout(root: Path, architecture: str) -> CheckedLayout:
    """The image, every byte of it checked. Raises :class:`Unusable`."""
    try:
        return _check(root, architecture)
    except ContentError as error:
        raise Unusable(error.message) from None
    except OSError as error:
        raise Unusable(f"{error.filename or root}: {error.strerror}") from None


def _check(root: Path, architecture: str) -> CheckedLayout:
    _only_plain_files(root)
    if decode(_read(root / "oci-layout", 4096), _Version, "oci-layout").version.partition(".")[0] != "1":
        raise Unusable("oci-layout names no version 1")
    named = _only_entry(root)
    body = _checked_blob(root, named.digest, named.size, limit=MANIFEST_LIMIT, what="the manifest")
    document = classify(body)
    if document.media_type not in (OCI_MANIFEST, DOCKER_SCHEMA2):
        raise Unusable(f"the layout holds {document.media_type}, where the image of one architecture is expected")
    config = read_manifest(document).config
    if config is None:
        raise Unusable("the layout holds an artifact, where an image is expected")
    blobs = read_blobs(document)
    for blob in blobs[1:]:
        _check_blob(root, blob)
    reading = read_config(_checked_blob(root, config.digest, blobs[0].size, limit=CONFIG_LIMIT, what="the config"))
    wanted = Platform.of("linux", architecture)
    if reading.platform is None or reading.platform.node != wanted.node:
        found = reading.platform or "of no architecture"
        raise Unusable(
            f"the build made an image that is {found}, not linux/{architecture}; see what its last FROM pulls",
            code=names.WRONG_ARCHITECTURE,
        )
    return CheckedLayout(body, document.media_type, named.digest, config.digest, reading.platform)


def _only_plain_files(root: Path) -> None:
    """Folders and files with one name each: a link could lead to what this container may read and nobody else."""
    if not stat.S_ISDIR(os.lstat(root).st_mode):
        raise Unusable(f"{root} is no folder")
    folders, count = [root], 0
    while folders:
        with os.scandir(folders.pop()) as entries:
            for entry in entries:
                count += 1
                if count > _MOST_FILES:
                    raise Unusable(f"the layout has more than {_MOST_FILES} files")
                status = entry.stat(follow_symlinks=False)
                if stat.S_ISDIR(status.st_mode):
                    folders.append(Path(entry.path))
                elif not stat.S_ISREG(status.st_mode) or status.st_nlink != 1:
                    raise Unusable(f"{Path(entry.path).relative_to(root)} is no plain file")


def _only_entry(root: Path) -> "_Descriptor":
    entries = decode(_read(root / "index.json", MANIFEST_LIMIT), _Index, "index.json").manifests
    if len(entries) != 1:
        raise Unusable(f"the layout has {len(entries)} images, where one is expected")
    return entries[0]


def _check_blob(root: Path, blob: Blob) -> None:
    path = _blob_path(root, blob.digest)
    if blob.urls and not path.exists():
        return  # hosted elsewhere, and not pushed
    algorithm = blob.digest.partition(":")[0]
    actual, size = hashlib.new(algorithm), 0
    with _open(path) as file:
        while chunk := os.read(file.fileno(), _CHUNK):
            actual.update(chunk)
            size += len(chunk)
    if size != blob.size or f"{algorithm}:{actual.hexdigest()}" != blob.digest:
        raise Unusable(f"the blob {blob.digest} has {size} bytes that are {algorithm}:{actual.hexdigest()}")


def _checked_blob(root: Path, digest: str, size: int, *, limit: int, what: str) -> bytes:
    body = _read(_blob_path(root, digest), limit)
    if len(body) != size:
        raise Unusable(f"{what} {digest} has {len(body)} bytes, not {size}")
    check_body(body, digest)
    return body


def _blob_path(root: Path, digest: str) -> Path:
    if problem := check_digest(digest):
        raise Unusable(f"{digest[:200]!r} is no digest: {problem}")
    algorithm, _, digits = digest.partition(":")
    return root / "blobs" / algorithm / digits


def _read(path: Path, limit: int) -> bytes:
    with _open(path) as file:
        body: bytes = file.read(limit + 1)
    if len(body) > limit:
        raise Unusable(f"{path.name} has more than {limit} bytes")
    return body


def _open(path: Path) -> Any:
    return os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb")


class _Descriptor(msgspec.Struct, rename="camel"):
    digest: str
    size: int
    media_type: str = ""


class _Index(msgspec.Struct):
    manifests: list[_Descriptor]


class _Version(msgspec.Struct):
    version: str = msgspec.field(name="imageLayoutVersion")
