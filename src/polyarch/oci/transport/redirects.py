"""Checks URLs that a server names, before anything is sent there: token endpoints, redirects, uploads (RG-104 to
RG-106).

The functions return the target with its reach, or a :class:`Refusal` with the error code to report. They check the URL
only; the address behind a name is checked at connection time, with the returned
:class:`~polyarch.oci.transport.addresses.Reach`.

Pure. An accepted URL is unambiguous: a host of letters, digits, ``.``, ``-``, ``_`` or an address in brackets, and a
port, so that no later parser can see another host in it.
"""

import re
from typing import Literal, NamedTuple
from urllib.parse import SplitResult, quote, urljoin, urlsplit

import msgspec

from polyarch.oci.transport.addresses import NAMED, AddressClass, AddressPolicy, Reach

MAX_REDIRECTS = 5
DEFAULT_PORTS = {"http": 80, "https": 443}
_NETLOC = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::([0-9]{1,5}))?", re.ASCII)
_KEPT = "!#$%&'()*+,/:;=?@[]~"


class Refusal(msgspec.Struct, frozen=True):
    """The URL may not be used. ``unusable-realm`` makes a challenge count as absent (RG-071); the other codes are
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


class Asked(msgspec.Struct, frozen=True):
    """The redirected request. ``redirects``: those already followed; ``token``: it was sent to a token endpoint."""

    url: str
    method: str = "GET"
    redirects: int = 0
    token: bool = False


class Redirect(msgspec.Struct, frozen=True):
    """Follow to ``url`` with ``reach``. Without ``keep_authorization`` drop the header for this and all later hops."""

    url: str
    reach: Reach
    keep_authorization: bool


def origin_of(url: str) -> Origin | None:
    """The origin of an absolute http(s) URL; ``None`` if it is invalid, has user info, or is ambiguous."""
    parts = _split(url)
    return None if parts is None else _origin(parts)


def reach_of(url: str, registry: RegistryServer) -> Reach:
    """The reach of a URL named by a server: the user's, if it is on the registry's own host and port."""
    target, own = origin_of(url), origin_of(registry.url)
    if target is not None and own is not None and target[1:] == own[1:]:
        return NAMED
    return Reach(named=False, registry=registry.address_class)


def check_realm(realm: str, registry: RegistryServer, policy: AddressPolicy) -> Reach | Refusal:
    """Whether a token may be requested from a challenge's realm (RG-104): the reach for the request, or a refusal.

    It must be https, or http if the registry itself is reached by plain HTTP, without user info and fragment.
    """
    parts = _split(realm)
    if parts is None:
        return Refusal("unusable-realm", "the realm is not an absolute http or https URL without user info")
    if "#" in realm:
        return Refusal("unusable-realm", "the realm has a fragment")
    if parts.scheme == "http" and urlsplit(registry.url).scheme != "http":
        return Refusal("unusable-realm", f"the realm {_origin(parts)} is plain HTTP while the registry is not")
    reach = reach_of(realm, registry)
    return _check_literal(parts, reach, policy, "the realm") or reach


def check_redirect(location: str, asked: Asked, registry: RegistryServer, policy: AddressPolicy) -> Redirect | Refusal:
    """Whether to follow a ``Location`` (RG-105): GET and HEAD only, at most five hops, never from https to http,
    without ``Authorization`` to another origin, and token requests only within their origin.
    """
    here, parts = origin_of(asked.url), _target(location, asked.url)
    if here is None or parts is None:
        return Refusal("refused-redirect", f"redirect from {here} to something that is no http or https URL")
    there = _origin(parts)
    refused = _objection(asked, here, there)
    if refused is not None:
        return Refusal("refused-redirect", f"redirect from {here} to {there}: {refused}")
    return _allowed(parts, registry, policy, "the redirect's target", keep_authorization=here == there)


def check_upload(location: str, asked: str, registry: RegistryServer, policy: AddressPolicy) -> Redirect | Refusal:
    """Whether to upload a blob to a ``Location`` (RG-106): to the same origin with credentials, to another https origin
    without, to nothing else.
    """
    here, parts = origin_of(asked), _target(location, asked)
    if here is None or parts is None:
        return Refusal("refused-redirect", f"{here} wants the upload at something that is no http or https URL")
    there = _origin(parts)
    if there != here and there.scheme != "https":
        return Refusal("refused-redirect", f"{here} wants the upload at {there}, another origin without https")
    return _allowed(parts, registry, policy, "the place for the upload", keep_authorization=here == there)


def _target(location: str, asked: str) -> SplitResult | None:
    """The absolute URL that a ``Location`` means; None if it is unusable."""
    try:
        return _split(urljoin(asked, quote(location.strip(" \t"), safe=_KEPT, errors="surrogateescape")))
    except ValueError:  # a broken address in brackets, or characters that no server can have sent
        return None


def _allowed(
    parts: SplitResult, registry: RegistryServer, policy: AddressPolicy, what: str, *, keep_authorization: bool
) -> Redirect | Refusal:
    url = parts._replace(fragment="").geturl()
    reach = reach_of(url, registry)
    return _check_literal(parts, reach, policy, what) or Redirect(url, reach, keep_authorization)


def _objection(asked: Asked, here: Origin, there: Origin) -> str | None:
    if asked.method.upper() not in ("GET", "HEAD"):
        return f"a {asked.method} request is not repeated elsewhere"
    if asked.redirects >= MAX_REDIRECTS:
        return f"there were {MAX_REDIRECTS} already"
    if here.scheme == "https" and there.scheme == "http":
        return "it leaves https"
    if asked.token and here != there:
        return "a token request stays within its origin"
    return None


def _check_literal(parts: SplitResult, reach: Reach, policy: AddressPolicy, what: str) -> Refusal | None:
    refused = policy.check_host(parts.hostname or "", reach=reach)
    if refused is None:
        return None
    return Refusal("refused-address", f"{what} {_origin(parts)} {refused.message}")


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
