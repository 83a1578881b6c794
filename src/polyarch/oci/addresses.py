"""Which addresses may be reached, and by whose word (RG-102 to RG-105).

A registry's answers name other places: a token endpoint, a redirect, an upload location. In a cluster even the images'
hosts are chosen by pod authors. Without limits each of them could make polyarch talk to a metadata service, to the
node itself or to an internal API. So every address falls in one of four classes, and :class:`AddressPolicy` says which
classes may be reached, depending on who named the host (:class:`Reach`). Names are checked where they are connected to
(``connector``), so an answer of the DNS that changes between two look-ups gains nothing.

Pure: no I/O, no network stack.
"""

import enum
import ipaddress

import msgspec

IPAddress = ipaddress.IPv4Address | ipaddress.IPv6Address
IPNetwork = ipaddress.IPv4Network | ipaddress.IPv6Network


class AddressClass(enum.StrEnum):
    """From what nobody should reach to what everybody may; RG-102."""

    NEVER = "never"
    LOOPBACK = "loopback"
    PRIVATE = "private"
    PUBLIC = "public"


class Reach(msgspec.Struct, frozen=True):
    """Who named the host that a request goes to (RG-103).

    ``named``: the user's reference or configuration did. Otherwise a server did, and ``registry`` is the class of the
    registry's own address, ``None`` if it is not known (a name behind a proxy).
    """

    named: bool = True
    registry: AddressClass | None = None


NAMED = Reach()
