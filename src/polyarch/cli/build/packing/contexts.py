"""``--context``: where the files of a build come from, and the push of a local folder (BD-300).

A folder becomes an image of one layer in the build's own repository, so that build pods fetch it as they fetch base
images. Its digest is what the build refers to; equal files are not sent again.
"""

import os
import re
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from pathlib import Path
from typing import IO, Any, Final, NamedTuple

import msgspec

from polyarch.cli.build.composition import USUAL_FILES
from polyarch.cli.build.packing.archive import (
    IGNORE_FILES,
    OWN_IGNORE_FILES,
    IgnoreRules,
    Packed,
    ignore_rules,
    own_ignore_files,
    pack,
)
from polyarch.cli.errors import CouldNotComplete, UsageError
from polyarch.cli.options.registries import RegistryOptions
from polyarch.oci.documents import OCI_MANIFEST, digest_of
from polyarch.oci.image.contents import Connection
from polyarch.oci.opening import Wiring, open_inspector
from polyarch.oci.reference import InvalidReference, Reference, parse
from polyarch.oci.settings import InspectorSettings
from polyarch.oci.traffic.exchange import Stream
from polyarch.oci.traffic.failures import Failure
from polyarch.oci.write.push import open_destination
from polyarch.oci.write.upload import Writer

CONFIG: Final = "application/vnd.oci.image.config.v1+json"
LAYER: Final = "application/vnd.oci.image.layer.v1.tar+gzip"
IN_MEMORY: Final = 8 * 1024**2
CHUNK: Final = 256 * 1024
TAG_DIGITS: Final = 12
_COMMIT: Final = re.compile(r"[0-9a-fA-F]{40}|[0-9a-fA-F]{64}")


class Context(NamedTuple):
    """``source.context`` as the command line says it; ``folder`` is still to be pushed."""

    document: dict[str, Any] | None
    folder: Path | None = None


def read(text: str) -> Context:
    """What ``--context`` means. UsageError says what it can be."""
    kind, colon, rest = text.partition(":")
    if colon and kind == "git":
        url, at, commit = rest.rpartition("@")
        commit, _, directory = commit.partition("#")
        if not at or not _COMMIT.fullmatch(commit):
            raise UsageError(
                f"--context {text}: expected git:URL@COMMIT with a full commit id, or git:URL@COMMIT#DIRECTORY; "
                "`git rev-parse HEAD` prints it"
            )
        git = {"url": url, "commit": commit, **({"directory": directory} if directory else {})}
        return Context({"type": "Git", "git": git})
    if colon and kind == "image":
        return Context({"type": "Image", "image": {"reference": rest}})
    folder = Path(text)
    if not folder.is_dir():
        raise UsageError(f"--context {text}: no such folder; expected a folder, git:URL@COMMIT or image:REF@DIGEST")
    return Context(None, folder)


def rules_for(folder: Path, named: Iterable[str], unnamed: Sequence[str | None], *, had_own: str = "") -> IgnoreRules:
    """What is left out of the folder for these Containerfiles: ``named`` are paths, ``unnamed`` the texts of those
    whose path is not known, ``had_own`` is the ignore file that one of these had when it was named. UsageError if one
    of these may have an ignore file that cannot be found, and if two differ: there is one context for all."""
    files: list[str | None] = list(named)
    owners = own_ignore_files(folder) if unnamed else []
    known = dict.fromkeys((*(str(folder / name) for name in USUAL_FILES), *owners))
    for text in unnamed:
        same = [path for path in known if text is not None and _has(path, text)]
        if not same and (owners or had_own):
            whose = f"{owners[0]} has" if owners else f"the Containerfile that was named before has, {had_own}:"
            raise UsageError(
                f"--context {folder}: {whose} an ignore file of its own, which may be the one that counts; name what "
                "is built with --containerfile PATH, or --override ARCHITECTURE=PATH"
            )
        files += same or [None]
    found = [ignore_rules(folder, each) for each in files]
    for other in found:
        if other.patterns != found[0].patterns:
            raise UsageError(
                f"--context {folder}: {found[0]}, but {other}: all architectures are built from the same files; give "
                "both the same patterns, or remove one of them"
            )
    return found[0]


def own_ignore_file(rules: IgnoreRules) -> str:
    """The name of the ignore file if it belongs to a Containerfile alone."""
    return rules.file.name if rules.file is not None and rules.file.name not in IGNORE_FILES else ""


def has_own_ignore_file(containerfile: str) -> bool:
    """Whether an ignore file lies beside it that is for it alone."""
    return any(os.path.lexists(containerfile + suffix) for suffix in OWN_IGNORE_FILES)


def _has(path: str, text: str) -> bool:
    try:
        return Path(path).read_bytes() == text.encode()
    except OSError:
        return False


async def pushed(
    folder: Path, rules: IgnoreRules, repository: str, options: RegistryOptions, tell: Callable[[str], None]
) -> dict[str, Any]:
    """``source.context`` of the folder, which is in the repository when this returns. Raises CommandError."""
    try:
        target = parse(repository)
    except InvalidReference as error:
        raise UsageError(f"--repository {repository}: {error.problem}") from None
    with tempfile.SpooledTemporaryFile(IN_MEMORY) as layer:
        packed = pack(folder, layer, rules)
        try:
            digest, sent = await _on_registry(options, lambda connection: _push(connection, target, packed, layer))
        except Failure as failure:
            raise CouldNotComplete(f"--context {folder}: pushing it to {repository}: {failure.error.message}") from None
    size = f"{packed.files} files, {packed.size / 1024:.0f} KiB, {rules}"
    tell(f"context {folder}: {size}, {'pushed' if sent else 'there already'}")
    return {"type": "Image", "image": {"reference": f"{target.name}@{digest}"}}


async def _on_registry(
    options: RegistryOptions, work: Callable[[Connection], Awaitable[tuple[str, bool]]]
) -> tuple[str, bool]:
    settings = InspectorSettings(timeout=options.timeout, max_wait=options.max_wait)
    wiring = Wiring(settings=settings, configuration=options.configuration(), trust=options.trust())
    async with open_inspector(wiring, credentials=options.credentials()) as inspector:
        return await work(inspector.connection)


async def _push(connection: Connection, target: Reference, packed: Packed, layer: IO[bytes]) -> tuple[str, bool]:
    """The manifest's digest, and whether anything was sent."""
    config = msgspec.json.encode(
        {
            "architecture": "amd64",
            "os": "linux",
            "config": {},
            "rootfs": {"type": "layers", "diff_ids": [packed.diff_id]},
        }
    )
    manifest = msgspec.json.encode(
        {
            "schemaVersion": 2,
            "mediaType": OCI_MANIFEST,
            "config": {"mediaType": CONFIG, "digest": digest_of(config), "size": len(config)},
            "layers": [{"mediaType": LAYER, "digest": packed.digest, "size": packed.size}],
        }
    )
    digest = digest_of(manifest)
    writer = await open_destination(connection, target)
    if await writer.digest_of(digest) == digest:
        return digest, False
    await _send(writer, packed.digest, Stream(_chunks(layer), packed.size))
    await _send(writer, digest_of(config), Stream(_once(config), len(config)))
    tag = f"context-{digest.removeprefix('sha256:')[:TAG_DIGITS]}"
    await writer.put_manifest(digest, manifest, OCI_MANIFEST, digest)
    await writer.put_manifest(tag, manifest, OCI_MANIFEST, digest)
    return digest, True


async def _send(writer: Writer, digest: str, content: Stream) -> None:
    if not await writer.has_blob(digest):
        await writer.send(await writer.begin(), digest, content)


async def _chunks(file: IO[bytes]) -> AsyncIterator[bytes]:
    file.seek(0)
    while chunk := file.read(CHUNK):
        yield chunk


async def _once(content: bytes) -> AsyncIterator[bytes]:
    yield content
