"""MA204: an image lacks an architecture of the operator's manager.

The manager supports an architecture that the bundle does not promise yet, and this image prevents the promise.

Pure.
"""

from collections.abc import Iterator
from functools import reduce
from operator import and_

from polyarch.manifests.bundle.labels import keeps, names_in
from polyarch.manifests.finding import PlatformSets, Severity
from polyarch.manifests.lint.bundles.bundle_facts import BundleFacts, in_words
from polyarch.manifests.lint.facts import Draft
from polyarch.manifests.lint.rule import Rule
from polyarch.manifests.scan.sets import texts
from polyarch.platforms import PlatformSet

RULE = Rule(
    id="MA204",
    severity=Severity.WARNING,
    title="An image of a bundle lacks an architecture of the manager",
    meaning="The manager runs on an architecture without a label, but another image of the bundle does not.",
    upstream="V4",
)


def check(bundle: BundleFacts) -> Iterator[Draft]:
    labels, systems = bundle.labels.both[0]
    known = (bundle.facts.answers.of(use.resolved_text).platforms for use in bundle.service_version.managers())
    manager = reduce(and_, (each for each in known if each is not None), PlatformSet.EVERYTHING)
    if manager.is_everything or not systems.promised:
        return
    wanted = names_in(manager, labels, systems) - frozenset(labels.promised)
    for image, platforms in bundle.judged:
        lacking = sorted(name for name in wanted if not keeps(platforms, name, labels, systems))
        if lacking:
            yield Draft(
                rule=RULE,
                message=f"{bundle.subject} could support {', '.join(lacking)}, as its manager does, but {image.text} "
                f"has {in_words(platforms)}",
                hint="publish the image for these, or leave the labels as they are if that is intended",
                node=image.first.node,
                pointer=image.first.pointer,
                images=(image.text,),
                platforms=PlatformSets(supported=texts(platforms), missing=_missing_platforms(manager, lacking)),
            )


def _missing_platforms(manager: PlatformSet, architectures: list[str]) -> tuple[str, ...]:
    return texts(each for each in manager if each.architecture in architectures)
