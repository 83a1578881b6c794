"""``--help``: what a command is for, how it is called, its options in groups, examples and exit codes.

A page is one text. cyclopts' own pages are tables of rich, whose import and layout cost a tenth of the time that
``polyarch lint --help`` may take.
"""

import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, get_args

from cyclopts import App

from polyarch.cli.options.values import OUTPUT, CompletionSource, Placeholder
from polyarch.cli.output.terminal import styled

if TYPE_CHECKING:
    from cyclopts.argument import Argument

FLAGS = ("--help", "-h")
MARGIN, GAP = 2, 2
WIDEST_NAMES = 28
"""Names that are longer have a line of their own, so that the meanings keep their room."""
NARROWEST_MEANING = 30
WIDEST_PAGE = 110


class Entry(NamedTuple):
    """What stands on the left, and what it means."""

    names: str
    meaning: str


HELP = Entry("-h, --help", "Print help")
VERSION = Entry("    --version", "Print the version")


def asks_for_help(words: Sequence[str]) -> bool:
    """Whether a command line is a question; behind ``--`` nothing is an option."""
    options = words[: words.index("--")] if "--" in words else words
    return any(word in FLAGS for word in options)


def names_no_command(root: "App", words: Sequence[str]) -> bool:
    """Whether a command line ends before it says what to do: nothing at all, or ``polyarch build``."""
    if any(word.startswith("-") for word in words):
        return False
    command = root
    for word in words:
        if word not in command:
            return False
        command = command[word]
    return command.default_command is None


def epilogue(examples: Sequence[tuple[str, str]], exits: Sequence[tuple[int, str]], *, note: str = "") -> str:
    """The end of a page: an introduction, examples with what they do, and what the exit codes mean."""
    parts = [note] if note else []
    if examples:
        parts.append("Examples:\n" + "\n\n".join(f"  # {what}\n  {command}" for what, command in examples))
    parts.append("Exit codes:\n" + "\n".join(f"  {code}  {meaning}" for code, meaning in exits))
    return "\n\n".join(parts)


def help_page(root: "App", words: Sequence[str], *, width: int, colour: bool = False) -> str | None:
    """The page of the command that the words name; None if they name none."""
    chain, path, rest = root.parse_commands([word for word in words if word not in FLAGS])
    command = path[-1]
    if command.default_command is None and any(not word.startswith("-") for word in rest):
        return None
    width = min(width, WIDEST_PAGE)
    options = declared(command)
    commands = _commands(command)
    parts = [
        "\n".join(line for text in command.help.split("\n") for line in textwrap.wrap(text, width) or [""]).strip(),
        f"{styled('Usage:', 'bold', colour=colour)} {_usage(root, chain, options, has_commands=bool(commands))}",
    ]
    parts += [_panel(title, entries, width, colour) for title, entries in commands]
    if command is root:
        parts.append(_panel("Options", [HELP, VERSION], width, colour))
    parts += [_panel(title, entries, width, colour) for title, entries in _groups(options)]
    if command.help_epilogue:
        parts.append(_headed(command.help_epilogue.strip(), colour))
    if commands:
        parts.append(f"Run `{' '.join(('polyarch', *chain))} COMMAND --help` for the options of a command.")
    return "\n\n".join(part for part in parts if part) + "\n"


class OptionDeclaration(NamedTuple):
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


def _usage(root: "App", chain: Sequence[str], options: Sequence[OptionDeclaration], *, has_commands: bool) -> str:
    words = [root.name[0], *chain]
    if has_commands and not options:
        words.append("COMMAND")
    if any(not each.is_argument for each in options):
        words.append("[OPTIONS]")
    words += [_argument(each) for each in options if each.is_argument]
    return " ".join(words)


def _argument(each: OptionDeclaration) -> str:
    name = each.placeholder if each.is_required and not each.is_repeated else f"[{each.placeholder}]"
    return f"{name}..." if each.is_repeated else name


def _commands(command: "App") -> list[tuple[str, list[Entry]]]:
    """Sub-commands by their group, none of them loaded."""
    found: dict[str, list[Entry]] = {}
    for name in command:
        item = command._get_item(name)
        if name.startswith("-") or not item.show:
            continue
        group = item.group[0] if isinstance(item.group, tuple) and item.group else item.group
        title = str(getattr(group, "name", group) or "Commands")
        found.setdefault(title, []).append(Entry(name, item.help or ""))
    return list(found.items())


def _groups(options: Iterable[OptionDeclaration]) -> Iterator[tuple[str, list[Entry]]]:
    found: dict[str, list[Entry]] = {}
    for each in options:
        found.setdefault(each.group, []).append(Entry(_names(each), _meaning(each)))
    if OUTPUT.name in found:
        found[OUTPUT.name].append(HELP)
    yield from found.items()


def _names(each: OptionDeclaration) -> str:
    if each.is_argument:
        return _argument(each)
    short = "" if each.names[0].startswith("--") else each.names[0]
    long = ", ".join(name for name in each.names if name != short)
    names = f"{short}, {long}" if short and long else short or f"    {long}"
    return f"{names} {each.placeholder}".rstrip()


def _meaning(each: OptionDeclaration) -> str:
    listed = each.choices and not all(choice in each.help for choice in each.choices)
    remarks = (
        f"[one of: {', '.join(each.choices)}]" if listed else "",
        f"[default: {each.default}]" if each.default else "",
    )
    return " ".join(part for part in (each.help, *remarks) if part)


def _panel(title: str, entries: Sequence[Entry], width: int, colour: bool) -> str:
    left = min(max(len(entry.names) for entry in entries), WIDEST_NAMES)
    room = max(width - MARGIN - left - GAP, NARROWEST_MEANING)
    lines = [styled(f"{title}:", "bold", colour=colour)]
    for names, meaning in entries:
        first, *others = textwrap.wrap(meaning, room, break_on_hyphens=False, break_long_words=False) or [""]
        shown = styled(names, "cyan", colour=colour)
        if len(names) > left and first:
            others = [first, *others]
            lines.append(" " * MARGIN + shown)
        else:
            lines.append((" " * MARGIN + shown + " " * (left - len(names) + GAP) + first).rstrip())
        lines += [" " * (MARGIN + left + GAP) + line for line in others]
    return "\n".join(lines)


def _headed(text: str, colour: bool) -> str:
    """The headings among the lines, which begin at the margin and end with a colon."""
    return "\n".join(
        styled(line, "bold", colour=colour) if line.endswith(":") and not line.startswith(" ") else line
        for line in text.split("\n")
    )


# -- the options of a command, as help prints them and a shell completes them


T = TypeVar("T")


class WordsApp(App):
    """A command that reads its words itself, where cyclopts does not read them as its users write them."""

    list_options: "Callable[[], list[OptionDeclaration]]"
    """What help and completion show of it."""


def declared(command: "App") -> list[OptionDeclaration]:
    """Those of a command in the order of its help; hidden ones are left out."""
    if isinstance(command, WordsApp):
        return command.list_options()
    if command.default_command is None:
        return []
    found = [of_argument(argument) for argument in command.assemble_argument_collection() if argument.show]
    return sorted(found, key=lambda each: each.order)


def of_argument(argument: "Argument") -> OptionDeclaration:
    """One of them."""
    info, parameter = argument.field_info, argument.parameter
    (group, *_) = parameter.group if isinstance(parameter.group, tuple) and parameter.group else (None,)
    title, order = getattr(group, "name", ""), getattr(group, "sort_key", 0)
    is_flag = argument.is_flag()
    is_argument = info.is_positional
    placeholder = "" if is_flag else next(_marks(info.annotation, Placeholder), "VALUE")
    return OptionDeclaration(
        names=(placeholder,) if is_argument else tuple(sorted(argument.names, key=lambda name: name.startswith("--"))),
        group=title,
        order=order if isinstance(order, int) else 0,
        help=parameter.help or "",
        placeholder=placeholder,
        source=next(_marks(info.annotation, CompletionSource), ""),
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
