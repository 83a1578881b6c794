"""Address checks at connection time, in aiohttp's connector (RG-102, RG-103).

A check of a name, or of a DNS answer, can be undone by the next DNS answer. So the check uses the very address the
socket is about to connect to, before the first packet, and again the peer of a pooled connection, which may have been
opened for a request with a wider reach.

Only this module knows aiohttp's connector. A context variable carries the :class:`Attempt` of one request into it:
aiohttp opens sockets in its own tasks, which copy the context of the request.
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
    """Interface for name resolution (RG-003). ``OSError`` if a host has no address."""

    async def resolve(self, host: str) -> Sequence[str]: ...


class SystemResolver:
    """The machine's resolver."""

    __slots__ = ()

    async def resolve(self, host: str) -> Sequence[str]:
        infos = await asyncio.get_running_loop().getaddrinfo(
            host, None, type=socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG
        )
        return list(dict.fromkeys(str(info[4][0]) for info in infos))


class AddressRefused(OSError):  # noqa: N818 - what happened, not a fault
    """Raised instead of connecting. An ``OSError``, so that aiohttp still tries the host's other addresses."""

    def __init__(self, refusal: RefusedAddress) -> None:
        super().__init__(refusal.message)
        self.refusal = refusal


class Attempt:
    """The permitted addresses and the progress of one request.

    ``deadline`` ends the current phase and is reset when a connection is established. For a ``proxied`` request the
    peer is the proxy, which is configured by the environment and not checked.
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
        """Number of permitted addresses, which were tried."""
        self.opened = False
        """The latest connection is new; false if it came from the pool."""
        self.once = False
        """The body is a stream and cannot be sent twice."""
        self.seconds = timeouts.connect
        """Time limit of the current phase."""
        self._policy = policy
        self._reach = reach
        self._timeouts = timeouts
        self._proxied = proxied

    def connecting(self) -> None:
        """A connection is needed; also when aiohttp repeats a request after a stale pooled connection."""
        self.phase = "connect"
        self.opened = False
        self._extend(self._timeouts.connect)

    def permit(self, address: str) -> None:
        """``AddressRefused`` unless this address may be reached."""
        if not self._proxied:
            refusal = self._policy.check(address, host=self.host, reach=self._reach)
            if refusal is not None:
                self.refusal = refusal
                raise AddressRefused(refusal)
        self.tried += 1
        self.opened = True

    def connected(self, peer: str) -> None:
        """A new or pooled connection is ready; ``AddressRefused`` if this request may not use its peer."""
        if not self._proxied:
            refusal = self._policy.check(peer, host=self.host, reach=self._reach)
            if refusal is not None:
                self.refusal, self.tried = refusal, 0
                raise AddressRefused(refusal)
            self.peer = peer
        self.phase = "first byte"
        self._extend(self._timeouts.first_byte)

    def sending(self, *, seconds: float | None = None) -> None:
        """Restart the wait for the answer: after a piece of the body, or with ``seconds`` after the last one."""
        self._extend(self._timeouts.first_byte if seconds is None else seconds)

    def _extend(self, seconds: float) -> None:
        self.seconds = seconds
        if self.deadline is not None:
            self.deadline.reschedule(asyncio.get_running_loop().time() + seconds)


current: ContextVar[Attempt] = ContextVar("polyarch_oci_attempt")


class GuardedConnector(aiohttp.TCPConnector):
    """aiohttp's connector with address checks. Every request through it needs a current :class:`Attempt`.

    It has no connection limits: the client limits concurrent requests (RG-052), and waiting for a slot here would look
    like a slow host.
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
    """A :class:`Resolver` with aiohttp's interface."""

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
