"""Typed reading of TOML configuration files of other tools.

A mirror that is silently ignored sends requests to the wrong place, so the type of every known member is checked, and
errors name the file, the entry and what to write. Unknown members are left to other tools.

Pure after the file is read: imports neither asyncio nor aiohttp.
"""

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any


class InvalidConfiguration(ValueError):  # noqa: N818 - the name says what is the matter
    """An unusable file or object with registry configuration: a usage error."""

    def __init__(self, origin: str, entry: str, problem: str) -> None:
        super().__init__(f"{origin}: {entry}: {problem}" if entry else f"{origin}: {problem}")
        self.origin = origin
        self.entry = entry
        self.problem = problem


class Table:
    """One table of a file, with typed access to members; ``entry`` names it in errors."""

    def __init__(self, origin: str, entry: str, members: Mapping[str, Any]) -> None:
        self.origin = origin
        self.entry = entry
        self.members = members

    def invalid(self, problem: str) -> InvalidConfiguration:
        return InvalidConfiguration(self.origin, self.entry, problem)

    def text(self, name: str) -> str:
        """The string, or "" if absent."""
        return self._typed(name, str, "a text") or ""

    def boolean(self, name: str) -> bool:
        return bool(self._typed(name, bool, "true or false"))

    def texts(self, name: str) -> tuple[str, ...] | None:
        """The list of strings; None if absent, which may differ from an empty list."""
        value = self.members.get(name)
        if value is None:
            return None
        if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
            raise self.invalid(f"{name} must be a list of texts")
        return tuple(value)

    def table(self, name: str) -> "Table":
        """The nested table; empty if absent."""
        value = self.members.get(name, {})
        if not isinstance(value, dict):
            raise self.invalid(f"{name} must be a table")
        return Table(self.origin, f"{self.entry}.{name}" if self.entry else name, value)

    def tables(self, name: str) -> "list[Table]":
        """The array of tables ``[[name]]``; errors count them from 1."""
        value = self.members.get(name, [])
        if not isinstance(value, list) or not all(isinstance(each, dict) for each in value):
            raise self.invalid(f"{name} must be an array of tables, written [[{name}]]")
        prefix = f"{self.entry}, " if self.entry else ""
        return [Table(self.origin, f"{prefix}{name} {count}", each) for count, each in enumerate(value, start=1)]

    def _typed(self, name: str, kind: type, expected: str) -> Any:
        value = self.members.get(name)
        if value is not None and not isinstance(value, kind):
            raise self.invalid(f"{name} must be {expected}, not {value!r}")
        return value


def read_table(path: Path, origin: str) -> Table:
    """The file's top-level table; :class:`InvalidConfiguration` with the position if it is not TOML."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise InvalidConfiguration(origin, "", f"cannot be read: {error.strerror}") from error
    return table_of(content, origin)


def table_of(content: bytes, origin: str) -> Table:
    """The same of what is in a file."""
    try:
        return Table(origin, "", tomllib.loads(content.decode("utf-8")))
    except UnicodeDecodeError as error:
        raise InvalidConfiguration(origin, "", f"is not UTF-8 at byte {error.start}") from error
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise InvalidConfiguration(origin, "", f"is not TOML: {error}") from error
