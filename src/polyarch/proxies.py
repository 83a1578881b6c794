"""Proxy settings from the environment: ``HTTP_PROXY``, ``HTTPS_PROXY`` and ``NO_PROXY``.

The rules are those of Go's ``golang.org/x/net/http/httpproxy``, for the API server and the registries alike: polyarch
connects directly exactly where kubectl, podman, skopeo and the kubelet do.

* If a variable is set in both spellings, the lower-case one wins. ``ALL_PROXY`` is not read.
* ``localhost`` and loopback addresses are always reached directly.
* ``NO_PROXY`` is a list. ``*`` matches everything; ``10.0.0.0/8`` a range of addresses; ``example.com`` the name and
  its subdomains; ``.example.com`` and ``*.example.com`` only subdomains. A name or address may end in ``:port``. Names
  never match addresses; an invalid entry matches nothing.

There is one deliberate difference: an invalid proxy URL is an error when the proxy is needed, where Go connects
directly. No error and no repr contains the value of a variable, because it may hold a password. Pure."""

import base64
import ipaddress
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

import msgspec

IPAddress = ipaddress.IPv4Address | ipaddress.IPv6Address
IPNetwork = ipaddress.IPv4Network | ipaddress.IPv6Network

_HINT = "write http://HOST:PORT or https://HOST:PORT"


class InvalidProxy(ValueError):  # noqa: N818 - named for the problem
    """The URL of a proxy cannot be used; the message names the problem and the expected form."""


class Proxy(msgspec.Struct, frozen=True):
    """A proxy. ``authorization`` is the value of ``Proxy-Authorization``; the repr omits it."""

    url: str
    authorization: str | None = None

    def __repr__(self) -> str:
        return f"Proxy(url={self.url!r})"

    def __rich_repr__(self) -> list[tuple[str, object]]:
        return [("url", self.url)]


class _Addresses(NamedTuple):
    """An entry of ``NO_PROXY`` for addresses. Empty ``port``: any."""

    network: IPNetwork
    port: str

    def covers(self, host: str, address: IPAddress | None, port: str) -> bool:
        return address is not None and address in self.network and self.port in ("", port)


class _Names(NamedTuple):
    """An entry of ``NO_PROXY`` for names that end in ``suffix`` and, if ``itself``, the suffix without its dot."""

    suffix: str
    itself: bool
    port: str

    def covers(self, host: str, address: IPAddress | None, port: str) -> bool:
        if address is not None or self.port not in ("", port):
            return False
        return host.endswith(self.suffix) or (self.itself and host == self.suffix[1:])


class Proxies:
    """The environment's proxies and exceptions. An invalid proxy is an error only in :meth:`proxy_for`."""

    __slots__ = ("_all_direct", "_by_scheme", "_exceptions")

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._by_scheme = {scheme: _of_variable(environ, f"{scheme}_proxy") for scheme in ("http", "https")}
        entries = [entry.strip().lower() for entry in _value(environ, "no_proxy")[1].split(",")]
        self._all_direct = "*" in entries
        self._exceptions = tuple(found for entry in entries if (found := _exception(entry)) is not None)

    @property
    def problems(self) -> tuple[InvalidProxy, ...]:
        """The invalid proxies of the environment; each error names its variable."""
        return tuple(found for found in self._by_scheme.values() if isinstance(found, InvalidProxy))

    def proxy_for(self, scheme: str, host: str, port: int) -> Proxy | None:
        """The proxy for a server, ``None`` to connect directly; raises InvalidProxy. ``host`` has no brackets."""
        proxy = self._by_scheme.get(scheme)
        if proxy is None or self._all_direct or self._is_direct(_ascii(host.strip().lower()), str(port)):
            return None
        if isinstance(proxy, InvalidProxy):
            raise proxy
        return proxy

    def _is_direct(self, host: str, port: str) -> bool:
        address = _address(host)
        if host == "localhost" or (address is not None and address.is_loopback):
            return True
        return any(exception.covers(host, address, port) for exception in self._exceptions)


def parse(text: str) -> Proxy:
    """Parse a proxy URL; the default scheme is ``http``. Raises InvalidProxy, which never contains the text."""
    try:
        parts = urlsplit(text if "://" in text else f"http://{text}")
        port = parts.port
    except ValueError:
        raise InvalidProxy(f"is not the URL of a proxy; {_HINT}") from None
    if parts.scheme not in ("http", "https"):
        raise InvalidProxy(f"has the unsupported scheme {parts.scheme[:20]!r}; {_HINT}")
    if not parts.hostname:
        raise InvalidProxy(f"names no host; {_HINT}")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    url = f"{parts.scheme}://{host}" + (f":{port}" if port is not None else "")
    if parts.username is None and parts.password is None:
        return Proxy(url)
    pair = f"{unquote(parts.username or '')}:{unquote(parts.password or '')}".encode()
    return Proxy(url, f"Basic {base64.b64encode(pair).decode()}")


def passed_on(environ: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """The variables for programs of others, in both spellings, since curl and git read lower case only.

    A proxy with a user or password is left out: whoever sees the program's environment could read it.
    """
    found: list[tuple[str, str]] = []
    for name in ("http_proxy", "https_proxy", "no_proxy"):
        _, text = _value(environ, name)
        if not text:
            continue
        if name != "no_proxy":
            proxy = _of_variable(environ, name)
            if not isinstance(proxy, Proxy) or proxy.authorization is not None:
                continue
        found += [(name.upper(), text), (name, text)]
    return tuple(found)


def _value(environ: Mapping[str, str], name: str) -> tuple[str, str]:
    """The variable that wins, and its value."""
    for variable in (name, name.upper()):
        if text := environ.get(variable, "").strip():
            return variable, text
    return name, ""


def _of_variable(environ: Mapping[str, str], name: str) -> Proxy | InvalidProxy | None:
    variable, text = _value(environ, name)
    if not text:
        return None
    try:
        return parse(text)
    except InvalidProxy as problem:
        return InvalidProxy(f"{variable} {problem}")


def _exception(entry: str) -> _Addresses | _Names | None:
    network = _network(entry)
    if network is not None:
        return _Addresses(network, "")
    host, port = _split(entry)
    address = _address(host) if "%" not in host else None
    if address is not None:
        return _Addresses(ipaddress.ip_network(address), port)
    host = host[1:] if host.startswith("*.") else host
    if not host:
        return None
    itself = not host.startswith(".")
    return _Names(_ascii("." + host if itself else host), itself, port)


def _split(entry: str) -> tuple[str, str]:
    """Host and port as ``net.SplitHostPort`` splits them; a text that it refuses is a host without a port."""
    host, colon, port = entry.rpartition(":")
    if not colon:
        return entry, ""
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        return entry, ""
    return (entry, "") if any(bracket in host + port for bracket in "[]") else (host, port)


def _network(entry: str) -> IPNetwork | None:
    address, slash, prefix = entry.partition("/")
    if not slash or not prefix.isdecimal() or not prefix.isascii() or "%" in address:
        return None
    try:
        network = ipaddress.ip_network((address, int(prefix)), strict=False)
    except ValueError:
        return None
    mapped = network.network_address.ipv4_mapped if isinstance(network, ipaddress.IPv6Network) else None
    return network if mapped is None else ipaddress.ip_network((mapped, network.prefixlen - 96))


def _address(host: str) -> IPAddress | None:
    """The host as an address, None if it is a name; an IPv4-mapped IPv6 address becomes the IPv4 address."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address


def _ascii(name: str) -> str:
    """The name in IDNA form, so that both spellings of an international name compare equal."""
    if name.isascii():
        return name
    try:
        return ".".join(label.encode("idna").decode("ascii") if label else "" for label in name.split("."))
    except UnicodeError:
        return name
