"""Exact positions of the entries of a collection in the text.

Nodes know where they start, but not where a comma, a dash or an alias is: an alias shares the node of its anchor, and
for the parser a block collection ends where the next thing starts. Between two nodes there is only white space,
comments and punctuation, so one walk over it finds the rest.

Pure.
"""

import re
from dataclasses import dataclass

from yaml.nodes import CollectionNode, MappingNode, Node, ScalarNode, SequenceNode

from polyarch.manifests.scan.nodes import Document

# Blank, break or comment, as libyaml tells them apart: a comment ends at any of the breaks of YAML 1.1.
_GAP = re.compile("(?:[ \t\r\n\x85\u2028\u2029\ufeff]+|#[^\r\n\x85\u2028\u2029]*)*")
_PROPERTIES = re.compile("(?:[&!][^ \t\r\n\x85\u2028\u2029]*(?:[ \t\r\n\x85\u2028\u2029]+|#[^\r\n]*)*)*")
_ALIAS = re.compile(r"\*[^\s,\[\]{}]+")
_KEEP = re.compile(r"(?:[&!]\S*\s+)*[|>][0-9]?\+")


class CannotEdit(ValueError):  # noqa: N818 - reads as a noun
    """An edit that would need a guess; the reason becomes the note (MF-053)."""

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
class Layout:
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


def layout(document: Document, node: Node) -> Layout:
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

    def block_mapping(self, node: MappingNode) -> Layout:
        at = self.document.start(node)
        if self.document.start(node.value[0][0]) != at:
            at = properties_end(self.text, at)
        start, entries = gap_end(self.text, at), []
        for key, value in node.value:
            entry = self._pair(key, value, at)
            entries.append(entry)
            at = entry.end
        return Layout(node, False, start, start, column(self.document, entries[0].start), tuple(entries))

    def block_sequence(self, node: SequenceNode) -> Layout:
        at = properties_end(self.text, self.document.start(node))
        start, entries = gap_end(self.text, at), []
        for value in node.value:
            dash = gap_end(self.text, at)
            if not self.text.startswith("-", dash):
                raise self._lost(dash)
            value_start, end, is_alias = self._value(value, dash + 1)
            entries.append(Entry(None, value, dash, dash, dash + 1, value_start, end, is_alias, None))
            at = end
        return Layout(node, False, start, start, column(self.document, start), tuple(entries))

    def flow_mapping(self, node: MappingNode) -> Layout:
        opening, at = self._opening(node, "{")
        entries = []
        for key, value in node.value:
            entry = self._pair(key, value, at, flow=True)
            entries.append(entry)
            at = entry.end if entry.comma is None else entry.comma + 1
        return self._closed(node, opening, "}", entries)

    def flow_sequence(self, node: SequenceNode) -> Layout:
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

    def _closed(self, node: Node, opening: int, bracket: str, entries: list[Entry]) -> Layout:
        close = self.document.end(node) - 1
        if not self.text.startswith(bracket, close):
            raise self._lost(close)
        return Layout(node, True, opening, close, column(self.document, opening), tuple(entries))

    def _lost(self, offset: int) -> CannotEdit:
        line, place = self.document.source.place(offset)
        return CannotEdit(f"the text at line {line}, column {place} has a form that polyarch does not edit")
