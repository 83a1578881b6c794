"""The image that a build of the sandbox makes, and its OCI layout (BD-144).

The image is made of everything that its build was told, so that other inputs give another digest, and equal ones the
same. Nothing of a base image is in it.
"""

import hashlib
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

from polyarch.builds.jobs.contract import BuildDocument
from polyarch.platforms import Platform
from polyarch.sandbox.registry import images
from polyarch.sandbox.registry.images import Manifest

_READABLE: Final = 0o644
_ENTERABLE: Final = 0o755


def image(document: BuildDocument, containerfile: str, context: str, *, architecture: str, created: str) -> Manifest:
    """The image of this build; ``context`` is the digest of its context's files, ``created`` an RFC 3339 time."""
    told: dict[str, Any] = {
        "containerfile": containerfile,
        "target": document.target,
        "arguments": dict(document.arguments),
        "images": dict(document.images),
        "context": [document.context, context],
    }
    digest = hashlib.sha256(msgspec.json.encode(told, order="sorted")).hexdigest()
    return images.image(
        f"polyarch.sandbox/build@sha256:{digest}",
        Platform.of("linux", architecture),
        format="docker" if document.format == "Docker" else "oci",
        labels=dict(document.labels),
        created=created,
    )


def write_layout(folder: Path, manifest: Manifest, *, incomplete: bool = False) -> None:
    """Write the layout, readable for other users; ``incomplete`` leaves its last blob out."""
    shutil.rmtree(folder, ignore_errors=True)
    blobs = [manifest.content, *manifest.blobs]
    index = {"schemaVersion": 2, "manifests": [manifest.descriptor.document()]}
    _write(folder / "oci-layout", b'{"imageLayoutVersion":"1.0.0"}')
    for content in blobs[:-1] if incomplete else blobs:
        algorithm, _, name = images.digest_of(content).partition(":")
        _write(folder / "blobs" / algorithm / name, content)
    _write(folder / "index.json", msgspec.json.encode(index))
    for each in (folder, *folder.rglob("*")):
        each.chmod(_ENTERABLE if each.is_dir() else _READABLE)


def _write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def digest_of_context(folder: Path) -> str:
    """Of the names and contents of the files of a mounted context; empty if there are none."""
    digest = hashlib.sha256()
    seen = False
    for path in _files(folder):
        seen = True
        for part in (str(path.relative_to(folder)).encode(), path.read_bytes()):
            digest.update(len(part).to_bytes(8) + part)
    return f"sha256:{digest.hexdigest()}" if seen else ""


def _files(folder: Path) -> Iterator[Path]:
    """In the order of their names. What a kubelet keeps in folders that begin with ``..`` is there a second time, as
    links."""
    for path in sorted(folder.rglob("*") if folder.is_dir() else ()):
        if path.is_file() and not any(part.startswith("..") for part in path.relative_to(folder).parts):
            yield path
