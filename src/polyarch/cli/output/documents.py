"""Documents of a documented schema: JSON indented by two, or YAML; keys in the order given. And manifests for files."""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec


def document_text(document: Mapping[str, Any], format: str) -> str:
    """The text of ``json`` or ``yaml``."""
    if format == "yaml":
        import yaml  # a twentieth of the start of a command that prints none

        plain = msgspec.to_builtins(document)
        return str(yaml.safe_dump(plain, sort_keys=False, allow_unicode=True, width=10_000))
    return msgspec.json.format(msgspec.json.encode(document), indent=2).decode() + "\n"


def manifest_text(documents: Iterable[object]) -> str:
    """Objects as a file of YAML documents. Repeated values are written out, and texts of several lines as blocks."""
    import yaml

    class Dumper(yaml.SafeDumper):
        def ignore_aliases(self, data: object) -> bool:
            return True

    def text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
        return dumper.represent_scalar("tag:yaml.org,2002:str", value, style="|" if "\n" in value else None)

    Dumper.add_representer(str, text)
    return "---\n".join(
        yaml.dump(document, Dumper=Dumper, sort_keys=False, width=120, allow_unicode=True) for document in documents
    )
