"""Tables for people. Rows are never cut or wrapped, so that they can be searched and copied."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from polyarch.cli.output.bars import Drawn
from polyarch.cli.output.terminal import printable, styled

GAP = "   "


class Row(NamedTuple):
    """One line of a table; ``style`` is for the whole line."""

    cells: Sequence[str | Drawn]
    style: str = ""


def table(header: Sequence[str], rows: Iterable[Row], *, colour: bool = False) -> str:
    """Columns as wide as their widest cell; the last one takes what it needs."""
    from rich.cells import cell_len

    def drawn(cell: str | Drawn) -> Drawn:
        if isinstance(cell, Drawn):
            return cell
        shown = printable(cell) or "-"
        return Drawn(shown, cell_len(shown))

    def line(cells: Sequence[Drawn]) -> str:
        padded = [cell.shown + " " * (width - cell.width) for cell, width in zip(cells, widths, strict=True)]
        return GAP.join(padded).rstrip()

    printed = [(style, [drawn(cell) for cell in cells]) for cells, style in (Row(header, "bold"), *rows)]
    widths = [max(cells[column].width for _, cells in printed) for column in range(len(header))]
    return "".join(f"{styled(line(cells), style, colour=colour)}\n" for style, cells in printed)
