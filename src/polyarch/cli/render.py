"""What commands print: documents and rows on stdout, progress and remarks on stderr.

Rows are never cut or wrapped, so that they can be searched and copied; a terminal adds colour, ``NO_COLOR`` takes it
away. Texts that come from elsewhere, as names in images do, cannot move the cursor or change the colour.
"""

import os
import sys
import time
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, Self, TextIO

import msgspec

if TYPE_CHECKING:  # a report in JSON or SARIF needs nothing of rich, which is a tenth of a start
    from rich.console import Console

OutputFormat = Literal["text", "json", "yaml"]

LINE_EVERY = 10.0
"""Seconds between the lines of progress in a pipe."""
GAP = "   "


class Row(NamedTuple):
    """One line of a table; ``style`` is rich's, for the whole line."""

    cells: Sequence[str]
    style: str = ""


def console() -> "Console":
    """Stdout as it is now."""
    from rich.console import Console

    return Console(file=sys.stdout, highlight=False, soft_wrap=True)


def remarks() -> "Console":
    """Stderr as it is now."""
    from rich.console import Console

    return Console(file=sys.stderr, highlight=False, soft_wrap=True)


def takes_colour() -> bool:
    """Whether stdout is a terminal that shows colour; ``NO_COLOR`` and ``FORCE_COLOR`` decide before it is asked."""
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    return sys.stdout.isatty() and os.environ.get("TERM") not in ("dumb", "unknown")


def print_document(document: Mapping[str, Any], output: Literal["json", "yaml"] | OutputFormat) -> None:
    """A document of a documented schema on stdout: JSON indented by two, or YAML; keys in the order given."""
    if output == "yaml":
        import yaml  # a twentieth of the start of a command that prints none

        text = yaml.safe_dump(dict(document), sort_keys=False, allow_unicode=True, width=10_000)
    else:
        text = msgspec.json.format(msgspec.json.encode(document), indent=2).decode() + "\n"
    sys.stdout.write(text)
    sys.stdout.flush()


def print_table(header: Sequence[str], rows: Iterable[Row], *, to: "Console | None" = None) -> None:
    """Columns as wide as their widest cell; the last one takes what it needs."""
    from rich.cells import cell_len

    lines = [Row([printable(cell) or "-" for cell in row.cells], row.style) for row in rows]
    widths = [
        max(cell_len(cells[column]) for cells in ([*header], *(line.cells for line in lines)))
        for column in range(len(header))
    ]
    printed = [Row([_line(header, widths)], "bold"), *(Row([_line(line.cells, widths)], line.style) for line in lines)]
    if to is None and not takes_colour():  # most tables go into a pipe, which needs nothing of rich's console
        sys.stdout.writelines(f"{text}\n" for (text,), _ in printed)
        sys.stdout.flush()
        return
    from rich.text import Text

    target = to or console()
    for (text,), style in printed:
        target.print(Text(text, style=style), soft_wrap=True)


def printable(text: str) -> str:
    """The text on one line and without characters that a terminal would obey."""
    if text.isprintable():
        return text
    return "".join(" " if each.isspace() else "�" if unicodedata.category(each)[0] == "C" else each for each in text)


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    from rich.cells import cell_len

    padded = [cell + " " * (width - cell_len(cell)) for cell, width in zip(cells, widths, strict=True)]
    return GAP.join(padded).rstrip()


class Progress(Protocol):
    """How far a long work is, while its block lasts."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...

    def advance(self) -> None:
        """One more is done."""

    def remark(self, text: str) -> None:
        """A line that stays."""


class Lines:
    """Progress in a pipe: a line once in a while."""

    def __init__(self, text: str, total: int, stream: TextIO) -> None:
        self._text = printable(text)
        self._total = total
        self._done = 0
        self._stream = stream
        self._told = time.monotonic()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stream.flush()

    def advance(self) -> None:
        """One more is done."""
        self._done += 1
        if time.monotonic() - self._told >= LINE_EVERY and self._done < self._total:
            self._told = time.monotonic()
            self.remark(f"{self._text}: {self._done} of {self._total}")

    def remark(self, text: str) -> None:
        """A line of its own."""
        print(printable(text), file=self._stream, flush=True)


def progress(text: str, total: int) -> Progress:
    """How far a work of ``total`` steps is, on stderr: a bar on a terminal, lines in a pipe."""
    if not sys.stderr.isatty() or not (target := remarks()).is_terminal:
        return Lines(text, total, sys.stderr)
    from polyarch.cli.progress_bar import Bar  # rich's bars take longer to import than most commands run

    return Bar(text, total, target)
