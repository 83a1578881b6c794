"""Would applying this document change anything? Answered from ``metadata.managedFields`` alone.

Server-side apply records, for every manager, the set of fields that it last applied, as a tree of JSON keys: ``f:name``
for a member, ``k:{…}`` for a list element by its keys, ``v:…`` for a set element; a leaf ``{}`` owns everything below
it. When someone else changes one of these values, the field leaves that set. So a document is up to date if the set
names exactly its fields and the values are equal; then no request is needed, not even a dry run.

A false "differs" costs one request. It happens where the server stores a value in another form (``1000m`` becomes
``1``), drops an empty one, or adds a default not listed here inside an atomic value. The apply set remembers what it
sent and does not send it again. A false "equal" would be a bug.

Pure. The format: https://kubernetes.io/docs/reference/using-api/server-side-apply/#managed-fields,
sigs.k8s.io/structured-merge-diff."""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from polyarch.kube.errors import Conflict
from polyarch.kube.patches import same

Fields = Mapping[str, Any]
Path = tuple[str, ...]

_NEVER_MANAGED: Final = frozenset(
    ("name", "namespace", "uid", "resourceVersion", "generation", "creationTimestamp", "managedFields", "selfLink")
)
_DEFAULTS: Final = frozenset(
    (
        ("apiVersion", "v1"),  # fieldRef
        ("apiGroup", "rbac.authorization.k8s.io"),  # subjects
        ("divisor", "0"),  # resourceFieldRef
        ("expirationSeconds", 3600),  # projected service account tokens
        ("protocol", "TCP"),  # ports of network policies
        ("scope", "*"),  # rules of webhooks
        ("volumeMode", "Filesystem"),
    )
)
"""Defaults that an API server adds inside atomic values of built-in kinds."""
_MANAGER: Final = re.compile(r'conflict with "(?P<manager>[^"]*)"')
_MISSING: Final = object()


class FieldConflict(NamedTuple):
    """A field that another manager owns with another value, e.g. ``.spec.replicas`` of ``kubectl``."""

    field: str
    manager: str

    def __str__(self) -> str:
        return f"{self.field} belongs to {self.manager}"


def differences(
    desired: Mapping[str, Any], live: Mapping[str, Any], *, manager: str, subresource: str = ""
) -> tuple[str, ...]:
    """The fields (``.spec.replicas``) that make it necessary to apply ``desired``; empty if it is up to date.

    A field counts if its value differs, if we do not own it yet, or if we own it and no longer desire it.
    """
    body = _managed(desired, subresource)
    fields = applied_fields(live, manager=manager, subresource=subresource, api_version=desired.get("apiVersion"))
    if fields is None:
        return tuple(f".{name}" for name in body) or (".metadata",)
    group = str(desired.get("apiVersion", "")).rpartition("/")[0]
    comparison = _Comparison(_DEFAULTS if "." not in group or group.endswith(".k8s.io") else ())
    return tuple(words_of(path) for path in comparison.differing(fields, body, live))


def applied_fields(
    live: Mapping[str, Any], *, manager: str, subresource: str = "", api_version: str | None = None
) -> Fields | None:
    """What ``manager`` last applied, as ``fieldsV1``; None if it never applied, or did so in another API version."""
    for entry in _entries(live):
        if (entry.get("manager"), entry.get("operation"), entry.get("subresource", "")) == (
            manager,
            "Apply",
            subresource,
        ) and api_version in (None, entry.get("apiVersion")):
            return entry.get("fieldsV1") or {}
    return None


def applied(live: Mapping[str, Any], *, manager: str, api_version: str | None = None) -> dict[str, Any]:
    """The part of an object that ``manager`` applied: what it has to apply again to change nothing."""
    fields = applied_fields(live, manager=manager, api_version=api_version)
    found = _part(fields, live) if fields is not None and _children(fields) else {}
    return found if isinstance(found, dict) else {}


def _part(fields: Fields, have: Any) -> Any:
    if not _children(fields):
        return have
    if isinstance(have, Mapping):
        return {name: _part(fields[f"f:{name}"], value) for name, value in have.items() if f"f:{name}" in fields}
    if isinstance(have, list):
        keys = [
            (index, key) for key in _children(fields) for index, item in enumerate(have) if _named(key, item, index)
        ]
        return [_part(fields[key], have[index]) for index, key in sorted(keys)]
    return have


def _named(key: str, item: Any, index: int) -> bool:
    return _is(key, item, index, exactly=True)


def managers_of(live: Mapping[str, Any], path: Path) -> frozenset[str]:
    """Who wrote a field, such as ``("f:metadata", "f:labels", "f:app")``: more than one if they agree on its value."""

    def has(fields: Fields) -> bool:
        for key in path:
            if key not in fields:
                return False
            fields = fields[key]
        return True

    return frozenset(str(entry.get("manager", "")) for entry in _entries(live) if has(entry.get("fieldsV1") or {}))


def overridden(
    desired: Mapping[str, Any], live: Mapping[str, Any], *, manager: str, subresource: str = ""
) -> tuple[FieldConflict, ...]:
    """The fields that a forced apply of ``desired`` would take over from other managers, with the manager's name."""
    body = _managed(desired, subresource)
    return tuple(
        FieldConflict(words_of(path), str(entry.get("manager", "")))
        for entry in _entries(live)
        if (entry.get("manager"), entry.get("operation")) != (manager, "Apply")
        for path in _collisions(entry.get("fieldsV1") or {}, body, live, ())
    )


def undesired_fields(desired: Mapping[str, Any], fields: Fields) -> tuple[Path, ...]:
    """The fields among ``fields`` that ``desired`` does not have, outside the status and all metadata.

    ``replicas`` are left to whoever scales.
    """
    return tuple(_undesired({**desired, "status": None}, fields, ()))


def _undesired(want: Any, fields: Fields, path: Path) -> Iterator[Path]:
    pairs = dict(_paired(fields, want)[0]) if isinstance(want, list) else {}
    for key in _children(fields):
        if key in ("f:metadata", "f:status", "f:replicas"):
            continue
        value: Any = None
        if isinstance(want, list):
            value = want[pairs[key]] if key in pairs else None
        elif isinstance(want, Mapping):
            value = want.get(key[2:])
        if value is None:
            if not (path and path[-1].startswith("k:") and key[2:] in msgspec.json.decode(path[-1][2:])):
                yield (*path, key)
        elif isinstance(value, Mapping | list):
            yield from _undesired(value, fields[key], (*path, key))


def conflicts_of(error: Conflict) -> tuple[FieldConflict, ...]:
    """The fields for which an apply without force was refused; empty for other kinds of conflict."""
    return tuple(
        FieldConflict(cause.field, match["manager"] if (match := _MANAGER.search(cause.message)) else cause.message)
        for cause in error.causes
        if cause.reason == "FieldManagerConflict"
    )


def _entries(live: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    return (live.get("metadata") or {}).get("managedFields") or ()


def _managed(desired: Mapping[str, Any], subresource: str) -> dict[str, Any]:
    """The part of a document that an apply owns; an apply to the status subresource owns only the status."""
    body = {name: value for name, value in desired.items() if name not in ("apiVersion", "kind", "metadata")}
    if subresource:
        return body
    metadata = desired.get("metadata") or {}
    if owned := {name: value for name, value in metadata.items() if name not in _NEVER_MANAGED}:
        body["metadata"] = owned
    return body


class _Comparison:
    """Collects where a document differs from a set of owned fields or from the object's values."""

    def __init__(self, defaults: Collection[tuple[str, Any]]) -> None:
        self._defaults = defaults

    def differing(self, fields: Fields, want: Any, have: Any, path: Path = ()) -> Iterator[Path]:
        if not _children(fields):
            if have is _MISSING or not (same(want, have) or same(want, self._without_defaults(have, want))):
                yield path
        elif isinstance(want, Mapping):
            yield from self._members(fields, want, have, path)
        elif isinstance(want, list):
            paired, ours, wanted = _paired(fields, want)
            yield from ((*path, key) for key in ours)
            yield from ((*path, f"i:{index}") for index in wanted)
            for key, index in paired:
                yield from self._item(fields[key], key, want[index], have, path)
        else:
            yield path

    def _members(
        self, fields: Fields, want: Mapping[str, Any], have: Any, path: Path, known: Collection[str] = ()
    ) -> Iterator[Path]:
        """``known``: the keys of a list element; they count as ours, written or defaulted."""
        members = have if isinstance(have, Mapping) else {}
        for name, value in want.items():
            key = f"f:{name}"
            if key in fields:
                yield from self.differing(fields[key], value, members.get(name, _MISSING), (*path, key))
            elif value is not None and name not in known:
                yield (*path, key)
        for key in _children(fields):
            if key[2:] not in want and key[2:] not in known:
                yield (*path, key)

    def _item(self, fields: Fields, key: str, want: Any, have: Any, path: Path) -> Iterator[Path]:
        found = _item(have, key)
        if found is _MISSING:
            yield (*path, key)
        elif _children(fields) and isinstance(want, Mapping):
            keys = msgspec.json.decode(key[2:]) if key.startswith("k:") else ()
            yield from self._members(fields, want, found, (*path, key), keys)
        else:
            yield from self.differing(fields, want, found, (*path, key))

    def _without_defaults(self, have: Any, want: Any) -> Any:
        """``have`` without the members that ``want`` leaves to the server's defaults."""
        if isinstance(have, Mapping) and isinstance(want, Mapping):
            return {
                name: self._without_defaults(value, want.get(name))
                for name, value in have.items()
                if name in want or isinstance(value, dict | list) or (name, value) not in self._defaults
            }
        if isinstance(have, list) and isinstance(want, list) and len(have) == len(want):
            return [self._without_defaults(*pair) for pair in zip(have, want, strict=True)]
        return have


def _collisions(fields: Fields, want: Any, have: Any, path: Path) -> Iterator[Path]:
    """The other manager's fields that ``want`` sets to another value."""
    if have is _MISSING:
        return
    if not _children(fields):
        if not same(want, have):
            yield path
    elif isinstance(want, Mapping):
        members = have if isinstance(have, Mapping) else {}
        for name, value in want.items():
            if value is not None and (key := f"f:{name}") in fields:
                yield from _collisions(fields[key], value, members.get(name, _MISSING), (*path, key))
    elif isinstance(want, list):
        for key, index in _paired(fields, want)[0]:
            yield from _collisions(fields[key], want[index], _item(have, key), (*path, key))


def _children(fields: Fields) -> list[str]:
    return [key for key in fields if key != "."]


def _paired(fields: Fields, want: Sequence[Any]) -> tuple[list[tuple[str, int]], list[str], list[int]]:
    """Pairs ``fields`` with the elements of ``want``; then keys without an element, and elements without a key.

    An element may omit a key that the server defaults (``protocol`` of a port); elements that have it are paired first.
    """
    paired: list[tuple[str, int]] = []
    ours, wanted = _children(fields), list(range(len(want)))
    for exactly in (True, False):
        for key in list(ours):
            index = next((index for index in wanted if _is(key, want[index], index, exactly=exactly)), None)
            if index is not None:
                paired.append((key, index))
                ours.remove(key)
                wanted.remove(index)
    return paired, ours, wanted


def _is(key: str, item: Any, index: int, *, exactly: bool) -> bool:
    kind, _, text = key.partition(":")
    if kind == "i":
        return text == str(index)
    value = msgspec.json.decode(text)
    if kind == "v":
        return same(value, item)
    if not isinstance(item, Mapping):
        return False
    shared = {name: part for name, part in value.items() if name in item}
    return bool(shared) and (not exactly or shared == value) and all(same(item[name], shared[name]) for name in shared)


def _item(have: Any, key: str) -> Any:
    if not isinstance(have, list):
        return _MISSING
    return next((item for index, item in enumerate(have) if _is(key, item, index, exactly=True)), _MISSING)


def words_of(path: Path) -> str:
    """A path as the API server writes it in a conflict: ``.spec.template.spec.containers[name="web"].image``."""
    return "".join(_segment(*key.split(":", 1)) for key in path)


def _segment(kind: str, text: str) -> str:
    match kind:
        case "f":
            return f".{text}" if re.fullmatch(r"[\w-]+", text) else f'["{text}"]'
        case "k":
            keys = msgspec.json.decode(text)
            return f"[{','.join(f'{name}={msgspec.json.encode(value).decode()}' for name, value in keys.items())}]"
        case "v":
            return f"[={text}]"
    return f"[{text}]"
