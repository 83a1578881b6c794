"""Follows the key that decision annotations are signed with: ``record.key`` beside the certificates (PL-853).

All replicas mount the same Secret, so all have the key within a minute or two of each other; until then a new key is
believed but not signed with, where the one before it is known. A file that is gone or damaged leaves the keys that are
in memory. A process that never had one believes records without a signature.
"""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Final

import structlog

from polyarch.clock import Clock
from polyarch.placement.decide.seal import Seal, keys_in

log = structlog.get_logger(__name__)

FILE: Final = "record.key"
INTERVAL: Final = 10.0
"""Seconds between two looks at the file."""
SPREAD: Final = 180.0
"""Seconds until every process has a key that one of them has; a kubelet takes up to two minutes."""
LARGEST: Final = 4096
"""Bytes that are read of it."""


class RecordKey:
    """Hands a :class:`Seal` to ``take`` whenever there is another one. ``folder``: of the certificates; empty: none."""

    def __init__(self, folder: str, take: Callable[[Seal], None], clock: Clock) -> None:
        self._path = Path(folder) / FILE if folder else None
        self._take = take
        self._clock = clock
        self._keys: tuple[bytes, ...] = ()
        self._signs_anew_at: float | None = None
        self._told = ""
        self._looked = asyncio.Event()

    @property
    def problems(self) -> list[str]:
        """Nothing about it keeps a process from being ready."""
        return []

    async def synced(self) -> None:
        """Returns once the file was looked at."""
        await self._looked.wait()

    async def run(self) -> None:
        """Looks at the file now and then, until cancelled."""
        while True:
            await self.look()
            self._looked.set()
            await self._clock.sleep(INTERVAL)

    async def look(self) -> None:
        """Looks at the file once."""
        try:
            found = keys_in(await asyncio.to_thread(_read, self._path)) if self._path is not None else ()
        except (OSError, ValueError) as error:
            self._tell(error)
            found = ()
        if found and found[0] not in self._keys[:1]:
            self._found(found)
        if self._signs_anew_at is not None and self._clock.monotonic() >= self._signs_anew_at:
            self._signs_anew_at = None
            self._take(Seal(self._keys))
        if not self._keys and self._path is None:
            self._tell(FileNotFoundError())

    def _found(self, keys: tuple[bytes, ...]) -> None:
        """Another newest key. The file may hold the one before it, and if not, we may remember it."""
        self._keys = tuple(dict.fromkeys((*keys, *self._keys)))[:2]
        self._told = ""
        log.info("decision annotations are signed", file=str(self._path), keys=len(self._keys))
        if len(self._keys) == 1:
            self._take(Seal(self._keys))
        else:
            self._signs_anew_at = self._clock.monotonic() + SPREAD
            self._take(Seal(self._keys, signing=1))

    def _tell(self, error: Exception) -> None:
        """Once, until something else is the matter."""
        what = "there is none" if isinstance(error, FileNotFoundError) else str(error)
        if what == self._told:
            return
        self._told = what
        if self._keys:
            log.warning("the key of decision annotations cannot be read, those in memory count", problem=what)
        else:
            log.warning(
                "decision annotations are not signed and believed as they are, for want of a key",
                file=str(self._path or FILE),
                problem=what,
            )


def _read(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(LARGEST)
