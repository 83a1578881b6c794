"""The controller of DaemonSets: each template gets the tolerations that its images justify.

A pass decides as the admission of templates does. What is to be added waits for its turn (``daemonset_rollouts``),
since it replaces all pods; nothing is written to a template that lacks nothing. While an answer is missing nothing is
added, and the template waits for the answer like a pod. Only the leader works.
"""

import random as _random
from collections.abc import Callable, Iterable
from typing import Final, Protocol

import msgspec
import structlog

from polyarch.clock import Clock
from polyarch.images import backoff
from polyarch.images.lookup_runner import PodImageState
from polyarch.kube.controller import NoRequeue, Patches, PatchStatus, RequeueAfter, Result, write_guarded
from polyarch.kube.errors import KubernetesError
from polyarch.kube.rbac import rule
from polyarch.kube.requests import ListOptions
from polyarch.kube.resources import DAEMONSETS, PODS, Resource
from polyarch.kube.watch import Page
from polyarch.objects import DaemonSet, LocalObjectReference, Node, ObjectKey, Pod
from polyarch.taints import daemonset_rollouts
from polyarch.taints.api import Problem, StatusPart
from polyarch.taints.daemonset_rollouts import (
    SLOW,
    TAKEN_BACK,
    RewriteBackoff,
    RolloutQueue,
    TemplateDecision,
    verdict_of,
)
from polyarch.taints.decision import PodDecision, Reason
from polyarch.taints.events import events_for, with_problems
from polyarch.taints.facts import TaintFacts
from polyarch.taints.image_waiting import ImageWaiting, WaitingObject, image_request, waiter_of
from polyarch.taints.metrics import COUNTED, TaintMetrics
from polyarch.taints.patch import stored_template_patch
from polyarch.taints.pod_rules import Case, TemplateFacts, assess, decide, examine_template
from polyarch.taints.settings import TaintSettings

log = structlog.get_logger(__name__)

# -- pull secrets that a DaemonSet's pods have and its template does not name ------------------------------------------
# The API server adds those of the ServiceAccount when it admits a pod, and the role may not read ServiceAccounts. So
# for a template whose images fail with ``auth`` a pod of the DaemonSet is looked at, now and then.

SECRETS_EVERY: Final = 60.0
"""Seconds between two looks for one DaemonSet."""
LOOKED_AT: Final = 20
"""Pods that are listed: others may have the same labels."""


class ListsPods(Protocol):
    """The part of the client that is needed here."""

    async def list_page(
        self, resource: Resource, selection: ListOptions, *, type: type[Pod], continue_token: str = "", limit: int = ...
    ) -> Page[Pod]: ...


class PodPullSecrets:
    """What was found, by DaemonSet."""

    def __init__(self, client: ListsPods, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._found: dict[ObjectKey, tuple[str, ...]] = {}
        self._looked_at: dict[ObjectKey, float] = {}

    def given_to(self, key: ObjectKey, pod: Pod) -> Pod:
        """The pod of a template with the pull secrets that its like have."""
        own = [each.name for each in pod.spec.image_pull_secrets or ()]
        more = [name for name in self._found.get(key, ()) if name not in own]
        if not more:
            return pod
        secrets = [LocalObjectReference(name=name) for name in (*own, *more)]
        return msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, image_pull_secrets=secrets))

    async def look(self, daemon_set: DaemonSet) -> bool:
        """Whether its pods have others than were known. At most once a minute, and never raises."""
        key, now = daemon_set.metadata.key, self._clock.monotonic()
        if now - self._looked_at.get(key, float("-inf")) < SECRETS_EVERY or daemon_set.spec.selector is None:
            return False
        self._looked_at[key] = now
        selection = ListOptions(key.namespace, daemon_set.spec.selector.query)
        try:
            page = await self._client.list_page(PODS, selection, type=Pod, limit=LOOKED_AT)
        except KubernetesError as error:
            log.warning("pods of a DaemonSet could not be listed", daemon_set=str(key), error=str(error))
            return False
        for pod in page.objects:
            if any(owner.uid == daemon_set.metadata.uid for owner in pod.metadata.owner_references or ()):
                names = tuple(each.name for each in pod.spec.image_pull_secrets or ())
                if names != self._found.get(key, ()):
                    self._found[key] = names
                    return True
                return False
        return False

    def forget(self, key: ObjectKey) -> None:
        """The DaemonSet is gone."""
        self._found.pop(key, None)
        self._looked_at.pop(key, None)


# -- the controller ----------------------------------------------------------------------------------------------------

RIGHTS: Final = (rule(DAEMONSETS, "get", "list", "watch", "patch"),)
"""RBAC rules of the role for DaemonSets."""
FACTS_AGAIN: Final = 5.0
MOVED_ON: Final = 5.0
REFUSED: Final = 60.0
"""Seconds until a template is tried again whose change the API server refuses; others go on meanwhile."""


class TemplateClient(Patches, ListsPods, Protocol):
    """The part of the client that is needed here."""


class Watched(Protocol):
    """The DaemonSets of the cluster."""

    def get(self, key: ObjectKey) -> DaemonSet | None: ...

    def known(self) -> list[ObjectKey]: ...


class Posts(Protocol):
    """Posts an event about a DaemonSet some time later; never waits."""

    def __call__(self, daemon_set: DaemonSet, *, reason: str, note: str, action: str) -> None: ...


class TemplateController:
    """One DaemonSet per call of :meth:`reconcile`. ``nodes``: those of the cluster, as they are."""

    def __init__(
        self,
        *,
        daemon_sets: Watched,
        nodes: Callable[[], Iterable[Node]],
        facts: TaintFacts,
        images: ImageWaiting,
        client: TemplateClient,
        post: Posts,
        note_write: Callable[[ObjectKey, str], None],
        enqueue: Callable[[ObjectKey], None],
        clock: Clock,
        metrics: TaintMetrics,
        is_leading: Callable[[], bool],
        is_connected: Callable[[], bool] = lambda: True,
        uniform: Callable[[], float] = _random.random,
    ) -> None:
        self._daemon_sets = daemon_sets
        self._nodes = nodes
        self._facts = facts
        self._images = images
        self._client = client
        self._post = post
        self._note_write = note_write
        self._enqueue = enqueue
        self._clock = clock
        self._metrics = metrics
        self._is_leading = is_leading
        self._is_connected = is_connected
        self._uniform = uniform
        self._turns = RolloutQueue(enqueue)
        self._rewrites = RewriteBackoff()
        self._pull_secrets = PodPullSecrets(client, clock)
        self._verdicts: dict[ObjectKey, TemplateDecision] = {}
        self._waiters: dict[ObjectKey, WaitingObject] = {}
        self._unanswered = 0
        facts.on_change(self.facts_changed)

    # -- notifications ------------------------------------------------------------------------------------------------

    def facts_changed(self, namespace: str | None) -> None:
        """Looks at the DaemonSets concerned again, at once."""
        for key in self._daemon_sets.known():
            if namespace is None or key.namespace == namespace:
                self._verdicts.pop(key, None)
                self._enqueue(key)

    async def started_leading(self) -> None:
        """This replica leads now: every template is judged before the first is changed."""
        self._turns.start_again()
        self._verdicts.clear()
        self.facts_changed(None)

    # -- what others read ----------------------------------------------------------------------------------------------

    @property
    def all_judged(self) -> bool:
        """Every DaemonSet has been looked at since this replica leads, with the facts as they are, and each of its
        images has answered or failed. One that is being deleted has nothing to say, however long its finalizers keep
        it."""
        for key in self._daemon_sets.known():
            verdict = self._verdicts.get(key)
            if (verdict is None or verdict.is_pending) and not self._is_leaving(key):
                return False
        return True

    def _is_leaving(self, key: ObjectKey) -> bool:
        daemon_set = self._daemon_sets.get(key)
        return daemon_set is None or daemon_set.metadata.deletion_timestamp is not None

    def uncovered(self, architecture: str) -> list[str] | None:
        """The DaemonSets that hold back the taint of an architecture; None: not all are judged yet."""
        if not (self._is_leading() and self._facts.is_ready and self.all_judged):
            return None
        return daemonset_rollouts.uncovered(self._verdicts.values(), architecture, self._nodes())

    @property
    def blocked(self) -> int:
        """Number of templates that cannot be decided, or that no node can run."""
        return sum(each.is_blocked for each in self._verdicts.values())

    def contribution(self) -> StatusPart:
        """For the status."""
        several = self._verdicts.values()
        return StatusPart(
            fields=daemonset_rollouts.fields(several),
            conditions=(daemonset_rollouts.condition(several),),
            problems=(
                *(Problem(SLOW, _slow_note(key)) for key in self._turns.slow),
                *(Problem(TAKEN_BACK, _taken_back_note(key)) for key in self._rewrites.contested),
            ),
        )

    # -- passes --------------------------------------------------------------------------------------------------------

    async def reconcile(self, key: ObjectKey) -> Result:
        """One pass over one DaemonSet."""
        daemon_set = self._daemon_sets.get(key)
        if daemon_set is None or daemon_set.metadata.deletion_timestamp is not None:
            self._forget(key)
            self._call()
            return NoRequeue()
        if not self._is_leading():
            return NoRequeue()
        if not self._facts.is_ready:
            return RequeueAfter(FACTS_AGAIN)
        facts = self._facts.about_template(daemon_set, key.namespace)
        if facts is None:
            self._forget(key)
            return NoRequeue() if self._facts.settings is None else RequeueAfter(FACTS_AGAIN)
        waiter = self._waiter(key, daemon_set)
        again = self._watch(daemon_set, facts.settings)
        result = await self._judge(key, facts, waiter)
        self._call()
        return result if again is None else _sooner(result, again)

    def _watch(self, daemon_set: DaemonSet, settings: TaintSettings) -> float | None:
        """How far its rollout is; seconds until it takes too long."""
        key, now, limit = daemon_set.metadata.key, self._clock.monotonic(), settings.rollout_timeout
        left = self._turns.observe(daemon_set, now, limit=limit)
        if self._turns.is_too_slow(key, now, limit=limit):
            log.warning("a DaemonSet takes long to replace its pods", daemon_set=str(key))
            self._post(daemon_set, reason=SLOW, note=f"{_slow_note(key)}.", action="Wait")
        return left

    async def _judge(self, key: ObjectKey, facts: TemplateFacts, waiter: WaitingObject) -> Result:
        case = self._with_pull_secrets(key, examine_template(_as_if_reconciled(facts)))
        known = PodImageState({})
        if case.rule is None:
            found = self._images.inquiry.resolve(image_request(case), waiter_of(key), waiter)
            if found is None:
                return NoRequeue()  # its pull secrets are being read, which wakes it
            known = found
        if known.undecidable:
            self._verdicts[key] = TemplateDecision(
                key, case.pod, Reason.ARCHITECTURE_UNKNOWN, is_unknown=True, is_pending=True
            )
            return self._park(key, known)
        decision = decide(case, known.inspections)
        possible = assess(case, known.inspections).known.managed if case.rule is None else frozenset()
        verdict = verdict_of(key, case.pod, decision, possible & facts.settings.tainted, is_pending=known.pending)
        self._verdicts[key] = verdict
        if _fails_with_auth(decision) and await self._pull_secrets.look(facts.daemon_set):
            return await self._judge(key, facts, waiter)
        self._tell(facts.daemon_set, decision, waiter, known.problems)
        if decision.unresolved:
            return self._park(key, known)
        self._images.waiting.leave(waiter_of(key))
        if not decision.added or facts.settings.templates != "reconcile":
            self._turns.leave(key)
            return NoRequeue()
        if rest := self._rewrites.rest(key, decision.added, self._clock.monotonic()):
            self._turns.leave(key)
            return RequeueAfter(rest)
        self._turns.line_up(key)
        most = facts.settings.max_concurrent_rollouts
        if not self.all_judged or not self._turns.is_turn_of(key, most=most):
            return NoRequeue()  # it is called when its turn comes
        return await self._write(case, facts.daemon_set, decision)

    def _with_pull_secrets(self, key: ObjectKey, case: Case) -> Case:
        pod = self._pull_secrets.given_to(key, case.pod)
        if pod is case.pod:
            return case
        return msgspec.structs.replace(case, facts=msgspec.structs.replace(case.facts, pod=pod))

    def _park(self, key: ObjectKey, known: PodImageState) -> Result:
        """The template waits for answers, and in line for nothing."""
        self._turns.leave(key)
        self._images.waiting.park(waiter_of(key), (*known.wants, *known.answered))
        return NoRequeue()

    async def _write(self, case: Case, daemon_set: DaemonSet, decision: PodDecision) -> Result:
        metadata = daemon_set.metadata
        operations = stored_template_patch(daemon_set, decision, case.settings)
        write = await write_guarded(
            self._client,
            DAEMONSETS,
            metadata.key,
            operations,
            metadata.resource_version,
            is_connected=self._is_connected,
        )
        self._metrics.wrote("daemonset", COUNTED[write.result])
        match write.result:
            case PatchStatus.DONE:
                self._unanswered = 0
                self._note_write(metadata.key, write.version)
                now = self._clock.monotonic()
                self._turns.begin(metadata.key, now)
                self._rewrites.wrote(metadata.key, decision.added, now)
                self._verdicts[metadata.key] = TemplateDecision(metadata.key, case.pod, decision.reason)
                if metadata.key in self._rewrites.contested:
                    note = f"{_taken_back_note(metadata.key)}."
                    self._post(daemon_set, reason=TAKEN_BACK, note=note, action="AddTolerations")
                log.info("a template got tolerations", daemon_set=str(metadata.key), architectures=decision.added)
                return NoRequeue()
            case PatchStatus.MOVED_ON:
                return RequeueAfter(MOVED_ON)
            case PatchStatus.REFUSED:
                self._turns.leave(metadata.key)
                log.warning(
                    "the API server refuses to change a template", daemon_set=str(metadata.key), error=str(write.error)
                )
                return RequeueAfter(REFUSED)
        self._unanswered += 1
        return RequeueAfter(backoff.delay(self._unanswered, uniform=self._uniform()))

    def _tell(
        self, daemon_set: DaemonSet, decision: PodDecision, waiter: WaitingObject, problems: tuple[str, ...]
    ) -> None:
        """The events of a decision, each cause once; ``problems`` are those of the pull secrets."""
        for event in with_problems(events_for(decision), problems):
            if waiter.is_news(event.reason.value, event.cause):
                self._post(daemon_set, reason=event.reason.value, note=event.note, action=event.action)

    def _call(self) -> None:
        settings = self._facts.settings
        if settings is not None and self.all_judged:
            self._turns.call(most=settings.max_concurrent_rollouts)

    def _waiter(self, key: ObjectKey, daemon_set: DaemonSet) -> WaitingObject:
        waiter = self._waiters.get(key)
        if waiter is None or waiter.uid != daemon_set.metadata.uid:
            self._forget(key)
            waiter = self._waiters[key] = WaitingObject(daemon_set.metadata.uid, self._clock.monotonic())
        return waiter

    def _forget(self, key: ObjectKey) -> None:
        self._waiters.pop(key, None)
        self._verdicts.pop(key, None)
        self._turns.forget(key)
        self._rewrites.forget(key)
        self._pull_secrets.forget(key)
        self._images.waiting.leave(waiter_of(key))


def _as_if_reconciled(facts: TemplateFacts) -> TemplateFacts:
    """Whether a template is covered does not depend on who is to change it."""
    if facts.settings.templates == "reconcile":
        return facts
    return msgspec.structs.replace(facts, settings=msgspec.structs.replace(facts.settings, templates="reconcile"))


def _fails_with_auth(decision: PodDecision) -> bool:
    return any(finding.error_class == "auth" for finding in decision.unresolved)


def _slow_note(key: ObjectKey) -> str:
    return (
        f"DaemonSet {key} has not replaced all its pods within spec.daemonSets.rolloutTimeout; no further template is "
        "changed until it has, or until polyarch taint apply --continue"
    )


def _taken_back_note(key: ObjectKey) -> str:
    return (
        f"somebody takes the tolerations of DaemonSet {key} away again and again, each time for a rollout: write them "
        "into its manifest, or have the webhook of templates called for its namespace"
    )


def _sooner(result: Result, seconds: float) -> RequeueAfter:
    return RequeueAfter(min(result.seconds, seconds) if isinstance(result, RequeueAfter) else seconds)
