"""The controller of pods without a node: each gets what its admission missed or could not know, and loses our gate.

A pass takes the pod from the cache, collects the answers for its images, decides with the pure rules and sends at most
one PATCH. A pod with unknown images is parked in ``Waiting``; it is looked at again when an answer arrives, its time is
over, or facts change. Passes may be interrupted anywhere and repeated.

Only the leader works. A standby lifts gates whose time has been over for some seconds: the leader may just have died,
and nobody else would for as long as its Lease holds.
"""

import random as _random
from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import datetime
from typing import Final, NamedTuple, Protocol

import msgspec
import structlog

from polyarch.clock import Clock
from polyarch.images import backoff
from polyarch.images.lookup_runner import PodImageState
from polyarch.images.pod_images import common_platforms
from polyarch.kube.controller import (
    NoRequeue,
    OutageBackoff,
    Patches,
    PatchResult,
    PatchStatus,
    RequeueAfter,
    Result,
    write_guarded,
)
from polyarch.kube.errors import Conflict, KubernetesError, NotFound, SeenErrors, TooManyRequests
from polyarch.kube.informer import Informer
from polyarch.kube.patches import Operation
from polyarch.kube.rbac import rule
from polyarch.kube.resources import PODS
from polyarch.objects import ObjectKey, Pod, oldest_by_namespace
from polyarch.platforms import PlatformSet
from polyarch.taints import names
from polyarch.taints.api import StatusPart
from polyarch.taints.decision import PodDecision, Reason
from polyarch.taints.events import HOURLY, PodEvent, events_for, shrunk, with_problems
from polyarch.taints.facts import TaintFacts
from polyarch.taints.image_waiting import ImageWaiting, WaitingObject, image_request
from polyarch.taints.metrics import COUNTED, TaintMetrics
from polyarch.taints.patch import bare_release, stored_patch
from polyarch.taints.pod_rules import (
    Case,
    PodFacts,
    Waited,
    assess,
    decide_after,
    decide_change,
    examine,
    examine_change,
    has_gate,
)
from polyarch.taints.settings import TaintSettings

log = structlog.get_logger(__name__)

# -- the pods that the controller knows: those without a node, and those whose image was changed -----------------------
# Two watches, because no single selection has both: of pods on nodes only those are cached that the admission has
# labelled.

UNSCHEDULED: Final = "spec.nodeName="
"""Field selector."""
CHANGED: Final = f"{names.GATED_LABEL}={names.CHANGED}"
"""Label selector."""


class WatchedPods:
    """Both together; the other methods are about our own writes that a cache does not show yet."""

    def __init__(self, unscheduled: Informer[Pod], changed: Informer[Pod]) -> None:
        self._unscheduled = unscheduled
        self._changed = changed

    def get(self, key: ObjectKey) -> Pod | None:
        return self._unscheduled.store.get(key) or self._changed.store.get(key)

    def known(self) -> list[ObjectKey]:
        return list({**dict.fromkeys(self._unscheduled.store.keys()), **dict.fromkeys(self._changed.store.keys())})

    def unscheduled(self) -> Collection[Pod] | None:
        """The pods without a node; None: they are not known yet."""
        return self._unscheduled.store.values() if self._unscheduled.has_synced else None

    def note_write(self, key: ObjectKey, version: str) -> None:
        """The API server answered a write with this resourceVersion."""
        where = self._unscheduled if key in self._unscheduled.store else self._changed
        where.writes.note_write(key, version)

    def is_stale(self, key: ObjectKey) -> bool:
        """Whether a cache is behind our last write; nothing may be decided from it then."""
        return self._unscheduled.writes.is_stale(key) or self._changed.writes.is_stale(key)

    def is_connected(self) -> bool:
        """Whether the watch of pods without a node works."""
        return not self._unscheduled.broken_seconds


# -- what this process remembers of one pod: how long it has waited, and what was said about it ------------------------
# No decision needs it: a process that starts without it looks at every pod again and may repeat an event. It is dropped
# when the pod leaves the watch or its uid changes. Times are ``Clock.monotonic()``.

FIRST_ANSWER_TIMEOUT: Final = 8.0
"""Seconds from the first sight of a pod for which an image counts as being asked for, even if the pod's time is over:
after a restart the first answers are a moment away."""


class PodState:
    """One pod."""

    __slots__ = (
        "architectures",
        "is_blocked",
        "is_judged",
        "is_unknown",
        "is_waiting",
        "platforms",
        "refusals",
        "repeated_at",
        "settled",
        "unanswered",
        "waiter",
    )

    def __init__(self, uid: str, now: float) -> None:
        self.waiter: Final = WaitingObject(uid, now)
        self.settled: object = None
        """What the last decision was made from, if nothing but a change of that can make it another one."""
        self.is_judged = False
        self.is_unknown = False
        """Some answer is missing."""
        self.is_waiting = False
        """So that its decision is still to come: its time is not over, or the policy keeps its gate nevertheless."""
        self.is_blocked = False
        """No node can run it."""
        self.architectures: tuple[str, ...] = ()
        """What is known of A while an answer is missing."""
        self.platforms = PlatformSet.EVERYTHING
        """What its images run on, as far as they have answered."""
        self.refusals = 0
        """Writes in a row that the API server refused."""
        self.unanswered = 0
        self.repeated_at: float | None = None
        """When it was last said that the gate stays beyond its time."""


def waited(pod: Pod, memory: PodState, *, now: float, moment: datetime) -> float:
    """Seconds for which the pod has waited: since its creation, but at least since this process has seen it.

    By the wall clock, as nothing else outlives the process that saw the pod first; if that clock is slow, pods wait
    longer after a change of the leader, and if it is fast, still for :data:`FIRST_ANSWER_TIMEOUT`.
    """
    since_seen = now - memory.waiter.seen_at
    created = pod.metadata.creation_timestamp
    if created is None:
        return since_seen
    try:
        age = (moment - datetime.fromisoformat(created)).total_seconds()
    except ValueError:
        return since_seen
    return max(age, since_seen)


def counted(pod: Pod, memory: PodState, limit: float, *, pending: bool, now: float, moment: datetime) -> float:
    """The same, as it counts towards ``limit``: less than that while an image is asked for that is worth a last moment
    of patience. ``pending``: one has neither answered nor failed yet."""
    seconds = waited(pod, memory, now=now, moment=moment)
    if pending and seconds >= limit:
        return min(seconds, limit - (memory.waiter.seen_at + FIRST_ANSWER_TIMEOUT - now))
    return seconds


# -- writes and events: one PATCH per version of a pod, one event per cause --------------------------------------------

RIGHTS: Final = (rule(PODS, "get", "list", "watch", "patch"),)
"""RBAC rules of the role for pods."""
MOVED_ON: Final = 5.0
"""Seconds until a pod that has changed meanwhile is looked at again, in case its watch event does not come."""
REFUSED_LAST: Final = 60.0
HOUR: Final = 3600.0


class Posts(Protocol):
    """Posts an event about a pod some time later; never waits."""

    def __call__(self, pod: Pod, event: PodEvent) -> None: ...


class PodWrites:
    """``note_write`` tells the cache which version it has to catch up with; ``is_connected``: its watch works."""

    def __init__(
        self,
        client: Patches,
        *,
        post: Posts,
        note_write: Callable[[ObjectKey, str], None],
        wake: Callable[[ObjectKey], None],
        is_connected: Callable[[], bool],
        clock: Clock,
        metrics: TaintMetrics,
        uniform: Callable[[], float],
    ) -> None:
        self._client = client
        self._post = post
        self._note_write = note_write
        self._is_connected = is_connected
        self._clock = clock
        self._metrics = metrics
        self._uniform = uniform
        self._outage = OutageBackoff(wake, uniform)

    async def release(self, key: ObjectKey, pod: Pod, memory: PodState) -> Result | None:
        """Lifts our gate and changes nothing else."""
        return await self.write(key, pod, bare_release(pod), memory)

    async def write(
        self, key: ObjectKey, pod: Pod, operations: tuple[Operation, ...], memory: PodState
    ) -> Result | None:
        """One PATCH of this version of the pod; None if it is done, else when to look at the pod again."""
        version = pod.metadata.resource_version
        write = await write_guarded(self._client, PODS, key, operations, version, is_connected=self._is_connected)
        self._metrics.wrote("pod", COUNTED[write.result])
        if write.result is not PatchStatus.UNREACHED:
            self._outage.over()
        match write.result:
            case PatchStatus.DONE:
                memory.refusals = memory.unanswered = 0
                self._note_write(key, write.version)
                return None
            case PatchStatus.MOVED_ON:
                return RequeueAfter(MOVED_ON)
            case PatchStatus.REFUSED:
                return RequeueAfter(self._refused(key, memory, write))
            case PatchStatus.UNREACHED:
                return RequeueAfter(self._outage.holds(key))
        memory.unanswered += 1
        return RequeueAfter(backoff.delay(memory.unanswered, uniform=self._uniform()))

    def _refused(self, key: ObjectKey, memory: PodState, write: PatchResult) -> float:
        if not memory.refusals:
            log.warning("the API server refuses to change a pod", pod=str(key), error=str(write.error))
        memory.refusals += 1
        return min(2.0 ** min(memory.refusals, 10), REFUSED_LAST) * (0.75 + 0.5 * self._uniform())

    def tell(self, pod: Pod, decision: PodDecision, memory: PodState, problems: tuple[str, ...] = ()) -> None:
        """The events of a decision, each cause once per pod; that a gate stays beyond its time every hour.

        ``pod`` is as it was before the write: what is said about a gate is said of pods that had one. ``problems`` are
        those of its pull secrets.
        """
        for event in with_problems(events_for(decision), problems):
            is_due = memory.waiter.is_news(event.reason.value, event.cause)
            if event.reason in HOURLY:
                if not has_gate(pod):
                    continue
                is_due = is_due or self.next_telling(memory) <= 0
                if is_due:
                    memory.repeated_at = self._clock.monotonic()
            if is_due:
                self._post(pod, event)

    def next_telling(self, memory: PodState) -> float:
        """Seconds until what is told hourly is due again."""
        return (memory.repeated_at or self._clock.monotonic()) + HOUR - self._clock.monotonic()

    def leaves(self, key: ObjectKey) -> None:
        """The pod is gone or has a node."""
        self._outage.leaves(key)


# -- pods whose image was changed: what the admission could not do about it --------------------------------------------
# The admission adds what the new images justify, but it can neither post events nor evict, and sometimes it does not
# know the images yet. Then it labels the pod, and the leader finishes: it adds what is still missing, says which of our
# tolerations the images no longer justify, and evicts the pod if the policy says so and an owner recreates it. The
# label goes last, so a new leader finds what the former one did not finish.

EVICT: Final = (rule(PODS, "create", subresource="eviction"),)
"""RBAC rules while ``spec.pods.imageChange`` is ``evict``."""
EVICT_AGAIN: Final = 10.0
"""Seconds until an eviction is asked for again that a PodDisruptionBudget does not allow now."""


class Evicts(Protocol):
    """The part of the client that is needed here."""

    async def evict(self, namespace: str, pod: str, *, uid: str | None = None) -> None: ...


class ImageChangeHandler:
    """Finishes what an image change began; called by the controller of pods."""

    def __init__(
        self,
        client: Evicts,
        *,
        images: ImageWaiting,
        writes: PodWrites,
        post: Posts,
        is_leading: Callable[[], bool],
        metrics: TaintMetrics,
    ) -> None:
        self._client = client
        self._images = images
        self._writes = writes
        self._post = post
        self._is_leading = is_leading
        self._metrics = metrics

    @staticmethod
    def is_about(pod: Pod) -> bool:
        """Whether the admission left something to do. A pod with our gate is not meant, whatever its label says: it
        waits for its answers, and its gate has a time."""
        return not has_gate(pod) and (pod.metadata.labels or {}).get(names.GATED_LABEL) == names.CHANGED

    async def go_on(self, key: ObjectKey, facts: PodFacts, memory: PodState) -> Result:
        """One pass over such a pod."""
        if not self._is_leading() or facts.settings.state == "paused":
            return NoRequeue()
        case = examine_change(_as_stored(facts), facts.pod)
        known = self._images.inquiry.resolve(image_request(case), key, memory.waiter)
        if known is None:
            return NoRequeue()  # its pull secrets are being read, which wakes it
        change = decide_change(case, known.inspections, facts.pod)
        if known.undecidable or change.decision.unresolved:
            memory.is_judged = True
            self._writes.tell(facts.pod, change.decision, memory, known.problems)
            self._images.waiting.park(key, (*known.wants, *known.answered))
            return NoRequeue()
        self._images.waiting.leave(key)
        event = shrunk(change)
        images = (use.text for use in case.images)
        if event is not None and memory.waiter.is_news(event.reason.value, event.cause, *images):
            self._post(facts.pod, event)
        if change.lost and change.policy == "evict" and _is_recreated(facts.pod):
            return await self._evict(key, facts.pod, memory)
        again = await self._writes.write(key, facts.pod, stored_patch(case, change.decision), memory)
        if again is None:
            self._metrics.decided(change.decision.reason.value)
        return again or NoRequeue()

    async def _evict(self, key: ObjectKey, pod: Pod, memory: PodState) -> Result:
        try:
            await self._client.evict(key.namespace, key.name, uid=pod.metadata.uid)
        except (NotFound, Conflict):
            return NoRequeue()  # it is gone, or another pod has its name
        except TooManyRequests:
            return RequeueAfter(EVICT_AGAIN)
        except KubernetesError as error:
            if memory.waiter.is_news("eviction refused"):
                log.warning("a pod could not be evicted after a change of its image", pod=str(key), error=str(error))
            return RequeueAfter(REFUSED_LAST)
        log.info("evicted a pod after a change of its image", pod=str(key))
        return NoRequeue()


def _as_stored(facts: PodFacts) -> PodFacts:
    """A change that happened cannot be refused any more; it is reported."""
    if facts.settings.image_change != "deny":
        return facts
    settings = msgspec.structs.replace(facts.settings, image_change="event")
    return msgspec.structs.replace(facts, settings=settings)


def _is_recreated(pod: Pod) -> bool:
    """Whether a controller makes another pod in its place."""
    return any(owner.controller and owner.kind != "Node" for owner in pod.metadata.owner_references or ())


# -- the controller ----------------------------------------------------------------------------------------------------

FACTS_AGAIN: Final = 5.0
"""Seconds until the next look while facts are not known. Their arrival wakes the pods; this is a fallback."""
HELD_AGAIN: Final = 60.0
"""The same for a pod that another feature holds; losing that gate wakes it."""
STANDBY: Final = 5.0
"""Seconds after the end of a pod's time at which a standby lifts its gate: well before the leader's Lease runs out."""


class Pods(Protocol):
    """The pods without a node, and those whose image was changed (:class:`WatchedPods`)."""

    def get(self, key: ObjectKey) -> Pod | None: ...

    def known(self) -> list[ObjectKey]: ...

    def unscheduled(self) -> Collection[Pod] | None: ...


class PendingPodEvaluation(NamedTuple):
    """What a pass has found."""

    key: ObjectKey
    case: Case
    decision: PodDecision
    memory: PodState
    known: PodImageState


class PodController:
    """One pod per call of :meth:`reconcile`. ``is_held``: another feature's gate keeps the pod, and the PATCH that
    lifts it will bring the tolerations."""

    def __init__(
        self,
        *,
        pods: Pods,
        facts: TaintFacts,
        images: ImageWaiting,
        writes: PodWrites,
        changed: ImageChangeHandler,
        enqueue: Callable[[ObjectKey], None],
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
        self._memories: dict[ObjectKey, PodState] = {}
        self._causes = SeenErrors()
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

    def platforms(self, pod: Pod) -> PlatformSet:
        """What the images of a pod without a node run on, as far as that is known here: nobody is asked."""
        memory = self._memories.get(pod.metadata.key)
        if memory is None or memory.waiter.uid != pod.metadata.uid:
            return PlatformSet.EVERYTHING
        return memory.platforms

    @property
    def gated(self) -> int:
        """Number of pods with our gate."""
        return sum(map(has_gate, self._pods.unscheduled() or ()))

    def oldest_gates(self) -> Mapping[str, float]:
        """By namespace, seconds since the oldest pod with our gate was created."""
        return oldest_by_namespace(filter(has_gate, self._pods.unscheduled() or ()), self._clock.now())

    @property
    def unknown(self) -> int:
        """Number of pods for which an answer is missing."""
        return sum(memory.is_unknown for memory in self._memories.values())

    @property
    def blocked(self) -> int:
        """Number of pods that no node can run."""
        return sum(memory.is_blocked for memory in self._memories.values())

    def contribution(self) -> StatusPart:
        """For the status."""
        pods = {"gated": self.gated, "unknown": self.unknown, "blocked": self.blocked}
        return StatusPart(fields={"pods": pods})

    def undecided(self, architecture: str) -> list[str] | None:
        """Pods that may be for this architecture and wait for an answer; None: not all are judged yet. A pod
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

    async def reconcile(self, key: ObjectKey) -> Result:
        """One pass over one pod."""
        try:
            return await self._pass(key)
        except Exception as error:  # noqa: BLE001 - a bug met with one pod must neither stop the others nor keep its gate
            return await self._fault(key, error)

    async def _pass(self, key: ObjectKey) -> Result:
        pod = self._pods.get(key)
        if pod is None or pod.metadata.deletion_timestamp is not None:
            self._forget(key)
            return NoRequeue()
        memory = self._remember(key, pod)
        if not self._facts.is_ready:
            return RequeueAfter(FACTS_AGAIN)
        if self._is_held(pod):
            self._settle(key, memory)
            memory.is_judged = True
            return RequeueAfter(HELD_AGAIN)
        if not self._is_leading() and (rest := self._left_to_leader(pod, memory)) is not None:
            return rest
        settings = self._facts.settings
        if settings is None:
            self._settle(key, memory)
            again = await self._writes.release(key, pod, memory) if has_gate(pod) else None
            return again or NoRequeue()
        facts = self._facts.about(pod, key.namespace, stored=True)
        if facts is None:
            return RequeueAfter(FACTS_AGAIN)
        if self._changed.is_about(pod):
            return await self._changed.go_on(key, facts, memory)
        case = examine(facts)
        if memory.settled == _grounds(case):
            return NoRequeue()
        return await self._judge(key, case, memory)

    def _left_to_leader(self, pod: Pod, memory: PodState) -> Result | None:
        """When a standby looks again; None: it does what the leader should have done."""
        settings = self._facts.settings
        if settings is None or not has_gate(pod) or settings.on_timeout == "keep":
            return NoRequeue()
        limit = settings.gate_timeout + STANDBY
        left = limit - waited(pod, memory, now=self._clock.monotonic(), moment=self._clock.now())
        return RequeueAfter(left) if left > 0 else None

    async def _judge(self, key: ObjectKey, case: Case, memory: PodState) -> Result:
        known: PodImageState | None = PodImageState({})
        if case.rule is None:
            known = self._images.inquiry.resolve(image_request(case), key, memory.waiter)
        pending = known is None or known.pending or known.undecidable
        seconds = self._counted(case.pod, memory, case.settings, pending=pending)
        left = case.settings.gate_timeout - seconds
        if known is None and left > 0:
            return RequeueAfter(left)  # its pull secrets are being read, which wakes it
        known = known or PodImageState({})
        if known.undecidable and left > 0:
            self._park(key, known)
            return RequeueAfter(left)
        decision = decide_after(case, known.inspections, Waited(seconds, pending))
        if case.rule is None:
            read = assess(case, known.inspections).images
            memory.platforms = common_platforms(read, case.settings.compatibility)
        return await self._carry_out(
            PendingPodEvaluation(key, case, decision, memory, known), left if left > 0 else None
        )

    def _counted(self, pod: Pod, memory: PodState, settings: TaintSettings, *, pending: bool) -> float:
        return counted(
            pod,
            memory,
            settings.gate_timeout,
            pending=pending,
            now=self._clock.monotonic(),
            moment=self._clock.now(),
        )

    async def _carry_out(self, judged: PendingPodEvaluation, left: float | None) -> Result:
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
                    return await self._writes.release(key, case.pod, memory) or NoRequeue()
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
            return NoRequeue()
        memory.architectures = _possible(case, known)
        self._park(key, known)
        if decision.keeps_gate and decision.timed_out:
            return RequeueAfter(self._writes.next_telling(memory))
        return RequeueAfter(left) if left is not None else NoRequeue()

    def _count(self, judged: PendingPodEvaluation) -> None:
        pod, decision = judged.case.pod, judged.decision
        self._metrics.decided(decision.reason.value)
        if has_gate(pod) and not decision.keeps_gate:
            moment, now = self._clock.now(), self._clock.monotonic()
            self._metrics.gate_seconds.observe(waited(pod, judged.memory, now=now, moment=moment))

    def _park(self, key: ObjectKey, known: PodImageState) -> None:
        self._images.waiting.park(key, (*known.wants, *known.answered))

    def _settle(self, key: ObjectKey, memory: PodState, *, settled: object = None) -> None:
        """The pod waits for no image."""
        self._images.waiting.leave(key)
        memory.settled = settled
        memory.is_unknown = memory.is_waiting = False

    def _remember(self, key: ObjectKey, pod: Pod) -> PodState:
        memory = self._memories.get(key)
        if memory is None or memory.waiter.uid != pod.metadata.uid:
            self._forget(key)
            memory = self._memories[key] = PodState(pod.metadata.uid, self._clock.monotonic())
        return memory

    def _forget(self, key: ObjectKey) -> None:
        self._memories.pop(key, None)
        self._images.waiting.leave(key)
        self._writes.leaves(key)

    # -- internal errors -----------------------------------------------------------------------------------------------

    async def _fault(self, key: ObjectKey, error: Exception) -> Result:
        """A bug counts as a failure that time may cure; when the pod's time is over it loses our gate nevertheless."""
        self._metrics.internal_errors.inc()
        log.error("a pass over a pod met a bug", pod=str(key), exc_info=error if self._causes.is_new(error) else None)
        pod, memory, settings = self._pods.get(key), self._memories.get(key), self._facts.settings
        if pod is None or memory is None or settings is None or not has_gate(pod):
            return RequeueAfter(backoff.MAX_DELAY)
        if self._counted(pod, memory, settings, pending=True) < settings.gate_timeout:
            return RequeueAfter(backoff.delay(1, uniform=self._uniform()))
        return await self._writes.release(key, pod, memory) or NoRequeue()


def _possible(case: Case, known: PodImageState) -> tuple[str, ...]:
    """What is known of A; a fallback does not count."""
    return tuple(assess(case, known.inspections).known.managed)


def _grounds(case: Case, added: Iterable[str] = ()) -> object:
    """All that a decision with all answers depends on, except these: an image is judged once per pod. ``added``: the
    architectures for which it adds tolerations."""
    facts, present = case.facts, case.pod.spec.tolerations or ()
    tolerations = (*present, *map(facts.settings.toleration, added))
    return case.rule, case.images, case.constraints, case.system, facts.settings, facts.existing, tolerations
