"""Documents of a documented schema: JSON indented by two, or YAML; keys in the order given."""

from collections.abc import Mapping
from typing import Any

import msgspec


def document_text(document: Mapping[str, Any], format: str) -> str:
    """The text of ``json`` or ``yaml``."""
    if format == "yaml":
        import yaml  # a twentieth of the start of a command that prints none

        plain = msgspec.to_builtins(document)
        return str(yaml.safe_dump(plain, sort_keys=False, allow_unicode=True, width=10_000))
    return msgspec.json.format(msgspec.json.encode(document), indent=2).decode() + "\n"
