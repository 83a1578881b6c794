"""Own writes that the caches do not show yet: no build is planned from what it has just changed (BD-137, KR-022).

A plan reads several caches: the build, its executions, Jobs and ConfigMaps. Each is as late as its own watch. So every
write of a pass is noted for its build, and the next pass waits until all of them are seen; the watch event that brings
a cache up to date requeues the build.
"""

from collections.abc import Callable, Hashable
from itertools import islice
from typing import Any, Final, Generic, TypeVar

from polyarch.clock import Clock
from polyarch.kube.store import OwnWrites, Store
from polyarch.objects import Key

K = TypeVar("K", bound=Hashable)
KEEP: Final = 60.0
"""Seconds after which a deletion that the cache does not show is forgotten: the cache is broken then, not late."""
LOOKED_AT: Final = 4
"""With every write: more than it adds, so that what has settled never adds up."""


class Settling(Generic[K]):
    """Which builds wait for their own writes."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._pending: dict[K, list[Callable[[], bool]]] = {}

    def wrote(self, build: K, writes: OwnWrites[Any], key: Key, resource_version: str) -> None:
        """The API server answered a write to the object ``key`` of a cache with this resourceVersion."""
        writes.note_write(key, resource_version)
        self._note(build, lambda: writes.is_stale(key))

    def deleted(self, build: K, store: Store[Any], key: Key, uid: str) -> None:
        """The API server accepted the deletion of that object."""
        until = self._clock.monotonic() + KEEP

        def is_there() -> bool:
            cached = store.get(key)
            return (
                cached is not None
                and cached.metadata.uid == uid
                and cached.metadata.deletion_timestamp is None
                and self._clock.monotonic() < until
            )

        self._note(build, is_there)

    def _note(self, build: K, is_behind: Callable[[], bool]) -> None:
        """Nobody asks again about a build that is gone, or a namespace without builds: those that wait for longest are
        looked at here."""
        for each in tuple(islice(self._pending, LOOKED_AT)):
            self.is_stale(each)
        self._pending.setdefault(build, []).append(is_behind)

    def is_stale(self, build: K) -> bool:
        """Whether some cache is still behind a write of this build."""
        pending = [each for each in self._pending.get(build, ()) if each()]
        if pending:
            self._pending[build] = pending
        else:
            self._pending.pop(build, None)
        return bool(pending)
