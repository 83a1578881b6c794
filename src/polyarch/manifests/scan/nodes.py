"""The documents of a file as YAML nodes with positions, and functions to read values from them.

Rules and editor share the same nodes. A file is split at its ``---`` lines first, so that only the documents of
interest are composed. Marks then count from the start of a document's *chunk*: ask the :class:`Document` for
positions, never the mark.

Values are read as Kubernetes reads YAML (as JSON): keys are strings, timestamps and unknown tags are strings, merge
keys are merged, and no tag constructs anything.
"""

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from polyarch.kube.patches import pointer
from polyarch.manifests.finding import Span
from polyarch.manifests.operations import index, segments
from polyarch.manifests.scan.composer import NULL, children, compose_text, scalar_value
from polyarch.manifests.scan.text import MAX_BYTES, SourceText

_MERGE = "tag:yaml.org,2002:merge"
_JSON = json.JSONDecoder()
_JSON_BLANKS = re.compile(r"[ \t\r\n]*")
_JSON_START = re.compile(r"(?:---)?[ \t\r\n]*[{\[]")
_JSON_BORDER = re.compile(r"[}\]][ \t\r\n]*[{\[]")
_MARKER_ENDS = frozenset(("", *" \t\r\n\x85\u2028\u2029"))


class SyntaxProblem(ValueError):  # noqa: N818 - reads as a noun
    """A text that is not YAML, or beyond a limit: line and column (from 1) and the parser's message (MA902)."""

    def __init__(self, problem: str, *, offset: int, line: int, column: int) -> None:
        super().__init__(f"line {line}, column {column}: {problem}")
        self.problem = problem
        self.offset = offset
        self.line = line
        self.column = column


@dataclass(frozen=True, eq=False)
class Document:
    """One YAML document of a file, by its number from 0."""

    index: int
    root: Node
    source: SourceText
    base: int
    """Offset in the text from which the marks of the nodes count."""
    chunk_start: int
    chunk_end: int
    """The document's part of the text: from its ``---`` (or the start of the file) to the next one."""

    def start(self, node: Node) -> int:
        """Offset of a node's first character, its anchor and tag included."""
        return self.base + int(node.start_mark.index)

    def end(self, node: Node) -> int:
        """Offset after a node's last character; of a block scalar after its last non-blank line, of a block collection
        where the next thing starts, as the parser sees it (``layout.content_end`` is exact).
        """
        end = self.base + int(node.end_mark.index)
        if isinstance(node, ScalarNode) and node.style in ("|", ">"):
            start = self.start(node)
            return start + len(self.source.text[start:end].rstrip())
        return end

    def span(self, node: Node) -> Span:
        """The region of a node; that of a block collection is its first key or element."""
        if isinstance(node, MappingNode) and not node.flow_style and node.value:
            return self.span(node.value[0][0])
        if isinstance(node, SequenceNode) and not node.flow_style and node.value:
            start = self.start(node)
            return self.source.span(start, self.source.line_end(start))
        return self.source.span(self.start(node), self.end(node))

    @property
    def chunk(self) -> str:
        return self.source.text[self.chunk_start : self.chunk_end]

    @cached_property
    def shared(self) -> dict[int, tuple[int, int]]:
        """The targets of aliases, by ``id()``, with the place of the anchor: the parent's ``id()`` and the number among
        its children. It is the first way to the node, because an alias comes after its anchor.
        """
        chunk = self.chunk
        if "*" not in chunk or "&" not in chunk:
            return {}
        first: dict[int, tuple[int, int]] = {}
        twice: dict[int, tuple[int, int]] = {}
        stack: list[tuple[Node, tuple[int, int]]] = [(self.root, (0, 0))]
        while stack:
            node, place = stack.pop()
            if id(node) in first:
                twice[id(node)] = first[id(node)]
                continue
            first[id(node)] = place
            stack += reversed([(child, (id(node), number)) for number, child in enumerate(children(node))])
        return twice

    @cached_property
    def uses(self) -> dict[int, tuple[str, ...]]:
        """All pointers of each node (by ``id()``) that is shared or below a shared one, in the order of the text."""
        found: dict[int, list[str]] = {}

        def walk(node: Node, path: str, below: bool) -> None:
            below = below or id(node) in self.shared
            if below:
                found.setdefault(id(node), []).append(path)
            own = {id(member) for _, _, member in entries(node)}
            for segment, child in effective(node):
                merged = isinstance(node, MappingNode) and id(child) not in own
                walk(child, path + pointer(segment), below or merged)

        if self.shared:
            walk(self.root, "", below=False)
        return {node: tuple(paths) for node, paths in found.items()}

    @cached_property
    def merged(self) -> frozenset[int]:
        """The mappings that a merge key (``<<``) brings into another one, by ``id()``."""
        found: set[int] = set()
        stack, visited = [self.root] if self.shared else [], set()
        while stack:
            node = stack.pop()
            if id(node) not in visited:
                visited.add(id(node))
                stack += children(node)
                found.update(map(id, merged_mappings(node) if isinstance(node, MappingNode) else ()))
        return frozenset(found)

    @cached_property
    def disputed(self) -> frozenset[int]:
        """The nodes, by ``id()``, that some parsers take from a merge key where others take the mapping's own key."""
        found: set[int] = set()
        stack, visited = [self.root] if self.merged else [], set()
        while stack:
            node = stack.pop()
            if id(node) not in visited:
                visited.add(id(node))
                stack += children(node)
                for _, _, member in disputed_keys(node):
                    below = [member]
                    while below:
                        found.add(id(below[-1]))
                        below += children(below.pop())
        return frozenset(found)

    @cached_property
    def value(self) -> Any:
        """The document as Kubernetes reads it."""
        return value(self.root)


def compose(source: SourceText, wanted: Callable[[str], bool] = lambda chunk: True) -> list[Document]:
    """The documents of a file whose text is ``wanted``; raises :class:`SyntaxProblem`.

    Documents that are left out keep their numbers. Empty documents count and have a null root.
    """
    if source.size > MAX_BYTES:
        problem = f"the file has {source.size} bytes, more than the limit of {MAX_BYTES}"
        raise SyntaxProblem(problem, offset=0, line=1, column=1)
    documents: list[Document] = []
    number = 0
    for start, end in chunks(source.text):
        chunk = source.text[start:end]
        if wanted(chunk):
            for node in _composed(source, chunk, start):
                documents.append(Document(number, node, source, start, start, end))
                number += 1
        else:
            number += 1
    return documents


def chunks(text: str) -> Iterator[tuple[int, int]]:
    """The parts of a text that are one document each. Every line ``---`` starts one; so does each of several
    concatenated JSON values, as catalog renderers print them.

    Directives and explicit ends may belong to the next document, so a text with them is not split. (Plain searches: a
    regular expression with ``^`` costs more than the parser.)
    """
    for start, end in _between_markers(text):
        yield from _json_values(text, start, end) or [(start, end)]


def _between_markers(text: str) -> Iterator[tuple[int, int]]:
    if text.startswith(("%", "...")) or "\n%" in text or "\n..." in text:
        yield 0, len(text)
        return
    start = 0
    for marker in _markers(text):
        # The text before the first marker is a document only if it has content.
        if marker > start and (text.startswith("---", start) or _says_something(text[start:marker])):
            yield start, marker
        start = marker
    yield start, len(text)


def _markers(text: str) -> Iterator[int]:
    at = 0 if text.startswith("---") else text.find("\n---") + 1 or -1
    while at >= 0:
        if text[at + 3 : at + 4] in _MARKER_ENDS:
            yield at
        at = text.find("\n---", at) + 1 or -1


def _json_values(text: str, start: int, end: int) -> list[tuple[int, int]]:
    """The parts of a chunk of several JSON values, each up to the next one; empty for any other chunk."""
    first = _JSON_START.match(text, start, end)
    if first is None or not _JSON_BORDER.search(text, first.end(), end):
        return []
    chunk = text[start:end]
    at, starts = first.end() - 1 - start, []
    try:
        while at < len(chunk):
            starts.append(start + at)
            _, at = _JSON.raw_decode(chunk, at)
            if blanks := _JSON_BLANKS.match(chunk, at):
                at = blanks.end()
    except (ValueError, RecursionError):
        return []
    return list(zip([start, *starts[1:]], [*starts[1:], end], strict=True)) if len(starts) > 1 else []


def _says_something(text: str) -> bool:
    return any(line and not line.startswith("#") for line in map(str.strip, text.splitlines()))


def _composed(source: SourceText, chunk: str, start: int) -> list[Node]:
    try:
        return compose_text(chunk)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        offset = start + (int(mark.index) if mark is not None else 0)
        words = ": ".join(part for part in (error.context, error.problem) if part)
    except yaml.reader.ReaderError as error:
        # The C reader gives the character as a number and its position in bytes.
        character = error.character if isinstance(error.character, str) else chr(error.character)
        offset = start + max(chunk.find(character), 0)
        words = f"unacceptable character U+{ord(character):04X}"
    except yaml.YAMLError as error:
        offset, words = start, str(error)
    line, column = source.place(offset)
    raise SyntaxProblem(words, offset=offset, line=line, column=column)


# Reading nodes ------------------------------------------------------------------------------------------------------


def key_of(node: Node) -> str:
    """A key as JSON has it: a string. A collection as a key gets a string that no key can have."""
    return str(node.value) if isinstance(node, ScalarNode) else f"\0{value(node)!r}"


def is_merge(key: Node) -> bool:
    return bool(key.tag == _MERGE)


def entries(node: Node | None) -> Iterator[tuple[str, Node, Node]]:
    """The mapping's own entries in order, without merged ones: key, key node, value node. Empty for other nodes."""
    if isinstance(node, MappingNode):
        for key, member in node.value:
            if key.tag != _MERGE:
                yield key_of(key), key, member


def members(node: Node | None) -> dict[str, tuple[Node, Node]]:
    """The entries of a mapping with those it merges (``<<``): key → (key node, value node). Of a duplicate the last."""
    found: dict[str, tuple[Node, Node]] = {}
    if isinstance(node, MappingNode):
        for merged in merged_mappings(node):
            for key, pair in members(merged).items():
                found.setdefault(key, pair)
        for key, key_node, member in entries(node):
            found[key] = key_node, member
    return found


def merged_mappings(node: MappingNode) -> list[MappingNode]:
    """The mappings that a mapping merges, in order of precedence."""
    found: list[MappingNode] = []
    for key, member in node.value:
        if key.tag == _MERGE:
            sources = member.value if isinstance(member, SequenceNode) else [member]
            found += [source for source in sources if isinstance(source, MappingNode)]
    return found


def get(node: Node | None, key: str) -> Node | None:
    """The value of a key in a mapping, merged ones included; None if there is none or the node is not a mapping."""
    if not isinstance(node, MappingNode):
        return None
    found: Node | None = None
    merges = False
    for key_node, member in node.value:
        if key_node.value == key and isinstance(key_node, ScalarNode):
            found = member
        elif key_node.tag == _MERGE:
            merges = True
    if found is None and merges:
        pair = members(node).get(key)
        return pair[1] if pair else None
    return found


def find(node: Node | None, *keys: str) -> Node | None:
    """``get`` along a path of keys."""
    for key in keys:
        node = get(node, key)
    return node


def elements(node: Node | None) -> list[Node]:
    """The elements of a sequence; empty for other nodes."""
    return list(node.value) if isinstance(node, SequenceNode) else []


def effective(node: Node) -> Iterator[tuple[str | int, Node]]:
    """The members of a mapping by key, merged ones included, or the elements of a sequence by index."""
    if isinstance(node, SequenceNode):
        yield from enumerate(node.value)
    elif isinstance(node, MappingNode):
        for key, (_, member) in members(node).items():
            yield key, member


def step(node: Node | None, segment: str) -> Node | None:
    """The member or element for one segment of a JSON pointer, None if there is none."""
    if isinstance(node, SequenceNode):
        place = index(segment)
        return node.value[place] if place is not None and place < len(node.value) else None
    return get(node, segment)


def along(root: Node, path: str) -> Iterator[Node]:
    """The existing nodes on the way to a JSON pointer, from the root on."""
    node: Node | None = root
    yield root
    for segment in segments(path):
        node = step(node, segment)
        if node is None:
            return
        yield node


def item(root: Node, path: str) -> Node | None:
    """The node at a JSON pointer, None where there is none."""
    node: Node | None = root
    for segment in segments(path):
        node = step(node, segment)
    return node


def is_null(node: Node | None) -> bool:
    """Nothing, ``null``, ``~`` or an empty value."""
    return node is None or (isinstance(node, ScalarNode) and node.tag == NULL)


def text_of(node: Node | None) -> str | None:
    """The text of a scalar, even of a number or boolean; None for null and collections."""
    return str(node.value) if isinstance(node, ScalarNode) and node.tag != NULL else None


def value(node: Node) -> Any:
    """The node as Kubernetes reads it: dict, list, str, int, float, bool or None. Shared nodes give shared values."""
    return _value(node, {})


def named_pointer(root: Node, path: str) -> str:
    """The pointer, with the ``name`` of list elements instead of their index if they have one."""
    parts: list[str] = []
    node: Node | None = root
    for segment in segments(path):
        element = isinstance(node, SequenceNode)
        node = step(node, segment)
        name = text_of(get(node, "name")) if element else None
        parts.append(name or segment)
    return pointer(*parts)


def duplicate_keys(node: Node) -> list[tuple[str, Node]]:
    """Duplicate keys of a mapping: the key and the node of its repetition; also those of :func:`disputed_keys`."""
    if not isinstance(node, MappingNode):
        return []
    texts = {key.value for key, _ in node.value if type(key.value) is str and key.tag != _MERGE}
    if len(texts) == len(node.value):
        return []
    keys = [(key, key_node) for key, key_node, _ in entries(node)]
    disputed = [(key, merge) for key, merge, _ in disputed_keys(node)]
    if len({key for key, _ in keys}) == len(keys):
        return disputed
    return [pair for place, pair in enumerate(keys) if any(pair[0] == key for key, _ in keys[:place])] + disputed


def disputed_keys(node: Node) -> list[tuple[str, Node, Node]]:
    """Keys of a mapping that stand before a merge key with another value for them: the key, the node of the merge key
    and the merged value. YAML says that the mapping's own value counts; kubectl takes the merged one.
    """
    found: list[tuple[str, Node, Node]] = []
    if isinstance(node, MappingNode) and any(map(is_merge, (key for key, _ in node.value))):
        own: set[str] = set()
        for key, member in node.value:
            if is_merge(key):
                merged = members(MappingNode(node.tag, [(key, member)]))
                found += [(name, key, merged[name][1]) for name in merged if name in own]
            else:
                own.add(key_of(key))
    return found


def _value(node: Node, known: dict[int, Any]) -> Any:
    if isinstance(node, ScalarNode):
        return scalar_value(node)
    if id(node) in known:
        return known[id(node)]
    if isinstance(node, SequenceNode):
        result: Any = [_value(child, known) for child in node.value]
    else:
        result = {key: _value(member, known) for key, (_, member) in members(node).items()}
    known[id(node)] = result
    return result
