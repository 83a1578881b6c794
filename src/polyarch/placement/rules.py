"""The placement rules: from the facts of one pod to one :class:`PlacementDecision`.

There are two steps, because the caller asks registries between them: :func:`examine` reads the pod as its user wrote
it, checks eligibility and lists the images to inspect; :func:`decide` turns the inspections into the decision, and
:func:`decide_after` does so for a pod that has waited. All are total: no pod and no inspection makes them raise. Pure:
no I/O, no clock, no randomness.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

import msgspec

from polyarch.images.constraints import constraints_of
from polyarch.images.pod_images import (
    ImageEffect,
    ImageFacts,
    ImageUse,
    common_platforms,
    deciders,
    image_facts,
    images_of,
    listed,
)
from polyarch.objects import NodeSelectorRequirement, NodeSelectorTerm, Pod, PreferredSchedulingTerm
from polyarch.oci.inspection import Inspection
from polyarch.placement import names
from polyarch.placement.decision import (
    NO_SIGNER,
    DecisionRecord,
    LookupProgress,
    PlacementDecision,
    PlacementOutcome,
    Reason,
    RecordSigner,
    SignedContext,
    decision_message,
    ineligible_message,
    is_authentic,
    read_record,
    rejected_message,
    unavailable_message,
)
from polyarch.placement.settings import OSConstraint, ScoringSource, Settings, preferences
from polyarch.platforms import (
    ASSUMED_ARCHITECTURES,
    KNOWN_ARCHITECTURES,
    NO_RUNTIMES,
    NodePlatform,
    NodeRuntimes,
    PlatformSet,
)
from polyarch.selectors import is_label_value

# -- the pod as its user wrote it --------------------------------------------------------------------------------------
# The pod without anything that placement wrote. So a manifest copied from a placed pod, and a pod in a second round of
# admission, are decided as if new. The decision record says which expressions are ours; it is used only if it was made
# for this pod and only for expressions that are still on the pod unchanged. Their positions are kept, so that a patch
# can remove or replace them in place.
#
# Two traps. An expression counts as the user's if its term would be empty without it, which matches no node (the user
# removed their own part of a copied term). And nothing can be removed from required terms of a stored pod, so there
# every expression counts as the user's.

ABSENT: Final = -1
_NO_LABELS: Final[dict[str, str]] = {}


class UserTerm(msgspec.Struct, frozen=True, gc=False):
    """One required term as the user wrote it, and the positions of our expressions in it."""

    index: int
    """Index in the pod's list of terms."""
    keys: tuple[str, ...]
    """Keys of the user's matchExpressions."""
    is_empty: bool = False
    chooses_architecture: bool = False
    """One of the user's expressions says which architectures it wants, not only which it does not, nor that there is
    one."""
    arch_at: int = ABSENT
    """Position of our architecture expression, or of our marker, among the term's matchExpressions."""
    os_at: int = ABSENT

    @property
    def is_closed(self) -> bool:
        """It needs no architecture expression of ours."""
        return self.is_empty or self.chooses_architecture


class UserPod(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The user's view. Fields of ``pod`` that placement may write must be read from here, not from ``pod``."""

    pod: Pod
    labels: Mapping[str, str]
    """Without our own; selectors of PodPlacementConfigs match against these."""
    node_selector: Mapping[str, str]
    terms: tuple[UserTerm, ...]
    prefers_architecture: bool
    """A preferred term of the user has an architecture expression."""
    created_term: int = ABSENT
    """Index of the term that we created and that has no other expression."""
    own_preferred: tuple[int, ...] = ()
    """Indexes of our preferred terms."""
    own_gates: tuple[int, ...] = ()
    accounted_labels: frozenset[str] = frozenset()
    """Result labels that the decision annotation says we wrote."""
    has_controller_owner: bool = False
    has_foreign_record: bool = False
    """The pod has a decision annotation that was not made for it."""

    @property
    def is_gated(self) -> bool:
        return bool(self.own_gates)


def read_user_pod(
    pod: Pod, *, stored: bool, namespace: str = "", signer: RecordSigner = NO_SIGNER, record_was_sent: bool = True
) -> UserPod:
    """The user's view of a pod that arrives at admission in ``namespace``, or of one that is ``stored`` already.

    ``signer`` verifies that a record is ours. ``record_was_sent``: see ``provenance``.
    """
    metadata = pod.metadata
    record = read_record(metadata.annotations)
    if record is not None and record.mode != "enforce":
        record = None  # the annotation of an audit describes expressions that were never written
    is_foreign = False
    if record is not None and signer.has_key:
        images = tuple(use.text for use in images_of(pod))
        is_foreign = not is_authentic(record, SignedContext(namespace, images, signer, record_was_sent))
    record = None if is_foreign else record
    terms, created = _user_terms(pod, None if stored else record)
    preferred = pod.preferred or ()
    own_preferred = _own_preferred(preferred, record) if record is not None else ()
    return UserPod(
        pod=pod,
        labels=_user_labels(metadata.labels),
        node_selector=pod.spec.node_selector or _NO_LABELS,
        terms=terms,
        prefers_architecture=any(
            _mentions_architecture(term) for index, term in enumerate(preferred) if index not in own_preferred
        ),
        created_term=created,
        own_preferred=own_preferred,
        own_gates=tuple(index for index, gate in enumerate(pod.spec.scheduling_gates or ()) if gate.name == names.GATE),
        accounted_labels=_recorded_labels(record) if record is not None else frozenset(),
        has_controller_owner=any(owner.controller for owner in metadata.owner_references or ()),
        has_foreign_record=is_foreign,
    )


def _user_labels(labels: dict[str, str] | None) -> Mapping[str, str]:
    if not labels:
        return _NO_LABELS
    if names.OWN_LABELS.isdisjoint(labels):
        return labels
    return {key: value for key, value in labels.items() if key not in names.OWN_LABELS}


def _user_terms(pod: Pod, record: DecisionRecord | None) -> tuple[tuple[UserTerm, ...], int]:
    required = pod.required
    if required is None or not required.node_selector_terms:
        return (), ABSENT
    terms, created = [], ABSENT
    for index, term in enumerate(required.node_selector_terms):
        arch_at, os_at = _own_expressions(term, index, record) if record is not None else (ABSENT, ABSENT)
        expressions = term.match_expressions or ()
        keys = tuple(each.key for at, each in enumerate(expressions) if at not in (arch_at, os_at))
        if arch_at != ABSENT and not keys and not term.match_fields:
            if record is not None and record.created and created == ABSENT:
                created = index
                continue
            arch_at = os_at = ABSENT
            keys = tuple(each.key for each in expressions)
        chooses = any(
            each.key == names.ARCH_KEY and each.operator not in _OPEN_OPERATORS
            for at, each in enumerate(expressions)
            if at != arch_at
        )
        terms.append(UserTerm(index, keys, term.is_empty, chooses, arch_at, os_at))
    return tuple(terms), created


_OPEN_OPERATORS: Final = ("NotIn", "Exists")
"""Operators that leave open which architectures a pod can run on: the author excluded some, or wants any."""


def _own_expressions(term: NodeSelectorTerm, index: int, record: DecisionRecord) -> tuple[int, int]:
    """Positions of our architecture (or marker) expression and of the OS expression directly after it."""
    if not record.names_term(index):
        return ABSENT, ABSENT
    expressions = term.match_expressions or []
    arch_at = next((at for at, each in enumerate(expressions) if _is_recorded(each, record)), ABSENT)
    if arch_at == ABSENT or record.os is msgspec.UNSET or arch_at + 1 >= len(expressions):
        return arch_at, ABSENT
    follower = expressions[arch_at + 1]
    is_ours = (
        follower.key == names.OS_KEY
        and follower.operator == "In"
        and follower.values == [record.os]
        and not any(
            each.key in names.OS_KEYS for each in expressions[:arch_at]
        )  # otherwise we would not have written one
    )
    return arch_at, arch_at + 1 if is_ours else ABSENT


def _is_recorded(requirement: NodeSelectorRequirement, record: DecisionRecord) -> bool:
    if record.reason == Reason.NO_SUPPORTED_ARCHITECTURE:
        return requirement.key == names.NO_SUPPORTED_ARCH_KEY and requirement.operator == "Exists"
    return (
        requirement.key == names.ARCH_KEY and requirement.operator == "In" and record.names_values(requirement.values)
    )


def _own_preferred(
    preferred: list[PreferredSchedulingTerm] | tuple[PreferredSchedulingTerm, ...], record: DecisionRecord
) -> tuple[int, ...]:
    wanted = list(record.preferred)
    found = []
    for index, term in enumerate(preferred):
        pair = own_pair(term)
        if pair is not None and pair in wanted:
            wanted.remove(pair)
            found.append(index)
    return tuple(found)


def own_pair(term: PreferredSchedulingTerm) -> tuple[str, int] | None:
    """The architecture and weight of a preferred term that has the form of ours; None for any other."""
    preference = term.preference
    if preference is None or preference.match_fields:
        return None
    match preference.match_expressions:
        case [NodeSelectorRequirement(key=names.ARCH_KEY, operator="In", values=[architecture])]:
            return architecture, term.weight
    return None


def _mentions_architecture(term: PreferredSchedulingTerm) -> bool:
    expressions = term.preference.match_expressions if term.preference is not None else None
    return any(each.key == names.ARCH_KEY for each in expressions or ())


def _recorded_labels(record: DecisionRecord) -> frozenset[str]:
    match record.reason:
        case Reason.ARCHITECTURES_SET:
            count = len(record.arch) + (record.more_arch or 0)
            amount = names.SINGLE_ARCH_LABEL if count == 1 else names.MULTI_ARCH_LABEL
            architectures = (
                names.ARCHITECTURE_LABELS[each] for each in record.arch if each in names.ARCHITECTURE_LABELS
            )
            return frozenset((amount, *architectures))
        case Reason.NO_SUPPORTED_ARCHITECTURE:
            return frozenset({names.NO_SUPPORTED_ARCH_LABEL})
        case Reason.FALLBACK_SET:
            return frozenset({names.FALLBACK_ARCH_LABEL})
        case _:
            return frozenset()


# -- supported platforms -----------------------------------------------------------------------------------------------
# The architectures that all images of a pod support, and the pod's operating system. Unresolved images are left out of
# the intersection, so the resolved ones already constrain.


class SupportedPlatforms(msgspec.Struct, frozen=True, gc=False):
    """The architectures that all constraining images support, or everything, and the OS expression for them."""

    is_everything: bool
    architectures: tuple[str, ...] = ()
    """Sorted by byte value."""
    os: str = ""
    """Value of the OS expression; empty: none is needed."""
    system: str = ""
    """The operating system that the architectures are for; empty: nothing decides it."""
    platforms: PlatformSet = PlatformSet.EVERYTHING
    """Where the images run, of every system."""

    @property
    def is_nothing(self) -> bool:
        """The images have no platform in common; further answers cannot change that."""
        return not self.is_everything and not self.architectures


def supported_platforms(
    findings: Iterable[ImageFacts],
    view: UserPod,
    os_constraint: OSConstraint,
    node_systems: frozenset[str] = frozenset(),
) -> SupportedPlatforms:
    """The architectures that all constraining images support, for the pod's operating system.

    ``node_systems``: those of the cluster's nodes. The scheduler does not look at ``spec.os``, so where nodes have
    another system, the pod's is a part of the constraint unless its selectors say it.
    """
    findings = [finding for finding in findings if finding.effect is ImageEffect.CONSTRAINS]
    if not findings:
        return SupportedPlatforms(is_everything=True)
    common = common_platforms(findings)
    if os_constraint == "off":
        anywhere = common_platforms(map(_of_any_system, findings))
        return SupportedPlatforms(is_everything=False, architectures=anywhere.architectures(), platforms=common)
    systems = common.systems()
    stated = stated_os(view)
    if stated:
        selected = stated if node_systems - {stated} and view.pod.spec.os is not None else ""
        architectures = common.architectures(stated)
        return SupportedPlatforms(
            is_everything=False, architectures=architectures, os=selected, system=stated, platforms=common
        )
    if not systems:
        return SupportedPlatforms(is_everything=False, platforms=common)
    system = systems[0] if len(systems) == 1 else "linux"  # the only other one is windows
    due = os_constraint == "always" or system != "linux" or len(systems) > 1 or bool(node_systems - {system})
    architectures = common.architectures(system)
    selected = system if due else ""
    return SupportedPlatforms(
        is_everything=False, architectures=architectures, os=selected, system=system, platforms=common
    )


def _of_any_system(image: ImageFacts) -> ImageFacts:
    """The image as if all nodes had one system."""
    platforms, legacy = (
        tuple(NodePlatform("", pair.architecture) for pair in each) for each in (image.platforms, image.legacy)
    )
    return msgspec.structs.replace(image, platforms=platforms, legacy=legacy)


def stated_os(view: UserPod) -> str:
    """The operating system of ``spec.os``, of the nodeSelector, or of all required terms; empty: none."""
    spec = view.pod.spec
    if spec.os is not None and spec.os.name:
        return spec.os.name
    for key in names.OS_KEYS:
        if key in view.node_selector:
            return view.node_selector[key]
    if not view.terms:
        return ""
    pinned = {_pinned_os(term) for term in _terms_without_ours(view) if not term.is_empty}
    return pinned.pop() if len(pinned) == 1 else ""


def _terms_without_ours(view: UserPod) -> Iterable[NodeSelectorTerm]:
    """The terms with the user's expressions only, without an OS expression of ours."""
    required = view.pod.required
    stored = (required.node_selector_terms if required is not None else None) or []
    for term in view.terms:
        given = stored[term.index]
        if term.os_at < 0:
            yield given
        else:
            kept = [
                each for at, each in enumerate(given.match_expressions or ()) if at not in (term.arch_at, term.os_at)
            ]
            yield NodeSelectorTerm(kept, given.match_fields)


def _pinned_os(term: NodeSelectorTerm) -> str:
    for expression in term.match_expressions or ():
        if expression.key == names.OS_KEY and expression.operator == "In" and len(expression.values or ()) == 1:
            return (expression.values or [""])[0]
    return ""


# -- what the user requires of architectures, beside the images --------------------------------------------------------
# Placement leaves such a pod alone. ``explain`` says what is wrong with it, as lint does of its manifest.


class OwnRequirement(NamedTuple):
    """Whether the architectures that the user asks for are those of the images."""

    problem: str = ""
    can_run: bool = True


def images_of_requirement(case: "ExaminedPod") -> tuple[ImageUse, ...]:
    """The images of a pod that requires architectures itself; none for other pods."""
    if case.rule is Reason.ARCHITECTURE_ALREADY_REQUIRED or (case.rule is None and not case.needs_constraint):
        return images_of(case.pod, searched=case.settings.short_names_searched)
    return ()


def own_requirement(case: "ExaminedPod", inspections: Mapping[str, Inspection]) -> OwnRequirement:
    """What the images say of the architectures that the user requires; an unresolved image says nothing."""
    uses = images_of_requirement(case)
    if not uses:
        return OwnRequirement()
    read = _image_facts(case, uses, inspections, final=True)
    known = _supported(case, read)
    if known.is_everything:
        return OwnRequirement()
    constraints = constraints_of(case.pod)
    system = known.system or "linux"
    admitted = [
        each
        for each in sorted(KNOWN_ARCHITECTURES | set(known.architectures))
        if constraints.admits(NodePlatform(system, each))
    ]
    lacking = [each for each in admitted if each not in known.architectures]
    if len(lacking) == len(admitted):
        return OwnRequirement(
            f"the pod can run nowhere: it requires {listed(lacking) or 'no known architecture'} itself, but its images "
            f"run on {listed(known.architectures) or 'nothing'} only ({deciders(read)})",
            can_run=False,
        )
    usual = [each for each in lacking if each in ASSUMED_ARCHITECTURES]
    if not usual:
        return OwnRequirement()
    return OwnRequirement(f"the pod admits {listed(usual)} itself, where its images do not run ({deciders(read)})")


# -- required terms ----------------------------------------------------------------------------------------------------
# The user's terms are never removed, reordered or merged, and a term is added only to a pod without any. Each term is
# handled alone: an empty one (it matches no node) stays empty, one that already has the key is unchanged, any other
# gets the expression at its end.


class TermPlan(msgspec.Struct, frozen=True, gc=False):
    """Indexes in the resulting list. ``created``: its only term is ours."""

    terms: tuple[int, ...] = ()
    os_terms: tuple[int, ...] = ()
    created: bool = False


def plan_terms(view: UserPod, *, key: str, os: str) -> TermPlan:
    """Which terms get the expression with ``key``, and which of those the OS expression (empty ``os``: none)."""
    if any(each in view.node_selector for each in names.OS_KEYS):
        os = ""
    if not view.terms:
        return TermPlan((0,), (0,) if os else (), created=True)
    terms, os_terms = [], []
    for term in view.terms:
        if term.is_empty or (term.is_closed if key == names.ARCH_KEY else key in term.keys):
            continue
        index = resulting_index(view, term.index)
        terms.append(index)
        if os and not any(each in term.keys for each in names.OS_KEYS):
            os_terms.append(index)
    return TermPlan(tuple(terms), tuple(os_terms))


def resulting_index(view: UserPod, index: int) -> int:
    """Index of a term once a term that we created earlier in the list is removed."""
    return index - 1 if ABSENT < view.created_term < index else index


def architecture_expression(architectures: tuple[str, ...]) -> NodeSelectorRequirement:
    """The architecture expression; without architectures the marker that no node matches."""
    if not architectures:
        return NodeSelectorRequirement(names.NO_SUPPORTED_ARCH_KEY, "Exists")
    return NodeSelectorRequirement(names.ARCH_KEY, "In", list(architectures))


def os_expression(os: str) -> NodeSelectorRequirement:
    """The OS expression."""
    return NodeSelectorRequirement(names.OS_KEY, "In", [os])


# -- examine -----------------------------------------------------------------------------------------------------------

MAX_FAILURE: Final = 256


class PodFacts(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The pod and the cluster state that its decision depends on, without the image answers."""

    pod: Pod
    namespace: str
    """From the admission request, or the pod's own."""
    settings: Settings
    sources: tuple[ScoringSource, ...] = ()
    """Scoring sources of the namespace, by precedence."""
    stored: bool = False
    """The pod was read from the API server, so its expressions are immutable; false: it is being admitted."""
    nodes: frozenset[NodePlatform] = frozenset()
    """Platforms of nodes that are not being deleted, by their labels; empty where nobody looks at nodes."""
    coming: frozenset[NodePlatform] = frozenset()
    """Platforms of nodes that templates of autoscalers and clouds may make; with an empty architecture where such a
    template does not say."""
    runtimes: NodeRuntimes = NO_RUNTIMES
    """The runtimes of the nodes."""
    signer: RecordSigner = NO_SIGNER
    """Verifies which decision annotations are ours."""
    record_was_sent: bool = True
    """The pod's creator sent its decision annotation; false: an earlier call of this same admission wrote it."""


class ExaminedPod(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """An examined pod: whether it is eligible, what it needs, and which images decide."""

    facts: PodFacts
    view: UserPod
    rule: Reason | None
    """The eligibility rule that excludes the pod; None if it is eligible."""
    sources: tuple[ScoringSource, ...] = ()
    """Scoring sources that match the pod."""
    needs_constraint: bool = False
    """The pod has no architecture constraint of its own."""
    images: tuple[ImageUse, ...] = ()
    """The images to inspect; empty if no constraint is needed."""

    @property
    def settings(self) -> Settings:
        return self.facts.settings

    @property
    def pod(self) -> Pod:
        return self.facts.pod

    @property
    def scope(self) -> SignedContext:
        """Namespace and images that a record of this decision is bound to."""
        images = self.images or images_of(self.pod)
        return SignedContext(self.facts.namespace, tuple(use.text for use in images), self.facts.signer)

    @property
    def scoring_applies(self) -> bool:
        """Some scoring source matches."""
        return bool(self.sources)

    @property
    def finishes_gate(self) -> bool:
        """The pod already has our gate, so it is placed as in ``enforce`` whatever the current mode is."""
        return self.facts.stored or self.view.is_gated

    @property
    def is_audited(self) -> bool:
        """The outcome is reported, not written."""
        return self.settings.mode == "audit" and not self.finishes_gate

    @property
    def wants_answers(self) -> bool:
        """At admission: missing answers are looked up within the budget."""
        if not self.images or self.facts.stored or self.settings.provisional:
            return False
        return self.settings.inline_enabled and not self.is_audited


def examine(facts: PodFacts) -> ExaminedPod:
    """Examines the pod as its user wrote it: eligibility, needs, images."""
    view = read_user_pod(
        facts.pod,
        stored=facts.stored,
        namespace=facts.namespace,
        signer=facts.signer,
        record_was_sent=facts.record_was_sent,
    )
    sources = tuple(source for source in facts.sources if source.matches(view.labels))
    pod = ExaminedPod(facts=facts, view=view, rule=None, sources=sources)
    rule = eligibility(pod)
    if rule is not None or architecture_required(view):
        return msgspec.structs.replace(pod, rule=rule)
    images = images_of(facts.pod, searched=facts.settings.short_names_searched)
    return msgspec.structs.replace(pod, needs_constraint=True, images=images)


# -- eligibility -------------------------------------------------------------------------------------------------------
# Which pods placement leaves alone; the first rule that applies wins.


def architecture_required(view: UserPod) -> bool:
    """Whether the user requires an architecture: by nodeSelector, or in every required term."""
    if names.ARCH_KEY in view.node_selector:
        return True
    return bool(view.terms) and all(term.is_closed for term in view.terms)


def is_invalid(pod: ExaminedPod) -> bool:
    """Whether the API server will reject the pod: it has no container, or something is wrong that our patch would put
    right or remove, and then what is accepted would depend on what polyarch knows of the images."""
    if pod.facts.stored:
        return False
    required, own_gates = pod.pod.required, len(pod.view.own_gates)
    return (
        not pod.pod.spec.containers
        or (required is not None and not required.node_selector_terms)
        or own_gates > (0 if pod.pod.spec.node_name else 1)
        or any(not is_label_value(value) for value in _own_labels(pod.pod.metadata.labels))
    )


def _own_labels(labels: Mapping[str, str] | None) -> Iterable[str]:
    if not labels or names.OWN_LABELS.isdisjoint(labels):
        return ()
    return (labels[key] for key in names.OWN_LABELS & labels.keys())


def in_operator_namespace(pod: ExaminedPod) -> bool:
    return bool(pod.settings.operator_namespace) and pod.facts.namespace == pod.settings.operator_namespace


def in_kube_namespace(pod: ExaminedPod) -> bool:
    return pod.facts.namespace.startswith("kube-")


def in_excluded_namespace(pod: ExaminedPod) -> bool:
    return pod.settings.excludes(pod.facts.namespace)


def opted_out(pod: ExaminedPod) -> bool:
    annotations = pod.pod.metadata.annotations or {}
    return annotations.get(names.SKIP_ANNOTATION) == "true" and pod.settings.pod_opt_out == "allowed"


def already_bound(pod: ExaminedPod) -> bool:
    return bool(pod.pod.spec.node_name)


def for_the_control_plane(pod: ExaminedPod) -> bool:
    return any(key in pod.view.node_selector for key in names.CONTROL_PLANE_KEYS)


def of_a_daemon_set(pod: ExaminedPod) -> bool:
    owners = pod.pod.metadata.owner_references or ()
    return any(owner.kind == "DaemonSet" and owner.controller is True for owner in owners)


def nothing_left_to_say(pod: ExaminedPod) -> bool:
    return architecture_required(pod.view) and (pod.view.prefers_architecture or not pod.scoring_applies)


ELIGIBILITY_RULES: Final[tuple[tuple[Reason, Callable[[ExaminedPod], bool]], ...]] = (
    (Reason.INVALID_POD, is_invalid),
    (Reason.OPERATOR_NAMESPACE, in_operator_namespace),
    (Reason.KUBE_NAMESPACE, in_kube_namespace),
    (Reason.EXCLUDED_NAMESPACE, in_excluded_namespace),
    (Reason.OPTED_OUT, opted_out),
    (Reason.ALREADY_BOUND, already_bound),
    (Reason.CONTROL_PLANE_POD, for_the_control_plane),
    (Reason.DAEMON_SET_POD, of_a_daemon_set),
    (Reason.ARCHITECTURE_ALREADY_REQUIRED, nothing_left_to_say),
)


def eligibility(pod: ExaminedPod) -> Reason | None:
    """The rule by which the pod is left alone, or None if it is placed."""
    for reason, applies in ELIGIBILITY_RULES:
        if applies(pod):
            return reason
    return None


# -- decide ------------------------------------------------------------------------------------------------------------


class ImageAssessment(NamedTuple):
    """What is known of the pod's images, independent of how long the pod has waited."""

    images: tuple[ImageFacts, ...]
    known: SupportedPlatforms

    @property
    def is_impossible(self) -> bool:
        """The known images have no common platform."""
        return self.known.is_nothing

    @property
    def unresolved(self) -> tuple[ImageFacts, ...]:
        return tuple(finding for finding in self.images if finding.effect is ImageEffect.UNRESOLVED)


_NO_IMAGES: Final = ImageAssessment((), SupportedPlatforms(is_everything=True))


def assess(case: ExaminedPod, inspections: Mapping[str, Inspection], *, final: bool = False) -> ImageAssessment:
    """Evaluate the image answers, by reference as written in the pod; an absent one is not known yet.

    ``final``: waiting is over, so a stale answer is accepted for ``Always`` too.
    """
    if not case.images:
        return _NO_IMAGES
    read = _image_facts(case, case.images, inspections, final=final)
    return ImageAssessment(read, _supported(case, read))


def _image_facts(
    case: ExaminedPod, uses: tuple[ImageUse, ...], inspections: Mapping[str, Inspection], *, final: bool
) -> tuple[ImageFacts, ...]:
    read = image_facts(uses, inspections, final=final, stale_for=case.settings.images_stale_for)
    return tuple(each.on(case.facts.runtimes) for each in read)


def _supported(case: ExaminedPod, read: Iterable[ImageFacts]) -> SupportedPlatforms:
    """Those of the images; nodes that may come count as those that are there."""
    systems = frozenset(node.os for node in case.facts.nodes | case.facts.coming).union(case.settings.assume_systems)
    return supported_platforms(read, case.view, case.settings.os_constraint, systems)


def decide(
    case: ExaminedPod, inspections: Mapping[str, Inspection], progress: LookupProgress = LookupProgress.FIRST
) -> PlacementDecision:
    """The outcome for these image answers.

    A pod with unresolved images waits until ``progress`` is final; then the known images constrain it.
    """
    return conclude(case, assess(case, inspections, final=progress.is_final), progress)


def conclude(case: ExaminedPod, assessment: ImageAssessment, progress: LookupProgress) -> PlacementDecision:
    """The outcome for an assessment of the images and the progress of waiting."""
    if case.rule is not None:
        return _ineligible(case, case.rule)
    if not case.needs_constraint:
        return _placed(case, Reason.PREFERENCES_ONLY)
    read, known = assessment
    if assessment.is_impossible:
        return _placed(case, Reason.NO_SUPPORTED_ARCHITECTURE, images=read)
    unresolved = assessment.unresolved
    if not unresolved:
        reason = Reason.ALL_IMAGES_NEUTRAL if known.is_everything else Reason.ARCHITECTURES_SET
        return _placed(case, reason, images=read, known=known, values=known.architectures)
    failure = _failure(unresolved) or (unresolved[0].failure if progress.is_final else "")
    if not progress.is_final:
        outcome = (
            PlacementOutcome.FAILING if progress is LookupProgress.FAILING and failure else PlacementOutcome.WAITING
        )
        return _gated(case, Reason.IMAGES_NOT_RESOLVED_YET, outcome, read, known, failure)
    action = "release" if progress is LookupProgress.HOLD_ENDED else case.settings.unresolved_action
    if action == "hold":
        return _gated(case, Reason.HELD_BY_POLICY, PlacementOutcome.HELD, read, known, failure)
    if action == "fallback":
        wanted = case.settings.fallback_architectures
        values = wanted if known.is_everything else tuple(each for each in wanted if each in known.architectures)
        if values:
            return _placed(case, Reason.FALLBACK_SET, images=read, known=known, values=values, failure=failure)
    reason = Reason.RELEASED_UNCONSTRAINED if known.is_everything else Reason.PARTIALLY_CONSTRAINED
    return _placed(case, reason, images=read, known=known, values=known.architectures, failure=failure)


def without_affinity(decision: PlacementDecision, refusal: str) -> PlacementDecision:
    """The decision without its affinity, for a pod whose PATCH the API server keeps rejecting.

    ``refusal``: the rejection in a few words, such as ``HTTP 422``; shown on the pod.
    """
    return msgspec.structs.replace(
        decision,
        reason=Reason.RELEASED_UNCONSTRAINED,
        outcome=PlacementOutcome.PLACED,
        message=rejected_message(decision, refusal),
        architectures=(),
        os="",
        terms=(),
        os_terms=(),
        created=False,
        preferred=(),
        sources=(),
        failure=f"the API server refused the node affinity: {refusal}"[:MAX_FAILURE],
    )


def unavailable(decision: PlacementDecision, *, deprovisioning: bool = False) -> PlacementDecision:
    """The decision for a pod that would be gated while no controller could remove the gate."""
    return PlacementDecision(
        reason=Reason.CONTROLLER_UNAVAILABLE,
        outcome=PlacementOutcome.IGNORED,
        message=unavailable_message(decision, deprovisioning=deprovisioning),
        scoring_applies=decision.scoring_applies,
        images=decision.images,
    )


def _ineligible(case: ExaminedPod, rule: Reason) -> PlacementDecision:
    reason, outcome = (
        (Reason.NO_LONGER_ELIGIBLE, PlacementOutcome.PLACED) if case.facts.stored else (rule, PlacementOutcome.IGNORED)
    )
    return PlacementDecision(
        reason=reason,
        outcome=outcome,
        message=ineligible_message(rule, case.facts.namespace, was_gated=case.facts.stored),
        rule=rule,
        scoring_applies=case.scoring_applies,
    )


def _gated(
    case: ExaminedPod,
    reason: Reason,
    outcome: PlacementOutcome,
    images: tuple[ImageFacts, ...],
    known: SupportedPlatforms,
    failure: str,
) -> PlacementDecision:
    decision = PlacementDecision(
        reason=reason,
        outcome=outcome,
        message="",
        supported=known.architectures,
        scoring_applies=case.scoring_applies,
        images=images,
        stale=any(finding.stale for finding in images),
        failure=failure,
    )
    return msgspec.structs.replace(decision, message=decision_message(decision, case.settings))


def _placed(
    case: ExaminedPod,
    reason: Reason,
    *,
    images: tuple[ImageFacts, ...] = (),
    known: SupportedPlatforms | None = None,
    values: tuple[str, ...] = (),
    failure: str = "",
) -> PlacementDecision:
    system = known.system if known is not None else ""
    platforms = known.platforms if known is not None and reason is not Reason.FALLBACK_SET else PlatformSet.EVERYTHING
    values, no_matching_node = _on_existing_nodes(case, values, system, platforms)
    plan = TermPlan()
    if values or reason is Reason.NO_SUPPORTED_ARCHITECTURE:
        key = names.ARCH_KEY if values else names.NO_SUPPORTED_ARCH_KEY
        plan = plan_terms(case.view, key=key, os=known.os if known is not None else "")
    preferred, entries = preferences(case.sources, already_preferred=case.view.prefers_architecture)
    decision = PlacementDecision(
        reason=reason,
        outcome=PlacementOutcome.PLACED,
        message="",
        architectures=values,
        supported=known.architectures if known is not None else (),
        os=known.os if known is not None and plan.os_terms else "",
        system=system,
        terms=plan.terms,
        os_terms=plan.os_terms,
        created=plan.created,
        preferred=preferred,
        sources=entries,
        scoring_applies=case.scoring_applies,
        images=images,
        stale=any(finding.stale for finding in images),
        no_matching_node=no_matching_node,
        failure=failure,
    )
    return msgspec.structs.replace(decision, message=decision_message(decision, case.settings))


def _on_existing_nodes(
    case: ExaminedPod, values: tuple[str, ...], system: str, platforms: PlatformSet
) -> tuple[tuple[str, ...], bool]:
    """The values to write with ``nodeAware``, and whether no node of the system has any of them.

    A node counts by its platform: it has the pod's system, if there is one, and the images run on it. So do nodes that
    may come, those of a template that names no architecture for each of the values.
    """
    settings = case.settings
    if settings.node_aware == "off" or not values:
        return values, False
    systems = dict.fromkeys(("linux", *settings.assume_systems))
    assumed = {NodePlatform(os, each) for os in systems for each in settings.assume_architectures}
    nodes = [node for node in (*case.facts.nodes, *case.facts.coming, *assumed) if not system or node.os == system]
    matching = tuple(
        value
        for value in values
        if any(node.architecture in (value, "") and NodePlatform(node.os, value) in platforms for node in nodes)
    )
    if not matching:
        return values, True
    return (matching if settings.node_aware == "narrow" else values), False


def _failure(unresolved: Iterable[ImageFacts]) -> str:
    """The first failure; empty if all unresolved images are still pending."""
    failed = next((finding for finding in unresolved if not finding.is_pending), None)
    return failed.failure[:MAX_FAILURE] if failed is not None else ""


# -- how long a pod waits ----------------------------------------------------------------------------------------------
# Retry windows of unresolved images. Times are seconds since this process's first attempt for the pod. How long to wait
# between attempts is in ``images.backoff``.

SHORT_WINDOW: Final = 30.0
"""For failures that waiting rarely cures: absent, auth, configuration."""
FAILING_AFTER: Final = 2.0
"""When a waiting pod is labelled as failing."""
NEVER: Final = float("inf")

_LASTING: Final = ("absent", "auth", "configuration")


def retry_window(error_class: str, retry_window: float, *, in_vain: bool = False) -> float:
    """How long a failure of this class is retried; a pending image has the class ``""``. ``in_vain``: the namespace has
    waited for this refusal before."""
    if error_class == "content" or (in_vain and error_class == "auth"):
        return 0.0
    return min(retry_window, SHORT_WINDOW) if error_class in _LASTING else retry_window


def retry_deadline(
    unresolved: Iterable[ImageFacts], settings: Settings, in_vain: frozenset[str] = frozenset()
) -> float:
    """When the pod gives up: the earliest end among its unresolved images; :data:`NEVER` if there are none.

    ``in_vain``: texts of images whose refusal the pod's namespace has waited for before. Nothing is waited for where
    all are; another one that may be read yet has the time that it would have otherwise.
    """
    unresolved = tuple(unresolved)
    known = all(finding.text in in_vain for finding in unresolved)
    ends = (retry_window(finding.error_class, settings.retry_window, in_vain=known) for finding in unresolved)
    return min(ends, default=NEVER)


class WaitingTime(NamedTuple):
    """How long a pod has waited, and its state since."""

    seconds: float = 0.0
    """Since this process's first attempt for the pod."""
    pending: bool = False
    """One of its images has neither answered nor failed since the pod was first seen: the pod waits for it, whatever
    the results of the others."""
    held: bool = False
    """The pod is already held, and stays held during a new attempt for an image."""
    in_vain: frozenset[str] = frozenset()
    """Texts of its images whose repository has refused the same credentials of the namespace for a whole window."""


def decide_after(case: ExaminedPod, inspections: Mapping[str, Inspection], waited: WaitingTime) -> PlacementDecision:
    """The decision for a stored pod, from the present answers and its waiting time."""
    assessment = assess(case, inspections)
    reached = lookup_progress(assessment, case.settings, waited)
    return conclude(case, assess(case, inspections, final=True) if reached.is_final else assessment, reached)


def lookup_progress(assessment: ImageAssessment, settings: Settings, waited: WaitingTime) -> LookupProgress:
    """The progress of waiting; ``WAITING`` also if there is nothing to wait for."""
    unresolved = assessment.unresolved if not assessment.is_impossible else ()
    if not unresolved:
        return LookupProgress.WAITING
    elapsed = waited.seconds
    if elapsed >= retry_deadline(unresolved, settings, waited.in_vain):
        held_out = settings.unresolved_action == "hold" and elapsed >= _hold_limit(settings)
        stays_held = settings.unresolved_action == "hold" and waited.held and not held_out
        if stays_held or not waited.pending:
            return LookupProgress.HOLD_ENDED if held_out else LookupProgress.ENDED
    failing = elapsed >= FAILING_AFTER and any(not finding.is_pending for finding in unresolved)
    return LookupProgress.FAILING if failing else LookupProgress.WAITING


def _hold_limit(settings: Settings) -> float:
    return settings.hold_limit if settings.hold_limit is not None else NEVER


def next_change(decision: PlacementDecision, settings: Settings, elapsed: float) -> float | None:
    """Seconds until a time limit changes the pod's progress; None if only an answer can."""
    unresolved = decision.unresolved
    if not unresolved or decision.outcome is PlacementOutcome.PLACED:
        return None
    ends = [FAILING_AFTER, retry_deadline(unresolved, settings)]
    if settings.unresolved_action == "hold" and settings.hold_limit is not None:
        ends.append(settings.hold_limit)
    return min((end - elapsed for end in ends if end > elapsed), default=None)
