"""Tables for people. Rows are never cut, so that they can be searched and copied; for a terminal they can be folded."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import zip_longest
from typing import Final, NamedTuple

from polyarch.cli.output.bars import Drawn
from polyarch.cli.output.folding import fitting, folded
from polyarch.cli.output.terminal import printable, styled

GAP = "   "
NOTHING: Final = "-"
NARROWEST: Final = 8
"""Columns: no column of texts is folded to less."""
ROOM_FOR_LAST: Final = 30
"""The same for the last column, which has the long texts: with less room it stands below its row."""


class Row(NamedTuple):
    """One line of a table; ``style`` is for the whole line."""

    cells: Sequence[str | Drawn]
    style: str = ""


def table(header: Sequence[str], rows: Iterable[Row], *, colour: bool = False, width: int | None = None) -> str:
    """Columns as wide as their widest cell; the last one takes what it needs. With a ``width`` texts are folded within
    their columns, so that no line is wider if that can be."""
    given = (Row(header, "bold"), *rows)
    printed = [(style, list(map(_drawn, cells))) for cells, style in given]
    widths = [max(cells[column].width for _, cells in printed) for column in range(len(header))]
    below: int | None = None
    if width is not None:
        columns = zip(*(cells for cells, _ in given), strict=True)
        least = [min(natural, _least(column)) for natural, column in zip(widths, columns, strict=True)]
        fitted = fitting(widths, least, width - len(GAP) * (len(header) - 1))
        if len(header) > 1 and fitted[-1] < min(widths[-1], ROOM_FOR_LAST):
            below = width - len(GAP)
            fitted = fitting(widths[:-1], least[:-1], width - len(GAP) * (len(header) - 2))
        widths = fitted
    return "".join(
        f"{styled(line, style, colour=colour)}\n" for style, cells in printed for line in _lines(cells, widths, below)
    )


def _drawn(cell: str | Drawn) -> Drawn:
    from rich.cells import cell_len

    if isinstance(cell, Drawn):
        return cell
    shown = printable(cell) or NOTHING
    return Drawn(shown, cell_len(shown))


def _lines(cells: Sequence[Drawn], widths: Sequence[int], below: int | None) -> Iterator[str]:
    """Of one row. ``below``: the columns for the last cell, which stands below the others."""
    beside = cells if below is None else cells[:-1]
    parts = (
        [cell] if cell.width <= room else map(_drawn, folded(cell.shown, room))
        for cell, room in zip(beside, widths, strict=True)
    )
    for line in zip_longest(*parts, fillvalue=Drawn("", 0)):
        padded = (cell.shown + " " * (room - cell.width) for cell, room in zip(line, widths, strict=True))
        yield GAP.join(padded).rstrip()
    if below is not None and cells[-1].shown != NOTHING:
        yield from (f"{GAP}{line}" for line in folded(cells[-1].shown, below))


def _least(column: Sequence[str | Drawn]) -> int:
    """What a column needs: the words of its heading, and what is drawn in it."""
    heading, *cells = column
    words = [len(word) for word in heading.split()] if isinstance(heading, str) else []
    return max(NARROWEST, *words, *(cell.width for cell in cells if isinstance(cell, Drawn)))
