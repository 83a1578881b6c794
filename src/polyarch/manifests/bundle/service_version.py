"""A ClusterServiceVersion as the rules for bundles see it: labels, deployments, related images, with positions.

The images of a bundle are those of its deployments, those that ``RELATED_IMAGE_*`` variables pass to the operator,
and ``spec.relatedImages``, which mirrors copy. A text that occurs in several places is one :class:`BundleImage`.

Pure.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from yaml.nodes import MappingNode, Node, ScalarNode

from polyarch.manifests.scan.composer import children
from polyarch.manifests.scan.nodes import elements, find, get, text_of
from polyarch.manifests.scan.objects import KubeObject
from polyarch.manifests.scan.pod_specs import ImageUse, LabelEntry, PodSpec, label_entries

KIND = "ClusterServiceVersion"
VARIABLE_PREFIX = "RELATED_IMAGE_"
MANAGER = "manager"
PROXY = "kube-rbac-proxy"
"""Sidecar that operator-sdk adds to each operator: never the manager."""

Where = Literal["deployment", "variable", "related"]


@dataclass(frozen=True, eq=False)
class ImageText:
    """One reference to an image; ``name`` is that of the container, variable or related image."""

    text: str
    where: Where
    name: str
    node: Node
    pointer: str
    use: ImageUse | None = None
    """Set for an image of a pod."""


def deployed_images(pod_specs: Iterable[PodSpec]) -> Iterator[ImageText]:
    """The images of all containers and image volumes that name one."""
    for pod_spec in pod_specs:
        for use in pod_spec.images:
            if use.resolved_text:
                yield ImageText(use.resolved_text, "deployment", use.container, use.node, use.pointer, use)


@dataclass(frozen=True, eq=False)
class BundleImage:
    """An image of the bundle and all its places, in the order of the text's fields."""

    text: str
    places: tuple[ImageText, ...]

    @property
    def first(self) -> ImageText:
        return self.places[0]

    def is_in(self, *where: Where) -> bool:
        return any(place.where in where for place in self.places)


@dataclass(frozen=True, eq=False)
class ServiceVersion:
    """One ClusterServiceVersion; ``pod_specs`` are those of its deployments."""

    object: KubeObject
    pod_specs: tuple[PodSpec, ...]

    @classmethod
    def of(cls, subject: KubeObject, pod_specs: Iterable[PodSpec]) -> "ServiceVersion":
        """With the pod specifications of its install strategy among those given."""
        below = f"{subject.pointer}/spec/install/spec/deployments/"
        return cls(subject, tuple(each for each in pod_specs if each.pointer.startswith(below)))

    @cached_property
    def labels(self) -> tuple[LabelEntry, ...]:
        return label_entries(get(self.object.metadata, "labels"), f"{self.object.pointer}/metadata/labels")

    @cached_property
    def images(self) -> tuple[BundleImage, ...]:
        """Every text that names an image of the bundle, by first appearance: deployments, variables, related."""
        found: dict[str, list[ImageText]] = {}
        for place in (*self.deployed, *self.variables, *self.related):
            found.setdefault(place.text, []).append(place)
        return tuple(BundleImage(text, tuple(places)) for text, places in found.items())

    @cached_property
    def deployed(self) -> tuple[ImageText, ...]:
        """The images of all containers and image volumes that name one."""
        return tuple(deployed_images(self.pod_specs))

    @cached_property
    def variables(self) -> tuple[ImageText, ...]:
        """Values of the variables ``RELATED_IMAGE_*``."""
        return tuple(
            ImageText(text, "variable", name, node, where)
            for pod_spec in self.pod_specs
            for use in pod_spec.images
            for name, text, node, where in use.environment
            if name.startswith(VARIABLE_PREFIX)
        )

    @cached_property
    def related(self) -> tuple[ImageText, ...]:
        """``spec.relatedImages``."""
        path = f"{self.object.pointer}/spec/relatedImages"
        found = []
        for index, entry in enumerate(elements(self.related_node)):
            node = get(entry, "image")
            text = text_of(node)
            if node is not None and text:
                name = text_of(get(entry, "name")) or ""
                found.append(ImageText(text, "related", name, node, f"{path}/{index}/image"))
        return tuple(found)

    @property
    def related_node(self) -> Node | None:
        return find(self.object.node, "spec", "relatedImages")

    @cached_property
    def other_scalars(self) -> tuple[tuple[str, str], ...]:
        """Text and pointer of every scalar of the deployments' containers: arguments and variables of any name."""
        return tuple(
            (each.text, each.pointer)
            for pod_spec in self.pod_specs
            for use in pod_spec.images
            for each in (*use.environment, *use.arguments)
        )

    def mentions(self, text: str) -> bool:
        """Whether the text occurs outside ``relatedImages``: in an annotation, an example, a description."""
        return any(text in scalar for scalar in self._scalars)

    @cached_property
    def _scalars(self) -> tuple[str, ...]:
        return tuple(_scalars(self.object.node, self.related_node))

    def managers(self) -> Iterator[ImageUse]:
        """The containers that are the operator itself (MF-073), deployment by deployment."""
        for pod_spec in self.pod_specs:
            containers = [use for use in pod_spec.images if use.role == "container"]
            named = [use for use in containers if use.container == MANAGER]
            yield from named or (use for use in containers if use.container != PROXY)


def _scalars(node: Node, without: Node | None) -> Iterator[str]:
    stack, visited = [node], {id(without)}
    while stack:
        current = stack.pop()
        if isinstance(current, ScalarNode):
            yield str(current.value)
        elif id(current) not in visited:
            visited.add(id(current))
            below = [member for _, member in current.value] if isinstance(current, MappingNode) else children(current)
            stack += below
