"""Images beside the ordinary containers: init containers (MA114) and what is passed by variable or argument (MA116).

Pure.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce
from operator import and_

from yaml.nodes import Node

from polyarch.manifests.finding import PlatformSets
from polyarch.manifests.lint.facts import Draft, PodFacts
from polyarch.manifests.scan.nodes import elements, get, text_of
from polyarch.manifests.scan.pod_specs import PodSpec
from polyarch.manifests.scan.sets import listed, texts
from polyarch.platforms import PlatformSet

VARIABLE = re.compile(r"RELATED_IMAGE_.*|.*_IMAGE", re.DOTALL)
_ARGUMENT = re.compile(r"(--[A-Za-z0-9_.-]*image)=(\S+)", re.ASCII)


@dataclass(frozen=True, eq=False)
class PassedImage:
    """An image that a container is told of."""

    name: str
    """Variable or option."""
    text: str
    node: Node
    pointer: str


def passed_images(pod_spec: PodSpec) -> Iterator[PassedImage]:
    """Values of variables ``RELATED_IMAGE_*`` and ``*_IMAGE``, and arguments ``--…image=…``."""
    for use in pod_spec.images:
        if use.role == "volume":
            continue
        for index, entry in enumerate(elements(get(use.holder, "env"))):
            name, node = text_of(get(entry, "name")), get(entry, "value")
            text = text_of(node)
            if name and node is not None and text and VARIABLE.fullmatch(name):
                yield PassedImage(name, text, node, f"{use.holder_pointer}/env/{index}/value")
        for field in ("command", "args"):
            for index, node in enumerate(elements(get(use.holder, field))):
                match = _ARGUMENT.fullmatch(text_of(node) or "")
                if match:
                    yield PassedImage(match[1], match[2], node, f"{use.holder_pointer}/{field}/{index}")


def check_init(facts: PodFacts) -> Iterator[Draft]:
    """MA114."""
    if facts.pod_spec.is_patch:  # the ordinary containers may stand in what is patched
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
                    rule="MA114",
                    message=f"{facts.subject} could run on {listed(missing)} "
                    f"but for its init container {image.use.container}, whose image {image.name} lacks it",
                    hint="publish the image of the init container for the platforms of the others",
                    node=image.use.node,
                    pointer=image.use.pointer,
                    images=(image.name,),
                    platforms=PlatformSets(supported=texts(image.platforms), missing=texts(missing)),
                )


def check_passed(facts: PodFacts) -> Iterator[Draft]:
    """MA116."""
    platforms = facts.platforms
    if platforms.is_everything or not facts.supported.exact:
        return
    for image in passed_images(facts.pod_spec):
        has = facts.answers.of(image.text).platforms
        missing = [each for each in platforms if has is not None and each not in has]
        if has is not None and missing:
            yield Draft(
                rule="MA116",
                message=f"{facts.subject} supports {listed(missing)}, but {image.text} of {image.name} "
                f"has only {listed(has)}",
                hint="publish the image for these platforms, or see that what it is used for stays off them",
                node=image.node,
                pointer=image.pointer,
                images=(image.text,),
                platforms=PlatformSets(supported=texts(has), missing=texts(missing)),
            )
