"""Reading a platforms file (RG-130): YAML or JSON, with the place of what is wrong in it.

A key that stands there twice is refused, although YAML readers take the last one silently: of two answers for an image
one would be lost (RG-132).
"""

from collections.abc import Hashable
from typing import Any

import yaml

from polyarch.cli.errors import UsageError
from polyarch.cli.input.yaml_files import SAFE_LOADER, load_yaml
from polyarch.oci.platforms_file import AnswerFile, InvalidAnswers


class _Strict(SAFE_LOADER):  # type: ignore[misc]
    """Refuses a key that a mapping has twice."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        texts = {key_node.value for key_node, _ in node.value if isinstance(key_node, yaml.ScalarNode)}
        if len(texts) < len(node.value):  # keys that are no texts are refused whatever they are
            self._check_keys(node)
        found: dict[Hashable, Any] = super().construct_mapping(node, deep)
        return found

    def _check_keys(self, node: yaml.MappingNode) -> None:
        seen: set[Hashable] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if isinstance(key, Hashable):
                if key in seen:
                    raise yaml.constructor.ConstructorError(None, None, f"{key!r} is given twice", key_node.start_mark)
                seen.add(key)


def load_platforms_file(path: str) -> AnswerFile:
    """The answers of the file; ``UsageError`` with file, place and reason if it cannot be used."""
    data = load_yaml("--platforms-file", path, expected="a YAML or JSON file of answers", loader=_Strict)
    try:
        return AnswerFile.from_mapping(data, origin=path)
    except InvalidAnswers as error:
        raise UsageError(str(error)) from None
