"""HTML that cannot be broken out of: what is not known to be markup is text, and text is always escaped.

Names, images, labels and messages of a report come from a cluster, where people write what they like (RP-021). Only
:func:`tag` and :func:`join` make :class:`Markup`, and both escape what is not Markup already, so that there is no place
where somebody could forget it. Names of tags and attributes are this package's own, never a report's.
"""

import unicodedata
from collections.abc import Iterable

_ESCAPED = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;"})
_VOID = frozenset({"br", "input", "meta"})


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


Content = str | None
"""What may stand in an element: text, markup, or nothing."""


def shown(text: str) -> str:
    """The text with what would act instead of being seen made visible.

    Control characters, halves of surrogates and those that turn the direction of writing: with them a name could look
    like another one, or the file could not be written.
    """
    if text.isprintable():
        return text
    return "".join(" " if each.isspace() else "�" if unicodedata.category(each)[0] == "C" else each for each in text)


def escaped(text: str) -> Markup:
    """As it has to be written between tags and in attributes."""
    return text if isinstance(text, Markup) else Markup(shown(text).translate(_ESCAPED))


def join(parts: Iterable[Content], separator: str = "") -> Markup:
    """One after another; None is left out."""
    return Markup(escaped(separator).join(escaped(part) for part in parts if part is not None))


def tag(name: str, /, *content: Content, **attributes: str | float | bool | None) -> Markup:
    """An element. ``class_`` is written ``class``, ``data_v`` as ``data-v``; True is an attribute without a value."""
    written = [name]
    for key, value in attributes.items():
        if value is None or value is False:
            continue
        attribute = key.rstrip("_").replace("_", "-")
        written.append(attribute if value is True else f'{attribute}="{escaped(str(value))}"')
    opening = f"<{' '.join(written)}>"
    return Markup(opening if name in _VOID else f"{opening}{join(content)}</{name}>")
