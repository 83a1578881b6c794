"""``Inspector`` inspects images, one or many; ``open_inspector`` builds one with all its parts.

An inspection comes from the platforms file, from the cache, or from the image's sources, asked in order. Faults of an
image never raise; the inspection carries them. Concurrent callers with the same query share one lookup, rejections and
absences are cached for a while, and after a transient failure the inspection includes the last good reading.
"""

from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

from polyarch.clock import Clock, SystemClock
from polyarch.oci import pull_sources
from polyarch.oci.auth.authorization import Authorization
from polyarch.oci.auth.credential_stores import CredentialStore, NoCredentials
from polyarch.oci.auth.credentials import Credential
from polyarch.oci.cache import Backing, BundleMode, Cache
from polyarch.oci.concurrency import SingleFlight, Tenants, map_concurrently
from polyarch.oci.image.client import RegistryClient
from polyarch.oci.image.contents import RegistryConnection
from polyarch.oci.image.layout import ImageLayout
from polyarch.oci.image.lookup import (
    CacheReader,
    LookupKey,
    LookupQuery,
    LookupRequest,
    LookupResult,
    MirrorFallback,
    SourceLookup,
    fingerprints_of,
)
from polyarch.oci.inspection import (
    TENANT_LIMIT,
    CommonPlatforms,
    Inspection,
    InspectionError,
    InspectionWarning,
    Status,
    common_platforms,
)
from polyarch.oci.metrics import Metrics, NoMetrics
from polyarch.oci.mirror_files import InvalidMirrorConfiguration
from polyarch.oci.platforms_file import AnswerFile
from polyarch.oci.pull_sources import Configuration, PullSource
from polyarch.oci.reference import Reference, parse
from polyarch.oci.settings import InspectorSettings
from polyarch.oci.signature_policy import SignaturePolicy
from polyarch.oci.traffic.exchange import Exchange
from polyarch.oci.traffic.rate_limiter import RateLimit, RegistryRateLimiter
from polyarch.oci.transport.addresses import AddressPolicy
from polyarch.oci.transport.interface import Transport
from polyarch.oci.transport.tls import TrustSettings, TrustStore

SOURCES_KEPT = 20_000
NEVER_CHECKED = float("-inf")


class Inspector:
    """Inspects images. Create one per process and set of settings; ``close`` cancels what is in progress.

    ``policy`` must be the address policy of the transport. ``signatures`` is checked before anything is sent.
    Pass the ``rate_limiter`` of a previous inspector to keep its pauses and rate limits. ``notice`` receives messages
    for the user while they happen: waits for a rate limit, warnings of registries.
    """

    def __init__(
        self,
        *,
        transport: Transport,
        configuration: Configuration | None = None,
        credentials: CredentialStore | None = None,
        cache: Cache | None = None,
        answers: AnswerFile | None = None,
        offline: bool = False,
        clock: Clock | None = None,
        settings: InspectorSettings | None = None,
        policy: AddressPolicy | None = None,
        signatures: SignaturePolicy | None = None,
        metrics: Metrics | None = None,
        rate_limiter: RegistryRateLimiter | None = None,
        notice: Callable[[str], None] = lambda text: None,
    ) -> None:
        self.settings = settings or InspectorSettings()
        self._configuration = configuration or Configuration()
        self._credentials = credentials or NoCredentials()
        self._clock = clock or SystemClock()
        self._metrics = metrics or NoMetrics()
        self._cache = cache or Cache(self._clock, metrics=self._metrics)
        self._answers = answers
        self._offline = offline
        self._signatures = signatures
        self._rate_limiter = rate_limiter or RegistryRateLimiter(self._clock, self.settings, self._metrics)
        exchange = Exchange(
            transport,
            self._rate_limiter,
            clock=self._clock,
            settings=self.settings,
            policy=policy or AddressPolicy(),
            metrics=self._metrics,
            notice=notice,
        )
        authorization = Authorization(exchange, clock=self._clock, key=self._cache.key)
        self._client = RegistryClient(exchange, authorization, self._rate_limiter)
        self.connection = RegistryConnection(
            exchange=exchange,
            authorization=authorization,
            client=self._client,
            rate_limiter=self._rate_limiter,
            configuration=self._configuration,
            credentials=self._credentials,
            clock=self._clock,
            settings=self.settings,
        )
        """The parts for requests, for use by ``layers`` and ``write``."""
        self._cache_reader = CacheReader(self._cache, self._rate_limiter, clock=self._clock, settings=self.settings)
        self._lookup = SourceLookup(
            self._client, self._cache, self._cache_reader, clock=self._clock, settings=self.settings
        )
        self._mirror_fallback = MirrorFallback(
            self._lookup, self._cache, self._cache_reader, clock=self._clock, settings=self.settings
        )
        self._lookups: SingleFlight[LookupKey, LookupResult] = SingleFlight()
        self._sources_of: dict[Reference, tuple[PullSource, ...]] = {}

    # -- one image -----------------------------------------------------------------------------------------------------

    async def inspect(
        self,
        reference: Reference | str,
        *,
        credentials: CredentialStore | None = None,
        fresh: bool = False,
        not_before: float | None = None,
        bundle: BundleMode = "auto",
        wait: bool | None = None,
        stale_for: float | None = None,
        tenant: str = "",
    ) -> Inspection:
        """Inspect one reference. Raises ``InvalidReference`` for an invalid text and nothing else.

        ``fresh`` checks the tag now, unless it was checked within ``revalidate_interval``. With ``not_before``
        (monotonic) a check begun at or after that time is enough. Digests need no check. ``wait`` and ``stale_for``
        override the settings of the same name. Requests of one ``tenant`` take turns with those of others. The answer's
        ``checked_at`` is when the check of the tag *began*.
        """
        if isinstance(reference, str):
            reference = parse(reference)
        judged = self._signatures.judge(reference) if self._signatures is not None else None
        if isinstance(judged, InspectionError):
            return self._counted(Inspection(reference, Status.ERROR, error=judged))
        inspection = await self._inspect(
            reference,
            store=credentials or self._credentials,
            fresh=fresh or not_before is not None,
            not_before=not_before,
            mode=bundle,
            wait=self.settings.wait if wait is None else wait,
            stale_for=self.settings.stale_for if stale_for is None else stale_for,
            tenant=tenant,
        )
        if isinstance(judged, InspectionWarning):
            inspection = msgspec.structs.replace(inspection, warnings=(*inspection.warnings, judged))
        return self._counted(inspection)

    def _counted(self, inspection: Inspection) -> Inspection:
        self._metrics.inspection(str(inspection.status))
        return inspection

    async def inspect_many(
        self,
        references: Iterable[Reference | str],
        *,
        credentials: CredentialStore | None = None,
        fresh: bool = False,
        bundle: BundleMode = "auto",
        on_answer: Callable[[Inspection], None] = lambda inspection: None,
    ) -> list[Inspection]:
        """The inspections in the order given; a repeated reference is inspected once.

        ``on_answer`` is called once per distinct reference, when its answer arrives.
        """
        given = [parse(each) if isinstance(each, str) else each for each in references]

        async def one(reference: Reference) -> Inspection:
            inspection = await self.inspect(reference, credentials=credentials, fresh=fresh, bundle=bundle)
            on_answer(inspection)
            return inspection

        unique = dict.fromkeys(given)
        answers = await map_concurrently(one, unique, at_once=self.settings.requests)
        found = dict(zip(unique, answers, strict=True))
        return [found[each] for each in given]

    async def common(
        self, references: Iterable[Reference | str], *, credentials: CredentialStore | None = None
    ) -> CommonPlatforms:
        """What the images have in common. If nothing, indexes are checked for operator bundles first, which constrain
        nothing.
        """
        answers = await self.inspect_many(references, credentials=credentials)
        found = common_platforms(answers)
        if found.platforms:
            return found
        indexes = [each.reference for each in answers if each.constrains and each.kind == "index"]
        looked_at = await self.inspect_many(indexes, credentials=credentials, bundle="always")
        again = {each.reference: each for each in looked_at}
        return common_platforms(again.get(each.reference, each) for each in answers)

    # -- without any request -------------------------------------------------------------------------------------------

    def peek(
        self,
        reference: Reference,
        credentials: CredentialStore | None = None,
        *,
        bundle: BundleMode = "auto",
        stale_for: float | None = None,
    ) -> Inspection | None:
        """The inspection from memory, without I/O and within microseconds; None if a request is needed.

        While the registry of a tag fails, a reading older than the TTL is returned as ``stale``, up to ``stale_for``.
        A refusal or absence found within the last minute is returned as an error.
        """
        judged = self._signatures.judge(reference) if self._signatures is not None else None
        if isinstance(judged, InspectionError):
            return Inspection(reference, Status.ERROR, error=judged)
        store = credentials or self._credentials
        inspection = self._peek(reference, store, bundle, self.settings.stale_for if stale_for is None else stale_for)
        if inspection is not None and isinstance(judged, InspectionWarning):
            inspection = msgspec.structs.replace(inspection, warnings=(*inspection.warnings, judged))
        return inspection

    def _peek(
        self, reference: Reference, store: CredentialStore, bundle: BundleMode, stale_for: float
    ) -> Inspection | None:
        if self._answers is not None and (given := self._answers.get(reference)) is not None:
            return given
        if self._offline:
            return None
        sources = self.sources(reference)
        if isinstance(sources, InspectionError):
            return None
        return self._cache_reader.in_memory(reference, sources, store, mode=bundle, stale_for=stale_for)

    def host_busy(self, reference: Reference, tenant: str = "") -> bool:
        """Whether all hosts of the image are paused or have an open circuit, for all or for the tenant."""
        sources = self.sources(reference)
        if isinstance(sources, InspectionError) or not sources:
            return False
        return all(self._rate_limiter.busy(source.host, source.query, tenant) for source in sources)

    def host_low(self, reference: Reference) -> bool:
        """Whether some host of the image has less than half of its rate limit left: what can wait, should."""
        sources = self.sources(reference)
        return not isinstance(sources, InspectionError) and any(
            self._rate_limiter.low(source.host, source.query) for source in sources
        )

    @property
    def rate_limits(self) -> dict[str, RateLimit]:
        """The last reported rate limit per host."""
        return {host.name: host.rate for host in self._rate_limiter if host.rate is not None}

    def sources(self, reference: Reference) -> tuple[PullSource, ...] | InspectionError:
        """The places to ask, in order; an error of class configuration if there are none."""
        found = self._sources_of.get(reference)
        if found is not None:
            return found
        if reference.transport != "docker":
            message = f"{reference}: layout directories are not read here; push the image to a registry"
            return InspectionError.of("layout", message)
        try:
            sources = tuple(pull_sources.sources(reference, self._configuration))
        except (pull_sources.Blocked, InvalidMirrorConfiguration) as error:
            return InspectionError.of("blocked", str(error))
        if len(self._sources_of) >= SOURCES_KEPT:
            self._sources_of.clear()
        self._sources_of[reference] = sources
        return sources

    # -- the cache -----------------------------------------------------------------------------------------------------

    def forget(self, credentials: Iterable[Credential]) -> None:
        """Drop the proofs of these credentials; readings are kept."""
        self._cache.drop_proofs(fingerprints_of(credentials, self._cache.key))

    async def close(self) -> None:
        """Cancel lookups in progress and write new entries to the cache on disk. The transport stays open."""
        await self._lookups.close()
        await self._lookup.close()
        await self._client.close()
        self._cache.close()

    # -- internals -----------------------------------------------------------------------------------------------------

    async def _inspect(
        self,
        reference: Reference,
        *,
        store: CredentialStore,
        fresh: bool,
        not_before: float | None,
        mode: BundleMode,
        wait: bool,
        stale_for: float,
        tenant: str,
    ) -> Inspection:
        if self._answers is not None and (given := self._answers.get(reference)) is not None:
            return given
        if reference.transport == "oci" and self.settings.layouts:
            return await ImageLayout.of(reference).inspect(reference, self.connection.context(), mode=mode)
        if self._offline:
            error = InspectionError.of("offline-miss", f"{reference}: no answer in the platforms file; add one to it")
            return Inspection(reference, Status.ERROR, error=error)
        sources = self.sources(reference)
        if isinstance(sources, InspectionError):
            return Inspection(reference, Status.ERROR, error=sources)
        if reference.digest is not None:
            not_before = NEVER_CHECKED
        elif not fresh:
            not_before = self._clock.monotonic() - self.settings.tag_ttl
        elif not_before is None:
            not_before = self._clock.monotonic() - self.settings.revalidate_interval
        query = LookupQuery(reference, mode, not_before)
        anybody: tuple[str, ...] = ()
        known = self._cache_reader.first_known(query, sources, [anybody] * len(sources))
        if known is not None:
            return known
        candidates = [await store.candidates(reference, source) for source in sources]
        key = LookupKey(reference, tuple(fingerprints_of(each, self._cache.key) for each in candidates), mode)
        known = self._cache_reader.first_known(query, sources, key.fingerprints)
        if known is not None:
            return known
        request = LookupRequest(query, key, sources, candidates, store)
        if not fresh and (refused := self._cache.negative((key, request.names))) is not None:
            return Inspection(reference, Status.ERROR, error=refused, cached=True)
        tenants = Tenants(tenant)
        while True:
            joined = key in self._lookups
            result = await self._lookups.join(
                key,
                lambda: self._mirror_fallback.look_up(request, wait=wait, tenants=tenants),
                tenants=tenants,
            )
            inspection = result.for_request(request)
            recent = inspection.checked_at is None or inspection.checked_at >= not_before
            is_others = inspection.error is not None and inspection.error.code == TENANT_LIMIT
            if not joined or (recent and not is_others):
                break
        last_good, age = inspection.last_good, inspection.last_good_age or 0.0
        if last_good is None or fresh or stale_for <= 0 or age > stale_for:
            return inspection
        stale = reference.digest is None
        return msgspec.structs.replace(last_good, stale=stale, error=inspection.error, requests=inspection.requests)


# -- an inspector with all its parts -----------------------------------------------------------------------------------


class InspectorOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Settings for :func:`open_inspector`. The defaults are the command line's.

    In a cluster, pod authors choose the hosts: start ``settings`` from ``CLUSTER`` or ``PLACEMENT``
    and use ``AddressPolicy.of("cluster", allow=…)`` as ``policy``.

    The command line and the processes in a cluster need the same parts with different settings: addresses they may
    reach, a cache on disk or none, waiting for a registry or not.
    """

    settings: InspectorSettings = InspectorSettings()
    configuration: Configuration = Configuration()
    policy: AddressPolicy = AddressPolicy()
    trust: TrustSettings | None = None
    """None: the system's store and the usual certs.d directories."""
    cache_directory: Path | None = None
    """Directory of the cache on disk; None: memory only."""
    answers: AnswerFile | None = None
    offline: bool = False
    signatures: SignaturePolicy | None = None
    """The signature policy; None: all images are accepted."""


@asynccontextmanager
async def open_inspector(
    options: InspectorOptions | None = None,
    *,
    credentials: CredentialStore | None = None,
    clock: Clock | None = None,
    metrics: Metrics | None = None,
    notice: Callable[[str], None] = lambda text: None,
) -> AsyncIterator[Inspector]:
    """Context manager for an inspector; on exit it closes connections and saves the cache.

    ``notice`` receives messages for the user: waits, warnings of registries, a damaged cache. Raises ``InvalidSetting``
    if a certificate file or a proxy of the environment is unusable.
    """
    from polyarch.oci.transport.http import AiohttpTransport  # half of the start-up time

    options = options or InspectorOptions()
    clock = clock or SystemClock()
    metrics = metrics or NoMetrics()
    transport = AiohttpTransport(policy=options.policy, trust=TrustStore(options.trust))
    backing: Backing | None = None
    if options.cache_directory is not None and not options.offline:
        from polyarch.oci.disk_cache import DiskCache  # SQLite: a process in a cluster has no cache on disk

        backing = DiskCache(options.cache_directory, clock, warn=notice)
    inspector = Inspector(
        transport=transport,
        configuration=options.configuration,
        credentials=credentials or NoCredentials(),
        cache=Cache(clock, backing=backing, metrics=metrics),
        answers=options.answers,
        offline=options.offline,
        clock=clock,
        settings=options.settings,
        policy=options.policy,
        signatures=options.signatures,
        metrics=metrics,
        notice=notice,
    )
    try:
        yield inspector
    finally:
        await inspector.close()
        await transport.close()
