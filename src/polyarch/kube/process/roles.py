"""Roles, and the process that plays any set of them at once (KR-050).

A :class:`Role` is declared in its module; what it does is made when a :class:`Process` takes it up. All roles of a
process share one client, one informer for each resource and selection, one admission server, one server of health and
one of metrics, and whatever else they open by :meth:`Process.share`. So "all roles in one process" is a tuple of roles.
"""

import secrets
import socket
import ssl
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import Any, Final, Self, TypeVar

import msgspec

from polyarch.kube.client.client import Client
from polyarch.kube.client.watch_event import KubernetesObject
from polyarch.kube.clock import Clock
from polyarch.kube.metrics import Metrics
from polyarch.kube.process.duties import Duties, Server, together
from polyarch.kube.process.manager import Manager
from polyarch.kube.resources import Resource
from polyarch.kube.runtime.events import Recorder
from polyarch.kube.runtime.informer import Informer, Informers
from polyarch.kube.runtime.lease import LeaderElection
from polyarch.kube.runtime.store import IndexFunction
from polyarch.kube.serving.admission import Webhooks
from polyarch.kube.serving.certificates import FileCertificates
from polyarch.kube.serving.health import Health, MetricsPage, ScraperAuthorization
from polyarch.kube.serving.listener import HttpServer

T = TypeVar("T", bound=KubernetesObject)
V = TypeVar("V")

ADMISSION: Final = "admission"
"""The server of all routes."""


class ProcessSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What every process is told. A port of 0 takes a free one."""

    namespace: str
    """Where the process itself runs: its Leases, its Secrets."""
    bind: str = "127.0.0.1"
    """The address to listen on; empty for all."""
    port: int = 9443
    """Of the admission server, if a role has routes."""
    metrics_port: int = 8443
    health_port: int = 8081
    cert_dir: str = ""
    """A folder with ``tls.crt`` and ``tls.key``, followed while they change. Without it metrics are plain HTTP."""
    leader_elect: bool = True


class Addresses(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where a process listens, as URLs; ``servers`` are those that its roles bring, by name."""

    role: str
    admission: str = ""
    health: str = ""
    metrics: str = ""
    servers: Mapping[str, str] = {}


class Role(msgspec.Struct, frozen=True, kw_only=True):
    """One role: its name, what it has to be told, and what it does.

    ``take_up`` makes its duties for a process: it wires, and may ask the API server a question or two, but everything
    that goes on belongs into the duties. ``settings`` are the kinds of settings that it reads by :meth:`Process.given`,
    besides the process's own. API servers call webhooks over TLS only, so a role with routes ``needs_certificate``.
    """

    name: str
    take_up: Callable[["Process"], Awaitable[Duties]]
    settings: tuple[type[Any], ...] = ()
    needs_certificate: bool = False


class Process:
    """One process while it is put together and runs. Use as an async context manager.

    ``given`` are settings of the roles, one value of each kind. ``announce`` is called once, when everything listens.
    """

    def __init__(
        self,
        name: str,
        settings: ProcessSettings,
        client: Client,
        metrics: Metrics,
        *,
        given: Iterable[object] = (),
        announce: Callable[[Addresses], None] = lambda _: None,
    ) -> None:
        self.name = name
        self.settings = settings
        self.client = client
        self.metrics = metrics
        self.clock: Clock = client.clock
        self.informers = Informers(client, clock=self.clock, metrics=metrics)
        self.identity = f"{socket.gethostname()}-{secrets.token_hex(4)}"
        self._given = {type(value): value for value in given}
        self._announce = announce
        self._shared: dict[Callable[[Process], Any], Any] = {}
        self._opened = AsyncExitStack()
        self._certificates: FileCertificates | None = None
        if settings.cert_dir:
            self._certificates = FileCertificates(settings.cert_dir, clock=self.clock, metrics=metrics)
        self._health = Health()
        # With certificates metrics are for whom the API server allows; without, for whoever reaches the address.
        scrapers = ScraperAuthorization(client, clock=self.clock) if self._certificates is not None else None
        self._health_server = HttpServer(self._health.serve, host=settings.bind, port=settings.health_port)
        self._metrics_server = HttpServer(
            MetricsPage(metrics, authorization=scrapers).serve,
            host=settings.bind,
            port=settings.metrics_port,
            tls=self._tls,
        )

    @property
    def _tls(self) -> ssl.SSLContext | None:
        return self._certificates.context if self._certificates is not None else None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._opened.aclose()

    # -- for roles ----------------------------------------------------------------------------------------------------

    def given(self, kind: type[V]) -> V:
        """The settings of this kind. Raises LookupError if the process was started without."""
        try:
            value: V = self._given[kind]  # type: ignore[assignment]
        except KeyError:
            raise LookupError(
                f"{self.name} was started without {kind.__name__}, which one of its roles reads"
            ) from None
        return value

    async def share(self, open: Callable[["Process"], AbstractAsyncContextManager[V]]) -> V:
        """What ``open`` makes for this process: once, whichever roles ask for it, and closed at the end."""
        if open not in self._shared:
            self._shared[open] = await self._opened.enter_async_context(open(self))
        value: V = self._shared[open]
        return value

    def at_end(self, close: Callable[[], Awaitable[None]]) -> None:
        """Calls ``close`` when all has stopped, before what was shared up to now is closed."""
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
        """A watch that runs as long as the process does, shared by all who ask for the same."""
        return self.informers.informer(
            resource,
            type,
            namespace=namespace,
            label_selector=label_selector,
            field_selector=field_selector,
            indexes=indexes,
        )

    def recorder(self, controller: str) -> Recorder:
        """Posts events in this process's name."""
        return Recorder(
            self.client,
            controller=controller,
            instance=socket.gethostname(),
            clock=self.clock,
            metrics=self.metrics,
        )

    def election(self, lease: str) -> LeaderElection | None:
        """For a ``Leadership``; None: this process leads without asking."""
        return self.candidate(lease) if self.settings.leader_elect else None

    def candidate(self, lease: str) -> LeaderElection:
        """Takes and renews the Lease, whoever leads: what others see of this process (PL-107)."""
        return LeaderElection(
            self.client,
            namespace=self.settings.namespace,
            name=lease,
            identity=self.identity,
            clock=self.clock,
            metrics=self.metrics,
        )

    # -- running ------------------------------------------------------------------------------------------------------

    async def run(self, *roles: Role) -> None:
        """Plays these roles until SIGTERM."""
        duties = together([(role.name, await role.take_up(self)) for role in roles])
        servers: dict[str, Server] = dict(duties.servers)
        if duties.routes:
            webhooks = Webhooks(duties.routes, clock=self.clock, metrics=self.metrics)
            own = self.settings
            servers[ADMISSION] = HttpServer(webhooks.serve, host=own.bind, port=own.port, tls=self._tls)

        async def announce() -> None:
            await manager.started.wait()
            urls = {name: server.url for name, server in servers.items()}
            listening = urls.pop(ADMISSION, "")
            self._announce(Addresses(self.name, listening, self._health_server.url, self._metrics_server.url, urls))

        manager = Manager(
            msgspec.structs.replace(
                duties,
                servers=servers,
                caches=(self.informers, *duties.caches),
                background={**duties.background, "announcement": announce},
            ),
            health=self._health,
            probes=[self._health_server, self._metrics_server],
            certificates=[self._certificates] if self._certificates is not None else [],
            clock=self.clock,
        )
        await manager.run()
