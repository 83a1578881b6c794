"""An object with all its fields, for code that compares whole objects (KR-051).

It takes about ten times the memory of the slim types, so it is for the few objects that an operator owns, not for pods.
"""

from typing import Any

import msgspec

from polyarch.model.meta import ObjectMeta


class Unstructured:
    """``document`` is the object as decoded JSON and must not be changed; ``metadata`` is the part that stores use."""

    __slots__ = ("document", "metadata")

    def __init__(self, document: dict[str, Any]) -> None:
        """Raises ``msgspec.ValidationError`` if ``metadata`` is invalid."""
        self.document = document
        self.metadata = msgspec.convert(document.get("metadata") or {}, ObjectMeta)

    def __repr__(self) -> str:
        return f"Unstructured({self.document.get('kind')} {self.metadata.key})"

    @property
    def status(self) -> dict[str, Any]:
        """``status``, empty if there is none."""
        return self.document.get("status") or {}


def decode_hook(type: type[Any], value: Any) -> Any:
    """``dec_hook`` of every decoder that may decode an :class:`Unstructured`."""
    if type is Unstructured:
        return Unstructured(value)
    if isinstance(value, type):  # ``type=object``: the caller ignores the content of the answer
        return value
    raise NotImplementedError(type)
