"""Names of zones, and lists of named values as objects and zones carry them (NE-006). Pure."""

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Final

from polyarch.numa.api.topology import Attribute

_ZONE: Final = "node-"
_MOST_DIGITS: Final = 9
"""No machine has more cells, and a text from elsewhere must not cost more than a glance."""


def zone_name(cell: int) -> str:
    """``node-<id>``. Raises ValueError for a negative id."""
    if cell < 0:
        raise ValueError(f"{cell} is not the id of a cell; ids begin at 0")
    return f"{_ZONE}{cell}"


@lru_cache(maxsize=1 << 10)  # a fleet has few names of zones, each of them in many places
def cell_id(zone: str) -> int | None:
    """The cell that a zone of this name stands for; None: it is not a cell."""
    digits = zone.removeprefix(_ZONE)
    if digits == zone or not (digits.isascii() and digits.isdecimal()) or len(digits) > _MOST_DIGITS:
        return None
    return int(digits) if digits == "0" or digits[0] != "0" else None


def value(attributes: Iterable[Attribute], name: str) -> str | None:
    """Of the first attribute of this name; None: there is none."""
    return next((each.value for each in attributes if each.name == name), None)


def with_value(attributes: Sequence[Attribute], name: str, new: str) -> list[Attribute]:
    """The first attribute of this name has the value, in its place; appended if there is none."""
    attribute = Attribute(name, new)
    for index, each in enumerate(attributes):
        if each.name == name:
            return [*attributes[:index], attribute, *attributes[index + 1 :]]
    return [*attributes, attribute]


def merged(attributes: Sequence[Attribute], newer: Iterable[Attribute]) -> list[Attribute]:
    """All of both in their order; where both have a name, the newer value in the older place."""
    result = list(attributes)
    for each in newer:
        result = with_value(result, each.name, each.value)
    return result


def without(attributes: Iterable[Attribute], name: str) -> list[Attribute]:
    """All but those of this name."""
    return [each for each in attributes if each.name != name]
