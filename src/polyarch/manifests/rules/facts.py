"""Input and output of the rules: facts about one pod specification, and drafts of findings.

A rule is a function from :class:`PodFacts` to :class:`FindingDraft` values. The platform sets are computed on first use
and cached, so that a pod specification without findings costs next to nothing.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Generic, TypeVar

from yaml.nodes import Node

from polyarch.kube.patches import pointer
from polyarch.manifests.finding import PlatformSets, Repair, Rule, Severity
from polyarch.manifests.operations import TreeOperation, segments
from polyarch.manifests.rules.options import LintOptions
from polyarch.manifests.scan import sets
from polyarch.manifests.scan.nodes import get, item, text_of
from polyarch.manifests.scan.pod_specs import (
    Expression,
    KubeObject,
    LabelEntry,
    Mistake,
    PodSpec,
    Term,
    is_variable,
    mistakes,
)
from polyarch.manifests.scan.sets import Constraints, ImageInspections, PodPlatforms
from polyarch.platforms import NodePlatform, PlatformSet

NO_SETS = PlatformSets()

Check = TypeVar("Check", bound=Callable[..., Iterable[object]])


@dataclass(frozen=True)
class RuleCheck(Generic[Check]):
    """A rule with the function that finds where it is broken."""

    rule: Rule
    check: Check


@dataclass(frozen=True, eq=False, kw_only=True)
class FindingDraft:
    """A finding before the engine adds severity, position and fingerprint."""

    rule: Rule
    message: str
    hint: str
    node: Node
    """The offending node; its position is that of the finding."""
    pointer: str
    """Of that node."""
    sub: str = ""
    severity: Severity | None = None
    """None: the default of the rule."""
    images: tuple[str, ...] = ()
    platforms: PlatformSets = NO_SETS
    repair: Repair | None = None
    documents: tuple[object, ...] = ()
    """Documents that the repair adds after the one it changes."""


class RepairError(Exception):
    """A repair cannot be written; the message becomes the note."""


@dataclass(frozen=True, eq=False)
class RepairTarget:
    """The platforms that a repair makes a pod admit, and all platforms that it considers."""

    platforms: frozenset[NodePlatform]
    considered: frozenset[NodePlatform]


@dataclass(frozen=True, eq=False)
class PodFacts:
    """One pod specification with its sets."""

    pod_spec: PodSpec
    answers: ImageInspections
    options: LintOptions

    @cached_property
    def supported(self) -> PodPlatforms:
        return sets.supported(self.pod_spec, self.answers)

    @property
    def platforms(self) -> PlatformSet:
        """P, or its upper bound P⁺ if an answer is missing."""
        return self.supported.platforms

    @cached_property
    def constraints(self) -> Constraints:
        return sets.constraints(self.pod_spec)

    @cached_property
    def universe(self) -> frozenset[NodePlatform]:
        return sets.universe(
            self.platforms, self.constraints, os_name=self.supported.os_name, explicit=self.options.platforms
        )

    @cached_property
    def admitted(self) -> frozenset[NodePlatform]:
        """S."""
        return sets.admitted(self.constraints, self.universe)

    @cached_property
    def excess(self) -> frozenset[NodePlatform]:
        """S without P⁺."""
        return frozenset(platform for platform in self.admitted if platform not in self.platforms)

    @cached_property
    def variable(self) -> str:
        """A value of an architecture or operating system label, or an operator, that is filled in later; empty if there
        is none.
        """
        given = [(entry.key, entry.value) for entry in self.pod_spec.node_selector]
        given += [(clause.key, text) for clause in self.expressions for text in (*clause.values, clause.operator)]
        found = (value for key, value in given if key in sets.PLATFORM_KEYS and is_variable(value))
        return next(found, "")

    @cached_property
    def mistakes(self) -> tuple[Mistake, ...]:
        """What the API server refuses in its node selector and node affinity."""
        return tuple(mistakes(self.pod_spec))

    @property
    def is_open(self) -> bool:
        """Whether what the pod requires is not known: it stands elsewhere, is filled in later, or is refused."""
        return bool(self.pod_spec.apart or self.variable or self.mistakes)

    @cached_property
    def selector_architectures(self) -> tuple[LabelEntry, ...]:
        return tuple(entry for entry in self.pod_spec.node_selector if entry.key in sets.ARCHITECTURE_KEYS)

    @cached_property
    def selector_systems(self) -> tuple[LabelEntry, ...]:
        return tuple(entry for entry in self.pod_spec.node_selector if entry.key in sets.OS_KEYS)

    @cached_property
    def expressions(self) -> tuple[Expression, ...]:
        """All label expressions of all required terms."""
        required = self.pod_spec.required
        return tuple(each for term in (required.terms if required else ()) for each in term.expressions)

    @cached_property
    def architecture_expressions(self) -> tuple[Expression, ...]:
        """The architecture constraints of required terms."""
        return tuple(filter(sets.is_architecture_constraint, self.expressions))

    @property
    def terms(self) -> Iterator[Term]:
        """Every term of node affinity, required and preferred."""
        if self.pod_spec.required is not None:
            yield from self.pod_spec.required.terms
        for preferred in self.pod_spec.preferred:
            yield from (term for term in (preferred.preference, preferred.bare) if term is not None)

    @property
    def has_architectures(self) -> bool:
        """Whether there is an architecture constraint."""
        return bool(self.selector_architectures) or bool(self.architecture_expressions)

    @cached_property
    def subject(self) -> str:
        """Name of the object for messages; with the name of the pod specification if the object has several."""
        subject, path = self.pod_spec.object, segments(self.pod_spec.pointer)
        start = len(segments(subject.pointer))
        for depth in range(len(path), start, -1):
            if path[depth - 1].isdigit():
                name = text_of(get(item(subject.document.root, pointer(*path[:depth])), "name"))
                if name:
                    return f"{subject.reference}, {name}"
        return str(subject.reference)

    def check_editable(self) -> None:
        """Raises :class:`RepairError` for a patch, and for a pod specification with duplicate keys."""
        if self.pod_spec.is_patch:
            raise RepairError("it is a patch of a kustomization; fix the resource that it patches")
        if self.pod_spec.apart:
            raise RepairError(self.pod_spec.apart)
        if self.pod_spec.duplicates:
            raise RepairError(f"the key {self.pod_spec.duplicates[0][0]} is duplicated in it; remove one first")

    @cached_property
    def target(self) -> RepairTarget:
        """The platforms to write; raises :class:`RepairError` if they are not certain."""
        self.check_editable()
        if self.variable:
            raise RepairError(f"{self.variable} is filled in later")
        if self.mistakes:
            raise RepairError(f"{self.mistakes[0].what}; correct that first")
        if self.pod_spec.required_architecture is not None:
            raise RepairError(f"{self.pod_spec.required_architecture.pointer} requires an architecture, too")
        supported, options = self.supported, self.options.fixes
        platforms = supported.platforms
        if not supported.exact:
            if not options.assume:
                unknown = [image.name for image in supported.images if image.platforms is None]
                if self.pod_spec.added_image:
                    unknown.append(f"the image that the operator takes without {self.pod_spec.added_image}")
                raise RepairError(
                    f"the platforms of {', '.join(unknown)} are unknown; resolve it, or state them with --assume"
                )
            platforms = platforms & PlatformSet.of(options.assume)
            if supported.os_name:
                platforms = PlatformSet.of(pair for pair in platforms if pair.os == supported.os_name)
        if platforms.is_everything:
            raise RepairError("no image restricts the platforms")
        members = frozenset(platforms)
        if options.limit_to_universe:
            members &= self.universe
        if not members:
            raise RepairError("no platform is left that all images support")
        return RepairTarget(members, self.universe | members)


@dataclass(frozen=True, eq=False)
class ObjectFacts:
    """One object with its pod specifications, for the rules on whole objects."""

    object: KubeObject
    pods: tuple[PodFacts, ...]
    answers: ImageInspections
    options: LintOptions


def repair(facts: PodFacts, write: Callable[[], Iterable[TreeOperation]]) -> Repair:
    """The repair with the operations of ``write``, or its refusal."""
    number = facts.pod_spec.document.index
    try:
        return Repair(tuple(write()), document=number)
    except RepairError as refused:
        return Repair((), note=str(refused), document=number)


def needs_flag(facts: PodFacts, flag: str, effect: str) -> Repair:
    """A repair refused because its flag is not set."""
    return Repair((), note=f"{flag} {effect}", document=facts.pod_spec.document.index)


def one_operation(facts: PodFacts, operation: TreeOperation) -> Repair:
    """A repair of one operation, or its refusal if the pod specification cannot be edited."""

    def write() -> tuple[TreeOperation]:
        facts.check_editable()
        return (operation,)

    return repair(facts, write)
