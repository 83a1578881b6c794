"""What a role does in its process, as one value (KR-050): the manager starts it, keeps it running and ends it in order.

Nothing here runs by itself. What every replica does and what only the leader does are told apart by where they stand:
in :class:`Duties`, or in one of its :class:`Leadership` values.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Protocol, TypeVar

import msgspec

from polyarch.kube.runtime.controller import Controller
from polyarch.kube.runtime.events import Recorder
from polyarch.kube.runtime.lease import LeaderElection
from polyarch.kube.serving.admission import Serves
from polyarch.kube.serving.health import Check

T = TypeVar("T")

Task = Callable[[], Awaitable[None]]
"""A coroutine function that runs until it is cancelled, or returns when it has nothing more to do."""


class Caches(Protocol):
    """Something that is filled before a role serves, and followed from then on (``informer.Informers``)."""

    @property
    def problems(self) -> list[str]: ...

    async def run(self) -> None: ...

    async def synced(self) -> None: ...


class Server(Protocol):
    """A listener (``serving.HttpServer``). :meth:`retire` comes some seconds before :meth:`stop`."""

    @property
    def url(self) -> str: ...

    async def start(self) -> None: ...

    def retire(self) -> None: ...

    async def stop(self, seconds: float = 0.0) -> None: ...


class Leadership(msgspec.Struct, frozen=True, kw_only=True):
    """One election, and what only its winner does. Without an election this process leads from its start to its end.

    Controllers are fenced by the Lease (KR-030). ``background`` are tasks by name: begun whenever the lead is won,
    cancelled before it is given up. A process may take part in several elections, one for each role or shard.
    """

    election: LeaderElection | None
    controllers: tuple[Controller[Any], ...] = ()
    background: Mapping[str, Task] = {}


class Duties(msgspec.Struct, frozen=True, kw_only=True):
    """All that a role brings to its process; everything is optional.

    ``servers`` are listeners of its own by name; ``controllers`` and ``background`` run in every replica, so their
    passes have to be safe beside a leader's; ``readiness`` and ``liveness`` are further checks by name.
    """

    routes: tuple[Serves, ...] = ()
    servers: Mapping[str, Server] = {}
    caches: tuple[Caches, ...] = ()
    controllers: tuple[Controller[Any], ...] = ()
    leaderships: tuple[Leadership, ...] = ()
    background: Mapping[str, Task] = {}
    recorders: tuple[Recorder, ...] = ()
    readiness: Mapping[str, Check] = {}
    liveness: Mapping[str, Check] = {}


def leads(election: LeaderElection | None) -> Callable[[], bool]:
    """Whether this process does what only one may do; without an election it always does."""
    return (lambda: election.is_leader) if election is not None else (lambda: True)


def together(parts: Iterable[tuple[str, Duties]]) -> Duties:
    """The duties of several roles, given by name, as one. Names of tasks and checks then begin with the role's.

    What two roles share (a cache, a recorder) is in it once. Raises ValueError if two of them want one path or server.
    """
    roles = list(parts)
    routes: dict[str, Serves] = {}
    servers: dict[str, Server] = {}
    for name, duties in roles:
        for route in duties.routes:
            _add(routes, route.path, route, name)
        for key, server in duties.servers.items():
            _add(servers, key, server, name)

    def named(mapping: Callable[[Duties], Mapping[str, T]]) -> dict[str, T]:
        return {f"{name} {key}": value for name, duties in roles for key, value in mapping(duties).items()}

    return Duties(
        routes=tuple(routes.values()),
        servers=servers,
        caches=_once(cache for _, duties in roles for cache in duties.caches),
        controllers=_once(controller for _, duties in roles for controller in duties.controllers),
        leaderships=_once(leadership for _, duties in roles for leadership in duties.leaderships),
        background=named(lambda duties: duties.background),
        recorders=_once(recorder for _, duties in roles for recorder in duties.recorders),
        readiness=named(lambda duties: duties.readiness),
        liveness=named(lambda duties: duties.liveness),
    )


def _add(known: dict[str, T], key: str, value: T, role: str) -> None:
    if key in known:
        raise ValueError(f"{role} serves {key!r}, and so does another role of this process")
    known[key] = value


def _once(things: Iterable[T]) -> tuple[T, ...]:
    return tuple({id(thing): thing for thing in things}.values())
