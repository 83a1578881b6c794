"""The tables of what is known, and whom it may be told."""

import pytest

from polyarch.oci.auth.credentials import Credential
from polyarch.oci.cache import MAX_FAILURE_BYTES, Cache, ImageReading, RepositoryLocation, TagRecord
from polyarch.oci.inspection import Entry, InspectionError, Status
from polyarch.platforms import Platform

OURS, OTHERS = RepositoryLocation("r.example", "team/app"), RepositoryLocation("r.example", "team/copy")
TTL = {"seconds": 3600.0, "public_seconds": 3600.0}


def reading(number=1, *, entries=2, bundle=None):
    digest = f"sha256:{number:064x}"
    found = tuple(Entry(Platform("linux", f"arch{each}"), digest) for each in range(entries))
    return ImageReading(digest, "index", "application/x", Status.RESOLVED, found, bundle=bundle)


@pytest.fixture
def cache(clock):
    return Cache(clock)


class TestReadings:
    @pytest.mark.req("RG-111")
    def test_it_is_usable_where_it_was_read(self, cache):
        """Read in the same repository, or anonymously anywhere."""
        cache.put_reading(reading(), OURS, public=False)
        record = cache.reading(reading().digest)
        assert record.usable_in(OURS)
        assert not record.usable_in(OTHERS)
        cache.put_reading(reading(), OTHERS, public=False)
        assert cache.reading(reading().digest).usable_in(OURS)
        assert cache.reading(reading().digest).usable_in(OTHERS)

    def test_read_anonymously_it_is_usable_anywhere(self, cache):
        cache.put_reading(reading(), OURS, public=True)
        cache.put_reading(reading(), OTHERS, public=False)
        assert cache.reading(reading().digest).usable_in(RepositoryLocation("elsewhere.example", "x"))

    def test_it_never_grows_stale(self, cache, clock):
        cache.put_reading(reading(), OURS, public=False)
        clock.advance(1e8)
        assert cache.reading(reading().digest) is not None

    def test_an_incomplete_one_does(self, cache, clock):
        cache.put_incomplete(reading(), OURS, seconds=60)
        clock.advance(59)
        assert cache.usable(reading().digest, OURS) is not None
        clock.advance(1)
        assert cache.usable(reading().digest, OURS) is None

    @pytest.mark.req("RG-117")
    def test_an_incomplete_one_is_of_use_to_nobody_else(self, cache):
        """Another place may have the child, and whoever leaves it out decides for himself only."""
        cache.put_incomplete(reading(entries=1), OURS, seconds=60)
        assert cache.reading(reading().digest) is None
        assert cache.usable(reading().digest, OTHERS) is None
        cache.put_reading(reading(entries=2), OTHERS, public=False)
        assert len(cache.usable(reading().digest, OTHERS).reading.entries) == 2
        assert len(cache.usable(reading().digest, OURS).reading.entries) == 1

    @pytest.mark.req("RG-043", "RG-110")
    def test_an_incomplete_one_does_not_replace_a_complete_one(self, cache, clock):
        """A child that does not answer today was read before."""
        cache.put_reading(reading(entries=2), OURS, public=False)
        cache.put_incomplete(reading(entries=1), OURS, seconds=60)
        assert len(cache.usable(reading().digest, OURS).reading.entries) == 2

    @pytest.mark.req("RG-111")
    def test_a_place_that_lacks_a_child_is_not_told_of_it(self, cache):
        """Who shows an index has not shown what is below it."""
        cache.put_reading(reading(entries=2), OURS, public=False)
        cache.put_incomplete(reading(entries=1), OTHERS, seconds=60)
        assert len(cache.usable(reading().digest, OTHERS).reading.entries) == 1

    def test_a_complete_one_replaces_an_incomplete_one(self, cache, clock):
        cache.put_incomplete(reading(entries=1), OURS, seconds=60)
        cache.put_reading(reading(entries=2), OURS, public=False)
        assert len(cache.usable(reading().digest, OURS).reading.entries) == 2

    def test_what_was_found_out_about_a_bundle_is_not_forgotten(self, cache):
        cache.put_reading(reading(bundle=True), OURS, public=False)
        cache.put_reading(reading(bundle=None), OTHERS, public=False)
        assert cache.reading(reading().digest).reading.bundle is True

    def test_the_longest_unused_go_first(self, clock):
        cache = Cache(clock, max_readings=3)
        for number in (1, 2, 3):
            cache.put_reading(reading(number), OURS, public=False)
        cache.reading(reading(1).digest)
        cache.put_reading(reading(4), OURS, public=False)
        kept = [number for number in range(1, 5) if cache.reading(reading(number).digest)]
        assert kept == [1, 3, 4]

    def test_memory_is_bounded_in_bytes_too(self, clock):
        cache = Cache(clock, max_bytes=100_000)
        for number in range(1000):
            cache.put_reading(reading(number, entries=5), OURS, public=False)
        assert sum(record.reading.size for record in cache.readings()) <= 100_000

    @pytest.mark.req("RG-114", "RG-162")
    def test_ten_thousand_readings_fit_in_forty_mebibytes(self, clock):
        import tracemalloc

        tracemalloc.start()
        before = tracemalloc.get_traced_memory()[0]
        cache = Cache(clock)
        for number in range(10_000):
            digests = [f"sha256:{number * 10 + each:064x}" for each in range(6)]
            entries = tuple(
                Entry(Platform("linux", architecture), digest, 1234)
                for architecture, digest in zip(("amd64", "arm64", "s390x", "ppc64le"), digests, strict=False)
            )
            found = ImageReading(digests[5], "index", "application/x", Status.RESOLVED, entries)
            cache.put_reading(found, RepositoryLocation("r.example", f"team/app-{number}"), public=True)
        used = tracemalloc.get_traced_memory()[0] - before
        tracemalloc.stop()
        assert len(list(cache.readings())) == 10_000
        assert used <= 40 * 2**20


class TestProofs:
    @pytest.mark.req("PL-852", "RG-110", "RG-111")
    def test_own_or_anonymous_and_not_too_old(self, cache, clock):
        assert cache.proof(OURS, ("me",), **TTL) is None
        cache.put_proof(OURS, "somebody else")
        assert cache.proof(OURS, ("me",), **TTL) is None
        cache.put_proof(OURS, "me")
        assert not cache.proof(OURS, ("not me", "me"), **TTL).public
        assert cache.proof(OTHERS, ("me",), **TTL) is None
        clock.advance(3600)
        assert cache.proof(OURS, ("me",), **TTL) is None
        cache.put_proof(OURS, "")
        assert cache.proof(OURS, (), **TTL).public

    @pytest.mark.req("PL-423")
    def test_a_revoked_credential_proves_nothing_and_readings_stay(self, cache):
        cache.put_reading(reading(), OURS, public=False)
        cache.put_proof(OURS, "old")
        cache.put_proof(OURS, "")
        cache.drop_proofs(["old", ""])
        assert cache.proof(OURS, ("old",), **TTL).public  # by anybody, as before
        assert "old" not in cache.proofs_of(OURS)
        assert cache.reading(reading().digest) is not None

    @pytest.mark.req("RG-112")
    def test_private_for_a_while(self, cache, clock):
        cache.put_proof(OURS, "")
        cache.mark_private(OURS)
        assert cache.proof(OURS, (), **TTL) is None
        assert cache.known_private(OURS, seconds=3600)
        clock.advance(3600)
        assert not cache.known_private(OURS, seconds=3600)

    def test_proofs_of_one_place_are_bounded(self, cache, clock):
        for number in range(1000):
            clock.advance(1)
            cache.put_proof(OURS, f"credential-{number}")
        assert len(cache.proofs_of(OURS)) == 256
        assert "credential-999" in cache.proofs_of(OURS)

    @pytest.mark.req("RG-110")
    def test_fingerprints_of_two_caches_differ(self, clock):
        """Keyed, with a random key per cache."""
        credential = Credential("user", "password")
        fingerprints = {credential.fingerprint(Cache(clock).key) for _ in range(3)}
        assert len(fingerprints) == 3


@pytest.mark.req("RG-060")
def test_negative_records_run_out(cache, clock):
    """60 s, 10 min."""
    error = InspectionError.of("not-found", "gone")
    cache.put_negative("question", error, 60)
    cache.put_fault(OURS, "sha256:x", error, 600)
    clock.advance(59)
    assert cache.negative("question") == error
    clock.advance(1)
    assert cache.negative("question") is None
    assert cache.fault(OURS, "sha256:x") == error
    assert cache.fault(OTHERS, "sha256:x") is None
    clock.advance(540)
    assert cache.fault(OURS, "sha256:x") is None


@pytest.mark.req("PL-407")
def test_a_failed_check_is_remembered_until_the_next_success(cache, clock):
    cache.put_tag(OURS, "1", TagRecord("sha256:x", clock.monotonic()))
    cache.tag_failed(OURS, "1")
    cache.tag_failed(OURS, "unknown")
    assert cache.tag(OURS, "1").failed_at == clock.monotonic()
    cache.put_tag(OURS, "1", TagRecord("sha256:x", clock.monotonic()))
    assert cache.tag(OURS, "1").failed_at is None


@pytest.mark.req("PL-810")
class TestBounds:
    """What is remembered of failures is bounded by bytes, too."""

    @pytest.mark.parametrize("table", ["negatives", "faults"])
    def test_what_registries_write_does_not_fill_the_memory(self, cache, table):
        for number in range(3000):
            error = InspectionError.of("unauthorized", f"{number}: " + "x" * 8000)
            if table == "negatives":
                cache.put_negative(number, error, 60)
            else:
                cache.put_fault(OURS, str(number), error, 60)
        last = cache.negative(2999) if table == "negatives" else cache.fault(OURS, "2999")
        first = cache.negative(0) if table == "negatives" else cache.fault(OURS, "0")
        assert (last is not None, first) == (True, None)
        assert getattr(cache, f"_{table}").weight <= MAX_FAILURE_BYTES

    def test_what_is_dropped_weighs_nothing(self, cache):
        for number in range(1000):
            cache.put_negative("same", InspectionError.of("unauthorized", "x" * number), 60)
        cache.drop_negative("same")
        assert cache._negatives.weight == 0

    def test_what_is_too_heavy_by_itself_is_not_kept(self, cache):
        cache.put_negative("small", InspectionError.of("unauthorized", "x"), 60)
        cache.put_negative("huge", InspectionError.of("unauthorized", "x"), 60, weight=MAX_FAILURE_BYTES)
        assert cache.negative("huge") is None
        assert cache.negative("small") is not None
