"""containerd's ``hosts.toml`` directories: mirrors and settings per registry.

``DIR/<host[:port]>/hosts.toml``, else ``DIR/_default/hosts.toml``; the hosts are tried in the order of the file, then
the server. See https://github.com/containerd/containerd/blob/main/docs/hosts.md. Loading reads files; the rest is pure.
Imports neither asyncio nor aiohttp."""

import re
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

import msgspec

from polyarch.oci.mirrors.toml_files import InvalidConfiguration, Table, read_table
from polyarch.oci.reference import DOCKER_HUB, DOCKER_HUB_HOST, DOCKER_HUB_NAMES, Reference, parse_host

DEFAULT = "_default"
_PORT_IN_FOLDER = re.compile(r"_([0-9]+)_$", re.ASCII)
CAPABILITIES = frozenset({"pull", "resolve", "push", "referrers"})


class ClientCertificate(msgspec.Struct, frozen=True, gc=False):
    """Files of a client certificate; with an empty ``key`` the certificate's file has the key too."""

    certificate: str
    key: str = ""


class Header(NamedTuple):
    """A request header; ``repr`` leaves out the value, which may be a secret."""

    name: str
    value: str

    def __repr__(self) -> str:
        return f"Header({self.name})"


class Tls(msgspec.Struct, frozen=True, gc=False):
    """TLS settings of one host; paths are absolute or relative to the working directory."""

    ca: tuple[str, ...] = ()
    clients: tuple[ClientCertificate, ...] = ()
    skip_verify: bool = False


class Endpoint(msgspec.Struct, frozen=True, gc=False):
    """One ``[host."URL"]``, or the server; an empty ``host`` is the registry itself."""

    scheme: str
    host: str
    path_prefix: str = "/v2"
    capabilities: frozenset[str] = CAPABILITIES
    tls: Tls = Tls()
    headers: tuple[Header, ...] = ()

    def serves(self, reference: Reference) -> bool:
        """A digest needs the capability ``pull``, a tag ``resolve``."""
        return ("pull" if reference.digest is not None else "resolve") in self.capabilities


class HostsFile(msgspec.Struct, frozen=True, gc=False):
    """One ``hosts.toml``."""

    origin: str
    hosts: tuple[Endpoint, ...] = ()
    server: Endpoint = Endpoint("https", "")

    def endpoints(self, reference: Reference) -> list[tuple[Endpoint, bool]]:
        """The endpoints for the reference in order, each with whether it is a mirror."""
        own = reference.host_for_requests
        server = self.server if self.server.host else msgspec.structs.replace(self.server, host=own)
        return [(place, place.host != own) for place in (*self.hosts, server) if place.serves(reference)]


def load(directory: Path) -> dict[str, HostsFile]:
    """Every ``hosts.toml`` of the directory by host; ``_default`` for all others."""
    if not directory.is_dir():
        problem = "is not a directory; name the one that has <host>/hosts.toml files"
        raise InvalidConfiguration(str(directory), "", problem)
    files: dict[str, HostsFile] = {}
    for path in sorted(directory.glob("*/hosts.toml")):
        # Where a folder's name cannot have a colon, containerd looks for host_port_ as well.
        name = _PORT_IN_FOLDER.sub(r":\1", path.parent.name.lower())
        files[DOCKER_HUB if name in DOCKER_HUB_NAMES else name] = parse_file(read_table(path, str(path)), path.parent)
    return files


def parse_file(table: Table, directory: Path) -> HostsFile:
    """The content of one file; relative certificate paths are relative to its directory."""
    hosts = table.table("host")
    endpoints = []
    for url, members in hosts.members.items():
        if not isinstance(members, dict):
            raise table.invalid(f'host "{url}" must be a table, written [host."{url}"]')
        endpoints.append(_endpoint(Table(table.origin, f'host."{url}"', members), url, directory))
    url = table.text("server")
    if url:
        server = _endpoint(table, url, directory)
    else:  # as in containerd, the capabilities and path of the file's top level are those of a named server only
        server = Endpoint("https", "", tls=_tls(table, directory), headers=_headers(table.table("header")))
    return HostsFile(table.origin, tuple(endpoints), server)


def _endpoint(table: Table, url: str, directory: Path) -> Endpoint:
    if "://" not in url:
        url = f"https://{url}"
    try:
        parts = urlsplit(url)
        host = parse_host(parts.netloc)
    except ValueError as error:
        raise table.invalid(f"{url!r} is not the URL of a registry: {error}") from error
    if parts.scheme not in ("http", "https") or parts.query or parts.fragment:
        raise table.invalid(f"{url!r} is not the URL of a registry: write http(s)://HOST[:PORT][/PATH]")
    path = parts.path.rstrip("/")
    if not table.boolean("override_path") and not path.endswith("/v2"):
        path += "/v2"
    return Endpoint(
        scheme=parts.scheme,
        host=DOCKER_HUB_HOST if host == DOCKER_HUB else host,
        path_prefix=path,
        capabilities=_capabilities(table),
        tls=_tls(table, directory),
        headers=_headers(table.table("header")),
    )


def _tls(table: Table, directory: Path) -> Tls:
    return Tls(
        ca=tuple(_absolute(directory, path) for path in _text_or_texts(table, "ca")),
        clients=_clients(table, directory),
        skip_verify=table.boolean("skip_verify"),
    )


def _capabilities(table: Table) -> frozenset[str]:
    stated = frozenset(capability.lower() for capability in table.texts("capabilities") or ())
    if unknown := sorted(stated - CAPABILITIES):
        raise table.invalid(f"capability {unknown[0]!r} is unknown; expected {', '.join(sorted(CAPABILITIES))}")
    return stated or CAPABILITIES


def _text_or_texts(table: Table, name: str) -> tuple[str, ...]:
    if isinstance(table.members.get(name), str):
        return (table.text(name),)
    return table.texts(name) or ()


def _clients(table: Table, directory: Path) -> tuple[ClientCertificate, ...]:
    # A path, a list of paths, or a list of [certificate, key] pairs.
    value = table.members.get("client")
    pairs = [[value]] if isinstance(value, str) else value or []
    if not isinstance(pairs, list):
        raise table.invalid("client must be a path, a list of paths, or a list of [certificate, key] pairs")
    clients = []
    for pair in pairs:
        files = [pair] if isinstance(pair, str) else pair
        valid = isinstance(files, list) and 1 <= len(files) <= 2 and all(isinstance(file, str) for file in files)
        if not valid or not files[0]:
            raise table.invalid("client must be a path, a list of paths, or a list of [certificate, key] pairs")
        key = files[1] if len(files) == 2 else ""
        clients.append(ClientCertificate(_absolute(directory, files[0]), _absolute(directory, key) if key else ""))
    return tuple(clients)


def _headers(table: Table) -> tuple[Header, ...]:
    headers = []
    for name in table.members:
        for value in _text_or_texts(table, name):
            if not name.isascii() or not (name + value).isprintable() or ":" in name or " " in name:
                raise table.invalid(f"{name!r} is not a header with a printable value")
            headers.append(Header(name, value))
    return tuple(headers)


def _absolute(directory: Path, path: str) -> str:
    return str(directory / path)
