"""The seam to the network: one request, one answer with a streamed body, and the ways that can fail (RG-003).

Every byte that this package exchanges with a network goes through a :class:`Transport`. It follows no redirects,
decodes no content encoding, keeps no cookies and shows no credential that it was not given: those decisions belong to
the client above. What it does decide is whether an address may be reached, how long each phase may take and whom to
trust; it fails with one error type that says which of these it was.
"""

from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Literal, Protocol

import msgspec

from polyarch.oci.mirrors.hosts_toml import Tls
from polyarch.oci.transport.addresses import NAMED, AddressClass, Reach

FailureKind = Literal["connect", "unknown-host", "tls", "timeout", "truncated", "refused-address"]
Phase = Literal["connect", "first byte", "body"]
Cause = Literal["", "refused", "handshake"]

NO_TLS = Tls()


class Timeouts(msgspec.Struct, frozen=True):
    """Seconds for each phase of a request (RG-051): name look-up, connection and TLS handshake together; from there to
    the status line and headers; between two pieces of the body."""

    connect: float = 5.0
    first_byte: float = 15.0
    idle: float = 15.0


class TransportError(Exception):
    """There is no answer, or not all of it. ``detail`` is a clause for people and holds no secret.

    ``connect``: the host cannot be reached; ``unknown-host``: the resolver says that there is none of that name;
    ``tls``: the handshake failed or a certificate file is unusable; ``timeout``: ``phase`` took too long;
    ``truncated``: the answer broke off or was no HTTP; ``refused-address``: nothing was sent, RG-103 forbids it.
    ``cause`` singles out what an insecure source may answer to with its next channel (RG-101).
    """

    def __init__(self, kind: FailureKind, *, phase: Phase, host: str, detail: str, cause: Cause = "") -> None:
        super().__init__(f"{host}: {detail}")
        self.kind: FailureKind = kind
        self.phase: Phase = phase
        self.host = host
        self.detail = detail
        self.cause: Cause = cause


class BodyTooLarge(Exception):  # noqa: N818 - the name says what is the matter
    """A body exceeds the limit it was read with; ``size`` is what the server declared, if it did (RG-050)."""

    def __init__(self, *, limit: int, size: int | None, host: str) -> None:
        declared = f"{size} bytes" if size is not None else f"more than {limit} bytes"
        super().__init__(f"{host}: the answer has {declared}, the limit is {limit}")
        self.limit = limit
        self.size = size
        self.host = host


class Headers:
    """Response headers: names in any case, several values for one name kept in order."""

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
    """An answer whose body is still on the wire. Usable inside the ``async with`` of the request only."""

    @property
    def status(self) -> int: ...

    @property
    def headers(self) -> Headers: ...

    @property
    def url(self) -> str:
        """What was asked, as given."""
        ...

    @property
    def peer(self) -> str:
        """The IP address that answered; ``""`` if it is a proxy's."""
        ...

    @property
    def peer_class(self) -> AddressClass | None:
        """The class of the registry's own address, for :class:`~polyarch.oci.transport.addresses.Reach`; behind a
        proxy that of a literal address in the URL, else ``None``."""
        ...

    async def read(self, limit: int) -> bytes:
        """The whole body. :class:`BodyTooLarge` as soon as it is known to exceed ``limit`` bytes, a declared
        ``Content-Length`` counting before the first byte; :class:`TransportError` if it breaks off or stalls."""
        ...

    async def read_some(self, limit: int) -> bytes:
        """The first ``limit`` bytes at most: for the bodies of errors, of which the rest does not matter."""
        ...

    def chunks(self) -> AsyncIterator[bytes]:
        """The body piece by piece as it arrives; never an empty piece."""
        ...


class Transport(Protocol):
    """The seam of RG-003."""

    def request(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        body: bytes | AsyncIterable[bytes] | None = None,
        reach: Reach = NAMED,
        verified: bool = True,
        tls: Tls = NO_TLS,
    ) -> AbstractAsyncContextManager[Response]:
        """Send one request. ``url`` is absolute, ``http`` or ``https``, and is sent exactly as it is given.

        A body that comes piece by piece is sent once, as it arrives, under the ``Content-Length`` of the headers.

        ``verified=False`` accepts any certificate: for a source configured insecure only (RG-101). ``tls`` is what the
        source's file says of this host, and is given for requests to that host only. ``User-Agent`` and
        ``Accept-Encoding: identity`` are added unless given. Raises :class:`TransportError`.
        """
        ...

    async def close(self) -> None:
        """Close all connections."""
        ...
