"""A folder as the context of a build: the same bytes for the same files, wherever and whenever it is packed.

Sorted, owner 0, time 0, and of the permissions only whether a file can be executed. What an ignore file names is left
out: which file counts is buildah's rule, as it is what builds; what a pattern means is moby/patternmatcher's, of which
this is a port. A pattern that could mean something else than its author thinks is an error, never one that matches
nothing: what it names would be published."""

import errno
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
OWN_IGNORE_FILES: Final = (".dockerignore", ".containerignore")
"""What is added to the path of a Containerfile. Of both, buildah reads the one that BuildKit knows."""
MOST_BYTES: Final = 1024**2
_REPETITION: Final = re.compile(r"\{\d+(?:,\d*)?\}", re.ASCII)
_ANY_NAME: Final = "[^/]*"
_ANY_FOLDERS: Final = "(?:.*/)?"
_MARK: Final = "\ufeff"
_CHANGED: Final = "changed while it was packed; run the command again"
_BLANKS: Final = (
    "\t\n\v\f\r \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u2028\u2029\u202f"
    "\u205f\u3000"
)
"""What Go's TrimSpace takes off."""


class Pattern(NamedTuple):
    """One line of an ignore file."""

    expression: re.Pattern[str]
    takes_back: bool


class IgnoreRules(NamedTuple):
    """What is left out of a context, and the ignore file that says so."""

    patterns: tuple[Pattern, ...] = ()
    file: Path | None = None

    def __str__(self) -> str:
        if self.file is None:
            return "no ignore file"
        return f"{self.file} with {len(self.patterns)} pattern{'' if len(self.patterns) == 1 else 's'}"


class PackedContext(NamedTuple):
    """What was written: digest of the compressed layer, of the plain one, and sizes in bytes."""

    digest: str
    diff_id: str
    size: int
    files: int


def ignore_rules(folder: Path, containerfile: str | None = None) -> IgnoreRules:
    """Of the first ignore file there is: beside the Containerfile, with its name, else in the folder. UsageError for
    one that cannot be read or understood."""
    own = [Path(containerfile + suffix) for suffix in OWN_IGNORE_FILES] if containerfile is not None else []
    for path in (*own, *(folder / name for name in IGNORE_FILES)):
        try:
            if not _is_there(path):
                continue
            if not path.is_file():
                raise UsageError("not a file; make it one, or remove it")
            with path.open("rb") as file:
                content = file.read(MOST_BYTES + 1)
            if len(content) > MOST_BYTES:
                raise UsageError(f"more than {MOST_BYTES // 1024} KiB; use patterns in place of single files")
            return IgnoreRules(tuple(patterns(content.decode())), path)
        except UnicodeDecodeError as error:
            raise UsageError(f"{path}: not UTF-8 (byte {error.start}); save it as UTF-8") from None
        except OSError as error:
            raise UsageError(f"{path}: {error.strerror or error}; make it readable, or remove it") from None
        except UsageError as error:
            raise UsageError(f"{path}: {error}") from None
    return IgnoreRules()


def own_ignore_files(folder: Path) -> list[str]:
    """The files in a folder, at any depth, that have an ignore file of their own."""
    found = set()
    for root, _, files in os.walk(folder):
        for name in files:
            path = Path(root, name)
            if path.suffix in OWN_IGNORE_FILES and path.with_suffix("").is_file():
                found.add(str(path.with_suffix("")))
    return sorted(found)


def patterns(text: str) -> list[Pattern]:
    """The patterns of an ignore file; UsageError, with the line, for one that means nothing or not what it seems to."""
    found = []
    for number, line in enumerate(text.removeprefix(_MARK).split("\n"), start=1):
        try:
            pattern = _line(line.removesuffix("\r"))
        except UsageError as error:
            raise UsageError(f"line {number}: {error}") from None
        if pattern is not None:
            found.append(pattern)
    return found


def is_ignored(path: str, known: Sequence[Pattern]) -> bool:
    """Whether a path of the folder, with ``/``, is left out."""
    parts = path.split("/")
    above = ["/".join(parts[: length + 1]) for length in range(len(parts))]
    ignored = False
    for pattern in known:
        if ignored == pattern.takes_back and any(pattern.expression.fullmatch(each) for each in above):
            ignored = not pattern.takes_back
    return ignored


def pack(folder: Path, target: IO[bytes], rules: IgnoreRules) -> PackedContext:
    """Write the folder as a compressed layer, without what the rules leave out. UsageError for a folder or a file in it
    that cannot be read, and for what is neither a file, a folder nor a link."""
    try:
        return _packed(folder, target, rules)
    except OSError as error:
        what = error.strerror or str(error)
        if error.filename is None:
            raise CouldNotComplete(f"--context {folder}: packing it: {what}") from None
        if error.errno in (errno.ENOENT, errno.ELOOP):
            raise CouldNotComplete(f"--context: {error.filename}: {_CHANGED}") from None
        raise UsageError(f"--context: {error.filename}: {what}; make it readable, or {_named(folder, rules)}") from None


def _named(folder: Path, rules: IgnoreRules) -> str:
    """Another ignore file than the one that counts would take its place, and publish what that one names."""
    return f"name it in {rules.file or folder / IGNORE_FILES[0]}"


def _packed(folder: Path, target: IO[bytes], rules: IgnoreRules) -> PackedContext:
    compressed, plain = _Hashing(target), hashlib.sha256()
    count = 0
    # No name and no time in the header, so that only the files decide.
    with gzip.GzipFile(filename="", mode="wb", fileobj=compressed, mtime=0, compresslevel=6) as zipped:
        tee = _Tee(zipped, plain)
        with tarfile.open(fileobj=tee, mode="w|", format=tarfile.PAX_FORMAT) as archive:  # type: ignore[call-overload]
            for path, entry in _entries(folder, rules):
                count += 1
                if entry.isreg():
                    _add_file(archive, entry, path)
                else:
                    archive.addfile(entry)
    return PackedContext(f"sha256:{compressed.hash.hexdigest()}", f"sha256:{plain.hexdigest()}", compressed.size, count)


def _add_file(archive: tarfile.TarFile, entry: tarfile.TarInfo, path: Path) -> None:
    """Never what a link leads to that has taken the file's place in the meantime: it may be ignored."""
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        try:
            archive.addfile(entry, file)
        except OSError as error:
            if error.errno is not None:
                raise
            raise CouldNotComplete(f"--context: {path}: {_CHANGED}") from None  # shorter than its entry says


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


def _is_there(path: Path) -> bool:
    """Whether anything has this name, also a link that leads nowhere: who made it wanted it read."""
    try:
        path.lstat()
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG):
            return False
        raise
    return True


WHITEOUT = ".wh."
"""How names begin that delete others in a layer (OCI image specification, layer.md)."""


def _entries(folder: Path, rules: IgnoreRules) -> Iterator[tuple[Path, tarfile.TarInfo]]:
    """In the order of their paths, folders before what is in them."""
    for path, relative in sorted(_walk(folder, rules), key=lambda each: each[1].split("/")):
        status = path.lstat()
        if path.name.startswith(WHITEOUT):
            raise UsageError(
                f"--context: {path}: what is called {WHITEOUT}… is lost in a layer, as which a context travels; "
                f"{_named(folder, rules)}, or give it another name"
            )
        entry = tarfile.TarInfo(relative)
        if path.is_symlink():
            entry.type, entry.linkname, entry.mode = tarfile.SYMTYPE, str(path.readlink()), 0o777
        elif path.is_dir():
            entry.type, entry.mode = tarfile.DIRTYPE, 0o755
        elif path.is_file():
            entry.size, entry.mode = status.st_size, 0o755 if status.st_mode & 0o111 else 0o644
        else:
            raise UsageError(
                f"--context: {path}: neither a file, a folder nor a link; {_named(folder, rules)}, or remove it"
            )
        yield path, entry


def _walk(folder: Path, rules: IgnoreRules) -> Iterator[tuple[Path, str]]:
    """buildah reads the ignore file of the context that it gets, too. One that did not count here is not in it, so that
    it does not count there."""
    others = {folder / name for name in IGNORE_FILES} - {rules.file}
    may_return = any(each.takes_back for each in rules.patterns)

    def fail(error: OSError) -> None:
        path = Path(error.filename)
        if path == folder or not is_ignored(path.relative_to(folder).as_posix(), rules.patterns):
            raise error

    for root, folders, files in os.walk(folder, onerror=fail):
        kept = []
        for name in (*folders, *files):
            path = Path(root, name)
            relative = path.relative_to(folder).as_posix()
            if path not in others and not is_ignored(relative, rules.patterns):
                kept.append((path, relative))
        yield from kept
        if not may_return:
            names = {path.name for path, _ in kept}
            folders[:] = [name for name in folders if name in names]


def _line(line: str) -> Pattern | None:
    """As ``ignorefile.ReadAll`` and ``patternmatcher.New`` read it, one after the other; both clean a path."""
    if "\0" in line:
        raise UsageError("a NUL character, as text has that is UTF-16; save the file as UTF-8")
    if _MARK in line:
        raise UsageError("a byte order mark in the middle of the file, as if two were joined; remove it")
    if "\r" in line.replace("[\r]", "").strip("\r"):  # Icon[\r] is in github/gitignore's list for macOS
        raise UsageError("a carriage return that ends no line; save the file with line feeds")
    text = line.strip(_BLANKS)
    if line.startswith("#") or not text:
        return None
    takes_back = text.startswith("!")
    path = text.removeprefix("!").strip(_BLANKS)
    path = _cleaned(path) if path else ""
    path = path[1:] if len(path) > 1 and path.startswith("/") else path
    path = _cleaned(("!" * takes_back + path).strip(_BLANKS))
    takes_back = path.startswith("!")
    path = path.removeprefix("!")
    if not path:
        raise UsageError(f"{text!r} names nothing after its !")
    return Pattern(re.compile(_expression(path, text)), takes_back)


def _cleaned(path: str) -> str:
    """As Go's ``filepath.Clean``: POSIX lets two slashes at the beginning stand."""
    return os.path.normpath("/" + path.lstrip("/") if path.startswith("/") else path)


def _expression(path: str, text: str) -> str:
    """What ``Pattern.compile`` of patternmatcher makes of it, for ``fullmatch``. A pattern is compared as it is, by its
    beginning or by its end, unless something in it needs an expression.

    What stands before another ``*`` of the same folder is matched as early as possible and never again (``(?>``): time
    would grow with the length of a name to the power of the number of stars.
    """
    kind, found, at, operator = "exact", "", 0, ""
    star = -1  # where the last * is in ``found``, if nothing after it leaves a choice of folders
    while at < len(path):
        here, character = at, path[at]
        if path.startswith("**", at):
            at += 3 if path.startswith("**/", at) else 2
            star = -1
            if at < len(path):
                found, kind = found.removesuffix(_ANY_FOLDERS) + _ANY_FOLDERS, "expression"
            elif kind == "exact":
                kind = "beginning"
            else:
                found, kind = found + ".*", "expression"
            kind = kind if here else "end"
            continue
        if character == "*":
            if star >= 0:
                found = f"{found[:star]}(?>{_ANY_NAME}?{found[star:].removeprefix(_ANY_NAME)})"
            found, star = found + _ANY_NAME, len(found)
        elif character == "?":
            found += "[^/]"
        elif character == "\\":
            at += 1
            found += re.escape(_escaped(path, at, text))
        elif character == "[":
            choice, at = _choice(path, at, text)
            found += choice
            star = -1 if re.fullmatch(choice, "/") else star
        else:
            found += "^" if character == "^" else re.escape(character)
            operator = operator or (character if character == "|" or _REPETITION.match(path, at) else "")
        kind = "expression" if character in "*?\\[]" else kind
        at += 1
    match kind:
        case "exact":
            return re.escape(path)
        case "beginning":
            return f"{re.escape(path[:-2])}(?s:.*)"
        case "end":
            return f"(?s:(?:.*/)?){re.escape(path[3:])}" if path[2:3] == "/" else f"(?s:.*){re.escape(path[2:])}"
    if operator:
        raise UsageError(f"{text!r}: {operator} beside *, ? or [ is not the character; write \\{operator}")
    return found


def _choice(path: str, at: int, text: str) -> tuple[str, int]:
    """``[a-z]`` from its bracket on, and where it ends. Syntax as of Go's ``filepath.Match``."""
    inverted = path.startswith("^", at + 1)
    at += 1 + inverted
    ranges: list[str] = []
    while not (ranges and path.startswith("]", at)):
        low, at = _bound(path, at, text)
        high = low
        if path.startswith("-", at):
            high, at = _bound(path, at + 1, text)
        if low > high:
            raise UsageError(f"{text!r}: {low}-{high} is no range; write {high}-{low}")
        ranges.append(f"{re.escape(low)}-{re.escape(high)}")
    return f"[{'^' if inverted else ''}{''.join(ranges)}]", at


def _bound(path: str, at: int, text: str) -> tuple[str, int]:
    """One character between brackets, and where the next one is."""
    character = path[at : at + 1]
    if character == "\\":
        return _escaped(path, at + 1, text), at + 2
    if character == "[" and path.startswith(":", at + 1):
        raise UsageError(f"{text!r}: names of classes are not known here; list the characters")
    if character in ("", "-", "]"):
        raise UsageError(f"{text!r}: the [ is not closed, or something is missing in it; write \\[ for the character")
    if character in "*?":
        raise UsageError(f"{text!r}: {character} between [ and ] is not the character; write \\{character}")
    return character, at + 1


def _escaped(path: str, at: int, text: str) -> str:
    """What stands after a backslash."""
    character = path[at : at + 1]
    if not character:
        raise UsageError(f"{text!r} ends with a backslash; folders end with /")
    if not character.isascii() or character.isalnum():
        raise UsageError(f"{text!r}: a backslash before {character} separates no folders; write /")
    return character
