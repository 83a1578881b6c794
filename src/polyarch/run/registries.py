"""The registry client of a process in a cluster; its configuration can change while it runs.

Mirrors, blocked and insecure registries and CAs come from files given at startup and, on OpenShift, from API objects. A
change creates a new :class:`~polyarch.oci.inspector.Inspector` over the same cache and connections. The former one
answers the callers that already wait for it and is closed after the last answer, because requests that it still has in
flight may go to a registry that must no longer be asked.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Final

import msgspec
import structlog
from prometheus_client import Counter, Gauge, Histogram

from polyarch.clock import Clock
from polyarch.kube.client import Client
from polyarch.kube.informer import Informer
from polyarch.kube.manager import Process
from polyarch.kube.metrics import Metrics
from polyarch.kube.requests import ListOptions
from polyarch.kube.resources import CONFIGMAPS, Resource
from polyarch.names import CONFIG_HOME, TRUSTED_CA
from polyarch.objects import ObjectKey, ObjectMeta
from polyarch.oci.auth.credential_stores import CredentialStore
from polyarch.oci.auth.credentials import Credential
from polyarch.oci.cache import BundleMode, Cache
from polyarch.oci.inspection import Inspection, InspectionError, Status
from polyarch.oci.inspector import Inspector
from polyarch.oci.metrics import RegistryMetrics
from polyarch.oci.mirror_files import InvalidMirrorConfiguration, RegistryEntry, check_location, without_port
from polyarch.oci.mirror_files import mirror_object_entries as mirror_rules
from polyarch.oci.pull_sources import Configuration, passes_over, places, search
from polyarch.oci.reference import ANYWHERE, InvalidReference, Reference
from polyarch.oci.settings import PLACEMENT, InspectorSettings
from polyarch.oci.traffic.rate_limiter import RegistryRateLimiter
from polyarch.oci.transport.addresses import AddressPolicy, InvalidSetting
from polyarch.oci.transport.http import AiohttpTransport
from polyarch.oci.transport.tls import TrustSettings, TrustStore, check_certificates


class RefCountedInspector:
    """An inspector, and the number of callers that wait for its answers."""

    __slots__ = ("askers", "inspector")

    def __init__(self, inspector: Inspector) -> None:
        self.inspector = inspector
        self.askers = 0


class ReloadableInspector:
    """An inspector for placement whose mirrors and CAs can be replaced."""

    def __init__(
        self,
        configuration: Configuration,
        *,
        transport: AiohttpTransport,
        trust: TrustStore,
        policy: AddressPolicy,
        clock: Clock,
        metrics: RegistryMetrics,
        settings: InspectorSettings = PLACEMENT,
    ) -> None:
        self._files = self._configuration = configuration
        self._trust = trust
        self.cache = Cache(clock, metrics=metrics)
        rate_limiter = RegistryRateLimiter(clock, settings, metrics)
        self._make: Callable[[Configuration], Inspector] = lambda configuration: Inspector(
            transport=transport,
            configuration=configuration,
            cache=self.cache,
            clock=clock,
            settings=settings,
            policy=policy,
            metrics=metrics,
            rate_limiter=rate_limiter,
        )
        self._current = RefCountedInspector(self._make(configuration))
        self._former: set[RefCountedInspector] = set()
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

    def host_busy(self, reference: Reference, tenant: str = "") -> bool:
        return any(self._current.inspector.host_busy(place, tenant) for place in self._places(reference))

    def host_low(self, reference: Reference) -> bool:
        return any(map(self._current.inspector.host_low, self._places(reference)))

    async def _search(self, reference: Reference, at: Callable[[Reference], Awaitable[Inspection]]) -> Inspection:
        """The answer for a short name, from the first registry that has it."""
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
        """Drop the access that these credentials proved."""
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

    def use(self, rules: Sequence[RegistryEntry], *, search: Sequence[str] = ()) -> None:
        """Use these rules of the cluster's objects after those of the files, and ``search`` these registries for short
        names."""
        configuration = msgspec.structs.replace(
            self._files, registries=(*self._files.registries, *rules), search=tuple(search)
        )
        self._configuration = configuration
        former, self._current = self._current, RefCountedInspector(self._make(configuration))
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

    def _close_if_unused(self, used: RefCountedInspector) -> None:
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
    deny_addresses: Sequence[str] = (),
    clock: Clock,
    metrics: Metrics,
) -> AsyncIterator[ReloadableInspector]:
    """Open the client. Raises ``InvalidConfiguration`` or ``InvalidSetting``, naming the invalid file or range.

    Only the given file is read, not the one in ``/etc``, which a base image may contain by accident.
    """
    configuration = Configuration.load(registries_conf) if registries_conf else Configuration()
    policy = AddressPolicy.of("cluster", allow=allow_addresses, deny=deny_addresses)
    trust = TrustStore(TrustSettings.of(ca=ca, system_directories=()))
    transport = AiohttpTransport(policy=policy, trust=trust)
    registries = ReloadableInspector(
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
    """The metrics of registry requests, registered with this process's metrics."""
    registry = metrics.registry
    return RegistryMetrics(
        partial(Counter, registry=registry), partial(Gauge, registry=registry), partial(Histogram, registry=registry)
    )


# -- OpenShift's registry configuration: mirrors, blocked and insecure hosts, CAs


log = structlog.get_logger(__name__)
CONFIG_GROUP: Final = "config.openshift.io"
OPERATOR_GROUP: Final = "operator.openshift.io"
MIRROR_KINDS: Final = ("ImageDigestMirrorSet", "ImageTagMirrorSet", "ImageContentSourcePolicy")
IMAGE_CONFIG: Final = Resource(CONFIG_GROUP, "v1", "images", "Image", namespaced=False)
PULL_SECRET: Final = (CONFIG_HOME, "pull-secret")
TRUSTED_CA_KEY: Final = "ca-bundle.crt"


class OpenShiftConfig(msgspec.Struct, frozen=True, gc=False):
    """An object of any of these kinds; ``spec`` stays a document."""

    metadata: ObjectMeta = ObjectMeta()
    spec: dict[str, Any] | None = None


class ConfigMap(msgspec.Struct, frozen=True, gc=False):
    """core/v1 ConfigMap."""

    metadata: ObjectMeta = ObjectMeta()
    data: dict[str, str] | None = None


class OpenShift:
    """Watches the objects and applies them to the process's :class:`~polyarch.run.registries.Registries`.

    ``search_short_names`` is called with whether the nodes search registries for short names.
    """

    def __init__(
        self,
        process: Process,
        served: Iterable[Resource],
        registries: ReloadableInspector,
        *,
        search_short_names: Callable[[bool], None],
    ) -> None:
        self._process = process
        self._registries = registries
        self._search_short_names = search_short_names
        self._mirrors: list[Informer[OpenShiftConfig]] = [
            process.informer(resource, OpenShiftConfig) for resource in served if resource.kind in MIRROR_KINDS
        ]
        self._image = process.informer(IMAGE_CONFIG, OpenShiftConfig, field_selector="metadata.name=cluster")
        self._rules: tuple[RegistryEntry, ...] = ()
        self._search: tuple[str, ...] = ()
        for informer in (*self._mirrors, self._image):
            informer.add_handler(self._changed)
        authority = process.informer(
            CONFIGMAPS, ConfigMap, namespace=process.settings.namespace, field_selector=f"metadata.name={TRUSTED_CA}"
        )
        authority.add_handler(lambda change: self._trust(change.new))
        self._certificates = ""
        self._host_certificates: dict[str, str] = {}
        self._wanted = ""
        self._wants_other = asyncio.Event()

    @property
    def rules(self) -> tuple[RegistryEntry, ...]:
        """The rules of the present objects."""
        return self._rules

    @property
    def problems(self) -> list[str]:
        """Always empty: the shared informers report their own problems, and readiness does not depend on certificates
        for single hosts, which may not exist or not be readable."""
        return []

    async def synced(self) -> None:
        """Returns at once; see ``problems``."""

    async def run(self) -> None:
        """Watch the ConfigMap that the image configuration names at the time, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            while True:
                self._wants_other.clear()
                following = tasks.create_task(self._follow(self._wanted), name="follow additional CAs")
                await self._wants_other.wait()
                following.cancel()
                await asyncio.wait([following])
                self._trust_hosts(None)

    async def _follow(self, name: str) -> None:
        if not name:
            return
        selection = ListOptions(namespace=CONFIG_HOME, field_selector=f"metadata.name={name}")
        process = self._process
        informer = Informer(process.client, CONFIGMAPS, ConfigMap, selection=selection, clock=process.clock)
        informer.add_handler(lambda change: self._trust_hosts(change.new))
        await informer.run()

    def _changed(self, _: object) -> None:
        objects = [
            {"kind": informer.resource.kind, "metadata": {"name": each.metadata.name}, "spec": each.spec}
            for informer in self._mirrors
            for each in sorted(informer.store.values(), key=lambda each: each.metadata.name)
        ]
        image = self._image.store.get(ObjectKey("", "cluster"))
        spec = (image.spec if image is not None else None) or {}
        wanted = (spec.get("additionalTrustedCA") or {}).get("name", "")
        if wanted != self._wanted:
            self._wanted = wanted
            self._wants_other.set()
        rules, search = registry_rules(objects, spec), search_registries(spec)
        if (rules, search) != (self._rules, self._search):
            self._rules, self._search = rules, search
            self._registries.use(rules, search=search)
            self._search_short_names(bool(search))
            log.info("registry configuration of the cluster applied", rules=len(rules), search=search)

    def _trust(self, authority: ConfigMap | None) -> None:
        certificates = (authority.data or {}).get(TRUSTED_CA_KEY, "") if authority is not None else ""
        if certificates and not _are_certificates(certificates, TRUSTED_CA):
            return
        self._certificates = certificates
        self._registries.trust(self._certificates, hosts=self._host_certificates)

    def _trust_hosts(self, authorities: ConfigMap | None) -> None:
        found = host_certificates(authorities.data or {} if authorities is not None else {})
        if found != self._host_certificates:
            self._host_certificates = found
            self._registries.trust(self._certificates, hosts=self._host_certificates)


async def served_by(client: Client) -> tuple[Resource, ...]:
    """The OpenShift resources to watch; empty on any other Kubernetes."""
    configuration = await client.discover(CONFIG_GROUP)
    if not configuration:
        return ()
    found: dict[str, Resource] = {}
    for resource in (*configuration, *await client.discover(OPERATOR_GROUP)):
        if resource.kind in (*MIRROR_KINDS, IMAGE_CONFIG.kind):
            found.setdefault(resource.kind, resource)  # the preferred version comes first
    return tuple(found.values())


def registry_rules(mirrors: Sequence[Mapping[str, Any]], image_spec: Mapping[str, Any]) -> tuple[RegistryEntry, ...]:
    """Mirror objects and ``spec.registrySources`` of the image configuration, as rules of a ``registries.conf``.

    As on the nodes, only the most specific rule applies to an image, so the settings of a scope are copied to the rules
    and mirrors inside it. A host without a port matches every port.
    """
    usable = [each for each in mirrors if _makes_sense(each)]
    rules = {rule.prefix: rule for rule in mirror_rules(usable)}
    sources = image_spec.get("registrySources") or {}
    insecure, blocked = (_scopes(sources, field) for field in ("insecureRegistries", "blockedRegistries"))
    for scope in (*insecure, *blocked):
        rules.setdefault(
            scope, RegistryEntry(scope, "" if scope.startswith("*.") else scope, origin="images.config/cluster")
        )
    return tuple(
        msgspec.structs.replace(
            rule,
            insecure=rule.insecure or _covered(prefix, insecure),
            blocked=rule.blocked or _covered(prefix, blocked),
            mirrors=tuple(
                msgspec.structs.replace(mirror, insecure=mirror.insecure or _covered(mirror.location, insecure))
                for mirror in rule.mirrors
            ),
            every_port=True,
        )
        for prefix, rule in rules.items()
    )


def search_registries(image_spec: Mapping[str, Any]) -> tuple[str, ...]:
    """The registries that nodes search for short names, in order; empty: Docker Hub."""
    return tuple(_scopes(image_spec.get("registrySources") or {}, "containerRuntimeSearchRegistries"))


def host_certificates(data: Mapping[str, str]) -> dict[str, str]:
    """``additionalTrustedCA``: PEM by ``host[:port]``. Keys of a ConfigMap cannot contain a colon; they have two dots
    before the port instead."""
    return {
        key.replace("..", ":"): certificates
        for key, certificates in data.items()
        if _are_certificates(certificates, f"additionalTrustedCA {key}")
    }


def _are_certificates(text: str, where: str) -> bool:
    try:
        check_certificates(text)
    except InvalidSetting as error:
        log.warning("ignoring trusted certificates of the cluster", where=where, error=str(error))
        return False
    return True


def _makes_sense(mirror: Mapping[str, Any]) -> bool:
    try:
        mirror_rules([mirror])
    except InvalidMirrorConfiguration as error:
        log.warning("ignoring a mirror object", error=str(error))
        return False
    return True


def _scopes(sources: Mapping[str, Any], field: str) -> list[str]:
    found = []
    for scope in sources.get(field) or ():
        try:
            found.append(check_location(scope))
        except ValueError as error:
            log.warning("ignoring a registry of images.config/cluster", field=field, error=str(error))
    return found


def _covered(place: str, scopes: Iterable[str]) -> bool:
    """Whether a scope (host, host with path, ``*.domain``) covers this prefix or location."""
    host = without_port(place.partition("/")[0])
    return any(
        place == scope or place.startswith(f"{scope}/") or (scope.startswith("*.") and host.endswith(scope[1:]))
        for scope in scopes
    )
