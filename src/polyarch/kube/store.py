"""The store: the objects of one watch in memory, with indexes; and the own writes that it has not seen yet.

Reads are dict look-ups. Only the informer writes: :meth:`Store.take` consumes the outputs of the watch machine and
returns the changes for handlers. A new list is collected beside the old content, which stays readable; when it is
complete the two are compared and swapped in one step, and only then the changes are returned, with a delete for every
object that vanished meanwhile. An object that the new list shows unchanged keeps its instance.

The order of events of different objects does not matter. For one object, a version older than the cached one, than its
deletion or than the list is ignored, so duplicate events do no harm.
"""

from collections.abc import Callable, ItemsView, Iterable, Iterator, KeysView, Mapping, ValuesView
from typing import Final, Generic, Literal, NamedTuple, TypeVar

import msgspec
import structlog

from polyarch.clock import Clock
from polyarch.kube.watch import Apply, Delete, Init, InitApply, InitDone, KubernetesObject, Output
from polyarch.objects import ObjectKey

log = structlog.get_logger(__name__)

T = TypeVar("T", bound=KubernetesObject)

IndexFunction = Callable[[T], Iterable[str]]
"""The index values of an object; they must depend on the object alone."""

_GRAVES: Final = 4096
"""Number of deletions remembered, so that a late duplicate event does not bring an object back."""


class ObjectChange(msgspec.Struct, Generic[T], frozen=True, gc=False):
    """A change for handlers: the object before and after. ``initial`` changes are from the first list."""

    kind: Literal["apply", "delete"]
    key: ObjectKey
    old: T | None
    new: T | None
    initial: bool = False


class Store(Generic[T]):
    """Objects by key. Do not keep what ``values``, ``items`` and ``keys`` return across an ``await``: they are live."""

    def __init__(self, indexes: Mapping[str, IndexFunction[T]] | None = None) -> None:
        self._objects: dict[ObjectKey, T] = {}
        self._functions: dict[str, IndexFunction[T]] = {}
        self._indexes: dict[str, dict[str, dict[ObjectKey, None]]] = {}
        self._graves: dict[ObjectKey, str] = {}
        self._listed_at = ""
        self._list: dict[ObjectKey, T] | None = None
        self._list_graves: dict[ObjectKey, str] = {}
        self._listed = False
        for name, function in (indexes or {}).items():
            self.add_index(name, function)

    # -- for readers --------------------------------------------------------------------------------------------------

    def get(self, key: ObjectKey) -> T | None:
        return self._objects.get(key)

    def keys(self) -> KeysView[ObjectKey]:
        return self._objects.keys()

    def values(self) -> ValuesView[T]:
        return self._objects.values()

    def items(self) -> ItemsView[ObjectKey, T]:
        return self._objects.items()

    def by_index(self, name: str, value: str) -> list[ObjectKey]:
        """The keys of the objects with this value, as a new list."""
        return list(self._indexes[name].get(value, ()))

    def __iter__(self) -> Iterator[ObjectKey]:
        return iter(self._objects)

    def __len__(self) -> int:
        return len(self._objects)

    def __contains__(self, key: object) -> bool:
        return key in self._objects

    # -- for the informer ---------------------------------------------------------------------------------------------

    def add_index(self, name: str, function: IndexFunction[T]) -> None:
        """Adds an index over present and future objects. A name can be added twice only with the same function."""
        if name in self._functions:
            if self._functions[name] is not function:
                raise ValueError(f"there is an index {name!r} with another function already")
            return
        self._functions[name] = function
        self._indexes[name] = {}
        for key, object_ in self._objects.items():
            self._index_one(name, key, None, object_)

    def take(self, output: Output[T]) -> tuple[ObjectChange[T], ...]:
        """Applies one output of the watch machine and returns the changes."""
        match output:
            case Apply(object=object_):
                return self._apply(object_)
            case Delete(key=key, resource_version=version):
                return self._delete(key, version)
            case InitApply(object=object_):
                if self._list is not None:
                    key, version = object_.metadata.key, object_.metadata.resource_version
                    there = self._list.get(key)
                    if _news(version, there) and not older(version, self._list_graves.get(key, "")):
                        self._list[key] = object_
            case Init():
                self._list, self._list_graves = {}, {}
            case InitDone(resource_version=version):
                self._listed_at = version
                return self._swap()
        return ()

    def _apply(self, object_: T) -> tuple[ObjectChange[T], ...]:
        metadata = object_.metadata
        key = metadata.key
        old = self._objects.get(key)
        if not _news(metadata.resource_version, old) or self._in_list(metadata.resource_version):
            return ()
        if old is None:
            if older(metadata.resource_version, self._graves.get(key, "")):
                return ()
            self._graves.pop(key, None)
        self._set(key, old, object_)
        if old is not None and metadata.uid != old.metadata.uid:
            return ObjectChange("delete", key, old, None), ObjectChange("apply", key, None, object_)
        return (ObjectChange("apply", key, old, object_),)

    def _delete(self, key: ObjectKey, version: str) -> tuple[ObjectChange[T], ...]:
        if self._list is not None:
            there = self._list.get(key)
            if there is None or not older(version, there.metadata.resource_version):
                self._list.pop(key, None)
                self._list_graves[key] = version
            return ()
        old = self._objects.get(key)
        if self._in_list(version) or (old is not None and older(version, old.metadata.resource_version)):
            return ()
        self._bury(key, version)
        if old is None:
            return ()
        self._set(key, old, None)
        return (ObjectChange("delete", key, old, None),)

    def _swap(self) -> tuple[ObjectChange[T], ...]:
        fresh, known = self._list or {}, self._objects
        self._list, self._graves, self._list_graves = None, self._list_graves, {}
        initial, self._listed = not self._listed, True
        changes: list[ObjectChange[T]] = []
        for key, new in fresh.items():
            old = known.get(key)
            if old is None:
                changes.append(ObjectChange("apply", key, None, new, initial))
            elif (
                old.metadata.resource_version == new.metadata.resource_version and old.metadata.uid == new.metadata.uid
            ):
                fresh[key] = old
            elif old.metadata.uid == new.metadata.uid:
                changes.append(ObjectChange("apply", key, old, new, initial))
            else:
                changes.append(ObjectChange("delete", key, old, None, initial))
                changes.append(ObjectChange("apply", key, None, new, initial))
        changes += [ObjectChange("delete", key, old, None, initial) for key, old in known.items() if key not in fresh]
        self._objects = fresh
        for change in changes:
            self._index(change.key, change.old, change.new)
        return tuple(changes)

    def _in_list(self, version: str) -> bool:
        """Older than the list, which already contains its outcome."""
        return older(version, self._listed_at)

    def _bury(self, key: ObjectKey, version: str) -> None:
        self._graves.pop(key, None)
        self._graves[key] = version
        if len(self._graves) > _GRAVES:
            del self._graves[next(iter(self._graves))]

    def _set(self, key: ObjectKey, old: T | None, new: T | None) -> None:
        if new is None:
            self._objects.pop(key, None)
        else:
            self._objects[key] = new
        self._index(key, old, new)

    def _index(self, key: ObjectKey, old: T | None, new: T | None) -> None:
        for name in self._functions:
            self._index_one(name, key, old, new)

    def _index_one(self, name: str, key: ObjectKey, old: T | None, new: T | None) -> None:
        """Updates only the difference: an object whose values did not change costs no write."""
        before = self._values(name, key, old)
        after = self._values(name, key, new)
        if before == after:
            return
        index = self._indexes[name]
        for value in before - after:
            keys = index[value]
            del keys[key]
            if not keys:
                del index[value]
        for value in after - before:
            index.setdefault(value, {})[key] = None

    def _values(self, name: str, key: ObjectKey, object_: T | None) -> frozenset[str]:
        if object_ is None:
            return frozenset()
        try:
            return frozenset(self._functions[name](object_))
        except Exception:
            log.exception("index function failed, the object is not in this index", index=name, key=str(key))
            return frozenset()


def older(version: str, known: str) -> bool:
    """Certainly older: resourceVersions are decimals since KEP-5504; any others cannot be compared."""
    return version.isdecimal() and known.isdecimal() and (len(version), version) < (len(known), known)


def _news(version: str, known: KubernetesObject | None) -> bool:
    """Whether an object of this version replaces the known one."""
    if known is None:
        return True
    old = known.metadata.resource_version
    return not (older(version, old) or (version == old and version != ""))


# -- own writes that the cache has not seen yet ------------------------------------------------------------------------


# A cache lags behind the writes of its own process: right after a write it still shows the old object, and a reconcile
# of that would write a second, perhaps contradictory, time. So a writer notes the resourceVersion of the answer, and a
# reconcile first asks whether the cache is stale for its key; if so it does nothing: the watch event that brings the
# cache up to date requeues the key.
#
# A cache that has not caught up within ``keep`` seconds is broken rather than late; the write is then forgotten, and
# the preconditions of the next write have to protect the object.


class _Write(NamedTuple):
    version: str
    before: str
    forgotten_at: float


class WriteExpectations(Generic[T]):
    """The writes of this process that its cache does not show yet."""

    def __init__(self, store: Store[T], *, clock: Clock, keep: float = 60.0) -> None:
        self._store = store
        self._clock = clock
        self._keep = keep
        self._writes: dict[ObjectKey, _Write] = {}

    def note_write(self, key: ObjectKey, resource_version: str) -> None:
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

    def is_stale(self, key: ObjectKey) -> bool:
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

    def observe(self, change: ObjectChange[T]) -> None:
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
