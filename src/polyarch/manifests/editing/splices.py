"""Edits: replacements of regions of a text, the only way in which a text changes (MF-060).

Pure.
"""

from collections.abc import Iterable
from itertools import pairwise

import msgspec


class Edit(msgspec.Struct, frozen=True, order=True, gc=False):
    """The text from ``start`` to ``end`` (offsets in code points, exclusive) becomes ``replacement``."""

    start: int
    end: int
    replacement: str


def ordered(edits: Iterable[Edit]) -> tuple[Edit, ...]:
    """The edits in the order of the text. Insertions at one offset keep their order and come before what replaces the
    text behind it. Raises ValueError if two edits overlap.
    """
    found = tuple(sorted(edits, key=lambda edit: (edit.start, edit.end)))
    for one, other in pairwise(found):
        if other.start < one.end:
            raise ValueError(f"edits overlap at offset {other.start}")
    return found


def splice(text: str, edits: Iterable[Edit]) -> str:
    """The text after the edits, which must not overlap; all offsets are those of the text given."""
    parts, at = [], 0
    for edit in ordered(edits):
        parts += [text[at : edit.start], edit.replacement]
        at = edit.end
    return "".join([*parts, text[at:]])


def offset_before(offset: int, edits: Iterable[Edit]) -> int:
    """Maps an offset after the edits to the text before; within a replacement, to its start."""
    grown = 0
    for edit in ordered(edits):
        start = edit.start + grown
        if offset < start:
            break
        if offset < start + len(edit.replacement):
            return edit.start
        grown += len(edit.replacement) - (edit.end - edit.start)
    return offset - grown
