"""Go durations (``1h30m``, ``2.5s``, ``100ms``), the form Kubernetes users know."""

import re
from fractions import Fraction
from typing import Final

PATTERN: Final = r"^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$"
"""The pattern that CRDs enforce on duration fields."""

GO_PATTERN: Final = r"^[+-]?(0|(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|ms|s|m|h))+)$"
"""Everything that Go's ``time.ParseDuration`` takes, for APIs whose fields always took it."""

_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h)", re.ASCII)
_WHOLE = re.compile(PATTERN, re.ASCII)
_SECONDS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_GO_PART = re.compile(r"([0-9]*\.?[0-9]*)(ns|us|µs|ms|s|m|h)", re.ASCII)
_GO_WHOLE = re.compile(GO_PATTERN, re.ASCII)
_NANOSECONDS: Final = {
    "ns": 1, "us": 10**3, "µs": 10**3, "ms": 10**6, "s": 10**9, "m": 60 * 10**9, "h": 3600 * 10**9,
}  # fmt: skip


LONGEST: Final = (2**63 - 1) / 10**9
"""Seconds that Go's durations can hold, some 292 years."""


class InvalidDuration(ValueError):  # noqa: N818
    """The text is not a duration; the message says what to write."""


def parse_duration(text: str) -> float:
    """Seconds. Raises :class:`InvalidDuration` for a text that does not match :data:`PATTERN` (signs, other units), and
    for more than Go's durations can hold: the API server and Kubernetes' other programs take no such text."""
    if _WHOLE.fullmatch(text) is None:
        raise InvalidDuration(f"invalid duration {text[:40]!r}: write numbers with units ms, s, m or h, such as 1m30s")
    return _held(text, sum(float(number) * _SECONDS[unit] for number, unit in _PART.findall(text)))


def is_within(text: str, bounds: tuple[float, float]) -> bool:
    """Whether the text is a duration of at least and at most so many seconds."""
    try:
        return bounds[0] <= parse_duration(text) <= bounds[1]
    except InvalidDuration:
        return False


def format_duration(seconds: float) -> str:
    """A duration for people, rounded to seconds (to milliseconds below one): ``1h30m``, ``2m``, ``100ms``, ``0s``."""
    if 0 < seconds < 1:
        return f"{round(seconds * 1000)}ms"
    rest = round(seconds)
    parts = []
    for unit, size in (("h", 3600), ("m", 60), ("s", 1)):
        count, rest = divmod(rest, size)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts) or "0s"


def parse_go_duration(text: str) -> float:
    """Seconds, below zero for a text with a minus sign. Raises :class:`InvalidDuration` for what Go does not take."""
    if _GO_WHOLE.fullmatch(text) is None:
        raise InvalidDuration(f"invalid duration {text[:40]!r}: write numbers with units, such as 10s, 1m30s or 500ms")
    nanoseconds = sum(Fraction(number) * _NANOSECONDS[unit] for number, unit in _GO_PART.findall(text))
    return _held(text, float(min(nanoseconds / 10**9, 2**64))) * (-1 if text.startswith("-") else 1)


def _held(text: str, seconds: float) -> float:
    if seconds > LONGEST:
        raise InvalidDuration(f"invalid duration {text[:40]!r}: durations end at {format_duration(LONGEST)}")
    return seconds


def go_duration(seconds: float) -> str:
    """As Go prints it, exact to the nanosecond: ``10s``, ``1m30s``, ``1.5s``, ``500ms``, ``0s``."""
    rest = round(Fraction(seconds) * 10**9)
    sign, rest = ("-", -rest) if rest < 0 else ("", rest)
    for unit in ("ns", "µs", "ms"):
        if 0 < rest < _NANOSECONDS["s"] and rest < _NANOSECONDS[unit] * 1000:
            return f"{sign}{_decimal(rest, _NANOSECONDS[unit])}{unit}"
    hours, rest = divmod(rest, _NANOSECONDS["h"])
    minutes, rest = divmod(rest, _NANOSECONDS["m"])
    above = f"{hours}h{minutes}m" if hours else f"{minutes}m" if minutes else ""
    return f"{sign}{above}{_decimal(rest, _NANOSECONDS['s'])}s"


def _decimal(count: int, unit: int) -> str:
    """``count / unit`` without trailing zeros; ``unit`` is a power of ten."""
    whole, rest = divmod(count, unit)
    return f"{whole}.{rest:0{len(str(unit)) - 1}d}".rstrip("0") if rest else str(whole)
