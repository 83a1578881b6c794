"""Informers: caches of typed objects, kept current by a watch, with event handlers.

An :class:`Informer` caches one resource and selection in one type. :class:`InformerFactory` shares them: one
informer per type, and one watch for all types of a resource and selection. Handlers are plain functions that enqueue a
key and return. A :class:`Reflector` is the list and watch loop of one resource and selection. An
:class:`OnDemandInformer` runs only while a setting needs it.
"""

import asyncio
import gc
import random
from collections import Counter
from collections.abc import Callable, Mapping, ValuesView
from contextlib import AbstractAsyncContextManager
from typing import Any, Final, Generic, Protocol, TypeVar

import structlog

from polyarch.clock import Clock, SystemClock, is_cancelled
from polyarch.kube.errors import ApiError, Gone, KubernetesError, NotFound, Unauthorized, UnreadableAnswer
from polyarch.kube.metrics import Metrics
from polyarch.kube.requests import ListOptions, Random
from polyarch.kube.resources import Resource
from polyarch.kube.responses import WatchStream, several
from polyarch.kube.store import IndexFunction, ObjectChange, Store, WriteExpectations
from polyarch.kube.watch import (
    Apply,
    Delete,
    Empty,
    InitApply,
    InitDone,
    Input,
    KindNotServed,
    KubernetesObject,
    Output,
    Page,
    RequestFailed,
    StorageVersion,
    StreamEnded,
    StreamOpened,
    WatchRequest,
    WatchState,
    delay_before,
    refused,
    request_for,
    step,
)
from polyarch.objects import ObjectKey, PartialObjectMetadata

log = structlog.get_logger(__name__)

T = TypeVar("T", bound=KubernetesObject)


# -- the list and watch loop -------------------------------------------------------------------------------------------

# The reflector drives the state machine of ``watch.py`` with real requests, for any number of views, each of which
# decodes the objects into its own type. No error ends it: it backs off and retries. A broken watch shows in
# ``broken_seconds`` and in one log line a minute; missing permission is explained in ``problem``, which turns readiness
# off.
#
# A kind whose definition is missing has no objects. So its views are complete and empty meanwhile, and the process can
# do everything else; the next list finds the kind when it has appeared.

WATCH_SECONDS: Final = (300, 600)
"""Range of the random watch timeout, so that the watches of many clients do not end together."""
TELL_EVERY: Final = 60.0
"""Seconds between two log lines about a watch that keeps failing in the same way."""
MISSING_AFTER: Final = 3
"""So many times in a row the kind is not found, before discovery is asked whether it exists: an API server serves a new
kind a moment after its definition."""


class WatchClient(Protocol):
    """The part of the client that a reflector uses."""

    async def list_page(
        self, resource: Resource, selection: ListOptions, *, type: type[T], continue_token: str = "", limit: int = 500
    ) -> Page[T]: ...

    def watch(
        self,
        resource: Resource,
        selection: ListOptions,
        *,
        type: type[T],
        resource_version: str = "",
        initial_events: bool = False,
        timeout_seconds: int = 300,
    ) -> AbstractAsyncContextManager[WatchStream[T]]: ...

    async def is_served(self, resource: Resource) -> bool: ...


class WatchConsumer(Protocol):
    """A consumer of the watch, which gets the objects decoded into ``type``."""

    @property
    def type(self) -> type[Any]: ...

    def take(self, output: Output[Any]) -> None: ...


class Reflector:
    """One watch of one resource and selection, for all of ``views``."""

    def __init__(
        self,
        client: WatchClient,
        resource: Resource,
        selection: ListOptions,
        *,
        clock: Clock | None = None,
        chance: Random | None = None,
    ) -> None:
        self.resource = resource
        self.selection = selection
        self.problem: str | None = None
        """Set while the API server refuses the watch: which verb on which resource, and the next action."""
        self.last_error: str | None = None
        """Why the last request or watch failed; None while the watch is open."""
        self.is_missing = False
        """The API server does not have this kind."""
        self._not_found = 0
        self._views: tuple[WatchConsumer, ...] = ()
        self._blind = 0.0
        self._blind_since: float | None = None
        self._heard_at: float | None = None
        self._told: KubernetesError | None = None
        self._told_at = 0.0
        self._client = client
        self._clock: Clock = clock or SystemClock()
        self._chance: Random = chance or random.SystemRandom().random
        self._state: WatchState = Empty()

    def __str__(self) -> str:
        """For people: ``pods in demo (app=web)``."""
        where = f" in {self.selection.namespace}" if self.selection.namespace else ""
        chosen = ", ".join(part for part in (self.selection.label_selector, self.selection.field_selector) if part)
        return f"{self.resource}{where}{f' ({chosen})' if chosen else ''}"

    def add(self, view: WatchConsumer) -> None:
        """Adds a view; the next :meth:`run` starts with a list, so it gets every object."""
        self._views = (*self._views, view)
        self._state = Empty()
        self.is_missing, self._not_found = False, 0

    def remove(self, view: WatchConsumer) -> None:
        """Removes a view; restart :meth:`run` for the others."""
        self._views = tuple(each for each in self._views if each is not view)
        self._state = Empty()

    @property
    def _type(self) -> type[Any]:
        types = tuple(view.type for view in self._views)
        return types[0] if len(types) == 1 else several(types)

    @property
    def blind_seconds(self) -> float:
        """Seconds in total during which the watch was broken; not counted by those who conclude from silence
        (the age of a Lease)."""
        return self._blind + self.broken_seconds

    @property
    def broken_seconds(self) -> float:
        """Seconds since the watch broke; 0 while it is open."""
        since = self._blind_since
        return self._clock.monotonic() - since if since is not None else 0.0

    @property
    def silent_seconds(self) -> float:
        """Seconds since anything came, if only a bookmark; 0 before the first time."""
        return self._clock.monotonic() - self._heard_at if self._heard_at is not None else 0.0

    async def run(self) -> None:
        """Lists and watches until cancelled."""
        while True:
            await self._clock.sleep(delay_before(self._state, self._chance))
            ask = request_for(self._state)
            try:
                if ask.kind == "page":
                    page = await self._client.list_page(
                        self.resource, self.selection, type=self._type, continue_token=ask.continue_token
                    )
                    self._accepted()
                    self._feed(page)
                else:
                    await self._watch(ask)
            except KubernetesError as error:
                self._failed(RequestFailed(error))
            except (Exception, asyncio.CancelledError) as error:
                if isinstance(error, asyncio.CancelledError) and is_cancelled():
                    raise
                log.exception("unexpected error in a watch, listing again", resource=str(self))
                self._failed(RequestFailed(UnreadableAnswer(f"watch {self.resource}: {error!r}")))
            if self._not_found >= MISSING_AFTER and not self.is_missing:
                await self._do_without()

    async def _watch(self, ask: WatchRequest) -> None:
        shortest, longest = WATCH_SECONDS
        opened: float | None = None
        if ask.verify:
            page = await self._client.list_page(self.resource, self.selection, type=PartialObjectMetadata, limit=1)
            self._feed(StorageVersion(page.resource_version))
            if request_for(self._state).kind != "watch":
                log.warning(
                    "the API server's storage was restored to an earlier state, listing again", resource=str(self)
                )
                return
        try:
            async with self._client.watch(
                self.resource,
                self.selection,
                type=self._type,
                resource_version=ask.resource_version,
                initial_events=ask.kind == "streaming-list",
                timeout_seconds=int(shortest + self._chance() * (longest - shortest)),
            ) as stream:
                opened = self._clock.monotonic()
                self._accepted()
                self._feed(StreamOpened())
                async for events in stream:
                    for event in events:
                        if isinstance(event, RequestFailed):
                            raise event.error
                        self._feed(event)
        except KubernetesError as error:
            self._failed(RequestFailed(error, None if opened is None else self._clock.monotonic() - opened))
        else:
            self._feed(StreamEnded(self._clock.monotonic() - opened))

    async def _do_without(self) -> None:
        """If the kind is really missing, the views are complete without an object."""
        try:
            if await self._client.is_served(self.resource):
                return
        except KubernetesError:
            return  # not known: as for any other failure, the views wait
        self.is_missing = True
        self._end_blindness()
        log.warning("kind is not served: nothing of it is known until its definition is applied", resource=str(self))
        self._feed(KindNotServed())

    def _feed(self, event: Input[Any]) -> None:
        self._heard_at = self._clock.monotonic()
        self._state, outputs = step(self._state, event)
        for output in outputs:
            if len(self._views) == 1:
                self._views[0].take(output)
                continue
            for number, view in enumerate(self._views):
                own = _of(output, number)
                if own is not None:
                    view.take(own)

    def _accepted(self) -> None:
        if self.problem is not None:
            log.info("watch is allowed again", resource=str(self))
        if self.is_missing:
            log.info("kind is served now", resource=str(self))
        self.is_missing, self._not_found = False, 0
        self.problem = self.last_error = None
        self._end_blindness()

    def _end_blindness(self) -> None:
        self._blind, self._blind_since = self.blind_seconds, None

    def _failed(self, failed: RequestFailed) -> None:
        error, streamed = failed.error, self._state.health.streaming
        self._feed(failed)
        if streamed and not self._state.health.streaming:
            # Not every version streams lists (1.32 does, 1.33 does not): nothing is broken.
            log.info("the API server streams no lists, listing pages", resource=str(self), error=str(error))
            return
        self.last_error = str(error)
        self._not_found = self._not_found + 1 if isinstance(error, NotFound) else 0
        if self.is_missing and self._not_found:
            self._end_blindness()
            return
        if self._blind_since is None:
            self._blind_since = self._clock.monotonic()
        if refused(self._state):
            self.problem = self._refusal(error)
        self._tell_of(error)

    def _tell_of(self, error: KubernetesError) -> None:
        if isinstance(error, Gone):
            log.info("watch expired, listing again", resource=str(self), error=str(error))
            return
        now = self._clock.monotonic()
        if type(self._told) is type(error) and now - self._told_at < TELL_EVERY:
            return
        self._told, self._told_at = error, now
        broken = round(self.broken_seconds, 1)
        log.warning("watch failed, retrying", resource=str(self), error=str(error), broken_seconds=broken)

    def _refusal(self, error: KubernetesError) -> str:
        """In RBAC's terms, since RBAC is where it is fixed."""
        if isinstance(error, Unauthorized):
            return f"the API server does not accept our credentials ({error}); check the token or certificate"
        verb = error.verb if isinstance(error, ApiError) else "watch"
        where = f" in namespace {self.selection.namespace}" if self.selection.namespace else ""
        return f"not allowed to {verb} {self.resource}{where}: grant get, list and watch to the role ({error})"


def _of(output: Output[Any], number: int) -> Output[Any] | None:
    """The output for one of several views; an object that does not decode into its type does not exist for it."""
    match output:
        case Apply(object=several_views):
            own, metadata = several_views.views[number], several_views.metadata
            return Apply(own) if own is not None else Delete(metadata.key, metadata.resource_version)
        case InitApply(object=several_views):
            own = several_views.views[number]
            return InitApply(own) if own is not None else None
    return output


# -- informers ---------------------------------------------------------------------------------------------------------


Handler = Callable[[ObjectChange[T]], None]


class Informer(Generic[T]):
    """One resource and selection in one type; ``store`` is empty until ``synced()``, and complete from then on."""

    def __init__(
        self,
        client: WatchClient,
        resource: Resource,
        type: type[T],
        *,
        selection: ListOptions | None = None,
        indexes: Mapping[str, IndexFunction[T]] | None = None,
        clock: Clock | None = None,
        chance: Random | None = None,
        reflector: Reflector | None = None,
    ) -> None:
        """``reflector``: the shared watch; None for a watch of its own."""
        self.resource = resource
        self.type = type
        self.selection = selection or ListOptions()
        self.store: Store[T] = Store(indexes)
        self._synced = False
        self._settled = asyncio.Event()
        self._handlers: list[Handler[T]] = []
        self._reflector = reflector or Reflector(client, resource, self.selection, clock=clock, chance=chance)
        self._reflector.add(self)
        self.writes: WriteExpectations[T] = WriteExpectations(self.store, clock=clock or SystemClock())
        self.add_handler(self.writes.observe)

    def __str__(self) -> str:
        """For people: ``pods in demo (app=web)``."""
        return str(self._reflector)

    def add_handler(self, handler: Handler[T]) -> None:
        """Calls ``handler`` with every change, and at once with every cached object, as an ``initial`` change."""
        self._handlers.append(handler)
        for key, object_ in self.store.items():
            self._tell(handler, ObjectChange("apply", key, None, object_, True))

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
        """Called by ``InformerFactory`` on release: ends every :meth:`synced`."""
        self._settled.set()

    async def run(self) -> None:
        """Watches until cancelled. For an informer with its own watch; ``InformerFactory`` runs the shared ones."""
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

    def _tell(self, handler: Handler[T], change: ObjectChange[T]) -> None:
        try:
            handler(change)
        except Exception:
            log.exception("handler failed", resource=str(self), key=str(change.key))


class _SharedWatch:
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


class InformerFactory:
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
        """``freeze``: exclude the objects of the first lists from garbage collection (``gc.freeze``)."""
        self._broken = (metrics or Metrics()).gauge(
            "polyarch_watch_broken_seconds", "Seconds since a watch broke; 0 while it is open", ("resource",)
        )
        self._client = client
        self._clock = clock
        self._chance = chance
        self._freeze = freeze
        self._shared: dict[tuple[Resource, ListOptions], _SharedWatch] = {}
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
        selection = ListOptions(namespace, label_selector, field_selector)
        shared = self._shared.get((resource, selection))
        if shared is None:
            reflector = Reflector(self._client, resource, selection, clock=self._clock, chance=self._chance)
            shared = self._shared[resource, selection] = _SharedWatch(reflector)
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


# -- informers that run only while a setting needs them ----------------------------------------------------------------


# The setting may come and go while the process runs, and RBAC may allow the watch only with that setting. So readiness
# does not depend on it; the user of the informer reports its problems.


class Shares(Protocol):
    """The part of ``InformerFactory`` that is used."""

    def informer(
        self,
        resource: Resource,
        type: type[T],
        /,
        *,
        required: bool = ...,
        namespace: str = ...,
        label_selector: str = ...,
        field_selector: str = ...,
    ) -> Informer[T]: ...

    def release(self, informer: Informer[Any], /) -> None: ...


class OnDemandInformer(Generic[T]):
    """The objects of one kind while they are wanted (:meth:`want`); ``handler`` gets every change meanwhile.

    With ``namespace`` and ``name`` it is that one object, which RBAC can allow by its name; with ``label_selector`` the
    objects that have these labels.
    """

    def __init__(
        self,
        informers: Shares,
        resource: Resource,
        type: type[T],
        handler: Callable[[ObjectChange[T]], None],
        *,
        namespace: str = "",
        name: str = "",
        label_selector: str = "",
    ) -> None:
        self.resource = resource
        self.type = type
        self._namespace = namespace
        self._labels = label_selector
        self._fields = f"metadata.name={name}" if name else ""
        self._informers = informers
        self._handler = handler
        self._informer: Informer[T] | None = None

    def want(self, wanted: bool) -> None:
        """Starts or stops the watch; stopping drops the cache without calling the handler."""
        if wanted and self._informer is None:
            self._informer = self._informers.informer(
                self.resource,
                self.type,
                required=False,
                namespace=self._namespace,
                label_selector=self._labels,
                field_selector=self._fields,
            )
            self._informer.add_handler(self._handler)
        elif not wanted and self._informer is not None:
            self._informer.remove_handler(self._handler)
            self._informers.release(self._informer)
            self._informer = None

    @property
    def is_wanted(self) -> bool:
        return self._informer is not None

    @property
    def is_known(self) -> bool:
        """The first list is complete."""
        return self._informer is not None and self._informer.has_synced

    @property
    def problem(self) -> str | None:
        """Why the API server refuses the watch."""
        return self._informer.problem if self._informer is not None else None

    @property
    def last_error(self) -> str | None:
        """Why the last request or watch failed; None while the watch is open."""
        return self._informer.last_error if self._informer is not None else None

    @property
    def blind_seconds(self) -> float:
        """Seconds in total during which the watch was broken."""
        return self._informer.blind_seconds if self._informer is not None else 0.0

    def get(self, key: ObjectKey) -> T | None:
        return self._informer.store.get(key) if self._informer is not None else None

    def values(self) -> ValuesView[T] | tuple[()]:
        return self._informer.store.values() if self._informer is not None else ()

    async def synced(self) -> None:
        """Returns when the first list is complete, or nothing is wanted."""
        if self._informer is not None:
            await self._informer.synced()
