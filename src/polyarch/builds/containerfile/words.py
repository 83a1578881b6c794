"""Words of a Containerfile line: split at white space, with quotes and escapes, and with variables expanded (BD-058).

Only what image names need is expanded: ``$X``, ``${X}``, ``${X:-d}``, ``${X:+a}`` and the forms without colon. Every
other form is left to the builder; a text with one is *unresolved*. Work is linear in the text: expansions have a limit,
and so has their depth, since ``ARG B=$A$A`` doubles with every line.
"""

import re
from collections.abc import Mapping

import msgspec

LONGEST_VALUE = 4096
"""An expansion longer than this is unresolved: no reference is that long, and no build argument (BD-012)."""
_DEEPEST = 16
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_WHITE = " \t\v\f\r"
_WHITE_SPACE = re.compile(r"[ \t\v\f\r]*")
_PLAIN = re.compile(r"[^ \t\v\f\r\"'\\`]*")


class Expansion(msgspec.Struct, frozen=True, kw_only=True):
    """A text after expansion; ``text`` is None where something could not be expanded."""

    text: str | None
    used: frozenset[str] = frozenset()
    """Names of the variables that it depends on."""
    unknown: str = ""
    """The first piece that could not be expanded."""


def first(text: str, begin: int, escape: str) -> tuple[str, int]:
    """The word that begins at ``begin`` after white space, quotes kept, and where it ends; empty at the end."""
    position = _WHITE_SPACE.match(text, begin).end()  # type: ignore[union-attr] # it matches anywhere
    start, quote = position, ""
    position = _PLAIN.match(text, start).end()  # type: ignore[union-attr]
    if position == len(text) or text[position] in _WHITE:
        return text[start:position], position
    while position < len(text):
        character = text[position]
        if character == escape and quote != "'" and position + 1 < len(text):
            position += 2
            continue
        if quote:
            quote = "" if character == quote else quote
        elif character in "\"'":
            quote = character
        elif character in _WHITE:
            break
        position += 1
    return text[start:position], min(position, len(text))


def split(text: str, escape: str) -> list[str]:
    """All words, quotes kept."""
    found: list[str] = []
    position = 0
    while True:
        word, position = first(text, position, escape)
        if not word:
            return found
        found.append(word)


def unquoted(word: str, escape: str) -> str:
    """The word without quotes and escapes, nothing expanded."""
    expansion = _Expander(word, {}, escape, literal=True).run()
    return expansion.text if expansion.text is not None else word


def expanded(word: str, values: Mapping[str, str | None], escape: str) -> Expansion:
    """The word without quotes and escapes, its variables replaced. A value None: it has one, but nobody knows which."""
    if "$" not in word and escape not in word and '"' not in word and "'" not in word:
        return Expansion(text=word)
    return _Expander(word, values, escape).run()


class _Unresolved(Exception):  # noqa: N818 - named for the condition
    def __init__(self, piece: str) -> None:
        super().__init__(piece)
        self.piece = piece


class _Expander:
    """One pass over one word."""

    def __init__(self, word: str, values: Mapping[str, str | None], escape: str, *, literal: bool = False) -> None:
        self._word = word
        self._values = values
        self._escape = escape
        self._literal = literal
        self._used: set[str] = set()
        self._position = 0
        self._length = 0

    def run(self) -> Expansion:
        try:
            text = self._until("", 0)
        except _Unresolved as unresolved:
            return Expansion(text=None, used=frozenset(self._used), unknown=unresolved.piece)
        return Expansion(text=text, used=frozenset(self._used))

    def _until(self, end: str, depth: int) -> str:
        if depth > _DEEPEST:
            raise _Unresolved(self._word)
        word, out, quote = self._word, list[str](), ""
        while self._position < len(word):
            character = word[self._position]
            if end and character == end and not quote:
                return "".join(out)
            self._position += 1
            if character == self._escape and quote != "'" and self._position < len(word):
                out.append(self._escaped(quote))
            elif character in "\"'" and quote in ("", character):
                quote = "" if quote else character
            elif character == "$" and quote != "'" and not self._literal:
                out.append(self._counted(self._variable(depth)))
            else:
                out.append(character)
        if end:
            raise _Unresolved(self._word)
        return "".join(out)

    def _escaped(self, quote: str) -> str:
        character = self._word[self._position]
        self._position += 1
        return character if not quote or character in f'"${self._escape}' else self._escape + character

    def _variable(self, depth: int) -> str:
        begin = self._position - 1
        if self._word.startswith("{", self._position):
            self._position += 1
            name = self._name()
            if name is None:
                raise _Unresolved(self._word[begin:])
            text = self._braced(name, begin, depth)
            self._position += 1
            return text
        name = self._name()
        if name is None:
            if re.match(r"[0-9@*#?!$-]", self._word[self._position : self._position + 1]):
                raise _Unresolved(self._word[begin : self._position + 1])
            return "$"
        if name not in self._values:
            raise _Unresolved(f"${name}")
        return self._value(name) or ""

    def _name(self) -> str | None:
        match = _NAME.match(self._word, self._position)
        if match is None:
            return None
        self._position = match.end()
        self._used.add(match[0])
        return match[0]

    def _value(self, name: str) -> str | None:
        """None: it is not set. Raises where it is set to what nobody knows."""
        if name not in self._values:
            return None
        value = self._values[name]
        if value is None:
            raise _Unresolved(f"${name}")
        return value

    def _braced(self, name: str, begin: int, depth: int) -> str:
        word = self._word
        if word.startswith("}", self._position):
            value = self._value(name)
            if value is None:
                raise _Unresolved(word[begin : self._position + 1])
            return value
        value = self._value(name)
        colon = word.startswith(":", self._position)
        operator = word[self._position + colon : self._position + colon + 1]
        if operator not in ("-", "+"):
            raise _Unresolved(word[begin:])
        self._position += colon + 1
        present = bool(value) if colon else value is not None
        if present is (operator == "+"):
            return self._until("}", depth + 1)
        self._skip(begin)
        return value or "" if operator == "-" else ""

    def _skip(self, begin: int) -> None:
        """Past an alternative that is not taken, to its closing brace."""
        word, depth = self._word, 0
        while self._position < len(word):
            character = word[self._position]
            if character == self._escape:
                self._position += 1
            elif character == "{":
                depth += 1
            elif character == "}":
                if depth == 0:
                    return
                depth -= 1
            self._position += 1
        raise _Unresolved(word[begin:])

    def _counted(self, text: str) -> str:
        self._length += len(text)
        if self._length > LONGEST_VALUE:
            raise _Unresolved(self._word)
        return text
