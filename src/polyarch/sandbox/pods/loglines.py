"""What of a container's log somebody asked for: the last lines, those since a time, with times (SB-013). Pure but for
reading a file's end.

Containers write into their log files directly, so that they outlive the nodes' process. The time of a line is the one
that it tells itself, as all lines of polyarch do; a line without has that of the line before, the first ones the start.
"""

import datetime as dt
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

_TIME: Final = re.compile(rb"(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d:\d\d(?:[.,]\d+)?)(Z|[+-]\d\d:?\d\d)?")
LOOK_BYTES: Final = 4096
"""How far into a line its time is looked for."""


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


def selected(
    content: bytes, *, start: dt.datetime, tail: int | None, since: dt.datetime | None, timestamps: bool
) -> list[bytes]:
    """The lines, with their ends. As kubelets do, ``since`` is applied before ``tail``."""
    lines = content.splitlines(keepends=True)
    found = list(timed(lines, start)) if since is not None or timestamps else [(start, line) for line in lines]
    if since is not None:
        found = [(at, line) for at, line in found if at >= since]
    if tail is not None:
        found = found[max(0, len(found) - tail) :] if tail >= 0 else found
    return [stamp(at) + line if timestamps else line for at, line in found]


def stamp(at: dt.datetime) -> bytes:
    """What stands before a line with ``--timestamps``."""
    return at.astimezone(dt.UTC).strftime("%Y-%m-%dT%H:%M:%S.%f000Z ").encode()


def tail_of(path: Path, *, lines: int, size: int) -> str:
    """The last lines of a file, at most ``size`` bytes."""
    with path.open("rb") as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - size))
        return b"".join(file.read().splitlines(keepends=True)[-lines:]).decode("utf-8", "replace")
