"""Go durations (``1h30m``, ``2.5s``, ``100ms``), the form Kubernetes users know (PL-040)."""

import re
from typing import Final

PATTERN: Final = r"^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$"
"""The pattern that CRDs enforce on duration fields."""

_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h)", re.ASCII)
_WHOLE = re.compile(PATTERN, re.ASCII)
_SECONDS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


class InvalidDuration(ValueError):  # noqa: N818
    """The text is not a duration; the message says what to write."""


def parse_duration(text: str) -> float:
    """Seconds. Raises :class:`InvalidDuration` for a text that does not match :data:`PATTERN` (signs, other units)."""
    if _WHOLE.fullmatch(text) is None:
        raise InvalidDuration(f"invalid duration {text[:40]!r}: write numbers with units ms, s, m or h, such as 1m30s")
    return sum(float(number) * _SECONDS[unit] for number, unit in _PART.findall(text))


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
