"""Flags of a command that may also come from the environment: ``--log-format`` is ``POLYARCH_LOG_FORMAT``.

The command line wins over the environment, and the environment over the default. An error names the flag or the
variable that the wrong value came from. Values of a repeatable flag are separated by white space.
"""

import os
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import msgspec
from cyclopts import UNSET, Parameter, Token
from cyclopts.config import Env

from polyarch.cli.errors import UsageError
from polyarch.cli.options.help_page import OptionDeclaration, of_argument

if TYPE_CHECKING:
    from cyclopts import App, ArgumentCollection
    from cyclopts.argument import Argument

PREFIX = "POLYARCH_"
PRINT = "--print-settings"
HIDDEN = "--settings-as-read"


class Setting(NamedTuple):
    """One setting of a process: its flag, its value as text, and where the value came from."""

    flag: str
    value: str
    source: str
    """``default``, a variable of the environment, or ``command line``."""


AsRead = Annotated[str, Parameter(name=HIDDEN, show=False)]
"""A parameter that gets the settings as they were read, if ``--print-settings`` was given; see :func:`printed`."""


def variable(flag: str) -> str:
    """The environment variable of a flag."""
    return PREFIX + flag.removeprefix("--").replace("-", "_").upper()


def from_environment(app: "App", commands: tuple[str, ...], arguments: "ArgumentCollection") -> None:
    """A ``config`` for the command of a process. ``UsageError`` for a variable that can only be a misspelt flag."""
    flags = {long[0]: each for each in arguments if (long := [name for name in each.names if name.startswith("--")])}
    options = {
        name: of_argument(each) for name, each in flags.items() if each.show and not each.field_info.is_positional
    }
    _refuse_misspelt({variable(name) for name in options})
    Env(PREFIX, command=False)(app, commands, arguments)
    if flags[PRINT].tokens:
        shown = sorted((each.order, name) for name, each in options.items() if name != PRINT)
        text = msgspec.json.encode([_setting(name, options[name], flags[name]) for _, name in shown]).decode()
        flags[HIDDEN].append(Token(keyword=HIDDEN, value=text, source="settings"))


def printed(as_read: str) -> str:
    """The settings as a table."""
    from polyarch.cli.output.tables import Row, table

    rows = msgspec.json.decode(as_read, type=list[Setting])
    return table(("SETTING", "VALUE", "FROM"), [Row(row) for row in rows])


def _refuse_misspelt(known: set[str], environment: Mapping[str, str] = os.environ) -> None:
    from difflib import get_close_matches

    for name in sorted(environment):
        if name.startswith(PREFIX) and name not in known and (close := get_close_matches(name, known, n=1, cutoff=0.9)):
            raise UsageError(f"{name} in the environment is no setting; did you mean {close[0]}?")


def _setting(flag: str, option: OptionDeclaration, argument: "Argument") -> Setting:
    if not argument.tokens:
        return Setting(flag, option.default or _text(argument.field_info.default), "default")
    values = " ".join(_values(argument))
    keyword = argument.tokens[-1].keyword or ""
    return Setting(flag, values, keyword if keyword.startswith(PREFIX) else "command line")


def _values(argument: "Argument") -> Iterator[str]:
    for token in argument.tokens:
        yield token.value if token.implicit_value is UNSET else _text(token.implicit_value)


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return "" if value is None or not isinstance(value, str | int | float) else str(value)
