"""The three platform sets that rules compare: supported by images, admitted by the pod, and considered at all.

*P* is what all images of a pod have in common, *S* what its node selector and required node affinity admit,
and *U* the platforms that are considered. All three are sets of node platforms, so a rule compares
sets, never texts.

Requirements on other labels than architecture and operating system may match any node: a manifest does not tell which
nodes have them, and a guess would be wrong on some cluster.

Pure.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from itertools import combinations
from typing import Any, Protocol

from polyarch.manifests.operations import at, elements, mapping, mappings
from polyarch.manifests.scan.pod_specs import REQUIRED, TERMS, ImageUse, PodSpec, is_variable
from polyarch.oci.inspection import Inspection, Status
from polyarch.oci.reference import InvalidReference, Reference, parse
from polyarch.platforms import (
    ASSUMED_ARCHITECTURES,
    KNOWN_ARCHITECTURES,
    KNOWN_SYSTEMS,
    NodePlatform,
    PlatformSet,
    normal_architecture,
    normal_system,
    shared_platforms,
)
from polyarch.selectors import Requirement

ARCHITECTURE_KEY = "kubernetes.io/arch"
OS_KEY = "kubernetes.io/os"
ARCHITECTURE_KEYS = (ARCHITECTURE_KEY, "beta.kubernetes.io/arch")
OS_KEYS = (OS_KEY, "beta.kubernetes.io/os")
PLATFORM_KEYS = ARCHITECTURE_KEYS + OS_KEYS

DEFAULT_UNIVERSE = frozenset(NodePlatform("linux", architecture) for architecture in ASSUMED_ARCHITECTURES)
"""The node platforms assumed without ``--platforms``."""

_WINDOWS = NodePlatform("windows", "amd64")
# With more distinct sets than this in a pod, a minimal conflict is found instead of the smallest one.
_SEARCHED = 12


# Images: P ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ImageInspections:
    """Inspections of the images of a run, by the text that names them (:attr:`ImageUse.resolved_text`).

    ``indexes`` has the index that a digest may be a child of (MA004), from the same name with its tag or from an
    answers file, by the text of the image with the digest.
    """

    images: Mapping[str, Inspection]
    indexes: Mapping[str, Inspection] = field(default_factory=dict)
    _read: dict[str, "ImageInspection"] = field(default_factory=dict, compare=False, repr=False)

    def of(self, text: str) -> "ImageInspection":
        """The answer for a text; one that is not an image reference has a problem instead."""
        known = self._read.get(text)
        if known is None:
            known = self._read[text] = _answer(text, self.images.get(text))
        return known


@dataclass(frozen=True)
class ImageInspection:
    """The answer for one text: its reference (or why it is none), and the inspection, if any."""

    text: str
    reference: Reference | None
    problem: str
    """Why the text is not an image reference; empty if it is."""
    inspection: Inspection | None
    platforms: PlatformSet | None
    """None if unknown; everything if the image does not constrain."""


def _answer(text: str, inspection: Inspection | None) -> ImageInspection:
    if is_variable(text):
        return ImageInspection(text, None, "it has a variable that is not filled in", None, None)
    try:
        reference = parse(text)
    except InvalidReference as error:
        return ImageInspection(text, None, error.problem, None, None)
    platforms = None
    if inspection is not None and inspection.status is Status.RESOLVED:
        platforms = PlatformSet.of(inspection.node_platforms)
    elif inspection is not None and inspection.status is Status.NEUTRAL:
        platforms = PlatformSet.EVERYTHING
    return ImageInspection(text, reference, "", inspection, platforms)


@dataclass(frozen=True, eq=False)
class SupportedImage:
    """One image of a pod and the platforms it supports; None if unknown."""

    use: ImageUse
    answer: ImageInspection
    platforms: PlatformSet | None

    @property
    def name(self) -> str:
        """Name for messages: the inspected text, or the container if it names no image."""
        return self.use.resolved_text or f"the image of {self.use.container or 'a container'}"


@dataclass(frozen=True, eq=False)
class PodPlatforms:
    """P, or its upper bound P⁺ if an answer is missing."""

    images: tuple[SupportedImage, ...]
    unrestricted: PlatformSet
    """Before ``spec.os.name``."""
    os_name: str = ""
    partial: bool = False
    """The pod has more images than these: it is a patch, or an operator adds one."""

    @cached_property
    def platforms(self) -> PlatformSet:
        if not self.os_name or self.unrestricted.is_everything:
            return self.unrestricted
        return PlatformSet.of(pair for pair in self.unrestricted if pair.os == self.os_name)

    @cached_property
    def exact(self) -> bool:
        return not self.partial and all(image.platforms is not None for image in self.images)

    @property
    def neutral(self) -> bool:
        """Whether every image is known and none constrains the pod."""
        return self.exact and self.platforms.is_everything

    @property
    def constraining(self) -> Iterator[tuple[SupportedImage, PlatformSet]]:
        """The images that do not support every platform."""
        for image in self.images:
            if image.platforms is not None and not image.platforms.is_everything:
                yield image, image.platforms

    @cached_property
    def conflict(self) -> tuple[SupportedImage, ...]:
        """A minimal set of images without a common platform, the first in the pod's order."""
        different: dict[PlatformSet, SupportedImage] = {}
        for image, platforms in self.constraining:
            different.setdefault(platforms, image)
        sets = list(different)
        for few in range(1, len(sets) + 1) if len(sets) <= _SEARCHED else ():
            for chosen in combinations(sets, few):
                if not shared_platforms(chosen):
                    return tuple(different[each] for each in chosen)
        remaining = sets
        for each in reversed(sets):
            without = [other for other in remaining if other != each]
            if not shared_platforms(without):
                remaining = without
        return tuple(different[each] for each in remaining)


def supported(pod_spec: PodSpec, answers: ImageInspections) -> PodPlatforms:
    """What the images of a pod have in common."""
    images = tuple(_supported(use, answers) for use in pod_spec.images)
    common = shared_platforms(image.platforms for image in images if image.platforms is not None)
    partial = pod_spec.is_part or bool(pod_spec.added_image)
    return PodPlatforms(images, common, os_name=meant_system(pod_spec.os_name), partial=partial)


def _supported(use: ImageUse, answers: ImageInspections) -> SupportedImage:
    answer = answers.of(use.resolved_text)
    platforms = answer.platforms
    if use.role == "volume" and platforms is not None:
        # Nodes cannot pull an index without their platform, but any single manifest.
        inspection = answer.inspection
        constrains = inspection is not None and inspection.kind == "index" and bool(platforms)
        platforms = platforms if constrains else PlatformSet.EVERYTHING
    return SupportedImage(use, answer, platforms)


# Constraints: S -------------------------------------------------------------------------------------------------------


class NodeRequirement(Protocol):
    """One requirement on a node's label: an ``Expression`` of a text or a :class:`Requirement`."""

    @property
    def key(self) -> str: ...
    @property
    def operator(self) -> str: ...
    @property
    def values(self) -> tuple[str, ...]: ...


@lru_cache(maxsize=512)
def meant_architecture(value: str) -> str:
    """The known name for an alias or wrong case (MA110); else the value itself."""
    if value in KNOWN_ARCHITECTURES:
        return value
    meant = normal_architecture(value)
    return meant if meant in KNOWN_ARCHITECTURES else value


@lru_cache(maxsize=512)
def meant_system(value: str) -> str:
    """As :func:`meant_architecture`, for operating systems."""
    if value in KNOWN_SYSTEMS:
        return value
    meant = normal_system(value)
    return meant if meant in KNOWN_SYSTEMS else value


def holds(clause: NodeRequirement, platform: NodePlatform) -> bool:
    """Whether some node of the platform could satisfy the clause."""
    key = clause.key
    if key in ARCHITECTURE_KEYS:
        return _holds(clause, platform.architecture, meant_architecture)
    if key in OS_KEYS:
        return _holds(clause, platform.os, meant_system)
    return not (clause.operator == "In" and not clause.values)


def _holds(clause: NodeRequirement, label: str, meant: Callable[[str], str]) -> bool:
    match clause.operator:
        case "In":
            return any(meant(value) == label for value in clause.values)
        case "NotIn":
            return all(meant(value) != label for value in clause.values)
        case "DoesNotExist" | "Gt" | "Lt":
            return False
        case _:  # Exists, and unknown operators
            return True


def is_architecture_constraint(clause: NodeRequirement) -> bool:
    return clause.key in ARCHITECTURE_KEYS and clause.operator != "Exists"


def is_os_constraint(clause: NodeRequirement) -> bool:
    return clause.key in OS_KEYS and clause.operator != "Exists"


@dataclass(frozen=True)
class Constraints:
    """What a pod requires of its node: all of ``selector``, and all clauses of one term.

    ``terms`` is None where no node affinity is required. Empty terms are left out, since they match nothing; a term of
    fields alone is a term without clauses, which may match everything.
    """

    selector: tuple[NodeRequirement, ...] = ()
    terms: tuple[tuple[NodeRequirement, ...], ...] | None = None

    @property
    def is_unconstrained(self) -> bool:
        return not self.selector and self.terms is None

    def admits(self, platform: NodePlatform) -> bool:
        if not all(holds(clause, platform) for clause in self.selector):
            return False
        return self.terms is None or any(all(holds(clause, platform) for clause in term) for term in self.terms)

    def clauses(self) -> Iterator[NodeRequirement]:
        yield from self.selector
        for term in self.terms or ():
            yield from term

    def without_architectures(self) -> "Constraints":
        """The same with every expression on an architecture left out."""
        return Constraints(
            tuple(clause for clause in self.selector if clause.key not in ARCHITECTURE_KEYS),
            None
            if self.terms is None
            else tuple(tuple(each for each in term if each.key not in ARCHITECTURE_KEYS) for term in self.terms),
        )

    @cached_property
    def named(self) -> tuple[frozenset[str], bool]:
        """The known architectures that constraints name, and whether they name windows."""
        architectures: set[str] = set()
        windows = False
        for clause in self.clauses():
            if is_architecture_constraint(clause):
                architectures.update(map(meant_architecture, clause.values))
            elif is_os_constraint(clause):
                windows = windows or any(meant_system(value) == "windows" for value in clause.values)
        return frozenset(architectures & KNOWN_ARCHITECTURES), windows


UNCONSTRAINED = Constraints()


def constraints(pod_spec: PodSpec) -> Constraints:
    """The constraints of a pod specification in a text."""
    entries, required = pod_spec.node_selector, pod_spec.required
    if not entries and required is None:
        return UNCONSTRAINED
    selector = tuple(Requirement(entry.key, "In", (entry.value,)) for entry in entries)
    if required is None:
        return Constraints(selector)
    return Constraints(selector, tuple(term.expressions for term in required.terms if not term.is_empty))


def constraints_of(pod_spec: Mapping[str, Any]) -> Constraints:
    """The constraints of a pod specification as a value of unchecked types."""
    selector = mapping(pod_spec.get("nodeSelector"))
    required = at(pod_spec, "affinity", "nodeAffinity", REQUIRED)
    terms = None
    if isinstance(required, Mapping):
        terms = tuple(
            tuple(map(_clause, elements(term.get("matchExpressions"))))
            for term in mappings(required.get(TERMS))
            if elements(term.get("matchExpressions")) or elements(term.get("matchFields"))
        )
    return Constraints(tuple(Requirement(str(key), "In", (str(value),)) for key, value in selector.items()), terms)


def _clause(expression: Any) -> NodeRequirement:
    members = mapping(expression)
    values = tuple(str(value) for value in elements(members.get("values")))
    return Requirement(str(members.get("key") or ""), str(members.get("operator") or ""), values)


def admitted(of: Constraints, universe: Iterable[NodePlatform]) -> frozenset[NodePlatform]:
    """S: the platforms of the universe whose nodes could satisfy the constraints."""
    if of.is_unconstrained:
        return frozenset(universe)
    return frozenset(platform for platform in universe if of.admits(platform))


# What there is: U -----------------------------------------------------------------------------------------------------


def universe(
    platforms: PlatformSet, of: Constraints, *, os_name: str = "", explicit: Iterable[NodePlatform] = ()
) -> frozenset[NodePlatform]:
    """U: the ``explicit`` platforms if given, else the defaults and all that images or constraints name."""
    stated = frozenset(explicit)
    if stated:
        return stated
    architectures, windows = of.named
    found = DEFAULT_UNIVERSE
    if platforms.members:
        found |= platforms.members
    if architectures:
        found |= {NodePlatform("linux", architecture) for architecture in architectures}
    if windows or os_name == "windows":
        found |= {_WINDOWS}
    return found


def texts(platforms: Iterable[NodePlatform]) -> tuple[str, ...]:
    """Sorted and printed, as in findings."""
    return _printed(frozenset(platforms))


@lru_cache(maxsize=512)
def _printed(platforms: frozenset[NodePlatform]) -> tuple[str, ...]:
    return tuple(map(str, sorted(platforms)))


def listed(platforms: Iterable[NodePlatform] | PlatformSet) -> str:
    """A list for messages; ``no platform`` if empty."""
    if isinstance(platforms, PlatformSet) and platforms.is_everything:
        return "every platform"
    return ", ".join(texts(platforms)) or "no platform"
