"""The placement rules: from the facts of one pod to one :class:`Decision` (section 4 of the placement specification).

There are two steps, because the caller queries registries between them: :func:`examine` checks eligibility and lists
the images to inspect, :func:`decide` turns the answers into the outcome. Both are total: no pod and no answer makes
them raise. Pure: no I/O, no clock, no randomness.
"""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

import msgspec

from polyarch.images.pod_images import Finding, ImageUse, Verdict, findings, images_of
from polyarch.objects import Pod
from polyarch.oci.answer import Inspection
from polyarch.placement import names
from polyarch.placement.api.settings import Settings
from polyarch.placement.decide import messages, terms
from polyarch.placement.decide.architectures import Supported, supported
from polyarch.placement.decide.decision import Decision, Outcome, Progress, Reason
from polyarch.placement.decide.eligibility import Circumstances, architecture_required, eligibility
from polyarch.placement.decide.record import Scope
from polyarch.placement.decide.scoring import Source, preferences
from polyarch.placement.decide.seal import UNSEALED, Seal
from polyarch.placement.decide.view import View, user_view

MAX_FAILURE: Final = 256


class Facts(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The pod and the cluster state that its decision depends on, without the image answers."""

    pod: Pod
    namespace: str
    """From the admission request, or the pod's own."""
    settings: Settings
    sources: tuple[Source, ...] = ()
    """Scoring sources of the namespace, by precedence."""
    stored: bool = False
    """The pod was read from the API server, so its expressions are immutable (PL-005); false: it is being admitted."""
    nodes: frozenset[str] = frozenset()
    """Values of ``kubernetes.io/arch`` on nodes that are not being deleted; read only with ``nodeAware`` (PL-218)."""
    seal: Seal = UNSEALED
    """Verifies which decision annotations are ours (PL-853)."""
    record_was_sent: bool = True
    """The pod's creator sent its decision annotation; false: an earlier call of this same admission wrote it."""


class Case(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """An examined pod: whether it is eligible, what it needs, and which images decide."""

    facts: Facts
    view: View
    rule: Reason | None
    """The eligibility rule that excludes the pod; None if it is eligible."""
    sources: tuple[Source, ...] = ()
    """Scoring sources that match the pod."""
    needs_constraint: bool = False
    """The pod has no architecture constraint of its own (PL-204)."""
    images: tuple[ImageUse, ...] = ()
    """The images to inspect; empty if no constraint is needed."""

    @property
    def settings(self) -> Settings:
        return self.facts.settings

    @property
    def pod(self) -> Pod:
        return self.facts.pod

    @property
    def scope(self) -> Scope:
        """Namespace and images that a record of this decision is bound to."""
        images = self.images or images_of(self.pod)
        return Scope(self.facts.namespace, tuple(use.text for use in images), self.facts.seal)

    @property
    def scoring_applies(self) -> bool:
        """Some scoring source matches (PL-203)."""
        return bool(self.sources)

    @property
    def finishes_gate(self) -> bool:
        """The pod already has our gate, so it is placed as in ``enforce`` whatever the current mode is (PL-131)."""
        return self.facts.stored or self.view.is_gated

    @property
    def is_audited(self) -> bool:
        """The outcome is reported, not written (PL-130)."""
        return self.settings.mode == "audit" and not self.finishes_gate

    @property
    def wants_answers(self) -> bool:
        """At admission: missing answers are looked up within the budget (PL-110, PL-117)."""
        if not self.images or self.facts.stored or self.settings.provisional:
            return False
        return self.settings.inline_enabled and not self.is_audited


def examine(facts: Facts) -> Case:
    """Examine the pod as its user wrote it: eligibility (PL-201), needs (PL-204), images (PL-210)."""
    view = user_view(
        facts.pod,
        stored=facts.stored,
        namespace=facts.namespace,
        seal=facts.seal,
        record_was_sent=facts.record_was_sent,
    )
    sources = tuple(source for source in facts.sources if source.matches(view.labels))
    rule = eligibility(Circumstances(view, facts.namespace, facts.settings, bool(sources)))
    if rule is not None:
        return Case(facts=facts, view=view, rule=rule, sources=sources)
    needs_constraint = not architecture_required(view)
    return Case(
        facts=facts,
        view=view,
        rule=None,
        sources=sources,
        needs_constraint=needs_constraint,
        images=images_of(facts.pod, searched=facts.settings.short_names_searched) if needs_constraint else (),
    )


class Assessment(NamedTuple):
    """What is known of the pod's images, independent of how long the pod has waited."""

    images: tuple[Finding, ...]
    known: Supported

    @property
    def is_impossible(self) -> bool:
        """The known images have no common platform (PL-217)."""
        return self.known.is_nothing

    @property
    def unresolved(self) -> tuple[Finding, ...]:
        return tuple(finding for finding in self.images if finding.verdict is Verdict.UNRESOLVED)


_NOTHING_ASKED: Final = Assessment((), Supported(is_everything=True))


def assess(case: Case, answers: Mapping[str, Inspection], *, final: bool = False) -> Assessment:
    """Evaluate the image answers, by reference as written in the pod; an absent one is not known yet.

    ``final``: waiting is over, so a stale answer is accepted for ``Always`` too (PL-407).
    """
    if not case.images:
        return _NOTHING_ASKED
    read = findings(case.images, answers, final=final, stale_for=case.settings.images_stale_for)
    return Assessment(read, supported(read, case.view, case.settings.os_constraint))


def decide(case: Case, answers: Mapping[str, Inspection], progress: Progress = Progress.FIRST) -> Decision:
    """The outcome for these image answers.

    A pod with unresolved images waits until ``progress`` is final; then the known images constrain it (PL-230).
    """
    return conclude(case, assess(case, answers, final=progress.is_final), progress)


def conclude(case: Case, assessment: Assessment, progress: Progress) -> Decision:
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
        outcome = Outcome.FAILING if progress is Progress.FAILING and failure else Outcome.WAITING
        return _gated(case, Reason.IMAGES_NOT_RESOLVED_YET, outcome, read, known, failure)
    action = "release" if progress is Progress.HOLD_ENDED else case.settings.unresolved_action
    if action == "hold":
        return _gated(case, Reason.HELD_BY_POLICY, Outcome.HELD, read, known, failure)
    if action == "fallback":
        wanted = case.settings.fallback_architectures
        values = wanted if known.is_everything else tuple(each for each in wanted if each in known.architectures)
        if values:
            return _placed(case, Reason.FALLBACK_SET, images=read, known=known, values=values, failure=failure)
    reason = Reason.RELEASED_UNCONSTRAINED if known.is_everything else Reason.PARTIALLY_CONSTRAINED
    return _placed(case, reason, images=read, known=known, values=known.architectures, failure=failure)


def without_affinity(decision: Decision, refusal: str) -> Decision:
    """The decision without its affinity, for a pod whose PATCH the API server keeps rejecting (PL-305).

    ``refusal``: the rejection in a few words, such as ``HTTP 422``; shown on the pod.
    """
    return msgspec.structs.replace(
        decision,
        reason=Reason.RELEASED_UNCONSTRAINED,
        outcome=Outcome.PLACED,
        message=messages.refused(decision, refusal),
        architectures=(),
        os="",
        terms=(),
        os_terms=(),
        created=False,
        preferred=(),
        sources=(),
        failure=f"the API server refused the node affinity: {refusal}"[:MAX_FAILURE],
    )


def unavailable(decision: Decision, *, deprovisioning: bool = False) -> Decision:
    """The decision for a pod that would be gated while no controller could remove the gate (PL-107)."""
    return Decision(
        reason=Reason.CONTROLLER_UNAVAILABLE,
        outcome=Outcome.IGNORED,
        message=messages.unavailable(decision, deprovisioning=deprovisioning),
        scoring_applies=decision.scoring_applies,
        images=decision.images,
    )


def _ineligible(case: Case, rule: Reason) -> Decision:
    reason, outcome = (Reason.NO_LONGER_ELIGIBLE, Outcome.PLACED) if case.facts.stored else (rule, Outcome.IGNORED)
    return Decision(
        reason=reason,
        outcome=outcome,
        message=messages.ineligible(rule, case.facts.namespace, was_gated=case.facts.stored),
        rule=rule,
        scoring_applies=case.scoring_applies,
    )


def _gated(
    case: Case, reason: Reason, outcome: Outcome, images: tuple[Finding, ...], known: Supported, failure: str
) -> Decision:
    decision = Decision(
        reason=reason,
        outcome=outcome,
        message="",
        supported=known.architectures,
        scoring_applies=case.scoring_applies,
        images=images,
        stale=any(finding.stale for finding in images),
        failure=failure,
    )
    return msgspec.structs.replace(decision, message=messages.sentence(decision, case.settings))


def _placed(
    case: Case,
    reason: Reason,
    *,
    images: tuple[Finding, ...] = (),
    known: Supported | None = None,
    values: tuple[str, ...] = (),
    failure: str = "",
) -> Decision:
    values, no_matching_node = _on_existing_nodes(case, values)
    plan = terms.TermPlan()
    if values or reason is Reason.NO_SUPPORTED_ARCHITECTURE:
        key = names.ARCH_KEY if values else names.NO_SUPPORTED_ARCH_KEY
        plan = terms.plan(case.view, key=key, os=known.os if known is not None else "")
    preferred, entries = preferences(case.sources, already_preferred=case.view.prefers_architecture)
    decision = Decision(
        reason=reason,
        outcome=Outcome.PLACED,
        message="",
        architectures=values,
        supported=known.architectures if known is not None else (),
        os=known.os if known is not None and plan.os_terms else "",
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
    return msgspec.structs.replace(decision, message=messages.sentence(decision, case.settings))


def _on_existing_nodes(case: Case, values: tuple[str, ...]) -> tuple[tuple[str, ...], bool]:
    """The values to write with ``nodeAware``, and whether no node has any of them (PL-218)."""
    settings = case.settings
    if settings.node_aware == "off" or not values:
        return values, False
    existing = case.facts.nodes.union(settings.assume_architectures)
    matching = tuple(value for value in values if value in existing)
    if not matching:
        return values, True
    return (matching if settings.node_aware == "narrow" else values), False


def _failure(unresolved: Iterable[Finding]) -> str:
    """The first failure; empty if all unresolved images are still pending."""
    failed = next((finding for finding in unresolved if not finding.is_pending), None)
    return failed.failure[:MAX_FAILURE] if failed is not None else ""
