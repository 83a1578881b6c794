"""One process: the roles that it runs, their components, and the manager that starts and stops these in order.

A :class:`Role` is declared in its module, and its ``setup`` builds its :class:`Components`; :class:`Process` sets any
set of roles up and runs it. All roles of a process share one client, one informer per resource and selection, one
admission server, one health server, one metrics server, and whatever else they open with :meth:`Process.share`.
"""

import asyncio
import functools
import os
import secrets
import signal
import socket
import ssl
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, contextmanager
from typing import TYPE_CHECKING, Any, Final, Protocol, Self, TypeVar

import msgspec
import structlog

from polyarch.clock import Clock, SystemClock, is_cancelled
from polyarch.kube.certificates import Certificates, FileCertificates, WatchedCertificates
from polyarch.kube.client import Client
from polyarch.kube.controller import Controller
from polyarch.kube.events import Recorder
from polyarch.kube.informer import Informer, InformerFactory
from polyarch.kube.lease import LeaderElection, LeadershipError
from polyarch.kube.metrics import Metrics
from polyarch.kube.resources import SECRETS, Resource
from polyarch.kube.review_tokens import ReviewTokens
from polyarch.kube.server import Check, EventLoopMonitor, Health, HttpServer, MetricsPage, ScraperAuthorization
from polyarch.kube.settings import ProcessSettings
from polyarch.kube.store import IndexFunction
from polyarch.kube.watch import KubernetesObject
from polyarch.objects import ObjectKey, Secret

if TYPE_CHECKING:
    from polyarch.kube.admission import WebhookRoute

log = structlog.get_logger(__name__)

T = TypeVar("T", bound=KubernetesObject)
V = TypeVar("V")


# -- components: what a role runs --------------------------------------------------------------------------------------

Task = Callable[[], Awaitable[None]]
"""A coroutine function that runs until it is cancelled, or returns when it has finished."""


class Caches(Protocol):
    """Caches that must sync before a role serves (``informer.InformerFactory``)."""

    @property
    def problems(self) -> list[str]: ...

    async def run(self) -> None: ...

    async def synced(self) -> None: ...


class Server(Protocol):
    """A listener (``server.HttpServer``). :meth:`retire` is called some seconds before :meth:`stop`."""

    @property
    def url(self) -> str: ...

    async def start(self) -> None: ...

    def retire(self) -> None: ...

    async def stop(self, seconds: float = 0.0) -> None: ...


class Leadership(msgspec.Struct, frozen=True, kw_only=True):
    """One leader election, and what only the leader runs. Without an election this process always leads.

    Controllers are fenced by the Lease. ``background`` tasks, by name, are started whenever the election is
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

    routes: "tuple[WebhookRoute, ...]" = ()
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
    routes: dict[str, WebhookRoute] = {}
    servers: dict[str, Server] = {}
    for name, components in roles:
        for route in components.routes:
            _add(routes, route.path, route, name)
        for key, server in components.servers.items():
            _add(servers, key, server, name)

    def named(mapping: Callable[[Components], Mapping[str, V]]) -> dict[str, V]:
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


def _add(known: dict[str, V], key: str, value: V, role: str) -> None:
    if key in known:
        raise ValueError(f"{role} serves {key!r}, and so does another role of this process")
    known[key] = value


def _once(things: Iterable[V]) -> tuple[V, ...]:
    return tuple({id(thing): thing for thing in things}.values())


# -- the manager: components, started and stopped in order -------------------------------------------------------------


#     start   health and metrics servers → caches, certificates → admission and other servers → controllers of every
#             replica → Leases → (leading) the leader's controllers and tasks
#     stop    unready → keep serving until endpoints have dropped us → servers and workers drain → Leases released →
#             events posted → caches → metrics and health servers
#
# A process whose leader makes the certificate (``leads_first``) starts its controllers and candidacies before it waits
# for one, and serves as soon as there is one.
#
# A standby runs everything except what needs the Lease, so that takeover is immediate. If any component fails, the
# whole process ends, and its replacement starts with a clean state. The first SIGTERM or SIGINT starts a graceful
# shutdown, a second one cuts it short.


class ManagerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds of each step of the shutdown; with the release of Leases below a pod's default grace period of 30 s."""

    unready: float = 5.0
    drain: float = 12.0
    events: float = 3.0


class Manager:
    """Runs components. ``probes`` are the servers of ``health`` and of metrics, which start before everything else.

    ``remark`` is shown with the readiness of caches. ``abort`` exits at once if workers do not stop after the Lease was
    lost: waiting could allow two leaders.
    """

    def __init__(
        self,
        components: Components,
        *,
        health: Health,
        probes: Sequence[Server] = (),
        certificates: Sequence[Certificates] = (),
        leads_first: bool = False,
        remark: Check = lambda: None,
        clock: Clock | None = None,
        settings: ManagerSettings | None = None,
        abort: Callable[[], None] = lambda: os._exit(1),
    ) -> None:
        self.started = asyncio.Event()
        self._duties = components
        self._clock = clock or SystemClock()
        self._settings = settings or ManagerSettings()
        self._probes = probes
        self._certificates = certificates
        self._leads_first = leads_first
        self._servers = list(components.servers.values())
        self._abort = abort
        self._stop_asked = asyncio.Event()
        self._cut_short = False
        self._elections: dict[LeaderElection, asyncio.Task[None]] = {}
        self._workers: dict[Controller[Any], asyncio.Task[None]] = {}
        self._leading: dict[int, list[asyncio.Task[None]]] = {}
        self._loop_watch = EventLoopMonitor(self._clock)
        health.liveness.add("event-loop", self._loop_watch.check)
        health.readiness.add("running", self._not_running)
        health.readiness.add("caches", self._incomplete, remark=remark)
        health.readiness.add("certificates", self._uncertified)
        for checks, further in ((health.liveness, components.liveness), (health.readiness, components.readiness)):
            for name, check in further.items():
                checks.add(name, check)

    def stop(self) -> None:
        """Starts the graceful shutdown, as SIGTERM does."""
        self._stop_asked.set()

    async def run(self, *, signals: bool = True) -> None:
        """Returns after the shutdown, or at the second signal; raises an ExceptionGroup if a component failed."""
        with self._signals() if signals else _nothing():
            try:
                await self._run()
            except asyncio.CancelledError:
                main = asyncio.current_task()
                if not self._cut_short or main is None:
                    raise
                main.uncancel()
            finally:
                for server in self._servers:
                    await server.stop()
                for server in reversed(self._probes):
                    await server.stop()
        log.info("stopped")

    async def _run(self) -> None:
        for server in self._probes:
            await server.start()
        async with asyncio.TaskGroup() as tasks:
            running = self._run_background(tasks)
            starting = tasks.create_task(self._start(tasks), name="start")
            await self._stop_asked.wait()
            log.info("stopping")
            await self._end(starting)
            await _cancel(running)

    def _run_background(self, tasks: asyncio.TaskGroup) -> list[asyncio.Task[None]]:
        components = self._duties
        parts: list[tuple[str, Task]] = [
            ("event loop", self._loop_watch.run),
            *((f"caches {number}", caches.run) for number, caches in enumerate(components.caches)),
            *((f"certificates {number}", source.run) for number, source in enumerate(self._certificates)),
            *components.background.items(),
            *((f"events {number}", recorder.run) for number, recorder in enumerate(components.recorders)),
        ]
        return [tasks.create_task(_run(run), name=name) for name, run in parts]

    async def _start(self, tasks: asyncio.TaskGroup) -> None:
        for caches in self._duties.caches:
            await caches.synced()
        if self._leads_first:
            await self._start_work(tasks)
        for source in self._certificates:
            await source.ready()
        for server in self._servers:
            await server.start()
        if not self._leads_first:
            await self._start_work(tasks)
        self.started.set()
        log.info("started", servers=[server.url for server in self._servers])

    async def _start_work(self, tasks: asyncio.TaskGroup) -> None:
        """The controllers of every replica, and the elections."""
        for controller in self._duties.controllers:
            self._workers[controller] = tasks.create_task(controller.run(), name=controller.name)
        for leadership in self._duties.leaderships:
            begin = functools.partial(self._lead, leadership, tasks)
            if leadership.election is None:
                await begin()
            else:
                leadership.election.subscribe(begin, functools.partial(self._step_down, leadership))
        for election in dict.fromkeys(each.election for each in self._duties.leaderships if each.election is not None):
            self._elections[election] = tasks.create_task(
                _run(functools.partial(self._hold_lease, election)), name="lease"
            )

    async def _end(self, starting: asyncio.Task[None]) -> None:
        """Unready, wait, drain, release, post events: each step has its own deadline."""
        await _cancel([starting])
        settings = self._settings
        if self._servers and self.started.is_set():
            for server in self._servers:
                server.retire()
            await self._clock.sleep(settings.unready)
        await _cancel(holding for election, holding in self._elections.items() if not election.is_leader)
        async with asyncio.TaskGroup() as drains:
            for server in self._servers:
                drains.create_task(server.stop(settings.drain))
            for controller in self._controllers():
                drains.create_task(self._drain(controller))
        await _cancel(self._elections.values())
        await _cancel([*self._workers.values(), *(task for led in self._leading.values() for task in led)])
        async with asyncio.TaskGroup() as posts:
            for recorder in self._duties.recorders:
                posts.create_task(recorder.close(settings.events))

    def _controllers(self) -> list[Controller[Any]]:
        led = (controller for leadership in self._duties.leaderships for controller in leadership.controllers)
        return [*self._duties.controllers, *led]

    async def _drain(self, controller: Controller[Any]) -> None:
        """Keys in a standby's queue are dropped: the leader has them too."""
        if controller not in self._workers:
            controller.queue.shut_down(drain=False)
        elif not await controller.stop(self._settings.drain):
            log.warning("shutdown: reconciles cancelled after the drain timeout", controller=controller.name)

    async def _hold_lease(self, election: LeaderElection) -> None:
        try:
            await election.run()
        except LeadershipError as error:
            log.critical("ending the process at once", problem=str(error))
            self._abort()
            raise

    async def _lead(self, leadership: Leadership, tasks: asyncio.TaskGroup) -> None:
        """Starts what only the leader runs; its workers are fenced by the Lease."""
        election = leadership.election
        holds = (lambda: election.is_leader) if election is not None else None
        for controller in leadership.controllers:
            self._workers[controller] = tasks.create_task(controller.run(holds=holds), name=controller.name)
        self._leading[id(leadership)] = [
            tasks.create_task(_run(run), name=name) for name, run in leadership.background.items()
        ]

    async def _step_down(self, leadership: Leadership) -> None:
        ended = [task for each in leadership.controllers if (task := self._workers.pop(each, None)) is not None]
        await _cancel([*ended, *self._leading.pop(id(leadership), [])])

    def _not_running(self) -> str | None:
        if self._stop_asked.is_set():
            return "this process is stopping"
        return None if self.started.is_set() else "this process is starting"

    def _incomplete(self) -> str | None:
        return "; ".join(problem for caches in self._duties.caches for problem in caches.problems) or None

    def _uncertified(self) -> str | None:
        return "; ".join(problem for source in self._certificates if (problem := source.not_ready())) or None

    @contextmanager
    def _signals(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        main = asyncio.current_task()

        def received() -> None:
            if self._stop_asked.is_set() and main is not None:
                log.warning("second signal: exiting at once")
                self._cut_short = True
                main.cancel()
            self._stop_asked.set()

        loop.set_exception_handler(log_unhandled)
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, received)
        try:
            yield
        finally:
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.remove_signal_handler(number)


def log_unhandled(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """A line of the log for what asyncio would write as text.

    uvloop makes a future for each TLS handshake, and an attempt to connect that is given up leaves it behind: that the
    API server or a registry then closes the connection is no error, and whoever waited has been told of the other one.
    """
    error, future = context.get("exception"), context.get("future")
    if isinstance(error, ConnectionError) and not isinstance(future, asyncio.Task) and future is not None:
        log.debug("a connection was closed that nobody waits for any more", error=str(error))
        return
    log.error("error that nobody handled", problem=context.get("message"), what=str(future or ""), exc_info=error)


@contextmanager
def _nothing() -> Iterator[None]:
    yield


async def _run(run: Task) -> None:
    """Runs a task. If something it awaited was cancelled, it has failed; its task group would not notice."""
    try:
        await run()
    except asyncio.CancelledError:
        if is_cancelled():
            raise
        raise RuntimeError("a task of this process was cancelled by something that it awaited") from None


async def _cancel(tasks: Iterable[asyncio.Task[None]]) -> None:
    """Cancels the tasks and waits for them; their task group reports what they raise."""
    pending = [task for task in tasks if not task.done()]
    for task in pending:
        task.cancel()
    if pending:
        await asyncio.wait(pending)


# -- roles, and the process that runs any set of them ------------------------------------------------------------------


ADMISSION: Final = "admission"
"""The server of all routes."""


class Addresses(msgspec.Struct, frozen=True, omit_defaults=True):
    """URLs on which a process listens; ``servers`` are the roles' own servers, by name."""

    role: str
    admission: str = ""
    health: str = ""
    metrics: str = ""
    servers: Mapping[str, str] = {}


class Role(msgspec.Struct, frozen=True, kw_only=True):
    """One role: its name, the settings it reads, and what it runs.

    ``setup`` builds its components for a process, as ``SetupWithManager`` does in controller-runtime. It may send a
    few requests, but whatever keeps running belongs in the components. ``settings`` are the types it reads with
    :meth:`Process.settings_of`. API servers call webhooks over TLS only, so a role with routes ``needs_certificate``.
    """

    name: str
    setup: Callable[["Process"], Awaitable[Components]]
    settings: tuple[type[Any], ...] = ()
    needs_certificate: bool = False


class Process:
    """One process, from setup to shutdown. Use as an async context manager.

    ``role_settings``: one value per type of settings that the roles read. ``announce`` is called once, when all servers
    listen.
    """

    def __init__(
        self,
        name: str,
        settings: ProcessSettings,
        client: Client,
        metrics: Metrics,
        *,
        role_settings: Iterable[object] = (),
        announce: Callable[[Addresses], None] = lambda _: None,
    ) -> None:
        self.name = name
        self.settings = settings
        self.client = client
        self.metrics = metrics
        self.clock: Clock = client.clock
        self.informers = InformerFactory(client, clock=self.clock, metrics=metrics)
        self.identity = f"{socket.gethostname()}-{secrets.token_hex(4)}"
        self.review_tokens = ReviewTokens()
        """What proves a review; without keys none is proven."""
        self._settings_by_type = {type(value): value for value in role_settings}
        self._announce = announce
        self._shared: dict[Callable[[Process], Any], Any] = {}
        self._opened = AsyncExitStack()
        self._certificates = self._certificate_source()
        self.health = Health()
        # With a certificate the API server authorizes scrapers; without one, whoever reaches the port may read.
        scrapers = ScraperAuthorization(client, clock=self.clock) if self._certificates is not None else None
        self._health_server = HttpServer(self.health.serve, host=settings.bind, port=settings.health_port)
        self._metrics_server = HttpServer(
            MetricsPage(metrics, authorization=scrapers).serve,
            host=settings.bind,
            port=settings.metrics_port,
            tls=self._tls,
        )

    def _certificate_source(self) -> Certificates | None:
        settings = self.settings
        if settings.cert_dir:
            return FileCertificates(settings.cert_dir, clock=self.clock, metrics=self.metrics)
        if not settings.cert_secret:
            return None
        key = ObjectKey(settings.namespace, settings.cert_secret)
        informer = self.informer(SECRETS, Secret, namespace=key.namespace, field_selector=f"metadata.name={key.name}")
        return WatchedCertificates(informer, key, clock=self.clock, metrics=self.metrics)

    @property
    def _tls(self) -> ssl.SSLContext | None:
        return self._certificates.context if self._certificates is not None else None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._opened.aclose()

    # -- for roles ----------------------------------------------------------------------------------------------------

    def settings_of(self, kind: type[V]) -> V:
        """The role settings of this type. Raises LookupError if the process was started without them."""
        try:
            value: V = self._settings_by_type[kind]  # type: ignore[assignment]
        except KeyError:
            raise LookupError(
                f"{self.name} was started without {kind.__name__}, which one of its roles reads"
            ) from None
        return value

    async def share(self, open: Callable[["Process"], AbstractAsyncContextManager[V]]) -> V:
        """What ``open`` yields: opened once for all roles that ask, closed when the process ends."""
        if open not in self._shared:
            self._shared[open] = await self._opened.enter_async_context(open(self))
        value: V = self._shared[open]
        return value

    def at_end(self, close: Callable[[], Awaitable[None]]) -> None:
        """Calls ``close`` when everything has stopped, before what was shared so far is closed."""
        self._opened.push_async_callback(close)

    def informer(
        self,
        resource: Resource,
        type: type[T],
        *,
        namespace: str = "",
        label_selector: str = "",
        field_selector: str = "",
        indexes: Mapping[str, IndexFunction[T]] | None = None,
    ) -> Informer[T]:
        """An informer that runs as long as the process, shared by all roles that ask for the same selection."""
        return self.informers.informer(
            resource,
            type,
            namespace=namespace,
            label_selector=label_selector,
            field_selector=field_selector,
            indexes=indexes,
        )

    def recorder(self, controller: str) -> Recorder:
        """A recorder that posts Events as this process."""
        return Recorder(
            self.client,
            controller=controller,
            instance=socket.gethostname(),
            clock=self.clock,
            metrics=self.metrics,
        )

    def election(self, lease: str, *, notes: Callable[[], Mapping[str, str]] | None = None) -> LeaderElection | None:
        """The election for a ``Leadership``; None if leader election is off and this process always leads."""
        return self.candidate(lease, notes=notes) if self.settings.leader_elect else None

    def candidate(self, lease: str, *, notes: Callable[[], Mapping[str, str]] | None = None) -> LeaderElection:
        """An election even if leader election is off: others see by the Lease that this process lives."""
        return LeaderElection(
            self.client,
            namespace=self.settings.namespace,
            name=lease,
            identity=self.identity,
            clock=self.clock,
            metrics=self.metrics,
            notes=notes,
        )

    # -- running ------------------------------------------------------------------------------------------------------

    async def run(self, *roles: Role) -> None:
        """Runs these roles until SIGTERM."""
        components = merged([(role.name, await role.setup(self)) for role in roles])
        servers: dict[str, Server] = dict(components.servers)
        probes = components.probes or (self._health_server, self._metrics_server)
        if components.routes:
            from polyarch.kube.admission import Webhooks  # 1 MiB that a process without webhooks saves

            webhooks = Webhooks(components.routes, clock=self.clock, metrics=self.metrics, tokens=self.review_tokens)
            own = self.settings
            servers[ADMISSION] = HttpServer(webhooks.serve, host=own.bind, port=own.port, tls=self._tls)

        async def announce() -> None:
            await manager.started.wait()
            urls = {name: server.url for name, server in servers.items()}
            listening = urls.pop(ADMISSION, "")
            self._announce(Addresses(self.name, listening, probes[0].url, probes[-1].url, urls))

        manager = Manager(
            msgspec.structs.replace(
                components,
                servers=servers,
                caches=(self.informers, *components.caches),
                background={**components.background, "announcement": announce},
            ),
            health=self.health,
            probes=probes,
            certificates=[self._certificates] if self._certificates is not None else [],
            leads_first=bool(self.settings.cert_secret),
            remark=lambda: "; ".join(self.informers.missing) or None,
            clock=self.clock,
        )
        await manager.run()
