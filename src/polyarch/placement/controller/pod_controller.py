"""Finishes gated pods: facts and answers in, at most one PATCH out (PL-300 to PL-335, PL-530).

A pass looks at the pod as it is in the store, finds out what is known of its images (``inquiry``), decides with the
pure rules and carries that out (``releases``). A pod whose images are not known yet is parked in ``Waiting`` and the
pass ends; it comes back when an answer is there, when time alone changes what is to be done, or when facts change.
Every pass may be cut off anywhere and repeated.

A standby runs the same passes a little later and writes only what rests on complete answers; giving up, holding,
failure labels and events are the leader's. The tests in the PATCH let at most one of theirs win.
"""

import random as _random
from collections.abc import Callable, Iterable
from typing import Final, Protocol

import structlog

from polyarch.kube.causes import Causes
from polyarch.kube.clock import Clock
from polyarch.kube.runtime.controller import After, Done, Result
from polyarch.model.meta import Key
from polyarch.model.pod import Pod
from polyarch.oci.answer import Inspection
from polyarch.placement.controller.gated import IN_LINE, GatedPod, carries_gate
from polyarch.placement.controller.inquiry import Inquiry
from polyarch.placement.controller.releases import Decided, Posts, Releases
from polyarch.placement.controller.standby import Standby
from polyarch.placement.controller.writing import WritesPods
from polyarch.placement.decide import retry
from polyarch.placement.decide.decision import Decision, Outcome, Progress, Reason
from polyarch.placement.decide.rules import Case, Facts, decide, examine
from polyarch.placement.lookups.answers import Inspects
from polyarch.placement.lookups.facts import ClusterFacts, PodFacts
from polyarch.placement.lookups.secrets import PullSecrets
from polyarch.placement.lookups.waiting import Lookup, Waiting, Want
from polyarch.placement.metrics import PlacementMetrics

log = structlog.get_logger(__name__)

FACTS_AGAIN: Final = 5.0
"""When to look again while facts are still on their way (PL-301). Their arrival is told; this is for the case that it
should be missed, and long enough for ten thousand pods that wait for it."""
NAMESPACE_WAIT: Final = 5.0
"""How long the Namespace of a pod is waited for before the policy's ``spec`` counts (PL-117)."""
CONFIRMED_WITHIN: Final = IN_LINE
"""How long a new leader goes without judging by a failure that it has not seen again: as long as an image may stand in
line to be asked for, because that is what it may have to do."""
TAG_TTL: Final = 600.0


class Pods(Protocol):
    """Pods that carry our gate, as far as they are known."""

    def get(self, key: Key) -> Pod | None: ...

    def keys(self) -> Iterable[Key]: ...


class PodController:
    """``reconcile`` is the pass; the rest tells it that something changed."""

    def __init__(
        self,
        *,
        pods: Pods,
        facts: ClusterFacts,
        secrets: PullSecrets,
        inspector: Inspects,
        waiting: Waiting,
        client: WritesPods,
        post: Posts,
        enqueue: Callable[[Key], None],
        clock: Clock,
        metrics: PlacementMetrics,
        is_leading: Callable[[], bool],
        tag_ttl: float = TAG_TTL,
        uniform: Callable[[], float] = _random.random,
    ) -> None:
        self._pods = pods
        self._facts = facts
        self._secrets = secrets
        self._waiting = waiting
        self._enqueue = enqueue
        self._clock = clock
        self._metrics = metrics
        self._is_leading = is_leading
        self._uniform = uniform
        self._inquiry = Inquiry(inspector, secrets, waiting, clock, tag_ttl=tag_ttl)
        self._releases = Releases(
            client=client, post=post, clock=clock, metrics=metrics, is_leading=is_leading, uniform=uniform
        )
        self._standby = Standby(uniform)
        self._leading_since = float("-inf")
        self._memories: dict[Key, GatedPod] = {}
        self._causes = Causes()
        facts.on_change(self.facts_changed)

    # -- what others tell ----------------------------------------------------------------------------------------------

    def facts_changed(self, namespace: str | None) -> None:
        """Decides the gated pods concerned again, at once (PL-044, PL-334)."""
        if namespace is None:
            self._secrets.allow(self._facts.table.spec.images_secret_access == "byName")
            self._waiting.hasten(lambda lookup: lookup.held)
        for key in list(self._pods.keys()):
            if namespace is None or key.namespace == namespace:
                self._enqueue(key)

    def credentials_changed(self) -> None:
        """The global pull secret is another one: who was refused is asked for again (PL-333)."""
        self._waiting.hasten(lambda lookup: lookup.failure == "auth")

    def registries_changed(self) -> None:
        """Mirrors, blocked hosts or certificates are others: what failed may be there now, from elsewhere (PL-424).

        Not what a registry asked us to wait for: it did not ask the new configuration to wait.
        """
        self._waiting.hasten(lambda lookup: lookup.failure not in ("", "limit"))

    def started_leading(self) -> None:
        """From now on insisting, giving up, holding and telling are ours; what failed before is asked for once more."""
        self._leading_since = self._clock.monotonic()
        self._waiting.confirm()
        self.facts_changed(None)

    @property
    def held(self) -> int:
        """Pods that are held because the policy says so, or because the API server refuses what would release them."""
        return sum(memory.held_since is not None for memory in self._memories.values())

    # -- the pass ------------------------------------------------------------------------------------------------------

    async def reconcile(self, key: Key) -> Result:
        """Looks at one pod and does what is to be done now."""
        started = self._clock.monotonic()
        try:
            return await self._pass(key)
        except Exception as error:  # noqa: BLE001 - one pod that meets a bug of ours must not stop the others (PL-306)
            return await self._fault(key, error)
        finally:
            self._metrics.process_pod.observe(self._clock.monotonic() - started)

    async def _pass(self, key: Key) -> Result:
        pod = self._pods.get(key)
        if pod is None or pod.metadata.deletion_timestamp is not None or not carries_gate(pod):
            self._forget(key)
            return Done()
        now = self._clock.monotonic()
        memory = self._remember(key, pod, now)
        if memory.written_from == pod.metadata.resource_version:
            return self._releases.wait_for_event(memory)
        leading = self._is_leading()
        if not leading and (rest := memory.seen_at + memory.standby_delay - now) > 0:
            return After(rest)
        facts = self._facts_for(key.namespace, memory, now)
        if isinstance(facts, After):
            return facts
        case = examine(
            Facts(
                pod=pod,
                namespace=key.namespace,
                settings=facts.settings,
                sources=facts.sources,
                stored=True,
                nodes=facts.nodes,
            )
        )
        known = await self._inquiry.about(case, memory)
        answers, wants, now = known.answers, known.wants, self._clock.monotonic()
        lookups = [self._waiting.find(want.key) for want in wants]
        if wants:
            memory.waits(now, begun=[lookup.started_at for lookup in lookups if lookup is not None])
        put_off = memory.put_off(now, pending=any(map(_is_pending, lookups, wants)))
        unconfirmed = self._until_confirmed(wants, now)
        elapsed = memory.elapsed(now) if unconfirmed is None else 0.0
        may_give_up = put_off is None and unconfirmed is None
        decision = _decide(case, answers, elapsed, memory, leading=leading, may_give_up=may_give_up)
        if decision.reason is Reason.NO_SUPPORTED_ARCHITECTURE:
            if bundles := await self._inquiry.about_bundles(case, answers):
                memory.parked = True
                self._waiting.park(key, (*bundles, *known.answered))
                return Done()
            decision = _decide(case, answers, elapsed, memory, leading=leading, may_give_up=may_give_up)
        decided = Decided(key, case, decision, memory, known.problems)
        if decision.outcome is Outcome.PLACED:
            return await self._place(decided, leading=leading)
        memory.parked = True
        held = decision.outcome is Outcome.HELD
        self._waiting.park(key, (want._replace(held=held) for want in (*wants, *known.answered)))
        if not leading:
            return Done()
        if not wants:
            memory.waits_for_nothing(now)
        kept = await self._releases.keep(decided, now=now)
        for seconds in (unconfirmed, put_off):
            kept = kept if seconds is None else _sooner(kept, seconds)
        return kept

    async def _place(self, decided: Decided, *, leading: bool) -> Result:
        if not leading and (decided.case.rule is not None or decided.decision.unresolved):
            return Done()
        now = self._clock.monotonic()
        if not leading and (rest := self._standby.leave_to_others(decided.memory, now)) > 0:
            return After(rest)
        again = await self._releases.release(decided)
        if again is not None:
            return again
        self._waiting.leave(decided.key)
        return Done()

    def _until_confirmed(self, wants: Iterable[Want], now: float) -> float | None:
        """Seconds until a failure among these counts though this process has not seen it since it leads (PL-301).

        None if there is no such failure. The answer that confirms or refutes it brings the pod back.
        """
        left = self._leading_since + CONFIRMED_WITHIN - now
        lookups = (self._waiting.find(want.key) for want in wants)
        return left if left > 0 and any(lookup is not None and lookup.unconfirmed for lookup in lookups) else None

    def _remember(self, key: Key, pod: Pod, now: float) -> GatedPod:
        memory = self._memories.get(key)
        if memory is None or memory.uid != pod.metadata.uid:
            self._waiting.leave(key)
            memory = self._memories[key] = GatedPod(pod.metadata.uid, now, standby_delay=self._standby.delay())
        return memory

    def _forget(self, key: Key) -> None:
        self._waiting.leave(key)
        memory = self._memories.pop(key, None)
        if memory is not None:
            self._standby.pod_went(memory, self._clock.monotonic())

    def _facts_for(self, namespace: str, memory: GatedPod, now: float) -> PodFacts | After:
        """The facts for this pod, or when to look again while some that exist are not known yet (PL-301)."""
        if not self._facts.is_complete:
            return After(FACTS_AGAIN)
        facts = self._facts.of(namespace)
        if facts.settings.provisional:
            if (left := memory.seen_at + NAMESPACE_WAIT - now) > 0:
                return After(left)
            facts = facts._replace(settings=self._facts.table.spec)
        return self._as_things_are(facts)

    def _as_things_are(self, facts: PodFacts) -> PodFacts:
        """While placement is being switched off nothing is held and nothing waits for long (PL-520)."""
        return facts._replace(settings=facts.settings.deprovisioning()) if self._facts.is_deprovisioning else facts

    # -- our own mistakes ----------------------------------------------------------------------------------------------

    async def _fault(self, key: Key, error: Exception) -> Result:
        """An exception of ours is a passing failure of that pod, bounded by its window like any other (PL-306)."""
        self._metrics.internal_errors.inc()
        log.error("a pass over a pod met a bug", pod=str(key), exc_info=error if self._causes.is_new(error) else None)
        pod, memory = self._pods.get(key), self._memories.get(key)
        if pod is None or memory is None:
            return After(retry.MAX_DELAY)
        now = self._clock.monotonic()
        memory.faults += 1
        memory.faulty_since = now if memory.faulty_since is None else memory.faulty_since
        settings = self._as_things_are(self._facts.of(key.namespace)).settings
        ended = now - memory.faulty_since >= settings.retry_window
        if ended and self._is_leading() and settings.unresolved_action == "release":
            if await self._releases.release_bare(key, pod, memory):
                self._waiting.leave(key)
        elif ended:
            memory.held_since = now if memory.held_since is None else memory.held_since
        return After(retry.delay(memory.faults, uniform=self._uniform()))


def _decide(
    case: Case, answers: dict[str, Inspection], elapsed: float, memory: GatedPod, *, leading: bool, may_give_up: bool
) -> Decision:
    """Who is held already stays so while an image is asked for anew; nobody else is given up before it answered."""
    if not leading:
        return decide(case, answers, Progress.WAITING)
    decision = retry.decide_at(case, answers, elapsed)
    stays = decision.outcome is Outcome.HELD and memory.held_since is not None
    return decision if may_give_up or stays else retry.decide_at(case, answers, elapsed, may_give_up=False)


def _is_pending(lookup: Lookup | None, want: Want) -> bool:
    return lookup is None or lookup.is_pending(want)


def _sooner(result: Result, seconds: float) -> After:
    return After(min(result.seconds, seconds) if isinstance(result, After) else seconds)
