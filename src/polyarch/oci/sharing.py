"""Export and import of readings between processes, so that a new leader starts with a warm cache (RG-114, PL-410).

An export contains only readings that are public or readable with a credential both sides have, and marks each reading
accordingly (RG-111). Fingerprints are not exported: their key never leaves a process. Times are wall-clock times,
because monotonic times are meaningless in another process; a time in the future counts as now.

Format: one JSON document, gzip-compressed, newest readings first, cut off at the size limit.
"""

import zlib
from collections.abc import Iterable
from typing import Literal

import msgspec

from polyarch.clock import Clock
from polyarch.oci.auth.entries import Credential
from polyarch.oci.cache.image_reading import Reading
from polyarch.oci.cache.memory import Cache, Place, ReadingRecord, TagRecord

LIMIT = 900 * 1024
VERSION = 1
MAX_DECOMPRESSED = 64 * 2**20
GZIP = 31
_BATCH = 50
_TAIL = b"]}"
_SPARE = 64

Holder = Literal["public", "shared"]


class DamagedExport(ValueError):  # noqa: N818 - it says what the content is
    """Content that is not a valid export; the message names the problem."""


class _Tag(msgspec.Struct, frozen=True, array_like=True):
    tag: str
    checked_at: float
    advertised: str = ""


class _Place(msgspec.Struct, frozen=True, array_like=True):
    host: str
    repository: str
    holder: Holder
    proved_at: float
    tags: tuple[_Tag, ...] = ()


class _Item(msgspec.Struct, frozen=True):
    reading: Reading
    public: bool
    places: tuple[_Place, ...]


class _Export(msgspec.Struct, frozen=True):
    version: int
    readings: tuple[_Item, ...]


def export_readings(cache: Cache, clock: Clock, *, shared: Iterable[Credential] = (), limit: int = LIMIT) -> bytes:
    """Serialise the shareable readings in memory, in at most ``limit`` bytes."""
    fingerprints = tuple(filter(None, (credential.fingerprint(cache.key) for credential in shared)))
    offset = clock.now().timestamp() - clock.monotonic()
    tags: dict[tuple[str, Place], list[_Tag]] = {}
    for place, tag, record in cache.tags():
        tags.setdefault((record.digest, place), []).append(_Tag(tag, record.checked_at + offset, record.advertised))
    items = (
        item
        for record in reversed(list(cache.readings()))
        if (item := _item(cache, record, tags, fingerprints, offset)) is not None
    )
    return _compressed(items, limit)


def import_readings(body: bytes, cache: Cache, clock: Clock, *, shared: Iterable[Credential] = ()) -> int:
    """Add an export to the cache without replacing newer entries; ``DamagedExport`` if it is invalid."""
    export = _read(body)
    fingerprints = tuple(filter(None, (credential.fingerprint(cache.key) for credential in shared)))
    now, wall = clock.monotonic(), clock.now().timestamp()
    count = 0
    for item in reversed(export.readings):
        told = False
        for each in item.places:
            holders = ("",) if each.holder == "public" else fingerprints
            if not holders:
                continue
            told = True
            place = Place(each.host, each.repository)
            cache.put_reading(item.reading, place, public=item.public)
            for fingerprint in holders:
                cache.put_proof_if_newer(place, fingerprint, now - max(0.0, wall - each.proved_at))
            for tag in each.tags:
                checked_at = now - max(0.0, wall - tag.checked_at)
                known = cache.tag(place, tag.tag)
                if known is None or known.checked_at < checked_at:
                    cache.put_tag(place, tag.tag, TagRecord(item.reading.digest, checked_at, tag.advertised))
        count += told
    return count


def _item(
    cache: Cache,
    record: ReadingRecord,
    tags: dict[tuple[str, Place], list[_Tag]],
    fingerprints: tuple[str, ...],
    offset: float,
) -> _Item | None:
    if record.until is not None:
        return None
    places: list[_Place] = []
    for place in record.places:
        proofs = cache.proofs_of(place)
        holder: Holder = "public"
        at = proofs.get("")
        if at is None:
            holder = "shared"
            at = max((proofs[each] for each in fingerprints if each in proofs), default=None)
        if at is not None:
            own = tuple(tags.get((record.reading.digest, place), ()))
            places.append(_Place(place.host, place.repository, holder, at + offset, own))
    return _Item(record.reading, record.public, tuple(places)) if places else None


def _compressed(items: Iterable[_Item], limit: int) -> bytes:
    """Compress in batches, to know the size without compressing everything twice."""
    squeeze = zlib.compressobj(wbits=GZIP)
    done = squeeze.compress(b'{"version":%d,"readings":[' % VERSION)
    batch: list[bytes] = []
    first = True
    for item in items:
        batch.append(msgspec.json.encode(item))
        if len(batch) == _BATCH:
            more = _step(squeeze, batch, first=first, room=limit - len(done))
            if more is None:
                batch = []
                break
            done, first, batch = done + more, False, []
    if batch and (more := _step(squeeze, batch, first=first, room=limit - len(done))) is not None:
        done += more
    return done + squeeze.compress(_TAIL) + squeeze.flush()


def _step(squeeze: "zlib._Compress", batch: list[bytes], *, first: bool, room: int) -> bytes | None:
    """The compressed batch, or None, with ``squeeze`` unchanged, if there is no room for it."""
    trial = squeeze.copy()
    data = b",".join(batch) if first else b"," + b",".join(batch)
    more = trial.compress(data) + trial.flush(zlib.Z_SYNC_FLUSH)
    if len(more) + _SPARE > room:
        return None
    return squeeze.compress(data) + squeeze.flush(zlib.Z_SYNC_FLUSH)


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
