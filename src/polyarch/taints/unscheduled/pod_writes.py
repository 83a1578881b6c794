"""Writes pods and tells about them: one PATCH per version of a pod, one event per cause (TN-043, TN-046 to TN-048)."""

from collections.abc import Callable
from typing import Final, Protocol

import structlog

from polyarch.clock import Clock
from polyarch.kube.controller import After, Outage, Patches, Result, Write, Written, write_guarded
from polyarch.kube.patches import Operation
from polyarch.kube.rbac import rule
from polyarch.kube.resources import PODS
from polyarch.objects import Key, Pod
from polyarch.pods.lookups import backoff
from polyarch.taints.decide.decision import PodDecision
from polyarch.taints.metrics import COUNTED, TaintMetrics
from polyarch.taints.result.events import HOURLY, PodEvent, events_for, with_problems
from polyarch.taints.result.pod_patch import bare_release
from polyarch.taints.unscheduled.pod_memory import PodMemory, has_gate

log = structlog.get_logger(__name__)

RIGHTS: Final = (rule(PODS, "get", "list", "watch", "patch"),)
"""RBAC rules of the role for pods (TN-081)."""
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
        note_write: Callable[[Key, str], None],
        wake: Callable[[Key], None],
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
        self._outage = Outage(wake, uniform)

    async def release(self, key: Key, pod: Pod, memory: PodMemory) -> Result | None:
        """Lifts our gate and changes nothing else."""
        return await self.write(key, pod, bare_release(pod), memory)

    async def write(self, key: Key, pod: Pod, operations: tuple[Operation, ...], memory: PodMemory) -> Result | None:
        """One PATCH of this version of the pod; None if it is done, else when to look at the pod again."""
        version = pod.metadata.resource_version
        write = await write_guarded(self._client, PODS, key, operations, version, is_connected=self._is_connected)
        self._metrics.wrote("pod", COUNTED[write.result])
        if write.result is not Written.UNREACHED:
            self._outage.over()
        match write.result:
            case Written.DONE:
                memory.refusals = memory.unanswered = 0
                self._note_write(key, write.version)
                return None
            case Written.MOVED_ON:
                return After(MOVED_ON)
            case Written.REFUSED:
                return After(self._refused(key, memory, write))
            case Written.UNREACHED:
                return After(self._outage.holds(key))
        memory.unanswered += 1
        return After(backoff.delay(memory.unanswered, uniform=self._uniform()))

    def _refused(self, key: Key, memory: PodMemory, write: Write) -> float:
        if not memory.refusals:
            log.warning("the API server refuses to change a pod", pod=str(key), error=str(write.error))
        memory.refusals += 1
        return min(2.0 ** min(memory.refusals, 10), REFUSED_LAST) * (0.75 + 0.5 * self._uniform())

    def tell(self, pod: Pod, decision: PodDecision, memory: PodMemory, problems: tuple[str, ...] = ()) -> None:
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

    def next_telling(self, memory: PodMemory) -> float:
        """Seconds until what is told hourly is due again."""
        return (memory.repeated_at or self._clock.monotonic()) + HOUR - self._clock.monotonic()

    def leaves(self, key: Key) -> None:
        """The pod is gone or has a node."""
        self._outage.leaves(key)
