"""MA004: an image is pinned to one manifest of the index that its tag points to.

Pure.
"""

from collections.abc import Iterator

from polyarch.manifests.finding import PlatformSets, Repair, Severity
from polyarch.manifests.lint.facts import Draft
from polyarch.manifests.lint.images.image_place import ImagePlace
from polyarch.manifests.lint.rule import Rule
from polyarch.manifests.operations import Replace
from polyarch.manifests.scan.sets import texts
from polyarch.oci.answer import Inspection
from polyarch.platforms import Platform

RULE = Rule(
    id="MA004",
    severity=Severity.WARNING,
    title="An image digest pins one platform of a multi-platform image",
    meaning="The digest belongs to one manifest of the index that the tag points to, so all other platforms are lost.",
    fix="Replaces the digest with that of the index.",
)


def check(place: ImagePlace) -> Iterator[Draft]:
    reference, index = place.answer.reference, place.index
    if place.resolved is None or index is None or reference is None or reference.digest in (None, index.digest):
        return
    entry = next((entry for entry in index.entries if entry.digest == reference.digest), None)
    if entry is None or not index.digest:
        return
    fixed = place.text.replace(reference.digest, index.digest) if reference.digest else place.text
    yield place.draft(
        RULE,
        f"{place.subject} pins {place.name} to its {entry.platform} manifest; "
        f"the multi-platform index is {index.digest}",
        "pin the digest of the index",
        platforms=PlatformSets(supported=(str(entry.platform.node),), missing=_lost(index, entry.platform)),
        repair=Repair((Replace(place.pointer, fixed),), document=place.document)
        if fixed != place.text
        else Repair((), note="the digest comes from a kustomization; change it there", document=place.document),
    )


def _lost(index: Inspection, kept: Platform) -> tuple[str, ...]:
    return texts(each for each in index.node_platforms if each != kept.node)
