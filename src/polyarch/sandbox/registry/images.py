"""Small real images, built in memory: from layer to index, and from descriptions in the forms of a platforms file.

The bytes are deterministic: the same description gives the same digests on every machine. The program in an image's
layer waits for SIGTERM or SIGINT and ends, where it is of amd64 or arm64, so that real nodes can run it. For others it
is just an ELF header of the right architecture, so that tools which read the binary agree with the manifest.

Pure: bytes in memory, no I/O.
"""

import gzip
import hashlib
import io
import struct
import tarfile
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

import msgspec

from polyarch.oci.documents import DOCKER_LIST, DOCKER_SCHEMA2, OCI_INDEX, OCI_MANIFEST
from polyarch.oci.reference import InvalidReference, Reference, parse
from polyarch.operator.settings import DEFAULT_BUILDER_IMAGE, DEFAULT_IMAGE
from polyarch.platforms import InvalidPlatform, Platform
from polyarch.sandbox.errors import SandboxError
from polyarch.sandbox.registry.access import Repository, Scheme

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


# Blocks SIGTERM and SIGINT, waits until one of them comes, and ends with 0. The first process of a container has no
# default action for signals, so it would not end otherwise. System calls rt_sigprocmask, rt_sigtimedwait, exit_group.
_SIGNALS = struct.pack("<Q", 1 << 14 | 1 << 1)
_CODE: Mapping[str, bytes] = {
    "amd64": bytes.fromhex(
        "b80e000000 31ff 488d352f000000 31d2 41ba08000000 0f05"
        "b880000000 488d3d19000000 31f6 31d2 41ba08000000 0f05 85c0 78e4 b8e7000000 31ff 0f05"
    )
    + _SIGNALS,
    "arm64": struct.pack(
        "<16I",
        *(0xD28010E8, 0xD2800000, 0x100001C1, 0xD2800002, 0xD2800103, 0xD4000001),  # x8=135: rt_sigprocmask
        *(0xD2801128, 0x10000120, 0xD2800001, 0xD2800002, 0xD2800103, 0xD4000001),  # x8=137: rt_sigtimedwait
        *(0x37FFFF40, 0xD2800BC8, 0xD2800000, 0xD4000001),  # again if negative; x8=94: exit_group
    )
    + _SIGNALS,
}
_LOADED_AT = 0x400000


def program(architecture: str) -> bytes:
    """An ELF file for this architecture, which waits for its end or is only a header; empty for an unknown one."""
    if architecture not in _ELF:
        return b""
    machine, bits, little = _ELF[architecture]
    order = "<" if little else ">"
    identification = b"\x7fELF" + bytes([bits // 32, 1 if little else 2, 1]) + bytes(9)
    code = _CODE.get(architecture, b"")
    if bits == 64:
        entry, segments = (_LOADED_AT + 120, 64) if code else (_LOADED_AT, 0)
        rest = struct.pack(
            f"{order}HHIQQQIHHHHHH", 2, machine, 1, entry, segments, 0, 0, 64, 56, 1 if code else 0, 64, 0, 0
        )
    else:
        rest = struct.pack(f"{order}HHIIIIIHHHHHH", 2, machine, 1, _LOADED_AT, 0, 0, 0, 52, 32, 0, 40, 0, 0)
    if code:
        size = 120 + len(code)
        rest += struct.pack(f"{order}IIQQQQQQ", 1, 5, 0, _LOADED_AT, _LOADED_AT, size, size, 0x1000)
    return identification + rest + code


def layer(name: str, platform: Platform) -> tuple[bytes, str]:
    """A compressed layer with the program and a text that names the image, and the digest of the uncompressed tar."""
    files = {
        ENTRY_POINT.lstrip("/"): (program(platform.architecture) or b"#!/bin/sh\n", 0o755),
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
    """A single-platform image; ``unknown`` leaves the architecture out of its configuration."""
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


# -- descriptions ------------------------------------------------------------------------------------------------------
# The forms are those of a platforms file, plus members for the registry; the caller parses the YAML:
#
#    docker.io/library/nginx:1.27: [linux/amd64, linux/arm64]
#    quay.io/acme/reports:2: {platforms: [linux/amd64], kind: image}
#    ghcr.io/acme/secret:1: {platforms: [linux/arm64], private: true, users: {alice: wonderland}}


BUNDLE_LABELS = {
    "operators.operatorframework.io.bundle.mediatype.v1": "registry+v1",
    "operators.operatorframework.io.bundle.manifests.v1": "manifests/",
    "operators.operatorframework.io.bundle.metadata.v1": "metadata/",
    "operators.operatorframework.io.bundle.package.v1": "sandbox",
    "operators.operatorframework.io.bundle.channels.v1": "stable",
}

Kind = Literal["index", "image", "artifact", "bundle"]


class ImageDescription(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """One image. A bare list of platforms is short for ``{platforms: …}``."""

    platforms: list[str] = msgspec.field(default_factory=list)
    kind: Kind = "index"
    format: Format = "oci"
    """``docker`` for schema-2 manifests and lists."""
    attestations: bool = False
    nested: bool = False
    """Put each platform into an index of its own."""
    without_platform: list[str] = msgspec.field(default_factory=list)
    """Platforms (of ``platforms``) whose index entry does not state a platform."""
    missing: list[str] = msgspec.field(default_factory=list)
    """Platforms (of ``platforms``) that the index lists but whose manifest is not pushed."""
    labels: dict[str, str] = msgspec.field(default_factory=dict)
    neutral: bool = False
    """Add an operator bundle's labels, whatever the kind: plain data for every platform."""
    unknown: bool = False
    """Leave the architecture out of the image configuration."""
    digest: str = ""
    children: dict[str, str] = msgspec.field(default_factory=dict)
    warnings: list[Any] = msgspec.field(default_factory=list)
    """``digest``, ``children`` and ``warnings`` are answers in a platforms file; here they are ignored."""
    error: str = ""
    """In a platforms file: the image cannot be inspected. Nothing is pushed for it."""
    private: bool = False
    users: dict[str, str] = msgspec.field(default_factory=dict)
    identity_tokens: dict[str, str] = msgspec.field(default_factory=dict)
    scheme: Scheme = "bearer"
    delay: Annotated[int, msgspec.Meta(ge=0, le=60_000)] = 0
    """Milliseconds until the registry returns the manifest."""

    @property
    def access(self) -> Repository | None:
        """Access to a private image, else None; ``users`` without ``private`` makes it private too."""
        if not (self.private or self.users):
            return None
        return Repository(users=self.users, scheme=self.scheme, identity_tokens=self.identity_tokens)


class DescribedImage(msgspec.Struct, frozen=True):
    """A valid description, and the image built from it."""

    reference: Reference
    description: ImageDescription
    manifest: Manifest
    children: dict[str, str]
    """Platform → digest of its manifest."""


def read_descriptions(data: Mapping[str, Any], origin: str = "images") -> list[DescribedImage]:
    """All described images, without those marked ``error``; SandboxError names file, reference and reason."""
    listed = data.get("images", data) if isinstance(data, Mapping) else data
    if not isinstance(listed, Mapping):
        raise SandboxError(f"{origin}: expected a mapping from image reference to platforms, or one under `images`")
    described = [_read_one(str(key), value, origin) for key, value in listed.items()]
    return [each for each in described if not each.description.error]


def _read_one(key: str, value: object, origin: str) -> DescribedImage:
    try:
        reference = parse(key)
        if reference.digest is not None or reference.transport != "docker":
            raise SandboxError("write NAME:TAG; the content determines the digest, and a layout cannot be pushed")
        description = _description(value)
        manifest, children = build_image(reference.canonical, description)
    except (InvalidReference, InvalidPlatform, SandboxError) as error:
        raise SandboxError(f"{origin}: {key}: {error}") from error
    return DescribedImage(reference, description, manifest, children)


def _description(value: object) -> ImageDescription:
    document = {"platforms": value} if isinstance(value, list) else value
    try:
        return msgspec.convert(document, ImageDescription)
    except msgspec.ValidationError as error:
        known = ", ".join(field.encode_name for field in msgspec.structs.fields(ImageDescription))
        raise SandboxError(f"{error}; expected a list of platforms, or a mapping with any of {known}") from error


def build_image(name: str, description: ImageDescription) -> tuple[Manifest, dict[str, str]]:
    """The image, and the digest of each platform's manifest."""
    platforms = [Platform.parse(text) for text in description.platforms]
    marked = [("withoutPlatform", description.without_platform), ("missing", description.missing)]
    for member, texts in marked:
        for text in texts:
            if Platform.parse(text) not in platforms:
                raise SandboxError(f"{member} names {text}, which is not in platforms")
    if description.kind == "artifact":
        manifest = artifact(name)
        return manifest, {}
    labels = dict(description.labels)
    if description.kind == "bundle" or description.neutral:
        labels = BUNDLE_LABELS | labels
    if description.kind in {"image", "bundle"}:
        if len(platforms) > 1:
            raise SandboxError(
                f"kind {description.kind} has one platform, {len(platforms)} are given; use kind index for several"
            )
        platform = platforms[0] if platforms else Platform.of("linux", "amd64")
        manifest = image(name, platform, format=description.format, labels=labels, unknown=description.unknown)
        return manifest, {str(platform): manifest.digest}
    return _build_index(name, description, platforms, labels)


def _build_index(
    name: str, description: ImageDescription, platforms: list[Platform], labels: Mapping[str, str]
) -> tuple[Manifest, dict[str, str]]:
    bare = {Platform.parse(text) for text in description.without_platform}
    missing = {Platform.parse(text) for text in description.missing}
    entries: list[IndexEntry] = []
    proofs: list[IndexEntry] = []
    children: dict[str, str] = {}
    for platform in platforms:
        child = image(name, platform, format=description.format, labels=labels, unknown=description.unknown)
        children[str(platform)] = child.digest
        stated = None if platform in bare else platform_document(platform)
        entry = IndexEntry(child, stated, missing=platform in missing)
        if description.nested:
            entry = IndexEntry(index([entry], format=description.format))
        entries.append(entry)
        if description.attestations:
            proofs.append(attestation_entry(child))
    return index([*entries, *proofs], format=description.format), children


_FOUR = ["linux/amd64", "linux/arm64", "linux/ppc64le", "linux/s390x"]
FAMILIAR: Mapping[str, Any] = {
    "docker.io/library/nginx:1.27": {"platforms": _FOUR, "attestations": True},
    "docker.io/library/redis:7": _FOUR,
    "docker.io/library/postgres:16": _FOUR,
    "docker.io/library/busybox:1.36": [*_FOUR, "linux/arm/v6", "linux/arm/v7"],
    "registry.k8s.io/pause:3.10": {"platforms": _FOUR, "format": "docker"},
    "quay.io/prometheus/node-exporter:v1.8.2": _FOUR,
    "docker.io/library/mysql:8.4": ["linux/amd64", "linux/arm64"],
    "quay.io/acme/billing:2.3": {"platforms": ["linux/amd64"], "kind": "image"},
    "quay.io/acme/edge-agent:1.0": ["linux/arm64"],
    "quay.io/acme/mainframe-bridge:4.1": ["linux/s390x"],
    "quay.io/acme/operator-bundle:0.9": {"kind": "bundle"},
    DEFAULT_BUILDER_IMAGE: _FOUR,
    DEFAULT_IMAGE: _FOUR,
}
"""The images that ``polyarch up`` seeds: well-known names with their usual platforms, some invented ones, and those of
build pods, whose platforms the builder looks up."""
