"""The guard where connections are made: an address is judged when it is connected to, not when its name was looked up.

A check of names, or of an answer of the DNS, can be undone by the next answer. Here the check is made with the very
address that the socket is about to connect to, before the first packet, and again on the peer of a connection from the
pool, which may have been opened for a request with a wider reach (RG-102, RG-103).

This is the only module that knows aiohttp's connector. :class:`Attempt` carries what one request may do into it, by a
context variable: aiohttp opens sockets in tasks of its own, which copy the context of the request they work for.
"""

import asyncio
import socket
from collections.abc import Sequence
from contextvars import ContextVar
from typing import Any, Protocol

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.tracing import Trace

from polyarch.oci.transport.addresses import NAMED, AddressPolicy, Reach, RefusedAddress
from polyarch.oci.transport.seam import Phase, Timeouts

KEEP_ALIVE = 15.0
DNS_SECONDS = 10


class Resolver(Protocol):
    """The seam of RG-003: a host's addresses. ``OSError`` if it has none."""

    async def resolve(self, host: str) -> Sequence[str]: ...


class SystemResolver:
    """What the machine's resolver says."""

    __slots__ = ()

    async def resolve(self, host: str) -> Sequence[str]:
        infos = await asyncio.get_running_loop().getaddrinfo(
            host, None, type=socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG
        )
        return list(dict.fromkeys(str(info[4][0]) for info in infos))


class AddressRefused(OSError):  # noqa: N818 - what happened, not a fault
    """Raised in place of a connection. An ``OSError``, so that the other addresses of the host are still tried."""

    def __init__(self, refusal: RefusedAddress) -> None:
        super().__init__(refusal.message)
        self.refusal = refusal


class Attempt:
    """What one request may reach, and how far it has come.

    ``deadline`` ends the current phase; it is set anew when a connection stands. With a ``proxied`` request the peer is
    the proxy, which the environment names and nobody judges.
    """

    __slots__ = (
        "_policy",
        "_proxied",
        "_reach",
        "_timeouts",
        "deadline",
        "host",
        "once",
        "opened",
        "peer",
        "phase",
        "refusal",
        "seconds",
        "tried",
    )

    def __init__(
        self, host: str, *, policy: AddressPolicy, reach: Reach = NAMED, timeouts: Timeouts, proxied: bool = False
    ) -> None:
        self.host = host
        self.deadline: asyncio.Timeout | None = None
        self.phase: Phase = "connect"
        self.peer = ""
        self.refusal: RefusedAddress | None = None
        self.tried = 0
        """Addresses that were permitted, and so had their chance."""
        self.opened = False
        """A socket was made for the latest connection; false if it came from the pool."""
        self.once = False
        """The body comes from elsewhere and cannot be sent a second time."""
        self.seconds = timeouts.connect
        """What the current phase was allowed."""
        self._policy = policy
        self._reach = reach
        self._timeouts = timeouts
        self._proxied = proxied

    def connecting(self) -> None:
        """A connection is wanted; also when aiohttp repeats a request whose pooled connection had gone stale."""
        self.phase = "connect"
        self.opened = False
        self._extend(self._timeouts.connect)

    def permit(self, address: str) -> None:
        """``AddressRefused`` unless this address may be connected to."""
        if not self._proxied:
            refusal = self._policy.check(address, host=self.host, reach=self._reach)
            if refusal is not None:
                self.refusal = refusal
                raise AddressRefused(refusal)
        self.tried += 1
        self.opened = True

    def connected(self, peer: str) -> None:
        """A connection stands, new or from the pool; ``AddressRefused`` if it leads where this request may not go."""
        if not self._proxied:
            refusal = self._policy.check(peer, host=self.host, reach=self._reach)
            if refusal is not None:
                self.refusal, self.tried = refusal, 0
                raise AddressRefused(refusal)
            self.peer = peer
        self.phase = "first byte"
        self._extend(self._timeouts.first_byte)

    def sending(self, *, seconds: float | None = None) -> None:
        """A piece of the body is on its way, or with ``seconds`` the last one: the wait for the answer begins anew."""
        self._extend(self._timeouts.first_byte if seconds is None else seconds)

    def _extend(self, seconds: float) -> None:
        self.seconds = seconds
        if self.deadline is not None:
            self.deadline.reschedule(asyncio.get_running_loop().time() + seconds)


current: ContextVar[Attempt] = ContextVar("polyarch_oci_attempt")


class GuardedConnector(aiohttp.TCPConnector):
    """aiohttp's connector with the guard. Every request through it needs a current :class:`Attempt`.

    It has no limits of its own: the client decides how many requests are on their way (RG-052), and time spent waiting
    for a slot here would be taken for a slow host.
    """

    def __init__(self, resolver: Resolver) -> None:
        super().__init__(
            resolver=_Adapter(resolver),
            ttl_dns_cache=DNS_SECONDS,
            keepalive_timeout=KEEP_ALIVE,
            limit=0,
            socket_factory=_open,
        )

    async def connect(
        self, req: aiohttp.ClientRequest, traces: list[Trace], timeout: aiohttp.ClientTimeout
    ) -> aiohttp.connector.Connection:
        attempt = current.get()
        attempt.connecting()
        connection = await super().connect(req, traces, timeout)
        try:
            attempt.connected(_peer(connection))
        except BaseException:
            connection.release()
            raise
        return connection


class _Adapter(AbstractResolver):
    """Our seam in aiohttp's shape."""

    def __init__(self, resolver: Resolver) -> None:
        self._resolver = resolver

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        addresses = await self._resolver.resolve(host)
        if not addresses:
            raise OSError("the name has no address")
        return [
            ResolveResult(
                hostname=host,
                host=address,
                port=port,
                family=socket.AF_INET6 if ":" in address else socket.AF_INET,
                proto=0,
                flags=socket.AI_NUMERICHOST,
            )
            for address in addresses
        ]

    async def close(self) -> None:
        """Nothing to close."""


def _open(info: tuple[Any, ...]) -> socket.socket:
    family, kind, protocol, _, address = info
    current.get().permit(address[0])
    return socket.socket(family=family, type=kind, proto=protocol)


def _peer(connection: aiohttp.connector.Connection) -> str:
    transport = connection.transport
    name = transport.get_extra_info("peername") if transport is not None else None
    if not name:
        raise ConnectionResetError("the connection was closed at once")
    return str(name[0])
