"""An object as it is, every field of it, for those who compare whole objects (KR-051).

Everything else reads slim types. This one costs some ten times their memory, so it is for the few objects that an
operator owns, not for pods.
"""

from typing import Any

import msgspec

from polyarch.model.meta import ObjectMeta


class Unstructured:
    """``document`` is the object as decoded JSON, never to be changed; ``metadata`` the part that stores look at."""

    __slots__ = ("document", "metadata")

    def __init__(self, document: dict[str, Any]) -> None:
        """Raises ``msgspec.ValidationError`` if ``metadata`` is none."""
        self.document = document
        self.metadata = msgspec.convert(document.get("metadata") or {}, ObjectMeta)

    def __repr__(self) -> str:
        return f"Unstructured({self.document.get('kind')} {self.metadata.key})"

    @property
    def status(self) -> dict[str, Any]:
        """``status``, empty where there is none."""
        return self.document.get("status") or {}


def decode_hook(type: type[Any], value: Any) -> Any:
    """``dec_hook`` of every decoder that may meet an :class:`Unstructured`."""
    if type is Unstructured:
        return Unstructured(value)
    if isinstance(value, type):  # of ``object``, for who only looks whether there is an answer
        return value
    raise NotImplementedError(type)
