"""Looks up one image at one source: cache, HEAD or GET, and with which credentials.

The aim is the fewest requests that still prove two things: that the tag names this digest now, and that the caller may
read the repository. A HEAD proves both and is often free of charge; a GET returns the content as well. Results go into
the cache at once, so that callers waiting for the same thing find them there."""

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
from polyarch.oci.documents import ContentError
from polyarch.oci.image.client import FetchedManifest, HeadResult, RegistryClient
from polyarch.oci.image.reader import ImageReader
from polyarch.oci.inspection import Inspection, InspectionWarning, SourceUsed, Status
from polyarch.oci.mirrors.sources import PullSource
from polyarch.oci.reference import DOCKER_HUB, DOCKER_HUB_HOST, Reference
from polyarch.oci.settings import InspectorSettings
from polyarch.oci.traffic.concurrency import SingleFlight
from polyarch.oci.traffic.exchange import RequestContext, TimeBudget
from polyarch.oci.traffic.failures import PASSING, Failure
from polyarch.oci.traffic.rate_limiter import RegistryRateLimiter

FAILURE_MEMORY = 30.0
"""Seconds after a failed check during which an older reading answers instead."""


class LookupQuery(NamedTuple):
    """What is asked. A check of the tag at or after ``not_before`` (monotonic) is recent enough."""

    reference: Reference
    mode: BundleMode
    not_before: float


class CacheHit(NamedTuple):
    """A reading the caller may use, and when its tag was checked (0.0 for a digest)."""

    record: ReadingRecord
    checked_at: float
    public: bool


class LookupKey(NamedTuple):
    """Identity of a question: look-ups with equal keys are shared."""

    reference: Reference
    fingerprints: tuple[tuple[str, ...], ...]
    mode: BundleMode


Names = tuple[tuple[str, ...], ...]
"""Origins of the credentials of a ``Key``, in its order. Equal secrets may have different origins."""


def names_of(credentials: Iterable[Iterable[Credential]]) -> Names:
    return tuple(tuple(credential.origin for credential in each) for each in credentials)


def fingerprints_of(credentials: Iterable[Credential], key: bytes) -> tuple[str, ...]:
    return tuple([credential.fingerprint(key) for credential in credentials])


def place_of(source: PullSource) -> RepositoryLocation:
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
    """Reads the cache."""

    def __init__(self, cache: Cache, pacing: RegistryRateLimiter, *, clock: Clock, settings: InspectorSettings) -> None:
        self._cache = cache
        self._pacing = pacing
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
        place, cache = place_of(source), self._cache
        named: tuple[tuple[str, float], ...] = ((source.digest or "", 0.0),)
        if source.digest is None:
            tag = cache.tag(place, source.tag or "", memory_only=memory_only)
            if tag is None or tag.checked_at < not_before:
                return None
            named = ((tag.digest, tag.checked_at),)
            if last_good and tag.good is not None and tag.good[1] >= not_before:
                named = (*named, tag.good)
        proof = self.proof(place, fingerprints, memory_only=memory_only, seconds=proof_seconds)
        if proof is None:
            return None
        for digest, checked_at in named:
            record = cache.usable(digest, place, memory_only=memory_only)
            if record is not None:
                return CacheHit(record, checked_at, proof.public)
        return None

    def answer(self, question: LookupQuery, source: PullSource, known: CacheHit) -> Inspection:
        """A known reading as an answer."""
        return known.record.reading.answer(
            question.reference,
            mode=question.mode,
            source=source_used(source),
            cached=True,
            checked_at=known.checked_at,
            public=known.public,
        )

    def proof(
        self,
        place: RepositoryLocation,
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
            place,
            fingerprints,
            seconds=settings.proof_ttl if seconds is None else seconds,
            public_seconds=public_seconds if seconds is None else seconds,
            memory_only=memory_only,
        )

    # -- over all sources of an image ----------------------------------------------------------------------------------

    def first_known(
        self, question: LookupQuery, sources: Sequence[PullSource], fingerprints: Sequence[Sequence[str]]
    ) -> Inspection | None:
        """The answer of the first source whose reading is known, with the ``fingerprints`` of its credentials."""
        for source, each in zip(sources, fingerprints, strict=True):
            known = self.known(source, each, not_before=question.not_before, memory_only=False)
            if known is not None and known.record.reading.settles(question.mode):
                return self.answer(question, source, known)
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
        """The answer without I/O: a reading, a stale one, or a remembered refusal or absence; None if unknown.

        Public readings are tried first, so that a public image reads no secret.
        """
        for source in sources:
            answer = self._remembered(reference, source, (), mode, stale_for)
            if answer is not None:
                return answer
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
                answer = self._remembered(reference, source, fingerprints, mode, stale_for)
                if answer is not None:
                    return answer
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
        answer = self.answer(LookupQuery(reference, mode, not_before), source, known)
        return msgspec.structs.replace(answer, stale=True) if stale else answer

    def _fails(self, source: PullSource, now: float) -> bool:
        """Whether the host is paused or its circuit open, or a check of this tag failed a short time ago."""
        if self._pacing.busy(source.host):
            return True
        tag = self._cache.tag(place_of(source), source.tag or "", memory_only=True)
        return tag is not None and tag.failed_at is not None and now - tag.failed_at < FAILURE_MEMORY


# -- Looks up one image at one source: cache, HEAD or GET, and with which credentials.


MOVED = frozenset({"digest-mismatch", "not-found"})


class SourceLookup:
    """Looks up images at single sources. Several sources and stale answers are handled in ``tour`` and ``inspect``."""

    def __init__(
        self, client: RegistryClient, cache: Cache, recall: CacheReader, *, clock: Clock, settings: InspectorSettings
    ) -> None:
        self._client = client
        self._cache = cache
        self._clock = clock
        self._settings = settings
        self._reader = ImageReader(client)
        self._recall = recall
        self._probes: SingleFlight[tuple[RepositoryLocation, str], None] = SingleFlight()
        self._public: SingleFlight[tuple[RepositoryLocation, str, BundleMode], Inspection] = SingleFlight()

    async def close(self) -> None:
        await self._probes.close()
        await self._public.close()

    # -- asking --------------------------------------------------------------------------------------------------------

    async def ask(
        self, question: LookupQuery, source: PullSource, credentials: Sequence[Credential], visit: RequestContext
    ) -> Inspection:
        """The answer of this source. Raises ``Failure``."""
        if self._settings.public_probe:
            answer = await self._ask_publicly(question, source, credentials, visit)
            if answer is not None:
                return answer
        return await self._ask(question, self._access(source, credentials), visit)

    async def _ask_publicly(
        self, question: LookupQuery, source: PullSource, credentials: Sequence[Credential], visit: RequestContext
    ) -> Inspection | None:
        """The shared answer of anonymous access, one look-up for all callers; None if the repository is not public."""
        place = place_of(source)
        selector = source.digest or source.tag or ""
        charged = _is_among(source, self._settings.head_first_hosts)
        others = any(not credential.is_anonymous for credential in credentials)
        if not self._is_public(place):
            if self._cache.known_private(place, seconds=self._settings.private_ttl) or (charged and not others):
                return None
            if charged:
                try:
                    await self._probes.join((place, selector), lambda: self._probe(place, source, selector, visit))
                except Failure as failure:
                    if not (_is_about_anonymous(failure) and others):
                        raise
                if not self._is_public(place):
                    return None
        # Where GETs are charged, use the caller's own account; elsewhere anonymous access is enough.
        access_credentials = credentials if charged else (ANONYMOUS,)
        key = (place, selector, question.mode)
        while True:
            joined = key in self._public
            try:
                answer = await self._public.join(
                    key, lambda: self._ask(question, self._access(source, access_credentials), visit)
                )
            except Failure as failure:
                error_class = failure.error.error_class
                if error_class == "auth":
                    self._cache.mark_private(place)
                    if joined and charged:
                        return None  # other credentials than these were refused
                elif not _is_about_anonymous(failure) and (error_class != "absent" or self._is_public(place)):
                    raise
                if others:
                    return None
                raise
            if not joined:
                return answer
            if answer.checked_at is None or answer.checked_at >= question.not_before:
                return _as_if_asked(answer, question, visit)

    async def _probe(self, place: RepositoryLocation, source: PullSource, selector: str, visit: RequestContext) -> None:
        """Anonymous HEAD, which is free of charge; its digest for the tag is cached."""
        access = self._access(source, [ANONYMOUS])
        asked_at = self._clock.monotonic()
        try:
            stated = await self._client.head_manifest(access, selector, visit)
        except Failure as failure:
            if failure.error.error_class == "auth":
                self._cache.mark_private(place)
            elif failure.error.error_class != "absent":
                raise
            return
        if stated is None:
            self._cache.mark_private(place)
            return
        self._cache.put_proof(place, "")
        if source.digest is None:
            self._cache.put_tag(place, selector, TagRecord(stated.digest, asked_at, stated.digest, stated.etag))

    def _access(self, source: PullSource, credentials: Sequence[Credential]) -> SourceCredentials:
        return SourceCredentials(source, credentials, loopback=self._settings.insecure_loopback)

    def _is_public(self, place: RepositoryLocation) -> bool:
        return self._recall.proof(place, ()) is not None

    async def _ask(self, question: LookupQuery, access: SourceCredentials, visit: RequestContext) -> Inspection:
        place = place_of(access.source)
        try:
            if access.source.digest is not None:
                return await self._by_digest(question, access, place, access.source.digest, visit)
            return await self._by_tag(question, access, place, access.source.tag or "", visit)
        except Failure as failure:
            if failure.error.error_class in ("transient", "limit") and access.source.digest is None:
                self._cache.tag_failed(place, access.source.tag or "")
            raise
        finally:
            for refused in access.refused:
                self._cache.drop_proof(place, refused.fingerprint(self._cache.key))

    async def _by_digest(
        self,
        question: LookupQuery,
        access: SourceCredentials,
        place: RepositoryLocation,
        digest: str,
        visit: RequestContext,
    ) -> Inspection:
        record = self._cache.usable(digest, place)
        if record is not None:
            if not self._proves(access, place):
                # Another caller read it: one HEAD proves access. A following GET is charged.
                stated = await self._client.head_manifest(access, digest, visit)
                if stated is None:
                    return await self._get(question, access, place, digest, visit, after_head=True)
                self._prove(access, place)
            return await self._from_record(question, access, place, record, visit)
        self._raise_known_fault(access, place, digest)
        return await self._get(question, access, place, digest, visit)

    async def _by_tag(
        self,
        question: LookupQuery,
        access: SourceCredentials,
        place: RepositoryLocation,
        tag: str,
        visit: RequestContext,
    ) -> Inspection:
        record = self._cache.tag(place, tag)
        if record is None and not (
            _is_among(access.source, self._settings.head_first_hosts) and self._cache.knows(place)
        ):
            return await self._get(question, access, place, tag, visit)
        if record is not None and record.checked_at >= question.not_before and self._proves(access, place):
            return await self._at_digest(question, access, place, record, visit)
        asked_at = self._clock.monotonic()
        stated = await self._client.head_manifest(access, tag, visit)
        if stated is None:
            return await self._get(question, access, place, tag, visit, known=record, after_head=True)
        self._prove(access, place)
        named = TagRecord(_named(record, stated), asked_at, stated.digest, stated.etag)
        kept = self._cache.put_tag(place, tag, named)
        return await self._at_digest(question, access, place, kept, visit)

    async def _at_digest(
        self,
        question: LookupQuery,
        access: SourceCredentials,
        place: RepositoryLocation,
        tag: TagRecord,
        visit: RequestContext,
    ) -> Inspection:
        """The reading of a tag's digest; if the registry's digest leads nowhere, GET by the tag itself."""
        record = self._cache.usable(tag.digest, place)
        if record is not None:
            return await self._from_record(question, access, place, record, visit, checked_at=tag.checked_at)
        self._raise_known_fault(access, place, tag.digest)
        try:
            return await self._get(question, access, place, tag.digest, visit, checked_at=tag.checked_at)
        except Failure as failure:
            if failure.error.code not in MOVED:
                raise
        return await self._get(question, access, place, access.source.tag or "", visit)

    async def _get(
        self,
        question: LookupQuery,
        access: SourceCredentials,
        place: RepositoryLocation,
        selector: str,
        visit: RequestContext,
        *,
        checked_at: float | None = None,
        known: TagRecord | None = None,
        after_head: bool = False,
    ) -> Inspection:
        """GET and read the manifest. ``known`` is the tag's cached record, used for If-None-Match."""
        asked_at = self._clock.monotonic()
        by_tag = ":" not in selector
        unchanged = None
        if known is not None and known.etag:
            unchanged = self._cache.usable(known.digest, place)
        etag = known.etag if known is not None and unchanged is not None else ""
        fetched = await self._client.get_manifest(access, selector, visit, etag=etag)
        if after_head:
            self._client.has_no_head(access)
        self._prove(access, place)
        if fetched is None and known is not None and unchanged is not None:
            self._cache.put_tag(place, selector, TagRecord(known.digest, asked_at, known.advertised, known.etag))
            return await self._from_record(question, access, place, unchanged, visit, checked_at=asked_at)
        if fetched is None:
            raise AssertionError("304 without If-None-Match")
        if by_tag:
            advertised = fetched.advertised or fetched.digest
            self._cache.put_tag(place, selector, TagRecord(fetched.digest, asked_at, advertised, fetched.etag))
        return await self._read(question, access, place, fetched, visit, checked_at=asked_at if by_tag else checked_at)

    async def _read(
        self,
        question: LookupQuery,
        access: SourceCredentials,
        place: RepositoryLocation,
        fetched: FetchedManifest,
        visit: RequestContext,
        *,
        checked_at: float | None,
    ) -> Inspection:
        try:
            read = await self._reader.read(fetched, access, visit, mode=question.mode)
        except ContentError as error:
            failure = Failure.of(error.code, access.source.host, error.message)
            self._keep_fault(place, fetched.digest, failure)
            raise failure from None
        except Failure as failure:
            self._keep_fault(place, fetched.digest, failure)
            raise
        public = self._is_public_access(access, place)
        if read.complete:
            # Only if this read was anonymous: the repository may not be public any more.
            anonymously = access.accepted is not None and access.accepted.is_anonymous
            self._cache.put_reading(read.reading, place, public=anonymously)
        else:
            self._cache.put_incomplete(read.reading, place, seconds=self._settings.negative_ttl)
        return self._told(question, access, read.reading, visit, checked_at=checked_at, cached=False, public=public)

    async def _from_record(
        self,
        question: LookupQuery,
        access: SourceCredentials,
        place: RepositoryLocation,
        record: ReadingRecord,
        visit: RequestContext,
        *,
        checked_at: float | None = None,
    ) -> Inspection:
        reading = record.reading
        public = self._is_public_access(access, place)
        if not reading.settles(question.mode):
            reading = await self._reader.look_for_bundle(reading, access, visit)
            if reading.bundle is not None and record.complete:
                self._cache.put_reading(reading, place, public=record.public)
        return self._told(question, access, reading, visit, checked_at=checked_at, cached=True, public=public)

    def _told(
        self,
        question: LookupQuery,
        access: SourceCredentials,
        reading: ImageReading,
        visit: RequestContext,
        *,
        checked_at: float | None,
        cached: bool,
        public: bool,
    ) -> Inspection:
        return reading.answer(
            question.reference,
            mode=question.mode,
            source=source_used(access.source),
            warnings=tuple(visit.warnings),
            cached=cached,
            requests=visit.requests,
            checked_at=checked_at,
            public=public,
        )

    # -- keeping what was learned --------------------------------------------------------------------------------------

    def _prove(self, access: SourceCredentials, place: RepositoryLocation) -> None:
        if access.accepted is not None:
            self._cache.put_proof(place, access.accepted.fingerprint(self._cache.key))

    def _proves(self, access: SourceCredentials, place: RepositoryLocation) -> bool:
        fingerprints = [credential.fingerprint(self._cache.key) for credential in access.credentials]
        return self._recall.proof(place, fingerprints) is not None

    def _is_public_access(self, access: SourceCredentials, place: RepositoryLocation) -> bool:
        return (access.accepted is not None and access.accepted.is_anonymous) or self._is_public(place)

    def _keep_fault(self, place: RepositoryLocation, digest: str, failure: Failure) -> None:
        if failure.error.error_class == "content":
            self._cache.put_fault(place, digest, failure.error, self._settings.content_error_ttl)

    def _raise_known_fault(self, access: SourceCredentials, place: RepositoryLocation, digest: str) -> None:
        fault = self._cache.fault(place, digest)
        if fault is not None and self._proves(access, place):
            raise Failure(fault)


def _named(record: TagRecord | None, stated: HeadResult) -> str:
    """The digest of a tag after a HEAD: the known one if the registry repeats what it stated for it."""
    if record is not None and stated.digest in (record.digest, record.advertised):
        return record.digest
    return stated.digest


def _as_if_asked(answer: Inspection, question: LookupQuery, visit: RequestContext) -> Inspection:
    """Adapt an answer shared with another caller: nothing in it is specific to that caller."""
    warnings = tuple(each for each in answer.warnings if each.code != CREDENTIALS_REJECTED)
    return msgspec.structs.replace(
        answer, reference=question.reference, warnings=warnings, requests=visit.requests, cached=True
    )


def _is_about_anonymous(failure: Failure) -> bool:
    """Whether callers with an account may have another answer: a rate limit is one account's, and a login page
    is for who is not logged in.
    """
    return failure.error.error_class == "limit" or failure.error.code == NOT_A_REGISTRY


def _is_among(source: PullSource, hosts: Sequence[str]) -> bool:
    return source.host in hosts or (source.host == DOCKER_HUB_HOST and DOCKER_HUB in hosts)


# -- Looks up one image at all its sources in turn, and builds the error if none answers.


LAST_GOOD_PROOF = 24 * 3600.0
"""Maximum age of the proof for a last good reading, which is the maximum of ``stale_for``."""


class LookupRequest(NamedTuple):
    """A question, its sources, and the credentials for each source."""

    question: LookupQuery
    key: LookupKey
    sources: Sequence[PullSource]
    credentials: Sequence[Sequence[Credential]]
    store: CredentialStore

    @property
    def names(self) -> "Names":
        return names_of(self.credentials)


class LookupResult(NamedTuple):
    """The result of a look-up, with the names of the credentials of the caller that started it."""

    answer: Inspection
    names: Names

    def told(self, errand: LookupRequest) -> Inspection:
        """The answer for one caller: with its own names for the shared credentials, and with the warnings of
        its own credential store.
        """
        answer = self.answer
        pairs = zip(
            (name for each in self.names for name in each), (n for each in errand.names for n in each), strict=True
        )
        others = {theirs: own for theirs, own in pairs if theirs != own}
        if others:
            answer = _renamed(answer, others)
        source = next((each for each in errand.sources if source_used(each) == answer.source), errand.sources[-1])
        found = (InspectionWarning(each.code, each.message) for each in errand.store.warnings(source))
        new = tuple(each for each in found if each not in answer.warnings)
        return msgspec.structs.replace(answer, warnings=answer.warnings + new) if new else answer


class MirrorFallback:
    """Runs look-ups over all sources."""

    def __init__(
        self, lookup: SourceLookup, cache: Cache, recall: CacheReader, *, clock: Clock, settings: InspectorSettings
    ) -> None:
        self._lookup = lookup
        self._recall = recall
        self._cache = cache
        self._clock = clock
        self._settings = settings

    async def go(self, errand: LookupRequest, *, wait: bool, tenant: str) -> LookupResult:
        """The first answer, or the last error; never raises ``Failure``."""
        settings = self._settings
        budget = TimeBudget(self._clock, seconds=settings.timeout, max_wait=settings.max_wait)
        visit = RequestContext(budget, wait=False, tenant=tenant)
        attempts: list[str] = []
        failure: Failure | None = None
        for source, credentials in zip(errand.sources, errand.credentials, strict=True):
            last = source is errand.sources[-1]
            visit.wait = wait and last
            visit.budget = budget if last else budget.half()
            try:
                answer = await self._lookup.ask(errand.question, source, credentials, visit)
            except Failure as error:
                failure = error
                attempts.append(f"{'mirror ' if source.mirror else ''}{error.error.message}")
            else:
                self._cache.drop_negative((errand.key, errand.names))
                return LookupResult(answer, errand.names)
        if failure is None:
            raise AssertionError("an image has at least one source")
        return LookupResult(self._failed(errand, failure, attempts, visit), errand.names)

    def _failed(
        self, errand: LookupRequest, failure: Failure, attempts: Sequence[str], visit: RequestContext
    ) -> Inspection:
        reference, source = errand.question.reference, errand.sources[-1]
        error = failure.about(reference.canonical, tuple(attempts) if len(attempts) > 1 else ())
        helper = next((each for each in errand.store.warnings(source) if each.code == "credential-helper"), None)
        if error.error_class == "auth" and helper is not None:
            message = f"{error.message}; {helper.message}"
            error = msgspec.structs.replace(error, code="credential-helper", message=message)
        if error.error_class in ("absent", "auth"):
            key, names = errand.key, errand.names
            weight = len(reference.canonical) + sum(100 + len(name) for each in names for name in each)
            self._cache.put_negative((key, names), error, self._settings.negative_ttl, weight=weight)
        answer = Inspection(
            reference,
            Status.ERROR,
            error=error,
            warnings=tuple(visit.warnings),
            source=source_used(source),
            requests=visit.requests,
        )
        if error.error_class in PASSING and (good := self._last_good(errand)) is not None:
            answer = msgspec.structs.replace(answer, last_good=good[0], last_good_age=good[1])
        return answer

    def _last_good(self, errand: LookupRequest) -> tuple[Inspection, float] | None:
        """The last reading for these credentials and its age in seconds, 0 for a digest."""
        now = self._clock.monotonic()
        for source, fingerprints in zip(errand.sources, errand.key.fingerprints, strict=True):
            known = self._recall.known(
                source,
                fingerprints,
                not_before=float("-inf"),
                memory_only=False,
                proof_seconds=LAST_GOOD_PROOF,
                last_good=True,
            )
            if known is not None:
                age = 0.0 if source.digest is not None else now - known.checked_at
                return self._recall.answer(errand.question, source, known), age
        return None


def _renamed(answer: Inspection, names: Mapping[str, str]) -> Inspection:
    pattern = re.compile("|".join(map(re.escape, sorted(names, key=len, reverse=True))))

    def own(text: str) -> str:
        return pattern.sub(lambda found: names[found[0]], text)

    warnings = tuple(InspectionWarning(each.code, own(each.message)) for each in answer.warnings)
    error = answer.error
    if error is not None:
        attempts = tuple(map(own, error.attempts))
        error = msgspec.structs.replace(error, message=own(error.message), attempts=attempts)
    return msgspec.structs.replace(answer, warnings=warnings, error=error)
