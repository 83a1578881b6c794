"""A folder as the context of a build: the same bytes for the same files, wherever and whenever it is packed (BD-300).

Sorted, owner 0, time 0, and of the permissions only whether a file can be executed. What ``.containerignore``, or else
``.dockerignore``, names is left out, by their rules: the last pattern that matches a path or a folder above it decides,
and ``!`` takes it back in.
"""

import gzip
import hashlib
import io
import os
import re
import tarfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Final, NamedTuple

from polyarch.cli.errors import CouldNotComplete, UsageError

IGNORE_FILES: Final = (".containerignore", ".dockerignore")


class Pattern(NamedTuple):
    """One line of an ignore file."""

    expression: re.Pattern[str]
    takes_back: bool


class Packed(NamedTuple):
    """What was written: digest of the compressed layer, of the plain one, and sizes in bytes."""

    digest: str
    diff_id: str
    size: int
    files: int


def patterns(text: str) -> list[Pattern]:
    """The patterns of an ignore file; UsageError for one that cannot be read."""
    return [_pattern(line) for line in map(str.strip, text.splitlines()) if line and not line.startswith("#")]


def is_ignored(path: str, known: Sequence[Pattern]) -> bool:
    """Whether a path of the folder, with ``/``, is left out."""
    parts = path.split("/")
    above = ["/".join(parts[: length + 1]) for length in range(len(parts))]
    ignored = False
    for pattern in known:
        if ignored == pattern.takes_back and any(pattern.expression.fullmatch(each) for each in above):
            ignored = not pattern.takes_back
    return ignored


def pack(folder: Path, target: IO[bytes]) -> Packed:
    """Write the folder as a compressed layer. UsageError for a folder or a file in it that cannot be read, and for what
    is neither a file, a folder nor a link."""
    try:
        return _packed(folder, target)
    except OSError as error:
        what = error.strerror or str(error)
        if error.filename is None:
            raise CouldNotComplete(f"--context {folder}: packing it: {what}") from None
        raise UsageError(
            f"--context: {error.filename}: {what}; make it readable, or name it in .containerignore"
        ) from None


def _packed(folder: Path, target: IO[bytes]) -> Packed:
    known = _ignored_by(folder)
    compressed, plain = _Hashing(target), hashlib.sha256()
    count = 0
    # No name and no time in the header, so that only the files decide.
    with gzip.GzipFile(filename="", mode="wb", fileobj=compressed, mtime=0, compresslevel=6) as zipped:
        tee = _Tee(zipped, plain)
        with tarfile.open(fileobj=tee, mode="w|", format=tarfile.PAX_FORMAT) as archive:  # type: ignore[call-overload]
            for path, entry in _entries(folder, known):
                count += 1
                if entry.isreg():
                    with path.open("rb") as file:
                        archive.addfile(entry, file)
                else:
                    archive.addfile(entry)
    return Packed(f"sha256:{compressed.hash.hexdigest()}", f"sha256:{plain.hexdigest()}", compressed.size, count)


class _Hashing(io.RawIOBase):
    """Passes bytes on, and knows their digest and number."""

    def __init__(self, target: IO[bytes]) -> None:
        self._target = target
        self.hash = hashlib.sha256()
        self.size = 0

    def writable(self) -> bool:
        return True

    def write(self, data: object) -> int:
        content = bytes(data)  # type: ignore[call-overload]
        self.hash.update(content)
        self.size += len(content)
        self._target.write(content)
        return len(content)


class _Tee:
    def __init__(self, target: gzip.GzipFile, digest: "hashlib._Hash") -> None:
        self._target = target
        self._digest = digest

    def write(self, data: bytes) -> int:
        self._digest.update(data)
        return self._target.write(data)


def _ignored_by(folder: Path) -> list[Pattern]:
    for name in IGNORE_FILES:
        path = folder / name
        try:
            return patterns(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            continue
        except (OSError, UnicodeDecodeError, UsageError) as error:
            raise UsageError(f"{path}: {error}") from None
    return []


def _entries(folder: Path, known: Sequence[Pattern]) -> Iterator[tuple[Path, tarfile.TarInfo]]:
    """In the order of their paths, folders before what is in them."""
    for path, relative in sorted(_walk(folder, known), key=lambda each: each[1].split("/")):
        status = path.lstat()
        entry = tarfile.TarInfo(relative)
        if path.is_symlink():
            entry.type, entry.linkname, entry.mode = tarfile.SYMTYPE, str(path.readlink()), 0o777
        elif path.is_dir():
            entry.type, entry.mode = tarfile.DIRTYPE, 0o755
        elif path.is_file():
            entry.size, entry.mode = status.st_size, 0o755 if status.st_mode & 0o111 else 0o644
        else:
            raise UsageError(f"--context: {path}: neither a file, a folder nor a link; name it in .containerignore")
        yield path, entry


def _walk(folder: Path, known: Sequence[Pattern]) -> Iterator[tuple[Path, str]]:
    def fail(error: OSError) -> None:
        raise UsageError(f"--context: {error.filename}: {error.strerror}") from None

    for root, folders, files in os.walk(folder, onerror=fail):
        for name in (*folders, *files):
            path = Path(root, name)
            relative = path.relative_to(folder).as_posix()
            if not is_ignored(relative, known):
                yield path, relative


def _pattern(line: str) -> Pattern:
    takes_back = line.startswith("!")
    text = os.path.normpath(line.removeprefix("!").strip()).lstrip("/")
    try:
        return Pattern(re.compile(_expression(text)), takes_back)
    except re.error as error:
        raise UsageError(f"pattern {line!r}: {error}; patterns are those of .dockerignore") from None


def _expression(text: str) -> str:
    """``**`` is any number of folders, ``*`` and ``?`` stay within one name."""
    found, at = "", 0
    while at < len(text):
        rest = text[at:]
        if rest.startswith("**/"):
            found, at = f"{found}(?:.*/)?", at + 3
        elif rest.startswith("**"):
            found, at = f"{found}.*", at + 2
        elif rest[0] == "*":
            found, at = f"{found}[^/]*", at + 1
        elif rest[0] == "?":
            found, at = f"{found}[^/]", at + 1
        elif rest[0] == "[" and "]" in rest[1:]:
            end = at + rest.index("]", 1)
            found, at = f"{found}[{text[at + 1 : end].replace(chr(92), chr(92) * 2)}]", end + 1
        elif rest[0] == "\\" and len(rest) > 1:
            found, at = found + re.escape(rest[1]), at + 2
        else:
            found, at = found + re.escape(rest[0]), at + 1
    return found
