"""What commands print: documents and rows on stdout, remarks on stderr.

Rows are never cut or wrapped, so that they can be searched and copied; a terminal adds colour, ``NO_COLOR`` takes it
away. Texts that come from elsewhere, as names in images do, cannot move the cursor or change the colour.
"""

import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import msgspec

from polyarch.cli.output.printable import printable

if TYPE_CHECKING:  # a report in JSON or SARIF needs nothing of rich, which is a tenth of a start
    from rich.console import Console

OutputFormat = Literal["text", "json", "yaml"]

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


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    from rich.cells import cell_len

    padded = [cell + " " * (width - cell_len(cell)) for cell, width in zip(cells, widths, strict=True)]
    return GAP.join(padded).rstrip()
