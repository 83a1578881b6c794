"""Bars: the same characters for the same thing in every picture. What a colour says a character says, too."""

from typing import Final, NamedTuple

from polyarch.cli.output.terminal import printable, styled

FULL: Final = "█"
PARTLY: Final = "▒"
EMPTY: Final = "·"


class Drawn(NamedTuple):
    """A piece of a line that may be coloured: what is printed, and how wide it is."""

    shown: str
    width: int


def plain(text: str) -> Drawn:
    """A foreign text; each of its characters takes one column."""
    shown = printable(text)
    return Drawn(shown, len(shown))


def bar(full: float, partly: float, *, width: int, style: str, partly_style: str, colour: bool) -> Drawn:
    """Two shares of a whole from 0 to 1, and what is left of it. Together they are as long as their sum: rounding never
    makes a bar longer than ``width``."""
    first = round(width * full)
    second = min(width - first, round(width * (full + partly)) - first)
    shown = (
        styled(FULL * first, style, colour=colour)
        + styled(PARTLY * second, partly_style, colour=colour)
        + styled(EMPTY * (width - first - second), "dim", colour=colour)
    )
    return Drawn(shown, width)


def legend(full: str, partly: str, empty: str) -> str:
    """What the characters of a bar stand for."""
    return f"{FULL} {full}  {PARTLY} {partly}  {EMPTY} {empty}"
