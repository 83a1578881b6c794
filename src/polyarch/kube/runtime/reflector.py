"""The reflector: the list and watch loop of one resource and selection (KR-012).

It drives the state machine of ``watch.py`` with real requests, for any number of views, each of which decodes the
objects into its own type (KR-050). No error ends it: it backs off and retries. A broken watch shows in
``broken_seconds`` and in one log line a minute (PL-531); missing permission is explained in ``problem``, which turns
readiness off.

A kind whose definition is missing has no objects. So its views are complete and empty meanwhile, and the process can do
everything else; the next list finds the kind when it has appeared.
"""

import asyncio
import random
from contextlib import AbstractAsyncContextManager
from typing import Any, Final, Protocol, TypeVar

import structlog

from polyarch.kube.client.requests import Selection
from polyarch.kube.client.retry import Random
from polyarch.kube.client.stream import WatchStream, several
from polyarch.kube.client.watch_event import Ended, Failed, Input, KubernetesObject, Missing, Opened, Page
from polyarch.kube.clock import Clock, SystemClock, is_cancelled
from polyarch.kube.errors import ApiError, Gone, KubernetesError, NotFound, Unauthorized, UnreadableAnswer
from polyarch.kube.resources import Resource
from polyarch.kube.runtime.watch import (
    Apply,
    Ask,
    Delete,
    Empty,
    InitApply,
    Output,
    State,
    delay_before,
    refused,
    request_for,
    step,
)

log = structlog.get_logger(__name__)

T = TypeVar("T", bound=KubernetesObject)

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


class View(Protocol):
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
        selection: Selection,
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
        self._views: tuple[View, ...] = ()
        self._blind = 0.0
        self._blind_since: float | None = None
        self._heard_at: float | None = None
        self._told: KubernetesError | None = None
        self._told_at = 0.0
        self._client = client
        self._clock: Clock = clock or SystemClock()
        self._chance: Random = chance or random.SystemRandom().random
        self._state: State = Empty()

    def __str__(self) -> str:
        """For people: ``pods in demo (app=web)``."""
        where = f" in {self.selection.namespace}" if self.selection.namespace else ""
        chosen = ", ".join(part for part in (self.selection.label_selector, self.selection.field_selector) if part)
        return f"{self.resource}{where}{f' ({chosen})' if chosen else ''}"

    def add(self, view: View) -> None:
        """Adds a view; the next :meth:`run` starts with a list, so it gets every object."""
        self._views = (*self._views, view)
        self._state = Empty()
        self.is_missing, self._not_found = False, 0

    def remove(self, view: View) -> None:
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
        (the age of a Lease, PL-107)."""
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
                self._failed(Failed(error))
            except (Exception, asyncio.CancelledError) as error:
                if isinstance(error, asyncio.CancelledError) and is_cancelled():
                    raise
                log.exception("unexpected error in a watch, listing again", resource=str(self))
                self._failed(Failed(UnreadableAnswer(f"watch {self.resource}: {error!r}")))
            if self._not_found >= MISSING_AFTER and not self.is_missing:
                await self._do_without()

    async def _watch(self, ask: Ask) -> None:
        shortest, longest = WATCH_SECONDS
        opened: float | None = None
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
        self._feed(Missing())

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

    def _failed(self, failed: Failed) -> None:
        error = failed.error
        self._feed(failed)
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
