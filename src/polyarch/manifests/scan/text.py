"""A file as text, with offsets that people and the YAML parser agree on, and edits of it.

Offsets count code points after the byte-order mark, which is removed on reading and restored on writing: so libyaml's
marks are indexes into :attr:`SourceText.text`. Line breaks are kept. Lines are counted as editors count them, although
YAML 1.1 knows three more kinds of line break.

Pure: bytes in, bytes out.
"""

import re
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, pairwise

import msgspec

from polyarch.manifests.finding import Span

MAX_BYTES = 64 * 1024 * 1024
"""Larger files are not parsed."""

_SHORT = 64 * 1024
"""In a text of fewer characters it takes longer to find all lines than to count those before a place."""
_BOM = b"\xef\xbb\xbf"
_OTHER_ENCODINGS = (
    (b"\xff\xfe\x00\x00", "UTF-32"),
    (b"\x00\x00\xfe\xff", "UTF-32"),
    (b"\xff\xfe", "UTF-16"),
    (b"\xfe\xff", "UTF-16"),
)
_LINE_BREAK = re.compile(r"\r\n|\n|\r")
# What ends a comment for libyaml (YAML 1.1, section 4.2: b-char), so that scanning over comments agrees with it.
_YAML_BREAK = re.compile("\r\n|[\n\r\x85\u2028\u2029]")


class UnreadableText(ValueError):  # noqa: N818 - reads as a noun
    """A file that is not UTF-8 text: file, why, and what to do."""

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(f"{path}: {problem}; save it as UTF-8")
        self.path = path
        self.problem = problem


@dataclass(frozen=True)
class SourceText:
    """The text of a file, without its byte-order mark; ``size`` is that of the file in bytes.

    The text of a file beyond :data:`MAX_BYTES` is empty: it is reported, not parsed.
    """

    path: str
    text: str
    bom: bool = False
    newline: str = "\n"
    size: int = 0

    @classmethod
    def of(cls, path: str, data: bytes) -> "SourceText":
        """Raises :class:`UnreadableText`."""
        if len(data) > MAX_BYTES:
            return cls(path, "", size=len(data))
        for mark, name in _OTHER_ENCODINGS:
            if data.startswith(mark):
                raise UnreadableText(path, f"is {name} text")
        bom = data.startswith(_BOM)
        try:
            text = data[len(_BOM) if bom else 0 :].decode("utf-8")
        except UnicodeDecodeError as error:
            raise UnreadableText(path, f"byte {error.start + len(_BOM) * bom} is not UTF-8 ({error.reason})") from None
        windows = text.count("\r\n")
        newline = "\r\n" if windows and windows * 2 > text.count("\n") else "\n"
        return cls(path, text, bom=bom, newline=newline, size=len(data))

    def encode(self, text: str) -> bytes:
        """The bytes of a changed text, with the byte-order mark if there was one."""
        return (_BOM if self.bom else b"") + text.encode("utf-8")

    def replaced(self, text: str) -> "SourceText":
        """The same file with another text."""
        return SourceText(self.path, text, bom=self.bom, newline=self.newline, size=self.size)

    @cached_property
    def _starts(self) -> list[int]:
        if "\r" not in self.text:  # the usual case, several times as fast
            lengths = map(len, self.text.split("\n"))
            return [end + number for number, end in enumerate(accumulate(lengths, initial=0))][:-1]
        return [0, *(match.end() for match in _LINE_BREAK.finditer(self.text))]

    def place(self, offset: int) -> tuple[int, int]:
        """Line and column of an offset, both from 1."""
        if len(self.text) < _SHORT and "\r" not in self.text:
            return self.text.count("\n", 0, offset) + 1, offset - self.text.rfind("\n", 0, offset)
        line = bisect_right(self._starts, offset)
        return line, offset - self._starts[line - 1] + 1

    def span(self, start: int, end: int) -> Span:
        line, column = self.place(start)
        end_line, end_column = self.place(end)
        return Span(start, end, line, column, end_line, end_column)

    def line(self, number: int) -> str:
        """The text of a line (from 1) without its break; empty beyond the end."""
        if not 1 <= number <= len(self._starts):
            return ""
        start = self._starts[number - 1]
        end = self._starts[number] if number < len(self._starts) else len(self.text)
        return self.text[start:end].rstrip("\r\n")

    def line_start(self, offset: int) -> int:
        """Where the line of an offset starts, as YAML sees lines."""
        found = max(self.text.rfind(mark, 0, offset) for mark in "\n\r\x85\u2028\u2029")
        return found + 1

    def line_end(self, offset: int) -> int:
        """Where the line of an offset ends, before its break, as YAML sees lines."""
        match = _YAML_BREAK.search(self.text, offset)
        return match.start() if match else len(self.text)

    def next_line(self, offset: int) -> int:
        """Where the line after that of an offset starts; the end of the text if there is none."""
        match = _YAML_BREAK.search(self.text, offset)
        return match.end() if match else len(self.text)

    def previous_line(self, start: int) -> int:
        """Where the line before the one that starts at an offset starts."""
        return self.line_start(start - (2 if self.text.endswith("\r\n", 0, start) else 1)) if start else 0


# -- edits: replacements of regions of a text, the only way in which a text changes ------------------------------------


class TextEdit(msgspec.Struct, frozen=True, order=True, gc=False):
    """The text from ``start`` to ``end`` (offsets in code points, exclusive) becomes ``replacement``."""

    start: int
    end: int
    replacement: str


def ordered(edits: Iterable[TextEdit]) -> tuple[TextEdit, ...]:
    """The edits in the order of the text. Insertions at one offset keep their order and come before what replaces the
    text behind it. Raises ValueError if two edits overlap.
    """
    found = tuple(sorted(edits, key=lambda edit: (edit.start, edit.end)))
    for one, other in pairwise(found):
        if other.start < one.end:
            raise ValueError(f"edits overlap at offset {other.start}")
    return found


def splice(text: str, edits: Iterable[TextEdit]) -> str:
    """The text after the edits, which must not overlap; all offsets are those of the text given."""
    parts, at = [], 0
    for edit in ordered(edits):
        parts += [text[at : edit.start], edit.replacement]
        at = edit.end
    return "".join([*parts, text[at:]])


def offset_before(offset: int, edits: Iterable[TextEdit]) -> int:
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
