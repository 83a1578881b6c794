"""Informers: caches of typed objects, kept current by a watch, with event handlers (KR-015).

An :class:`Informer` caches one resource and selection in one type. :class:`Informers` shares them: one
informer per type, and one watch for all types of a resource and selection (KR-050). Handlers are plain functions that
enqueue a key and return. The list and watch loop is in ``reflector.py``.
"""

import asyncio
import gc
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

import structlog

from polyarch.kube.client.requests import Selection
from polyarch.kube.client.retry import Random
from polyarch.kube.client.watch_event import KubernetesObject
from polyarch.kube.clock import Clock, SystemClock
from polyarch.kube.metrics import Metrics
from polyarch.kube.resources import Resource
from polyarch.kube.runtime.reflector import Reflector, WatchClient
from polyarch.kube.runtime.store import Change, IndexFunction, Store
from polyarch.kube.runtime.watch import InitDone, Output
from polyarch.kube.runtime.writes import OwnWrites

log = structlog.get_logger(__name__)

T = TypeVar("T", bound=KubernetesObject)

Handler = Callable[[Change[T]], None]


class Informer(Generic[T]):
    """One resource and selection in one type; ``store`` is empty until ``synced()``, and complete from then on."""

    def __init__(
        self,
        client: WatchClient,
        resource: Resource,
        type: type[T],
        *,
        selection: Selection | None = None,
        indexes: Mapping[str, IndexFunction[T]] | None = None,
        clock: Clock | None = None,
        chance: Random | None = None,
        reflector: Reflector | None = None,
    ) -> None:
        """``reflector``: the shared watch; None for a watch of its own."""
        self.resource = resource
        self.type = type
        self.selection = selection or Selection()
        self.store: Store[T] = Store(indexes)
        self._synced = False
        self._settled = asyncio.Event()
        self._handlers: list[Handler[T]] = []
        self._reflector = reflector or Reflector(client, resource, self.selection, clock=clock, chance=chance)
        self._reflector.add(self)
        self.writes: OwnWrites[T] = OwnWrites(self.store, clock=clock or SystemClock())
        self.add_handler(self.writes.observe)

    def __str__(self) -> str:
        """For people: ``pods in demo (app=web)``."""
        return str(self._reflector)

    def add_handler(self, handler: Handler[T]) -> None:
        """Calls ``handler`` with every change, and at once with every cached object, as an ``initial`` change."""
        self._handlers.append(handler)
        for key, object_ in self.store.items():
            self._tell(handler, Change("apply", key, None, object_, True))

    def remove_handler(self, handler: Handler[T]) -> None:
        """``handler`` is not called any more."""
        self._handlers.remove(handler)

    @property
    def has_synced(self) -> bool:
        return self._synced

    @property
    def problem(self) -> str | None:
        """Set while the API server refuses the watch: which verb on which resource, and the next action."""
        return self._reflector.problem

    @property
    def is_missing(self) -> bool:
        """The API server does not have this kind: the store is complete without an object."""
        return self._reflector.is_missing

    @property
    def last_error(self) -> str | None:
        """Why the last request or watch failed; None while the watch is open."""
        return self._reflector.last_error

    @property
    def blind_seconds(self) -> float:
        """Seconds in total during which the watch was broken."""
        return self._reflector.blind_seconds

    @property
    def broken_seconds(self) -> float:
        """Seconds since the watch broke; 0 while it is open."""
        return self._reflector.broken_seconds

    async def synced(self) -> None:
        """Returns when the first list is complete, or the informer was released."""
        await self._settled.wait()

    def end(self) -> None:
        """Called by ``Informers`` on release: ends every :meth:`synced`."""
        self._settled.set()

    async def run(self) -> None:
        """Watches until cancelled. For an informer with its own watch; ``Informers`` runs the shared ones."""
        await self._reflector.run()

    def take(self, output: Output[T]) -> None:
        """Called by the reflector: updates the store and calls the handlers."""
        for change in self.store.take(output):
            for handler in tuple(self._handlers):
                self._tell(handler, change)
        if isinstance(output, InitDone) and not self._synced:
            self._synced = True
            self._settled.set()
            log.info("cache is complete", resource=str(self), objects=len(self.store))

    def _tell(self, handler: Handler[T], change: Change[T]) -> None:
        try:
            handler(change)
        except Exception:
            log.exception("handler failed", resource=str(self), key=str(change.key))


class _Shared:
    """One watch, its informers by type, the number of users of each, which are required, and its task."""

    def __init__(self, reflector: Reflector) -> None:
        self.reflector = reflector
        self.informers: dict[type[Any], Informer[Any]] = {}
        self.uses: Counter[type[Any]] = Counter()
        self.required: set[type[Any]] = set()
        self.task: asyncio.Task[None] | None = None

    def run_in(self, tasks: asyncio.TaskGroup) -> None:
        """Starts or restarts the watch: with another set of types every object has to be decoded again."""
        if self.task is not None:
            self.task.cancel()
        self.task = tasks.create_task(self.reflector.run(), name=f"watch {self.reflector}")


class Informers:
    """The informers of a process: one watch per resource and selection, shared by all users and types."""

    def __init__(
        self,
        client: WatchClient,
        *,
        clock: Clock | None = None,
        chance: Random | None = None,
        metrics: Metrics | None = None,
        freeze: bool = True,
    ) -> None:
        """``freeze``: exclude the objects of the first lists from garbage collection (``gc.freeze``, KR-014)."""
        self._broken = (metrics or Metrics()).gauge(
            "polyarch_watch_broken_seconds", "Seconds since a watch broke; 0 while it is open", ("resource",)
        )
        self._client = client
        self._clock = clock
        self._chance = chance
        self._freeze = freeze
        self._shared: dict[tuple[Resource, Selection], _Shared] = {}
        self._tasks: asyncio.TaskGroup | None = None

    def informer(
        self,
        resource: Resource,
        type: type[T],
        *,
        namespace: str = "",
        label_selector: str = "",
        field_selector: str = "",
        indexes: Mapping[str, IndexFunction[T]] | None = None,
        required: bool = True,
    ) -> Informer[T]:
        """The shared informer; indexes are added to it. While ``run()`` runs, a new one starts at once.

        ``required``: the process is not ready before its first list is complete, nor while its watch is refused.
        """
        selection = Selection(namespace, label_selector, field_selector)
        shared = self._shared.get((resource, selection))
        if shared is None:
            reflector = Reflector(self._client, resource, selection, clock=self._clock, chance=self._chance)
            shared = self._shared[resource, selection] = _Shared(reflector)
            self._broken.labels(str(reflector)).set_function(lambda: reflector.broken_seconds)
        known: Informer[T] | None = shared.informers.get(type)
        if known is None:
            known = shared.informers[type] = Informer(
                self._client, resource, type, selection=selection, clock=self._clock, reflector=shared.reflector
            )
            if self._tasks is not None:
                shared.run_in(self._tasks)
        for name, function in (indexes or {}).items():
            known.store.add_index(name, function)
        shared.uses[type] += 1
        if required:
            shared.required.add(type)
        return known

    def release(self, informer: Informer[Any]) -> None:
        """Ends one use of an informer; its watch ends with the last use."""
        where = informer.resource, informer.selection
        shared = self._shared[where]
        shared.uses[informer.type] -= 1
        if shared.uses[informer.type]:
            return
        del shared.informers[informer.type]
        informer.end()
        shared.required.discard(informer.type)
        shared.reflector.remove(informer)
        if shared.informers and self._tasks is not None:
            shared.run_in(self._tasks)
        if not shared.informers:
            del self._shared[where]
            self._broken.remove(str(shared.reflector))
            if shared.task is not None:
                shared.task.cancel()

    async def run(self) -> None:
        """Runs all watches until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for shared in self._shared.values():
                shared.run_in(tasks)
            self._tasks = tasks
            try:
                await self.synced()
                if self._freeze:
                    gc.collect()
                    gc.freeze()
                await asyncio.get_running_loop().create_future()
            finally:
                self._tasks = None

    async def synced(self) -> None:
        """Returns when every required informer has synced."""
        while pending := [informer for informer in self._required() if not informer.has_synced]:
            await pending[0].synced()

    @property
    def has_synced(self) -> bool:
        return all(informer.has_synced for informer in self._required())

    @property
    def problems(self) -> list[str]:
        """Why the process is not ready, one sentence per informer: refused watches, caches that have not synced."""
        sentences = (
            informer.problem or f"the cache of {informer} is not complete yet"
            for informer in self._required()
            if informer.problem is not None or not informer.has_synced
        )
        return list(dict.fromkeys(sentences))

    @property
    def missing(self) -> list[str]:
        """Kinds that the API server does not have, one sentence each. They keep nobody from being ready."""
        kinds = {str(informer.resource) for informer in self._required() if informer.is_missing}
        return [f"{kind} is not served: apply its definition" for kind in sorted(kinds)]

    def _required(self) -> list[Informer[Any]]:
        return [
            informer
            for shared in self._shared.values()
            for informer in shared.informers.values()
            if informer.type in shared.required
        ]
