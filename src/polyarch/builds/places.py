"""How many Jobs each namespace may have: a fair share of ``maxActiveJobs`` places. Pure.

A Job at work takes a place of the cluster. One that waits for a node takes none, however long it waits: it counts
only against what its own namespace may have, which is as many Jobs as there are places. Free places go to the
namespaces with the fewest Jobs at work, so nobody who is alone is held back. A namespace with less than its share, the
places divided by the namespaces that build, does not wait until others' Jobs end: builds are never stopped for others,
so there are then more Jobs than places. Once there are half as many again, only a namespace that has none at work gets
one; once there are twice as many, nobody does, however many namespaces a tenant makes."""

import heapq
from collections.abc import Mapping
from typing import Final

import msgspec


class NamespaceLoad(msgspec.Struct, frozen=True, kw_only=True):
    """The Jobs of one namespace."""

    at_work: int = 0
    waiting: int = 0
    """Jobs that wait for a node."""
    queued: int = 0
    """Architectures that wait for a Job."""
    oldest: float = 0.0
    """When the oldest Run with such an architecture was made, in seconds since 1970."""


DEFAULT_PLACES: Final = 20
NO_LOAD: Final = NamespaceLoad()


class JobPlaces(msgspec.Struct, frozen=True, kw_only=True):
    """What one build may start now, and what is ahead of it."""

    free: int
    """Jobs that it may make."""
    room: int
    """Jobs that its namespace may have besides those that are at work or wait for a node."""
    predecessor: str = ""
    """The Run of the same namespace that comes before it; empty: none does."""

    @classmethod
    def of(
        cls,
        namespace: str,
        loads: Mapping[str, NamespaceLoad],
        limit: int,
        *,
        before: int = 0,
        predecessor: str = "",
    ) -> "JobPlaces":
        """``before``: architectures of older Runs of the namespace that get a Job first."""
        own = loads.get(namespace, NO_LOAD)
        free = max(0, places_of(namespace, loads, limit) - before)
        return cls(free=free, room=limit - own.at_work - own.waiting, predecessor=predecessor if before else "")


NO_OTHERS: Final = JobPlaces(free=DEFAULT_PLACES, room=DEFAULT_PLACES)
"""Nothing else is built in the cluster."""


def places_of(namespace: str, loads: Mapping[str, NamespaceLoad], limit: int) -> int:
    """The Jobs that a namespace may make now, whatever it wants. ``loads``: of every namespace that builds."""
    own = loads.get(namespace, NO_LOAD)
    room = limit - own.at_work - own.waiting
    if room <= 0:
        return 0
    taken = sum(each.at_work for each in loads.values())
    builders = {name for name, each in loads.items() if each.at_work or each.queued} | {namespace}
    share = max(1, limit // len(builders))
    guaranteed = max(min(share - own.at_work, limit + limit // 2 - taken), min(1 - own.at_work, 2 * limit - taken))
    return max(0, min(room, max(guaranteed, _given(namespace, loads, limit, limit - taken))))


def _given(namespace: str, loads: Mapping[str, NamespaceLoad], limit: int, free: int) -> int:
    """How many of the free places the namespace gets, if each goes to whoever has the fewest; the older Run first."""
    wanted = {
        name: min(each.queued, limit - each.at_work - each.waiting)
        for name, each in loads.items()
        if each.queued and name != namespace
    }
    if free >= sum(wanted.values()) + limit:
        return limit
    wanted[namespace] = limit
    line = [
        (loads.get(name, NO_LOAD).at_work, loads.get(name, NO_LOAD).oldest or float("inf"), name)
        for name, count in wanted.items()
        if count > 0
    ]
    heapq.heapify(line)
    given = 0
    while free > 0 and line:
        level, oldest, name = heapq.heappop(line)
        free -= 1
        wanted[name] -= 1
        given += name == namespace
        if wanted[name]:
            heapq.heappush(line, (level + 1, oldest, name))
    return given
