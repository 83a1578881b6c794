"""MA116: images that a container gets by variable or argument and starts later.

Pure.
"""

import re
from collections.abc import Iterator

from polyarch.manifests.finding import PlatformSets, Severity
from polyarch.manifests.lint.facts import Draft, PodFacts
from polyarch.manifests.lint.rule import Rule
from polyarch.manifests.scan.pod_specs import NamedText, PodSpec
from polyarch.manifests.scan.sets import listed, texts

RULE = Rule(
    id="MA116",
    severity=Severity.INFO,
    title="An image passed by variable or argument supports fewer platforms than the pod",
    meaning="An image that an operator is given as RELATED_IMAGE_*, *_IMAGE or --*image=, and starts later, cannot run "
    "everywhere that the operator can.",
    default=False,
)

VARIABLE = re.compile(r"RELATED_IMAGE_.*|.*_IMAGE", re.DOTALL)

_ARGUMENT = re.compile(r"(--[A-Za-z0-9_.-]*image)=(\S+)", re.ASCII)


def check(facts: PodFacts) -> Iterator[Draft]:
    platforms = facts.platforms
    if platforms.is_everything or not facts.supported.exact:
        return
    for image in passed_images(facts.pod_spec):
        has = facts.answers.of(image.text).platforms
        missing = [each for each in platforms if has is not None and each not in has]
        if has is not None and missing:
            yield Draft(
                rule=RULE,
                message=f"{facts.subject} supports {listed(missing)}, but {image.text} of {image.name} "
                f"has only {listed(has)}",
                hint="publish the image for these platforms, or keep the pods that use it off them",
                node=image.node,
                pointer=image.pointer,
                images=(image.text,),
                platforms=PlatformSets(supported=texts(has), missing=texts(missing)),
            )


def passed_images(pod_spec: PodSpec) -> Iterator[NamedText]:
    """Values of variables ``RELATED_IMAGE_*`` and ``*_IMAGE``, and arguments ``--…image=…`` by option."""
    for use in pod_spec.images:
        if use.role == "volume":
            continue
        yield from (each for each in use.environment if VARIABLE.fullmatch(each.name))
        for each in use.arguments:
            match = _ARGUMENT.fullmatch(each.text)
            if match:
                yield each._replace(name=match[1], text=match[2])
