"""Files that several processes use: written atomically, readable by their owner only, and locked by ``flock``.

A reader sees the old content or the new one. The kernel frees a lock when its holder ends, however it ends.
"""

import asyncio
import fcntl
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec


def write_private(path: Path, content: bytes) -> None:
    """Replace ``path`` with this content, mode 0600; create missing parent folders."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.partial")
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
    partial.replace(path)


def write_json(path: Path, value: object) -> None:
    """Write a value as indented JSON, as :func:`write_private` does."""
    write_private(path, msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n")


# -- locks -------------------------------------------------------------------------------------------------------------


POLL_SECONDS = 0.1


def _try_lock(path: Path) -> int | None:
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not _is_still(descriptor, path):
            os.close(descriptor)
            return None
    except BlockingIOError:
        os.close(descriptor)
        return None
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _is_still(descriptor: int, path: Path) -> bool:
    """Whether ``path`` is still the file we locked: its last holder may have deleted it."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


def _unlink(path: Path) -> None:
    path.unlink(missing_ok=True)


@asynccontextmanager
async def file_lock(
    path: Path, *, waiting: Callable[[], None] | None = None, remove: bool = False
) -> AsyncIterator[None]:
    """Hold the lock ``path`` for the block; call ``waiting`` once if another process holds it.

    ``remove`` deletes the file afterwards, when what it protects is deleted; a process that waited creates it again.
    """
    told = False
    while (descriptor := _try_lock(path)) is None:
        if not told and waiting is not None:
            waiting()
        told = True
        await asyncio.sleep(POLL_SECONDS)
    try:
        yield
    finally:
        if remove:
            _unlink(path)
        os.close(descriptor)
