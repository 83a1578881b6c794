"""A fair queue of lookups, by namespace and host.

In order of arrival, a namespace whose pods name ten thousand images that never answer would delay everybody else. So
each namespace has its own queue, and the least recently served namespace is next: per attempt of its own a namespace
waits for at most one attempt of each other. Within a namespace hosts are served in the same way; a host at its limit is
skipped.

A lookup is in the queue of each namespace that waits for it and leaves all of them when one is served, so a shared
public image is looked up as soon as any of them is next. Callers bound the length of the queues. State only: no I/O, no
clock.
"""

from collections import Counter, OrderedDict
from collections.abc import Callable, Hashable, Iterable
from typing import Final, Generic, NamedTuple, Protocol, TypeVar

from polyarch.oci.concurrency import SharedCapacity
from polyarch.oci.mirror_files import without_port
from polyarch.oci.settings import Share

CONCURRENT_LOOKUPS: Final = Share(256, per_tenant=64, minimum=8, maximum=1024)
"""Lookups under way at a time, in the webhook as in the controller."""
MAX_CONCURRENT_PER_HOST: Final = 32
"""Of them, those of one namespace at one host."""


class NamesImage(Hashable, Protocol):
    """A lookup's key."""

    @property
    def reference(self) -> str:
        """The image, ``host/repository…``."""


K = TypeVar("K", bound=NamesImage)


class QueueEntry(NamedTuple, Generic[K]):
    """The lookup to run next, and the namespace that it counts against."""

    key: K
    namespace: str


class ConcurrencyLimits:
    """Limits on running lookups: those that namespaces share, and those of one namespace at one host."""

    def __init__(self, share: Share = CONCURRENT_LOOKUPS, *, per_host: int = MAX_CONCURRENT_PER_HOST) -> None:
        self._per_host = per_host
        self._capacity = SharedCapacity(share)
        self._at_host: Counter[tuple[str, str]] = Counter()
        """By namespace and host; zero counts are removed."""

    @property
    def exhausted(self) -> bool:
        """Whether no namespace may start a lookup."""
        return self._capacity.exhausted

    def allows(self, namespace: str) -> bool:
        """Whether the namespace may start a lookup."""
        return self._capacity.allows(namespace)

    def has_capacity(self, namespace: str, host: str) -> bool:
        """Whether the namespace is below its limit at the host."""
        return self._at_host[namespace, host] < self._per_host

    def acquire(self, entry: QueueEntry[K]) -> None:
        """Counts a started lookup, which the limits allow."""
        self._capacity.take(entry.namespace)
        self._at_host[entry.namespace, host_of(entry.key)] += 1

    def release(self, entry: QueueEntry[K]) -> None:
        """Counts a finished lookup."""
        self._capacity.give_back(entry.namespace)
        place = (entry.namespace, host_of(entry.key))
        self._at_host[place] -= 1
        if not self._at_host[place]:
            del self._at_host[place]


class FairQueue(Generic[K]):
    """The queues of all namespaces."""

    def __init__(self) -> None:
        self._queues: OrderedDict[str, OrderedDict[str, dict[K, None]]] = OrderedDict()
        """By namespace and host, least recently served first; lookups in order of arrival."""
        self._namespaces: dict[K, set[str]] = {}
        """Namespaces in whose queues a lookup is."""

    def __len__(self) -> int:
        """Number of queued lookups."""
        return len(self._namespaces)

    def add(self, key: K, namespaces: Iterable[str]) -> None:
        """Appends the lookup to the queues of these namespaces; where it is queued already it keeps its position."""
        host = host_of(key)
        for namespace in namespaces:
            hosts = self._queues.setdefault(namespace, OrderedDict())
            hosts.setdefault(host, {}).setdefault(key)
            self._namespaces.setdefault(key, set()).add(namespace)

    def drop(self, key: K) -> None:
        """Removes the lookup from all queues: nobody waits for it any more."""
        if key in self._namespaces:
            self._remove(key)

    def next(self, limits: ConcurrencyLimits, *, waits: Callable[[K, str], bool]) -> QueueEntry[K] | None:
        """Removes the next lookup from all queues and returns it; None if none may start now.

        ``waits``: whether the namespace still waits for it; if not, it is removed from that namespace's queue.
        """
        if limits.exhausted:
            return None
        for namespace in tuple(self._queues):
            if limits.allows(namespace) and (key := self._next_of(namespace, limits, waits)) is not None:
                self._remove(key)
                if namespace in self._queues:
                    self._queues.move_to_end(namespace)
                return QueueEntry(key, namespace)
        return None

    def _next_of(self, namespace: str, limits: ConcurrencyLimits, waits: Callable[[K, str], bool]) -> K | None:
        hosts = self._queues[namespace]
        while (host := next((each for each in hosts if limits.has_capacity(namespace, each)), None)) is not None:
            key = next(iter(hosts[host]))
            if waits(key, namespace):
                hosts.move_to_end(host)
                return key
            self._leave(key, namespace)
        return None

    def _remove(self, key: K) -> None:
        for namespace in list(self._namespaces[key]):
            self._leave(key, namespace)

    def _leave(self, key: K, namespace: str) -> None:
        self._namespaces[key].discard(namespace)
        if not self._namespaces[key]:
            del self._namespaces[key]
        hosts, host = self._queues[namespace], host_of(key)
        del hosts[host][key]
        if not hosts[host]:
            del hosts[host]
        if not hosts:
            del self._queues[namespace]


def host_of(key: NamesImage) -> str:
    """The host of the image reference, without its port: many ports of a host are no more than one."""
    return without_port(key.reference.partition("/")[0])
