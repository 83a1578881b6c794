"""MA010: an image has a format that current container runtimes reject.

Pure.
"""

from collections.abc import Iterator

from polyarch.manifests.finding import Severity
from polyarch.manifests.lint.facts import Draft
from polyarch.manifests.lint.images.image_place import PUSH_AGAIN, ImagePlace
from polyarch.manifests.lint.rule import Rule

RULE = Rule(
    id="MA010",
    severity=Severity.ERROR,
    title="An image has a format that nodes no longer support",
    meaning="Current container runtimes reject schema 1 manifests and unknown media types.",
)


def check(place: ImagePlace) -> Iterator[Draft]:
    inspection = place.answer.inspection
    if inspection is None:
        return
    if inspection.error is not None and inspection.error.code == "unsupported-media-type":
        told = place.told(inspection.error)
        message = f"{place.subject}: nodes do not support the format of {place.name}: {told}"
        yield place.draft(RULE, message, PUSH_AGAIN)
    if inspection.kind == "schema1":
        message = f"{place.subject}: {place.name} is a schema 1 manifest ({inspection.media_type or 'schemaVersion 1'})"
        yield place.draft(RULE, f"{message}, which nodes no longer support", PUSH_AGAIN)
        return
    for warning in place.warnings("schema1"):
        yield place.draft(RULE, f"{place.subject}: {place.name}: {warning.message or warning.code}", PUSH_AGAIN)
