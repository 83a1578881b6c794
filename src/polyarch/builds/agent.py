"""The programs in build pods: ``polyarch run build-push``, ``build-index`` and ``build-prune``.

The termination message is the last thing that a program writes: whoever reads a message of success knows that
everything before it is done.
"""

import asyncio
import hashlib
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from polyarch.builds import names
from polyarch.builds.jobs import contract
from polyarch.builds.jobs.contract import PushMessage
from polyarch.builds.pruning import PrunableImage
from polyarch.builds.registry import (
    REFUSED_PUSHES,
    Publication,
    PublishFailure,
    PublishResult,
    delete_images,
    publish,
)
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
from polyarch.oci.image.contents import RegistryConnection
from polyarch.oci.image.layout import ImageLayout
from polyarch.oci.image.parsing import Artifact, Blob, read_blobs, read_config_of, read_manifest
from polyarch.oci.inspection import InspectionError
from polyarch.oci.reference import check_digest, parse_located
from polyarch.oci.traffic.failures import Failure
from polyarch.oci.write.assembly import AssembledIndex, Child
from polyarch.oci.write.children import ChildContent
from polyarch.oci.write.push import Push, PushFailed, open_destination
from polyarch.platforms import Platform

Message = contract.PushMessage | contract.IndexMessage | contract.PruneMessage | contract.FailureMessage
_TEXT_BYTES = 1024


class ProgramResult(msgspec.Struct, frozen=True):
    """The end of a program."""

    code: int
    message: Message

    @classmethod
    def failure(cls, code: int, message: str, reason: str = "") -> "ProgramResult":
        """The result of a failure: the reason, else that of its code, and as much of the text as a status holds."""
        reason = reason or contract.EXIT_REASONS.get(code, ("BuildFailed",))[0]
        text = message.encode(errors="replace")[:_TEXT_BYTES].decode(errors="ignore")
        return cls(code, contract.FailureMessage(reason=reason, message=text))


def of_registry(error: InspectionError) -> ProgramResult:
    """What a registry's refusal means: without rights another attempt is of no use, everything else may pass."""
    reason = REFUSED_PUSHES.get(error.code, "")
    refused = error.error_class == "auth" or error.code == "blocked" or reason
    return ProgramResult.failure(names.PUSH_DENIED if refused else contract.TRANSIENT, error.message, reason)


def write_message(path: Path, message: Message) -> None:
    """One line of JSON."""
    path.write_bytes(msgspec.json.encode(message) + b"\n")


# -- the layout that a build left --------------------------------------------------------------------------------------


_CHUNK = 1024 * 1024
_MAX_FILES = 4096


class UnusableLayout(Exception):  # noqa: N818 - it says what the layout is
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
    """The image, every byte of it checked. Raises :class:`UnusableLayout`."""
    try:
        return _check(root, architecture)
    except ContentError as error:
        raise UnusableLayout(error.message) from None
    except OSError as error:
        raise UnusableLayout(f"{error.filename or root}: {error.strerror}") from None


def _check(root: Path, architecture: str) -> CheckedLayout:
    _only_plain_files(root)
    if decode(_read(root / "oci-layout", 4096), _Version, "oci-layout").version.partition(".")[0] != "1":
        raise UnusableLayout("oci-layout names no version 1")
    named = _only_entry(root)
    body = _checked_blob(root, named.digest, named.size, limit=MANIFEST_LIMIT, what="the manifest")
    document = classify(body)
    if document.media_type not in (OCI_MANIFEST, DOCKER_SCHEMA2):
        raise UnusableLayout(f"the layout holds {document.media_type}, where the image of one architecture is expected")
    manifest = read_manifest(document)
    config = manifest.config
    if config is None:
        raise UnusableLayout("the layout holds an artifact, where an image is expected")
    blobs = read_blobs(document)
    for blob in blobs[1:]:
        _check_blob(root, blob)
    body_of_config = _checked_blob(root, config.digest, blobs[0].size, limit=CONFIG_LIMIT, what="the config")
    reading = read_config_of(manifest, body_of_config)
    if isinstance(reading, Artifact):
        raise UnusableLayout("the layout holds an artifact, where an image is expected")
    wanted = Platform.of("linux", architecture)
    if reading.platform is None or reading.platform.node != wanted.node:
        found = reading.platform or "of no architecture"
        raise UnusableLayout(
            f"the build made an image that is {found}, not linux/{architecture}; see what its last FROM pulls",
            code=names.WRONG_ARCHITECTURE,
        )
    return CheckedLayout(body, document.media_type, named.digest, config.digest, reading.platform)


def _only_plain_files(root: Path) -> None:
    """Folders and files with one name each: a link could lead to what this container may read and nobody else."""
    if not stat.S_ISDIR(os.lstat(root).st_mode):
        raise UnusableLayout(f"{root} is no folder")
    folders, count = [root], 0
    while folders:
        with os.scandir(folders.pop()) as entries:
            for entry in entries:
                count += 1
                if count > _MAX_FILES:
                    raise UnusableLayout(f"the layout has more than {_MAX_FILES} files")
                status = entry.stat(follow_symlinks=False)
                if stat.S_ISDIR(status.st_mode):
                    folders.append(Path(entry.path))
                elif not stat.S_ISREG(status.st_mode) or status.st_nlink != 1:
                    raise UnusableLayout(f"{Path(entry.path).relative_to(root)} is no plain file")


def _only_entry(root: Path) -> "_Descriptor":
    entries = decode(_read(root / "index.json", MANIFEST_LIMIT), _Index, "index.json").manifests
    if len(entries) != 1:
        raise UnusableLayout(f"the layout has {len(entries)} images, where one is expected")
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
        raise UnusableLayout(f"the blob {blob.digest} has {size} bytes that are {algorithm}:{actual.hexdigest()}")


def _checked_blob(root: Path, digest: str, size: int, *, limit: int, what: str) -> bytes:
    body = _read(_blob_path(root, digest), limit)
    if len(body) != size:
        raise UnusableLayout(f"{what} {digest} has {len(body)} bytes, not {size}")
    check_body(body, digest)
    return body


def _blob_path(root: Path, digest: str) -> Path:
    if problem := check_digest(digest):
        raise UnusableLayout(f"{digest[:200]!r} is no digest: {problem}")
    algorithm, _, digits = digest.partition(":")
    return root / "blobs" / algorithm / digits


def _read(path: Path, limit: int) -> bytes:
    with _open(path) as file:
        body: bytes = file.read(limit + 1)
    if len(body) > limit:
        raise UnusableLayout(f"{path.name} has more than {limit} bytes")
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


# -- push of one architecture ------------------------------------------------------------------------------------------


class Upload(msgspec.Struct, frozen=True, kw_only=True):
    """What to push and where."""

    layout: Path
    architecture: str
    repository: str
    tag: str = ""
    """Empty: by digest only (``archTags: None``)."""


async def push_child(connection: RegistryConnection, upload: Upload, *, notice: Callable[[str], None]) -> ProgramResult:
    """Check the layout, push what the registry lacks, then the tag. What a registry refuses is an ending."""
    try:
        checked = await asyncio.to_thread(check_layout, upload.layout, upload.architecture)
    except UnusableLayout as unusable:
        return ProgramResult.failure(unusable.code, str(unusable))
    size = len(checked.manifest)
    child = Child(checked.media_type, checked.digest, size, checked.platform, upload.repository)
    piece = ChildContent(child, connection.within(ImageLayout(str(upload.layout))), checked.manifest)
    alone = AssembledIndex(checked.manifest, checked.media_type, checked.digest, (child,))
    try:
        writer = await open_destination(connection, parse_located(upload.repository))
        push = Push(connection, writer, alone, {child.digest: piece}, notice=notice)
        await push.go([upload.tag] if upload.tag else [])
    except PushFailed as failed:
        return of_registry(failed.error)
    except Failure as failure:
        return of_registry(failure.error)
    return ProgramResult(0, _pushed(checked))


def _pushed(checked: CheckedLayout) -> PushMessage:
    platform = checked.platform
    return PushMessage(
        digest=checked.digest,
        size=len(checked.manifest),
        media_type=checked.media_type,
        os=platform.os,
        architecture=platform.architecture,
        variant=platform.variant,
        config=checked.config,
    )


# -- work at registries ------------------------------------------------------------------------------------------------


_CODES = {"PushDenied": names.PUSH_DENIED, "ArchitectureMismatch": names.WRONG_ARCHITECTURE}


class PruneDocument(msgspec.Struct, frozen=True, kw_only=True):
    """``prune.json``."""

    images: tuple[PrunableImage, ...]


async def push_index(connection: RegistryConnection, publication: Publication) -> ProgramResult:
    """Verify the children, assemble, push, move the tags; children that are gone are named, and nothing is pushed."""
    found = await publish(connection, publication)
    if isinstance(found, PublishFailure):
        return _trouble(found)
    return ProgramResult(0, _published(found))


async def prune(connection: RegistryConnection, document: PruneDocument) -> ProgramResult:
    """Delete images; those that a registry does not delete are counted, those that it did not delete yet fail it."""
    try:
        found = await delete_images(connection, document.images)
    except Failure as failure:
        return of_registry(failure.error)
    if found.remaining:
        return ProgramResult.failure(contract.TRANSIENT, found.problem or f"{len(found.remaining)} images are left")
    return ProgramResult(0, contract.PruneMessage(deleted=len(found.done), kept=len(found.kept)))


def _published(found: PublishResult) -> contract.IndexMessage:
    only = found.children[0] if len(found.children) == 1 and found.children[0].digest == found.digest else None
    return contract.IndexMessage(
        digest=found.digest,
        size=found.size,
        media_type=found.media_type,
        os="linux" if only is not None else "",
        architecture=only.architecture if only is not None else "",
        variant=only.variant if only is not None else "",
    )


def _trouble(trouble: PublishFailure) -> ProgramResult:
    if trouble.missing:
        return ProgramResult(0, contract.IndexMessage(missing=trouble.missing))
    if trouble.passing:
        return ProgramResult(
            contract.TRANSIENT, contract.FailureMessage(reason=trouble.reason, message=trouble.message)
        )
    code = _CODES.get(trouble.reason, names.LAYOUT_INVALID)
    return ProgramResult(code, contract.FailureMessage(reason=trouble.reason, message=trouble.message))
