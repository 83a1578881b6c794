"""MA003: an image lacks a required platform. MA002 reports images with a single platform.

Pure.
"""

from collections.abc import Iterator

from polyarch.manifests.finding import PlatformSets, Severity
from polyarch.manifests.lint.facts import Draft
from polyarch.manifests.lint.images.image_place import ImagePlace
from polyarch.manifests.lint.images.ma002_one_platform import missing_platforms
from polyarch.manifests.lint.rule import Rule
from polyarch.manifests.scan.sets import listed, texts

RULE = Rule(
    id="MA003",
    severity=Severity.ERROR,
    title="An image lacks a required platform",
    meaning="--require names a platform that the image is not built for.",
)


def check(place: ImagePlace) -> Iterator[Draft]:
    missing = missing_platforms(place)
    platforms = place.resolved.node_platforms if place.resolved is not None else ()
    if missing and len(platforms) != 1:
        message = f"{place.subject}: {place.name} lacks {listed(missing)}, which is required"
        sets = PlatformSets(supported=texts(platforms), missing=texts(missing))
        yield place.draft(RULE, message, "also publish the image for it", platforms=sets)
