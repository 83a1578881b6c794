"""The images that a build needs, for which of its architectures, and which architecture each must have (BD-059)."""

from collections.abc import Iterable, Iterator
from typing import Literal

import msgspec

from polyarch.builds.architectures.hosts import host_of
from polyarch.builds.facts.facts import Facts
from polyarch.builds.keys import handles
from polyarch.builds.keys.inputs import Inputs

Role = Literal["base", "builder", "push"]


class Need(msgspec.Struct, frozen=True, kw_only=True, order=True):
    """An image that has to be there for the build of one architecture."""

    asked: str
    """The canonical reference that a registry is asked about, and that pins are kept by."""
    architecture: str
    """Of the image that is built."""
    runs_on: str
    """The architecture that the image must have: the same, or that of the nodes where it is built."""
    reference: str
    """Canonical, as the Containerfile or the settings name it: the same as ``asked`` but for a substitution."""
    role: Role = "base"
    required: bool = True
    """False: it is part of the key if there is one, and nothing pulls it."""


def needs(facts: Facts, architectures: Iterable[str], inputs: Inputs) -> tuple[Need, ...]:
    """Every image of every architecture, sorted."""
    return tuple(sorted({need for each in set(architectures) for need in _of(facts, each, inputs)}))


def _of(facts: Facts, architecture: str, inputs: Inputs) -> Iterator[Need]:
    host = host_of(facts, architecture).architecture
    own = inputs.per_architecture.get(architecture)
    for base in own.bases if own is not None else ():
        # The child for the architecture itself is part of the key even if its stage runs elsewhere (BD-075).
        yield Need(
            asked=base.pull,
            architecture=architecture,
            runs_on=architecture,
            reference=base.name,
            required=base.for_target or (base.for_build and host == architecture),
        )
        if base.for_build and host != architecture:
            yield Need(asked=base.pull, architecture=architecture, runs_on=host, reference=base.name)
    for image in _machine(inputs):
        yield Need(asked=image, architecture=architecture, runs_on=architecture, reference=image)
    for role, image in _tools(facts):
        yield Need(asked=image, architecture=architecture, runs_on=host, reference=image, role=role)


def _machine(inputs: Inputs) -> Iterator[str]:
    if inputs.machine is not None:
        yield from (handles.image(each) for each in (inputs.machine.os_image, inputs.machine.extensions_image) if each)


def _tools(facts: Facts) -> Iterator[tuple[Role, str]]:
    """The images that the pods of the build run."""
    builder = facts.wish.spec.builder
    if image := builder.image or facts.settings.builder_image:
        yield "builder", handles.image(image)
    if image := builder.push_image or facts.settings.push_image:
        yield "push", handles.image(image)
