"""A YAML or JSON file that an option names: its content, or the place of what is wrong in it."""

import sys
from collections.abc import Hashable
from pathlib import Path
from typing import Any

import yaml

from polyarch.cli.errors import UsageError
from polyarch.manifests.scan.composer import MAX_DEPTH

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class SafeLoader(_LOADER):  # type: ignore[misc]
    """Refuses nesting without end, which would take the process with it: the C composer knows no limit."""

    depth = 0

    def descend_resolver(self, parent: yaml.Node | None, index: object) -> None:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            mark = parent.start_mark if parent is not None else None
            raise yaml.MarkedYAMLError(problem=f"nesting is deeper than {MAX_DEPTH} levels", problem_mark=mark)

    def ascend_resolver(self) -> None:
        self.depth -= 1


class StrictLoader(SafeLoader):
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


def load_yaml(option: str, path: str, *, expected: str, loader: Any = SafeLoader) -> Any:
    """The content; ``UsageError`` with file, place and reason, and with what was ``expected`` if there is no file.

    ``loader`` is a subclass of a safe one; ``-`` is standard input.
    """
    try:
        content = sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()
        return yaml.load(content, loader)  # noqa: S506 - safe
    except OSError as error:
        raise UsageError(f"{option} {path}: {error.strerror}; expected {expected}") from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f"{path}:{mark.line + 1}:{mark.column + 1}" if mark is not None else path
        raise UsageError(f"{place}: {error.problem or error.context}") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise UsageError(f"{path}: not YAML ({' '.join(str(error).split())})") from None
