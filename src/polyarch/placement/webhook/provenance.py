"""Whether the pod's creator sent the decision annotation, or a webhook added it during this admission (PL-853).

The API server records in ``metadata.managedFields`` which fields the creator's request sets, before it calls any
webhook, and a client cannot hide a field from it. So when our webhook is reinvoked (PL-114), our own annotation is on
the pod but in no ``managedFields`` entry; a copied or forged one is in its creator's entry. Pure.

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
    """Whether the pod's creator set the decision annotation; true if ``managedFields`` cannot be read."""
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
