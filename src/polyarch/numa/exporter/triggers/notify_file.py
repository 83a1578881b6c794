"""The notify file: whoever touches it asks for a scan (NE-119).

A container runtime's hook does, for example, which cannot call anybody. The file is on the host, so nothing but an
empty regular file is accepted under its name.
"""

import os
import stat
from pathlib import Path


class NotifyFileError(ValueError):
    """``--notify-file`` names something that cannot be used."""


def prepare(path: Path) -> None:
    """Creates the file, empty and for its owner alone, if there is none. Raises NotifyFileError."""
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))
    except FileExistsError:
        _check(path)
    except OSError as error:
        raise NotifyFileError(f"--notify-file {path} cannot be created: {error.strerror}") from error


def _check(path: Path) -> None:
    try:
        found = os.lstat(path)
    except OSError as error:
        raise NotifyFileError(f"--notify-file {path} cannot be read: {error.strerror}") from error
    if stat.S_ISLNK(found.st_mode):
        problem = "is a symbolic link"
    elif not stat.S_ISREG(found.st_mode):
        problem = "is no regular file"
    elif found.st_size:
        problem = "is not empty"
    else:
        return
    raise NotifyFileError(f"--notify-file {path} {problem}: name an empty file, or one that does not exist yet")
