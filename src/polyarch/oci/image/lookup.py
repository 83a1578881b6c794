"""Looks up one image at one source: cache, HEAD or GET, and with which credentials (RG-031, RG-032, RG-111, RG-112).

The aim is the fewest requests that still prove two things: that the tag names this digest now, and that the caller may
read the repository. A HEAD proves both and is often free of charge; a GET returns the content as well. Results go into
the cache at once, so that callers waiting for the same thing find them there.
"""

from collections.abc import Sequence

import msgspec

from polyarch.clock import Clock
from polyarch.oci.answer import Inspection
from polyarch.oci.auth.authorization import CREDENTIALS_REJECTED, NOT_A_REGISTRY, Access
from polyarch.oci.auth.entries import ANONYMOUS, Credential
from polyarch.oci.cache.image_reading import BundleMode, Reading
from polyarch.oci.cache.memory import Cache, Place, ReadingRecord, TagRecord
from polyarch.oci.documents import ContentError
from polyarch.oci.image.client import Fetched, RegistryClient, Stated
from polyarch.oci.image.descent import ImageReader
from polyarch.oci.image.recall import Question, Recall, place_of, source_used
from polyarch.oci.mirrors.sources import Source
from polyarch.oci.reference import DOCKER_HUB, DOCKER_HUB_HOST
from polyarch.oci.settings import InspectorSettings
from polyarch.oci.traffic.exchange import Visit
from polyarch.oci.traffic.failures import Failure
from polyarch.oci.traffic.flights import Flights

MOVED = frozenset({"digest-mismatch", "not-found"})


class Lookup:
    """Looks up images at single sources. Several sources and stale answers are handled in ``tour`` and ``inspect``."""

    def __init__(
        self, client: RegistryClient, cache: Cache, recall: Recall, *, clock: Clock, settings: InspectorSettings
    ) -> None:
        self._client = client
        self._cache = cache
        self._clock = clock
        self._settings = settings
        self._reader = ImageReader(client)
        self._recall = recall
        self._probes: Flights[tuple[Place, str], None] = Flights()
        self._public: Flights[tuple[Place, str, BundleMode], Inspection] = Flights()

    async def close(self) -> None:
        await self._probes.close()
        await self._public.close()

    # -- asking --------------------------------------------------------------------------------------------------------

    async def ask(
        self, question: Question, source: Source, credentials: Sequence[Credential], visit: Visit
    ) -> Inspection:
        """The answer of this source. Raises ``Failure``."""
        if self._settings.public_probe:
            answer = await self._ask_publicly(question, source, credentials, visit)
            if answer is not None:
                return answer
        return await self._ask(question, self._access(source, credentials), visit)

    async def _ask_publicly(
        self, question: Question, source: Source, credentials: Sequence[Credential], visit: Visit
    ) -> Inspection | None:
        """The shared answer of anonymous access, one look-up for all callers; None if the repository is not public
        (RG-112).
        """
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

    async def _probe(self, place: Place, source: Source, selector: str, visit: Visit) -> None:
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

    def _access(self, source: Source, credentials: Sequence[Credential]) -> Access:
        return Access(source, credentials, loopback=self._settings.insecure_loopback)

    def _is_public(self, place: Place) -> bool:
        return self._recall.proof(place, ()) is not None

    async def _ask(self, question: Question, access: Access, visit: Visit) -> Inspection:
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
        self, question: Question, access: Access, place: Place, digest: str, visit: Visit
    ) -> Inspection:
        record = self._cache.usable(digest, place)
        if record is not None:
            if not self._proves(access, place):
                # Another caller read it: one HEAD proves access (RG-111). A following GET is charged.
                stated = await self._client.head_manifest(access, digest, visit)
                if stated is None:
                    return await self._get(question, access, place, digest, visit, after_head=True)
                self._prove(access, place)
            return await self._from_record(question, access, place, record, visit)
        self._raise_known_fault(access, place, digest)
        return await self._get(question, access, place, digest, visit)

    async def _by_tag(self, question: Question, access: Access, place: Place, tag: str, visit: Visit) -> Inspection:
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
        self, question: Question, access: Access, place: Place, tag: TagRecord, visit: Visit
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
        question: Question,
        access: Access,
        place: Place,
        selector: str,
        visit: Visit,
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
        question: Question,
        access: Access,
        place: Place,
        fetched: Fetched,
        visit: Visit,
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
            # Only if this read was anonymous: the repository may not be public any more (RG-111).
            anonymously = access.accepted is not None and access.accepted.is_anonymous
            self._cache.put_reading(read.reading, place, public=anonymously)
        else:
            self._cache.put_incomplete(read.reading, place, seconds=self._settings.negative_ttl)
        return self._told(question, access, read.reading, visit, checked_at=checked_at, cached=False, public=public)

    async def _from_record(
        self,
        question: Question,
        access: Access,
        place: Place,
        record: ReadingRecord,
        visit: Visit,
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
        question: Question,
        access: Access,
        reading: Reading,
        visit: Visit,
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

    def _prove(self, access: Access, place: Place) -> None:
        if access.accepted is not None:
            self._cache.put_proof(place, access.accepted.fingerprint(self._cache.key))

    def _proves(self, access: Access, place: Place) -> bool:
        fingerprints = [credential.fingerprint(self._cache.key) for credential in access.credentials]
        return self._recall.proof(place, fingerprints) is not None

    def _is_public_access(self, access: Access, place: Place) -> bool:
        return (access.accepted is not None and access.accepted.is_anonymous) or self._is_public(place)

    def _keep_fault(self, place: Place, digest: str, failure: Failure) -> None:
        if failure.error.error_class == "content":
            self._cache.put_fault(place, digest, failure.error, self._settings.content_error_ttl)

    def _raise_known_fault(self, access: Access, place: Place, digest: str) -> None:
        fault = self._cache.fault(place, digest)
        if fault is not None and self._proves(access, place):
            raise Failure(fault)


def _named(record: TagRecord | None, stated: Stated) -> str:
    """The digest of a tag after a HEAD: the known one if the registry repeats what it stated for it."""
    if record is not None and stated.digest in (record.digest, record.advertised):
        return record.digest
    return stated.digest


def _as_if_asked(answer: Inspection, question: Question, visit: Visit) -> Inspection:
    """Adapt an answer shared with another caller: nothing in it is specific to that caller (PL-852)."""
    warnings = tuple(each for each in answer.warnings if each.code != CREDENTIALS_REJECTED)
    return msgspec.structs.replace(
        answer, reference=question.reference, warnings=warnings, requests=visit.requests, cached=True
    )


def _is_about_anonymous(failure: Failure) -> bool:
    """Whether callers with an account may have another answer: a rate limit is one account's (RG-063), and a login page
    is for who is not logged in.
    """
    return failure.error.error_class == "limit" or failure.error.code == NOT_A_REGISTRY


def _is_among(source: Source, hosts: Sequence[str]) -> bool:
    return source.host in hosts or (source.host == DOCKER_HUB_HOST and DOCKER_HUB in hosts)
