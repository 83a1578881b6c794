"""Own writes that the cache has not seen yet (KR-022).

A cache lags behind the writes of its own process: right after a write it still shows the old object, and a reconcile of
that would write a second, perhaps contradictory, time. So a writer notes the resourceVersion of the answer, and a
reconcile first asks whether the cache is stale for its key; if so it does nothing: the watch event that brings the
cache up to date requeues the key.

A cache that has not caught up within ``keep`` seconds is broken rather than late; the write is then forgotten, and the
preconditions of the next write have to protect the object.
"""

from typing import Generic, NamedTuple, TypeVar

from polyarch.kube.client.watch_event import KubernetesObject
from polyarch.kube.clock import Clock
from polyarch.kube.runtime.store import Change, Store, older
from polyarch.model.meta import Key

T = TypeVar("T", bound=KubernetesObject)


class _Write(NamedTuple):
    version: str
    before: str
    forgotten_at: float


class OwnWrites(Generic[T]):
    """The writes of this process that its cache does not show yet."""

    def __init__(self, store: Store[T], *, clock: Clock, keep: float = 60.0) -> None:
        self._store = store
        self._clock = clock
        self._keep = keep
        self._writes: dict[Key, _Write] = {}

    def note_write(self, key: Key, resource_version: str) -> None:
        """The API server answered a write to ``key`` with this resourceVersion."""
        cached = self._store.get(key)
        before = cached.metadata.resource_version if cached is not None else ""
        now = self._clock.monotonic()
        # An object that has left the selection, or was deleted before this answer came, is never asked for again.
        self._writes.pop(key, None)
        while self._writes and self._writes[oldest := next(iter(self._writes))].forgotten_at <= now:
            del self._writes[oldest]
        write = _Write(resource_version, before, now + self._keep)
        if not _caught_up(write, before):
            self._writes[key] = write

    def is_stale(self, key: Key) -> bool:
        """True while the cache is older than our last write; nothing may be decided from it then."""
        write = self._writes.get(key)
        if write is None:
            return False
        cached = self._store.get(key)
        version = cached.metadata.resource_version if cached is not None else ""
        if _caught_up(write, version) or self._clock.monotonic() >= write.forgotten_at:
            del self._writes[key]
            return False
        return True

    def is_behind(self) -> bool:
        """Whether the cache is older than any of our writes: what is read across many objects is not whole then."""
        return any(self.is_stale(key) for key in tuple(self._writes))

    def observe(self, change: Change[T]) -> None:
        """An informer handler: forgets writes that the cache has seen, and deleted objects."""
        write = self._writes.get(change.key)
        if write is not None and (change.new is None or _caught_up(write, change.new.metadata.resource_version)):
            del self._writes[change.key]

    def __len__(self) -> int:
        return len(self._writes)


def _caught_up(write: _Write, version: str) -> bool:
    if version == write.version:
        return True
    if version.isdecimal() and write.version.isdecimal():
        return not older(version, write.version)
    # Versions that cannot be compared: anything but what was there when we wrote counts as later.
    return version != write.before
