"""What a Job is made from: everything is decided already, and nothing secret is in it (BD-333).

Secrets are named, not held; whoever makes an order knows neither their bytes nor needs them.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import msgspec

from polyarch.builds.api.resources import ArchitectureScheduling, ImageBuildSpec
from polyarch.builds.facts.facts import Entitlement, Settings

ProfileName = Literal["UserNamespace", "Rootless", "Privileged"]


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """Names and marks of the objects that make up one Job; ``labels`` are on its pods too."""

    namespace: str
    job: str
    owners: Sequence[Mapping[str, Any]]
    labels: Mapping[str, str]
    annotations: Mapping[str, str] = {}
    execution: str = ""
    """For people: what the Job is a part of."""
    record: str = ""
    """The ConfigMap of BD-049; empty: none."""
    inputs: str = ""
    """Name of the ConfigMap with the Job's inputs, where it is not ``<job>-in`` (BD-275)."""


class Image(msgspec.Struct, frozen=True, kw_only=True, order=True):
    """An image from outside that the Containerfile names, and what is pulled for it."""

    written: tuple[str, ...]
    """The texts by which the Containerfile names it, with and without its arguments expanded."""
    pull: str
    """``repository@digest`` where it is pinned."""


class Given(msgspec.Struct, frozen=True, kw_only=True):
    """What a build of a machine OS is given that no spec of ours names (BD-275). All are objects of its namespace."""

    context: tuple[str, ...] = ()
    """ConfigMaps whose files are the context."""
    containers: tuple[str, ...] = ()
    """ConfigMaps with files of ``/etc/containers``; any of them may be missing."""
    entitled: tuple[Entitlement, ...] = ()


class ArchitectureOrder(msgspec.Struct, frozen=True, kw_only=True):
    """The image of one architecture, to be built and pushed."""

    identity: Identity
    spec: ImageBuildSpec
    architecture: str
    host: str
    """The architecture of the nodes where it is built; another one than ``architecture``: emulated."""
    profile: ProfileName
    containerfile: str
    arguments: Mapping[str, str] = {}
    images: Sequence[Image] = ()
    context_data: Mapping[str, Any] | None = None
    """``{"data", "binaryData"}`` of a ConfigMap context, as it was when the key was computed."""
    given: Given | None = None
    repository: str
    """Where the child goes: the staging repository, if there is one."""
    tag: str = ""
    settings: Settings

    @property
    def emulated(self) -> bool:
        return self.host != self.architecture

    @property
    def scheduling(self) -> ArchitectureScheduling:
        return scheduling_of(self.spec, self.architecture)


def scheduling_of(spec: ImageBuildSpec, architecture: str) -> ArchitectureScheduling:
    """``scheduling.perArchitecture`` of the architecture, empty if it has none."""
    named = spec.scheduling.per_architecture or ()
    return next((each for each in named if each.architecture == architecture), ArchitectureScheduling())
