"""Answers that need no request: what the cache holds, for whom, and how old it may be (RG-110, RG-111, RG-115, RG-116).

A cached answer takes three things together: a tag that was checked recently enough, the reading of the digest it named,
and a proof that one of the caller's credentials, or anonymous access, may read that repository. Nothing here waits.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

from polyarch.clock import Clock
from polyarch.oci.answer import Inspection, SourceUsed, Status
from polyarch.oci.auth.credentials import CredentialStore
from polyarch.oci.auth.entries import Credential
from polyarch.oci.cache.image_reading import BundleMode
from polyarch.oci.cache.memory import Cache, Place, Proof, ReadingRecord
from polyarch.oci.mirrors.sources import Source
from polyarch.oci.reference import Reference
from polyarch.oci.settings import InspectorSettings
from polyarch.oci.traffic.pacing import Pacing

FAILURE_MEMORY = 30.0
"""Seconds after a failed check during which an older reading answers instead (PL-407)."""


class Question(NamedTuple):
    """What is asked. A check of the tag at or after ``not_before`` (monotonic) is recent enough."""

    reference: Reference
    mode: BundleMode
    not_before: float


class Known(NamedTuple):
    """A reading the caller may use, and when its tag was checked (0.0 for a digest)."""

    record: ReadingRecord
    checked_at: float
    public: bool


class Key(NamedTuple):
    """Identity of a question: look-ups with equal keys are shared (RG-113)."""

    reference: Reference
    fingerprints: tuple[tuple[str, ...], ...]
    mode: BundleMode


Names = tuple[tuple[str, ...], ...]
"""Origins of the credentials of a ``Key``, in its order. Equal secrets may have different origins."""


def names_of(credentials: Iterable[Iterable[Credential]]) -> Names:
    return tuple(tuple(credential.origin for credential in each) for each in credentials)


def fingerprints_of(credentials: Iterable[Credential], key: bytes) -> tuple[str, ...]:
    return tuple([credential.fingerprint(key) for credential in credentials])


def place_of(source: Source) -> Place:
    """The cache place of a source. The path and ``ns=`` of a mirror distinguish the registries behind it.

    Unverified sources have places of their own: otherwise a tag read with ``--insecure`` would be used for minutes by
    callers that require verification (RG-101).
    """
    prefix = "" if source.path_prefix == "/v2" else source.path_prefix
    query = f"?{source.query}" if source.query else ""
    unverified = "" if source.verified else "!unverified"
    return Place(f"{source.host}{prefix}{query}{unverified}", source.repository)


def source_used(source: Source) -> SourceUsed:
    return SourceUsed(source.host, mirror=source.mirror, insecure=source.insecure)


class Recall:
    """Reads the cache."""

    def __init__(self, cache: Cache, pacing: Pacing, *, clock: Clock, settings: InspectorSettings) -> None:
        self._cache = cache
        self._pacing = pacing
        self._clock = clock
        self._settings = settings

    def known(
        self,
        source: Source,
        fingerprints: Sequence[str],
        *,
        not_before: float,
        memory_only: bool,
        proof_seconds: float | None = None,
        last_good: bool = False,
    ) -> Known | None:
        """A reading of a recently checked tag, readable in this place, with a proof (RG-111).

        ``last_good`` accepts the tag's previous digest if the current one was not read (RG-116).
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
                return Known(record, checked_at, proof.public)
        return None

    def answer(self, question: Question, source: Source, known: Known) -> Inspection:
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
        self, place: Place, fingerprints: Sequence[str], *, memory_only: bool = False, seconds: float | None = None
    ) -> Proof | None:
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
        self, question: Question, sources: Sequence[Source], fingerprints: Sequence[Sequence[str]]
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
        sources: Sequence[Source],
        store: CredentialStore,
        *,
        mode: BundleMode,
        stale_for: float,
    ) -> Inspection | None:
        """The answer without I/O (RG-115): a reading, a stale one, or a remembered refusal or absence; None if unknown.

        Public readings are tried first, so that a public image reads no secret (PL-422).
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
        key = Key(reference, tuple(all_fingerprints), mode)
        error = self._cache.negative((key, names_of(all_candidates)))
        return None if error is None else Inspection(reference, Status.ERROR, error=error, cached=True)

    def _remembered(
        self, reference: Reference, source: Source, fingerprints: Sequence[str], mode: BundleMode, stale_for: float
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
        answer = self.answer(Question(reference, mode, not_before), source, known)
        return msgspec.structs.replace(answer, stale=True) if stale else answer

    def _fails(self, source: Source, now: float) -> bool:
        """Whether the host is paused or its circuit open, or a check of this tag failed a short time ago."""
        if self._pacing.busy(source.host):
            return True
        tag = self._cache.tag(place_of(source), source.tag or "", memory_only=True)
        return tag is not None and tag.failed_at is not None and now - tag.failed_at < FAILURE_MEMORY
