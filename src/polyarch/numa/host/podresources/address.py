"""Where the podresources API is asked, and how a new socket at the same place is told from the old one."""

import os
import stat
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit


class Address(NamedTuple):
    """A ``unix://`` socket or a ``fake://`` directory of answers."""

    fake: bool
    path: Path

    def __str__(self) -> str:
        return f"{'fake' if self.fake else 'unix'}://{self.path}"


def parse(url: str) -> Address:
    """Raises ValueError with what is wrong."""
    parts = urlsplit(url)
    if parts.scheme not in {"unix", "fake"} or parts.netloc or not parts.path.startswith("/"):
        raise ValueError(
            f"{url!r} is no address of podresources: write unix:///path/of/kubelet.sock or fake:///directory"
        )
    return Address(parts.scheme == "fake", Path(parts.path))


class Identity(NamedTuple):
    """Which socket it is: a kubelet that starts makes its own."""

    device: int
    inode: int
    made: int
    """Nanoseconds: file systems give the inode of a removed file to the next."""


def identity(path: Path) -> Identity | None:
    """None while there is no socket."""
    try:
        found = path.stat()
    except OSError:
        return None
    return Identity(found.st_dev, found.st_ino, found.st_mtime_ns) if stat.S_ISSOCK(found.st_mode) else None


LONGEST_SOCKET_PATH = 107
"""``sun_path`` has 108 bytes, with the zero at its end (unix(7))."""


class Reachable:
    """A path that fits into a socket's address, and what has to stay open while it is used."""

    def __init__(self, path: Path) -> None:
        """A path that is too long is reached through its directory. Raises OSError if that cannot be opened."""
        self._directory: int | None = None
        self.path = str(path)
        if len(os.fsencode(path)) > LONGEST_SOCKET_PATH:
            self._directory = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
            self.path = f"/proc/self/fd/{self._directory}/{path.name}"

    def close(self) -> None:
        directory, self._directory = self._directory, None
        if directory is not None:
            os.close(directory)
