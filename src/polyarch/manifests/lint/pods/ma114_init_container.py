"""MA114: an init container or sidecar excludes nodes on which the other containers run.

Pure.
"""

from collections.abc import Iterator
from functools import reduce
from operator import and_

from polyarch.manifests.finding import PlatformSets, Severity
from polyarch.manifests.lint.facts import Draft, PodFacts
from polyarch.manifests.lint.rule import Rule
from polyarch.manifests.scan.sets import listed, texts
from polyarch.platforms import PlatformSet

RULE = Rule(
    id="MA114",
    severity=Severity.INFO,
    title="An init container limits where the pod can run",
    meaning="An init container or sidecar supports fewer platforms than the regular containers together.",
)


def check(facts: PodFacts) -> Iterator[Draft]:
    if facts.pod_spec.is_patch:  # the regular containers may be in the patched resource
        return
    ordinary = [image for image in facts.supported.images if image.use.role == "container"]
    if len(ordinary) == len(facts.supported.images) or any(image.platforms is None for image in ordinary):
        return
    common = reduce(
        and_, (image.platforms for image in ordinary if image.platforms is not None), PlatformSet.EVERYTHING
    )
    if common.is_everything or not common:
        return
    for image in facts.supported.images:
        if image.use.role == "init" and image.platforms is not None:
            missing = [each for each in common if each not in image.platforms]
            if missing:
                yield Draft(
                    rule=RULE,
                    message=f"{facts.subject} could run on {listed(missing)}, "
                    f"but the image {image.name} of its init container {image.use.container} lacks it",
                    hint="publish the image of the init container for the platforms of the other containers",
                    node=image.use.node,
                    pointer=image.use.pointer,
                    images=(image.name,),
                    platforms=PlatformSets(supported=texts(image.platforms), missing=texts(missing)),
                )
