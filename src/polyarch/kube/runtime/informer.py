"""Keeps stores like the API server (KR-015): typed objects in memory, and handlers that hear of every change.

An :class:`Informer` is one resource and selection in one type; :class:`Informers` hands the same one to everybody who
asks for the same, and one watch to all types of the same resource and selection (KR-050). Handlers are plain functions
that enqueue a key and return. How the watch is kept, whatever happens, is ``reflector.py``.
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
        """``reflector``: the watch to follow; without, one of its own."""
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
        """Calls ``handler`` with every change; with what is there already at once, as ``initial`` ones."""
        self._handlers.append(handler)
        for key, object_ in self.store.items():
            self._tell(handler, Change("apply", key, None, object_, True))

    def remove_handler(self, handler: Handler[T]) -> None:
        """Tells it nothing any more."""
        self._handlers.remove(handler)

    @property
    def has_synced(self) -> bool:
        return self._synced

    @property
    def problem(self) -> str | None:
        """Set while the API server keeps refusing us: which verb on which resource, and the next action."""
        return self._reflector.problem

    @property
    def last_error(self) -> str | None:
        """Why the last request or watch failed; None while one is held."""
        return self._reflector.last_error

    @property
    def blind_seconds(self) -> float:
        """For how long, in all, requests failed and nothing could be seen."""
        return self._reflector.blind_seconds

    @property
    def broken_seconds(self) -> float:
        """Seconds since the watch was lost and could not be had again; 0 while it holds."""
        return self._reflector.broken_seconds

    async def synced(self) -> None:
        """Returns once the first list is complete, or once nobody uses this informer any more."""
        await self._settled.wait()

    def end(self) -> None:
        """For ``Informers``: it is released for good, and nothing is to be waited for."""
        self._settled.set()

    async def run(self) -> None:
        """Watches until it is cancelled. For one with a watch of its own; ``Informers`` runs those that are shared."""
        await self._reflector.run()

    def take(self, output: Output[T]) -> None:
        """For the reflector: what it saw."""
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
    """One watch, its informers by type, how many use each, which are waited for, and the task that runs it."""

    def __init__(self, reflector: Reflector) -> None:
        self.reflector = reflector
        self.informers: dict[type[Any], Informer[Any]] = {}
        self.uses: Counter[type[Any]] = Counter()
        self.required: set[type[Any]] = set()
        self.task: asyncio.Task[None] | None = None

    def run_in(self, tasks: asyncio.TaskGroup) -> None:
        """Begins the watch, or begins it anew: with other types each object has to be read again."""
        if self.task is not None:
            self.task.cancel()
        self.task = tasks.create_task(self.reflector.run(), name=f"watch {self.reflector}")


class Informers:
    """All informers of a process: one watch per resource and selection, whoever asks for it and in which type."""

    def __init__(
        self,
        client: WatchClient,
        *,
        clock: Clock | None = None,
        chance: Random | None = None,
        metrics: Metrics | None = None,
        freeze: bool = True,
    ) -> None:
        """``freeze``: keep what the first lists brought out of later garbage collections (KR-014)."""
        self._broken = (metrics or Metrics()).gauge(
            "polyarch_watch_broken_seconds", "How long a watch could not be had again; 0 while it holds", ("resource",)
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
        """The shared informer; indexes add up. One asked for while ``run()`` runs starts at once.

        ``required``: the process is not ready before its first list is there, nor while it is refused.
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
        """Ends one use of an informer; with the last use of all its types the watch ends."""
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
        """Runs them all until it is cancelled."""
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
        """Returns once every informer that is required has its first list."""
        while pending := [informer for informer in self._required() if not informer.has_synced]:
            await pending[0].synced()

    @property
    def has_synced(self) -> bool:
        return all(informer.has_synced for informer in self._required())

    @property
    def problems(self) -> list[str]:
        """What keeps this process from being ready, one sentence each; caches still being filled are named, too."""
        sentences = (
            informer.problem or f"the cache of {informer} is not complete yet"
            for informer in self._required()
            if informer.problem is not None or not informer.has_synced
        )
        return list(dict.fromkeys(sentences))

    def _required(self) -> list[Informer[Any]]:
        return [
            informer
            for shared in self._shared.values()
            for informer in shared.informers.values()
            if informer.type in shared.required
        ]
