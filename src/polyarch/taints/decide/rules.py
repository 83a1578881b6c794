"""The rules for pods: from the facts of one pod to one :class:`PodDecision` (TN-030 to TN-048).

There are two steps, because the caller asks registries between them: :func:`examine` checks eligibility and lists the
images to inspect, :func:`decide` turns the answers into the outcome. Both are total: no pod and no answer makes them
raise. Pure: no I/O, no clock, no randomness.
"""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

import msgspec

from polyarch.objects import Pod
from polyarch.oci.answer import Inspection
from polyarch.platforms import NodePlatform
from polyarch.pods.constraints import OPEN, NodeConstraints, constraints_of
from polyarch.pods.finding import Finding
from polyarch.pods.images import ImageUse, findings, images_of
from polyarch.pods.reach import system_of
from polyarch.taints import names
from polyarch.taints.api.settings import TaintSettings
from polyarch.taints.decide import messages
from polyarch.taints.decide.architectures import Architectures, architectures_of, neutral
from polyarch.taints.decide.decision import Outcome, PodDecision, Progress, Reason, missing_answers
from polyarch.taints.decide.eligibility import Circumstances, eligibility
from polyarch.tolerations import Taint, Toleration, is_tolerated, uncovered

_NO_LABELS: Final[Mapping[str, str]] = {}
STALE_FOR: Final = 6 * 3600.0
"""How old the last good reading of an image may be while its registry fails: the default of PL-407."""


class Facts(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The pod and what its decision depends on, without the answers."""

    pod: Pod
    namespace: str
    """From the admission request, or the pod's own."""
    settings: TaintSettings
    namespace_labels: Mapping[str, str] = _NO_LABELS
    existing: frozenset[str] = frozenset()
    """Architectures of the cluster's nodes, normalised."""
    stored: bool = False
    """The pod exists already; false: it is being created."""
    is_template: bool = False
    """The pod is what a controller would create from a template, which has no gate (TN-052)."""
    os: str = ""
    """The operating system that placement writes to the pod in the same patch, if any."""
    stale_for: float = STALE_FOR
    """How old the last good reading of an image may be while its registry fails (PL-407)."""
    short_names_searched: bool = False
    """The nodes search several registries for image names without a registry (PL-424)."""


class Case(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """An examined pod: whether it is touched at all, and which images decide."""

    facts: Facts
    rule: Reason | None
    """The rule by which it is not touched, whatever the answers are."""
    constraints: NodeConstraints = OPEN
    system: str = ""
    images: tuple[ImageUse, ...] = ()
    """The images to inspect; empty if no answer can change the outcome."""

    @property
    def settings(self) -> TaintSettings:
        return self.facts.settings

    @property
    def pod(self) -> Pod:
        return self.facts.pod

    @property
    def is_gated(self) -> bool:
        """The pod has our gate."""
        return any(gate.name == names.GATE for gate in self.pod.spec.scheduling_gates or ())


class Assessment(NamedTuple):
    """What is known of the pod's images, independent of how long it has waited."""

    images: tuple[Finding, ...]
    known: Architectures

    @property
    def unresolved(self) -> tuple[Finding, ...]:
        return missing_answers(self.images)

    @property
    def is_impossible(self) -> bool:
        """No node can run the pod, whatever the missing answers will be. Indexes may still turn out to be operator
        bundles, which restrict nothing (RG-046)."""
        if self.known.possible:
            return False
        return not self.known.is_open or not self.unresolved


def examine(facts: Facts, *, needs_images: bool = False) -> Case:
    """Whether the pod is touched (TN-041), and its images.

    ``needs_images``: A is asked for even if no toleration can be missing (TN-049).
    """
    pod, settings = facts.pod, facts.settings
    rule = eligibility(Circumstances(pod, facts.namespace, facts.namespace_labels, settings, is_new=not facts.stored))
    if rule is not None:
        return Case(facts=facts, rule=rule)
    constraints = constraints_of(pod)
    stated = pod.spec.os.name if pod.spec.os is not None else ""
    system = system_of(stated, constraints.admits, written=facts.os)
    if not needs_images and not _may_lack(pod, constraints, settings, system):
        return Case(facts=facts, rule=Reason.COVERED, constraints=constraints, system=system)
    return Case(
        facts=facts,
        rule=None,
        constraints=constraints,
        system=system,
        images=images_of(pod, searched=facts.short_names_searched),
    )


def _may_lack(pod: Pod, constraints: NodeConstraints, settings: TaintSettings, system: str) -> bool:
    """Whether some answer could make a toleration missing; if not, no image needs to be looked at."""
    held = tuple(pod.spec.tolerations or ())
    return any(
        not is_tolerated(settings.taint(each), held)
        for each in settings.tainted
        if constraints.admits(NodePlatform(system, each))
    )


def assess(case: Case, answers: Mapping[str, Inspection], *, final: bool = False) -> Assessment:
    """Evaluates the answers, by the reference as written in the pod; an absent one is not known yet. ``final``: waiting
    is over, so a stale answer is accepted for ``imagePullPolicy: Always`` too (PL-407)."""
    read = findings(case.images, answers, final=final, stale_for=case.facts.stale_for)
    return Assessment(read, _architectures(case, read))


def _architectures(case: Case, read: Iterable[Finding], limit: frozenset[str] | None = None) -> Architectures:
    return architectures_of(
        read, case.constraints, case.settings, system=case.system, existing=case.facts.existing, limit=limit
    )


def decide(case: Case, answers: Mapping[str, Inspection], progress: Progress = Progress.FIRST) -> PodDecision:
    """The outcome for these answers."""
    if case.rule is not None:
        return _untouched(case, case.rule)
    return conclude(case, assess(case, answers, final=progress is Progress.ENDED), progress)


def conclude(case: Case, assessment: Assessment, progress: Progress) -> PodDecision:
    """The outcome for an assessment of the images and the progress of waiting."""
    if case.rule is not None:
        return _untouched(case, case.rule)
    if assessment.is_impossible:
        return _impossible(case, assessment)
    if not assessment.unresolved:
        return _tolerating(case, assessment, assessment.known, Reason.IMAGES)
    if case.facts.is_template:
        return _told(case, assessment, Reason.ARCHITECTURE_UNKNOWN, Outcome.BLOCKED)
    timed_out = progress is Progress.ENDED
    settings = case.settings
    match _policy(case, progress):
        case "gate":
            return _told(case, assessment, Reason.ARCHITECTURE_UNKNOWN, Outcome.GATED, timed_out=timed_out)
        case "primary-only":
            limited = _architectures(case, assessment.images, settings.primary)
            return _tolerating(case, assessment, limited, Reason.PRIMARY_FALLBACK, timed_out=timed_out)
        case "all":
            everything = neutral(settings, case.facts.existing)
            limited = _architectures(case, assessment.images, everything)
            return _tolerating(case, assessment, limited, Reason.ALL_FALLBACK, timed_out=timed_out)
        case _:
            return _told(case, assessment, Reason.ARCHITECTURE_UNKNOWN, Outcome.PASSED, timed_out=timed_out)


def _policy(case: Case, progress: Progress) -> str:
    """What missing answers mean now (TN-046, TN-048): a value of ``onUnknown``."""
    settings = case.settings
    if settings.on_unknown != "gate" and progress is not Progress.WAITING:
        return settings.on_unknown
    if settings.on_timeout != "keep" and progress is Progress.ENDED:
        return settings.on_timeout
    is_held = case.is_gated and case.facts.stored
    return "gate" if is_held or progress is Progress.FIRST else "none"


def wanted(architectures: Iterable[str], settings: TaintSettings) -> tuple[Taint, ...]:
    """The desired taints of these architectures, as far as they are tainted, sorted (TN-032)."""
    tainted = settings.tainted
    return tuple(settings.taint(each) for each in sorted(architectures) if each in tainted)


def missing(wanted: Iterable[Taint], tolerations: Iterable[Toleration] | None) -> tuple[str, ...]:
    """The architectures of those that no existing toleration covers (TN-032)."""
    return tuple(taint.value for taint in uncovered(wanted, tolerations))


def _tolerating(
    case: Case, assessment: Assessment, found: Architectures, reason: Reason, *, timed_out: bool = False
) -> PodDecision:
    settings = case.settings
    added = missing(wanted(found.managed, settings), case.pod.spec.tolerations)
    if not found.direct.issuperset(added):
        reason = Reason.COMPATIBILITY
    if added:
        outcome = Outcome.TOLERATED
    elif assessment.unresolved:
        outcome = Outcome.PASSED
    else:
        reason, outcome = Reason.COVERED, Outcome.UNCHANGED
    return _told(case, assessment, reason, outcome, found=found, added=added, timed_out=timed_out)


def _impossible(case: Case, assessment: Assessment) -> PodDecision:
    denied = case.settings.on_no_common == "deny" and not case.facts.stored
    outcome = Outcome.DENIED if denied else Outcome.UNCHANGED
    return _told(case, assessment, Reason.NO_COMMON_ARCHITECTURE, outcome)


def _untouched(case: Case, rule: Reason) -> PodDecision:
    decision = PodDecision(reason=rule, outcome=Outcome.UNCHANGED, system=case.system)
    return msgspec.structs.replace(decision, message=messages.untouched(decision, case.facts.namespace))


def _told(
    case: Case,
    assessment: Assessment,
    reason: Reason,
    outcome: Outcome,
    *,
    found: Architectures | None = None,
    added: tuple[str, ...] = (),
    timed_out: bool = False,
) -> PodDecision:
    found = found if found is not None else assessment.known
    decision = PodDecision(
        reason=reason,
        outcome=outcome,
        architectures=tuple(sorted(found.managed)),
        added=added,
        timed_out=timed_out,
        system=case.system,
        of_template=case.facts.is_template,
        images=assessment.images,
    )
    return msgspec.structs.replace(decision, message=messages.sentence(decision, case.settings))
