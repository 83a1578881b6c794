"""The files of a machine, below one directory: every file that is read on behalf of a scan is opened here (NE-030).

So one option moves all of them, and no symlink of a mounted or copied tree leads a reader to the files of another
machine (NE-036). Links are resolved before anything is opened; an absolute link is taken literally, so in a tree that
does not start at ``/`` it leads out.
"""

import errno
import os
from typing import Final, NamedTuple

LARGEST: Final = 16 << 20
"""Bytes of the largest file that is read: the kubelet's memory state of a thousand pods has less than a tenth."""
_CHUNK: Final = 1 << 16


class Tree:
    """Files below ``top``; the paths that are asked for are relative to it, a leading ``/`` means the same."""

    __slots__ = ("_below", "_resolved", "top")

    def __init__(self, top: str, *, within: str | None = None) -> None:
        """``within``: a directory above ``top`` below which links may lead; else that is ``top`` itself."""
        self.top = top
        self._resolved = os.path.realpath(top if within is None else within)
        self._below = self._resolved.rstrip("/") + "/"

    def path(self, path: str) -> str:
        """Where this is, for messages and for what is not read through the tree."""
        return os.path.join(self.top, path.lstrip("/"))  # noqa: PTH118 - thousands of these are made per scan

    def bytes(self, path: str) -> bytes:
        """The content of a file. Raises OSError, also if it lies outside the tree or is larger than :data:`LARGEST`."""
        # A pipe must not hold up a scan: without O_NONBLOCK its open waits for a writer.
        descriptor = os.open(self._inside(path), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            parts, size = [], 0
            while part := os.read(descriptor, _CHUNK):
                parts.append(part)
                size += len(part)
                if size > LARGEST:
                    raise OSError(errno.EFBIG, f"larger than {LARGEST >> 20} MiB", self.path(path))
            return b"".join(parts)
        finally:
            os.close(descriptor)

    def text(self, path: str) -> str:
        """The same as text; what is not UTF-8 is replaced."""
        return self.bytes(path).decode(errors="replace")

    def names(self, path: str) -> list[str]:
        """The entries of a directory, sorted. Raises OSError."""
        return sorted(os.listdir(self._inside(path)))  # noqa: PTH208 - names alone are needed

    def identity(self, path: str) -> tuple[int, int, int, int] | None:
        """Device, inode, size and time of modification of a file; None if there is none. A file that was replaced has
        another one, also if its content is the same.
        """
        try:
            found = os.stat(self._inside(path))  # noqa: PTH116
        except OSError:
            return None
        return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns

    def _inside(self, path: str) -> str:
        whole = os.path.realpath(self.path(path))
        if whole != self._resolved and not whole.startswith(self._below):
            raise OSError(errno.EXDEV, f"a symlink leads out of {self._resolved}", self.path(path))
        return whole


class HostFiles(NamedTuple):
    """Both trees of a machine."""

    root: Tree
    sysfs: Tree


def host_files(root: str = "/", sysfs: str = "") -> HostFiles:
    """All files below ``root``; those of sysfs below ``sysfs`` instead of ``<root>/sys``, if it is given (NE-030)."""
    own = Tree(sysfs) if sysfs else Tree(os.path.join(root, "sys"), within=root)  # noqa: PTH118
    return HostFiles(Tree(root), own)


def reason(error: OSError) -> str:
    """What is the matter with which file, for a message."""
    return f"{error.filename}: {error.strerror}" if error.filename else str(error.strerror or error)
