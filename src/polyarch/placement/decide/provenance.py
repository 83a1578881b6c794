"""Whether a decision annotation was sent by the pod's creator, or put there by an admission webhook since (PL-853).

The API server writes down in ``metadata.managedFields`` which fields a creator's request sets, before it asks any
webhook, and nobody can keep a field out of that. So in a second round of an admission (PL-114) our own annotation
stands on the pod and in nobody's fields, while a copied or forged one stands in its author's. Pure.

Source: https://kubernetes.io/docs/reference/using-api/server-side-apply/ (FieldsV1).
"""

from typing import Any, Final

import msgspec

from polyarch.placement.names import DECISION_ANNOTATION


class _Entry(msgspec.Struct, frozen=True):
    fields: dict[str, Any] | None = msgspec.field(default=None, name="fieldsV1")


class _Metadata(msgspec.Struct, frozen=True):
    managed: list[_Entry] | None = msgspec.field(default=None, name="managedFields")


class _Object(msgspec.Struct, frozen=True):
    metadata: _Metadata = _Metadata()


_decode: Final = msgspec.json.Decoder(_Object).decode


def was_sent(pod: msgspec.Raw | bytes) -> bool:
    """Whether the creator of this pod set its decision annotation; so it is, too, where that cannot be told."""
    try:
        managed = _decode(pod).metadata.managed
    except (msgspec.MsgspecError, RecursionError):
        return True
    return not managed or any(entry.fields is None or _sets_annotation(entry.fields) for entry in managed)


def _sets_annotation(fields: dict[str, Any]) -> bool:
    for member in ("f:metadata", "f:annotations"):
        within = fields.get(member)
        if not isinstance(within, dict):
            return False
        fields = within
    return f"f:{DECISION_ANNOTATION}" in fields
