"""Carries out the decision about a gated pod: releases it, or reports why it waits.

There is at most one PATCH per resourceVersion of the pod, and events are posted only after the write that they report.
The API server's response determines when the pod is reconciled again, never immediately. The PATCH that removes the
gate also carries what another feature changes in the pod (``images/pod_mutation``).
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

import msgspec
import structlog

from polyarch.clock import Clock
from polyarch.images import backoff
from polyarch.images.pod_mutation import MutationContext, PodMutator, join_patches
from polyarch.kube.controller import After, Done, Outage, Patches, Result, Write, Written, write_guarded
from polyarch.kube.errors import Conflict
from polyarch.kube.patches import Operation
from polyarch.kube.resources import PODS
from polyarch.objects import Key, Pod
from polyarch.oci.inspection import Inspection
from polyarch.placement.decision import PlacementDecision, PlacementOutcome, Reason
from polyarch.placement.events import (
    GATE_ADDED_AFTER,
    MAX_NOTE,
    Event,
    events_for,
    gate_added_event,
    gate_removal_failed_event,
    held_event,
    held_rejected_event,
    held_undecided_event,
)
from polyarch.placement.metrics import PlacementMetrics
from polyarch.placement.patch import bare_release, controller_patch
from polyarch.placement.pod_state import MAX_REJECTED_DELAY, PodState, RepeatedEvent
from polyarch.placement.rules import ExaminedPod, next_change, without_affinity
from polyarch.placement.settings import Settings

log = structlog.get_logger(__name__)

_RETRIED_RESULTS: Final = (Written.MOVED_ON, Written.UNANSWERED, Written.UNREACHED)
"""Results after which labelling a waiting pod is tried again."""


PostEvent = Callable[[Pod, Event], None]
"""Posts an event about a pod some time later; never waits."""


class DecisionContext(NamedTuple):
    """The decision of one reconcile, with its inputs."""

    key: Key
    case: ExaminedPod
    decision: PlacementDecision
    memory: PodState
    problems: tuple[str, ...]
    """Problems of the pod's pull secrets."""
    answers: Mapping[str, Inspection] = {}
    """The answers for the pod's images that were known for the decision, by the text of the reference."""


class DecisionWriter:
    """Writes pods and posts their events. A standby writes only complete decisions and posts no events."""

    def __init__(
        self,
        *,
        client: Patches,
        post: PostEvent,
        clock: Clock,
        metrics: PlacementMetrics,
        is_leading: Callable[[], bool],
        is_connected: Callable[[], bool],
        outage: Outage,
        uniform: Callable[[], float],
        additions: PodMutator | None = None,
    ) -> None:
        self._client = client
        self._additions = additions
        self._post = post
        self._clock = clock
        self._metrics = metrics
        self._is_leading = is_leading
        self._is_connected = is_connected
        self._outage = outage
        self._uniform = uniform

    # -- removing the gate ---------------------------------------------------------------------------------------------

    async def release(self, decided: DecisionContext) -> Result | None:
        """Writes the outcome and removes the gate; None if done, else when to reconcile again."""
        memory, settings = decided.memory, decided.case.settings
        self._tell_of_gate(decided)
        now = self._clock.monotonic()
        refused_for = memory.patches.refused_for(now)
        persists = self._is_leading() and refused_for >= settings.retry_window
        if persists and gives_way(settings, refused_for):
            decided = decided._replace(decision=without_affinity(decided.decision, memory.patches.refusal))
        elif persists:
            memory.hold(now)
        write = await self._write(decided.key, decided.case.pod, self._patch(decided), memory)
        match write.result:
            case Written.DONE:
                self._count(decided)
                if self._is_leading():
                    self._tell(decided, events_for(decided.case, decided.decision))
                return None
            case Written.MOVED_ON:
                return self._wait_for_event(memory)
            case Written.UNANSWERED | Written.UNREACHED:
                return self._not_answered(decided.key, memory, write)
        return self._refused(decided.key, decided.case.pod, memory, settings, write)

    def _patch(self, decided: DecisionContext) -> tuple[Operation, ...]:
        """What the decision writes, with what another feature adds. Once the API server has refused that, the decision
        alone: the other feature finds the pod later."""
        operations = controller_patch(decided.case, decided.decision)
        if self._additions is None or not operations or decided.memory.patches.refusal:
            return operations
        alongside = MutationContext(os=decided.decision.os)
        added = self._additions.at_release(decided.case.pod, decided.answers, alongside)
        return join_patches(operations, added.operations)

    async def give_up_undecided(
        self, key: Key, pod: Pod, memory: PodState, settings: Settings, *, lasts: float, later: Result
    ) -> Result | None:
        """Ends the retries of a pod that an internal error has kept undecided for its whole retry window.

        It is released unchanged, or held if the policy never releases a pod without a constraint. None if it is
        released, else when to try again: ``later``, unless the API server's answer determines it.
        """
        now = self._clock.monotonic()
        if not gives_way(settings, lasts):
            memory.hold(now)
            if memory.throttle.is_due(RepeatedEvent.HELD, now):
                self._post(pod, held_undecided_event(settings))
            return later
        write = await self._write(key, pod, bare_release(pod), memory)
        match write.result:
            case Written.DONE:
                self._metrics.decided(Reason.RELEASED_UNCONSTRAINED.value, "controller", "enforce")
                log.warning("a pod is released because a bug keeps it from being decided", pod=str(key))
                return None
            case Written.MOVED_ON:
                return later
            case Written.UNANSWERED | Written.UNREACHED:
                return self._not_answered(key, memory, write)
        return self._refused(key, pod, memory, settings, write)

    def _wait_for_event(self, memory: PodState) -> Result:
        left = memory.patches.wait_for_event(self._clock.monotonic())
        return Done() if left is None else After(left)

    def _not_answered(self, key: Key, memory: PodState, write: Write) -> Result:
        now = self._clock.monotonic()
        times = memory.patches.not_answered(now)
        # While the API server is down, only one pod logs it.
        is_alone = write.result is Written.UNANSWERED or not self._outage.has_begun
        if is_alone and memory.throttle.is_due(RepeatedEvent.SILENCE, now):
            log.warning("no answer to the release of a pod, trying again", pod=str(key), error=str(write.error))
        return After(self._again(key, write.result, times))

    def _again(self, key: Key, written: Written, times: int) -> float:
        """Seconds until a write is sent again after ``times`` without an answer."""
        if written is Written.UNREACHED:
            return self._outage.holds(key)
        return backoff.delay(times, uniform=self._uniform())

    def _refused(self, key: Key, pod: Pod, memory: PodState, settings: Settings, write: Write) -> Result:
        now = self._clock.monotonic()
        delay = memory.patches.refused(write.refusal, now)
        if not self._is_leading():
            return After(MAX_REJECTED_DELAY)  # the leader retries, and is refused for the same reason
        if memory.throttle.is_due(RepeatedEvent.REFUSAL, now):
            self._post(pod, gate_removal_failed_event(str(write.error)))
            log.warning("the API server refuses to release a pod", pod=str(key), error=str(write.error))
        if memory.held_since is not None and memory.throttle.is_due(RepeatedEvent.HELD, now):
            self._post(pod, held_rejected_event(settings, write.refusal))
        return After(delay)

    def _count(self, decided: DecisionContext) -> None:
        memory, metrics, now = decided.memory, self._metrics, self._clock.monotonic()
        memory.held_since = None
        metrics.decided(decided.decision.reason.value, "controller", "enforce")
        metrics.processed_pods.inc()
        metrics.gate_seconds.observe(now - memory.seen_at)
        metrics.process_gated_pod.observe(now - memory.seen_at)
        if decided.case.images:
            metrics.inspect_pod_images.observe(now - since if (since := memory.retry_window.since) is not None else 0.0)
        if decided.decision.no_matching_node:
            metrics.no_matching_node.inc()

    # -- keeping the gate ----------------------------------------------------------------------------------------------

    async def keep(self, decided: DecisionContext, *, now: float) -> Result:
        """Labels a waiting pod and posts its events when due; returns when to reconcile again.

        ``now`` is the time of the decision: limits that end after it were not considered by this reconcile.
        """
        memory, decision = decided.memory, decided.decision
        self._tell_of_gate(decided)
        throttle, is_held = memory.throttle, decision.outcome is PlacementOutcome.HELD
        if is_held:
            memory.hold(now)
        else:
            memory.held_since = None
        noted = Written.DONE
        if decision.outcome is PlacementOutcome.FAILING and not throttle.failing:
            noted = await self._note(decided)
            throttle.failing = noted not in _RETRIED_RESULTS
        elif is_held and throttle.posted_at(RepeatedEvent.HELD) is None:
            noted = await self._note(decided)
            if noted not in _RETRIED_RESULTS:
                throttle.record(RepeatedEvent.HELD, now)
                self._metrics.decided(decision.reason.value, "controller", "enforce")
        elif is_held and throttle.is_due(RepeatedEvent.HELD, now):
            self._tell(decided, (held_event(decision),))
        if noted is Written.MOVED_ON:
            return self._wait_for_event(memory)
        window = memory.retry_window
        waits = [
            window.in_line_until(now)
            if window.first_attempt is None
            else next_change(decision, decided.case.settings, window.elapsed(now))
        ]
        if noted in (Written.UNANSWERED, Written.UNREACHED):
            waits.append(self._again(decided.key, noted, memory.patches.not_answered(now)))
        if throttle.gate < 2:
            waits.append(memory.seen_at + GATE_ADDED_AFTER - now)
        if is_held:
            waits.append(throttle.seconds_until_due(RepeatedEvent.HELD, now))
        due = [wait for wait in waits if wait is not None]
        return After(max(now + min(due) - self._clock.monotonic(), 0.0)) if due else Done()

    async def _note(self, decided: DecisionContext) -> Written:
        """Labels a waiting pod. A refusal has no consequence, as the gate stays."""
        operations = controller_patch(decided.case, decided.decision)
        if not operations:
            return Written.DONE  # another process has written it
        write = await self._write(decided.key, decided.case.pod, operations, decided.memory)
        if write.result is Written.DONE:
            self._tell(decided, events_for(decided.case, decided.decision))
        elif write.result is not Written.MOVED_ON:
            log.warning("a waiting pod could not be labelled", pod=str(decided.key), error=str(write.error))
        return write.result

    # -- writing and events --------------------------------------------------------------------------------------------

    async def _write(self, key: Key, pod: Pod, operations: tuple[Operation, ...], memory: PodState) -> Write:
        """The one PATCH from this version of the pod."""
        version = pod.metadata.resource_version
        write = await write_guarded(self._client, PODS, key, operations, version, is_connected=self._is_connected)
        if write.result is not Written.UNREACHED:
            self._outage.over()
        if write.result is Written.MOVED_ON:
            self._metrics.patch_conflicts.inc()
        now = self._clock.monotonic()
        if write.result is Written.DONE:
            memory.patches.done(version)
        elif write.result is Written.MOVED_ON:
            memory.patches.moved_on(version, now, conflict=isinstance(write.error, Conflict))
        return write

    def _tell_of_gate(self, decided: DecisionContext) -> None:
        """Posts the gate event if due: when the pod is first seen, and after 2 s."""
        memory = decided.memory
        seconds = self._clock.monotonic() - memory.seen_at
        stage = 2 if seconds >= GATE_ADDED_AFTER else 1
        if not self._is_leading() or memory.throttle.gate >= stage:
            return
        memory.throttle.gate = stage
        event = gate_added_event(decided.case, decided.decision, seconds_gated=seconds)
        if event is not None:
            self._post(decided.case.pod, event)

    def _tell(self, decided: DecisionContext, due: Iterable[Event]) -> None:
        problems = "; ".join(decided.problems) if decided.decision.unresolved else ""
        for event in due:
            self._post(decided.case.pod, _with_detail(event, problems) if problems else event)


def gives_way(settings: Settings, lasts: float) -> bool:
    """Whether a pod that could not be released or decided for ``lasts`` seconds is released without its constraint.

    It is if the policy releases, if placement is being uninstalled, or if ``holdLimit`` has passed.
    """
    return not settings.keeps_refused or (settings.hold_limit is not None and lasts >= settings.hold_limit)


def _with_detail(event: Event, detail: str) -> Event:
    """The event with more details of the failure, such as a missing pull secret."""
    if event.type != "Warning":
        return event
    note = f"{event.note} ({detail})".encode()[:MAX_NOTE].decode(errors="ignore")
    return msgspec.structs.replace(event, note=note)
