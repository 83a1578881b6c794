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
from polyarch.kube.errors import Conflict
from polyarch.kube.patches import Operation
from polyarch.kube.resources import PODS
from polyarch.objects import ObjectKey, Pod
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

_RETRIED_RESULTS: Final = (PatchStatus.MOVED_ON, PatchStatus.UNANSWERED, PatchStatus.UNREACHED)
"""Results after which labelling a waiting pod is tried again."""


PostEvent = Callable[[Pod, Event], None]
"""Posts an event about a pod some time later; never waits."""


class DecisionContext(NamedTuple):
    """The decision of one reconcile, with its inputs."""

    key: ObjectKey
    case: ExaminedPod
    decision: PlacementDecision
    state: PodState
    problems: tuple[str, ...]
    """Problems of the pod's pull secrets."""
    inspections: Mapping[str, Inspection] = {}
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
        outage: OutageBackoff,
        uniform: Callable[[], float],
        mutator: PodMutator | None = None,
    ) -> None:
        self._client = client
        self._mutator = mutator
        self._post = post
        self._clock = clock
        self._metrics = metrics
        self._is_leading = is_leading
        self._is_connected = is_connected
        self._outage = outage
        self._uniform = uniform

    # -- removing the gate ---------------------------------------------------------------------------------------------

    async def release(self, context: DecisionContext) -> Result | None:
        """Writes the outcome and removes the gate; None if done, else when to reconcile again."""
        state, settings = context.state, context.case.settings
        self._post_gate_event(context)
        now = self._clock.monotonic()
        refused_for = state.patches.refused_for(now)
        persists = self._is_leading() and refused_for >= settings.retry_window
        if persists and gives_way(settings, refused_for):
            context = context._replace(decision=without_affinity(context.decision, state.patches.refusal))
        elif persists:
            state.hold(now)
        write = await self._write(context.key, context.case.pod, self._patch(context), state)
        match write.result:
            case PatchStatus.DONE:
                self._count(context)
                if self._is_leading():
                    self._post_all(context, events_for(context.case, context.decision))
                return None
            case PatchStatus.MOVED_ON:
                return self._wait_for_event(state)
            case PatchStatus.UNANSWERED | PatchStatus.UNREACHED:
                return self._not_answered(context.key, state, write)
        return self._refused(context.key, context.case.pod, state, settings, write)

    def _patch(self, context: DecisionContext) -> tuple[Operation, ...]:
        """What the decision writes, with what another feature adds. Once the API server has refused that, the decision
        alone: the other feature finds the pod later."""
        operations = controller_patch(context.case, context.decision)
        if self._mutator is None or not operations or context.state.patches.refusal:
            return operations
        alongside = MutationContext(os=context.decision.os)
        mutation = self._mutator.at_release(context.case.pod, context.inspections, alongside)
        return join_patches(operations, mutation.operations)

    async def give_up_undecided(
        self, key: ObjectKey, pod: Pod, state: PodState, settings: Settings, *, lasts: float, later: Result
    ) -> Result | None:
        """Ends the retries of a pod that an internal error has kept undecided for its whole retry window.

        It is released unchanged, or held if the policy never releases a pod without a constraint. None if it is
        released, else when to try again: ``later``, unless the API server's answer determines it.
        """
        now = self._clock.monotonic()
        if not gives_way(settings, lasts):
            state.hold(now)
            if state.throttle.is_due(RepeatedEvent.HELD, now):
                self._post(pod, held_undecided_event(settings))
            return later
        write = await self._write(key, pod, bare_release(pod), state)
        match write.result:
            case PatchStatus.DONE:
                self._metrics.decided(Reason.RELEASED_UNCONSTRAINED.value, "controller", "enforce")
                log.warning("a pod is released because a bug keeps it from being decided", pod=str(key))
                return None
            case PatchStatus.MOVED_ON:
                return later
            case PatchStatus.UNANSWERED | PatchStatus.UNREACHED:
                return self._not_answered(key, state, write)
        return self._refused(key, pod, state, settings, write)

    def _wait_for_event(self, state: PodState) -> Result:
        left = state.patches.wait_for_event(self._clock.monotonic())
        return NoRequeue() if left is None else RequeueAfter(left)

    def _not_answered(self, key: ObjectKey, state: PodState, write: PatchResult) -> Result:
        now = self._clock.monotonic()
        times = state.patches.not_answered(now)
        # While the API server is down, only one pod logs it.
        is_alone = write.result is PatchStatus.UNANSWERED or not self._outage.has_begun
        if is_alone and state.throttle.is_due(RepeatedEvent.SILENCE, now):
            log.warning("no answer to the release of a pod, trying again", pod=str(key), error=str(write.error))
        return RequeueAfter(self._again(key, write.result, times))

    def _again(self, key: ObjectKey, written: PatchStatus, times: int) -> float:
        """Seconds until a write is sent again after ``times`` without an answer."""
        if written is PatchStatus.UNREACHED:
            return self._outage.holds(key)
        return backoff.delay(times, uniform=self._uniform())

    def _refused(self, key: ObjectKey, pod: Pod, state: PodState, settings: Settings, write: PatchResult) -> Result:
        now = self._clock.monotonic()
        delay = state.patches.refused(write.refusal, now)
        if not self._is_leading():
            return RequeueAfter(MAX_REJECTED_DELAY)  # the leader retries, and is refused for the same reason
        if state.throttle.is_due(RepeatedEvent.REFUSAL, now):
            self._post(pod, gate_removal_failed_event(str(write.error)))
            log.warning("the API server refuses to release a pod", pod=str(key), error=str(write.error))
        if state.held_since is not None and state.throttle.is_due(RepeatedEvent.HELD, now):
            self._post(pod, held_rejected_event(settings, write.refusal))
        return RequeueAfter(delay)

    def _count(self, context: DecisionContext) -> None:
        state, metrics, now = context.state, self._metrics, self._clock.monotonic()
        state.held_since = None
        metrics.decided(context.decision.reason.value, "controller", "enforce")
        metrics.processed_pods.inc()
        metrics.gate_seconds.observe(now - state.seen_at)
        metrics.process_gated_pod.observe(now - state.seen_at)
        if context.case.images:
            metrics.inspect_pod_images.observe(now - since if (since := state.retry_window.since) is not None else 0.0)
        if context.decision.no_matching_node:
            metrics.no_matching_node.inc()

    # -- keeping the gate ----------------------------------------------------------------------------------------------

    async def keep(self, context: DecisionContext, *, now: float) -> Result:
        """Labels a waiting pod and posts its events when due; returns when to reconcile again.

        ``now`` is the time of the decision: limits that end after it were not considered by this reconcile.
        """
        state, decision = context.state, context.decision
        self._post_gate_event(context)
        throttle, is_held = state.throttle, decision.outcome is PlacementOutcome.HELD
        if is_held:
            state.hold(now)
        else:
            state.held_since = None
        labelled = PatchStatus.DONE
        if decision.outcome is PlacementOutcome.FAILING and not throttle.failing:
            labelled = await self._label(context)
            throttle.failing = labelled not in _RETRIED_RESULTS
        elif is_held and throttle.posted_at(RepeatedEvent.HELD) is None:
            labelled = await self._label(context)
            if labelled not in _RETRIED_RESULTS:
                throttle.record(RepeatedEvent.HELD, now)
                self._metrics.decided(decision.reason.value, "controller", "enforce")
        elif is_held and throttle.is_due(RepeatedEvent.HELD, now):
            self._post_all(context, (held_event(decision),))
        if labelled is PatchStatus.MOVED_ON:
            return self._wait_for_event(state)
        window = state.retry_window
        waits = [
            window.in_line_until(now)
            if window.first_attempt is None
            else next_change(decision, context.case.settings, window.elapsed(now))
        ]
        if labelled in (PatchStatus.UNANSWERED, PatchStatus.UNREACHED):
            waits.append(self._again(context.key, labelled, state.patches.not_answered(now)))
        if throttle.gate < 2:
            waits.append(state.seen_at + GATE_ADDED_AFTER - now)
        if is_held:
            waits.append(throttle.seconds_until_due(RepeatedEvent.HELD, now))
        due = [wait for wait in waits if wait is not None]
        return RequeueAfter(max(now + min(due) - self._clock.monotonic(), 0.0)) if due else NoRequeue()

    async def _label(self, context: DecisionContext) -> PatchStatus:
        """Labels a waiting pod. A refusal has no consequence, as the gate stays."""
        operations = controller_patch(context.case, context.decision)
        if not operations:
            return PatchStatus.DONE  # another process has written it
        write = await self._write(context.key, context.case.pod, operations, context.state)
        if write.result is PatchStatus.DONE:
            self._post_all(context, events_for(context.case, context.decision))
        elif write.result is not PatchStatus.MOVED_ON:
            log.warning("a waiting pod could not be labelled", pod=str(context.key), error=str(write.error))
        return write.result

    # -- writing and events --------------------------------------------------------------------------------------------

    async def _write(self, key: ObjectKey, pod: Pod, operations: tuple[Operation, ...], state: PodState) -> PatchResult:
        """The one PATCH from this version of the pod."""
        version = pod.metadata.resource_version
        write = await write_guarded(self._client, PODS, key, operations, version, is_connected=self._is_connected)
        if write.result is not PatchStatus.UNREACHED:
            self._outage.over()
        if write.result is PatchStatus.MOVED_ON:
            self._metrics.patch_conflicts.inc()
        now = self._clock.monotonic()
        if write.result is PatchStatus.DONE:
            state.patches.done(version)
        elif write.result is PatchStatus.MOVED_ON:
            state.patches.moved_on(version, now, conflict=isinstance(write.error, Conflict))
        return write

    def _post_gate_event(self, context: DecisionContext) -> None:
        """Posts the gate event if due: when the pod is first seen, and after 2 s."""
        state = context.state
        seconds = self._clock.monotonic() - state.seen_at
        stage = 2 if seconds >= GATE_ADDED_AFTER else 1
        if not self._is_leading() or state.throttle.gate >= stage:
            return
        state.throttle.gate = stage
        event = gate_added_event(context.case, context.decision, seconds_gated=seconds)
        if event is not None:
            self._post(context.case.pod, event)

    def _post_all(self, context: DecisionContext, due: Iterable[Event]) -> None:
        problems = "; ".join(context.problems) if context.decision.unresolved else ""
        for event in due:
            self._post(context.case.pod, _with_detail(event, problems) if problems else event)


def gives_way(settings: Settings, lasts: float) -> bool:
    """Whether a pod that could not be released or context for ``lasts`` seconds is released without its constraint.

    It is if the policy releases, if placement is being uninstalled, or if ``holdLimit`` has passed.
    """
    return not settings.keeps_refused or (settings.hold_limit is not None and lasts >= settings.hold_limit)


def _with_detail(event: Event, detail: str) -> Event:
    """The event with more details of the failure, such as a missing pull secret."""
    if event.type != "Warning":
        return event
    note = f"{event.note} ({detail})".encode()[:MAX_NOTE].decode(errors="ignore")
    return msgspec.structs.replace(event, note=note)
