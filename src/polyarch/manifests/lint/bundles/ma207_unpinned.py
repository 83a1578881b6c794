"""MA207: images of a bundle that are not pinned to the digest of an index, so they can change or lose platforms.

Pure.
"""

from collections.abc import Iterator

from polyarch.manifests.bundle.service_version import BundleImage
from polyarch.manifests.finding import Repair, Severity
from polyarch.manifests.lint.bundles.bundle_facts import BundleFacts
from polyarch.manifests.lint.facts import Draft
from polyarch.manifests.lint.rule import Rule
from polyarch.manifests.operations import Replace
from polyarch.manifests.scan.sets import Answer, Answers
from polyarch.oci.answer import Inspection, Status

RULE = Rule(
    id="MA207",
    severity=Severity.INFO,
    title="An image of a bundle is not pinned to an index",
    meaning="The image is referenced by tag (tag), or by the digest of a single platform (child, a warning).",
    fix="Pins the digest of the index.",
    subs=("tag", "child"),
)


def check(bundle: BundleFacts) -> Iterator[Draft]:
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
                message=f"{bundle.subject} names {image.text} by tag, which can move to another image, and mirrors for "
                "disconnected clusters need digests",
                digest=_pinned(answer.inspection),
                note=f"the digest of {image.text} is unknown; resolve it",
            )
        elif index is not None:
            yield _pin(
                bundle,
                image,
                sub="child",
                message=f"{bundle.subject} names {image.text} by the digest of one platform "
                f"({_platform(index, answer.reference.digest)}) of an index with more",
                digest=index.digest,
                note=f"the digest of the index that {image.text} belongs to is unknown; resolve its tag",
                severity=Severity.WARNING,
            )


def parent(answers: Answers, answer: Answer) -> Inspection | None:
    """The index that a digest is a child of, if known (MA004)."""
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
        rule=RULE,
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
    """The same spelling of the name, with a digest instead of its tag or digest.

    >>> by_digest("quay.io:443/team/app:1.0", "sha256:…")
    'quay.io:443/team/app@sha256:…'
    """
    name = text.partition("@")[0]
    head, slash, last = name.rpartition("/")
    return f"{head}{slash}{last.partition(':')[0]}@{digest}"


def _everywhere(bundle: BundleFacts, image: BundleImage, digest: str) -> Repair:
    """Pins the image in all places of the bundle, which must keep naming the same image (MA206)."""
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
