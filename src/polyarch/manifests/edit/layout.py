"""Exact positions of the entries of a collection in the text, and of node affinity that is commented out.

Nodes know where they start, but not where a comma, a dash or an alias is: an alias shares the node of its anchor, and
for the parser a block collection ends where the next thing starts. Between two nodes there is only white space,
comments and punctuation, so one walk over it finds the rest.

Pure.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from yaml.nodes import CollectionNode, MappingNode, Node, ScalarNode, SequenceNode

from polyarch.manifests.scan.nodes import Document, SyntaxProblem, compose, get, item
from polyarch.manifests.scan.text import SourceText, TextEdit

# Blank, break or comment, as libyaml tells them apart: a comment ends at any of the breaks of YAML 1.1.
_GAP = re.compile("(?:[ \t\r\n\x85\u2028\u2029\ufeff]+|#[^\r\n\x85\u2028\u2029]*)*")
_PROPERTIES = re.compile("(?:[&!][^ \t\r\n\x85\u2028\u2029]*(?:[ \t\r\n\x85\u2028\u2029]+|#[^\r\n]*)*)*")
_ALIAS = re.compile(r"\*[^\s,\[\]{}]+")
_KEEP = re.compile(r"(?:[&!]\S*\s+)*[|>][0-9]?\+")
_STRIP = re.compile(r"[|>][0-9]?-")


class CannotEdit(ValueError):  # noqa: N818 - reads as a noun
    """An edit that would need a guess; the reason becomes the note."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True, eq=False)
class Entry:
    """One entry of a mapping or element of a sequence; offsets in the text, ends exclusive."""

    key: Node | None
    value: Node
    start: int
    """Of the key, of the dash of a block element, of a flow element itself."""
    key_end: int
    after_key: int
    """After the colon or dash."""
    value_start: int
    end: int
    """After the last character of the value that is content."""
    is_alias: bool
    """The value is written ``*name``."""
    comma: int | None
    """Offset of the comma after it in a flow collection."""


@dataclass(frozen=True, eq=False)
class CollectionLayout:
    """A collection's entries in the order of the text. ``open`` and ``close`` are the offsets of its brackets, in a
    block collection both are its start; ``column`` (from 0) is that of its keys or dashes.
    """

    node: Node
    flow: bool
    open: int
    close: int
    column: int
    entries: tuple[Entry, ...]


def gap_end(text: str, offset: int) -> int:
    """Offset of the next text that is neither white space nor comment."""
    match = _GAP.match(text, offset)
    return match.end() if match else offset


def properties_end(text: str, offset: int) -> int:
    """The same, after an anchor and a tag."""
    match = _PROPERTIES.match(text, offset)
    return match.end() if match else offset


def column(document: Document, offset: int) -> int:
    return offset - document.source.line_start(offset)


def content_end(document: Document, node: Node) -> int:
    """Offset after the content of a node, without the comments and blank lines that follow it.

    Blank lines at the end of a block scalar that keeps them (``|+``) are content, but for the last break.
    """
    if isinstance(node, ScalarNode):
        if node.style in ("|", ">") and _KEEP.match(document.source.text, document.start(node)):
            end = document.base + int(node.end_mark.index)
            text = document.source.text
            for mark in ("\r\n", "\n", "\r"):
                if text.endswith(mark, 0, end):
                    return end - len(mark)
            return end
        return document.end(node)
    if isinstance(node, CollectionNode) and node.value and not node.flow_style:
        return layout(document, node).entries[-1].end
    return document.end(node)


def takes_line_break(document: Document, node: Node) -> bool:
    """Whether a line break behind a node, which ends the file without one, would become part of its value: it would in
    a block scalar, unless that strips its end (``|-``).
    """
    text = document.source.text
    while isinstance(node, CollectionNode) and not node.flow_style and node.value:
        node = node.value[-1][1] if isinstance(node, MappingNode) else node.value[-1]
    if not isinstance(node, ScalarNode) or node.style not in ("|", ">") or text.endswith(("\n", "\r")):
        return False
    ends_file = document.base + int(node.end_mark.index) == len(text)
    return ends_file and not _STRIP.match(text, properties_end(text, document.start(node)))


def layout(document: Document, node: Node) -> CollectionLayout:
    """Raises :class:`CannotEdit` for explicit keys (``? key``) and pairs without braces (``[a: b]``)."""
    walk = _Walk(document)
    if isinstance(node, MappingNode):
        return walk.flow_mapping(node) if node.flow_style else walk.block_mapping(node)
    if isinstance(node, SequenceNode):
        return walk.flow_sequence(node) if node.flow_style else walk.block_sequence(node)
    raise CannotEdit("a scalar has no members")


class _Walk:
    def __init__(self, document: Document) -> None:
        self.document = document
        self.text = document.source.text

    def block_mapping(self, node: MappingNode) -> CollectionLayout:
        at = self.document.start(node)
        if self.document.start(node.value[0][0]) != at:
            at = properties_end(self.text, at)
        start, entries = gap_end(self.text, at), []
        for key, value in node.value:
            entry = self._pair(key, value, at)
            entries.append(entry)
            at = entry.end
        return CollectionLayout(node, False, start, start, column(self.document, entries[0].start), tuple(entries))

    def block_sequence(self, node: SequenceNode) -> CollectionLayout:
        at = properties_end(self.text, self.document.start(node))
        start, entries = gap_end(self.text, at), []
        for value in node.value:
            dash = gap_end(self.text, at)
            if not self.text.startswith("-", dash):
                raise self._lost(dash)
            value_start, end, is_alias = self._value(value, dash + 1)
            entries.append(Entry(None, value, dash, dash, dash + 1, value_start, end, is_alias, None))
            at = end
        return CollectionLayout(node, False, start, start, column(self.document, start), tuple(entries))

    def flow_mapping(self, node: MappingNode) -> CollectionLayout:
        opening, at = self._opening(node, "{")
        entries = []
        for key, value in node.value:
            entry = self._pair(key, value, at, flow=True)
            entries.append(entry)
            at = entry.end if entry.comma is None else entry.comma + 1
        return self._closed(node, opening, "}", entries)

    def flow_sequence(self, node: SequenceNode) -> CollectionLayout:
        opening, at = self._opening(node, "[")
        entries = []
        for value in node.value:
            start, end, is_alias = self._value(value, at)
            comma = self._comma(end)
            entries.append(Entry(None, value, start, start, start, start, end, is_alias, comma))
            at = end if comma is None else comma + 1
        return self._closed(node, opening, "]", entries)

    def _pair(self, key: Node, value: Node, at: int, *, flow: bool = False) -> Entry:
        start = gap_end(self.text, at)
        if self.document.start(key) < at:
            match = _ALIAS.match(self.text, start)
            if match is None:
                raise self._lost(start)
            key_end = match.end()
        elif self.document.start(key) != start:
            raise CannotEdit(f"line {self.document.source.place(start)[0]} has an explicit key (`? key`)")
        else:
            key_end = content_end(self.document, key)
        colon = gap_end(self.text, key_end)
        if not self.text.startswith(":", colon):
            if not flow:
                raise self._lost(colon)
            return Entry(key, value, start, key_end, key_end, key_end, key_end, False, self._comma(key_end))
        value_start, end, is_alias = self._value(value, colon + 1)
        comma = self._comma(end) if flow else None
        return Entry(key, value, start, key_end, colon + 1, value_start, end, is_alias, comma)

    def _value(self, node: Node, at: int) -> tuple[int, int, bool]:
        start = self.document.start(node)
        if start >= at:
            return start, content_end(self.document, node), False
        start = gap_end(self.text, at)
        match = _ALIAS.match(self.text, start)
        if match is None:
            raise self._lost(start)
        return start, match.end(), True

    def _comma(self, at: int) -> int | None:
        at = gap_end(self.text, at)
        return at if self.text.startswith(",", at) else None

    def _opening(self, node: Node, bracket: str) -> tuple[int, int]:
        opening = properties_end(self.text, self.document.start(node))
        if not self.text.startswith(bracket, opening):
            raise CannotEdit(f"line {self.document.source.place(opening)[0]} has a pair without braces")
        return opening, opening + 1

    def _closed(self, node: Node, opening: int, bracket: str, entries: list[Entry]) -> CollectionLayout:
        close = self.document.end(node) - 1
        if not self.text.startswith(bracket, close):
            raise self._lost(close)
        return CollectionLayout(node, True, opening, close, column(self.document, opening), tuple(entries))

    def _lost(self, offset: int) -> CannotEdit:
        line, place = self.document.source.place(offset)
        return CannotEdit(f"the text at line {line}, column {place} has a form that polyarch does not edit")


# -- node affinity that is commented out -------------------------------------------------------------------------------
# Operator scaffolds have a commented ``affinity:`` in the manager's pod specification. A fix puts its affinity below
# that comment; with ``--uncomment`` the comment itself becomes the affinity.


_COMMENT = re.compile(r"(?P<indent>[ \t]*)#(?P<text>.*)")
_AFFINITY = re.compile(r"(?P<blank>[ \t]*)affinity[ \t]*:")
_PLATFORM_KEYS = frozenset(f"{prefix}kubernetes.io/{name}" for prefix in ("", "beta.") for name in ("arch", "os"))


@dataclass(frozen=True)
class CommentedAffinity:
    """A commented affinity: its value, and the edit that uncomments it."""

    value: Any
    edit: TextEdit


@dataclass(frozen=True)
class CommentBlock:
    """Consecutive comment lines, one of which has ``affinity:``."""

    lines: tuple[tuple[int, int], ...]
    """Start and end of each line, without its break."""
    first: int
    """The number of that line."""


def affinity_run(document: Document, pod_spec: CollectionLayout) -> CommentBlock | None:
    """The first run of comment lines between the keys of a pod specification that has a commented ``affinity:``."""
    for start, end in _gaps(document, pod_spec):
        run: list[tuple[int, int]] = []
        for line in [*_lines(document.source, start, end), None]:
            if line is not None and _COMMENT.fullmatch(document.source.text, *line):
                run.append(line)
                continue
            first = next((number for number, each in enumerate(run) if _says(document, each, pod_spec.column)), None)
            if first is not None:
                return CommentBlock(tuple(run), first)
            run = []
    return None


def commented_affinity(document: Document, pod_spec_pointer: str) -> CommentedAffinity | None:
    """The commented affinity of a pod specification that has none; None if no comment has one with platform
    expressions.
    """
    node = item(document.root, pod_spec_pointer)
    if not isinstance(node, MappingNode) or node.flow_style or get(node, "affinity") is not None:
        return None
    try:
        pod_spec = layout(document, node)
    except CannotEdit:
        return None
    run = affinity_run(document, pod_spec)
    return _uncommented(document, run, pod_spec.column) if run else None


def _uncommented(document: Document, run: CommentBlock, columns: int) -> CommentedAffinity | None:
    source = document.source
    texts = [match["text"] for line in run.lines[run.first :] if (match := _COMMENT.fullmatch(source.text, *line))]
    match = _AFFINITY.match(texts[0])
    blank = match["blank"] if match else ""
    kept = [texts[0].removeprefix(blank)]
    for text in texts[1:]:
        inner = text.removeprefix(blank)
        if not text.startswith(blank) or not (inner.startswith((" ", "-")) or not inner.strip()):
            break
        kept.append(inner)
    while not kept[-1].strip():
        kept.pop()
    try:
        documents = compose(SourceText(source.path, "\n".join(kept) + "\n"))
    except SyntaxProblem:
        return None
    value = documents[0].value if len(documents) == 1 else None
    if not isinstance(value, dict) or set(value) != {"affinity"} or not _has_platforms(value["affinity"]):
        return None
    start, end = run.lines[run.first][0], run.lines[run.first + len(kept) - 1][1]
    lines = [(" " * columns + line).rstrip() for line in kept]
    return CommentedAffinity(value["affinity"], TextEdit(start, end, source.newline.join(lines)))


def _gaps(document: Document, pod_spec: CollectionLayout) -> Iterator[tuple[int, int]]:
    """The regions of white space and comments before the first key, between keys and after the last."""
    source = document.source
    start = source.line_start(pod_spec.entries[0].start)
    above = start
    while above > document.chunk_start:
        line = source.previous_line(above)
        text = source.text[line:above].strip()
        if text and not text.startswith("#"):
            break
        above = line
    yield above, start
    for entry, following in zip(pod_spec.entries, pod_spec.entries[1:], strict=False):
        yield source.next_line(entry.end), source.line_start(following.start)
    end = document.base + int(pod_spec.node.end_mark.index)
    yield source.next_line(pod_spec.entries[-1].end), min(end, document.chunk_end)


def _lines(source: SourceText, start: int, end: int) -> Iterator[tuple[int, int]]:
    while start < end:
        yield start, source.line_end(start)
        start = source.next_line(start)


def _says(document: Document, line: tuple[int, int], columns: int) -> bool:
    """Whether a comment line has ``affinity:``, at the mapping's column or right of it once uncommented."""
    match = _COMMENT.fullmatch(document.source.text, *line)
    found = _AFFINITY.match(match["text"]) if match else None
    if match is None or found is None:
        return False
    blank = len(found["blank"])  # one blank after the #
    return len(match["indent"]) + (blank if blank > 1 else 0) >= columns


def _has_platforms(affinity: Any) -> bool:
    """Whether some expression of the node affinity is on the architecture or the operating system."""
    stack = [affinity.get("nodeAffinity")] if isinstance(affinity, dict) else []
    while stack:
        value = stack.pop()
        if isinstance(value, dict):
            if value.get("key") in _PLATFORM_KEYS:
                return True
            stack += value.values()
        elif isinstance(value, list):
            stack += value
    return False
