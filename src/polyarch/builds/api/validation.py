"""What the API server refuses of an ImageBuild, checked without it.

For files, and for objects that were stored under an older schema. The schema is the one that the API server has; its
rules are here once more, in Python, with the same words. Values of arguments and user information of URLs are never
quoted. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from polyarch.builds.api import formats
from polyarch.builds.api.crd import image_builds
from polyarch.builds.api.resources import ImageBuild, ImageBuildSpec
from polyarch.builds.names import IMAGE_BUILDS
from polyarch.durations import format_duration, is_within
from polyarch.kube.schema import (
    DNS_SUBDOMAIN,
    Schema,
    SchemaViolation,
    departures,
    selector_problems,
    toleration_problems,
    without_nulls,
)

Document = Mapping[str, Any]

_ROOT: Final[Schema] = image_builds()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
_NAME_LENGTH: Final = 253


class InvalidBuild(ValueError):  # noqa: N818 - what is the case
    """The object would be refused; ``problems`` are all the reasons, each with its field."""

    def __init__(self, problems: tuple[SchemaViolation, ...]) -> None:
        super().__init__("; ".join(map(str, problems)))
        self.problems = problems


def validated(document: Any) -> ImageBuild:
    """The object of a file. Raises :class:`InvalidBuild`."""
    if problems := object_problems(document):
        raise InvalidBuild(problems)
    return msgspec.convert(without_nulls(document), ImageBuild)


def object_problems(document: Any) -> tuple[SchemaViolation, ...]:
    """Everything that is wrong with an ImageBuild, in the order of the object; empty: nothing."""
    return tuple(_of_object(document))


def spec_problems(spec: ImageBuildSpec) -> tuple[SchemaViolation, ...]:
    """What the API server refuses of a spec that has been read; its fields begin with ``spec``."""
    return tuple(_of_spec(msgspec.to_builtins(spec)))


def _of_object(document: Any) -> Iterator[SchemaViolation]:
    if not isinstance(document, Mapping):
        yield SchemaViolation("", f"must be one {IMAGE_BUILDS.kind}, not {document!r:.60}")
        return
    document = without_nulls(document)
    for field, wanted in (("apiVersion", IMAGE_BUILDS.api_version), ("kind", IMAGE_BUILDS.kind)):
        if document.get(field) != wanted:
            yield SchemaViolation(field, f"must be {wanted}, not {document.get(field)!r:.60}")
    metadata = document.get("metadata")
    yield from _name(metadata.get("name") if isinstance(metadata, Mapping) else None)
    around = {name: value for name, value in document.items() if name not in ("spec", "status")}
    yield from departures(_ROOT | {"required": []}, around)
    if "spec" not in document:
        yield SchemaViolation("spec", "is required")
    else:
        yield from _of_spec(document["spec"])


def _name(name: Any) -> Iterator[SchemaViolation]:
    if not isinstance(name, str) or not name:
        yield SchemaViolation("metadata.name", "is required")
    elif len(name) > _NAME_LENGTH or not formats.matches(DNS_SUBDOMAIN, name):
        yield SchemaViolation(
            "metadata.name",
            f"{name[:60]!r} is not a name: write up to {_NAME_LENGTH} lower-case letters, digits, '-' and '.', "
            "beginning and ending with a letter or digit",
        )


def _of_spec(spec: Any) -> Iterator[SchemaViolation]:
    wrong = tuple(departures(_ROOT["properties"]["spec"], spec, "spec"))
    yield from wrong
    if not wrong:  # the rules are for values of the right shape
        yield from _source(spec["source"])
        yield from _base_images(spec.get("baseImages", {}))
        yield from _architectures(spec.get("architectures", {}))
        yield from _output(spec["output"], spec.get("architectures", {}))
        yield from _names("spec.emulation.hosts", spec.get("emulation", {}).get("hosts", ()))
        for name in ("preflight", "nodeWait", "build", "index"):
            yield from _within(f"spec.timeouts.{name}", spec.get("timeouts", {}).get(name), formats.TIMEOUT)
        for index, entry in enumerate(spec.get("scheduling", {}).get("perArchitecture", ())):
            yield from _scheduling(f"spec.scheduling.perArchitecture[{index}]", entry)
        yield from _rebuild(spec.get("rebuild", {}))


def _source(source: Document) -> Iterator[SchemaViolation]:
    overrides = source.get("overrides", ())
    if not any("containerfile" in each or "containerfileFrom" in each for each in (source, *overrides)):
        yield SchemaViolation("spec.source", formats.NO_CONTAINERFILE)
    yield from _containerfile("spec.source", source)
    for index, override in enumerate(overrides):
        field = f"spec.source.overrides[{index}]"
        yield from _names(f"{field}.architecture", override["architecture"])
        yield from _containerfile(field, override)
    yield from _context(source.get("context", {}))


def _containerfile(field: str, holder: Document) -> Iterator[SchemaViolation]:
    if "containerfile" in holder and "containerfileFrom" in holder:
        yield SchemaViolation(field, formats.TWO_CONTAINERFILES)
    if len(holder.get("containerfile", "").encode()) > formats.CONTAINERFILE_BYTES:
        yield SchemaViolation(f"{field}.containerfile", formats.CONTAINERFILE_TOO_LONG)
    for name, value in holder.get("buildArgs", {}).items():
        place = f"{field}.buildArgs.{name[:60]}"
        if not formats.matches(formats.ARGUMENT_NAME, name):
            yield SchemaViolation(place, formats.ARGUMENT_NAMES)
        if name in formats.AUTOMATIC_ARGUMENTS:
            yield SchemaViolation(place, formats.AUTOMATIC)
        if not formats.matches(formats.ARGUMENT_VALUE, value):
            yield SchemaViolation(place, formats.ARGUMENT_LINES)


def _context(context: Document) -> Iterator[SchemaViolation]:
    field, kind = "spec.source.context", context.get("type", "None")
    for needing, member in formats.MEMBERS.items():
        if (kind == needing) != (member in context):
            yield SchemaViolation(field, formats.union_member(needing, member))
    image = context.get("image")
    if image is not None and not formats.matches(formats.BY_DIGEST, image["reference"]):
        yield SchemaViolation(f"{field}.image.reference", formats.IMAGE_BY_DIGEST)
    git = context.get("git")
    if git is None:
        return
    url = git["url"]
    if not formats.matches(formats.HTTP, url):
        yield SchemaViolation(f"{field}.git.url", formats.URL_SCHEME)
    if formats.matches(formats.USER_INFO, url):
        yield SchemaViolation(f"{field}.git.url", formats.URL_USER)
    elif formats.matches(formats.HTTP, url) and not formats.matches(formats.GIT_URL, url):
        yield SchemaViolation(f"{field}.git.url", formats.URL_FORM)
    if not formats.matches(formats.COMMIT, git["commit"]):
        yield SchemaViolation(f"{field}.git.commit", formats.COMMIT_FORM)
    directory = git.get("directory", "")
    if directory.startswith("/") or ".." in directory:
        yield SchemaViolation(f"{field}.git.directory", formats.DIRECTORY_FORM)


def _base_images(base_images: Document) -> Iterator[SchemaViolation]:
    interval = base_images.get("interval")
    if base_images.get("policy") == "Interval" and interval is None:
        yield SchemaViolation("spec.baseImages", formats.NEEDS_INTERVAL)
    yield from _within("spec.baseImages.interval", interval, formats.INTERVAL)


def _architectures(wanted: Document) -> Iterator[SchemaViolation]:
    field, explicit = "spec.architectures", wanted.get("mode") == "Explicit"
    if explicit and "list" not in wanted:
        yield SchemaViolation(field, formats.NEEDS_LIST)
    if not explicit and "list" in wanted:
        yield SchemaViolation(field, formats.LIST_FORBIDDEN)
    if explicit and ("include" in wanted or "exclude" in wanted):
        yield SchemaViolation(field, formats.ONLY_AUTO)
    if set(wanted.get("include", ())) & set(wanted.get("exclude", ())):
        yield SchemaViolation(field, formats.OVERLAP)
    for name in ("list", "include", "exclude"):
        yield from _names(f"{field}.{name}", wanted.get(name, ()))
    yield from _within("spec.architectures.settle", wanted.get("settle"), formats.SETTLE)
    yield from selector_problems(f"{field}.nodeSelector", wanted.get("nodeSelector", {}))


def _output(output: Document, wanted: Document) -> Iterator[SchemaViolation]:
    if output.get("index") == "Never" and len(wanted.get("list", ())) > 1:
        yield SchemaViolation("spec", formats.INDEX_NEEDED)
    for name in ("repository", "stagingRepository"):
        if name in output:
            yield from _repository(f"spec.output.{name}", output[name])
    if output.get("stagingRepository") == output["repository"]:
        yield SchemaViolation("spec.output", formats.SAME_STAGING)
    for index, tag in enumerate(output.get("tags", ())):
        if not formats.matches(formats.TAG, tag):
            yield SchemaViolation(f"spec.output.tags[{index}]", formats.TAG_FORM)
    if output.get("format") == "Docker" and output.get("annotations"):
        yield SchemaViolation("spec.output", formats.LIST_ANNOTATIONS)
    yield from _names("spec.output.partial.required", output.get("partial", {}).get("required", ()))


def _repository(field: str, text: str) -> Iterator[SchemaViolation]:
    if not formats.matches(formats.HOST, text):
        yield SchemaViolation(field, f"{text[:80]!r} {formats.NEEDS_HOST}")
    elif formats.matches(formats.TAGGED, text):
        yield SchemaViolation(field, f"{text[:80]!r} {formats.HAS_SELECTOR}")
    elif not formats.matches(formats.REPOSITORY, text):
        yield SchemaViolation(field, f"{text[:80]!r} {formats.REPOSITORY_FORM}")


def _scheduling(field: str, entry: Document) -> Iterator[SchemaViolation]:
    yield from _names(f"{field}.architecture", entry["architecture"])
    if set(entry.get("nodeSelector", {})) & set(formats.PLATFORM_LABELS):
        yield SchemaViolation(f"{field}.nodeSelector", formats.PLATFORM_SELECTED)
    for index, toleration in enumerate(entry.get("tolerations", ())):
        yield from toleration_problems(f"{field}.tolerations[{index}]", toleration)
    yield from _within(f"{field}.buildTimeout", entry.get("buildTimeout"), formats.TIMEOUT)


def _rebuild(rebuild: Document) -> Iterator[SchemaViolation]:
    architectures = rebuild.get("architectures", ())
    if architectures and not rebuild.get("token"):
        yield SchemaViolation("spec.rebuild", formats.NEEDS_TOKEN)
    yield from _names("spec.rebuild.architectures", architectures)


def _names(field: str, names: str | Sequence[str]) -> Iterator[SchemaViolation]:
    """One architecture, or a list of them."""
    if isinstance(names, str):
        if not formats.is_architecture(names):
            yield SchemaViolation(field, formats.architecture_problem(names))
        return
    for index, name in enumerate(names):
        yield from _names(f"{field}[{index}]", name)


def _within(field: str, text: str | None, bounds: tuple[float, float]) -> Iterator[SchemaViolation]:
    if text is not None and not is_within(text, bounds):
        least, most = map(format_duration, bounds)
        yield SchemaViolation(field, f"must be a duration from {least} to {most}")
