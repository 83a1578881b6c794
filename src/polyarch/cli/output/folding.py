"""Columns and texts that fit: a table for a terminal is no wider than it, so that its lines stay in their columns."""

from collections.abc import Sequence
from typing import Final

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
