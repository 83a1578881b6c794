"""Mirrors and locations by prefix, from ``registries.conf`` version 2 and from OpenShift's mirror objects.

The format is that of containers-registries.conf(5); mirror objects become :class:`RegistryEntry` values too. Loading
reads files; matching and rewriting are pure. Imports neither asyncio nor aiohttp.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, cast, get_args

import msgspec

from polyarch.oci.mirrors.toml_files import InvalidConfiguration, Table, read_table
from polyarch.oci.reference import DOCKER_HUB, DOCKER_HUB_NAMES, InvalidReference, Reference, parse_host, parse_located

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


def find(registries: Iterable[RegistryEntry], reference: Reference) -> tuple[RegistryEntry, int] | None:
    """The registry with the longest matching prefix, the last of equal ones, and the length it covers."""
    best: tuple[RegistryEntry, int] | None = None
    for registry in registries:
        if best is not None and len(registry.prefix) < len(best[0].prefix):
            continue
        covered = registry.matched(reference)
        if covered is not None:
            best = registry, covered
    return best


def rewrite(reference: Reference, location: str, covered: int, *, origin: str, entry: str) -> Reference:
    """The reference with ``location`` in place of the covered characters. An invalid result is an error of the
    file.
    """
    if not location:
        return reference
    try:
        return parse_located(location + reference.canonical[covered:])
    except InvalidReference as error:
        problem = f"location {location!r} makes of {reference.canonical} no usable name: {error}"
        raise InvalidConfiguration(origin, entry, problem) from error


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
        conf = _overlay(conf, parse_file(read_table(file, str(file))))
    check_conflicts(conf.registries)
    return conf


def parse_file(table: Table) -> RegistriesConf:
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
                raise InvalidConfiguration(registry.origin, registry.entry, problem)


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
        raise InvalidConfiguration(str(path), "", f"cannot be read: {error.strerror}") from error


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
            raise InvalidConfiguration(
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
            raise InvalidConfiguration(
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
        raise InvalidConfiguration(origin, f"spec.{field}", "must be a list")
    for index, entry in enumerate(entries):
        where = f"spec.{field}[{index}]"
        if not isinstance(entry, Mapping):
            raise InvalidConfiguration(origin, where, "must be an object with source and mirrors")
        source = _mirror_location(origin, f"{where}.source", entry.get("source"))
        mirrors = entry.get("mirrors") or []
        if not isinstance(mirrors, list):
            raise InvalidConfiguration(origin, f"{where}.mirrors", "must be a list")
        policy = entry.get("mirrorSourcePolicy") or ""
        if policy not in _POLICIES:
            expected = " or ".join(_POLICIES[1:])
            raise InvalidConfiguration(origin, f"{where}.mirrorSourcePolicy", f"is {policy!r}; expected {expected}")
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
        raise InvalidConfiguration(origin, where, "is missing; give HOST[:PORT][/PATH]")
    try:
        location = check_location(value)
    except ValueError as error:
        raise InvalidConfiguration(origin, where, str(error)) from error
    if location.startswith("*.") and not where.endswith(".source"):
        raise InvalidConfiguration(origin, where, "a mirror cannot be a wildcard")
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
