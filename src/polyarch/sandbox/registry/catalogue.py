"""Descriptions of images to push, in the forms of a platforms file (RG-130), plus members for the registry.

    docker.io/library/nginx:1.27: [linux/amd64, linux/arm64]
    quay.io/acme/reports:2: {platforms: [linux/amd64], kind: image}
    ghcr.io/acme/secret:1: {platforms: [linux/arm64], private: true, users: {alice: wonderland}}

Pure: from a mapping to images. The caller parses the YAML.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec

from polyarch.oci.reference import InvalidReference, Reference, parse
from polyarch.operator.settings import DEFAULT_BUILDER_IMAGE, DEFAULT_IMAGE
from polyarch.platforms import InvalidPlatform, Platform
from polyarch.sandbox.errors import SandboxError
from polyarch.sandbox.registry import images
from polyarch.sandbox.registry.access import Repository, Scheme
from polyarch.sandbox.registry.images import IndexEntry, Manifest

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
    format: images.Format = "oci"
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
    """``digest``, ``children`` and ``warnings`` are answers in a platforms file (RG-130); here they are ignored."""
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


class Described(msgspec.Struct, frozen=True):
    """A valid description, and the image built from it."""

    reference: Reference
    description: ImageDescription
    manifest: Manifest
    children: dict[str, str]
    """Platform → digest of its manifest."""


def read(data: Mapping[str, Any], origin: str = "images") -> list[Described]:
    """All described images, without those marked ``error``; SandboxError names file, reference and reason (RG-132)."""
    listed = data.get("images", data) if isinstance(data, Mapping) else data
    if not isinstance(listed, Mapping):
        raise SandboxError(f"{origin}: expected a mapping from image reference to platforms, or one under `images`")
    described = [_read_one(str(key), value, origin) for key, value in listed.items()]
    return [each for each in described if not each.description.error]


def _read_one(key: str, value: object, origin: str) -> Described:
    try:
        reference = parse(key)
        if reference.digest is not None or reference.transport != "docker":
            raise SandboxError("write NAME:TAG; the content determines the digest, and a layout cannot be pushed")
        description = _description(value)
        manifest, children = build(reference.canonical, description)
    except (InvalidReference, InvalidPlatform, SandboxError) as error:
        raise SandboxError(f"{origin}: {key}: {error}") from error
    return Described(reference, description, manifest, children)


def _description(value: object) -> ImageDescription:
    document = {"platforms": value} if isinstance(value, list) else value
    try:
        return msgspec.convert(document, ImageDescription)
    except msgspec.ValidationError as error:
        known = ", ".join(field.encode_name for field in msgspec.structs.fields(ImageDescription))
        raise SandboxError(f"{error}; expected a list of platforms, or a mapping with any of {known}") from error


def build(name: str, description: ImageDescription) -> tuple[Manifest, dict[str, str]]:
    """The image, and the digest of each platform's manifest."""
    platforms = [Platform.parse(text) for text in description.platforms]
    marked = [("withoutPlatform", description.without_platform), ("missing", description.missing)]
    for member, texts in marked:
        for text in texts:
            if Platform.parse(text) not in platforms:
                raise SandboxError(f"{member} names {text}, which is not in platforms")
    if description.kind == "artifact":
        manifest = images.artifact(name)
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
        manifest = images.image(name, platform, format=description.format, labels=labels, unknown=description.unknown)
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
        child = images.image(name, platform, format=description.format, labels=labels, unknown=description.unknown)
        children[str(platform)] = child.digest
        stated = None if platform in bare else images.platform_document(platform)
        entry = IndexEntry(child, stated, missing=platform in missing)
        if description.nested:
            entry = IndexEntry(images.index([entry], format=description.format))
        entries.append(entry)
        if description.attestations:
            proofs.append(images.attestation_entry(child))
    return images.index([*entries, *proofs], format=description.format), children


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
