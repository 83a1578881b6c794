"""MA006: an index has no runnable platform, or the same platform twice.

Pure.
"""

from collections.abc import Iterator

from polyarch.manifests.finding import Severity
from polyarch.manifests.lint.facts import Draft
from polyarch.manifests.lint.images.image_place import ImagePlace
from polyarch.manifests.lint.rule import Rule

RULE = Rule(
    id="MA006",
    severity=Severity.ERROR,
    title="An index has no platform, or one twice",
    meaning="Nothing in the index can run (no-platforms), or two entries have the same platform and only the first one "
    "is used (duplicate-platform, a warning).",
    subs=("no-platforms", "duplicate-platform"),
)


def check(place: ImagePlace) -> Iterator[Draft]:
    for warning in place.warnings(*RULE.subs):
        if warning.code == "no-platforms":
            message = f"{place.subject}: {place.name} has no platform: {warning.message or 'its index is empty'}"
            yield place.draft(RULE, message, "push an index of runnable images", sub=warning.code)
        else:
            message = f"{place.subject}: {place.name}: {warning.message or warning.code}"
            hint = "push an index with one image for each platform"
            yield place.draft(RULE, message, hint, sub=warning.code, severity=Severity.WARNING)
