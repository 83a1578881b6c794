"""Texts that come from elsewhere, as names in images do: they cannot move the cursor or change the colour."""

import unicodedata


def printable(text: str) -> str:
    """The text on one line and without characters that a terminal would obey."""
    if text.isprintable():
        return text
    return "".join(" " if each.isspace() else "�" if unicodedata.category(each)[0] == "C" else each for each in text)
