"""Builds an image index reproducibly, and reads what users specify for one.

Building an index twice, on two machines or from sources in another order, gives the same digest, so a second push has
nothing to do and a signature stays valid. Nothing is converted: the index is about its children's digests, so Docker
and OCI images cannot be mixed. An index that would mislead is rejected, naming the sources at fault.

Pure: no I/O.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import msgspec

from polyarch.oci.documents import DOCKER_LIST, DOCKER_SCHEMA2, OCI_INDEX, OCI_MANIFEST, digest_of
from polyarch.oci.image.parsing import compression_of
from polyarch.oci.reference import InvalidReference, Reference, parse
from polyarch.platforms import InvalidPlatform, Platform

IndexKind = Literal["auto", "oci", "docker"]
Attestations = Literal["drop", "keep"]
SUBJECT = "vnd.docker.reference.digest"
_FAMILIES: Mapping[str, Literal["oci", "docker"]] = {OCI_MANIFEST: "oci", DOCKER_SCHEMA2: "docker"}
_INDEX_TYPES = {"oci": OCI_INDEX, "docker": DOCKER_LIST}
_NAMES = {"oci": "OCI", "docker": "Docker"}


Problem = Literal["", "duplicate-platform", "mixed-formats", "missing-platform", "annotations", "empty"]


class InvalidIndex(ValueError):  # noqa: N818 - it says what becomes of the index
    """The index is refused and nothing is pushed. The text names the sources at fault and the remedy;
    ``problem`` is for callers that treat one refusal differently from another.
    """

    def __init__(self, text: str, problem: Problem = "") -> None:
        super().__init__(text)
        self.problem: Problem = problem


class Child(msgspec.Struct, frozen=True):
    """An image of the new index, or an attestation, with its descriptor ``raw`` copied unchanged and ``subject`` the
    digest of its image.

    ``size`` is the size of the manifest with this digest. ``source`` names the child in messages and documents.
    """

    media_type: str
    digest: str
    size: int
    platform: Platform | None
    source: str = ""
    annotations: Mapping[str, str] = {}
    subject: str = ""
    raw: Mapping[str, Any] | None = None

    @property
    def is_attestation(self) -> bool:
        return self.raw is not None


class AssembledIndex(msgspec.Struct, frozen=True):
    """The bytes of an index. ``children`` in its order, attestations last; ``dropped`` are omitted attestations."""

    body: bytes
    media_type: str
    digest: str
    children: tuple[Child, ...]
    dropped: tuple[Child, ...] = ()


class RequestedPlatform(msgspec.Struct, frozen=True):
    """A requested platform: unstated parts match anything (``linux/arm`` any variant)."""

    platform: Platform
    variant: str = ""
    """The stated variant, ``""`` if none; an alias such as ``armhf`` states one."""
    text: str = ""

    @classmethod
    def parse(cls, text: str) -> "RequestedPlatform":
        """Raises ``InvalidPlatform``."""
        platform = Platform.parse(text)
        parts = [part.strip().lower() for part in text.split("/")]
        written = parts[2] if len(parts) == 3 else ""
        if not written and parts[-1] != platform.architecture and platform.variant:
            written = platform.variant
        return cls(platform, written, text)

    def matches(self, platform: Platform) -> bool:
        wanted = self.platform
        return (
            platform.node == wanted.node
            and (not self.variant or platform.variant == wanted.variant)
            and (not wanted.os_version or platform.os_version == wanted.os_version)
        )

    def is_served_by(self, platform: Platform) -> bool:
        """Whether an image of this platform is what was asked for: it has the variant that is stated, or one that nodes
        pull without being told to, and for a version of Windows the same build, whatever its revision."""
        wanted = self.platform
        if not self.variant and not platform.is_usual:
            return False
        if wanted.os == "windows" and wanted.os_version:
            build, own = (".".join(each.split(".")[:3]) for each in (wanted.os_version, platform.os_version))
            wanted = msgspec.structs.replace(wanted, os_version="")
            return build == own and msgspec.structs.replace(self, platform=wanted).matches(platform)
        return self.matches(platform)

    def refine(self, platform: Platform, source: str) -> Platform:
        """A config's platform, completed with the parts stated here; :class:`InvalidIndex` if they contradict each
        other.
        """
        wanted = self.platform
        if platform.node != wanted.node:
            raise InvalidIndex(f"{source} is {platform}, not {self.text}: name the platform that it is, or none")
        if wanted.os_version and platform.os_version and platform.os_version != wanted.os_version:
            raise InvalidIndex(f"{source} is {platform}, not {self.text}: name the version that it has, or none")
        return Platform.of(
            platform.os,
            platform.architecture,
            wanted.variant if self.variant else platform.variant,
            wanted.os_version or platform.os_version,
            {*platform.os_features, *wanted.os_features},
        )


def assemble(
    children: Sequence[Child],
    *,
    kind: IndexKind = "auto",
    annotations: Mapping[str, str] | None = None,
    keep_order: bool = False,
    attestations: Attestations = "drop",
) -> AssembledIndex:
    """The index of these children, sorted by platform unless ``keep_order``. Raises :class:`InvalidIndex`."""
    images = _unique([child for child in children if not child.is_attestation])
    if not images:
        raise InvalidIndex("no image is left for the index: name at least one source that has a platform", "empty")
    if not keep_order:
        images.sort(key=_order)
    kept, dropped = _attestations(images, [child for child in children if child.is_attestation], attestations)
    members = [*images, *kept]
    family = _family(members, kind)
    if family == "docker" and annotations:
        raise InvalidIndex(
            "a Docker manifest list has no annotations: leave --annotation out, or use OCI images", "annotations"
        )
    document: dict[str, Any] = {
        "schemaVersion": 2,
        "mediaType": _INDEX_TYPES[family],
        "manifests": [_descriptor(child, annotated=family == "oci") for child in members],
    }
    if annotations:
        document["annotations"] = dict(sorted(annotations.items()))
    body = msgspec.json.encode(document)
    return AssembledIndex(body, _INDEX_TYPES[family], digest_of(body), tuple(members), tuple(dropped))


def check_required(children: Iterable[Child], required: Iterable[RequestedPlatform]) -> None:
    """:class:`InvalidIndex` if the index lacks a required platform."""
    there = [child.platform for child in children if child.platform is not None and not child.is_attestation]
    missing = [each.text for each in required if not any(each.is_served_by(platform) for platform in there)]
    if missing:
        have = ", ".join(sorted(map(str, there))) or "nothing"
        lacking = f"the index would lack {', '.join(missing)}: it has {have}; add a source for each"
        raise InvalidIndex(lacking, "missing-platform")


def _unique(images: Sequence[Child]) -> list[Child]:
    """Each platform once in each compression; an image named several times gets the annotations of all."""
    found: dict[tuple[Platform, str], Child] = {}
    for child in images:
        if child.platform is None:
            raise InvalidIndex(f"{child.source} does not say its platform: write PLATFORM={child.source}")
        key = (child.platform, compression_of(child.annotations))
        first = found.setdefault(key, child)
        if first is child:
            continue
        if (first.digest, first.media_type) != (child.digest, child.media_type):
            raise InvalidIndex(
                f"{child.platform} is there twice: {first.source} ({first.digest}) and {child.source} "
                f"({child.digest}); leave one of them out",
                "duplicate-platform",
            )
        found[key] = msgspec.structs.replace(first, annotations=_joined(first, child))
    return list(found.values())


def _joined(one: Child, other: Child) -> dict[str, str]:
    # Of two values the smaller one, so that the result does not depend on the order of the sources.
    names = {*one.annotations, *other.annotations}
    values = (one.annotations, other.annotations)
    return {name: min(each[name] for each in values if name in each) for name in names}


def _order(child: Child) -> tuple[Any, ...]:
    platform = child.platform
    if platform is None:
        raise AssertionError("every image has a platform here")
    compression = compression_of(child.annotations)
    return (
        platform.os,
        platform.architecture,
        platform.variant,
        platform.os_version,
        platform.os_features,
        compression,
    )


def _attestations(
    images: Sequence[Child], attestations: Iterable[Child], choice: Attestations
) -> tuple[list[Child], list[Child]]:
    """The attestations to keep, each digest once in the order of its subjects, and those to drop."""
    position = {child.digest: at for at, child in reversed(list(enumerate(images)))}
    unique = list({(child.subject, child.digest): child for child in attestations}.values())
    if choice == "drop":
        return [], unique
    kept = [child for child in unique if child.subject in position]
    kept.sort(key=lambda child: (position[child.subject], child.digest))
    return kept, [child for child in unique if child.subject not in position]


def _family(members: Sequence[Child], kind: IndexKind) -> Literal["oci", "docker"]:
    first: Child | None = None
    for child in members:
        family = _FAMILIES.get(child.media_type)
        if family is None:
            raise InvalidIndex(
                f"{child.source} has the type {child.media_type}, which an index cannot have: push it again"
            )
        if first is None:
            first = child
        if family != _FAMILIES[first.media_type]:
            raise InvalidIndex(
                f"{first.source} is {_NAMES[_FAMILIES[first.media_type]]} and {child.source} is {_NAMES[family]}: "
                "an index has one kind, and images are never converted; build them alike",
                "mixed-formats",
            )
        if kind not in ("auto", family):
            raise InvalidIndex(
                f"{child.source} is {_NAMES[family]} where --type {kind} wants another; leave --type out"
            )
    if first is None:
        raise AssertionError("there is at least one image here")
    return _FAMILIES[first.media_type]


def _descriptor(child: Child, *, annotated: bool) -> dict[str, Any]:
    if child.raw is not None:
        return _carried(child)
    platform = child.platform
    if platform is None:
        raise AssertionError("every image has a platform here")
    stated: dict[str, Any] = {"architecture": platform.architecture, "os": platform.os}
    if platform.os_version:
        stated["os.version"] = platform.os_version
    if platform.os_features:
        stated["os.features"] = list(platform.os_features)
    if platform.variant:
        stated["variant"] = platform.variant
    found = {"mediaType": child.media_type, "digest": child.digest, "size": child.size, "platform": stated}
    if annotated and child.annotations:
        found["annotations"] = dict(sorted(child.annotations.items()))
    return found


_MEMBERS = ("mediaType", "digest", "size", "platform", "annotations")


def _carried(child: Child) -> dict[str, Any]:
    """An attestation's descriptor, unchanged but for the order of its members."""
    raw = {**(child.raw or {}), "mediaType": child.media_type, "digest": child.digest, "size": child.size}
    return {name: raw[name] for name in (*_MEMBERS, *sorted(raw.keys() - set(_MEMBERS))) if name in raw}


def parse_requested_platform(texts: Iterable[str]) -> list[RequestedPlatform]:
    """Comma-separated platforms in any number of texts. Raises ``InvalidPlatform``."""
    return [RequestedPlatform.parse(part.strip()) for text in texts for part in text.split(",")]


# -- the index spec: destination, sources, tags and annotations --------------------------------------------------------
# It comes from the command line, a template with a list of platforms, or a file. Every error in it is a usage error,
# found before the first request. The caller passes a parsed file: this package reads no YAML.


_SPEC = frozenset({"image", "tags", "manifests", "annotations"})
_MANIFEST = frozenset({"image", "platform"})
_PLATFORM = frozenset({"os", "architecture", "variant", "os.version", "os.features"})


class InvalidIndexSpec(ValueError):  # noqa: N818 - the name says what is the matter
    """An invalid destination, source, tag, annotation or file; the message names it."""


class SourceImage(msgspec.Struct, frozen=True):
    """An image or index to take children from; ``wanted`` is the platform of ``PLATFORM=``."""

    reference: Reference
    wanted: RequestedPlatform | None = None


class IndexSpec(msgspec.Struct, frozen=True):
    """The content of a spec file."""

    destination: Reference
    sources: tuple[SourceImage, ...]
    tags: tuple[str, ...] = ()
    """Tags in addition to the destination's."""
    annotations: Mapping[str, str] = {}


def parse_destination(text: str) -> Reference:
    """A repository with a tag, ``latest`` by default; never a digest, which results from the content."""
    reference = _reference(text, "the destination")
    if reference.transport != "docker":
        raise InvalidIndexSpec(f"the destination {text} is a layout directory: name a repository of a registry")
    if reference.digest is not None:
        raise InvalidIndexSpec(
            f"the destination {text} has a digest, which only follows from the content: leave it out"
        )
    return reference


def parse_source(text: str) -> SourceImage:
    """``REFERENCE`` or ``PLATFORM=REFERENCE``."""
    platform, equals, reference = text.partition("=")
    if not equals or text.startswith("oci:"):
        return SourceImage(_reference(text, "the source"))
    try:
        wanted = RequestedPlatform.parse(platform)
    except InvalidPlatform as error:
        raise InvalidIndexSpec(f"the source {text}: {error}") from None
    return SourceImage(_reference(reference, f"the source {text}"), wanted)


def parse_tags(texts: Iterable[str], destination: Reference) -> tuple[str, ...]:
    """Further tags, each once and without the destination's own."""
    for text in texts:
        if not text or set(text) & set("/:@"):
            raise InvalidIndexSpec(f"{text!r} is no tag: write the tag alone, it is set in {destination.name}")
        _reference(f"{destination.name}:{text}", f"the tag {text}")
    return tuple(dict.fromkeys(text for text in texts if text != destination.tag))


def parse_annotations(texts: Iterable[str]) -> dict[str, str]:
    """``KEY=VALUE``, each key once."""
    found: dict[str, str] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise InvalidIndexSpec(f"the annotation {text!r} is not KEY=VALUE")
        if key in found:
            raise InvalidIndexSpec(f"the annotation {key!r} is given twice: keep one value")
        found[key] = value
    return found


def expand(template: str, platforms: Sequence[str]) -> tuple[SourceImage, ...]:
    """One source per platform: ``OS``, ``ARCH`` and ``VARIANT`` are replaced; without variant by nothing."""
    if not any(word in template for word in ("OS", "ARCH", "VARIANT")):
        raise InvalidIndexSpec(
            f"the template {template} has none of OS, ARCH and VARIANT: it would name one image only"
        )
    sources = []
    for text in (part.strip() for each in platforms for part in each.split(",")):
        try:
            wanted = RequestedPlatform.parse(text)
        except InvalidPlatform as error:
            raise InvalidIndexSpec(f"--platforms: {error}") from None
        platform = wanted.platform
        # Replace through marks: a value must not be searched for the next word.
        image = template
        for word, mark in (("VARIANT", "\0v"), ("ARCH", "\0a"), ("OS", "\0o")):
            image = image.replace(word, mark)
        for mark, value in (("\0v", wanted.variant), ("\0a", platform.architecture), ("\0o", platform.os)):
            image = image.replace(mark, value)
        sources.append(SourceImage(_reference(image, f"the template {template} for {text}"), wanted))
    return tuple(sources)


def read_spec(data: object, *, origin: str) -> IndexSpec:
    """Parse the content of a ``--from-spec`` file."""
    spec = _mapping(data, origin, _SPEC)
    image = _text(spec, "image", origin)
    destination = parse_destination(image)
    tags = _texts(spec, "tags", origin)
    manifests = spec.get("manifests")
    if not isinstance(manifests, list) or not manifests:
        raise InvalidIndexSpec(f"{origin}: 'manifests' must be a list of images")
    sources = tuple(_source(each, f"{origin}: manifests[{at}]") for at, each in enumerate(manifests))
    annotations = spec.get("annotations") or {}
    if not isinstance(annotations, Mapping) or not all(
        isinstance(part, str) for pair in annotations.items() for part in pair
    ):
        raise InvalidIndexSpec(f"{origin}: 'annotations' must be a mapping from text to text")
    return IndexSpec(destination, sources, parse_tags(tags, destination), dict(annotations))


def _source(data: object, place: str) -> SourceImage:
    source = _mapping(data, place, _MANIFEST)
    reference = _reference(_text(source, "image", place), place)
    if source.get("platform") is None:
        return SourceImage(reference)
    place = f"{place}.platform"
    stated = _mapping(source["platform"], place, _PLATFORM)
    variant = _optional(stated, "variant", place)
    platform = Platform.of(
        _text(stated, "os", place),
        _text(stated, "architecture", place),
        variant,
        _optional(stated, "os.version", place),
        _texts(stated, "os.features", place),
    )
    return SourceImage(reference, RequestedPlatform(platform, variant, str(platform)))


def _mapping(data: object, place: str, known: frozenset[str]) -> Mapping[Any, Any]:
    if not isinstance(data, Mapping):
        raise InvalidIndexSpec(f"{place}: expected a mapping, not {type(data).__name__}")
    for name in data:
        if name not in known:
            raise InvalidIndexSpec(f"{place}: unknown member {name!r}; expected {', '.join(sorted(known))}")
    return data


def _text(data: Mapping[Any, Any], name: str, place: str) -> str:
    value = data.get(name)
    if not isinstance(value, str) or not value:
        hint = f"; write it in quotes: '{value}'" if isinstance(value, int | float) else ""
        raise InvalidIndexSpec(f"{place}: {name!r} must be a text{hint}")
    return value


def _optional(data: Mapping[Any, Any], name: str, place: str) -> str:
    return _text(data, name, place) if data.get(name) not in (None, "") else ""


def _texts(data: Mapping[Any, Any], name: str, place: str) -> list[str]:
    values = data.get(name) or []
    if not isinstance(values, list) or not all(isinstance(each, str) for each in values):
        raise InvalidIndexSpec(f"{place}: {name!r} must be a list of texts; write numbers in quotes")
    return values


def _reference(text: str, what: str) -> Reference:
    try:
        return parse(text)
    except InvalidReference as error:
        raise InvalidIndexSpec(f"{what}: {error}") from None
