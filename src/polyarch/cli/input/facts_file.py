"""Reading a facts file (BD-003): YAML or JSON, with the line of what is wrong in it.

Times are read as text, whether they are quoted or not. JSON, which may hold thousands of nodes, is decoded at once; it
is read a second time, for the lines, only if something is wrong.
"""

import sys
from pathlib import Path
from typing import Any, ClassVar, Final

import msgspec
import yaml

from polyarch.builds.facts.offline import FactsFile, InvalidFacts, MemberPath
from polyarch.cli.errors import UsageError
from polyarch.cli.input.yaml_files import StrictLoader

OPTION: Final = "--facts"
_TIME: Final = "tag:yaml.org,2002:timestamp"


class _TextTimes(StrictLoader):
    """Leaves times as they are written."""

    yaml_implicit_resolvers: ClassVar[dict[str, Any]] = {
        first: [(tag, pattern) for tag, pattern in resolvers if tag != _TIME]
        for first, resolvers in StrictLoader.yaml_implicit_resolvers.items()
    }


def load_facts_file(path: str) -> FactsFile:
    """The facts of the file, ``-`` for standard input; ``UsageError`` with file, line, member and reason."""
    shown = "standard input" if path == "-" else path
    try:
        content = sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()
    except OSError as error:
        raise UsageError(
            f"{OPTION} {path}: {error.strerror}; give a YAML or JSON file with now, objects, registry and settings"
        ) from None
    data, node = _quickly(content), None
    if data is None:
        data, node = _with_places(content, shown)
    try:
        return FactsFile(data)
    except InvalidFacts as error:
        if node is None:
            _, node = _with_places(content, shown)
        raise UsageError(f"{shown}:{_line(node, error.path)}: {error}") from None


def _quickly(content: bytes) -> Any:
    """The content if it is JSON."""
    if not content.lstrip().startswith(b"{"):
        return None
    try:
        return msgspec.json.decode(content)
    except (msgspec.DecodeError, RecursionError):
        return None


def _with_places(content: bytes, shown: str) -> tuple[Any, yaml.Node | None]:
    """The content, and the nodes that know where it stands."""
    try:
        loader = _TextTimes(content)
        node = loader.get_single_node()
        return (loader.construct_document(node) if node is not None else None), node
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f"{shown}:{mark.line + 1}:{mark.column + 1}" if mark is not None else shown
        raise UsageError(f"{place}: {error.problem or error.context}") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise UsageError(f"{shown}: not YAML ({' '.join(str(error).split())})") from None


def _line(node: yaml.Node | None, path: MemberPath) -> int:
    """The line of the deepest member on the path that the file has: of its key, if it has one."""
    line = int(node.start_mark.line) if node is not None else 0
    for step in path:
        match node:
            case yaml.MappingNode():
                found = next(((key, value) for key, value in node.value if key.value == step), None)
                if found is None:
                    break
                key, node = found
                line = int(key.start_mark.line)
            case yaml.SequenceNode() if isinstance(step, int) and step < len(node.value):
                node = node.value[step]
                line = int(node.start_mark.line)
            case _:
                break
    return line + 1
