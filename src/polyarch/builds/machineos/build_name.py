"""YAML as the stock builder writes it before it hashes it: the texts must agree to the byte.

Block style of YAML 1.1 in the manner of libyaml: keys sorted, two spaces, dashes at their key's column, lines folded at
spaces after column 80. The writer keeps libyaml's state (column, whether only indentation was written so far, whether
white space was written last), since where it breaks lines follows from that state and from nothing simpler.

Values are mappings with text keys, lists, texts, integers, booleans and None. Keys are those of API types: short words.
"""

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from itertools import pairwise
from typing import Any, Final

WIDTH = 80
INDENT = 2

_RESERVED = frozenset(
    {"", "~"}
    | {
        form
        for word in ("y", "yes", "true", "on", "n", "no", "false", "off", "null")
        for form in (word, word.capitalize(), word.upper())
    }
    | {f"{sign}.{form}" for sign in ("", "+", "-") for form in ("inf", "Inf", "INF")}
    | {".nan", ".NaN", ".NAN"}
)
_INTEGER = re.compile(r"([-+]?)(?:0[xX]([0-9a-fA-F]+)|0[bB]([01]+)|0[oO]([0-7]+)|0([0-7]*)|([1-9][0-9]*))", re.ASCII)
_BASES = (16, 2, 8, 8, 10)
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?", re.ASCII)
_SEXAGESIMAL = re.compile(r"[-+]?[0-9][0-9_]*(?::[0-5]?[0-9])+(?:\.[0-9_]*)?", re.ASCII)
_TIMESTAMP = re.compile(
    r"([0-9]{4})-([0-9]{1,2})-([0-9]{1,2})"
    r"(?:(?:[Tt]|( +))([0-9]{1,2}):([0-9]{1,2}):([0-9]{1,2})(?:[.,][0-9]+)?(Z|[-+][0-9]{2}:[0-9]{2})?)?",
    re.ASCII,
)
_FIRST = frozenset("#,[]{}&*!|>'\"%@`")
_INDICATOR = re.compile(r":(?:[ \t]|\Z)|[ \t]#")
_ESCAPES = {
    "\0": "0",
    "\a": "a",
    "\b": "b",
    "\t": "t",
    "\n": "n",
    "\v": "v",
    "\f": "f",
    "\r": "r",
    "\x1b": "e",
    '"': '"',
    "\\": "\\",
    "\x85": "N",
    "\xa0": "_",
    "\u2028": "L",
    "\u2029": "P",
}
_BREAKS = frozenset("\r\n\x85\u2028\u2029")


def block_yaml(value: Any) -> bytes:
    """The document, with one line feed at its end."""
    writer = _Writer()
    writer.node(value, -1)
    writer.indent(0)
    return "".join(writer.out).encode()


def needs_quotes(text: str) -> bool:
    """Whether YAML 1.1 would read the plain text as something other than a text."""
    if text in _RESERVED or _SEXAGESIMAL.fullmatch(text):
        return True
    if text[0] == ".":
        return _is_float(text)
    if text[0] not in "+-0123456789":
        return False
    plain = text.replace("_", "")
    return _is_timestamp(text) or _is_integer(plain) or _is_float(plain)


def _is_integer(text: str) -> bool:
    """One of 64 bits; a longer one is a float, where its digits are those of one."""
    match = _INTEGER.fullmatch(text)
    if match is None:
        return False
    sign, *groups = match.groups()
    digits, base = next((group, base) for group, base in zip(groups, _BASES, strict=True) if group is not None)
    significant = digits.lstrip("0")
    if len(significant) > 64:
        return False
    value = int(significant or "0", base)
    return value <= 2**63 if sign == "-" else value < (2**63 if sign else 2**64)


def _is_float(text: str) -> bool:
    return _FLOAT.fullmatch(text) is not None and abs(float(text)) != float("inf")


def _is_timestamp(text: str) -> bool:
    match = _TIMESTAMP.fullmatch(text)
    if match is None:
        return False
    year, month, day, spaces, hour, minute, second, zone = match.groups()
    try:
        date(int(year) or 2000, int(month), int(day))
    except ValueError:
        return False
    if hour is None:
        return True
    in_range = int(hour) < 24 and int(minute) < 60 and int(second) < 60
    return in_range and (zone is None) is (spaces is not None)


def _is_printable(character: str) -> bool:
    code = ord(character)
    ascii_or_latin = character == "\n" or 0x20 <= code <= 0x7E or 0xA0 <= code <= 0xD7FF
    return ascii_or_latin or (0xE000 <= code <= 0xFFFD and code != 0xFEFF)


class _Style:
    """Which styles can hold a text that is not empty."""

    def __init__(self, text: str) -> None:
        following = list(pairwise(text))
        space_break = any(a == " " and b in _BREAKS for a, b in following)
        special = space_break or not all(_is_printable(each) for each in text)
        ends = text[0] == " " or text[-1] == " "
        self.plain = not (ends or special or _has_indicators(text) or any(each in _BREAKS for each in text))
        self.single = not (special or any(a in _BREAKS and b == " " for a, b in following))
        self.literal = not (special or text[-1] == " ")


def _has_indicators(text: str) -> bool:
    """Whether the plain text would be read as structure."""
    if text.startswith(("---", "...")) or text[0] in _FIRST or (text[0] in "?-" and text[1:2] in ("", " ", "\t")):
        return True
    return _INDICATOR.search(text) is not None


class _Writer:
    """libyaml's emitter, as far as such documents need it. ``indent`` is that of the node around; -1 at the root."""

    def __init__(self) -> None:
        self.out: list[str] = []
        self._column = 0
        self._whitespace = True
        self._indention = True

    def node(self, value: Any, indent: int, *, in_mapping: bool = False) -> None:
        if isinstance(value, str):
            self._text(value, max(indent, 0) + INDENT)
        elif isinstance(value, Mapping) and value:
            self._mapping(value, 0 if indent < 0 else indent + INDENT)
        elif isinstance(value, Sequence) and value:
            self._sequence(value, 0 if indent < 0 else indent if in_mapping else indent + INDENT)
        else:
            self._indicator(_word(value))

    def indent(self, indent: int) -> None:
        """To this column, on a line of its own."""
        if not self._indention or self._column > indent or (self._column == indent and not self._whitespace):
            self._break()
        self._put(" " * (indent - self._column))
        self._whitespace = self._indention = True

    def _mapping(self, value: Mapping[str, Any], indent: int) -> None:
        for name in sorted(value):
            self.indent(indent)
            self._text(name, indent, key=True)
            self._put(":")
            self.node(value[name], indent, in_mapping=True)

    def _sequence(self, value: Sequence[Any], indent: int) -> None:
        for each in value:
            self.indent(indent)
            self._indicator("-")
            self._indention = True  # what follows may begin in the same line
            self.node(each, indent)

    def _text(self, text: str, indent: int, *, key: bool = False) -> None:
        style = _Style(text) if text else None
        if style is not None and "\n" in text and style.literal and not key:
            self._literal(text, indent)
        elif style is None or "\n" in text or needs_quotes(text) or not (style.plain or style.single):
            self._double(text, indent, folds=not key)
        elif style.plain:
            self._indicator("")
            self._flow(text, indent, folds=not key)
        else:
            self._indicator("'")
            self._flow(text.replace("'", "''"), indent, folds=not key)
            self._put("'")

    def _flow(self, text: str, indent: int, *, folds: bool) -> None:
        """A plain or single-quoted text: folded at a single space beyond the width."""
        spaces = breaks = False
        for position, character in enumerate(text):
            if character == " ":
                inner = 0 < position < len(text) - 1 and text[position + 1] != " "
                if folds and inner and not spaces and self._column > WIDTH:
                    self.indent(indent)
                else:
                    self._put(character)
                spaces = True
                continue
            if character in _BREAKS:
                self._other_break(character)
                breaks = True
                continue
            if breaks:
                self.indent(indent)
            self._put(character)
            spaces = breaks = False
        self._whitespace = self._indention = False

    def _literal(self, text: str, indent: int) -> None:
        hint = str(INDENT) if text[0] == " " or text[0] in _BREAKS else ""
        self._indicator(f"|{hint}{_chomping(text)}")
        self._break()
        self._whitespace = True
        breaks = True
        for character in text:
            if character in _BREAKS:
                self._other_break(character)
                breaks = True
                continue
            if breaks:
                self.indent(indent)
            self._put(character, whitespace=True)
            breaks = False

    def _double(self, text: str, indent: int, *, folds: bool) -> None:
        self._indicator('"')
        spaces = False
        for position, character in enumerate(text):
            if character in '"\\' or character in _BREAKS or not _is_printable(character):
                self._put(_escaped(character))
                spaces = False
                continue
            inner = 0 < position < len(text) - 1
            if character == " " and folds and inner and not spaces and self._column > WIDTH:
                self.indent(indent)
                self._put("\\" if text[position + 1] == " " else "")
            else:
                self._put(character)
            spaces = character == " "
        self._put('"')

    def _indicator(self, text: str) -> None:
        self._put(text if self._whitespace else f" {text}")

    def _put(self, text: str, *, whitespace: bool = False) -> None:
        self.out.append(text)
        self._column += len(text)
        if text:
            self._whitespace, self._indention = whitespace, False

    def _break(self) -> None:
        self.out.append("\n")
        self._column = 0
        self._indention = True

    def _other_break(self, character: str) -> None:
        if character == "\n":
            self._break()
        else:
            self.out.append(character)
            self._column = 0
            self._indention = True


def _word(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, Mapping | Sequence):
        return "{}" if isinstance(value, Mapping) else "[]"
    raise TypeError(f"{value!r} has no place in an object that is hashed")


def _chomping(text: str) -> str:
    if text[-1] not in _BREAKS:
        return "-"
    return "+" if len(text) == 1 or text[-2] in _BREAKS else ""


def _escaped(character: str) -> str:
    code = ord(character)
    short = _ESCAPES.get(character)
    if short is not None:
        return f"\\{short}"
    return f"\\x{code:02X}" if code <= 0xFF else f"\\u{code:04X}" if code <= 0xFFFF else f"\\U{code:08X}"


# -- The name of a MachineOSBuild: the stock builder's where a pool has one architecture.


SALT: Final = bytes.fromhex(
    "107ccee48b38afaf4fe586769d9ad36e195d2ffdac6a2507ae0da0b96e115734db830cceda8d7487bcb5c097e93e7ea5"
    "4053b3770fa8d0c5926b3ae385bcee1a211aebca20ad1fea2990944f06ce1716"
)
"""A constant of stock builders, kept for compatibility."""
ANY_ARCHITECTURE: Final = "NoArch"
_OBJECT_REFERENCE: Final = ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")


def stock_name(
    config: str, *, configuration: Mapping[str, Any], spec: Mapping[str, Any], os_images: Mapping[str, str]
) -> str:
    """Bit for bit what stock builders make of ``spec.configuration`` of the pool and ``spec`` of the MachineOSConfig.

    ``os_images``: see :func:`os_images`. Objects are taken as they are stored.
    """
    return _named(
        config,
        block_yaml(configuration_of(configuration)),
        block_yaml(spec_of(spec)),
        block_yaml(dict(os_images)),
    )


def mixed_name(config: str, *, configuration: Mapping[str, Any], build_key: str) -> str:
    """The name where there is more than one architecture, or a text for one of them only."""
    return _named(config, block_yaml(configuration_of(configuration)), build_key.encode())


def keeps_stock_name(architectures: Iterable[str], entries: Iterable[Mapping[str, Any]] | None) -> bool:
    """Whether a build for these architectures, with these ``containerFile`` entries, has the stock name."""
    texts = (entry.get("containerfileArch") or ANY_ARCHITECTURE for entry in entries or ())
    return len(set(architectures)) == 1 and all(each == ANY_ARCHITECTURE for each in texts)


def os_images(*, os_image: str, extensions_image: str, release: str) -> dict[str, str]:
    """What the stock builder hashes of the rendered config and its release."""
    return {
        "BaseOSContainerImage": os_image,
        "BaseOSExtensionsContainerImage": extensions_image,
        "OSImageURL": "",
        "ReleaseVersion": release,
    }


def configuration_of(stored: Mapping[str, Any]) -> dict[str, Any]:
    """``spec.configuration`` of a pool with the fields of v1 only."""
    found = _reference(stored)
    if source := stored.get("source"):
        found["source"] = [_reference(each) for each in source]
    return found


def spec_of(stored: Mapping[str, Any]) -> dict[str, Any]:
    """``spec`` of a MachineOSConfig with the fields of v1 only; without ``containerFile`` that is null."""
    entries = stored.get("containerFile")
    found: dict[str, Any] = {
        "machineConfigPool": {"name": _text(stored, "machineConfigPool", "name")},
        "imageBuilder": {"imageBuilderType": _text(stored, "imageBuilder", "imageBuilderType")},
        "renderedImagePushSecret": {"name": _text(stored, "renderedImagePushSecret", "name")},
        "renderedImagePushSpec": stored.get("renderedImagePushSpec") or "",
        "containerFile": None if entries is None else [_entry(each) for each in entries],
    }
    if stored.get("baseImagePullSecret") is not None:
        found["baseImagePullSecret"] = {"name": _text(stored, "baseImagePullSecret", "name")}
    return found


def _named(config: str, *parts: bytes) -> str:
    digest = hashlib.md5(SALT + b"".join(parts), usedforsecurity=False)
    return f"{config}-{digest.hexdigest()}"


def _entry(stored: Mapping[str, Any]) -> dict[str, Any]:
    found = {"content": stored.get("content") or ""}
    if architecture := stored.get("containerfileArch"):
        found["containerfileArch"] = architecture
    return found


def _reference(stored: Mapping[str, Any]) -> dict[str, Any]:
    return {field: stored[field] for field in _OBJECT_REFERENCE if stored.get(field)}


def _text(stored: Mapping[str, Any], *path: str) -> str:
    value: Any = stored
    for each in path:
        value = value.get(each) if isinstance(value, Mapping) else None
    return value if isinstance(value, str) else ""
