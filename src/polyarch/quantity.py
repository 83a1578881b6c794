"""Quantities of Kubernetes (``1500m``, ``16Gi``, ``12e6``) as whole thousandths, compared without rounding. Pure.

The API server keeps no request of a pod finer than a thousandth, so a request that is rounded up and an amount that is
rounded down compare as the exact values do. It takes any number of digits and any exponent, and keeps them as they are:
``1e400`` CPUs is a valid request of a pod. Source: ``apimachinery/pkg/api/resource``."""

import math
import re
from fractions import Fraction
from typing import Final, Literal

UNIT: Final = 1000
"""Thousandths of one: of one CPU, one byte, one device."""
MOST: Final = (1 << 63) - 1
"""What an array of 64-bit numbers holds; larger amounts count as this one."""
ABBREVIATED: Final = 1_000_000
"""From this number on people are told a short form of it."""

_SUFFIXES: Final = {
    "n": Fraction(1, 10**9), "u": Fraction(1, 10**6), "m": Fraction(1, 1000), "": Fraction(1),
    "k": Fraction(10**3), "M": Fraction(10**6), "G": Fraction(10**9), "T": Fraction(10**12), "P": Fraction(10**15),
    "E": Fraction(10**18), "Ki": Fraction(2**10), "Mi": Fraction(2**20), "Gi": Fraction(2**30), "Ti": Fraction(2**40),
    "Pi": Fraction(2**50), "Ei": Fraction(2**60),
}  # fmt: skip
_SHAPE: Final = re.compile(
    r"([+-]?)([0-9]{1,4000}(?:\.[0-9]{0,4000})?|\.[0-9]{1,4000})(?:([eE])([+-]?[0-9]+)|([numkMGTPE]|[KMGTPE]i)?)",
    re.ASCII,
)
_WHOLE: Final = {suffix: int(scale * UNIT) for suffix, scale in _SUFFIXES.items() if suffix not in ("n", "u")}
_LETTERS: Final = "".join({letter for suffix in _SUFFIXES for letter in suffix})
_SURELY_DIGITS: Final = 64
_FARTHEST: Final = 9999
"""An exponent of more moves every number that has so few digits beyond all amounts, or below the least."""
_DECIMAL: Final = (("E", 10**18), ("P", 10**15), ("T", 10**12), ("G", 10**9), ("M", 10**6))
Rounding = Literal["up", "down"]


class InvalidQuantity(ValueError):  # noqa: N818 - what is the case
    """The text is no quantity; the message says which text."""


def thousandths(quantity: str | float, rounding: Rounding) -> int:
    """At most :data:`MOST`, at least its negative. Raises :class:`InvalidQuantity`."""
    if isinstance(quantity, str):
        digits = quantity.rstrip(_LETTERS)
        scale = _WHOLE.get(quantity[len(digits) :])
        if scale and digits.isdecimal() and digits.isascii() and len(digits) <= _SURELY_DIGITS:
            return min(MOST, int(digits) * scale)  # what nearly all are, at a twentieth of the price
    if isinstance(quantity, int):
        exact = Fraction(quantity) * UNIT
    else:
        found = _SHAPE.fullmatch(quantity if isinstance(quantity, str) else repr(quantity))
        if found is None:
            raise InvalidQuantity(f"{str(quantity)[:40]!r} is not a quantity such as 500m, 4 or 16Gi")
        sign, number, _, exponent, suffix = found.groups()
        power = Fraction(10) ** _exponent(exponent) if exponent else _SUFFIXES[suffix or ""]
        exact = Fraction(number if number[-1] != "." else number[:-1]) * power * UNIT
        if sign == "-":
            exact = -exact
    whole = math.ceil(exact) if rounding == "up" else math.floor(exact)
    return max(-MOST, min(MOST, whole))


def _exponent(text: str) -> int:
    digits = text.lstrip("+-").lstrip("0")
    size = int(digits or "0") if len(digits) <= len(str(_FARTHEST)) else _FARTHEST
    return -size if text[0] == "-" else size


def abbreviated(number: float) -> str:
    """A million or more as quantities are written, rounded down: ``1.2M``, ``9.2P``. Nobody has so many CPUs, but a
    pod may ask for them; no text that is made of it is longer than eight characters."""
    suffix, size = next((each for each in _DECIMAL if number >= each[1]), ("", 1))
    if number >= _DECIMAL[0][1] * 1000:
        return f"{float(number):.1e}"
    tenths = int(number * 10 // size)
    return f"{tenths // 10}{f'.{tenths % 10}' if tenths % 10 else ''}{suffix}"


def spelled(amount: int) -> str:
    """Thousandths for people: ``2``, ``1500m``, ``16Gi``."""
    if amount % UNIT:
        return f"{amount}m"
    whole = amount // UNIT
    for suffix in ("Ei", "Pi", "Ti", "Gi", "Mi", "Ki"):
        size = int(_SUFFIXES[suffix])
        if whole and whole % size == 0:
            return f"{whole // size}{suffix}"
    return str(whole)
