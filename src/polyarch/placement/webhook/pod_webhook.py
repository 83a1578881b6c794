"""The pod webhook: places a pod at admission if everything is known, else gates it (PL-100 to PL-119, PL-130).

The warm path awaits nothing and asks nobody: facts compiled beforehand, answers from memory, pure rules, a patch. If
answers are missing and the policy grants a budget, registries are asked in parallel until it is used up; what misses it
goes on in the inspector, serves the next pod, and leaves nothing here. No request to the API server is made but for a
pull secret that is needed and not in memory (PL-102).

An admission may be a dry run, or be refused by a later plugin: nothing here waits for the pod to come to exist
(PL-109).
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

import structlog

from polyarch.kube.clock import Clock, deadline
from polyarch.kube.resources import PODS
from polyarch.kube.serving.reviews import AdmissionRequest, AdmissionResponse, Failure, Route
from polyarch.model.pod import Pod
from polyarch.oci.answer import Inspection
from polyarch.oci.reference import Reference
from polyarch.placement import names
from polyarch.placement.decide.images import ImageUse
from polyarch.placement.decide.rules import Case, Facts, decide
from polyarch.placement.lookups.answers import Inspects, at_hand
from polyarch.placement.lookups.facts import ClusterFacts
from polyarch.placement.lookups.secrets import PullSecrets, PullSource
from polyarch.placement.lookups.waiting import failure_of
from polyarch.placement.metrics import PlacementMetrics
from polyarch.placement.result.admission import Admission
from polyarch.placement.result.outcome import By, Path
from polyarch.placement.result.series import Look, Series

log = structlog.get_logger(__name__)

TAG_TTL: Final = 600.0
WAITING: Final = 64
"""Admissions of this process that may wait for registries at a time; the next ones gate at once (PL-113)."""
FAILED_LATELY: Final = 30.0
"""For so long no budget is spent on an image that failed (PL-113)."""
FAILURES: Final = 10_000
AUDITS: Final = 64
"""Audited pods whose images are looked up in the background at a time; others are counted as dropped."""
AUDIT_DEADLINE: Final = 30.0
_UNCHANGED: Final = AdmissionResponse()


class Failed(NamedTuple):
    """An answer that was none, and when."""

    answer: Inspection
    at: float


class PodWebhook:
    """``handle`` answers one admission. ``controller_lives`` says whether somebody will lift a gate (PL-107)."""

    def __init__(
        self,
        *,
        facts: ClusterFacts,
        secrets: PullSecrets,
        inspector: Inspects,
        controller_lives: Callable[[], bool],
        clock: Clock,
        metrics: PlacementMetrics,
        tag_ttl: float = TAG_TTL,
    ) -> None:
        self._facts = facts
        self._secrets = secrets
        self._inspector = inspector
        self._controller_lives = controller_lives
        self._clock = clock
        self._metrics = metrics
        self._tag_ttl = tag_ttl
        self._waiting = 0
        self._series = Series()
        self._failed: OrderedDict[tuple[str, PullSource], Failed] = OrderedDict()
        self._audits: set[asyncio.Task[None]] = set()
        facts.on_change(self._facts_changed)

    def route(self) -> Route[Pod]:
        """For the admission server: CREATE of pods; whatever goes wrong, the pod is allowed unchanged (PL-103)."""
        return Route(
            path=names.POD_WEBHOOK_PATH,
            name=names.POD_WEBHOOK,
            type=Pod,
            handler=self.handle,
            on_error="allow",
            resource=PODS,
            operations=frozenset({"CREATE"}),
            failed=self._count_failure,
        )

    async def handle(self, request: AdmissionRequest[Pod]) -> AdmissionResponse:
        """The answer for one pod; never a refusal."""
        if not self._facts.is_ready or self._facts.cppc is None:
            self._measure("ignored", request.arrived_at)
            return _UNCHANGED
        look = self._look(request)
        case = look.case
        answers = self._known(case, request) if case.images else {}
        if len(answers) < len(case.images) and case.wants_answers:
            await self._ask_within_budget(case, request, answers)
        deprovisioning = self._facts.is_deprovisioning
        admission = look.admission(
            answers,
            controller_available=not deprovisioning and self._controller_lives(),
            deprovisioning=deprovisioning,
        )
        self._count(admission, request)
        if admission.path is Path.AUDIT and admission.decision.unresolved:
            self._audit_later(case)
        return AdmissionResponse(
            patch=admission.operations,
            warnings=admission.warnings,
            audit_annotations=admission.audit_annotations,
        )

    async def close(self) -> None:
        """Ends what goes on in the background."""
        for task in (tasks := list(self._audits)):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _look(self, request: AdmissionRequest[Pod]) -> Look:
        facts = self._facts.of(request.namespace)
        return self._series.look(
            Facts(
                pod=request.object,
                namespace=request.namespace,
                settings=facts.settings,
                sources=facts.sources,
                nodes=facts.nodes,
            )
        )

    def _known(self, case: Case, request: AdmissionRequest[Pod]) -> dict[str, Inspection]:
        """Answers that are usable now (PL-112), and failures of a moment ago with what they stand in for (PL-407)."""
        source = PullSource.of(case.pod, request.namespace)
        now = self._clock.monotonic()
        answers = at_hand(
            case.images,
            self._inspector,
            self._secrets.lazy(source),
            since=request.arrived_at,
            now=now,
            tag_ttl=self._tag_ttl,
            stale_for=case.settings.images_stale_for,
        )
        if self._failed and len(answers) < len(case.images):
            for use in case.images:
                if use.text not in answers and (failed := self._failed_lately(use, source, now)) is not None:
                    answers[use.text] = failed
        return answers

    def _failed_lately(self, use: ImageUse, source: PullSource, now: float) -> Inspection | None:
        if use.reference is None:
            return None
        key = (use.reference.canonical, source)
        failed = self._failed.get(key)
        if failed is None:
            return None
        if now - failed.at < FAILED_LATELY:
            return failed.answer
        del self._failed[key]
        return None

    async def _ask_within_budget(
        self, case: Case, request: AdmissionRequest[Pod], answers: dict[str, Inspection]
    ) -> None:
        """Adds what registries answer in time. One image that cannot be had gates the pod, so then nobody is asked."""
        missing = [use for use in case.images if use.text not in answers]
        budget = min(case.settings.inline_budget, request.timeout_seconds / 2)
        left = request.arrived_at + budget - self._clock.monotonic()
        if left <= 0 or self._waiting >= WAITING:
            return
        if any(not use.never and failure_of(answers.get(use.text)) for use in case.images):
            return
        if any(use.reference is None or self._inspector.host_busy(use.reference) for use in missing):
            return
        self._waiting += 1
        try:
            async with deadline(self._clock, left):
                await self._ask_all(missing, PullSource.of(case.pod, request.namespace), request.arrived_at, answers)
        except TimeoutError:
            pass  # what is late is not in the answers; the inspector goes on with it for whoever comes next
        finally:
            self._waiting -= 1

    async def _ask_all(
        self, uses: Iterable[ImageUse], source: PullSource, arrived_at: float | None, answers: dict[str, Inspection]
    ) -> None:
        """Asks for all of them at once; each answer is put in as it comes. ``arrived_at``: for ``Always`` (PL-112)."""
        credentials = self._secrets.lazy(source)

        async def ask(use: ImageUse, reference: Reference) -> None:
            always = use.always and reference.digest is None
            try:
                answer = await self._inspector.inspect(
                    reference,
                    credentials=credentials,
                    not_before=arrived_at if always else None,
                    tenant=source.namespace,
                )
            except Exception:
                self._metrics.internal_errors.inc()
                log.exception("an image met a bug", image=reference.canonical)
                return
            answers[use.text] = answer
            if failure_of(answer):
                self._remember(Failed(answer, self._clock.monotonic()), reference, source)

        async with asyncio.TaskGroup() as tasks:
            for use in uses:
                if use.reference is not None:
                    tasks.create_task(ask(use, use.reference))

    def _remember(self, failed: Failed, reference: Reference, source: PullSource) -> None:
        key = (reference.canonical, source)
        self._failed[key] = failed
        self._failed.move_to_end(key)
        if len(self._failed) > FAILURES:
            self._failed.popitem(last=False)

    def _audit_later(self, case: Case) -> None:
        """Counts what enforce would have done once the images are known (PL-130)."""
        if len(self._audits) >= AUDITS:
            self._metrics.audits_dropped.inc()
            return
        task = asyncio.get_running_loop().create_task(self._audit(case), name="audit of a pod's images")
        self._audits.add(task)
        task.add_done_callback(self._audits.discard)

    async def _audit(self, case: Case) -> None:
        answers: dict[str, Inspection] = {}
        try:
            async with deadline(self._clock, AUDIT_DEADLINE):
                await self._ask_all(case.images, PullSource.of(case.pod, case.facts.namespace), None, answers)
        except TimeoutError:
            log.debug("images of an audited pod were not known in time", namespace=case.facts.namespace)
        decision = decide(case, answers)
        if not decision.unresolved:
            self._metrics.decided(decision.reason.value, By.ADMISSION.value, "audit")

    def _count(self, admission: Admission, request: AdmissionRequest[Pod]) -> None:
        path, decision = admission.path, admission.decision
        self._metrics.admissions.inc()
        if path is Path.GATED:
            self._metrics.gated.inc()
        elif path in (Path.INLINE, Path.UNAVAILABLE) or (path is Path.AUDIT and not decision.unresolved):
            mode = "audit" if path is Path.AUDIT else "enforce"
            self._metrics.decided(decision.reason.value, By.ADMISSION.value, mode)
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
            self._secrets.allow(self._facts.table.spec.images_secret_access == "byName")
