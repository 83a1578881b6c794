"""The transport interface: one request, one response with a streamed body, one error type.

All network traffic of this package goes through a :class:`Transport`. It follows no redirects, decodes no content
encoding, keeps no cookies and sends only the credentials it is given: that is decided by the client above. The
transport decides whether an address may be reached, how long each phase may take, and which certificates to trust.
"""

from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Literal, Protocol

import msgspec

from polyarch.oci.mirror_files import Tls
from polyarch.oci.transport.addresses import NAMED, AddressClass, HostProvenance

if TYPE_CHECKING:
    from polyarch.oci.concurrency import Tenants  # loads asyncio, which not all need who read answers

FailureKind = Literal["connect", "unknown-host", "tls", "timeout", "truncated", "refused-address"]
Phase = Literal["name", "connect", "first byte", "body"]
Cause = Literal["", "refused", "handshake"]

NO_TLS = Tls()


class Timeouts(msgspec.Struct, frozen=True):
    """Seconds per phase of a request: name, connection and TLS handshake together; then until the response
    headers; then between two pieces of the body. And a body has to come with ``slowest`` bytes a second on average
    over each ``slow_period`` of waiting for it.
    """

    connect: float = 5.0
    first_byte: float = 15.0
    idle: float = 15.0
    slow_period: float = 10.0
    slowest: float = 100.0


class TransportError(Exception):
    """No answer, or an incomplete one. ``detail`` is a clause for messages and contains no secret.

    ``connect``: the host is unreachable; ``unknown-host``: the resolver reports that the name does not exist; ``tls``:
    the handshake failed or a certificate file is unusable; ``timeout``: ``phase`` took too long; ``truncated``: the
    answer ended early or was not HTTP; ``refused-address``: the address policy forbids it and nothing was sent.
    ``cause`` says whether an insecure source may be tried in its next transport mode.
    """

    def __init__(self, kind: FailureKind, *, phase: Phase, host: str, detail: str, cause: Cause = "") -> None:
        super().__init__(f"{host}: {detail}")
        self.kind: FailureKind = kind
        self.phase: Phase = phase
        self.host = host
        self.detail = detail
        self.cause: Cause = cause


class BodyTooLarge(Exception):  # noqa: N818 - the name says what is the matter
    """A body exceeds its limit; ``size`` is the declared length, if any."""

    def __init__(self, *, limit: int, size: int | None, host: str) -> None:
        declared = f"{size} bytes" if size is not None else f"more than {limit} bytes"
        super().__init__(f"{host}: the answer has {declared}, the limit is {limit}")
        self.limit = limit
        self.size = size
        self.host = host


class Headers:
    """Response headers: case-insensitive names, repeated values in order."""

    __slots__ = ("_items",)

    def __init__(self, items: Iterable[tuple[str, str]] = ()) -> None:
        self._items = tuple((name.lower(), value) for name, value in items)

    def get(self, name: str, default: str = "") -> str:
        """The first value, without surrounding white space."""
        name = name.lower()
        return next((value.strip() for key, value in self._items if key == name), default)

    def get_all(self, name: str) -> list[str]:
        """All values, in the order received."""
        name = name.lower()
        return [value for key, value in self._items if key == name]

    def __contains__(self, name: str) -> bool:
        name = name.lower()
        return any(key == name for key, _ in self._items)

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return iter(self._items)

    def __repr__(self) -> str:
        return f"Headers({', '.join(sorted({name for name, _ in self._items}))})"


class Response(Protocol):
    """An answer with an unread body. Valid only inside the request's ``async with``."""

    @property
    def status(self) -> int: ...

    @property
    def headers(self) -> Headers: ...

    @property
    def url(self) -> str:
        """The URL of the request."""
        ...

    @property
    def peer(self) -> str:
        """IP address of the server; ``""`` behind a proxy."""
        ...

    @property
    def peer_class(self) -> AddressClass | None:
        """Class of the registry's address, for :class:`~polyarch.oci.transport.addresses.HostProvenance`; behind a
        proxy that of a literal address in the URL, else ``None``.
        """
        ...

    async def read(self, limit: int, hold: Callable[[int], None] = lambda length: None) -> bytes:
        """The whole body. ``hold`` is called with the length of each piece before it is kept, and may raise.

        Raises :class:`BodyTooLarge` as soon as the body is known to exceed ``limit`` bytes, by ``Content-Length``
        before the first byte; :class:`TransportError` if it ends early, stalls or is too slow.
        """
        ...

    async def read_some(self, limit: int) -> bytes:
        """At most the first ``limit`` bytes: for error bodies."""
        ...

    def chunks(self) -> AsyncIterator[bytes]:
        """The body as it arrives; never an empty piece."""
        ...


class Transport(Protocol):
    """Interface to the network."""

    def request(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        body: bytes | AsyncIterable[bytes] | None = None,
        provenance: HostProvenance = NAMED,
        verified: bool = True,
        tls: Tls = NO_TLS,
        tenants: "Tenants | None" = None,
    ) -> AbstractAsyncContextManager[Response]:
        """Send one request. ``url`` is an absolute http(s) URL, sent unchanged.

        A streamed body is sent once, as it arrives, with the ``Content-Length`` of the headers.

        ``verified=False`` accepts any certificate, for sources configured as insecure only. ``tls`` has the
        source's own settings, for requests to its host only; ``tenants`` are those on whose behalf it is sent.
        ``User-Agent`` and ``Accept-Encoding: identity`` are added unless given. Raises :class:`TransportError`.
        """
        ...

    async def close(self) -> None:
        """Close all connections."""
        ...
