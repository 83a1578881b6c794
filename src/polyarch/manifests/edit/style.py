"""Writes inserted text in the style of the text around it.

A file keeps its style: indentation, whether sequences are indented below their key, flow or block, the quotes of
JSON. The default for what the file does not show is two spaces and no quotes.

Pure.
"""

import json
import re
from dataclasses import dataclass
from typing import Any

from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from polyarch.manifests.scan.composer import STRING, children, plain_tag
from polyarch.manifests.scan.nodes import Document, get

DEFAULT_STEP = 2

# Plain scalars that every YAML reader takes for strings in any context.
_SAFE = re.compile(
    r"[A-Za-z0-9_/.$-][A-Za-z0-9_/.@$%+-]*(?::[A-Za-z0-9_/.@$%+-]+)*(?: [A-Za-z0-9_/.@$%+()-]+)*", re.ASCII
)
# Not strings for YAML 1.2 or kubectl, although the resolver of YAML 1.1 takes them for strings.
_OTHERWISE = re.compile(
    r"(?:y|n|yes|no|on|off|true|false|null|~|\.inf|\.nan|-|\.|\.\.\.|---.*)"
    r"|[-+]?0o?[0-7_]+|[-+]?0x[0-9a-f_]+|[-+]?0b[01_]+|[-+]?[0-9._]+(?:e[-+]?[0-9]+)?|[-+]?\.inf"
    r"|[0-9]+(?::[0-9]+)+(?:\.[0-9]*)?|[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}.*",
    re.ASCII | re.IGNORECASE,
)


@dataclass(frozen=True)
class BlockStyle:
    """``step``: columns from a key to the keys nested in its value; ``sequence``: from a key to the dashes below it."""

    step: int = DEFAULT_STEP
    sequence: int = 0


@dataclass(frozen=True)
class FlowStyle:
    """``json``: every text is quoted. With ``step`` nested collections are written over several lines."""

    json: bool = False
    compact: bool = False
    """No blank after colons and commas."""
    step: int | None = None
    newline: str = "\n"


def scalar(value: str | float | bool | None) -> str:
    """A scalar as YAML: plain, unless YAML 1.1 or 1.2 would not read it as the same text (``386``, ``no``)."""
    if not isinstance(value, str):
        return json.dumps(value)
    if _SAFE.fullmatch(value) and not _OTHERWISE.fullmatch(value) and plain_tag(value) == STRING:
        return value
    return quoted(value)


def quoted(value: str) -> str:
    """Between double quotes, as both JSON and YAML read it."""
    text = json.dumps(value, ensure_ascii=False)
    return "".join(mark if mark.isprintable() or ord(mark) > 0xFFFF else f"\\u{ord(mark):04x}" for mark in text)


def requoted(value: str, old: Node) -> str:
    """A string in place of another scalar, with the same quotes if they can hold it."""
    style = old.style if isinstance(old, ScalarNode) else None
    if style == '"':
        return quoted(value)
    if style == "'" and value.isprintable():
        return "'" + value.replace("'", "''") + "'"
    return scalar(value)


def block_lines(value: Any, style: BlockStyle) -> list[str]:
    """A non-empty collection as lines of block style, from column 0."""
    lines: list[str] = []
    if isinstance(value, dict):
        for key, member in value.items():
            lines += _entry_lines(scalar(key), member, style)
    else:
        for member in value:
            inner = block_lines(member, style) if is_collection(member) and member else [inline(member)]
            lines += [f"- {inner[0]}", *_indented(inner[1:], 2)]
    return lines


def inline(value: Any) -> str:
    """A scalar or an empty collection."""
    return flow(value, FlowStyle()) if is_collection(value) else scalar(value)


def flow(value: Any, style: FlowStyle, indent: str = "") -> str:
    """A value in flow style; ``indent`` is the white space that its own line starts with."""
    if not is_collection(value):
        return quoted(value) if style.json and isinstance(value, str) else scalar(value)
    opening, closing = "{}" if isinstance(value, dict) else "[]"
    inner = indent + " " * (style.step or 0)
    parts = flow_entries(value, style, inner)
    if style.step is None or not parts:
        return opening + ("," if style.compact else ", ").join(parts) + closing
    lines = f",{style.newline}".join(inner + part for part in parts)
    return f"{opening}{style.newline}{lines}{style.newline}{indent}{closing}"


def flow_entries(value: Any, style: FlowStyle, indent: str = "") -> list[str]:
    """The members of a collection, without brackets and commas."""
    if isinstance(value, list):
        return [flow(member, style, indent) for member in value]
    colon = ":" if style.compact else ": "
    return [
        f"{quoted(key) if style.json else scalar(key)}{colon}{flow(member, style, indent)}"
        for key, member in value.items()
    ]


def is_collection(value: Any) -> bool:
    return isinstance(value, dict | list)


def sequence_indent(document: Document, pod_spec: Node | None, at: int) -> int:
    """Columns from a key to the dashes below it, as in the block sequence of the pod specification nearest to the
    offset ``at``, else in the nearest of the document, else 0.
    """
    for scope in (pod_spec, document.root):
        found = _sequence_indents(document, scope) if scope is not None else []
        if found:
            return min(found, key=lambda each: (abs(each[0] - at), each[0]))[1]
    return 0


def is_json(document: Document) -> bool:
    """Whether the document is JSON: then inserted text must be JSON, too."""
    if not getattr(document.root, "flow_style", False):
        return False
    try:
        json.loads(document.source.text[document.start(document.root) : document.end(document.root)])
    except ValueError:
        return False
    return True


def is_pod_spec(node: Node | None) -> bool:
    return isinstance(get(node, "containers"), SequenceNode)


def _sequence_indents(document: Document, scope: Node) -> list[tuple[int, int]]:
    """Offset and indentation of the block sequences below keys of block mappings."""
    found, stack, visited = [], [scope], set()
    while stack:
        node = stack.pop()
        if id(node) in visited:
            continue
        visited.add(id(node))
        stack += children(node)
        if isinstance(node, MappingNode) and not node.flow_style:
            for key, value in node.value:
                below = value.start_mark.line > key.start_mark.line and value.start_mark.column >= key.start_mark.column
                if isinstance(value, SequenceNode) and not value.flow_style and below:
                    found.append((document.start(value), value.start_mark.column - key.start_mark.column))
    return found


def _entry_lines(key: str, member: Any, style: BlockStyle) -> list[str]:
    if not is_collection(member) or not member:
        return [f"{key}: {inline(member)}"]
    return [f"{key}:", *_indented(block_lines(member, style), nested_columns(member, style))]


def nested_columns(member: Any, style: BlockStyle) -> int:
    """Columns by which a collection is indented below its key."""
    return style.step if isinstance(member, dict) else style.sequence


def _indented(lines: list[str], columns: int) -> list[str]:
    return [" " * columns + line for line in lines]
