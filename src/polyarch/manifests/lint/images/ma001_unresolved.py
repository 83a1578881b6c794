"""MA001: the platforms of an image are unknown.

Pure.
"""

from collections.abc import Iterator

from polyarch.manifests.finding import Severity
from polyarch.manifests.lint.facts import Draft
from polyarch.manifests.lint.images.image_place import PUSH_AGAIN, ImagePlace
from polyarch.manifests.lint.rule import Rule
from polyarch.oci.answer import InspectionError, Status

RULE = Rule(
    id="MA001",
    severity=Severity.WARNING,
    title="The platforms of an image are unknown",
    meaning="The registry could not be reached, denied access, or does not state the platforms; or the text is not an "
    "image reference. Rules that need the platforms of every image skip the pod. An error with --strict.",
    upstream="V1",
)

_TOLERABLE = frozenset({"transient", "limit", "configuration"})
_NEXT = {
    "absent": "correct the name or the tag, or push the image",
    "auth": "log in to the registry, or give credentials with --authfile",
    "limit": "try again later or log in, or give its platforms with --platforms-file",
    "transient": "try again, or give its platforms with --platforms-file",
    "content": PUSH_AGAIN,
    "configuration": "correct the configuration of the registry, or give its platforms with --platforms-file",
}
_OFFLINE = "give its platforms with --platforms-file, or leave out --offline"


def check(place: ImagePlace) -> Iterator[Draft]:
    answer, name, inspection = place.answer, place.name, place.answer.inspection
    if answer.platforms is not None:
        return
    if not name:
        message = f"{place.subject}: {place.holder} names no image"
        yield place.draft(RULE, message, "name the image", sub="not-a-reference")
    elif answer.reference is None:
        message = f"{place.subject} has the image {name!r}, which is not an image reference: {answer.problem}"
        hint = "render the manifest first, or write NAME:TAG or NAME@sha256:DIGEST"
        yield place.draft(RULE, message, hint, sub="not-a-reference")
    elif inspection is None:
        if place.options.unresolved != "ignore":
            message = f"{place.subject}: the platforms of {name} are unknown: no registry was asked"
            yield place.draft(RULE, message, _OFFLINE, sub="offline-miss")
    elif inspection.status is Status.UNKNOWN:
        message = f"{place.subject}: the image {name} names no architecture"
        yield place.draft(RULE, message, PUSH_AGAIN, sub="empty-architecture")
    elif inspection.error is not None:
        yield from _failed(place, inspection.error)


def _failed(place: ImagePlace, error: InspectionError) -> Iterator[Draft]:
    if place.options.unresolved == "ignore" and error.error_class in _TOLERABLE:
        return
    message = f"{place.subject}: the platforms of {place.name} are unknown: {place.told(error)}"
    hint = _OFFLINE if error.code == "offline-miss" else _NEXT[error.error_class]
    yield place.draft(RULE, message, hint, sub=error.code)
