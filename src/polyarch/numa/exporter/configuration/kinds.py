"""Kinds of values: how each is written on a command line, how in a file, and how it is kept (NE-131, NE-135).

A value is kept as a file has it, so a dump says what was read: durations as whole nanoseconds. ``settled`` makes of it
what ``ExporterSettings`` hold. Pure.
"""

import ipaddress
import re
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final, Protocol

import msgspec

from polyarch.durations import InvalidDuration, parse_duration
from polyarch.numa.api.scan_settings import PodPattern
from polyarch.numa.decide.exclusions import MalformedPattern, pattern
from polyarch.numa.exporter.configuration.invalid import Unusable

SECOND: Final = 1_000_000_000
"""Nanoseconds."""
LARGEST: Final = 2**63 - 1
"""Of a whole number: Go's ``int64``."""

_TRUE: Final = frozenset({"1", "t", "T", "true", "TRUE", "True"})
_FALSE: Final = frozenset({"0", "f", "F", "false", "FALSE", "False"})
_WHOLE: Final = re.compile(r"[+-]?[0-9]{1,19}", re.ASCII)
_LABEL: Final = re.compile(r"([A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?)?", re.ASCII)


class Kind(Protocol):
    """One of them. A value that does not fit raises :class:`Unusable`."""

    def of_text(self, text: str) -> Any:
        """From a flag or a variable of the environment."""
        ...

    def of_file(self, found: object) -> Any:
        """From a file, where a null never comes here: it means that nothing is said."""
        ...

    def in_file(self, value: Any) -> object:
        """As a file spells it."""
        ...

    def settled(self, value: Any) -> Any:
        """As the settings hold it."""
        ...


class Boolean(msgspec.Struct, frozen=True):
    """Texts are those that Go's flags take."""

    def of_text(self, text: str) -> bool:
        if text in _TRUE:
            return True
        if text in _FALSE:
            return False
        raise Unusable(f"{_quoted(text)} is neither true nor false")

    def of_file(self, found: object) -> bool:
        if isinstance(found, bool):
            return found
        raise _wrong_type(found, "true or false")

    def in_file(self, value: bool) -> object:
        return value

    def settled(self, value: bool) -> bool:
        return value


class Whole(msgspec.Struct, frozen=True):
    """A whole number within bounds."""

    least: int = 0
    most: int = LARGEST

    def of_text(self, text: str) -> int:
        if _WHOLE.fullmatch(text) is None:
            raise Unusable(f"{_quoted(text)} is not a whole number")
        return self._within(int(text))

    def of_file(self, found: object) -> int:
        if isinstance(found, bool) or not isinstance(found, int):
            raise _wrong_type(found, "a whole number")
        return self._within(found)

    def in_file(self, value: int) -> object:
        return value

    def settled(self, value: int) -> int:
        return value

    def _within(self, value: int) -> int:
        if self.least <= value <= self.most:
            return value
        bounds = f"at least {self.least}" if self.most == LARGEST else f"from {self.least} to {self.most}"
        raise Unusable(f"{value} is out of range; expected {bounds}")


class Duration(msgspec.Struct, frozen=True):
    """Text as Go writes it (``1m30s``), whole nanoseconds in a file and here, seconds in the settings."""

    least: int = 0

    def of_text(self, text: str) -> int:
        if text.lstrip("+-") == "0":
            return self._within(0)
        try:
            seconds = parse_duration(text.removeprefix("-").removeprefix("+"))
        except InvalidDuration as error:
            raise Unusable(str(error)) from None
        return self._within(round(-seconds * SECOND if text.startswith("-") else seconds * SECOND))

    def of_file(self, found: object) -> int:
        if isinstance(found, bool) or not isinstance(found, int):
            raise _wrong_type(found, f"whole nanoseconds, such as {SECOND} for one second")
        return self._within(found)

    def in_file(self, value: int) -> object:
        return value

    def settled(self, value: int) -> float:
        return value / SECOND

    def _within(self, value: int) -> int:
        if value < self.least:
            raise Unusable("a duration must not be negative" if value < 0 else "a duration must be longer than 0 here")
        if value > LARGEST:
            raise Unusable(f"a duration must not be longer than {LARGEST} nanoseconds")
        return value


class Text(msgspec.Struct, frozen=True):
    """Any text that the check lets through; it raises :class:`Unusable`."""

    check: Callable[[str], None] = lambda _: None

    def of_text(self, text: str) -> str:
        self.check(text)
        return text

    def of_file(self, found: object) -> str:
        if not isinstance(found, str):
            raise _wrong_type(found, "a text")
        return self.of_text(found)

    def in_file(self, value: str) -> object:
        return value

    def settled(self, value: str) -> str:
        return value


class Word(msgspec.Struct, frozen=True):
    """One of several words. The empty one, where it is allowed, says nothing."""

    choices: tuple[str, ...]
    optional: bool = False

    def of_text(self, text: str) -> str:
        if text in self.choices or (self.optional and not text):
            return text
        raise Unusable(f"unknown value {_quoted(text)}; expected one of {', '.join(self.choices)}")

    def of_file(self, found: object) -> str:
        if not isinstance(found, str):
            raise _wrong_type(found, f"one of {', '.join(self.choices)}")
        return self.of_text(found)

    def in_file(self, value: str) -> object:
        return value

    def settled(self, value: str) -> str:
        return value


class Names(msgspec.Struct, frozen=True):
    """Known names, separated by commas."""

    known: Collection[str]
    what: str
    """What they are names of."""

    def of_text(self, text: str) -> tuple[str, ...]:
        return self._checked(tuple(name.strip() for name in text.split(",") if name.strip()))

    def of_file(self, found: object) -> tuple[str, ...]:
        if isinstance(found, str):
            return self.of_text(found)
        return self._checked(_texts(found, "names separated by commas, or a list of them"))

    def in_file(self, value: tuple[str, ...]) -> object:
        return ",".join(value)

    def settled(self, value: tuple[str, ...]) -> tuple[str, ...]:
        return value

    def _checked(self, names: tuple[str, ...]) -> tuple[str, ...]:
        for name in names:
            if name not in self.known:
                raise Unusable(f"unknown {self.what} {_quoted(name)}; known are {', '.join(sorted(self.known))}")
        return names


class ResourceLists(msgspec.Struct, frozen=True):
    """``resourceExclude``: resources by the node's name, or ``*`` for every node (NE-071). Files alone have it."""

    def of_text(self, text: str) -> Mapping[str, tuple[str, ...]]:
        raise Unusable("resources are excluded in a file")

    def of_file(self, found: object) -> Mapping[str, tuple[str, ...]]:
        if not isinstance(found, dict):
            raise _wrong_type(found, "lists of resources by node name")
        lists = {}
        for node, resources in found.items():
            if not isinstance(node, str):
                raise _wrong_type(node, "a node's name or *")
            try:
                lists[node] = () if resources is None else _texts(resources, "a list of resources")
            except Unusable as error:
                raise Unusable(f"{_quoted(node)}: {error}") from None
        return lists

    def in_file(self, value: Mapping[str, tuple[str, ...]]) -> object:
        return {node: list(resources) for node, resources in value.items()}

    def settled(self, value: Mapping[str, tuple[str, ...]]) -> Mapping[str, tuple[str, ...]]:
        return value


class PodPatterns(msgspec.Struct, frozen=True):
    """``podExclude``: pairs of shell globs (NE-067). Files alone have it."""

    def of_text(self, text: str) -> tuple[PodPattern, ...]:
        raise Unusable("pods are excluded in a file")

    def of_file(self, found: object) -> tuple[PodPattern, ...]:
        if not isinstance(found, list):
            raise _wrong_type(found, "a list of {namespacePattern, namePattern}")
        return tuple(self._item(number, item) for number, item in enumerate(found))

    def in_file(self, value: tuple[PodPattern, ...]) -> object:
        return [{"namespacePattern": each.namespace, "namePattern": each.name} for each in value]

    def settled(self, value: tuple[PodPattern, ...]) -> tuple[PodPattern, ...]:
        return value

    def _item(self, number: int, item: object) -> PodPattern:
        if not isinstance(item, dict):
            raise Unusable(f"[{number}]: {_wrong_type(item, 'namespacePattern and namePattern')}")
        unknown = sorted(str(key) for key in item if key not in ("namespacePattern", "namePattern"))
        if unknown:
            raise Unusable(f"[{number}]: unknown key {_quoted(unknown[0])}; expected namespacePattern and namePattern")
        return PodPattern(
            namespace=self._glob(number, item, "namespacePattern"), name=self._glob(number, item, "namePattern")
        )

    def _glob(self, number: int, item: Mapping[str, object], key: str) -> str:
        found = item.get(key)
        if not isinstance(found, str):
            raise Unusable(f"[{number}].{key}: {_wrong_type(found, 'a shell glob, such as *')}")
        try:
            pattern(found)
        except MalformedPattern as error:
            raise Unusable(f"[{number}].{key}: {error}") from None
        return found


def label_value(text: str) -> None:
    """A check of what becomes the value of a label."""
    if _LABEL.fullmatch(text) is None:
        raise Unusable(f"{_quoted(text)} cannot be a label's value: at most 63 letters, digits, '-', '_' and '.'")


def ip_address(text: str) -> None:
    """A check of what a server listens on; empty for all addresses."""
    try:
        ipaddress.ip_address(text or "::")
    except ValueError:
        raise Unusable(f"{_quoted(text)} is not an IP address") from None


def socket_url(text: str) -> None:
    """A check of where podresources is asked (NE-050, NE-051)."""
    scheme, found, path = text.partition("://")
    if not found or scheme not in ("unix", "fake") or not path.startswith("/"):
        raise Unusable(f"{_quoted(text)} is neither unix:///path/to/socket nor fake:///directory")


def _texts(found: object, expected: str) -> tuple[str, ...]:
    if not isinstance(found, list) or not all(isinstance(item, str) for item in found):
        raise _wrong_type(found, expected)
    return tuple(found)


def _wrong_type(found: object, expected: str) -> Unusable:
    return Unusable(f"{_TYPES.get(type(found), 'a value of another type')} instead of {expected}")


def _quoted(text: str) -> str:
    """As much as an error needs to show."""
    return repr(text if len(text) <= 60 else f"{text[:57]}...")


_TYPES: Final[Mapping[type, str]] = {
    bool: "true or false",
    int: "a number",
    float: "a number with a fraction",
    str: "a text",
    list: "a list",
    dict: "a mapping",
    type(None): "nothing",
}
