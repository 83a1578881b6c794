"""Parts that webhook and controller share: cluster facts, pull secrets, registries and their metrics.

Both read the same cluster and ask the same registries; roles in one process share one instance of each part.
"""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

import structlog

from polyarch.kube.process.components import Caches
from polyarch.kube.process.roles import Process
from polyarch.kube.resources import SECRETS
from polyarch.model.secret import Secret
from polyarch.oci.auth.credential_providers import ProviderCredentials
from polyarch.oci.auth.entries import Credential
from polyarch.placement.lookups.facts import ClusterFacts
from polyarch.placement.lookups.secrets import GlobalPullSecret, PullSecrets
from polyarch.placement.metrics import PlacementMetrics
from polyarch.placement.warm.shared_readings import SharedReadings
from polyarch.run import openshift
from polyarch.run.logs import Verbosity
from polyarch.run.record_key import RecordKey
from polyarch.run.registries import Registries, open_registries
from polyarch.run.settings import RegistrySettings

log = structlog.get_logger(__name__)


class Parts:
    """The shared parts of the placement roles in one process."""

    def __init__(
        self,
        process: Process,
        facts: ClusterFacts,
        secrets: PullSecrets,
        registries: Registries,
    ) -> None:
        self.process = process
        self.facts = facts
        self.secrets = secrets
        self.registries = registries
        self.metrics = PlacementMetrics(process.metrics)
        self.metrics.count_readings(registries.readings)
        self.metrics.watch_facts(lambda: facts.left_out)
        self.shared_readings = SharedReadings(
            informers=process.informers,
            client=process.client,
            facts=facts,
            secrets=secrets,
            cache=registries.cache,
            clock=process.clock,
            namespace=process.settings.namespace,
        )
        self.caches: list[Caches] = [
            facts,
            RecordKey(process.settings.cert_dir, facts.take, process.clock),
            self.shared_readings,
        ]
        """To be run by each role that uses these parts."""
        self.credentials_changed: list[Callable[[], None]] = []
        """Called when the global pull secret has changed."""
        facts.on_change(self._take_verbosity)

    def follow_global_secret(self, namespace: str, name: str) -> None:
        """Watch the global pull secret by name; deleting it revokes its credentials (PL-423)."""
        informer = self.process.informer(SECRETS, Secret, namespace=namespace, field_selector=f"metadata.name={name}")
        informer.add_handler(GlobalPullSecret(self.secrets, f"{namespace}/{name}", self._forget).observe)
        informer.add_handler(self.shared_readings.global_secret_changed)
        log.info("watching the global pull secret", namespace=namespace, name=name)

    def _forget(self, gone: Sequence[Credential]) -> None:
        self.registries.forget(gone)
        for tell in self.credentials_changed:
            tell()

    def _take_verbosity(self, namespace: str | None) -> None:
        cppc = self.facts.cppc
        if namespace is None and cppc is not None:
            self.process.settings_of(Verbosity).set(cppc.spec.log_verbosity)


@asynccontextmanager
async def open_parts(process: Process) -> AsyncIterator[Parts]:
    """Open the parts. Asks the API server once whether this is OpenShift; watches start when the process runs."""
    namespace, settings = process.settings.namespace, process.settings_of(RegistrySettings)
    client, clock = process.client, process.clock
    async with AsyncExitStack() as stack:
        registries = await stack.enter_async_context(
            open_registries(
                registries_conf=settings.registries_conf,
                ca=settings.ca,
                allow_addresses=settings.allow_addresses,
                clock=clock,
                metrics=process.metrics,
            )
        )
        plugins = settings.credential_providers

        async def read(namespace: str, name: str) -> Secret:
            return await client.get(SECRETS, name, namespace=namespace, type=Secret)

        secrets = PullSecrets(
            read, clock, providers=ProviderCredentials(plugins, clock=clock) if plugins is not None else None
        )
        stack.push_async_callback(secrets.aclose)
        facts = ClusterFacts(process.informers, operator_namespace=namespace, clock=clock)
        parts = Parts(process, facts, secrets, registries)
        served = await openshift.served_by(client)
        if served:
            objects = openshift.OpenShift(process, served, registries, search_short_names=facts.search_short_names)
            parts.caches.append(objects)
        followed = settings.global_pull_secret or (openshift.PULL_SECRET if served else None)
        if followed is not None:
            parts.follow_global_secret(*followed)
        yield parts
