"""Parser for ``WWW-Authenticate`` challenges.

The header comes from an untrusted server, so the parser accepts any text, never raises, and takes linear time. It keeps
the challenges that were complete before an error.

Pure: imports neither asyncio nor aiohttp.
"""

import re
from collections.abc import Sequence

import msgspec

# RFC 9110, 5.6.2 (token), 5.6.4 (quoted-string) and 11.2 (token68, auth-param)
_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_PARAMETER_NAME = re.compile(r"([!#$%&'*+\-.^_`|~0-9A-Za-z]+)[ \t]*=[ \t]*")
_TOKEN68 = re.compile(r"[A-Za-z0-9\-._~+/]++=*+[ \t]*+(?=,|\Z)")
_QUOTED = re.compile(r'"((?:[^"\\]|\\.)*+)"', re.DOTALL)
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_SPACE = re.compile(r"[ \t]*")
_SEPARATORS = re.compile(r"[ \t,]*")


class Challenge(msgspec.Struct, frozen=True):
    """One authentication scheme that a server offers. Scheme and parameter names are lower case."""

    scheme: str
    parameters: dict[str, str] = {}


def parse_challenges(values: Sequence[str]) -> list[Challenge]:
    """The challenges of all header values, in order; never raises.

    A broken value yields the challenges before the error; other values are parsed separately. Of a repeated parameter
    the first value counts.
    """
    found: list[Challenge] = []
    for value in values:
        _parse_value(value, found)
    return found


def _parse_value(text: str, found: list[Challenge]) -> None:
    position = _end(_SEPARATORS, text, 0)
    while position < len(text):
        scheme = _TOKEN.match(text, position)
        if scheme is None:
            return
        parameters: dict[str, str] = {}
        after = _parse_parameters(text, scheme.end(), parameters)
        if after is None:
            return
        found.append(Challenge(scheme[0].lower(), parameters))
        position = after


def _parse_parameters(text: str, position: int, parameters: dict[str, str]) -> int | None:
    """Where the next challenge begins, or ``None`` if this one is broken."""
    if position < len(text) and text[position] not in " \t,":
        return None
    start = _end(_SPACE, text, position)
    if start > position and (token68 := _TOKEN68.match(text, start)) and not _is_name_with_value(text, start):
        return _end(_SEPARATORS, text, token68.end())
    position = _end(_SEPARATORS, text, start)
    while name := _PARAMETER_NAME.match(text, position):
        if quoted := _QUOTED.match(text, name.end()):
            value = _ESCAPE.sub(r"\1", quoted[1])
            position = quoted.end()
        elif token := _TOKEN.match(text, name.end()):
            value = token[0]
            position = token.end()
        else:
            return None
        parameters.setdefault(name[1].lower(), value)
        position = _end(_SPACE, text, position)
        if position == len(text):
            return position
        if text[position] != ",":
            return None
        position = _end(_SEPARATORS, text, position)
    if parameters or position == len(text) or "," in text[start:position]:
        return position
    return None


def _is_name_with_value(text: str, position: int) -> bool:
    name = _PARAMETER_NAME.match(text, position)
    return name is not None and (_TOKEN.match(text, name.end()) or _QUOTED.match(text, name.end())) is not None


def _end(pattern: re.Pattern[str], text: str, position: int) -> int:
    match = pattern.match(text, position)
    return match.end() if match is not None else position
