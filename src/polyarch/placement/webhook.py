"""The pod webhook: places a pod at admission if its images are known, else gates it.

The warm path makes no request: it uses precompiled facts, cached image answers, pure rules, and returns a patch. If
answers are missing and the policy grants a budget, registries are asked in parallel until the budget is used up; late
answers arrive in the background and serve the next pod. The only API request during an admission is a GET of a pull
secret that is needed and not cached. A review that no API server is shown to have sent is answered without all that.

An admission may be a dry run, or a later plugin may reject it, so nothing here waits for the pod to be created.

What another feature adds to the pod goes into the same answer, whatever placement decides
(``images/pod_mutation.py``)."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Final

import structlog

from polyarch.clock import Clock, deadline
from polyarch.images.pod_mutation import NO_MUTATION, MutationContext, PodMutation, PodMutator, join_patches
from polyarch.images.pull_secrets import PullSecrets
from polyarch.images.resolver import NEVER, AdmissionLookups, PendingInspection, finished
from polyarch.kube.admission import AdmissionRequest, AdmissionResponse, Failure, Route
from polyarch.kube.patches import Operation
from polyarch.kube.resources import PODS
from polyarch.objects import Pod
from polyarch.oci.inspection import Inspection
from polyarch.placement import names
from polyarch.placement.admission import Admission, CachedDecision, admit, decision_cache
from polyarch.placement.decision import creator_sent_record
from polyarch.placement.facts import ClusterFacts, image_request
from polyarch.placement.metrics import PlacementMetrics
from polyarch.placement.patch import AdmissionPath, DecidedBy
from polyarch.placement.rules import ExaminedPod, PodFacts, decide, examine
from polyarch.placement.settings import Settings

log = structlog.get_logger(__name__)

MAX_CONCURRENT_AUDITS: Final = 64
"""Audited pods whose images are looked up in the background at a time; further ones are counted as dropped."""
AUDIT_TIMEOUT: Final = 30.0
_NO_ANNOTATIONS: Final[Mapping[str, str]] = {}


class PodWebhook:
    """``handle`` answers one admission. ``controller_lives``: whether a controller can remove gates."""

    def __init__(
        self,
        *,
        facts: ClusterFacts,
        secrets: PullSecrets,
        controller_lives: Callable[[], bool],
        clock: Clock,
        metrics: PlacementMetrics,
        lookups: AdmissionLookups,
        mutator: PodMutator | None = None,
    ) -> None:
        self._facts = facts
        self._secrets = secrets
        self._lookups = lookups
        self._mutator = mutator
        self._controller_lives = controller_lives
        self._clock = clock
        self._metrics = metrics
        self._cache = decision_cache()
        self._audits: set[asyncio.Task[None]] = set()
        facts.on_change(self._facts_changed)

    def route(self) -> Route[Pod]:
        """The route for the admission server: CREATE of pods. On any error the pod is allowed unchanged."""
        return Route(
            path=names.POD_WEBHOOK_PATH,
            name=names.POD_WEBHOOK,
            type=Pod,
            handler=self.handle,
            on_error="allow",
            resource=PODS,
            operations=frozenset({"CREATE"}),
            failed=self._count_failure,
            has_token=True,
        )

    async def handle(self, request: AdmissionRequest[Pod]) -> AdmissionResponse:
        """The response for one pod. Placement always allows the pod."""
        if not self._facts.is_ready or self._facts.cppc is None:
            mutation = await self._mutation(request, {}, MutationContext(), until=_lookup_deadline(request, Settings()))
            self._measure("ignored", request.arrived_at)
            return _response(mutation, mutation.operations)
        if not request.is_proven:
            return await self._answer_unproven(request)
        cached = self._cached(request)
        case = cached.case
        until, wanted = _lookup_deadline(request, case.settings), image_request(case)
        inspections = self._lookups.known(wanted, since=request.arrived_at) if case.images else {}
        if len(inspections) < len(case.images) and case.wants_answers:
            await self._lookups.inspect_until(until, wanted, inspections, since=request.arrived_at)
        deprovisioning = self._facts.is_deprovisioning
        admission = cached.admission(
            inspections,
            controller_available=not deprovisioning and self._controller_lives(),
            deprovisioning=deprovisioning,
        )
        mutation = await self._mutation(request, inspections, _mutation_context(admission), until=until)
        self._count(admission, request)
        if admission.path is AdmissionPath.AUDIT and admission.decision.unresolved:
            self._audit_later(case, inspections)
        return _response(mutation, cached.patch(admission, mutation), admission.warnings, admission.audit_annotations)

    async def _answer_unproven(self, request: AdmissionRequest[Pod]) -> AdmissionResponse:
        """Without credentials, registries, signatures and caches: anybody may have made the pod up. If it exists, the
        controller sees it behind its gate."""
        case = examine(self._pod_facts(request))
        deprovisioning = self._facts.is_deprovisioning
        admission = admit(
            case,
            decide(case, {}),
            controller_available=not deprovisioning and self._controller_lives(),
            deprovisioning=deprovisioning,
            is_proven=False,
        )
        mutation = await self._mutation(request, {}, _mutation_context(admission), until=request.arrived_at)
        self._count(admission, request)
        patch = join_patches(admission.operations, mutation.operations)
        return _response(mutation, patch, admission.warnings, admission.audit_annotations)

    async def close(self) -> None:
        """Cancels background tasks."""
        for task in (tasks := list(self._audits)):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _cached(self, request: AdmissionRequest[Pod]) -> CachedDecision:
        return self._cache.get(self._pod_facts(request))

    def _pod_facts(self, request: AdmissionRequest[Pod]) -> PodFacts:
        pod, namespace = request.object, request.namespace
        record_was_sent = _has_record(pod) and creator_sent_record(request.raw_object)
        return self._facts.of(namespace).about(
            pod, namespace, stored=False, record_was_sent=record_was_sent, is_proven=request.is_proven
        )

    async def _mutation(
        self,
        request: AdmissionRequest[Pod],
        inspections: Mapping[str, Inspection],
        context: MutationContext,
        *,
        until: float,
    ) -> PodMutation:
        if self._mutator is None:
            return NO_MUTATION
        return await self._mutator.at_admission(request, inspections, context, until=until)

    def _audit_later(self, case: ExaminedPod, inspections: dict[str, Inspection]) -> None:
        """Looks up the images of an audited pod in the background and counts the decision of ``enforce``."""
        missing = [use for use in case.images if use.text not in inspections and use.reference is not None]
        if not missing:
            return
        source = image_request(case).source
        asked = (
            self._lookups.inspect_all(missing, source, since=NEVER) if len(self._audits) < MAX_CONCURRENT_AUDITS else {}
        )
        if len(asked) < len(missing):
            self._metrics.audits_dropped.inc()
            return
        task = asyncio.get_running_loop().create_task(
            self._audit(case, inspections, asked), name="audit of a pod's images"
        )
        self._audits.add(task)
        task.add_done_callback(self._audits.discard)

    async def _audit(
        self, case: ExaminedPod, inspections: dict[str, Inspection], asked: dict[str, PendingInspection]
    ) -> None:
        try:
            async with deadline(self._clock, AUDIT_TIMEOUT):
                await asyncio.wait(asked.values())
        except TimeoutError:
            log.debug("image look-ups of an audited pod timed out", namespace=case.facts.namespace)
        decision = decide(case, {**inspections, **finished(asked)})
        if not decision.unresolved:
            self._metrics.decided(decision.reason.value, DecidedBy.ADMISSION.value, "audit")

    def _count(self, admission: Admission, request: AdmissionRequest[Pod]) -> None:
        path, decision = admission.path, admission.decision
        self._metrics.admissions.inc()
        if path is AdmissionPath.GATED:
            self._metrics.gated.inc()
        elif path in (AdmissionPath.INLINE, AdmissionPath.UNAVAILABLE) or (
            path is AdmissionPath.AUDIT and not decision.unresolved
        ):
            mode = "audit" if path is AdmissionPath.AUDIT else "enforce"
            self._metrics.decided(decision.reason.value, DecidedBy.ADMISSION.value, mode)
        self._measure(path.value, request.arrived_at)

    def _measure(self, outcome: str, arrived_at: float) -> None:
        seconds = self._clock.monotonic() - arrived_at
        count, histogram = self._metrics.admission_outcomes[outcome]
        count.inc()
        histogram.observe(seconds)
        self._metrics.response_time.observe(seconds)

    def _count_failure(self, failure: Failure) -> None:
        count, _ = self._metrics.admission_outcomes["error"]
        count.inc()
        self._metrics.internal_errors.inc(failure == "exception")

    def _facts_changed(self, namespace: str | None) -> None:
        if namespace is None:
            allowed = self._facts.table.spec.images_secret_access == "byName"
            self._secrets.allow(allowed)
            if not allowed:
                self._lookups.revoke()


def _has_record(pod: Pod) -> bool:
    return names.DECISION_ANNOTATION in (pod.metadata.annotations or ())


def _lookup_deadline(request: AdmissionRequest[Pod], settings: Settings) -> float:
    """How long this admission may wait for registries: all features together."""
    return request.arrived_at + min(settings.inline_budget, request.timeout_seconds / 2)


def _mutation_context(admission: Admission) -> MutationContext:
    inline = admission.path is AdmissionPath.INLINE
    return MutationContext(gated=admission.path is AdmissionPath.GATED, os=admission.decision.os if inline else "")


def _response(
    mutation: PodMutation,
    patch: tuple[Operation, ...],
    warnings: tuple[str, ...] = (),
    audit_annotations: Mapping[str, str] = _NO_ANNOTATIONS,
) -> AdmissionResponse:
    if mutation.denial:
        return AdmissionResponse(allowed=False, message=mutation.denial, warnings=mutation.warnings)
    return AdmissionResponse(patch=patch, warnings=warnings + mutation.warnings, audit_annotations=audit_annotations)
