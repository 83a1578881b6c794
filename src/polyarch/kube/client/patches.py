"""The four kinds of patch that the API server accepts, as values that know their media type.

Callers build a patch from a decision, never from a decoded object (DESIGN.md 2.4). So fields that our slim types do not
know are not in the patch, and survive. Pure.
"""

from collections.abc import Mapping
from typing import Any, Self

import msgspec
from msgspec import UNSET

from polyarch.kube.client.jsonpatch import Operation, add, remove, replace, test

_encode = msgspec.json.Encoder().encode


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
