"""Turns operations on an object into splices of its text.

A file is never dumped again: text that no operation changes keeps every character, and new text has the style of its
surroundings. An edit that would need a guess (an explicit ``? key``, a tag, text that an alias shares with another
use) raises :class:`~polyarch.manifests.edit.layout.CannotEdit` with the reason.

Pure.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from yaml.nodes import CollectionNode, MappingNode, Node, ScalarNode

from polyarch.manifests.edit.draft import Member, NodeDraft, drafted, new_value
from polyarch.manifests.edit.layout import (
    CannotEdit,
    CollectionLayout,
    Entry,
    affinity_run,
    column,
    layout,
    properties_end,
    takes_line_break,
)
from polyarch.manifests.edit.style import (
    DEFAULT_STEP,
    BlockStyle,
    FlowStyle,
    block_lines,
    flow,
    flow_entries,
    inline,
    is_collection,
    is_json,
    is_pod_spec,
    nested_columns,
    quoted,
    requoted,
    sequence_indent,
)
from polyarch.manifests.operations import TreeOperation
from polyarch.manifests.scan.nodes import Document, compose
from polyarch.manifests.scan.text import SourceText, TextEdit, ordered


def render(source: SourceText, document: Document, operations: Iterable[TreeOperation]) -> tuple[TextEdit, ...]:
    """The edits that make the document what the operations make of its object, in the order of the text.

    Raises :class:`CannotEdit`, or :class:`polyarch.manifests.operations.OperationError` for operations that do not fit
    the object.
    """
    draft = drafted(document, operations)
    if draft.is_replaced:
        raise CannotEdit("the whole document would be replaced")
    writer = _Writer(source, document)
    if draft.is_changed:
        if not draft.kept:
            raise CannotEdit("nothing would be left of the document")
        writer.collection(draft, document.root, _Surroundings())
    return ordered(writer.edits)


@dataclass(frozen=True)
class _Surroundings:
    """Context that decides the style of an insertion."""

    parent_column: int | None = None
    """Column of the key whose value is the collection."""
    step: int = DEFAULT_STEP
    pod_spec: Node | None = None

    def inside(self, node: Node, columns: int) -> "_Surroundings":
        """The step is that of the pod specification, outside of one that of the mapping itself."""
        if self.pod_spec is not None or not isinstance(node, MappingNode):
            return self
        pod_spec = node if is_pod_spec(node) else None
        step = columns - self.parent_column if self.parent_column is not None else 0
        if step <= 0:
            step = DEFAULT_STEP if pod_spec is not None else self.step
        return replace(self, step=step, pod_spec=pod_spec)


def _is_filled_flow(node: Node) -> bool:
    """A flow collection that stays one; only the empty ``[]`` and ``{}`` are replaced by block style."""
    return isinstance(node, CollectionNode) and bool(node.flow_style) and bool(node.value)


_COMMENT = re.compile(r"#[^\r\n]*")
_ANCHOR = re.compile(r"&[^\s,\[\]{}]+")
_OPEN_END = "a block scalar ends the file without a line break"


class _Writer:
    def __init__(self, source: SourceText, document: Document) -> None:
        self.source = source
        self.text = source.text
        self.document = document
        self.style_of_flow = document_style(document)
        self.edits: list[TextEdit] = []

    def edit(self, start: int, end: int, replacement: str) -> None:
        if start != end or replacement:
            self.edits.append(TextEdit(start, end, replacement))

    def collection(self, draft: NodeDraft, node: Node, around: _Surroundings) -> None:
        """Edits a collection that keeps some members: inner collections first, then the collection itself."""
        where = layout(self.document, node)
        around = around.inside(node, where.column)
        for place, member in draft.kept:
            entry = where.entries[place]
            if member.renamed:
                self.rename(entry, member.key or "")
            self.member(member.draft, where, entry, around)
        if all(member.place is not None and not member.removed for member in draft.members or ()):
            return
        if where.flow:
            style = style_of(self.source, where, self.style_of_flow)
            self.edits += member_edits(self.source, where, draft, style)
        else:
            self.remove(draft, where)
            self.insert(draft, where, around)

    def member(self, draft: NodeDraft, where: CollectionLayout, entry: Entry, around: _Surroundings) -> None:
        if not draft.is_changed:
            return
        if entry.is_alias:
            raise CannotEdit("the value to edit is an alias")
        if not draft.is_replaced and draft.kept and draft.node is not None:
            parent = where.column if entry.key is not None and not where.flow else None
            self.collection(draft, draft.node, replace(around, parent_column=parent))
            return
        value = draft.value if draft.is_replaced else new_value(draft.fresh, draft.node)
        if where.flow:
            self.flow_value(where, entry, value)
        elif is_collection(value) and value and not _is_filled_flow(entry.value):
            self.block_value(where, entry, value, around)
        else:
            self.plain_value(entry, value)

    def rename(self, entry: Entry, key: str) -> None:
        if self.text[entry.start] in "&*!" or not isinstance(entry.key, ScalarNode):
            raise CannotEdit(f"the key to be renamed to {key} has an anchor, an alias or a tag")
        self.edit(entry.start, entry.key_end, quoted(key) if self.style_of_flow.json else requoted(key, entry.key))

    # Values -----------------------------------------------------------------------------------------------------

    def content_start(self, entry: Entry) -> int:
        """Offset of a value after its anchor; raises for a value with a tag."""
        start = min(properties_end(self.text, entry.value_start), entry.end)
        if any(part.startswith("!") for part in _COMMENT.sub("", self.text[entry.value_start : start]).split()):
            raise CannotEdit("the value has a tag")
        return max(start, entry.value_start)

    def flow_value(self, where: CollectionLayout, entry: Entry, value: Any) -> None:
        style = style_of(self.source, where, self.style_of_flow)
        text = value_text(self.source, entry, value, style, old=entry.value)
        start = self.content_start(entry)
        if start < entry.end:
            self.edit(start, entry.end, text)
        elif entry.key is not None and entry.after_key == entry.key_end:
            self.edit(entry.key_end, entry.key_end, f": {text}")
        else:
            self.edit(entry.end, entry.end, text if self.text[entry.end - 1] in " [" else f" {text}")

    def plain_value(self, entry: Entry, value: Any) -> None:
        """A scalar or an empty collection in block context."""
        start, node = self.content_start(entry), entry.value
        text = requoted(value, node) if isinstance(value, str) else inline(value)
        if start >= entry.end:
            self.edit(entry.end, entry.end, f" {text}")
        elif self.starts_own_line(start, entry):
            line = self.source.line_start(start)
            self.edit(self.tail(entry), self.tail(entry), f" {text}")
            self.edit(line, self.source.next_line(entry.end), "")
        else:
            self.edit(start, entry.end, text)

    def block_value(self, where: CollectionLayout, entry: Entry, value: Any, around: _Surroundings) -> None:
        """A non-empty collection in block context; a comment on the line of the key stays there."""
        style = self.style(around, entry.start)
        lines = block_lines(value, style)
        start, node = self.content_start(entry), entry.value
        own_line = start < entry.end and self.starts_own_line(start, entry)
        if own_line and isinstance(node, CollectionNode) and isinstance(node, MappingNode) == isinstance(value, dict):
            self.edit(start, entry.end, self.joined(lines, column(self.document, start)))
            return
        nested = where.column + (2 if entry.key is None else nested_columns(value, style))
        if own_line:
            self.edit(self.source.line_start(start), entry.end, " " * nested + self.joined(lines, nested))
        elif entry.key is None and start == entry.value_start:
            if start == entry.end:
                self.edit(start, start, " " + self.joined(lines, nested))
            else:
                self.edit(start, entry.end, self.joined(lines, column(self.document, start)))
        else:
            self.edit(self.tail(entry), entry.end, "")
            self.insert_below(entry.end, lines, nested)

    def tail(self, entry: Entry) -> int:
        """After the colon or dash, or after the anchor behind it."""
        anchor = _ANCHOR.match(self.text, entry.value_start, self.content_start(entry))
        return anchor.end() if anchor else entry.after_key

    def starts_own_line(self, start: int, entry: Entry) -> bool:
        return self.source.line_start(start) > entry.start

    # Entries of block collections -------------------------------------------------------------------------------

    def remove(self, draft: NodeDraft, where: CollectionLayout) -> None:
        """Whole lines, with the comment on them; comment lines above stay."""
        kept = {place for place, _ in draft.kept}
        for number, entry in enumerate(where.entries):
            if number in kept:
                continue
            line = self.source.line_start(entry.start)
            after = self.source.next_line(entry.end)
            if not self.text[line : entry.start].strip():
                self.edit(line, after, "")
                continue
            # The first entry follows a dash: the next kept entry moves up to it.
            while number + 1 not in kept:
                number += 1
                after = self.source.next_line(where.entries[number].end)
            rest = len(self.text[after:]) - len(self.text[after:].lstrip())
            self.edit(entry.start, after + rest, "")
            kept.update(range(number + 1))

    def insert(self, draft: NodeDraft, where: CollectionLayout, around: _Surroundings) -> None:
        if isinstance(draft.node, MappingNode):
            is_pod_spec = around.pod_spec is draft.node
            first = [member for member in draft.fresh if is_pod_spec and member.key == "affinity"]
            rest = [member for member in draft.fresh if member not in first]
            if first:
                self.insert_affinity(draft, where, first, around)
            if rest:
                self.insert_after(draft, where, draft.kept[-1][0], rest, around)
            return
        for members, last, _ in draft.insertions:
            if last is None:
                self.insert_before(where, where.entries[draft.kept[0][0]], members, around)
            else:
                self.insert_after(draft, where, last, members, around)

    def insert_affinity(
        self, draft: NodeDraft, where: CollectionLayout, members: list[Member], around: _Surroundings
    ) -> None:
        """Below a commented affinity, else before the first key without a comment above it."""
        run = affinity_run(self.document, where)
        if run is not None:
            at = run.lines[-1][0]
            self.insert_below(at, self.lines(members, where, around, at), where.column)
            return
        entries = [where.entries[place] for place, _ in draft.kept]
        free = (entry for entry in entries if not self.is_below_comment(entry))
        self.insert_before(where, next(free, entries[0]), members, around)

    def is_below_comment(self, entry: Entry) -> bool:
        line = self.source.line_start(entry.start)
        return line > 0 and self.text[self.source.previous_line(line) : line].lstrip().startswith("#")

    def insert_after(
        self, draft: NodeDraft, where: CollectionLayout, place: int, members: list[Member], around: _Surroundings
    ) -> None:
        entry = where.entries[place]
        if takes_line_break(self.document, entry.value):
            if not isinstance(draft.node, MappingNode):
                raise CannotEdit(_OPEN_END)
            self.insert_before(where, where.entries[draft.kept[0][0]], members, around)
            return
        self.insert_below(entry.end, self.lines(members, where, around, entry.end), where.column)

    def insert_before(
        self, where: CollectionLayout, entry: Entry, members: list[Member], around: _Surroundings
    ) -> None:
        lines, columns = self.lines(members, where, around, entry.start), where.column
        self.edit(entry.start, entry.start, self.joined(lines, columns) + self.source.newline + " " * columns)

    def insert_below(self, offset: int, lines: list[str], columns: int) -> None:
        """New lines below the line of an offset."""
        at = self.source.next_line(offset)
        text = " " * columns + self.joined(lines, columns)
        ends = at > self.source.line_end(offset)
        self.edit(at, at, text + self.source.newline if ends else self.source.newline + text)

    def lines(self, members: list[Member], where: CollectionLayout, around: _Surroundings, at: int) -> list[str]:
        return block_lines(new_value(members, where.node), self.style(around, at))

    def joined(self, lines: list[str], columns: int) -> str:
        return (self.source.newline + " " * columns).join(lines)

    def style(self, around: _Surroundings, at: int) -> BlockStyle:
        return BlockStyle(around.step, sequence_indent(self.document, around.pod_spec, at))


# -- flow collections: {a: b}, [a, b] and all of JSON ------------------------------------------------------------------
# A new member goes after the last one, on its own line if the others have theirs. Commas stay correct, also after the
# last element, where YAML allows one and JSON does not.


def document_style(document: Document) -> FlowStyle:
    """Style of all flow collections of a document: JSON or not, compact or not."""
    if not is_json(document):
        return FlowStyle(newline=document.source.newline)
    entries = layout(document, document.root).entries if document.root.value else ()
    compact = bool(entries) and entries[0].key is not None and entries[0].after_key == entries[0].value_start
    return FlowStyle(json=True, compact=compact, newline=document.source.newline)


def style_of(source: SourceText, where: CollectionLayout, style: FlowStyle) -> FlowStyle:
    """The style of a collection's members; several lines only in JSON that is written so."""
    if not style.json or not _stands_alone(source, where.entries[0].start):
        return style
    step = len(_indent(source, where.entries[0].start)) - len(_indent(source, where.open))
    return replace(style, step=step if step > 0 else DEFAULT_STEP)


def value_text(source: SourceText, entry: Entry, value: Any, style: FlowStyle, *, old: Node) -> str:
    """The text of another value for an entry."""
    if isinstance(value, str) and not style.json:
        return requoted(value, old)
    return flow(value, style, _indent(source, entry.start))


def member_edits(source: SourceText, where: CollectionLayout, draft: NodeDraft, style: FlowStyle) -> list[TextEdit]:
    """Edits for removed and new members of a collection that keeps at least one."""
    insertions = draft.insertions
    ends_new = any(following is None for _, _, following in insertions)
    edits = _removals(source, where, [place for place, _ in draft.kept], ends_new=ends_new)
    for members, last, following in insertions:
        edits += _insertion(source, where, members, style, last, following)
    return edits


def _insertion(
    source: SourceText,
    where: CollectionLayout,
    new: list[Member],
    style: FlowStyle,
    last: int | None,
    following: int | None,
) -> list[TextEdit]:
    """After the kept entry ``last``, or before the kept entry ``following`` where there is none."""
    beside = where.entries[last if last is not None else following or 0]
    own_line = _stands_alone(source, beside.start)
    indent = _indent(source, beside.start) if own_line else ""
    parts = flow_entries(new_value(new, where.node), style, indent)
    comma = "," if style.compact else ", "
    if last is None:
        glue = f",{source.newline}{indent}" if own_line else comma
        return [TextEdit(beside.start, beside.start, "".join(part + glue for part in parts))]
    behind = beside.end if beside.comma is None else beside.comma + 1
    if not own_line or not _ends_line(source, behind):
        return [TextEdit(beside.end, beside.end, "".join(comma + part for part in parts))]
    at = source.next_line(behind)
    tail = "," if following is not None or where.entries[-1].comma is not None else ""
    text = f",{source.newline}{indent}".join(parts)
    separator = [TextEdit(beside.end, beside.end, ",")] if beside.comma is None else []
    return [*separator, TextEdit(at, at, f"{indent}{text}{tail}{source.newline}")]


def _removals(source: SourceText, where: CollectionLayout, kept: list[int], *, ends_new: bool) -> list[TextEdit]:
    """Removes each element with one comma; if it has its own lines, the whole lines. Comments on other lines stay."""
    edits: list[TextEdit] = []
    entries = where.entries
    number = 0
    while number < len(entries):
        if number in kept:
            number += 1
            continue
        first = number
        while number < len(entries) and number not in kept:
            number += 1
        gone = entries[first:number]
        behind = gone[-1].end if gone[-1].comma is None else gone[-1].comma + 1
        if _stands_alone(source, gone[0].start) and _ends_line(source, behind):
            start, end = source.line_start(gone[0].start), source.next_line(behind)
            edits.append(TextEdit(start, end, _other_comments(source, start, end, gone)))
            comma = entries[first - 1].comma if first else None
            if number == len(entries) and comma is not None and entries[-1].comma is None and not ends_new:
                edits.append(TextEdit(comma, comma + 1, ""))
        else:
            start = entries[first - 1].end if first else gone[0].start
            end = gone[-1].end if first else entries[number].start
            comments = _other_comments(source, start, end, gone)
            indent = _indent(source, end) if comments else ""  # what follows must stand further right than its parent
            edits.append(TextEdit(start, end, comments + indent))
    return edits


def _other_comments(source: SourceText, start: int, end: int, gone: Sequence[Entry]) -> str:
    """The lines, or parts of lines, of a region that have a comment and none of its removed members."""
    found: list[str] = []
    at = start
    while at < end:
        stop = min(source.next_line(at), end)
        before, mark, comment = source.text[at:stop].partition("#")
        if mark and not any(each.start < stop and each.end > at for each in gone):
            moved = not found and at > start and source.line_start(start) < start
            found += [source.newline if moved else "", before.replace(",", "") + mark + comment]
        at = stop
    return "".join(found)


def _stands_alone(source: SourceText, offset: int) -> bool:
    """Whether only white space precedes it on its line."""
    return not source.text[source.line_start(offset) : offset].strip()


def _ends_line(source: SourceText, offset: int) -> bool:
    rest = source.text[offset : source.line_end(offset)].strip()
    return not rest or rest.startswith("#")


def _indent(source: SourceText, offset: int) -> str:
    line = source.text[source.line_start(offset) : offset]
    return line[: len(line) - len(line.lstrip())]


# -- whole documents added to a file, such as the second object that the fix of MA117 writes ---------------------------
# Only whole documents are added, with the line breaks of the file, after the document that they belong to.


def check_end(document: Document) -> None:
    """Raises :class:`CannotEdit` for a document behind which none can be added."""
    if takes_line_break(document, document.root):
        raise CannotEdit(_OPEN_END)


def add_documents(source: SourceText, added: Mapping[int, Sequence[object]]) -> tuple[TextEdit, ...]:
    """Edits that write ``added`` objects (JSON values, not empty) after the documents with these numbers, which are not
    JSON themselves.
    """
    documents = compose(source)
    edits: list[TextEdit] = []
    for number in sorted(added):
        document = next(each for each in documents if each.index == number)
        end = document.chunk_end
        between = "" if source.text.endswith("\n", 0, end) else source.newline
        lines = [line for value in added[number] for line in ("---", *block_lines(value, BlockStyle()))]
        edits.append(TextEdit(end, end, between + "".join(line + source.newline for line in lines)))
    return tuple(edits)
