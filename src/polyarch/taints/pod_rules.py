"""The rules for pods and templates: from the facts of one pod to one :class:`PodDecision`. Pure.

There are two steps, because the caller asks registries between them: :func:`examine` checks eligibility and lists the
images to inspect, :func:`decide` turns the answers into the outcome. Both are total: no pod and no answer makes them
raise. The same rules decide about a stored pod after it has waited (:func:`decide_after`), about a pod whose images are
changed (:func:`decide_change`), and about the template of a DaemonSet (:func:`examine_template`).
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

import msgspec

from polyarch.images.constraints import OPEN, NodeConstraints, constraints_of, reach, system_of
from polyarch.images.pod_images import ImageFacts, ImageUse, common_platforms, image_facts, images_of
from polyarch.objects import DaemonSet, Pod
from polyarch.oci.inspection import Inspection
from polyarch.platforms import ASSUMED_ARCHITECTURES, NodePlatform
from polyarch.selectors import is_listed
from polyarch.taints import names
from polyarch.taints.decision import (
    PodDecision,
    Reason,
    TolerationLookupProgress,
    TolerationOutcome,
    missing_answers,
    sentence,
    shrunk,
    untouched,
)
from polyarch.taints.settings import ImageChange as Policy
from polyarch.taints.settings import TaintSettings
from polyarch.tolerations import Taint, Toleration, is_tolerated, uncovered

_NOTHING: Final[Mapping[str, str]] = {}


# -- eligibility: which pods are not touched; the first rule that matches wins -----------------------------------------
# There is no rule for system namespaces: their pods need tolerations most.


class Circumstances(msgspec.Struct, frozen=True, gc=False):
    """The input of the rules."""

    pod: Pod
    namespace: str
    namespace_labels: Mapping[str, str]
    settings: TaintSettings
    is_new: bool
    """It is being created."""


def is_finished(case: Circumstances) -> bool:
    status = case.pod.status
    return status is not None and status.phase in ("Succeeded", "Failed")


def is_terminating(case: Circumstances) -> bool:
    return case.pod.metadata.deletion_timestamp is not None


def is_mirror(case: Circumstances) -> bool:
    """A kubelet's picture of a pod that it runs from a file; the API server refuses changes."""
    return names.MIRROR_ANNOTATION in (case.pod.metadata.annotations or _NOTHING)


def is_born_bound(case: Circumstances) -> bool:
    return case.is_new and bool(case.pod.spec.node_name)


def opted_out(case: Circumstances) -> bool:
    annotations = case.pod.metadata.annotations or _NOTHING
    return names.DISABLED in (case.namespace_labels.get(names.OPT_OUT), annotations.get(names.OPT_OUT))


def not_selected(case: Circumstances) -> bool:
    settings = case.settings
    if is_listed(case.namespace, settings.excluded_namespaces):
        return True
    if settings.namespace_selector is not None and not settings.namespace_selector.matches(case.namespace_labels):
        return True
    return settings.pod_selector is not None and not settings.pod_selector.matches(case.pod.metadata.labels)


def paused(case: Circumstances) -> bool:
    return case.settings.state == "paused"


def removing(case: Circumstances) -> bool:
    return case.settings.state == "removing"


RULES: Final[tuple[tuple[Reason, Callable[[Circumstances], bool]], ...]] = (
    (Reason.FINISHED, is_finished),
    (Reason.TERMINATING, is_terminating),
    (Reason.MIRROR_POD, is_mirror),
    (Reason.ALREADY_BOUND, is_born_bound),
    (Reason.OPTED_OUT, opted_out),
    (Reason.NOT_SELECTED, not_selected),
    (Reason.PAUSED, paused),
    (Reason.REMOVING, removing),
)


def eligibility(case: Circumstances) -> Reason | None:
    """The rule by which the pod is not touched, or None. ``Covered`` is decided later, by its architectures."""
    for reason, applies in RULES:
        if applies(case):
            return reason
    return None


# -- the set A of a pod: the architectures whose nodes can run it ------------------------------------------------------
# What images have in common, the pod's operating system, its own constraints and the foreign architectures that nodes
# run are judged by ``polyarch.images``, as lint does. This part adds what the configuration says: the managed
# architectures, the neutral ones, and fallbacks. Images without an answer are left out, so the others already restrict
# A.


class PodArchitectures(msgspec.Struct, frozen=True, gc=False):
    """What is known of a pod's architectures."""

    possible: frozenset[str]
    """Architectures of the nodes that could run it, managed ones or not."""
    managed: frozenset[str]
    """A: those of them that are managed."""
    direct: frozenset[str]
    """Those of A that need no node that runs foreign programs (``spec.compatibility``)."""
    is_open: bool
    """No answer restricts the pod yet, so an image without an answer may still allow any architecture."""


def architectures_of(
    findings: Iterable[ImageFacts],
    constraints: NodeConstraints,
    settings: TaintSettings,
    *,
    system: str,
    existing: frozenset[str],
    limit: frozenset[str] | None = None,
) -> PodArchitectures:
    """A, as far as the answers are known.

    ``existing``: architectures of the cluster's nodes. ``limit``: the architectures that a fallback assumes;
    they take the place of the neutral ones, and A is a part of them.
    """
    common = common_platforms(findings)
    assumed = limit if limit is not None else neutral(settings, existing)
    direct = reach(common, system=system, admits=constraints.admits, neutral=assumed)
    possible = direct
    if settings.compatibility:
        possible = reach(
            common,
            system=system,
            admits=constraints.admits,
            neutral=assumed,
            compatibility=settings.compatibility,
        )
    if limit is not None:
        direct, possible = direct & limit, possible & limit
    managed = settings.managed
    return PodArchitectures(possible, possible & managed, direct & managed, common.is_everything)


def neutral(settings: TaintSettings, existing: frozenset[str]) -> frozenset[str]:
    """The architectures of a pod whose images fit any platform: the given ones, else the usual and the existing."""
    return settings.given or existing.union(ASSUMED_ARCHITECTURES)


# -- facts, answers, decision ------------------------------------------------------------------------------------------

STALE_FOR: Final = 6 * 3600.0
"""How old the last good reading of an image may be while its registry fails, by default."""


class PodFacts(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The pod and what its decision depends on, without the answers."""

    pod: Pod
    namespace: str
    """From the admission request, or the pod's own."""
    settings: TaintSettings
    namespace_labels: Mapping[str, str] = _NOTHING
    existing: frozenset[str] = frozenset()
    """Architectures of the cluster's nodes, normalised."""
    stored: bool = False
    """The pod exists already; false: it is being created."""
    is_template: bool = False
    """The pod is what a controller would create from a template, which has no gate."""
    os: str = ""
    """The operating system that placement writes to the pod in the same patch, if any."""
    stale_for: float = STALE_FOR
    """How old the last good reading of an image may be while its registry fails."""
    short_names_searched: bool = False
    """The nodes search several registries for image names without a registry."""
    is_own: bool = False
    """The pod is in polyarch's namespace, where nothing is gated: who lifts gates may be waiting there."""


class Case(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """An examined pod: whether it is touched at all, and which images decide."""

    facts: PodFacts
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
        return has_gate(self.pod)


def has_gate(pod: Pod) -> bool:
    """Whether the pod carries our gate."""
    return any(gate.name == names.GATE for gate in pod.spec.scheduling_gates or ())


class Assessment(NamedTuple):
    """What is known of the pod's images, independent of how long it has waited."""

    images: tuple[ImageFacts, ...]
    known: PodArchitectures

    @property
    def unresolved(self) -> tuple[ImageFacts, ...]:
        return missing_answers(self.images)

    @property
    def is_impossible(self) -> bool:
        """No node can run the pod, whatever the missing answers will be. Indexes may still turn out to be operator
        bundles, which restrict nothing."""
        if self.known.possible:
            return False
        return not self.known.is_open or not self.unresolved


def examine(facts: PodFacts, *, needs_images: bool = False) -> Case:
    """Whether the pod is touched, and its images.

    ``needs_images``: A is asked for even if no toleration can be missing.
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
    is over, so a stale answer is accepted for ``imagePullPolicy: Always`` too."""
    read = image_facts(case.images, answers, final=final, stale_for=case.facts.stale_for)
    return Assessment(read, _architectures(case, read))


def _architectures(case: Case, read: Iterable[ImageFacts], limit: frozenset[str] | None = None) -> PodArchitectures:
    return architectures_of(
        read, case.constraints, case.settings, system=case.system, existing=case.facts.existing, limit=limit
    )


def decide(
    case: Case, answers: Mapping[str, Inspection], progress: TolerationLookupProgress = TolerationLookupProgress.FIRST
) -> PodDecision:
    """The outcome for these answers."""
    if case.rule is not None:
        return _untouched(case, case.rule)
    return conclude(case, assess(case, answers, final=progress is TolerationLookupProgress.ENDED), progress)


def conclude(case: Case, assessment: Assessment, progress: TolerationLookupProgress) -> PodDecision:
    """The outcome for an assessment of the images and the progress of waiting."""
    if case.rule is not None:
        return _untouched(case, case.rule)
    if assessment.is_impossible:
        return _impossible(case, assessment)
    if not assessment.unresolved:
        return _tolerating(case, assessment, assessment.known, Reason.IMAGES)
    if case.facts.is_template:
        return _told(case, assessment, Reason.ARCHITECTURE_UNKNOWN, TolerationOutcome.BLOCKED)
    timed_out = progress is TolerationLookupProgress.ENDED
    settings = case.settings
    match _policy(case, progress):
        case "gate":
            return _told(case, assessment, Reason.ARCHITECTURE_UNKNOWN, TolerationOutcome.GATED, timed_out=timed_out)
        case "primary-only":
            limited = _architectures(case, assessment.images, settings.primary)
            return _tolerating(case, assessment, limited, Reason.PRIMARY_FALLBACK, timed_out=timed_out)
        case "all":
            everything = neutral(settings, case.facts.existing)
            limited = _architectures(case, assessment.images, everything)
            return _tolerating(case, assessment, limited, Reason.ALL_FALLBACK, timed_out=timed_out)
        case _:
            return _told(case, assessment, Reason.ARCHITECTURE_UNKNOWN, TolerationOutcome.PASSED, timed_out=timed_out)


def _policy(case: Case, progress: TolerationLookupProgress) -> str:
    """What missing answers mean now: a value of ``onUnknown``."""
    policy = _policy_of_settings(case, progress)
    return "none" if policy == "gate" and case.facts.is_own else policy


def _policy_of_settings(case: Case, progress: TolerationLookupProgress) -> str:
    settings = case.settings
    if settings.on_unknown != "gate" and progress is not TolerationLookupProgress.WAITING:
        return settings.on_unknown
    if settings.on_timeout != "keep" and progress is TolerationLookupProgress.ENDED:
        return settings.on_timeout
    is_held = case.is_gated and case.facts.stored
    return "gate" if is_held or progress is TolerationLookupProgress.FIRST else "none"


def wanted(architectures: Iterable[str], settings: TaintSettings) -> tuple[Taint, ...]:
    """The desired taints of these architectures, as far as they are tainted, sorted."""
    tainted = settings.tainted
    return tuple(settings.taint(each) for each in sorted(architectures) if each in tainted)


def missing(wanted: Iterable[Taint], tolerations: Iterable[Toleration] | None) -> tuple[str, ...]:
    """The architectures of those that no existing toleration covers."""
    return tuple(taint.value for taint in uncovered(wanted, tolerations))


def _tolerating(
    case: Case, assessment: Assessment, found: PodArchitectures, reason: Reason, *, timed_out: bool = False
) -> PodDecision:
    settings = case.settings
    added = missing(wanted(found.managed, settings), case.pod.spec.tolerations)
    if not found.direct.issuperset(added):
        reason = Reason.COMPATIBILITY
    if added:
        outcome = TolerationOutcome.TOLERATED
    elif assessment.unresolved:
        outcome = TolerationOutcome.PASSED
    else:
        reason, outcome = Reason.COVERED, TolerationOutcome.UNCHANGED
    return _told(case, assessment, reason, outcome, found=found, added=added, timed_out=timed_out)


def _impossible(case: Case, assessment: Assessment) -> PodDecision:
    denied = case.settings.on_no_common == "deny" and not case.facts.stored
    outcome = TolerationOutcome.DENIED if denied else TolerationOutcome.UNCHANGED
    return _told(case, assessment, Reason.NO_COMMON_ARCHITECTURE, outcome)


def _untouched(case: Case, rule: Reason) -> PodDecision:
    decision = PodDecision(reason=rule, outcome=TolerationOutcome.UNCHANGED, system=case.system)
    return msgspec.structs.replace(decision, message=untouched(decision, case.facts.namespace))


def _told(
    case: Case,
    assessment: Assessment,
    reason: Reason,
    outcome: TolerationOutcome,
    *,
    found: PodArchitectures | None = None,
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
    return msgspec.structs.replace(decision, message=sentence(decision, case.settings))


# -- a stored pod that waits for answers -------------------------------------------------------------------------------
# Seconds are counted from the pod's creation, so that a new leader does not start again.


class Waited(NamedTuple):
    """How long a stored pod has waited for its images, and what is still to come."""

    seconds: float = 0.0
    """Since the pod was created."""
    pending: bool = False
    """One of its images has neither answered nor failed since this process first saw the pod."""
    released: bool = False
    """Placement lifts its gate now, so the pod cannot wait any longer."""


def progress(settings: TaintSettings, waited: Waited) -> TolerationLookupProgress:
    """What missing answers mean after this time."""
    if waited.released or waited.seconds >= settings.gate_timeout:
        return TolerationLookupProgress.ENDED
    return TolerationLookupProgress.WAITING if waited.pending else TolerationLookupProgress.FAILING


def decide_after(case: Case, answers: Mapping[str, Inspection], waited: Waited) -> PodDecision:
    """The decision about a stored pod, from the present answers and its waiting time."""
    return decide(case, answers, progress(case.settings, waited))


def next_change(decision: PodDecision, settings: TaintSettings, waited: Waited) -> float | None:
    """Seconds until the time of the gate ends; None if only an answer can change the decision."""
    if not decision.unresolved or waited.seconds >= settings.gate_timeout:
        return None
    return settings.gate_timeout - waited.seconds


# -- a pod whose images are changed ------------------------------------------------------------------------------------
# Kubernetes lets the images of a stored pod be replaced, and tolerations be added, but none be removed. So what the new
# images justify is added in the same request; what they no longer justify stays, and the policy says what follows. Only
# tolerations that the pod's annotation records are ours; all others are the user's and never cause this.


class ImageChange(msgspec.Struct, frozen=True, gc=False):
    """The decision about a pod whose images are changed."""

    decision: PodDecision
    """About the pod as it will be; ``DENIED`` if the change is refused."""
    lost: tuple[str, ...] = ()
    """Architectures whose toleration we added and which the new images no longer justify, sorted."""
    policy: Policy = "event"
    """What follows from ``lost``: an event, an eviction besides it, or the refusal."""
    message: str = ""
    """One sentence about ``lost``; empty if nothing is."""


def recorded(pod: Pod) -> frozenset[str]:
    """The architectures that the pod's annotation says we added."""
    text = (pod.metadata.annotations or {}).get(names.TOLERATIONS_ANNOTATION, "")
    return frozenset(each for each in text.split(",") if each)


def changes_images(old: Pod, new: Pod) -> bool:
    """Whether a container of the pod, one for initialisation included, has another image than before."""
    return any(
        [(each.name, each.image) for each in before or ()] != [(each.name, each.image) for each in after or ()]
        for before, after in (
            (old.spec.containers, new.spec.containers),
            (old.spec.init_containers, new.spec.init_containers),
        )
    )


def examine_change(facts: PodFacts, old: Pod) -> Case:
    """The case of the pod as it will be. Its images matter even if it tolerates every taint, because of ``lost``."""
    return examine(facts, needs_images=bool(recorded(old)))


def decide_change(case: Case, answers: Mapping[str, Inspection], old: Pod) -> ImageChange:
    """The decision about the update of ``old``. While an answer is missing, nothing counts as lost."""
    decision = decide(case, answers, TolerationLookupProgress.UNGUARDED)
    settings = case.settings
    if decision.reason is Reason.NO_COMMON_ARCHITECTURE and settings.on_no_common == "deny":
        decision = msgspec.structs.replace(decision, outcome=TolerationOutcome.DENIED)
    lost = lost_of(case, decision, old)
    if not lost:
        return ImageChange(decision)
    policy = settings.image_change
    message = shrunk(decision, lost, policy)
    if policy == "deny" and decision.outcome is not TolerationOutcome.DENIED:
        decision = msgspec.structs.replace(decision, outcome=TolerationOutcome.DENIED, message=message)
    return ImageChange(decision, lost, policy, message)


def lost_of(case: Case, decision: PodDecision, old: Pod) -> tuple[str, ...]:
    """The recorded architectures that the decision about the changed pod no longer justifies, sorted."""
    if case.rule is not None or decision.unresolved:
        return ()
    return tuple(sorted(recorded(old).difference(decision.architectures)))


# -- the template of a DaemonSet ---------------------------------------------------------------------------------------
# The DaemonSet controller creates no pod for a node whose taint the template does not tolerate, so admission of pods
# comes too late: the template itself gets the tolerations. It is judged as the pods that it stands for, by the same
# rules, with two differences: the DaemonSet may opt out, too, and a template has no gate, so while an answer is missing
# nothing is added.

DAEMON_SET: Final = "DaemonSet"


class TemplateFacts(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The DaemonSet and what the decision about its template depends on, without the answers."""

    daemon_set: DaemonSet
    namespace: str
    """From the admission request, or the DaemonSet's own."""
    settings: TaintSettings
    namespace_labels: Mapping[str, str] = _NOTHING
    existing: frozenset[str] = frozenset()
    """Architectures of the cluster's nodes, normalised."""
    stale_for: float = STALE_FOR
    short_names_searched: bool = False


def examine_template(facts: TemplateFacts) -> Case:
    """The case of the template's pods, for :func:`decide` as for any pod."""
    daemon_set = facts.daemon_set
    of_pods = PodFacts(
        pod=daemon_set.template.pod(daemon_set.metadata, kind=DAEMON_SET),
        namespace=facts.namespace,
        settings=facts.settings,
        namespace_labels=facts.namespace_labels,
        existing=facts.existing,
        stored=True,
        is_template=True,
        stale_for=facts.stale_for,
        short_names_searched=facts.short_names_searched,
    )
    rule = _template_rule(facts)
    return Case(facts=of_pods, rule=rule) if rule is not None else examine(of_pods)


def kept(case: Case, old: DaemonSet, recorded: Iterable[Toleration]) -> tuple[str, ...]:
    """The architectures whose tolerations we added to the stored template, and which the new one lacks, sorted.

    For a template whose images are not known now. If they are the stored one's, and its constraints as well, these
    tolerations were justified; to leave them out would start a rollout, and another one later. ``recorded``:
    what the stored DaemonSet's annotation says we added.
    """
    before = old.template.pod(old.metadata, kind=DAEMON_SET)
    images = images_of(before, searched=case.facts.short_names_searched)
    if (images, constraints_of(before), before.spec.os) != (case.images, case.constraints, case.pod.spec.os):
        return ()
    present, settings = before.spec.tolerations or (), case.settings
    ours = [each.value for each in recorded if each in present and each == settings.toleration(each.value)]
    return missing(wanted(ours, settings), case.pod.spec.tolerations)


def _template_rule(facts: TemplateFacts) -> Reason | None:
    """Why the template is not touched, before its pods are looked at."""
    metadata = facts.daemon_set.metadata
    if metadata.deletion_timestamp is not None:
        return Reason.TERMINATING
    if (metadata.annotations or _NOTHING).get(names.OPT_OUT) == names.DISABLED:
        return Reason.OPTED_OUT
    if facts.settings.templates == "ignore":
        return Reason.TEMPLATES_IGNORED
    return None
