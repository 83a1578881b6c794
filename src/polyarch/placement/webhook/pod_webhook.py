"""The pod webhook: places a pod at admission if everything is known, else gates it (PL-100 to PL-119, PL-130).

The warm path awaits nothing and asks nobody: facts compiled beforehand, answers from memory, pure rules, a patch. If
answers are missing and the policy grants a budget, registries are asked in parallel until it is used up; what misses it
goes on in the background and serves the next pod. No request to the API server is made but for a pull secret that is
needed and not in memory (PL-102).

An admission may be a dry run, or be refused by a later plugin: nothing here waits for the pod to come to exist
(PL-109).
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import Final

import structlog

from polyarch.kube.clock import Clock, deadline
from polyarch.kube.resources import PODS
from polyarch.kube.serving.reviews import AdmissionRequest, AdmissionResponse, Failure, Route
from polyarch.model.pod import Pod
from polyarch.oci.answer import Inspection
from polyarch.placement import names
from polyarch.placement.decide.images import ImageUse
from polyarch.placement.decide.provenance import was_sent
from polyarch.placement.decide.rules import Case, Facts, decide
from polyarch.placement.lookups.answers import Inspects, at_hand
from polyarch.placement.lookups.facts import ClusterFacts
from polyarch.placement.lookups.image_lookup import failure_of
from polyarch.placement.lookups.secrets import PullSecrets, PullSource
from polyarch.placement.metrics import PlacementMetrics
from polyarch.placement.result.admission import Admission
from polyarch.placement.result.outcome import By, Path
from polyarch.placement.result.series import Look, Series
from polyarch.placement.webhook.background import NEVER, AdmissionLookups, Coming

log = structlog.get_logger(__name__)

TAG_TTL: Final = 600.0
WAITING: Final = 64
"""Admissions of this process that may wait for registries at a time; the next ones gate at once (PL-113)."""
AUDITS: Final = 64
"""Audited pods whose images are looked up in the background at a time; others are counted as dropped."""
AUDIT_DEADLINE: Final = 30.0
_UNCHANGED: Final = AdmissionResponse()


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
        self._lookups = AdmissionLookups(inspector, secrets, clock, metrics)
        self._controller_lives = controller_lives
        self._clock = clock
        self._metrics = metrics
        self._tag_ttl = tag_ttl
        self._waiting = 0
        self._series = Series()
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
            self._audit_later(case, answers)
        return AdmissionResponse(
            patch=admission.operations,
            warnings=admission.warnings,
            audit_annotations=admission.audit_annotations,
        )

    def credentials_changed(self) -> None:
        """The global pull secret is another one: what the former one may have opened is told to no pod (PL-423)."""
        self._lookups.revoke()

    async def close(self) -> None:
        """Ends what goes on in the background."""
        for task in (tasks := list(self._audits)):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._lookups.close()

    def _look(self, request: AdmissionRequest[Pod]) -> Look:
        facts = self._facts.of(request.namespace)
        return self._series.look(
            Facts(
                pod=request.object,
                namespace=request.namespace,
                settings=facts.settings,
                sources=facts.sources,
                nodes=facts.nodes,
                seal=facts.seal,
                record_was_sent=_has_record(request.object) and was_sent(request.raw_object),
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
        for use in case.images if len(answers) < len(case.images) else ():
            if use.text not in answers and use.reference is not None:
                failed = self._lookups.failed_lately(use.reference, source)
                if failed is not None:
                    answers[use.text] = failed
        return answers

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
        asked = self._ask(missing, PullSource.of(case.pod, request.namespace), arrived_at=request.arrived_at)
        if len(asked) < len(missing):
            return
        self._waiting += 1
        try:
            async with deadline(self._clock, left):
                await asyncio.wait(asked.values())
        except TimeoutError:
            pass
        finally:
            self._waiting -= 1
        answers.update(_given(asked))

    def _ask(self, uses: Iterable[ImageUse], source: PullSource, *, arrived_at: float) -> dict[str, Coming]:
        """The answers to come, by the text of the reference; those are missing for which there is no room.

        ``arrived_at``: ``imagePullPolicy: Always`` wants its tag checked since (PL-112).
        """
        asked = {}
        for use in uses:
            if use.reference is None:
                continue
            since = arrived_at if use.always and use.reference.digest is None else NEVER
            answer = self._lookups.ask(use.reference, source, not_before=since)
            if answer is not None:
                asked[use.text] = answer
        return asked

    def _audit_later(self, case: Case, answers: dict[str, Inspection]) -> None:
        """Counts what enforce would have done once the images are known (PL-130)."""
        missing = [use for use in case.images if use.text not in answers and use.reference is not None]
        if not missing:
            return
        source = PullSource.of(case.pod, case.facts.namespace)
        asked = self._ask(missing, source, arrived_at=NEVER) if len(self._audits) < AUDITS else {}
        if len(asked) < len(missing):
            self._metrics.audits_dropped.inc()
            return
        task = asyncio.get_running_loop().create_task(self._audit(case, answers, asked), name="audit of a pod's images")
        self._audits.add(task)
        task.add_done_callback(self._audits.discard)

    async def _audit(self, case: Case, answers: dict[str, Inspection], asked: dict[str, Coming]) -> None:
        try:
            async with deadline(self._clock, AUDIT_DEADLINE):
                await asyncio.wait(asked.values())
        except TimeoutError:
            log.debug("images of an audited pod were not known in time", namespace=case.facts.namespace)
        decision = decide(case, {**answers, **_given(asked)})
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


def _given(asked: dict[str, Coming]) -> dict[str, Inspection]:
    """The answers that are there."""
    done = {text: answer.result() for text, answer in asked.items() if answer.done()}
    return {text: answer for text, answer in done.items() if answer is not None}


def _has_record(pod: Pod) -> bool:
    return names.DECISION_ANNOTATION in (pod.metadata.annotations or ())
