"""Parses a Containerfile into stages of instructions, and says everything that is wrong with it.

It reads what BuildKit and imagebuilder read. Line ends and byte-order marks, which editors and checkouts change,
make no difference to the text that is hashed."""

import json
import re
from bisect import bisect_left
from collections import ChainMap
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from difflib import get_close_matches
from typing import Literal

import msgspec

from polyarch.builds.facts.build_facts import Problem
from polyarch.oci import reference
from polyarch.platforms import KNOWN_SYSTEMS, InvalidPlatform, Platform

MAX_BYTES = 128 * 1024
MAX_ERRORS = 20
"""A text with more is not looked at further: nobody reads more at once."""
MAX_EXPANSION_STEPS = 4 * MAX_BYTES
"""Characters that are read, inserted or compared with a pattern while the images of one Containerfile are found for one
architecture. Each character of the text takes two at most; stages that run the ONBUILDs of others read theirs again."""
_TRIGGER_STEPS = 32
"""What an instruction of an ONBUILD counts for besides its characters, however short it is."""
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
_PLAIN_TEXT = re.compile(r"[A-Za-z0-9_.:/=,@-]+", re.ASCII)
_DIGITS = re.compile(r"[0-9]+")


class Expansion(msgspec.Struct, frozen=True, kw_only=True):
    """A text after expansion; ``text`` is None where something could not be expanded."""

    text: str | None
    used: frozenset[str] = frozenset()
    """Names of the variables that it depends on."""
    unknown: str = ""
    """The first piece that could not be expanded."""
    wrong: str = ""
    """Why no builder could expand it; empty where it is only not known."""


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


class ExpansionBudget:
    """The steps of work that are left; see :data:`MAX_EXPANSION_STEPS`."""

    def __init__(self, steps: int = MAX_EXPANSION_STEPS) -> None:
        self.left = steps

    def spend(self, steps: int) -> None:
        """Raises ExpansionBudgetSpent where so many are not left."""
        self.left -= steps
        if self.left < 0:
            raise ExpansionBudgetSpent


class ExpansionBudgetSpent(Exception):  # noqa: N818 - named for the condition
    """The work takes more steps than there may be."""


def expanded(
    word: str,
    values: Mapping[str, str | None],
    escape: str,
    *,
    complete: bool = False,
    budget: ExpansionBudget | None = None,
) -> Expansion:
    """The word without quotes and escapes, its variables replaced. A value None: it has one, but nobody knows which.

    ``complete``: what is not among the values is not set. Else nobody knows whether it is, as in a stage whose base
    may set it. Raises ExpansionBudgetSpent.
    """
    if "$" not in word and escape not in word and '"' not in word and "'" not in word:
        return Expansion(text=word)
    lexer = _Lexer(word, escape, values, complete=complete, budget=budget)
    try:
        text = lexer.text()
    except _Unresolved as unresolved:
        return Expansion(text=None, used=frozenset(lexer.used), unknown=unresolved.piece, wrong=unresolved.wrong)
    return Expansion(text=text, used=frozenset(lexer.used))


class _Unresolved(Exception):  # noqa: N818 - named for the condition
    def __init__(self, piece: str, wrong: str = "") -> None:
        super().__init__(piece)
        self.piece = piece
        self.wrong = wrong


_SPECIAL = frozenset("@*#?-$!0")
"""Parameters of a shell, which no build has."""
_GLUED = re.compile(r"[\t\r ]*")


class _Lexer:
    """Splits and expands a text as BuildKit's ``shell`` package does, which is imagebuilder's, too.

    Without ``values`` variables stay as they are written; ``raw`` keeps quotes and escapes as well.
    """

    def __init__(
        self,
        text: str,
        escape: str,
        values: Mapping[str, str | None] | None = None,
        *,
        complete: bool = True,
        raw: bool = False,
        budget: ExpansionBudget | None = None,
    ) -> None:
        self._text = text
        self._budget = budget or ExpansionBudget()
        self._escape = escape
        self._values = values
        self._complete = complete
        self._raw = raw
        self._at = 0
        self._length = 0
        self._depth = 0
        self._word: list[str] = []
        """Pieces of the word so far; none is empty."""
        self.used: set[str] = set()

    def text(self) -> str:
        """The whole text; raises ``_Unresolved`` and ``ExpansionBudgetSpent``."""
        self._budget.spend(len(self._text))
        return self._until("", self._raw)[0]

    def words(self) -> list[str]:
        """The text's words; raises ``_Unresolved``."""
        return self._until("", self._raw)[1]

    def _peek(self) -> str:
        return self._text[self._at : self._at + 1]

    def _next(self) -> str:
        self._at += 1
        return self._text[self._at - 1 : self._at]

    def _until(self, end: str, keeps_escapes: bool, pattern: bool = False) -> tuple[str, list[str]]:
        """Up to ``end``; ``pattern``: an escape within quotes is doubled, since patterns are read once more."""
        self._depth += 1
        if self._depth > _DEEPEST:
            raise _Unresolved(self._text)
        out, words = list[str](), list[str]()
        self._word = []  # also what an outer word has so far: so do they
        while character := self._peek():
            if end and character == end:
                self._at += 1
                break
            if not end and (run := _PLAIN_TEXT.match(self._text, self._at)) is not None:
                self._at = run.end()
                out.append(run[0])
                self._word.append(run[0])
            elif character == "$":
                piece = self._dollar()
                out.append(piece)
                for each in piece:
                    self._add(each, words)
            elif character in "\"'<":
                read = self._heredoc if character == "<" else self._single if character == "'" else self._double
                piece = read(keeps_escapes, pattern)
                out.append(piece)
                if piece:
                    self._word.append(piece)
            elif self._next() == self._escape:
                if keeps_escapes:
                    out.append(character)
                    self._word.append(character)
                if escaped := self._next():
                    out.append(escaped)
                    self._word.append(escaped)
            else:
                out.append(character)
                self._add(character, words)
        else:
            if end:
                raise _Unresolved(self._text, f"there is no {end}")
        if self._word:
            words.append("".join(self._word))
            self._word = []
        self._depth -= 1
        return "".join(out), words

    def _add(self, character: str, words: list[str]) -> None:
        if not character.isspace():
            self._word.append(character)
        elif self._word:
            words.append("".join(self._word))
            self._word = []

    def _heredoc(self, keeps_escapes: bool, pattern: bool) -> str:
        """White space after ``<<`` belongs to the word."""
        self._at += 1
        if self._peek() != "<":
            return "<"
        end = _GLUED.match(self._text, self._at + 1).end()  # type: ignore[union-attr] # it matches anywhere
        space = self._text[self._at + 1 : end]
        self._at = end
        return f"<<{space}"

    def _single(self, keeps_escapes: bool, pattern: bool) -> str:
        end = self._text.find("'", self._at + 1)
        if end < 0:
            raise _Unresolved(self._text, "a quote has no end")
        piece = self._text[self._at + 1 : end]
        self._at = end + 1
        piece = piece.replace(self._escape, self._escape * 2) if pattern else piece
        return f"'{piece}'" if self._raw else piece

    def _double(self, keeps_escapes: bool, pattern: bool) -> str:
        self._at += 1
        out = ['"'] if self._raw else []
        while character := self._peek():
            if character == '"':
                self._at += 1
                return "".join([*out, '"'] if self._raw else out)
            if character == "$":
                out.append(self._dollar())
                continue
            if self._next() == self._escape:
                following = self._peek()
                if following in ('"', "$", self._escape) and following:
                    out += [character] if keeps_escapes else []
                    character = self._next()
                elif not following:
                    continue
                elif keeps_escapes and (not self._raw or pattern):
                    out.append(character)
            out.append(character)
        raise _Unresolved(self._text, "a quote has no end")

    def _dollar(self) -> str:
        begin = self._at
        self._at += 1
        if self._peek() != "{":
            name = self._name()
            if not name:
                return "$"
            return self._counted(f"${name}" if self._values is None else self._value(name, f"${name}") or "")
        self._at += 1
        if self._peek() in ("", "{", "}", ":"):
            raise _Unresolved(self._text[begin:], "it is no name")
        return self._counted(self._braced(self._name(), begin))

    def _name(self) -> str:
        character = self._peek()
        if character in _SPECIAL and character:
            return self._next()
        match = _DIGITS.match(self._text, self._at) or _NAME.match(self._text, self._at)
        if match is None:
            return ""
        self._at = match.end()
        self.used.add(match[0])
        return match[0]

    def _value(self, name: str, piece: str) -> str | None:
        """None: it is not set. Raises where that, or to what, is not known."""
        values = self._values or {}
        if name not in values and (self._complete or piece == ""):
            return None
        value = values.get(name)
        if value is None:
            raise _Unresolved(piece or f"${name}")
        return value

    def _braced(self, name: str, begin: int) -> str:
        operator = self._next()
        if operator == "}":
            piece = self._text[begin : self._at]
            return piece if self._values is None else self._value(name, piece) or ""
        if operator == "/":
            return self._replaced(name, begin)
        colon = operator == ":"
        operator = self._next() if colon else operator
        is_pattern = operator in ("#", "%")
        if (colon and is_pattern) or (not colon and operator not in ("+", "-", "?", "#", "%")):
            raise _Unresolved(self._text[begin:], f"{shown(operator)} is no operator" if operator else "there is no }")
        word = self._until("}", is_pattern, is_pattern)[0]
        if self._values is None:
            return f"${{{name}{':' if colon else ''}{operator}{word}}}"
        if operator not in ("+", "-", "?", "#", "%"):
            raise _Unresolved(self._text[begin:], f"{shown(operator)} is no operator")
        value = self._value(name, "" if operator in ("-", "+") else self._text[begin : self._at])
        present = bool(value) if colon else value is not None
        match operator:
            case "-":
                return value or "" if present else word
            case "+":
                return word if present else ""
            case "?":
                if not present:
                    raise _Unresolved(self._text[begin : self._at], word or "it has to be set")
                return value or ""
        return self._trimmed(value or "", word, operator)

    def _trimmed(self, value: str, word: str, operator: str) -> str:
        """Without the prefix (``#``) or suffix (``%``) that the pattern matches: the longest where it is doubled."""
        longest = word.startswith(operator)
        pattern = self._pattern(word[1:] if longest else word, value, _LONGEST)
        if operator == "%":
            pattern, value = pattern[::-1], value[::-1]
        ends = list(self._ends(pattern, value, 0))
        left = value[(ends[-1] if longest else ends[0]) if ends else 0 :]
        return left[::-1] if operator == "%" else left

    def _pattern(self, text: str, value: str, most: int) -> list[str]:
        if max(len(text), len(value)) > most:
            raise _Unresolved(self._text)  # no reference, or part of one, is as long
        found: list[str] = []
        characters = iter(text)
        for character in characters:
            if character != "\\":
                token = f"{_WILD}{character}" if character in "*?" else character
                if token != _ANY or found[-1:] != [_ANY]:
                    found.append(token)
                continue
            escaped = next(characters, "")
            if escaped not in ("*", "?", "\\", "}", "/"):
                raise _Unresolved(self._text, f"the pattern has {shown(character + escaped)}")
            found.append(escaped)
        return found

    def _replaced(self, name: str, begin: int) -> str:
        everywhere = self._peek() == "/"
        self._at += everywhere
        pattern = self._until("/", True, True)[0]
        replacement = self._until("}", True)[0]
        piece = self._text[begin : self._at]
        if self._values is None:
            return f"${{{name}/{pattern}/{replacement}}}"
        value = self._value(name, piece) or ""
        tokens = self._pattern(pattern, value, _LONGEST // 8)
        out, at, matched = list[str](), 0, -1
        while at <= len(value):
            end = max(self._ends(tokens, value, at), default=at - 1)
            found = end > at or (end == at and at != matched)  # nothing right after a match is none
            out.append(replacement if found else "")
            matched = end if found else matched
            if end <= at:
                out.append(value[at : at + 1])
            at = max(end, at + 1)
            if found and not everywhere:
                break
        return "".join([*out, value[at:]])

    def _ends(self, pattern: list[str], value: str, begin: int) -> Iterator[int]:
        self._budget.spend(len(pattern) + len(value) - begin)
        return _ends(pattern, value, begin)

    def _counted(self, text: str) -> str:
        self._budget.spend(len(text))
        self._length += len(text)
        if self._length > LONGEST_VALUE and self._values is not None:
            raise _Unresolved(self._text)
        return text


_WILD = "\0"
"""Goes before a wildcard in a pattern: no text has it."""
_ANY = f"{_WILD}*"


def _ends(pattern: list[str], value: str, begin: int) -> Iterator[int]:
    """Where matches of the pattern that begin there end, the shortest first. All of them are followed at once, in the
    bits of a number, so each character of the value takes one step, however many wildcards the pattern has."""
    places: dict[str, int] = {}
    for at, token in enumerate(pattern):
        places[token] = places.get(token, 0) | 1 << at
    stars, anything = places.get(_ANY, 0), places.get(f"{_WILD}?", 0)
    states = 1
    for at in range(begin, len(value) + 1):
        states |= (states & stars) << 1  # of two stars in a row there is one
        if states >> len(pattern) & 1:
            yield at
        if at == len(value) or not states:
            return
        character = value[at]
        wild = character != "\n"
        taken = places.get(character, 0) | (anything if wild else 0)
        states = (states & taken) << 1 | (states & stars if wild else 0)


# -- statements --------------------------------------------------------------------------------------------------------


DEFAULT_ESCAPE = "\\"
_DIRECTIVE = re.compile(r"#[ \t]*([A-Za-z][A-Za-z0-9]*)[ \t]*=[ \t]*(.*)", re.ASCII)
_DIRECTIVES = frozenset({"syntax", "escape", "check"})
_HERE_DOCUMENT = re.compile(r"[0-9]*<<(-?)\s*([^<]*)", re.ASCII)
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


def _here_document_names(line: str) -> Iterator[tuple[str, bool, bool]]:
    """Name, whether tabs before the lines go, and whether variables in them are replaced.

    An arithmetic shift is one, too: builders see the ``<<`` of ``$((1 << 2))`` so.
    """
    try:
        words = _Lexer(line, DEFAULT_ESCAPE, raw=True).words()
    except _Unresolved:
        return  # a quote that has no end hides them all
    for word in words:
        match = _HERE_DOCUMENT.fullmatch(word)
        if match is None or not match[2]:
            continue
        try:
            names = _Lexer(match[2], DEFAULT_ESCAPE).words()
        except _Unresolved:
            continue
        if len(names) == 1:
            yield names[0], bool(match[1]), not any(quote in match[2] for quote in "\"'")


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
            elif name == "escape" and self._directives and self._matters(match[2]):
                before = ", ".join(f"# {each}" for each in self._directives)
                problem = f"# escape comes after {before}: buildah, which builds the image, does not see it there"
                self._fault(self._next, problem, "it in the first line")
                self._escape = match[2]
            else:
                self._directives[name] = match[2]
                self._escape = match[2] if name == "escape" else self._escape

    def _matters(self, escape: str) -> bool:
        """Whether the text is another one with this escape character."""
        return escape != self._escape and any(mark in line for line in self._lines[self._next :] for mark in "\\`")

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
            documents = self._here_documents(number, line)
        return Statement(line=number, name=name.upper(), rest=rest, here_documents=documents)

    def _here_documents(self, number: int, line: str) -> tuple[HereDocument, ...]:
        if "<<" not in line:
            return ()
        found: list[HereDocument] = []
        for name, tabs, expand in _here_document_names(line):
            content = self._until(name, tabs=tabs)
            if content is None:
                expected = f"a line with {shown(name)} alone"
                if name[:1].isdecimal() or name[:1] == "$":
                    expected += "; a shift is written without white space, as in $((1<<2))"
                self._fault(number, f"the here-document {shown(name)} has no end", expected)
                break
            found.append(HereDocument(name=name, content=content, expand=expand))
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
    found = instruction.arguments.split()  # builders know no quotes here
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


def triggered_instruction(instruction: Instruction, escape: str) -> Instruction:
    """What an ONBUILD says."""
    name, end = first_word(instruction.arguments, 0, escape)
    inner = Statement(line=instruction.line, name=name.upper(), rest=instruction.arguments[end:].strip())
    return instruction_of(inner, escape)


def _trigger(instruction: Instruction, escape: str) -> bool:
    inner = triggered_instruction(instruction, escape)
    if inner.name not in INSTRUCTIONS or inner.name in ("ONBUILD", "FROM", "MAINTAINER"):
        return False
    return INSTRUCTIONS[inner.name].complete(inner, escape)


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
    """As written; empty for a stage that the text goes on in, which has the name of the last one inside."""
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
    current = Stage(line=1, image="", name=inside[-1]) if inside else None
    misplaced = False
    for statement in read.statements:
        instruction = instruction_of(statement, read.escape)
        found = instruction_error(instruction, read.escape, name) if len(faults) < MAX_ERRORS else None
        if found is not None:
            faults.append(found)
        if instruction.name == "FROM":
            if current is not None:
                stages.append(msgspec.structs.replace(current, instructions=tuple(body)))
            current, body = _stage(instruction), []
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


def _stage(instruction: Instruction) -> Stage:
    found = instruction.arguments.split()
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
_INDEX = re.compile(r"[0-9]{1,9}", re.ASCII)
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
    platform: str = ""
    """The architecture that it is pulled for, wherever that is another one: nothing of it is run, only copied."""


class ExternalImages(msgspec.Struct, frozen=True, kw_only=True):
    """All images from outside, in the text's order, and what is wrong with them."""

    references: tuple[ExternalImage, ...]
    problems: tuple[Problem, ...]


def external_images(
    containerfile: Containerfile, *, architecture: str, args: Mapping[str, str], target: str = ""
) -> ExternalImages:
    """The external references of a Containerfile that is built for ``architecture`` on nodes of ``architecture``.

    Those of stages that the target does not need are not among them: no builder pulls or builds them."""
    return _Finder(containerfile, architecture, args).find(target)


def target_problem(containerfile: Containerfile, target: str) -> ContainerfileError | None:
    """The fault of a ``source.target`` that is no stage of the text."""
    if not target or stage_at(containerfile.stages, target) is not None:
        return None
    names = [stage.name for stage in containerfile.stages if stage.name]
    shown_names = ", ".join(names[:16]) if names else "none has a name"
    return ContainerfileError(
        text_name=containerfile.text_name,
        line=containerfile.stages[-1].line if containerfile.stages else 1,
        problem=f"there is no stage {shown(target)}, which source.target asks for",
        expected=f"a stage of the text ({shown_names})",
    )


def stage_at(stages: Sequence[Stage], name: str) -> int | None:
    """Where the stage is that a text names, by its name or its number; of two the later one."""
    named = [at for at, stage in enumerate(stages) if stage.name and stage.name == name.lower()]
    if named:
        return named[-1]
    return int(name) if _INDEX.fullmatch(name) and int(name) < len(stages) else None


def automatic_arguments(architecture: str) -> dict[str, str]:
    """The platform arguments that every builder sets, with the architecture as target and as build platform."""
    platform = Platform.of("linux", architecture)
    values = {"PLATFORM": str(platform), "OS": "linux", "ARCH": platform.architecture, "VARIANT": platform.variant}
    return {f"{side}{name}": value for side in ("TARGET", "BUILD") for name, value in values.items()}


class _StageUse(msgspec.Struct):
    """What a stage takes from elsewhere."""

    base: int | None = None
    """The stage that it begins with."""
    stages: list[int] = []
    """Others that it copies from or mounts."""
    images: list[ExternalImage] = []
    errors: list[Problem] = []
    warnings: list[Problem] = []
    runs: bool = False
    blank: bool = False
    """Its FROM names nothing, which builders refuse also where they would not build the stage."""
    foreign: str = ""
    """``--platform`` of its FROM, where that is another one than what is built."""


class _Finder:
    def __init__(self, containerfile: Containerfile, architecture: str, args: Mapping[str, str]) -> None:
        self._containerfile = containerfile
        self._architecture = architecture
        self._args = args
        self._given: dict[str, str | None] = dict(args)
        self._automatic = automatic_arguments(architecture)
        self._global: dict[str, str | None] = dict(self._automatic)
        self._places: dict[str, list[int]] = {}
        """Where the stages of each name are, so far as they were begun."""
        self._later = {stage.name for stage in containerfile.stages if stage.name}
        self._budget = ExpansionBudget()
        self._triggers_of: dict[int, Sequence[Instruction]] = {}
        self._line = 1
        """Of the instruction that is read."""

    def find(self, target: str) -> ExternalImages:
        try:
            return self._found(target)
        except ExpansionBudgetSpent:
            problems: list[Problem] = []
            sentence = (
                f"what its variables, patterns and ONBUILDs stand for takes more than {MAX_EXPANSION_STEPS} steps, one "
                "for each character that is read, inserted or compared; let fewer stages begin with one that has "
                "ONBUILDs, or shorten these, the values of variables and the patterns"
            )
            self._problem(problems, _INVALID, self._line, sentence)
            return ExternalImages(references=(), problems=tuple(problems))

    def _found(self, target: str) -> ExternalImages:
        stages = self._containerfile.stages
        for instruction in self._containerfile.header:
            self._count(instruction)
            self._declare(instruction, self._global, complete=True)
        uses: list[_StageUse] = []
        for at, stage in enumerate(stages):
            uses.append(self._begin(stage, at))
            if stage.name:
                self._places.setdefault(stage.name, []).append(at)
        wanted = stage_at(stages, target) if target else len(stages) - 1
        if wanted is None or not stages:
            return ExternalImages(references=(), problems=())
        needed = self._read_needed(uses, wanted)
        native = _begun_with(uses, [wanted, *(at for at in needed if uses[at].runs)])
        for at in needed:
            if uses[at].foreign and uses[at].base is None:
                self._settle_platform(stages[at], uses[at], is_native=at in native)
        found = [uses[at] for at in sorted(needed)]
        images = [image for use in found for image in use.images]
        errors = [problem for at, use in enumerate(uses) for problem in use.errors if use.blank or at in needed]
        errors += self._conflicts(images)
        warnings = [problem for use in found for problem in use.warnings]
        warnings += [
            msgspec.structs.replace(
                problem,
                reason="StageUnused",
                severity="Warning",
                message=f"{problem.message} (nothing needs that stage, so it is not built)",
            )
            for at, use in enumerate(uses)
            if at not in needed and not use.blank
            for problem in use.errors
        ]
        return ExternalImages(references=tuple(images), problems=(*errors[:MAX_ERRORS], *warnings[:MAX_ERRORS]))

    def _begin(self, stage: Stage, at: int) -> _StageUse:
        """What the FROM of a stage says: builders look at each."""
        use = _StageUse()
        if stage.image:
            self._line = stage.line
            self._budget.spend(len(stage.image) + len(stage.platform))
            self._base(stage, use, at)
        return use

    def _read_needed(self, uses: Sequence[_StageUse], wanted: int) -> set[int]:
        """Reads the stage and those that it needs; says which they are."""
        found, left = set[int](), [wanted]
        while left:
            at = left.pop()
            if at not in found:
                found.add(at)
                self._read(at, uses)
                base = uses[at].base
                left += [*uses[at].stages, *([base] if base is not None else [])]
        return found

    def _read(self, at: int, uses: Sequence[_StageUse]) -> None:
        use, stage = uses[at], self._containerfile.stages[at]
        self._line = stage.line
        # What ENV sets hides what ARG says.
        declared: ChainMap[str, str | None] = ChainMap({}, self._global, self._given)
        values = declared.new_child()
        triggered = self._triggers(use.base) if use.base is not None else ()
        self._budget.spend(_TRIGGER_STEPS * len(triggered))
        for instruction in (*triggered, *stage.instructions):
            self._count(instruction)
            if instruction.name == "ARG":
                self._declare(instruction, declared)
            elif instruction.name == "ENV":
                self._set(instruction, values)
            use.runs |= instruction.name == "RUN"
            for text in _sources(instruction):
                self._take(text, values, instruction, use, at)

    def _triggers(self, at: int) -> Sequence[Instruction]:
        """What the ONBUILDs of a stage say, for those that begin with it."""
        if (found := self._triggers_of.get(at)) is None:
            escape, instructions = self._containerfile.escape, self._containerfile.stages[at].instructions
            found = [triggered_instruction(each, escape) for each in instructions if each.name == "ONBUILD"]
            self._triggers_of[at] = found
        return found

    def _count(self, instruction: Instruction) -> None:
        self._line = instruction.line
        self._budget.spend(len(instruction.arguments) + sum(len(value) for _, value in instruction.flags))

    def _expanded(self, word: str, values: Mapping[str, str | None], *, complete: bool = False) -> Expansion:
        return expanded(word, values, self._containerfile.escape, complete=complete, budget=self._budget)

    def _stage_before(self, name: str, at: int) -> int | None:
        """The last stage of that name before another stage."""
        places = self._places.get(name, ())
        before = bisect_left(places, at)
        return places[before - 1] if before else None

    def _declare(
        self, instruction: Instruction, values: MutableMapping[str, str | None], *, complete: bool = False
    ) -> None:
        for word in split_words(instruction.arguments, self._containerfile.escape):
            name, equals, default = word.partition("=")
            if name in self._automatic:
                continue
            if name in self._args:
                values[name] = self._args[name]
            elif equals:
                values[name] = self._expanded(default, values, complete=complete).text

    def _set(self, instruction: Instruction, values: MutableMapping[str, str | None]) -> None:
        escape = self._containerfile.escape
        pairs = name_value_pairs(instruction.arguments, escape) or ()
        values.update([(name, self._expanded(value, values).text) for name, value in pairs])

    def _base(self, stage: Stage, use: _StageUse, at: int) -> None:
        for_build = False
        if stage.platform:
            expansion = self._expanded(stage.platform, self._global, complete=True)
            for_build = bool(expansion.used & _BUILD)
            if expansion.text is not None:
                try:
                    platform = self._platform(expansion.text)
                except InvalidPlatform:
                    use.blank = not expansion.text
                    problem = (
                        f"FROM has --platform={shown(stage.platform)}, which is {shown(expansion.text)}: no platform"
                    )
                    self._problem(use.errors, _INVALID, stage.line, f"{problem}; write one such as linux/amd64")
                else:
                    own = Platform.of("linux", self._architecture)
                    use.foreign = str(platform) if platform != own and not for_build else ""
        expansion = self._expanded(stage.image, self._global, complete=True)
        if expansion.text is None:
            self._unresolved(stage.image, expansion, stage.line, "FROM", use)
            return
        use.blank |= not expansion.text
        use.base = self._stage_before(expansion.text.lower(), at)
        if use.base is None:
            unset = sorted(name for name in expansion.used if not self._global.get(name))
            self._external(expansion.text, stage.image, stage.line, "FROM", use, for_build=for_build, unset=unset)

    def _platform(self, text: str) -> Platform:
        """As containerd reads it: one word is a system or an architecture. Raises InvalidPlatform."""
        if text.lower() in KNOWN_SYSTEMS:
            return Platform.parse(f"{text}/{self._architecture}")
        return Platform.parse(f"linux/{text}" if text and "/" not in text else text)

    def _take(self, word: str, values: Values, instruction: Instruction, use: _StageUse, at: int) -> None:
        line, name = instruction.line, instruction.name
        expansion = self._expanded(word, values)
        if expansion.text is None:
            self._unresolved(word, expansion, line, name, use)
            return
        index = int(expansion.text) if _INDEX.fullmatch(expansion.text) else None
        found = self._stage_before(expansion.text.lower(), at)
        found = index if found is None else found
        if found is not None and found < at:
            use.stages.append(found)
        elif (index is not None and name != "RUN") or expansion.text.lower() in self._later:
            sentence = f"{name} takes files from stage {shown(expansion.text)}, which does not come before this one; "
            sentence += "name one that does, or move that stage up"
            self._problem(use.errors, _INVALID, line, sentence)
        else:
            self._external(expansion.text, expansion.text, line, name, use)

    def _unresolved(self, word: str, expansion: Expansion, line: int, where: str, use: _StageUse) -> None:
        if expansion.wrong:
            sentence = f"{where} names the image {shown(word)}, which no builder can expand: {expansion.wrong}"
            self._problem(use.errors, _INVALID, line, sentence)
            return
        sentence = (
            f"{where} names the image {shown(word)}, in which {shown(expansion.unknown)} has no value; it is not "
            "pinned: give it a value in source.buildArgs or by ARG before the first FROM"
        )
        self._problem(use.warnings, "BaseImageUnresolved", line, sentence)

    def _external(
        self,
        text: str,
        word: str,
        line: int,
        where: str,
        use: _StageUse,
        *,
        for_build: bool = False,
        unset: Sequence[str] = (),
    ) -> None:
        if text == SCRATCH:
            return
        canonical, problem = _canonical(text)
        if problem:
            if unset:
                names = ", ".join(unset)
                problem = f"{names} has no value: give it one in source.buildArgs or by ARG {unset[0]}=… before FROM"
            as_written = shown(word) if word == text else f"{shown(word)}, which is {shown(text)}"
            self._problem(use.errors, _INVALID, line, f"{where} names the image {as_written}: {problem}")
            return
        found = ExternalImage(canonical=canonical, written=text, unexpanded=word, line=line, for_build=for_build)
        use.images.append(found)

    def _settle_platform(self, stage: Stage, use: _StageUse, *, is_native: bool) -> None:
        """What ``--platform`` means for the base: what is only copied is pulled for that platform. Where something of
        it is run, or is the image itself, the base is that of the architecture."""
        platform = Platform.parse(use.foreign)
        if is_native:
            if platform.node != Platform.of("linux", self._architecture).node:
                self._problem(
                    use.warnings,
                    "BaseImagePlatformFixed",
                    stage.line,
                    f"FROM has --platform={use.foreign}, but what is run or becomes the image is pulled for "
                    f"linux/{self._architecture}, as every base of an image for {self._architecture}; leave the flag "
                    "out, or write --platform=$BUILDPLATFORM",
                )
            return
        pinned = platform == Platform.of("linux", platform.architecture)
        images = use.images
        use.images = [each for each in images if each.line != stage.line]
        if pinned:
            use.images += [
                msgspec.structs.replace(each, platform=platform.architecture)
                for each in images
                if each.line == stage.line
            ]
        else:
            sentence = f"FROM has --platform={use.foreign}, and bases of that platform are not pinned"
            self._problem(use.warnings, "BaseImageUnresolved", stage.line, sentence)

    def _conflicts(self, images: Sequence[ExternalImage]) -> list[Problem]:
        """buildah is told what to pull by name: one name cannot mean two images."""
        found: list[Problem] = []
        first: dict[str, ExternalImage] = {}
        for image in images:
            known = first.setdefault(image.canonical, image)
            if known.platform != image.platform:
                names = [f"linux/{each.platform or self._architecture} in line {each.line}" for each in (known, image)]
                sentence = (
                    f"{image.canonical} is asked for as {' and as '.join(names)}; name one of them by the digest of "
                    "that platform's image (IMAGE@sha256:…)"
                )
                self._problem(found, _INVALID, image.line, sentence)
        return found

    def _problem(self, said: list[Problem], reason: str, line: int, sentence: str) -> None:
        if len(said) < MAX_ERRORS:
            message = f"Containerfile ({self._containerfile.text_name}), line {line}: {sentence}"
            severity: Literal["Error", "Warning"] = "Error" if reason == _INVALID else "Warning"
            said.append(Problem(reason=reason, message=message, architecture=self._architecture, severity=severity))


def _begun_with(uses: Sequence[_StageUse], those: Iterable[int]) -> set[int]:
    """These stages, those that they begin with, and so on."""
    found = set[int]()
    for at in those:
        following: int | None = at
        while following is not None and following not in found:
            found.add(following)
            following = uses[following].base
    return found


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
