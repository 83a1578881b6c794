"""Reconciles pods without a node: each gets what its admission missed or could not know (TN-043, TN-046 to TN-049).

A pass reads the pod from the cache, collects the answers for its images, decides with the pure rules and sends at most
one PATCH. A pod with unknown images is parked in ``Waiting``; it is looked at again when an answer arrives, its time is
over, or facts change. Passes may be interrupted anywhere and repeated.

Only the leader works. A standby lifts gates whose time has been over for some seconds: the leader may just have died,
and nobody else would for as long as its Lease holds.
"""

import random as _random
from collections.abc import Callable, Collection, Iterable
from datetime import datetime
from typing import Final, NamedTuple, Protocol

import structlog

from polyarch.clock import Clock
from polyarch.kube.controller import After, Done, Result
from polyarch.kube.errors import Causes
from polyarch.objects import Key, Pod
from polyarch.pods.lookups import backoff
from polyarch.pods.lookups.inquiry import Known
from polyarch.taints.api.settings import TaintSettings
from polyarch.taints.decide.decision import PodDecision, Reason
from polyarch.taints.decide.gate_time import Waited, decide_after
from polyarch.taints.decide.rules import Case, Facts, assess, examine
from polyarch.taints.lookups.image_waiting import ImageWaiting, asked_about
from polyarch.taints.metrics import TaintMetrics
from polyarch.taints.result.contribution import Contribution
from polyarch.taints.result.pod_patch import stored_patch
from polyarch.taints.unscheduled.changed_pods import ChangedPods
from polyarch.taints.unscheduled.pod_memory import PodMemory, counted, has_gate, waited
from polyarch.taints.unscheduled.pod_writes import PodWrites

log = structlog.get_logger(__name__)

FACTS_AGAIN: Final = 5.0
"""Seconds until the next look while facts are not known. Their arrival wakes the pods; this is a fallback."""
HELD_AGAIN: Final = 60.0
"""The same for a pod that another feature holds; losing that gate wakes it."""
STANDBY: Final = 5.0
"""Seconds after the end of a pod's time at which a standby lifts its gate: well before the leader's Lease runs out."""


class KnowsFacts(Protocol):
    """The part of ``TaintFacts`` that is needed here."""

    @property
    def is_ready(self) -> bool: ...

    @property
    def settings(self) -> TaintSettings | None: ...

    def about(self, pod: Pod, namespace: str, *, stored: bool) -> Facts | None: ...

    def on_change(self, handler: Callable[[str | None], None]) -> None: ...


class Pods(Protocol):
    """The pods without a node, and those whose image was changed (``watched_pods``)."""

    def get(self, key: Key) -> Pod | None: ...

    def known(self) -> list[Key]: ...

    def unscheduled(self) -> Collection[Pod] | None: ...


class Judged(NamedTuple):
    """What a pass has found."""

    key: Key
    case: Case
    decision: PodDecision
    memory: PodMemory
    known: Known


class PodController:
    """One pod per call of :meth:`reconcile`. ``is_held``: another feature's gate keeps the pod, and the PATCH that
    lifts it will bring the tolerations (TN-003)."""

    def __init__(
        self,
        *,
        pods: Pods,
        facts: KnowsFacts,
        images: ImageWaiting,
        writes: PodWrites,
        changed: ChangedPods,
        enqueue: Callable[[Key], None],
        clock: Clock,
        metrics: TaintMetrics,
        is_leading: Callable[[], bool],
        is_held: Callable[[Pod], bool] = lambda _: False,
        uniform: Callable[[], float] = _random.random,
    ) -> None:
        self._pods = pods
        self._facts = facts
        self._images = images
        self._writes = writes
        self._changed = changed
        self._enqueue = enqueue
        self._clock = clock
        self._metrics = metrics
        self._is_leading = is_leading
        self._is_held = is_held
        self._uniform = uniform
        self._memories: dict[Key, PodMemory] = {}
        self._causes = Causes()
        facts.on_change(self.facts_changed)

    # -- notifications ------------------------------------------------------------------------------------------------

    def facts_changed(self, namespace: str | None) -> None:
        """Looks at the pods concerned again, at once."""
        for key in self._pods.known():
            if namespace is None or key.namespace == namespace:
                self._enqueue(key)

    async def started_leading(self) -> None:
        """This replica leads now: images that failed before are asked for once more, and every pod is looked at."""
        self._images.waiting.confirm()
        self.facts_changed(None)

    # -- what others read ----------------------------------------------------------------------------------------------

    def pods(self) -> Collection[Pod] | None:
        """All pods without a node; None: they are not known yet."""
        return self._pods.unscheduled()

    @property
    def gated(self) -> int:
        """Number of pods with our gate."""
        return sum(map(has_gate, self._pods.unscheduled() or ()))

    @property
    def oldest_gate(self) -> float:
        """Seconds since the oldest pod with our gate was created; 0 without any."""
        gated = (pod.metadata.creation_timestamp for pod in self._pods.unscheduled() or () if has_gate(pod))
        oldest = min((datetime.fromisoformat(each) for each in gated if each is not None), default=None)
        return (self._clock.now() - oldest).total_seconds() if oldest is not None else 0.0

    @property
    def unknown(self) -> int:
        """Number of pods for which an answer is missing."""
        return sum(memory.is_unknown for memory in self._memories.values())

    @property
    def blocked(self) -> int:
        """Number of pods that no node can run."""
        return sum(memory.is_blocked for memory in self._memories.values())

    def contribution(self) -> Contribution:
        """For the status (TN-014)."""
        pods = {"gated": self.gated, "unknown": self.unknown, "blocked": self.blocked}
        return Contribution(fields={"pods": pods})

    def undecided(self, architecture: str) -> list[str] | None:
        """Pods that may be for this architecture and wait for an answer (TN-025); None: not all are judged yet. A pod
        that is being deleted gets no node, however long its finalizers keep it."""
        pods = self._pods.unscheduled()
        if pods is None or not self._is_leading() or not self._facts.is_ready:
            return None
        found = []
        for pod in pods:
            key = pod.metadata.key
            memory = self._memories.get(key)
            if pod.metadata.deletion_timestamp is not None:
                continue
            if memory is None or not memory.is_judged:
                return None
            if memory.is_waiting and architecture in memory.architectures:
                found.append(str(key))
        return found

    # -- passes --------------------------------------------------------------------------------------------------------

    async def reconcile(self, key: Key) -> Result:
        """One pass over one pod."""
        try:
            return await self._pass(key)
        except Exception as error:  # noqa: BLE001 - a bug met with one pod must neither stop the others nor keep its gate
            return await self._fault(key, error)

    async def _pass(self, key: Key) -> Result:
        pod = self._pods.get(key)
        if pod is None or pod.metadata.deletion_timestamp is not None:
            self._forget(key)
            return Done()
        memory = self._remember(key, pod)
        if not self._facts.is_ready:
            return After(FACTS_AGAIN)
        if self._is_held(pod):
            self._settle(key, memory)
            memory.is_judged = True
            return After(HELD_AGAIN)
        if not self._is_leading() and (rest := self._left_to_leader(pod, memory)) is not None:
            return rest
        settings = self._facts.settings
        if settings is None:
            self._settle(key, memory)
            again = await self._writes.release(key, pod, memory) if has_gate(pod) else None
            return again or Done()
        facts = self._facts.about(pod, key.namespace, stored=True)
        if facts is None:
            return After(FACTS_AGAIN)
        if self._changed.is_about(pod):
            return await self._changed.go_on(key, facts, memory)
        case = examine(facts)
        if memory.settled == _grounds(case):
            return Done()
        return await self._judge(key, case, memory)

    def _left_to_leader(self, pod: Pod, memory: PodMemory) -> Result | None:
        """When a standby looks again; None: it does what the leader should have done."""
        settings = self._facts.settings
        if settings is None or not has_gate(pod) or settings.on_timeout == "keep":
            return Done()
        limit = settings.gate_timeout + STANDBY
        left = limit - waited(pod, memory, now=self._clock.monotonic(), moment=self._clock.now())
        return After(left) if left > 0 else None

    async def _judge(self, key: Key, case: Case, memory: PodMemory) -> Result:
        known: Known | None = Known({})
        if case.rule is None:
            known = self._images.inquiry.about(asked_about(case), key, memory.waiter)
        pending = known is None or known.pending or known.undecidable
        seconds = self._counted(case.pod, memory, case.settings, pending=pending)
        left = case.settings.gate_timeout - seconds
        if known is None and left > 0:
            return After(left)  # its pull secrets are being read, which wakes it
        known = known or Known({})
        if known.undecidable and left > 0:
            self._park(key, known)
            return After(left)
        decision = decide_after(case, known.answers, Waited(seconds, pending))
        return await self._carry_out(Judged(key, case, decision, memory, known), left if left > 0 else None)

    def _counted(self, pod: Pod, memory: PodMemory, settings: TaintSettings, *, pending: bool) -> float:
        return counted(
            pod,
            memory,
            settings.gate_timeout,
            pending=pending,
            now=self._clock.monotonic(),
            moment=self._clock.now(),
        )

    async def _carry_out(self, judged: Judged, left: float | None) -> Result:
        """``left``: seconds until time alone changes the decision; None: it is over."""
        key, case, decision, memory, known = judged
        operations = stored_patch(case, decision)
        if operations:
            again = await self._writes.write(key, case.pod, operations, memory)
            if again is not None:
                if memory.refusals:  # whoever refuses it holds no node back
                    memory.is_judged = True
                    memory.is_waiting = memory.is_waiting and bool(decision.unresolved)
                if memory.refusals and decision.timed_out and has_gate(case.pod):
                    return await self._writes.release(key, case.pod, memory) or Done()
                return again
            self._count(judged)
        if self._is_leading():
            self._writes.tell(case.pod, decision, memory, known.problems)
        memory.is_judged = True
        memory.is_blocked = decision.reason is Reason.NO_COMMON_ARCHITECTURE
        memory.is_unknown = bool(decision.unresolved)
        memory.is_waiting = memory.is_unknown and (decision.keeps_gate or not decision.timed_out)
        if not decision.unresolved:
            self._settle(key, memory, settled=_grounds(case, decision.added))
            return Done()
        memory.architectures = _possible(case, known)
        self._park(key, known)
        if decision.keeps_gate and decision.timed_out:
            return After(self._writes.next_telling(memory))
        return After(left) if left is not None else Done()

    def _count(self, judged: Judged) -> None:
        pod, decision = judged.case.pod, judged.decision
        self._metrics.decided(decision.reason.value)
        if has_gate(pod) and not decision.keeps_gate:
            moment, now = self._clock.now(), self._clock.monotonic()
            self._metrics.gate_seconds.observe(waited(pod, judged.memory, now=now, moment=moment))

    def _park(self, key: Key, known: Known) -> None:
        self._images.waiting.park(key, (*known.wants, *known.answered))

    def _settle(self, key: Key, memory: PodMemory, *, settled: object = None) -> None:
        """The pod waits for no image."""
        self._images.waiting.leave(key)
        memory.settled = settled
        memory.is_unknown = memory.is_waiting = False

    def _remember(self, key: Key, pod: Pod) -> PodMemory:
        memory = self._memories.get(key)
        if memory is None or memory.waiter.uid != pod.metadata.uid:
            self._forget(key)
            memory = self._memories[key] = PodMemory(pod.metadata.uid, self._clock.monotonic())
        return memory

    def _forget(self, key: Key) -> None:
        self._memories.pop(key, None)
        self._images.waiting.leave(key)
        self._writes.leaves(key)

    # -- internal errors -----------------------------------------------------------------------------------------------

    async def _fault(self, key: Key, error: Exception) -> Result:
        """A bug counts as a failure that time may cure; when the pod's time is over it loses our gate nevertheless."""
        self._metrics.internal_errors.inc()
        log.error("a pass over a pod met a bug", pod=str(key), exc_info=error if self._causes.is_new(error) else None)
        pod, memory, settings = self._pods.get(key), self._memories.get(key), self._facts.settings
        if pod is None or memory is None or settings is None or not has_gate(pod):
            return After(backoff.MAX_DELAY)
        if self._counted(pod, memory, settings, pending=True) < settings.gate_timeout:
            return After(backoff.delay(1, uniform=self._uniform()))
        return await self._writes.release(key, pod, memory) or Done()


def _possible(case: Case, known: Known) -> tuple[str, ...]:
    """What is known of A; a fallback does not count."""
    return tuple(assess(case, known.answers).known.managed)


def _grounds(case: Case, added: Iterable[str] = ()) -> object:
    """All that a decision with all answers depends on, except these: an image is judged once per pod. ``added``: the
    architectures for which it adds tolerations."""
    facts, present = case.facts, case.pod.spec.tolerations or ()
    tolerations = (*present, *map(facts.settings.toleration, added))
    return case.rule, case.images, case.constraints, case.system, facts.settings, facts.existing, tolerations
