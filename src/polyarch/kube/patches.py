"""Patches: JSON Patch (RFC 6902) and JSON Pointer (RFC 6901) as values, and the kinds that the API server accepts.

Every decision becomes patch operations here: the response of a webhook, the request of a controller and the output of
``explain`` are the same tuple of :class:`Operation`. :func:`apply_patch` is the reference implementation, for dry runs,
``explain`` and tests; the API server applies the real patch. The API server's library differs from the RFC: it also
takes negative indices, and its ``test`` finds null where a member is missing. We write only patches that mean the same
to both, and this module follows the RFC. Pure.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, Self

import msgspec
from msgspec import UNSET, UnsetType

# ruff: noqa: N818  (TestFailed and the two private signals say what happened)


Op = Literal["add", "remove", "replace", "move", "copy", "test"]

_INDEX = re.compile(r"0|[1-9][0-9]*", re.ASCII)


class Operation(msgspec.Struct, frozen=True, gc=False, rename={"from_": "from"}):
    """One operation of a patch. An explicit null value is kept; only ``UNSET`` is left out of the JSON."""

    op: Op
    path: str
    value: Any | UnsetType = UNSET
    from_: str | UnsetType = UNSET


class PatchError(ValueError):
    """The patch does not fit the document; the text gives the operation's index and the reason."""

    def __init__(self, index: int, operation: Operation, problem: str) -> None:
        super().__init__(f"operation {index} ({operation.op} {operation.path or '(whole document)'}): {problem}")
        self.index = index
        self.operation = operation
        self.problem = problem


class TestFailed(PatchError):
    """A ``test`` found another value: the object has changed since the patch was made."""

    __test__ = False  # pytest would collect it for its name


def pointer(*segments: str | int) -> str:
    """A JSON pointer: ``pointer("metadata", "labels", "a/b")`` is ``/metadata/labels/a~1b``."""
    return "".join("/" + str(segment).replace("~", "~0").replace("/", "~1") for segment in segments)


def add(path: str, value: Any) -> Operation:
    """Sets a member, or inserts into a list before an index (``-`` appends). The parent must exist."""
    return Operation("add", path, value)


def remove(path: str) -> Operation:
    """Removes a member, which must exist."""
    return Operation("remove", path)


def replace(path: str, value: Any) -> Operation:
    """Replaces a member, which must exist."""
    return Operation("replace", path, value)


def test(path: str, value: Any) -> Operation:
    """Fails the whole patch unless the value is equal (HTTP 422 from the API server)."""
    return Operation("test", path, value)


test.__test__ = False  # type: ignore[attr-defined]


def apply_patch(document: Any, operations: Iterable[Operation]) -> Any:
    """The document after all operations. The given one is not changed; unchanged parts are shared with it.

    All or nothing: raises :class:`PatchError`, or :class:`TestFailed` for a failed ``test``.
    """
    for index, operation in enumerate(operations):
        try:
            document = _apply(document, operation)
        except _Failed as failed:
            raise TestFailed(index, operation, str(failed)) from None
        except _Misfit as misfit:
            raise PatchError(index, operation, str(misfit)) from None
    return document


class _Misfit(Exception):
    """The path does not exist."""


class _Failed(Exception):
    """A ``test`` found another value."""


def _apply(document: Any, operation: Operation) -> Any:
    path = _segments(operation.path)
    match operation.op:
        case "add":
            return _insert(document, path, _value(operation))
        case "replace":
            value = _value(operation)
            return _edit(document, path, lambda _: value)
        case "remove":
            return _remove(document, path)
        case "move":
            source = _source(operation)
            if path[: len(source)] == source and path != source:
                raise _Misfit("a value cannot be moved into itself")
            return _insert(_remove(document, source), path, _read(document, source))
        case "copy":
            return _insert(document, path, _read(document, _source(operation)))
        case "test":
            expected = _value(operation)
            found = _read(document, path)
            if not same(found, expected):
                raise _Failed(f"expected {_short(expected)}, found {_short(found)}")
            return document


def _segments(path: str) -> tuple[str, ...]:
    if not path:
        return ()
    if not path.startswith("/"):
        raise _Misfit("a JSON pointer starts with / (or is empty)")
    return tuple(segment.replace("~1", "/").replace("~0", "~") for segment in path[1:].split("/"))


def _value(operation: Operation) -> Any:
    if operation.value is UNSET:
        raise _Misfit("the operation has no value")
    return operation.value


def _source(operation: Operation) -> tuple[str, ...]:
    if isinstance(operation.from_, UnsetType):
        raise _Misfit("the operation has no from")
    return _segments(operation.from_)


def _read(node: Any, path: tuple[str, ...]) -> Any:
    for segment in path:
        node = node[_place(node, segment)]
    return node


def _place(node: Any, segment: str) -> Any:
    """The key or index of an existing member."""
    if isinstance(node, dict):
        if segment not in node:
            raise _Misfit(f"there is no member {segment!r}")
        return segment
    if isinstance(node, list):
        index = _index(segment)
        if index >= len(node):
            raise _Misfit(f"there is no element {segment} in a list of {len(node)}")
        return index
    raise _Misfit(f"{segment!r} is looked for in a plain value")


def _index(segment: str) -> int:
    if not _INDEX.fullmatch(segment):
        raise _Misfit(f"{segment!r} is not the index of a list")
    return int(segment)


def _edit(node: Any, path: tuple[str, ...], change: Callable[[Any], Any]) -> Any:
    """Copies only along the path: to change one label of a pod, its forty containers are not copied."""
    if not path:
        return change(node)
    place = _place(node, path[0])
    fresh = node.copy()
    fresh[place] = _edit(node[place], path[1:], change)
    return fresh


def _insert(document: Any, path: tuple[str, ...], value: Any) -> Any:
    if not path:
        return value

    def into(parent: Any) -> Any:
        segment = path[-1]
        if isinstance(parent, dict):
            return {**parent, segment: value}
        if isinstance(parent, list):
            index = len(parent) if segment == "-" else _index(segment)
            if index > len(parent):
                raise _Misfit(f"cannot insert at {segment} in a list of {len(parent)}")
            return [*parent[:index], value, *parent[index:]]
        raise _Misfit(f"{segment!r} is added to a plain value")

    return _edit(document, path[:-1], into)


def _remove(document: Any, path: tuple[str, ...]) -> Any:
    if not path:
        raise _Misfit("the whole document cannot be removed")

    def without(parent: Any) -> Any:
        place = _place(parent, path[-1])
        fresh = parent.copy()
        del fresh[place]
        return fresh

    return _edit(document, path[:-1], without)


def same(left: Any, right: Any) -> bool:
    """Equality of JSON values: 1 equals 1.0, true does not equal 1."""
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(same(value, right[key]) for key, value in left.items())
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(same, left, right))
    return bool(left == right)


def _short(value: Any) -> str:
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= 80 else text[:77] + "..."


# -- the four kinds of patch, which know their media type --------------------------------------------------------------


_encode = msgspec.json.Encoder().encode


# Callers build a patch from a decision, never from a decoded object. So fields that our slim types do not know are not
# in the patch, and survive.


class JsonPatch(msgspec.Struct, frozen=True, gc=False):
    """RFC 6902; the only kind with preconditions (``test``). A failed test is HTTP 422 (``Invalid``)."""

    operations: tuple[Operation, ...]

    @classmethod
    def tested(cls, path: str, old: Any, new: Any, *, resource_version: str = "") -> Self:
        """Changes one field from ``old`` to ``new``; fails with HTTP 422 if somebody else changed it first.

        ``UNSET`` means that the field is absent. No ``test`` for absence works both by RFC 6902 and in the API server,
        so adding a field needs the object's ``resource_version``. Raises ValueError without it.
        """
        operations: list[Operation] = []
        if resource_version:
            operations.append(test("/metadata/resourceVersion", resource_version))
        if old is not UNSET:
            operations.append(test(path, old))
        elif not resource_version:
            raise ValueError(f"adding {path} needs the resourceVersion of an object that does not have it yet")
        if new is not UNSET:
            operations.append(add(path, new) if old is UNSET else replace(path, new))
        elif old is not UNSET:
            operations.append(remove(path))
        return cls(tuple(operations))

    @property
    def content_type(self) -> str:
        return "application/json-patch+json"

    def body(self) -> bytes:
        return _encode(self.operations)


def merge_patch(document: Mapping[str, Any], patch: Mapping[str, Any]) -> dict[str, Any]:
    """The document after a merge patch (RFC 7386), as the API server would make it."""
    result = dict(document)
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        elif isinstance(value, Mapping):
            inner = result.get(key)
            result[key] = merge_patch(inner if isinstance(inner, Mapping) else {}, value)
        else:
            result[key] = value
    return result


class MergePatch(msgspec.Struct, frozen=True, gc=False):
    """RFC 7386: objects are merged, lists are replaced, null removes."""

    document: Mapping[str, Any]

    @property
    def content_type(self) -> str:
        return "application/merge-patch+json"

    def body(self) -> bytes:
        return _encode(self.document)


class StrategicPatch(msgspec.Struct, frozen=True, gc=False):
    """A merge that knows the list keys of built-in kinds; custom resources do not support it (HTTP 415)."""

    document: Mapping[str, Any]

    @property
    def content_type(self) -> str:
        return "application/strategic-merge-patch+json"

    def body(self) -> bytes:
        return _encode(self.document)


class ApplyPatch(msgspec.Struct, frozen=True, gc=False):
    """Server-side apply of every field we own in an object. The body is JSON, which is valid YAML."""

    document: Mapping[str, Any]
    force: bool = True

    @property
    def content_type(self) -> str:
        return "application/apply-patch+yaml"

    def body(self) -> bytes:
        return _encode(self.document)


Patch = JsonPatch | MergePatch | StrategicPatch | ApplyPatch
