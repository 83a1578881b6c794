"""The sources of an image in order (mirrors, rewritten names, the registry), and the images that a short name can mean.

Three formats configure mirrors: ``registries.conf``, containerd's ``hosts.toml`` directories, and OpenShift's mirror
objects. :class:`Configuration` holds their content, and :func:`sources` turns a reference into the ordered list of
sources. Pure after loading, so ``--plan`` prints exactly the sources that would be asked. Imports neither asyncio nor
aiohttp."""

import os
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec

from polyarch.oci.inspection import Inspection
from polyarch.oci.mirror_files import (
    DEFAULT_HOSTS,
    SYSTEM_FILE,
    Header,
    HostsFile,
    MirrorEndpoint,
    RegistryEntry,
    Tls,
    find_entry,
    hosts_directories,
    load_hosts_toml,
    load_registries_conf,
    mirror_object_entries,
    rewrite_reference,
)
from polyarch.oci.reference import ANYWHERE, InvalidReference, Reference, is_short, name_end, parse, parse_located


class Blocked(Exception):  # noqa: N818 - the name says what is the matter
    """The configuration leaves no source (error code ``blocked``); names file and prefix."""

    def __init__(self, reference: Reference, origin: str, problem: str) -> None:
        super().__init__(f"{reference.canonical} is blocked: {problem} in {origin}; change it there to allow it")
        self.origin = origin


class PullSource(msgspec.Struct, frozen=True, gc=False):
    """A source: ``{base_url}{path_prefix}/{repository}/manifests/{digest or tag}?{query}``.

    ``insecure`` permits unverified TLS and plain HTTP; a ``base_url`` of ``http://``, which only a containerd
    file can contain, is plain HTTP from the start. ``tls.skip_verify`` is unverified TLS, never plain HTTP.
    """

    base_url: str
    host: str
    """``host[:port]`` of ``base_url``: the key for credentials, pauses and metrics."""
    repository: str
    tag: str | None = None
    digest: str | None = None
    mirror: bool = False
    insecure: bool = False
    path_prefix: str = "/v2"
    query: str = ""
    tls: Tls = Tls()
    headers: tuple[Header, ...] = ()
    origin: str = ""
    """The file and entry that name this source; empty for the registry itself."""

    @property
    def reference(self) -> Reference:
        """The reference at this source, used to look up credentials."""
        registry = "docker.io" if self.host == "registry-1.docker.io" else self.host
        return Reference("docker", registry, self.repository, self.tag, self.digest)

    @property
    def verified(self) -> bool:
        """Whether the server has to prove its identity."""
        return not (self.insecure or self.tls.skip_verify or self.base_url.startswith("http:"))

    @property
    def fields(self) -> dict[str, str]:
        """``headers`` as request fields: values of one name joined, in order (RFC 9110, 5.3)."""
        fields: dict[str, str] = {}
        for name, value in self.headers:
            name = name.lower()
            separator = "; " if name == "cookie" else ", "  # RFC 6265, 5.4: cookies are no list
            fields[name] = f"{fields[name]}{separator}{value}" if name in fields else value
        return fields


class Configuration(msgspec.Struct, frozen=True, gc=False):
    """Mirrors and registry settings. The default asks every registry directly."""

    registries: tuple[RegistryEntry, ...] = ()
    hosts: dict[str, HostsFile] = {}
    insecure_hosts: frozenset[str] = frozenset()
    """Hosts named by ``--insecure``: ``host[:port]``, lower-case."""
    search: tuple[str, ...] = ()
    """Registries to search for short names, if enabled."""
    aliases: dict[str, str] = {}

    @classmethod
    def load(
        cls,
        registries_conf: str | Path | None = None,
        hosts_dirs: Sequence[str | Path] = (),
        *,
        insecure_hosts: Iterable[str] = (),
        environ: Mapping[str, str] = os.environ,
        system_file: Path = SYSTEM_FILE,
    ) -> "Configuration":
        """Read the files; :class:`InvalidConfiguration` names the invalid file and entry."""
        named = Path(registries_conf) if registries_conf is not None else None
        conf = load_registries_conf(named, environ, system=system_file)
        return cls(
            registries=conf.registries,
            hosts=load_hosts_toml(hosts_directories(map(str, hosts_dirs))) if hosts_dirs else {},
            insecure_hosts=frozenset(host.lower() for host in insecure_hosts),
            search=conf.search or (),
            aliases=conf.aliases,
        )

    @classmethod
    def from_objects(cls, objects: Iterable[Mapping[str, Any]]) -> "Configuration":
        """The configuration in OpenShift's mirror objects, passed as data."""
        return cls(registries=mirror_object_entries(objects))


def sources(reference: Reference, configuration: Configuration) -> list[PullSource]:
    """The sources in order: mirrors, then the primary. Empty for a layout directory.

    Raises :class:`Blocked` if the configuration leaves none, :class:`InvalidConfiguration` if a rule rewrites this
    reference to an invalid name.
    """
    if reference.transport != "docker":
        return []
    found = find_entry(configuration.registries, reference)
    if found is not None:
        places = _from_registry(reference, configuration, *found)
    else:
        hosts = configuration.hosts.get(reference.registry) or configuration.hosts.get(DEFAULT_HOSTS)
        places = _from_hosts(reference, hosts) if hosts is not None else [_direct(reference)]
    if not configuration.insecure_hosts:
        return places
    return [
        msgspec.structs.replace(place, insecure=True) if place.host in configuration.insecure_hosts else place
        for place in places
    ]


def destination(reference: Reference, configuration: Configuration) -> PullSource:
    """The source to write to: the registry in the reference. Mirrors and rewritten locations apply to reads only.
    Raises :class:`Blocked`.
    """
    found = find_entry(configuration.registries, reference)
    if found is not None and found[0].blocked:
        raise Blocked(reference, found[0].origin, f"prefix {found[0].prefix} has blocked = true")
    place = _direct(reference, insecure=found is not None and found[0].insecure)
    hosts = configuration.hosts.get(reference.registry) if found is None else None
    if hosts is not None:  # what the file says of the registry's own host: certificates, headers, the scheme
        own = (each for each in (*hosts.hosts, hosts.server) if each.host in ("", place.host))
        endpoint = next((each for each in own if "push" in each.capabilities), None)
        if endpoint is not None:
            endpoint = msgspec.structs.replace(endpoint, host=place.host)
            place = _at_endpoint(reference, endpoint, hosts.origin, mirror=False)
    if place.host in configuration.insecure_hosts:
        return msgspec.structs.replace(place, insecure=True)
    return place


def _direct(reference: Reference, *, mirror: bool = False, insecure: bool = False, origin: str = "") -> PullSource:
    host = reference.host_for_requests
    return PullSource(
        base_url=f"https://{host}",
        host=host,
        repository=reference.repository,
        tag=reference.tag,
        digest=reference.digest,
        mirror=mirror,
        insecure=insecure,
        origin=origin,
    )


def _from_registry(
    reference: Reference, configuration: Configuration, registry: RegistryEntry, covered: int
) -> list[PullSource]:
    places = []
    for mirror in registry.mirrors:
        if not mirror.serves(reference):
            continue
        at = rewrite_reference(
            reference, mirror.location, covered, origin=mirror.origin or registry.origin, entry=registry.entry
        )
        if _blocking(configuration, at) is None:
            origin = mirror.origin or registry.origin
            places.append(_direct(at, mirror=True, insecure=mirror.insecure, origin=origin))
    blocking: RegistryEntry | None = registry
    if not registry.blocked:
        at = rewrite_reference(reference, registry.location, covered, origin=registry.origin, entry=registry.entry)
        blocking = _blocking(configuration, at)
        if blocking is None:
            places.append(_direct(at, insecure=registry.insecure, origin=registry.origin))
    if not places and blocking is not None:
        raise Blocked(reference, blocking.origin, f"prefix {blocking.prefix} has blocked = true")
    return places


def _blocking(configuration: Configuration, reference: Reference) -> RegistryEntry | None:
    found = find_entry(configuration.registries, reference)
    return found[0] if found is not None and found[0].blocked else None


def _from_hosts(reference: Reference, hosts: HostsFile) -> list[PullSource]:
    places = [
        _at_endpoint(reference, endpoint, hosts.origin, mirror=mirror)
        for endpoint, mirror in hosts.endpoints(reference)
    ]
    if not places:
        what = "pull" if reference.digest is not None else "resolve"
        raise Blocked(reference, hosts.origin, f"no host has the capability {what!r}")
    return places


def _at_endpoint(reference: Reference, endpoint: MirrorEndpoint, origin: str, *, mirror: bool) -> PullSource:
    return PullSource(
        base_url=f"{endpoint.scheme}://{endpoint.host}",
        host=endpoint.host,
        repository=reference.repository,
        tag=reference.tag,
        digest=reference.digest,
        mirror=mirror,
        insecure=endpoint.scheme == "http",
        path_prefix=endpoint.path_prefix,
        query=f"ns={quote(reference.registry, safe='')}" if mirror else "",
        tls=endpoint.tls,
        headers=endpoint.headers,
        origin=origin,
    )


# -- short names: ``nginx`` means Docker Hub, unless short-name search is enabled --------------------------------------
# The search follows the container tools of the Red Hat family: an alias decides, else the registries of
# ``unqualified-search-registries`` are tried in order. It is off by default, because a name searched in several places
# can be claimed by another owner in the first of them. For the same reason a registry that fails, instead of reporting
# that the image is absent, ends the search.


PASSED_OVER = frozenset({"not-found", "unauthorized", "denied"})


def candidates(text: str, configuration: Configuration) -> tuple[Reference, ...]:
    """The images a text can mean, in search order: one unless it is a short name without an alias.

    Raises ``InvalidReference`` for an invalid text, and for a short name if no search is configured.
    """
    reference = parse(text)
    if not is_short(text, reference):
        return (reference,)
    end = name_end(text)
    name, rest = text[:end], text[end:]
    alias = configuration.aliases.get(name)
    if alias:
        return (_located(text, f"{alias}{rest}", "the alias of registries.conf"),)
    if not configuration.search:
        problem = "it is a short name, and registries.conf has neither an alias nor unqualified-search-registries"
        raise InvalidReference(text, problem, f"write it with its registry, for example docker.io/{text}")
    places = [
        _located(text, f"{registry.rstrip('/')}/{text}", "unqualified-search-registries")
        for registry in configuration.search
    ]
    return tuple(dict.fromkeys(places))


def places(reference: Reference, configuration: Configuration) -> tuple[Reference, ...]:
    """The places of an :func:`unqualified` name in order; raises ``InvalidReference`` like :func:`candidates`."""
    return candidates(reference.canonical.removeprefix(f"{ANYWHERE}/"), configuration)


def passes_over(inspection: Inspection) -> bool:
    """Whether the search continues with the next place."""
    return inspection.error is not None and inspection.error.code in PASSED_OVER


async def search(places: Sequence[Reference], inspect: Callable[[Reference], Awaitable[Inspection]]) -> Inspection:
    """The answer of the first place that does not report the image as absent; else the last one's error, naming all
    places.
    """
    said = []
    for place in places:
        inspection = await inspect(place)
        if not passes_over(inspection):
            return inspection
        said.append(inspection.error.message if inspection.error is not None else "")
    if len(places) > 1 and inspection.error is not None:
        names = ", ".join(place.canonical for place in places)
        message = f"found in none of {names}: {inspection.error.message}"
        error = msgspec.structs.replace(inspection.error, message=message, attempts=tuple(said))
        inspection = msgspec.structs.replace(inspection, error=error)
    return inspection


def _located(text: str, full: str, where: str) -> Reference:
    try:
        reference = parse_located(full)
    except InvalidReference as error:
        problem = f"{where} makes {full!r} of it: {error.problem}"
        raise InvalidReference(text, problem, "correct it there") from None
    if reference.tag is None and reference.digest is None:
        return msgspec.structs.replace(reference, tag="latest")
    return reference
