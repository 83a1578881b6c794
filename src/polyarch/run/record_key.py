"""The file with the keys that sign decision annotations and prove reviews, followed while the process runs."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Final

import structlog

from polyarch.clock import Clock
from polyarch.placement.decision import RecordSigner, parse_keys

log = structlog.get_logger(__name__)
FILE: Final = "record.key"
INTERVAL: Final = 10.0
"""Seconds between two reads of the file."""
SPREAD: Final = 180.0
"""Seconds until every process has a new key; a kubelet updates a mounted Secret within two minutes."""
ACCEPTED_AFTER: Final = 600.0
"""Seconds for which a key is accepted that is no longer in the file: until then another process may sign with it."""
LARGEST: Final = 4096
"""The most bytes that are read of the file."""


class SigningKeyFile:
    """Calls ``take`` with each new :class:`RecordSigner`.

    ``folder`` is that of the certificates; empty: there is no key.
    """

    def __init__(self, folder: str, take: Callable[[RecordSigner], None], clock: Clock) -> None:
        self._path = Path(folder) / FILE if folder else None
        self._take = take
        self._clock = clock
        self._keys: tuple[bytes, ...] = ()
        self._signs_anew_at: float | None = None
        self._gone_since: float | None = None
        """Since when one of the keys is not in the file."""
        self._told = ""
        self._looked = asyncio.Event()

    @property
    def problems(self) -> list[str]:
        """Always empty: readiness does not depend on the key."""
        return []

    async def synced(self) -> None:
        """Returns once the file was read."""
        await self._looked.wait()

    async def run(self) -> None:
        """Read the file periodically, until cancelled."""
        while True:
            await self.look()
            self._looked.set()
            await self._clock.sleep(INTERVAL)

    async def look(self) -> None:
        """Read the file once."""
        try:
            found = parse_keys(await asyncio.to_thread(_read, self._path)) if self._path is not None else ()
        except (OSError, ValueError) as error:
            self._tell(error)
            found = ()
        if found and found[0] not in self._keys[:1]:
            self._found(found)
        elif found[1:] and found != self._keys and self._signs_anew_at is None:
            self._keys = found  # the one before it was put back
            self._take(RecordSigner(found))
        if self._signs_anew_at is not None and self._clock.monotonic() >= self._signs_anew_at:
            self._signs_anew_at = None
            self._take(RecordSigner(self._keys))
        if found:
            self._drop_gone(found)
        if not self._keys and self._path is None:
            self._tell(FileNotFoundError())

    def _found(self, keys: tuple[bytes, ...]) -> None:
        """Take a new newest key. The former one is in the file, or still in memory."""
        self._keys = tuple(dict.fromkeys((*keys, *self._keys)))[:2]
        self._told = ""
        self._gone_since = None
        log.info("signing decision annotations", file=str(self._path), keys=len(self._keys))
        if len(self._keys) == 1:
            self._take(RecordSigner(self._keys))
        else:
            self._signs_anew_at = self._clock.monotonic() + SPREAD
            self._take(RecordSigner(self._keys, signing=1))

    def _drop_gone(self, found: tuple[bytes, ...]) -> None:
        """Stop accepting a key that has long not been in the file."""
        now = self._clock.monotonic()
        if set(self._keys) <= set(found):
            self._gone_since = None
        elif self._gone_since is None:
            self._gone_since = now
        elif now - self._gone_since >= ACCEPTED_AFTER:
            self._keys, self._gone_since = found, None
            log.info("a former key of decision annotations is no longer accepted", file=str(self._path))
            self._take(RecordSigner(self._keys))

    def _tell(self, error: Exception) -> None:
        """Log a problem once, until another one occurs."""
        what = "there is none" if isinstance(error, FileNotFoundError) else str(error)
        if what == self._told:
            return
        self._told = what
        if self._keys:
            log.warning("cannot read the key of decision annotations, using those in memory", problem=what)
        else:
            log.warning(
                "no key: decision annotations are not signed, and unsigned ones are accepted",
                file=str(self._path or FILE),
                problem=what,
            )


def _read(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(LARGEST)
