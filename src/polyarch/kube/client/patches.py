"""The four kinds of patch the API server takes, as values that know their media type.

A patch is always built by us from a decision, never from an object that was decoded (DESIGN.md 2.4): fields that our
slim types do not know are not in it and so survive. Pure.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from polyarch.kube.client.jsonpatch import Operation

_encode = msgspec.json.Encoder().encode


class JsonPatch(msgspec.Struct, frozen=True, gc=False):
    """RFC 6902; the one with preconditions (``test``). A failed test is HTTP 422 (``Invalid``)."""

    operations: tuple[Operation, ...]

    @property
    def content_type(self) -> str:
        return "application/json-patch+json"

    def body(self) -> bytes:
        return _encode(self.operations)


class MergePatch(msgspec.Struct, frozen=True, gc=False):
    """RFC 7386: objects are merged, lists replaced, null removes."""

    document: Mapping[str, Any]

    @property
    def content_type(self) -> str:
        return "application/merge-patch+json"

    def body(self) -> bytes:
        return _encode(self.document)


class StrategicPatch(msgspec.Struct, frozen=True, gc=False):
    """Merge with Kubernetes' knowledge of list keys; not for custom resources (HTTP 415)."""

    document: Mapping[str, Any]

    @property
    def content_type(self) -> str:
        return "application/strategic-merge-patch+json"

    def body(self) -> bytes:
        return _encode(self.document)


class ApplyPatch(msgspec.Struct, frozen=True, gc=False):
    """Server-side apply of everything we own in an object. JSON is YAML, so the body needs no other writer."""

    document: Mapping[str, Any]
    force: bool = True

    @property
    def content_type(self) -> str:
        return "application/apply-patch+yaml"

    def body(self) -> bytes:
        return _encode(self.document)


Patch = JsonPatch | MergePatch | StrategicPatch | ApplyPatch
