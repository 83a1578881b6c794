"""What several roles of one process share: registries, pull secrets, metrics of lookups, and the facts of taints.

The roles of one process share one instance of each, so that an image is looked up once for all of them.
"""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final

import structlog

from polyarch.images.metrics import LookupMetrics
from polyarch.images.pull_secrets import GlobalPullSecret, PullSecrets
from polyarch.images.resolver import AdmissionLookups
from polyarch.kube.lease import Lease, LeaseAge
from polyarch.kube.manager import Caches, Process
from polyarch.kube.rbac import rule
from polyarch.kube.resources import LEASES, SECRETS
from polyarch.kube.store import ObjectChange
from polyarch.objects import Secret
from polyarch.oci.auth.credential_plugins import ProviderCredentials
from polyarch.oci.auth.credentials import Credential
from polyarch.placement import names
from polyarch.run.registries import PULL_SECRET, OpenShift, ReloadableInspector, open_registries, served_by
from polyarch.run.settings import RegistrySettings, TaintRoleSettings
from polyarch.taints.facts import TaintFacts

log = structlog.get_logger(__name__)


class ImageServices:
    """The shared services. ``caches`` are to be run by each role that uses them."""

    def __init__(
        self, process: Process, secrets: PullSecrets, registries: ReloadableInspector, metrics: LookupMetrics
    ) -> None:
        self.secrets = secrets
        self.registries = registries
        self.metrics = metrics
        self.caches: list[Caches] = []
        self.credentials_changed: list[Callable[[], None]] = []
        """Called when the global pull secret has changed."""
        self.short_names_searched: list[Callable[[bool], None]] = []
        """Called when nodes begin or cease to search several registries for short names."""
        self.global_secret_changed: list[Callable[[ObjectChange[Secret]], None]] = []
        self._process = process

    def follow_global_secret(self, namespace: str, name: str) -> None:
        """Watch the global pull secret by name; deleting it revokes its credentials."""
        selected = f"metadata.name={name}"
        informer = self._process.informer(SECRETS, Secret, namespace=namespace, field_selector=selected)
        informer.add_handler(GlobalPullSecret(self.secrets, f"{namespace}/{name}", self._forget).observe)
        informer.add_handler(self._tell_of_global_secret)
        log.info("watching the global pull secret", namespace=namespace, name=name)

    def search_short_names(self, searched: bool) -> None:
        """Sets whether nodes search several registries for image names without a registry."""
        for tell in self.short_names_searched:
            tell(searched)

    def _tell_of_global_secret(self, change: ObjectChange[Secret]) -> None:
        for tell in self.global_secret_changed:
            tell(change)

    def _forget(self, gone: Sequence[Credential]) -> None:
        self.registries.forget(gone)
        for tell in self.credentials_changed:
            tell()


@asynccontextmanager
async def open_images(process: Process) -> AsyncIterator[ImageServices]:
    """Open the services. Asks the API server once whether this is OpenShift; watches start when the process runs."""
    settings = process.settings_of(RegistrySettings)
    client, clock = process.client, process.clock
    async with AsyncExitStack() as stack:
        registries = await stack.enter_async_context(
            open_registries(
                registries_conf=settings.registries_conf,
                ca=settings.ca,
                allow_addresses=settings.allow_addresses,
                deny_addresses=settings.deny_addresses,
                clock=clock,
                metrics=process.metrics,
            )
        )
        plugins = settings.credential_providers
        for provider in plugins.providers if plugins is not None else ():
            if provider.needs_token:
                log.warning("a credential provider is never run: it wants tokens of pods", name=provider.name)

        async def read(namespace: str, name: str) -> Secret:
            return await client.get(SECRETS, name, namespace=namespace, type=Secret)

        secrets = PullSecrets(
            read,
            clock,
            providers=ProviderCredentials(plugins, clock=clock) if plugins is not None else None,
            allowed=settings.secret_access == "byName",
        )
        stack.push_async_callback(secrets.aclose)
        metrics = LookupMetrics(process.metrics)
        metrics.count_readings(registries.readings)
        services = ImageServices(process, secrets, registries, metrics)
        served = await served_by(client)
        if served:
            services.caches.append(
                OpenShift(process, served, registries, search_short_names=services.search_short_names)
            )
        followed = settings.global_pull_secret or (PULL_SECRET if served else None)
        if followed is not None:
            services.follow_global_secret(*followed)
        yield services


@asynccontextmanager
async def open_admission_lookups(process: Process) -> AsyncIterator[AdmissionLookups]:
    """Open what admissions ask registries by: one for all features, which so share its answers and its limits."""
    images = await process.share(open_images)
    lookups = AdmissionLookups(images.registries, images.secrets, process.clock, images.metrics)
    images.credentials_changed.append(lookups.revoke)
    try:
        yield lookups
    finally:
        await lookups.close()


@asynccontextmanager
async def open_taint_facts(process: Process) -> AsyncIterator[TaintFacts]:
    """Open the facts; watches start when the process runs."""
    images = await process.share(open_images)
    facts = TaintFacts(
        process.informers,
        namespace=process.settings.namespace,
        clock=process.clock,
        given=process.settings_of(TaintRoleSettings).configuration,
    )
    images.short_names_searched.append(facts.search_short_names)
    yield facts


CONTROLLER_SILENCE: Final = 30.0
"""Seconds without a change of its Lease after which the controller counts as unavailable."""
RIGHTS: Final = (rule(LEASES, "get", "list", "watch", names=[names.CONTROLLER_LEASE]),)
"""RBAC rules in the process's namespace."""


def lease_watch(process: Process) -> Callable[[], bool]:
    """Whether the controllers' Lease changed recently, by this process's own clock.

    Time during which the watch was broken does not count, because no renewal could be seen then. After an outage of the
    API server, controllers therefore keep the rest of their time before pods are admitted without them.
    """
    informer = process.informer(
        LEASES,
        Lease,
        namespace=process.settings.namespace,
        field_selector=f"metadata.name={names.CONTROLLER_LEASE}",
    )
    age = LeaseAge(process.clock, blind=lambda: informer.blind_seconds)
    informer.add_handler(lambda change: age.observe(change.new))
    return lambda: age.age() < CONTROLLER_SILENCE
