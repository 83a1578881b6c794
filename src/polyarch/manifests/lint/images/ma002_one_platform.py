"""MA002: an image is built for one platform only, but another one is required.

Pure.
"""

from collections.abc import Iterator

from polyarch.manifests.finding import PlatformSets, Severity
from polyarch.manifests.lint.facts import Draft
from polyarch.manifests.lint.images.image_place import ImagePlace
from polyarch.manifests.lint.rule import Rule
from polyarch.manifests.scan.sets import listed, texts
from polyarch.platforms import NodePlatform

RULE = Rule(
    id="MA002",
    severity=Severity.ERROR,
    title="An image is built for one platform only",
    meaning="The image has exactly one node platform, and --require names another one.",
)


def check(place: ImagePlace) -> Iterator[Draft]:
    required, missing = place.options.require, missing_platforms(place)
    platforms = place.resolved.node_platforms if place.resolved is not None else ()
    if missing and len(platforms) == 1:
        yield place.draft(
            RULE,
            f"{place.subject}: {place.name} is built for {platforms[0]} only; {listed(required)} "
            f"{'is' if len(required) == 1 else 'are'} required",
            f"also build it for {listed(missing)}, and publish one multi-platform image",
            platforms=PlatformSets(supported=texts(platforms), missing=texts(missing)),
        )


def missing_platforms(place: ImagePlace) -> tuple[NodePlatform, ...]:
    """The required platforms that the image lacks, sorted; none for an image that constrains no pod."""
    required = place.options.require
    if not required or not place.constrains or place.resolved is None:
        return ()
    return tuple(sorted(set(required) - set(place.resolved.node_platforms)))
