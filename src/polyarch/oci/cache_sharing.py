"""Export and import of readings between processes, so that a new leader starts with a warm cache.

An export contains only readings that are public or readable with a credential both sides have, and marks each reading
accordingly. Fingerprints are not exported: their key never leaves a process. ``shared_as`` identifies the
shared credentials without telling anything of them; an import that has others takes the public readings only. Times are
wall-clock times, because monotonic times are meaningless in another process; a time in the future counts as now.

Ten thousand readings take a tenth of a second, so both directions are generators that stop after every
:data:`BATCH` readings; the caller lets other tasks run in between.

Format: one JSON document, gzip-compressed, in the order of the digests, so that equal content gives equal bytes. If it
exceeds the size limit, the least recently used readings are left out."""

import math
import zlib
from collections.abc import Generator, Iterable
from typing import Final, Literal, TypeVar

import msgspec

from polyarch.clock import Clock
from polyarch.oci.auth.credentials import Credential
from polyarch.oci.cache import VERSION, Cache, ImageReading, ReadingRecord, RepositoryLocation, TagRecord

LIMIT: Final = 900 * 1024
MAX_DECOMPRESSED: Final = 64 * 2**20
GZIP: Final = 31
BATCH: Final = 50
DRIFT: Final = 1.0
"""Seconds by which the wall clock may drift before exported times follow it; they would change with every export."""
SETTLED: Final = 10.0
"""Least age of an imported check of a tag, in seconds. Clocks of two machines differ, so an import alone never proves
that a tag was checked within the last seconds, which ``imagePullPolicy: Always`` requires."""

Holder = Literal["public", "shared"]
Steps = Generator[None, None, bytes]
_T = TypeVar("_T")


class DamagedExport(ValueError):  # noqa: N818 - it says what the content is
    """Content that is not a valid export; the message names the problem."""


class _Tag(msgspec.Struct, frozen=True, array_like=True):
    tag: str
    checked_at: int
    advertised: str = ""


class _Place(msgspec.Struct, frozen=True, array_like=True):
    host: str
    repository: str
    holder: Holder
    proved_at: int
    tags: tuple[_Tag, ...] = ()


class _Item(msgspec.Struct, frozen=True):
    reading: ImageReading
    public: bool
    places: tuple[_Place, ...]


class _Export(msgspec.Struct, frozen=True):
    version: int
    readings: tuple[msgspec.Raw, ...]
    shared_as: str = ""


def drained(steps: Generator[None, None, _T]) -> _T:
    """The result of the steps, without a pause."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: _T = end.value
            return result


class CacheExporter:
    """Exports one cache, in at most ``limit`` bytes."""

    def __init__(self, cache: Cache, clock: Clock, *, limit: int = LIMIT) -> None:
        self._cache = cache
        self._clock = clock
        self._limit = limit
        self._offset: float | None = None

    def steps(self, shared: Iterable[Credential] = (), *, shared_as: str = "") -> Steps:
        """Serialise the shareable readings in memory."""
        cache, offset = self._cache, self._wall_offset()
        fingerprints = tuple(filter(None, (credential.fingerprint(cache.key) for credential in shared)))
        tags: dict[tuple[str, RepositoryLocation], list[_Tag]] = {}
        for location, tag, record in cache.tags():
            own = tags.setdefault((record.digest, location), [])
            own.append(_Tag(tag, _whole(record.checked_at + offset), record.advertised))
        items: list[tuple[str, bytes]] = []
        for number, reading in enumerate(reversed(list(cache.readings())), start=1):
            if number % BATCH == 0:
                yield
            if (item := _item(cache, reading, tags, fingerprints, offset)) is not None:
                items.append((reading.reading.digest, msgspec.json.encode(item)))
        while True:
            body = yield from _compressed(items, shared_as)
            if len(body) <= self._limit:
                return body
            items = items[: min(int(len(items) * 0.95 * self._limit / len(body)), len(items) - 1)]

    def _wall_offset(self) -> float:
        offset = self._clock.now().timestamp() - self._clock.monotonic()
        if self._offset is None or abs(offset - self._offset) > DRIFT:
            self._offset = offset
        return self._offset


class CacheImporter:
    """Adds exports to one cache, without replacing newer entries. Readings that the last export had as well are skipped
    unread."""

    def __init__(self, cache: Cache, clock: Clock) -> None:
        self._cache = cache
        self._clock = clock
        self._seen: frozenset[int] = frozenset()

    def forget(self) -> None:
        """The next import takes everything again: the shared credentials have changed."""
        self._seen = frozenset()

    def steps(
        self, body: bytes, shared: Iterable[Credential] = (), *, shared_as: str = ""
    ) -> Generator[None, None, int]:
        """Import an export; the number of readings taken. ``DamagedExport`` if it is invalid."""
        export = _read(body)
        fingerprints = tuple(filter(None, (credential.fingerprint(self._cache.key) for credential in shared)))
        if export.shared_as != shared_as:
            fingerprints = ()
        seen: set[int] = set()
        items: list[_Item] = []
        for number, raw in enumerate(export.readings, start=1):
            if number % BATCH == 0:
                yield
            mark = hash(bytes(raw))
            seen.add(mark)
            if mark not in self._seen:
                items.append(_decoded(raw))
        count = 0
        for number, item in enumerate(items, start=1):
            if number % BATCH == 0:
                yield
            count += self._take(item, fingerprints)
        self._seen = frozenset(seen)
        return count

    def _take(self, item: _Item, fingerprints: tuple[str, ...]) -> bool:
        cache, now, wall = self._cache, self._clock.monotonic(), self._clock.now().timestamp()
        told = False
        for each in item.places:
            holders = ("",) if each.holder == "public" else fingerprints
            if not holders:
                continue
            told = True
            location = RepositoryLocation(each.host, each.repository)
            cache.put_reading(item.reading, location, public=item.public, restored=True)
            for fingerprint in holders:
                cache.put_proof_if_newer(location, fingerprint, now - max(0.0, wall - each.proved_at))
            for tag in each.tags:
                checked_at = now - max(SETTLED, wall - tag.checked_at)
                known = cache.tag(location, tag.tag)
                if known is None or known.checked_at < checked_at:
                    cache.put_tag(location, tag.tag, TagRecord(item.reading.digest, checked_at, tag.advertised))
        return told


def _item(
    cache: Cache,
    record: ReadingRecord,
    tags: dict[tuple[str, RepositoryLocation], list[_Tag]],
    fingerprints: tuple[str, ...],
    offset: float,
) -> _Item | None:
    places: list[_Place] = []
    for location in sorted(record.locations):
        proofs = cache.proofs_of(location)
        holder: Holder = "public"
        at = proofs.get("")
        if at is None:
            holder = "shared"
            at = max((proofs[each] for each in fingerprints if each in proofs), default=None)
        if at is not None:
            own = sorted(tags.get((record.reading.digest, location), ()), key=lambda each: each.tag)
            places.append(_Place(location.host, location.repository, holder, _whole(at + offset), tuple(own)))
    return _Item(record.reading, record.public, tuple(places)) if places else None


def _whole(seconds: float) -> int:
    """Whole seconds: a time that was exported, imported and exported again is the same number."""
    return math.floor(seconds + 0.01)


def _compressed(items: Iterable[tuple[str, bytes]], shared_as: str) -> Steps:
    squeeze = zlib.compressobj(wbits=GZIP)
    head = b'{"version":%d,"shared_as":%b,"readings":[' % (VERSION, msgspec.json.encode(shared_as))
    parts = [squeeze.compress(head)]
    for number, (_, item) in enumerate(sorted(items)):
        if number % BATCH == BATCH - 1:
            yield
        parts.append(squeeze.compress(item if number == 0 else b"," + item))
    parts += [squeeze.compress(b"]}"), squeeze.flush()]
    return b"".join(parts)


def _read(body: bytes) -> _Export:
    try:
        inflate = zlib.decompressobj(wbits=GZIP)
        plain = inflate.decompress(body, MAX_DECOMPRESSED)
        if not inflate.eof:
            raise DamagedExport("shared readings: the compressed content is cut off or too large")
        export = msgspec.json.decode(plain, type=_Export)
    except zlib.error as error:
        raise DamagedExport(f"shared readings: not gzip ({error})") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise DamagedExport(f"shared readings: {error}") from None
    if export.version != VERSION:
        raise DamagedExport(f"shared readings: version {export.version}, expected {VERSION}")
    return export


def _decoded(raw: msgspec.Raw) -> _Item:
    try:
        return _decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise DamagedExport(f"shared readings: {error}") from None


_decode: Final = msgspec.json.Decoder(_Item).decode
