"""The pods that the controller knows: those without a node, and those whose image was changed (TN-043, TN-049).

Two watches, because no single selection has both: of pods on nodes only those are cached that the admission has
labelled.
"""

from collections.abc import Collection
from typing import Final

from polyarch.kube.informer import Informer
from polyarch.objects import Key, Pod
from polyarch.taints import names

UNSCHEDULED: Final = "spec.nodeName="
"""Field selector."""
CHANGED: Final = f"{names.GATED_LABEL}={names.CHANGED}"
"""Label selector."""


class WatchedPods:
    """Both together; the other methods are about our own writes that a cache does not show yet."""

    def __init__(self, unscheduled: Informer[Pod], changed: Informer[Pod]) -> None:
        self._unscheduled = unscheduled
        self._changed = changed

    def get(self, key: Key) -> Pod | None:
        return self._unscheduled.store.get(key) or self._changed.store.get(key)

    def known(self) -> list[Key]:
        return list({**dict.fromkeys(self._unscheduled.store.keys()), **dict.fromkeys(self._changed.store.keys())})

    def unscheduled(self) -> Collection[Pod] | None:
        """The pods without a node; None: they are not known yet."""
        return self._unscheduled.store.values() if self._unscheduled.has_synced else None

    def note_write(self, key: Key, version: str) -> None:
        """The API server answered a write with this resourceVersion."""
        where = self._unscheduled if key in self._unscheduled.store else self._changed
        where.writes.note_write(key, version)

    def is_stale(self, key: Key) -> bool:
        """Whether a cache is behind our last write; nothing may be decided from it then."""
        return self._unscheduled.writes.is_stale(key) or self._changed.writes.is_stale(key)

    def is_connected(self) -> bool:
        """Whether the watch of pods without a node works."""
        return not self._unscheduled.broken_seconds
