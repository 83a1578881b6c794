"""MA008: a tag points to another image than the lock file records (MF-034).

Pure.
"""

from collections.abc import Iterator

from polyarch.manifests.finding import PlatformSets, Severity
from polyarch.manifests.lint.facts import Draft
from polyarch.manifests.lint.images.image_place import ImagePlace
from polyarch.manifests.lint.rule import Rule
from polyarch.manifests.scan.sets import listed, texts

RULE = Rule(
    id="MA008",
    severity=Severity.ERROR,
    title="An image changed since it was locked",
    meaning="The tag points to another digest than the lock file records. An error if a platform was lost, otherwise a "
    "warning.",
    fix="polyarch lint --update-lock records the current digest.",
    flag="--update-lock",
    subs=("lost-platform", "moved"),
    default=False,
)


def check(place: ImagePlace) -> Iterator[Draft]:
    reference, inspection, lock = place.answer.reference, place.resolved, place.options.lock
    if inspection is None or lock is None or reference is None or reference.digest is not None:
        return
    locked = lock.get(reference.canonical)
    if locked is None or (inspection.digest and inspection.digest == locked.digest):
        return
    lost = sorted(set(locked.platforms) - set(inspection.node_platforms))
    if lost:
        yield place.draft(
            RULE,
            f"{place.subject}: {place.name} lost {listed(lost)} since it was locked",
            "publish the platform again, or accept the loss with --update-lock",
            sub="lost-platform",
            platforms=PlatformSets(supported=texts(inspection.node_platforms), missing=texts(lost)),
        )
    elif inspection.digest:
        yield place.draft(
            RULE,
            f"{place.subject}: {place.name} is now {inspection.digest}, but was locked as {locked.digest}",
            "accept it with --update-lock, or pin the digest",
            sub="moved",
            severity=Severity.WARNING,
        )
