"""How an option is declared: the group of the help it stands in, what its value is called, and what it says.

A value's name is part of its type: ``File`` is a ``str`` that help shows as ``FILE`` and that a shell completes with
files. Groups have the same names in the help of every command.
"""

from typing import Annotated

from cyclopts import Group, Parameter

from polyarch.cli.errors import UsageError

RULES = Group("Rules", sort_key=20)
IMAGES = Group("Images", sort_key=30)
OUTPUT = Group("Output", sort_key=40)
REGISTRIES = Group("Registries", sort_key=50)
CLUSTER = Group("Cluster", sort_key=60)


class Placeholder(str):
    """What help calls a value, such as ``FILE``."""

    __slots__ = ()


class CompletionSource(str):
    """Who knows what a value may be: the function, as ``module:name``, that completion calls."""

    __slots__ = ()


Address = Annotated[str, Placeholder("ADDRESS")]
Cidr = Annotated[str, Placeholder("CIDR")]
Context = Annotated[str, Placeholder("CONTEXT")]
Directory = Annotated[str, Placeholder("DIR")]
File = Annotated[str, Placeholder("FILE")]
Glob = Annotated[str, Placeholder("GLOB")]
Host = Annotated[str, Placeholder("HOST")]
Image = Annotated[str, Placeholder("IMAGE")]
KeyValue = Annotated[str, Placeholder("KEY=VALUE")]
Levels = Annotated[str, Placeholder("RULE=LEVEL")]
Name = Annotated[str, Placeholder("NAME")]
Namespace = Annotated[str, Placeholder("NAMESPACE")]
Number = Annotated[int, Placeholder("N")]
Path = Annotated[str, Placeholder("PATH")]
Platforms = Annotated[str, Placeholder("PLATFORMS")]
Port = Annotated[int, Placeholder("PORT")]
Rule = Annotated[str, Placeholder("RULE")]
Rules = Annotated[str, Placeholder("RULES")]
Seconds = Annotated[float, Placeholder("SECONDS")]
Tag = Annotated[str, Placeholder("TAG")]
Weights = Annotated[str, Placeholder("ARCH=WEIGHT")]


def subject(title: str) -> Group:
    """The first group of a command: what it is about."""
    return Group(title, sort_key=10)


def option(
    help: str,
    *names: str,
    group: Group,
    show_default: bool | str = True,
    hyphen: bool = False,
    several: bool = False,
) -> Parameter:
    """An option with a value, or an argument; one that is a list may be repeated.

    ``show_default`` is what help shows as its default, where that is not the value itself. ``hyphen``: a value may
    begin with ``-``, which alone is standard input. ``several``: values may follow each other, as a shell makes them of
    a pattern.
    """
    return Parameter(
        name=names or None,
        help=help,
        group=group,
        negative="",
        show_default=show_default,
        allow_leading_hyphen=hyphen,
        consume_multiple=several,
    )


def flag(help: str, *names: str, group: Group) -> Parameter:
    """An option without a value."""
    return Parameter(name=names or None, help=help, group=group, negative="", show_default=False)


def check_seconds(option: str, seconds: float, *, may_be_zero: bool = False) -> None:
    """:class:`UsageError` unless it is a number of seconds that ends; ``may_be_zero``: 0 is one.

    The type alone lets through what no work can be done with, such as nan.
    """
    if may_be_zero and seconds == 0:
        return
    if not 0 < seconds < float("inf"):
        expected = "a number of seconds, 0 or more" if may_be_zero else "a number of seconds greater than 0"
        raise UsageError(f"{option} {seconds:g}: expected {expected}")
