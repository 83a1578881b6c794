"""The webhooks of taints: pods and templates of DaemonSets get their tolerations when they are created.

:class:`PodAdmission` serves the pods that placement does not see, and adds to what placement writes, at admission and
when it lifts its gate. The warm path makes no request. Missing answers are looked up within the time that the admission
has anyway; what is not known then is decided by the policy. The leader of the role ``taints`` completes every pod that
is passed over here, so in doubt nothing is added. :class:`TemplateAdmission` does the same for templates.
"""

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

import msgspec
import structlog

from polyarch.clock import Clock
from polyarch.images.decision_cache import DecisionCache, are_few
from polyarch.images.pod_mutation import NO_MUTATION, MutationContext, PodMutation
from polyarch.images.pull_secrets import PullSecretNames
from polyarch.images.resolver import AdmissionLookups, PodImageRequest
from polyarch.kube.admission import AdmissionRequest, AdmissionResponse, Failure, Route
from polyarch.kube.errors import SeenErrors
from polyarch.kube.patches import Operation
from polyarch.kube.resources import DAEMONSETS, PODS
from polyarch.objects import DaemonSet, Pod
from polyarch.oci.inspection import Inspection
from polyarch.taints import names
from polyarch.taints.decision import PodDecision, Reason, TolerationLookupProgress, TolerationOutcome
from polyarch.taints.facts import TaintFacts
from polyarch.taints.metrics import TaintMetrics
from polyarch.taints.patch import admission_patch, change_patch, recorded_tolerations, template_patch
from polyarch.taints.pod_rules import (
    Case,
    PodFacts,
    assess,
    changes_images,
    decide,
    decide_change,
    examine,
    examine_change,
    examine_template,
    kept,
)

log = structlog.get_logger(__name__)

# -- what was decided for equal pods, such as the replicas of a template -----------------------------------------------
# Most pods are created by the dozen. What was added to one is added to the next without deciding again, as long as the
# facts are the same objects, the answers are equal and gates may be added as before. A hit costs a quarter of a
# decision. The cache is bounded. Only for pods at admission: stored ones are decided one by one.

CAPACITY: Final = 256
"""Series in the cache; the least recently used is evicted."""
BYTES: Final = 512 * 1024
"""Limit of all keys together; the cached values take up to ten times as much."""


class TolerationResult(NamedTuple):
    """What is added to a pod, and the decision behind it."""

    decision: PodDecision
    addition: PodMutation


class _CachedResult(NamedTuple):
    answers: Mapping[str, Inspection]
    progress: TolerationLookupProgress
    said: TolerationResult


class CachedDecision:
    """One series; ``case`` was made for its first pod and is valid for all."""

    __slots__ = ("_known", "case")

    def __init__(self, case: Case) -> None:
        self.case = case
        self._known: _CachedResult | None = None

    def said(self, answers: Mapping[str, Inspection], progress: TolerationLookupProgress) -> TolerationResult:
        """What is added for these answers; what was said before if they are the same."""
        known = self._known
        if known is not None and known.progress is progress and known.answers == answers:
            return known.said
        decision = decide(self.case, answers, progress)
        said = TolerationResult(decision, addition(decision, admission_patch(self.case, decision)))
        if are_few(answers.values()):
            self._known = _CachedResult(dict(answers), progress, said)
        return said


def recent_series() -> DecisionCache[PodFacts, CachedDecision]:
    """The series recently admitted by this process."""
    return DecisionCache(_look, _holds, capacity=CAPACITY, weight=BYTES)


def _look(facts: PodFacts, pod: Pod) -> CachedDecision:
    return CachedDecision(examine(msgspec.structs.replace(facts, pod=pod)))


def _holds(look: CachedDecision, now: PodFacts) -> bool:
    then = look.case.facts
    return (
        then.settings is now.settings
        and then.existing is now.existing
        and then.os == now.os
        and then.short_names_searched is now.short_names_searched
        and then.namespace_labels == now.namespace_labels
    )


def addition(decision: PodDecision, operations: tuple[Operation, ...]) -> PodMutation:
    """What a decision, carried out by these operations, adds to the answer about a pod."""
    if decision.outcome is TolerationOutcome.DENIED:
        return PodMutation(denial=decision.message)
    return PodMutation(operations) if operations else NO_MUTATION


# -- pods --------------------------------------------------------------------------------------------------------------

POD_BUDGET: Final = 0.1
"""Seconds that a pod of our own route waits for registries at most: what placement's admissions have by default."""


class PodAdmission:
    """``at_admission`` and ``at_release`` add to what placement writes; ``route`` is the webhook of all other pods.

    ``failed`` counts an internal error.
    """

    def __init__(
        self,
        *,
        facts: TaintFacts,
        lookups: AdmissionLookups,
        clock: Clock,
        metrics: TaintMetrics,
        failed: Callable[[], None],
    ) -> None:
        self._facts = facts
        self._lookups = lookups
        self._clock = clock
        self._metrics = metrics
        self._failed = failed
        self._series = recent_series()
        self._causes = SeenErrors()

    def route(self) -> Route[Pod]:
        """The route for the admission server. On any error the pod is allowed unchanged."""
        return Route(
            path=names.POD_WEBHOOK_PATH,
            name=names.POD_WEBHOOK,
            type=Pod,
            handler=self.handle,
            on_error="allow",
            resource=PODS,
            operations=frozenset({"CREATE", "UPDATE"}),
            failed=self._count_failure,
            has_token=True,
        )

    async def handle(self, request: AdmissionRequest[Pod]) -> AdmissionResponse:
        """The response for one pod that placement does not see."""
        until = request.arrived_at + min(POD_BUDGET, request.timeout_seconds / 2)
        added = await self._addition(request, {}, MutationContext(), until=until)
        if added.denial:
            return AdmissionResponse(allowed=False, message=added.denial)
        return AdmissionResponse(patch=added.operations, warnings=added.warnings)

    async def at_admission(
        self,
        request: AdmissionRequest[Pod],
        answers: Mapping[str, Inspection],
        alongside: MutationContext,
        *,
        until: float,
    ) -> PodMutation:
        """To the answer of an admission by placement."""
        try:
            return await self._addition(request, answers, alongside, until=until)
        except Exception as error:  # noqa: BLE001 - a bug of ours must not cost the pod what placement decided
            return self._bug(error, request.namespace, request.object)

    def at_release(self, pod: Pod, answers: Mapping[str, Inspection], alongside: MutationContext) -> PodMutation:
        """To the PATCH by which placement lifts its gate; what is not known then is not waited for."""
        try:
            return self._at_release(pod, answers, alongside)
        except Exception as error:  # noqa: BLE001 - a bug of ours must not keep the pod gated
            return self._bug(error, pod.metadata.namespace, pod)

    async def _addition(
        self,
        request: AdmissionRequest[Pod],
        answers: Mapping[str, Inspection],
        alongside: MutationContext,
        *,
        until: float,
    ) -> PodMutation:
        old = request.old_object
        facts = self._facts.about(request.object, request.namespace, stored=old is not None, os=alongside.os)
        if facts is None or (alongside.gated and facts.settings.on_no_common != "deny"):
            return NO_MUTATION
        if not request.is_proven:
            return self._unproven(facts, old, alongside)
        if old is not None:
            return await self._of_change(facts, old, until=until, since=request.arrived_at)
        look = self._series.get(facts)
        known = self._known(look.case, answers, since=request.arrived_at)
        if not alongside.gated:
            await self._ask(look.case, known, until=until, since=request.arrived_at)
        progress = TolerationLookupProgress.FIRST if self._facts.leader_lives else TolerationLookupProgress.UNGUARDED
        said = look.said(known, progress)
        if said.addition.denial:
            await self._look_closer(look.case, known, until=until)
            said = look.said(known, progress)
        if alongside.gated and not said.addition.denial:
            return NO_MUTATION  # decided when placement lifts its gate, with the os that it writes then
        self._metrics.decided(said.decision.reason.value)
        return said.addition

    def _unproven(self, facts: PodFacts, old: Pod | None, alongside: MutationContext) -> PodMutation:
        """Without credentials and registries: anybody may have made the pod up. The leader completes real ones."""
        if old is not None or alongside.gated:
            return NO_MUTATION
        progress = TolerationLookupProgress.FIRST if self._facts.leader_lives else TolerationLookupProgress.UNGUARDED
        case = examine(facts)
        decision = decide(case, {}, progress)
        return self._told(decision, admission_patch(case, decision))

    async def _of_change(self, facts: PodFacts, old: Pod, *, until: float, since: float) -> PodMutation:
        """To an update of a pod that exists."""
        if not changes_images(old, facts.pod):
            return NO_MUTATION
        case = examine_change(facts, old)
        known = self._known(case, {}, since=since)
        await self._ask(case, known, until=until, since=since)
        change = decide_change(case, known, old)
        if change.decision.outcome is TolerationOutcome.DENIED:
            await self._look_closer(case, known, until=until)
            change = decide_change(case, known, old)
        added = self._told(change.decision, change_patch(case, change))
        if added.denial or not change.lost:
            return added
        return msgspec.structs.replace(added, warnings=(change.message,))

    def _at_release(self, pod: Pod, answers: Mapping[str, Inspection], alongside: MutationContext) -> PodMutation:
        facts = self._facts.about(pod, pod.metadata.namespace, stored=True, os=alongside.os)
        if facts is None:
            return NO_MUTATION
        case = examine(facts)
        known = self._known(case, answers, since=self._clock.monotonic())
        decision = decide(case, known, TolerationLookupProgress.ENDED)
        return self._told(decision, admission_patch(case, decision, gated_elsewhere=not case.is_gated))

    def _known(self, case: Case, answers: Mapping[str, Inspection], *, since: float) -> dict[str, Inspection]:
        """The answers at hand. Placement has looked for those of all images, or of none."""
        if answers or not case.images:
            return dict(answers)
        return self._lookups.known(_image_request(case), since=since)

    async def _ask(self, case: Case, known: dict[str, Inspection], *, until: float, since: float) -> None:
        if len(known) < len(case.images):
            await self._lookups.inspect_until(until, _image_request(case), known, since=since)

    async def _look_closer(self, case: Case, known: dict[str, Inspection], *, until: float) -> None:
        """Before a pod is refused for its images: what an index says may not be what it is."""
        await self._lookups.inspect_bundles(until, _image_request(case), known)

    def _told(self, decision: PodDecision, operations: tuple[Operation, ...]) -> PodMutation:
        self._metrics.decided(decision.reason.value)
        return addition(decision, operations)

    def _bug(self, error: Exception, namespace: str, pod: Pod) -> PodMutation:
        self._failed()
        log.error(
            "nothing is added to a pod because of a bug",
            namespace=namespace,
            pod=pod.metadata.name or pod.metadata.generate_name,
            exc_info=error if self._causes.is_new(error) else None,
        )
        return NO_MUTATION

    def _count_failure(self, failure: Failure) -> None:
        if failure == "exception":
            self._failed()


# -- templates of DaemonSets -------------------------------------------------------------------------------------------
# A manifest that is applied again ends up as it was, and starts no rollout: the API server compares the template with
# the stored one after this call. A template has no gate. If an image is not known in time, nothing is added, the user
# is warned, and the leader tries again; what we added to the same template before is kept meanwhile.

TEMPLATE_BUDGET: Final = 2.0
"""Seconds that a template waits for registries at most. DaemonSets are few, and nothing makes up for an answer that
comes too late where the leader does not reconcile templates."""
_UNCHANGED: Final = AdmissionResponse()


class TemplateAdmission:
    """``route`` is the webhook of DaemonSets. ``failed`` counts an internal error."""

    def __init__(self, *, facts: TaintFacts, lookups: AdmissionLookups, failed: Callable[[], None]) -> None:
        self._facts = facts
        self._lookups = lookups
        self._failed = failed

    def route(self) -> Route[DaemonSet]:
        """The route for the admission server. On any error the DaemonSet is allowed unchanged."""
        return Route(
            path=names.TEMPLATE_WEBHOOK_PATH,
            name=names.TEMPLATE_WEBHOOK,
            type=DaemonSet,
            handler=self.handle,
            on_error="allow",
            resource=DAEMONSETS,
            operations=frozenset({"CREATE", "UPDATE"}),
            failed=self._count_failure,
            has_token=True,
        )

    async def handle(self, request: AdmissionRequest[DaemonSet]) -> AdmissionResponse:
        """The response for one DaemonSet, which is always allowed."""
        daemon_set, since = request.object, request.arrived_at
        facts = self._facts.about_template(daemon_set, request.namespace)
        if facts is None:
            return _UNCHANGED
        case = examine_template(facts)
        known = self._lookups.known(_image_request(case), since=since) if request.is_proven else {}
        if len(known) < len(case.images) and request.is_proven:
            until = since + min(TEMPLATE_BUDGET, request.timeout_seconds / 2)
            await self._lookups.inspect_until(until, _image_request(case), known, since=since)
        decision = decide(case, known)
        if decision.outcome is TolerationOutcome.BLOCKED and request.old_object is not None:
            decision = _with_kept(case, decision, request.old_object)
        patch = template_patch(daemon_set, decision, facts.settings)
        return AdmissionResponse(patch=patch, warnings=(decision.message,) if _is_worth_saying(decision) else ())

    def _count_failure(self, failure: Failure) -> None:
        if failure == "exception":
            self._failed()


def _with_kept(case: Case, decision: PodDecision, old: DaemonSet) -> PodDecision:
    """What cannot be decided now is as it was decided before, for the same images."""
    added = kept(case, old, recorded_tolerations(old.metadata.annotations))
    return msgspec.structs.replace(decision, outcome=TolerationOutcome.TOLERATED, added=added) if added else decision


def _is_worth_saying(decision: PodDecision) -> bool:
    return decision.outcome is TolerationOutcome.BLOCKED or decision.reason is Reason.NO_COMMON_ARCHITECTURE


def _image_request(case: Case) -> PodImageRequest:
    """As :func:`polyarch.taints.image_waiting.image_request`, which an admission need not load."""
    return PodImageRequest(
        case.images,
        PullSecretNames.of(case.pod, case.facts.namespace),
        case.facts.stale_for,
        lambda answers: assess(case, answers).is_impossible,
    )
