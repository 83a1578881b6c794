"""Tables for people. Rows are never cut or wrapped, so that they can be searched and copied."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from polyarch.cli.output.terminal import printable, styled

GAP = "   "


class Row(NamedTuple):
    """One line of a table; ``style`` is for the whole line."""

    cells: Sequence[str]
    style: str = ""


def table(header: Sequence[str], rows: Iterable[Row], *, colour: bool = False) -> str:
    """Columns as wide as their widest cell; the last one takes what it needs."""
    from rich.cells import cell_len

    def line(cells: Sequence[str]) -> str:
        padded = [cell + " " * (width - cell_len(cell)) for cell, width in zip(cells, widths, strict=True)]
        return GAP.join(padded).rstrip()

    lines = [Row([printable(cell) or "-" for cell in row.cells], row.style) for row in rows]
    widths = [
        max(cell_len(cells[column]) for cells in ([*header], *(row.cells for row in lines)))
        for column in range(len(header))
    ]
    printed = [Row(header, "bold"), *lines]
    return "".join(f"{styled(line(row.cells), row.style, colour=colour)}\n" for row in printed)
