"""The rules for operator bundles.

Most take a :class:`BundleFacts`, a ClusterServiceVersion with the answers for its images. The rules for pods check the
deployments of a bundle, too; their findings are reported as MA205.

Pure.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property

from yaml.nodes import MappingNode, Node

from polyarch.kube.patches import pointer
from polyarch.manifests.bundle import (
    KIND,
    SUPPORTED,
    VARIABLE_PREFIX,
    AxisLabels,
    BundleImage,
    BundleLabels,
    ImageText,
    ServiceVersion,
    addable,
    deployed_images,
    keeps,
    labels_of,
    names_in,
)
from polyarch.manifests.finding import PlatformSets, Repair, Rule, Severity
from polyarch.manifests.operations import Add, Remove, Rename, Replace, TreeOperation, ensure
from polyarch.manifests.rules.facts import FindingDraft, ObjectFacts, PodFacts, RuleCheck
from polyarch.manifests.rules.images import ImageLocation
from polyarch.manifests.scan.nodes import get
from polyarch.manifests.scan.pod_specs import LabelEntry
from polyarch.manifests.scan.sets import ImageInspection, ImageInspections, texts
from polyarch.oci.inspection import Inspection, InspectionWarning, Status
from polyarch.platforms import NodePlatform, PlatformSet, shared_platforms


@dataclass(frozen=True, eq=False)
class BundleFacts:
    """A ClusterServiceVersion with the answers for its images.

    Containers, init containers and related images all count. An image that could not be inspected is left out (MA001
    reports it); one without a platform of its own keeps every promise.
    """

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

        An image used only in volumes counts as far as it constrains its pod.
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
        return shared_platforms(each for _, each in self.judged)

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


def related_places(bundle: BundleFacts) -> Iterator[ImageLocation]:
    """The related images, checked like those of pods (MA001 to MA011)."""
    facts = bundle.facts
    for place in bundle.service_version.related:
        answer = facts.answers.of(place.text)
        yield ImageLocation(
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


# -- MA201: a label promises a platform that an image lacks ------------------------------------------------------------


MA201 = Rule(
    id="MA201",
    severity=Severity.ERROR,
    title="A bundle promises an architecture or operating system that an image lacks",
    meaning="A label operatorframework.io/arch.* or os.* says supported, but an image of the bundle lacks that "
    "platform.",
    fix="Removes the label.",
    flag="--remove-labels",
    upstream="V2",
)


def check_broken_promises(bundle: BundleFacts) -> Iterator[FindingDraft]:
    for labels, other in bundle.labels.both:
        yield from _broken_promises(bundle, labels, other)


def _broken_promises(bundle: BundleFacts, labels: AxisLabels, other: AxisLabels) -> Iterator[FindingDraft]:
    axis = labels.axis
    for name in labels.promised:
        entry = labels.entry(name)
        breaking = [(image, each) for image, each in bundle.judged if not keeps(each, name, labels, other)]
        if entry is None and labels is bundle.labels.systems:
            # The default linux: an image with linux but none of the architectures breaks their promise instead.
            breaking = [(image, each) for image, each in breaking if name not in each.systems()]
        if not breaking:
            continue
        node, where = (entry.key_node, entry.pointer) if entry else bundle.label_place
        names = tuple(image.text for image, _ in breaking)
        label = f"the label {axis.prefix}{name}" if entry else f"no label {axis.prefix}*, which means {name},"
        has = "; ".join(f"{image.text} has {in_words(platforms)}" for image, platforms in breaking)
        yield FindingDraft(
            rule=MA201,
            message=f"{bundle.subject} has {label} and promises {name}, but {has}",
            hint=f"publish the images for {name}, or remove the label (polyarch fix --remove-labels)"
            if entry
            else f"publish the images for {name}, or label the {axis.plural} that they have",
            node=node,
            pointer=where,
            images=names,
            platforms=PlatformSets(supported=() if bundle.common.is_everything else texts(bundle.common)),
            repair=_label_removal(bundle, labels, other, entry),
        )


def _label_removal(
    bundle: BundleFacts, labels: AxisLabels, other: AxisLabels, entry: LabelEntry | None
) -> Repair | None:
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


# -- MA202: a bundle supports a platform that no label promises --------------------------------------------------------


MA202 = Rule(
    id="MA202",
    severity=Severity.WARNING,
    title="A bundle supports more than its labels promise",
    meaning="Every image supports an architecture or operating system that has no label, so catalogs hide the operator "
    "there.",
    fix="Adds the labels, including the default that the first label takes away.",
    upstream="V3",
)


def check_missing_labels(bundle: BundleFacts) -> Iterator[FindingDraft]:
    for labels, other in bundle.labels.both:
        yield from _missing_labels(bundle, labels, other)


def _missing_labels(bundle: BundleFacts, labels: AxisLabels, other: AxisLabels) -> Iterator[FindingDraft]:
    names = addable(bundle.common, labels, other)
    if not names:
        return
    axis = labels.axis
    keys = [axis.prefix + name for name in names]
    untold = [name for name in names if name not in labels.promised]
    known = "whose platforms are known " if bundle.unknown else ""
    node, where = bundle.label_place
    yield FindingDraft(
        rule=MA202,
        message=f"{bundle.subject} has no label for {', '.join(untold)}, which each of its images "
        f"{known}supports, so catalogs hide it there",
        hint=f"add {', '.join(keys)} with the value {SUPPORTED}{_why_label_default(labels, names)}",
        node=node,
        pointer=where,
        platforms=PlatformSets(supported=texts(bundle.common)),
        repair=_label_additions(bundle, keys),
    )


def _why_label_default(labels: AxisLabels, names: tuple[str, ...]) -> str:
    if labels.entries or labels.axis.default not in names:
        return ""
    return f"; {labels.axis.default} needs a label, too, because it is the default only while there is no other label"


def _label_additions(bundle: BundleFacts, keys: list[str]) -> Repair:
    if bundle.unknown:
        return bundle.repair((), f"the platforms of {', '.join(bundle.unknown)} are not known")
    subject = bundle.facts.object
    path = f"{subject.pointer}/metadata/labels"
    node = get(subject.metadata, "labels")
    if isinstance(node, MappingNode):
        return bundle.repair(tuple(Add(path + pointer(key), SUPPORTED) for key in keys))
    try:
        return bundle.repair((ensure(subject.document.value, path, dict.fromkeys(keys, SUPPORTED)),))
    except KeyError:
        return bundle.repair((), f"{subject.pointer}/metadata is not a mapping")


# -- MA203: labels that catalogs do not read as intended ---------------------------------------------------------------


MA203 = Rule(
    id="MA203",
    severity=Severity.ERROR,
    title="A bundle label does not mean what it seems to",
    meaning="The name after the prefix is unknown (unknown), or the value is not supported (value); if the prefix is "
    "used but no name is supported, catalogs show the operator nowhere (hidden).",
    fix="Replaces an alias or a wrong case with the right name.",
    subs=("unknown", "value", "hidden"),
)


def check_misread_labels(bundle: BundleFacts) -> Iterator[FindingDraft]:
    for labels, _ in bundle.labels.both:
        yield from _misread_labels(bundle, labels)


def _misread_labels(bundle: BundleFacts, labels: AxisLabels) -> Iterator[FindingDraft]:
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
                "so it has no effect",
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
            message=f"{bundle.subject} has labels {axis.prefix}*, but none that promises a known {axis.noun}, so "
            f"catalogs show it on no cluster, not even on {axis.default}",
            hint=f"label each supported {axis.noun} with the value {SUPPORTED}, or remove these labels",
            operations=(),
        )


def _renamed(labels: AxisLabels, entry: LabelEntry, meant: str) -> tuple[TreeOperation, ...]:
    """Renames an alias; removes it if the name is present with the same value."""
    if meant not in labels.axis.known:
        return ()
    other = labels.entry(meant)
    if other is None:
        first = next(each for each in labels.entries if labels.axis.meant(labels.name(each)) == meant)
        return (Rename(entry.pointer, labels.axis.prefix + meant),) if first is entry else (Remove(entry.pointer),)
    return (Remove(entry.pointer),) if other.value == entry.value else ()


def _label_draft(
    bundle: BundleFacts, entry: LabelEntry, *, sub: str, message: str, hint: str, operations: tuple[TreeOperation, ...]
) -> FindingDraft:
    return FindingDraft(
        rule=MA203,
        sub=sub,
        message=message,
        hint=hint,
        node=entry.value_node if sub == "value" else entry.key_node,
        pointer=entry.pointer,
        repair=bundle.repair(operations) if operations else None,
    )


# -- MA204: an image lacks an architecture of the operator's manager ---------------------------------------------------
# The manager supports an architecture that the bundle does not promise yet, and this image prevents the promise.


MA204 = Rule(
    id="MA204",
    severity=Severity.WARNING,
    title="An image of a bundle lacks an architecture of the manager",
    meaning="The manager runs on an architecture without a label, but another image of the bundle does not.",
    upstream="V4",
)


def check_manager_architectures(bundle: BundleFacts) -> Iterator[FindingDraft]:
    labels, systems = bundle.labels.both[0]
    known = (bundle.facts.answers.of(use.resolved_text).platforms for use in bundle.service_version.managers())
    manager = shared_platforms(each for each in known if each is not None)
    if manager.is_everything or not systems.promised:
        return
    wanted = names_in(manager, labels, systems) - frozenset(labels.promised)
    for image, platforms in bundle.judged:
        lacking = sorted(name for name in wanted if not keeps(platforms, name, labels, systems))
        if lacking:
            yield FindingDraft(
                rule=MA204,
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


# -- MA205: findings of the rules for pods in a deployment of a bundle -------------------------------------------------
# It has an id of its own because operator-sdk's validator has one check for all of them; ``sub`` names the rule.


MA205 = Rule(
    id="MA205",
    severity=Severity.ERROR,
    title="A deployment of a bundle does not match its images",
    meaning="One of MA101, MA102, MA103, MA106, MA107 and MA109 in a deployment of a ClusterServiceVersion; sub names "
    "the rule, and its severity applies.",
    fix="As for the rule that sub names.",
    subs=("MA101", "MA102", "MA103", "MA106", "MA107", "MA109"),
    upstream="V5",
)


def bundled(facts: PodFacts, draft: FindingDraft) -> FindingDraft:
    """The draft as MA205, if it is of a rule that MA205 stands for, in a ClusterServiceVersion."""
    base = draft.rule
    if base.id not in MA205.subs or facts.pod_spec.object.kind != KIND:
        return draft
    severity = facts.options.severity(base.id, draft.severity or base.severity)
    return replace(draft, rule=MA205, sub=base.id, severity=severity)


# -- MA206: spec.relatedImages does not match the images in use --------------------------------------------------------
# Mirrors copy exactly what ``spec.relatedImages`` lists; the operator starts what its deployments and
# ``RELATED_IMAGE_*`` variables name. So both must name the same images.


MA206 = Rule(
    id="MA206",
    severity=Severity.WARNING,
    title="relatedImages does not match the images in use",
    meaning="An image of a deployment or a RELATED_IMAGE_* variable is not listed, so mirrors do not copy it "
    "(missing); or a listed image is not used anywhere (stale, info).",
    fix="Adds the missing entry.",
    subs=("missing", "stale"),
)


def check_related_images(bundle: BundleFacts) -> Iterator[FindingDraft]:
    yield from _unlisted_images(bundle)
    yield from _unused_related_images(bundle)


def _unlisted_images(bundle: BundleFacts) -> Iterator[FindingDraft]:
    service_version = bundle.service_version
    listed = {_identity(bundle, place.text) for place in service_version.related}
    if not listed:
        return
    missing = [
        image
        for image in service_version.images
        if image.is_in("deployment", "variable") and _identity(bundle, image.text) not in listed
    ]
    repair = _related_entries(bundle, missing)
    for image in missing:
        first = image.first
        place = f"variable {first.name}" if first.where == "variable" else f"container {first.name}"
        yield FindingDraft(
            rule=MA206,
            sub="missing",
            message=f"{bundle.subject} does not list {image.text} of {place} in relatedImages, so mirrors do not "
            "copy it",
            hint="add it to spec.relatedImages",
            node=first.node,
            pointer=first.pointer,
            images=(image.text,),
            repair=repair,
        )


def _related_entries(bundle: BundleFacts, missing: Iterable[BundleImage]) -> Repair:
    """One repair for all missing images, so that the new names are unique, too."""
    subject = bundle.facts.object
    names = {place.name for place in bundle.service_version.related}
    operations: list[TreeOperation] = []
    taken: set[str] = set()
    for image in missing:
        identity = _identity(bundle, image.text)
        if identity in taken or bundle.facts.answers.of(image.text).reference is None:
            continue  # two spellings of an image need one entry, a text with a variable none
        taken.add(identity)
        name = wanted = _entry_name(image.first)
        for number in range(2, len(names) + 3):
            if name not in names:
                break
            name = f"{wanted}-{number}"
        names.add(name)
        operations.append(Add(f"{subject.pointer}/spec/relatedImages/-", {"name": name, "image": image.text}))
    return bundle.repair(tuple(operations))


def _entry_name(place: ImageText) -> str:
    if place.where == "variable":
        return place.name.removeprefix(VARIABLE_PREFIX).lower().replace("_", "-") or "image"
    return place.name or "image"


def _unused_related_images(bundle: BundleFacts) -> Iterator[FindingDraft]:
    service_version = bundle.service_version
    used = {_identity(bundle, place.text) for place in (*service_version.deployed, *service_version.variables)}
    for place in service_version.related:
        if _identity(bundle, place.text) not in used and not service_version.mentions(place.text):
            yield FindingDraft(
                rule=MA206,
                sub="stale",
                severity=Severity.INFO,
                message=f"{bundle.subject} lists {place.text} in relatedImages and uses it nowhere else",
                hint="remove the entry, unless the image is named in the operator's own code",
                node=place.node,
                pointer=place.pointer,
                images=(place.text,),
            )


def _identity(bundle: BundleFacts, text: str) -> str:
    """The same for every spelling of an image; the digest counts, whatever the tag."""
    reference = bundle.facts.answers.of(text).reference
    if reference is None:
        return text
    return f"{reference.name}@{reference.digest}" if reference.digest else reference.canonical


# -- MA207: images of a bundle that are not pinned to the digest of an index, so they can change or lose platforms -----


MA207 = Rule(
    id="MA207",
    severity=Severity.INFO,
    title="An image of a bundle is not pinned to an index",
    meaning="The image is referenced by tag (tag), or by the digest of a single platform (child, a warning).",
    fix="Pins the digest of the index.",
    subs=("tag", "child"),
)


def check_unpinned_images(bundle: BundleFacts) -> Iterator[FindingDraft]:
    answers = bundle.facts.answers
    for image in bundle.service_version.images:
        answer = answers.of(image.text)
        if answer.reference is None:
            continue
        index = parent(answers, answer)
        if answer.reference.digest is None:
            yield _pin(
                bundle,
                image,
                sub="tag",
                message=f"{bundle.subject} names {image.text} by tag, which can move to another image, and mirrors for "
                "disconnected clusters need digests",
                digest=_pinned(answer.inspection),
                note=f"the digest of {image.text} is unknown; resolve it",
            )
        elif index is not None:
            yield _pin(
                bundle,
                image,
                sub="child",
                message=f"{bundle.subject} names {image.text} by the digest of one platform "
                f"({_platform_of_digest(index, answer.reference.digest)}) of an index with more",
                digest=index.digest,
                note=f"the digest of the index that {image.text} belongs to is unknown; resolve its tag",
                severity=Severity.WARNING,
            )


def parent(answers: ImageInspections, answer: ImageInspection) -> Inspection | None:
    """The index that a digest is a child of, if known (MA004)."""
    index = answers.indexes.get(answer.text)
    if index is None or answer.reference is None or answer.reference.digest in (None, index.digest):
        return None
    return index if any(entry.digest == answer.reference.digest for entry in index.entries) else None


def _platform_of_digest(index: Inspection, digest: str) -> str:
    return next(str(entry.platform) for entry in index.entries if entry.digest == digest)


def _pinned(inspection: Inspection | None) -> str:
    return inspection.digest if inspection is not None and inspection.status is not Status.ERROR else ""


def _pin(
    bundle: BundleFacts,
    image: BundleImage,
    *,
    sub: str,
    message: str,
    digest: str,
    note: str,
    severity: Severity | None = None,
) -> FindingDraft:
    first = image.first
    return FindingDraft(
        rule=MA207,
        sub=sub,
        severity=severity,
        message=message,
        hint=f"name it by digest: {by_digest(image.text, digest)}" if digest else "name it by the digest of its index",
        node=first.node,
        pointer=first.pointer,
        images=(image.text,),
        repair=_pinned_everywhere(bundle, image, digest) if digest else bundle.repair((), note),
    )


def by_digest(text: str, digest: str) -> str:
    """The same spelling of the name, with a digest instead of its tag or digest.

    >>> by_digest("quay.io:443/team/app:1.0", "sha256:…")
    'quay.io:443/team/app@sha256:…'
    """
    name = text.partition("@")[0]
    head, slash, last = name.rpartition("/")
    return f"{head}{slash}{last.partition(':')[0]}@{digest}"


def _pinned_everywhere(bundle: BundleFacts, image: BundleImage, digest: str) -> Repair:
    """Pins the image in all places of the bundle, which must keep naming the same image (MA206)."""
    pinned = by_digest(image.text, digest)
    operations = {
        place.pointer: Replace(place.pointer, pinned)
        for place in image.places
        if place.use is None or place.use.text == image.text
    }
    for text, where in bundle.service_version.other_scalars:
        if text == image.text:
            operations.setdefault(where, Replace(where, pinned))
        elif text.endswith(f"={image.text}"):
            operations.setdefault(where, Replace(where, text.removesuffix(image.text) + pinned))
    return bundle.repair(tuple(operations.values()))


# -- MA208: a bundle image with platforms other than linux/amd64, which catalog tools expect wherever the operator runs


MA208 = Rule(
    id="MA208",
    severity=Severity.INFO,
    title="A bundle image is not for linux/amd64 alone",
    meaning="A bundle image holds data only; catalog tools expect linux/amd64 as its only platform.",
)

_BUNDLE_PLATFORM = NodePlatform("linux", "amd64")


@dataclass(frozen=True)
class BundleImageAnswer:
    """The image that the bundle is shipped as (``--bundle-image``)."""

    text: str
    inspection: Inspection


def check_bundle_image(facts: ObjectFacts, image: BundleImageAnswer) -> Iterator[FindingDraft]:
    platforms = image.inspection.node_platforms
    if len(image.inspection.entries) <= 1 and platforms in ((), (_BUNDLE_PLATFORM,)):
        return
    listed = ", ".join(map(str, image.inspection.platforms))
    yield FindingDraft(
        rule=MA208,
        message=f"the bundle image {image.text} of {facts.object.reference} has {listed}, but catalog tools expect "
        f"{_BUNDLE_PLATFORM} alone",
        hint=f"build the bundle image for {_BUNDLE_PLATFORM}; it holds data and never runs",
        node=facts.object.node,
        pointer=facts.object.pointer,
        images=(image.text,),
    )


# -- MA211: an index names manifests that the registry does not have, in objects of every kind -------------------------


MA211 = Rule(
    id="MA211",
    severity=Severity.ERROR,
    title="An index names manifests that its registry does not have",
    meaning="Nodes of that platform cannot pull the image. Usually a mirror copied only one platform.",
)


def check_missing_children(facts: ObjectFacts) -> Iterator[FindingDraft]:
    seen: set[str] = set()
    for place in _places(facts):
        answer = facts.answers.of(place.text)
        if place.text in seen or answer.inspection is None:
            continue
        seen.add(place.text)
        gone = [warning for warning in answer.inspection.warnings if warning.code == "child-missing"]
        if gone:
            source = answer.inspection.source
            host = source.host if source is not None else answer.reference.host_for_requests if answer.reference else ""
            yield _incomplete(str(facts.object.reference), place, gone, host)


def _incomplete(subject: str, place: ImageText, gone: list[InspectionWarning], host: str) -> FindingDraft:
    missing = "; ".join(warning.message or "a manifest that the index names is not there" for warning in gone)
    return FindingDraft(
        rule=MA211,
        message=f"{subject} uses {place.text}, but {host or 'the registry'} lacks a part of it: {missing}",
        hint="copy the whole index to the registry, with all of its platforms",
        node=place.node,
        pointer=place.pointer,
        images=(place.text,),
    )


def _places(facts: ObjectFacts) -> Iterator[ImageText]:
    yield from deployed_images(each.pod_spec for each in facts.pods)
    if facts.object.kind == KIND:
        yield from ServiceVersion.of(facts.object, ()).related


# -- the rules of this module ------------------------------------------------------------------------------------------


BUNDLE_RULES = (
    RuleCheck(MA201, check_broken_promises),
    RuleCheck(MA202, check_missing_labels),
    RuleCheck(MA203, check_misread_labels),
    RuleCheck(MA204, check_manager_architectures),
    RuleCheck(MA206, check_related_images),
    RuleCheck(MA207, check_unpinned_images),
)
OBJECT_RULES = (RuleCheck(MA211, check_missing_children),)
RULES = (*(each.rule for each in BUNDLE_RULES), *(each.rule for each in OBJECT_RULES), MA205, MA208)
