"""The command line's cache on disk: readings, tags and proofs that outlive a run.

One SQLite file in WAL mode, because several runs use it at once: readers never wait, a writer waits at most a few
seconds for another, and a killed process leaves the last complete state. (A JSON file under a lock would be read whole
at each start and rewritten whole at each end.) Everything a run learned is written in one transaction at its end.

Cache errors never fail a run. A damaged file, or one of another version, is renamed with one warning and replaced by a
new one; if that fails, the run goes on without a cache. The file contains no secrets: a credential is stored as a keyed
hash, and the key, like the file, is readable by its owner only."""

import fcntl
import os
import secrets
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from polyarch.clock import Clock
from polyarch.oci.cache import VERSION, ImageReading, ReadingRecord, RepositoryLocation, TagRecord

FILE = "registry-cache.sqlite"
LOCK = "registry-cache.lock"
SET_ASIDE = ".set-aside"
APPLICATION_ID = 0x706F6C79  # "poly"
BUSY_SECONDS = 5.0
LOCK_LOOK = 0.02
"""Seconds between two looks whether the lock is free."""
MAX_BYTES = 56 * 2**20
"""With the write-ahead log, which is truncated at 4 MiB, the files stay below 64 MiB."""
PRUNE_ABOVE = 40 * 2**20
PAGE = 4096
KEPT_SECONDS = 30 * 24 * 3600.0

_SCHEMA = f"""
CREATE TABLE secret (key BLOB NOT NULL);
CREATE TABLE readings (digest TEXT PRIMARY KEY, body BLOB NOT NULL, public INTEGER NOT NULL, used REAL NOT NULL);
CREATE TABLE places (digest TEXT, host TEXT, repository TEXT, PRIMARY KEY (digest, host, repository)) WITHOUT ROWID;
CREATE TABLE tags (host TEXT, repository TEXT, tag TEXT, digest TEXT NOT NULL, checked REAL NOT NULL,
  advertised TEXT NOT NULL, etag TEXT NOT NULL, PRIMARY KEY (host, repository, tag)) WITHOUT ROWID;
CREATE TABLE proofs (host TEXT, repository TEXT, fingerprint TEXT, proved REAL NOT NULL,
  PRIMARY KEY (host, repository, fingerprint)) WITHOUT ROWID;
PRAGMA application_id = {APPLICATION_ID};
PRAGMA user_version = {VERSION};
"""
_DECODER = msgspec.json.Decoder(ImageReading)


class UnusableCacheFile(Exception):  # noqa: N818 - the name says what is the matter
    """The file is not a cache of this version; the text says what it is."""


class _Batch(NamedTuple):
    """Rows to write, without the time of use."""

    readings: list[tuple[str, bytes, bool]]
    locations: list[tuple[str, str, str]]
    tags: list[tuple[str, str, str, str, float, str, str]]
    proofs: list[tuple[str, str, str, float]]


class DiskCache:
    """A ``Backing`` for ``Cache``. Calls ``warn`` at most once."""

    def __init__(
        self,
        directory: Path,
        clock: Clock,
        *,
        warn: Callable[[str], None],
        max_bytes: int = MAX_BYTES,
        prune_above: int = PRUNE_ABOVE,
        busy_seconds: float = BUSY_SECONDS,
    ) -> None:
        self._path = directory / FILE
        self._lock = directory / LOCK
        self._clock = clock
        self._warn = warn
        self._warned = False
        self._max_bytes = max_bytes
        self._prune_above = prune_above
        self._busy_seconds = busy_seconds
        self._offset = clock.now().timestamp() - clock.monotonic()
        self._used: set[str] = set()
        self._connection: sqlite3.Connection | None = None
        self._key = b""
        try:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            with self._locked():
                self._open()
        except (OSError, sqlite3.Error, UnusableCacheFile) as error:
            self._give_up(error)
        if not self._key:
            self._key = secrets.token_bytes(32)

    @property
    def key(self) -> bytes:
        return self._key

    # -- reading -------------------------------------------------------------------------------------------------------

    def load_reading(self, digest: str) -> ReadingRecord | None:
        rows = self._query("SELECT body, public FROM readings WHERE digest = ?", digest)
        if not rows:
            return None
        try:
            reading = _DECODER.decode(rows[0][0])
        except (msgspec.DecodeError, UnicodeDecodeError):
            return None  # written by another build: a miss, and overwritten later
        locations = self._query("SELECT host, repository FROM places WHERE digest = ?", digest)
        self._used.add(digest)
        return ReadingRecord(reading, tuple(RepositoryLocation(*row) for row in locations), public=bool(rows[0][1]))

    def load_tag(self, location: RepositoryLocation, tag: str) -> TagRecord | None:
        rows = self._query(
            "SELECT digest, checked, advertised, etag FROM tags WHERE host = ? AND repository = ? AND tag = ?",
            *location,
            tag,
        )
        return TagRecord(rows[0][0], self._monotonic(rows[0][1]), rows[0][2], rows[0][3]) if rows else None

    def load_proofs(self, location: RepositoryLocation) -> dict[str, float]:
        rows = self._query("SELECT fingerprint, proved FROM proofs WHERE host = ? AND repository = ?", *location)
        return {fingerprint: self._monotonic(at) for fingerprint, at in rows}

    # -- writing -------------------------------------------------------------------------------------------------------

    def save(
        self,
        readings: Iterable[ReadingRecord],
        tags: Iterable[tuple[RepositoryLocation, str, TagRecord]],
        proofs: Iterable[tuple[RepositoryLocation, str, float]],
    ) -> None:
        """Write one transaction; rows of other runs stay, and the newer of two rows wins."""
        found = list(readings)
        batch = _Batch(
            [(each.reading.digest, msgspec.json.encode(each.reading), each.public) for each in found],
            [(each.reading.digest, *location) for each in found for location in each.locations],
            [
                (*location, tag, each.digest, each.checked_at + self._offset, each.advertised, each.etag)
                for location, tag, each in tags
            ],
            [(*location, fingerprint, at + self._offset) for location, fingerprint, at in proofs],
        )
        try:
            self._write(batch, make_room=False)
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_FULL:
                self._broken(error)
                return
            try:
                self._write(batch, make_room=True)
            except sqlite3.Error as again:
                self._broken(again)
        except sqlite3.Error as error:
            self._broken(error)

    def _write(self, batch: "_Batch", *, make_room: bool) -> None:
        connection = self._connection
        if connection is None:
            return
        now = self._clock.now().timestamp()
        with connection:
            connection.execute("BEGIN IMMEDIATE")
            connection.executemany(
                "UPDATE readings SET used = ? WHERE digest = ?", [(now, digest) for digest in self._used]
            )
            self._prune(connection, now, make_room=make_room)
            connection.executemany(
                "INSERT INTO readings VALUES (?, ?, ?, ?) ON CONFLICT (digest) DO UPDATE SET "
                "body = excluded.body, public = max(public, excluded.public), used = excluded.used",
                [(*reading, now) for reading in batch.readings],
            )
            connection.executemany("INSERT OR IGNORE INTO places VALUES (?, ?, ?)", batch.locations)
            connection.executemany(
                "INSERT INTO tags VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (host, repository, tag) DO UPDATE SET "
                "digest = excluded.digest, checked = excluded.checked, advertised = excluded.advertised, "
                "etag = excluded.etag WHERE excluded.checked >= checked",
                batch.tags,
            )
            connection.executemany(
                "INSERT INTO proofs VALUES (?, ?, ?, ?) ON CONFLICT (host, repository, fingerprint) DO UPDATE SET "
                "proved = max(proved, excluded.proved)",
                batch.proofs,
            )

    def forget(self, location: RepositoryLocation, fingerprint: str) -> None:
        """Delete a proof after the registry refused the credential."""
        connection = self._connection
        if connection is None:
            return
        try:
            with connection:
                connection.execute(
                    "DELETE FROM proofs WHERE host = ? AND repository = ? AND fingerprint = ?", (*location, fingerprint)
                )
        except sqlite3.Error as error:
            self._broken(error)

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    # -- the file ------------------------------------------------------------------------------------------------------

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """One run at a time checks the file: a second one would rename the first one's new file.

        Raises ``OSError`` if another run keeps the lock for longer than a writer waits, as a stopped one does.
        """
        with os.fdopen(os.open(self._lock, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600), "r+b") as file:
            until = time.monotonic() + self._busy_seconds
            while True:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if time.monotonic() >= until:
                        raise
                time.sleep(LOCK_LOOK)
            yield

    def _open(self) -> None:
        try:
            self._connect()
        except (sqlite3.DatabaseError, UnusableCacheFile) as error:
            if isinstance(error, sqlite3.Error) and not _is_damage(error):
                raise  # locked, full, or not ours to write: no damage
            self.close()
            self._set_aside(str(error))
            self._connect()

    def _connect(self) -> None:
        os.close(os.open(self._path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600))
        self._path.chmod(0o600)
        connection = sqlite3.connect(self._path, timeout=BUSY_SECONDS, isolation_level=None)
        self._connection = connection
        connection.execute(f"PRAGMA page_size = {PAGE}")
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        empty = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0] == 0
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute(f"PRAGMA max_page_count = {self._max_bytes // PAGE}")
        if empty and version == 0:
            connection.executescript(f"BEGIN IMMEDIATE;{_SCHEMA}COMMIT;")
            connection.execute("INSERT INTO secret VALUES (?)", (secrets.token_bytes(32),))
        elif connection.execute("PRAGMA application_id").fetchone()[0] != APPLICATION_ID or version != VERSION:
            raise UnusableCacheFile(f"it has version {version} where {VERSION} was expected")
        row = connection.execute("SELECT key FROM secret").fetchone()
        if row is None or not isinstance(row[0], bytes) or len(row[0]) < 16:
            raise UnusableCacheFile("it has no key")
        self._key = row[0]

    def _set_aside(self, problem: str) -> None:
        aside = self._path.with_name(FILE + SET_ASIDE)
        self._path.replace(aside)
        for suffix in ("-wal", "-shm"):
            self._path.with_name(FILE + suffix).unlink(missing_ok=True)
        self._say(f"the cache {self._path} is damaged or not ours ({problem}); it was set aside as {aside.name}")

    def _prune(self, connection: sqlite3.Connection, now: float, *, make_room: bool) -> None:
        """Delete old rows; to make room, also the least recently used half of the readings."""
        connection.execute("DELETE FROM tags WHERE checked < ?", (now - KEPT_SECONDS,))
        connection.execute("DELETE FROM proofs WHERE proved < ?", (now - KEPT_SECONDS,))
        pages, free = (connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "freelist_count"))
        if make_room or (pages - free) * PAGE > self._prune_above:
            connection.execute(
                "DELETE FROM readings WHERE digest IN "
                "(SELECT digest FROM readings ORDER BY used LIMIT (SELECT (count(*) + 1) / 2 FROM readings))"
            )
            connection.execute("DELETE FROM places WHERE digest NOT IN (SELECT digest FROM readings)")
            connection.execute("DELETE FROM tags WHERE digest NOT IN (SELECT digest FROM readings)")

    def _query(self, statement: str, *parameters: str) -> list[tuple[Any, ...]]:
        if self._connection is None:
            return []
        try:
            return self._connection.execute(statement, parameters).fetchall()
        except sqlite3.Error as error:
            self._broken(error)
            return []

    def _monotonic(self, wall: float) -> float:
        """A stored time on this process's clock. A time in the future came from a wrong clock: long ago."""
        return wall - self._offset if wall <= self._clock.now().timestamp() + 1 else float("-inf")

    def _broken(self, error: sqlite3.Error) -> None:
        """Handle an error during use: rename a damaged file if possible; this run goes on without a cache."""
        if not _is_damage(error):
            self._give_up(error)
            return
        self.close()
        try:
            with self._locked():
                self._set_aside(str(error))
        except OSError as problem:
            self._say(f"the cache {self._path} is damaged ({error}) and could not be set aside ({problem})")

    def _give_up(self, error: Exception) -> None:
        self.close()
        self._say(f"the cache {self._path} cannot be used ({error}); going on without it")

    def _say(self, text: str) -> None:
        if not self._warned:
            self._warned = True
            self._warn(text)


def _is_damage(error: sqlite3.Error) -> bool:
    """Whether the file itself is broken: no database, a bad page, foreign tables. A full disk or a long lock is not
    damage.
    """
    primary = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
    return primary in (sqlite3.SQLITE_ERROR, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_MISMATCH)
