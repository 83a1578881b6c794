"""What every process of polyarch has: a client, caches, metrics, probes, and one line that says where it listens.

A role builds its parts on a :class:`Process` and hands them to the manager, which starts and ends them in order.
"""

import os
import secrets
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import msgspec

from polyarch.kube.access import config
from polyarch.kube.client.client import Client
from polyarch.kube.client.watch_event import KubernetesObject
from polyarch.kube.clock import Clock, SystemClock
from polyarch.kube.metrics import Metrics, RequestMetrics
from polyarch.kube.process.manager import Caches, Manager
from polyarch.kube.resources import Resource
from polyarch.kube.runtime.controller import Controller
from polyarch.kube.runtime.events import Recorder
from polyarch.kube.runtime.informer import Informer, Informers
from polyarch.kube.runtime.lease import LeaderElection
from polyarch.kube.runtime.store import IndexFunction
from polyarch.kube.serving.admission import AdmissionServer
from polyarch.kube.serving.certificates import FileCertificates
from polyarch.kube.serving.health import HealthServer, MetricsServer, ScraperAuthorization
from polyarch.run.logs import Verbosity, configure
from polyarch.run.settings import RunSettings

T = TypeVar("T", bound=KubernetesObject)


class Addresses(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where a process listens: one JSON line on its stdout."""

    role: str
    admission: str = ""
    health: str = ""
    metrics: str = ""


class Process:
    """One process while it is put together and runs."""

    def __init__(
        self, role: str, settings: RunSettings, client: Client, metrics: Metrics, verbosity: Verbosity
    ) -> None:
        self.role = role
        self.settings = settings
        self.client = client
        self.metrics = metrics
        self.verbosity = verbosity
        self.clock: Clock = client.clock
        self.informers = Informers(client, clock=self.clock, metrics=metrics)
        self.identity = f"{socket.gethostname()}-{secrets.token_hex(4)}"
        self._manager: Manager | None = None
        self.certificates: FileCertificates | None = None
        if settings.cert_dir:
            self.certificates = FileCertificates(settings.cert_dir, clock=self.clock, metrics=metrics)
        self.health = HealthServer(host=settings.bind, port=settings.health_port)
        # With certificates metrics are for whom the API server allows; without, for whoever reaches the address.
        self.metrics_server = MetricsServer(
            metrics,
            host=settings.bind,
            port=settings.metrics_port,
            certificates=self.certificates,
            authorization=ScraperAuthorization(client, clock=self.clock) if self.certificates is not None else None,
        )

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

    @property
    def is_leading(self) -> bool:
        """Whether this process does what only one may do; without an election it always does."""
        return self._manager is not None and self._manager.is_leader

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
        """None: this process leads without asking."""
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

    async def run(
        self,
        *,
        caches: Sequence[Caches],
        admission: AdmissionServer | None = None,
        election: LeaderElection | None = None,
        controllers: Sequence[Controller[Any]] = (),
        recorder: Recorder | None = None,
        background: Mapping[str, Callable[[], Awaitable[None]]] | None = None,
    ) -> None:
        """Runs until SIGTERM."""
        manager = Manager(
            health=self.health,
            metrics=self.metrics_server,
            caches=[self.informers, *caches],
            certificates=[self.certificates] if self.certificates is not None else [],
            admission=admission,
            election=election,
            controllers=controllers,
            recorder=recorder,
            background={**(background or {}), "announcement": lambda: self._announce(manager, admission)},
            clock=self.clock,
        )
        self._manager = manager
        await manager.run()

    async def _announce(self, manager: Manager, admission: AdmissionServer | None) -> None:
        await manager.started.wait()
        addresses = Addresses(
            self.role,
            admission.url if admission is not None else "",
            self.health.url,
            self.metrics_server.url,
        )
        sys.stdout.write(msgspec.json.encode(addresses).decode() + "\n")
        sys.stdout.flush()


@asynccontextmanager
async def open_process(role: str, settings: RunSettings) -> AsyncIterator[Process]:
    """A process with its client open. Raises ``ConfigurationError`` if the API server cannot be found."""
    verbosity = configure(settings.log_format)
    metrics = Metrics(process=True)
    configuration = config.load(settings.kubeconfig, settings.context, os.environ)
    clock = SystemClock()
    async with Client(configuration, role=role, clock=clock, metrics=RequestMetrics(metrics)) as client:
        yield Process(role, settings, client, metrics, verbosity)
