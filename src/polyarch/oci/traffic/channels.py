"""Caches which channel works for an insecure host, found by one request at a time (RG-101).

A host with several permitted channels is tried from the safest on. With a hundred images at one plain registry, each
would start with two failing handshakes; so the first request searches, and concurrent ones wait briefly for its result.
A result is reused only where the same search would have ended the same: for the same certificates, and if every safer
channel of the new request was tried then.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import NamedTuple

from polyarch.oci.cache.recent import Recent
from polyarch.oci.mirrors.hosts_toml import Tls
from polyarch.oci.traffic.pacing import HOSTS_KEPT
from polyarch.oci.transport.tls import Channel

LONGEST_WAIT = 2.0
"""Seconds that a request waits for another one's search before it searches itself."""


class _Found(NamedTuple):
    """The channel that works, and the failed ones tried before it."""

    channel: Channel
    failed: tuple[Channel, ...]


class Search:
    """One request's search, in ``order``. Call ``found`` with the working channel, or ``lost`` if there is none."""

    __slots__ = ("_channels", "_key", "order")

    def __init__(self, channels: "Channels", key: tuple[str, Tls], order: Sequence[Channel]) -> None:
        self._channels = channels
        self._key = key
        self.order = order

    def found(self, channel: Channel) -> None:
        if len(self.order) > 1:
            self._channels.keep(self._key, _Found(channel, tuple(self.order[: self.order.index(channel)])))

    def lost(self) -> None:
        self._channels.forget(self._key)


class Channels:
    """The known channels per host, and the searches in progress."""

    def __init__(self) -> None:
        self._found: Recent[tuple[str, Tls], _Found] = Recent(HOSTS_KEPT)
        self._searches: dict[tuple[str, Tls], asyncio.Event] = {}

    @asynccontextmanager
    async def search(self, host: str, tls: Tls, allowed: Sequence[Channel]) -> AsyncIterator[Search]:
        """The channels a request to ``host`` has to try: the known one, else all ``allowed``.

        Waits for another request's search, if any. At the end of the block, waiting requests continue.
        """
        key = (host, tls)
        if len(allowed) > 1 and self._known(key, allowed) is None and (other := self._searches.get(key)) is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(LONGEST_WAIT):
                    await other.wait()
        known = self._known(key, allowed)
        if known is not None or len(allowed) == 1:
            yield Search(self, key, allowed if known is None else (known,))
            return
        over = self._searches[key] = asyncio.Event()
        try:
            yield Search(self, key, allowed)
        finally:
            over.set()
            if self._searches.get(key) is over:
                del self._searches[key]
        await asyncio.sleep(0)  # lets waiting requests queue before this one's next request (RG-052)

    def keep(self, key: tuple[str, Tls], found: _Found) -> None:
        self._found.put(key, found)

    def forget(self, key: tuple[str, Tls]) -> None:
        self._found.pop(key)

    def _known(self, key: tuple[str, Tls], allowed: Sequence[Channel]) -> Channel | None:
        found = self._found.get(key)
        if found is None or found.channel not in allowed:
            return None
        safer = allowed[: allowed.index(found.channel)]
        return found.channel if set(safer) <= set(found.failed) else None
