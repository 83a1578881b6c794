"""MA005: the content of an image does not match its platform; found with ``--deep`` only.

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
    title="The content of an image does not match its platform",
    meaning="Found with --deep only: an index entry and the image config name different platforms (mislabelled), or "
    "the binary is built for another machine (wrong-binary).",
    subs=("mislabelled", "wrong-binary"),
)


def check(place: ImagePlace) -> Iterator[Draft]:
    for warning in place.warnings(*RULE.subs):
        message = f"{place.subject}: {place.name}: {warning.message or warning.code}"
        yield place.draft(RULE, message, "build that platform of the image again", sub=warning.code)
