"""Which addresses may be reached, depending on who named the host (RG-102, RG-103).

A registry's answers name other hosts: token endpoints, redirects, upload locations. In a cluster even the hosts of the
images are chosen by pod authors. Without limits, either could make polyarch connect to a metadata service, to the node
or to an internal API. So every address has one of four classes, and :class:`AddressPolicy` says which classes may be
reached for whom (:class:`Reach`). ``connector`` checks the address at connection time, so a DNS answer that changes
between two look-ups is checked too.

Pure: no I/O, no network stack.
"""

import enum
import ipaddress
import socket
from collections.abc import Iterable
from functools import lru_cache
from typing import Literal

import msgspec

IPAddress = ipaddress.IPv4Address | ipaddress.IPv6Address
IPNetwork = ipaddress.IPv4Network | ipaddress.IPv6Network
Mode = Literal["cli", "cluster"]


class InvalidSetting(ValueError):  # noqa: N818 - it says what the setting is
    """An unusable setting of the transport (an address range, a certificate file, a proxy): a usage error."""


class AddressClass(enum.StrEnum):
    """Classes of addresses, from forbidden to public (RG-102)."""

    NEVER = "never"
    LOOPBACK = "loopback"
    PRIVATE = "private"
    PUBLIC = "public"


class Reach(msgspec.Struct, frozen=True):
    """Who named the host of a request (RG-103).

    ``named``: the user's reference or configuration. Otherwise a server did, and ``registry`` is the class of the
    registry's own address, ``None`` if unknown (a name behind a proxy).
    """

    named: bool = True
    registry: AddressClass | None = None


NAMED = Reach()


class RefusedAddress(msgspec.Struct, frozen=True):
    """Why an address may not be reached (``refused-address``)."""

    host: str
    address: str
    address_class: AddressClass
    reason: str

    @property
    def message(self) -> str:
        """Names host, class and the setting (RG-103); a host that is the address is not repeated."""
        shown = "is" if self.host == self.address else f"has the address {self.address}, which is"
        return f"{shown} {_CLASS_WORDS[self.address_class]}: {self.reason}"


_CLASS_WORDS = {
    AddressClass.NEVER: "of the class never (link-local, multicast, unspecified or a metadata service)",
    AddressClass.LOOPBACK: "of the class loopback",
    AddressClass.PRIVATE: "of the class private",
    AddressClass.PUBLIC: "of the class public",
}
_RANK = {AddressClass.NEVER: 0, AddressClass.LOOPBACK: 1, AddressClass.PRIVATE: 2, AddressClass.PUBLIC: 3}

# First match wins. Beyond the words of RG-102: 0.0.0.0/8 reaches the host itself on Linux; fd20:ce::254 and
# 168.63.129.16 are the metadata services of two more clouds; fec0::/10 is the forerunner of fc00::/7.
_TABLE: tuple[tuple[AddressClass, tuple[IPNetwork, ...]], ...] = (
    (
        AddressClass.NEVER,
        tuple(
            ipaddress.ip_network(text)
            for text in (
                "0.0.0.0/8",
                "224.0.0.0/4",
                "255.255.255.255/32",
                "169.254.0.0/16",
                "100.100.100.200/32",
                "192.0.0.192/32",
                "168.63.129.16/32",
                "::/128",
                "ff00::/8",
                "fe80::/10",
                "fd00:ec2::254/128",
                "fd20:ce::254/128",
            )
        ),
    ),
    (AddressClass.LOOPBACK, (ipaddress.ip_network("127.0.0.0/8"), ipaddress.ip_network("::1/128"))),
    (
        AddressClass.PRIVATE,
        tuple(
            ipaddress.ip_network(text)
            for text in (
                "10.0.0.0/8",
                "172.16.0.0/12",
                "192.168.0.0/16",
                "100.64.0.0/10",
                "fc00::/7",
                "fec0::/10",
            )
        ),
    ),
)
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
_NAT64_LOCAL = ipaddress.IPv6Network("64:ff9b:1::/48")
_TRANSLATED = ipaddress.IPv6Network("::ffff:0:0:0/96")
_COMPATIBLE = ipaddress.IPv6Network("::/96")
# RFC 6052, 2.2: where the IPv4 address lies within the 16 bytes, for prefixes of 48, 56, 64 and 96 bits
_NAT64_LAYOUTS = ((6, 7, 9, 10), (7, 9, 10, 11), (9, 10, 11, 12), (12, 13, 14, 15))


class AddressPolicy(msgspec.Struct, frozen=True):
    """The rules of RG-103. ``deny`` overrides ``allow``, and ``allow`` overrides the classes, including *never*."""

    mode: Mode = "cli"
    allow: tuple[IPNetwork, ...] = ()
    deny: tuple[IPNetwork, ...] = ()

    @classmethod
    def of(cls, mode: Mode, *, allow: Iterable[str] = (), deny: Iterable[str] = ()) -> "AddressPolicy":
        """Parse CIDRs; :class:`InvalidSetting` names the invalid one."""
        return cls(mode, _networks("allow_addresses", allow), _networks("deny_addresses", deny))

    def check(self, address: str | IPAddress, *, host: str, reach: Reach = NAMED) -> RefusedAddress | None:
        """``None`` if ``host`` may be reached at this address."""
        given = _parse(address)
        inner = embedded(given)
        found = classify(given)
        if reason := self._objection((given, *inner), found, reach):
            return RefusedAddress(host, str(given), found, reason)
        return None

    def check_host(self, host: str, *, reach: Reach = NAMED) -> RefusedAddress | None:
        """The same for the host of a URL; names are not refused here, they are checked when resolved."""
        address = literal(host)
        return None if address is None else self.check(address, host=host, reach=reach)

    def _objection(self, addresses: tuple[IPAddress, ...], found: AddressClass, reach: Reach) -> str | None:
        if _within(addresses, self.deny):
            return "deny_addresses has it"
        if _within(addresses, self.allow) or found is AddressClass.PUBLIC:
            return None
        setting = "add it to allow_addresses if it is meant to be reached"
        if found is AddressClass.NEVER:
            return f"it is never reached unasked; {setting}"
        if reach.named:
            if found is AddressClass.LOOPBACK and self.mode == "cluster":
                return f"an image in a cluster cannot come from there; {setting}"
            return None
        if found is reach.registry:
            return None
        own = f"the registry itself is {reach.registry}" if reach.registry is not None else "the registry is not there"
        return f"a server named it, and {own}; {setting}"


def classify(address: str | IPAddress) -> AddressClass:
    """The class of an address; if it embeds an IPv4 address, the stricter of both. ValueError if it is invalid."""
    given = _parse(address)
    inner = embedded(given)
    return min((_classify_one(each) for each in inner or (given,)), key=_RANK.__getitem__)


def literal(host: str) -> IPAddress | None:
    """The address in a URL's host, in any spelling that a resolver accepts without a query (``127.1``, ``0x7f000001``,
    ``[::1]``); ``None`` for a name.
    """
    text = host.removeprefix("[").removesuffix("]").rstrip(".")
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        pass
    try:
        return ipaddress.IPv4Address(socket.inet_aton(text))
    except (OSError, ValueError):
        return None


def is_loopback_host(host: str) -> bool:
    """Whether ``host[:port]`` is by its name this machine: ``localhost`` or a loopback address (RG-101)."""
    name = host if host.count(":") > 1 and not host.startswith("[") else _without_port(host)
    address = literal(name)
    if address is not None:
        return classify(address) is AddressClass.LOOPBACK
    name = name.rstrip(".").lower()
    return name == "localhost" or name.endswith(".localhost")


def embedded(address: IPAddress) -> tuple[IPAddress, ...]:
    """The IPv4 addresses in an IPv6 address: mapped, translated (SIIT), NAT64, 6to4, Teredo, compatible.

    In the NAT64 prefix for local use (RFC 8215) the position depends on unknown configuration, so every layout that
    gives a possible address counts.
    """
    if isinstance(address, ipaddress.IPv4Address):
        return ()
    data = address.packed
    if address.ipv4_mapped is not None:
        return (address.ipv4_mapped,)
    if address.sixtofour is not None:
        return (address.sixtofour,)
    if address.teredo is not None:
        return address.teredo
    if address in _NAT64_LOCAL:
        found = {ipaddress.IPv4Address(bytes(data[place] for place in layout)) for layout in _NAT64_LAYOUTS}
        return tuple(sorted(each for each in found if each.packed[0] != 0))
    if address in _NAT64 or address in _TRANSLATED or (address in _COMPATIBLE and int(address) > 0xFFFFFF):
        return (ipaddress.IPv4Address(data[12:]),)
    return ()


@lru_cache(maxsize=1024)  # of a registry's few addresses each is judged four times a request
def _classify_one(address: IPAddress) -> AddressClass:
    for address_class, networks in _TABLE:
        if any(address in network for network in networks):
            return address_class
    return AddressClass.PUBLIC


def _parse(address: str | IPAddress) -> IPAddress:
    return ipaddress.ip_address(address) if isinstance(address, str) else address


def _within(addresses: Iterable[IPAddress], networks: tuple[IPNetwork, ...]) -> bool:
    return bool(networks) and any(address in network for address in addresses for network in networks)


def parse_range(text: str) -> IPNetwork:
    """An address range (CIDR), or a single address. Raises :class:`InvalidSetting`."""
    try:
        return ipaddress.ip_network(text.strip(), strict=False)
    except ValueError:
        raise InvalidSetting(f"{text!r} is not an address range such as 10.0.0.0/8") from None


def _networks(setting: str, texts: Iterable[str]) -> tuple[IPNetwork, ...]:
    try:
        return tuple(map(parse_range, texts))
    except InvalidSetting as error:
        raise InvalidSetting(f"{setting}: {error}") from None


def _without_port(host: str) -> str:
    if host.startswith("["):
        return host.partition("]")[0] + "]"
    return host.partition(":")[0]
