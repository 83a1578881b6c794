"""Optional resources (Nodes, Namespaces): watched while the policy needs them, left out if they cannot be read.

RBAC for nodes is granted only for ``nodeAware``, and RBAC for namespaces can be removed. If the API server denies
access for a minute, pods are decided as if the setting that needs the resource were off. This is logged, and ends when
the resource can be read again (PL-301).
"""

import asyncio
from collections.abc import Callable
from typing import Final

import structlog

from polyarch.clock import Clock
from polyarch.kube.informer import OnDemand, Shares
from polyarch.kube.resources import Resource
from polyarch.kube.store import Change
from polyarch.objects import Key, PartialObjectMetadata

log = structlog.get_logger(__name__)

PATIENCE: Final = 60.0
"""Seconds of denied access after which pods are decided without the resource."""
IN_ANY_CASE: Final = 600.0
"""The same for any other reason. It is longer, because an outage or a slow list is no reason to decide without facts
that exist, and finite, because every wait has an end."""
LOOK_EVERY: Final = 5.0


class Refinement:
    """Metadata of objects of one kind, watched while :meth:`want` is on."""

    def __init__(
        self,
        informers: Shares,
        resource: Resource,
        handler: Callable[[Change[PartialObjectMetadata]], None],
        *,
        told: Callable[[], None],
        clock: Clock,
    ) -> None:
        """``told`` is called after the first list, and when the objects are left out."""
        self.left_out = ""
        """Why pods are decided without the resource, naming verb and resource; empty if they are not."""
        self._demand = OnDemand(informers, resource, PartialObjectMetadata, handler)
        self._told = told
        self._clock = clock
        self._task: asyncio.Task[None] | None = None

    @property
    def resource(self) -> Resource:
        return self._demand.resource

    @property
    def is_known(self) -> bool:
        return self._demand.is_known

    def get(self, key: Key) -> PartialObjectMetadata | None:
        return self._demand.get(key)

    def values(self) -> list[PartialObjectMetadata]:
        return list(self._demand.values())

    def want(self, tasks: asyncio.TaskGroup, *, wanted: bool) -> None:
        """Starts or ends the watch."""
        self._demand.want(wanted)
        if wanted and self._task is None:
            self._task = tasks.create_task(self._wait(), name=f"wait for {self.resource}")
        elif not wanted and self._task is not None:
            self._task.cancel()
            self._task = None
            self.left_out = ""

    async def _wait(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            patience = tasks.create_task(self._lose_patience())
            await self._demand.synced()
            patience.cancel()
        if self.left_out:
            log.info("resource is readable again and used for decisions", resource=str(self.resource))
        self.left_out = ""
        self._told()

    async def _lose_patience(self) -> None:
        started = self._clock.monotonic()
        await self._clock.sleep(PATIENCE)
        while self._demand.problem is None and self._clock.monotonic() - started < IN_ANY_CASE:
            await self._clock.sleep(LOOK_EVERY)
        self.left_out = (
            self._demand.problem or f"{self.resource} could not be listed for {IN_ANY_CASE / 60:.0f} minutes"
        )
        log.error("pods are decided without a resource that the policy requires", problem=self.left_out)
        self._told()
