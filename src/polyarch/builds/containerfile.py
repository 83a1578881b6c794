"""Parses a Containerfile into stages of instructions, and says everything that is wrong with it.

It reads what BuildKit and imagebuilder read. Line ends and byte-order marks, which editors and checkouts change,
make no difference to the text that is hashed."""

import json
import re
from collections import ChainMap
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from difflib import get_close_matches
from typing import Literal

import msgspec

from polyarch.builds.facts.build_facts import Problem
from polyarch.oci import reference
from polyarch.platforms import InvalidPlatform, Platform

MAX_BYTES = 128 * 1024
MAX_ERRORS = 20
"""A text with more is not looked at further: nobody reads more at once."""
_SHOWN = 60

# What users of machine OS builds know from the stock builder.
NO_FROM = "must contain at least one FROM instruction"
NO_BASE = "FROM instruction requires a base image"
NO_COMMAND = "RUN instruction requires a command"
NO_PATHS = "COPY instruction requires source and destination paths"
NO_DIRECTORY = "WORKDIR instruction requires a directory path"
UNKNOWN = "unknown Dockerfile instruction"
UNREADABLE = "failed to parse Containerfile"


class ContainerfileError(msgspec.Struct, frozen=True, kw_only=True, order=True):
    """One thing that is wrong in a text."""

    text_name: str
    """``common``, or the architecture whose text it is."""
    line: int
    """Counted from 1."""
    problem: str
    expected: str
    rule: str = UNREADABLE
    """The rule that it breaks, in the words of the stock builder."""

    @property
    def message(self) -> str:
        return f"Containerfile ({self.text_name}), line {self.line}: {self.problem}; expected {self.expected}"


def normalised_text(text: str) -> str:
    """Without byte-order mark, with LF line ends, and with exactly one LF at the end of a text that is not empty."""
    body = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n").rstrip("\n")
    return f"{body}\n" if body else ""


def shown(text: str) -> str:
    """A piece of a text in quotes, short enough for a message."""
    return repr(text if len(text) <= _SHOWN else text[:_SHOWN] + "…")


# -- words -------------------------------------------------------------------------------------------------------------


LONGEST_VALUE = 4096
"""An expansion longer than this is unresolved: no reference is that long, and no build argument."""
_DEEPEST = 16
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_WHITE = " \t\v\f\r"
_WHITE_SPACE = re.compile(r"[ \t\v\f\r]*")
_PLAIN = re.compile(r"[^ \t\v\f\r\"'\\`]*")


class Expansion(msgspec.Struct, frozen=True, kw_only=True):
    """A text after expansion; ``text`` is None where something could not be expanded."""

    text: str | None
    used: frozenset[str] = frozenset()
    """Names of the variables that it depends on."""
    unknown: str = ""
    """The first piece that could not be expanded."""


def first_word(text: str, begin: int, escape: str) -> tuple[str, int]:
    """The word that begins at ``begin`` after white space, quotes kept, and where it ends; empty at the end."""
    position = _WHITE_SPACE.match(text, begin).end()  # type: ignore[union-attr] # it matches anywhere
    start, quote = position, ""
    position = _PLAIN.match(text, start).end()  # type: ignore[union-attr]
    if position == len(text) or text[position] in _WHITE:
        return text[start:position], position
    while position < len(text):
        character = text[position]
        if character == escape and quote != "'" and position + 1 < len(text):
            position += 2
            continue
        if quote:
            quote = "" if character == quote else quote
        elif character in "\"'":
            quote = character
        elif character in _WHITE:
            break
        position += 1
    return text[start:position], min(position, len(text))


def split_words(text: str, escape: str) -> list[str]:
    """All words, quotes kept."""
    found: list[str] = []
    position = 0
    while True:
        word, position = first_word(text, position, escape)
        if not word:
            return found
        found.append(word)


def unquoted(word: str, escape: str) -> str:
    """The word without quotes and escapes, nothing expanded."""
    expansion = _Expander(word, {}, escape, literal=True).run()
    return expansion.text if expansion.text is not None else word


def expanded(word: str, values: Mapping[str, str | None], escape: str) -> Expansion:
    """The word without quotes and escapes, its variables replaced. A value None: it has one, but nobody knows which."""
    if "$" not in word and escape not in word and '"' not in word and "'" not in word:
        return Expansion(text=word)
    return _Expander(word, values, escape).run()


class _Unresolved(Exception):  # noqa: N818 - named for the condition
    def __init__(self, piece: str) -> None:
        super().__init__(piece)
        self.piece = piece


class _Expander:
    """Expands one word."""

    def __init__(self, word: str, values: Mapping[str, str | None], escape: str, *, literal: bool = False) -> None:
        self._word = word
        self._values = values
        self._escape = escape
        self._literal = literal
        self._used: set[str] = set()
        self._position = 0
        self._length = 0

    def run(self) -> Expansion:
        try:
            text = self._until("", 0)
        except _Unresolved as unresolved:
            return Expansion(text=None, used=frozenset(self._used), unknown=unresolved.piece)
        return Expansion(text=text, used=frozenset(self._used))

    def _until(self, end: str, depth: int) -> str:
        if depth > _DEEPEST:
            raise _Unresolved(self._word)
        word, out, quote = self._word, list[str](), ""
        while self._position < len(word):
            character = word[self._position]
            if end and character == end and not quote:
                return "".join(out)
            self._position += 1
            if character == self._escape and quote != "'" and self._position < len(word):
                out.append(self._escaped(quote))
            elif character in "\"'" and quote in ("", character):
                quote = "" if quote else character
            elif character == "$" and quote != "'" and not self._literal:
                out.append(self._counted(self._variable(depth)))
            else:
                out.append(character)
        if end:
            raise _Unresolved(self._word)
        return "".join(out)

    def _escaped(self, quote: str) -> str:
        character = self._word[self._position]
        self._position += 1
        return character if not quote or character in f'"${self._escape}' else self._escape + character

    def _variable(self, depth: int) -> str:
        begin = self._position - 1
        if self._word.startswith("{", self._position):
            self._position += 1
            name = self._name()
            if name is None:
                raise _Unresolved(self._word[begin:])
            text = self._braced(name, begin, depth)
            self._position += 1
            return text
        name = self._name()
        if name is None:
            if re.match(r"[0-9@*#?!$-]", self._word[self._position : self._position + 1]):
                raise _Unresolved(self._word[begin : self._position + 1])
            return "$"
        if name not in self._values:
            raise _Unresolved(f"${name}")
        return self._value(name) or ""

    def _name(self) -> str | None:
        match = _NAME.match(self._word, self._position)
        if match is None:
            return None
        self._position = match.end()
        self._used.add(match[0])
        return match[0]

    def _value(self, name: str) -> str | None:
        """None: it is not set. Raises where it is set to what nobody knows."""
        if name not in self._values:
            return None
        value = self._values[name]
        if value is None:
            raise _Unresolved(f"${name}")
        return value

    def _braced(self, name: str, begin: int, depth: int) -> str:
        word = self._word
        if word.startswith("}", self._position):
            value = self._value(name)
            if value is None:
                raise _Unresolved(word[begin : self._position + 1])
            return value
        value = self._value(name)
        colon = word.startswith(":", self._position)
        operator = word[self._position + colon : self._position + colon + 1]
        if operator not in ("-", "+"):
            raise _Unresolved(word[begin:])
        self._position += colon + 1
        present = bool(value) if colon else value is not None
        if present is (operator == "+"):
            return self._until("}", depth + 1)
        self._skip(begin)
        return value or "" if operator == "-" else ""

    def _skip(self, begin: int) -> None:
        """Past an alternative that is not taken, to its closing brace."""
        word, depth = self._word, 0
        while self._position < len(word):
            character = word[self._position]
            if character == self._escape:
                self._position += 1
            elif character == "{":
                depth += 1
            elif character == "}":
                if depth == 0:
                    return
                depth -= 1
            self._position += 1
        raise _Unresolved(word[begin:])

    def _counted(self, text: str) -> str:
        self._length += len(text)
        if self._length > LONGEST_VALUE:
            raise _Unresolved(self._word)
        return text


# -- statements --------------------------------------------------------------------------------------------------------


DEFAULT_ESCAPE = "\\"
_DIRECTIVE = re.compile(r"#[ \t]*([A-Za-z][A-Za-z0-9]*)[ \t]*=[ \t]*(.*)", re.ASCII)
_DIRECTIVES = frozenset({"syntax", "escape", "check"})
_HERE_DOCUMENT = re.compile(r"[0-9]*<<(-?)([^<]+)", re.ASCII)
_WITH_HERE_DOCUMENTS = frozenset({"ADD", "COPY", "RUN"})


class HereDocument(msgspec.Struct, frozen=True, kw_only=True):
    """Lines of a statement that end with a line that holds its name alone."""

    name: str
    content: str
    expand: bool
    """Its name is not quoted: variables in it are replaced."""


class Statement(msgspec.Struct, frozen=True, kw_only=True):
    """An instruction with its arguments on one line."""

    line: int
    name: str
    """In capitals."""
    rest: str
    here_documents: tuple[HereDocument, ...] = ()


class Statements(msgspec.Struct, frozen=True, kw_only=True):
    """A text in statements."""

    statements: tuple[Statement, ...]
    escape: str
    directives: dict[str, str]
    faults: tuple[ContainerfileError, ...]


def read_statements(text: str, text_name: str) -> Statements:
    """The statements of a normalised text."""
    return _Reader(text, text_name).read()


class _Reader:
    def __init__(self, text: str, text_name: str) -> None:
        self._lines = text.split("\n")
        self._text_name = text_name
        self._next = 0
        self._escape = DEFAULT_ESCAPE
        self._directives: dict[str, str] = {}
        self._faults: list[ContainerfileError] = []

    def read(self) -> Statements:
        self._read_directives()
        found: list[Statement] = []
        while self._next < len(self._lines):
            number = self._next + 1
            if line := self._statement():
                found.append(self._complete(number, line))
        return Statements(
            statements=tuple(found), escape=self._escape, directives=self._directives, faults=tuple(self._faults)
        )

    def _read_directives(self) -> None:
        while self._next < len(self._lines):
            match = _DIRECTIVE.fullmatch(self._lines[self._next].strip())
            if match is None or (name := match[1].lower()) not in _DIRECTIVES:
                return
            self._next += 1
            if name in self._directives:
                self._fault(self._next, f"the directive {name!r} is there twice", "it once")
            elif name == "escape" and match[2] not in ("\\", "`"):
                self._fault(self._next, f"the escape character {shown(match[2])}", "\\ or `")
            else:
                self._directives[name] = match[2]
                self._escape = match[2] if name == "escape" else self._escape

    def _statement(self) -> str:
        """The next line with those that continue it; empty for a comment or an empty line."""
        line = self._take().lstrip()
        if not line or line.startswith("#"):
            return ""
        parts: list[str] = []
        while True:
            body = line.rstrip(" \t")
            if not body.endswith(self._escape):
                parts.append(line)
                break
            parts.append(body[:-1])
            more = self._continuation()
            if more is None:
                break
            line = more
        return "".join(parts).strip()

    def _continuation(self) -> str | None:
        while self._next < len(self._lines):
            line = self._take()
            stripped = line.lstrip()
            if stripped and not stripped.startswith("#"):
                return line
        return None

    def _complete(self, number: int, line: str) -> Statement:
        name, end = first_word(line, 0, self._escape)
        rest = line[end:].strip()
        documents: tuple[HereDocument, ...] = ()
        if name.upper() in _WITH_HERE_DOCUMENTS or (name.upper() == "ONBUILD" and "<<" in rest):
            documents = self._here_documents(number, rest)
        return Statement(line=number, name=name.upper(), rest=rest, here_documents=documents)

    def _here_documents(self, number: int, rest: str) -> tuple[HereDocument, ...]:
        if "<<" not in rest:
            return ()
        found: list[HereDocument] = []
        for word in split_words(rest, self._escape):
            if match := _HERE_DOCUMENT.fullmatch(word):
                name = unquoted(match[2], self._escape)
                content = self._until(name, tabs=bool(match[1]))
                if content is None:
                    self._fault(
                        number, f"the here-document {shown(name)} has no end", f"a line with {shown(name)} alone"
                    )
                    break
                found.append(HereDocument(name=name, content=content, expand=name == match[2]))
        return tuple(found)

    def _until(self, name: str, *, tabs: bool) -> str | None:
        begin = self._next
        while self._next < len(self._lines):
            line = self._take()
            if (line.lstrip("\t") if tabs else line) == name:
                return "".join(f"{each}\n" for each in self._lines[begin : self._next - 1])
        return None

    def _take(self) -> str:
        self._next += 1
        return self._lines[self._next - 1]

    def _fault(self, line: int, problem: str, expected: str) -> None:
        self._faults.append(
            ContainerfileError(text_name=self._text_name, line=line, problem=problem, expected=expected)
        )


# -- instructions ------------------------------------------------------------------------------------------------------


class Instruction(msgspec.Struct, frozen=True, kw_only=True):
    """A statement whose flags have been told from its arguments."""

    line: int
    name: str
    arguments: str
    flags: tuple[tuple[str, str], ...] = ()
    """Name without dashes, and value, quotes kept; in the text's order, since a flag may come twice."""
    here_documents: tuple[HereDocument, ...] = ()


class InstructionSyntax(msgspec.Struct, frozen=True, kw_only=True):
    """What an instruction needs to be complete."""

    complete: Callable[[Instruction, str], bool]
    """Given the escape character too."""
    expected: str
    rule: str = UNREADABLE


def instruction_of(statement: Statement, escape: str) -> Instruction:
    """The instruction of a statement."""
    flags: list[tuple[str, str]] = []
    position = 0
    while True:
        word, end = first_word(statement.rest, position, escape)
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


def instruction_error(instruction: Instruction, escape: str, text_name: str) -> ContainerfileError | None:
    """What is wrong with an instruction by itself, if anything."""
    wants = INSTRUCTIONS.get(instruction.name)
    if wants is None:
        close = get_close_matches(instruction.name, INSTRUCTIONS, n=1) if len(instruction.name) <= 32 else []
        expected = close[0] if close else "one of " + ", ".join(INSTRUCTIONS)
        problem = f"unknown instruction {shown(instruction.name)}"
        return ContainerfileError(
            text_name=text_name, line=instruction.line, problem=problem, expected=expected, rule=UNKNOWN
        )
    if wants.complete(instruction, escape):
        return None
    arguments = instruction.arguments
    problem = f"{instruction.name} has {shown(arguments)}" if arguments else f"{instruction.name} has no arguments"
    return ContainerfileError(
        text_name=text_name, line=instruction.line, problem=problem, expected=wants.expected, rule=wants.rule
    )


def exec_form(arguments: str) -> list[str] | None:
    """The arguments of the form that is a JSON list of texts; None for any other form."""
    if not arguments.startswith("["):
        return None
    try:
        found = json.loads(arguments)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, list) and all(isinstance(each, str) for each in found) else None


def name_value_pairs(arguments: str, escape: str) -> list[tuple[str, str]] | None:
    """``name=value …`` or ``name value``, quotes kept; None where it is neither."""
    found = split_words(arguments, escape)
    if found and "=" not in found[0]:
        name, end = first_word(arguments, 0, escape)
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
    return len(split_words(instruction.arguments, escape) if listed is None else listed) >= 2


def _from(instruction: Instruction, escape: str) -> bool:
    found = split_words(instruction.arguments, escape)
    return len(found) == 1 or (len(found) == 3 and found[1].upper() == "AS")


def _pairs(instruction: Instruction, escape: str) -> bool:
    return name_value_pairs(instruction.arguments, escape) is not None


def _declarations(instruction: Instruction, escape: str) -> bool:
    found = split_words(instruction.arguments, escape)
    return bool(found) and not any(word.startswith("=") for word in found)


def _volumes(instruction: Instruction, escape: str) -> bool:
    listed = exec_form(instruction.arguments)
    return bool(instruction.arguments) if listed is None else bool(listed) and all(each.strip() for each in listed)


def _shell(instruction: Instruction, escape: str) -> bool:
    return bool(exec_form(instruction.arguments))


def _health(instruction: Instruction, escape: str) -> bool:
    kind, end = first_word(instruction.arguments, 0, escape)
    rest = instruction.arguments[end:].strip()
    return (kind.upper() == "NONE" and not rest) or (kind.upper() == "CMD" and bool(rest))


def _trigger(instruction: Instruction, escape: str) -> bool:
    name, end = first_word(instruction.arguments, 0, escape)
    if name.upper() not in INSTRUCTIONS or name.upper() in ("ONBUILD", "FROM", "MAINTAINER"):
        return False
    inner = Statement(line=instruction.line, name=name.upper(), rest=instruction.arguments[end:].strip())
    return INSTRUCTIONS[inner.name].complete(instruction_of(inner, escape), escape)


INSTRUCTIONS: Mapping[str, InstructionSyntax] = {
    "ADD": InstructionSyntax(complete=_paths, expected="ADD SOURCE… DESTINATION"),
    "ARG": InstructionSyntax(complete=_declarations, expected="ARG NAME or ARG NAME=DEFAULT"),
    "CMD": InstructionSyntax(complete=_anything, expected="a command"),
    "COPY": InstructionSyntax(complete=_paths, expected="COPY SOURCE… DESTINATION", rule=NO_PATHS),
    "ENTRYPOINT": InstructionSyntax(complete=_anything, expected="a command"),
    "ENV": InstructionSyntax(complete=_pairs, expected="ENV NAME=VALUE …"),
    "EXPOSE": InstructionSyntax(complete=_something, expected="EXPOSE PORT…"),
    "FROM": InstructionSyntax(complete=_from, expected="FROM IMAGE or FROM IMAGE AS STAGE", rule=NO_BASE),
    "HEALTHCHECK": InstructionSyntax(complete=_health, expected="HEALTHCHECK CMD COMMAND or HEALTHCHECK NONE"),
    "LABEL": InstructionSyntax(complete=_pairs, expected="LABEL NAME=VALUE …"),
    "MAINTAINER": InstructionSyntax(complete=_something, expected="MAINTAINER NAME"),
    "ONBUILD": InstructionSyntax(
        complete=_trigger, expected="ONBUILD and an instruction other than FROM, ONBUILD and MAINTAINER"
    ),
    "RUN": InstructionSyntax(complete=_command, expected="RUN COMMAND", rule=NO_COMMAND),
    "SHELL": InstructionSyntax(complete=_shell, expected='SHELL ["PROGRAM", "ARGUMENT"…]'),
    "STOPSIGNAL": InstructionSyntax(complete=_something, expected="STOPSIGNAL SIGNAL"),
    "USER": InstructionSyntax(complete=_something, expected="USER NAME"),
    "VOLUME": InstructionSyntax(complete=_volumes, expected="VOLUME DIRECTORY…"),
    "WORKDIR": InstructionSyntax(complete=_something, expected="WORKDIR DIRECTORY", rule=NO_DIRECTORY),
}
"""Every instruction there is, and what it needs."""


# -- stages ------------------------------------------------------------------------------------------------------------


class Stage(msgspec.Struct, frozen=True, kw_only=True):
    """From one FROM to the next."""

    line: int
    image: str
    """As written; empty for a stage that the text goes on in."""
    name: str = ""
    """Lower-case; empty without AS."""
    platform: str = ""
    """``--platform``, as written."""
    instructions: tuple[Instruction, ...] = ()


class Containerfile(msgspec.Struct, frozen=True, kw_only=True):
    """A parsed text."""

    text_name: str
    escape: str
    header: tuple[Instruction, ...]
    """The ARGs before the first FROM."""
    stages: tuple[Stage, ...]
    inside: tuple[str, ...] = ()
    """Stages that come before the text; it goes on in the last of them."""
    faults: tuple[ContainerfileError, ...] = ()


def parse_containerfile(text: str, *, name: str = "common", inside: tuple[str, ...] = ()) -> Containerfile:
    """Parse a normalised text. ``inside``: names of the stages that were rendered before it; then it needs no FROM."""
    read = read_statements(text, name)
    faults = list(read.faults)
    header: list[Instruction] = []
    stages: list[Stage] = []
    body: list[Instruction] = []
    current = Stage(line=1, image="") if inside else None
    misplaced = False
    for statement in read.statements:
        instruction = instruction_of(statement, read.escape)
        found = instruction_error(instruction, read.escape, name) if len(faults) < MAX_ERRORS else None
        if found is not None:
            faults.append(found)
        if instruction.name == "FROM":
            if current is not None:
                stages.append(msgspec.structs.replace(current, instructions=tuple(body)))
            current, body = _stage(instruction, read.escape), []
        elif current is not None:
            body.append(instruction)
        elif instruction.name == "ARG":
            header.append(instruction)
        elif not found and not misplaced:
            misplaced = True
            problem = f"{instruction.name} comes before the first FROM"
            expected = "FROM, or ARG before it"
            faults.append(
                ContainerfileError(
                    text_name=name, line=instruction.line, problem=problem, expected=expected, rule=NO_FROM
                )
            )
    if current is not None:
        stages.append(msgspec.structs.replace(current, instructions=tuple(body)))
    elif not misplaced:
        faults.append(
            ContainerfileError(text_name=name, line=1, problem="there is no FROM", expected="FROM IMAGE", rule=NO_FROM)
        )
    return Containerfile(
        text_name=name,
        escape=read.escape,
        header=tuple(header),
        stages=tuple(stages),
        inside=inside,
        faults=tuple(sorted(faults, key=lambda each: each.line)[:MAX_ERRORS]),
    )


def _stage(instruction: Instruction, escape: str) -> Stage:
    found = split_words(instruction.arguments, escape)
    return Stage(
        line=instruction.line,
        image=found[0] if found else "",
        name=found[2].lower() if len(found) == 3 else "",
        platform=dict(instruction.flags).get("platform", ""),
    )


# -- images from outside -----------------------------------------------------------------------------------------------


SCRATCH = "scratch"
_LONGEST = 512
_LOCAL = ("oci", "oci-archive", "docker-archive", "docker-daemon", "dir", "containers-storage", "ostree")
_INVALID = "ContainerfileInvalid"
_BUILD = frozenset({"BUILDPLATFORM", "BUILDOS", "BUILDARCH", "BUILDVARIANT"})

Values = Mapping[str, str | None]


class ExternalImage(msgspec.Struct, frozen=True, kw_only=True, order=True):
    """An image from outside."""

    canonical: str
    written: str
    """After expansion: how the builder knows it."""
    unexpanded: str = ""
    """Of a FROM: as the text has it, by which some versions of buildah know it."""
    line: int
    for_build: bool = False
    """It is pulled for the architecture where the build runs."""


class ExternalImages(msgspec.Struct, frozen=True, kw_only=True):
    """All images from outside, in the text's order, and what is wrong with them."""

    references: tuple[ExternalImage, ...]
    problems: tuple[Problem, ...]


def external_images(containerfile: Containerfile, *, architecture: str, args: Mapping[str, str]) -> ExternalImages:
    """The external references of a Containerfile that is built for ``architecture`` on nodes of ``architecture``."""
    return _Finder(containerfile, architecture, args).find()


def target_problem(containerfile: Containerfile, target: str) -> ContainerfileError | None:
    """The fault of a ``source.target`` that is no stage of the text."""
    names = [*containerfile.inside, *(stage.name for stage in containerfile.stages if stage.name)]
    if not target or target.lower() in names or (target.isdecimal() and int(target) < len(containerfile.stages)):
        return None
    shown_names = ", ".join(names[:16]) if names else "none has a name"
    return ContainerfileError(
        text_name=containerfile.text_name,
        line=containerfile.stages[-1].line if containerfile.stages else 1,
        problem=f"there is no stage {shown(target)}, which source.target asks for",
        expected=f"a stage of the text ({shown_names})",
    )


def automatic_arguments(architecture: str) -> dict[str, str]:
    """The platform arguments that every builder sets, with the architecture as target and as build platform."""
    platform = Platform.of("linux", architecture)
    values = {"PLATFORM": str(platform), "OS": "linux", "ARCH": platform.architecture, "VARIANT": platform.variant}
    return {f"{side}{name}": value for side in ("TARGET", "BUILD") for name, value in values.items()}


class _Finder:
    def __init__(self, containerfile: Containerfile, architecture: str, args: Mapping[str, str]) -> None:
        self._containerfile = containerfile
        self._architecture = architecture
        self._args = args
        self._automatic = automatic_arguments(architecture)
        self._global: dict[str, str | None] = {**args, **self._automatic}
        self._errors: list[Problem] = []
        self._warnings: list[Problem] = []
        self._references: list[ExternalImage] = []
        self._stages = set(containerfile.inside)

    def find(self) -> ExternalImages:
        for instruction in self._containerfile.header:
            self._declare(instruction, self._global)
        for stage in self._containerfile.stages:
            if stage.image:
                self._base(stage)
            declared: ChainMap[str, str | None] = ChainMap({}, self._global)
            values = declared.new_child()  # what ENV sets hides what ARG says
            for instruction in stage.instructions:
                if instruction.name == "ARG":
                    self._declare(instruction, declared)
                elif instruction.name == "ENV":
                    self._set(instruction, values)
                for text in _sources(instruction):
                    self._add(text, values, instruction.line, instruction.name)
            if stage.name:
                self._stages.add(stage.name)
        return ExternalImages(references=tuple(self._references), problems=(*self._errors, *self._warnings))

    def _declare(self, instruction: Instruction, values: MutableMapping[str, str | None]) -> None:
        for word in split_words(instruction.arguments, self._containerfile.escape):
            name, equals, default = word.partition("=")
            if equals and name not in self._args and name not in self._automatic:
                values[name] = expanded(default, values, self._containerfile.escape).text

    def _set(self, instruction: Instruction, values: MutableMapping[str, str | None]) -> None:
        escape = self._containerfile.escape
        pairs = name_value_pairs(instruction.arguments, escape) or ()
        values.update([(name, expanded(value, values, escape).text) for name, value in pairs])

    def _base(self, stage: Stage) -> None:
        for_build = False
        if stage.platform:
            expansion = expanded(stage.platform, self._global, self._containerfile.escape)
            for_build = bool(expansion.used & _BUILD)
            if expansion.text is not None and not self._fits(expansion.text):
                self._problem(
                    "BaseImagePlatformFixed",
                    stage.line,
                    f"FROM has --platform={shown(expansion.text)}, but every base of an image for {self._architecture} "
                    f"is pulled for linux/{self._architecture}; leave the flag out, or write --platform=$BUILDPLATFORM",
                    warning=True,
                )
        self._add(stage.image, self._global, stage.line, "FROM", for_build=for_build)

    def _fits(self, platform: str) -> bool:
        try:
            return Platform.parse(platform).node == Platform.of("linux", self._architecture).node
        except InvalidPlatform:
            return False

    def _add(self, word: str, values: Values, line: int, where: str, *, for_build: bool = False) -> None:
        expansion = expanded(word, values, self._containerfile.escape)
        text = expansion.text
        if text is None:
            self._problem(
                "BaseImageUnresolved",
                line,
                f"{where} names the image {shown(word)}, in which {shown(expansion.unknown)} has no value; it is not "
                "pinned: give it a value in source.buildArgs or by ARG before the first FROM",
                warning=True,
            )
            return
        if text == SCRATCH or text.lower() in self._stages or (where != "FROM" and text.isdecimal()):
            return
        canonical, problem = _canonical(text)
        if problem:
            self._problem(_INVALID, line, f"{where} names the image {shown(text)}: {problem}")
            return
        unexpanded = word if where == "FROM" else text
        found = ExternalImage(canonical=canonical, written=text, unexpanded=unexpanded, line=line, for_build=for_build)
        self._references.append(found)

    def _problem(self, reason: str, line: int, sentence: str, *, warning: bool = False) -> None:
        said = self._warnings if warning else self._errors
        if len(said) < MAX_ERRORS:
            message = f"Containerfile ({self._containerfile.text_name}), line {line}: {sentence}"
            severity: Literal["Error", "Warning"] = "Warning" if warning else "Error"
            said.append(Problem(reason=reason, message=message, architecture=self._architecture, severity=severity))


def _sources(instruction: Instruction) -> Iterator[str]:
    for name, value in instruction.flags:
        if name == "from" and instruction.name in ("COPY", "ADD"):
            yield value
        elif name == "mount" and instruction.name == "RUN":
            for part in value.strip("\"'").split(","):
                key, equals, source = part.partition("=")
                if equals and key.strip().lower() == "from" and source:
                    yield source


def _canonical(text: str) -> tuple[str, str]:
    """The canonical reference, or what is wrong with the text."""
    if len(text) > _LONGEST:
        return "", f"it has {len(text)} characters; a reference has at most {_LONGEST}"
    transport = text.partition(":")[0]
    if transport in _LOCAL and ":" in text and not text.startswith("docker:"):
        return "", f"images come from registries; {transport}: names a place on the machine that builds"
    try:
        return reference.parse(text).canonical, ""
    except reference.InvalidReference as error:
        return "", f"{error.problem}; {error.hint}" if error.hint else error.problem
