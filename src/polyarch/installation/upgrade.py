"""Reads a cluster to say what an upgrade would change, and what stands in its way; writes nothing.

What would change is asked from the API server by a dry run, so defaults and conversions are its own.
"""

import copy
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, Literal

import msgspec

from polyarch import __version__
from polyarch.installation import apply, operator
from polyarch.installation.preflight import MANAGER, OURS, PreflightFacts, changes, is_ready_for, ref_of, together
from polyarch.kube.client import Client
from polyarch.kube.errors import NotFound
from polyarch.kube.resources import CRDS, ObjectRef, few

Document = dict[str, Any]
SERVER_SET: Final = ("managedFields", "resourceVersion", "generation", "creationTimestamp", "uid", "selfLink")


class PlannedChange(msgspec.Struct, frozen=True):
    """One object that would change."""

    ref: ObjectRef
    before: Document | None
    """None: it does not exist."""
    after: Document


class UpgradeWarning(msgspec.Struct, frozen=True):
    """Something to know before an upgrade; ``refused`` stands in its way."""

    outcome: Literal["note", "refused"]
    message: str


async def compare(client: Client, documents: Iterable[Document], facts: PreflightFacts) -> list[PlannedChange]:
    """The objects that would change, in the order of applying."""
    tried = []
    for document in documents:
        ref = ref_of(document)
        live = facts.live.get(ref)
        wanted = apply.wanted(document, live)
        if changes(wanted, live):
            tried.append((ref, live, wanted))
    return [change for change in await together(_change(client, *each, facts) for each in tried) if change is not None]


async def findings(client: Client, documents: Iterable[Document], facts: PreflightFacts) -> list[UpgradeWarning]:
    """Versions that do not fit, storage versions that would be lost, fields that would be."""
    found = _skew(facts)
    for document in documents:
        ref = ref_of(document)
        live = facts.live.get(ref)
        if ref.resource != CRDS or live is None:
            continue
        name = ref.key.name
        if lost := lost_versions(live, document):
            text = f"{name}: objects are stored as {', '.join(lost)}, which this version does not have"
            found.append(UpgradeWarning("refused", text))
        removed = removed_fields(live, document)
        if not removed:
            continue
        objects = await _objects(client, name)
        for path in removed:
            users = using(objects, path)
            where = f"; used by {few(users)}" if users else ""
            text = f"{name}: this version does not have the field {shown(path)}{where}"
            found.append(UpgradeWarning("refused" if users else "note", text))
    return found


def installed_version(facts: PreflightFacts, namespace: str) -> str:
    """The version of the operator in this namespace; empty if there is none."""
    for each in facts.deployments:
        metadata = each["metadata"]
        if (metadata["name"], metadata["namespace"]) == (operator.OPERATOR, namespace):
            return str((metadata.get("labels") or {}).get(operator.VERSION, ""))
    return ""


def plain(document: Mapping[str, Any]) -> Document:
    """The object without what the API server sets."""
    made = copy.deepcopy(dict(document))
    made.pop("status", None)
    for name in SERVER_SET:
        made["metadata"].pop(name, None)
    return made


def _skew(facts: PreflightFacts) -> list[UpgradeWarning]:
    found = []
    for each in facts.deployments:
        metadata = each["metadata"]
        version = (metadata.get("labels") or {}).get(operator.VERSION, "")
        if metadata["name"] == operator.OPERATOR and version and _number(version) > _number(__version__):
            text = f"polyarch {version} is installed, and this command is {__version__}: use the command of {version}"
            found.append(UpgradeWarning("refused", text))
    return found


def _number(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("+")[0].split(".") if part.isdigit())


async def _change(
    client: Client, ref: ObjectRef, live: Document | None, wanted: Document, facts: PreflightFacts
) -> PlannedChange | None:
    if not is_ready_for(ref, facts.live):
        return PlannedChange(ref, None, wanted)
    after: Document = await client.apply(
        ref.resource, wanted, namespace=ref.key.namespace, field_manager=MANAGER, type=dict, dry_run=True
    )
    before = plain(live) if live is not None else None
    return None if before == plain(after) else PlannedChange(ref, before, plain(after))


async def _objects(client: Client, definition: str) -> list[Document]:
    resource = next((each for each in OURS.values() if str(each) == definition), None)
    if resource is None:
        return []
    try:
        return (await client.list(resource)).items
    except NotFound:
        return []


# -- definitions: versions and fields that this version does not have --------------------------------------------------
# A version that objects are stored in must still be there, and a field that objects use should be: the API server drops
# what a schema does not know as soon as somebody writes the object.

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
