"""Readers for values of unchecked types: a member of another type counts as empty.

Pure.
"""

from collections.abc import Mapping
from typing import Any


def mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def elements(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def mappings(value: object) -> list[Mapping[str, Any]]:
    """The mappings of a list; its other elements are left out."""
    return [each for each in elements(value) if isinstance(each, Mapping)]


def at(value: object, *path: str) -> Any:
    """The member at a path of keys, None where there is none."""
    for key in path:
        value = mapping(value).get(key)
    return value
