"""What of a container's log somebody asked for: the last lines, those since a time, with times (SB-013).

Containers write into their log files directly, so that they outlive the nodes' process. The time of a line is the one
that it tells itself, as all lines of polyarch do; one without has that of the line before, the first ones the start.
"""

import datetime as dt
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, Self

_TIME: Final = re.compile(rb"(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d:\d\d(?:[.,]\d+)?)(Z|[+-]\d\d:?\d\d)?")
LOOK_BYTES: Final = 4096
"""How far into a line its time is looked for."""
MAXIMUM_BYTES: Final = 10 * 1024**2
"""How much of the end of a log is shown: as much as a kubelet keeps in one file."""


def time_of(line: bytes) -> dt.datetime | None:
    """The first time that the line tells; without a zone it is UTC."""
    for match in _TIME.finditer(line[:LOOK_BYTES]):
        date, clock, zone = match.groups()
        text = b"T".join((date, clock.replace(b",", b"."))) + (zone or b"Z")
        try:
            return dt.datetime.fromisoformat(text.decode())
        except ValueError:
            continue
    return None


def timed(lines: Iterable[bytes], start: dt.datetime) -> Iterator[tuple[dt.datetime, bytes]]:
    """Each line with its time; times never go back."""
    at = start
    for line in lines:
        found = time_of(line)
        at = max(at, found) if found is not None else at
        yield at, line


def stamp(at: dt.datetime) -> bytes:
    """What stands before a line with ``--timestamps``."""
    return at.astimezone(dt.UTC).strftime("%Y-%m-%dT%H:%M:%S.%f000Z ").encode()


class Reader:
    """Reads a log from its end, and then what is added to it. A context manager."""

    def __init__(self, path: Path, *, start: dt.datetime, timestamps: bool) -> None:
        """``start``: when the container started."""
        self._path = path
        self._at = start
        self._timestamps = timestamps
        self._rest = b""

    def __enter__(self) -> Self:
        self._file = self._path.open("rb")
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def begin(self, *, tail: int | None = None, since: dt.datetime | None = None) -> list[bytes]:
        """The lines that are there, with their ends. As in kubelets, ``since`` comes before ``tail``."""
        size = os.fstat(self._file.fileno()).st_size
        if size > MAXIMUM_BYTES:
            self._file.seek(size - MAXIMUM_BYTES)
            self._file.readline()
        found = self._timed(self._complete(over=False))
        if since is not None:
            found = [(at, line) for at, line in found if at >= since]
        if tail is not None and tail >= 0:
            found = found[max(0, len(found) - tail) :]
        return self._shown(found)

    def more(self, *, over: bool) -> list[bytes]:
        """The lines that were added; with ``over`` also a last one without an end."""
        return self._shown(self._timed(self._complete(over=over)))

    def _complete(self, *, over: bool) -> list[bytes]:
        lines = (self._rest + self._file.read(MAXIMUM_BYTES)).splitlines(keepends=True)
        partial = bool(lines) and not lines[-1].endswith(b"\n") and not over
        self._rest = lines.pop() if partial else b""
        return lines

    def _timed(self, lines: list[bytes]) -> list[tuple[dt.datetime, bytes]]:
        found = list(timed(lines, self._at))
        self._at = found[-1][0] if found else self._at
        return found

    def _shown(self, lines: list[tuple[dt.datetime, bytes]]) -> list[bytes]:
        return [stamp(at) + line if self._timestamps else line for at, line in lines]


def tail_of(path: Path, *, lines: int, size: int) -> str:
    """The last lines of a file, at most ``size`` bytes."""
    with path.open("rb") as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - size))
        return b"".join(file.read().splitlines(keepends=True)[-lines:]).decode("utf-8", "replace")
