"""Evicts pods that the webhook missed, through the eviction API, so that PodDisruptionBudgets hold (PL-371)."""

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Final, Protocol

import structlog

from polyarch.clock import Clock
from polyarch.kube.errors import Conflict, KubernetesError, NotFound, TooManyRequests
from polyarch.objects import Pod
from polyarch.placement.metrics import PlacementMetrics
from polyarch.placement.result.events import Event
from polyarch.placement.sweep import notes
from polyarch.placement.sweep.allowance import Allowance
from polyarch.placement.sweep.verdict import Judgement

log = structlog.get_logger(__name__)

AGAIN: Final = 60.0
"""Seconds after which it is looked whether an eviction helped, and one is asked for again that was refused."""


class EvictsPods(Protocol):
    """The part of the client that is needed here."""

    async def evict(self, namespace: str, pod: str, *, uid: str | None = None) -> None: ...


class Eviction:
    """``may_help``: whether a new pod would be placed, that is, whether the webhook is there; false as well for a
    process that leads no more, which it may learn of between two evictions."""

    def __init__(
        self,
        client: EvictsPods,
        *,
        post: Callable[[Pod, Event], None],
        may_help: Callable[[], bool],
        clock: Clock,
        metrics: PlacementMetrics,
    ) -> None:
        self._client = client
        self._post = post
        self._may_help = may_help
        self._clock = clock
        self._metrics = metrics
        self._allowance = Allowance()

    def saw(self, found: Iterable[Judgement]) -> None:
        """The webhook missed these pods, whether or not they may be evicted."""
        for each in found:
            if each.owner is not None:
                self._allowance.saw(each.owner.uid, each.pod.metadata.creation_timestamp or "")

    async def evict(self, found: Iterable[Judgement], *, latest: str, per_minute: int) -> float | None:
        """Evicts what may be evicted now. Seconds until it is worth looking again; None if there was nothing to evict.

        ``latest``: the latest creation time of the pods that were listed.
        """
        waits: list[float] = []
        for each in in_turn(found):
            if not self._may_help():
                return AGAIN
            owner = each.owner
            now = self._clock.monotonic()
            if owner is None:
                continue
            if (rest := self._allowance.wait(owner.uid, now, per_minute=per_minute)) > 0:
                waits.append(rest)
                continue
            self._allowance.tried(now)
            metadata = each.pod.metadata
            try:
                await self._client.evict(metadata.namespace, metadata.name, uid=metadata.uid)
            except (NotFound, Conflict):
                continue  # it is gone, or another pod has its name
            except TooManyRequests:
                waits.append(AGAIN)
                continue
            except KubernetesError as error:
                log.warning("a pod could not be evicted", pod=str(metadata.key), error=str(error))
                return AGAIN
            self._allowance.granted(owner.uid, now, latest=latest)
            waits.append(AGAIN)
            self._metrics.evictions.inc()
            self._post(each.pod, notes.evicted(each))
            log.info("evicted a pod that the webhook missed", pod=str(metadata.key), fault=each.fault.value)
        return min(waits, default=None)


def in_turn(found: Iterable[Judgement]) -> list[Judgement]:
    """Those that may be evicted, namespace by namespace in turn, so that none waits for all pods of another."""
    ranks: Counter[str] = Counter()
    ranked: list[tuple[int, Judgement]] = []
    for each in found:
        if each.evictable:
            namespace = each.pod.metadata.namespace
            ranked.append((ranks[namespace], each))
            ranks[namespace] += 1
    return [each for _, each in sorted(ranked, key=lambda pair: pair[0])]
