"""Small real images, built in memory: layer, configuration, manifest, and indexes of any shape (SB-005).

The bytes are deterministic: the same description gives the same digests on every machine. The program in an image's
layer is just an ELF header for the right architecture, so that tools which read the binary agree with the manifest; the
sandbox's nodes execute nothing.

Pure: bytes in memory, no I/O.
"""

import gzip
import hashlib
import io
import struct
import tarfile
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import msgspec

from polyarch.oci.documents import DOCKER_LIST, DOCKER_SCHEMA2, OCI_INDEX, OCI_MANIFEST
from polyarch.platforms import Platform

Format = Literal["oci", "docker"]

OCI_CONFIG = "application/vnd.oci.image.config.v1+json"
OCI_LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"
OCI_EMPTY = "application/vnd.oci.empty.v1+json"

DOCKER_CONFIG = "application/vnd.docker.container.image.v1+json"
DOCKER_LAYER = "application/vnd.docker.image.rootfs.diff.tar.gzip"
IN_TOTO = "application/vnd.in-toto+json"

CREATED = "2024-01-01T00:00:00Z"
ENTRY_POINT = "/bin/app"

# e_machine, bits, little-endian: the ELF header of each architecture (elf.h).
_ELF: Mapping[str, tuple[int, int, bool]] = {
    "386": (3, 32, True),
    "amd64": (62, 64, True),
    "arm": (40, 32, True),
    "arm64": (183, 64, True),
    "loong64": (258, 64, True),
    "mips64le": (8, 64, True),
    "ppc64": (21, 64, False),
    "ppc64le": (21, 64, True),
    "riscv64": (243, 64, True),
    "s390x": (22, 64, False),
}


class Descriptor(msgspec.Struct, frozen=True):
    """How an index or manifest refers to another document."""

    media_type: str
    digest: str
    size: int

    def document(self, **more: object) -> dict[str, Any]:
        return {"mediaType": self.media_type, "digest": self.digest, "size": self.size} | {
            name: value for name, value in more.items() if value
        }


class Manifest(msgspec.Struct, frozen=True):
    """A manifest or index, with the blobs and manifests to push before it."""

    descriptor: Descriptor
    content: bytes
    blobs: tuple[bytes, ...] = ()
    children: tuple["Manifest", ...] = ()

    @property
    def digest(self) -> str:
        return self.descriptor.digest


def digest_of(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def described(media_type: str, content: bytes) -> Descriptor:
    return Descriptor(media_type, digest_of(content), len(content))


def elf_header(architecture: str) -> bytes:
    """An ELF header for this architecture, with nothing after it; empty for an unknown architecture."""
    if architecture not in _ELF:
        return b""
    machine, bits, little = _ELF[architecture]
    order = "<" if little else ">"
    identification = b"\x7fELF" + bytes([bits // 32, 1 if little else 2, 1]) + bytes(9)
    if bits == 64:
        rest = struct.pack(f"{order}HHIQQQIHHHHHH", 2, machine, 1, 0x400000, 0, 0, 0, 64, 56, 0, 64, 0, 0)
    else:
        rest = struct.pack(f"{order}HHIIIIIHHHHHH", 2, machine, 1, 0x400000, 0, 0, 0, 52, 32, 0, 40, 0, 0)
    return identification + rest


def layer(name: str, platform: Platform) -> tuple[bytes, str]:
    """A compressed layer with the program and a text that names the image, and the digest of the uncompressed tar."""
    files = {
        ENTRY_POINT.lstrip("/"): (elf_header(platform.architecture) or b"#!/bin/sh\n", 0o755),
        "etc/image": (f"{name} {platform}\n".encode(), 0o644),
    }
    tar = io.BytesIO()
    with tarfile.open(fileobj=tar, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for path, (content, mode) in files.items():
            entry = tarfile.TarInfo(path)
            entry.size, entry.mode = len(content), mode
            archive.addfile(entry, io.BytesIO(content))
    # mtime=0: the only field of a gzip header that would differ from run to run.
    return gzip.compress(tar.getvalue(), mtime=0), digest_of(tar.getvalue())


def image(
    name: str,
    platform: Platform,
    *,
    format: Format = "oci",
    labels: Mapping[str, str] | None = None,
    unknown: bool = False,
    created: str = CREATED,
) -> Manifest:
    """A single-platform image; ``unknown`` leaves the architecture out of its configuration (RG-045)."""
    compressed, diff_id = layer(name, platform)
    settings: dict[str, Any] = {"Entrypoint": [ENTRY_POINT]}
    if labels:
        settings["Labels"] = dict(labels)
    configuration = {
        "created": created,
        **({"architecture": "", "os": platform.os} if unknown else platform_document(platform)),
        "config": settings,
        "rootfs": {"type": "layers", "diff_ids": [diff_id]},
    }
    content = _json(configuration)
    oci = format == "oci"
    manifest = {
        "schemaVersion": 2,
        "mediaType": OCI_MANIFEST if oci else DOCKER_SCHEMA2,
        "config": described(OCI_CONFIG if oci else DOCKER_CONFIG, content).document(),
        "layers": [described(OCI_LAYER if oci else DOCKER_LAYER, compressed).document()],
    }
    return _manifest(manifest, blobs=(content, compressed))


def artifact(name: str, artifact_type: str = "application/vnd.example.policy.v1+json") -> Manifest:
    """An OCI artifact: a manifest that is no image (OCI image specification 1.1)."""
    content = _json({"name": name})
    manifest = {
        "schemaVersion": 2,
        "mediaType": OCI_MANIFEST,
        "artifactType": artifact_type,
        "config": described(OCI_EMPTY, b"{}").document(),
        "layers": [described(artifact_type, content).document()],
    }
    return _manifest(manifest, blobs=(b"{}", content))


def attestation(subject: Manifest) -> Manifest:
    """What buildkit puts beside an image: provenance, under a manifest of platform unknown/unknown."""
    statement = _json({"_type": "https://in-toto.io/Statement/v0.1", "subject": [{"digest": subject.digest}]})
    configuration = _json({"architecture": "unknown", "os": "unknown", "config": {}, "rootfs": {"type": "layers"}})
    manifest = {
        "schemaVersion": 2,
        "mediaType": OCI_MANIFEST,
        "config": described(OCI_CONFIG, configuration).document(),
        "layers": [described(IN_TOTO, statement).document()],
    }
    return _manifest(manifest, blobs=(configuration, statement))


class IndexEntry(msgspec.Struct, frozen=True):
    """One entry: the child, the platform the entry states (None: none), whether the child is pushed at all."""

    child: Manifest
    platform: dict[str, Any] | None = None
    annotations: dict[str, str] | None = None
    missing: bool = False


def attestation_entry(subject: Manifest) -> IndexEntry:
    return IndexEntry(
        attestation(subject),
        {"architecture": "unknown", "os": "unknown"},
        {
            "vnd.docker.reference.digest": subject.digest,
            "vnd.docker.reference.type": "attestation-manifest",
        },
    )


def index(entries: Sequence[IndexEntry], *, format: Format = "oci") -> Manifest:
    """An OCI index, or Docker's list of schema-2 manifests."""
    document = {
        "schemaVersion": 2,
        "mediaType": OCI_INDEX if format == "oci" else DOCKER_LIST,
        "manifests": [
            entry.child.descriptor.document(platform=entry.platform, annotations=entry.annotations) for entry in entries
        ],
    }
    return _manifest(document, children=tuple(entry.child for entry in entries if not entry.missing))


def platform_document(platform: Platform) -> dict[str, Any]:
    """``platform`` in an index, and the same members in a configuration."""
    document: dict[str, Any] = {"architecture": platform.architecture, "os": platform.os}
    if platform.os_version:
        document["os.version"] = platform.os_version
    if platform.os_features:
        document["os.features"] = list(platform.os_features)
    if platform.variant:
        document["variant"] = platform.variant
    return document


def _json(document: object) -> bytes:
    return msgspec.json.encode(document)


def _manifest(
    document: dict[str, Any], *, blobs: tuple[bytes, ...] = (), children: tuple[Manifest, ...] = ()
) -> Manifest:
    content = _json(document)
    return Manifest(described(document["mediaType"], content), content, blobs, children)
