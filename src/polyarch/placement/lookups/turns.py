"""Who is next among the look-ups that stand in line: namespaces take turns (PL-851).

In order of arrival a namespace whose pods name ten thousand images that never answer would put everybody else behind
them. Here every namespace has a line of its own, and the one served longest ago comes first; so a namespace waits for
at most one attempt of each other namespace per attempt of its own. Within a namespace its hosts take turns in the same
way, and one without a place free is passed over.

A look-up stands in the line of each namespace that waits for it and leaves all of them when one has its turn: a public
image that many share is asked for as soon as any of them may. The lines hold what gated pods wait for, each look-up
once per namespace, and so are as long as there are different images in those pods. Only what nobody waits for any more
is dropped, because a pod that was forgotten here would stay gated. State only: no I/O, no clock.
"""

from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable
from typing import NamedTuple

from polyarch.placement.lookups.waiting import ImageKey


class Turn(NamedTuple):
    """A look-up whose turn it is, and the namespace at whose expense it is attempted."""

    key: ImageKey
    namespace: str


class Turns:
    """The lines of all namespaces."""

    def __init__(self) -> None:
        self._lines: OrderedDict[str, OrderedDict[str, dict[ImageKey, None]]] = OrderedDict()
        """By namespace and host, those served longest ago first; look-ups in the order in which they came."""
        self._places: dict[ImageKey, set[str]] = {}
        """In whose lines a look-up stands."""
        self._at_host: Counter[str] = Counter()
        """In how many namespaces' lines a host is; a count that is nought is not kept."""

    def __len__(self) -> int:
        """Look-ups in line."""
        return len(self._places)

    def add(self, key: ImageKey, namespaces: Iterable[str]) -> None:
        """The look-up stands at the end of these namespaces' lines; where it stands already it keeps its place."""
        host = host_of(key)
        for namespace in namespaces:
            hosts = self._lines.setdefault(namespace, OrderedDict())
            if host not in hosts:
                hosts[host] = {}
                self._at_host[host] += 1
            hosts[host].setdefault(key)
            self._places.setdefault(key, set()).add(namespace)

    def drop(self, key: ImageKey) -> None:
        """The look-up leaves all lines: nobody waits for it any more."""
        if key in self._places:
            self._remove(key)

    def next(
        self,
        *,
        may: Callable[[str], bool],
        has_room: Callable[[str], bool],
        waits: Callable[[ImageKey, str], bool],
    ) -> Turn | None:
        """Takes the next look-up out of all lines; None if nobody can be served now.

        ``may``: whether a namespace may have one more; ``has_room``: whether a host has a place free; ``waits``:
        whether the namespace still waits for it; if not, the look-up leaves its line.

        Costs a look at every namespace only if some host has a place free; there are never many hosts that have none.
        """
        if not any(map(has_room, self._at_host)):
            return None
        for namespace in tuple(self._lines):
            if may(namespace) and (key := self._next_of(namespace, has_room, waits)) is not None:
                self._remove(key)
                if namespace in self._lines:
                    self._lines.move_to_end(namespace)
                return Turn(key, namespace)
        return None

    def _next_of(
        self, namespace: str, has_room: Callable[[str], bool], waits: Callable[[ImageKey, str], bool]
    ) -> ImageKey | None:
        hosts = self._lines[namespace]
        while (host := next(filter(has_room, hosts), None)) is not None:
            key = next(iter(hosts[host]))
            if waits(key, namespace):
                hosts.move_to_end(host)
                return key
            self._leave(key, namespace)
        return None

    def _remove(self, key: ImageKey) -> None:
        for namespace in list(self._places[key]):
            self._leave(key, namespace)

    def _leave(self, key: ImageKey, namespace: str) -> None:
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


def host_of(key: ImageKey) -> str:
    """The host that an attempt for it begins with."""
    return key.reference.partition("/")[0]
