"""Tables for people, the wrapping of their cells, and bars.

Rows are never cut, so that they can be searched and copied; for a terminal they can be wrapped.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import zip_longest
from typing import Final, NamedTuple

from polyarch.cli.output.terminal import printable, styled

GAP = "   "
NOTHING: Final = "-"
NARROWEST: Final = 8
"""Columns: no column of texts is folded to less."""
ROOM_FOR_LAST: Final = 30
"""The same for the last column, which has the long texts: with less room it stands below its row."""


class StyledText(NamedTuple):
    """A piece of a line that may be coloured: what is printed, and how wide it is."""

    shown: str
    width: int


class Row(NamedTuple):
    """One line of a table; ``style`` is for the whole line."""

    cells: Sequence[str | StyledText]
    style: str = ""


def table(header: Sequence[str], rows: Iterable[Row], *, colour: bool = False, width: int | None = None) -> str:
    """Columns as wide as their widest cell; the last one takes what it needs. With a ``width`` texts are folded within
    their columns, so that no line is wider if that can be."""
    given = (Row(header, "bold"), *rows)
    printed = [(style, list(map(_drawn, cells))) for cells, style in given]
    widths = [max(cells[column].width for _, cells in printed) for column in range(len(header))]
    below: int | None = None
    if width is not None:
        columns = list(zip(*(cells for cells, _ in given), strict=True))
        for breaks in (False, True):  # a name that is broken cannot be copied
            least = [min(natural, _least(each, breaks=breaks)) for natural, each in zip(widths, columns, strict=True)]
            fitted = fitting(widths, least, width - len(GAP) * (len(header) - 1))
            below = None
            if len(header) > 1 and fitted[-1] < min(widths[-1], ROOM_FOR_LAST):
                below = width - len(GAP)
                fitted = fitting(widths[:-1], least[:-1], width - len(GAP) * (len(header) - 2))
            if sum(fitted) + len(GAP) * (len(fitted) - 1) <= width:
                break
        widths = fitted
    return "".join(
        f"{styled(line, style, colour=colour)}\n" for style, cells in printed for line in _lines(cells, widths, below)
    )


def _drawn(cell: str | StyledText) -> StyledText:
    from rich.cells import cell_len

    if isinstance(cell, StyledText):
        return cell
    shown = printable(cell) or NOTHING
    return StyledText(shown, cell_len(shown))


def _lines(cells: Sequence[StyledText], widths: Sequence[int], below: int | None) -> Iterator[str]:
    """Of one row. ``below``: the columns for the last cell, which stands below the others."""
    beside = cells if below is None else cells[:-1]
    parts = (
        [cell] if cell.width <= room else map(_drawn, folded(cell.shown, room))
        for cell, room in zip(beside, widths, strict=True)
    )
    for line in zip_longest(*parts, fillvalue=StyledText("", 0)):
        padded = (cell.shown + " " * (room - cell.width) for cell, room in zip(line, widths, strict=True))
        yield GAP.join(padded).rstrip()
    if below is not None and cells[-1].shown != NOTHING:
        yield from (f"{GAP}{line}" for line in folded(cells[-1].shown, below))


def _least(column: Sequence[str | StyledText], *, breaks: bool) -> int:
    """What a column needs: the words of its heading, what is drawn in it and, unless it ``breaks`` them, the words of
    its cells."""
    heading, *cells = column
    words = [
        len(word) for each in (heading, *([] if breaks else cells)) if isinstance(each, str) for word in each.split()
    ]
    return max(NARROWEST, *words, *(cell.width for cell in cells if isinstance(cell, StyledText)))


# -- wrapping


_AFTER: Final = "/:@,;=-."
"""What separates the parts of a name."""


def fitting(widths: Sequence[int], least: Sequence[int], most: int) -> list[int]:
    """The widths of columns that together have at most so many: the widest give way, none below its ``least``."""
    found = list(widths)
    places = [place for place in range(len(found)) if found[place] > least[place]]
    while sum(found) > most and places:
        place = max(places, key=found.__getitem__)
        found[place] -= 1
        if found[place] <= least[place]:
            places.remove(place)
    return found


def folded(text: str, width: int) -> list[str]:
    """The lines of a text, at most so many columns each. They end at white space, else behind a character that
    separates parts of a name, else anywhere."""
    lines = []
    while (end := _end(text, width)) < len(text):
        at = text.rfind(" ", 1, end + 1)
        if at < 0:
            at = max(text.rfind(each, 0, end) for each in _AFTER) + 1
        at = at if at > 0 else end
        lines.append(text[:at].rstrip())
        text = text[at:].lstrip()
    return [*lines, text]


def _end(text: str, width: int) -> int:
    """How many characters fit; one at least."""
    from rich.cells import get_character_cell_size

    used = 0
    for place, character in enumerate(text):
        used += get_character_cell_size(character)
        if used > width:
            return max(place, 1)
    return len(text)


# -- bars: the same characters for the same thing in every picture; colours repeat what characters say


FULL: Final = "█"
PARTLY: Final = "▒"
EMPTY: Final = "·"


def plain(text: str) -> StyledText:
    """A foreign text; each of its characters takes one column."""
    shown = printable(text)
    return StyledText(shown, len(shown))


def bar(full: float, partly: float, *, width: int, style: str, partly_style: str, colour: bool) -> StyledText:
    """Two shares of a whole from 0 to 1, and what is left of it. Together they are as long as their sum: rounding never
    makes a bar longer than ``width``."""
    first = round(width * full)
    second = min(width - first, round(width * (full + partly)) - first)
    shown = (
        styled(FULL * first, style, colour=colour)
        + styled(PARTLY * second, partly_style, colour=colour)
        + styled(EMPTY * (width - first - second), "dim", colour=colour)
    )
    return StyledText(shown, width)


def legend(full: str, partly: str, empty: str) -> str:
    """What the characters of a bar stand for."""
    return f"{FULL} {full}  {PARTLY} {partly}  {EMPTY} {empty}"
