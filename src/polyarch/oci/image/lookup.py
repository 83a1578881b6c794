"""Looks an image up: in the cache, then at each mirror, then at its registry.

A lookup sends the fewest requests that prove two things: that the tag names this digest now, and that the caller may
read the repository. A HEAD proves both and is often free of charge; a GET returns the content as well. Results go into
the cache at once, so that callers waiting for the same thing find them there.

``CacheReader`` answers from the cache, ``SourceLookup`` asks one source, ``MirrorFallback`` asks all sources in order.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from polyarch.clock import Clock
from polyarch.oci.auth.authorization import CREDENTIALS_REJECTED, NOT_A_REGISTRY, SourceCredentials
from polyarch.oci.auth.credential_stores import CredentialStore
from polyarch.oci.auth.credentials import ANONYMOUS, Credential
from polyarch.oci.cache import (
    AccessProof,
    BundleMode,
    Cache,
    ImageReading,
    ReadingRecord,
    RepositoryLocation,
    TagRecord,
)
from polyarch.oci.concurrency import SingleFlight, Tenants
from polyarch.oci.documents import ContentError
from polyarch.oci.image.client import FetchedManifest, HeadResult, RegistryClient
from polyarch.oci.image.reader import ImageReader
from polyarch.oci.inspection import Inspection, InspectionWarning, SourceUsed, Status
from polyarch.oci.pull_sources import PullSource
from polyarch.oci.reference import DOCKER_HUB, DOCKER_HUB_HOST, Reference
from polyarch.oci.settings import InspectorSettings
from polyarch.oci.traffic.exchange import RequestContext, TimeBudget
from polyarch.oci.traffic.failures import PASSING, Failure, is_callers_own
from polyarch.oci.traffic.rate_limiter import RegistryRateLimiter

FAILURE_MEMORY = 30.0
"""Seconds after a failed check during which an older reading answers instead."""


class LookupQuery(NamedTuple):
    """Reference, mode and oldest acceptable check of the tag: one at or after ``not_before`` (monotonic) is enough."""

    reference: Reference
    mode: BundleMode
    not_before: float


class CacheHit(NamedTuple):
    """A reading the caller may use, and when its tag was checked (0.0 for a digest)."""

    record: ReadingRecord
    checked_at: float
    public: bool


class LookupKey(NamedTuple):
    """What makes two lookups the same: lookups with equal keys are shared."""

    reference: Reference
    fingerprints: tuple[tuple[str, ...], ...]
    mode: BundleMode


Names = tuple[tuple[str, ...], ...]
"""Origins of the credentials of a ``LookupKey``, in its order. Equal secrets may have different origins."""


def names_of(credentials: Iterable[Iterable[Credential]]) -> Names:
    return tuple(tuple(credential.origin for credential in each) for each in credentials)


def fingerprints_of(credentials: Iterable[Credential], key: bytes) -> tuple[str, ...]:
    return tuple([credential.fingerprint(key) for credential in credentials])


def location_of(source: PullSource) -> RepositoryLocation:
    """The cache place of a source. The path and ``ns=`` of a mirror distinguish the registries behind it.

    Unverified sources have places of their own: otherwise a tag read with ``--insecure`` would be used for minutes by
    callers that require verification.
    """
    prefix = "" if source.path_prefix == "/v2" else source.path_prefix
    query = f"?{source.query}" if source.query else ""
    unverified = "" if source.verified else "!unverified"
    return RepositoryLocation(f"{source.host}{prefix}{query}{unverified}", source.repository)


def source_used(source: PullSource) -> SourceUsed:
    return SourceUsed(source.host, mirror=source.mirror, insecure=source.insecure)


class CacheReader:
    """Reads the cache.

    A cached inspection takes three things together: a tag that was checked recently enough, the reading of the digest
    it named, and a proof that one of the caller's credentials, or anonymous access, may read that repository. Nothing
    here waits.
    """

    def __init__(
        self, cache: Cache, rate_limiter: RegistryRateLimiter, *, clock: Clock, settings: InspectorSettings
    ) -> None:
        self._cache = cache
        self._rate_limiter = rate_limiter
        self._clock = clock
        self._settings = settings

    def known(
        self,
        source: PullSource,
        fingerprints: Sequence[str],
        *,
        not_before: float,
        memory_only: bool,
        proof_seconds: float | None = None,
        last_good: bool = False,
    ) -> CacheHit | None:
        """A reading of a recently checked tag, readable in this place, with a proof.

        ``last_good`` accepts the tag's previous digest if the current one was not read.
        """
        location, cache = location_of(source), self._cache
        named: tuple[tuple[str, float], ...] = ((source.digest or "", 0.0),)
        if source.digest is None:
            tag = cache.tag(location, source.tag or "", memory_only=memory_only)
            if tag is None or tag.checked_at < not_before:
                return None
            named = ((tag.digest, tag.checked_at),)
            if last_good and tag.good is not None and tag.good[1] >= not_before:
                named = (*named, tag.good)
        proof = self.proof(location, fingerprints, memory_only=memory_only, seconds=proof_seconds)
        if proof is None:
            return None
        for digest, checked_at in named:
            record = cache.usable(digest, location, memory_only=memory_only)
            if record is not None:
                return CacheHit(record, checked_at, proof.public)
        return None

    def inspection(self, query: LookupQuery, source: PullSource, known: CacheHit) -> Inspection:
        """The inspection of a cache hit."""
        return known.record.reading.inspection(
            query.reference,
            mode=query.mode,
            source=source_used(source),
            cached=True,
            checked_at=known.checked_at,
            public=known.public,
        )

    def proof(
        self,
        location: RepositoryLocation,
        fingerprints: Sequence[str],
        *,
        memory_only: bool = False,
        seconds: float | None = None,
    ) -> AccessProof | None:
        """Proof that one of these credentials, or anonymous access, may read there; ``seconds`` overrides the settings'
        ages.
        """
        settings = self._settings
        public_seconds = settings.public_ttl if settings.public_probe else settings.proof_ttl
        return self._cache.proof(
            location,
            fingerprints,
            seconds=settings.proof_ttl if seconds is None else seconds,
            public_seconds=public_seconds if seconds is None else seconds,
            memory_only=memory_only,
        )

    # -- over all sources of an image ----------------------------------------------------------------------------------

    def first_known(
        self, query: LookupQuery, sources: Sequence[PullSource], fingerprints: Sequence[Sequence[str]]
    ) -> Inspection | None:
        """The inspection by the first source whose reading is known, with the ``fingerprints`` of its credentials."""
        for source, each in zip(sources, fingerprints, strict=True):
            known = self.known(source, each, not_before=query.not_before, memory_only=False)
            if known is not None and known.record.reading.settles(query.mode):
                return self.inspection(query, source, known)
        return None

    def in_memory(
        self,
        reference: Reference,
        sources: Sequence[PullSource],
        store: CredentialStore,
        *,
        mode: BundleMode,
        stale_for: float,
    ) -> Inspection | None:
        """The inspection without I/O: a reading, a stale one, or a cached rejection or absence; None if unknown.

        Public readings are tried first, so that a public image reads no secret.
        """
        for source in sources:
            inspection = self._remembered(reference, source, (), mode, stale_for)
            if inspection is not None:
                return inspection
        all_candidates: list[list[Credential]] = []
        all_fingerprints: list[tuple[str, ...]] = []
        for source in sources:
            candidates = store.cached_candidates(reference, source)
            if candidates is None:
                return None
            fingerprints = fingerprints_of(candidates, self._cache.key)
            all_candidates.append(candidates)
            all_fingerprints.append(fingerprints)
            if any(fingerprints):
                inspection = self._remembered(reference, source, fingerprints, mode, stale_for)
                if inspection is not None:
                    return inspection
        key = LookupKey(reference, tuple(all_fingerprints), mode)
        error = self._cache.negative((key, names_of(all_candidates)))
        return None if error is None else Inspection(reference, Status.ERROR, error=error, cached=True)

    def _remembered(
        self, reference: Reference, source: PullSource, fingerprints: Sequence[str], mode: BundleMode, stale_for: float
    ) -> Inspection | None:
        now = self._clock.monotonic()
        not_before = now - self._settings.tag_ttl
        known = self.known(source, fingerprints, not_before=not_before, memory_only=True)
        stale = False
        if known is None and stale_for > 0 and self._fails(source, now):
            stale = source.digest is None
            known = self.known(
                source,
                fingerprints,
                not_before=now - stale_for,
                memory_only=True,
                proof_seconds=max(stale_for, self._settings.proof_ttl),
                last_good=True,
            )
        if known is None or not known.record.reading.settles(mode):
            return None
        inspection = self.inspection(LookupQuery(reference, mode, not_before), source, known)
        return msgspec.structs.replace(inspection, stale=True) if stale else inspection

    def _fails(self, source: PullSource, now: float) -> bool:
        """Whether the host is paused or its circuit open, or a check of this tag failed a short time ago."""
        if self._rate_limiter.busy(source.host, source.query):
            return True
        tag = self._cache.tag(location_of(source), source.tag or "", memory_only=True)
        return tag is not None and tag.failed_at is not None and now - tag.failed_at < FAILURE_MEMORY


# -- one source: cache, HEAD or GET, and with which credentials --------------------------------------------------------


MOVED = frozenset({"digest-mismatch", "not-found"})


class _Lookup(NamedTuple):
    """A query at one source, with the credentials to try."""

    query: LookupQuery
    access: SourceCredentials
    location: RepositoryLocation
    context: RequestContext

    def reader(self, client: RegistryClient) -> ImageReader:
        return ImageReader(client, self.access, self.context)


class SourceLookup:
    """Looks up images at single sources. ``MirrorFallback`` and ``Inspector`` handle several sources and stale
    readings.
    """

    def __init__(
        self,
        client: RegistryClient,
        cache: Cache,
        cache_reader: CacheReader,
        *,
        clock: Clock,
        settings: InspectorSettings,
    ) -> None:
        self._client = client
        self._cache = cache
        self._clock = clock
        self._settings = settings
        self._cache_reader = cache_reader
        self._probes: SingleFlight[tuple[RepositoryLocation, str], None] = SingleFlight(is_callers_own)
        self._public: SingleFlight[tuple[RepositoryLocation, str, BundleMode], Inspection] = SingleFlight(
            is_callers_own
        )

    async def close(self) -> None:
        await self._probes.close()
        await self._public.close()

    # -- asking --------------------------------------------------------------------------------------------------------

    async def look_up(
        self, query: LookupQuery, source: PullSource, credentials: Sequence[Credential], context: RequestContext
    ) -> Inspection:
        """The inspection by this source. Raises ``Failure``."""
        if self._settings.public_probe:
            inspection = await self._look_up_publicly(query, source, credentials, context)
            if inspection is not None:
                return inspection
        return await self._look_up(query, self._access(source, credentials), context)

    async def _look_up_publicly(
        self, query: LookupQuery, source: PullSource, credentials: Sequence[Credential], context: RequestContext
    ) -> Inspection | None:
        """The shared inspection by anonymous access, one lookup for all callers; None if that is not allowed."""
        location = location_of(source)
        selector = source.digest or source.tag or ""
        charged = _is_among(source, self._settings.head_first_hosts)
        others = any(not credential.is_anonymous for credential in credentials)
        if not self._is_public(location):
            if self._cache.known_private(location, seconds=self._settings.private_ttl) or (charged and not others):
                return None
            if charged:
                try:
                    await self._probes.join(
                        (location, selector),
                        lambda: self._probe(location, source, selector, context),
                        tenants=context.tenants,
                    )
                except Failure as failure:
                    if not (_is_about_anonymous(failure) and others):
                        raise
                if not self._is_public(location):
                    return None
        # Where GETs are charged, use the caller's own account; elsewhere anonymous access is enough.
        access_credentials = credentials if charged else (ANONYMOUS,)
        key = (location, selector, query.mode)
        while True:
            joined = key in self._public
            try:
                inspection = await self._public.join(
                    key,
                    lambda: self._look_up(query, self._access(source, access_credentials), context),
                    tenants=context.tenants,
                )
            except Failure as failure:
                error_class = failure.error.error_class
                if error_class == "auth":
                    self._cache.mark_private(location)
                    if joined and charged:
                        return None  # other credentials than these were refused
                elif not _is_about_anonymous(failure) and (error_class != "absent" or self._is_public(location)):
                    raise
                if others:
                    return None
                raise
            if not joined:
                return inspection
            if inspection.checked_at is None or inspection.checked_at >= query.not_before:
                return _as_if_asked(inspection, query, context)

    async def _probe(
        self, location: RepositoryLocation, source: PullSource, selector: str, context: RequestContext
    ) -> None:
        """Anonymous HEAD, which is free of charge; its digest for the tag is cached."""
        access = self._access(source, [ANONYMOUS])
        asked_at = self._clock.monotonic()
        try:
            stated = await self._client.head_manifest(access, selector, context)
        except Failure as failure:
            if failure.error.error_class == "auth":
                self._cache.mark_private(location)
            elif failure.error.error_class != "absent":
                raise
            return
        if stated is None:
            self._cache.mark_private(location)
            return
        self._cache.put_proof(location, "")
        if source.digest is None:
            self._cache.put_tag(location, selector, TagRecord(stated.digest, asked_at, stated.digest, stated.etag))

    def _access(self, source: PullSource, credentials: Sequence[Credential]) -> SourceCredentials:
        return SourceCredentials(source, credentials, loopback=self._settings.insecure_loopback)

    def _is_public(self, location: RepositoryLocation) -> bool:
        return self._cache_reader.proof(location, ()) is not None

    async def _look_up(self, query: LookupQuery, access: SourceCredentials, context: RequestContext) -> Inspection:
        location = location_of(access.source)
        lookup = _Lookup(query, access, location, context)
        try:
            if access.source.digest is not None:
                return await self._by_digest(lookup, access.source.digest)
            return await self._by_tag(lookup, access.source.tag or "")
        except Failure as failure:
            failed = failure.error.error_class in PASSING and not is_callers_own(failure)
            if failed and access.source.digest is None:
                self._cache.tag_failed(location, access.source.tag or "")
            raise
        finally:
            for refused in access.refused:
                self._cache.drop_proof(location, refused.fingerprint(self._cache.key))

    async def _by_digest(self, lookup: _Lookup, digest: str) -> Inspection:
        record = self._cache.usable(digest, lookup.location)
        if record is not None:
            if not self._proves(lookup):
                # Another caller read it: one HEAD proves access. A following GET is charged.
                stated = await self._head(lookup, digest)
                if stated is None:
                    return await self._get(lookup, digest, after_head=True)
                self._prove(lookup)
            return await self._from_record(lookup, record)
        self._raise_known_fault(lookup, digest)
        return await self._get(lookup, digest)

    async def _by_tag(self, lookup: _Lookup, tag: str) -> Inspection:
        record = self._cache.tag(lookup.location, tag)
        if record is None and not (
            _is_among(lookup.access.source, self._settings.head_first_hosts) and self._cache.knows(lookup.location)
        ):
            return await self._get(lookup, tag)
        if record is not None and record.checked_at >= lookup.query.not_before and self._proves(lookup):
            return await self._at_digest(lookup, record)
        asked_at = self._clock.monotonic()
        stated = await self._head(lookup, tag)
        if stated is None:
            return await self._get(lookup, tag, known=record, after_head=True)
        self._prove(lookup)
        named = TagRecord(_named(record, stated), asked_at, stated.digest, stated.etag)
        kept = self._cache.put_tag(lookup.location, tag, named)
        return await self._at_digest(lookup, kept)

    async def _head(self, lookup: _Lookup, selector: str) -> HeadResult | None:
        """The result of a HEAD; None if only a GET can tell, which runtimes send after a 404 too: some registries and
        the proxies before them do not know the method.
        """
        try:
            return await self._client.head_manifest(lookup.access, selector, lookup.context)
        except Failure as failure:
            if failure.error.error_class != "absent":
                raise
            return None

    async def _at_digest(self, lookup: _Lookup, tag: TagRecord) -> Inspection:
        """The reading of a tag's digest; if the registry's digest leads nowhere, GET by the tag itself."""
        record = self._cache.usable(tag.digest, lookup.location)
        if record is not None:
            return await self._from_record(lookup, record, checked_at=tag.checked_at)
        self._raise_known_fault(lookup, tag.digest)
        try:
            return await self._get(lookup, tag.digest, checked_at=tag.checked_at)
        except Failure as failure:
            if failure.error.code not in MOVED:
                raise
        return await self._get(lookup, lookup.access.source.tag or "")

    async def _get(
        self,
        lookup: _Lookup,
        selector: str,
        *,
        checked_at: float | None = None,
        known: TagRecord | None = None,
        after_head: bool = False,
    ) -> Inspection:
        """GET and read the manifest. ``known`` is the tag's cached record, used for If-None-Match."""
        asked_at, location = self._clock.monotonic(), lookup.location
        by_tag = ":" not in selector
        unchanged = None
        if known is not None and known.etag:
            unchanged = self._cache.usable(known.digest, location)
        etag = known.etag if known is not None and unchanged is not None else ""
        fetched = await self._client.get_manifest(lookup.access, selector, lookup.context, etag=etag)
        if after_head:
            self._client.has_no_head(lookup.access)
        self._prove(lookup)
        if fetched is None and known is not None and unchanged is not None:
            self._cache.put_tag(location, selector, TagRecord(known.digest, asked_at, known.advertised, known.etag))
            return await self._from_record(lookup, unchanged, checked_at=asked_at)
        if fetched is None:
            raise AssertionError("304 without If-None-Match")
        if by_tag:
            advertised = fetched.advertised or fetched.digest
            self._cache.put_tag(location, selector, TagRecord(fetched.digest, asked_at, advertised, fetched.etag))
        return await self._read(lookup, fetched, checked_at=asked_at if by_tag else checked_at)

    async def _read(self, lookup: _Lookup, fetched: FetchedManifest, *, checked_at: float | None) -> Inspection:
        try:
            read = await lookup.reader(self._client).read(fetched, mode=lookup.query.mode)
        except ContentError as error:
            failure = Failure.of(error.code, lookup.access.source.host, error.message)
            self._keep_fault(lookup.location, fetched.digest, failure)
            raise failure from None
        except Failure as failure:
            self._keep_fault(lookup.location, fetched.digest, failure)
            raise
        public = self._is_public_access(lookup)
        if read.complete:
            # Only if this read was anonymous: the repository may not be public any more.
            accepted = lookup.access.accepted
            anonymously = accepted is not None and accepted.is_anonymous
            self._cache.put_reading(read.reading, lookup.location, public=anonymously)
        else:
            self._cache.put_incomplete(read.reading, lookup.location, seconds=self._settings.negative_ttl)
        return self._inspection(lookup, read.reading, checked_at=checked_at, cached=False, public=public)

    async def _from_record(
        self, lookup: _Lookup, record: ReadingRecord, *, checked_at: float | None = None
    ) -> Inspection:
        reading = record.reading
        public = self._is_public_access(lookup)
        if not reading.settles(lookup.query.mode):
            reading = await lookup.reader(self._client).look_for_bundle(reading)
            if reading.bundle is not None and record.complete:
                self._cache.put_reading(reading, lookup.location, public=record.public)
        return self._inspection(lookup, reading, checked_at=checked_at, cached=True, public=public)

    def _inspection(
        self, lookup: _Lookup, reading: ImageReading, *, checked_at: float | None, cached: bool, public: bool
    ) -> Inspection:
        return reading.inspection(
            lookup.query.reference,
            mode=lookup.query.mode,
            source=source_used(lookup.access.source),
            warnings=tuple(lookup.context.warnings),
            cached=cached,
            requests=lookup.context.requests,
            checked_at=checked_at,
            public=public,
        )

    # -- keeping what was learned --------------------------------------------------------------------------------------

    def _prove(self, lookup: _Lookup) -> None:
        if lookup.access.accepted is not None:
            self._cache.put_proof(lookup.location, lookup.access.accepted.fingerprint(self._cache.key))

    def _proves(self, lookup: _Lookup) -> bool:
        fingerprints = [credential.fingerprint(self._cache.key) for credential in lookup.access.credentials]
        return self._cache_reader.proof(lookup.location, fingerprints) is not None

    def _is_public_access(self, lookup: _Lookup) -> bool:
        return (lookup.access.accepted is not None and lookup.access.accepted.is_anonymous) or self._is_public(
            lookup.location
        )

    def _keep_fault(self, location: RepositoryLocation, digest: str, failure: Failure) -> None:
        if failure.error.error_class == "content":
            self._cache.put_fault(location, digest, failure.error, self._settings.content_error_ttl)

    def _raise_known_fault(self, lookup: _Lookup, digest: str) -> None:
        fault = self._cache.fault(lookup.location, digest)
        if fault is not None and self._proves(lookup):
            raise Failure(fault)


def _named(record: TagRecord | None, stated: HeadResult) -> str:
    """The digest of a tag after a HEAD: the known one if the registry repeats what it stated for it."""
    if record is not None and stated.digest in (record.digest, record.advertised):
        return record.digest
    return stated.digest


def _as_if_asked(inspection: Inspection, query: LookupQuery, context: RequestContext) -> Inspection:
    """Adapt an inspection shared with another caller: nothing in it is specific to that caller."""
    warnings = tuple(each for each in inspection.warnings if each.code != CREDENTIALS_REJECTED)
    return msgspec.structs.replace(
        inspection, reference=query.reference, warnings=warnings, requests=context.requests, cached=True
    )


def _is_about_anonymous(failure: Failure) -> bool:
    """Whether callers with an account may get another result: a rate limit is one account's, and a login page
    is for who is not logged in.
    """
    return failure.error.error_class == "limit" or failure.error.code == NOT_A_REGISTRY


def _is_among(source: PullSource, hosts: Sequence[str]) -> bool:
    return source.host in hosts or (source.host == DOCKER_HUB_HOST and DOCKER_HUB in hosts)


# -- all sources in order ----------------------------------------------------------------------------------------------


LAST_GOOD_PROOF = 24 * 3600.0
"""Maximum age of the proof for a last good reading, which is the maximum of ``stale_for``."""


class LookupRequest(NamedTuple):
    """A query, its sources, and the credentials for each source."""

    query: LookupQuery
    key: LookupKey
    sources: Sequence[PullSource]
    credentials: Sequence[Sequence[Credential]]
    store: CredentialStore

    @property
    def names(self) -> "Names":
        return names_of(self.credentials)


class LookupResult(NamedTuple):
    """The result of a lookup, with the names of the credentials of the caller that started it."""

    inspection: Inspection
    names: Names

    def for_request(self, request: LookupRequest) -> Inspection:
        """The inspection for one caller: with its own names for the shared credentials, and with the warnings of
        its own credential store.
        """
        inspection = self.inspection
        pairs = zip(
            (name for each in self.names for name in each), (n for each in request.names for n in each), strict=True
        )
        others = {theirs: own for theirs, own in pairs if theirs != own}
        if others:
            inspection = _renamed(inspection, others)
        source = next((each for each in request.sources if source_used(each) == inspection.source), request.sources[-1])
        found = (InspectionWarning(each.code, each.message) for each in request.store.warnings(source))
        new = tuple(each for each in found if each not in inspection.warnings)
        return msgspec.structs.replace(inspection, warnings=inspection.warnings + new) if new else inspection


class MirrorFallback:
    """Runs lookups over all sources.

    Mirrors come before the primary. Any failure moves on to the next source; a rate-limited mirror is skipped, not
    waited for. Each source but the last gets at most half of the time left, so that one that hangs leaves time for the
    others. The error is that of the last source, with one line per source tried.
    """

    def __init__(
        self,
        lookup: SourceLookup,
        cache: Cache,
        cache_reader: CacheReader,
        *,
        clock: Clock,
        settings: InspectorSettings,
    ) -> None:
        self._lookup = lookup
        self._cache_reader = cache_reader
        self._cache = cache
        self._clock = clock
        self._settings = settings

    async def look_up(self, request: LookupRequest, *, wait: bool, tenants: Tenants) -> LookupResult:
        """The first inspection by a source, or the last error; never raises ``Failure``."""
        settings = self._settings
        budget = TimeBudget(self._clock, seconds=settings.timeout, max_wait=settings.max_wait)
        context = RequestContext(budget, wait=False, tenants=tenants)
        attempts: list[str] = []
        failure: Failure | None = None
        try:
            for source, credentials in zip(request.sources, request.credentials, strict=True):
                last = source is request.sources[-1]
                context.wait = wait and last
                context.budget = budget if last else budget.half()
                try:
                    inspection = await self._lookup.look_up(request.query, source, credentials, context)
                except Failure as error:
                    failure = error
                    attempts.append(f"{'mirror ' if source.mirror else ''}{error.error.message}")
                else:
                    self._cache.drop_negative((request.key, request.names))
                    return LookupResult(inspection, request.names)
            if failure is None:
                raise AssertionError("an image has at least one source")
            return LookupResult(self._failed(request, failure, attempts, context), request.names)
        finally:
            context.close()

    def _failed(
        self, request: LookupRequest, failure: Failure, attempts: Sequence[str], context: RequestContext
    ) -> Inspection:
        reference, source = request.query.reference, request.sources[-1]
        error = failure.about(reference.canonical, tuple(attempts) if len(attempts) > 1 else ())
        helper = next((each for each in request.store.warnings(source) if each.code == "credential-helper"), None)
        if error.error_class == "auth" and helper is not None:
            message = f"{error.message}; {helper.message}"
            error = msgspec.structs.replace(error, code="credential-helper", message=message)
        if error.error_class in ("absent", "auth"):
            key, names = request.key, request.names
            weight = len(reference.canonical) + sum(100 + len(name) for each in names for name in each)
            self._cache.put_negative((key, names), error, self._settings.negative_ttl, weight=weight)
        inspection = Inspection(
            reference,
            Status.ERROR,
            error=error,
            warnings=tuple(context.warnings),
            source=source_used(source),
            requests=context.requests,
        )
        if error.error_class in PASSING and (good := self._last_good(request)) is not None:
            inspection = msgspec.structs.replace(inspection, last_good=good[0], last_good_age=good[1])
        return inspection

    def _last_good(self, request: LookupRequest) -> tuple[Inspection, float] | None:
        """The last reading for these credentials and its age in seconds, 0 for a digest."""
        now = self._clock.monotonic()
        for source, fingerprints in zip(request.sources, request.key.fingerprints, strict=True):
            known = self._cache_reader.known(
                source,
                fingerprints,
                not_before=float("-inf"),
                memory_only=False,
                proof_seconds=LAST_GOOD_PROOF,
                last_good=True,
            )
            if known is not None:
                age = 0.0 if source.digest is not None else now - known.checked_at
                return self._cache_reader.inspection(request.query, source, known), age
        return None


def _renamed(inspection: Inspection, names: Mapping[str, str]) -> Inspection:
    pattern = re.compile("|".join(map(re.escape, sorted(names, key=len, reverse=True))))

    def own(text: str) -> str:
        return pattern.sub(lambda found: names[found[0]], text)

    warnings = tuple(InspectionWarning(each.code, own(each.message)) for each in inspection.warnings)
    error = inspection.error
    if error is not None:
        attempts = tuple(map(own, error.attempts))
        error = msgspec.structs.replace(error, message=own(error.message), attempts=attempts)
    return msgspec.structs.replace(inspection, warnings=warnings, error=error)
