"""Edits of flow collections: ``{a: b}``, ``[a, b]`` and all of JSON (MF-064, MF-065).

A new member goes after the last one, on its own line if the others have theirs. Commas stay correct, also after the
last element, where YAML allows one and JSON does not.

Pure.
"""

from dataclasses import replace
from typing import Any

from yaml.nodes import Node

from polyarch.manifests.editing.draft import Draft, Member, new_value
from polyarch.manifests.editing.layout import Entry, Layout, layout
from polyarch.manifests.editing.splices import Edit
from polyarch.manifests.editing.style import DEFAULT_STEP, FlowStyle, flow, flow_entries, is_json, requoted
from polyarch.manifests.scan.nodes import Document
from polyarch.manifests.scan.text import SourceText


def document_style(document: Document) -> FlowStyle:
    """Style of all flow collections of a document: JSON or not, compact or not."""
    if not is_json(document):
        return FlowStyle(newline=document.source.newline)
    entries = layout(document, document.root).entries if document.root.value else ()
    compact = bool(entries) and entries[0].key is not None and entries[0].after_key == entries[0].value_start
    return FlowStyle(json=True, compact=compact, newline=document.source.newline)


def style_of(source: SourceText, where: Layout, style: FlowStyle) -> FlowStyle:
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


def member_edits(source: SourceText, where: Layout, draft: Draft, style: FlowStyle) -> list[Edit]:
    """Edits for removed and new members of a collection that keeps at least one."""
    insertions = draft.insertions
    ends_new = any(following is None for _, _, following in insertions)
    edits = _removals(source, where, [place for place, _ in draft.kept], ends_new=ends_new)
    for members, last, following in insertions:
        edits += _insertion(source, where, members, style, last, following)
    return edits


def _insertion(
    source: SourceText, where: Layout, new: list[Member], style: FlowStyle, last: int | None, following: int | None
) -> list[Edit]:
    """After the kept entry ``last``, or before the kept entry ``following`` where there is none."""
    beside = where.entries[last if last is not None else following or 0]
    own_line = _stands_alone(source, beside.start)
    indent = _indent(source, beside.start) if own_line else ""
    parts = flow_entries(new_value(new, where.node), style, indent)
    comma = "," if style.compact else ", "
    if last is None:
        glue = f",{source.newline}{indent}" if own_line else comma
        return [Edit(beside.start, beside.start, "".join(part + glue for part in parts))]
    behind = beside.end if beside.comma is None else beside.comma + 1
    if not own_line or not _ends_line(source, behind):
        return [Edit(beside.end, beside.end, "".join(comma + part for part in parts))]
    at = source.next_line(behind)
    tail = "," if following is not None or where.entries[-1].comma is not None else ""
    text = f",{source.newline}{indent}".join(parts)
    separator = [Edit(beside.end, beside.end, ",")] if beside.comma is None else []
    return [*separator, Edit(at, at, f"{indent}{text}{tail}{source.newline}")]


def _removals(source: SourceText, where: Layout, kept: list[int], *, ends_new: bool) -> list[Edit]:
    """Removes each element with one comma; if it has its own lines, the whole lines."""
    edits: list[Edit] = []
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
            edits.append(Edit(source.line_start(gone[0].start), source.next_line(behind), ""))
            comma = entries[first - 1].comma if first else None
            if number == len(entries) and comma is not None and entries[-1].comma is None and not ends_new:
                edits.append(Edit(comma, comma + 1, ""))
        elif first:
            edits.append(Edit(entries[first - 1].end, gone[-1].end, ""))
        else:
            edits.append(Edit(gone[0].start, entries[number].start, ""))
    return edits


def _stands_alone(source: SourceText, offset: int) -> bool:
    """Whether only white space precedes it on its line."""
    return not source.text[source.line_start(offset) : offset].strip()


def _ends_line(source: SourceText, offset: int) -> bool:
    rest = source.text[offset : source.line_end(offset)].strip()
    return not rest or rest.startswith("#")


def _indent(source: SourceText, offset: int) -> str:
    line = source.text[source.line_start(offset) : offset]
    return line[: len(line) - len(line.lstrip())]
