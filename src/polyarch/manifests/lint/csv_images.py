"""Which images a bundle lists and how it names them: MA206, MA207 and MA211.

A mirror copies what ``spec.relatedImages`` lists and nothing else, and the operator starts what its deployments and
its ``RELATED_IMAGE_*`` variables name. So both have to name the same, best by the digest of an index, which neither
moves nor loses platforms. Images that no pod runs are judged here as those of pods are (MA001 to MA011).

Pure.
"""

from collections.abc import Iterable, Iterator

from polyarch.manifests.bundle.service_version import KIND, VARIABLE_PREFIX, BundleImage, ImageText, ServiceVersion
from polyarch.manifests.finding import Repair, Severity
from polyarch.manifests.lint.csv import BundleFacts
from polyarch.manifests.lint.facts import Draft, ObjectFacts
from polyarch.manifests.lint.images import ImagePlace, check_image
from polyarch.manifests.operations import Add, Replace, TreeOperation
from polyarch.manifests.scan.sets import Answer, Answers
from polyarch.oci.answer import Inspection, InspectionWarning, Status


def images_to_resolve(service_version: ServiceVersion) -> tuple[str, ...]:
    """What has to be inspected for these rules besides the images of pods, once each."""
    texts = (image.text for image in service_version.images if image.is_in("variable", "related"))
    return tuple(dict.fromkeys(texts))


def check(facts: ObjectFacts) -> Iterator[Draft]:
    """MA206, MA207, and MA001 to MA011 for related images; nothing for objects of other kinds."""
    if facts.object.kind != KIND or facts.object.patched_by is not None:
        return
    bundle = BundleFacts(facts)
    yield from _related(bundle)
    yield from _unlisted(bundle)
    yield from _unused(bundle)
    yield from _movable(bundle)


def _related(bundle: BundleFacts) -> Iterator[Draft]:
    facts = bundle.facts
    for place in bundle.service_version.related:
        answer = facts.answers.of(place.text)
        related = ImagePlace(
            subject=bundle.subject,
            holder=f"related image {place.name}".strip(),
            text=place.text,
            answer=answer,
            node=place.node,
            pointer=place.pointer,
            document=facts.object.document.index,
            constrains=answer.platforms is not None and not answer.platforms.is_everything,
        )
        yield from check_image(related, facts.answers, facts.options)


# MA206 ----------------------------------------------------------------------------------------------------------------


def _unlisted(bundle: BundleFacts) -> Iterator[Draft]:
    service_version = bundle.service_version
    listed = {_identity(bundle, place.text) for place in service_version.related}
    if not listed:
        return
    missing = [
        image
        for image in service_version.images
        if image.is_in("deployment", "variable") and _identity(bundle, image.text) not in listed
    ]
    repair = _entries(bundle, missing)
    for image in missing:
        first = image.first
        place = f"variable {first.name}" if first.where == "variable" else f"container {first.name}"
        yield Draft(
            rule="MA206",
            sub="missing",
            message=f"{bundle.subject} does not list {image.text} of {place} in relatedImages, so that mirrors do not "
            "copy it",
            hint="add it to spec.relatedImages",
            node=first.node,
            pointer=first.pointer,
            images=(image.text,),
            repair=repair,
        )


def _entries(bundle: BundleFacts, missing: Iterable[BundleImage]) -> Repair:
    """One repair for all of them, so that names are unique among them too."""
    subject = bundle.facts.object
    names = {place.name for place in bundle.service_version.related}
    operations: list[TreeOperation] = []
    taken: set[str] = set()
    for image in missing:
        identity = _identity(bundle, image.text)
        if identity in taken or bundle.facts.answers.of(image.text).reference is None:
            continue  # two spellings of one image need one entry, and a text with a variable in it none
        taken.add(identity)
        name = wanted = _entry_name(image.first)
        for number in range(2, len(names) + 3):
            if name not in names:
                break
            name = f"{wanted}-{number}"
        names.add(name)
        operations.append(Add(f"{subject.pointer}/spec/relatedImages/-", {"name": name, "image": image.text}))
    return bundle.repair(tuple(operations))


def _entry_name(place: ImageText) -> str:
    if place.where == "variable":
        return place.name.removeprefix(VARIABLE_PREFIX).lower().replace("_", "-") or "image"
    return place.name or "image"


def _unused(bundle: BundleFacts) -> Iterator[Draft]:
    service_version = bundle.service_version
    used = {_identity(bundle, place.text) for place in (*service_version.deployed, *service_version.variables)}
    for place in service_version.related:
        if _identity(bundle, place.text) not in used and not service_version.mentions(place.text):
            yield Draft(
                rule="MA206",
                sub="stale",
                severity=Severity.INFO,
                message=f"{bundle.subject} lists {place.text} in relatedImages and uses it nowhere else",
                hint="remove the entry, unless the operator's program knows the image by itself",
                node=place.node,
                pointer=place.pointer,
                images=(place.text,),
            )


def _identity(bundle: BundleFacts, text: str) -> str:
    """The same for every spelling of an image; a digest says it all, whatever tag stands before it."""
    reference = bundle.facts.answers.of(text).reference
    if reference is None:
        return text
    return f"{reference.name}@{reference.digest}" if reference.digest else reference.canonical


# MA207 ----------------------------------------------------------------------------------------------------------------


def _movable(bundle: BundleFacts) -> Iterator[Draft]:
    answers = bundle.facts.answers
    for image in bundle.service_version.images:
        answer = answers.of(image.text)
        if answer.reference is None:
            continue
        index = parent(answers, answer)
        if answer.reference.digest is None:
            yield _pin(
                bundle,
                image,
                sub="tag",
                message=f"{bundle.subject} names {image.text} by tag, which can become another image, and mirrors for "
                "closed networks need digests",
                digest=_pinned(answer.inspection),
                note=f"the digest of {image.text} is not known; resolve it",
            )
        elif index is not None:
            yield _pin(
                bundle,
                image,
                sub="child",
                message=f"{bundle.subject} names {image.text} by the digest of one platform "
                f"({_platform(index, answer.reference.digest)}) of an index with more",
                digest=index.digest,
                note=f"the digest of the index that {image.text} belongs to is not known; resolve its tag",
                severity=Severity.WARNING,
            )


def parent(answers: Answers, answer: Answer) -> Inspection | None:
    """The index that a digest is a child of, where that is known (MA004)."""
    index = answers.indexes.get(answer.text)
    if index is None or answer.reference is None or answer.reference.digest in (None, index.digest):
        return None
    return index if any(entry.digest == answer.reference.digest for entry in index.entries) else None


def _platform(index: Inspection, digest: str) -> str:
    return next(str(entry.platform) for entry in index.entries if entry.digest == digest)


def _pinned(inspection: Inspection | None) -> str:
    return inspection.digest if inspection is not None and inspection.status is not Status.ERROR else ""


def _pin(
    bundle: BundleFacts,
    image: BundleImage,
    *,
    sub: str,
    message: str,
    digest: str,
    note: str,
    severity: Severity | None = None,
) -> Draft:
    first = image.first
    return Draft(
        rule="MA207",
        sub=sub,
        severity=severity,
        message=message,
        hint=f"name it by digest: {by_digest(image.text, digest)}" if digest else "name it by the digest of its index",
        node=first.node,
        pointer=first.pointer,
        images=(image.text,),
        repair=_everywhere(bundle, image, digest) if digest else bundle.repair((), note),
    )


def by_digest(text: str, digest: str) -> str:
    """The same name with a digest instead of its tag or digest, spelled as it is.

    >>> by_digest("quay.io:443/team/app:1.0", "sha256:…")
    'quay.io:443/team/app@sha256:…'
    """
    name = text.partition("@")[0]
    head, slash, last = name.rpartition("/")
    return f"{head}{slash}{last.partition(':')[0]}@{digest}"


def _everywhere(bundle: BundleFacts, image: BundleImage, digest: str) -> Repair:
    """All places of the image in the bundle at once: they have to go on naming the same (MA206)."""
    pinned = by_digest(image.text, digest)
    operations = {
        place.pointer: Replace(place.pointer, pinned)
        for place in image.places
        if place.use is None or place.use.text == image.text
    }
    for text, where in bundle.service_version.other_scalars:
        if text == image.text:
            operations.setdefault(where, Replace(where, pinned))
        elif text.endswith(f"={image.text}"):
            operations.setdefault(where, Replace(where, text.removesuffix(image.text) + pinned))
    return bundle.repair(tuple(operations.values()))


# MA211 ----------------------------------------------------------------------------------------------------------------


def check_children(facts: ObjectFacts) -> Iterator[Draft]:
    """Indexes of which the registry does not have every manifest, of objects of every kind."""
    seen: set[str] = set()
    for place in _places(facts):
        answer = facts.answers.of(place.text)
        if place.text in seen or answer.inspection is None:
            continue
        seen.add(place.text)
        gone = [warning for warning in answer.inspection.warnings if warning.code == "child-missing"]
        if gone:
            source = answer.inspection.source
            host = source.host if source is not None else answer.reference.host_for_requests if answer.reference else ""
            yield _incomplete(str(facts.object.reference), place, gone, host)


def _incomplete(subject: str, place: ImageText, gone: list[InspectionWarning], host: str) -> Draft:
    missing = "; ".join(warning.message or "a manifest that the index names is not there" for warning in gone)
    return Draft(
        rule="MA211",
        message=f"{subject} uses {place.text}, of which {host or 'the registry'} lacks a part: {missing}",
        hint="copy the whole index to the registry, every platform of it",
        node=place.node,
        pointer=place.pointer,
        images=(place.text,),
    )


def _places(facts: ObjectFacts) -> Iterator[ImageText]:
    for each in facts.pods:
        for use in each.pod_spec.images:
            if use.resolved_text:
                yield ImageText(use.resolved_text, "deployment", use.container, use.node, use.pointer, use)
    if facts.object.kind == KIND:
        yield from BundleFacts(facts).service_version.related
