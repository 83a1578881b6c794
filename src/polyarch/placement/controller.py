"""Finishes gated pods: facts and answers in, at most one PATCH out (PL-300 to PL-335, PL-530).

A pass looks at the pod as it is in the store, decides with the pure rules and writes the outcome. A pod whose images
are not known yet is parked in ``Waiting`` and the pass ends; it comes back when an answer is there, when time alone
changes what is to be done, or when facts change. Every pass may be cut off anywhere and repeated.

A standby runs the same passes a little later and writes only what rests on complete answers; giving up, holding,
failure labels and events are the leader's. The tests in the PATCH let at most one of theirs win.
"""

import random as _random
from collections.abc import Callable, Iterable
from typing import Final, Protocol

import msgspec
import structlog

from polyarch.kube.causes import Causes
from polyarch.kube.clock import Clock
from polyarch.kube.controller import After, Done, Result
from polyarch.kube.errors import Conflict
from polyarch.kube.jsonpatch import Operation
from polyarch.model.meta import Key
from polyarch.model.pod import Pod
from polyarch.oci.inspection import Inspection
from polyarch.placement import events, retry
from polyarch.placement.answers import Inspects, at_hand
from polyarch.placement.decision import Decision, Outcome, Progress, Reason
from polyarch.placement.events import Event
from polyarch.placement.facts import ClusterFacts, PodFacts
from polyarch.placement.gated import REFUSED_LAST, GatedPod, bare_release, carries_gate
from polyarch.placement.metrics import PlacementMetrics
from polyarch.placement.patch import controller_patch
from polyarch.placement.rules import Case, Facts, decide, examine, without_affinity
from polyarch.placement.secrets import PodCredentials, PullSecrets, PullSource
from polyarch.placement.standby import Standby
from polyarch.placement.waiting import ImageKey, Waiting, Want, failure_of
from polyarch.placement.writing import Write, WritesPods, Written, write_pod

log = structlog.get_logger(__name__)

FACTS_AGAIN: Final = 5.0
"""When to look again while facts are still on their way (PL-301). Their arrival is told; this is for the case that it
should be missed, and long enough for ten thousand pods that wait for it."""
NAMESPACE_WAIT: Final = 5.0
"""How long the Namespace of a pod is waited for before the policy's ``spec`` counts (PL-117)."""
MOVED_ON_WAIT: Final = 10.0
MOVED_ON_WAITS: Final = 7
"""How long the event of a pod that moved on may take to reach us, and how often we wait for it: a process that stood
still has not waited, and a stray is seen again only by the next look, a minute later (``pods.EVERY``)."""
CONFLICT_WAIT: Final = 5.0
"""The same after HTTP 409, which says less: then the PATCH is simply sent again."""
CONFIRMED_IN: Final = 1.1
"""When to look again at what a new leader asks for once more; the attempts begin within a second."""
TAG_TTL: Final = 600.0


class Posts(Protocol):
    """Posts an event about a pod some time later; never waits."""

    def __call__(self, pod: Pod, event: Event) -> None: ...


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
        self._inspector = inspector
        self._waiting = waiting
        self._client = client
        self._post = post
        self._enqueue = enqueue
        self._clock = clock
        self._metrics = metrics
        self._is_leading = is_leading
        self._tag_ttl = tag_ttl
        self._uniform = uniform
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

    def started_leading(self) -> None:
        """From now on insisting, giving up, holding and telling are ours; what failed before is asked for once more."""
        self._leading_since = self._clock.monotonic()
        self._waiting.hasten(lambda lookup: bool(lookup.failure))
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
            return self._wait_for_event(memory, now)
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
        credentials, answers, wants = await self._answers(key, case, memory)
        now = self._clock.monotonic()
        if wants:
            memory.waits(now, begun=[lookup.started_at for want in wants if (lookup := self._waiting.find(want.key))])
        elapsed = 0.0 if self._are_old(wants) else memory.elapsed(now)
        decision = self._decide(case, answers, elapsed, leading=leading)
        if decision.reason is Reason.NO_SUPPORTED_ARCHITECTURE:
            if bundles := await self._bundles(key, case, answers):
                memory.parked = True
                self._waiting.park(key, bundles)
                return Done()
            decision = self._decide(case, answers, elapsed, leading=leading)
        if decision.outcome is Outcome.PLACED:
            if not leading and (case.rule is not None or decision.unresolved):
                return Done()
            if not leading and (rest := self._standby.leave_to_others(memory, now)) > 0:
                return After(rest)
            return await self._place(key, case, decision, memory, credentials)
        memory.parked = True
        self._waiting.park(key, (want._replace(held=decision.outcome is Outcome.HELD) for want in wants))
        if not leading:
            return Done()
        kept = await self._keep(key, case, decision, memory, credentials, now)
        return After(CONFIRMED_IN) if self._are_old(wants) else kept

    def _are_old(self, wants: Iterable[Want]) -> bool:
        """Whether a failure among these is from before this process led: nobody gives up because of it (PL-301)."""
        lookups = [self._waiting.find(want.key) for want in wants]
        return any(
            lookup is not None and lookup.failure and (lookup.answered_at or 0.0) < self._leading_since
            for lookup in lookups
        )

    @staticmethod
    def _wait_for_event(memory: GatedPod, now: float) -> Result:
        """We wrote from this version, so the next event brings the pod back.

        If the API server refused the patch as not fitting and yet nothing changes, then it is the patch that is wrong.
        """
        if memory.moved_on_at is None:
            return Done()
        if (left := memory.moved_on_at + (CONFLICT_WAIT if memory.conflict else MOVED_ON_WAIT) - now) > 0:
            return After(left)
        memory.moved_on_waits += 1
        if not memory.conflict and memory.moved_on_waits < MOVED_ON_WAITS:
            memory.moved_on_at = now
            return After(MOVED_ON_WAIT)
        memory.written_from, memory.moved_on_at = "", None
        if memory.conflict:
            return After(0.0)
        raise RuntimeError("the API server says that our patch does not fit a pod that has not changed")

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
        if self._facts.is_deprovisioning:
            facts = facts._replace(settings=facts.settings.deprovisioning())
        return facts

    async def _answers(
        self, key: Key, case: Case, memory: GatedPod
    ) -> tuple[PodCredentials | None, dict[str, Inspection], list[Want]]:
        """What is known of the pod's images, and what has to be waited for.

        Pull secrets are read only if some image is not known without them (PL-422).
        """
        if not case.images:
            return None, {}, []
        source = PullSource.of(case.pod, key.namespace)
        answers = self._at_hand(case, source, memory)
        missing = [use for use in case.images if use.reference is not None and use.text not in answers]
        credentials = self._secrets.cached(source)
        if missing and credentials is None:
            credentials = await self._secrets.get(source)
            answers = self._at_hand(case, source, memory)
        now = self._clock.monotonic()
        wants: list[Want] = []
        for use in missing:
            if use.reference is None or credentials is None or use.text in answers:
                continue
            image = ImageKey(use.reference.canonical, credentials.fingerprint)
            not_before = memory.seen_at if use.always and use.reference.digest is None else None
            want = Want(image, use.reference, credentials, not_before, self._tag_ttl)
            lookup = self._waiting.find(image)
            known = lookup is not None and lookup.serves(want, now)
            if lookup is not None and lookup.answer is not None and (known or lookup.failure):
                answers[use.text] = lookup.answer
            asked_once = use.never and lookup is not None and bool(lookup.failure)
            if not known and not asked_once:
                wants.append(want)
        return credentials, answers, wants

    async def _bundles(self, key: Key, case: Case, answers: dict[str, Inspection]) -> list[Want]:
        """Before a pod is called impossible: which of its indexes might be operator bundles, and so constrain nothing.

        Replaces the answers of those that were looked at; returns those that were not, to be waited for (RG-046).
        """
        wants: list[Want] = []
        for use in case.images:
            answer = answers.get(use.text)
            if answer is None or use.reference is None or answer.kind != "index" or not answer.constrains:
                continue
            own = PullSource.of(case.pod, key.namespace)
            credentials = await self._secrets.get(own._replace(names=()) if answer.public else own)
            known = self._inspector.peek(use.reference, credentials.store, bundle="always")
            if known is None:
                image = ImageKey(use.reference.canonical, credentials.fingerprint, "always")
                lookup = self._waiting.find(image)
                known = lookup.answer if lookup is not None else None
                if known is None:
                    wants.append(Want(image, use.reference, credentials, None, self._tag_ttl))
            if known is not None and not failure_of(known):
                answers[use.text] = known
        return wants

    def _at_hand(self, case: Case, source: PullSource, memory: GatedPod) -> dict[str, Inspection]:
        return at_hand(
            case.images,
            self._inspector,
            self._secrets.lazy(source),
            since=memory.seen_at,
            now=self._clock.monotonic(),
            tag_ttl=self._tag_ttl,
            stale_for=case.settings.images_stale_for,
        )

    @staticmethod
    def _decide(case: Case, answers: dict[str, Inspection], elapsed: float, *, leading: bool) -> Decision:
        decision = decide(case, answers, Progress.WAITING)
        if leading and decision.unresolved:
            progress = retry.progress(decision, case.settings, elapsed)
            if progress is not Progress.WAITING:
                decision = decide(case, answers, progress)
        return decision

    # -- outcomes ------------------------------------------------------------------------------------------------------

    async def _place(
        self, key: Key, case: Case, decision: Decision, memory: GatedPod, credentials: PodCredentials | None
    ) -> Result:
        """Writes the outcome and lifts the gate."""
        self._tell_of_gate(case, decision, memory)
        now = self._clock.monotonic()
        if memory.refused_since is not None and now - memory.refused_since >= case.settings.retry_window:
            if case.settings.unresolved_action == "release":
                decision = without_affinity(decision, memory.refusal)
            elif memory.held_since is None:
                memory.held_since = now
        write = await self._write(key, case.pod, controller_patch(case, decision), memory)
        match write.result:
            case Written.DONE:
                self._finished(key, case, decision, memory, credentials)
                return Done()
            case Written.MOVED_ON:
                return self._wait_for_event(memory, self._clock.monotonic())
            case Written.UNANSWERED:
                memory.unanswered += 1
                if memory.may_tell_silence(now):
                    log.warning("no answer to the release of a pod, trying again", pod=str(key), error=str(write.error))
                return After(retry.delay(memory.unanswered, uniform=self._uniform()))
        now = self._clock.monotonic()
        delay = memory.refused(write.refusal, now)
        if not self._is_leading():
            return After(REFUSED_LAST)  # the leader insists, and is refused for the same reason
        if memory.may_tell_refusal(now):
            self._post(case.pod, events.gate_removal_failed(str(write.error)))
            log.warning("the API server refuses to release a pod", pod=str(key), error=str(write.error))
        return After(delay)

    def _finished(
        self, key: Key, case: Case, decision: Decision, memory: GatedPod, credentials: PodCredentials | None
    ) -> None:
        now = self._clock.monotonic()
        self._waiting.leave(key)
        memory.held_since = None
        metrics = self._metrics
        metrics.decided(decision.reason.value, "controller", "enforce")
        metrics.processed_pods.inc()
        metrics.gate_seconds.observe(now - memory.seen_at)
        metrics.process_gated_pod.observe(now - memory.seen_at)
        if case.images:
            metrics.inspect_pod_images.observe(now - memory.waiting_since if memory.waiting_since is not None else 0.0)
        if decision.no_matching_node:
            metrics.no_matching_node.inc()
        if self._is_leading():
            self._tell(case, events.events_for(case, decision), decision, credentials)

    async def _keep(
        self,
        key: Key,
        case: Case,
        decision: Decision,
        memory: GatedPod,
        credentials: PodCredentials | None,
        now: float,
    ) -> Result:
        """The gate stays: says so on the pod where that is due, and when to look again (PL-332, PL-334)."""
        self._tell_of_gate(case, decision, memory)
        memory.held_since = (memory.held_since or now) if decision.outcome is Outcome.HELD else None
        if decision.outcome is Outcome.FAILING and not memory.told_failing:
            memory.told_failing = True
            await self._note(key, case, decision, memory, credentials)
        elif decision.outcome is Outcome.HELD:
            if memory.held_told_at is None:
                memory.held_told_at = now
                self._metrics.decided(decision.reason.value, "controller", "enforce")
                await self._note(key, case, decision, memory, credentials)
            elif memory.may_tell_held(now):
                self._tell(case, (events.held(decision),), decision, credentials)
        waits = [
            memory.in_line_until(now)
            if memory.first_attempt is None
            else retry.next_change(decision, case.settings, memory.elapsed(now))
        ]
        if memory.gate_told < 2:
            waits.append(memory.seen_at + events.GATE_ADDED_AFTER - now)
        if memory.held_told_at is not None and decision.outcome is Outcome.HELD:
            waits.append(memory.held_told_at + 3600.0 - now)
        due = [wait for wait in waits if wait is not None]
        return After(max(min(due), 0.0)) if due else Done()

    async def _note(
        self, key: Key, case: Case, decision: Decision, memory: GatedPod, credentials: PodCredentials | None
    ) -> None:
        """Labels a pod that goes on waiting. A refusal is of no consequence; the gate is what matters."""
        operations = controller_patch(case, decision)
        if not operations:
            return  # another process said so before
        write = await self._write(key, case.pod, operations, memory)
        if write.result is Written.DONE:
            self._tell(case, events.events_for(case, decision), decision, credentials)
        elif write.result is not Written.MOVED_ON:
            log.warning("a waiting pod could not be labelled", pod=str(key), error=str(write.error))

    async def _write(self, key: Key, pod: Pod, operations: tuple[Operation, ...], memory: GatedPod) -> Write:
        """The one PATCH from this version of the pod (PL-304)."""
        write = await write_pod(self._client, key, operations)
        if write.result is Written.MOVED_ON:
            self._metrics.patch_conflicts.inc()
        if write.result in (Written.DONE, Written.MOVED_ON):
            memory.written_from = pod.metadata.resource_version
            memory.moved_on_at = self._clock.monotonic() if write.result is Written.MOVED_ON else None
            memory.conflict, memory.moved_on_waits = isinstance(write.error, Conflict), 0
            memory.unanswered = 0
        return write

    # -- telling -------------------------------------------------------------------------------------------------------

    def _tell_of_gate(self, case: Case, decision: Decision, memory: GatedPod) -> None:
        """At first sight, and once more after 2 s (PL-710)."""
        seconds = self._clock.monotonic() - memory.seen_at
        stage = 2 if seconds >= events.GATE_ADDED_AFTER else 1
        if not self._is_leading() or memory.gate_told >= stage:
            return
        memory.gate_told = stage
        event = events.gate_added(case, decision, seconds_gated=seconds)
        if event is not None:
            self._post(case.pod, event)

    def _tell(self, case: Case, due: Iterable[Event], decision: Decision, credentials: PodCredentials | None) -> None:
        problems = "; ".join(credentials.problems) if credentials is not None and decision.unresolved else ""
        for event in due:
            self._post(case.pod, _with_detail(event, problems) if problems else event)

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
        settings = self._facts.of(key.namespace).settings
        ended = now - memory.faulty_since >= settings.retry_window
        if ended and self._is_leading() and settings.unresolved_action == "release":
            write = await self._write(key, pod, bare_release(pod), memory)
            if write.result is Written.DONE:
                self._waiting.leave(key)
                self._metrics.decided(Reason.RELEASED_UNCONSTRAINED.value, "controller", "enforce")
                log.warning("a pod is released because a bug keeps it from being decided", pod=str(key))
        elif ended:
            memory.held_since = now if memory.held_since is None else memory.held_since
        return After(retry.delay(memory.faults, uniform=self._uniform()))


def _with_detail(event: Event, detail: str) -> Event:
    """The event with what else is known of the failure, such as a pull secret that does not exist (PL-422)."""
    if event.type != "Warning":
        return event
    note = f"{event.note} ({detail})".encode()[: events.MAX_NOTE].decode(errors="ignore")
    return msgspec.structs.replace(event, note=note)
