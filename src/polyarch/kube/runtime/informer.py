"""Keeps stores like the API server (KR-012, KR-015): drives the watch machine with real requests and a real clock.

An :class:`Informer` is one watch for one resource and selection; :class:`Informers` hands the same one to everybody who
asks for the same. Handlers are plain functions that enqueue a key and return. Nothing that a server says or a network
does ends an informer: it waits and asks again. A watch that cannot be had again shows in
``polyarch_watch_broken_seconds`` and in a line of the log each minute (PL-531); where it is refused for want of
permission it says so in ``problem``, which turns readiness off.
"""

import asyncio
import gc
import random
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, Final, Generic, Protocol, TypeVar

import structlog

from polyarch.kube.client.requests import Selection
from polyarch.kube.client.retry import Random
from polyarch.kube.client.stream import WatchStream
from polyarch.kube.client.watch_event import Ended, Failed, Input, KubernetesObject, Opened, Page
from polyarch.kube.clock import Clock, SystemClock
from polyarch.kube.errors import ApiError, Gone, KubernetesError, Unauthorized, UnreadableAnswer
from polyarch.kube.metrics import Metrics
from polyarch.kube.resources import Resource
from polyarch.kube.runtime.store import Change, IndexFunction, Store
from polyarch.kube.runtime.watch import Ask, Empty, InitDone, State, delay_before, refused, request_for, step
from polyarch.kube.runtime.writes import OwnWrites

log = structlog.get_logger(__name__)

T = TypeVar("T", bound=KubernetesObject)

Handler = Callable[[Change[T]], None]

WATCH_SECONDS: Final = (300, 600)
"""The server ends a watch after a time between these, so that the watches of many clients do not end together."""
TELL_EVERY: Final = 60.0
"""Seconds between two lines of the log about a watch that keeps failing in the same way."""


class WatchClient(Protocol):
    """What an informer needs of the client."""

    async def list_page(
        self, resource: Resource, selection: Selection, *, type: type[T], continue_token: str = "", limit: int = 500
    ) -> Page[T]: ...

    def watch(
        self,
        resource: Resource,
        selection: Selection,
        *,
        type: type[T],
        resource_version: str = "",
        initial_events: bool = False,
        timeout_seconds: int = 300,
    ) -> AbstractAsyncContextManager[WatchStream[T]]: ...


class Informer(Generic[T]):
    """One resource and selection, watched; ``store`` is empty until ``synced()``, and complete from then on."""

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
    ) -> None:
        self.resource = resource
        self.type = type
        self.selection = selection or Selection()
        self.store: Store[T] = Store(indexes)
        self.problem: str | None = None
        """Set while the API server keeps refusing us: which verb on which resource, and the next action."""
        self.last_error: str | None = None
        """Why the last request or watch failed; None while one is held."""
        self._blind = 0.0
        self._blind_since: float | None = None
        self._told: KubernetesError | None = None
        self._told_at = 0.0
        self._client = client
        self._clock: Clock = clock or SystemClock()
        self._chance: Random = chance or random.SystemRandom().random
        self._state: State = Empty()
        self._synced = asyncio.Event()
        self._handlers: list[Handler[T]] = []
        self.writes: OwnWrites[T] = OwnWrites(self.store, clock=self._clock)
        self.add_handler(self.writes.observe)

    def __str__(self) -> str:
        """For people: ``pods in demo (app=web)``."""
        where = f" in {self.selection.namespace}" if self.selection.namespace else ""
        chosen = ", ".join(part for part in (self.selection.label_selector, self.selection.field_selector) if part)
        return f"{self.resource}{where}{f' ({chosen})' if chosen else ''}"

    def add_handler(self, handler: Handler[T]) -> None:
        """Calls ``handler`` with every change; with what is there already at once, as ``initial`` ones."""
        self._handlers.append(handler)
        for key, object_ in self.store.items():
            self._tell(handler, Change("apply", key, None, object_, True))

    @property
    def has_synced(self) -> bool:
        return self._synced.is_set()

    @property
    def blind_seconds(self) -> float:
        """For how long, in all, requests failed and nothing could be seen: who concludes something from silence
        does not count this time."""
        return self._blind + self.broken_seconds

    @property
    def broken_seconds(self) -> float:
        """Seconds since the watch was lost and could not be had again; 0 while it holds."""
        since = self._blind_since
        return self._clock.monotonic() - since if since is not None else 0.0

    async def synced(self) -> None:
        """Returns once the first list is complete."""
        await self._synced.wait()

    async def run(self) -> None:
        """Watches until it is cancelled."""
        while True:
            await self._clock.sleep(delay_before(self._state, self._chance))
            ask = request_for(self._state)
            try:
                if ask.kind == "page":
                    page = await self._client.list_page(
                        self.resource, self.selection, type=self.type, continue_token=ask.continue_token
                    )
                    self._accepted()
                    self._feed(page)
                else:
                    await self._watch(ask)
            except KubernetesError as error:
                self._failed(Failed(error))
            except Exception as error:
                log.exception("watch met a bug, listing anew", resource=str(self))
                self._failed(Failed(UnreadableAnswer(f"watch {self.resource}: {error!r}")))

    async def _watch(self, ask: Ask) -> None:
        shortest, longest = WATCH_SECONDS
        opened: float | None = None
        try:
            async with self._client.watch(
                self.resource,
                self.selection,
                type=self.type,
                resource_version=ask.resource_version,
                initial_events=ask.kind == "streaming-list",
                timeout_seconds=int(shortest + self._chance() * (longest - shortest)),
            ) as stream:
                opened = self._clock.monotonic()
                self._accepted()
                self._feed(Opened())
                async for events in stream:
                    for event in events:
                        if isinstance(event, Failed):
                            raise event.error
                        self._feed(event)
        except KubernetesError as error:
            self._failed(Failed(error, 0.0 if opened is None else self._clock.monotonic() - opened))
        else:
            self._feed(Ended(self._clock.monotonic() - opened))

    def _feed(self, event: Input[T]) -> None:
        self._state, outputs = step(self._state, event)
        for output in outputs:
            for change in self.store.take(output):
                for handler in self._handlers:
                    self._tell(handler, change)
            if isinstance(output, InitDone) and not self._synced.is_set():
                self._synced.set()
                log.info("cache is complete", resource=str(self), objects=len(self.store))

    def _tell(self, handler: Handler[T], change: Change[T]) -> None:
        try:
            handler(change)
        except Exception:
            log.exception("handler failed", resource=str(self), key=str(change.key))

    def _accepted(self) -> None:
        if self.problem is not None:
            log.info("watch is allowed again", resource=str(self))
        self.problem = self.last_error = None
        self._blind, self._blind_since = self.blind_seconds, None

    def _failed(self, failed: Failed) -> None:
        error = failed.error
        self._feed(failed)
        self.last_error = str(error)
        if self._blind_since is None:
            self._blind_since = self._clock.monotonic()
        if refused(self._state):
            self.problem = self._refusal(error)
        self._tell_of(error)

    def _tell_of(self, error: KubernetesError) -> None:
        if isinstance(error, Gone):
            log.info("watch begins anew", resource=str(self), error=str(error))
            return
        now = self._clock.monotonic()
        if type(self._told) is type(error) and now - self._told_at < TELL_EVERY:
            return
        self._told, self._told_at = error, now
        broken = round(self.broken_seconds, 1)
        log.warning("watch failed, trying again", resource=str(self), error=str(error), broken_seconds=broken)

    def _refusal(self, error: KubernetesError) -> str:
        """In words of RBAC, since that is where it is mended."""
        if isinstance(error, Unauthorized):
            return f"the API server does not accept our credentials ({error}); check the token or certificate"
        verb = error.verb if isinstance(error, ApiError) else "watch"
        where = f" in namespace {self.selection.namespace}" if self.selection.namespace else ""
        return f"not allowed to {verb} {self.resource}{where}: grant get, list and watch to the role ({error})"


class Informers:
    """All informers of a process: one per resource, selection and type, whoever asks for it."""

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
        self._informers: dict[tuple[Resource, Selection], Informer[Any]] = {}
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
    ) -> Informer[T]:
        """The shared informer; indexes add up. One asked for while ``run()`` runs starts at once."""
        selection = Selection(namespace, label_selector, field_selector)
        known = self._informers.get((resource, selection))
        if known is None:
            known = Informer(
                self._client,
                resource,
                type,
                selection=selection,
                clock=self._clock,
                chance=self._chance,
            )
            self._informers[resource, selection] = known
            self._broken.labels(str(known)).set_function(lambda: known.broken_seconds)
            if self._tasks is not None:
                self._tasks.create_task(known.run(), name=f"watch {known}")
        elif known.type is not type:
            raise ValueError(f"{known} is watched as {known.type.__name__} already, {type.__name__} was asked for")
        for name, function in (indexes or {}).items():
            known.store.add_index(name, function)
        return known

    async def run(self) -> None:
        """Runs them all until it is cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for informer in self._informers.values():
                tasks.create_task(informer.run(), name=f"watch {informer}")
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
        """Returns once every informer there is has its first list."""
        while pending := [informer for informer in self._informers.values() if not informer.has_synced]:
            await pending[0].synced()

    @property
    def has_synced(self) -> bool:
        return all(informer.has_synced for informer in self._informers.values())

    @property
    def problems(self) -> list[str]:
        """What keeps this process from being ready, one sentence each; caches still being filled are named, too."""
        return [
            informer.problem or f"the cache of {informer} is not complete yet"
            for informer in self._informers.values()
            if informer.problem is not None or not informer.has_synced
        ]
