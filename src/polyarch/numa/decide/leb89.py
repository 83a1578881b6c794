"""Whole numbers in base 89, as placement vectors write them (NE-091): a text that JSON, XML and shells leave alone.

The first 64 characters of the alphabet end a number, the last 25 continue it. Small numbers take one character. Pure.
"""

from collections.abc import Iterable
from typing import Final

ALPHABET: Final = "".join(chr(code) for code in range(0x21, 0x7F) if chr(code) not in '"&<>\\')
ENDING: Final = 64
CONTINUING: Final = len(ALPHABET) - ENDING

_DIGITS: Final = {character: digit for digit, character in enumerate(ALPHABET)}


class MalformedNumbers(ValueError):  # noqa: N818 - what is the case
    """The text is not a sequence of numbers in base 89."""


def encode(numbers: Iterable[int]) -> str:
    """Raises ValueError for a negative number."""
    return "".join(_encoded(each) for each in numbers)


def decode(text: str) -> list[int]:
    """The numbers. Raises :class:`MalformedNumbers`."""
    numbers = []
    high: int | None = None
    for character in text:
        digit = _DIGITS.get(character)
        if digit is None:
            raise MalformedNumbers(f"{character!r} is not a digit in base 89")
        if digit >= ENDING:
            high = (high or 0) * CONTINUING + digit - ENDING
            continue
        numbers.append(digit if high is None else ENDING + high * ENDING + digit)
        high = None
    if high is not None:
        raise MalformedNumbers("the last number does not end")
    return numbers


def _encoded(number: int) -> str:
    if number < 0:
        raise ValueError(f"{number} is negative; base 89 has no sign")
    if number < ENDING:
        return ALPHABET[number]
    high, low = divmod(number - ENDING, ENDING)
    text = ALPHABET[low]
    while True:
        high, digit = divmod(high, CONTINUING)
        text = ALPHABET[ENDING + digit] + text
        if not high:
            return text
