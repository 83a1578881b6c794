"""A memory of what came last, bounded by number and by weight (PL-810, PL-854).

Names of images and secrets, and how much there is to say of them, are chosen by whoever writes pods. So whatever is
remembered of them has two bounds, and of what exceeds one the least recently used goes first. Pure.
"""

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Bounded(Generic[K, V]):
    """At most ``entries`` values that together weigh at most ``weight``, in bytes or what its owner counts."""

    __slots__ = ("_capacity", "_entries", "_room", "weight")

    def __init__(self, *, entries: int, weight: int) -> None:
        self._capacity = entries
        self._room = weight
        self._entries: OrderedDict[K, tuple[V, int]] = OrderedDict()
        self.weight = 0
        """Of all that is remembered."""

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: K) -> V | None:
        """The value, which counts as used."""
        found = self._entries.get(key)
        if found is None:
            return None
        self._entries.move_to_end(key)
        return found[0]

    def put(self, key: K, value: V, weight: int) -> None:
        """Remembers the value, in place of the key's former one; too heavy a one is not remembered."""
        self.discard(key)
        if weight > self._room:
            return
        self._entries[key] = (value, weight)
        self.weight += weight
        while self.weight > self._room or len(self._entries) > self._capacity:
            self.discard(next(iter(self._entries)))

    def discard(self, key: K) -> None:
        """Forgets one, if it is there."""
        found = self._entries.pop(key, None)
        if found is not None:
            self.weight -= found[1]

    def clear(self) -> None:
        """Forgets all."""
        self._entries.clear()
        self.weight = 0
