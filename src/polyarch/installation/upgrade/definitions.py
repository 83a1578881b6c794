"""Compares CustomResourceDefinitions of a cluster with those of this version (IN-004).

A version that objects are stored in must still be there, and a field that objects use should be: the API server drops
what a schema does not know as soon as somebody writes the object. Pure.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

Document = dict[str, Any]
Path = tuple[str, ...]

ITEMS = "[]"
MEMBERS = "*"


def lost_versions(live: Mapping[str, Any], wanted: Mapping[str, Any]) -> list[str]:
    """Versions that objects are, or may be, stored in, and that the wanted definition does not have."""
    known = {each["name"] for each in wanted["spec"]["versions"]}
    return [name for name in (live.get("status") or {}).get("storedVersions") or () if name not in known]


def removed_fields(live: Mapping[str, Any], wanted: Mapping[str, Any]) -> list[Path]:
    """Fields that the present definition has and the wanted one has not, of versions that both have."""
    now = {each["name"]: each for each in live["spec"]["versions"]}
    then = {each["name"]: each for each in wanted["spec"]["versions"]}
    found: dict[Path, None] = {}
    for name in now.keys() & then.keys():
        known = set(_fields(_schema(then[name])))
        found |= dict.fromkeys(path for path in _fields(_schema(now[name])) if path not in known)
    outermost = [path for path in found if path[:-1] not in found]
    return sorted(outermost)


def uses(document: Any, path: Path) -> bool:
    """Whether an object has a value at the path."""
    if not path:
        return True
    first, *rest = path
    if first == ITEMS:
        return isinstance(document, list) and any(uses(each, tuple(rest)) for each in document)
    if first == MEMBERS:
        return isinstance(document, Mapping) and any(uses(each, tuple(rest)) for each in document.values())
    return isinstance(document, Mapping) and first in document and uses(document[first], tuple(rest))


def using(documents: Iterable[Mapping[str, Any]], path: Path) -> list[str]:
    """The names of the objects that have a value there."""
    found = []
    for each in documents:
        if uses(each, path):
            metadata = each["metadata"]
            found.append("/".join(part for part in (metadata.get("namespace"), metadata["name"]) if part))
    return found


def shown(path: Path) -> str:
    """``spec.plugins.items[].name``."""
    return ".".join(path).replace(f".{ITEMS}", ITEMS)


def _schema(version: Mapping[str, Any]) -> Mapping[str, Any]:
    found: Mapping[str, Any] = version.get("schema", {}).get("openAPIV3Schema", {})
    return found


def _fields(schema: Mapping[str, Any], path: Path = ()) -> Iterator[Path]:
    if path:
        yield path
    for name, each in (schema.get("properties") or {}).items():
        yield from _fields(each, (*path, name))
    if isinstance(items := schema.get("items"), Mapping):
        yield from _fields(items, (*path, ITEMS))
    if isinstance(members := schema.get("additionalProperties"), Mapping):
        yield from _fields(members, (*path, MEMBERS))
