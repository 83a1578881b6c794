"""User input for an index: destination, sources, tags and annotations (RG-150, RG-156).

It comes from the command line, a template with a list of platforms, or a file. Every error in it is a usage error,
found before the first request.

Pure: imports neither asyncio nor aiohttp, and no YAML; the caller passes the parsed file.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from polyarch.oci.reference import InvalidReference, Reference, parse
from polyarch.oci.write.assembly import Wanted
from polyarch.platforms import InvalidPlatform, Platform

_SPEC = frozenset({"image", "tags", "manifests", "annotations"})
_MANIFEST = frozenset({"image", "platform"})
_PLATFORM = frozenset({"os", "architecture", "variant", "os.version", "os.features"})


class InvalidRecipe(ValueError):  # noqa: N818 - the name says what is the matter
    """An invalid destination, source, tag, annotation or file; the message names it."""


class SourceImage(msgspec.Struct, frozen=True):
    """An image or index to take children from; ``wanted`` is the platform of ``PLATFORM=``."""

    reference: Reference
    wanted: Wanted | None = None


class Recipe(msgspec.Struct, frozen=True):
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
        raise InvalidRecipe(f"the destination {text} is a layout directory: name a repository of a registry")
    if reference.digest is not None:
        raise InvalidRecipe(f"the destination {text} has a digest, which only follows from the content: leave it out")
    return reference


def parse_source(text: str) -> SourceImage:
    """``REFERENCE`` or ``PLATFORM=REFERENCE``."""
    platform, equals, reference = text.partition("=")
    if not equals or text.startswith("oci:"):
        return SourceImage(_reference(text, "the source"))
    try:
        wanted = Wanted.parse(platform)
    except InvalidPlatform as error:
        raise InvalidRecipe(f"the source {text}: {error}") from None
    return SourceImage(_reference(reference, f"the source {text}"), wanted)


def parse_tags(texts: Iterable[str], destination: Reference) -> tuple[str, ...]:
    """Further tags, each once and without the destination's own."""
    for text in texts:
        if not text or set(text) & set("/:@"):
            raise InvalidRecipe(f"{text!r} is no tag: write the tag alone, it is set in {destination.name}")
        _reference(f"{destination.name}:{text}", f"the tag {text}")
    return tuple(dict.fromkeys(text for text in texts if text != destination.tag))


def parse_annotations(texts: Iterable[str]) -> dict[str, str]:
    """``KEY=VALUE``, each key once."""
    found: dict[str, str] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise InvalidRecipe(f"the annotation {text!r} is not KEY=VALUE")
        if key in found:
            raise InvalidRecipe(f"the annotation {key!r} is given twice: keep one value")
        found[key] = value
    return found


def expand(template: str, platforms: Sequence[str]) -> tuple[SourceImage, ...]:
    """One source per platform (RG-156): ``OS``, ``ARCH`` and ``VARIANT`` are replaced; without variant by nothing."""
    if not any(word in template for word in ("OS", "ARCH", "VARIANT")):
        raise InvalidRecipe(f"the template {template} has none of OS, ARCH and VARIANT: it would name one image only")
    sources = []
    for text in (part.strip() for each in platforms for part in each.split(",")):
        try:
            wanted = Wanted.parse(text)
        except InvalidPlatform as error:
            raise InvalidRecipe(f"--platforms: {error}") from None
        platform = wanted.platform
        # Replace through marks: a value must not be searched for the next word.
        image = template
        for word, mark in (("VARIANT", "\0v"), ("ARCH", "\0a"), ("OS", "\0o")):
            image = image.replace(word, mark)
        for mark, value in (("\0v", wanted.variant), ("\0a", platform.architecture), ("\0o", platform.os)):
            image = image.replace(mark, value)
        sources.append(SourceImage(_reference(image, f"the template {template} for {text}"), wanted))
    return tuple(sources)


def read_spec(data: object, *, origin: str) -> Recipe:
    """Parse the content of a ``--from-spec`` file (RG-156)."""
    spec = _mapping(data, origin, _SPEC)
    image = _text(spec, "image", origin)
    destination = parse_destination(image)
    tags = _texts(spec, "tags", origin)
    manifests = spec.get("manifests")
    if not isinstance(manifests, list) or not manifests:
        raise InvalidRecipe(f"{origin}: 'manifests' must be a list of images")
    sources = tuple(_source(each, f"{origin}: manifests[{at}]") for at, each in enumerate(manifests))
    annotations = spec.get("annotations") or {}
    if not isinstance(annotations, Mapping) or not all(
        isinstance(part, str) for pair in annotations.items() for part in pair
    ):
        raise InvalidRecipe(f"{origin}: 'annotations' must be a mapping from text to text")
    return Recipe(destination, sources, parse_tags(tags, destination), dict(annotations))


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
    return SourceImage(reference, Wanted(platform, variant, str(platform)))


def _mapping(data: object, place: str, known: frozenset[str]) -> Mapping[Any, Any]:
    if not isinstance(data, Mapping):
        raise InvalidRecipe(f"{place}: expected a mapping, not {type(data).__name__}")
    for name in data:
        if name not in known:
            raise InvalidRecipe(f"{place}: unknown member {name!r}; expected {', '.join(sorted(known))}")
    return data


def _text(data: Mapping[Any, Any], name: str, place: str) -> str:
    value = data.get(name)
    if not isinstance(value, str) or not value:
        hint = f"; write it in quotes: '{value}'" if isinstance(value, int | float) else ""
        raise InvalidRecipe(f"{place}: {name!r} must be a text{hint}")
    return value


def _optional(data: Mapping[Any, Any], name: str, place: str) -> str:
    return _text(data, name, place) if data.get(name) not in (None, "") else ""


def _texts(data: Mapping[Any, Any], name: str, place: str) -> list[str]:
    values = data.get(name) or []
    if not isinstance(values, list) or not all(isinstance(each, str) for each in values):
        raise InvalidRecipe(f"{place}: {name!r} must be a list of texts; write numbers in quotes")
    return values


def _reference(text: str, what: str) -> Reference:
    try:
        return parse(text)
    except InvalidReference as error:
        raise InvalidRecipe(f"{what}: {error}") from None
