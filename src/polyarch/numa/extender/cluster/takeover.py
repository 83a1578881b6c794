"""What another replica did before it stopped is known before the first answer (NS-151).

A replica whose scheduler has just become leader has not seen the last pods that its predecessor bound, if their events
are still on the way. So the first filter call after a silence reads which pods of ours there are, consistently, and
waits until the watch has shown as much. Everybody else's pods are of no concern: nothing was promised to them here.
"""

from collections.abc import Sequence
from typing import Final, Protocol

import structlog

from polyarch.clock import Clock, deadline
from polyarch.kube.client import Client
from polyarch.kube.errors import KubernetesError
from polyarch.kube.resources import PODS
from polyarch.objects import Key, PartialObjectMetadata

log = structlog.get_logger(__name__)

SILENCE: Final = 30.0
"""Seconds without a filter call."""
LONGEST: Final = 1.5
"""Seconds that a filter call waits; with the answer itself it stays below the limit of a verb."""
_STEP: Final = 0.01


class Shown(Protocol):
    """What the watch of pods has handed on (``feed.Feed``)."""

    def has(self, key: Key, version: str) -> bool: ...


class Takeover:
    """Call :meth:`passed` at each filter call."""

    def __init__(self, client: Client, pods: Shown, scheduler_name: str, *, clock: Clock) -> None:
        self._client = client
        self._pods = pods
        self._selector = f"spec.schedulerName={scheduler_name}"
        self._clock = clock
        self._last: float | None = None

    async def passed(self) -> None:
        """Returns at once, but for the first call after a silence."""
        now = self._clock.monotonic()
        last, self._last = self._last, now
        if last is not None and now - last < SILENCE:
            return
        try:
            async with deadline(self._clock, LONGEST):
                await self._reached(await self._present())
        except KubernetesError as error:
            log.warning("pods could not be read before the first answer", error=str(error))
        except TimeoutError:
            log.warning("the watch is not as far as the pods that were read", waited=LONGEST)

    async def _present(self) -> Sequence[PartialObjectMetadata]:
        found = await self._client.list(PODS, type=PartialObjectMetadata, field_selector=self._selector, retry=False)
        return found.items

    async def _reached(self, pods: Sequence[PartialObjectMetadata]) -> None:
        for each in pods:
            while not self._pods.has(each.metadata.key, each.metadata.resource_version):
                await self._clock.sleep(_STEP)
