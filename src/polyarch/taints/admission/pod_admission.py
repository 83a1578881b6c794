"""Pods get their tolerations at admission, and with the PATCH that lifts placement's gate (TN-003, TN-040, TN-046).

One object does both: the webhook and the controller of placement call it for the pods that they see, the route of this
module serves the pods that they do not. The warm path makes no request. Missing answers are looked up within the time
that the admission has anyway, which placement may have used up; what is not known then is decided by the policy.

The leader of the role ``taints`` completes every pod that is passed over here, so in doubt nothing is added.
"""

from collections.abc import Callable, Mapping
from typing import Final

import msgspec
import structlog

from polyarch.clock import Clock
from polyarch.kube.admission import AdmissionRequest, AdmissionResponse, Failure, Route
from polyarch.kube.errors import Causes
from polyarch.kube.patches import Operation
from polyarch.kube.resources import PODS
from polyarch.objects import Pod
from polyarch.oci.answer import Inspection
from polyarch.pods.additions import NOTHING, Addition, Alongside
from polyarch.pods.lookups.background import AdmissionLookups
from polyarch.pods.lookups.secrets import PullSource
from polyarch.taints import names
from polyarch.taints.admission.series import addition, recent_series
from polyarch.taints.decide.decision import Outcome, PodDecision, Progress
from polyarch.taints.decide.image_change import changes_images, decide_change, examine_change
from polyarch.taints.decide.rules import Case, Facts, decide, examine
from polyarch.taints.lookups.facts import TaintFacts
from polyarch.taints.metrics import TaintMetrics
from polyarch.taints.result.pod_patch import admission_patch, change_patch

log = structlog.get_logger(__name__)

BUDGET: Final = 0.1
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
        self._causes = Causes()

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
        )

    async def handle(self, request: AdmissionRequest[Pod]) -> AdmissionResponse:
        """The response for one pod that placement does not see."""
        until = request.arrived_at + min(BUDGET, request.timeout_seconds / 2)
        added = await self._addition(request, {}, Alongside(), until=until)
        if added.denial:
            return AdmissionResponse(allowed=False, message=added.denial)
        return AdmissionResponse(patch=added.operations, warnings=added.warnings)

    async def at_admission(
        self, request: AdmissionRequest[Pod], answers: Mapping[str, Inspection], alongside: Alongside, *, until: float
    ) -> Addition:
        """To the answer of an admission by placement."""
        try:
            return await self._addition(request, answers, alongside, until=until)
        except Exception as error:  # noqa: BLE001 - a bug of ours must not cost the pod what placement decided
            return self._bug(error, request.namespace, request.object)

    def at_release(self, pod: Pod, answers: Mapping[str, Inspection], alongside: Alongside) -> Addition:
        """To the PATCH by which placement lifts its gate; what is not known then is not waited for (TN-046)."""
        try:
            return self._at_release(pod, answers, alongside)
        except Exception as error:  # noqa: BLE001 - a bug of ours must not keep the pod gated
            return self._bug(error, pod.metadata.namespace, pod)

    async def _addition(
        self, request: AdmissionRequest[Pod], answers: Mapping[str, Inspection], alongside: Alongside, *, until: float
    ) -> Addition:
        old = request.old_object
        facts = self._facts.about(request.object, request.namespace, stored=old is not None, os=alongside.os)
        if facts is None or (alongside.gated and facts.settings.on_no_common != "deny"):
            return NOTHING
        if old is not None:
            return await self._of_change(facts, old, until=until, since=request.arrived_at)
        look = self._series.look(facts)
        known = self._known(look.case, answers, since=request.arrived_at)
        if not alongside.gated:
            await self._ask(look.case, known, until=until, since=request.arrived_at)
        progress = Progress.FIRST if self._facts.leader_lives else Progress.UNGUARDED
        said = look.said(known, progress)
        if said.addition.denial:
            await self._look_closer(look.case, known, until=until)
            said = look.said(known, progress)
        if alongside.gated and not said.addition.denial:
            return NOTHING  # decided when placement lifts its gate, with the os that it writes then
        self._metrics.decided(said.decision.reason.value)
        return said.addition

    async def _of_change(self, facts: Facts, old: Pod, *, until: float, since: float) -> Addition:
        """To an update of a pod that exists (TN-049)."""
        if not changes_images(old, facts.pod):
            return NOTHING
        case = examine_change(facts, old)
        known = self._known(case, {}, since=since)
        await self._ask(case, known, until=until, since=since)
        change = decide_change(case, known, old)
        if change.decision.outcome is Outcome.DENIED:
            await self._look_closer(case, known, until=until)
            change = decide_change(case, known, old)
        added = self._told(change.decision, change_patch(case, change))
        if added.denial or not change.lost:
            return added
        return msgspec.structs.replace(added, warnings=(change.message,))

    def _at_release(self, pod: Pod, answers: Mapping[str, Inspection], alongside: Alongside) -> Addition:
        facts = self._facts.about(pod, pod.metadata.namespace, stored=True, os=alongside.os)
        if facts is None:
            return NOTHING
        case = examine(facts)
        known = self._known(case, answers, since=self._clock.monotonic())
        decision = decide(case, known, Progress.ENDED)
        return self._told(decision, admission_patch(case, decision, gated_elsewhere=not case.is_gated))

    def _known(self, case: Case, answers: Mapping[str, Inspection], *, since: float) -> dict[str, Inspection]:
        """The answers at hand. Placement has looked for those of all images, or of none."""
        if answers or not case.images:
            return dict(answers)
        source = PullSource.of(case.pod, case.facts.namespace)
        return self._lookups.known(case.images, source, since=since, stale_for=case.facts.stale_for)

    async def _ask(self, case: Case, known: dict[str, Inspection], *, until: float, since: float) -> None:
        if len(known) < len(case.images):
            source = PullSource.of(case.pod, case.facts.namespace)
            await self._lookups.ask_until(until, case.images, source, known, since=since)

    async def _look_closer(self, case: Case, known: dict[str, Inspection], *, until: float) -> None:
        """Before a pod is refused for its images: what an index says may not be what it is (RG-046)."""
        source = PullSource.of(case.pod, case.facts.namespace)
        await self._lookups.look_for_bundles(until, case.images, source, known)

    def _told(self, decision: PodDecision, operations: tuple[Operation, ...]) -> Addition:
        self._metrics.decided(decision.reason.value)
        return addition(decision, operations)

    def _bug(self, error: Exception, namespace: str, pod: Pod) -> Addition:
        self._failed()
        log.error(
            "nothing is added to a pod because of a bug",
            namespace=namespace,
            pod=pod.metadata.name or pod.metadata.generate_name,
            exc_info=error if self._causes.is_new(error) else None,
        )
        return NOTHING

    def _count_failure(self, failure: Failure) -> None:
        if failure == "exception":
            self._failed()
