"""The cache of image readings in memory, with proof of who may use each one.

An image reading is the platforms of one digest, which never change: it depends on the bytes below the digest and on
nothing else, not on tag, source, header, credential or time. That makes it safe to keep, export and share with
everybody. An inspection combines a reading with one request: its reference, its source, and whether operator bundles
count as images.
"""

import secrets
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Final, Literal, NamedTuple, Protocol, TypeVar

import msgspec

from polyarch.clock import Clock
from polyarch.oci.inspection import (
    WASM,
    Entry,
    Inspection,
    InspectionError,
    InspectionWarning,
    Kind,
    SkippedEntry,
    SourceUsed,
    Status,
)
from polyarch.oci.lru_cache import LRUCache
from polyarch.oci.metrics import Metrics, NoMetrics
from polyarch.oci.reference import Reference
from polyarch.platforms import are_wasm

VERSION: Final = 3
"""Raised whenever the same bytes give another reading, so that no kept one outlives the rule that made it."""

BundleMode = Literal["auto", "always", "never"]
OPERATOR_BUNDLE = "operator-bundle"


class ImageReading(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """The platforms of one digest. ``bundle`` is None until the labels of an index's image were checked."""

    digest: str
    kind: Kind
    media_type: str
    status: Status
    entries: tuple[Entry, ...] = ()
    skipped: tuple[SkippedEntry, ...] = ()
    warnings: tuple[InspectionWarning, ...] = ()
    neutral_reason: str = ""
    bundle: bool | None = None

    def settles(self, mode: BundleMode) -> bool:
        """Whether the reading answers in this mode; False if the bundle labels have to be read first."""
        if self.bundle is not None or self.kind != "index" or not self.entries or mode == "never":
            return True
        return mode == "auto" and len(self.entries) != 1

    @property
    def is_large(self) -> bool:
        return len(self.entries) + len(self.skipped) > LARGE_ENTRIES

    @property
    def size(self) -> int:
        """Approximate size in memory, in bytes; digests are most of it."""
        texts = sum(len(warning.code) + len(warning.message) for warning in self.warnings)
        return 700 + 330 * len(self.entries) + 230 * len(self.skipped) + 200 * len(self.warnings) + texts

    def inspection(
        self,
        reference: Reference,
        *,
        mode: BundleMode,
        source: SourceUsed | None,
        warnings: tuple[InspectionWarning, ...] = (),
        cached: bool = False,
        requests: int = 0,
        checked_at: float | None = None,
        public: bool = False,
    ) -> Inspection:
        """The answer for a reference; ``warnings`` of this request follow those of the content."""
        status, reason, found = self.status, self.neutral_reason, self.warnings
        if self.bundle and mode != "never":
            status, reason, found = Status.NEUTRAL, OPERATOR_BUNDLE, ()
        elif status is Status.RESOLVED and are_wasm(entry.platform for entry in self.entries):
            status, reason = Status.NEUTRAL, WASM
        return Inspection(
            reference=reference,
            status=status,
            kind=self.kind,
            digest=self.digest,
            media_type=self.media_type,
            entries=self.entries,
            skipped=self.skipped,
            warnings=found + warnings if warnings else found,
            neutral_reason=reason,
            source=source,
            cached=cached,
            requests=requests,
            checked_at=None if reference.digest else checked_at,
            public=public,
        )


# -- the cache ---------------------------------------------------------------------------------------------------------
# A hit takes three tables: a *tag* record says which digest a tag named at its last check, a *reading* what is known of
# that digest, and a *proof* that this credential, or anonymous access, may read the repository. A reading made with one
# tenant's credential therefore never answers another tenant, and an anonymous one answers everybody. What depends on
# more than the bytes of a digest is kept for the location that said it: tags, proofs, and readings that lack a child.
# Two more tables cache failures: rejections and absences per reference and credential, unusable content per location
# and digest.
#
# Times are monotonic. A ``Backing``, such as the cache on disk, is read on a miss and written by ``flush``. Methods
# with ``memory_only`` never read it.


MAX_READINGS = 10_000
MAX_BYTES = 36 * 2**20
LARGE_ENTRIES = 64
"""A reading of more entries is large: no registry has such an index of real images, and anybody can push one."""
LARGE_SHARE = 9
"""Large readings have one part in so many of the bytes, so that a few of them leave room for everybody's others."""
MAX_OTHERS = 20_000
MAX_FAILURE_BYTES = 4 * 2**20
"""Limit of each table of failures and incomplete readings: registries and tenants choose their size."""
LOCATIONS_PER_READING = 32
PROOFS_PER_LOCATION = 256

_K = TypeVar("_K", bound=Hashable)
_V = TypeVar("_V")


class RepositoryLocation(NamedTuple):
    """A repository at a source: the scope of a credential."""

    host: str
    repository: str


class TagRecord(NamedTuple):
    """The digest of a tag. ``advertised`` is the digest the registry stated; if it differs, it was wrong."""

    digest: str
    checked_at: float
    advertised: str = ""
    etag: str = ""
    failed_at: float | None = None
    """When a later check failed for transient reasons; None after a success."""
    good: tuple[str, float] | None = None
    """The last digest that was *read*, and when it was checked, if the tag has moved since."""


class ReadingRecord(NamedTuple):
    """A reading, the places where it was read, and whether it was read anonymously (``public``)."""

    reading: ImageReading
    locations: tuple[RepositoryLocation, ...]
    public: bool
    complete: bool = True
    """False: a child could not be read there."""

    def usable_in(self, location: RepositoryLocation) -> bool:
        """Whether it was read in this repository, or anonymously anywhere."""
        return self.public or location in self.locations


class LocationProofs:
    """Proofs of a repository: fingerprint → time of the last success; ``""`` is anonymous access."""

    __slots__ = ("private_since", "proofs")

    def __init__(self) -> None:
        self.proofs: dict[str, float] = {}
        self.private_since: float | None = None


class AccessProof(NamedTuple):
    at: float
    public: bool


class Backing(Protocol):
    """Persistent storage of a cache. Methods do not raise: after an error the store is empty."""

    @property
    def key(self) -> bytes: ...

    def load_reading(self, digest: str) -> ReadingRecord | None: ...

    def load_tag(self, location: RepositoryLocation, tag: str) -> TagRecord | None: ...

    def load_proofs(self, location: RepositoryLocation) -> dict[str, float]: ...

    def save(
        self,
        readings: Iterable[ReadingRecord],
        tags: Iterable[tuple[RepositoryLocation, str, TagRecord]],
        proofs: Iterable[tuple[RepositoryLocation, str, float]],
    ) -> None: ...

    def forget(self, location: RepositoryLocation, fingerprint: str) -> None: ...

    def close(self) -> None: ...


class Cache:
    """The tables. ``key`` is the random key of the fingerprints; with a backing, the backing's."""

    def __init__(
        self,
        clock: Clock,
        *,
        backing: Backing | None = None,
        metrics: Metrics | None = None,
        max_readings: int = MAX_READINGS,
        max_bytes: int = MAX_BYTES,
    ) -> None:
        self._clock = clock
        self._backing = backing
        self._metrics = metrics or NoMetrics()
        large = max_bytes // LARGE_SHARE
        self._readings: LRUCache[str, ReadingRecord] = LRUCache(max_readings, weight=max_bytes - large)
        self._large: LRUCache[str, ReadingRecord] = LRUCache(max_readings, weight=large)
        self._incomplete: LRUCache[tuple[RepositoryLocation, str], tuple[ReadingRecord, float]] = LRUCache(
            MAX_OTHERS, weight=MAX_FAILURE_BYTES
        )
        self._tags: LRUCache[tuple[RepositoryLocation, str], TagRecord] = LRUCache(MAX_OTHERS)
        self._locations: LRUCache[RepositoryLocation, LocationProofs] = LRUCache(MAX_OTHERS)
        self._negatives: LRUCache[Hashable, tuple[InspectionError, float]] = LRUCache(
            MAX_OTHERS, weight=MAX_FAILURE_BYTES
        )
        self._faults: LRUCache[tuple[RepositoryLocation, str], tuple[InspectionError, float]] = LRUCache(
            MAX_OTHERS, weight=MAX_FAILURE_BYTES
        )
        self._new_readings: dict[str, ReadingRecord] = {}
        self._new_tags: dict[tuple[RepositoryLocation, str], TagRecord] = {}
        self._new_proofs: dict[tuple[RepositoryLocation, str], float] = {}
        self.key = backing.key if backing is not None else secrets.token_bytes(32)
        self.changes = 0
        """Incremented for every new or removed reading, tag and proof, so that exporters can detect changes."""
        self.refreshes = 0
        """Incremented whenever only the time of a known tag or proof moves."""

    # -- readings ------------------------------------------------------------------------------------------------------

    def reading(self, digest: str, *, memory_only: bool = False) -> ReadingRecord | None:
        """The complete reading of a digest, whoever may use it."""
        record = self._loaded(digest, memory_only=memory_only)
        self._metrics.cache("readings", "miss" if record is None else "hit")
        return record

    def usable(self, digest: str, location: RepositoryLocation, *, memory_only: bool = False) -> ReadingRecord | None:
        """The reading for this place: the complete one if it was read there, or anonymously anywhere; else what the
        place itself has shown, without a child that it has not.
        """
        record = self.reading(digest, memory_only=memory_only)
        if record is not None and record.usable_in(location):
            return record
        return self._unexpired(self._incomplete, (location, digest))

    def put_reading(
        self, reading: ImageReading, location: RepositoryLocation, *, public: bool, restored: bool = False
    ) -> None:
        """Keep a complete reading and its known places. One that is ``restored`` from elsewhere replaces none that this
        process has made itself.
        """
        known = self._loaded(reading.digest)
        locations: tuple[RepositoryLocation, ...] = (location,)
        if known is not None:
            locations = (*(each for each in known.locations if each != location), location)[-LOCATIONS_PER_READING:]
            public = public or known.public
            bundle = known.reading.bundle if reading.bundle is None else reading.bundle
            kept = known.reading if restored else reading
            reading = kept if kept.bundle == bundle else msgspec.structs.replace(kept, bundle=bundle)
        record = ReadingRecord(reading, locations, public=public)
        self._keep(record)
        self._incomplete.pop((location, reading.digest))
        self.changes += record != known
        if self._backing is not None:
            self._new_readings[reading.digest] = record

    def put_incomplete(self, reading: ImageReading, location: RepositoryLocation, *, seconds: float) -> None:
        """Keep a reading that lacks a child, for its place only: another place may have the child."""
        record = ReadingRecord(reading, (location,), public=False, complete=False)
        until = self._clock.monotonic() + seconds
        self._incomplete.put((location, reading.digest), (record, until), weight=reading.size)

    def _loaded(self, digest: str, *, memory_only: bool = False) -> ReadingRecord | None:
        record = self._in_memory(digest)
        if record is None and self._backing is not None and not memory_only:
            record = self._backing.load_reading(digest)
            if record is not None:
                self._keep(record)
        return record

    def readings(self) -> Iterator[ReadingRecord]:
        """The readings in memory that are not large, least recently used first."""
        return (record for _, record in self._readings)

    def _in_memory(self, digest: str) -> ReadingRecord | None:
        return self._readings.get(digest) or self._large.get(digest)

    def _keep(self, record: ReadingRecord) -> None:
        table = self._large if record.reading.is_large else self._readings
        table.put(record.reading.digest, record, weight=record.reading.size)

    # -- tags ----------------------------------------------------------------------------------------------------------

    def tag(self, location: RepositoryLocation, tag: str, *, memory_only: bool = False) -> TagRecord | None:
        record = self._tags.get((location, tag))
        if record is None and self._backing is not None and not memory_only:
            record = self._backing.load_tag(location, tag)
            if record is not None:
                self._tags.put((location, tag), record)
        self._metrics.cache("tags", "miss" if record is None else "hit")
        return record

    def put_tag(self, location: RepositoryLocation, tag: str, record: TagRecord) -> TagRecord:
        """Keep what a tag names, and what it named before until the new content has been read."""
        before = self._tags.get((location, tag))
        is_known = before is not None and before.digest == record.digest
        if before is not None:
            was_read = before.digest != record.digest and self._in_memory(before.digest) is not None
            record = record._replace(good=(before.digest, before.checked_at) if was_read else before.good)
        self._tags.put((location, tag), record)
        self.changes += not is_known
        self.refreshes += is_known
        if self._backing is not None:
            self._new_tags[location, tag] = record
        return record

    def tag_failed(self, location: RepositoryLocation, tag: str) -> None:
        """A check failed for a transient reason: the record may be used in its place."""
        record = self._tags.get((location, tag))
        if record is not None:
            self._tags.put((location, tag), record._replace(failed_at=self._clock.monotonic()))

    def tags(self) -> Iterator[tuple[RepositoryLocation, str, TagRecord]]:
        return ((location, tag, record) for (location, tag), record in self._tags)

    # -- proofs --------------------------------------------------------------------------------------------------------

    def proof(
        self,
        location: RepositoryLocation,
        fingerprints: Sequence[str],
        *,
        seconds: float,
        public_seconds: float,
        memory_only: bool = False,
    ) -> AccessProof | None:
        """Proof that one of these credentials, or anonymous access, may read there.

        ``seconds`` is the maximum age, ``public_seconds`` that of an anonymous proof.
        """
        record = self._location(location, memory_only=memory_only)
        found: AccessProof | None = None
        if record is not None:
            now = self._clock.monotonic()
            at = record.proofs.get("")
            if at is not None and now - at < public_seconds:
                found = AccessProof(at, public=True)
            else:
                for fingerprint in fingerprints:
                    at = record.proofs.get(fingerprint) if fingerprint else None
                    if at is not None and now - at < seconds:
                        found = AccessProof(at, public=False)
                        break
        self._metrics.cache("proofs", "miss" if found is None else "hit")
        return found

    def put_proof(self, location: RepositoryLocation, fingerprint: str, *, at: float | None = None) -> None:
        """A request with this credential succeeded, now or at the time ``at``."""
        record = self._location(location) or LocationProofs()
        at = self._clock.monotonic() if at is None else at
        if fingerprint not in record.proofs:
            self.changes += 1
            if len(record.proofs) >= PROOFS_PER_LOCATION:
                del record.proofs[min(record.proofs, key=record.proofs.__getitem__)]
        else:
            self.refreshes += 1
        record.proofs[fingerprint] = at
        if not fingerprint:
            record.private_since = None
        self._locations.put(location, record)
        if self._backing is not None:
            self._new_proofs[location, fingerprint] = at

    def put_proof_if_newer(self, location: RepositoryLocation, fingerprint: str, at: float) -> None:
        if at > self.proofs_of(location).get(fingerprint, float("-inf")):
            self.put_proof(location, fingerprint, at=at)

    def proofs_of(self, location: RepositoryLocation) -> Mapping[str, float]:
        """Fingerprint → time, from memory."""
        record = self._locations.get(location)
        return record.proofs if record is not None else {}

    def drop_proof(self, location: RepositoryLocation, fingerprint: str) -> None:
        """The registry refused this credential (``""``: anonymous access), which it had accepted before."""
        record = self._locations.get(location)
        if record is not None and record.proofs.pop(fingerprint, None) is not None:
            self._new_proofs.pop((location, fingerprint), None)
            self.changes += 1
            if self._backing is not None:
                self._backing.forget(location, fingerprint)

    def drop_proofs(self, fingerprints: Iterable[str]) -> None:
        """Drop all proofs of these credentials; readings stay."""
        gone = {fingerprint for fingerprint in fingerprints if fingerprint}
        for _, record in self._locations:
            for fingerprint in gone & record.proofs.keys():
                del record.proofs[fingerprint]
                self.changes += 1
        for location, fingerprint in list(self._new_proofs):
            if fingerprint in gone:
                del self._new_proofs[location, fingerprint]

    def mark_private(self, location: RepositoryLocation) -> None:
        """An anonymous request was refused."""
        record = self._location(location) or LocationProofs()
        record.private_since = self._clock.monotonic()
        self._locations.put(location, record)
        self.drop_proof(location, "")

    def known_private(self, location: RepositoryLocation, *, seconds: float) -> bool:
        record = self._locations.get(location)
        since = record.private_since if record is not None else None
        return since is not None and self._clock.monotonic() - since < seconds

    def knows(self, location: RepositoryLocation) -> bool:
        """Whether anything in the repository was read before."""
        record = self._location(location)
        return record is not None and bool(record.proofs)

    def _location(self, location: RepositoryLocation, *, memory_only: bool = False) -> LocationProofs | None:
        record = self._locations.get(location)
        if record is None and self._backing is not None and not memory_only:
            record = LocationProofs()
            record.proofs.update(self._backing.load_proofs(location))
            self._locations.put(location, record)
        return record

    # -- failures ------------------------------------------------------------------------------------------------------

    def negative(self, key: Hashable) -> InspectionError | None:
        """The cached refusal or absence for this question."""
        found = self._unexpired(self._negatives, key)
        self._metrics.cache("negatives", "miss" if found is None else "hit")
        return found

    def put_negative(self, key: Hashable, error: InspectionError, seconds: float, *, weight: int = 0) -> None:
        """``weight``: approximate size of the key in bytes."""
        self._negatives.put(key, (error, self._clock.monotonic() + seconds), weight=weight + _weight(error))

    def drop_negative(self, key: Hashable) -> None:
        self._negatives.pop(key)

    def fault(self, location: RepositoryLocation, digest: str) -> InspectionError | None:
        """The cached error of unusable content at this place."""
        return self._unexpired(self._faults, (location, digest))

    def put_fault(self, location: RepositoryLocation, digest: str, error: InspectionError, seconds: float) -> None:
        self._faults.put((location, digest), (error, self._clock.monotonic() + seconds), weight=_weight(error))

    def _unexpired(self, table: LRUCache[_K, tuple[_V, float]], key: _K) -> _V | None:
        found = table.get(key)
        if found is None:
            return None
        value, until = found
        if until <= self._clock.monotonic():
            table.pop(key)
            return None
        return value

    # -- the backing ---------------------------------------------------------------------------------------------------

    def flush(self) -> None:
        """Write new entries to the backing."""
        if self._backing is not None and (self._new_readings or self._new_tags or self._new_proofs):
            self._backing.save(
                self._new_readings.values(),
                [(location, tag, record) for (location, tag), record in self._new_tags.items()],
                [(location, fingerprint, at) for (location, fingerprint), at in self._new_proofs.items()],
            )
        self._new_readings, self._new_tags, self._new_proofs = {}, {}, {}

    def close(self) -> None:
        self.flush()
        if self._backing is not None:
            self._backing.close()


def _weight(error: InspectionError) -> int:
    return 800 + len(error.message) + sum(map(len, error.attempts))
