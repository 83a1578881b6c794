"""Locks between processes: a file held by ``flock``, freed by the kernel when its holder ends, however it ends."""

import asyncio
import fcntl
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

POLL_SECONDS = 0.1


def _try_lock(path: Path) -> int | None:
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


@asynccontextmanager
async def file_lock(path: Path, *, waiting: Callable[[], None] | None = None) -> AsyncIterator[None]:
    """Hold ``path`` for the block; ``waiting`` is called once if another process holds it now.

    The file stays behind: deleting it would let a third process lock another file of the same name.
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
        os.close(descriptor)
