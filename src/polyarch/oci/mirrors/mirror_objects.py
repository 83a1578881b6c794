"""OpenShift's mirror objects as registry rules (RG-095).

``ImageDigestMirrorSet`` and ``ImageTagMirrorSet`` (config.openshift.io/v1) and the older ``ImageContentSourcePolicy``
(operator.openshift.io/v1alpha1) are passed as data; this module reads no cluster. Pure: imports neither asyncio nor
aiohttp.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from polyarch.oci.mirrors.registries_conf import Mirror, Pull, Registry, check_location
from polyarch.oci.mirrors.toml_files import InvalidConfiguration

_KINDS: dict[str, tuple[str, Pull]] = {
    "ImageDigestMirrorSet": ("imageDigestMirrors", "digest-only"),
    "ImageTagMirrorSet": ("imageTagMirrors", "tag-only"),
    "ImageContentSourcePolicy": ("repositoryDigestMirrors", "digest-only"),
}
_POLICIES = ("", "AllowContactingSource", "NeverContactSource")


def registries(objects: Iterable[Mapping[str, Any]]) -> tuple[Registry, ...]:
    """One rule per source, in the order of the objects.

    The mirrors of several objects for one source are joined in order without duplicates; a single
    ``NeverContactSource`` blocks the source.
    """
    rules: dict[str, Registry] = {}
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


def _rules(item: Mapping[str, Any], field: str, pull: Pull) -> Iterator[Registry]:
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
        source = _location(origin, f"{where}.source", entry.get("source"))
        mirrors = entry.get("mirrors") or []
        if not isinstance(mirrors, list):
            raise InvalidConfiguration(origin, f"{where}.mirrors", "must be a list")
        policy = entry.get("mirrorSourcePolicy") or ""
        if policy not in _POLICIES:
            expected = " or ".join(_POLICIES[1:])
            raise InvalidConfiguration(origin, f"{where}.mirrorSourcePolicy", f"is {policy!r}; expected {expected}")
        locations = [_location(origin, f"{where}.mirrors[{at}]", mirror) for at, mirror in enumerate(mirrors)]
        yield Registry(
            prefix=source,
            location="" if source.startswith("*.") else source,
            blocked=policy == "NeverContactSource",
            mirrors=tuple(Mirror(location, pull, origin=origin) for location in dict.fromkeys(locations)),
            origin=origin,
            entry=f"{where} ({source})",
        )


def _location(origin: str, where: str, value: object) -> str:
    if not isinstance(value, str) or not value:
        raise InvalidConfiguration(origin, where, "is missing; give HOST[:PORT][/PATH]")
    try:
        location = check_location(value)
    except ValueError as error:
        raise InvalidConfiguration(origin, where, str(error)) from error
    if location.startswith("*.") and not where.endswith(".source"):
        raise InvalidConfiguration(origin, where, "a mirror cannot be a wildcard")
    return location


def _merged(earlier: Registry, later: Registry) -> Registry:
    known = {(mirror.location, mirror.pull) for mirror in earlier.mirrors}
    added = tuple(mirror for mirror in later.mirrors if (mirror.location, mirror.pull) not in known)
    # The blocking object is the one to name if no source is left.
    named = later if later.blocked and not earlier.blocked else earlier
    return msgspec.structs.replace(named, mirrors=earlier.mirrors + added)


def _origin(item: Mapping[str, Any]) -> str:
    metadata = item.get("metadata")
    name = metadata.get("name", "") if isinstance(metadata, Mapping) else ""
    return f"{item.get('kind') or 'object without kind'} {name}".strip()
