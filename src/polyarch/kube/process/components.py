"""Everything a role runs in its process, as one value: routes, servers, caches, controllers, elections (KR-050).

The manager starts, runs and stops it in order; nothing here runs by itself. What is in :class:`Components` runs in
every replica; what is in a :class:`Leadership` runs only while that election is won.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import msgspec

from polyarch.kube.runtime.controller import Controller
from polyarch.kube.runtime.events import Recorder
from polyarch.kube.runtime.lease import LeaderElection
from polyarch.kube.serving.health import Check

if TYPE_CHECKING:
    from polyarch.kube.serving.admission import Serves

T = TypeVar("T")

Task = Callable[[], Awaitable[None]]
"""A coroutine function that runs until it is cancelled, or returns when it has finished."""


class Caches(Protocol):
    """Caches that must sync before a role serves (``informer.Informers``)."""

    @property
    def problems(self) -> list[str]: ...

    async def run(self) -> None: ...

    async def synced(self) -> None: ...


class Server(Protocol):
    """A listener (``serving.listener.HttpServer``). :meth:`retire` is called some seconds before :meth:`stop`."""

    @property
    def url(self) -> str: ...

    async def start(self) -> None: ...

    def retire(self) -> None: ...

    async def stop(self, seconds: float = 0.0) -> None: ...


class Leadership(msgspec.Struct, frozen=True, kw_only=True):
    """One leader election, and what only the leader runs. Without an election this process always leads.

    Controllers are fenced by the Lease (KR-030). ``background`` tasks, by name, are started whenever the election is
    won and cancelled before the Lease is released. A process may take part in several elections, one per role or shard.
    """

    election: LeaderElection | None
    controllers: tuple[Controller[Any], ...] = ()
    background: Mapping[str, Task] = {}


class Components(msgspec.Struct, frozen=True, kw_only=True):
    """What a role adds to its process; everything is optional.

    ``servers`` are further listeners by name. ``controllers`` and ``background`` run in every replica, so they must be
    safe to run beside the leader. ``readiness`` and ``liveness`` are further health checks by name.
    """

    routes: "tuple[Serves, ...]" = ()
    servers: Mapping[str, Server] = {}
    caches: tuple[Caches, ...] = ()
    controllers: tuple[Controller[Any], ...] = ()
    leaderships: tuple[Leadership, ...] = ()
    background: Mapping[str, Task] = {}
    recorders: tuple[Recorder, ...] = ()
    readiness: Mapping[str, Check] = {}
    liveness: Mapping[str, Check] = {}
    probes: tuple[Server, ...] = ()
    """Servers of health and metrics in place of the process's own two; health is on the first, metrics on the last."""


def leader_check(election: LeaderElection | None) -> Callable[[], bool]:
    """A function that says whether this process leads; without an election it always does."""
    return (lambda: election.is_leader) if election is not None else (lambda: True)


def merged(parts: Iterable[tuple[str, Components]]) -> Components:
    """The components of several roles as one. Names of tasks and checks are prefixed with the role's name.

    What roles share (a cache, a recorder) is included once. Raises ValueError if two roles use the same path or server.
    """
    roles = list(parts)
    routes: dict[str, Serves] = {}
    servers: dict[str, Server] = {}
    for name, components in roles:
        for route in components.routes:
            _add(routes, route.path, route, name)
        for key, server in components.servers.items():
            _add(servers, key, server, name)

    def named(mapping: Callable[[Components], Mapping[str, T]]) -> dict[str, T]:
        return {f"{name} {key}": value for name, components in roles for key, value in mapping(components).items()}

    return Components(
        routes=tuple(routes.values()),
        servers=servers,
        caches=_once(cache for _, components in roles for cache in components.caches),
        controllers=_once(controller for _, components in roles for controller in components.controllers),
        leaderships=_once(leadership for _, components in roles for leadership in components.leaderships),
        background=named(lambda components: components.background),
        recorders=_once(recorder for _, components in roles for recorder in components.recorders),
        readiness=named(lambda components: components.readiness),
        liveness=named(lambda components: components.liveness),
        probes=_once(server for _, components in roles for server in components.probes),
    )


def _add(known: dict[str, T], key: str, value: T, role: str) -> None:
    if key in known:
        raise ValueError(f"{role} serves {key!r}, and so does another role of this process")
    known[key] = value


def _once(things: Iterable[T]) -> tuple[T, ...]:
    return tuple({id(thing): thing for thing in things}.values())
