"""The proxies of the environment (RG-100): ``HTTP_PROXY``, ``HTTPS_PROXY``, ``ALL_PROXY`` and ``NO_PROXY``.

The same rules as in Go's ``net/http``, which the container tools beside us follow: a name in ``NO_PROXY`` covers its
sub-domains, one with a leading dot only those, ranges of addresses are CIDRs, and this machine is never asked through
a proxy. Of a variable in both spellings the one in lower case counts, as in curl.
"""

import base64
import ipaddress
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

import msgspec

from polyarch.oci.addresses import InvalidSetting, IPAddress, IPNetwork, is_loopback_host, literal

_HINT = "write http://HOST:PORT or https://HOST:PORT"


class Proxy(msgspec.Struct, frozen=True):
    """Where to send requests instead. ``authorization`` is the value of ``Proxy-Authorization`` and is not shown."""

    url: str
    authorization: str | None = None

    def __repr__(self) -> str:
        return f"Proxy(url={self.url!r})"

    def __rich_repr__(self) -> list[tuple[str, object]]:
        return [("url", self.url)]


class _Exception(NamedTuple):
    """One entry of ``NO_PROXY``: an address range, or a name; and a port if it is about one only."""

    network: IPNetwork | None
    name: str
    port: int | None

    def covers(self, host: str, address: IPAddress | None, port: int) -> bool:
        if self.port is not None and self.port != port:
            return False
        if self.network is not None:
            return address is not None and address in self.network
        if address is not None:
            return False
        return host.endswith(self.name) if self.name.startswith(".") else f".{host}".endswith(f".{self.name}")


class Proxies:
    """Which proxy a request goes through. :class:`InvalidSetting` on construction names a variable that is no URL."""

    __slots__ = ("_all_direct", "_by_scheme", "_exceptions")

    def __init__(self, environ: Mapping[str, str]) -> None:
        everything = _value(environ, "ALL_PROXY")
        self._by_scheme: dict[str, Proxy | None] = {}
        for scheme in ("http", "https"):
            variable, text = _value(environ, f"{scheme.upper()}_PROXY")
            self._by_scheme[scheme] = _proxy(variable, text) if text else _proxy(*everything)
        entries = [entry.strip().lower() for entry in _value(environ, "NO_PROXY")[1].split(",")]
        self._all_direct = "*" in entries
        self._exceptions = tuple(_exception(entry) for entry in entries if entry and entry != "*")

    def proxy_for(self, scheme: str, host: str, port: int) -> Proxy | None:
        """``None`` to connect directly. ``host`` without brackets."""
        proxy = self._by_scheme.get(scheme)
        if proxy is None or self._all_direct:
            return None
        host = host.rstrip(".").lower()
        if is_loopback_host(host):
            return None
        address = literal(host)
        if any(exception.covers(host, address, port) for exception in self._exceptions):
            return None
        return proxy


def _value(environ: Mapping[str, str], name: str) -> tuple[str, str]:
    for variable in (name.lower(), name):
        if text := environ.get(variable, "").strip():
            return variable, text
    return name, ""


def _proxy(variable: str, text: str) -> Proxy | None:
    """The proxy that a variable names. Its value may hold a password, so no error repeats it."""
    if not text:
        return None
    try:
        parts = urlsplit(text if "://" in text else f"http://{text}")
        port = parts.port
    except ValueError:
        raise InvalidSetting(f"{variable} is not the URL of a proxy; {_HINT}") from None
    if parts.scheme not in ("http", "https"):
        raise InvalidSetting(f"{variable} names a proxy of the kind {parts.scheme[:20]!r}, which is not known; {_HINT}")
    if not parts.hostname:
        raise InvalidSetting(f"{variable} names no host; {_HINT}")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    url = f"{parts.scheme}://{host}" + (f":{port}" if port is not None else "")
    if parts.username is None and parts.password is None:
        return Proxy(url)
    pair = f"{unquote(parts.username or '')}:{unquote(parts.password or '')}".encode()
    return Proxy(url, f"Basic {base64.b64encode(pair).decode()}")


def _exception(entry: str) -> _Exception:
    try:
        return _Exception(ipaddress.ip_network(entry.strip("[]"), strict=False), "", None)
    except ValueError:
        pass
    host, colon, digits = entry.rpartition(":")
    port = int(digits) if colon and digits.isascii() and digits.isdecimal() else None
    name = entry if port is None else host
    address = literal(name) if name.startswith("[") or name.count(".") == 3 else None
    if address is not None:
        return _Exception(ipaddress.ip_network(address), "", port)
    return _Exception(None, name.removeprefix("*"), port)
