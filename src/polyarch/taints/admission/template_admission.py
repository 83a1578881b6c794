"""The templates of DaemonSets get their tolerations at admission (TN-050, TN-052, TN-053).

So a manifest that is applied again ends up as it was, and starts no rollout: the API server compares the template with
the stored one after this call. A template has no gate. If an image is not known in time, nothing is added, the user is
warned, and the leader of the role ``taints`` tries again; what we added to the same template before is kept meanwhile.
"""

from collections.abc import Callable
from typing import Final

import msgspec

from polyarch.kube.admission import AdmissionRequest, AdmissionResponse, Failure, Route
from polyarch.kube.resources import DAEMONSETS
from polyarch.objects import DaemonSet
from polyarch.pods.lookups.background import AdmissionLookups
from polyarch.pods.lookups.secrets import PullSource
from polyarch.taints import names
from polyarch.taints.decide.decision import Outcome, PodDecision, Reason
from polyarch.taints.decide.rules import Case, decide
from polyarch.taints.decide.templates import examine_template, kept
from polyarch.taints.lookups.facts import TaintFacts
from polyarch.taints.result.template_patch import recorded_tolerations, template_patch

BUDGET: Final = 2.0
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
        )

    async def handle(self, request: AdmissionRequest[DaemonSet]) -> AdmissionResponse:
        """The response for one DaemonSet, which is always allowed."""
        daemon_set, since = request.object, request.arrived_at
        facts = self._facts.about_template(daemon_set, request.namespace)
        if facts is None:
            return _UNCHANGED
        case = examine_template(facts)
        source = PullSource.of(case.pod, request.namespace)
        known = self._lookups.known(case.images, source, since=since, stale_for=facts.stale_for)
        if len(known) < len(case.images):
            until = since + min(BUDGET, request.timeout_seconds / 2)
            await self._lookups.ask_until(until, case.images, source, known, since=since)
        decision = decide(case, known)
        if decision.outcome is Outcome.BLOCKED and request.old_object is not None:
            decision = _with_kept(case, decision, request.old_object)
        patch = template_patch(daemon_set, decision, facts.settings)
        return AdmissionResponse(patch=patch, warnings=(decision.message,) if _is_worth_saying(decision) else ())

    def _count_failure(self, failure: Failure) -> None:
        if failure == "exception":
            self._failed()


def _with_kept(case: Case, decision: PodDecision, old: DaemonSet) -> PodDecision:
    """What cannot be decided now is as it was decided before, for the same images."""
    added = kept(case, old, recorded_tolerations(old.metadata.annotations))
    return msgspec.structs.replace(decision, outcome=Outcome.TOLERATED, added=added) if added else decision


def _is_worth_saying(decision: PodDecision) -> bool:
    return decision.outcome is Outcome.BLOCKED or decision.reason is Reason.NO_COMMON_ARCHITECTURE
