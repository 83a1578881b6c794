"""The instructions of a Containerfile, and what each needs (BD-057).

Flags are read but not judged: a builder may know more of them than this table could.
"""

import json
from collections.abc import Callable, Mapping
from difflib import get_close_matches

import msgspec

from polyarch.builds.containerfile import text as texts
from polyarch.builds.containerfile import words
from polyarch.builds.containerfile.statements import HereDocument, Statement
from polyarch.builds.containerfile.text import Fault, shown


class Instruction(msgspec.Struct, frozen=True, kw_only=True):
    """A statement whose flags have been told from its arguments."""

    line: int
    name: str
    arguments: str
    flags: tuple[tuple[str, str], ...] = ()
    """Name without dashes, and value, quotes kept; in the text's order, since a flag may come twice."""
    here_documents: tuple[HereDocument, ...] = ()


class Wants(msgspec.Struct, frozen=True, kw_only=True):
    """What an instruction needs to be complete."""

    complete: Callable[[Instruction, str], bool]
    """Given the escape character too."""
    expected: str
    rule: str = texts.UNREADABLE


def of(statement: Statement, escape: str) -> Instruction:
    """The instruction of a statement."""
    flags: list[tuple[str, str]] = []
    position = 0
    while True:
        word, end = words.first(statement.rest, position, escape)
        if not word.startswith("--") or word == "--":
            break
        name, _, value = word[2:].partition("=")
        flags.append((name, value))
        position = end
    if word == "--":
        position = end
    return Instruction(
        line=statement.line,
        name=statement.name,
        arguments=statement.rest[position:].strip(),
        flags=tuple(flags),
        here_documents=statement.here_documents,
    )


def fault(instruction: Instruction, escape: str, text_name: str) -> Fault | None:
    """What is wrong with an instruction by itself, if anything."""
    wants = INSTRUCTIONS.get(instruction.name)
    if wants is None:
        close = get_close_matches(instruction.name, INSTRUCTIONS, n=1) if len(instruction.name) <= 32 else []
        expected = close[0] if close else "one of " + ", ".join(INSTRUCTIONS)
        problem = f"unknown instruction {shown(instruction.name)}"
        return Fault(text_name=text_name, line=instruction.line, problem=problem, expected=expected, rule=texts.UNKNOWN)
    if wants.complete(instruction, escape):
        return None
    arguments = instruction.arguments
    problem = f"{instruction.name} has {shown(arguments)}" if arguments else f"{instruction.name} has no arguments"
    return Fault(text_name=text_name, line=instruction.line, problem=problem, expected=wants.expected, rule=wants.rule)


def exec_form(arguments: str) -> list[str] | None:
    """The arguments of the form that is a JSON list of texts; None for any other form."""
    if not arguments.startswith("["):
        return None
    try:
        found = json.loads(arguments)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, list) and all(isinstance(each, str) for each in found) else None


def pairs(arguments: str, escape: str) -> list[tuple[str, str]] | None:
    """``name=value …`` or ``name value``, quotes kept; None where it is neither."""
    found = words.split(arguments, escape)
    if found and "=" not in found[0]:
        name, end = words.first(arguments, 0, escape)
        value = arguments[end:].strip()
        return [(name, value)] if value else None
    split = [word.partition("=") for word in found]
    return [(name, value) for name, equals, value in split] if split and all(n and e for n, e, _ in split) else None


def _anything(instruction: Instruction, escape: str) -> bool:
    return True


def _something(instruction: Instruction, escape: str) -> bool:
    return bool(instruction.arguments)


def _command(instruction: Instruction, escape: str) -> bool:
    return bool(instruction.arguments) and exec_form(instruction.arguments) != []


def _paths(instruction: Instruction, escape: str) -> bool:
    listed = exec_form(instruction.arguments)
    return len(words.split(instruction.arguments, escape) if listed is None else listed) >= 2


def _from(instruction: Instruction, escape: str) -> bool:
    found = words.split(instruction.arguments, escape)
    return len(found) == 1 or (len(found) == 3 and found[1].upper() == "AS")


def _pairs(instruction: Instruction, escape: str) -> bool:
    return pairs(instruction.arguments, escape) is not None


def _declarations(instruction: Instruction, escape: str) -> bool:
    found = words.split(instruction.arguments, escape)
    return bool(found) and not any(word.startswith("=") for word in found)


def _volumes(instruction: Instruction, escape: str) -> bool:
    listed = exec_form(instruction.arguments)
    return bool(instruction.arguments) if listed is None else bool(listed) and all(each.strip() for each in listed)


def _shell(instruction: Instruction, escape: str) -> bool:
    return bool(exec_form(instruction.arguments))


def _health(instruction: Instruction, escape: str) -> bool:
    kind, end = words.first(instruction.arguments, 0, escape)
    rest = instruction.arguments[end:].strip()
    return (kind.upper() == "NONE" and not rest) or (kind.upper() == "CMD" and bool(rest))


def _trigger(instruction: Instruction, escape: str) -> bool:
    name, end = words.first(instruction.arguments, 0, escape)
    if name.upper() not in INSTRUCTIONS or name.upper() in ("ONBUILD", "FROM", "MAINTAINER"):
        return False
    inner = Statement(line=instruction.line, name=name.upper(), rest=instruction.arguments[end:].strip())
    return INSTRUCTIONS[inner.name].complete(of(inner, escape), escape)


INSTRUCTIONS: Mapping[str, Wants] = {
    "ADD": Wants(complete=_paths, expected="ADD SOURCE… DESTINATION"),
    "ARG": Wants(complete=_declarations, expected="ARG NAME or ARG NAME=DEFAULT"),
    "CMD": Wants(complete=_anything, expected="a command"),
    "COPY": Wants(complete=_paths, expected="COPY SOURCE… DESTINATION", rule=texts.NO_PATHS),
    "ENTRYPOINT": Wants(complete=_anything, expected="a command"),
    "ENV": Wants(complete=_pairs, expected="ENV NAME=VALUE …"),
    "EXPOSE": Wants(complete=_something, expected="EXPOSE PORT…"),
    "FROM": Wants(complete=_from, expected="FROM IMAGE or FROM IMAGE AS STAGE", rule=texts.NO_BASE),
    "HEALTHCHECK": Wants(complete=_health, expected="HEALTHCHECK CMD COMMAND or HEALTHCHECK NONE"),
    "LABEL": Wants(complete=_pairs, expected="LABEL NAME=VALUE …"),
    "MAINTAINER": Wants(complete=_something, expected="MAINTAINER NAME"),
    "ONBUILD": Wants(complete=_trigger, expected="ONBUILD and an instruction other than FROM, ONBUILD and MAINTAINER"),
    "RUN": Wants(complete=_command, expected="RUN COMMAND", rule=texts.NO_COMMAND),
    "SHELL": Wants(complete=_shell, expected='SHELL ["PROGRAM", "ARGUMENT"…]'),
    "STOPSIGNAL": Wants(complete=_something, expected="STOPSIGNAL SIGNAL"),
    "USER": Wants(complete=_something, expected="USER NAME"),
    "VOLUME": Wants(complete=_volumes, expected="VOLUME DIRECTORY…"),
    "WORKDIR": Wants(complete=_something, expected="WORKDIR DIRECTORY", rule=texts.NO_DIRECTORY),
}
"""Every instruction there is, and what it needs."""
