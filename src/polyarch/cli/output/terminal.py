"""What a terminal shows: colours where it takes them, and no character of foreign texts that it would obey."""

import os
import shutil
import sys
import unicodedata
from typing import TextIO

STYLES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}


def takes_colour(stream: TextIO | None = None) -> bool:
    """Whether a stream (stdout) is a terminal that shows colour; ``NO_COLOR`` and ``FORCE_COLOR`` decide before it."""
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    return is_terminal(stream or sys.stdout)


def is_terminal(stream: TextIO) -> bool:
    """Whether a stream is a terminal that understands more than text."""
    return stream.isatty() and os.environ.get("TERM") not in ("dumb", "unknown")


def terminal_width() -> int | None:
    """Columns of the terminal that stdout is; None: it is none."""
    return shutil.get_terminal_size().columns if is_terminal(sys.stdout) else None


def styled(text: str, style: str, *, colour: bool) -> str:
    """The text in one of :data:`STYLES`; as it is without colour or style."""
    return f"\x1b[{STYLES[style]}m{text}\x1b[0m" if colour and style and text else text


def printable(text: str) -> str:
    """The text on one line and without characters that a terminal would obey."""
    if text.isprintable():
        return text
    return "".join(" " if each.isspace() else "�" if unicodedata.category(each)[0] == "C" else each for each in text)
