"""What is wrong with an image, wherever it stands: MA001 to MA011.

:func:`check_image` takes a place of any kind, so that images of containers and those that a bundle lists are judged
alike.

Pure.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from yaml.nodes import Node

from polyarch.manifests.finding import PlatformSets, Repair, Severity
from polyarch.manifests.lint.facts import Draft, PodFacts
from polyarch.manifests.lint.image_names import architecture_in_name
from polyarch.manifests.lint.options import LintOptions
from polyarch.manifests.operations import Replace
from polyarch.manifests.scan.sets import Answer, Answers, listed, texts
from polyarch.oci.answer import Inspection, InspectionError, Status
from polyarch.platforms import NODE_SYSTEMS, NodePlatform, Platform

_TOLERABLE = frozenset({"transient", "limit", "configuration"})
_NEXT = {
    "absent": "correct the name or the tag, or push the image",
    "auth": "log in to the registry, or give credentials with --authfile",
    "limit": "try again later or log in, or say what is known with --platforms-file",
    "transient": "try again, or say what is known with --platforms-file",
    "content": "push the image again with a current tool",
    "configuration": "correct the configuration of the registry, or say what is known with --platforms-file",
}
_OFFLINE = "add it to the file of --platforms-file, or leave out --offline"


@dataclass(frozen=True, eq=False, kw_only=True)
class ImagePlace:
    """An image in a text."""

    subject: str
    """The object, as a sentence names it."""
    holder: str
    """What names the image: ``container web``."""
    text: str
    """As it is written."""
    answer: Answer
    node: Node
    pointer: str
    document: int
    constrains: bool = True
    """Whether its platforms matter to where a pod can run."""


def check(facts: PodFacts) -> Iterator[Draft]:
    """The images of a pod."""
    subject = str(facts.pod_spec.object.reference)
    for image in facts.supported.images:
        use = image.use
        place = ImagePlace(
            subject=subject,
            holder=f"{'volume' if use.role == 'volume' else 'container'} {use.container}".strip(),
            text=use.text,
            answer=image.answer,
            node=use.node,
            pointer=use.pointer,
            document=facts.pod_spec.document.index,
            constrains=image.platforms is not None and not image.platforms.is_everything,
        )
        yield from check_image(place, facts.answers, facts.options)


def check_image(place: ImagePlace, answers: Answers, options: LintOptions) -> Iterator[Draft]:
    """MA001 to MA011 for one image."""
    answer = place.answer
    inspection = answer.inspection
    if answer.platforms is None:
        yield from _unresolved(place, options)
    if answer.reference is not None:
        yield from _name(place)
    if inspection is None:
        return
    yield from _warnings(place, inspection)
    if inspection.status is not Status.RESOLVED:
        return
    if place.constrains and options.require:
        yield from _required(place, inspection, options.require)
    yield from _child(place, answers.indexes.get(answer.text))
    yield from _locked(place, inspection, options)
    yield from _variants(place, inspection)


def _draft(
    place: ImagePlace,
    rule: str,
    message: str,
    hint: str,
    *,
    sub: str = "",
    severity: Severity | None = None,
    platforms: PlatformSets | None = None,
    repair: Repair | None = None,
) -> Draft:
    return Draft(
        rule=rule,
        sub=sub,
        severity=severity,
        message=message,
        hint=hint,
        node=place.node,
        pointer=place.pointer,
        images=(place.answer.text,) if place.answer.text else (),
        platforms=platforms or PlatformSets(),
        repair=repair,
    )


def _unresolved(place: ImagePlace, options: LintOptions) -> Iterator[Draft]:
    answer, name = place.answer, place.answer.text
    if not name:
        message = f"{place.subject}: {place.holder} names no image"
        yield _draft(place, "MA001", message, "name the image", sub="not-a-reference")
    elif answer.reference is None:
        message = f"{place.subject} has the image {name!r}, which is no image reference: {answer.problem}"
        hint = "render the manifest first, or write NAME:TAG or NAME@sha256:DIGEST"
        yield _draft(place, "MA001", message, hint, sub="not-a-reference")
    elif answer.inspection is None:
        if options.unresolved != "ignore":
            message = f"{place.subject}: the platforms of {name} are not known, nobody was asked"
            yield _draft(place, "MA001", message, _OFFLINE, sub="offline-miss")
    elif answer.inspection.status is Status.UNKNOWN:
        message = f"{place.subject}: the image {name} does not say its architecture"
        yield _draft(place, "MA001", message, "push the image again with a current tool", sub="empty-architecture")
    elif answer.inspection.error is not None:
        yield from _failed(place, answer.inspection.error, options)


def _failed(place: ImagePlace, error: InspectionError, options: LintOptions) -> Iterator[Draft]:
    if options.unresolved == "ignore" and error.error_class in _TOLERABLE:
        return
    message = f"{place.subject}: the platforms of {place.answer.text} are not known: {_without_name(place, error)}"
    hint = _OFFLINE if error.code == "offline-miss" else _NEXT[error.error_class]
    yield _draft(place, "MA001", message, hint, sub=error.code)
    if error.code == "unsupported-media-type":
        message = f"{place.subject}: nodes do not read the format of {place.answer.text}: {_without_name(place, error)}"
        yield _draft(place, "MA010", message, _NEXT["content"])


def _without_name(place: ImagePlace, error: InspectionError) -> str:
    """What happened: the error of an answer begins with the image, which the sentence has already."""
    name = place.answer.reference.canonical if place.answer.reference is not None else place.answer.text
    return error.message.removeprefix(f"{name}: ")


def _required(place: ImagePlace, inspection: Inspection, required: tuple[NodePlatform, ...]) -> Iterator[Draft]:
    platforms = inspection.node_platforms
    missing = sorted(set(required) - set(platforms))
    if not missing:
        return
    name, sets = place.answer.text, PlatformSets(supported=texts(platforms), missing=texts(missing))
    if len(platforms) == 1:
        yield _draft(
            place,
            "MA002",
            f"{place.subject}: {name} is built for {platforms[0]} only; {listed(required)} "
            f"{'is' if len(required) == 1 else 'are'} required",
            f"build it for {listed(missing)}, too, and publish it as one multi-platform image",
            platforms=sets,
        )
    else:
        message = f"{place.subject}: {name} lacks {listed(missing)}, which is required"
        yield _draft(place, "MA003", message, "publish the image for it", platforms=sets)


def _child(place: ImagePlace, index: Inspection | None) -> Iterator[Draft]:
    reference = place.answer.reference
    if index is None or reference is None or reference.digest in (None, index.digest):
        return
    entry = next((entry for entry in index.entries if entry.digest == reference.digest), None)
    if entry is None or not index.digest:
        return
    fixed = place.text.replace(reference.digest, index.digest) if reference.digest else place.text
    yield _draft(
        place,
        "MA004",
        f"{place.subject} pins {place.answer.text} to its {entry.platform} manifest; "
        f"the multi-platform index is {index.digest}",
        "pin the digest of the index",
        platforms=PlatformSets(supported=(str(entry.platform.node),), missing=_lost(index, entry.platform)),
        repair=Repair((Replace(place.pointer, fixed),), document=place.document)
        if fixed != place.text
        else Repair((), note="the digest comes from a kustomization; change it there", document=place.document),
    )


def _lost(index: Inspection, kept: Platform) -> tuple[str, ...]:
    return texts(each for each in index.node_platforms if each != kept.node)


def _warnings(place: ImagePlace, inspection: Inspection) -> Iterator[Draft]:
    name = place.answer.text
    for warning in inspection.warnings:
        message = f"{place.subject}: {name}: {warning.message or warning.code}"
        match warning.code:
            case "mislabelled" | "wrong-binary" as code:
                yield _draft(place, "MA005", message, "build that platform of the image again", sub=code)
            case "no-platforms" as code:
                message = f"{place.subject}: {name} has no platform at all: {warning.message or 'its index is empty'}"
                yield _draft(place, "MA006", message, "push an index of runnable images", sub=code)
            case "duplicate-platform" as code:
                hint = "push an index with one image for each platform"
                yield _draft(place, "MA006", message, hint, sub=code, severity=Severity.WARNING)
            case "empty-os":
                yield _draft(place, "MA007", message, "build the image with a current tool")
            case "schema1" if inspection.kind != "schema1":
                yield _draft(place, "MA010", message, _NEXT["content"])
            case _:  # the other warnings are about the registry, not about where the image runs
                continue
    if inspection.kind == "schema1":
        message = f"{place.subject}: {name} is a schema 1 manifest ({inspection.media_type or 'schemaVersion 1'})"
        yield _draft(place, "MA010", f"{message}, which nodes no longer read", _NEXT["content"])


def _locked(place: ImagePlace, inspection: Inspection, options: LintOptions) -> Iterator[Draft]:
    reference = place.answer.reference
    if options.lock is None or reference is None or reference.digest is not None:
        return
    locked = options.lock.get(reference.canonical)
    if locked is None or (inspection.digest and inspection.digest == locked.digest):
        return
    lost = sorted(set(locked.platforms) - set(inspection.node_platforms))
    if lost:
        yield _draft(
            place,
            "MA008",
            f"{place.subject}: {place.answer.text} lost {listed(lost)} since it was locked",
            "publish the platform again, or accept the loss with --update-lock",
            sub="lost-platform",
            platforms=PlatformSets(supported=texts(inspection.node_platforms), missing=texts(lost)),
        )
    elif inspection.digest:
        yield _draft(
            place,
            "MA008",
            f"{place.subject}: {place.answer.text} is {inspection.digest} now and was locked as {locked.digest}",
            "accept it with --update-lock, or pin the digest",
            sub="moved",
            severity=Severity.WARNING,
        )


def _variants(place: ImagePlace, inspection: Inspection) -> Iterator[Draft]:
    special = [platform for platform in inspection.platforms if _is_special(platform)]
    if special:
        labels = ", ".join(dict.fromkeys(map(_label, special)))
        yield _draft(
            place,
            "MA009",
            f"{place.subject}: {place.answer.text} has {', '.join(map(str, special))}, "
            "which kubernetes.io/arch and kubernetes.io/os do not tell apart",
            f"select such nodes by {labels}",
        )


def _is_special(platform: Platform) -> bool:
    if platform.os not in NODE_SYSTEMS:
        return False
    if platform.os_version:
        return True
    usual = platform.architecture == "arm64" or (platform.architecture, platform.variant) == ("arm", "v7")
    return bool(platform.variant) and not usual


def _label(platform: Platform) -> str:
    if platform.os_version:
        build = ".".join(platform.os_version.split(".")[:3])
        return f"node.kubernetes.io/windows-build: {build}" if platform.os == "windows" else "a label of your own"
    if platform.architecture == "amd64":
        return "feature.node.kubernetes.io/cpu-cpuid.* (node-feature-discovery)"
    return f"a label of your own for {platform.architecture}/{platform.variant}"


def _name(place: ImagePlace) -> Iterator[Draft]:
    reference = place.answer.reference
    found = architecture_in_name(reference) if reference is not None else None
    if found is not None:
        architecture, without = found
        yield _draft(
            place,
            "MA011",
            f"{place.subject}: the name {place.answer.text} is bound to {architecture}",
            f"check whether a multi-architecture sibling exists: {without}",
        )
