"""Reconciles gated pods: decides each and sends at most one PATCH.

A reconcile reads the pod from the cache, collects the inspections of its images, decides with the pure rules and
carries the decision out (``release``). A pod with unknown images waits in ``WaitingPods``; it is reconciled again when
an inspection arrives, a time limit passes, or facts change. Reconciles may be interrupted anywhere and repeated.

A standby reconciles the same pods a little later and writes only decisions with complete inspections. Giving up,
holding, failure labels and events belong to the leader. The ``test`` operations of the PATCH let only one writer win.
"""

import random as _random
from collections import Counter
from collections.abc import Awaitable, Callable, Hashable, Iterable, Mapping
from typing import Final

import structlog

from polyarch.clock import Clock
from polyarch.images import backoff
from polyarch.images.lookup_runner import PodImageResolver, PodImageState
from polyarch.images.pod_mutation import PodMutator
from polyarch.images.pull_secrets import PullSecretNames, PullSecretReader, PullSecrets
from polyarch.images.resolver import ImageInspector
from polyarch.images.waiting import WaitingPods, failure_of
from polyarch.kube.controller import NoRequeue, OutageBackoff, Patches, RequeueAfter, Result
from polyarch.kube.errors import KubernetesError, SeenErrors
from polyarch.kube.store import Store
from polyarch.objects import ObjectKey, Pod, oldest_by_namespace
from polyarch.placement import names
from polyarch.placement.decision import LookupProgress, PlacementOutcome
from polyarch.placement.facts import ClusterFacts, NamespaceFacts, image_request
from polyarch.placement.metrics import PlacementMetrics
from polyarch.placement.patch import has_gate
from polyarch.placement.pod_state import REFUSED, PodRefusals, PodState, RefusalMemory, Standby
from polyarch.placement.release import DecisionContext, DecisionWriter, PostEvent
from polyarch.placement.rules import ExaminedPod, WaitingTime, decide, decide_after, examine

log = structlog.get_logger(__name__)

FACTS_REQUEUE_DELAY: Final = 5.0
"""Seconds until the next reconcile while facts are not complete. Their arrival requeues the pods; this is a
fallback, and long enough for ten thousand waiting pods."""
NAMESPACE_TIMEOUT: Final = 5.0
"""How long a pod waits for its Namespace before the policy's ``spec`` is used."""


class PodController:
    """Reconciles one gated pod per call; the other methods are notifications of changes."""

    def __init__(
        self,
        *,
        pods: "GatedPods",
        facts: ClusterFacts,
        secrets: PullSecrets,
        reads: PullSecretReader,
        inspector: ImageInspector,
        waiting: WaitingPods,
        client: Patches,
        post: PostEvent,
        enqueue: Callable[[ObjectKey], None],
        clock: Clock,
        metrics: PlacementMetrics,
        is_leading: Callable[[], bool],
        is_connected: Callable[[], bool] = lambda: True,
        uniform: Callable[[], float] = _random.random,
        mutator: PodMutator | None = None,
    ) -> None:
        """``is_connected``: whether the watch of pods works. ``mutator`` go into the PATCH of a release."""
        self._pods = pods
        self._facts = facts
        self._secrets = secrets
        self._waiting = waiting
        self._enqueue = enqueue
        self._clock = clock
        self._metrics = metrics
        self._is_leading = is_leading
        self._uniform = uniform
        self._image_resolver = PodImageResolver(inspector, secrets, reads, waiting, clock)
        self._outage = OutageBackoff(enqueue, uniform)
        self._writer = DecisionWriter(
            client=client,
            post=post,
            clock=clock,
            metrics=metrics,
            is_leading=is_leading,
            is_connected=is_connected,
            outage=self._outage,
            uniform=uniform,
            mutator=mutator,
        )
        self._standby = Standby(uniform)
        self._states: dict[ObjectKey, PodState] = {}
        self._refusals = RefusalMemory()
        self._causes = SeenErrors()
        facts.on_change(self.facts_changed)

    # -- notifications ------------------------------------------------------------------------------------------------

    def facts_changed(self, namespace: str | None) -> None:
        """Requeues the affected gated pods at once."""
        if namespace is None:
            self._secrets.allow(self._facts.table.spec.images_secret_access == "byName")
            self._waiting.hasten(lambda lookup: lookup.held)
        for key in list(self._pods.keys()):
            if namespace is None or key.namespace == namespace:
                self._enqueue(key)

    def credentials_changed(self) -> None:
        """The global pull secret changed: images that failed with ``auth`` are retried, and answers obtained
        with the former secret are not used for any pod."""
        self._refusals.clear()
        self._waiting.revoke()
        self._waiting.hasten(lambda lookup: lookup.failure == "auth")

    def registries_changed(self) -> None:
        """Mirrors, blocked hosts or certificates changed: failed images are retried.

        Not those that a registry rate-limits: they wait as it asked.
        """
        self._refusals.clear()
        self._waiting.hasten(lambda lookup: lookup.failure not in ("", "limit"))

    def started_leading(self) -> None:
        """This replica leads now: it gives up, holds and posts events; images that failed before are retried once."""
        self._waiting.confirm()
        self.facts_changed(None)

    @property
    def held(self) -> int:
        """Number of pods held by policy, or because the API server rejects their release."""
        return sum(state.held_since is not None for state in self._states.values())

    def held_by_namespace(self) -> Mapping[str, int]:
        """The same by namespace."""
        return Counter(key.namespace for key, state in self._states.items() if state.held_since is not None)

    def oldest_gates(self) -> Mapping[str, float]:
        """By namespace, seconds since the oldest pod was created that has our gate and is not held."""
        held = {key for key, state in self._states.items() if state.held_since is not None}
        known = (self._pods.get(key) for key in set(self._pods.keys()) - held)
        return oldest_by_namespace((pod for pod in known if pod is not None and has_gate(pod)), self._clock.now())

    # -- reconcile -----------------------------------------------------------------------------------------------------

    async def reconcile(self, key: ObjectKey) -> Result:
        """Reconciles one pod."""
        started = self._clock.monotonic()
        try:
            return await self._reconcile(key)
        except Exception as error:  # noqa: BLE001 - an internal error for one pod must not stop the others
            return await self._fail(key, error)
        finally:
            self._metrics.process_pod.observe(self._clock.monotonic() - started)

    async def _reconcile(self, key: ObjectKey) -> Result:
        pod = self._pods.get(key)
        if pod is None or pod.metadata.deletion_timestamp is not None or not has_gate(pod):
            self._forget(key)
            return NoRequeue()
        now = self._clock.monotonic()
        state = self._remember(key, pod, now)
        if state.patches.is_written_from(pod.metadata.resource_version):
            return _after(state.patches.wait_for_event(now))
        leading = self._is_leading()
        if not leading and (rest := state.seen_at + state.standby_delay - now) > 0:
            return RequeueAfter(rest)
        facts = self._facts_for(key.namespace, state, now)
        if isinstance(facts, RequeueAfter):
            return facts
        case = examine(facts.about(pod, key.namespace, stored=True))
        known = self._image_resolver.resolve(image_request(case), key, state)
        if known is None:
            return NoRequeue()
        if known.undecidable:
            self._park(key, state, known)
            return NoRequeue()
        now = self._clock.monotonic()
        put_off = state.retry_window.put_off(now, pending=known.pending)
        if leading:
            refused = self._refused(case, known, state, now)
            waited = WaitingTime(
                state.retry_window.elapsed(now), put_off is not None, state.held_since is not None, refused.in_vain
            )
            decision = decide_after(case, known.inspections, waited)
            if decision.outcome in (PlacementOutcome.PLACED, PlacementOutcome.HELD):
                refused.remember(decision.unresolved, case.settings)
        else:
            decision = decide(case, known.inspections, LookupProgress.WAITING)
        context = DecisionContext(key, case, decision, state, known.problems, known.inspections)
        if decision.outcome is PlacementOutcome.PLACED:
            result = await self._place(context, leading=leading)
        else:
            self._park(key, state, known, held=decision.outcome is PlacementOutcome.HELD)
            result = await self._writer.keep(context, now=now) if leading else NoRequeue()
            result = result if put_off is None or not leading else _sooner(result, put_off)
        if not state.patches.awaits_event:
            state.succeeded()
        return result

    def _refused(self, case: ExaminedPod, known: PodImageState, state: PodState, now: float) -> PodRefusals:
        """What is remembered of the repositories that refuse this pod's images. An answer ends that."""
        credentials = self._secrets.cached(PullSecretNames.of(case.pod, case.facts.namespace))
        if credentials is None:
            return PodRefusals(self._refusals, case.facts.namespace, {}, {}, now)
        keys: dict[str, Hashable] = {}
        for use in case.images:
            if use.reference is None or (inspection := known.inspections.get(use.text)) is None:
                continue
            key = (use.reference.name, credentials.fingerprint)
            if inspection.error is not None and inspection.error.code in REFUSED:
                keys[use.text] = key
            elif not failure_of(inspection):
                self._refusals.forget(case.facts.namespace, key)
        others = known.inspections.keys() - keys.keys()
        return PodRefusals(self._refusals, case.facts.namespace, keys, state.refused_for(keys, others, now), now)

    def _park(self, key: ObjectKey, state: PodState, known: PodImageState, *, held: bool = False) -> None:
        state.waited = True
        self._waiting.park(key, (want._replace(held=held) for want in (*known.wants, *known.answered)))

    async def _place(self, context: DecisionContext, *, leading: bool) -> Result:
        if not leading and (context.case.rule is not None or context.decision.unresolved):
            return NoRequeue()
        now = self._clock.monotonic()
        if not leading and (rest := self._standby.leave_to_others(context.state, now)) > 0:
            return RequeueAfter(rest)
        again = await self._writer.release(context)
        if again is not None:
            return again
        self._waiting.leave(context.key)
        return NoRequeue()

    def _remember(self, key: ObjectKey, pod: Pod, now: float) -> PodState:
        state = self._states.get(key)
        if state is None or state.uid != pod.metadata.uid:
            self._waiting.leave(key)
            state = self._states[key] = PodState(pod.metadata.uid, now, standby_delay=self._standby.delay())
        return state

    def _forget(self, key: ObjectKey) -> None:
        self._waiting.leave(key)
        self._outage.leaves(key)
        state = self._states.pop(key, None)
        if state is not None:
            self._standby.pod_went(state, self._clock.monotonic())

    def _facts_for(self, namespace: str, state: PodState, now: float) -> NamespaceFacts | RequeueAfter:
        """The facts for this pod, or when to reconcile again while some are not known yet."""
        if not self._facts.is_complete:
            return RequeueAfter(FACTS_REQUEUE_DELAY)
        if self._facts.of(namespace).settings.provisional and (left := state.seen_at + NAMESPACE_TIMEOUT - now) > 0:
            return RequeueAfter(left)
        return self._facts.settled(namespace)

    # -- internal errors ----------------------------------------------------------------------------------------------

    async def _fail(self, key: ObjectKey, error: Exception) -> Result:
        """Treats an internal error as a transient failure of the pod, limited by its retry window."""
        self._metrics.internal_errors.inc()
        log.error("a pass over a pod met a bug", pod=str(key), exc_info=error if self._causes.is_new(error) else None)
        pod, state = self._pods.get(key), self._states.get(key)
        if pod is None or state is None:
            return RequeueAfter(backoff.MAX_DELAY)
        lasts = state.failed(self._clock.monotonic())
        settings = self._facts.settled(key.namespace).settings
        ended = self._is_leading() and lasts >= settings.retry_window
        later = RequeueAfter(backoff.delay(state.failures, uniform=self._uniform()))
        if not ended:
            return later
        again = await self._writer.give_up_undecided(key, pod, state, settings, lasts=lasts, later=later)
        if again is not None:
            return again
        self._waiting.leave(key)
        return NoRequeue()


def _after(seconds: float | None) -> Result:
    return NoRequeue() if seconds is None else RequeueAfter(seconds)


def _sooner(result: Result, seconds: float) -> RequeueAfter:
    return RequeueAfter(min(result.seconds, seconds) if isinstance(result, RequeueAfter) else seconds)


# -- the pods with our gate that this process knows --------------------------------------------------------------------
# The watch selects pods with the label ``gated``, so other pods are not cached. A pod can have our gate without that
# label, a stray: the label was removed, the namespace is outside the selector, or the gate is in a template. So once a
# minute the leader lists Pending pods without a node and without the label, and adds those with our gate.

GATED_SELECTOR: Final = f"{names.SCHEDULING_GATE_LABEL}={names.GATED}"
STRAY_SELECTOR: Final = f"{names.SCHEDULING_GATE_LABEL}!={names.GATED}"
UNSCHEDULED: Final = "status.phase=Pending,spec.nodeName="
LIST_INTERVAL: Final = 60.0


class GatedPods:
    """Labelled pods and strays together: the pods that the controller reconciles."""

    def __init__(self, store: Store[Pod]) -> None:
        self._store = store
        self._strays: dict[ObjectKey, Pod] = {}

    def get(self, key: ObjectKey) -> Pod | None:
        return self._store.get(key) or self._strays.get(key)

    def keys(self) -> list[ObjectKey]:
        return list({**dict.fromkeys(self._store.keys()), **dict.fromkeys(self._strays)})

    def take_strays(self, strays: Mapping[ObjectKey, Pod]) -> list[ObjectKey]:
        """Replaces the strays; returns the keys that are new, changed or gone."""
        before, self._strays = self._strays, dict(strays)
        return [
            key
            for key in {**before, **strays}
            if key not in strays
            or key not in before
            or before[key].metadata.resource_version != strays[key].metadata.resource_version
        ]

    def outdated(self, key: ObjectKey) -> None:
        """The watch has delivered this pod, so the version from the last list is outdated."""
        self._strays.pop(key, None)

    def count(self) -> int:
        """How many pods have our gate now."""
        labelled = sum(map(has_gate, self._store.values()))
        return labelled + sum(self._store.get(key) is None for key in self._strays)


class StrayGates:
    """Finds gates without our label; ``list_unlabelled`` lists candidates from the API server."""

    def __init__(
        self,
        pods: GatedPods,
        list_unlabelled: Callable[[], Awaitable[Iterable[Pod]]],
        *,
        enqueue: Callable[[ObjectKey], None],
        is_leading: Callable[[], bool],
        clock: Clock,
        metrics: PlacementMetrics,
    ) -> None:
        self._pods = pods
        self._list = list_unlabelled
        self._enqueue = enqueue
        self._is_leading = is_leading
        self._clock = clock
        self._metrics = metrics
        self._known: frozenset[str] = frozenset()
        """Uids of the strays of the last list: each is counted and logged once, however often it changes."""
        self._causes = SeenErrors()
        self._listed_at = float("-inf")

    async def run(self) -> None:
        """Lists every minute until cancelled. A standby keeps no strays: those it found as the leader get outdated."""
        while True:
            rest = self._listed_at + LIST_INTERVAL - self._clock.monotonic()
            if rest <= 0:
                if self._is_leading():
                    await self.look()
                else:
                    for key in self._pods.take_strays({}):
                        self._enqueue(key)
                rest = LIST_INTERVAL
            await self._clock.sleep(rest)

    async def look(self) -> list[Pod] | None:
        """Lists once, and returns what was listed, for the sweep. An API or internal error leaves everything unchanged
        until the next time; then None."""
        self._listed_at = self._clock.monotonic()
        try:
            listed = list(await self._list())
            strays = {pod.metadata.key: pod for pod in listed if has_gate(pod)}
        except KubernetesError as error:
            log.warning("pods without our label could not be listed", error=str(error))
            return None
        except Exception as error:  # an internal error must not end the loop or the process
            self._metrics.internal_errors.inc()
            log.error(
                "looking for pods without our label met a bug",
                exc_info=error if self._causes.is_new(error) else None,
            )
            return None
        self._tell_of(strays)
        for key in self._pods.take_strays(strays):
            self._enqueue(key)
        return listed

    def _tell_of(self, strays: Mapping[ObjectKey, Pod]) -> None:
        for key, pod in strays.items():
            if pod.metadata.uid not in self._known:
                self._metrics.stray_gates.inc()
                log.info("a pod carries our gate without our label", pod=str(key))
        self._known = frozenset(pod.metadata.uid for pod in strays.values())
