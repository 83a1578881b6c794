"""MA005: an image that contains another platform than it says; only ``--deep`` looks.

Pure.
"""

from collections.abc import Iterator

from polyarch.manifests.finding import Severity
from polyarch.manifests.lint.facts import Draft
from polyarch.manifests.lint.images.image_place import ImagePlace
from polyarch.manifests.lint.rule import Rule

RULE = Rule(
    id="MA005",
    severity=Severity.ERROR,
    title="An image says one platform and contains another",
    meaning="With --deep: an entry of the index names another platform than its config (mislabelled), or its "
    "program is built for another machine (wrong-binary).",
    subs=("mislabelled", "wrong-binary"),
)


def check(place: ImagePlace) -> Iterator[Draft]:
    for warning in place.answer.inspection.warnings if place.answer.inspection is not None else ():
        if warning.code in RULE.subs:
            message = f"{place.subject}: {place.name}: {warning.message or warning.code}"
            yield place.draft(RULE, message, "build that platform of the image again", sub=warning.code)
