"""Which addresses may be reached, and which URLs followed, depending on who named the host.

A registry's answers name other hosts: token endpoints, redirects, upload locations. In a cluster even the hosts of the
images are chosen by pod authors. Without limits, either could make polyarch connect to a metadata service, to the node
or to an internal API. So every address has one of four classes, and :class:`AddressPolicy` says which classes may be
reached for whom (:class:`HostProvenance`). ``transport.http`` checks addresses when it connects; the functions at the
end check a URL before anything is sent there.

Pure: no I/O, no network stack.
"""

import enum
import ipaddress
import re
import socket
from collections.abc import Iterable
from functools import lru_cache
from typing import Literal, NamedTuple
from urllib.parse import SplitResult, quote, urljoin, urlsplit

import msgspec

IPAddress = ipaddress.IPv4Address | ipaddress.IPv6Address
IPNetwork = ipaddress.IPv4Network | ipaddress.IPv6Network
Mode = Literal["cli", "cluster"]


class InvalidSetting(ValueError):  # noqa: N818 - it says what the setting is
    """An unusable setting of the transport (an address range, a certificate file, a proxy): a usage error."""


class AddressClass(enum.StrEnum):
    """Classes of addresses, from forbidden to public."""

    NEVER = "never"
    LOOPBACK = "loopback"
    PRIVATE = "private"
    PUBLIC = "public"


class HostProvenance(msgspec.Struct, frozen=True):
    """Who named the host of a request.

    ``named``: the user's reference or configuration. Otherwise a server did, and ``registry`` is the class of the
    registry's own address, ``None`` if unknown (a name behind a proxy).
    """

    named: bool = True
    registry: AddressClass | None = None


NAMED = HostProvenance()


class RefusedAddress(msgspec.Struct, frozen=True):
    """Why an address may not be reached (``refused-address``)."""

    host: str
    address: str
    address_class: AddressClass
    reason: str

    @property
    def message(self) -> str:
        """Names host, class and the setting; a host that is the address is not repeated."""
        shown = "is" if self.host == self.address else f"has the address {self.address}, which is"
        return f"{shown} {_CLASS_WORDS[self.address_class]}: {self.reason}"


_CLASS_WORDS = {
    AddressClass.NEVER: "of the class never (link-local, multicast, unspecified or a metadata service)",
    AddressClass.LOOPBACK: "of the class loopback",
    AddressClass.PRIVATE: "of the class private",
    AddressClass.PUBLIC: "of the class public",
}
_RANK = {AddressClass.NEVER: 0, AddressClass.LOOPBACK: 1, AddressClass.PRIVATE: 2, AddressClass.PUBLIC: 3}

# First match wins. 0.0.0.0/8 reaches the host itself on Linux; fd20:ce::254 and
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
    """Which classes may be reached for whom. ``allow`` overrides the classes, including *never*; where ``deny`` has the
    same address, the narrower range of the two decides, and ``deny`` if they are the same.
    """

    mode: Mode = "cli"
    allow: tuple[IPNetwork, ...] = ()
    deny: tuple[IPNetwork, ...] = ()

    @classmethod
    def of(cls, mode: Mode, *, allow: Iterable[str] = (), deny: Iterable[str] = ()) -> "AddressPolicy":
        """Parse CIDRs; :class:`InvalidSetting` names the invalid one."""
        return cls(mode, _networks("allow_addresses", allow), _networks("deny_addresses", deny))

    def check(
        self, address: str | IPAddress, *, host: str, provenance: HostProvenance = NAMED
    ) -> RefusedAddress | None:
        """``None`` if ``host`` may be reached at this address."""
        given = _parse(address)
        inner = embedded(given)
        found = classify(given)
        if reason := self._objection((given, *inner), found, provenance):
            return RefusedAddress(host, str(given), found, reason)
        return None

    def check_host(self, host: str, *, provenance: HostProvenance = NAMED) -> RefusedAddress | None:
        """The same for the host of a URL; names are not refused here, they are checked when resolved."""
        address = literal(host)
        return None if address is None else self.check(address, host=host, provenance=provenance)

    def _objection(
        self, addresses: tuple[IPAddress, ...], found: AddressClass, provenance: HostProvenance
    ) -> str | None:
        allowed = [_narrowest(each, self.allow) for each in addresses]
        denied = [_narrowest(each, self.deny) for each in addresses]
        if any(-1 < deny >= allow for deny, allow in zip(denied, allowed, strict=True)):
            return "deny_addresses has it"
        if max(allowed) > -1 or found is AddressClass.PUBLIC:
            return None
        setting = "add it to allow_addresses if it is meant to be reached"
        if found is AddressClass.NEVER:
            return f"it is never reached unasked; {setting}"
        if provenance.named:
            if found is AddressClass.LOOPBACK and self.mode == "cluster":
                return f"an image in a cluster cannot come from there; {setting}"
            return None
        if found is provenance.registry:
            return None
        own = (
            f"the registry itself is {provenance.registry}"
            if provenance.registry is not None
            else "the registry is not there"
        )
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
    """Whether ``host[:port]`` is by its name this machine: ``localhost`` or a loopback address."""
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


def _narrowest(address: IPAddress, networks: tuple[IPNetwork, ...]) -> int:
    """The length of the longest prefix that has the address, counted as that of an IPv6 address; -1: none has it."""
    beyond = 96 if isinstance(address, ipaddress.IPv4Address) else 0
    return max((beyond + network.prefixlen for network in networks if address in network), default=-1)


def parse_range(text: str) -> IPNetwork:
    """An address range (CIDR), or a single address; mapped IPv4 addresses are the IPv4 addresses that are connected to.

    Raises :class:`InvalidSetting`."""
    try:
        found = ipaddress.ip_network(text.strip(), strict=False)
    except ValueError:
        raise InvalidSetting(f"{text!r} is not an address range such as 10.0.0.0/8") from None
    mapped = found.network_address.ipv4_mapped if isinstance(found, ipaddress.IPv6Network) else None
    if mapped is None or found.prefixlen < 96:
        return found
    return ipaddress.IPv4Network((mapped, found.prefixlen - 96))


def _networks(setting: str, texts: Iterable[str]) -> tuple[IPNetwork, ...]:
    try:
        return tuple(map(parse_range, texts))
    except InvalidSetting as error:
        raise InvalidSetting(f"{setting}: {error}") from None


def _without_port(host: str) -> str:
    if host.startswith("["):
        return host.partition("]")[0] + "]"
    return host.partition(":")[0]


# -- URLs that a server names: token endpoints, redirects, uploads -----------------------------------------------------
# The functions return the target with its provenance, or a :class:`UrlRejected` with the error code to report. They
# check the URL only; the address behind a name is checked at connection time, with that provenance. An accepted URL is
# unambiguous: a host of letters, digits, ``.``, ``-``, ``_`` or an address in brackets, and a port, so that no later
# parser can see another host in it.


MAX_REDIRECTS = 5
DEFAULT_PORTS = {"http": 80, "https": 443}
_NETLOC = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::([0-9]{1,5}))?", re.ASCII)
_KEPT = "!#$%&'()*+,/:;=?@[]~"


class UrlRejected(msgspec.Struct, frozen=True):
    """The URL may not be used. ``unusable-realm`` makes a challenge count as absent; the other codes are
    errors.
    """

    code: Literal["unusable-realm", "refused-address", "refused-redirect"]
    message: str


class Origin(NamedTuple):
    """Scheme, host and port: the scope of a credential."""

    scheme: str
    host: str
    port: int

    def __str__(self) -> str:
        port = "" if self.port == DEFAULT_PORTS.get(self.scheme) else f":{self.port}"
        return f"{self.scheme}://{self.host}{port}"


class RegistryServer(msgspec.Struct, frozen=True):
    """The server that named the URL: its own URL, and the class of its address (``Response.peer_class``)."""

    url: str
    address_class: AddressClass | None = None


class RedirectRequest(msgspec.Struct, frozen=True):
    """The redirected request. ``redirects``: those already followed; ``token``: it was sent to a token endpoint."""

    url: str
    method: str = "GET"
    redirects: int = 0
    token: bool = False


class Redirect(msgspec.Struct, frozen=True):
    """Follow to ``url``. Without ``keep_authorization`` drop the header for this and all later hops."""

    url: str
    provenance: HostProvenance
    keep_authorization: bool


def origin_of(url: str) -> Origin | None:
    """The origin of an absolute http(s) URL; ``None`` if it is invalid, has user info, or is ambiguous."""
    parts = _split(url)
    return None if parts is None else _origin(parts)


def provenance_of(url: str, registry: RegistryServer) -> HostProvenance:
    """The provenance of a URL named by a server: the user's, if it is on the registry's own host and port."""
    target, own = origin_of(url), origin_of(registry.url)
    if target is not None and own is not None and target[1:] == own[1:]:
        return NAMED
    return HostProvenance(named=False, registry=registry.address_class)


def check_realm(
    realm: str, registry: RegistryServer, policy: AddressPolicy, *, named_by: RegistryServer | None = None
) -> HostProvenance | UrlRejected:
    """Whether a token may be requested from a challenge's realm: the provenance for the request, or why not.
    ``named_by``: the registry whose redirect led to this one.

    It must be https, or http if the registry itself is reached by plain HTTP, without user info and fragment.
    """
    parts = _split(realm)
    if parts is None:
        return UrlRejected("unusable-realm", "the realm is not an absolute http or https URL without user info")
    if "#" in realm:
        return UrlRejected("unusable-realm", "the realm has a fragment")
    if parts.scheme == "http" and urlsplit(registry.url).scheme != "http":
        return UrlRejected("unusable-realm", f"the realm {_origin(parts)} is plain HTTP while the registry is not")
    provenance = provenance_of(realm, named_by or registry)
    return _check_literal(parts, provenance, policy, "the realm") or provenance


def check_redirect(
    location: str, asked: RedirectRequest, registry: RegistryServer, policy: AddressPolicy
) -> Redirect | UrlRejected:
    """Whether to follow a ``Location``: GET and HEAD only, at most five hops, never from https to http,
    without ``Authorization`` to another origin, and token requests only within their origin.
    """
    here, parts = origin_of(asked.url), _target(location, asked.url)
    if here is None or parts is None:
        return UrlRejected("refused-redirect", f"redirect from {here} to something that is no http or https URL")
    there = _origin(parts)
    refused = _objection(asked, here, there)
    if refused is not None:
        return UrlRejected("refused-redirect", f"redirect from {here} to {there}: {refused}")
    return _allowed(parts, registry, policy, "the redirect's target", keep_authorization=here == there)


def check_upload(location: str, asked: str, registry: RegistryServer, policy: AddressPolicy) -> Redirect | UrlRejected:
    """Whether to upload a blob to a ``Location``: to the same origin with credentials, to another https origin
    without, to nothing else.
    """
    here, parts = origin_of(asked), _target(location, asked)
    if here is None or parts is None:
        return UrlRejected("refused-redirect", f"{here} wants the upload at something that is no http or https URL")
    there = _origin(parts)
    if there != here and there.scheme != "https":
        return UrlRejected("refused-redirect", f"{here} wants the upload at {there}, another origin without https")
    return _allowed(parts, registry, policy, "the place for the upload", keep_authorization=here == there)


def _target(location: str, asked: str) -> SplitResult | None:
    """The absolute URL that a ``Location`` means; None if it is unusable."""
    try:
        return _split(urljoin(asked, quote(location.strip(" \t"), safe=_KEPT, errors="surrogateescape")))
    except ValueError:  # a broken address in brackets, or characters that no server can have sent
        return None


def _allowed(
    parts: SplitResult, registry: RegistryServer, policy: AddressPolicy, what: str, *, keep_authorization: bool
) -> Redirect | UrlRejected:
    url = parts._replace(fragment="").geturl()
    provenance = provenance_of(url, registry)
    return _check_literal(parts, provenance, policy, what) or Redirect(url, provenance, keep_authorization)


def _objection(asked: RedirectRequest, here: Origin, there: Origin) -> str | None:
    if asked.method.upper() not in ("GET", "HEAD"):
        return f"a {asked.method} request is not repeated elsewhere"
    if asked.redirects >= MAX_REDIRECTS:
        return f"there were {MAX_REDIRECTS} already"
    if here.scheme == "https" and there.scheme == "http":
        return "it leaves https"
    if asked.token and here != there:
        return "a token request stays within its origin"
    return None


def _check_literal(
    parts: SplitResult, provenance: HostProvenance, policy: AddressPolicy, what: str
) -> UrlRejected | None:
    refused = policy.check_host(parts.hostname or "", provenance=provenance)
    if refused is None:
        return None
    return UrlRejected("refused-address", f"{what} {_origin(parts)} {refused.message}")


def _split(url: str) -> SplitResult | None:
    if not (url.isascii() and url.isprintable()) or " " in url or "\\" in url:
        return None
    try:
        parts = urlsplit(url)
    except ValueError:
        return None
    match = _NETLOC.fullmatch(parts.netloc)
    if parts.scheme not in DEFAULT_PORTS or match is None or not parts.hostname:
        return None
    return parts if match[2] is None or 0 < int(match[2]) <= 65535 else None


def _origin(parts: SplitResult) -> Origin:
    host = (parts.hostname or "").rstrip(".")
    shown = f"[{host}]" if ":" in host else host
    return Origin(parts.scheme, shown, parts.port or DEFAULT_PORTS[parts.scheme])
