"""Pods, reduced to the fields that rules read: images, node selection, scheduling gates, owners.

A list that is absent or null in the JSON is ``None`` here, and an empty one is an empty list: a patch creates the
former and appends to the latter. Elements keep their order, so an index here is an index in the stored object.
"""

import msgspec

from polyarch.model.meta import ObjectMeta
from polyarch.model.taint import Toleration


class NodeSelectorRequirement(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """core/v1 NodeSelectorRequirement."""

    key: str = ""
    operator: str = ""
    values: list[str] | None = None


class NodeSelectorTerm(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """core/v1 NodeSelectorTerm: all its expressions and fields must match; an empty one matches no node."""

    match_expressions: list[NodeSelectorRequirement] | None = None
    match_fields: list[NodeSelectorRequirement] | None = None

    @property
    def is_empty(self) -> bool:
        return not self.match_expressions and not self.match_fields


class NodeSelector(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """core/v1 NodeSelector: one of its terms must match."""

    node_selector_terms: list[NodeSelectorTerm] | None = None


class PreferredSchedulingTerm(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """core/v1 PreferredSchedulingTerm."""

    weight: int = 0
    preference: NodeSelectorTerm | None = None


class NodeAffinity(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """core/v1 NodeAffinity."""

    required_during_scheduling_ignored_during_execution: NodeSelector | None = None
    preferred_during_scheduling_ignored_during_execution: list[PreferredSchedulingTerm] | None = None


class Affinity(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """core/v1 Affinity without podAffinity and podAntiAffinity."""

    node_affinity: NodeAffinity | None = None


class PodSchedulingGate(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """core/v1 PodSchedulingGate."""

    name: str = ""


class Container(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """core/v1 Container: its name, image and pull policy."""

    name: str = ""
    image: str = ""
    image_pull_policy: str = ""


class ImageVolumeSource(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """core/v1 ImageVolumeSource: an image mounted as files."""

    reference: str = ""
    pull_policy: str = ""


class Volume(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """core/v1 Volume: only the source ``image``."""

    image: ImageVolumeSource | None = None


class LocalObjectReference(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """core/v1 LocalObjectReference: an object in the pod's namespace."""

    name: str = ""


class PodOS(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """core/v1 PodOS."""

    name: str = ""


class PodSpec(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """core/v1 PodSpec; ephemeral containers are deliberately left out (PL-210)."""

    containers: list[Container] | None = None
    init_containers: list[Container] | None = None
    volumes: list[Volume] | None = None
    image_pull_secrets: list[LocalObjectReference] | None = None
    service_account_name: str = ""
    node_name: str = ""
    node_selector: dict[str, str] | None = None
    affinity: Affinity | None = None
    scheduling_gates: list[PodSchedulingGate] | None = None
    os: PodOS | None = None
    tolerations: list[Toleration] | None = None


class PodStatus(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """core/v1 PodStatus: only the phase."""

    phase: str = ""


class Pod(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """core/v1 Pod."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PodSpec = PodSpec()
    status: PodStatus | None = None

    @property
    def required(self) -> NodeSelector | None:
        """``spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution``."""
        affinity = self.node_affinity
        return affinity.required_during_scheduling_ignored_during_execution if affinity is not None else None

    @property
    def preferred(self) -> list[PreferredSchedulingTerm] | None:
        """``spec.affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution``."""
        affinity = self.node_affinity
        return affinity.preferred_during_scheduling_ignored_during_execution if affinity is not None else None

    @property
    def node_affinity(self) -> NodeAffinity | None:
        return self.spec.affinity.node_affinity if self.spec.affinity is not None else None
