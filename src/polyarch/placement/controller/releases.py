"""What is done with a gated pod once it is decided: it is released, or it is told why it waits (PL-303 to PL-305).

A decision costs at most one PATCH from each version of the pod, and events only after the write they speak of. What the
API server says to the PATCH decides when the pod is looked at again: never at once, whatever it says.
"""

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple, Protocol

import msgspec
import structlog

from polyarch.kube.client.jsonpatch import Operation
from polyarch.kube.clock import Clock
from polyarch.kube.errors import Conflict
from polyarch.kube.runtime.controller import After, Done, Result
from polyarch.model.meta import Key
from polyarch.model.pod import Pod
from polyarch.placement.controller.gated import REFUSED_LAST, TELL_HELD_EVERY, GatedPod, bare_release
from polyarch.placement.controller.writing import Write, WritesPods, Written, write_pod
from polyarch.placement.decide import retry
from polyarch.placement.decide.decision import Decision, Outcome, Reason
from polyarch.placement.decide.rules import Case, without_affinity
from polyarch.placement.metrics import PlacementMetrics
from polyarch.placement.result import events
from polyarch.placement.result.events import Event
from polyarch.placement.result.patch import controller_patch

log = structlog.get_logger(__name__)

MOVED_ON_WAIT: Final = 10.0
MOVED_ON_WAITS: Final = 7
"""How long the event of a pod that moved on may take to reach us, and how often we wait for it: a process that stood
still has not waited, and a stray is seen again only by the next look, a minute later (``pods.EVERY``)."""
CONFLICT_WAIT: Final = 5.0
"""The same after HTTP 409, which says less: then the PATCH is simply sent again."""
_NOT_SAID: Final = (Written.MOVED_ON, Written.UNANSWERED)
"""How a PATCH ends that says on the pod why it waits, if it is to be said again."""


class Posts(Protocol):
    """Posts an event about a pod some time later; never waits."""

    def __call__(self, pod: Pod, event: Event) -> None: ...


class Decided(NamedTuple):
    """What one pass made of a pod."""

    key: Key
    case: Case
    decision: Decision
    memory: GatedPod
    problems: tuple[str, ...]
    """Of its pull secrets."""


class Releases:
    """Writes to pods and tells of them. Who does not lead writes complete answers only, and tells nothing (PL-530)."""

    def __init__(
        self,
        *,
        client: WritesPods,
        post: Posts,
        clock: Clock,
        metrics: PlacementMetrics,
        is_leading: Callable[[], bool],
        uniform: Callable[[], float],
    ) -> None:
        self._client = client
        self._post = post
        self._clock = clock
        self._metrics = metrics
        self._is_leading = is_leading
        self._uniform = uniform

    # -- the gate is lifted --------------------------------------------------------------------------------------------

    async def release(self, decided: Decided) -> Result | None:
        """Writes the outcome and lifts the gate; None if that is done, else when to look at the pod again."""
        memory, settings = decided.memory, decided.case.settings
        self._tell_of_gate(decided)
        now = self._clock.monotonic()
        if self._is_leading() and memory.refused_since is not None and memory.refused_for(now) >= settings.retry_window:
            if settings.unresolved_action == "release":
                decided = decided._replace(decision=without_affinity(decided.decision, memory.refusal))
            elif memory.held_since is None:
                memory.held_since = now
        write = await self._write(
            decided.key, decided.case.pod, controller_patch(decided.case, decided.decision), memory
        )
        match write.result:
            case Written.DONE:
                self._count(decided)
                if self._is_leading():
                    self._tell(decided, events.events_for(decided.case, decided.decision))
                return None
            case Written.MOVED_ON:
                return self.wait_for_event(memory)
            case Written.UNANSWERED:
                return self._not_answered(decided, write)
        return self._refused(decided, write)

    async def release_bare(self, key: Key, pod: Pod, memory: GatedPod) -> bool:
        """Lifts the gate of a pod that a bug of ours keeps from being decided (PL-306); whether that is done."""
        write = await self._write(key, pod, bare_release(pod), memory)
        if write.result is not Written.DONE:
            return False
        self._metrics.decided(Reason.RELEASED_UNCONSTRAINED.value, "controller", "enforce")
        log.warning("a pod is released because a bug keeps it from being decided", pod=str(key))
        return True

    def wait_for_event(self, memory: GatedPod) -> Result:
        """We wrote from this version, so the next event brings the pod back.

        If the API server refused the patch as not fitting and yet nothing changes, then it is the patch that is wrong.
        """
        if memory.moved_on_at is None:
            return Done()
        now = self._clock.monotonic()
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

    def _not_answered(self, decided: Decided, write: Write) -> Result:
        memory, now = decided.memory, self._clock.monotonic()
        times = memory.not_answered(now)
        if memory.may_tell_silence(now):
            log.warning("no answer to the release of a pod, trying again", pod=str(decided.key), error=str(write.error))
        return After(retry.delay(times, uniform=self._uniform()))

    def _refused(self, decided: Decided, write: Write) -> Result:
        now = self._clock.monotonic()
        delay = decided.memory.refused(write.refusal, now)
        if not self._is_leading():
            return After(REFUSED_LAST)  # the leader insists, and is refused for the same reason
        if decided.memory.may_tell_refusal(now):
            self._post(decided.case.pod, events.gate_removal_failed(str(write.error)))
            log.warning("the API server refuses to release a pod", pod=str(decided.key), error=str(write.error))
        return After(delay)

    def _count(self, decided: Decided) -> None:
        memory, metrics, now = decided.memory, self._metrics, self._clock.monotonic()
        memory.held_since = None
        metrics.decided(decided.decision.reason.value, "controller", "enforce")
        metrics.processed_pods.inc()
        metrics.gate_seconds.observe(now - memory.seen_at)
        metrics.process_gated_pod.observe(now - memory.seen_at)
        if decided.case.images:
            metrics.inspect_pod_images.observe(now - memory.waiting_since if memory.waiting_since is not None else 0.0)
        if decided.decision.no_matching_node:
            metrics.no_matching_node.inc()

    # -- the gate stays ------------------------------------------------------------------------------------------------

    async def keep(self, decided: Decided, *, now: float) -> Result:
        """Says on the pod that it waits, where that is due, and when to look again (PL-332, PL-334).

        ``now`` is the time for which it was decided: what ends after that has not been seen by this pass.
        """
        memory, decision = decided.memory, decided.decision
        self._tell_of_gate(decided)
        memory.held_since = (memory.held_since or now) if decision.outcome is Outcome.HELD else None
        noted = Written.DONE
        if decision.outcome is Outcome.FAILING and not memory.told_failing:
            noted = await self._note(decided)
            memory.told_failing = noted not in _NOT_SAID
        elif decision.outcome is Outcome.HELD and memory.held_told_at is None:
            noted = await self._note(decided)
            if noted not in _NOT_SAID:
                memory.held_told_at = now
                self._metrics.decided(decision.reason.value, "controller", "enforce")
        elif decision.outcome is Outcome.HELD and memory.may_tell_held(now):
            self._tell(decided, (events.held(decision),))
        if noted is Written.MOVED_ON:
            return self.wait_for_event(memory)
        waits = [
            memory.in_line_until(now)
            if memory.first_attempt is None
            else retry.next_change(decision, decided.case.settings, memory.elapsed(now))
        ]
        if noted is Written.UNANSWERED:
            waits.append(retry.delay(memory.not_answered(now), uniform=self._uniform()))
        if memory.gate_told < 2:
            waits.append(memory.seen_at + events.GATE_ADDED_AFTER - now)
        if memory.held_told_at is not None and decision.outcome is Outcome.HELD:
            waits.append(memory.held_told_at + TELL_HELD_EVERY - now)
        due = [wait for wait in waits if wait is not None]
        return After(max(now + min(due) - self._clock.monotonic(), 0.0)) if due else Done()

    async def _note(self, decided: Decided) -> Written:
        """Labels a pod that goes on waiting. A refusal is of no consequence; the gate is what matters."""
        operations = controller_patch(decided.case, decided.decision)
        if not operations:
            return Written.DONE  # another process said so before
        write = await self._write(decided.key, decided.case.pod, operations, decided.memory)
        if write.result is Written.DONE:
            self._tell(decided, events.events_for(decided.case, decided.decision))
        elif write.result is not Written.MOVED_ON:
            log.warning("a waiting pod could not be labelled", pod=str(decided.key), error=str(write.error))
        return write.result

    # -- writing and telling -------------------------------------------------------------------------------------------

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

    def _tell_of_gate(self, decided: Decided) -> None:
        """At first sight, and once more after 2 s (PL-710)."""
        memory = decided.memory
        seconds = self._clock.monotonic() - memory.seen_at
        stage = 2 if seconds >= events.GATE_ADDED_AFTER else 1
        if not self._is_leading() or memory.gate_told >= stage:
            return
        memory.gate_told = stage
        event = events.gate_added(decided.case, decided.decision, seconds_gated=seconds)
        if event is not None:
            self._post(decided.case.pod, event)

    def _tell(self, decided: Decided, due: Iterable[Event]) -> None:
        problems = "; ".join(decided.problems) if decided.decision.unresolved else ""
        for event in due:
            self._post(decided.case.pod, _with_detail(event, problems) if problems else event)


def _with_detail(event: Event, detail: str) -> Event:
    """The event with what else is known of the failure, such as a pull secret that does not exist (PL-422)."""
    if event.type != "Warning":
        return event
    note = f"{event.note} ({detail})".encode()[: events.MAX_NOTE].decode(errors="ignore")
    return msgspec.structs.replace(event, note=note)
