"""What the labels of a ClusterServiceVersion promise against what its images are: MA201, MA202, MA203 and MA204.

All images count: containers, init containers and related ones. An image that could not be inspected is left
out (MA001 says so), one without a platform of its own keeps every promise (MF-072). The deployments themselves are
judged as every pod specification is, as MA205; which images are listed and how they are pinned is in ``csv_images``.

Pure.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, reduce
from operator import and_

from yaml.nodes import MappingNode, Node

from polyarch.kube.client.jsonpatch import pointer
from polyarch.manifests.bundle.labels import (
    SUPPORTED,
    AxisLabels,
    BundleLabels,
    addable,
    keeps,
    labels_of,
    names_in,
)
from polyarch.manifests.bundle.service_version import KIND, BundleImage, LabelEntry, ServiceVersion
from polyarch.manifests.finding import PlatformSets, Repair
from polyarch.manifests.lint.facts import Draft, ObjectFacts
from polyarch.manifests.operations import Add, Remove, Rename, Replace, TreeOperation, ensure
from polyarch.manifests.scan.nodes import get
from polyarch.manifests.scan.sets import texts
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

        An image that stands in a volume alone constrains only as far as it constrains its pod (MF-005).
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
        """The texts of which nobody can tell."""
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

    def repair(self, operations: tuple[TreeOperation, ...], note: str = "") -> Repair:
        subject = self.facts.object
        labels = f"{subject.pointer}/metadata/labels"
        repeated = subject.duplicate_labels if any(each.pointer.startswith(labels) for each in operations) else []
        if repeated:
            operations, note = (), f"the key {repeated[0][0]} stands twice in its labels; remove one first"
        return Repair(operations, note=note, document=subject.document.index)


def check(facts: ObjectFacts) -> Iterator[Draft]:
    """All rules on labels; nothing for objects of other kinds."""
    if facts.object.kind != KIND or facts.object.patched_by is not None:
        return
    bundle = BundleFacts(facts)
    for labels, other in bundle.labels.both:
        yield from _misread(bundle, labels)
        yield from _broken_promises(bundle, labels, other)
        yield from _missing(bundle, labels, other)
    yield from _behind_the_manager(bundle)


# MA203: labels that nobody reads as they are meant -------------------------------------------------------------------


def _misread(bundle: BundleFacts, labels: AxisLabels) -> Iterator[Draft]:
    axis = labels.axis
    for entry in labels.entries:
        name = labels.name(entry)
        if name not in axis.known:
            meant = axis.meant(name)
            better = f"write {axis.prefix}{meant}" if meant in axis.known else f"name one of the known {axis.plural}"
            yield _label_draft(
                bundle,
                entry,
                sub="unknown",
                message=f"{bundle.subject} has the label {entry.key}, and {name or 'nothing'} is no known {axis.noun}, "
                "so it promises nothing",
                hint=f"{better}, or remove the label",
                operations=_renamed(labels, entry, meant),
            )
        if entry.value != SUPPORTED:
            variant = entry.value.strip().lower() == SUPPORTED
            yield _label_draft(
                bundle,
                entry,
                sub="value",
                message=f"{bundle.subject} has the label {entry.key} with the value {entry.value!r}, "
                f"which counts as not {SUPPORTED}",
                hint=f"write {SUPPORTED}, or remove the label",
                operations=(Replace(entry.pointer, SUPPORTED),) if variant else (),
            )
    if labels.hidden:
        entry = labels.entries[0]
        yield _label_draft(
            bundle,
            entry,
            sub="hidden",
            message=f"{bundle.subject} has labels {axis.prefix}* and none that promises a known {axis.noun}, so that "
            f"catalogues show it on no cluster, not even on {axis.default}",
            hint=f"label each supported {axis.noun} with the value {SUPPORTED}, or remove these labels",
            operations=(),
        )


def _renamed(labels: AxisLabels, entry: LabelEntry, meant: str) -> tuple[TreeOperation, ...]:
    """The alias becomes the name; where the name stands there already with the same value, the alias goes."""
    if meant not in labels.axis.known:
        return ()
    other = labels.entry(meant)
    if other is None:
        first = next(each for each in labels.entries if labels.axis.meant(labels.name(each)) == meant)
        return (Rename(entry.pointer, labels.axis.prefix + meant),) if first is entry else (Remove(entry.pointer),)
    return (Remove(entry.pointer),) if other.value == entry.value else ()


def _label_draft(
    bundle: BundleFacts, entry: LabelEntry, *, sub: str, message: str, hint: str, operations: tuple[TreeOperation, ...]
) -> Draft:
    return Draft(
        rule="MA203",
        sub=sub,
        message=message,
        hint=hint,
        node=entry.value_node if sub == "value" else entry.key_node,
        pointer=entry.pointer,
        repair=bundle.repair(operations) if operations else None,
    )


# MA201: promises that an image breaks ---------------------------------------------------------------------------------


def _broken_promises(bundle: BundleFacts, labels: AxisLabels, other: AxisLabels) -> Iterator[Draft]:
    axis = labels.axis
    for name in labels.promised:
        entry = labels.entry(name)
        breaking = [(image, each) for image, each in bundle.judged if not keeps(each, name, labels, other)]
        if entry is None and labels is bundle.labels.systems:
            # Nobody wrote it: an image that has linux, but none of the architectures, breaks the promise of those.
            breaking = [(image, each) for image, each in breaking if name not in each.systems()]
        if not breaking:
            continue
        node, where = (entry.key_node, entry.pointer) if entry else _label_place(bundle)
        names = tuple(image.text for image, _ in breaking)
        label = f"the label {axis.prefix}{name}" if entry else f"no label {axis.prefix}*, which means {name},"
        has = "; ".join(f"{image.text} has {_has(platforms)}" for image, platforms in breaking)
        yield Draft(
            rule="MA201",
            message=f"{bundle.subject} has {label} and promises {name}, but {has}",
            hint=f"publish the images for {name}, or remove the label (polyarch fix --remove-labels)"
            if entry
            else f"publish the images for {name}, or label the {axis.plural} that they have",
            node=node,
            pointer=where,
            images=names,
            platforms=PlatformSets(supported=_common(bundle)),
            repair=_removal(bundle, labels, other, entry),
        )


def _removal(bundle: BundleFacts, labels: AxisLabels, other: AxisLabels, entry: LabelEntry | None) -> Repair | None:
    if entry is None:
        return None
    if not bundle.facts.options.fixes.remove_labels:
        return bundle.repair((), "--remove-labels removes the label")
    default = labels.axis.default
    last = len(labels.entries) == 1
    if last and (
        labels.name(entry) == default or not all(keeps(each, default, labels, other) for _, each in bundle.judged)
    ):
        return bundle.repair((), f"without any label {labels.axis.prefix}* the bundle would promise {default}")
    return bundle.repair((Remove(entry.pointer),))


def _has(platforms: PlatformSet) -> str:
    return f"only {platforms}" if platforms else "no platform that a node can have"


def _common(bundle: BundleFacts) -> tuple[str, ...]:
    common = reduce(and_, (each for _, each in bundle.judged), PlatformSet.EVERYTHING)
    return () if common.is_everything else texts(common)


def _label_place(bundle: BundleFacts) -> tuple[Node, str]:
    """The labels; where there are none, what they would stand in."""
    subject = bundle.facts.object
    metadata = subject.metadata
    labels = get(metadata, "labels")
    if labels is not None:
        return labels, f"{subject.pointer}/metadata/labels"
    return (metadata, f"{subject.pointer}/metadata") if metadata is not None else (subject.node, subject.pointer)


# MA202: support that no label tells -----------------------------------------------------------------------------------


def _missing(bundle: BundleFacts, labels: AxisLabels, other: AxisLabels) -> Iterator[Draft]:
    common = reduce(and_, (each for _, each in bundle.judged), PlatformSet.EVERYTHING)
    names = addable(common, labels, other)
    if not names:
        return
    axis = labels.axis
    keys = [axis.prefix + name for name in names]
    untold = [name for name in names if name not in labels.promised]
    known = "whose platforms are known " if bundle.unknown else ""
    node, where = _label_place(bundle)
    yield Draft(
        rule="MA202",
        message=f"{bundle.subject} does not say that it supports {', '.join(untold)}, which each of its images "
        f"{known}does, so that catalogues hide it there",
        hint=f"add {', '.join(keys)} with the value {SUPPORTED}{_why_the_default(labels, names)}",
        node=node,
        pointer=where,
        platforms=PlatformSets(supported=texts(common)),
        repair=_additions(bundle, keys),
    )


def _why_the_default(labels: AxisLabels, names: tuple[str, ...]) -> str:
    if labels.entries or labels.axis.default not in names:
        return ""
    return f"; {labels.axis.default} needs a label too, because it counts by itself only where there is no other"


def _additions(bundle: BundleFacts, keys: list[str]) -> Repair:
    if bundle.unknown:
        return bundle.repair((), f"the platforms of {', '.join(bundle.unknown)} are not known")
    subject = bundle.facts.object
    path = f"{subject.pointer}/metadata/labels"
    node = get(subject.metadata, "labels")
    if isinstance(node, MappingNode):
        return bundle.repair(tuple(Add(path + pointer(key), SUPPORTED) for key in keys))
    return bundle.repair((ensure(subject.document.value, path, dict.fromkeys(keys, SUPPORTED)),))


# MA204: images that are behind the operator itself --------------------------------------------------------------------


def _behind_the_manager(bundle: BundleFacts) -> Iterator[Draft]:
    """The manager runs where the bundle promises nothing yet; other images are why it cannot promise more."""
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
                rule="MA204",
                message=f"{bundle.subject} could support {', '.join(lacking)}, as its manager does, but {image.text} "
                f"has {_has(platforms)}",
                hint="publish the image for these, or leave the labels as they are if it is not meant to",
                node=image.first.node,
                pointer=image.first.pointer,
                images=(image.text,),
                platforms=PlatformSets(supported=texts(platforms), missing=_missing_platforms(manager, lacking)),
            )


def _missing_platforms(manager: PlatformSet, architectures: list[str]) -> tuple[str, ...]:
    return texts(each for each in manager if each.architecture in architectures)
