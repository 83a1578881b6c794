"""The registry client of a process in a cluster; its configuration can change while it runs (PL-424).

Mirrors, blocked and insecure registries and CAs come from files given at startup and, on OpenShift, from API objects. A
change creates a new :class:`~polyarch.oci.inspect.Inspector` over the same cache and connections. The former one
answers the callers that already wait for it and is closed after the last answer, because requests that it still has in
flight may go to a registry that must no longer be asked.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial

import msgspec
from prometheus_client import Counter, Gauge, Histogram

from polyarch.clock import Clock
from polyarch.kube.metrics import Metrics
from polyarch.oci.answer import Inspection, InspectionError, Status
from polyarch.oci.auth.credentials import CredentialStore
from polyarch.oci.auth.entries import Credential
from polyarch.oci.cache.image_reading import BundleMode
from polyarch.oci.cache.memory import Cache
from polyarch.oci.inspect import Inspector
from polyarch.oci.metrics import RegistryMetrics
from polyarch.oci.mirrors.registries_conf import Registry
from polyarch.oci.mirrors.short_names import passes_over, places, search
from polyarch.oci.mirrors.sources import Configuration
from polyarch.oci.mirrors.unqualified import ANYWHERE
from polyarch.oci.reference import InvalidReference, Reference
from polyarch.oci.settings import PLACEMENT, InspectorSettings
from polyarch.oci.traffic.pacing import Pacing
from polyarch.oci.transport.addresses import AddressPolicy
from polyarch.oci.transport.http import AiohttpTransport
from polyarch.oci.transport.tls import Trust, TrustSettings


class InUse:
    """An inspector, and the number of callers that wait for its answers."""

    __slots__ = ("askers", "inspector")

    def __init__(self, inspector: Inspector) -> None:
        self.inspector = inspector
        self.askers = 0


class Registries:
    """An inspector for placement whose mirrors and CAs can be replaced."""

    def __init__(
        self,
        configuration: Configuration,
        *,
        transport: AiohttpTransport,
        trust: Trust,
        policy: AddressPolicy,
        clock: Clock,
        metrics: RegistryMetrics,
        settings: InspectorSettings = PLACEMENT,
    ) -> None:
        self._files = self._configuration = configuration
        self._trust = trust
        self.cache = Cache(clock, metrics=metrics)
        pacing = Pacing(clock, settings, metrics)
        self._make: Callable[[Configuration], Inspector] = lambda configuration: Inspector(
            transport=transport,
            configuration=configuration,
            cache=self.cache,
            clock=clock,
            settings=settings,
            policy=policy,
            metrics=metrics,
            pacing=pacing,
        )
        self._current = InUse(self._make(configuration))
        self._former: set[InUse] = set()
        self._closing: set[asyncio.Task[None]] = set()
        self._handlers: list[Callable[[], None]] = []

    async def inspect(
        self,
        reference: Reference,
        *,
        credentials: CredentialStore | None = None,
        fresh: bool = False,
        not_before: float | None = None,
        bundle: BundleMode = "auto",
        tenant: str = "",
    ) -> Inspection:
        used = self._current

        async def at(place: Reference) -> Inspection:
            return await used.inspector.inspect(
                place, credentials=credentials, fresh=fresh, not_before=not_before, bundle=bundle, tenant=tenant
            )

        used.askers += 1
        try:
            if reference.registry == ANYWHERE:
                return await self._search(reference, at)
            return await at(reference)
        finally:
            used.askers -= 1
            self._close_if_unused(used)

    def peek(
        self,
        reference: Reference,
        credentials: CredentialStore | None = None,
        *,
        bundle: BundleMode = "auto",
        stale_for: float | None = None,
    ) -> Inspection | None:
        for place in self._places(reference):
            known = self._current.inspector.peek(place, credentials, bundle=bundle, stale_for=stale_for)
            if known is None or not passes_over(known):
                return known
        return None

    def host_busy(self, reference: Reference) -> bool:
        return any(map(self._current.inspector.host_busy, self._places(reference)))

    def host_low(self, reference: Reference) -> bool:
        return any(map(self._current.inspector.host_low, self._places(reference)))

    async def _search(self, reference: Reference, at: Callable[[Reference], Awaitable[Inspection]]) -> Inspection:
        """The answer for a short name, from the first registry that has it (PL-424)."""
        try:
            found = places(reference, self._configuration)
        except InvalidReference as error:
            return Inspection(reference, Status.ERROR, error=InspectionError.of("blocked", str(error)))
        return await search(found, at)

    def _places(self, reference: Reference) -> tuple[Reference, ...]:
        """The references to try for an image; none for a short name that no registry can have."""
        if reference.registry != ANYWHERE:
            return (reference,)
        try:
            return places(reference, self._configuration)
        except InvalidReference:
            return ()

    def forget(self, credentials: Iterable[Credential]) -> None:
        """Drop the access that these credentials proved (PL-423)."""
        self._current.inspector.forget(credentials)

    def readings(self) -> int:
        """The number of cached image readings."""
        return sum(1 for _ in self.cache.readings())

    def former(self) -> int:
        """The number of former inspectors that still have waiting callers."""
        return len(self._former)

    def on_change(self, handler: Callable[[], None]) -> None:
        """Call ``handler`` whenever the mirrors or CAs change, so that failed images can be tried again."""
        self._handlers.append(handler)

    def use(self, rules: Sequence[Registry], *, search: Sequence[str] = ()) -> None:
        """Use these rules of the cluster's objects after those of the files, and ``search`` these registries for short
        names."""
        configuration = msgspec.structs.replace(
            self._files, registries=(*self._files.registries, *rules), search=tuple(search)
        )
        self._configuration = configuration
        former, self._current = self._current, InUse(self._make(configuration))
        self._former.add(former)
        self._close_if_unused(former)
        self._tell()

    def trust(self, certificates: str, *, hosts: Mapping[str, str] | None = None) -> None:
        """Trust these CAs of the cluster (PEM), and others for single hosts (``host[:port]``). Raises
        ``InvalidSetting`` if a certificate is invalid."""
        self._trust.replace(ca_data=certificates, host_data=hosts)
        self._tell()

    async def close(self) -> None:
        """Close all inspectors; requests in flight are cancelled."""
        for used in (*self._former, self._current):
            await used.inspector.close()
        await asyncio.gather(*self._closing)

    def _tell(self) -> None:
        for handler in self._handlers:
            handler()

    def _close_if_unused(self, used: InUse) -> None:
        if used.askers or used not in self._former:
            return
        self._former.discard(used)
        task = asyncio.get_running_loop().create_task(used.inspector.close(), name="close a former inspector")
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)


@asynccontextmanager
async def open_registries(
    *,
    registries_conf: str | None,
    ca: Sequence[str],
    allow_addresses: Sequence[str],
    clock: Clock,
    metrics: Metrics,
) -> AsyncIterator[Registries]:
    """Open the client. Raises ``InvalidConfiguration`` or ``InvalidSetting``, naming the invalid file or range.

    Only the given file is read, not the one in ``/etc``, which a base image may contain by accident.
    """
    configuration = Configuration.load(registries_conf) if registries_conf else Configuration()
    policy = AddressPolicy.of("cluster", allow=allow_addresses)
    trust = Trust(TrustSettings.of(ca=ca, system_directories=()))
    transport = AiohttpTransport(policy=policy, trust=trust)
    registries = Registries(
        configuration,
        transport=transport,
        trust=trust,
        policy=policy,
        clock=clock,
        metrics=registry_metrics(metrics),
    )
    try:
        yield registries
    finally:
        await registries.close()
        await transport.close()


def registry_metrics(metrics: Metrics) -> RegistryMetrics:
    """The metrics of RG-160, registered with this process's metrics."""
    registry = metrics.registry
    return RegistryMetrics(
        partial(Counter, registry=registry), partial(Gauge, registry=registry), partial(Histogram, registry=registry)
    )
