"""Facts that only refine a decision: watched while the policy asks for them, and left out where they cannot be had.

The right to read nodes is granted for ``nodeAware`` alone, and the one to read namespaces can be taken away. Where we
are refused for a minute, pods are decided as if the setting that asks for the facts were off, and that is told, until
they arrive after all (PL-301).
"""

import asyncio
from collections.abc import Callable
from typing import Final, Protocol, TypeVar

import structlog

from polyarch.clock import Clock
from polyarch.kube.client.watch_event import KubernetesObject
from polyarch.kube.resources import Resource
from polyarch.kube.runtime.store import Change, Store
from polyarch.model.meta import Key, PartialObjectMetadata

log = structlog.get_logger(__name__)

T = TypeVar("T", bound=KubernetesObject)

PATIENCE: Final = 60.0
"""Seconds after which pods are decided without what we may not read."""
IN_ANY_CASE: Final = 600.0
"""The same if we are not refused: an API server that is away, or a list that takes its time, is no reason to release a
pod for lack of a fact that exists. Nothing is waited for without an end."""
LOOK_EVERY: Final = 5.0


class Watched(Protocol[T]):
    """What is needed of an informer."""

    store: Store[T]

    @property
    def problem(self) -> str | None: ...

    @property
    def has_synced(self) -> bool: ...

    def add_handler(self, handler: Callable[[Change[T]], None], /) -> None: ...

    async def synced(self) -> None: ...

    async def run(self) -> None: ...


class Watches(Protocol):
    """Where informers come from. ``shared`` ones are run by the process, ``own`` ones by who asked for them."""

    def shared(self, resource: Resource, type: type[T], /) -> Watched[T]: ...

    def own(self, resource: Resource, type: type[T], /) -> Watched[T]: ...


class Refinement:
    """The metadata of objects of one kind, watched while :meth:`want` says so."""

    def __init__(
        self,
        watches: Watches,
        resource: Resource,
        handler: Callable[[Change[PartialObjectMetadata]], None],
        *,
        told: Callable[[], None],
        clock: Clock,
    ) -> None:
        """``told`` is called once the first list is there, and when the objects are left out."""
        self.resource = resource
        self.left_out = ""
        """Why pods are decided without, naming verb and resource; empty while they are not."""
        self._watches = watches
        self._handler = handler
        self._told = told
        self._clock = clock
        self._watched: Watched[PartialObjectMetadata] | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def is_known(self) -> bool:
        return self._watched is not None and self._watched.has_synced

    def get(self, key: Key) -> PartialObjectMetadata | None:
        return self._watched.store.get(key) if self._watched is not None else None

    def values(self) -> list[PartialObjectMetadata]:
        return list(self._watched.store.values()) if self._watched is not None else []

    def want(self, tasks: asyncio.TaskGroup, *, wanted: bool) -> None:
        """Starts or ends the watch."""
        if wanted and self._task is None:
            self._watched = self._watches.own(self.resource, PartialObjectMetadata)
            self._watched.add_handler(self._handler)
            self._task = tasks.create_task(self._watch(self._watched), name=f"watch {self.resource} while needed")
        elif not wanted and self._task is not None:
            self._task.cancel()
            self._task = self._watched = None
            self.left_out = ""

    async def _watch(self, watched: Watched[PartialObjectMetadata]) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(watched.run())
            patience = tasks.create_task(self._lose_patience(watched))
            await watched.synced()
            patience.cancel()
            if self.left_out:
                log.info("pods are decided with what was left out", resource=str(self.resource))
            self.left_out = ""
            self._told()

    async def _lose_patience(self, watched: Watched[PartialObjectMetadata]) -> None:
        started = self._clock.monotonic()
        await self._clock.sleep(PATIENCE)
        while watched.problem is None and self._clock.monotonic() - started < IN_ANY_CASE:
            await self._clock.sleep(LOOK_EVERY)
        self.left_out = watched.problem or f"{self.resource} could not be listed for {IN_ANY_CASE / 60:.0f} minutes"
        log.error("pods are decided without facts that the policy asks for", problem=self.left_out)
        self._told()
