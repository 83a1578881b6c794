"""What is known of an image without a request, and to whom it may be told (RG-110, RG-111, RG-115, RG-116).

A tag that was checked lately enough, the reading of what it named, and a proof that those who ask may read there: only
all three together are an answer. Nothing here waits.
"""

from collections.abc import Sequence
from typing import NamedTuple

from polyarch.oci.answer import Inspection, SourceUsed
from polyarch.oci.cache.image_reading import BundleMode
from polyarch.oci.cache.memory import Cache, Place, Proof, ReadingRecord
from polyarch.oci.mirrors.sources import Source
from polyarch.oci.reference import Reference
from polyarch.oci.settings import InspectorSettings


class Question(NamedTuple):
    """What is asked. A check of the tag at or after ``not_before`` (monotonic) is recent enough."""

    reference: Reference
    mode: BundleMode
    not_before: float


class Known(NamedTuple):
    """A reading that may be told to those who ask, and when its tag was checked (0.0 for a digest)."""

    record: ReadingRecord
    checked_at: float
    public: bool


def place_of(source: Source) -> Place:
    """What tags and proofs are kept by. The path and ``ns=`` of a mirror tell the registries behind it apart.

    What was told by somebody who need not have been the registry stays apart from what a verified one says: else a tag
    that was read with ``--insecure`` would be believed for minutes by whoever did not allow that (RG-101).
    """
    prefix = "" if source.path_prefix == "/v2" else source.path_prefix
    query = f"?{source.query}" if source.query else ""
    unverified = "" if source.verified else "!unverified"
    return Place(f"{source.host}{prefix}{query}{unverified}", source.repository)


def source_used(source: Source) -> SourceUsed:
    return SourceUsed(source.host, mirror=source.mirror, insecure=source.insecure)


class Recall:
    """Looks in the tables."""

    def __init__(self, cache: Cache, settings: InspectorSettings) -> None:
        self._cache = cache
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
        """A reading whose tag was checked recently enough, in this place and with a proof (RG-111).

        ``last_good``: what the tag named before will do where nothing is known of what it names now (RG-116).
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
            record = cache.reading(digest, memory_only=memory_only)
            if record is not None and record.usable_in(place):
                return Known(record, checked_at, proof.public)
        return None

    def answer(self, question: Question, source: Source, known: Known) -> Inspection:
        """A known reading as an answer, without any request."""
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
        """That one of these may read there, or anybody; ``seconds`` stands in for the ages of the settings."""
        settings = self._settings
        public_seconds = settings.public_ttl if settings.public_probe else settings.proof_ttl
        return self._cache.proof(
            place,
            fingerprints,
            seconds=settings.proof_ttl if seconds is None else seconds,
            public_seconds=public_seconds if seconds is None else seconds,
            memory_only=memory_only,
        )
