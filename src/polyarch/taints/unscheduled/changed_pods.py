"""Pods whose image was changed: what the admission could not do about it (TN-049).

It adds what the new images justify, but it can neither post events nor evict, and sometimes it does not know the images
yet. Then it labels the pod, and the leader finishes: it adds what is still missing, says which of our tolerations the
images no longer justify, and evicts the pod if the policy says so and an owner recreates it. The label goes last, so a
new leader finds what the former one did not finish.
"""

from collections.abc import Callable
from typing import Final, Protocol

import msgspec
import structlog

from polyarch.kube.controller import After, Done, Result
from polyarch.kube.errors import Conflict, KubernetesError, NotFound, TooManyRequests
from polyarch.kube.rbac import rule
from polyarch.kube.resources import PODS
from polyarch.objects import Key, Pod
from polyarch.taints import names
from polyarch.taints.decide.image_change import decide_change, examine_change
from polyarch.taints.decide.rules import Facts
from polyarch.taints.lookups.image_waiting import ImageWaiting, asked_about
from polyarch.taints.metrics import TaintMetrics
from polyarch.taints.result.events import shrunk
from polyarch.taints.result.pod_patch import stored_patch
from polyarch.taints.unscheduled.pod_memory import PodMemory, has_gate
from polyarch.taints.unscheduled.pod_writes import REFUSED_LAST, PodWrites, Posts

log = structlog.get_logger(__name__)

EVICT: Final = (rule(PODS, "create", subresource="eviction"),)
"""RBAC rules while ``spec.pods.imageChange`` is ``evict`` (TN-081)."""
EVICT_AGAIN: Final = 10.0
"""Seconds until an eviction is asked for again that a PodDisruptionBudget does not allow now."""


class Evicts(Protocol):
    """The part of the client that is needed here."""

    async def evict(self, namespace: str, pod: str, *, uid: str | None = None) -> None: ...


class ChangedPods:
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
        """Whether the admission left something to do. One with our gate waits like any other that has it, whatever its
        label says: that gate has a time."""
        return not has_gate(pod) and (pod.metadata.labels or {}).get(names.GATED_LABEL) == names.CHANGED

    async def go_on(self, key: Key, facts: Facts, memory: PodMemory) -> Result:
        """One pass over such a pod."""
        if not self._is_leading() or facts.settings.state == "paused":
            return Done()
        case = examine_change(_as_stored(facts), facts.pod)
        known = self._images.inquiry.about(asked_about(case), key, memory.waiter)
        if known is None:
            return Done()  # its pull secrets are being read, which wakes it
        change = decide_change(case, known.answers, facts.pod)
        if known.undecidable or change.decision.unresolved:
            memory.is_judged = True
            self._writes.tell(facts.pod, change.decision, memory, known.problems)
            self._images.waiting.park(key, (*known.wants, *known.answered))
            return Done()
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
        return again or Done()

    async def _evict(self, key: Key, pod: Pod, memory: PodMemory) -> Result:
        try:
            await self._client.evict(key.namespace, key.name, uid=pod.metadata.uid)
        except (NotFound, Conflict):
            return Done()  # it is gone, or another pod has its name
        except TooManyRequests:
            return After(EVICT_AGAIN)
        except KubernetesError as error:
            if memory.waiter.is_news("eviction refused"):
                log.warning("a pod could not be evicted after a change of its image", pod=str(key), error=str(error))
            return After(REFUSED_LAST)
        log.info("evicted a pod after a change of its image", pod=str(key))
        return Done()


def _as_stored(facts: Facts) -> Facts:
    """A change that happened cannot be refused any more; it is reported."""
    if facts.settings.image_change != "deny":
        return facts
    settings = msgspec.structs.replace(facts.settings, image_change="event")
    return msgspec.structs.replace(facts, settings=settings)


def _is_recreated(pod: Pod) -> bool:
    """Whether a controller makes another pod in its place."""
    return any(owner.controller and owner.kind != "Node" for owner in pod.metadata.owner_references or ())
