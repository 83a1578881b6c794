"""Operations on an object tree, independent of its text.

A rule returns operations. The editor turns them into splices of the file, ``--emit kustomize`` into JSON 6902, and
the proof of an edit compares the file, parsed again, with :func:`apply`. Operations apply in order, like
those of a JSON Patch: an index counts the elements that earlier operations left.

Pure: no I/O; values are JSON values (dict, list, str, int, float, bool, None).
"""

import math
import re
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any

import msgspec

from polyarch.kube import patches
from polyarch.kube.patches import pointer

_INDEX = re.compile(r"0|[1-9][0-9]*", re.ASCII)


class Add(msgspec.Struct, frozen=True, tag="add"):
    """Add a member to a mapping, which must not have it, or insert an element before an index; ``-`` appends."""

    pointer: str
    value: Any


class Remove(msgspec.Struct, frozen=True, tag="remove"):
    """Remove an existing member or element."""

    pointer: str


class Replace(msgspec.Struct, frozen=True, tag="replace"):
    """Replace the value of an existing member or element."""

    pointer: str
    value: Any


class Rename(msgspec.Struct, frozen=True, tag="rename"):
    """Rename the key of a member in place; the mapping must not have the new key."""

    pointer: str
    key: str


TreeOperation = Add | Remove | Replace | Rename


class OperationError(ValueError):
    """An operation that does not fit the object, and why."""

    def __init__(self, operation: TreeOperation, problem: str) -> None:
        super().__init__(f"{type(operation).__name__} {operation.pointer or '(whole document)'}: {problem}")
        self.operation = operation
        self.problem = problem


@lru_cache(maxsize=4096)
def segments(path: str) -> tuple[str, ...]:
    """The unescaped parts of a JSON pointer; ``pointer(*segments(path)) == path``."""
    if not path:
        return ()
    if not path.startswith("/"):
        raise ValueError(f"{path!r} is no JSON pointer: it starts with / or is empty")
    return tuple(part.replace("~1", "/").replace("~0", "~") for part in path[1:].split("/"))


def index(segment: str) -> int | None:
    """A pointer segment as an index, None if it is not one."""
    return int(segment) if _INDEX.fullmatch(segment) else None


def is_below(path: str, root: str) -> bool:
    """Whether a pointer is ``root`` or leads below it."""
    return path == root or path.startswith(f"{root}/")


def read(value: Any, path: str) -> Any:
    """The member at a pointer; raises KeyError with the pointer if there is none."""
    for segment in segments(path):
        place = index(segment)
        if isinstance(value, Mapping) and segment in value:
            value = value[segment]
        elif isinstance(value, list) and place is not None and place < len(value):
            value = value[place]
        else:
            raise KeyError(path)
    return value


def ensure(value: Any, path: str, member: Any) -> TreeOperation:
    """One operation that puts ``member`` at ``path`` and creates the missing or null mappings above it.

    >>> ensure({"affinity": None}, "/affinity/nodeAffinity", {})
    Replace(pointer='/affinity', value={'nodeAffinity': {}})

    An existing value is replaced. Raises KeyError if a value on the way is neither mapping, list nor null.
    """
    parts = segments(path)
    for depth, segment in enumerate(parts):
        here, rest = pointer(*parts[: depth + 1]), parts[depth + 1 :]
        if isinstance(value, list):
            place = index(segment)
            if segment == "-" or place == len(value):
                return Add(here, _nested(rest, member))
            if place is None or place > len(value):
                raise KeyError(here)
            value = value[place]
        elif isinstance(value, Mapping):
            if segment not in value:
                return Add(here, _nested(rest, member))
            value = value[segment]
        else:
            raise KeyError(here)
        if value is None or not rest:
            return Replace(here, _nested(rest, member))
    return Replace("", member)


def rebase(operations: Iterable[TreeOperation], old: str, new: str) -> tuple[TreeOperation, ...]:
    """The same operations below another pointer: from one use of an anchored node to another.

    Raises ValueError for an operation that is not below ``old``.
    """
    moved = []
    for operation in operations:
        if not is_below(operation.pointer, old):
            raise ValueError(f"{operation.pointer} is not below {old}")
        moved.append(msgspec.structs.replace(operation, pointer=new + operation.pointer[len(old) :]))
    return tuple(moved)


def apply(value: Any, operations: Iterable[TreeOperation]) -> Any:
    """The object after all operations, in order. The argument is not changed; unchanged parts are shared with it, and
    what changes is copied by its own ``copy``.

    Raises :class:`OperationError`; keys keep their order, a new one comes last.
    """
    for operation in operations:
        value = _edit(value, segments(operation.pointer), operation)
    return value


def same(left: Any, right: Any) -> bool:
    """Strict equality: ``1`` is neither ``1.0`` nor true, not-a-number equals itself, and the order of keys does not
    matter.
    """
    if type(left) is not type(right):
        return False
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(same(value, right[key]) for key, value in left.items())
    if isinstance(left, list):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, float) and math.isnan(left):
        return math.isnan(right)
    return bool(left == right)


def to_json_patch(operations: Iterable[TreeOperation], before: Any) -> tuple[patches.Operation, ...]:
    """The operations as a JSON 6902 patch of the object ``before``.

    The patch tests each value that it replaces, removes or renames, so that it fails on an object that has changed.
    Raises :class:`OperationError`.
    """
    patch: list[patches.Operation] = []
    for operation in operations:
        after = apply(before, (operation,))
        path = operation.pointer
        match operation:
            case Add():
                patch.append(patches.add(path, operation.value))
            case Remove():
                patch += [patches.test(path, read(before, path)), patches.remove(path)]
            case Replace():
                patch += [patches.test(path, read(before, path)), patches.replace(path, operation.value)]
            case Rename():
                target = pointer(*segments(path)[:-1], operation.key)
                old = read(before, path)
                patch += [patches.test(path, old), patches.remove(path), patches.add(target, old)]
        before = after
    return tuple(patch)


def _nested(path: tuple[str, ...], member: Any) -> Any:
    for segment in reversed(path):
        member = [member] if segment == "-" else {segment: member}
    return member


def _edit(value: Any, path: tuple[str, ...], operation: TreeOperation) -> Any:
    if not path:
        if isinstance(operation, Replace):
            return operation.value
        raise OperationError(operation, "the whole document can only be replaced")
    if len(path) == 1:
        return _change(value, path[0], operation)
    return _at(value, path[0], operation, lambda member: _edit(member, path[1:], operation))


def _at(value: Any, segment: str, operation: TreeOperation, change: Callable[[Any], Any]) -> Any:
    """Copies along the path only."""
    place = _place(value, segment, operation)
    fresh = value.copy()
    fresh[place] = change(value[place])
    return fresh


def _place(value: Any, segment: str, operation: TreeOperation) -> str | int:
    if isinstance(value, dict):
        if segment in value:
            return segment
        raise OperationError(operation, f"there is no member {segment!r}")
    if isinstance(value, list):
        place = index(segment)
        if place is not None and place < len(value):
            return place
        raise OperationError(operation, f"there is no element {segment} in a list of {len(value)}")
    raise OperationError(operation, f"{segment!r} cannot be looked up in a scalar")


def _change(value: Any, segment: str, operation: TreeOperation) -> Any:
    match operation:
        case Add():
            return _added(value, segment, operation)
        case Replace():
            return _at(value, segment, operation, lambda _: operation.value)
        case Remove():
            place = _place(value, segment, operation)
            fresh = value.copy()
            del fresh[place]
            return fresh
        case Rename():
            place = _place(value, segment, operation)
            if not isinstance(value, dict):
                raise OperationError(operation, "an element of a list has no key")
            if operation.key in value:
                raise OperationError(operation, f"there is a member {operation.key!r} already")
            fresh = value.copy()
            fresh.clear()
            fresh.update({operation.key if key == place else key: member for key, member in value.items()})
            return fresh


def _added(value: Any, segment: str, operation: Add) -> Any:
    if isinstance(value, dict):
        if segment in value:
            raise OperationError(operation, f"there is a member {segment!r} already")
        fresh = value.copy()
        fresh[segment] = operation.value
        return fresh
    if isinstance(value, list):
        place = len(value) if segment == "-" else index(segment)
        if place is None or place > len(value):
            raise OperationError(operation, f"cannot insert at {segment} in a list of {len(value)}")
        longer = value.copy()
        longer.insert(place, operation.value)
        return longer
    raise OperationError(operation, f"{segment!r} cannot be added to a scalar")


# -- readers for values of unchecked types: a member of another type counts as empty -----------------------------------


def mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def elements(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def mappings(value: object) -> list[Mapping[str, Any]]:
    """The mappings of a list; its other elements are left out."""
    return [each for each in elements(value) if isinstance(each, Mapping)]


def at(value: object, *path: str) -> Any:
    """The member at a path of keys, None where there is none."""
    for key in path:
        value = mapping(value).get(key)
    return value
