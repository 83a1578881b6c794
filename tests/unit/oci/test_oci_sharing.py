"""Readings handed from one process to another."""

import gzip
import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from polyarch.oci.auth.credentials import Credential
from polyarch.oci.cache import VERSION, Cache, ImageReading, RepositoryLocation, TagRecord
from polyarch.oci.cache_sharing import LIMIT, SETTLED, CacheExporter, CacheImporter, DamagedExport, drained
from polyarch.oci.inspection import Entry, Status
from polyarch.platforms import Platform

pytestmark = pytest.mark.req("RG-114")

GLOBAL = Credential("global", "pull-secret-marker", source="openshift-config/pull-secret", key="r.example")
PUBLIC, SHARED, PRIVATE = (RepositoryLocation("r.example", name) for name in ("public", "shared", "private"))
TTL = {"seconds": 3600.0, "public_seconds": 3600.0}


def export_readings(cache, clock, *, shared=(), limit=LIMIT, shared_as=""):
    return drained(CacheExporter(cache, clock, limit=limit).steps(shared, shared_as=shared_as))


def import_readings(body, cache, clock, *, shared=(), shared_as=""):
    return drained(CacheImporter(cache, clock).steps(body, shared, shared_as=shared_as))


def reading(number):
    digest = f"sha256:{number:064x}"
    return ImageReading(digest, "index", "application/x", Status.RESOLVED, (Entry(Platform("linux", "arm64"), digest),))


@pytest.fixture
def leader(clock):
    cache = Cache(clock)
    holders = [(PUBLIC, ""), (SHARED, GLOBAL.fingerprint(cache.key)), (PRIVATE, "a tenant's")]
    for number, (place, fingerprint) in enumerate(holders):
        cache.put_reading(reading(number), place, public=not fingerprint)
        cache.put_tag(place, "1", TagRecord(reading(number).digest, clock.monotonic(), "sha256:a"))
        cache.put_proof(place, fingerprint)
    return cache


def test_only_what_everybody_may_know_is_handed_on(leader, clock):
    body = export_readings(leader, clock, shared=[GLOBAL])
    clock.advance(100)
    webhook = Cache(clock)
    assert import_readings(body, webhook, clock, shared=[GLOBAL]) == 2
    assert webhook.proof(PUBLIC, (), **TTL).public
    assert webhook.reading(reading(0).digest).public
    mine = GLOBAL.fingerprint(webhook.key)
    assert webhook.proof(SHARED, (mine,), **TTL).at == clock.monotonic() - 100
    assert webhook.proof(SHARED, ("another",), **TTL) is None
    assert not webhook.reading(reading(1).digest).public
    assert webhook.tag(PUBLIC, "1") == TagRecord(reading(0).digest, clock.monotonic() - 100, "sha256:a")
    assert webhook.reading(reading(2).digest) is None
    assert webhook.tag(PRIVATE, "1") is None


def test_who_has_not_the_shared_credential_gets_the_public_part(leader, clock):
    webhook = Cache(clock)
    assert import_readings(export_readings(leader, clock, shared=[GLOBAL]), webhook, clock) == 1
    assert webhook.proof(SHARED, (), **TTL) is None


@pytest.mark.req("PL-850", "RG-087")
def test_no_secret_and_no_fingerprint_is_in_it(leader, clock):
    plain = gzip.decompress(export_readings(leader, clock, shared=[GLOBAL])).decode()
    assert "marker" not in plain
    assert GLOBAL.fingerprint(leader.key) not in plain
    assert "tenant" not in plain
    assert json.loads(plain)["version"] == VERSION


@pytest.mark.req("PL-410")
def test_the_latest_used_stay_when_there_is_not_room_for_all(clock):
    """At most 900 KiB, least recently used dropped."""
    cache = Cache(clock)
    cache.put_proof(PUBLIC, "")
    for number in range(2000):
        cache.put_reading(reading(number * 7919**3), PUBLIC, public=True)
    body = export_readings(cache, clock, limit=20_000)
    assert len(body) <= 20_000
    taken = Cache(clock)
    count = import_readings(body, taken, clock)
    assert 50 <= count < 2000
    assert taken.reading(reading(1999 * 7919**3).digest) is not None
    assert taken.reading(reading(0).digest) is None


def test_what_is_newer_here_stays(leader, clock):
    body = export_readings(leader, clock)
    webhook = Cache(clock)
    clock.advance(50)
    webhook.put_tag(PUBLIC, "1", TagRecord("sha256:newer", clock.monotonic()))
    webhook.put_proof(PUBLIC, "")
    import_readings(body, webhook, clock)
    assert webhook.tag(PUBLIC, "1").digest == "sha256:newer"
    assert webhook.proof(PUBLIC, (), **TTL).at == clock.monotonic()


def test_a_time_in_the_future_counts_as_now(leader, clock):
    body = export_readings(leader, clock)
    clock.advance(-500)
    webhook = Cache(clock)
    import_readings(body, webhook, clock)
    assert webhook.proof(PUBLIC, (), **TTL).at == clock.monotonic()
    assert webhook.tag(PUBLIC, "1").checked_at == clock.monotonic() - SETTLED


@pytest.mark.req("PL-112")
def test_an_import_never_says_that_a_tag_was_checked_just_now(leader, clock):
    """Clocks differ; for ``Always`` the check must have begun after the pod arrived."""
    webhook = Cache(clock)
    import_readings(export_readings(leader, clock), webhook, clock)
    assert webhook.tag(PUBLIC, "1").checked_at == clock.monotonic() - SETTLED


@pytest.mark.req("PL-410")
def test_equal_content_gives_equal_bytes_whatever_was_used_and_wherever_it_is(leader, clock):
    """Only what changed is written, by the next leader too."""
    exporter = CacheExporter(leader, clock)
    body = drained(exporter.steps([GLOBAL]))
    clock.advance(40)
    leader.reading(reading(0).digest)
    leader.tag(PUBLIC, "1")
    assert drained(exporter.steps([GLOBAL])) == body
    standby = Cache(clock)
    import_readings(body, standby, clock, shared=[GLOBAL])
    clock.advance(0.3)
    assert export_readings(standby, clock, shared=[GLOBAL]) == body


@pytest.mark.req("PL-423")
def test_another_shared_credential_takes_the_public_part_alone(leader, clock):
    """Proofs by a former global pull secret are not taken for proofs by the present one."""
    body = export_readings(leader, clock, shared=[GLOBAL], shared_as="uid/1")
    webhook = Cache(clock)
    assert import_readings(body, webhook, clock, shared=[GLOBAL], shared_as="uid/2") == 1
    assert webhook.proof(SHARED, (GLOBAL.fingerprint(webhook.key),), **TTL) is None
    assert import_readings(body, webhook, clock, shared=[GLOBAL], shared_as="uid/1") == 2


def test_what_the_last_import_had_is_not_read_again(leader, clock):
    webhook = Cache(clock)
    importer = CacheImporter(webhook, clock)
    body = export_readings(leader, clock)
    assert drained(importer.steps(body)) == 1
    leader.put_reading(reading(7), PUBLIC, public=True)
    assert drained(importer.steps(export_readings(leader, clock))) == 1
    importer.forget()
    assert drained(importer.steps(body)) == 1


@pytest.mark.req("RG-117")
def test_what_a_process_has_read_itself_is_not_replaced_by_an_import(leader, clock):
    """Whoever wrote the export, and by whatever rules."""
    webhook = Cache(clock)
    own = msgspec.structs.replace(reading(0), entries=())
    webhook.put_reading(own, PUBLIC, public=True)
    import_readings(export_readings(leader, clock), webhook, clock)
    assert webhook.reading(own.digest).reading == own


def test_ten_thousand_readings_leave_time_for_others_in_between(clock):
    cache = Cache(clock)
    cache.put_proof(PUBLIC, "")
    for number in range(1000):
        cache.put_reading(reading(number), PUBLIC, public=True)
    assert sum(1 for _ in CacheExporter(cache, clock).steps()) >= 20
    assert sum(1 for _ in CacheImporter(Cache(clock), clock).steps(export_readings(cache, clock))) >= 20


@pytest.mark.req("PL-410")
def test_the_cache_counts_what_is_new_apart_from_what_is_only_checked_again(clock):
    """Nothing new, nothing to write."""
    cache = Cache(clock)
    cache.put_reading(reading(0), PUBLIC, public=True)
    cache.put_tag(PUBLIC, "1", TagRecord(reading(0).digest, clock.monotonic()))
    cache.put_proof(PUBLIC, "")
    changes, refreshes = cache.changes, cache.refreshes
    cache.put_reading(reading(0), PUBLIC, public=True)
    assert (cache.changes, cache.refreshes) == (changes, refreshes)
    cache.put_tag(PUBLIC, "1", TagRecord(reading(0).digest, clock.monotonic()))
    cache.put_proof(PUBLIC, "")
    assert (cache.changes, cache.refreshes) == (changes, refreshes + 2)
    cache.put_tag(PUBLIC, "1", TagRecord(reading(1).digest, clock.monotonic()))
    cache.drop_proof(PUBLIC, "")
    assert cache.changes == changes + 2


def test_an_empty_cache_makes_an_export_too(clock):
    assert import_readings(export_readings(Cache(clock), clock), Cache(clock), clock) == 0


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"{}", id="not compressed"),
        pytest.param(gzip.compress(b"{}"), id="another document"),
        pytest.param(gzip.compress(b'{"version":1,"readings":[]}'), id="another version"),
        pytest.param(gzip.compress(b'{"version":%d,"readings":[{"reading":{}}]}' % VERSION), id="a foreign reading"),
        pytest.param(gzip.compress(b'{"version":%d,"readings":[]}' % VERSION)[:-12], id="cut off"),
        pytest.param(gzip.compress(b"[" * 10_000), id="nested without end"),
        pytest.param(gzip.compress(b"\xff" * 100), id="not UTF-8"),
    ],
)
def test_foreign_or_damaged_content_is_refused(body, clock):
    cache = Cache(clock)
    with pytest.raises(DamagedExport, match=r"^shared readings: "):
        import_readings(body, cache, clock)
    assert list(cache.readings()) == []


def test_a_bomb_is_not_unpacked(clock):
    with pytest.raises(DamagedExport, match="too large"):
        import_readings(gzip.compress(b" " * (65 * 2**20), 9), Cache(clock), clock)


class _Still:
    def monotonic(self):
        return 0.0

    def now(self):
        from datetime import UTC, datetime

        return datetime(2026, 1, 1, tzinfo=UTC)

    async def sleep(self, seconds): ...


@given(st.binary())
def test_any_bytes_are_refused_or_read(body):
    cache = Cache(_Still())
    try:
        import_readings(body, cache, _Still())
    except DamagedExport:
        assert list(cache.readings()) == []


@pytest.mark.req("PL-410")
async def test_a_new_leader_starts_warm(registry, make_inspector, ref, clock):
    """One inspection serves all replicas."""
    registry.push_index("team/app", "1", "linux/amd64", "linux/arm64")
    caches = Cache(clock), Cache(clock)
    leader, standby = (make_inspector(cache=cache) for cache in caches)
    before = caches[0].changes
    await leader.inspect(ref("team/app:1"))
    assert caches[0].changes > before
    quiet = caches[0].changes
    await leader.inspect(ref("team/app:1"))
    assert caches[0].changes == quiet
    assert import_readings(export_readings(caches[0], clock), caches[1], clock) == 1
    assert standby.peek(ref("team/app:1")).platforms
    assert len(registry.seen) == 1
