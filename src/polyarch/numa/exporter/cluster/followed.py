"""One object that is followed by its name: watched, or read now and then where the watch is forbidden (NE-112).

The watch selects ``metadata.name``, so that nobody's exporter sees another node (NE-140). It is the runtime's informer,
with a client between the two that makes it wait longer where asking again soon is of no use: a watch that RBAC forbids
is tried once an hour, and a kind that is not defined every 30 s. Meanwhile the object is read with GET.

Answers of our own writes and reads go into the same store as the watch's events, and the store takes the newest. So
nothing is decided from an object older than our last write.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Final, Generic, Protocol, TypeVar

import structlog

from polyarch.clock import Clock
from polyarch.kube.errors import Forbidden, KubernetesError, NotFound
from polyarch.kube.informer import Informer
from polyarch.kube.requests import Random, Selection
from polyarch.kube.resources import Resource
from polyarch.kube.responses import WatchStream
from polyarch.kube.watch import Apply, Delete, KubernetesObject, Page
from polyarch.objects import Key

log = structlog.get_logger(__name__)

T = TypeVar("T", bound=KubernetesObject)

PATIENCE: Final = 5
"""Refusals in a row that may come from an API server that has not loaded its RBAC roles yet, or kinds missing since
they were defined a moment ago."""
MISSING_PAUSE: Final = 30.0
"""Seconds until a kind that is not served is looked for again (§16)."""
FORBIDDEN_PAUSE: Final = 3600.0
"""Seconds until a forbidden watch is tried again; with a GET every 10 minutes that is what NE-152 allows."""


class ReadingClient(Protocol):
    """The part of the client that is used."""

    async def get(
        self, resource: Resource, name: str, *, namespace: str = "", type: type[T], retry: bool = True
    ) -> T: ...

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

    async def is_served(self, resource: Resource) -> bool: ...


class Followed(Generic[T]):
    """A cluster-scoped object by name. ``changed`` is called after each change that the watch or a read has shown."""

    def __init__(
        self,
        client: ReadingClient,
        resource: Resource,
        name: str,
        type: type[T],
        *,
        clock: Clock,
        resync: float,
        chance: Random | None = None,
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        """``resync``: seconds between two reads where the watch is forbidden."""
        self._client = client
        self._resource = resource
        self._name = name
        self._type = type
        self._clock = clock
        self._resync = resync
        self._changed = changed
        self._was_read = False
        self._refused = asyncio.Event()
        self._settled = asyncio.Event()
        self._not_served = False
        paced = _Paced(client, clock, opened=self._opened, refused=self._is_refused, missing=self._has_no_kind)
        selection = Selection(field_selector=f"metadata.name={name}")
        self._informer = Informer(paced, resource, type, selection=selection, clock=clock, chance=chance)
        self._informer.add_handler(lambda _: self._changed())

    @property
    def object(self) -> T | None:
        """As last seen; None if there is none, or while nothing is known."""
        return self._informer.store.get(Key("", self._name))

    @property
    def known(self) -> bool:
        """Whether ``object`` says what the API server has."""
        return self._informer.has_synced or self._was_read

    @property
    def is_missing(self) -> bool:
        """The API server does not have this kind."""
        return self._not_served or self._informer.is_missing

    @property
    def is_watched(self) -> bool:
        """Whether changes are seen at once."""
        return not self._refused.is_set()

    @property
    def problem(self) -> str | None:
        """Why nothing is known; None if something is."""
        if self.known:
            return None
        return self._informer.problem or self._informer.last_error or f"{self._informer} is being read"

    async def settled(self) -> None:
        """Returns when the object is known, or is known to be unreadable."""
        await self._settled.wait()

    async def run(self) -> None:
        """Follows until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._informer.run(), name=f"watch {self._informer}")
            tasks.create_task(self._settle(), name=f"first list {self._informer}")
            tasks.create_task(self._reread(), name=f"resync {self._informer}")

    async def read(self, *, retry: bool = True) -> T | None:
        """The object by GET. Raises ``KubernetesError``; that it does not exist is an answer."""
        try:
            found = await self._client.get(self._resource, self._name, type=self._type, retry=retry)
        except NotFound:
            self.gone()
            return None
        self.seen(found)
        return found

    def seen(self, found: T) -> None:
        """The API server has answered a read or a write of ours with this object."""
        self._was_read = True
        self._informer.store.take(Apply(found))

    def gone(self) -> None:
        """The API server has said that there is no such object."""
        self._was_read = True
        self._informer.store.take(Delete(Key("", self._name), ""))

    async def _settle(self) -> None:
        await self._informer.synced()
        self._settled.set()
        self._changed()

    async def _reread(self) -> None:
        """While the watch is forbidden."""
        while True:
            await self._refused.wait()
            before = self.object
            try:
                await self.read()
            except KubernetesError as error:
                log.warning("neither watch nor read", object=str(self._informer), error=str(error))
            self._settled.set()
            if self.object != before:
                self._changed()
            await self._clock.sleep(self._resync)

    def _opened(self) -> None:
        """Also tells of a kind that is served from now on, but has no object yet."""
        self._refused.clear()
        self._not_served = False
        self._changed()

    def _is_refused(self) -> None:
        if not self._refused.is_set():
            log.warning("watch is forbidden, reading instead", object=str(self._informer), seconds=self._resync)
        self._refused.set()

    def _has_no_kind(self) -> None:
        """Also where discovery shows the kind: what is not found cannot be written."""
        self._not_served = True
        self._settled.set()
        self._changed()


class _Paced:
    """The client as the informer sees it: a request that was refused, or whose kind is missing, fails late."""

    def __init__(
        self,
        client: ReadingClient,
        clock: Clock,
        *,
        opened: Callable[[], None],
        refused: Callable[[], None],
        missing: Callable[[], None],
    ) -> None:
        self._client = client
        self._clock = clock
        self._opened = opened
        self._refused = refused
        self._missing = missing
        self._in_a_row = 0

    async def list_page(
        self, resource: Resource, selection: Selection, *, type: type[T], continue_token: str = "", limit: int = 500
    ) -> Page[T]:
        try:
            return await self._client.list_page(
                resource, selection, type=type, continue_token=continue_token, limit=limit
            )
        except (Forbidden, NotFound) as error:
            await self._pause(error)
            raise

    @asynccontextmanager
    async def watch(
        self,
        resource: Resource,
        selection: Selection,
        *,
        type: type[T],
        resource_version: str = "",
        initial_events: bool = False,
        timeout_seconds: int = 300,
    ) -> AsyncIterator[WatchStream[T]]:
        try:
            async with self._client.watch(
                resource,
                selection,
                type=type,
                resource_version=resource_version,
                initial_events=initial_events,
                timeout_seconds=timeout_seconds,
            ) as stream:
                self._in_a_row = 0
                self._opened()
                yield stream
        except (Forbidden, NotFound) as error:
            await self._pause(error)
            raise

    async def is_served(self, resource: Resource) -> bool:
        return await self._client.is_served(resource)

    async def _pause(self, error: KubernetesError) -> None:
        self._in_a_row += 1
        if self._in_a_row <= PATIENCE:
            return
        if isinstance(error, Forbidden):
            self._refused()
            await self._clock.sleep(FORBIDDEN_PAUSE)
        else:
            self._missing()
            await self._clock.sleep(MISSING_PAUSE)
