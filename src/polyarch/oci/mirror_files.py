"""Where mirrors are configured: ``registries.conf``, OpenShift's mirror objects, and containerd's ``hosts.toml``.

A mirror that is silently ignored sends requests to the wrong place, so the type of every known member is checked, and
errors name the file, the entry and what to write. Unknown members are left to other tools.

Loading reads files; matching and rewriting are pure. Imports neither asyncio nor aiohttp.
"""

import os
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, cast, get_args
from urllib.parse import urlsplit

import msgspec

from polyarch.oci.reference import (
    DOCKER_HUB,
    DOCKER_HUB_HOST,
    DOCKER_HUB_NAMES,
    InvalidReference,
    Reference,
    parse_host,
    parse_located,
)


class InvalidMirrorConfiguration(ValueError):  # noqa: N818 - the name says what is the matter
    """An unusable file or object with registry configuration: a usage error."""

    def __init__(self, origin: str, entry: str, problem: str) -> None:
        super().__init__(f"{origin}: {entry}: {problem}" if entry else f"{origin}: {problem}")
        self.origin = origin
        self.entry = entry
        self.problem = problem


class Table:
    """One table of a file, with typed access to members; ``entry`` names it in errors."""

    def __init__(self, origin: str, entry: str, members: Mapping[str, Any]) -> None:
        self.origin = origin
        self.entry = entry
        self.members = members

    def invalid(self, problem: str) -> InvalidMirrorConfiguration:
        return InvalidMirrorConfiguration(self.origin, self.entry, problem)

    def text(self, name: str) -> str:
        """The string, or "" if absent."""
        return self._typed(name, str, "a text") or ""

    def boolean(self, name: str) -> bool:
        return bool(self._typed(name, bool, "true or false"))

    def texts(self, name: str) -> tuple[str, ...] | None:
        """The list of strings; None if absent, which may differ from an empty list."""
        value = self.members.get(name)
        if value is None:
            return None
        if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
            raise self.invalid(f"{name} must be a list of texts")
        return tuple(value)

    def table(self, name: str) -> "Table":
        """The nested table; empty if absent."""
        value = self.members.get(name, {})
        if not isinstance(value, dict):
            raise self.invalid(f"{name} must be a table")
        return Table(self.origin, f"{self.entry}.{name}" if self.entry else name, value)

    def tables(self, name: str) -> "list[Table]":
        """The array of tables ``[[name]]``; errors count them from 1."""
        value = self.members.get(name, [])
        if not isinstance(value, list) or not all(isinstance(each, dict) for each in value):
            raise self.invalid(f"{name} must be an array of tables, written [[{name}]]")
        prefix = f"{self.entry}, " if self.entry else ""
        return [Table(self.origin, f"{prefix}{name} {count}", each) for count, each in enumerate(value, start=1)]

    def _typed(self, name: str, kind: type, expected: str) -> Any:
        value = self.members.get(name)
        if value is not None and not isinstance(value, kind):
            raise self.invalid(f"{name} must be {expected}, not {value!r}")
        return value


def read_table(path: Path, origin: str) -> Table:
    """The file's top-level table; :class:`InvalidConfiguration` with the position if it is not TOML."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise InvalidMirrorConfiguration(origin, "", f"cannot be read: {error.strerror}") from error
    return table_of(content, origin)


def table_of(content: bytes, origin: str) -> Table:
    """The same of what is in a file."""
    try:
        return Table(origin, "", tomllib.loads(content.decode("utf-8")))
    except UnicodeDecodeError as error:
        raise InvalidMirrorConfiguration(origin, "", f"is not UTF-8 at byte {error.start}") from error
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise InvalidMirrorConfiguration(origin, "", f"is not TOML: {error}") from error


# -- ``registries.conf`` version 2, as in containers-registries.conf(5) ------------------------------------------------


_PORT = re.compile(r":[0-9]+\Z", re.ASCII)

SYSTEM_FILE = Path("/etc/containers/registries.conf")
ENVIRONMENT = "CONTAINERS_REGISTRIES_CONF"
"""The variable that names a file to podman, skopeo and buildah."""

Pull = Literal["all", "digest-only", "tag-only"]


class Mirror(msgspec.Struct, frozen=True, gc=False):
    """A location tried before the primary, for the references that ``pull`` admits."""

    location: str
    pull: Pull = "all"
    insecure: bool = False
    origin: str = ""

    def serves(self, reference: Reference) -> bool:
        """Whether this mirror serves the reference; tag and digest together count as digest."""
        if self.pull == "all":
            return True
        return (self.pull == "digest-only") == (reference.digest is not None)


class RegistryEntry(msgspec.Struct, frozen=True, gc=False):
    """One ``[[registry]]``. An empty ``location`` keeps the reference unchanged (wildcard prefixes only)."""

    prefix: str
    location: str
    insecure: bool = False
    blocked: bool = False
    mirrors: tuple[Mirror, ...] = ()
    origin: str = ""
    """The file or object it was read from."""
    entry: str = ""
    """The entry in it, for messages."""
    every_port: bool = False
    """A host without a port matches every port, as the nodes' runtime treats OpenShift's objects. In a file it does
    not."""

    def matched(self, reference: Reference) -> int | None:
        """How many characters of the canonical reference the prefix covers; None if it does not match."""
        host = without_port(reference.registry) if self.every_port else reference.registry
        if self.prefix.startswith("*."):
            suffix = self.prefix[1:]
            deeper = host.endswith(suffix) and len(host) > len(suffix)
            return len(host) if deeper else None
        canonical = reference.canonical
        end = len(self.prefix)
        if not canonical.startswith(self.prefix) or end < len(host):
            return None
        if end == len(host):
            return end
        boundary = canonical[end : end + 1]
        if boundary in ("", "/", "@") or (boundary == ":" and end == len(reference.name)):
            return end
        return None


class RegistriesConf(msgspec.Struct, frozen=True, gc=False):
    """The file and its drop-ins, merged."""

    registries: tuple[RegistryEntry, ...] = ()
    search: tuple[str, ...] | None = None
    """``unqualified-search-registries``; None if absent, which differs from an empty list."""
    aliases: dict[str, str] = {}


def find_entry(registries: Iterable[RegistryEntry], reference: Reference) -> tuple[RegistryEntry, int] | None:
    """The registry with the longest matching prefix, the last of equal ones, and the length it covers."""
    best: tuple[RegistryEntry, int] | None = None
    for registry in registries:
        if best is not None and len(registry.prefix) < len(best[0].prefix):
            continue
        covered = registry.matched(reference)
        if covered is not None:
            best = registry, covered
    return best


def rewrite_reference(reference: Reference, location: str, covered: int, *, origin: str, entry: str) -> Reference:
    """The reference with ``location`` in place of the covered characters. An invalid result is an error of the
    file.
    """
    if not location:
        return reference
    try:
        return parse_located(location + reference.canonical[covered:])
    except InvalidReference as error:
        problem = f"location {location!r} makes of {reference.canonical} no usable name: {error}"
        raise InvalidMirrorConfiguration(origin, entry, problem) from error


def load_registries_conf(
    path: Path | None, environ: Mapping[str, str], *, system: Path = SYSTEM_FILE
) -> RegistriesConf:
    """The named file, else the user's, else the system's, then ``registries.conf.d/*.conf`` beside it.

    A file is named by the caller, else by :data:`ENVIRONMENT`. A named file must exist; the others may be missing.
    """
    if path is None and environ.get(ENVIRONMENT):
        path = Path(environ[ENVIRONMENT])
    if path is not None:
        files = [path, *_drop_ins(path)]
    else:
        home = environ.get("HOME", "")
        places = ([Path(home, ".config/containers/registries.conf")] if home else []) + [system]
        files = []
        for place in places:
            files = ([place] if _exists(place) else []) + _drop_ins(place)
            if files:
                break
    conf = RegistriesConf()
    for file in files:
        conf = _overlay(conf, parse_registries_conf(read_table(file, str(file))))
    check_conflicts(conf.registries)
    return conf


def parse_registries_conf(table: Table) -> RegistriesConf:
    """Parse one file. Version 1 (``[registries.search]`` and similar) is refused."""
    if "registries" in table.members:
        raise table.invalid("has the tables of version 1; version 2 needed: write [[registry]] entries")
    registries = tuple(_registry(each) for each in table.tables("registry"))
    check_conflicts(registries)
    aliases = table.table("aliases")
    return RegistriesConf(
        registries=registries,
        search=table.texts("unqualified-search-registries"),
        aliases={short: aliases.text(short) for short in aliases.members},
    )


def check_conflicts(registries: Sequence[RegistryEntry]) -> None:
    """Refuse a location that is both secure and insecure, or both blocked and not."""
    first: dict[str, RegistryEntry] = {}
    for registry in registries:
        location = registry.location or registry.prefix
        other = first.setdefault(location, registry)
        for name, one, two in (
            ("insecure", other.insecure, registry.insecure),
            ("blocked", other.blocked, registry.blocked),
        ):
            if one != two:
                there = f"{str(one).lower()} in {other.origin}, {other.entry}"
                problem = f"{location} is {name} = {str(two).lower()} here and {there}; say the same in both"
                raise InvalidMirrorConfiguration(registry.origin, registry.entry, problem)


def without_port(host: str) -> str:
    """``host`` of ``host[:port]``."""
    return _PORT.sub("", host)


def check_location(text: str) -> str:
    """Normalise a prefix or location: ``HOST[:PORT][/PATH…]`` without scheme; ValueError with the problem."""
    if "://" in text:
        raise ValueError(f"{text!r} has a scheme; write HOST[:PORT]/PATH without it")
    text = text.rstrip("/")
    host, slash, rest = text.partition("/")
    if host.startswith("*."):
        if slash:
            raise ValueError(f"{text!r} has a path after a wildcard, which stands for a host alone")
        return f"*.{parse_host(host[2:])}"
    parsed = parse_host(host)
    if parsed in DOCKER_HUB_NAMES:
        parsed = DOCKER_HUB
    if slash:
        parse_located(f"{parsed}/{rest}")
    return f"{parsed}{slash}{rest}"


def _registry(table: Table) -> RegistryEntry:
    prefix, location = (_location(table, name) for name in ("prefix", "location"))
    if not prefix and not location:
        raise table.invalid("prefix and location are both missing; give at least one of them")
    if location.startswith("*."):
        raise table.invalid("location cannot be a wildcard; give the wildcard as prefix")
    prefix = prefix or location
    if not location and not prefix.startswith("*."):
        raise table.invalid(
            f"location is missing; only a wildcard prefix such as '*.example.com' can do without, not {prefix!r}"
        )
    if "pull-from-mirror" in table.members:
        raise table.invalid("pull-from-mirror belongs to a [[registry.mirror]], not to the registry itself")
    digest_only = table.boolean("mirror-by-digest-only")
    mirrors = tuple(_mirror(each, digest_only=digest_only) for each in table.tables("mirror"))
    return RegistryEntry(
        prefix=prefix,
        location=location,
        insecure=table.boolean("insecure"),
        blocked=table.boolean("blocked"),
        mirrors=mirrors,
        origin=table.origin,
        entry=f"{table.entry} ({prefix})",
    )


def _mirror(table: Table, *, digest_only: bool) -> Mirror:
    location = _location(table, "location")
    if not location:
        raise table.invalid("location of the mirror is missing")
    if location.startswith("*."):
        raise table.invalid("location cannot be a wildcard")
    pull = table.text("pull-from-mirror")
    if pull and digest_only:
        raise table.invalid("pull-from-mirror together with mirror-by-digest-only of the registry; keep one of them")
    if pull and pull not in get_args(Pull):
        raise table.invalid(f"pull-from-mirror is {pull!r}; expected one of {', '.join(get_args(Pull))}")
    return Mirror(
        location=location,
        pull="digest-only" if digest_only else cast("Pull", pull or "all"),
        insecure=table.boolean("insecure"),
        origin=table.origin,
    )


def _location(table: Table, name: str) -> str:
    text = table.text(name)
    if not text:
        return ""
    try:
        return check_location(text)
    except ValueError as error:
        raise table.invalid(f"{name}: {error}") from error


def _exists(path: Path) -> bool:
    try:
        return path.is_file()
    except PermissionError as error:
        raise InvalidMirrorConfiguration(str(path), "", f"cannot be read: {error.strerror}") from error


def _drop_ins(path: Path) -> list[Path]:
    return sorted((path.parent / "registries.conf.d").glob("*.conf"), key=lambda file: file.name)


def _overlay(earlier: RegistriesConf, later: RegistriesConf) -> RegistriesConf:
    replaced = {registry.prefix for registry in later.registries}
    kept = tuple(registry for registry in earlier.registries if registry.prefix not in replaced)
    return RegistriesConf(
        registries=kept + later.registries,
        search=earlier.search if later.search is None else later.search,
        aliases=earlier.aliases | later.aliases,
    )


# -- OpenShift's mirror objects ----------------------------------------------------------------------------------------
# ``ImageDigestMirrorSet`` and ``ImageTagMirrorSet`` (config.openshift.io/v1) and the older ``ImageContentSourcePolicy``
# (operator.openshift.io/v1alpha1) are passed as data; this module reads no cluster.


_KINDS: dict[str, tuple[str, Pull]] = {
    "ImageDigestMirrorSet": ("imageDigestMirrors", "digest-only"),
    "ImageTagMirrorSet": ("imageTagMirrors", "tag-only"),
    "ImageContentSourcePolicy": ("repositoryDigestMirrors", "digest-only"),
}
_POLICIES = ("", "AllowContactingSource", "NeverContactSource")


def mirror_object_entries(objects: Iterable[Mapping[str, Any]]) -> tuple[RegistryEntry, ...]:
    """One rule per source, in the order of the objects.

    The mirrors of several objects for one source are joined in order without duplicates; a single
    ``NeverContactSource`` blocks the source.
    """
    rules: dict[str, RegistryEntry] = {}
    for item in _flattened(objects):
        kind = item.get("kind")
        if kind not in _KINDS:
            raise InvalidMirrorConfiguration(
                _origin(item), "", f"is not a mirror object; expected one of {', '.join(_KINDS)}"
            )
        field, pull = _KINDS[kind]
        for rule in _rules(item, field, pull):
            earlier = rules.get(rule.prefix)
            rules[rule.prefix] = rule if earlier is None else _merged(earlier, rule)
    return tuple(rules.values())


def _flattened(objects: Iterable[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    for item in objects:
        if not isinstance(item, Mapping):
            raise InvalidMirrorConfiguration(
                "mirror objects", "", f"expected an object with a kind, not {type(item).__name__}"
            )
        items = item.get("items")
        if str(item.get("kind", "")).endswith("List") and isinstance(items, list):
            yield from _flattened(items)
        else:
            yield item


def _rules(item: Mapping[str, Any], field: str, pull: Pull) -> Iterator[RegistryEntry]:
    origin = _origin(item)
    spec = item.get("spec") or {}
    entries = spec.get(field) if isinstance(spec, Mapping) else None
    if entries is None:
        return
    if not isinstance(entries, list):
        raise InvalidMirrorConfiguration(origin, f"spec.{field}", "must be a list")
    for index, entry in enumerate(entries):
        where = f"spec.{field}[{index}]"
        if not isinstance(entry, Mapping):
            raise InvalidMirrorConfiguration(origin, where, "must be an object with source and mirrors")
        source = _mirror_location(origin, f"{where}.source", entry.get("source"))
        mirrors = entry.get("mirrors") or []
        if not isinstance(mirrors, list):
            raise InvalidMirrorConfiguration(origin, f"{where}.mirrors", "must be a list")
        policy = entry.get("mirrorSourcePolicy") or ""
        if policy not in _POLICIES:
            expected = " or ".join(_POLICIES[1:])
            raise InvalidMirrorConfiguration(
                origin, f"{where}.mirrorSourcePolicy", f"is {policy!r}; expected {expected}"
            )
        locations = [_mirror_location(origin, f"{where}.mirrors[{at}]", mirror) for at, mirror in enumerate(mirrors)]
        yield RegistryEntry(
            prefix=source,
            location="" if source.startswith("*.") else source,
            blocked=policy == "NeverContactSource",
            mirrors=tuple(Mirror(location, pull, origin=origin) for location in dict.fromkeys(locations)),
            origin=origin,
            entry=f"{where} ({source})",
        )


def _mirror_location(origin: str, where: str, value: object) -> str:
    if not isinstance(value, str) or not value:
        raise InvalidMirrorConfiguration(origin, where, "is missing; give HOST[:PORT][/PATH]")
    try:
        location = check_location(value)
    except ValueError as error:
        raise InvalidMirrorConfiguration(origin, where, str(error)) from error
    if location.startswith("*.") and not where.endswith(".source"):
        raise InvalidMirrorConfiguration(origin, where, "a mirror cannot be a wildcard")
    return location


def _merged(earlier: RegistryEntry, later: RegistryEntry) -> RegistryEntry:
    known = {(mirror.location, mirror.pull) for mirror in earlier.mirrors}
    added = tuple(mirror for mirror in later.mirrors if (mirror.location, mirror.pull) not in known)
    # The blocking object is the one to name if no source is left.
    named = later if later.blocked and not earlier.blocked else earlier
    return msgspec.structs.replace(named, mirrors=earlier.mirrors + added)


def _origin(item: Mapping[str, Any]) -> str:
    metadata = item.get("metadata")
    name = metadata.get("name", "") if isinstance(metadata, Mapping) else ""
    return f"{item.get('kind') or 'object without kind'} {name}".strip()


# -- ``hosts.toml`` of containerd --------------------------------------------------------------------------------------
# ``DIR/<host[:port]>/hosts.toml``, else ``DIR/_default/hosts.toml``; the hosts are tried in the order of the file, then
# the server. Of several directories the first counts that has a folder for the host or ``_default``; a folder without
# the file (certificates only) means the registry itself. See
# https://github.com/containerd/containerd/blob/main/docs/hosts.md.


DEFAULT_HOSTS = "_default"
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


class MirrorEndpoint(msgspec.Struct, frozen=True, gc=False):
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
    hosts: tuple[MirrorEndpoint, ...] = ()
    server: MirrorEndpoint = MirrorEndpoint("https", "")

    def endpoints(self, reference: Reference) -> list[tuple[MirrorEndpoint, bool]]:
        """The endpoints for the reference in order, each with whether it is a mirror."""
        own = reference.host_for_requests
        server = self.server if self.server.host else msgspec.structs.replace(self.server, host=own)
        return [(place, place.host != own) for place in (*self.hosts, server) if place.serves(reference)]


def load_hosts_toml(directories: Sequence[Path]) -> dict[str, HostsFile]:
    """Every ``hosts.toml`` of the directories by host; ``_default`` for all others. Directories that do not exist are
    left out, as in containerd, whose default names two; :class:`InvalidMirrorConfiguration` if none exists.
    """
    existing = [directory for directory in directories if directory.is_dir()]
    if not existing:
        problem = "is not a directory; name the one that has <host>/hosts.toml files"
        raise InvalidMirrorConfiguration(os.pathsep.join(map(str, directories)), "", problem)
    files: dict[str, HostsFile] = {}
    for directory in existing:
        found: dict[str, HostsFile] = {}
        for folder in sorted(each for each in directory.iterdir() if each.is_dir()):
            # Where a folder's name cannot have a colon, containerd looks for host_port_ as well.
            name = _PORT_IN_FOLDER.sub(r":\1", folder.name.lower())
            path = folder / "hosts.toml"
            file = parse_hosts_toml(read_table(path, str(path)), folder) if path.exists() else HostsFile(str(folder))
            found[DOCKER_HUB if name in DOCKER_HUB_NAMES else name] = file
        files = {**found, **files}
        if DEFAULT_HOSTS in found:
            break
    return files


def hosts_directories(texts: Iterable[str]) -> list[Path]:
    """The directories that a list of texts names, each one or several with ``:`` between, as containerd's
    ``config_path`` has them."""
    return [
        Path(part)
        for text in texts
        for part in ([text] if Path(text).is_dir() else text.split(os.pathsep))
        if part.strip()
    ]


def parse_hosts_toml(table: Table, directory: Path) -> HostsFile:
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
        server = MirrorEndpoint("https", "", tls=_tls(table, directory), headers=_headers(table.table("header")))
    return HostsFile(table.origin, tuple(endpoints), server)


def _endpoint(table: Table, url: str, directory: Path) -> MirrorEndpoint:
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
    return MirrorEndpoint(
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
