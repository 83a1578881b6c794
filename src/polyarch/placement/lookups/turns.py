"""Who is next among the look-ups that stand in line: namespaces take turns (PL-851).

In order of arrival a namespace whose pods name ten thousand images that never answer would put everybody else behind
them. Here every namespace has a line of its own, and the one served longest ago comes first; so a namespace waits for
at most one attempt of each other namespace per attempt of its own. Within a namespace its hosts take turns in the same
way, and one without a place free is passed over.

A look-up stands in the line of each namespace that waits for it and leaves all of them when one has its turn: a public
image that many share is asked for as soon as any of them may. How long the lines may be is the business of whoever adds
to them. State only: no I/O, no clock.
"""

from collections import Counter, OrderedDict
from collections.abc import Callable, Hashable, Iterable
from typing import Generic, NamedTuple, Protocol, TypeVar


class NamesImage(Hashable, Protocol):
    """A look-up's key."""

    @property
    def reference(self) -> str:
        """The image, ``host/repository…``."""


K = TypeVar("K", bound=NamesImage)


class Turn(NamedTuple, Generic[K]):
    """A look-up whose turn it is, and the namespace at whose expense it is attempted."""

    key: K
    namespace: str


class Places:
    """How many look-ups may be under way: in all, per host, per namespace.

    Who names many hosts that hang does not take all places for it, and who does so from many namespaces neither: a
    namespace also leaves as many places free as it has (PL-851).
    """

    def __init__(self, in_all: int, *, per_host: int, per_namespace: int) -> None:
        self._per_host = per_host
        self._per_namespace = per_namespace
        self.free = in_all
        self._at_host: Counter[str] = Counter()
        self._of_namespace: Counter[str] = Counter()
        """A count that is nought is not kept, neither here nor above."""

    def may(self, namespace: str) -> bool:
        """Whether the namespace may have one more."""
        return self._of_namespace[namespace] < min(self._per_namespace, self.free)

    def has_room(self, host: str) -> bool:
        """Whether the host may have one more."""
        return self._at_host[host] < self._per_host

    def take(self, turn: Turn[K]) -> None:
        """The look-up is under way."""
        self._count(turn, 1)

    def leave(self, turn: Turn[K]) -> None:
        """It has ended."""
        self._count(turn, -1)

    def _count(self, turn: Turn[K], change: int) -> None:
        self.free -= change
        for counter, name in ((self._at_host, host_of(turn.key)), (self._of_namespace, turn.namespace)):
            counter[name] += change
            if not counter[name]:
                del counter[name]


class Turns(Generic[K]):
    """The lines of all namespaces."""

    def __init__(self) -> None:
        self._lines: OrderedDict[str, OrderedDict[str, dict[K, None]]] = OrderedDict()
        """By namespace and host, those served longest ago first; look-ups in the order in which they came."""
        self._places: dict[K, set[str]] = {}
        """In whose lines a look-up stands."""
        self._at_host: Counter[str] = Counter()
        """In how many namespaces' lines a host is; a count that is nought is not kept."""

    def __len__(self) -> int:
        """Look-ups in line."""
        return len(self._places)

    def add(self, key: K, namespaces: Iterable[str]) -> None:
        """The look-up stands at the end of these namespaces' lines; where it stands already it keeps its place."""
        host = host_of(key)
        for namespace in namespaces:
            hosts = self._lines.setdefault(namespace, OrderedDict())
            if host not in hosts:
                hosts[host] = {}
                self._at_host[host] += 1
            hosts[host].setdefault(key)
            self._places.setdefault(key, set()).add(namespace)

    def drop(self, key: K) -> None:
        """The look-up leaves all lines: nobody waits for it any more."""
        if key in self._places:
            self._remove(key)

    def next(self, places: Places, *, waits: Callable[[K, str], bool]) -> Turn[K] | None:
        """Takes the next look-up out of all lines; None if nobody can be served now.

        ``waits``: whether the namespace still waits for it; if not, the look-up leaves its line.

        Costs a look at every namespace only if some host has a place free; there are never many hosts that have none.
        """
        if not places.free or not any(map(places.has_room, self._at_host)):
            return None
        for namespace in tuple(self._lines):
            if places.may(namespace) and (key := self._next_of(namespace, places.has_room, waits)) is not None:
                self._remove(key)
                if namespace in self._lines:
                    self._lines.move_to_end(namespace)
                return Turn(key, namespace)
        return None

    def _next_of(self, namespace: str, has_room: Callable[[str], bool], waits: Callable[[K, str], bool]) -> K | None:
        hosts = self._lines[namespace]
        while (host := next(filter(has_room, hosts), None)) is not None:
            key = next(iter(hosts[host]))
            if waits(key, namespace):
                hosts.move_to_end(host)
                return key
            self._leave(key, namespace)
        return None

    def _remove(self, key: K) -> None:
        for namespace in list(self._places[key]):
            self._leave(key, namespace)

    def _leave(self, key: K, namespace: str) -> None:
        self._places[key].discard(namespace)
        if not self._places[key]:
            del self._places[key]
        hosts, host = self._lines[namespace], host_of(key)
        del hosts[host][key]
        if not hosts[host]:
            del hosts[host]
            self._at_host[host] -= 1
            if not self._at_host[host]:
                del self._at_host[host]
        if not hosts:
            del self._lines[namespace]


def host_of(key: NamesImage) -> str:
    """The host that an attempt for it begins with."""
    return key.reference.partition("/")[0]
