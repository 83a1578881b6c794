"""A bounded mapping that evicts the least recently used entry.

Registries and pod authors choose how many hosts, tokens and failures there are, so every table that grows with them has
a limit on its number of entries and, where they choose the size too, on the bytes."""

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from typing import Generic, TypeVar

_K = TypeVar("_K", bound=Hashable)
_V = TypeVar("_V")


class LRUCache(Generic[_K, _V]):
    """At most ``limit`` entries; with ``weight`` also at most that many bytes, as stated to :meth:`put`."""

    __slots__ = ("_items", "_limit", "_most", "_weights", "weight")

    def __init__(self, limit: int, *, weight: int | None = None) -> None:
        self.weight = 0
        self._limit = limit
        self._most = weight
        self._items: OrderedDict[_K, _V] = OrderedDict()
        self._weights: dict[_K, int] = {}

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[tuple[_K, _V]]:
        return iter(list(self._items.items()))

    def get(self, key: _K) -> _V | None:
        value = self._items.get(key)
        if value is not None:
            self._items.move_to_end(key)
        return value

    def put(self, key: _K, value: _V, *, weight: int = 0) -> None:
        """Keep the value, unless it alone exceeds the limit on the weight."""
        if self._most is not None and weight > self._most:
            self.pop(key)
            return
        self._weigh(key, weight)
        self._items[key] = value
        self._items.move_to_end(key)
        while len(self._items) > self._limit or (self._most is not None and self.weight > self._most):
            self.pop(next(iter(self._items)))

    def pop(self, key: _K) -> _V | None:
        self._weigh(key, 0)
        return self._items.pop(key, None)

    def clear(self) -> None:
        self._items.clear()
        self._weights.clear()
        self.weight = 0

    def _weigh(self, key: _K, weight: int) -> None:
        if self._most is not None:
            self.weight += weight - self._weights.pop(key, 0)
            if weight:
                self._weights[key] = weight


class FairLRUCache(LRUCache[_K, _V]):
    """The same, shared by owners: whoever holds most loses the least recently used entry, so that nobody's entries are
    evicted for another who holds less."""

    __slots__ = ("_owners", "_places")

    def __init__(self, limit: int, *, weight: int | None = None) -> None:
        super().__init__(limit, weight=weight)
        self._owners: dict[_K, str] = {}
        self._places: dict[str, OrderedDict[_K, int]] = {}
        """By owner, the least recently used entry first, with its weight."""

    def get(self, key: _K) -> _V | None:
        value = super().get(key)
        if value is not None:
            self._places[self._owners[key]].move_to_end(key)
        return value

    def put(self, key: _K, value: _V, *, weight: int = 0, owner: str = "") -> None:
        self.pop(key)
        if self._most is not None and weight > self._most:
            return
        self._owners[key] = owner
        self._places.setdefault(owner, OrderedDict())[key] = weight
        self._weigh(key, weight)
        self._items[key] = value
        while len(self._items) > self._limit:
            self._evict(len)
        while self._most is not None and self.weight > self._most:
            self._evict(lambda places: sum(places.values()))

    def pop(self, key: _K) -> _V | None:
        if (owner := self._owners.pop(key, None)) is not None:
            del self._places[owner][key]
            if not self._places[owner]:
                del self._places[owner]
        return super().pop(key)

    def clear(self) -> None:
        super().clear()
        self._owners.clear()
        self._places.clear()

    def _evict(self, held: Callable[[OrderedDict[_K, int]], int]) -> None:
        most = max(self._places.values(), key=held)
        self.pop(next(iter(most)))
