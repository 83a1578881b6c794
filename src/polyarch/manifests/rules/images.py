"""The rules for images.

Images of containers and images that a bundle lists have the same type, :class:`ImageLocation`, so the rules treat them
alike.

Pure.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import msgspec
from yaml.nodes import Node

from polyarch.manifests.finding import PlatformSets, Repair, Rule, Severity
from polyarch.manifests.operations import Replace
from polyarch.manifests.rules.facts import NO_SETS, FindingDraft, PodFacts, RuleCheck
from polyarch.manifests.rules.options import LintOptions
from polyarch.manifests.scan.pod_specs import has_image_trigger
from polyarch.manifests.scan.sets import ImageInspection, listed, texts
from polyarch.oci.inspection import Inspection, InspectionError, InspectionWarning, Status
from polyarch.oci.reference import Reference
from polyarch.platforms import KNOWN_ARCHITECTURES, NODE_SYSTEMS, NodePlatform, Platform

PUSH_AGAIN = "push the image again with a current tool"


@dataclass(frozen=True, eq=False, kw_only=True)
class ImageLocation:
    """An image reference in a text."""

    subject: str
    """Name of the object for messages."""
    holder: str
    """Name of what uses the image: ``container web``."""
    text: str
    """As it is written."""
    answer: ImageInspection
    index: Inspection | None
    """The index that its tag points to, if it has a digest, too (MA004)."""
    node: Node
    pointer: str
    document: int
    options: LintOptions
    triggered: bool = False
    """Whether OpenShift fills in the image when an image stream changes."""
    constrains: bool = True
    """Whether its platforms limit where a pod can run."""

    @property
    def name(self) -> str:
        """The image that was looked up."""
        return self.answer.text

    @property
    def resolved(self) -> Inspection | None:
        """The inspection, if it has platforms."""
        inspection = self.answer.inspection
        return inspection if inspection is not None and inspection.status is Status.RESOLVED else None

    def warnings(self, *codes: str) -> Iterator[InspectionWarning]:
        """The warnings of the inspection with one of these codes."""
        inspection = self.answer.inspection
        yield from (each for each in (inspection.warnings if inspection else ()) if each.code in codes)

    def told(self, error: InspectionError) -> str:
        """The error message without the image, which the finding names already."""
        name = self.answer.reference.canonical if self.answer.reference is not None else self.name
        return error.message.removeprefix(f"{name}: ")

    def draft(
        self,
        rule: Rule,
        message: str,
        hint: str,
        *,
        sub: str = "",
        severity: Severity | None = None,
        platforms: PlatformSets = NO_SETS,
        repair: Repair | None = None,
    ) -> FindingDraft:
        """A finding at this place."""
        return FindingDraft(
            rule=rule,
            sub=sub,
            severity=severity,
            message=message,
            hint=hint,
            node=self.node,
            pointer=self.pointer,
            images=(self.name,) if self.name else (),
            platforms=platforms,
            repair=repair,
        )


def places_of(facts: PodFacts) -> Iterator[ImageLocation]:
    """The images of a pod."""
    subject = str(facts.pod_spec.object.reference)
    triggered = has_image_trigger(facts.pod_spec.object)
    for image in facts.supported.images:
        use = image.use
        yield ImageLocation(
            subject=subject,
            holder=f"{'volume' if use.role == 'volume' else 'container'} {use.container}".strip(),
            text=use.text,
            answer=image.answer,
            index=facts.answers.indexes.get(image.answer.text),
            node=use.node,
            pointer=use.pointer,
            document=facts.pod_spec.document.index,
            options=facts.options,
            triggered=triggered,
            constrains=image.platforms is not None and not image.platforms.is_everything,
        )


# -- MA001: the platforms of an image are unknown ----------------------------------------------------------------------


MA001 = Rule(
    id="MA001",
    severity=Severity.WARNING,
    title="The platforms of an image are unknown",
    meaning="The registry could not be reached, denied access, or does not state the platforms; or the text is not an "
    "image reference. Rules that need the platforms of every image skip the pod. An error with --strict.",
    upstream="V1",
)

_TOLERABLE = frozenset({"transient", "limit", "configuration"})
_NEXT = {
    "absent": "correct the name or the tag, or push the image",
    "auth": "log in to the registry, or give credentials with --authfile",
    "limit": "try again later or log in, or give its platforms with --platforms-file",
    "transient": "try again, or give its platforms with --platforms-file",
    "content": PUSH_AGAIN,
    "configuration": "correct the configuration of the registry, or give its platforms with --platforms-file",
}
_OFFLINE = "give its platforms with --platforms-file, or leave out --offline"


def check_unresolved_image(place: ImageLocation) -> Iterator[FindingDraft]:
    answer, name, inspection = place.answer, place.name, place.answer.inspection
    if answer.platforms is not None:
        return
    if not name.strip():
        message, hint = f"{place.subject}: {place.holder} names no image", "name the image"
        if place.triggered:
            message = f"{place.subject}: {place.holder} gets its image by an ImageChange trigger, so it is unknown"
            hint = "ask polyarch inspect for the image of the trigger, and polyarch fix with --assume"
        yield place.draft(MA001, message, hint, sub="not-a-reference")
    elif answer.reference is None:
        message = f"{place.subject} has the image {name!r}, which is not an image reference: {answer.problem}"
        hint = "render the manifest first, or write NAME:TAG or NAME@sha256:DIGEST"
        yield place.draft(MA001, message, hint, sub="not-a-reference")
    elif inspection is None:
        if place.options.unresolved != "ignore":
            message = f"{place.subject}: the platforms of {name} are unknown: no registry was asked"
            yield place.draft(MA001, message, _OFFLINE, sub="offline-miss")
    elif inspection.status is Status.UNKNOWN:
        message = f"{place.subject}: the image {name} names no architecture"
        yield place.draft(MA001, message, PUSH_AGAIN, sub="empty-architecture")
    elif inspection.error is not None:
        yield from _failed(place, inspection.error)


def _failed(place: ImageLocation, error: InspectionError) -> Iterator[FindingDraft]:
    if place.options.unresolved == "ignore" and error.error_class in _TOLERABLE:
        return
    message = f"{place.subject}: the platforms of {place.name} are unknown: {place.told(error)}"
    hint = _OFFLINE if error.code == "offline-miss" else _NEXT[error.error_class]
    yield place.draft(MA001, message, hint, sub=error.code)


# -- MA002: an image is built for one platform only, but another one is required ---------------------------------------


MA002 = Rule(
    id="MA002",
    severity=Severity.ERROR,
    title="An image is built for one platform only",
    meaning="The image has exactly one node platform, and --require names another one.",
)


def check_one_platform(place: ImageLocation) -> Iterator[FindingDraft]:
    required, (platforms, missing) = place.options.require, missing_platforms(place)
    if missing and place.resolved is not None and len(platforms) == 1:
        pulled = platforms == place.resolved.pulled_platforms
        built = ", ".join(dict.fromkeys(map(str, platforms if pulled else place.resolved.platforms)))
        yield place.draft(
            MA002,
            f"{place.subject}: {place.name} is built for {built} only; {listed(required)} "
            f"{'is' if len(required) == 1 else 'are'} required",
            f"also build it for {listed(missing)}, and publish one multi-platform image",
            platforms=PlatformSets(supported=texts(place.resolved.pulled_platforms), missing=texts(missing)),
        )


def missing_platforms(place: ImageLocation) -> tuple[tuple[NodePlatform, ...], tuple[NodePlatform, ...]]:
    """The platforms of an image, and those required that it lacks, sorted; none of both for an image that constrains no
    pod, and where nothing is required.
    """
    required = place.options.require
    if not required or not place.constrains or place.resolved is None:
        return (), ()
    return place.resolved.node_platforms, tuple(sorted(set(required) - set(place.resolved.pulled_platforms)))


# -- MA003: an image lacks a required platform (MA002 reports images with a single platform) ---------------------------


MA003 = Rule(
    id="MA003",
    severity=Severity.ERROR,
    title="An image lacks a required platform",
    meaning="--require names a platform that the image is not built for.",
)


def check_required_platforms(place: ImageLocation) -> Iterator[FindingDraft]:
    platforms, missing = missing_platforms(place)
    if missing and len(platforms) != 1:
        message = f"{place.subject}: {place.name} lacks {listed(missing)}, which is required"
        sets = PlatformSets(supported=texts(platforms), missing=texts(missing))
        yield place.draft(MA003, message, "also publish the image for it", platforms=sets)


# -- MA004: an image is pinned to one manifest of the index that its tag points to -------------------------------------


MA004 = Rule(
    id="MA004",
    severity=Severity.WARNING,
    title="An image digest pins one platform of a multi-platform image",
    meaning="The digest belongs to one manifest of the index that the tag points to, so all other platforms are lost.",
    fix="Replaces the digest with that of the index.",
)


def check_child_digest(place: ImageLocation) -> Iterator[FindingDraft]:
    reference, index = place.answer.reference, place.index
    if place.resolved is None or index is None or reference is None or reference.digest in (None, index.digest):
        return
    entry = next((entry for entry in index.entries if entry.digest == reference.digest), None)
    if entry is None or not index.digest:
        return
    fixed = place.text.replace(reference.digest, index.digest) if reference.digest else place.text
    yield place.draft(
        MA004,
        f"{place.subject} pins {place.name} to its {entry.platform} manifest; "
        f"the multi-platform index is {index.digest}",
        "pin the digest of the index",
        platforms=PlatformSets(supported=(str(entry.platform.node),), missing=_platforms_lost(index, entry.platform)),
        repair=Repair((Replace(place.pointer, fixed),), document=place.document)
        if fixed != place.text
        else Repair((), note="the digest comes from a kustomization; change it there", document=place.document),
    )


def _platforms_lost(index: Inspection, kept: Platform) -> tuple[str, ...]:
    return texts(each for each in index.node_platforms if each != kept.node)


# -- MA005: the content of an image does not match its platform; found with --deep only --------------------------------


MA005 = Rule(
    id="MA005",
    severity=Severity.ERROR,
    title="The content of an image does not match its platform",
    meaning="Found with --deep only: an index entry and the image config name different platforms (mislabelled), or "
    "the binary is built for another machine (wrong-binary).",
    subs=("mislabelled", "wrong-binary"),
)


def check_image_content(place: ImageLocation) -> Iterator[FindingDraft]:
    for warning in place.warnings(*MA005.subs):
        message = f"{place.subject}: {place.name}: {warning.message or warning.code}"
        yield place.draft(MA005, message, "build that platform of the image again", sub=warning.code)


# -- MA006: an index has no runnable platform, or the same platform twice ----------------------------------------------


MA006 = Rule(
    id="MA006",
    severity=Severity.ERROR,
    title="An index has no platform, or one twice",
    meaning="Nothing in the index can run (no-platforms), or two entries have the same platform and only the first one "
    "is used (duplicate-platform, a warning).",
    subs=("no-platforms", "duplicate-platform"),
)


def check_index_entries(place: ImageLocation) -> Iterator[FindingDraft]:
    for warning in place.warnings(*MA006.subs):
        if warning.code == "no-platforms":
            message = f"{place.subject}: {place.name} has no platform: {warning.message or 'its index is empty'}"
            yield place.draft(MA006, message, "push an index of runnable images", sub=warning.code)
        else:
            message = f"{place.subject}: {place.name}: {warning.message or warning.code}"
            hint = "push an index with one image for each platform"
            yield place.draft(MA006, message, hint, sub=warning.code, severity=Severity.WARNING)


# -- MA007: the config of an image names no operating system -----------------------------------------------------------


MA007 = Rule(
    id="MA007",
    severity=Severity.WARNING,
    title="An image names no operating system",
    meaning="The os field of the image config is empty. polyarch assumes linux; other tools may reject the image.",
)


def check_image_system(place: ImageLocation) -> Iterator[FindingDraft]:
    for warning in place.warnings("empty-os"):
        message = f"{place.subject}: {place.name}: {warning.message or warning.code}"
        yield place.draft(MA007, message, "build the image with a current tool")


# -- MA008: a tag points to another image than the lock file records ---------------------------------------------------


MA008 = Rule(
    id="MA008",
    severity=Severity.ERROR,
    title="An image changed since it was locked",
    meaning="The tag points to another digest than the lock file records. An error if a platform was lost, otherwise a "
    "warning.",
    fix="polyarch lint --update-lock records the current digest.",
    flag="--update-lock",
    subs=("lost-platform", "moved"),
    default=False,
)


def check_locked_image(place: ImageLocation) -> Iterator[FindingDraft]:
    reference, inspection, lock = place.answer.reference, place.resolved, place.options.lock
    if inspection is None or lock is None or reference is None or reference.digest is not None:
        return
    locked = lock.get(reference.canonical)
    if locked is None or (inspection.digest and inspection.digest == locked.digest):
        return
    lost = sorted(set(locked.platforms) - set(inspection.node_platforms))
    if lost:
        yield place.draft(
            MA008,
            f"{place.subject}: {place.name} lost {listed(lost)} since it was locked",
            "publish the platform again, or accept the loss with --update-lock",
            sub="lost-platform",
            platforms=PlatformSets(supported=texts(inspection.node_platforms), missing=texts(lost)),
        )
    elif inspection.digest:
        yield place.draft(
            MA008,
            f"{place.subject}: {place.name} is now {inspection.digest}, but was locked as {locked.digest}",
            "accept it with --update-lock, or pin the digest",
            sub="moved",
            severity=Severity.WARNING,
        )


# -- MA009: an image has platforms that node labels do not distinguish -------------------------------------------------


MA009 = Rule(
    id="MA009",
    severity=Severity.INFO,
    title="An image needs more than node labels show",
    meaning="A platform of the image has a variant or an OS version. kubernetes.io/arch and kubernetes.io/os do not "
    "show them, so the scheduler cannot take them into account.",
)


def check_image_variants(place: ImageLocation) -> Iterator[FindingDraft]:
    platforms = place.resolved.platforms if place.resolved is not None else ()
    special = [platform for platform in platforms if _needs_more_than_labels(platform)]
    if special:
        hints = dict.fromkeys(_variant_hint(platform, platforms) for platform in special)
        yield place.draft(
            MA009,
            f"{place.subject}: {place.name} has {', '.join(map(str, special))}, "
            "which kubernetes.io/arch and kubernetes.io/os do not show",
            "; ".join(hints),
        )


def _needs_more_than_labels(platform: Platform) -> bool:
    if platform.os not in NODE_SYSTEMS:
        return False
    if platform.os_version:
        return True
    usual = platform.architecture == "arm64" or (platform.architecture, platform.variant) == ("arm", "v7")
    return bool(platform.variant) and not usual


def _variant_hint(platform: Platform, platforms: Sequence[Platform]) -> str:
    if not platform.is_usual:
        plain = f"{platform.os}/{platform.architecture}"
        if not platform.has_processor:
            return f"there is no processor of {platform.architecture}/{platform.variant}: publish it as {plain}"
        if any(each.is_usual and each.node == platform.node for each in platforms):
            return f"runtimes take {plain}, unless they are told to take {platform}"
        return f"publish {plain}, too: no runtime takes {platform} unless it is told to"
    if platform.os == "windows" and platform.os_version:
        build = ".".join(platform.os_version.split(".")[:3])
        return f"select such nodes by node.kubernetes.io/windows-build: {build}"
    what = "" if platform.os_version else f" for {platform.architecture}/{platform.variant}"
    return f"select such nodes by a label of your own{what}"


# -- MA010: an image has a format that current container runtimes reject -----------------------------------------------


MA010 = Rule(
    id="MA010",
    severity=Severity.ERROR,
    title="An image has a format that nodes no longer support",
    meaning="Current container runtimes reject schema 1 manifests and unknown media types.",
)


def check_image_format(place: ImageLocation) -> Iterator[FindingDraft]:
    inspection = place.answer.inspection
    if inspection is None:
        return
    if inspection.error is not None and inspection.error.code == "unsupported-media-type":
        told = place.told(inspection.error)
        message = f"{place.subject}: nodes do not support the format of {place.name}: {told}"
        yield place.draft(MA010, message, PUSH_AGAIN)
    if inspection.kind == "schema1":
        message = f"{place.subject}: {place.name} is a schema 1 manifest ({inspection.media_type or 'schemaVersion 1'})"
        yield place.draft(MA010, f"{message}, which nodes no longer support", PUSH_AGAIN)
        return
    for warning in place.warnings("schema1"):
        yield place.draft(MA010, f"{place.subject}: {place.name}: {warning.message or warning.code}", PUSH_AGAIN)


# -- MA011: an image name contains an architecture: web-amd64, web:1.2-arm64, arm64v8/web ------------------------------


MA011 = Rule(
    id="MA011",
    severity=Severity.INFO,
    title="An image has an architecture in its name",
    meaning="Such an image is often one of several that are also published as a multi-architecture image under the "
    "name without the suffix.",
)

SPELLINGS = tuple(
    sorted(
        KNOWN_ARCHITECTURES
        | {"x86_64", "x86-64", "aarch64", "i386", "i686", "x86", "ppc64el", "loongarch64", "arm64v8", "arm32v7"}
        | {"armhf", "armv7", "armv7l", "armel", "armv6", "armv6l"},
        key=lambda name: (-len(name), name),
    )
)
"""Longest first: ``-x86_64`` does not end in an architecture called ``64``."""

NAMESPACES = frozenset({"arm64v8", "arm32v7", "amd64", "s390x", "ppc64le"})

_SUFFIXES = tuple(separator + name for name in SPELLINGS for separator in "-_.")


def check_image_name(place: ImageLocation) -> Iterator[FindingDraft]:
    reference = place.answer.reference
    found = architecture_in_name(reference) if reference is not None else None
    if found is not None:
        architecture, without = found
        yield place.draft(
            MA011,
            f"{place.subject}: the image name {place.name} contains the architecture {architecture}",
            f"check whether a multi-architecture sibling exists: {without}",
        )


@lru_cache(maxsize=4096)
def architecture_in_name(reference: Reference) -> tuple[str, str] | None:
    """The architecture as it is spelled, and the familiar name without it; None for other names."""
    *namespaces, last = reference.repository.split("/")
    end = _architecture_suffix(last)
    if end:
        return end[1:], _sibling_name(reference, "/".join([*namespaces, last[: -len(end)]]), reference.tag)
    end = _architecture_suffix(reference.tag or "")
    if end:
        return end[1:], _sibling_name(reference, reference.repository, (reference.tag or "")[: -len(end)])
    for index, namespace in enumerate(namespaces):
        if namespace in NAMESPACES:
            rest = "/".join([*namespaces[:index], *namespaces[index + 1 :], last])
            return namespace, _sibling_name(reference, rest, reference.tag)
    return None


def _architecture_suffix(name: str) -> str:
    lower = name.lower()
    if not lower.endswith(_SUFFIXES):
        return ""
    end = next(end for end in _SUFFIXES if lower.endswith(end))
    before = lower[: -len(end)]
    part_of_version = end[0] == "." and end[1:].isdigit() and before[-1:].isdigit()  # 2.14.386
    return end if before and not part_of_version else ""


def _sibling_name(reference: Reference, repository: str, tag: str | None) -> str:
    if reference.registry == "docker.io" and "/" not in repository:
        repository = f"library/{repository}"
    # The digest selects the image for one architecture, so it is not part of the sibling's name.
    return msgspec.structs.replace(reference, repository=repository, tag=tag, digest=None).familiar


# -- the rules of this module ------------------------------------------------------------------------------------------


IMAGE_RULES = (
    RuleCheck(MA001, check_unresolved_image),
    RuleCheck(MA002, check_one_platform),
    RuleCheck(MA003, check_required_platforms),
    RuleCheck(MA004, check_child_digest),
    RuleCheck(MA005, check_image_content),
    RuleCheck(MA006, check_index_entries),
    RuleCheck(MA007, check_image_system),
    RuleCheck(MA008, check_locked_image),
    RuleCheck(MA009, check_image_variants),
    RuleCheck(MA010, check_image_format),
    RuleCheck(MA011, check_image_name),
)
RULES = tuple(each.rule for each in IMAGE_RULES)
