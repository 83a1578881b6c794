"""The cache on disk: kept between runs, shared by runs, and never a reason to fail."""

import fcntl
import sqlite3
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from polyarch.oci.auth.credentials import Credential
from polyarch.oci.cache import Cache, ImageReading, RepositoryLocation, TagRecord
from polyarch.oci.disk_cache import FILE, LOCK, SET_ASIDE, DiskCache
from polyarch.oci.inspection import Entry, InspectionWarning, SkippedEntry, Status
from polyarch.platforms import Platform

PLACE = RepositoryLocation("r.example", "team/app")


def reading(number=1, text=""):
    digest = f"sha256:{number:064x}"
    return ImageReading(
        digest,
        "index",
        "application/vnd.oci.image.index.v1+json",
        Status.RESOLVED,
        (Entry(Platform("linux", "arm64", "v9", "10.0", ("win32k",)), digest, 12, "Linux/ARM64"),),
        (SkippedEntry(digest, "attestation"),),
        (InspectionWarning("duplicate-platform", text),),
        bundle=False,
    )


@pytest.fixture
def warnings():
    return []


@pytest.fixture
def open_cache(tmp_path, clock, warnings):
    """Opens the cache of one run."""
    opened = []

    def open_(directory=tmp_path / "cache", **sizes):
        disk = DiskCache(directory, clock, warn=warnings.append, **sizes)
        opened.append(disk)
        return Cache(clock, backing=disk)

    yield open_
    for disk in opened:
        disk.close()


def fill(cache, clock):
    cache.put_reading(reading(), PLACE, public=False)
    cache.put_tag(PLACE, "1", TagRecord(reading().digest, clock.monotonic(), "sha256:y", '"etag"'))
    cache.put_proof(PLACE, "me")
    cache.close()


def test_the_next_run_knows_what_this_one_learned(open_cache, clock, warnings):
    first = open_cache()
    fill(first, clock)
    clock.advance(100)
    second = open_cache()
    record = second.reading(reading().digest)
    assert record.reading == reading()
    assert (record.locations, record.public) == ((PLACE,), False)
    assert second.tag(PLACE, "1") == TagRecord(reading().digest, clock.monotonic() - 100, "sha256:y", '"etag"')
    assert second.proof(PLACE, ("me",), seconds=101, public_seconds=101).at == clock.monotonic() - 100
    assert second.proof(PLACE, ("me",), seconds=99, public_seconds=99) is None
    assert second.key == first.key
    assert warnings == []


@pytest.mark.req("RG-115")
def test_peeking_does_not_touch_the_disk(open_cache, clock):
    """Memory only."""
    fill(open_cache(), clock)
    second = open_cache()
    assert second.reading(reading().digest, memory_only=True) is None
    assert second.tag(PLACE, "1", memory_only=True) is None


@pytest.mark.req("RG-114")
def test_only_the_owner_can_read_it(open_cache, clock, tmp_path):
    """0700 and 0600."""
    cache = open_cache()
    cache.put_proof(PLACE, "me")
    cache.flush()
    directory = tmp_path / "cache"
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert {path.name: oct(stat.S_IMODE(path.stat().st_mode)) for path in directory.iterdir()} == {
        path.name: "0o600" for path in directory.iterdir()
    }
    assert (directory / FILE).exists()


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(lambda path: path.write_bytes(b"this is no database" * 500), id="no database"),
        pytest.param(lambda path: path.write_bytes(path.read_bytes()[:-100] + b"x" * 90), id="cut and scribbled over"),
        pytest.param(lambda path: execute(path, "PRAGMA user_version = 99"), id="a foreign version"),
        pytest.param(lambda path: execute(path, "PRAGMA application_id = 5"), id="a foreign application"),
        pytest.param(lambda path: execute(path, "DROP TABLE secret"), id="a table is missing"),
        pytest.param(lambda path: execute(path, "DELETE FROM secret"), id="the key is missing"),
        pytest.param(lambda path: execute(path, "DROP TABLE readings"), id="a table is missing that is used later"),
    ],
)
def test_damage_is_set_aside_with_one_warning_and_the_run_goes_on(open_cache, clock, tmp_path, warnings, damage):
    fill(open_cache(), clock)
    path = tmp_path / "cache" / FILE
    damage(path)
    cache = open_cache()
    cache.reading(reading().digest)
    cache.tag(PLACE, "1")
    fill(cache, clock)
    again = open_cache()
    fill(again, clock)
    assert open_cache().reading(reading().digest) is not None
    assert len(warnings) == 1, warnings
    assert str(path) in warnings[0]
    assert path.with_name(FILE + SET_ASIDE).exists()


def execute(path, statement):
    connection = sqlite3.connect(path)
    with connection:
        connection.execute(statement)
    connection.close()


def test_without_a_place_to_write_the_run_goes_on(open_cache, clock, tmp_path, warnings):
    blocked = tmp_path / "a file"
    blocked.write_text("")
    cache = open_cache(blocked / "cache")
    fill(cache, clock)
    assert len(warnings) == 1
    assert "going on without it" in warnings[0]


def test_two_runs_at_once_keep_what_both_learned(open_cache, clock):
    one, other = open_cache(), open_cache()
    one.put_reading(reading(1), PLACE, public=False)
    other.put_reading(reading(2), PLACE, public=True)
    one.put_tag(PLACE, "1", TagRecord(reading(1).digest, clock.monotonic()))
    clock.advance(10)
    other.put_tag(PLACE, "1", TagRecord(reading(2).digest, clock.monotonic()))
    other.close()
    one.close()  # the older check does not replace the newer one
    third = open_cache()
    assert third.reading(reading(1).digest) is not None
    assert third.reading(reading(2).digest).public
    assert third.tag(PLACE, "1").digest == reading(2).digest


def test_many_processes_at_once_lose_nothing_and_damage_nothing(tmp_path):
    program = """
import sys
from pathlib import Path
from polyarch.oci.cache import Cache, RepositoryLocation
from polyarch.clock import SystemClock
from polyarch.oci.disk_cache import DiskCache
clock = SystemClock()
problems = []
for turn in range(5):
    cache = Cache(clock, backing=DiskCache(Path(sys.argv[1]), clock, warn=problems.append))
    cache.put_proof(RepositoryLocation("r.example", f"team/{sys.argv[2]}-{turn}"), "me")
    cache.close()
sys.exit("; ".join(problems) or 0)
"""
    directory = tmp_path / "cache"
    runs = [
        subprocess.Popen(
            [sys.executable, "-c", program, str(directory), str(number)], stderr=subprocess.PIPE, text=True
        )
        for number in range(4)
    ]
    assert [(run.communicate()[1], run.returncode) for run in runs] == [("", 0)] * 4
    connection = sqlite3.connect(directory / FILE)
    assert connection.execute("SELECT count(*) FROM proofs").fetchone() == (20,)
    assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    connection.close()


def test_it_stays_small_and_keeps_what_is_used(open_cache, clock, tmp_path, warnings):
    sizes = {"max_bytes": 400 * 4096, "prune_above": 200 * 4096}
    for run in range(12):
        cache = open_cache(**sizes)
        cache.reading(reading(0).digest)
        for number in range(100):
            cache.put_reading(reading(run * 100 + number, "x" * 1000), PLACE, public=False)
        clock.advance(60)
        cache.close()
    assert (tmp_path / "cache" / FILE).stat().st_size <= 400 * 4096
    assert open_cache(**sizes).reading(reading(0).digest) is not None
    assert open_cache(**sizes).reading(reading(1199).digest) is not None
    assert warnings == []


def test_a_run_that_learns_too_much_makes_room_first(open_cache, clock, warnings):
    sizes = {"max_bytes": 200 * 4096, "prune_above": 10**9}
    for run in range(3):
        cache = open_cache(**sizes)
        for number in range(150):
            cache.put_reading(reading(run * 150 + number, "x" * 1000), PLACE, public=False)
        clock.advance(60)
        cache.close()
    assert open_cache(**sizes).reading(reading(449).digest) is not None
    assert warnings == []


def test_a_time_in_the_future_counts_as_long_ago(open_cache, clock):
    """A clock that was put back must not make a proof last for years."""
    fill(open_cache(), clock)
    clock.advance(-5000)
    second = open_cache()
    assert second.proof(PLACE, ("me",), seconds=3600, public_seconds=3600) is None


def test_a_refusal_is_forgotten_on_disk_too(open_cache, clock):
    fill(open_cache(), clock)
    second = open_cache()
    assert second.proof(PLACE, ("me",), seconds=3600, public_seconds=3600) is not None
    second.drop_proof(PLACE, "me")
    second.close()
    assert open_cache().proof(PLACE, ("me",), seconds=3600, public_seconds=3600) is None


@pytest.mark.req("RG-087", "RG-161")
async def test_the_second_run_asks_for_nothing_and_no_secret_is_on_disk(
    start_registry, open_cache, make_inspector, ref, clock, tmp_path
):
    """RG-087, RG-161 (repeated at once: no manifest request)."""
    registry = await start_registry(auth="bearer")
    registry.users["robot"] = "marker-password"
    registry.push_index("team/app", "1", "linux/amd64", "linux/arm64")

    class Store:
        async def candidates(self, reference, source):
            return [Credential("robot", "marker-password", source="file", key=source.host), Credential()]

        def warnings(self, source):
            return ()

    for requests in (1, 0):
        seen = len(registry.manifest_requests())
        inspector = make_inspector(cache=open_cache(), credentials=Store())
        answer = await inspector.inspect(ref("team/app:1", registry))
        assert answer.status is Status.RESOLVED
        await inspector.close()
        assert len(registry.manifest_requests()[seen:]) == requests + requests  # 401, then with a token
    content = b"".join(path.read_bytes() for path in Path(tmp_path / "cache").iterdir())
    assert content
    assert b"marker-password" not in content
    assert b"token-" not in content
    assert b"robot" not in content


@pytest.mark.req("RG-114")
def test_a_run_that_was_stopped_while_it_opened_the_cache_holds_up_no_other(tmp_path, open_cache, warnings):
    """Every other run of this user hung for ever, without a word."""
    with (tmp_path / LOCK).open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        cache = open_cache(tmp_path, busy_seconds=0.1)
        assert cache.reading(reading().digest) is None
        assert len(warnings) == 1
        assert "going on without it" in warnings[0]
    open_cache(tmp_path)
    assert len(warnings) == 1
