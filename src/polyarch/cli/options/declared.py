"""The options and arguments of a command, as they were declared: what help prints and a shell completes."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, get_args

from cyclopts import App

from polyarch.cli.options.values import Placeholder, Source

if TYPE_CHECKING:
    from cyclopts.argument import Argument

T = TypeVar("T")


class Declared(NamedTuple):
    """One of them."""

    names: tuple[str, ...]
    """As they are typed, short ones first; for an argument its placeholder."""
    group: str
    order: int
    help: str
    placeholder: str = ""
    """Empty for a flag."""
    source: str = ""
    """What knows the values there are (``values.Source``)."""
    choices: tuple[str, ...] = ()
    default: str = ""
    is_argument: bool = False
    is_repeated: bool = False
    """An argument that takes any number of values."""
    is_required: bool = False


class WordsApp(App):
    """A command that reads its words itself, where cyclopts does not read them as its users write them."""

    list_options: "Callable[[], list[Declared]]"
    """What help and completion show of it."""


def declared(command: "App") -> list[Declared]:
    """Those of a command in the order of its help; hidden ones are left out."""
    if isinstance(command, WordsApp):
        return command.list_options()
    if command.default_command is None:
        return []
    found = [of_argument(argument) for argument in command.assemble_argument_collection() if argument.show]
    return sorted(found, key=lambda each: each.order)


def of_argument(argument: "Argument") -> Declared:
    """One of them."""
    info, parameter = argument.field_info, argument.parameter
    (group, *_) = parameter.group if isinstance(parameter.group, tuple) and parameter.group else (None,)
    title, order = getattr(group, "name", ""), getattr(group, "sort_key", 0)
    is_flag = argument.is_flag()
    is_argument = info.is_positional
    placeholder = "" if is_flag else next(_marks(info.annotation, Placeholder), "VALUE")
    return Declared(
        names=(placeholder,) if is_argument else tuple(sorted(argument.names, key=lambda name: name.startswith("--"))),
        group=title,
        order=order if isinstance(order, int) else 0,
        help=parameter.help or "",
        placeholder=placeholder,
        source=next(_marks(info.annotation, Source), ""),
        choices=() if is_flag else argument.get_choices(force=True) or (),
        default=_default(argument),
        is_argument=is_argument,
        is_repeated=info.kind == info.VAR_POSITIONAL,
        is_required=argument.required,
    )


def _default(argument: "Argument") -> str:
    shown = argument.parameter.show_default
    if isinstance(shown, str):
        return shown
    value = argument.field_info.default
    if shown is False or value is argument.field_info.empty or value in (None, "", (), []) or isinstance(value, bool):
        return ""
    return f"{value:g}" if isinstance(value, float) else str(value)


def _marks(annotation: Any, kind: type[T]) -> Iterator[T]:
    """The values of this type in a type, however deep."""
    if isinstance(annotation, kind):
        yield annotation
    for part in get_args(annotation):
        yield from _marks(part, kind)
