"""Files of a command: which ones its arguments mean, reading them, and writing one so that nothing is half written.

Paths are shown as they were given, without ``./``, so that a terminal can open them. Symbolic links lead nowhere
outside of the given paths, and a file that changed since it was read is left alone."""

import glob
import os
import stat
import sys
from collections.abc import Sequence
from contextlib import suppress
from io import FileIO
from pathlib import Path
from typing import BinaryIO, NamedTuple

from polyarch.cli.errors import CouldNotComplete, UsageError
from polyarch.manifests.rules.source_files import is_source
from polyarch.manifests.scan.paths import is_ignored, is_manifest, is_skipped_directory

STDIN = "<stdin>"
WORKFLOWS = ".github"
KUSTOMIZATION = "Kustomization"


class InputFiles(NamedTuple):
    """The files that arguments mean, and the directories that links may not leave."""

    files: tuple[str, ...]
    roots: tuple[Path, ...]
    unreadable: tuple[tuple[str, str], ...] = ()
    """Directories that could not be listed and files that no report could name, and why."""
    streams: tuple[str, ...] = ()
    """What can be read once: standard input, and a pipe that is named, such as a shell's ``<(command)``."""
    named: tuple[Path, ...] = ()
    """The files and directories that are named or match a named pattern, as they are given."""


class IgnorePatterns(NamedTuple):
    """Files and directories to leave out. Globs of a configuration are relative to its ``folder``, so that they mean
    the same from everywhere; those of the command line (None) are for paths as they are given there.
    """

    globs: tuple[str, ...] = ()
    folder: Path | None = None

    def has(self, path: Path | str) -> bool:
        if not self.globs:
            return False
        shown = path if self.folder is None else os.path.relpath(path, self.folder)
        return is_ignored(Path(shown).as_posix(), self.globs)


NOTHING_IGNORED = IgnorePatterns()


def find_files(
    arguments: Sequence[str], *, ignore: IgnorePatterns = NOTHING_IGNORED, sources: bool = False
) -> InputFiles:
    """Every file once, sorted within each argument; ``-`` is standard input.

    ``UsageError`` for a named path that does not exist, and for a pattern that matches nothing.
    """
    found: dict[str, str] = {}  # with the file that the path leads to: one with several names is read by the first
    roots: list[Path] = []
    named: list[Path] = []
    unreadable: list[tuple[str, str]] = []
    streams: list[str] = []
    for argument in arguments:
        if argument == "-":
            found[STDIN] = STDIN
            streams.append(STDIN)
            continue
        for path in _expanded(argument):
            named.append(path)
            if path.is_dir():
                roots.append(path.resolve())
                found.update(_walk(path, ignore, unreadable, sources=sources))
            else:
                roots.append(path.parent.resolve() / path.name)
                found[str(path)] = os.path.realpath(path)
                if path.exists() and not path.is_file():
                    streams.append(str(path))
    kept = {path: real for path, real in found.items() if path == STDIN or not ignore.has(path)}
    for name in [name for name in kept if not _is_text(name)]:
        del kept[name]
        unreadable.append((os.fsencode(name).decode(errors="replace"), "its name is not UTF-8; rename it"))
    first = {real: path for path, real in reversed(kept.items())}
    files = tuple(path for path, real in kept.items() if first[real] == path)
    return InputFiles(files, tuple(roots), tuple(unreadable), tuple(dict.fromkeys(streams)), tuple(named))


def _is_text(path: str) -> bool:
    """Whether a path can be written into a report: its bytes are UTF-8."""
    return path.isascii() or not any("\ud800" <= each <= "\udfff" for each in path)


def read_file(path: str) -> bytes:
    """Raises OSError; standard input is read to its end."""
    if path == STDIN:
        stream = standard_input()
        if stream is None:
            raise OSError("standard input is closed")
        return stream.read()
    with FileIO(path) as file:  # a tenth of what Path and a buffer cost, for thousands of files
        return file.readall()


def folders_upward(folder: Path) -> list[Path]:
    """A folder (absolute) and those above it, not beyond the repository's root or home. Outside of both the folder
    alone: what stands in ``/tmp`` may be anybody's.
    """
    home = _home()
    found: list[Path] = []
    for each in (folder, *folder.parents):
        found.append(each)
        if (each / ".git").exists() or each == home:
            return found
    return [folder]


def _home() -> Path | None:
    """None for a user that is a number alone, as in a container: without HOME, and in no /etc/passwd."""
    try:
        return Path.home().resolve()
    except RuntimeError:
        return None


def standard_input() -> BinaryIO | None:
    """None where the process was started without one."""
    return None if sys.stdin is None else sys.stdin.buffer


def write_file(path: str, data: bytes, *, before: bytes | None = None, roots: Sequence[Path] = ()) -> None:
    """Put ``data`` where ``path`` is, at once or not at all, with its mode and owner. What is no regular file, such as
    ``/dev/null`` or a pipe, is written to and stays what it is.

    With ``before`` the file must still have that content, and a symbolic link must lead into ``roots``; otherwise
    ``CouldNotComplete``, and the file stays as it is.
    """
    target = Path(path).resolve()
    if before is not None:
        if Path(path).is_symlink() and not any(target.is_relative_to(root) for root in roots):
            raise CouldNotComplete(f"{path}: links to {target} outside the given paths; pass that file itself")
        if _content(path, target) != before:
            raise CouldNotComplete(f"{path}: changed since it was read, not overwritten; run again")
        if not is_special(path) and not os.access(target, os.W_OK):
            raise CouldNotComplete(f"{path}: is read-only, not overwritten; make it writable")
    try:
        if is_special(path):
            with Path(path).open("wb") as stream:
                stream.write(data)
        else:
            _replace(target, data)
    except OSError as error:
        raise CouldNotComplete(f"{path}: {error.strerror}; the file was not changed") from None


def _content(path: str, target: Path) -> bytes:
    try:
        return target.read_bytes()
    except OSError as error:
        raise CouldNotComplete(f"{path}: {error.strerror}; nothing was written") from None


def _replace(target: Path, data: bytes) -> None:
    import tempfile  # with what it imports a fortieth of the start of a command that writes nothing

    handle, name = tempfile.mkstemp(prefix=f".{target.name}.", suffix=".tmp", dir=target.parent)
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(data)
            stream.flush()
            _keep_manners(stream.fileno(), target)
            os.fsync(stream.fileno())
        Path(name).replace(target)
    except BaseException:
        Path(name).unlink()
        raise
    with suppress(OSError):  # the file is in its place already
        directory = os.open(target.parent, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)


def _keep_manners(handle: int, target: Path) -> None:
    """Mode and owner of the file that is replaced; what a new file would have if there is none."""
    try:
        old = target.stat()
    except FileNotFoundError:
        mask = os.umask(0)
        os.umask(mask)
        os.fchmod(handle, 0o666 & ~mask)
        return
    new = os.fstat(handle)
    if (old.st_uid, old.st_gid) != (new.st_uid, new.st_gid):
        os.fchown(handle, old.st_uid, old.st_gid)
    os.fchmod(handle, stat.S_IMODE(old.st_mode))


def _expanded(argument: str) -> list[Path]:
    """What an argument names: one path, or all that match a pattern."""
    path = Path(argument)
    try:
        if path.exists():
            return [path]
        if not glob.has_magic(argument):
            raise UsageError(f"{argument}: no such file or directory")
        anchor = Path(path.anchor)
        pattern = path.relative_to(anchor)
        found = sorted(each for each in anchor.glob(str(pattern)) if _is_meant(each, pattern))
    except OSError as error:
        raise UsageError(f"{argument}: {error.strerror}; expected files or directories that can be read") from None
    except ValueError as error:  # a pattern that pathlib does not know, such as a**
        raise UsageError(f"{argument}: {error}") from None
    if not found:
        raise UsageError(f"{argument}: no file matches this glob")
    return found


def _is_meant(path: Path, pattern: Path) -> bool:
    """Whether a match would be looked at in a directory, too; what a pattern spells out is meant in any case."""
    if is_special(path):
        return False
    directories = path.parts if path.is_dir() else path.parts[:-1]
    return not any(is_skipped_directory(name) and name not in pattern.parts for name in directories)


def is_special(path: Path | str) -> bool:
    """Pipes, sockets and devices: to open one may last for ever."""
    there = Path(path)
    return there.exists() and not (there.is_file() or there.is_dir())


def _walk(top: Path, ignore: IgnorePatterns, unreadable: list[tuple[str, str]], *, sources: bool) -> dict[str, str]:
    """The files below a directory, each with the file that it is: a link that leads out of the directory is none."""
    found: dict[str, str] = {}

    def note(error: OSError) -> None:
        unreadable.append((str(Path(error.filename)), error.strerror or str(error)))

    root = top.resolve()
    for directory, names, files in os.walk(top, onerror=note):
        here = Path(directory)
        real = here.resolve()
        names[:] = sorted(
            name
            for name in names
            if (not is_skipped_directory(name) or (sources and name == WORKFLOWS)) and not ignore.has(here / name)
        )
        for name in sorted(files):
            if is_manifest(name) or name == KUSTOMIZATION or (sources and is_source((here / name).as_posix())):
                path = here / name
                target = _target(path, f"{real}{os.sep}{name}", root)
                if target is not None:
                    found[str(path)] = target
    return found


def _target(path: Path, real: str, root: Path) -> str | None:
    """The file that an entry of a directory is; None for what is none, and for a link that leads out of ``root``."""
    try:
        mode = os.lstat(real).st_mode
    except OSError:
        return real  # whoever reads it learns why
    if not stat.S_ISLNK(mode):
        return real if stat.S_ISREG(mode) else None
    target = os.path.realpath(path)  # a circle of links stops resolve()
    return target if Path(target).is_relative_to(root) and not is_special(target) else None
