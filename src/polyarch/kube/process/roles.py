"""Roles, and the process that runs any set of them (KR-050).

A :class:`Role` is declared in its module; :class:`Process` sets it up and runs it. All roles of a process share one
client, one informer per resource and selection, one admission server, one health server, one metrics server, and
whatever else they open with :meth:`Process.share`. So "all roles in one process" is a tuple of roles.
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
from polyarch.kube.process.components import Components, Server, merged
from polyarch.kube.process.manager import Manager
from polyarch.kube.process.settings import ProcessSettings
from polyarch.kube.resources import SECRETS, Resource
from polyarch.kube.runtime.events import Recorder
from polyarch.kube.runtime.informer import Informer, Informers
from polyarch.kube.runtime.lease import LeaderElection
from polyarch.kube.runtime.store import IndexFunction
from polyarch.kube.serving.certificates import Certificates, FileCertificates, WatchedCertificates
from polyarch.kube.serving.health import Health, MetricsPage, ScraperAuthorization
from polyarch.kube.serving.listener import HttpServer
from polyarch.model.meta import Key
from polyarch.model.secret import Secret

T = TypeVar("T", bound=KubernetesObject)
V = TypeVar("V")

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
        self.informers = Informers(client, clock=self.clock, metrics=metrics)
        self.identity = f"{socket.gethostname()}-{secrets.token_hex(4)}"
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
        key = Key(settings.namespace, settings.cert_secret)
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
        """An election even if leader election is off: others see by the Lease that this process lives (PL-107)."""
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
            from polyarch.kube.serving.admission import Webhooks  # 1 MiB that a process without webhooks saves

            webhooks = Webhooks(components.routes, clock=self.clock, metrics=self.metrics)
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
