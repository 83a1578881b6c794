"""MA206: ``spec.relatedImages`` does not match the images in use.

Mirrors copy exactly what ``spec.relatedImages`` lists; the operator starts what its deployments and
``RELATED_IMAGE_*`` variables name. So both must name the same images.

Pure.
"""

from collections.abc import Iterable, Iterator

from polyarch.manifests.bundle.service_version import VARIABLE_PREFIX, BundleImage, ImageText
from polyarch.manifests.finding import Repair, Severity
from polyarch.manifests.lint.bundles.bundle_facts import BundleFacts
from polyarch.manifests.lint.facts import Draft
from polyarch.manifests.lint.rule import Rule
from polyarch.manifests.operations import Add, TreeOperation

RULE = Rule(
    id="MA206",
    severity=Severity.WARNING,
    title="relatedImages does not match the images in use",
    meaning="An image of a deployment or a RELATED_IMAGE_* variable is not listed, so mirrors do not copy it "
    "(missing); or a listed image is not used anywhere (stale, info).",
    fix="Adds the missing entry.",
    subs=("missing", "stale"),
)


def check(bundle: BundleFacts) -> Iterator[Draft]:
    yield from _unlisted(bundle)
    yield from _unused(bundle)


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
            rule=RULE,
            sub="missing",
            message=f"{bundle.subject} does not list {image.text} of {place} in relatedImages, so mirrors do not "
            "copy it",
            hint="add it to spec.relatedImages",
            node=first.node,
            pointer=first.pointer,
            images=(image.text,),
            repair=repair,
        )


def _entries(bundle: BundleFacts, missing: Iterable[BundleImage]) -> Repair:
    """One repair for all missing images, so that the new names are unique, too."""
    subject = bundle.facts.object
    names = {place.name for place in bundle.service_version.related}
    operations: list[TreeOperation] = []
    taken: set[str] = set()
    for image in missing:
        identity = _identity(bundle, image.text)
        if identity in taken or bundle.facts.answers.of(image.text).reference is None:
            continue  # two spellings of an image need one entry, a text with a variable none
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
                rule=RULE,
                sub="stale",
                severity=Severity.INFO,
                message=f"{bundle.subject} lists {place.text} in relatedImages and uses it nowhere else",
                hint="remove the entry, unless the image is named in the operator's own code",
                node=place.node,
                pointer=place.pointer,
                images=(place.text,),
            )


def _identity(bundle: BundleFacts, text: str) -> str:
    """The same for every spelling of an image; the digest counts, whatever the tag."""
    reference = bundle.facts.answers.of(text).reference
    if reference is None:
        return text
    return f"{reference.name}@{reference.digest}" if reference.digest else reference.canonical
