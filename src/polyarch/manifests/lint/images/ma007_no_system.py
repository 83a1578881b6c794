"""MA007: the config of an image names no operating system.

Pure.
"""

from collections.abc import Iterator

from polyarch.manifests.finding import Severity
from polyarch.manifests.lint.facts import Draft
from polyarch.manifests.lint.images.image_place import ImagePlace
from polyarch.manifests.lint.rule import Rule

RULE = Rule(
    id="MA007",
    severity=Severity.WARNING,
    title="An image names no operating system",
    meaning="The os field of the image config is empty. polyarch assumes linux; other tools may reject the image.",
)


def check(place: ImagePlace) -> Iterator[Draft]:
    for warning in place.warnings("empty-os"):
        message = f"{place.subject}: {place.name}: {warning.message or warning.code}"
        yield place.draft(RULE, message, "build the image with a current tool")
