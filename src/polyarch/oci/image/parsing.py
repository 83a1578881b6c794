"""Reads platforms from the documents of an image, and combines the documents of an index.

An index states a platform for most entries, an image has it in its config, a schema 1 manifest in itself. Each
``read_`` function reads one document; nothing is assumed to be linux/amd64. ``flatten`` makes the entries of an
inspection of an index and of what it lists.

Pure: imports neither asyncio nor aiohttp.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any, Literal, NamedTuple

import msgspec

from polyarch.oci.documents import (
    CONFIG_LIMIT,
    DOCUMENT_TYPES,
    EMPTY_CONFIG,
    ENTRY_LIMIT,
    IMAGE_CONFIGS,
    IMAGE_LAYERS,
    INDEX_LIMIT,
    LEVEL_LIMIT,
    LOOKUP_LIMIT,
    UNTYPED_CONFIGS,
    ContentError,
    Document,
    check_size,
    classify,
    decode,
    inline_data,
)
from polyarch.oci.inspection import Entry, InspectionError, InspectionWarning, SkippedEntry
from polyarch.oci.reference import check_digest
from polyarch.platforms import Platform

ATTESTATION_ANNOTATIONS = ("vnd.docker.reference.type", "vnd.docker.reference.digest")
COMPRESSION_PREFIX = "io.github.containers.compression."
BUNDLE_LABELS = frozenset(
    f"operators.operatorframework.io.{name}"
    for name in (
        "bundle.mediatype.v1",
        "bundle.manifests.v1",
        "bundle.metadata.v1",
        "bundle.package.v1",
        "bundle.channels.v1",
        "bundle.channel.default.v1",
        "metrics.builder",
    )
)
"""Labels of operator bundles, which are plain data, whatever platform they state."""

Outcome = Literal["runnable", "skipped", "index", "unstated"]


class IndexEntry(msgspec.Struct, frozen=True, gc=False):
    """One descriptor of an index, classified.

    ``runnable`` has a platform, ``skipped`` a reason; an ``index`` has to be read, and for ``unstated`` the child's own
    platform. ``data`` is the child's content, if the descriptor carries it.
    """

    outcome: Outcome
    digest: str
    media_type: str = ""
    size: int | None = None
    platform: Platform | None = None
    stated: str = ""
    reason: str = ""
    data: bytes | None = None
    compression: str = ""
    """What its annotations say of its compression, if it is a second form of an image that the index has already."""


class IndexReading(msgspec.Struct, frozen=True, gc=False):
    """The entries of one index document, in its order."""

    media_type: str
    entries: tuple[IndexEntry, ...]

    def having(self, outcome: Outcome) -> tuple[IndexEntry, ...]:
        return tuple(entry for entry in self.entries if entry.outcome == outcome)


class Descriptor(msgspec.Struct, frozen=True, gc=False):
    """A manifest's descriptor of its config; ``data`` as for :class:`IndexEntry`."""

    media_type: str
    digest: str
    size: int | None = None
    data: bytes | None = None


class ManifestReading(msgspec.Struct, frozen=True, gc=False):
    """An image manifest: its config, or with ``config`` None, an artifact.

    ``unsure``: the config's type is no image's, but what else the manifest says may be; the config itself tells.
    """

    media_type: str
    config: Descriptor | None
    artifact_type: str = ""
    unsure: bool = False


class Blob(msgspec.Struct, frozen=True, gc=False):
    """One blob of an image. ``urls``: it is hosted elsewhere, and is not pushed."""

    digest: str
    size: int
    urls: bool = False


class ConfigReading(msgspec.Struct, frozen=True, gc=False):
    """The platform in a config; None without an architecture. ``stated`` as in an entry."""

    platform: Platform | None
    stated: str = ""
    is_bundle: bool = False
    warnings: tuple[InspectionWarning, ...] = ()


def read_index(document: "Document | bytes | Mapping[str, Any]") -> IndexReading:
    """The entries of an index, classified. Raises :class:`ContentError`."""
    document = _document(document)
    if document.type != "index":
        raise ContentError("unsupported-media-type", f"the document is {document.media_type}, not an index")
    manifests = decode(document.body, _Index, "the index").manifests or []
    if len(manifests) > ENTRY_LIMIT:
        raise ContentError(
            "too-complex", f"the index has {len(manifests)} entries where at most {ENTRY_LIMIT} are read"
        )
    return IndexReading(document.media_type, tuple(_entry(at, each) for at, each in enumerate(manifests)))


def read_manifest(document: "Document | bytes | Mapping[str, Any]") -> ManifestReading:
    """The config descriptor of an image manifest. Raises :class:`ContentError`."""
    document = _document(document)
    if document.type != "image":
        raise ContentError("unsupported-media-type", f"the document is {document.media_type}, not an image manifest")
    manifest = decode(document.body, _Manifest, "the manifest")
    config = manifest.config
    artifact_type = manifest.artifact_type or ""
    stated = config.media_type or ""
    config_type = stated.partition(";")[0].strip().lower()
    unsure = config_type not in IMAGE_CONFIGS
    if unsure and (manifest.artifact_type or not _may_be_image(config_type, config, manifest.layers or [])):
        if not stated:
            raise ContentError("malformed", "the manifest is malformed at $.config.mediaType: it is empty")
        return ManifestReading(document.media_type, None, artifact_type or stated)
    digest = _checked_digest("the manifest", "$.config.digest", config.digest)
    descriptor = Descriptor(stated, digest, config.size, inline_data(config.data, digest))
    return ManifestReading(document.media_type, descriptor, artifact_type or (stated if unsure else ""), unsure)


def _may_be_image(config_type: str, config: "_Descriptor", layers: "list[_Layer]") -> bool:
    """Whether a config of another type than an image's may be one, because the layers are an image's, or because
    nothing says what it is."""
    if config_type == EMPTY_CONFIG or (config.size or 0) > CONFIG_LIMIT:
        return False
    types = {(layer.media_type or "").partition(";")[0].strip().lower() for layer in layers}
    return not IMAGE_LAYERS.isdisjoint(types) or (config_type in UNTYPED_CONFIGS and types <= UNTYPED_CONFIGS)


def _has_image_shape(body: bytes) -> bool:
    """Whether a config without an image's type is one by its content: it names an architecture and has the file systems
    or the command of an image."""
    try:
        shape = decode(body, _ImageShape, "the config")
    except ContentError:
        return False
    filled = (shape.rootfs, shape.history, shape.config, shape.container_config)
    return bool((shape.architecture or "").strip()) and any(isinstance(each, dict | list) for each in filled)


def read_blobs(document: "Document | bytes | Mapping[str, Any]") -> tuple[Blob, ...]:
    """The blobs of an image or artifact: the config, then the layers from bottom to top.

    Raises :class:`ContentError`.
    """
    document = _document(document)
    if document.type != "image":
        raise ContentError("unsupported-media-type", f"the document is {document.media_type}, not an image manifest")
    manifest = decode(document.body, _Blobs, "the manifest")
    places = [
        ("$.config", manifest.config),
        *((f"$.layers[{at}]", each) for at, each in enumerate(manifest.layers or [])),
    ]
    if len(places) > ENTRY_LIMIT:
        raise ContentError("too-complex", f"the manifest has {len(places)} blobs where at most {ENTRY_LIMIT} are read")
    return tuple(
        Blob(_checked_digest("the manifest", f"{path}.digest", each.digest), each.size, bool(each.urls))
        for path, each in places
    )


def read_config(body: bytes) -> ConfigReading:
    """The platform and the bundle labels in an image's config. Raises :class:`ContentError`."""
    check_size("config", len(body), CONFIG_LIMIT)
    config = decode(body, _Config, "the config")
    labels = config.config.labels if config.config is not None else None
    is_bundle = labels is not None and not BUNDLE_LABELS.isdisjoint(labels)
    warnings = []
    system = config.os or ""
    if not system.strip():
        system = "linux"
        warnings.append(InspectionWarning("empty-os", "the config names no operating system; taken as linux"))
    if not (config.architecture or "").strip():
        return ConfigReading(None, "", is_bundle, (*warnings, _EMPTY_ARCHITECTURE))
    platform, stated = _normalised(config, system)
    return ConfigReading(platform, stated, is_bundle, (*warnings, *platform_warnings([platform])))


def read_config_of(manifest: ManifestReading, body: bytes) -> "ConfigReading | Artifact":
    """What the config of a manifest says; an artifact if the manifest is ``unsure`` and the config is no image's."""
    if not manifest.unsure:
        return read_config(body)
    return read_config(body) if _has_image_shape(body) else Artifact(manifest.artifact_type)


def read_schema1(document: "Document | bytes | Mapping[str, Any]") -> ConfigReading:
    """The platform of a schema 1 manifest: its ``architecture``, on linux. Raises :class:`ContentError`."""
    document = _document(document)
    if document.type != "schema1":
        raise ContentError("unsupported-media-type", f"the document is {document.media_type}, not schema 1")
    manifest = decode(document.body, _Schema1, "the manifest")
    if not (manifest.architecture or "").strip():
        return ConfigReading(None, warnings=(_SCHEMA1, _EMPTY_ARCHITECTURE))
    platform, stated = _normalised(_Platform(architecture=manifest.architecture, os="linux"), "linux")
    return ConfigReading(platform, stated, warnings=(_SCHEMA1, *platform_warnings([platform])))


def platform_warnings(platforms: Iterable[Platform]) -> list[InspectionWarning]:
    """``unknown-os`` and ``unknown-architecture``, once per value."""
    messages: dict[str, InspectionWarning] = {}
    for platform in platforms:
        if not platform.known_system:
            message = f"{platform.os!r} of {platform} is not a known operating system"
            messages.setdefault(f"os {platform.os}", InspectionWarning("unknown-os", message))
        if not platform.known_architecture:
            message = f"{platform.architecture!r} of {platform} is not a known architecture"
            key = f"architecture {platform.architecture}"
            messages.setdefault(key, InspectionWarning("unknown-architecture", message))
    return list(messages.values())


_EMPTY_ARCHITECTURE = InspectionWarning("empty-architecture", "the image names no architecture")
_SCHEMA1 = InspectionWarning(
    "schema1", "the image has a schema 1 manifest, which registries and runtimes no longer take"
)

# The length limit bounds the memory of a reading; no control characters, because these texts reach terminals.
_Text = Annotated[str, msgspec.Meta(max_length=128, pattern=r"^[^\x00-\x1f\x7f-\x9f]*$")]
_Size = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]


class _Platform(msgspec.Struct):
    architecture: _Text | None = None
    os: _Text | None = None
    variant: _Text | None = None
    os_version: _Text | None = msgspec.field(name="os.version", default=None)
    os_features: Annotated[list[_Text], msgspec.Meta(max_length=64)] | None = msgspec.field(
        name="os.features", default=None
    )


class _Descriptor(msgspec.Struct):
    media_type: str | None = msgspec.field(name="mediaType", default=None)
    digest: str | None = None
    size: _Size | None = None
    platform: _Platform | None = None
    annotations: dict[str, Any] | None = None
    artifact_type: str | None = msgspec.field(name="artifactType", default=None)
    data: Any = None


class _Index(msgspec.Struct):
    manifests: list[_Descriptor] | None


class _Layer(msgspec.Struct):
    media_type: str | None = msgspec.field(name="mediaType", default=None)


class _ImageShape(msgspec.Struct):
    architecture: str | None = None
    rootfs: Any = None
    history: Any = None
    config: Any = None
    container_config: Any = None


class _Manifest(msgspec.Struct):
    config: _Descriptor
    layers: list[_Layer] | None = None
    artifact_type: str | None = msgspec.field(name="artifactType", default=None)


class _Blob(msgspec.Struct):
    digest: str
    size: _Size
    urls: list[Any] | None = None


class _Blobs(msgspec.Struct):
    config: _Blob
    layers: list[_Blob] | None = None


class _ContainerConfig(msgspec.Struct):
    labels: dict[str, Any] | None = msgspec.field(name="Labels", default=None)


class _Config(_Platform):
    config: _ContainerConfig | None = None


class _Schema1(msgspec.Struct):
    architecture: _Text | None = None


def _entry(index: int, descriptor: _Descriptor) -> IndexEntry:
    media_type = (descriptor.media_type or "").strip().lower()
    if descriptor.annotations and any(name in descriptor.annotations for name in ATTESTATION_ANNOTATIONS):
        return _skipped(descriptor, "attestation")
    type_ = DOCUMENT_TYPES.get(media_type)
    if type_ == "index":
        return _kept(index, descriptor, "index", media_type)
    if descriptor.artifact_type:
        return _skipped(descriptor, "artifact")
    if media_type and type_ is None:
        return _skipped(descriptor, "unknown-media-type")
    platform = descriptor.platform or _Platform()
    stated = ((platform.os or "").strip().lower(), (platform.architecture or "").strip().lower())
    if "unknown" in stated:
        return _skipped(descriptor, "unknown-platform")
    if not all(stated):
        return _kept(index, descriptor, "unstated", media_type)
    return _kept(index, descriptor, "runnable", media_type, *_normalised(platform, platform.os or ""))


def _kept(
    index: int,
    descriptor: _Descriptor,
    outcome: Outcome,
    media_type: str,
    platform: Platform | None = None,
    stated: str = "",
) -> IndexEntry:
    digest = _checked_digest("the index", f"$.manifests[{index}].digest", descriptor.digest)
    data = inline_data(descriptor.data, digest) if descriptor.data is not None else None
    compression = compression_of(descriptor.annotations or {})
    return IndexEntry(
        outcome, digest, media_type, descriptor.size, platform, stated, data=data, compression=compression
    )


def compression_of(annotations: Mapping[str, Any]) -> str:
    """The compressions that an entry's annotations name, as podman and buildah write them for a second form of the same
    image (``--add-compression``)."""
    named = (name.removeprefix(COMPRESSION_PREFIX) for name in annotations if name.startswith(COMPRESSION_PREFIX))
    return ",".join(sorted(named))


def _skipped(descriptor: _Descriptor, reason: str) -> IndexEntry:
    # A skipped entry's digest is only displayed, so it is not validated, only cut.
    return IndexEntry("skipped", (descriptor.digest or "")[:200], reason=reason)


def _normalised(platform: _Platform, system: str) -> tuple[Platform, str]:
    architecture, variant = platform.architecture or "", platform.variant or ""
    normal = Platform.of(system, architecture, variant, platform.os_version or "", platform.os_features or ())
    stated = f"{system}/{architecture}/{variant}" if variant else f"{system}/{architecture}"
    as_normal = f"{normal.os}/{normal.architecture}/{normal.variant}".rstrip("/")
    return normal, "" if stated == as_normal else stated


def _checked_digest(what: str, path: str, digest: str | None) -> str:
    problem = check_digest(digest) if digest else "it is missing"
    if problem:
        raise ContentError("malformed", f"{what} is malformed at {path}: {problem}")
    return digest or ""


def _document(document: "Document | bytes | Mapping[str, Any]") -> Document:
    if isinstance(document, Document):
        return document
    return classify(document if isinstance(document, bytes) else msgspec.json.encode(document))


# -- the documents of an index, combined -------------------------------------------------------------------------------
# An index can name further indexes, and children without a platform, which have to be read first. :func:`wanted` lists
# what is still missing and :func:`flatten` builds the entries, both from a mapping of digest to finding. The caller
# fetches in rounds until nothing is wanted.


class Artifact(msgspec.Struct, frozen=True, gc=False):
    """A child that is an artifact, not an image."""

    artifact_type: str = ""


Finding = IndexReading | ConfigReading | Artifact | InspectionError
"""The content of the digest that an entry names, or the error of reading it."""


class FlatIndex(msgspec.Struct, frozen=True, gc=False):
    """The entries of an answer; or ``error``, if every candidate failed."""

    entries: tuple[Entry, ...] = ()
    skipped: tuple[SkippedEntry, ...] = ()
    warnings: tuple[InspectionWarning, ...] = ()
    error: InspectionError | None = None


def wanted(top: IndexReading, found: Mapping[str, Finding]) -> tuple[IndexEntry, ...]:
    """The entries whose documents still have to be read, each digest once and in order.

    Raises :class:`ContentError` ``too-complex`` as soon as they would exceed a limit.
    """
    missing: dict[str, IndexEntry] = {}
    indexes, lookups = 1, 0
    for entry, level in _open_entries(top, found):
        finding = found.get(entry.digest)
        if finding is None:
            missing[entry.digest] = entry
        is_index = entry.outcome == "index" if finding is None else isinstance(finding, IndexReading)
        if is_index:
            indexes += 1
            if level == LEVEL_LIMIT:
                raise ContentError(
                    "too-complex", f"indexes are nested {level + 1} deep where at most {LEVEL_LIMIT} are read"
                )
        if entry.outcome == "unstated":
            lookups += 1
    if indexes > INDEX_LIMIT:
        raise ContentError("too-complex", f"the image has {indexes} indexes where at most {INDEX_LIMIT} are read")
    if lookups > LOOKUP_LIMIT:
        raise ContentError(
            "too-complex", f"{lookups} entries state no platform where at most {LOOKUP_LIMIT} are looked up"
        )
    return tuple(missing.values())


def flatten(top: IndexReading, found: Mapping[str, Finding], *, every: bool = False) -> FlatIndex:
    """The runnable entries in order, unique by platform. Call it when nothing is wanted any more.

    With ``every`` a platform that is stated twice keeps both entries: a copy of an index must not drop one silently.
    """
    runnable: list[_RunnableEntry] = []
    skipped: list[SkippedEntry] = []
    warnings: list[InspectionWarning] = []
    failures: list[InspectionError] = []
    if inner := [entry.digest for entry in top.entries if isinstance(found.get(entry.digest), IndexReading)]:
        # Readable, but not by every tool, so say it.
        warnings.append(InspectionWarning("nested-index", f"{', '.join(inner)} in the index is an index itself"))
    for entry in _entries(top, found):
        if entry.outcome == "skipped":
            skipped.append(SkippedEntry(entry.digest, entry.reason))
            continue
        if entry.outcome == "runnable" and entry.platform is not None:
            found_entry = Entry(entry.platform, entry.digest, entry.size, entry.stated)
            runnable.append(_RunnableEntry(found_entry, entry.compression))
            continue
        finding = found.get(entry.digest)
        if isinstance(finding, ConfigReading):
            if finding.platform is None:
                skipped.append(SkippedEntry(entry.digest, "empty-config"))
            else:
                found_entry = Entry(finding.platform, entry.digest, entry.size, finding.stated)
                runnable.append(_RunnableEntry(found_entry, entry.compression))
                warnings += [each for each in finding.warnings if each.code in ("empty-os", "schema1")]
        elif isinstance(finding, Artifact):
            skipped.append(SkippedEntry(entry.digest, "artifact"))
        elif isinstance(finding, InspectionError):
            failures.append(finding)
            skipped.append(SkippedEntry(entry.digest, "no-platform"))
            message = f"{entry.digest} could not be asked for its platform: {finding.message}"
            warnings.append(InspectionWarning("child-unresolved", message))
        elif finding is None:
            raise ValueError(f"{entry.digest} has not been read yet")
    if not runnable and failures:
        return FlatIndex(skipped=tuple(skipped), warnings=tuple(warnings), error=_worth_telling(failures))
    entries = list(dict.fromkeys(each.entry for each in runnable)) if every else _unique(runnable, warnings)
    warnings += platform_warnings(entry.platform for entry in entries)
    if not entries:
        warnings.append(InspectionWarning("no-platforms", _counted(skipped)))
    return FlatIndex(tuple(entries), tuple(skipped), tuple(dict.fromkeys(warnings)))


def _entries(top: IndexReading, found: Mapping[str, Finding]) -> Iterator[IndexEntry]:
    # Depth first: the entries of an inner index stand in place of the entry that names it, once.
    seen: set[str] = set()
    pending = [iter(top.entries)]
    while pending:
        entry = next(pending[-1], None)
        if entry is None:
            pending.pop()
            continue
        finding = found.get(entry.digest) if entry.outcome in ("index", "unstated") else None
        if isinstance(finding, IndexReading):
            if entry.digest not in seen:
                seen.add(entry.digest)
                pending.append(iter(finding.entries))
            continue
        yield entry


def _open_entries(top: IndexReading, found: Mapping[str, Finding]) -> Iterator[tuple[IndexEntry, int]]:
    # Every entry whose document has to be read, with the level of its index, each digest once. Breadth first, so that
    # a digest named at several levels counts at the lowest.
    seen: set[str] = set()
    readings, level = [top], 1
    while readings:
        deeper: list[IndexReading] = []
        for reading in readings:
            for entry in reading.entries:
                if entry.outcome not in ("index", "unstated") or entry.digest in seen:
                    continue
                seen.add(entry.digest)
                yield entry, level
                finding = found.get(entry.digest)
                if isinstance(finding, IndexReading):
                    deeper.append(finding)
        readings, level = deeper, level + 1


class _RunnableEntry(NamedTuple):
    entry: Entry
    compression: str


def _unique(runnable: list[_RunnableEntry], warnings: list[InspectionWarning]) -> list[Entry]:
    """One entry of each platform: the first in the usual compression, else the first."""
    first: dict[tuple[Platform, str], Entry] = {}
    for entry, compression in runnable:
        other = first.setdefault((entry.platform, compression), entry)
        if other.digest != entry.digest:
            message = f"{entry.platform} is stated twice: {other.digest} counts, {entry.digest} does not"
            warnings.append(InspectionWarning("duplicate-platform", message))
    return list({platform: first.get((platform, ""), entry) for (platform, _), entry in first.items()}.values())


def _worth_telling(failures: list[InspectionError]) -> InspectionError:
    # Prefer a transient error: the next attempt may succeed.
    return next((failure for failure in failures if failure.error_class in ("transient", "limit")), failures[0])


def _counted(skipped: list[SkippedEntry]) -> str:
    if not skipped:
        return "the index is empty"
    counts = Counter(each.reason for each in skipped)
    return f"no entry can run; skipped: {', '.join(f'{count} {reason}' for reason, count in sorted(counts.items()))}"
