"""A ClusterServiceVersion with the answers for its images, the input of the rules for bundles.

Containers, init containers and related images all count. An image that could not be inspected is left out (MA001
reports it); one without a platform of its own keeps every promise (MF-072).

Pure.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, reduce
from operator import and_

from yaml.nodes import Node

from polyarch.manifests.bundle.labels import BundleLabels, labels_of
from polyarch.manifests.bundle.service_version import BundleImage, ServiceVersion
from polyarch.manifests.finding import Repair
from polyarch.manifests.lint.facts import ObjectFacts
from polyarch.manifests.lint.images.image_place import ImagePlace
from polyarch.manifests.operations import TreeOperation
from polyarch.manifests.scan.nodes import get
from polyarch.platforms import PlatformSet


@dataclass(frozen=True, eq=False)
class BundleFacts:
    """A ClusterServiceVersion with the answers for its images."""

    facts: ObjectFacts

    @cached_property
    def service_version(self) -> ServiceVersion:
        return ServiceVersion.of(self.facts.object, (each.pod_spec for each in self.facts.pods))

    @cached_property
    def labels(self) -> BundleLabels:
        return labels_of(self.service_version)

    @property
    def subject(self) -> str:
        return str(self.facts.object.reference)

    @cached_property
    def judged(self) -> tuple[tuple[BundleImage, PlatformSet], ...]:
        """The images that keep or break promises: deployed or related, with known platforms.

        An image used only in volumes counts as far as it constrains its pod (MF-005).
        """
        found = []
        for image in self.service_version.images:
            if image.is_in("deployment", "related"):
                platforms = self._platforms(image)
                if platforms is not None:
                    found.append((image, platforms))
        return tuple(found)

    @cached_property
    def unknown(self) -> tuple[str, ...]:
        """The images with unknown platforms."""
        return tuple(
            image.text
            for image in self.service_version.images
            if image.is_in("deployment", "related") and self._platforms(image) is None
        )

    def _platforms(self, image: BundleImage) -> PlatformSet | None:
        answer = self.facts.answers.of(image.text)
        volumes = all(place.use is not None and place.use.role == "volume" for place in image.places)
        if volumes and answer.inspection is not None and answer.inspection.kind != "index":
            return PlatformSet.EVERYTHING
        return answer.platforms

    @cached_property
    def common(self) -> PlatformSet:
        """The platforms that every judged image supports."""
        return reduce(and_, (each for _, each in self.judged), PlatformSet.EVERYTHING)

    @property
    def label_place(self) -> tuple[Node, str]:
        """Node and pointer of the labels; without labels, of their parent."""
        subject = self.facts.object
        metadata = subject.metadata
        labels = get(metadata, "labels")
        if labels is not None:
            return labels, f"{subject.pointer}/metadata/labels"
        return (metadata, f"{subject.pointer}/metadata") if metadata is not None else (subject.node, subject.pointer)

    def repair(self, operations: tuple[TreeOperation, ...], note: str = "") -> Repair:
        subject = self.facts.object
        labels = f"{subject.pointer}/metadata/labels"
        repeated = subject.duplicate_labels if any(each.pointer.startswith(labels) for each in operations) else []
        if repeated:
            operations, note = (), f"the key {repeated[0][0]} is duplicated in its labels; remove one first"
        return Repair(operations, note=note, document=subject.document.index)


def in_words(platforms: PlatformSet) -> str:
    return f"only {platforms}" if platforms else "no platform that a node can have"


def related_places(bundle: BundleFacts) -> Iterator[ImagePlace]:
    """The related images, checked like those of pods (MA001 to MA011)."""
    facts = bundle.facts
    for place in bundle.service_version.related:
        answer = facts.answers.of(place.text)
        yield ImagePlace(
            subject=bundle.subject,
            holder=f"related image {place.name}".strip(),
            text=place.text,
            answer=answer,
            index=facts.answers.indexes.get(answer.text),
            node=place.node,
            pointer=place.pointer,
            document=facts.object.document.index,
            options=facts.options,
            constrains=answer.platforms is not None and not answer.platforms.is_everything,
        )
