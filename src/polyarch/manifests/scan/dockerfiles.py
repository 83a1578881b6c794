"""A Dockerfile as instructions with their places in the text, for edits that have to be certain.

The rules are those of BuildKit's parser: lines end with a line feed, an instruction goes on after a backslash at the
end of its line, and comments and empty lines between continued lines are no part of it. What this module does not read
with certainty (here-documents, another escape character) is a :attr:`Dockerfile.doubt`: then nothing is edited.

Pure.
"""

import posixpath
import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property


def is_dockerfile(path: str) -> bool:
    name = posixpath.basename(path).lower()
    return (
        name in ("dockerfile", "containerfile")
        or name.startswith(("dockerfile.", "containerfile."))
        or (name.endswith((".dockerfile", ".containerfile")))
    )


INSTRUCTIONS = frozenset(
    {
        "ADD",
        "ARG",
        "CMD",
        "COPY",
        "ENTRYPOINT",
        "ENV",
        "EXPOSE",
        "FROM",
        "HEALTHCHECK",
        "LABEL",
        "MAINTAINER",
        "ONBUILD",
    }
    | {"RUN", "SHELL", "STOPSIGNAL", "USER", "VOLUME", "WORKDIR"}
)
_LINE = re.compile(r"[^\n]*\n|[^\n]+")
_DIRECTIVE = re.compile(r"#[ \t]*(?P<name>[A-Za-z][A-Za-z0-9]*)[ \t]*=[ \t]*(?P<value>.*)", re.ASCII)
_SYNTAX = re.compile(r"(?:docker\.io/)?docker/dockerfile(?:-upstream)?(?:[:@].*)?")
_CONTINUED = re.compile(r"\\[ \t]*$")
_HERE_DOCUMENT = re.compile(r"<<(?P<tabs>-?)[ \t]*(?P<quote>[\"']?)(?P<name>[A-Za-z0-9_.]+)(?P=quote)", re.ASCII)
_UNUSUAL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\x85\u2028\u2029\ufeff]|\r(?!\n)")
_NAME = re.compile(r"[A-Za-z]+", re.ASCII)
_FROM = re.compile(
    r"FROM[ \t]+(?:--platform=(?P<platform>\S+)[ \t]+)?(?P<image>[^\s-]\S*)(?:[ \t]+AS[ \t]+(?P<name>\S+))?[ \t]*",
    re.ASCII | re.IGNORECASE,
)


@dataclass(frozen=True)
class Instruction:
    """One instruction; ``start`` and ``end`` are those of its lines in the file, with the last line break."""

    name: str
    """In capitals."""
    text: str
    """Its lines joined as the parser joins them; the lines of a here-document follow."""
    start: int
    end: int
    places: tuple[tuple[int, int], ...] = field(compare=False)
    """Offset in ``text`` → offset in the file, for the start of each joined line."""

    def at(self, offset: int) -> int:
        """The offset in the file of an offset in ``text``."""
        own, place = self.places[bisect_right(self.places, (offset, 1 << 62)) - 1]
        return place + offset - own

    @cached_property
    def stage(self) -> re.Match[str] | None:
        """``platform``, ``image`` and ``name`` of a FROM."""
        return _FROM.fullmatch(self.text) if self.name == "FROM" else None


@dataclass(frozen=True)
class Dockerfile:
    """The instructions of a text, and why they are not certain (empty: they are)."""

    instructions: tuple[Instruction, ...]
    doubt: str = ""

    def stage_of(self, instruction: Instruction) -> tuple[Instruction, ...]:
        """The instructions of its stage up to it, from the FROM on; empty before the first FROM."""
        number = self.instructions.index(instruction)
        starts = [place for place in range(number + 1) if self.instructions[place].name == "FROM"]
        return self.instructions[starts[-1] : number + 1] if starts else ()


def read_dockerfile(text: str) -> Dockerfile:
    """The instructions of a text; never raises for what it says."""
    return _DockerfileReader(text).read()


class _DockerfileReader:
    def __init__(self, text: str) -> None:
        self.lines = [(match.start(), match[0]) for match in _LINE.finditer(text)]
        self.next = 0
        self.doubts: list[str] = []
        if _UNUSUAL.search(text):
            self.doubts.append("it has control characters or unusual line breaks")
        if 0 < text.count("\r\n") < text.count("\n"):
            self.doubts.append("its lines end in two ways")

    def doubt(self, what: str) -> None:
        self.doubts.append(f"line {min(self.next, len(self.lines))} {what}")

    def read(self) -> Dockerfile:
        self.directives()
        found = list(self.instructions())
        first = next((each for each in found if each.name != "ARG"), None)
        if first is None or first.name != "FROM":
            self.doubts.append("its first instruction is no FROM")
        return Dockerfile(tuple(found), next(iter(self.doubts), ""))

    def directives(self) -> None:
        for number, (_, line) in enumerate(self.lines, 1):
            match = _DIRECTIVE.fullmatch(line.strip())
            name = match["name"].lower() if match else ""
            if match is None or name not in ("syntax", "escape", "check"):
                return
            if name == "escape" or (name == "syntax" and not _SYNTAX.fullmatch(match["value"].strip())):
                self.doubts.append(f"line {number} has a parser directive: {name}")

    def instructions(self) -> Iterator[Instruction]:
        while self.next < len(self.lines):
            start, line = self.lines[self.next]
            self.next += 1
            if not line.strip() or line.lstrip().startswith("#"):
                continue
            parts, goes_on = self.joined(start, line)
            if goes_on:
                self.doubt("ends the file with a backslash")
            text = "".join(part for _, part in parts)
            name = match[0].upper() if (match := _NAME.match(text)) else ""
            if name not in INSTRUCTIONS:
                self.doubt(f"has an unknown instruction: {text.strip()[:20]}")
            if name in ("RUN", "COPY", "ADD", "ONBUILD") and "<<" in text:
                self.doubt("has a here-document")
                parts += self.here_documents(name, text)
            yield self.complete(name, start, parts)

    def joined(self, start: int, line: str) -> tuple[list[tuple[int, str]], bool]:
        """The parts of an instruction, and whether it goes on where the file ends."""
        blank = len(line) - len(line.lstrip())
        parts, goes_on = [self.part(start + blank, line[blank:])], self.goes_on(line)
        while goes_on and self.next < len(self.lines):
            start, line = self.lines[self.next]
            self.next += 1
            if line.lstrip().startswith("#"):
                continue
            if not line.strip():
                self.doubt("is empty within an instruction")
                continue
            parts.append(self.part(start, line))
            goes_on = self.goes_on(line)
        return parts, goes_on

    def goes_on(self, line: str) -> bool:
        body = line.rstrip("\r\n")
        match = _CONTINUED.search(body)
        if match and body[: match.start()].endswith("\\"):
            self.doubt("ends with two backslashes")
        return match is not None

    @staticmethod
    def part(start: int, line: str) -> tuple[int, str]:
        return start, _CONTINUED.sub("", line.rstrip("\r\n"))

    def here_documents(self, name: str, text: str) -> list[tuple[int, str]]:
        """The lines of the here-documents of RUN, which are commands; those of COPY and ADD are files."""
        parts: list[tuple[int, str]] = []
        for match in _HERE_DOCUMENT.finditer(text):
            last = next(
                (
                    number
                    for number in range(self.next, len(self.lines))
                    if self.ends(self.lines[number][1], match["name"], tabs=bool(match["tabs"]))
                ),
                None,
            )
            if last is None:  # a shift or a here-string
                continue
            parts += self.lines[self.next : last] if name == "RUN" else []
            self.next = last + 1
        return [(start, f"\n{line.rstrip()}") for start, line in parts]

    @staticmethod
    def ends(line: str, name: str, *, tabs: bool) -> bool:
        body = line.rstrip("\r\n")
        return (body.lstrip("\t") if tabs else body) == name

    def complete(self, name: str, start: int, parts: list[tuple[int, str]]) -> Instruction:
        places, length = [], 0
        for place, part in parts:
            places.append((length, place - part.startswith("\n")))
            length += len(part)
        last, line = self.lines[self.next - 1]
        instruction = Instruction(name, "".join(part for _, part in parts), start, last + len(line), tuple(places))
        if name == "FROM" and instruction.stage is None:
            self.doubt("has a FROM of an unusual form")
        return instruction
