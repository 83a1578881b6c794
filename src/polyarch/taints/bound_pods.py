"""Pods that run on nodes already: they get tolerations if the policy says so.

The leader goes through them once when it begins to lead, and once more when the policy wants other tolerations: page by
page, at a low pace, and with look-ups that wait for nobody. What could not be decided or written is tried again in a
round some minutes later. Rounds may be cut off anywhere.
"""

import asyncio
from typing import Final, Protocol

import structlog

from polyarch.clock import Clock, deadline
from polyarch.images.resolver import LowPriorityLookups
from polyarch.kube.controller import Patches, PatchStatus, write_guarded
from polyarch.kube.errors import KubernetesError
from polyarch.kube.requests import ListOptions
from polyarch.kube.resources import PODS, Resource
from polyarch.kube.watch import Page
from polyarch.objects import Pod
from polyarch.taints.decision import PodDecision, TolerationLookupProgress, TolerationOutcome
from polyarch.taints.facts import TaintFacts
from polyarch.taints.image_waiting import image_request
from polyarch.taints.metrics import COUNTED, TaintMetrics
from polyarch.taints.patch import stored_patch
from polyarch.taints.pod_rules import Case, decide, examine
from polyarch.taints.settings import TaintSettings

log = structlog.get_logger(__name__)

BOUND: Final = ListOptions("", "", "spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed")
PER_SECOND: Final = 20.0
PAGE: Final = 500
RETRY_INTERVAL: Final = 300.0
"""Seconds until the next round, if this one left something undone."""


class BoundClient(Patches, Protocol):
    """The part of the client that is needed here."""

    async def list_page(
        self, resource: Resource, selection: ListOptions, *, type: type[Pod], continue_token: str = "", limit: int = ...
    ) -> Page[Pod]: ...


class BoundPods:
    """``images`` is its own, so that its look-ups wait for nobody else's."""

    def __init__(
        self,
        client: BoundClient,
        *,
        facts: TaintFacts,
        images: LowPriorityLookups,
        clock: Clock,
        metrics: TaintMetrics,
    ) -> None:
        self._client = client
        self._facts = facts
        self._images = images
        self._clock = clock
        self._metrics = metrics
        self._done_for: TaintSettings | None = None
        self._changed = asyncio.Event()
        facts.on_change(lambda namespace: self._changed.set() if namespace is None else None)

    @property
    def is_done(self) -> bool:
        """All pods on nodes tolerate what they should, or the policy leaves them alone: with ``NoExecute`` a node that
        is tainted before evicts them."""
        wanted = self._wanted()
        return self._facts.is_ready and (wanted is None or wanted == self._done_for)

    async def run(self) -> None:
        """Goes through the pods whenever it is needed, until cancelled; for the leader alone."""
        self._done_for = None
        while True:
            self._changed.clear()
            wanted = self._wanted() if self._facts.is_ready else None
            undone = False
            if wanted is not None and wanted != self._done_for:
                undone = not await self._round(wanted)
                self._done_for = self._done_for if undone else wanted
            try:
                async with deadline(self._clock, RETRY_INTERVAL if undone else None):
                    await self._changed.wait()
            except TimeoutError:
                continue

    def _wanted(self) -> TaintSettings | None:
        """The settings, as far as they decide about tolerations; None if pods on nodes are left alone."""
        settings = self._facts.settings
        if settings is None or settings.state != "active" or settings.running != "tolerate":
            return None
        return settings

    async def _round(self, wanted: TaintSettings) -> bool:
        """One look at all pods; whether nothing is left to do."""
        complete, token, written = True, "", 0
        try:
            while True:
                page = await self._client.list_page(PODS, BOUND, type=Pod, continue_token=token, limit=PAGE)
                for pod in page.objects:
                    if self._wanted() != wanted:
                        return False
                    result = await self._look_at(pod)
                    if result is None:
                        continue
                    written += result is PatchStatus.DONE
                    complete = complete and result is PatchStatus.DONE
                    await self._clock.sleep(1 / PER_SECOND)
                if not (token := page.continue_token):
                    break
        except KubernetesError as error:
            log.warning("pods on nodes could not be listed", error=str(error))
            return False
        log.info("pods on nodes were looked at", written=written, complete=complete)
        return complete

    async def _look_at(self, pod: Pod) -> PatchStatus | None:
        """None if the pod needs nothing; ``UNANSWERED`` as well if an image is not known."""
        facts = self._facts.about(pod, pod.metadata.namespace, stored=True)
        if facts is None:
            return PatchStatus.UNANSWERED
        case = examine(facts)
        if case.rule is not None:
            return None
        decision = await self._decision(case)
        result = PatchStatus.UNANSWERED if decision.unresolved else None
        if decision.outcome is TolerationOutcome.TOLERATED:
            metadata = pod.metadata
            operations = stored_patch(case, decision)
            write = await write_guarded(self._client, PODS, metadata.key, operations, metadata.resource_version)
            self._metrics.wrote("pod", COUNTED[write.result])
            if write.result is PatchStatus.DONE:
                self._metrics.decided(decision.reason.value)
                return result or PatchStatus.DONE
            return write.result
        return result

    async def _decision(self, case: Case) -> PodDecision:
        answers = await self._images.inspections(image_request(case))
        return decide(case, answers, TolerationLookupProgress.UNGUARDED)
