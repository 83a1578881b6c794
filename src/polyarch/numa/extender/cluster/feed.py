"""One watch whose objects are handed on as they come, and not kept (NS-171).

An informer keeps every object in its store: 5 000 topologies and 100 000 pods take a gigabyte. Here only keys, uids and
versions stay; the ledger and the fleet keep what they need. What vanished while the watch was broken is told when the
next list is complete, as an informer does.
"""

from collections.abc import Callable
from typing import Final, Generic, TypeVar

import structlog

from polyarch.clock import Clock
from polyarch.kube.informer import Reflector, WatchClient
from polyarch.kube.requests import Selection
from polyarch.kube.resources import Resource
from polyarch.kube.store import older
from polyarch.kube.watch import Apply, Delete, Init, InitApply, InitDone, KubernetesObject, Output
from polyarch.objects import Key

log = structlog.get_logger(__name__)

T = TypeVar("T", bound=KubernetesObject)

BOOKMARKS: Final = 75.0
"""Seconds within which a watch of an API server says something, if only a bookmark."""


class Feed(Generic[T]):
    """Calls ``seen`` with each version of an object and ``gone`` with its key and uid, in the order of the watch."""

    def __init__(
        self,
        client: WatchClient,
        resource: Resource,
        type: type[T],
        *,
        seen: Callable[[T], None],
        gone: Callable[[Key, str], None],
        clock: Clock,
        complete: Callable[[], None] = lambda: None,
    ) -> None:
        """``complete`` is called once, when the first list has been handed on."""
        self.resource = resource
        self.type = type
        self._seen = seen
        self._gone = gone
        self._complete = complete
        self._known: dict[Key, tuple[str, str]] = {}
        self._listed: set[Key] | None = None
        self._has_synced = False
        self._reflector = Reflector(client, resource, Selection(), clock=clock)
        self._reflector.add(self)

    def __len__(self) -> int:
        return len(self._known)

    @property
    def has_synced(self) -> bool:
        return self._has_synced

    @property
    def problem(self) -> str:
        """What keeps it from being current, for people; empty: nothing."""
        if self._reflector.problem is not None:
            return self._reflector.problem
        if not self._has_synced:
            return f"the cache of {self.resource} is not complete yet"
        return ""

    @property
    def last_error(self) -> str:
        """Why the watch is broken; empty while it is open."""
        return self._reflector.last_error or ""

    @property
    def stale_seconds(self) -> float:
        """Since when something may have happened that is not known here: since the watch broke, or has not even sent
        the bookmark that was due."""
        return self._reflector.broken_seconds or max(0.0, self._reflector.silent_seconds - BOOKMARKS)

    def has(self, key: Key, version: str) -> bool:
        """Whether this version of the object, or a later one, was handed on."""
        known = self._known.get(key)
        return known is not None and not older(known[1], version)

    async def run(self) -> None:
        """Watches until cancelled."""
        await self._reflector.run()

    def take(self, output: Output[T]) -> None:
        """Called by the reflector."""
        match output:
            case Apply(object=object_):
                self._see(object_)
            case InitApply(object=object_):
                if self._listed is not None:
                    self._listed.add(object_.metadata.key)
                self._see(object_)
            case Delete(key=key, resource_version=version):
                if self._listed is not None:
                    self._listed.discard(key)
                self._lose(key, version)
            case Init():
                self._listed = set()
            case InitDone():
                self._listed_all()

    def _listed_all(self) -> None:
        listed, self._listed = self._listed or set(), None
        for key in [key for key in self._known if key not in listed]:
            self._lose(key, "")
        if not self._has_synced:
            self._has_synced = True
            log.info("cache is complete", resource=str(self.resource), objects=len(self._known))
            self._complete()

    def _see(self, object_: T) -> None:
        metadata = object_.metadata
        known = self._known.get(metadata.key)
        if known is not None:
            uid, version = known
            if version == metadata.resource_version or older(metadata.resource_version, version):
                return
            if uid != metadata.uid:
                self._tell(self._gone, metadata.key, uid)
        self._known[metadata.key] = metadata.uid, metadata.resource_version
        self._tell(self._seen, object_)

    def _lose(self, key: Key, version: str) -> None:
        known = self._known.get(key)
        if known is None or older(version, known[1]):
            return
        del self._known[key]
        self._tell(self._gone, key, known[0])

    def _tell(self, handler: Callable[..., None], *what: object) -> None:
        try:
            handler(*what)
        except Exception:
            log.exception("object could not be taken in", resource=str(self.resource))
